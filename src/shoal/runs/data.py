"""The data of a run: its graph, or a rank's part of it, and its identity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shoal.aggregation import AGGREGATIONS
from shoal.array_files import map_file
from shoal.datasets import load
from shoal.datasets.places import absolute_data, explain_missing, is_data_stored
from shoal.distributed.runtime import agree
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.files import replace_file
from shoal.graph import Graph
from shoal.models.conv import CONVS
from shoal.partitioning.estimate import choose_method
from shoal.partitioning.manifest import check_source, read_manifest
from shoal.partitioning.part import Part, check_assignment, make_part
from shoal.partitioning.partition import AUTO, Partition, partition_graph
from shoal.partitioning.stored import open_part
from shoal.partitioning.work import PARTITION_METHODS
from shoal.runs.choose import settle_method, settle_ranks
from shoal.runs.config import DEFAULT_SWAPPED, RunConfig
from shoal.runs.defaults import follow_graph
from shoal.settings import list_settings
from shoal.training.fitness import check_trainable
from shoal.wording import count

ASSIGNMENT = "assignment.npy"


@dataclass
class RunData:
    """The data that this rank trains on.

    Attributes:
        graph: the graph, or this rank's part of it.
        identity: name, checksums and sizes, which tell the graph from another one.
        whole: the graph that shared batches of ranks with parts are drawn from, else None.
        notices: what the run changed of the graph, without notices of an earlier import.
        assignment: the part of every node, if the run has partitioned the graph itself.
        source: the graph that a part was cut from; dropped after the check that it is the run's graph.
        swapped: the parts of method swapped, else None.
    """

    graph: Graph | Part
    identity: dict[str, Any]
    whole: Graph | None = None
    notices: tuple[str, ...] = ()
    assignment: np.ndarray | None = None
    source: Graph | None = None
    swapped: Partition | None = None

    def drop_assignment(self, folder: Path) -> None:
        """Remove a stored assignment that differs, before the configuration with the new number of ranks is written."""
        path = folder / ASSIGNMENT
        if self.assignment is not None and path.is_file():
            try:
                is_same = np.array_equal(map_file(path), self.assignment)
            except ValueError:  # damaged: it is written again
                is_same = False
            if not is_same:
                path.unlink()

    def keep_assignment(self, folder: Path) -> None:
        """Write the part of every node, unless the run's folder has it."""
        path = folder / ASSIGNMENT
        if self.assignment is not None and not path.is_file():
            with replace_file(path) as scratch, open(scratch, "wb") as file:
                np.save(file, self.assignment, allow_pickle=False)


def open_data(
    config: RunConfig, folder: Path | None, transport: Transport, *, to_train: bool = True
) -> RunData:
    """The data of a run in `folder`; None if no parts are stored there yet.

    With method partitioned each rank gets its part, otherwise the graph. If not `to_train`, swapped parts are not opened.
    """
    if config.method == "swapped" and to_train:
        data = _open_swapped(config, folder)
    elif config.method != "partitioned":
        method = settle_ranks(config, transport.size)  # before settings that follow from the method
        graph, notices = load_graph(config)
        notices += method or settle_method(config, graph)
        data = RunData(graph, identify(graph), notices=notices)
    elif config.partition.folder:
        data = _open_part(config, transport, to_train=to_train)
    else:
        data = _cut_part(config, folder, transport)
    if transport.size > 1:
        agree(transport, "a graph with checksum", int(data.identity["checksum"][:12], 16))
    return data


def load_graph(config: RunConfig, *, features: bool = True) -> tuple[Graph, tuple[str, ...]]:
    """(the graph a run trains on, with a drawn split if it has none; notices). `features`: raise if it has none.

    Settings that the configuration leaves to the graph are filled in.
    """
    loaded = load(config.data, **config.data_options)
    if not config.training.edge_weights and loaded.edge_weight is not None:
        loaded = loaded.without_weights()
    graph = prepare_graph(loaded, features=features)
    notices = graph.notices[len(loaded.notices) if is_data_stored(config.data) else 0 :]
    return graph, (*notices, *follow_graph(config, graph))


def prepare_graph(graph: Graph, *, features: bool = True) -> Graph:
    """A graph to train on, with a drawn split if it has none. `features`: raise if it has no features or labels."""
    if features:
        check_trainable(graph)
    return graph if graph.has_split else graph.with_split(seed=0)


def make_paths_absolute(config: RunConfig) -> None:
    """Make paths of data absolute, so that the run can be opened from any folder."""
    config.data = absolute_data(config.data)
    for option in ("nodes", "like"):
        if isinstance(path := config.data_options.get(option), str):
            config.data_options[option] = absolute_data(path)
    if config.partition.folder is not None:
        config.partition.folder = absolute_data(config.partition.folder)


def share_among(config: RunConfig, ranks: int, parts: str | None) -> None:
    """Change a configuration to resume on another number of ranks, or with other stored parts."""
    if parts is None and config.partition.folder is not None:
        raise ShoalError(
            f"the run's parts in {config.partition.folder} are for {config.num_ranks} ranks and there are {ranks}: start as many, or give --parts DIR"
        )
    if parts is not None and config.method == "swapped":
        raise ShoalError("a resumed run of method swapped keeps its parts: leave out --parts")
    if parts is not None and config.method != "partitioned":
        raise ShoalError(f"--parts belongs to method partitioned, not to {config.method}")
    config.ranks = ranks if ranks > 1 else None
    if config.method == "partitioned":
        config.partition.parts = ranks
        config.partition.folder = parts


def hold_whole_graph(config: RunConfig) -> None:
    """Change the configuration of a run with parts so that a single process with the whole graph can use it."""
    if config.method not in ("partitioned", "swapped"):
        return
    if config.data == config.partition.folder:
        raise ShoalError(
            f"the run was trained on the parts in {config.partition.folder}, and a single process needs the whole graph: name it (data=)"
        )
    config.method = "sampled" if config.draws else "full"
    config.ranks = None
    config.partition.clear()


def check_data(config: RunConfig, file: Path) -> None:
    """Raise if the data of a run are missing; `file` is its configuration."""
    if config.partition.folder and config.method != "swapped":
        return
    if (missing := explain_missing(config.data)) is not None:
        raise ShoalError(
            f"the data of run {file.parent} was not found: looked for {missing}; put it back, or change `data` in {file}"
        )


def identify(graph: Graph) -> dict[str, Any]:
    """Name, checksums and sizes, which tell a graph from another one under the same path."""
    sizes = {name: getattr(graph, name) for name in ("num_nodes", "num_features", "num_classes")}
    return {"name": graph.name, "checksum": graph.checksum, "content": graph.content_checksum, **sizes}


def _open_part(config: RunConfig, transport: Transport, *, to_train: bool) -> RunData:
    """This rank's stored part. If `to_train`, raise if the graph has changed since it was partitioned."""
    folder = Path(config.partition.folder)
    manifest = read_manifest(folder)
    if to_train:
        check_source(folder, manifest)
    stored, content = int(manifest["num_parts"]), manifest.get("content") or ""
    if stored != transport.size:
        raise ShoalError(
            f"{folder} holds {count(stored, 'part')} and there are {transport.size} ranks: start {stored} ranks, or partition again"
        )
    whole: Graph | None = None
    loaded: tuple[str, ...] = ()
    if config.draws:
        if Path(config.data).resolve() == folder:
            raise ShoalError(
                "stored parts do not hold the whole graph that batches are drawn from: name the data too, "
                "shoal train DATA --parts DIR --sampler NAME"
            )
        whole, loaded = load_graph(config)
    part = open_part(folder, transport.rank)
    if not config.training.edge_weights and part.local_weight is not None:
        raise ShoalError(
            f"the parts in {folder} have edge weights and training.edge_weights is false: leave that out, or partition a graph without weights"
        )
    if whole is not None and content and whole.content_checksum != content:
        raise ShoalError(
            f"{folder} holds the parts of another graph than {config.data}: features, labels, edge weights or split differ; partition it again"
        )
    chosen = follow_graph(config, part, lambda counts: transport.sum(torch.from_numpy(counts)).numpy())
    notices = (*loaded, *chosen, *_note_covers(config, str(manifest.get("method"))))
    return RunData(part, _identify_part(part, content, transport), whole, notices)


def _open_swapped(config: RunConfig, folder: Path | None) -> RunData:
    """The graph with its parts: stored ones, those of a resumed run, or new ones."""
    graph, loaded = load_graph(config)
    notices, kept = list(loaded), None
    if config.partition.folder:
        stored = Path(config.partition.folder)
        manifest = read_manifest(stored)
        if not graph.has_checksum(manifest["checksum"]):
            raise ShoalError(
                f"{stored} holds the parts of another graph than {config.data}, or of one with another split: partition it again"
            )
        num_parts = int(manifest["num_parts"])
        assignment = _map_assignment(stored / ASSIGNMENT, "partition again")
        if config.partition.parts not in (None, num_parts):
            raise ShoalError(
                f"{stored} holds {count(num_parts, 'part')} and partition.parts is {config.partition.parts}: leave that out, or partition again"
            )
    else:
        num_parts = config.partition.parts or DEFAULT_SWAPPED
        kept = assignment = _assign(config, graph, folder, num_parts, notices)
    parts = Partition(graph, assignment, num_parts)
    return RunData(graph, identify(graph), notices=tuple(notices), assignment=kept, swapped=parts)


def _cut_part(config: RunConfig, folder: Path | None, transport: Transport) -> RunData:
    """This rank's part of the graph, which every rank loads and drops again.

    Rank 0 partitions. The run's folder stores the assignment, so that a resumed run has the same parts.
    """
    graph, loaded = load_graph(config)
    notices = list(loaded)
    assignment = torch.zeros(graph.num_nodes, dtype=torch.int32)
    if transport.rank == 0:
        assignment.copy_(torch.from_numpy(_assign(config, graph, folder, transport.size, notices)))
    transport.phase = "the partitioning of the graph by rank 0 (`shoal partition DATA --parts P -o DIR` does it beforehand, for --parts DIR)"
    transport.broadcast(assignment, 0)
    part = make_part(graph, assignment.numpy(), transport.size, transport.rank)
    content = graph.content_checksum if transport.rank == 0 else ""
    return RunData(
        part,
        _identify_part(part, content, transport),
        graph if config.draws else None,
        tuple(notices),
        assignment.numpy(),
        graph,
    )


def _assign(
    config: RunConfig, graph: Graph, folder: Path | None, num_parts: int, notices: list[str]
) -> np.ndarray:
    kept = None if folder is None else folder / ASSIGNMENT
    if kept is not None and kept.is_file():
        assignment = _map_assignment(kept, "start a new run")
        if assignment.ndim != 1 or len(assignment) != graph.num_nodes:
            raise ShoalError(
                f"{folder} was trained on another graph than {config.data} is now: it has {graph.num_nodes:,} nodes and the run began with {assignment.size:,}; put the graph back, or start a new run"
            )
        return check_assignment(assignment, graph.num_nodes, num_parts)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    found = partition_for_run(config, graph, num_parts)
    notices += [*found.notices, *_note_covers(config, found.method)]
    return found.assignment


def _map_assignment(path: Path, remedy: str) -> np.ndarray:
    try:
        return map_file(path)
    except (ValueError, OSError):
        what = "damaged" if path.is_file() else "missing"
        raise ShoalError(f"{path} is {what}: expected the part of every node; {remedy}") from None


def partition_for_run(config: RunConfig, graph: Graph, num_parts: int) -> Partition:
    """The partition that a run makes when it starts. Other ranks wait, so `auto` takes little effort.

    `auto` partitions for covers only if the exchange and the model's aggregations can use them.
    """
    method = config.partition.method
    settings: dict[str, Any] = {}
    if method == AUTO:
        method, _ = choose_method(graph, num_parts, covers=_uses_covers(config))
        if "effort" in list_settings(PARTITION_METHODS[method]) or "effort" in config.partition.given:
            settings["effort"] = config.partition.effort
    else:
        settings = config.partition.select(PARTITION_METHODS[method])
    return partition_graph(graph, num_parts, method, seed=config.training.seed, **settings)


def _uses_covers(config: RunConfig) -> bool:
    """Whether a run's exchanges may send partial sums instead of rows."""
    name = config.model.name
    kinds = [CONVS[name].kind or "sum"] if name in CONVS else AGGREGATIONS
    return config.method != "swapped" and config.make_exchange().covers(kinds)


def _note_covers(config: RunConfig, method: str) -> tuple[str, ...]:
    """A notice if parts were made for partial sums and the run sends rows."""
    if method != "cover" or _uses_covers(config):
        return ()
    return (
        f"the parts were made by method cover for partial sums, and this run sends whole rows "
        f"(model {config.model.name}): method hypergraph makes parts that send fewer rows",
    )


def _identify_part(part: Part, content: str, transport: Transport) -> dict[str, Any]:
    rows = int(transport.gather(np.array([part.num_halo])).sum())
    return {
        "name": part.name,
        "checksum": part.checksum,
        "content": content,
        "num_nodes": part.num_global_nodes,
        "num_features": part.num_features,
        "num_classes": part.num_classes,
        "rows_sent": rows,
    }
