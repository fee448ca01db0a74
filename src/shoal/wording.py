"""Words that depend on a number."""

from collections.abc import Sequence


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


def list_some(names: Sequence[str], most: int = 8) -> str:
    """Names joined by commas; of a long list the first ones and how many more."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
