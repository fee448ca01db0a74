"""Run: a run's folder, data and trainer, on one rank or on many. Rank 0 writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from shoal.digest import digest_array
from shoal.distributed.runtime import agree, share_cores
from shoal.distributed.transport import LocalTransport, Transport
from shoal.errors import ShoalError, explain_full_disk
from shoal.files import replace_file
from shoal.graph import Graph
from shoal.kernels.plan import explain_products
from shoal.lock import clear_folder, writing
from shoal.runs.build import make_trainer, note_settings
from shoal.runs.config import RunConfig
from shoal.runs.data import ASSIGNMENT, check_data, make_paths_absolute, open_data, share_among
from shoal.runs.folder import (
    CHECKPOINTS,
    CONFIG,
    GRAPH,
    JOB,
    MEASURED,
    METRICS,
    OUTCOMES,
    PLAN,
    RANKS,
    SCRATCH,
    check_new,
    describe_job,
    make_folder,
    read_metrics,
    read_run_config,
    remove_folder,
)
from shoal.runs.identity import check_same_graph
from shoal.runs.measured import measure_run
from shoal.runs.need import estimate_need
from shoal.scratch import Scratch
from shoal.training.epoch_state import Record
from shoal.training.inference import count_held, has_embeddings, open_scratch
from shoal.training.keeper import list_last
from shoal.training.part_share import PartShare
from shoal.training.records import History
from shoal.training.tensor_files import drop_all_shards
from shoal.wording import count


class Run:
    """A run folder with its data and trainer. Several ranks, connected by `transport`, open a run together."""

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        transport: Transport | None = None,
        *,
        cuts: bool = False,
        to_train: bool = True,
    ) -> None:
        config.validate()
        self.folder = folder
        self.config = config
        self.transport = transport if transport is not None else LocalTransport()
        self.writes = self.transport.rank == 0
        self._made_folder = False
        self.ranks: list[dict[str, int]] = []
        self._check_method()
        self.threads = share_cores(self.transport, config.training.threads)
        self.data = open_data(config, None if cuts else folder, self.transport, to_train=to_train)
        self.notices = self.data.notices
        if self.writes and (folder / GRAPH).is_file():
            check_same_graph(folder, config, self.data)
        self.data.source = None
        self.trainer = make_trainer(
            config,
            self.data.graph,
            folder / CHECKPOINTS,
            whole=self.data.whole,
            transport=self.transport,
            swapped=self.data.swapped,
        )
        self.trainer.share.scratch_folder, self.trainer.share.to_train = folder, to_train

    @classmethod
    def create(
        cls,
        folder: Path,
        config: RunConfig,
        transport: Transport | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> Run:
        """Start a new run. Everything is checked before the folder is made. All ranks use rank 0's folder.

        Rank 0 calls `before` after the checks, before the folder is made.
        """
        transport = transport if transport is not None else LocalTransport()
        transport.phase = "the choice of the run's folder"
        folder = Path(transport.gather_texts(str(folder))[0])
        if transport.rank == 0:
            check_new(folder)
        make_paths_absolute(config)
        job = describe_job(config)
        config.ranks = transport.size if transport.size > 1 else None
        if config.method == "partitioned":
            config.partition.parts = transport.size
        run = cls(folder, config, transport)
        run.notices += note_settings(config, run.trainer)
        if run.data.swapped is not None:
            config.partition.parts = run.data.swapped.num_parts
        run.check_memory()
        config.fill_depth()
        if run.writes:
            before()
            about = {
                CONFIG: config.to_yaml(),
                GRAPH: json.dumps(run.data.identity, indent=2) + "\n",
                JOB: job,
            }
            make_folder(folder, about | {ASSIGNMENT: run.data.assignment})
            run._made_folder = True
        transport.phase = "the creation of the run's folder"
        transport.barrier()
        return run

    @classmethod
    def open(
        cls,
        folder: Path,
        transport: Transport | None = None,
        *,
        epochs: int | None = None,
        parts: str | None = None,
        to_train: bool = True,
        **changes: Any,
    ) -> Run:
        """Open an existing run and load its last checkpoint on every rank.

        `changes` are other training settings, such as patience. With another number of ranks the graph is partitioned
        again, or stored `parts` are used. If not `to_train`, one rank can open a run whose ranks had the whole graph.
        """
        config = read_run_config(folder)
        transport = transport if transport is not None else LocalTransport()
        if not to_train and config.method == "partitioned" and (config.num_ranks or 1) != transport.size:
            raise ShoalError(
                f"{folder} was started on {count(config.num_ranks or 1, 'rank')} and there are {transport.size}: start as many"
            )
        cuts = to_train and (parts is not None or (config.num_ranks or 1) != transport.size)
        if cuts:
            share_among(config, transport.size, parts)
        config.training.update(changes | ({} if epochs is None else {"epochs": epochs}), "--set")
        check_data(config, folder / CONFIG)
        run = cls(folder, config, transport, cuts=cuts, to_train=to_train)
        agree(transport, "this many checkpoints:", len(list_last(folder / CHECKPOINTS)))
        if run.has_checkpoint:
            run.resume()
        agree(transport, "a checkpoint of step", run.trainer.step)
        return run

    def resume(self) -> None:
        """Load the last checkpoint, and the history up to it."""
        self.trainer.resume(self.folder / CHECKPOINTS)
        self.notices += tuple(self.trainer.notices)
        self.trainer.history = History(self._read_records(self.trainer.epoch))

    @property
    def has_checkpoint(self) -> bool:
        """Whether the run has a checkpoint to resume from."""
        return bool(list_last(self.folder / CHECKPOINTS))

    def check_memory(self, *, to_train: bool = True) -> str:
        """The estimated memory of the run, in a line. Raises if the budget is too small."""
        return estimate_need(self.trainer, self.folder, to_train=to_train).check(self.transport)

    def open_kept_scratch(self, promised: int = 0) -> Scratch | None:
        """A scratch in the run's folder whose finished layers survive a killed process, for the same weights and graph.

        None for models without layer-wise inference. `promised` bytes of the budget are reserved.
        """
        model = self.trainer.model
        if not has_embeddings(model):
            return None
        weights = {name: digest_array(value.numpy()) for name, value in model.state_dict().items()}
        stamp = {"weights": weights} | {name: self.data.identity[name] for name in ("checksum", "content")}
        promised += count_held(model, self.trainer.share.whole)
        return open_scratch(self.folder / SCRATCH, stamp, promised=promised)

    def explain_interval(self) -> str | None:
        """The evaluation interval in words, if `training.eval_share` makes it longer than one epoch."""
        trainer = self.trainer
        if trainer.eval_every is not None or not trainer.has_nodes("val") or trainer.eval_interval == 1:
            return None
        most = f"at most {trainer.eval_share:.0%} of the multiply-adds (training.eval_share)"
        return f"evaluation: after every {trainer.eval_interval:,} epochs and the last, {most}"

    def train(self, on_epoch: Callable[[Record], None] | None = None) -> dict[str, float]:
        """Train to the end and write metrics after every epoch; returns and writes the test scores.

        A new run that ends before its first checkpoint leaves no folder. After a signal the step is finished, a checkpoint
        is written, and `Stopped` is raised.
        """
        lock = writing(self.folder) if self.writes else nullcontext()
        with explain_full_disk(self.folder, self._say_kept), lock, self.remove_unless_trained():
            return self._train(on_epoch)

    def _train(self, on_epoch: Callable[[Record], None] | None) -> dict[str, float]:
        if self.writes:
            clear_folder(self.folder)
            clear_folder(self.folder / CHECKPOINTS)
            drop_all_shards(self.folder / CHECKPOINTS)
            self.data.drop_assignment(self.folder)
        self._replace(CONFIG, self.config.to_yaml())  # epochs may have changed
        if self.writes:
            self.data.keep_assignment(self.folder)
        self._drop_metrics(self.trainer.epoch)

        def write(record: Record) -> None:
            self._append(record)
            if on_epoch is not None:
                on_epoch(record)

        self.trainer.profile.is_on = True
        with self.trainer.asked.listening():
            self.trainer.fit(self.config.training.epochs, write, progress=False)
        self._replace(PLAN, "\n".join(self.explain()) + "\n")
        final: Record = {"best_epoch": self.trainer.best_epoch}
        splits = [split for split in ("val", "test") if self.trainer.has_nodes(split)]
        if splits:  # test nodes, or validation nodes if there are none
            scores, outcomes = self.trainer.examine(splits[-1])
            names = self.trainer.graph.class_names
            described = {
                "split": splits[-1],
                "class_names": None if names is None else [str(name) for name in names],
                **outcomes,
            }
            self._replace(OUTCOMES, json.dumps(described) + "\n")
            if self.trainer.eval_sample is not None and "val" in splits:  # score all validation nodes
                exact = scores if splits[-1] == "val" else self.trainer.evaluate("val")
                final |= {f"val_{name}": value for name, value in exact.items()}
            if splits[-1] == "test":
                final |= {f"test_{name}": value for name, value in scores.items()}
        self.ranks = self.trainer.share.describe_ranks()
        if self.ranks:
            self._replace(RANKS, json.dumps(self.ranks, indent=1) + "\n")
        self._replace(MEASURED, json.dumps(measure_run(self), indent=1) + "\n")
        self._append(final)
        for callback in self.trainer.callbacks:
            callback.on_scores(self.trainer, final)
        return final

    def describe(self) -> str:
        """The graph, and how it is distributed, in a line."""
        graph, known = self.data.graph, self.data.identity
        parts = [f"{known['num_nodes']:,} nodes"]
        if isinstance(graph, Graph):
            parts.append(f"{graph.num_edges:,} edges")
        else:
            parts[0] += f" in {count(graph.num_parts, 'part')}"
            share = self.trainer.share
            assert isinstance(share, PartShare)
            parts.append(f"{share.describe_exchange(known['rows_sent'])} sent in an exchange")
        parts.append(f"{graph.num_features:,} features")
        line = f"{graph.name}: {', '.join(parts)}, {self.trainer.graph.describe_outputs()}"
        if isinstance(graph, Graph) and self.transport.size == 1:
            if self.data.swapped is None:
                return line
            return f"{line}; {count(self.data.swapped.num_parts, 'part')}, one after the other"
        how = f"{self.transport.name}, {count(self.threads, 'thread')} per rank"
        if isinstance(graph, Graph):
            return f"{line}; {self.transport.size} ranks by {how}, each with its own batches"
        if self.config.draws:
            return f"{line}; {how}; batches of sampler {self.config.sampler.name}, shared by all ranks"
        said = self.config.make_exchange().describe()
        return f"{line}; {how}{f'; {said}' if said else ''}"

    def summarize_memory(self) -> str | None:
        """The ranks' memory in a line; None without parts, or if nothing was trained."""
        if not self.ranks:
            return None
        growth, peak = [rank["growth"] for rank in self.ranks], max(rank["peak"] for rank in self.ranks)
        added = f"{min(growth) / 1e6:,.0f} to {max(growth) / 1e6:,.0f} MB"
        return f"memory: the largest rank held {peak / 1e6:,.0f} MB; the first epoch added {added} per rank, compiled code included ({RANKS})"

    def explain_end(self) -> str | None:
        """Why nothing is left to train, and what to change; None if training can continue."""
        trainer, asked = self.trainer, self.config.training.epochs
        if trainer.epoch >= asked:
            return f"all {trainer.epoch:,} epochs are trained: give a larger --epochs to continue"
        if trainer.is_out_of_patience():
            said = f"continue with --set training.patience=N, larger than {trainer.patience}"
            return f"stopped by patience in epoch {trainer.epoch:,}, nothing left to train: {said}"
        return None

    def explain(self) -> list[str]:
        """The scheduler's decisions: the order of products in each layer, and the kernel variant of each product."""
        return [*self.trainer.share.explain(self.trainer.model), *explain_products()]

    def _check_method(self) -> None:
        """Raise if the method does not fit the number of ranks."""
        if self.config.method in ("full", "swapped") and self.transport.size > 1:
            raise ShoalError(
                f"method {self.config.method} trains in one process and there are {self.transport.size} ranks: use method partitioned, or start it alone"
            )
        if self.config.make_exchange().thins and self.transport.size == 1:
            raise ShoalError(
                "a boundary rate is for several ranks and there is one: add --workers N, or start ranks (docs/cluster.md)"
            )

    @contextmanager
    def remove_unless_trained(self) -> Iterator[None]:
        """Remove the folder of a new run if the block ends by an error before the first checkpoint."""
        try:
            yield
        except BaseException:
            if self._made_folder and not self.has_checkpoint:
                remove_folder(self.folder)
            raise

    def _say_kept(self) -> str:
        if not self.has_checkpoint:
            return "nothing was left there"
        return f"the last checkpoint is kept, `shoal train --resume {self.folder}` continues"

    def _append(self, record: Record) -> None:
        if self.writes:
            with open(self.folder / METRICS, "a") as file:
                file.write(json.dumps(record, default=float) + "\n")

    def _drop_metrics(self, epoch: int) -> None:
        """Drop records past the checkpoint that training resumes from."""
        if self.writes and (self.folder / METRICS).is_file():
            self._replace(METRICS, "".join(json.dumps(line) + "\n" for line in self._read_records(epoch)))

    def _read_records(self, epoch: int) -> list[Record]:
        """The records of all epochs up to one."""
        path = self.folder / METRICS
        records = read_metrics(path) if path.is_file() else []
        return [line for line in records if line.get("epoch", epoch + 1) <= epoch]

    def _replace(self, name: str, text: str) -> None:
        if self.writes:
            with replace_file(self.folder / name) as scratch:
                scratch.write_text(text)
