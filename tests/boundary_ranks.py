"""What tests/distributed/test_boundary.py asks of real ranks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

import shoal
from rank_jobs import Job, make_graph, make_model, make_trainer
from shoal.distributed.batch import local_graph, make_part_batch, thin_batch
from shoal.distributed.block import PartBlock
from shoal.distributed.boundary import WAYS, BoundarySampler, Choice, draw_nodes, drop_entries
from shoal.distributed.cover import exchange_items
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import FORWARD, IDS, Ledger
from shoal.distributed.transport import Transport
from shoal.graph import Graph
from shoal.kernels.spmm import spmm
from shoal.models.gat import GATConv
from shoal.partitioning.part import make_part

WIDTH = 6
DRAWS = 100
EPOCHS = 4
CASES = (
    ("mean", "nodes", 0.5),
    ("gcn", "nodes", 0.5),
    ("gcn", "nodes", 0.1),
    ("gcn", "cover", 0.5),
    ("mean", "cover", 0.1),
    ("gcn", "edges", 0.5),
    ("gcn", "dropedge", 0.5),
)


def assign(num_nodes: int, num_parts: int) -> np.ndarray:
    """Nodes to ranks at random: nearly every row is a boundary row."""
    return np.random.default_rng(num_parts).integers(0, num_parts, num_nodes)


def dense_operator(graph: Graph, kind: str) -> np.ndarray:
    """D⁻¹A or D̃^-½(A + I)D̃^-½ of the whole graph."""
    n = graph.num_nodes
    a = np.zeros((n, n))
    a[np.repeat(np.arange(n), graph.degree), graph.indices] = 1
    if kind == "mean":
        return a / np.maximum(a.sum(1), 1)[:, None]
    a = np.maximum(a, np.eye(n))
    scale = a.sum(1) ** -0.5
    return a * scale[:, None] * scale


def keep_nodes(graph: Graph, assignment: np.ndarray, rate: float, seed: int, epoch: int) -> np.ndarray:
    """(n, n): what every entry counts for when all ranks have drawn their halo's nodes."""
    factor = np.ones((graph.num_nodes,) * 2)
    for rank in range(assignment.max() + 1):
        rows, foreign = np.flatnonzero(assignment == rank), np.flatnonzero(assignment != rank)
        kept = draw_nodes(foreign, rate, seed, epoch, rank)
        factor[np.ix_(rows, foreign)] = kept / rate
    return factor


def check_product(transport: Transport, directed: bool, kind: str) -> None:
    """Product and gradient over a thinned plan are those of the whole sampled operator, row by row."""
    graph = make_graph(Job(directed=directed))
    assignment = assign(graph.num_nodes, transport.size)
    part = make_part(graph, assignment, transport.size, transport.rank)
    plan = HaloPlan(part, transport, Ledger())
    generator = torch.Generator().manual_seed(0)
    h, g = (torch.randn(graph.num_nodes, WIDTH, generator=generator, dtype=torch.float64) for _ in "hg")
    thin = Choice(plan, 0.4, "nodes", 5, 3).thin()
    sampled = torch.from_numpy(dense_operator(graph, kind) * keep_nodes(graph, assignment, 0.4, 5, 3))
    own = torch.from_numpy(part.n_id)
    local = h[own].requires_grad_()
    out = spmm(PartBlock(thin, 1).adjacency(kind), local)
    out.backward(g[own])
    torch.testing.assert_close(out.detach(), (sampled @ h)[own], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(local.grad, (sampled.T @ g)[own], rtol=1e-6, atol=1e-6)


def check_weighted_product(transport: Transport, kind: str, way: str) -> None:
    """The same of a graph with edge weights: what is kept has its own weight, whole degrees, and counts 1/p times."""
    graph, rate, (seed, epoch) = make_graph(Job(weighted=True)), 0.4, (5, 3)
    n, assignment = graph.num_nodes, assign(graph.num_nodes, transport.size)
    factor = keep_nodes(graph, assignment, rate, seed, epoch)
    if way != "nodes":
        alone = make_part(graph.without_weights(), np.zeros(n, np.int64), 1, 0)
        kept = drop_entries(alone, rate, seed, epoch, local=True)
        factor = np.zeros((n, n))
        factor[np.repeat(np.arange(n), np.diff(kept.local_indptr)), kept.local_indices] = 1 / rate
        np.fill_diagonal(factor, 1)
        if way == "edges":
            factor[assignment[:, None] == assignment[None]] = 1
    generator = torch.Generator().manual_seed(0)
    h, g = (torch.randn(n, WIDTH, generator=generator, dtype=torch.float64) for _ in "hg")
    block: Any = shoal.FullSampler(graph).sample(0).blocks[0]
    sampled = spmm(block.adjacency(kind), torch.eye(n, dtype=torch.float64)) * torch.from_numpy(factor)
    part = make_part(graph, assignment, transport.size, transport.rank)
    thin = Choice(HaloPlan(part, transport, Ledger()), rate, way, seed, epoch).thin()
    own = torch.from_numpy(part.n_id)
    local = h[own].requires_grad_()
    out = spmm(PartBlock(thin, 1).adjacency(kind), local)
    out.backward(g[own])
    torch.testing.assert_close(out.detach(), (sampled @ h)[own], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(local.grad, (sampled.T @ g)[own], rtol=1e-6, atol=1e-6)


def check_attention(transport: Transport, symmetric: bool = False) -> None:
    """A halo node that is kept counts 1/p times in the softmax, one that is not counts nothing."""
    graph = make_graph(Job())
    n = graph.num_nodes
    assignment = assign(n, transport.size)
    part = make_part(graph, assignment, transport.size, transport.rank)
    thin = Choice(HaloPlan(part, transport, Ledger()), 0.4, "nodes", 5, 3).thin()
    torch.manual_seed(0)
    conv = GATConv(WIDTH, 8, heads=2, symmetric=symmetric).double()
    h = torch.randn(n, WIDTH, dtype=torch.float64, requires_grad=True)
    z, own, _ = conv.score(h @ conv.weight)
    degrees = torch.from_numpy((dense_operator(graph, "gcn") > 0).sum(1)).float()
    scale = degrees.rsqrt().double()[:, None] if symmetric else torch.ones(n, 1, dtype=torch.float64)
    z, _, other = conv.score(h @ conv.weight * scale)
    pattern = torch.from_numpy(dense_operator(graph, "gcn") > 0)
    weight = torch.from_numpy(keep_nodes(graph, assignment, 0.4, 5, 3)) * pattern
    scores = torch.nn.functional.leaky_relu(own[:, None] + other[None], 0.2)
    alpha = torch.softmax(scores + weight.log()[:, :, None], dim=1)
    wanted = torch.einsum("uvk,vkf->ukf", alpha, z).flatten(1) / scale
    rows = torch.from_numpy(part.n_id)
    local = h[rows].detach().requires_grad_()
    found = conv(PartBlock(thin, 1).adjacency(conv.kind), local)
    torch.testing.assert_close(found, wanted[rows], rtol=1e-6, atol=1e-6)
    wanted.square().sum().backward()
    weights = [weight.grad for weight in conv.parameters()]
    conv.zero_grad()
    found.square().sum().backward()
    torch.testing.assert_close(local.grad, h.grad[rows], rtol=1e-5, atol=1e-6)
    for weight, grad in zip(conv.parameters(), weights):
        torch.testing.assert_close(transport.sum(weight.grad.contiguous()), grad, rtol=1e-5, atol=1e-6)


def measure_draws(transport: Transport, kind: str, way: str, rate: float) -> dict[str, Any]:
    """Over many draws: how far the mean product is from the whole one, the variance, and the bytes."""
    graph = make_graph(Job())
    part = make_part(graph, assign(graph.num_nodes, transport.size), transport.size, transport.rank)
    items = exchange_items(part, transport, Ledger()) if way == "cover" else None
    plan = HaloPlan(part, transport, Ledger(), items=items)
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(graph.num_nodes, WIDTH, generator=generator, dtype=torch.float64)
    own = torch.from_numpy(part.n_id)
    whole = spmm(PartBlock(plan, 1).adjacency(kind), h[own])
    plan.ledger.take()
    total, squares, rows = torch.zeros_like(whole), torch.zeros_like(whole), []
    for epoch in range(DRAWS):
        thin = Choice(plan, rate, way, 11, epoch).thin()
        error = spmm(PartBlock(thin, 1).adjacency(kind), h[own]) - whole
        total += error
        squares += error**2
        rows.append(thin.part.num_sent if thin.items is None else len(thin.items.send_ids))
    variance = squares / DRAWS
    spread = (variance / DRAWS).sqrt()
    scores = (total / DRAWS / spread)[spread > 1e-12]
    own_sent = plan.ledger.take()
    row_bytes = WIDTH * 8
    return {
        "scores": scores.tolist(),
        "variance": float(variance.sum()),
        "sent": sum(e[0] for (_, way_, _), e in own_sent.sent.items() if way_ == FORWARD) / row_bytes,
        "counted": float(sum(rows)),
        "ids": sum(e[0] for (_, way_, _), e in own_sent.sent.items() if way_ == IDS),
        "told": DRAWS * int((-(-np.diff(part.halo_offsets if items is None else items.offsets) // 8)).sum()),
        "full": part.num_sent if items is None else len(items.send_ids),
    }


def count_left_out(transport: Transport, way: str, rate: float) -> dict[str, Any]:
    """Entries that a sampler of rate p leaves out over many epochs, rows it exchanges, and the variance of one epoch's entries."""
    graph = make_graph(Job())
    part = make_part(graph, assign(graph.num_nodes, transport.size), transport.size, transport.rank)
    plan = HaloPlan(part, transport, Ledger())
    batch = make_part_batch(plan, local_graph(part), wide=False, num_train=1)
    sampler = BoundarySampler(batch, plan, rate=rate, way=way, seed=21)
    sampler.epochs = DRAWS
    left, rows = 0, 0
    for epoch in range(DRAWS):
        thin = sampler.sample(epoch)
        left += batch.blocks[0].num_edges - thin.blocks[0].num_edges
        rows += thin.exchange.num_received
    return {
        "left": left,
        "rows": rows,
        "halo": len(part.halo_indices),
        "squares": int((np.bincount(part.halo_indices) ** 2).sum()),
        "entries": batch.blocks[0].num_edges
        - (0 if part.has_loop is None else int(part.has_loop[: part.num_local].sum())),
    }


def train(transport: Transport, job: Job | str, **settings: Any) -> dict[str, Any]:
    job = Job(job) if isinstance(job, str) else job
    graph = make_graph(job)
    used = max(transport.size - (job.partition == "empty"), 1)
    part = make_part(graph, assign(graph.num_nodes, used), transport.size, transport.rank)
    trainer = make_trainer(job, part, transport, eval_every=EPOCHS, **settings)
    records = trainer.fit(EPOCHS)
    sampled = settings.get("boundary_rate", 1.0) < 1
    for record in records[: EPOCHS if sampled else 1]:
        assert sum(sent for *_, sent, _ in record["peers"]) == record["bytes"]
    return {
        "losses": [record["loss"] for record in records],
        "bytes": [record["bytes"] for record in records],
        "rates": [record["boundary_rate"] for record in records],
        "weights": [float(p.detach().double().sum()) for p in trainer.model.parameters()],
        "sampling": records[-1]["time"]["sampling"],
    }


def train_all(transport: Transport) -> dict[str, dict[str, Any]]:
    """Every model and way of sampling, by name."""
    return {
        "whole": train(transport, "gcn"),
        "rows": train(transport, Job("gcn", cover=False)),
        "one": train(transport, "gcn", boundary_rate=1.0, seed=4),
        "none": train(transport, Job("gcn", cover=False), boundary_rate=0.0),
        "rising": train(transport, "gcn", boundary_rate=0.25, last_boundary_rate=1.0),
        "edges": train(transport, "gcn", boundary_rate=0.3, boundary_sampling="edges"),
        "dropedge": train(transport, "gat", boundary_rate=0.3, boundary_sampling="dropedge"),
        "no edges": train(transport, "gcn", boundary_rate=0.0, boundary_sampling="edges"),
        "input dropout": train(transport, Job("sage", input_dropout=0.2), boundary_rate=0.3),
        "sparse": train(transport, Job("gcn", sparse=True, input_dropout=0.2), boundary_rate=0.3),
        "empty": train(transport, Job("gat", sparse=True, partition="empty"), boundary_rate=0.3),
        "again": train(transport, "gcn", boundary_rate=0.3, seed=9),
        "cover": train(transport, Job("gcn", cover=True), boundary_rate=0.3, seed=9),
        "cover again": train(transport, Job("gcn", cover=True), boundary_rate=0.3, seed=9),
        **{
            f"{m} input": train(transport, m, boundary_rate=0.3, seed=9, sample_input=True)
            for m in ("sage", "gcn", "mixhop", "gat")
        },
        "dropedge input": train(
            transport, "gcn", boundary_rate=0.3, boundary_sampling="dropedge", sample_input=True
        ),
        "sparse input": train(
            transport, Job("gcn", sparse=True, input_dropout=0.2), boundary_rate=0.3, sample_input=True
        ),
        **{m: train(transport, m, boundary_rate=0.3, seed=9) for m in ("sage", "gcn", "mixhop", "gat")},
    }


def check_without_common_boundary(transport: Transport) -> None:
    """Parts that share no edge: nothing is told, nothing is sent."""
    graph = make_graph(Job())
    n = graph.num_nodes
    alone = Graph.from_edge_index(np.array([[0], [1]]), n, directed=False, x=graph.x, y=graph.y)
    assignment = np.arange(n) * transport.size // n
    part = make_part(alone.with_split(seed=0), assignment, transport.size, transport.rank)
    trainer = make_trainer(Job(), part, transport, boundary_rate=0.5)
    assert trainer.fit(2)[-1]["messages"] == 0


def check_ends_early(transport: Transport) -> None:
    """A run that patience ends leaves no message under way for the next: it equals one that was never told so far ahead."""
    graph = make_graph(Job())
    part = make_part(graph, assign(graph.num_nodes, transport.size), transport.size, transport.rank)
    losses = []
    for epochs, patience in ((50, 1), (2, None)):
        trainer = make_trainer(Job(), part, transport, boundary_rate=0.5, lr=1e-9, patience=patience)
        losses.append([record["loss"] for record in trainer.fit(epochs)])
    assert len(losses[0]) < 50
    assert losses[0][:2] == losses[1]


def check_first_layer_is_whole(transport: Transport) -> None:
    """What was exchanged once is not sampled: A x of the thinned batch is the whole graph's."""
    graph = make_graph(Job())
    part = make_part(graph, assign(graph.num_nodes, transport.size), transport.size, transport.rank)
    plan = HaloPlan(part, transport, Ledger())
    batch = make_part_batch(plan, local_graph(part), wide=False, num_train=1)
    make_model(Job()).prepare(batch)
    thin = thin_batch(batch, Choice(plan, 0.0, "nodes", 0, 0).thin())
    assert thin.aggregate_input("mean") is batch.aggregate_input("mean")


def check_first_layer_is_sampled(transport: Transport) -> None:
    """With sample_input the first layer reads what an epoch keeps, 1/p times: `A x` and the wide operator of dense and sparse x."""
    graph = make_graph(Job())
    assignment = assign(graph.num_nodes, transport.size)
    part = make_part(graph, assignment, transport.size, transport.rank)
    for kind in ("mean", "gcn"):
        sampled = dense_operator(graph, kind) * keep_nodes(graph, assignment, 0.4, 5, 3)
        wanted = torch.from_numpy((sampled @ graph.x)[part.n_id]).float()
        for wide in (False, True):
            plan = HaloPlan(part, transport, Ledger())
            batch = make_part_batch(plan, local_graph(part), wide=wide, num_train=1)
            thin = thin_batch(batch, Choice(plan, 0.4, "nodes", 5, 3).thin(), sample_input=True)
            found = spmm(thin.block(0).adjacency(kind), thin.x) if wide else thin.aggregate_input(kind)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
            assert len(thin.n_id) == len(thin.x)
    sparse = make_part(make_graph(Job(sparse=True)), assignment, transport.size, transport.rank)
    plan = HaloPlan(sparse, transport, Ledger())
    batch = make_part_batch(plan, local_graph(sparse), wide=True, num_train=1)
    thin = thin_batch(batch, Choice(plan, 0.4, "nodes", 5, 3).thin(), sample_input=True)
    rows = np.concatenate([sparse.n_id, thin.exchange.part.halo_id])
    np.testing.assert_allclose(thin.x.to_torch().to_dense(), make_graph(Job(sparse=True)).x[rows].todense())


def check_all(transport: Transport) -> dict[str, Any]:
    """Checks what ranks can check themselves; returns what every rank drew and what was trained."""
    for kind in ("mean", "gcn"):
        for directed in (False, True):
            check_product(transport, directed, kind)
        for way in WAYS:
            check_weighted_product(transport, kind, way)
    check_attention(transport)
    check_attention(transport, symmetric=True)
    check_without_common_boundary(transport)
    check_first_layer_is_whole(transport)
    check_first_layer_is_sampled(transport)
    check_ends_early(transport)
    draws = {
        f"{kind} {way} {rate}": measure_draws(transport, kind, way, rate)
        for kind, way, rate in CASES
        if transport.name == "gloo"  # what is drawn does not depend on what carries it
    }
    left = {way: count_left_out(transport, way, 0.4) for way in WAYS}
    everyone = transport.gather_texts(json.dumps([draws, left]))
    found, left_out = zip(*(json.loads(text) for text in everyone))
    return {"draws": found, "left out": left_out, "trained": train_all(transport)}
