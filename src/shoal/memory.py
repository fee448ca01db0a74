"""A process's memory: how much it holds and held at most, and keeping what is freed for the next step's buffers."""

import ctypes
import resource
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

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


def read_memory() -> tuple[int, int]:
    """Bytes this process holds in memory, and the most it held since `forget_peak`."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM")))
        return tuple(1024 * int(sizes[name].split()[0]) for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
    except (OSError, KeyError):  # not Linux
        unit = 1 if sys.platform == "darwin" else 1024
        peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak, peak


def forget_peak() -> None:
    """Start again to watch for the most memory held; where the system does not let us, the old peak stays."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
