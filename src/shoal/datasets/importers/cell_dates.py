"""Dates as text or as Arrow's own types: days since 1970."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NATIVE = "native"
_TIME = r"(?:[T ](?P<H>\d{2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:\.\d*)?)?\s*(?P<z>Z|[+-]\d{2}:?\d{2})?)?$"
_YEAR, _MONTH, _DAY = r"(?P<y>[12]\d{3})", r"(?P<m>\d{1,2})", r"(?P<d>\d{1,2})"
FORMS = {
    "year-month-day": rf"^{_YEAR}-{_MONTH}-{_DAY}{_TIME}",
    "year/month/day": rf"^{_YEAR}/{_MONTH}/{_DAY}{_TIME}",
    "day.month.year": rf"^{_DAY}\.{_MONTH}\.{_YEAR}{_TIME}",
    "day/month/year": rf"^{_DAY}/{_MONTH}/{_YEAR}{_TIME}",
    "month/day/year": rf"^{_MONTH}/{_DAY}/{_YEAR}{_TIME}",
    "day-month-year": rf"^{_DAY}-{_MONTH}-{_YEAR}{_TIME}",
    "month-day-year": rf"^{_MONTH}-{_DAY}-{_YEAR}{_TIME}",
}
LOOKS_LIKE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ]|$)"
DAYS_A_YEAR = 365.25
_EARLIEST, _LATEST = np.datetime64("0001-01-01", "s"), np.datetime64("9999-12-31", "s")


def is_date(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a date or a timestamp."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def parse_dates(column: pa.Array, form: str) -> np.ndarray:
    """Days since 1970 as float64, with the time of day as a fraction; NaN where there is no date of that form."""
    if form == NATIVE:
        seconds = column.cast(pa.timestamp("s"), safe=False).to_numpy(zero_copy_only=False)
        seconds = np.array(seconds, "datetime64[s]")
        outside = ~((seconds >= _EARLIEST) & (seconds <= _LATEST))  # NaT too
        return np.where(outside, np.nan, seconds.astype(np.int64) / 86400)
    parts = pc.extract_regex(column, FORMS[form])
    found = np.asarray(pc.is_valid(parts))

    def read(name: str) -> np.ndarray:
        cells = pc.struct_field(parts, name)
        digits = pc.if_else(pc.match_substring_regex(cells, r"^\d+$"), cells, pa.scalar(None, cells.type))
        return np.array(pc.fill_null(digits.cast(pa.int64()), 0).to_numpy(zero_copy_only=False))

    year, month, day = read("y"), read("m"), read("d")
    hour, minute, second = read("H"), read("M"), read("S")
    found = found & (month >= 1) & (month <= 12) & (hour < 25) & (minute < 60) & (second < 61)
    months = (np.where(found, year - 1970, 0) * 12 + np.where(found, month - 1, 0)).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + np.where(found, day - 1, 0)
    found &= (days.astype("datetime64[M]") == months) & (day >= 1)
    time = (hour * 3600 + minute * 60 + second - _read_offsets(pc.struct_field(parts, "z"))) / 86400
    return np.where(found, days.astype(np.int64) + time, np.nan)


def _read_offsets(zones: pa.Array) -> np.ndarray:
    """Seconds that the clock of each zone, `+02:00` or `Z`, is ahead of UTC; 0 without a zone."""
    offsets = np.zeros(len(zones))
    for zone in pc.unique(zones).to_pylist():
        if zone and zone != "Z":
            seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
            offsets[np.asarray(pc.fill_null(pc.equal(zones, zone), False))] = (
                -seconds if zone[0] == "-" else seconds
            )
    return offsets


def encode_days(days: np.ndarray, mean: float) -> np.ndarray:
    """Years since the mean date, and sine and cosine of the time of year; float32 `(rows, 3)`, zeros where NaN."""
    angle = 2 * np.pi * np.mod(days, DAYS_A_YEAR) / DAYS_A_YEAR
    block = np.stack([(days - mean) / DAYS_A_YEAR, np.sin(angle), np.cos(angle)], axis=1)
    return np.where(np.isnan(block), 0, block).astype(np.float32)
