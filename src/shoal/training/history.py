"""Histories: the last computed activations of every node, read for neighbours outside the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from shoal.batch import Batch, as_tensor
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.gather import gather_rows
from shoal.kernels.spmm import multiply
from shoal.models.gnn import GNN
from shoal.models.layerwise import Input, count_rows, select_rows
from shoal.models.stages import FEATURES, Stage, StageInput
from shoal.sampling.full import FullSampler
from shoal.scratch import Matrix, Scratch

_ROWS_AT_ONCE = 1 << 16


class Histories:
    """One matrix for every value that a stage reads from neighbours, with a row per node of the training graph.

    Matrices start at 0. Values are stored before dropout; dropout is applied by the step that reads them. With frozen
    weights and no dropout in earlier layers, a history is exactly what the batch would compute. The features are their
    own history. If the first stage starts from `A x`, that is computed once for all nodes.

    Args:
        graph: the training graph; in the inductive setting it has no validation or test nodes.
        scratch: makes the matrices, in memory or in files.
    """

    def __init__(self, model: GNN, stages: list[Stage], graph: Graph, scratch: Scratch) -> None:
        self.model, self.stages, self.graph = model, stages, graph
        dtype = next(model.parameters()).dtype
        self.matrices: dict[int, Matrix] = {}
        for value in sorted({stage.source for stage in stages if stage.is_wide} - {FEATURES}):
            self.matrices[value] = scratch.make(graph.num_nodes, stages[value - 1].width, dtype)
            self.matrices[value].tensor.zero_()
        self._known = self._aggregate_input(scratch, dtype) if stages[0].knows else None
        self._computed: dict[int, Tensor] = {}

    def run(self, batch: Batch) -> Tensor:
        """The logits of a batch's output nodes. New activations are kept until `write`."""
        values: dict[int, Input] = {
            FEATURES: self.model.prepare_input(batch.x, batch.n_id, batch.step)[0],
        }
        self._computed, depth, rows = {}, 0, batch.num_nodes
        out: Tensor | None = None
        for number, stage in enumerate(self.stages, 1):
            if stage.kind is not None:
                rows, depth = batch.blocks[depth].num_rows, depth + 1
            given = self._give(stage, batch, values, depth - 1, rows)
            out = stage.run(given)
            if number in self.matrices:
                self._computed[number] = out.detach()
            values[number] = out if stage.drop is None else stage.drop(out, given.n_id, batch.step)
        assert out is not None
        return out

    def write(self, batch: Batch) -> None:
        """Write the activations of the last `run` into the histories."""
        for value, rows in self._computed.items():
            self.matrices[value].write(as_tensor(batch.nodes[: len(rows)]), rows)
        self._computed = {}

    def _give(
        self, stage: Stage, batch: Batch, values: dict[int, Input], depth: int, num_rows: int
    ) -> StageInput:
        source = values[stage.source]
        adj, known, ids = None, None, batch.n_id
        if stage.kind is not None:
            block = batch.blocks[depth]
            adj = block.adjacency(stage.kind)
            outside = block.outside
            has_all = count_rows(source) == block.num_columns  # a dense layer computed all rows
            if stage.is_wide and stage.source != FEATURES and outside is not None and not has_all:
                assert isinstance(source, Tensor)
                others = as_tensor(self.graph.global_ids(outside)).long()
                ids = torch.cat([ids[: len(source)], others])
                source = torch.cat([source, self._read(stage.source, as_tensor(outside), others, batch.step)])
            if stage.knows:
                assert self._known is not None
                known = gather_rows(self._known.tensor, as_tensor(batch.nodes[:num_rows]))
        given = StageInput(adj, source, [], known, ids, num_rows, batch.step, drops=stage.drop is None)
        return given._replace(
            others=[select_rows(values[value], slice(0, num_rows)) for value in stage.others]
        )

    def _read(self, value: int, nodes: Tensor, ids: Tensor, step: int) -> Tensor:
        rows = gather_rows(self.matrices[value].tensor, nodes)
        drop = self.stages[value - 1].drop
        return rows if drop is None else drop(rows, ids, step)

    def _aggregate_input(self, scratch: Scratch, dtype: torch.dtype) -> Matrix:
        whole = FullSampler(self.graph).sample(0)
        assert isinstance(whole.x, Tensor)
        adj = whole.blocks[0].adjacency(self.stages[0].kind or "")
        known = scratch.make(self.graph.num_nodes, whole.x.shape[1], dtype)
        for start in range(0, adj.num_rows, _ROWS_AT_ONCE):
            end = min(start + _ROWS_AT_ONCE, adj.num_rows)
            known.write(slice(start, end), multiply(adj.slice_rows(start, end), whole.x))
        known.settle()
        return known

    def export(self) -> dict[str, Tensor]:
        """The histories as tensors, for a checkpoint."""
        return {str(value): matrix.tensor for value, matrix in self.matrices.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load the tensors that `export` returned."""
        expected = {name: tuple(one.shape) for name, one in self.export().items()}
        if {name: tuple(one.shape) for name, one in tensors.items()} != expected:
            raise ShoalError("the checkpoint's histories belong to another model or training graph")
        for name, tensor in tensors.items():
            self.matrices[int(name)].tensor.copy_(tensor)
