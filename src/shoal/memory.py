"""Memory of this process: its use, its budget, and the reuse of freed buffers."""

import ctypes
import mmap
import os
import re
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from shoal.errors import ShoalError
from shoal.wording import format_bytes

_PAGE = mmap.PAGESIZE
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 30  # bytes of freed memory to keep
_RETURNED = 1 << 20  # bytes of a block that is returned when it is freed
BUILDING = 48 << 20  # bytes that chunks of rows and edges take while a graph is built
_CODE = 40 << 20  # bytes of kernels that a command still loads, each when it is first called
_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}B": size for unit, size in _UNITS.items() if unit not in ("", "B")}
_UNITS |= {f"{unit}IB": 2 ** (10 * power) for power, unit in enumerate("KMGT", 1)}

# Files of a control group: its limit and its usage; then the entries of the page cache in `memory.stat`.
_VERSION_2 = ("memory.max", "memory.current", ("inactive_file", "active_file"))
_VERSION_1 = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
_budget: list[int] = []  # what `set_memory_budget` was given, at most one


def keep_freed_memory() -> bool:
    """Tell the C library to keep up to 1 GiB of freed memory instead of returning it at once.

    A training step frees and allocates the same large matrices again and again. Returned to the system, each
    comes back as fresh pages whose first touch costs more than the arithmetic done on them. Returns True if the
    C library supports it (glibc). It affects the whole process.
    """
    return _set_thresholds(_KEPT)


def return_blocks() -> bool:
    """Undo `keep_freed_memory`: blocks of 1 MiB and more go back to the system as soon as they are freed (glibc).

    Otherwise blocks of many sizes, allocated by several threads, fragment the heap.
    """
    return _set_thresholds(_RETURNED)


def _set_thresholds(size: int) -> bool:
    try:
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(_MMAP_THRESHOLD, size) and libc.mallopt(_TRIM_THRESHOLD, size))
    except (OSError, AttributeError):
        return False


def return_freed_memory() -> None:
    """Return freed memory to the system (glibc). Until then it counts as held."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def read_ahead(address: int, size: int) -> None:
    """Ask the system to read the mapped files of a memory range in the background (MADV_WILLNEED)."""
    first = address & -_PAGE
    with suppress(OSError, AttributeError):
        _find_madvise()(ctypes.c_void_p(first), ctypes.c_size_t(address + size - first), mmap.MADV_WILLNEED)


@lru_cache
def _find_madvise() -> Callable[..., int]:
    """The C library's `madvise`, looked up once."""
    found: Callable[..., int] = ctypes.CDLL(None).madvise
    return found


def parse_bytes(text: str) -> int:
    """Bytes from `4GB`, `512MiB` or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise ShoalError(
            f"{text!r} is not a memory size: expected a number with a unit, such as 4GB or 512MiB"
        )
    return int(float(found[1]) * _UNITS[found[2].upper()])


def set_memory_budget(size: int | None) -> None:
    """Let this process hold at most `size` bytes of anonymous memory; None: all free memory."""
    _budget[:] = [] if size is None else [size]


def given_budget() -> int | None:
    """The budget that was set; None if the free memory decides."""
    return _budget[0] if _budget else None


def memory_budget() -> int:
    """Bytes of anonymous memory this process may hold: the budget that was set, else what it holds and what is free."""
    return _budget[0] if _budget else anonymous_memory() + available_memory()


def memory_left() -> int:
    """Bytes that the budget has left for this process."""
    return max(memory_budget() - anonymous_memory(), 0)


def base_memory() -> int:
    """Bytes that this process needs before it loads data: what it holds now, and kernels that are not loaded yet."""
    return anonymous_memory() + _CODE


def require_memory(size: int, what: str, helps: str = "") -> None:
    """Raise if a budget was set and `what`, which takes `size` bytes besides Python, torch and kernels, exceeds it.

    `helps` is advice on how to make it smaller.
    """
    base, budget = base_memory(), given_budget()
    if budget is not None and base + size > budget:
        advice = f"{helps}, or " if helps and base < budget else ""
        raise ShoalError(
            f"{what} takes about {format_bytes(base + size)} of memory, {format_bytes(base)} of them Python, torch and "
            f"compiled kernels, and --memory allows {format_bytes(budget)}: {advice}allow more"
        )


def anonymous_memory() -> int:
    """Bytes of anonymous memory this process holds: what was allocated, without pages of files."""
    held = _read_figures(Path("/proc/self/status")).get("RssAnon:")
    if held is not None:
        return 1024 * held
    unit = 1 if sys.platform == "darwin" else 1024  # not Linux: the most it held
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available_memory(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Bytes this process may still allocate: MemAvailable, or less under the limit of a control group or `ulimit -v`.

    The page cache counts as available, since it is reclaimed on demand: MemAvailable includes it, and it is subtracted
    from a control group's usage. The limits of parent groups apply too.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    known = _read_figures(Path(proc, "meminfo"))
    free = known.get("MemAvailable:", free // 1024) * 1024
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if addresses != resource.RLIM_INFINITY:
        free = min(free, addresses - 1024 * _read_figures(Path("/proc/self/status")).get("VmSize:", 0))
    for group in _list_groups(Path(proc, "self/cgroup"), Path(groups)):
        for limit, used, pages in (_VERSION_2, _VERSION_1):
            try:
                allowed, taken = (int((group / name).read_text()) for name in (limit, used))
            except (
                OSError,
                ValueError,
            ):  # no limit: "max" in version 2, a number beyond any memory in version 1
                continue
            known = _read_figures(group / "memory.stat")
            files = sum(known.get(name, 0) for name in pages)
            free = min(free, allowed - max(taken - files, 0))
    return max(free, 0)


def _read_figures(path: Path) -> dict[str, int]:
    """{name: number} from a file of lines `name number …`."""
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _list_groups(own: Path, root: Path) -> list[Path]:
    """The control groups of this process and all above them: version 2's line `0::/path`, version 1's `N:memory:/path`.

    In a container the path may be the host's, which is not visible; then the root is the process's group.
    """
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    found = {root: None, root / "memory": None}
    for line in lines:
        if len(line) == 3 and (line[:2] == ["0", ""] or "memory" in line[1].split(",")):
            top = root if line[1] == "" else root / "memory"
            group = top / line[2].strip("/")
            found |= {one: None for one in (group, *group.parents) if one.is_relative_to(top)}
    return list(found)
