"""What a run trains on: its graph, or a rank's part of it, and what tells that from another under the same path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shoal.aggregation import AGGREGATIONS
from shoal.datasets import load
from shoal.datasets.places import absolute_data, is_data_stored
from shoal.distributed.runtime import agree
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.models.conv import CONVS
from shoal.partitioning.estimate import choose_method
from shoal.partitioning.part import Part, make_part
from shoal.partitioning.partition import AUTO, Partition, partition_graph
from shoal.partitioning.stored import open_part, read_manifest
from shoal.partitioning.work import PARTITION_METHODS
from shoal.runs.config import RunConfig
from shoal.settings import list_settings
from shoal.training.share import check_trainable

ASSIGNMENT = "assignment.npy"


@dataclass
class RunData:
    """What this rank trains on.

    Attributes:
        graph: the graph, or this rank's part of it.
        whole: the graph that batches are drawn from where ranks share them, else None.
        identity: what tells the graph from another one.
        notices: what the run did to the graph; what its import said long ago is not repeated.
        assignment: the part of every node, where the run has cut the graph itself.
        source: the graph that a part was cut from, until it is known to be the one the run began with.
    """

    graph: Graph | Part
    identity: dict[str, Any]
    whole: Graph | None = None
    notices: tuple[str, ...] = ()
    assignment: np.ndarray | None = None
    source: Graph | None = None


def open_data(config: RunConfig, folder: Path, transport: Transport) -> RunData:
    """The data of a run in `folder`. Of ranks that hold parts each has its own; others all have the graph."""
    if config.method != "partitioned":
        graph, notices = load_graph(config)
        data = RunData(graph, identify(graph), notices=notices)
    elif config.partition.folder:
        data = _open_part(config, transport)
    else:
        data = _cut_part(config, folder, transport)
    if transport.size > 1:
        agree(transport, "a graph with checksum", int(data.identity["checksum"][:12], 16))
    return data


def load_graph(config: RunConfig) -> tuple[Graph, tuple[str, ...]]:
    """The graph a run trains on, with a drawn split if it has none, and what that changed."""
    loaded = load(config.data, **config.data_options)
    check_trainable(loaded)
    graph = loaded if loaded.has_split else loaded.with_split(seed=0)
    return graph, graph.notices[len(loaded.notices) if is_data_stored(config.data) else 0 :]


def make_paths_absolute(config: RunConfig) -> None:
    """Name the data's files in full, so that the run can be opened from any folder."""
    config.data = absolute_data(config.data)
    if isinstance(nodes := config.data_options.get("nodes"), str):
        config.data_options["nodes"] = absolute_data(nodes)
    if config.partition.folder is not None:
        config.partition.folder = absolute_data(config.partition.folder)


def identify(graph: Graph) -> dict[str, Any]:
    """What tells a run's graph from another one under the same path."""
    sizes = {name: getattr(graph, name) for name in ("num_nodes", "num_features", "num_classes")}
    return {"name": graph.name, "checksum": graph.checksum, "content": graph.content_checksum, **sizes}


def _open_part(config: RunConfig, transport: Transport) -> RunData:
    """This rank's stored part."""
    folder = Path(config.partition.folder)
    stored = int(read_manifest(folder)["num_parts"])
    if stored != transport.size:
        raise ShoalError(
            f"{folder} holds {stored} parts and there are {transport.size} ranks: start {stored} ranks, or partition again"
        )
    whole = None
    if config.draws:
        if Path(config.data).resolve() == folder:
            raise ShoalError(
                "stored parts do not hold the whole graph that batches are drawn from: name the data too, "
                "shoal train DATA --parts DIR --sampler NAME"
            )
        whole, _ = load_graph(config)
    part = open_part(folder, transport.rank)
    return RunData(part, _identify_part(part, "", transport), whole)


def _cut_part(config: RunConfig, folder: Path, transport: Transport) -> RunData:
    """This rank's part of the graph, which every rank can read and none keeps.

    Rank 0 decides which node goes where; the run's folder keeps that, so that a resumed run has the same parts.
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


def _assign(config: RunConfig, graph: Graph, folder: Path, num_parts: int, notices: list[str]) -> np.ndarray:
    kept = folder / ASSIGNMENT
    if kept.is_file():
        assignment = np.load(kept, allow_pickle=False)
        if len(assignment) != graph.num_nodes:
            raise ShoalError(
                f"{folder} was trained on another graph than {config.data} is now: it has {graph.num_nodes:,} nodes where the run began with {len(assignment):,}; put the graph back, or start a new run"
            )
        return np.asarray(assignment)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    found = partition_for_run(config, graph, num_parts)
    notices += found.notices
    return found.assignment


def partition_for_run(config: RunConfig, graph: Graph, num_parts: int) -> Partition:
    """The parts that a run cuts when it starts, while other ranks wait: `auto` takes little effort.

    `auto` cuts for covers only where the exchange and the model's aggregations can use them.
    """
    method = config.partition.method
    settings: dict[str, Any] = {}
    if method == AUTO:
        name = config.model.name
        kinds = [CONVS[name].kind or "sum"] if name in CONVS else AGGREGATIONS
        method, _ = choose_method(graph, num_parts, covers=config.make_exchange().covers(kinds))
        if "effort" in list_settings(PARTITION_METHODS[method]):
            settings["effort"] = "fast"
    else:
        settings = config.partition.select(PARTITION_METHODS[method])
    return partition_graph(graph, num_parts, method, seed=config.training.seed, **settings)


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
