"""Quality and the local search: figures equal a brute-force count, and searching never breaks its promises."""

import numpy as np
from hypothesis import given, settings

from partitioned_graphs import dense, partitioned_graphs
from shoal.partitioning.nets import count_pins, count_rows, make_nets
from shoal.partitioning.part import split_graph
from shoal.partitioning.partition import Partition
from shoal.partitioning.quality import measure_quality
from shoal.partitioning.refine import refine_assignment


def count_by_hand(graph, assignment, num_parts):
    """rows[q, p]: the rows that q sends to p, entry by entry."""
    pairs = {
        (int(assignment[j]), int(assignment[i]), int(j))
        for i, j in np.argwhere(dense(graph))
        if assignment[i] != assignment[j]
    }
    rows = np.zeros((num_parts, num_parts), np.int64)
    for q, p, _ in pairs:
        rows[q, p] += 1
    return rows, {j for _, _, j in pairs}


@settings(max_examples=80, deadline=None)
@given(partitioned_graphs())
def test_quality_equals_a_count_by_hand_and_what_parts_send(case):
    graph, assignment, num_parts = case
    assignment = assignment.astype(np.int32)
    rows, boundary = count_by_hand(graph, assignment, num_parts)
    quality = measure_quality(graph, assignment, num_parts, parts_per_host=2)
    assert quality.total_volume == rows.sum()
    assert quality.max_send_volume == rows.sum(1).max()
    assert quality.max_receive_volume == rows.sum(0).max()
    assert quality.messages == (rows > 0).sum()
    assert quality.max_messages_sent == (rows > 0).sum(1).max()
    assert quality.max_messages_received == (rows > 0).sum(0).max()
    assert quality.boundary_nodes == len(boundary)
    sizes = np.bincount(assignment, minlength=num_parts)
    assert quality.empty_parts == (sizes == 0).sum()
    assert quality.max_memory_rows == (3 * sizes + rows.sum(0)).max()
    host = np.arange(num_parts) // 2
    apart = host[:, None] != host[None, :]
    assert quality.remote_volume == rows[apart].sum()
    assert quality.remote_messages == (rows[apart] > 0).sum()
    parts = split_graph(graph, assignment, num_parts)
    assert [p.num_sent for p in parts] == quality.parts["sent"].tolist()
    assert [p.num_halo for p in parts] == quality.parts["received"].tolist()
    assert count_rows(make_nets(graph), assignment, num_parts) == quality.total_volume


@settings(max_examples=60, deadline=None)
@given(partitioned_graphs())
def test_the_search_keeps_balance_and_never_sends_more_than_it_may(case):
    graph, assignment, num_parts = case
    nets, weights = make_nets(graph), np.ones(graph.num_nodes, np.int64)
    top = max(np.bincount(assignment).max(), 2)
    found = refine_assignment(nets, assignment, weights, num_parts, top, sweeps=4, slack=0.0)
    before = measure_quality(graph, assignment.astype(np.int32), num_parts)
    after = measure_quality(graph, found, num_parts)
    assert np.bincount(found, minlength=num_parts).max() <= top
    assert after.total_volume <= before.total_volume
    again = refine_assignment(nets, assignment, weights, num_parts, top, sweeps=4, slack=0.0)
    np.testing.assert_array_equal(found, again)


@settings(max_examples=60, deadline=None)
@given(partitioned_graphs())
def test_counts_kept_while_moving_equal_counts_made_afresh(case):
    from shoal.partitioning.nets import move_vertex

    graph, assignment, num_parts = case
    nets, weights = make_nets(graph), np.asarray(graph.degree, np.int64) + 1
    current = assignment.astype(np.int32)
    counts, loads = count_pins(nets, current, weights, num_parts, True)
    generator = np.random.default_rng(0)
    for _ in range(20):
        v, b = generator.integers(graph.num_nodes), generator.integers(num_parts)
        if current[v] != b:
            move_vertex(nets, counts, loads, num_parts, current, weights, v, b)
    fresh_counts, fresh = count_pins(nets, current, weights, num_parts, True)
    np.testing.assert_array_equal(counts.spread, fresh_counts.spread)
    for kept, made in zip(loads, fresh):
        np.testing.assert_array_equal(kept, made)
    rows, _ = count_by_hand(graph, current, num_parts)
    np.testing.assert_array_equal(fresh.rows, rows)


def test_random_partitioning_is_1_relative_to_itself():
    from shoal.partitioning.simple import partition_at_random
    from small_graphs import make_labelled

    graph = make_labelled(200, directed=True)
    chance = Partition(graph, partition_at_random(200, 4, 0), 4)
    relative = chance.quality().relative
    assert relative is not None
    assert set(relative.values()) == {1.0}
