"""Stale training in plain torch, by dense matrices of the whole graph, for tests/distributed/test_stale.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import shoal
from message_ranks import open_part
from rank_jobs import Job, make_model
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.distributed.transport import Transport
from shoal.kernels.fused import dropout_reference


class StaleProduct:
    """`A h` where entries between parts multiply the rows of the step before; the transpose likewise for gradients."""

    def __init__(self, operator: Tensor, same: Tensor, smoothing: float) -> None:
        self.inner, self.outer, self.smoothing = operator * same, operator * ~same, smoothing
        self.rows, self.gradients = Delayed(smoothing), Delayed(smoothing)

    def __call__(self, h: Tensor) -> Tensor:
        remote = _Apart.apply(h, self)
        product: Tensor = self.inner @ h + remote
        return product


class Delayed:
    """The value of the step before, the current one in the first step; with smoothing, a moving average."""

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing
        self.last: Tensor | None = None
        self.used: Tensor | None = None

    def step(self, value: Tensor) -> Tensor:
        if self.last is None:
            used = value
        elif self.used is None:
            used = self.used = self.last
        else:
            used = self.used = self.smoothing * self.used + (1 - self.smoothing) * self.last
        self.last = value.detach().clone()
        return used


class _Apart(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, product: StaleProduct) -> Tensor:
        ctx.product = product
        return product.outer @ product.rows.step(h)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        product = ctx.product
        return product.outer.T @ product.gradients.step(grad), None


def compare_training(
    transport: Transport, content: dict[str, Any], settings: dict[str, Any], projects: bool, epochs: int
) -> list[float]:
    """The largest difference of losses, gradients and weights between stale training of ranks and dense matrices.

    Three layers with dropout. `projects`: whether rows are multiplied by weights before they are sent.
    """
    job = Job(**content)
    graph, assignment, part = open_part(transport, job)
    models = [make_model(job) for _ in range(2)]
    for model in models:
        for layer in model.layers:
            layer.linear.projects = projects
    exchange = PointToPoint(staleness=1, **settings)
    trainer = shoal.Trainer(models[0], part, transport=transport, exchange=exchange, **dict(job.training))
    optimizer = torch.optim.Adam(models[1].parameters(), **dict(job.training))
    same = torch.from_numpy(assignment[:, None] == assignment)
    operator = _make_operator(graph, models[1].layers[0].kind)
    products = [StaleProduct(operator, same, exchange.smoothing) for _ in models[1].layers]
    mask, y = torch.from_numpy(graph.train_mask), torch.from_numpy(np.asarray(graph.y, np.int64))
    x = torch.from_numpy(np.asarray(graph.x))
    worst = [0.0, 0.0, 0.0]
    for step in range(epochs):
        record = trainer.train_epoch()
        optimizer.zero_grad()
        logits = _compute(models[1], x, operator, products, projects, step)
        loss = functional.cross_entropy(logits[mask], y[mask])
        loss.backward()
        optimizer.step()
        pairs = list(zip(models[0].parameters(), models[1].parameters(), strict=True))
        found = [abs(record["loss"] - float(loss))]
        found.append(max(float((a.grad - b.grad).abs().max()) for a, b in pairs))
        found.append(max(float((a - b).abs().max()) for a, b in pairs))
        worst = [max(pair) for pair in zip(worst, found)]
        trainer.evaluate("val")  # exact, in between
    trainer.share.end()
    answer: list[float] = transport.gather(np.array(worst)).max(0).tolist()
    return answer


def _make_operator(graph: shoal.Graph, kind: str) -> Tensor:
    """D⁻¹A or D̃^-½(A + I)D̃^-½ with scales rounded to float32, as operators hold them."""
    a = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    a[np.repeat(np.arange(graph.num_nodes), graph.degree), graph.indices] = 1
    if kind == "mean":
        return a * (1 / a.sum(1).clamp_min(1)).float().double()[:, None]
    a.fill_diagonal_(1)
    scale = a.sum(1).float().rsqrt().double()
    return a * scale[:, None] * scale


def _compute(
    model: shoal.GNN, x: Tensor, operator: Tensor, products: list[StaleProduct], projects: bool, step: int
) -> Tensor:
    """Logits; the product of the first layer is exact, as features do not change."""
    h = x
    for number, (layer, product) in enumerate(zip(model.layers, products)):
        weight, bias = layer.linear.weight, layer.bias
        halves = [weight] if model.model == "gcn" else weight.chunk(2, dim=1)
        if number == 0:
            out = [operator @ h @ halves[0]]
        else:
            out = [product(h @ halves[0]) if projects else product(h) @ halves[0]]
        out += [h @ half for half in halves[1:]]
        activated = torch.relu(torch.cat(out, 1) + bias).chunk(len(halves), dim=1)
        scale, shift = (one.chunk(len(halves)) for one in (layer.norm.weight, layer.norm.bias))
        normal = [
            functional.layer_norm(one, one.shape[1:], a, b) for one, a, b in zip(activated, scale, shift)
        ]
        h = dropout_reference(torch.cat(normal, 1), layer.dropout, model.key(step, number))
    return model.classifier(h)
