"""NeighborLoader and ClusterLoader: drop-in replacements of PyG's loaders that use Shoal's samplers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from shoal.batch import Batch, as_tensor
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.kernels.entry_weights import take_weights
from shoal.kernels.patterns import list_edges
from shoal.pyg import load_pyg
from shoal.sampling.cluster import ClusterSampler
from shoal.sampling.loader import SubgraphLoader
from shoal.sampling.neighbor import NeighborSampler, check_fanouts
from shoal.sampling.pyg_arguments import drop_pyg_arguments
from shoal.validation import MASKS

Transform = Callable[[Any], Any]


class EdgeNumbers:
    """Maps edges of a batch to their positions in the `edge_index` of a `Data` object; duplicates map to the first."""

    def __init__(self, edge_index: torch.Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        keys, self.order = torch.sort(self._join(edge_index), stable=True)
        self.keys = keys

    def find(self, edge_index: torch.Tensor) -> torch.Tensor:
        """Positions of edges, (num_edges,); `edge_index` holds global node ids."""
        return self.order[torch.searchsorted(self.keys, self._join(edge_index))]

    def _join(self, edge_index: torch.Tensor) -> torch.Tensor:
        return edge_index[1].long() * self.num_nodes + edge_index[0].long()


def _number_edges(data: Any, graph: Graph) -> EdgeNumbers:
    """Positions of the edges of `data`. Edges of a Graph are numbered as in `graph.to_pyg()`."""
    if not isinstance(data, Graph):
        return EdgeNumbers(torch.as_tensor(data.edge_index), graph.num_nodes)
    edges = list_edges(as_tensor(graph.indptr), as_tensor(graph.indices))
    return EdgeNumbers(edges, graph.num_nodes)


def _refuse_unknown(options: dict[str, Any], loader: type[_DataLoader]) -> None:
    """Raise for arguments that neither this loader nor PyG's has, and for PyG's arguments that would have an effect."""
    if left := drop_pyg_arguments(options):
        raise unknown_name(
            f"argument of {loader.__name__}", next(iter(left)), [*inspect.signature(loader).parameters][:-1]
        )


class _DataLoader(SubgraphLoader):
    """A SubgraphLoader that yields PyG `Data` objects with x, edge_index, y, the masks and n_id of a batch."""

    transform: Transform | None = None
    make: Any = None  # torch_geometric.data.Data
    numbers: EdgeNumbers | None = None

    def _iterate(self, epoch: int) -> Iterator[Any]:
        for batch in super()._iterate(epoch):
            data = self._convert(batch)
            yield data if self.transform is None else self.transform(data)

    def _convert(self, batch: Batch) -> Any:
        graph = batch.graph
        fields: dict[str, Any] = {}
        if graph.num_features:
            fields["x"] = batch.x
        for name in ("y", *MASKS):
            if (values := getattr(graph, name)) is not None:
                fields[name] = as_tensor(values[batch.nodes])
        if graph.multi_label:
            fields["y"] = fields["y"].float()
        if graph.edge_weight is not None:
            fields["edge_weight"] = _find_weights(batch, graph.edge_weight)
        if self.numbers is not None:
            fields["e_id"] = self.numbers.find(batch.n_id[batch.edge_index])
        return self.make(edge_index=batch.edge_index, n_id=batch.n_id, num_nodes=batch.num_nodes, **fields)


class NeighborLoader(_DataLoader):
    """Mini-batches of sampled neighbourhoods, as PyG's NeighborLoader yields them.

    A batch is a `Data` object with x, edge_index, y, the masks, n_id and input_id (positions in `input_nodes`). Its first
    `batch_size` nodes are the input nodes.

        loader = shoal.NeighborLoader(data, num_neighbors=[10, 5], batch_size=1024, input_nodes=data.train_mask)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]

    Neighbours are sampled without replacement. A node's neighbours are sampled once, in the hop that reaches it. Self
    loops are always kept. Batch k does not depend on the number of workers. Each `for` loop is a new epoch.

    Args:
        data: a Graph or a PyG `Data`.
        num_neighbors: neighbours sampled per node in each hop, -1 for all.
        batch_size: input nodes in a batch; the last batch of an epoch may have fewer.
        input_nodes: node ids or a mask; None for all nodes.
        shuffle: whether input nodes are in a new random order every epoch.
        drop_last: leave out the last batch of an epoch if it has fewer input nodes.
        num_workers: sampling threads, which share the graph; 0 samples in the calling thread.
        transform: called with each batch; its result is yielded.
        seed: random seed of order and neighbours.
        e_id: whether batches have `e_id`, the position of every edge in the `edge_index` of data.
        options: other arguments of PyG's loader. Those without effect (`pin_memory=False`, `replace=False`) are accepted,
            others are errors.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        *,
        batch_size: int = 1,
        input_nodes: Any = None,
        shuffle: bool = False,
        drop_last: bool = False,
        num_workers: int = 0,
        transform: Transform | None = None,
        seed: int = 0,
        e_id: bool = False,
        **options: Any,
    ) -> None:
        self.make, self.transform = load_pyg("shoal.NeighborLoader").Data, transform
        _refuse_unknown(options, NeighborLoader)
        graph = data if isinstance(data, Graph) else Graph.from_pyg(data)
        nodes = np.arange(graph.num_nodes) if input_nodes is None else input_nodes
        fanouts = check_fanouts(num_neighbors, "num_neighbors")
        sampler = NeighborSampler(
            graph, fanouts=fanouts, batch_size=batch_size, seed=seed, outputs=nodes, shuffle=shuffle
        )
        super().__init__(graph, sampler, num_workers=num_workers, drop_last=drop_last)
        self.numbers = _number_edges(data, graph) if e_id else None

    def _convert(self, batch: Batch) -> Any:
        assert isinstance(self.sampler, NeighborSampler)
        data = super()._convert(batch)
        data.batch_size = batch.num_outputs
        data.input_id = torch.from_numpy(self.sampler.draw_places(batch.index))
        return data


class ClusterLoader(_DataLoader):
    """Mini-batches of clusters with the edges between them (Cluster-GCN), as PyG's ClusterLoader yields them.

    A batch is a `Data` object with x, edge_index, y, the masks and n_id.

        loader = shoal.ClusterLoader(data, num_parts=100, batch_size=4)

    An epoch visits clusters in a new random order. If `batch_size` does not divide their number, the remaining clusters
    are left out of that epoch.

    Args:
        data: a Graph or a PyG `Data`.
        num_parts: clusters to cut the graph into with METIS (needs the extra `partition`).
        assignment: the cluster of every node, in place of `num_parts`.
        batch_size: clusters in a batch.
        shuffle: must be True: clusters have no fixed order.
        num_workers, transform, seed, e_id, options: as in NeighborLoader.
    """

    def __init__(
        self,
        data: Any,
        num_parts: int | None = None,
        *,
        assignment: Any = None,
        batch_size: int = 1,
        shuffle: bool = True,
        num_workers: int = 0,
        transform: Transform | None = None,
        seed: int = 0,
        e_id: bool = False,
        **options: Any,
    ) -> None:
        self.make, self.transform = load_pyg("shoal.ClusterLoader").Data, transform
        _refuse_unknown(options, ClusterLoader)
        if not shuffle:
            raise ShoalError("clusters are in a new random order every epoch: leave out shuffle=False")
        graph = data if isinstance(data, Graph) else Graph.from_pyg(data)
        sampler = ClusterSampler(
            graph, assignment=assignment, num_parts=num_parts, clusters_per_batch=batch_size, seed=seed
        )
        super().__init__(graph, sampler, num_workers=num_workers)
        self.numbers = _number_edges(data, graph) if e_id else None


def _find_weights(batch: Batch, weights: np.ndarray) -> torch.Tensor:
    """The weight of every edge of a batch. Joined layers hold weights only in `edge_norm`, multiplied by the norms, so
    their weights are looked up in the graph."""
    graph, block = batch.graph, batch.blocks[0]
    if block.edge_weight is not None:
        return block.edge_weight
    pattern = block.indptr.numpy(), block.indices.numpy()
    return as_tensor(
        take_weights(
            graph.indptr, graph.indices, weights, batch.nodes[: block.num_rows], batch.nodes, *pattern
        )
    )
