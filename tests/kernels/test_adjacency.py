"""Adjacency: its transpose, its permutation of entries, its slices and its scales."""

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings

from random_adjacencies import adjacencies
from shoal.errors import ShoalError
from shoal.kernels import csr
from shoal.kernels.adjacency import Adjacency

quick = settings(max_examples=60, deadline=None)


def dense(adj):
    return adj.to_torch(torch.float64).to_dense()


@quick
@given(adj=adjacencies())
def test_transpose_is_the_transpose_and_is_kept(adj):
    assert torch.allclose(dense(adj.transpose()), dense(adj).t())
    assert adj.transpose() is adj.transpose()
    assert adj.transpose().transpose() is adj


@quick
@given(adj=adjacencies())
def test_permutation_brings_entries_to_the_transpose(adj):
    numbered = torch.arange(1, adj.num_entries + 1, dtype=torch.float64)
    here = Adjacency(adj.indptr, adj.indices, adj.num_columns, values=numbered)
    turned = adj.transpose()
    moved = numbered[adj.transpose_permutation().long()]
    there = Adjacency(turned.indptr, turned.indices, turned.num_columns, values=moved)
    assert torch.equal(dense(there), dense(here).t())
    assert torch.equal(torch.argsort(turned.transpose_permutation()), adj.transpose_permutation().long())


def test_symmetric_pattern_without_values_shares_its_memory_with_the_transpose():
    adj = Adjacency.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
    assert adj.symmetric
    assert adj.transpose().indices.data_ptr() == adj.indices.data_ptr()


def test_pattern_wrongly_marked_symmetric_is_refused():
    adj = Adjacency(torch.tensor([0, 1, 1]), torch.tensor([1]), 2, values=torch.ones(1), symmetric=True)
    with pytest.raises(ShoalError, match="marked symmetric"):
        adj.transpose()


@quick
@given(adj=adjacencies())
def test_rows_can_be_sliced(adj):
    middle = adj.num_rows // 2
    assert torch.allclose(dense(adj.slice_rows(0, middle)), dense(adj)[:middle])
    assert torch.allclose(dense(adj.slice_rows(middle, adj.num_rows)), dense(adj)[middle:])


@quick
@given(adj=adjacencies())
def test_other_values_share_what_is_made_of_the_pattern(adj):
    values = torch.arange(1.0, adj.num_entries + 1)
    other = adj.with_values(values)
    plain = Adjacency(adj.indptr, adj.indices, adj.num_columns, values=values)
    assert torch.equal(dense(other), dense(plain))
    assert torch.equal(dense(other.transpose()), dense(plain).T)
    assert other.transpose().indices is adj.transpose().indices
    count = adj.num_rows // 2
    first = other.take_first(count)
    assert torch.equal(dense(first), dense(plain)[:count])
    assert torch.equal(dense(first.transpose()), dense(plain)[:count].T)
    assert adj.take_first(count) is adj.take_first(count)
    assert first.transpose().indices is adj.take_first(count).transpose().indices
    again = other.with_values(2 * values)
    assert torch.equal(dense(again.transpose()), 2 * dense(plain).T)
    assert again.transpose_permutation() is other.transpose_permutation()


def test_parallel_transpose_and_mirror_equal_the_sequential_ones(monkeypatch):
    rng = np.random.default_rng(0)
    columns = (400 * rng.random(20_000) ** 3).astype(np.int64)  # skewed: hubs
    pattern = sp.csr_array((np.ones(20_000), (rng.integers(0, 500, 20_000), columns)), shape=(500, 500))
    symmetric = sp.csr_array(pattern + pattern.T)
    for matrix, mirrored in ((pattern, False), (symmetric, True)):
        matrix.sum_duplicates()
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices
        results = []
        for threshold in (0, 10**9):
            monkeypatch.setattr(csr, "_MIN_PARALLEL_ENTRIES", threshold)
            mirror = csr.mirror_permutation(indptr, indices)
            assert (mirror is not None) == mirrored
            results.append([*csr.transpose_csr(indptr, indices, 500), mirror])
        for a, b in zip(*results, strict=True):
            assert np.array_equal(a, b)


def test_edges_outside_the_graph_are_refused():
    with pytest.raises(ShoalError, match="expected nodes 0 to 2"):
        Adjacency.from_edge_index(torch.tensor([[0, 7], [1, 1]]), 3)


def test_normalised_rows_are_freed_with_their_operator():
    x = Adjacency(
        torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 1]), 2, values=torch.tensor([1.0, -3.0, 2.0])
    )
    normal = x.normalize_rows()
    assert normal.values.tolist() == [0.25, -0.75, 1.0]
    assert x.normalize_rows().values is normal.values
    freed = weakref.ref(x)
    gc.disable()
    try:
        del x, normal
        assert freed() is None  # a cycle would keep every batch until the next collection
    finally:
        gc.enable()
