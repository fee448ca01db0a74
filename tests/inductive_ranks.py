"""What tests/distributed/test_inductive.py asks of real ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from rank_jobs import Job, assign_nodes, make_graph, make_trainer
from shoal.distributed.ledger import Ledger
from shoal.distributed.training_part import take_training_part
from shoal.distributed.transport import Transport
from shoal.graph import Graph
from shoal.partitioning.part import make_part


def change_unseen(graph: Graph) -> Graph:
    """Other features, labels and edges wherever a validation or test node has a part in them."""
    unseen = np.flatnonzero(~graph.train_mask)
    x, y = graph.x.copy(), graph.y.copy()
    x[unseen] += 100
    y[unseen] = (y[unseen] + 1) % graph.num_classes
    rows = np.repeat(np.arange(graph.num_nodes), graph.degree)
    inside = graph.train_mask[rows] & graph.train_mask[graph.indices]
    new = np.stack([np.resize(unseen, 300), np.random.default_rng(1).integers(0, graph.num_nodes, 300)])
    ends = np.concatenate([np.stack([graph.indices, rows])[:, inside], new], axis=1)
    masks = {key: getattr(graph, key) for key in ("train_mask", "val_mask", "test_mask")}
    return Graph.from_edge_index(ends, graph.num_nodes, directed=graph.directed, x=x, y=y, **masks)


def train_changed(transport: Transport, model: str, directed: bool, **settings: Any) -> list[list[float]]:
    """Losses on the graph and on the one whose unseen nodes are others."""
    job, losses = Job(model, directed=directed), []
    graph = make_graph(job)
    for one in (graph, change_unseen(graph)):
        part = make_part(one, assign_nodes(job, graph, transport.size), transport.size, transport.rank)
        trainer = make_trainer(job, part, transport, setting="inductive", **settings)
        losses.append([record["loss"] for record in trainer.fit(4)])
    return losses


def check_training_parts(transport: Transport, directed: bool) -> None:
    """A rank's training part is what the training graph's own partition gives it, under the graph's numbers."""
    job = Job(directed=directed)
    graph = make_graph(job)
    assignment = assign_nodes(job, graph, transport.size)
    part = make_part(graph, assignment, transport.size, transport.rank)
    found = take_training_part(part, transport, Ledger())
    nodes = np.flatnonzero(graph.train_mask)
    wanted = make_part(graph.train_graph("inductive"), assignment[nodes], transport.size, transport.rank)
    np.testing.assert_array_equal(found.n_id, nodes[wanted.n_id])
    np.testing.assert_array_equal(found.halo_id, nodes[wanted.halo_id])
    for name in ("halo_offsets", "send_rows", "send_offsets", "degree", "x", "y", "train_mask"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    for name in ("local_indptr", "local_indices", "halo_indptr", "halo_indices"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    loops = (None if one.has_loop is None else one.has_loop.tolist() for one in (found, wanted))
    assert len({str(one) for one in loops}) == 1 or not found.has_loop.any()
    assert found.num_global_nodes == wanted.num_global_nodes


def check_all(transport: Transport) -> dict[str, Any]:
    """Checks what ranks can check themselves; returns the losses of every way to train."""
    for directed in (False, True):
        check_training_parts(transport, directed)
    return {
        f"{model} {directed} {settings}": train_changed(transport, model, directed, **settings)
        for model, directed, settings in (
            ("gcn", False, {}),
            ("sage", True, {}),
            ("gat", False, {}),
            ("gcn", False, {"boundary_rate": 0.4}),
            ("gat", False, {"boundary_rate": 0.4, "boundary_sampling": "dropedge", "sample_input": True}),
        )
    }
