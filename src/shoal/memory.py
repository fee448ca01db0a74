"""A process's memory: what it holds, what it held at most, what it may still take, and keeping freed buffers."""

import ctypes
import os
import re
import resource
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from shoal.errors import ShoalError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 30
_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}B": size for unit, size in _UNITS.items() if unit not in ("", "B")}
_UNITS |= {f"{unit}IB": 2 ** (10 * power) for power, unit in enumerate("KMGT", 1)}

_budget: list[int] = []  # what `set_memory_budget` was given, at most one


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


def parse_bytes(text: str) -> int:
    """Bytes from `4GB`, `512MiB` or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise ShoalError(
            f"{text!r} is no size of memory: expected a number with a unit, such as 4GB or 512MiB"
        )
    return int(float(found[1]) * _UNITS[found[2].upper()])


def set_memory_budget(size: int | None) -> None:
    """Let this process hold at most `size` bytes of anonymous memory; None for what is free."""
    _budget[:] = [] if size is None else [size]


def given_budget() -> int | None:
    """The budget that was set, None where what is free decides."""
    return _budget[0] if _budget else None


def memory_budget() -> int:
    """Bytes of anonymous memory this process may hold: the budget that was set, else what it holds and what is free."""
    return _budget[0] if _budget else anonymous_memory() + available_memory()


def memory_left() -> int:
    """Bytes that the budget has left for this process."""
    return max(memory_budget() - anonymous_memory(), 0)


def anonymous_memory() -> int:
    """Bytes of anonymous memory this process holds: what was allocated, without pages of files."""
    figures = _read_figures(Path("/proc/self/status"))
    return 1024 * figures.get("RssAnon:", read_memory()[0] // 1024)


def available_memory(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Bytes this process may still take: what the system says is available, less where a control group's limit is nearer.

    Pages of files are given back when memory is wanted, so they count as available: MemAvailable has them, and what a
    control group uses is taken without them. A group's parents limit it too.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    known = _read_figures(Path(proc, "meminfo"))
    free = known.get("MemAvailable:", free // 1024) * 1024
    for group in _list_groups(Path(proc, "self/cgroup"), Path(groups)):
        try:
            limit = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text())
        except (OSError, ValueError):  # no limit is the word "max"
            continue
        pages = _read_figures(group / "memory.stat")
        files = pages.get("inactive_file", 0) + pages.get("active_file", 0)
        free = min(free, limit - max(used - files, 0))
    return max(free, 0)


def _read_figures(path: Path) -> dict[str, int]:
    """The first number behind each name of a file of lines `name number …`."""
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _list_groups(own: Path, root: Path) -> list[Path]:
    """The control group of this process and all above it (version 2: the line `0::/path`)."""
    try:
        paths = [line[3:] for line in own.read_text().splitlines() if line.startswith("0::")]
    except OSError:
        paths = []
    group = root / paths[0].strip("/") if paths else root
    return [group, *(above for above in group.parents if above.is_relative_to(root))]
