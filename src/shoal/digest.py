"""SHA-256 digests of arrays."""

from __future__ import annotations

import hashlib

import numpy as np


class _HashingFile:
    """What is written is hashed."""

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
