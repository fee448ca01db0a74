"""AdaptiveSampler: nodes for each layer drawn from a learned distribution (AS-GCN)."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from shoal.batch import Batch, as_tensor
from shoal.edge_weights import require_unweighted
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.jit import kernel
from shoal.kernels.spmm import spmm
from shoal.sampling.base import SAMPLERS, TrainingGraph
from shoal.sampling.full import FullSampler
from shoal.sampling.importance import ImportanceSampler, LayerSize, add_column_norms, make_distribution
from shoal.sampling.layered import Grown, NumLayers
from shoal.sampling.targets import BatchSize
from shoal.settings import Range, Seed, check_settings

FLOOR = 0.1  # smallest score of a node: every neighbour can be drawn, otherwise the estimate is biased


@SAMPLERS.register
class AdaptiveSampler(ImportanceSampler):
    """A layer's nodes are drawn among the neighbours of the layer above with `q_v ∝ g(x_v) Σ_{u in rows} Â_uv`,
    `g(x) = |w·x + b| + 0.1`. w and b are learned (AS-GCN's self-dependent function), starting from w = 0, b = 1.

    For fixed w and b every aggregation is unbiased. Training reduces the variance of the last aggregation, summed over its
    rows: `Var = (Σ_v F_v / q_v - Σ_u |(Â h)_u|²) / layer_size` with `F_v = Σ_u Â_uv² |h_v|²`. The estimate of its gradient
    from the drawn nodes, `-E_q[F_v / q_v² ∇ log q_v]`, is unbiased. `sample(k)` is a pure function of
    (graph, settings, seed, k, w, b).

    Cost: that of `ladies`, and a product of all features with w per step.
    """

    name = "asgcn"
    can_prefetch = False

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: BatchSize = 1000,
        layer_size: LayerSize = 4000,
        num_layers: NumLayers = 2,
        rate: Annotated[
            float,
            Range(0, 1, said="0 to 1"),
            "learning rate of the sampling probabilities; 0: they are fixed",
        ] = 0.01,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
    ) -> None:
        super().__init__(
            graph,
            batch_size=batch_size,
            layer_size=layer_size,
            num_layers=num_layers,
            setting=setting,
            seed=seed,
        )
        require_unweighted(graph, f"sampler {self.name!r} does")
        if graph.num_features == 0:
            raise ShoalError(
                f"graph {graph.name!r} has no features, which sampler {self.name} needs: use ladies"
            )
        self.rate = rate
        self.weight = nn.Parameter(torch.zeros(graph.num_features + 1))
        with torch.no_grad():
            self.weight[-1] = 1.0
        self._optimizer = torch.optim.Adam([self.weight], lr=rate)
        self._scores: np.ndarray | None = None

    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        sums, candidates = self._find_candidates(nodes)
        if self._scores is None:
            with torch.no_grad():
                self._scores = self.score().double().numpy()
        law = make_distribution(sums * self._scores[candidates], candidates)
        return self.draw_columns(nodes, layer, k, law)

    def score(self) -> Tensor:
        """`g(x_v)` of every node of the training graph, differentiable."""
        x, weight = self._features, self.weight[:-1, None]
        product = spmm(x, weight) if isinstance(x, Adjacency) else x @ weight
        return (product[:, 0] + self.weight[-1]).abs() + FLOOR

    def learn(self, batch: Batch, squares: Tensor) -> None:
        """Take an optimizer step that reduces the variance of the last aggregation.

        Args:
            batch: the batch of the step.
            squares: `|h_v|²` of the columns of the last aggregation.
        """
        if self.rate == 0:
            return
        moment, proxy = self.measure(batch, squares)
        if moment <= 0:
            return
        self._optimizer.zero_grad()
        (proxy / moment).backward()
        self._optimizer.step()
        self._scores = None

    def measure(self, batch: Batch, squares: Tensor) -> tuple[float, Tensor]:
        """Unbiased estimates for the last aggregation: `Σ_v F_v / q_v`, and a tensor that has its gradient.

        Args:
            batch: the batch of the step.
            squares: `|h_v|²` of the columns of the last aggregation.
        """
        block = batch.blocks[-1]
        rows, columns = batch.nodes[: block.num_rows], batch.nodes[: block.num_columns]
        sums, candidates = self._find_candidates(rows)
        chances = as_tensor(np.log(sums)).float() + self.score()[as_tensor(candidates)].log()
        chances = chances - chances.logsumexp(0)
        with self.borrow_factor() as norms:
            add_column_norms(self.graph.indptr, self.graph.indices, rows, norms)
            squared = as_tensor(norms[columns])
            norms[candidates] = 0
        assert block.edge_norm is not None
        factor = _find_factors(
            block.indptr.numpy(), block.indices.numpy(), block.edge_norm.numpy(), len(columns)
        )
        drawn = np.flatnonzero(factor)
        chance = chances[as_tensor(np.searchsorted(candidates, columns[drawn]))]
        shares = (
            as_tensor(factor[drawn]) * (squared * squares.double())[drawn] / chance.detach().double().exp()
        )
        return float(shares.sum()), -(shares * chance).sum()

    def export(self) -> dict[str, Tensor]:
        """The state from which training can be resumed exactly."""
        kept: dict[str, Any] = self._optimizer.state.get(self.weight, {})
        return {
            "weight": self.weight.detach(),
            **{name: torch.as_tensor(one) for name, one in sorted(kept.items())},
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state of `export`.

        Args:
            tensors: what `export` returned.
        """
        with torch.no_grad():
            self.weight.copy_(tensors["weight"])
        kept = {name: one for name, one in tensors.items() if name != "weight"}
        if kept:
            self._optimizer.state[self.weight] = kept
        self._scores = None

    @cached_property
    def _features(self) -> Tensor | Adjacency:
        return FullSampler(self.graph).sample(0).x

    def _find_candidates(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`Σ_{u in rows} Â_uv` of the neighbours v of rows, and those neighbours, increasing."""
        return self.find_candidates(partial(_add_column_sums, self.graph.indptr, self.graph.indices, rows))


@kernel
def _add_column_sums(indptr, indices, rows, sums):
    """sums[v] += Σ 1 / sqrt((d_u + 1)(d_v + 1)) over the rows u ≠ v that list v."""
    for i in range(len(rows)):
        u = rows[i]
        for k in range(indptr[u], indptr[u + 1]):
            v = indices[k]
            if v != u:
                sums[v] += ((indptr[u + 1] - indptr[u] + 1.0) * (indptr[v + 1] - indptr[v] + 1.0)) ** -0.5


@kernel
def _find_factors(indptr, indices, edge_norm, num_columns):
    """The factor of every drawn column, `c_v / (layer_size · q_v)`; 0 for the others."""
    factor = np.zeros(num_columns, np.float64)
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] != i:
                factor[indices[k]] = edge_norm[k]
    return factor
