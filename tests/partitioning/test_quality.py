"""Quality and the local search: figures equal a brute-force count, and searching never breaks its promises."""

import re
import time

import numpy as np
import pytest
from hypothesis import given, settings

import shoal
from partitioned_graphs import dense, partitioned_graphs
from shoal.commands.partition import judge_quality
from shoal.partitioning.nets import count_pins, count_rows, make_nets
from shoal.partitioning.part import split_graph
from shoal.partitioning.partition import Partition
from shoal.partitioning.quality import measure_quality
from shoal.partitioning.refine import refine_assignment
from small_graphs import make_labelled


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
    before = measure_quality(graph, assignment.astype(np.int32), num_parts)
    heaviest = max(np.bincount(assignment).max(), 2)
    for top in (heaviest, max(heaviest - 2, 1)):  # with parts above the limit too, which are to shrink
        found = refine_assignment(nets, assignment, weights, num_parts, top, sweeps=4, slack=0.0)
        after = measure_quality(graph, found, num_parts)
        assert np.bincount(found, minlength=num_parts).max() <= heaviest
        assert after.total_volume <= before.total_volume
        again = refine_assignment(nets, assignment, weights, num_parts, top, sweeps=4, slack=0.0)
        np.testing.assert_array_equal(found, again)


def test_quality_is_exact_and_takes_seconds_at_4096_parts():
    """10⁶ edges; the counts by sorting all (reader, column) pairs instead of marking them."""
    graph = shoal.load("kronecker", scale=16, degree=16, seed=0)
    assert graph.num_entries > 10**6
    generator = np.random.default_rng(0)
    assignment = generator.integers(0, 4096, graph.num_nodes).astype(np.int32)
    measure_quality(graph, assignment, 4096)  # compiles
    began = time.process_time()
    quality = measure_quality(graph, assignment, 4096)
    assert time.process_time() - began < 5
    readers = np.repeat(assignment, graph.degree)
    senders = assignment[graph.indices]
    apart = readers != senders
    keys = np.unique(readers[apart].astype(np.int64) * graph.num_nodes + graph.indices[apart])
    pairs = keys // graph.num_nodes, keys % graph.num_nodes
    sent = np.bincount(assignment[pairs[1]], minlength=4096)
    received = np.bincount(pairs[0], minlength=4096)
    np.testing.assert_array_equal(quality.parts["sent"], sent)
    np.testing.assert_array_equal(quality.parts["received"], received)
    met = np.unique(assignment[pairs[1]].astype(np.int64) * 4096 + pairs[0])
    np.testing.assert_array_equal(quality.parts["messages_sent"], np.bincount(met // 4096, minlength=4096))
    assert quality.messages == len(met)
    assert quality.boundary_nodes == len(np.unique(pairs[1]))


def test_quality_with_more_parts_than_nodes_equals_a_count_by_hand():
    graph = make_labelled(60, directed=True)
    assignment = np.random.default_rng(0).integers(0, 4096, 60).astype(np.int32)
    rows, _ = count_by_hand(graph, assignment, 4096)
    quality = measure_quality(graph, assignment, 4096)
    np.testing.assert_array_equal(quality.parts["sent"], rows.sum(1))
    np.testing.assert_array_equal(quality.parts["received"], rows.sum(0))
    assert quality.messages == (rows > 0).sum()


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
    from shoal.partitioning.methods.random import partition_at_random

    graph = make_labelled(200, directed=True)
    chance = Partition(graph, partition_at_random(200, 4, 0), 4)
    relative = chance.quality().relative
    assert relative is not None
    assert set(relative.values()) == {1.0}


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        (np.repeat([0, 1], 50), r"good: \d% of what a random partition sends; the parts are even"),
        (
            np.arange(100) % 2,
            r"poor: \d{3}% of what a random partition sends; the parts are even; try another --method, or fewer parts",
        ),
        (
            np.repeat([0, 1], [80, 20]),
            r"fair: \d% of what a random partition sends; the heaviest part has 1.60 times the mean weight, and .*",
        ),
        (np.zeros(100, np.int64), "one part: nothing is sent"),
    ],
)
def test_the_verdict_compares_with_random_and_names_uneven_parts(assignment, said):
    ring = np.arange(100)
    graph = shoal.Graph.from_edge_index(np.stack([ring, (ring + 1) % 100]), 100, directed=False)
    quality = Partition(graph, assignment, int(assignment.max()) + 1).quality()
    assert re.fullmatch(said, judge_quality(quality, "edges", 0.01))


def test_parts_that_exchange_nothing_are_good():
    graph = shoal.Graph.from_edge_index(np.array([[0, 2], [1, 3]]), 4, directed=False)
    quality = Partition(graph, np.array([0, 0, 1, 1]), 2).quality()
    assert judge_quality(quality, "nodes", 0.01) == "good: nothing is sent; the parts are even"
