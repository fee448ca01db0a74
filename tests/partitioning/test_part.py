"""Part: the parts of a graph hold exactly its rows, and what one sends is what another expects."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

import shoal
from partitioned_graphs import assert_same_part, dense, partitioned_graphs
from shoal.partitioning.part import make_part, split_graph
from small_graphs import make_labelled


@settings(max_examples=80, deadline=None)
@given(partitioned_graphs())
def test_parts_hold_exactly_the_rows_of_the_graph(case):
    graph, assignment, num_parts = case
    whole = dense(graph)
    for rank, part in enumerate(split_graph(graph, assignment, num_parts)):
        assert np.array_equal(part.n_id, np.flatnonzero(assignment == rank))
        rows = np.zeros((part.num_local, graph.num_nodes), np.int8)
        for i in range(part.num_local):
            local = part.local_indices[part.local_indptr[i] : part.local_indptr[i + 1]]
            halo = part.halo_indices[part.halo_indptr[i] : part.halo_indptr[i + 1]]
            assert (np.diff(local) > 0).all()
            assert (np.diff(halo) > 0).all()
            rows[i, part.n_id[local]] += 1
            rows[i, part.halo_id[halo]] += 1
        np.testing.assert_array_equal(rows, whole[part.n_id])
        columns = np.concatenate([part.n_id, part.halo_id])
        np.testing.assert_array_equal(part.degree, graph.degree[columns])
        loops = whole.diagonal()[columns] > 0
        np.testing.assert_array_equal(loops, np.zeros_like(loops) if part.has_loop is None else part.has_loop)
        assert (part.has_loop is None) == (not loops.any())


@settings(max_examples=80, deadline=None)
@given(partitioned_graphs())
def test_what_a_rank_sends_is_what_the_receiver_lists(case):
    graph, assignment, num_parts = case
    parts = split_graph(graph, assignment, num_parts)
    for q, sender in enumerate(parts):
        assert sender.halo_offsets[q] == sender.halo_offsets[q + 1]
        assert_same_part(make_part(graph, assignment, num_parts, q), sender)
        for r, receiver in enumerate(parts):
            rows = sender.send_rows[sender.send_offsets[r] : sender.send_offsets[r + 1]]
            expected = receiver.halo_id[receiver.halo_offsets[q] : receiver.halo_offsets[q + 1]]
            np.testing.assert_array_equal(sender.n_id[rows], expected)
            assert (np.diff(expected) > 0).all()
            assert (assignment[expected] == q).all()
    assert sum(p.num_sent for p in parts) == sum(p.num_halo for p in parts)


@pytest.mark.parametrize("sparse", [False, True])
def test_features_labels_and_masks_go_with_their_rows(sparse):
    graph = make_labelled(90, directed=True)
    if sparse:
        graph = graph._copy(x=sp.csr_array(graph.x))
    assignment = np.arange(90) % 4
    for part in split_graph(graph, assignment, 4):
        x = part.x.toarray() if sparse else part.x
        np.testing.assert_array_equal(x, graph.x[part.n_id].toarray() if sparse else graph.x[part.n_id])
        np.testing.assert_array_equal(part.y, graph.y[part.n_id])
        np.testing.assert_array_equal(part.train_mask, graph.train_mask[part.n_id])
        assert (part.num_classes, part.directed, part.checksum) == (3, True, graph.checksum)


def test_an_assignment_that_does_not_fit_is_refused():
    graph = make_labelled(20)
    with pytest.raises(shoal.ShoalError, match="expected the part of each of the 20 nodes"):
        split_graph(graph, np.zeros(19, np.int64), 2)
    with pytest.raises(shoal.ShoalError, match="holds parts 0 to 2: expected 0 to 1"):
        split_graph(graph, np.arange(20) % 3, 2)
    with pytest.raises(shoal.ShoalError, match="rank is 2"):
        make_part(graph, np.zeros(20, np.int64), 2, 2)
