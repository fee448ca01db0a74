"""Checks of settings: what was got, what is expected."""

from typing import SupportsIndex

from shoal.errors import ShoalError

MAX_NODES = 2**31
MAX_THREADS = 4096
MAX_SEED = 2**63 - 1
MAX_EDGES = 2**40


def check_whole(name: str, value: object, low: int, high: int) -> int:
    """`value` as an int, refused unless it is a whole number from `low` to `high`."""
    whole = _as_whole(value)
    if whole is None or not low <= whole <= high:
        raise ShoalError(f"{name} is {value!r}: expected a whole number from {low:,} to {high:,}")
    return whole


def check_number(name: str, value: object, low: float, high: float, *, open_end: bool = False) -> float:
    """`value` as a float, refused unless it lies between `low` and `high` (`open_end`: high excluded)."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if not low <= number <= high or (open_end and number == high):
        less = "below" if open_end else "to"
        raise ShoalError(f"{name} is {value!r}: expected a number from {low:g} {less} {high:g}")
    return number


def check_positive(**settings: object) -> None:
    """Refuse settings that are not positive whole numbers."""
    for name, value in settings.items():
        whole = _as_whole(value) if isinstance(value, SupportsIndex) else None
        if whole is None or whole < 1:
            raise ShoalError(f"{name} is {value!r}: expected a whole number of at least 1")


def _as_whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        whole = int(value)  # type: ignore[call-overload]
        return int(whole) if whole == value else None
    except (TypeError, ValueError, OverflowError):
        return None
