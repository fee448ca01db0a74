"""EncodedRows: dense features in fewer bits than float32, decoded row by row; their encoding and its loss of precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from shoal.errors import ShoalError, unknown_name
from shoal.kernels.jit import kernel

FEATURE_TYPES = ("float32", "float16", "bfloat16", "int8")
PLAIN, HALF, BFLOAT, SCALED = range(4)
_KINDS = {"float32": PLAIN, "float16": HALF, "bfloat16": BFLOAT, "int8": SCALED}
_CODES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,
    "int8": np.uint8,
}
_SCALE_BYTES = 4  # of a row's scale, behind its values
_ROWS_AT_ONCE = 1 << 14
STORED_AS = "features stored as"  # how a notice of what was lost begins


class EncodedRows:
    """A dense feature matrix stored in a smaller type; indexing decodes rows to float32.

    Attributes:
        codes: one row for each row of the matrix, in memory or memory-mapped. float16 as it is; bfloat16 as its bits,
            uint16; int8 as uint8, followed by the row's float32 scale in four bytes, so that one read gets both.
        type: one of FEATURE_TYPES.
        lost: the notice of the loss of precision, if the rows were encoded just now and the graph does not have it yet.
        shape, ndim, dtype: of the decoded matrix.
    """

    ndim = 2
    dtype = np.dtype(np.float32)

    def __init__(self, codes: np.ndarray, type: str, lost: str | None = None) -> None:
        if type not in FEATURE_TYPES:
            raise unknown_name("type of features", type, FEATURE_TYPES)
        width = count_features(type, codes.shape[-1])
        if codes.ndim != 2 or codes.dtype != _CODES[type] or width < 0:
            raise ShoalError(
                f"features of type {type} came as {codes.dtype} of shape {codes.shape}: expected a matrix of {np.dtype(_CODES[type])}"
            )
        self.codes = codes
        self.type = type
        self.lost = lost
        self.kind = _KINDS[type]
        self.shape = (len(codes), width)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return self.codes.nbytes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> np.ndarray:
        codes = self.codes[rows]
        decoded = decode_rows(codes.reshape(-1, self.codes.shape[1]), self.type)
        return decoded.reshape(*codes.shape[:-1], self.shape[1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)

    def __repr__(self) -> str:
        return f"EncodedRows({self.shape[0]:,} × {self.shape[1]:,}, {self.type})"


class RowEncoder:
    """Encodes float32 rows by chunks and measures the loss of precision.

    Attributes:
        type: the encoding, one of FEATURE_TYPES.
        largest: the largest error, relative to its row's largest magnitude.
    """

    def __init__(self, type: str) -> None:
        if type not in FEATURE_TYPES:
            raise unknown_name("type of features", type, FEATURE_TYPES)
        self.type = type
        self.largest = 0.0
        self._total, self._count = 0.0, 0

    def encode(self, x: np.ndarray) -> np.ndarray:
        """The codes of some rows; raises ShoalError for a value that the type cannot represent."""
        codes = encode_rows(x, self.type)
        if self.type != "float32" and x.size:
            given = np.ascontiguousarray(x, np.float32)
            largest, total = _measure_loss(given, flatten_codes(codes), codes.shape[1], _KINDS[self.type])
            self.largest = max(self.largest, float(largest))
            self._total += float(total)
            self._count += x.size
        return codes

    @property
    def mean(self) -> float:
        """The mean of these relative errors, over all values."""
        return self._total / max(self._count, 1)

    def describe(self, before: str = "float32") -> str | None:
        """The loss of precision as a sentence for a graph's notices; None if rows stayed float32.

        `before` is the previous type of the rows; the loss of that encoding is not known.
        """
        origin = "" if before == "float32" else f", from {before}"
        if self.type == "float32":
            return f"{STORED_AS} float32{origin}" if origin else None
        return f"{STORED_AS} {self.type}{origin}: off by at most {self.largest:.2g} of a row's largest value, {self.mean:.2g} on average"


def describe_type(type: str, num_features: int) -> tuple[np.dtype, int]:
    """(dtype, width) of the codes of a row."""
    return np.dtype(_CODES[type]), num_features + (_SCALE_BYTES if type == "int8" else 0)


def count_features(type: str, width: int) -> int:
    """The number of features in a row of `width` codes."""
    return width - (_SCALE_BYTES if type == "int8" else 0)


def encode_rows(x: np.ndarray, type: str) -> np.ndarray:
    """The codes (rows, width) of float32 rows: rounded to the nearest value the type has."""
    x = np.ascontiguousarray(x, np.float32)
    if type == "float32":
        return x
    if not np.isfinite(x).all():
        raise ShoalError(f"a feature is NaN or infinite: features of type {type} must be finite")
    if type == "int8":
        codes = np.zeros((len(x), x.shape[1] + _SCALE_BYTES), np.uint8)
        scale = np.abs(x).max(axis=1, initial=0) / np.float32(127)
        steps = np.rint(x / np.where(scale > 0, scale, 1)[:, None])
        codes[:, :-_SCALE_BYTES] = np.clip(steps, -127, 127).astype(np.int8).view(np.uint8)
        codes[:, -_SCALE_BYTES:] = scale.astype("<f4").view(np.uint8).reshape(-1, _SCALE_BYTES)
        return codes
    half = torch.from_numpy(x).to(torch.float16 if type == "float16" else torch.bfloat16)
    if not torch.isfinite(half).all():
        most = f"{torch.finfo(half.dtype).max:,.0f}" if type == "float16" else "3.39e38"
        raise ShoalError(
            f"a feature of {np.abs(x).max():.4g} does not fit {type}, whose maximum is {most}: scale the features, or use another type"
        )
    return half.numpy() if type == "float16" else half.view(torch.uint16).numpy()


def encode_matrix(x: np.ndarray | EncodedRows, type: str, codes: np.ndarray) -> str | None:
    """Encode all rows of a matrix into `codes`, which may be memory-mapped; returns the notice of the loss of precision."""
    encoder = RowEncoder(type)
    for start in range(0, len(x), _ROWS_AT_ONCE):
        codes[start : start + _ROWS_AT_ONCE] = encoder.encode(x[start : start + _ROWS_AT_ONCE])
    return encoder.describe(x.type if isinstance(x, EncodedRows) else "float32")


def decode_rows(codes: np.ndarray, type: str) -> np.ndarray:
    """Codes (rows, width) as float32 (rows, features)."""
    out = np.empty((len(codes), count_features(type, codes.shape[1])), np.float32)
    rows = np.arange(len(codes))
    take_rows(
        flatten_codes(codes), codes.shape[1], _KINDS[type], rows, out.reshape(-1), out.shape[1], 0, len(rows)
    )
    return out


def flatten_codes(codes: np.ndarray) -> np.ndarray:
    """Codes in the form kernels take: a flat plain array, float16 as its bits. Numba has neither memmap nor float16."""
    flat = np.ascontiguousarray(codes).view(np.ndarray).reshape(-1)
    return flat.view(np.uint16) if flat.dtype == np.float16 else flat


@kernel
def take_rows(source, width, kind, rows, out, f, start, stop):
    """`out[i] = decode(source[rows[i]])` for i from `start` to `stop`; source and out are flat. One thread."""
    for i in range(start, stop):
        row = source[rows[i] * width : (rows[i] + 1) * width]
        decode_row(row, kind, out[i * f : (i + 1) * f])


@kernel
def decode_row(row, kind, target):
    """A row's values from its codes."""
    if kind == HALF:
        _widen_half(row, target)
    elif kind == BFLOAT:
        for j in range(len(target)):
            target[j] = np.uint32(np.uint32(row[j]) << np.uint32(16)).view(np.float32)
    elif kind == SCALED:
        _scale(row, target)
    else:
        for j in range(len(target)):
            target[j] = row[j]


@kernel
def _measure_loss(x, codes, width, kind):
    """(largest, sum) of the errors of the codes of x, relative to each row's largest magnitude.

    Magnitudes are compared as bit patterns, which have the same order and vectorise.
    """
    f = x.shape[1]
    lost = np.empty(f, np.float32)
    largest, total = 0.0, 0.0
    for i in range(len(x)):
        decode_row(codes[i * width : (i + 1) * width], kind, lost)
        peak = worst = np.uint32(0)
        for j in range(f):
            peak = max(peak, np.uint32(np.float32(abs(x[i, j])).view(np.uint32)))
        for j in range(f):
            difference = np.float32(abs(lost[j] - x[i, j]))
            lost[j] = difference
            worst = max(worst, np.uint32(difference.view(np.uint32)))
        a = b = c = d = 0.0
        for j in range(0, f - 3, 4):
            a, b, c, d = a + lost[j], b + lost[j + 1], c + lost[j + 2], d + lost[j + 3]
        for j in range(f // 4 * 4, f):
            a += lost[j]
        scale = np.float64(np.uint32(peak).view(np.float32)) if peak > 0 else 1.0
        largest = max(largest, np.float64(np.uint32(worst).view(np.float32)) / scale)
        total += (a + b + c + d) / scale
    return largest, total


_SCALE = np.float32(2.0**112)  # moves the exponent's bias from float16's 15 to float32's 127


@kernel
def _widen_half(row, target):
    """Half to single precision by integer shifts, which vectorise; exact, subnormal and non-finite included."""
    for j in range(len(target)):
        bits = np.uint32(row[j])
        magnitude = np.uint32(np.uint32(bits & np.uint32(0x7FFF)) << np.uint32(13))
        value = np.uint32(np.float32(magnitude.view(np.float32) * _SCALE).view(np.uint32))
        if magnitude >= np.uint32(0x0F800000):
            value = np.uint32(value | np.uint32(0x7F800000))
        sign = np.uint32(np.uint32(bits & np.uint32(0x8000)) << np.uint32(16))
        target[j] = np.uint32(value | sign).view(np.float32)


@kernel
def _scale(row, target):
    """Signed bytes times the scale that follows them."""
    f = len(target)
    bits = np.uint32(row[f]) | np.uint32(row[f + 1]) << np.uint32(8)
    bits |= np.uint32(row[f + 2]) << np.uint32(16) | np.uint32(row[f + 3]) << np.uint32(24)
    scale = np.uint32(bits).view(np.float32)
    for j in range(f):
        target[j] = np.float32(np.int8(row[j])) * scale
