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
    with pytest.raises(ShoalError, match="no size of memory"):
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
