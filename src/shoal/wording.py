"""Wording of messages: plurals, sizes in bytes, lists of names."""

from collections.abc import Sequence


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 part`, `2 parts`, `2 batches`."""
    plural = f"{noun}es" if noun.endswith(("s", "x", "tch", "sh")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def format_bytes(size: float) -> str:
    """Bytes in the unit that leaves the fewest digits before the point."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def list_some(names: Sequence[str], most: int = 8) -> str:
    """Names joined by commas; of a long list the first ones and how many more."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
