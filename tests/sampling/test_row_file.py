"""Rows of a file, read in any order, with and without the page cache."""

import errno
import os

import numpy as np
import pytest

from shoal.errors import ShoalError
from shoal.sampling import row_file
from shoal.sampling.row_file import RowFile, count_buffers

# -- reading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["page cache", "direct", "queued", "no queue"])
@pytest.mark.parametrize("shape", [(5000, 7), (300, 1024), (9, 100_000)])
def test_rows_are_read_in_the_order_asked_for(tmp_path, shape, way, monkeypatch):
    direct = way != "page cache"
    if way == "direct":
        monkeypatch.setattr(row_file, "HAS_QUEUES", False)
    elif way == "no queue":
        monkeypatch.setattr(row_file, "open_queue", lambda depth: 0)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal(shape).astype(np.float32))
    x = np.lib.format.open_memmap(tmp_path / "x.npy", mode="r")
    file = RowFile(x, num_threads=3, direct=direct)
    assert len(file._queues) == (2 if way == "queued" and file.is_direct else 0)
    assert file._pool._max_workers == (len(file._queues) or 3)
    last = len(x) - 1
    for rows in ([], [last], [last, 0, last], rng.integers(0, len(x), 400), np.arange(len(x))):
        rows = np.asarray(rows, np.int32)
        read, num_bytes = file.start(rows).wait()
        np.testing.assert_array_equal(read.view(np.float32).reshape(-1, x.shape[1]), x[rows])
        assert num_bytes >= len(np.unique(rows)) * file.row_bytes
    assert all(queue.is_open for queue in file._idle)
    assert len(file._idle) == len(file._queues)
    file.close()


def test_a_queue_whose_reads_nobody_waits_for_is_replaced(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.arange(64_000, dtype=np.float32).reshape(1000, 64))
    x = np.lib.format.open_memmap(tmp_path / "x.npy", mode="r")
    file = RowFile(x, num_threads=100, direct=True)
    if not file._queues:
        pytest.skip("the system has no queues")
    assert [len(queue.arrays[3]) for queue in file._queues] == [256, 256]
    assert sum(q.arrays[3].nbytes for q in file._queues) <= count_buffers(file.row_bytes, 100, True)
    closed, real = [], row_file.close_queue
    monkeypatch.setattr(row_file, "close_queue", lambda queue: closed.append(queue) or real(queue))
    with monkeypatch.context() as patch:
        patch.setattr(row_file, "read_queued", lambda *_: (False, 0))
        read, _ = file.start(np.array([5, 700], np.int32)).wait()
    np.testing.assert_array_equal(read.view(np.float32).reshape(2, 64), x[[5, 700]])
    assert len(closed) == 1
    assert all(queue.is_open for queue in file._queues)
    file.start(np.arange(1000, dtype=np.int32)).wait()
    file.close()
    assert len(closed) == 3


def test_a_file_system_that_opens_past_the_page_cache_but_does_not_read_so(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.ones((1000, 64), np.float32))
    monkeypatch.setattr(row_file.os, "preadv", refuse_to_read)
    file = RowFile(np.lib.format.open_memmap(tmp_path / "x.npy", mode="r"), direct=True)
    assert not file.is_direct
    assert (file.start(np.array([3], np.int32)).wait()[0].view(np.float32) == 1).all()
    file.close()


def refuse_to_read(*_):
    raise OSError(errno.EINVAL, "invalid argument")


def test_near_rows_are_one_read(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100_000, 64), np.float16))
    file = RowFile(np.lib.format.open_memmap(tmp_path / "x.npy", mode="r"))
    _, near = file.start(np.arange(0, 1000, 2, dtype=np.int32)).wait()
    assert near < 1000 * 128 + 2 * 4096
    _, far = file.start(np.arange(0, 100_000, 1000, dtype=np.int32)).wait()
    assert 100 * 4096 <= far <= 100 * 2 * 4096
    file.close()


def test_an_error_of_the_disk_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100, 64), np.float32))
    file = RowFile(np.lib.format.open_memmap(tmp_path / "x.npy", mode="r"))
    with open(tmp_path / "x.npy", "r+b", buffering=0) as other:
        own, file._file = file._file, os.open(tmp_path, os.O_RDONLY)  # a folder: reading it is an error
        with pytest.raises(
            ShoalError, match=r"x.npy cannot be read at byte 0 \(is a directory\): check the disk"
        ):
            file.start(np.array([3], np.int32)).wait()
        os.close(file._file)
        file._file = own
        assert other.fileno() >= 0
    file.close()
