"""A rank's part as the Batch that every model and the trainer work on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shoal.batch import Batch, as_tensor
from shoal.distributed.block import PartBlock
from shoal.distributed.features import widen_features
from shoal.distributed.halo import HaloPlan
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.gather import gather_rows
from shoal.partitioning.part import Part


def local_graph(part: Part) -> Graph:
    """The part's local rows with features, labels and split, as a graph of their own."""
    return Graph(
        part.local_indptr,
        part.local_indices,
        checked=True,
        x=part.x,
        y=part.y,
        edge_weight=part.local_weight,
        train_mask=part.train_mask,
        val_mask=part.val_mask,
        test_mask=part.test_mask,
        directed=part.directed,
        num_classes=part.num_classes,
        name=part.name,
    )


def make_part_batch(plan: HaloPlan, graph: Graph, *, wide: bool, num_train: int) -> Batch:
    """The local rows of a part. Every aggregation over them exchanges rows with other ranks.

    The first layer's halo inputs never change and are exchanged once: as `A x` if the layer can start from it,
    otherwise (`wide`) as the halo's features, from which the layer computes without messages.

    Args:
        graph: the part's `local_graph`.
        wide: exchange the halo's features, now.
        num_train: training nodes on all ranks; the loss is this rank's share of their mean.
    """
    part = plan.part
    x, ids = read_features(part), part.n_id
    if wide:
        x, ids = widen_features(x, plan), np.concatenate([part.n_id, part.halo_id])
        plan.wire.release()
    return Batch(
        graph,
        np.arange(part.num_local),
        (PartBlock(plan, wide=wide),),
        fixed=True,
        node_norm=torch.full((part.num_local,), 1 / max(num_train, 1), dtype=torch.float64),
        x=x,
        n_id=as_tensor(np.ascontiguousarray(ids, np.int64)),
        exchange=plan,
    )


def read_features(part: Part) -> Tensor | Adjacency:
    """Features of the local rows; float32 and sparse ones are not copied."""
    x = part.x
    if x is None:
        raise ShoalError(f"graph {part.name!r} has no features: training needs x")
    if isinstance(x, np.ndarray):
        return gather_rows(x, np.arange(part.num_local)) if x.dtype == np.float16 else as_tensor(x)
    indptr = as_tensor(np.asarray(x.indptr, np.int64))
    return Adjacency(indptr, as_tensor(x.indices), int(x.shape[1]), values=as_tensor(x.data), checked=True)


def thin_batch(batch: Batch, plan: HaloPlan, *, sample_input: bool = False) -> Batch:
    """The same rows with the exchanges of a thinned plan. Inputs that are exchanged only once stay whole.

    With `sample_input` the first layer too reads only the halo rows that the plan keeps; they are exchanged now, or with
    the first `A x`.
    """
    base = batch.blocks[0]
    assert isinstance(base, PartBlock)
    thin = batch.with_blocks((PartBlock(plan, base=base, thins_input=sample_input),), plan)
    if sample_input:
        thin.forget_input()
        if base.wide:
            part, x = plan.part, batch.x
            own = x[: part.num_local] if isinstance(x, Tensor) else x.slice_rows(0, part.num_local)
            thin.x = widen_features(own, plan)
            thin.n_id = as_tensor(np.concatenate([part.n_id, part.halo_id]).astype(np.int64))
    return thin
