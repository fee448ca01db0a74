"""AS-GCN: its law and estimates for fixed weights, what it learns, and that runs repeat."""

from collections import Counter

import numpy as np
import pytest
import torch

import shoal
from sampler_laws import SIGNIFICANCE, chi_square_p
from shoal.errors import ShoalError
from shoal.sampling.adaptive import FLOOR, AdaptiveSampler
from small_graphs import make_graph, make_labelled

EDGES = [(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (4, 5), (3, 3)]


def make_taught(layer_size=3, seed=5, rate=0.01) -> AdaptiveSampler:
    """A sampler of a graph of six nodes whose weights have learned something."""
    x = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)
    sampler = shoal.AdaptiveSampler(
        make_graph(EDGES, 6, x=x), batch_size=6, layer_size=layer_size, num_layers=1, seed=seed, rate=rate
    )
    sampler.restore({"weight": torch.tensor([0.8, -0.5, 0.3])})
    return sampler


def find_law(sampler: AdaptiveSampler, weight=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(Â without self loops, q) of all rows, from the formulas."""
    graph = sampler.graph
    a = torch.zeros(6, 6, dtype=torch.float64)
    a[np.repeat(np.arange(6), graph.degree), graph.indices] = 1
    degree = torch.from_numpy(graph.degree) + 1.0
    a = (a / (degree[:, None] * degree).sqrt()).fill_diagonal_(0)
    weight = sampler.weight.detach() if weight is None else weight
    scores = (torch.from_numpy(graph.x).double() @ weight[:-1].double() + weight[-1].double()).abs() + FLOOR
    q = a.sum(0) * scores
    return a, q / q.sum()


def test_nodes_are_drawn_by_the_exact_law():
    sampler = make_taught(layer_size=1)
    _, q = find_law(sampler)
    counts = Counter()
    for k in range(4000):
        batch = sampler.sample(k)
        block = batch.blocks[0]
        rows = torch.repeat_interleave(torch.arange(6), block.indptr.diff())
        counts[int(batch.nodes[block.indices[block.indices != rows][0]])] += 1
    law = {v: float(q[v]) for v in range(6) if q[v] > 0}
    assert chi_square_p(counts, law) > SIGNIFICANCE


def test_aggregation_and_the_variance_it_learns_from_are_unbiased_for_fixed_weights():
    """Means of 4,000 batches against the exact operator, moment and gradient: within 4.5 standard errors."""
    sampler = make_taught()
    weight = sampler.weight.detach().double().requires_grad_()
    a, q = find_law(sampler, weight)
    squares = torch.tensor([1.0, 0.3, 2.0, 0.7, 1.5, 0.2], dtype=torch.float64)
    exact = (a.square().sum(0) * squares / q)[q > 0].sum()
    exact.backward()
    adj = shoal.FullSampler(sampler.graph).sample(0).blocks[0].adjacency("gcn").to_dense().double()
    found, moments, gradients = [], [], []
    for k in range(4000):
        batch = sampler.sample(k)
        place = torch.from_numpy(batch.nodes)
        operator = torch.zeros(6, 6, dtype=torch.float64)
        operator[place[:, None], place] = batch.blocks[0].adjacency("gcn").to_dense().double()
        moment, proxy = sampler.measure(batch, squares[place])
        found.append(operator)
        moments.append(moment)
        gradients.append(torch.autograd.grad(proxy, sampler.weight)[0].double())
    for drawn, wanted in (
        (torch.stack(found), adj),
        (torch.tensor(moments), exact.detach()),
        (torch.stack(gradients), weight.grad),
    ):
        error = drawn.std(0) / len(drawn) ** 0.5
        assert ((drawn.mean(0) - wanted).abs() <= 4.5 * error + 1e-5 * wanted.abs() + 1e-6).all()


def test_learning_lowers_the_variance():
    sampler = make_taught(rate=0.05)
    squares = torch.tensor([0.1, 0.1, 9.0, 0.1, 0.1, 9.0], dtype=torch.float64)

    def measure():
        a, q = find_law(sampler)
        return float((a.square().sum(0) * squares / q)[q > 0].sum())

    before = measure()
    for k in range(150):
        batch = sampler.sample(k)
        sampler.learn(batch, squares[torch.from_numpy(batch.nodes)])
    assert measure() < 0.8 * before


def train(graph, folder=None, *, epochs=4, resume=False, threads=0, **options):
    model = shoal.GNN("gcn", graph.num_features, 16, graph.num_classes, num_layers=2, dropout=0.3, seed=0)
    sampler = shoal.AdaptiveSampler(graph, batch_size=40, layer_size=30, seed=1, **options)
    trainer = shoal.Trainer(model, graph, sampler, checkpoints=folder, sampling_threads=threads)
    if resume:
        trainer.resume(folder)
    trainer.fit(epochs)
    return [*trainer.last_weights.values(), *sampler.export().values()]


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one_and_threads_change_nothing(tmp_path):
    graph = make_labelled(200)
    whole = train(graph)
    train(graph, tmp_path, epochs=2)
    assert all(map(torch.equal, whole, train(graph, tmp_path, resume=True)))
    assert all(map(torch.equal, whole, train(graph, threads=2)))
    assert float(whole[-4][:-1].abs().max()) > 0  # it has learned


def test_inductive_training_learns_from_training_rows_only():
    graph = make_labelled(200)
    hidden = shoal.Graph(
        graph.indptr,
        graph.indices,
        x=np.where(graph.train_mask[:, None], graph.x, np.float32(1e20)),
        y=graph.y,
        train_mask=graph.train_mask,
    )
    same = shoal.Graph(graph.indptr, graph.indices, x=graph.x, y=graph.y, train_mask=graph.train_mask)
    runs = [train(one, epochs=2, setting="inductive") for one in (hidden, same)]
    assert all(map(torch.equal, *runs))


def test_what_it_cannot_learn_from_is_refused():
    graph = make_labelled(100)
    sampler = shoal.AdaptiveSampler(graph)
    with pytest.raises(ShoalError, match="leave out history"):
        shoal.Trainer(shoal.GNN("gcn", 8, 8, 3), graph, sampler, history=True)
    with pytest.raises(ShoalError, match="last aggregation of a stack"):
        shoal.Trainer(shoal.GNN("mlp", 8, 8, 3), graph, sampler)
    with pytest.raises(ShoalError, match="no features"):
        shoal.AdaptiveSampler(make_graph(EDGES, 6))
