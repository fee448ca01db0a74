"""PartitionedRun: a run whose graph is shared among ranks. Rank 0 writes the folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shoal.runs.config import RunConfig, read_config
from shoal.datasets import load
from shoal.datasets.places import check_place
from shoal.distributed.runtime import agree, share_cores
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.files import replace_file
from shoal.graph import Graph
from shoal.partitioning.part import Part, make_part
from shoal.sampling.base import Sampler
from shoal.sampling.registry import make_sampler
from shoal.training.partitioned import PartitionedTrainer
from shoal.runs.run import (
    CHECKPOINTS,
    CONFIG,
    GRAPH,
    Run,
    _check_data,
    _make_absolute,
    fill_defaults,
    identify,
    is_data_stored,
    make_model,
    trainer_settings,
    with_split,
)
from shoal.training.trainer import Record
from shoal.wording import count

ASSIGNMENT = "assignment.npy"
RANKS = "ranks.json"


class PartitionedRun(Run):
    """A run of all ranks together; each holds one part.

    The parts are those of `partition.folder`, of which each rank reads its own, or are cut from the data: rank
    0 decides which node goes where and keeps that in the run's folder, so that a resumed run has the same parts.
    """

    trainer: PartitionedTrainer

    def __init__(self, folder: Path, config: RunConfig, transport: Transport) -> None:
        config.validate()
        self.folder = folder
        self.config = config
        self.transport = transport
        self.writes = transport.rank == 0
        self.notices: tuple[str, ...] = ()
        self._made_folder = False
        self._identity: dict[str, Any] = {}
        self._assignment: np.ndarray | None = None
        self._whole: Graph | None = None
        self.ranks: list[dict[str, int]] = []
        self.threads = share_cores(transport, config.training.threads)
        part = self._open_part() if config.partition.folder else self._cut_part()
        config.partition.parts = transport.size
        agree(transport, "a graph with checksum", int(part.checksum[:12], 16))
        if self.writes and (folder / GRAPH).is_file():
            self._check_graph()
        self.part = part
        self.trainer = PartitionedTrainer(
            make_model(config, part.num_features, part.num_classes),
            part,
            transport,
            self._make_sampler(),
            exchange=config.partition.exchange,
            message_dtype=torch.bfloat16 if config.partition.messages == "bfloat16" else None,
            boundary_rate=config.partition.boundary_rate,
            last_boundary_rate=config.partition.last_boundary_rate,
            boundary_sampling=config.partition.boundary_sampling,
            seed=config.training.seed,
            checkpoints=folder / CHECKPOINTS,
            **trainer_settings(config),
        )
        self.graph = self.trainer.graph  # the local rows

    @classmethod
    def start(cls, folder: Path, config: RunConfig, transport: Transport) -> PartitionedRun:
        """Start a new run; the folder's name is rank 0's."""
        transport.phase = "the choice of the run's folder"
        folder = Path(transport.gather_texts(str(folder))[0])
        if transport.rank == 0:
            if folder.exists():
                raise ShoalError(
                    f"{folder} exists already: choose another --out, or continue it with --resume"
                )
            check_place(folder)
        config.data = _make_absolute(config.data)
        run = cls(folder, config, transport)
        fill_defaults(config)
        if run.writes:
            run.make_folder()
            if run._assignment is not None:
                with replace_file(folder / ASSIGNMENT) as scratch, open(scratch, "wb") as file:
                    np.save(file, run._assignment, allow_pickle=False)
        transport.phase = "the making of the run's folder"
        transport.barrier()
        return run

    @classmethod
    def go_on(cls, folder: Path, transport: Transport, *, epochs: int | None = None) -> PartitionedRun:
        """Open a run that was started before, with its last checkpoint loaded on every rank."""
        config = read_config(folder / CONFIG)
        if config.partition.parts not in (None, transport.size):
            raise ShoalError(
                f"{folder} was started on {config.partition.parts} ranks, here are {transport.size}: start as many"
            )
        if epochs is not None:
            config.training.epochs = epochs
        if config.partition.folder is None:
            _check_data(folder, config.data)
        run = cls(folder, config, transport)
        if run.has_checkpoint:
            run.trainer.resume(folder / CHECKPOINTS)
        agree(transport, "a checkpoint of epoch", run.trainer.epoch)
        return run

    def identify(self) -> dict[str, Any]:
        return self._identity

    def _train(self, on_epoch: Callable[[Record], None] | None) -> dict[str, float]:
        final = super()._train(on_epoch)
        if self.trainer.has_trained:
            self.ranks = self.trainer.describe_ranks()
            self._replace(RANKS, json.dumps(self.ranks, indent=1) + "\n")
        return final

    def summarize_memory(self) -> str | None:
        """The ranks' memory in a line. None if nothing was left to train."""
        if not self.ranks:
            return None
        growth = [rank["growth"] for rank in self.ranks]
        peak = max(rank["peak"] for rank in self.ranks)
        added = f"{min(growth) / 1e6:,.0f} to {max(growth) / 1e6:,.0f} MB"
        return f"memory: the largest rank held {peak / 1e6:,.0f} MB; its first epoch added {added} to a rank, compiled code included (ranks.json)"

    def describe(self) -> str:
        part, plan = self.part, self.trainer.plan
        rows = self._identity.get("rows_sent")
        sent = "" if rows is None else f", {rows:,} rows sent in an exchange"
        return (
            f"{part.name}: {part.num_global_nodes:,} nodes in {count(part.num_parts, 'part')}{sent}, {part.num_features:,} features, "
            f"{part.num_classes} classes; {plan.transport.name}, {count(self.threads, 'thread')} a rank{self._describe_steps()}"
        )

    def _describe_steps(self) -> str:
        """What every step works on, where that is not the whole graph."""
        partition = self.config.partition
        if partition.sampled:
            return f"; batches of sampler {self.config.sampler.name}, shared by all ranks"
        if partition.keeps_boundary:
            return ""
        last = partition.last_boundary_rate
        rates = f"{partition.boundary_rate}" if last is None else f"{partition.boundary_rate} to {last}"
        return f"; boundary rate {rates} ({partition.boundary_sampling})"

    def _make_sampler(self) -> Sampler | None:
        """What draws the batches of all ranks, from the whole graph; None where every step takes all of it."""
        config = self.config
        if not config.partition.sampled:
            return None
        if self._whole is None:
            if config.partition.folder and Path(config.data).resolve() == Path(config.partition.folder):
                raise ShoalError(
                    "stored parts do not hold the whole graph that batches are drawn from: name the data too, "
                    "shoal train DATA --parts DIR --sampler NAME"
                )
            self._whole = with_split(load(config.data, **config.data_options))
        options = {"setting": config.training.setting, "seed": config.training.seed}
        return make_sampler(config.sampler.name, self._whole, **options, **config.sampler.options)

    def _open_part(self) -> Part:
        from shoal.partitioning.stored import open_part, read_manifest

        assert self.config.partition.folder is not None
        folder = Path(self.config.partition.folder)
        stored = int(read_manifest(folder)["num_parts"])
        if stored != self.transport.size:
            raise ShoalError(
                f"{folder} holds {stored} parts and there are {self.transport.size} ranks: start {stored} ranks, or partition again"
            )
        part = open_part(folder, self.transport.rank)
        self._identity = self._describe_part(part, "")
        return part

    def _cut_part(self) -> Part:
        """This rank's part of the graph, which every rank can read and none keeps."""
        loaded = load(self.config.data, **self.config.data_options)
        graph = with_split(loaded)
        self.notices = graph.notices[len(loaded.notices) if is_data_stored(self.config.data) else 0 :]
        self._whole = graph if self.config.partition.sampled else None
        size, rank = self.transport.size, self.transport.rank
        assignment = torch.zeros(graph.num_nodes, dtype=torch.int32)
        if rank == 0:
            assignment.copy_(torch.from_numpy(self._assign(graph)))
        self.transport.phase = "the partitioning of the graph by rank 0"
        self.transport.broadcast(assignment, 0)
        self._assignment = assignment.numpy()
        part = make_part(graph, self._assignment, size, rank)
        self._identity = self._describe_part(part, identify(graph)["content"] if rank == 0 else "")
        return part

    def _assign(self, graph: Graph) -> np.ndarray:
        kept = self.folder / ASSIGNMENT
        if kept.is_file():
            assignment = np.load(kept, allow_pickle=False)
            if len(assignment) != graph.num_nodes:
                raise ShoalError(
                    f"{self.folder} was trained on another graph than {self.config.data} is now: it has {graph.num_nodes:,} nodes where the run began with {len(assignment):,}; put the graph back, or start a new run"
                )
            return np.asarray(assignment)
        if self.transport.size == 1:
            return np.zeros(graph.num_nodes, np.int32)
        from shoal.partitioning.partition import partition_graph

        return partition_graph(
            graph, self.transport.size, self.config.partition.method, seed=self.config.training.seed
        ).assignment

    def _describe_part(self, part: Part, content: str) -> dict[str, Any]:
        rows = int(self.transport.gather(np.array([part.num_halo])).sum())
        return {
            "name": part.name,
            "checksum": part.checksum,
            "content": content,
            "num_nodes": part.num_global_nodes,
            "num_features": part.num_features,
            "num_classes": part.num_classes,
            "rows_sent": rows,
        }

    @contextmanager
    def _remove_unless_trained(self) -> Iterator[None]:
        if not self.writes:
            yield
            return
        with super()._remove_unless_trained():
            yield
