"""Histories: exact where they are true, unbiased whatever they are, and part of what makes runs repeat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.errors import ShoalError
from shoal.models.stages import list_stages
from shoal.runs.config import RunConfig
from shoal.sampling.histories import HistorySampler
from shoal.scratch import FileMatrix, Scratch
from shoal.training.history import Histories
from small_graphs import make_graph, make_labelled
from user_models import TiedModel

SUBGRAPHS: dict[str, Any] = {"roots": 40, "depth": 2, "seed": 1}
STACKS: list[tuple[str, dict[str, Any]]] = [
    ("sage", {}),
    ("sage", {"orders": "1-0-1-1", "jumping": "concat", "residual": "linear"}),
    ("gcn", {"norm_place": "input", "residual": "identity", "num_layers": 3}),
    ("gcn", {"head_layers": 3, "norm_place": "conv"}),
    ("mixhop", {}),
    ("mixhop", {"orders": "1-2", "head_layers": 0}),
    ("gat", {}),
    ("gat", {"symmetric": True}),
    ("gcn", {"orders": "0-1-1"}),
    ("sage", {"orders": "0-0-1-1"}),
]


def make_looped(directed: bool = False, weighted: bool = False, sparse: bool = False) -> shoal.Graph:
    """Random edges, some nodes with self loops, some without edges."""
    generator = np.random.default_rng(3)
    ends = generator.integers(0, 110, (2, 400))
    ends = np.concatenate([ends, np.tile(np.arange(0, 110, 7), (2, 1))], axis=1)
    x: Any = generator.normal(size=(120, 6)) * (generator.random((120, 6)) < 0.5)
    if sparse:
        x = sp.csr_array(x)
    weight = generator.random(ends.shape[1]) + 0.5 if weighted else None
    if weighted and not directed:  # one weight for both directions of an edge
        low, high = ends.min(0), ends.max(0)
        _, first = np.unique(low * 120 + high, return_index=True)
        ends, weight = ends[:, first], weight[first]
    graph = shoal.Graph.from_edge_index(
        ends, 120, directed=directed, x=x, y=generator.integers(0, 3, 120), edge_weight=weight
    )
    return graph.with_split(0.6, 0.2, seed=0)


def make_neighbours(graph: shoal.Graph, model: shoal.GNN) -> shoal.NeighborSampler:
    count = sum(stage.kind is not None for stage in list_stages(model, sparse=False))
    return shoal.NeighborSampler(graph, fanouts=(2,) * count, batch_size=30, seed=1)


def make_trainer(
    graph: shoal.Graph, name: str = "sage", *, layered: bool = False, dropout: float = 0.0, **settings: Any
) -> shoal.Trainer:
    model = shoal.GNN(name, graph.num_features, 12, graph.num_classes, dropout=dropout, seed=0, **settings)
    sampler = make_neighbours(graph, model) if layered else shoal.RandomWalkSampler(graph, **SUBGRAPHS)
    return shoal.Trainer(model, graph, sampler, history=True)


def warm_up(trainer: shoal.Trainer) -> None:
    """Write the true activations: passes over all nodes with frozen weights."""
    share = trainer.share
    trainer.model.train()
    whole = HistorySampler(
        shoal.ClusterSampler(share.sampler.graph, assignment=np.arange(share.sampler.graph.num_nodes) % 4),
        share.sampler.num_blocks,
        wide=share.sampler.wide,
    )
    for k in range(4 * len(share.histories.stages)):
        share.histories.run(batch := whole.sample(k))
        share.histories.write(batch)


def compare(trainer: shoal.Trainer, k: int, step: int = 5) -> None:
    """A batch's logits are those of the whole graph for the same nodes."""
    batch = trainer.sampler.sample(k)
    batch.step = step
    trainer.model.train()
    with torch.no_grad():
        found = trainer.share.histories.run(batch)
        wanted = trainer.model(trainer.share.whole, step=step)[batch.nodes[: len(found)]]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "settings"), STACKS)
def test_subgraphs_with_true_histories_compute_what_the_whole_graph_does(name, settings):
    trainer = make_trainer(make_looped(), name, **settings)
    warm_up(trainer)
    for k in range(3):
        compare(trainer, k)


@pytest.mark.parametrize(("name", "settings"), STACKS[:6])
def test_control_variates_with_true_histories_have_no_variance(name, settings):
    trainer = make_trainer(make_looped(), name, layered=True, **settings)
    warm_up(trainer)
    for k in range(3):
        compare(trainer, k)


@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize(
    "kind", [{"directed": True}, {"weighted": True}, {"directed": True, "weighted": True}, {"sparse": True}]
)
def test_directed_weighted_and_sparse_graphs_are_exact_too(kind, layered):
    trainer = make_trainer(make_looped(**kind), "gcn", layered=layered)
    warm_up(trainer)
    compare(trainer, 1)


@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize("settings", [{}, {"input_dropout": 0.3}])
def test_what_is_read_has_the_dropout_of_the_step_that_reads_it(layered, settings):
    """The first layer's result depends on no dropout but the input's: its history, and so a step on a batch, are exact."""
    trainer = make_trainer(make_labelled(120), "sage", layered=layered, dropout=0.4, **settings)
    if settings:  # the history is that of this very step
        trainer.model.train()
        with torch.no_grad():
            batch = trainer.share.whole
            adj = batch.blocks[0].adjacency("mean")
            layer = next(trainer.model.list_layers())
            h, _ = trainer.model.prepare_input(batch.x, batch.n_id, 5)
            value = layer.finish(layer.multiply(adj, h))
        trainer.share.histories.matrices[1].tensor.copy_(value)
    else:
        warm_up(trainer)
    compare(trainer, 2, step=5)


@pytest.mark.parametrize("kind", ["mean", "gcn"])
def test_control_variates_have_the_exact_mean_and_variance_for_any_history(kind):
    """With c_u the entry of u times (h - h̄)_u, k of d neighbours drawn without replacement:
    the mean is A h, the variance d² (1 - k/d) s² / k, s² the sample variance of the d values c_u."""
    graph = make_graph([(0, t) for t in range(1, 8)] + [(1, 2), (3, 3), (0, 0)], 9)
    draws, fanout = 4000, 2
    source = shoal.NeighborSampler(graph, fanouts=(fanout, fanout), batch_size=9, seed=4)
    sampler = HistorySampler(source, 2, wide=False)
    generator = np.random.default_rng(0)
    h, old = generator.normal(size=(2, 9))
    whole = shoal.FullSampler(graph).sample(0).blocks[0].adjacency(kind).to_dense().double().numpy()
    found = np.zeros((draws, 9))
    for k in range(draws):
        batch = sampler.sample(k)
        block = batch.blocks[1]
        fresh = batch.nodes
        columns = np.concatenate([h[fresh], old[block.outside]])
        found[k, fresh[: block.num_rows]] = block.adjacency(kind).to_dense().double().numpy() @ columns
    exact = np.zeros(9)
    for row in range(9):
        others = [v for v in graph.indices[graph.indptr[row] : graph.indptr[row + 1]] if v != row]
        d = len(others)
        if d > fanout:
            values = whole[row, others] * (h - old)[others]
            exact[row] = d**2 * (1 - fanout / d) * np.var(values, ddof=1) / fanout
    drawn = exact > 0
    assert drawn.any()
    assert np.allclose(found[:, ~drawn], (whole @ h)[~drawn], atol=1e-6)
    score = (found.mean(0) - whole @ h)[drawn] / np.sqrt(exact[drawn] / draws)
    assert np.abs(score).max() < 4.5  # two-sided, p < 1e-5
    ratio = found.var(0, ddof=1)[drawn] / exact[drawn]
    assert np.abs(ratio - 1).max() < 0.15


def test_histories_that_are_zero_leave_neighbour_sampling():
    graph = make_labelled(200)
    source = shoal.NeighborSampler(graph, fanouts=(2, 2), batch_size=30, seed=4)
    block = HistorySampler(source, 2, wide=False).sample(3).blocks[1]
    plain = source.sample(3).blocks[1]
    kept = block.adjacency("mean").to_dense()
    assert torch.equal(kept[:, : plain.num_columns], plain.adjacency("mean").to_dense())


def train(
    graph: shoal.Graph,
    folder=None,
    *,
    epochs=4,
    layered=False,
    threads=0,
    resume=False,
    setting="transductive",
):
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes, num_layers=3, dropout=0.3, seed=0)
    sampler: shoal.sampling.base.Sampler = shoal.RandomWalkSampler(graph, setting=setting, **SUBGRAPHS)
    if layered:
        sampler = shoal.NeighborSampler(graph, fanouts=(2, 2, 2), batch_size=40, seed=1, setting=setting)
    trainer = shoal.Trainer(
        model, graph, sampler, history=True, checkpoints=folder, sampling_threads=threads, patience=None
    )
    if resume:
        trainer.resume(folder)
    trainer.fit(epochs)
    return trainer


def list_state(trainer: shoal.Trainer) -> list[torch.Tensor]:
    return [*trainer.last_weights.values(), *trainer.share.histories.export().values()]


@pytest.mark.parametrize("layered", [False, True])
def test_a_resumed_run_ends_with_the_weights_and_histories_of_an_uninterrupted_one(tmp_path, layered):
    graph = make_labelled(200)
    whole = train(graph, layered=layered)
    train(graph, tmp_path, epochs=2, layered=layered)
    resumed = train(graph, tmp_path, layered=layered, resume=True)
    assert all(map(torch.equal, list_state(whole), list_state(resumed)))
    assert len(list(tmp_path.glob("history-*"))) == 2


@pytest.mark.parametrize("layered", [False, True])
def test_threads_that_draw_ahead_change_nothing(layered):
    graph = make_labelled(200)
    alone, threaded = train(graph, layered=layered), train(graph, layered=layered, threads=2)
    assert all(map(torch.equal, list_state(alone), list_state(threaded)))


@pytest.mark.parametrize("layered", [False, True])
def test_inductive_training_never_reads_a_validation_or_test_row(layered):
    graph = make_labelled(300)
    poisoned = graph.x.copy()
    poisoned[~graph.train_mask] = np.nan
    hidden = shoal.Graph(
        graph.indptr,
        graph.indices,
        x=np.nan_to_num(poisoned, nan=1e30),
        y=graph.y,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
    )
    clean, same = (train(one, layered=layered, epochs=2, setting="inductive") for one in (graph, hidden))
    assert all(len(one) == graph.train_mask.sum() for one in same.share.histories.export().values())
    assert all(map(torch.equal, list_state(clean), list_state(same)))


def test_histories_in_files_are_those_in_memory():
    trainer = make_trainer(make_looped(), "mixhop")
    share = trainer.share
    with Scratch(0) as scratch:
        filed = Histories(trainer.model, share.histories.stages, share.sampler.graph, scratch)
        assert all(isinstance(one, FileMatrix) for one in filed.matrices.values())
        for k in range(6):
            batch = trainer.sampler.sample(k)
            logits = [one.run(batch) for one in (filed, share.histories)]
            assert torch.equal(*logits)
            for one in (filed, share.histories):
                one.write(batch)
        for one, other in zip(filed.export().values(), share.histories.export().values()):
            assert torch.equal(one, other)


def test_a_history_of_two_layers_takes_the_bytes_that_are_counted():
    trainer = make_trainer(make_looped(), "sage")
    held = sum(one.nbytes for one in trainer.share.histories.export().values())
    assert trainer.share.count_bytes() == held + 120 * 6 * 4  # and A x


def test_what_histories_cannot_stand_for_is_refused():
    graph = make_labelled(100)
    sage = shoal.GNN("sage", 8, 8, 3)
    refused = [
        (sage, None, "full-batch training reads no histories"),
        (sage, "random-walk", "expected a Sampler"),
        (
            sage,
            shoal.FullSampler(graph),
            "leaves no neighbours out, so there is nothing to read from a history",
        ),
        (shoal.GNN("gat", 8, 8, 3), shoal.NeighborSampler(graph, fanouts=(2, 2)), "not a weighted sum"),
        (sage, shoal.NeighborSampler(graph, fanouts=(2,)), "aggregates 2 times"),
        (shoal.GNN("sage", 8, 8, 3, num_layers=1), shoal.NodeSampler(graph), "first layer only"),
        (TiedModel(8, 3), shoal.NodeSampler(graph), "need a stack of convs"),
    ]
    for model, sampler, said in refused:
        with pytest.raises(ShoalError, match=said):
            shoal.Trainer(model, graph, sampler, history=True)
    config = RunConfig()
    config.training.history = True
    config.method = "full"
    with pytest.raises(ShoalError, match=r"leave out training\.history"):
        config.validate()
