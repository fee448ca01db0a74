"""Words that depend on a number."""


def count(number: int, noun: str) -> str:
    """So many of them: `1 part`, `2 parts`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
