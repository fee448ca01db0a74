"""SHA-256 digests of arrays."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


class _HashingFile:
    """A file object that hashes what is written to it."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return len(content)


def digest_array(array: np.ndarray) -> str:
    """The SHA-256 of the .npy file that would hold `array`."""
    file = _HashingFile()
    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    return file.digest.hexdigest()


def digest_arrays(*arrays: np.ndarray | None) -> str:
    """The SHA-256 of types, shapes and bytes of several arrays; None is left out."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def name_features(x: Any) -> dict[str, np.ndarray | None]:
    """The arrays of features by name: a matrix, its codes, or the three arrays of a sparse one."""
    x = getattr(x, "codes", x)
    if x is None or isinstance(x, np.ndarray):
        return {"x": x}
    return {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr}


def combine_digests(arrays: dict[str, np.ndarray | None], known: dict[str, tuple[np.ndarray, str]]) -> str:
    """A digest of the digests of named arrays. Arrays with a `known` digest (those of a stored graph) are not read."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        if array is not None:
            read, found = known.get(name, (None, ""))
            digest.update(f"{name} {found if read is array else digest_array(array)}\n".encode())
    return digest.hexdigest()
