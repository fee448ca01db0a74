"""Words that depend on a number."""


def count(number: int, noun: str) -> str:
    """So many of them: `1 part`, `2 parts`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_bytes(size: float) -> str:
    """Bytes in the unit that leaves the fewest digits before the point."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
