"""Gathering rows: from memory, from a memory map, from half precision, from CSR."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from shoal.errors import ShoalError
from shoal.kernels.gather import gather_csr_rows, gather_rows


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("num_rows", "f"), [(0, 3), (5, 1), (3000, 33)])
def test_rows_equal_numpy_indexing(dtype, num_rows, f):
    rng = np.random.default_rng(0)
    source = rng.standard_normal((500, f)).astype(dtype)
    rows = rng.integers(0, 500, num_rows)
    out = gather_rows(source, rows)
    wanted = torch.from_numpy(source[rows])
    assert torch.equal(out, wanted.double() if dtype == np.float64 else wanted.float())
    assert torch.equal(gather_rows(source[::-1], 499 - rows), out)
    assert torch.equal(gather_rows(source, rows, num_threads=1), out)
    assert out.data_ptr() % 64 == 0 or out.numel() == 0


def test_every_half_precision_number_is_widened_exactly():
    source = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(-1, 64)
    found = gather_rows(source, np.arange(len(source))).numpy()
    assert np.array_equal(found, source.astype(np.float32), equal_nan=True)


def test_memory_mapped_rows_fill_a_given_buffer(tmp_path):
    data = np.random.default_rng(0).standard_normal((400, 17)).astype(np.float32)
    np.save(tmp_path / "x.npy", data)
    rows = torch.randint(0, 400, (900,))
    out = torch.empty(900, 17)
    result = gather_rows(np.load(tmp_path / "x.npy", mmap_mode="r"), rows, out)
    assert result is out
    assert np.array_equal(out.numpy(), data[rows.numpy()])


def test_csr_rows_equal_scipy():
    matrix = sp.random_array((50, 20), density=0.2, format="csr", rng=np.random.default_rng(0))
    rows = np.array([3, 3, 49, 0])
    made = gather_csr_rows(matrix.indptr.astype(np.int64), matrix.indices, matrix.data, rows)
    assert np.array_equal(
        sp.csr_array((made[2], made[1], made[0]), (4, 20)).toarray(), matrix[rows].toarray()
    )


def test_rows_out_of_range_and_wrong_buffers_are_refused():
    source = np.zeros((4, 2), np.float32)
    with pytest.raises(ShoalError, match="row 4 asked for: expected rows 0 to 3"):
        gather_rows(source, np.array([0, 4]))
    with pytest.raises(ShoalError, match="row -1"):
        gather_rows(source, np.array([-1]))
    with pytest.raises(ShoalError, match="out is"):
        gather_rows(source, np.array([1]), torch.empty(2, 2))
    with pytest.raises(ShoalError, match="source is int64"):
        gather_rows(np.zeros((4, 2), np.int64), np.array([1]))
