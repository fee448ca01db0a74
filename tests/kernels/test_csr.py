"""CSR patterns against SciPy on random graphs."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from random_graphs import edges
from shoal.kernels.build import build_csr
from shoal.kernels.csr import (
    count_diagonal,
    first_bad_row,
    index_dtype,
    induce_csr,
    is_symmetric,
    mirror_permutation,
    transpose_csr,
)

many = settings(max_examples=60, deadline=None)


def reference(n, rows, columns):
    """The sorted, duplicate-free pattern as SciPy builds it."""
    matrix = sp.coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n)).tocsr()
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix


def assert_same_pattern(indptr, indices, matrix):
    np.testing.assert_array_equal(indptr, matrix.indptr)
    np.testing.assert_array_equal(indices, matrix.indices)


def as_matrix(indptr, indices, values, num_columns):
    return sp.csr_array((values, indices, indptr), shape=(len(indptr) - 1, num_columns))


@many
@given(edges())
def test_build_csr_equals_scipy_and_counts_merged_entries(graph):
    n, rows, columns = graph
    indptr, indices, merged = build_csr([(rows, columns)], n, n)
    matrix = reference(n, rows, columns)
    assert_same_pattern(indptr, indices, matrix)
    assert merged == len(rows) - matrix.nnz
    assert (indptr.dtype, indices.dtype) == (np.int64, np.int32)


@many
@given(edges(), st.integers(1, 5))
def test_build_csr_does_not_depend_on_how_entries_are_chunked(graph, num_chunks):
    n, rows, columns = graph
    chunks = list(zip(np.array_split(rows, num_chunks), np.array_split(columns, num_chunks)))
    whole, parts = build_csr([(rows, columns)], n, n), build_csr(iter(chunks), n, n)
    for a, b in zip(whole, parts):
        np.testing.assert_array_equal(a, b)


@many
@given(edges())
def test_build_csr_symmetrized_equals_scipy_and_counts_each_edge_once(graph):
    n, rows, columns = graph
    indptr, indices, merged = build_csr([(rows, columns)], n, n, symmetrize=True)
    assert_same_pattern(
        indptr, indices, reference(n, np.concatenate([rows, columns]), np.concatenate([columns, rows]))
    )
    assert merged == len(rows) - len({frozenset(pair) for pair in zip(rows.tolist(), columns.tolist())})


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.uint8, np.uint64])
def test_build_csr_takes_any_integer_type(dtype):
    indptr, indices, _ = build_csr([(np.array([2, 0], dtype), np.array([1, 2], dtype))], 3, 3)
    np.testing.assert_array_equal(indptr, [0, 1, 1, 2])
    np.testing.assert_array_equal(indices, [2, 1])


def test_build_csr_of_no_entries_is_empty_rows():
    indptr, indices, merged = build_csr([], 3, 3)
    np.testing.assert_array_equal(indptr, [0, 0, 0, 0])
    assert len(indices) == merged == 0


def test_build_csr_sorts_the_row_of_a_hub():
    columns = np.random.default_rng(0).permutation(5000)
    indptr, indices, _ = build_csr([(np.zeros(5000, np.int64), columns)], 2, 5000)
    np.testing.assert_array_equal(indices, np.arange(5000))
    np.testing.assert_array_equal(indptr, [0, 5000, 5000])


@many
@given(edges(), st.integers(0, 4))
def test_transpose_equals_scipy_and_its_permutation_moves_the_values(graph, more_columns):
    n, rows, columns = graph
    indptr, indices, _ = build_csr([(rows, columns)], n, n + more_columns)
    values = np.arange(1.0, len(indices) + 1)
    indptr_t, indices_t, permutation = transpose_csr(indptr, indices, n + more_columns)
    found = as_matrix(indptr_t, indices_t, values[permutation], n)
    expected = as_matrix(indptr, indices, values, n + more_columns).T
    np.testing.assert_array_equal(found.toarray(), expected.toarray())
    assert first_bad_row(indptr_t, indices_t) == -1


@many
@given(edges())
def test_mirror_permutation_is_the_permutation_of_the_transpose(graph):
    n, rows, columns = graph
    indptr, indices, _ = build_csr([(rows, columns)], n, n, symmetrize=True)
    np.testing.assert_array_equal(mirror_permutation(indptr, indices), transpose_csr(indptr, indices, n)[2])


@many
@given(edges())
def test_symmetry_is_found_exactly_when_the_matrix_equals_its_transpose(graph):
    n, rows, columns = graph
    indptr, indices, _ = build_csr([(rows, columns)], n, n)
    dense = as_matrix(indptr, indices, np.ones(len(indices)), n).toarray()
    symmetric = np.array_equal(dense, dense.T)
    assert is_symmetric(indptr, indices) == symmetric
    with pytest.MonkeyPatch.context() as patch:  # as patterns that lie on disk are read
        patch.setattr("shoal.kernels.csr._MAX_MATCHED", -1)
        assert is_symmetric(indptr, indices) == symmetric
    assert (mirror_permutation(indptr, indices) is not None) == symmetric


@many
@given(edges())
def test_symmetrized_pattern_without_one_arc_is_not_symmetric(graph):
    n, rows, columns = graph
    indptr, indices, _ = build_csr([(rows, columns)], n, n, symmetrize=True)
    assert is_symmetric(indptr, indices)
    row = np.repeat(np.arange(n), np.diff(indptr))
    for arc in np.flatnonzero(row != indices):
        broken = build_csr([(np.delete(row, arc), np.delete(indices, arc))], n, n)
        assert not is_symmetric(broken[0], broken[1])


@many
@given(edges())
def test_diagonal_entries_are_counted(graph):
    n, rows, columns = graph
    indptr, indices, _ = build_csr([(rows, columns)], n, n)
    assert count_diagonal(indptr, indices) == len(set(rows[rows == columns].tolist()))


@many
@given(edges(), st.data())
def test_induced_subgraph_equals_scipy_in_any_node_order(graph, data):
    n, rows, columns = graph
    indptr, indices, _ = build_csr([(rows, columns)], n, n)
    nodes = np.array(data.draw(st.lists(st.integers(0, n - 1), unique=True)), np.int64)
    scratch = np.full(n, -1, np.int32)
    sub_indptr, sub_indices, edge_id = induce_csr(indptr, indices, nodes, scratch)
    values = np.arange(1.0, len(indices) + 1)
    expected = as_matrix(indptr, indices, values, n).toarray()[np.ix_(nodes, nodes)]
    found = as_matrix(sub_indptr, sub_indices, values[edge_id], max(len(nodes), 1)).toarray()
    np.testing.assert_array_equal(found[:, : len(nodes)], expected)
    assert (scratch == -1).all()
    if (np.diff(nodes) > 0).all():
        assert first_bad_row(sub_indptr, sub_indices) == -1


@pytest.mark.parametrize(
    ("columns", "row"), [([0, 1, 2, 0], -1), ([0, 1, 0, 2], -1), ([1, 0, 2, 0], 0), ([0, 1, 2, 2], 2)]
)
def test_first_bad_row_names_the_first_unsorted_or_repeating_row(columns, row):
    indptr = np.array([0, 2, 2, 4]) if row != -1 else np.array([0, 2, 3, 4])
    assert first_bad_row(indptr, np.array(columns)) == row


def test_index_dtype_is_int32_as_long_as_columns_fit():
    assert index_dtype(2**31 - 1) is np.int32
    assert index_dtype(2**31) is np.int64
