"""Reading Planetoid's pickles without running them: containers, NumPy arrays and CSR matrices, nothing else.

No class of NumPy or SciPy is given to the unpickler. The few names that such files refer to are resolved to
inert records, and arrays are made afterwards from the records' bytes, shape and plain number type.
"""

from __future__ import annotations

import math
import pickle
import pickletools
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.datasets.importers.files import reading
from shoal.errors import ShoalError
from shoal.validation import check_csr

EXPECTED = "a Planetoid pickle"


class _NumberType:
    """Stands for numpy.dtype: a plain number type such as f4 and its byte order."""

    def __init__(self, code: str, *flags: object) -> None:
        self.code = code
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def resolve(self) -> np.dtype:
        found = np.dtype(self.code)
        if found.kind not in "biuf":
            raise ValueError(f"an array of type {self.code!r}")
        return found.newbyteorder(">") if self.order == ">" else found


class _Array:
    """Stands for numpy.ndarray: its pickled state."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.number_type, self.by_column, self.raw = state

    def resolve(self) -> np.ndarray:
        raw = self.raw.encode("latin1") if isinstance(self.raw, str) else self.raw
        dtype, shape = self.number_type.resolve(), tuple(int(size) for size in self.shape)
        if len(raw) != dtype.itemsize * math.prod(shape):
            raise ValueError(f"{len(raw)} bytes for an array of shape {shape}")
        return np.frombuffer(raw, dtype).reshape(shape, order="F" if self.by_column else "C")


class _Matrix:
    """Stands for scipy.sparse.csr_matrix: its attributes."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state

    def resolve(self) -> sp.csr_array:
        parts = tuple(self.state[key].resolve() for key in ("data", "indices", "indptr"))
        shape = self.state["_shape"] if "_shape" in self.state else self.state["shape"]
        rows, columns = (int(size) for size in shape)
        check_csr("the matrix", parts[2], parts[1], rows, columns)
        if parts[0].dtype.kind not in "fiub":
            raise ValueError(f"a matrix of {parts[0].dtype}")
        return sp.csr_array(parts, shape=(rows, columns))


class _Base:
    """Stands for the builtin `object` and for numpy.ndarray as a mere argument."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise ValueError("a bare object with state")


class _Maker:
    """A function the pickle may call but not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise ValueError("a function with state")


@_Maker
def _make_array(*_: object) -> _Array:
    return _Array()


@_Maker
def _make_scalar(number_type: _NumberType, raw: Any) -> Any:
    array = _Array()
    array.__setstate__((1, (1,), number_type, False, raw))
    return array.resolve()[0].item()


@_Maker
def _make_instance(cls: type, *_: object) -> _Matrix:
    if cls is not _Matrix:
        raise ValueError("an instance of another class")
    return _Matrix()


@_Maker
def _encode_bytes(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"bytes in {encoding}")
    return text.encode("latin1")


_BUILTINS = {
    "list": list,
    "dict": dict,
    "set": set,
    "tuple": tuple,
    "int": int,
    "float": float,
    "object": _Base,
}
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "defaultdict"): defaultdict,
    ("numpy", "dtype"): _NumberType,
    ("numpy", "ndarray"): _Base,
    ("_codecs", "encode"): _encode_bytes,  # how Python 3 writes bytes for Python 2
    **{(module, name): kind for module in ("builtins", "__builtin__") for name, kind in _BUILTINS.items()},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _make_array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _make_scalar for core in ("core", "_core")},
    **{(f"scipy.sparse.{module}", "csr_matrix"): _Matrix for module in ("csr", "_csr")},
    **{(module, "_reconstructor"): _make_instance for module in ("copy_reg", "copyreg")},
}


class _Unpickler(pickle.Unpickler):
    path: Path

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise ShoalError(
                f"{self.path} refers to {module}.{name}: refused, a Planetoid pickle needs arrays and containers only"
            ) from None


def _check_sizes(content: bytes) -> None:
    """Raise for lengths beyond the file and for unused memo positions: the unpickler would allocate memory for both."""
    for count, (code, argument, _) in enumerate(pickletools.genops(content), 1):
        if "PUT" in code.name and int(argument or 0) > count:
            raise ValueError(f"position {argument} of a memo with at most {count}")


def read_pickle(path: Path) -> Any:
    """The array, matrix or container in `path`. Anything but plain data is refused and never run."""
    with reading(path, EXPECTED), open(path, "rb") as file:
        unpickler = _Unpickler(file, encoding="latin1")
        unpickler.path = path
        try:
            _check_sizes(path.read_bytes())
            found = unpickler.load()
            return found.resolve() if isinstance(found, _Array | _Matrix) else found
        except (ShoalError, EOFError, OSError):
            raise
        except Exception as error:  # a malformed pickle can raise any exception
            raise ValueError(str(error) or type(error).__name__) from None
