"""The memory budget and how sizes are written."""

import mmap

import numpy as np
import pytest

from shoal import memory
from shoal.errors import ShoalError


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 10**9), ("512MiB", 2**29), ("1.5 g", 15 * 10**8), ("123", 123), ("2TiB", 2**41)],
)
def test_sizes_are_read(text, size):
    assert memory.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "four", "4 parsecs", "-1GB", "GB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ShoalError, match="not a memory size"):
        memory.parse_bytes(text)


def test_the_budget_is_what_was_set_and_else_what_is_free():
    free = memory.memory_budget()
    memory.set_memory_budget(10**9)
    try:
        assert memory.memory_budget() == 10**9
    finally:
        memory.set_memory_budget(None)
    assert memory.memory_budget() > free / 2


def test_anonymous_memory_counts_what_is_allocated():
    before = memory.anonymous_memory()
    size = 1 << 27
    pages = mmap.mmap(
        -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )  # not from what was freed and kept
    block = np.frombuffer(pages, np.uint8)
    block[:] = 1
    assert memory.anonymous_memory() - before > 0.9 * size


def write_group(folder, figures):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in figures.items():
        (folder / name).write_text(str(text))


@pytest.fixture
def machine(tmp_path):
    """Files of a system with 8 GB available, without any limit."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    write_group(proc, {"meminfo": f"MemTotal: 16000000 kB\nMemAvailable: {8 * 10**9 // 1024} kB\n"})
    (proc / "self").mkdir()
    return proc, groups


def test_a_limit_of_either_version_of_control_groups_is_kept(machine):
    proc, groups = machine
    free = memory.available_memory(proc, groups)
    assert 7.9e9 < free < 8.1e9
    (proc / "self/cgroup").write_text("12:cpu,cpuacct:/job\n4:memory:/user/job\n")
    stat = "cache 999\ntotal_inactive_file 300000000\ntotal_active_file 200000000\n"
    own = {"memory.limit_in_bytes": 2 * 10**9, "memory.usage_in_bytes": 10**9, "memory.stat": stat}
    write_group(groups / "memory/user/job", own)
    write_group(groups / "memory", {"memory.limit_in_bytes": 2**63 - 4096, "memory.usage_in_bytes": 10**9})
    assert memory.available_memory(proc, groups) == 15 * 10**8  # pages of files can be given back
    write_group(groups / "memory/user", {"memory.limit_in_bytes": 10**9, "memory.usage_in_bytes": 7 * 10**8})
    assert memory.available_memory(proc, groups) == 3 * 10**8  # a group above it is nearer its limit
    (proc / "self/cgroup").write_text("0::/job\n")
    assert memory.available_memory(proc, groups) == free
    stat = "inactive_file 100000000\nactive_file 0\n"
    write_group(groups / "job", {"memory.max": 10**9, "memory.current": 5 * 10**8, "memory.stat": stat})
    assert memory.available_memory(proc, groups) == 6 * 10**8


def test_a_container_that_sees_its_own_group_as_the_root_is_limited(machine):
    proc, groups = machine
    (proc / "self/cgroup").write_text("4:memory:/docker/0123\n")
    write_group(groups / "memory", {"memory.limit_in_bytes": 10**9, "memory.usage_in_bytes": 4 * 10**8})
    assert memory.available_memory(proc, groups) == 6 * 10**8


def test_what_exceeds_a_given_budget_is_refused_with_what_it_takes():
    memory.require_memory(10**12, "sorting")  # without a budget nothing is refused
    base = memory.base_memory()
    try:
        memory.set_memory_budget(base + 10**9)
        memory.require_memory(9 * 10**8, "sorting")
        with pytest.raises(
            ShoalError, match=r"sorting takes about .* GB of memory.*: sort less, or allow more"
        ):
            memory.require_memory(11 * 10**8, "sorting", "sort less")
        memory.set_memory_budget(10**6)  # where not even Python fits, sorting less does not help
        with pytest.raises(ShoalError, match=r"--memory allows 1.0 MB: allow more"):
            memory.require_memory(10, "sorting", "sort less")
    finally:
        memory.set_memory_budget(None)
