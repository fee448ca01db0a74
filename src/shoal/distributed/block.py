"""PartBlock: the pattern of a rank's rows, whose aggregations exchange halo rows with other ranks."""

from __future__ import annotations

from shoal.batch import as_tensor
from shoal.block import Block
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import INPUT
from shoal.distributed.operator import PartAdjacency
from shoal.distributed.pattern import PartPattern
from shoal.kernels.adjacency import Adjacency


class PartBlock(Block):
    """One aggregation over a part: `adjacency` returns operators whose products exchange rows.

    Blocks of one plan share the patterns; each has its own `layer`, by which its messages are counted. Blocks of a
    thinned plan share the local operators of the original plan, unless local entries are dropped too.

    Args:
        layer: aggregations count from 1; `INPUT` is the exchange before training.
        base: the block this one shares patterns with, and whose input stays whole unless `thins_input`.
        wide: whether the features have the halo's rows too, so that the first layer needs no message.
    """

    def __init__(
        self,
        plan: HaloPlan,
        layer: int = INPUT,
        *,
        base: PartBlock | None = None,
        wide: bool = False,
        thins_input: bool = False,
    ) -> None:
        part = plan.part
        n = part.num_local
        super().__init__(
            as_tensor(part.local_indptr),
            as_tensor(part.local_indices),
            n,
            symmetric=not part.directed,
            edge_weight=None if part.local_weight is None else as_tensor(part.local_weight),
            edge_norm=None if plan.edge_norms is None else plan.edge_norms[0],
            degree=as_tensor(part.degree[:n]),
            has_loop=None if part.has_loop is None else as_tensor(part.has_loop[:n]),
            checked=True,
        )
        self.plan = plan
        self.layer = layer
        self.wide: bool = wide if base is None else base.wide
        self._input: PartBlock = self if base is None or thins_input else base._input
        self._patterns: dict[str, PartPattern] = {}
        self._locals: dict[str, Adjacency] = {}
        self._layers: dict[int, Block] = {}
        if base is not None and base.plan is plan:
            self._patterns = base._patterns
        if base is not None and base.plan.part.local_indices is part.local_indices:
            self._locals = base._locals

    @property
    def num_edges(self) -> int:
        """Entries in local and halo columns."""
        return len(self.plan.part.local_indices) + len(self.plan.part.halo_indices)

    def at_layer(self, layer: int) -> Block:
        if layer not in self._layers:
            if layer == 0 and self.wide:
                self._layers[layer] = _WideBlock(self._input)
            else:
                self._layers[layer] = PartBlock(self.plan, layer + 1, base=self)
        return self._layers[layer]

    def for_input(self) -> Block | None:
        return None if self.wide else self._input

    def adjacency(self, kind: str) -> Adjacency:
        if kind not in self._adjacencies:
            if kind not in self._locals:
                self._locals[kind] = super().adjacency(kind)
            if kind not in self._patterns:
                self._patterns[kind] = PartPattern(self._locals[kind], self.plan, kind)
            self._adjacencies[kind] = PartAdjacency(self._patterns[kind], self.layer)
        return self._adjacencies[kind]

    def over_columns(self, kind: str) -> Adjacency:
        adj = self.adjacency(kind)
        assert isinstance(adj, PartAdjacency)
        return adj.pattern.wide


class _WideBlock(Block):
    """A part's pattern over local and halo columns, for a layer whose input has rows for both."""

    def __init__(self, block: PartBlock) -> None:
        part = block.plan.part
        super().__init__(block.indptr, block.indices, part.num_local + part.num_halo, checked=True)
        self._block = block

    @property
    def num_edges(self) -> int:
        return self._block.num_edges

    def adjacency(self, kind: str) -> Adjacency:
        return self._block.over_columns(kind)
