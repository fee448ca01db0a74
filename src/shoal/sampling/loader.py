"""SubgraphLoader: a sampler's batches for models that take `(x, edge_index)`, with PyG's names for its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any

from shoal.batch import Batch
from shoal.checks import MAX_THREADS
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.joining import join_layers
from shoal.sampling.base import SAMPLERS, Sampler, make_sampler, sampler_settings
from shoal.sampling.full import FullSampler
from shoal.sampling.neighbor import check_fanouts
from shoal.sampling.prefetch import Prefetcher, gather_fields
from shoal.sampling.pyg_arguments import drop_pyg_arguments
from shoal.sampling.targets import TargetSampler
from shoal.settings import AtLeast, Null, Range, check_settings

_SIZES = (
    "batch_size",
    "budget",
    "roots",
    "num_edges",
    "clusters_per_batch",
)  # settings for the size of a batch


class SubgraphLoader:
    """Iterates over a sampler's batches as PyG users expect, for models that take `x` and `edge_index`.

    Each batch has `x` (dense), `edge_index`, `y`, `n_id`, `train_mask`, `node_norm` and `edge_norm`. The layers of a
    layered sampler are joined to one graph; y and train_mask have rows for its first `num_outputs` nodes. Every `for` loop
    is the next epoch; `len` is its number of batches.

    Args:
        data: a Graph or PyG `Data`. If `sampler` is a name, the sampler is made for it with `options`; a Sampler must have
            been made for it.
        sampler: a Sampler, or the name of one.
        batch_size: the size of a batch, whatever the sampler calls it: output nodes, nodes (`budget`), walks (`roots`),
            edges (`num_edges`) or clusters.
        input_nodes: the output nodes of the neighbour sampler, numbers or a mask; by default the training nodes.
        shuffle: whether the neighbour sampler's output nodes have a new order every epoch; other samplers always draw anew.
        num_threads: sampling threads; 0 draws in the loop itself. The batches are the same.
        num_workers: the same by PyG's name: threads that share the graph, not processes that copy it.
        drop_last: whether to leave out the last batch of an epoch if it has fewer output nodes than the others.
        first_epoch: the epoch of the first loop; a resumed run gives the epochs it has done.
        options: settings of the sampler, if it is given by name. Other arguments of PyG's loaders are accepted if they have no
            effect (`pin_memory=False`), and refused otherwise.
    """

    @check_settings
    def __init__(
        self,
        data: Any,
        sampler: Sampler | str = "frontier",
        *,
        batch_size: Annotated[
            int | None, AtLeast(1), Null("the sampler's default"), "size of a batch"
        ] = None,
        input_nodes: Any = None,
        shuffle: bool | None = None,
        num_threads: Annotated[
            int, Range(0, MAX_THREADS), "sampling threads; 0 draws in the loop itself"
        ] = 1,
        num_workers: Annotated[
            int | None, Range(0, MAX_THREADS), Null("num_threads"), "PyG's name of num_threads"
        ] = None,
        first_epoch: Annotated[int, AtLeast(0), "epoch of the first loop"] = 0,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        own = sampler_settings(sampler) if isinstance(sampler, str) and sampler in SAMPLERS else ()
        options = drop_pyg_arguments(options, own)
        if "num_neighbors" in options and "fanouts" in own:
            options["fanouts"] = check_fanouts(options.pop("num_neighbors"), "num_neighbors")
        graph = data if isinstance(data, Graph) else Graph.from_pyg(data)
        if batch_size is not None:
            options[_find_size(sampler)] = batch_size
            if sampler == "frontier":  # its default may exceed a small batch
                options.setdefault("frontier", min(batch_size, sampler_settings(sampler)["frontier"].default))
        if isinstance(sampler, str):
            sampler = make_sampler(sampler, graph, **options, **_check_outputs(sampler, input_nodes, shuffle))
        elif options or input_nodes is not None or shuffle is not None:
            named = {"input_nodes": input_nodes, "shuffle": shuffle}
            given = sorted([*options, *(name for name, value in named.items() if value is not None)])
            raise ShoalError(
                f"{given[0]} was given with a Sampler: give it to the constructor of the sampler"
            )
        home = sampler.graph if sampler.graph.parent is None else sampler.graph.parent
        if home.num_nodes != graph.num_nodes:
            raise ShoalError(
                f"the sampler's graph has {home.num_nodes:,} nodes but data has {graph.num_nodes:,}: make the sampler for this graph"
            )
        if isinstance(sampler, FullSampler):  # its one batch is made dense, so the loader needs its own
            sampler = FullSampler(graph, setting=sampler.setting, seed=sampler.seed)
        self.sampler = sampler
        self.num_threads = num_threads if num_workers is None else num_workers
        self.epoch, self.drop_last = first_epoch, drop_last

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sampler!r}, num_threads={self.num_threads}, epoch={self.epoch})"

    def __len__(self) -> int:
        count, sampler = self.sampler.num_batches, self.sampler
        if not self.drop_last or not isinstance(sampler, TargetSampler):
            return count
        return count - (len(sampler.draw_places(count - 1)) < int(sampler.batch_size))

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._iterate(epoch)

    def _iterate(self, epoch: int) -> Iterator[Batch]:
        start = epoch * self.sampler.num_batches
        stop = start + len(self)
        drawn = _JoinedSampler(self.sampler)
        if self.num_threads == 0:
            for k in range(start, stop):
                batch = drawn.sample(k)
                prepare_for_pyg(batch)
                yield batch
            return
        with Prefetcher(drawn, start, stop, num_threads=self.num_threads, prepare=prepare_for_pyg) as batches:
            yield from batches


class _JoinedSampler:
    """A sampler's batches, each as one graph."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def sample(self, k: int) -> Batch:
        return join_layers(self._sampler.sample(k))


def prepare_for_pyg(batch: Batch) -> None:
    """Make features dense and list edges as PyG does, in the calling thread."""
    gather_fields(batch)
    if batch.graph.num_features:
        batch.x = batch.dense_x
    _ = batch.edge_index, batch.n_id


def _find_size(sampler: Sampler | str) -> str:
    """The name of a sampler's setting for the size of its batches."""
    if isinstance(sampler, Sampler):
        return "batch_size"
    declared = sampler_settings(sampler)
    found = next((name for name in _SIZES if name in declared), None)
    if found is None:
        raise ShoalError(f"sampler {sampler!r} takes the whole graph: leave out batch_size")
    return found


def _check_outputs(sampler: str, input_nodes: Any, shuffle: bool | None) -> dict[str, Any]:
    """`input_nodes` and `shuffle` as arguments of the sampler; raises ShoalError if it does not take them."""
    given = {"outputs": input_nodes, "shuffle": shuffle}
    given = {name: value for name, value in given.items() if value is not None}
    takes = inspect.signature(SAMPLERS[sampler]).parameters
    if given.get("shuffle") and "shuffle" not in takes:
        del given["shuffle"]  # other samplers always do
    for name in given:
        if name not in takes:
            asked = "input_nodes" if name == "outputs" else "shuffle=False"
            raise ShoalError(
                f"sampler {sampler!r} draws from all nodes in an order of its own: leave out {asked}, or take sampler neighbor"
            )
    return given
