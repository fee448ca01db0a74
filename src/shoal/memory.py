"""Keeping freed memory in the process: the next step's buffers are then already backed by pages."""

import ctypes
from functools import lru_cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 30


@lru_cache
def keep_freed_memory() -> bool:
    """Tell the C library to keep up to 1 GiB of freed memory instead of returning it at once.

    A training step frees and allocates the same large matrices again and again. Returned to the system, each
    comes back as fresh pages whose first touch costs more than the arithmetic done on them. True where the
    C library understood (glibc); a call changes the whole process and only the first one does anything.
    """
    try:
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(_MMAP_THRESHOLD, _KEPT) and libc.mallopt(_TRIM_THRESHOLD, _KEPT))
    except (OSError, AttributeError):
        return False
