"""Per-node results as .npy, .parquet or .csv files, written in one rename."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.commands.node_tables import write_table
from shoal.errors import ShoalError, explain_full_disk
from shoal.files import create_array, replace_file
from shoal.graph import Graph
from shoal.lock import writing
from shoal.names import Called

if TYPE_CHECKING:
    from shoal.distributed.transport import Transport
    from shoal.partitioning.part import Part
    from shoal.runs.run import Run
    from shoal.runs.trained import TrainedRun

SUFFIXES = (".npy", ".parquet", ".csv")
_METHODS = {"embedding": "embed", "label": "predict", "probability": "predict_proba"}  # of a trainer


def check_output(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse a result file that could not be written, before any work starts."""
    if path.suffix not in suffixes:
        raise ShoalError(f"{path}: expected a name that ends in {' or '.join(suffixes)}")
    if path.is_dir():
        raise ShoalError(f"{path} is a folder: expected the name of a file")
    if path.parent.exists() and not path.parent.is_dir():
        raise ShoalError(f"{path.parent} is a file: {path} cannot be made inside it")
    if not path.parent.is_dir():
        raise ShoalError(f"{path.parent} does not exist: make the folder first")


def write_nodes(path: Path, column: str, values: np.ndarray, graph: Graph | Called) -> None:
    """Write one row per node: the array itself as .npy, or a table as .parquet or .csv.

    The table has the node's number, its id if the graph has ids, and the values:

    - labels: `label` is the class name, or the class number if there are no names; `class` is the class number. In
      a multi-label graph `label` is a list and `class` a 0/1 list.
    - regression: `label` is the predicted number, or a list of several.
    - probabilities: `label` is the most probable class (multi-label: all above one half), and every class has a
      column `probability_CLASS`.
    """
    called = graph
    if not isinstance(called, Called):
        called = Called(called.node_ids, called.class_names, called.num_classes, called.multi_label)
    with explain_full_disk(path), replace_file(path) as scratch, open(scratch, "wb") as file:
        if path.suffix == ".npy":
            np.save(file, values, allow_pickle=False)
        else:
            write_table(file, path.suffix, column, values, called)


@contextmanager
def map_rows(path: Path, shape: tuple[int, ...], dtype: type) -> Iterator[np.ndarray]:
    """Yield a memory-mapped array that becomes the .npy file `path` when the block ends without an error.

    Disk space is allocated first: a disk that fills up under a memory map kills the process.
    """
    with explain_full_disk(path), writing(path), replace_file(path) as scratch:
        rows = create_array(scratch, shape, dtype)
        yield rows
        rows.flush()


def write_part_rows(path: Path, values: np.ndarray, part: Part, transport: Transport) -> None:
    """Write one .npy file on all ranks: rank 0 creates it, every rank fills the rows of its own nodes.

    No rank holds all rows. All ranks must see the folder.
    """
    if transport.rank == 0:
        with explain_full_disk(path), writing(path), replace_file(path) as scratch:
            _fill_together(scratch, values, part, transport)
    else:
        _fill_together(path, values, part, transport)


def _fill_together(path: Path, values: np.ndarray, part: Part, transport: Transport) -> None:
    """Fill the array that rank 0 creates at `path`; returns when all ranks have written."""
    transport.phase = f"the writing of {path.name}"
    if transport.rank == 0:
        create_array(path, (part.num_global_nodes, *values.shape[1:]), values.dtype)
    path = Path(transport.gather_texts(str(path.resolve()))[0])
    if not path.is_file():
        raise ShoalError(
            f"rank {transport.rank} does not see {path}: name a file in a folder that all hosts share"
        )
    rows = np.lib.format.open_memmap(path, mode="r+")
    rows[part.n_id] = values
    rows.flush()
    transport.barrier()


def write_new_rows(
    folder: Path, out: Path, column: str, data: str, options: dict[str, Any], *, as_json: bool = False
) -> None:
    """Compute the vector or label of every node of another graph, and write it with that graph's ids."""
    from shoal.commands.screen import follow_steps, open_console
    from shoal.datasets.places import is_data_stored
    from shoal.runs.trained import find_graph, load_run

    run = load_run(folder)
    found = find_graph(data, run.graph, **options)
    assert found is not None
    if not is_data_stored(data):  # the import said those of a stored graph
        open_console(stderr=True).notice(*found.notices)
    if not run.config.training.edge_weights and found.edge_weight is not None:
        found = found.without_weights()
    graph = found.with_classes_of(run.graph, labels=False)
    with follow_steps(open_console(stderr=True), "computing") as show:
        shape = _compute_rows(run, graph, out, column, show)
    _report_written(out, column, shape, as_json=as_json)


def _report_written(out: Path, column: str, shape: tuple[int, ...], *, as_json: bool) -> None:
    from shoal.commands.screen import open_console, print_json

    if as_json:
        print_json({"file": out, "nodes": shape[0], "column": column, "shape": shape})
    else:
        open_console().say(f"{out}: {shape[0]:,} nodes, {column} {shape}")


def write_rows(folder: Path, out: Path, column: str, transport: Transport, *, as_json: bool = False) -> None:
    """Compute every node's vector or label with a run's best weights and write it.

    Ranks that hold parts each write their rows. Otherwise rank 0 works alone, and the other ranks do not wait for it.
    """
    from shoal.commands.screen import follow_steps, open_console
    from shoal.runs.run import Run
    from shoal.runs.trained import explain_untrained

    run = Run.open(folder, transport, to_train=False)
    trainer, graph = run.trainer, run.data.graph
    if trainer.epoch == 0:
        raise ShoalError(explain_untrained(run.folder))
    trainer.restore_best()
    screen = open_console(stderr=True)
    screen.quiet = transport.rank != 0
    screen.say(run.check_memory(to_train=False), style="dim")
    if not isinstance(graph, Graph):
        values = getattr(trainer, _METHODS[column])()
        _write_parts(run, out, column, values.numpy(), graph)
        shape: tuple[int, ...] = (run.data.identity["num_nodes"], *values.shape[1:])
    elif transport.rank == 0:
        with follow_steps(screen, "computing") as show:
            shape = _compute_rows(run, graph, out, column, show)
    if transport.rank == 0:
        _report_written(out, column, shape, as_json=as_json)


def _write_parts(run: Run, out: Path, column: str, values: np.ndarray, part: Part) -> None:
    """All ranks write one array; for .parquet and .csv rank 0 converts it to a table with ids and class names."""
    from shoal.datasets import load
    from shoal.partitioning.manifest import open_names

    config, transport = run.config, run.transport
    if out.suffix == ".npy":
        write_part_rows(out, values, part, transport)
        return
    if transport.rank != 0:
        _fill_together(out, values, part, transport)
        return
    with explain_full_disk(out), writing(out):
        rows = out.with_name(
            f".{out.name[:40]}.{secrets.token_hex(4)}.partial"
        )  # the next writer removes it after a crash
        try:
            _fill_together(rows, values, part, transport)
            if config.data == config.partition.folder:
                called = open_names(config.partition.folder)
            else:
                found = load(config.data, **config.data_options)
                called = Called(found.node_ids, found.class_names, found.num_classes)
            called = called._replace(multi_label=part.multi_label)
            write_nodes(out, column, np.load(rows, mmap_mode="r"), called)
        finally:
            rows.unlink(missing_ok=True)


def _compute_rows(
    run: Run | TrainedRun, graph: Graph, out: Path, column: str, show: Callable[[int, int], None]
) -> tuple[int, ...]:
    """Compute and write the rows of all nodes, of the run's graph or of another one; returns their shape.

    On the run's own graph, finished layers stay in files of its folder, from which a restarted process resumes.
    """
    import torch

    from shoal.memory import given_budget, return_blocks
    from shoal.runs.run import Run
    from shoal.training.inference import count_held, open_scratch

    if given_budget() is not None:  # freed chunks would fragment the heap
        return_blocks()
    trainer, other = run.trainer, None if isinstance(run, Run) else graph
    whole = trainer.find_share(other).whole
    compute = partial(getattr(trainer, _METHODS[column]), show, graph=other)
    width, trained = int(getattr(trainer.model, "embedding_width", 0)), trainer.graph
    called = Called(graph.node_ids, graph.class_names, graph.num_classes, trained.multi_label)
    if column == "label":
        assert trained.y is not None
        kind: type = np.float32 if trained.regression else np.uint8 if trained.multi_label else np.int64
        shape = (graph.num_nodes, *trained.y.shape[1:])
    else:
        kind = np.float32
        shape = (graph.num_nodes, width if column == "embedding" else trained.num_classes)
    if column == "embedding" and not width:
        values = compute().numpy()
        write_nodes(out, column, values, called)
        return values.shape
    if out.suffix == ".npy":
        with map_rows(out, shape, kind) as rows:
            compute(
                out=torch.from_numpy(rows), scratch=run.open_kept_scratch() if isinstance(run, Run) else None
            )
    else:
        with open_scratch(run.folder, promised=count_held(trainer.model, whole)) as room:
            table = room.make(
                graph.num_nodes, shape[-1] if len(shape) > 1 else 1, torch.from_numpy(np.empty(0, kind)).dtype
            )
            kept = run.open_kept_scratch(room.held) if isinstance(run, Run) else None
            compute(out=table.tensor.view(shape), scratch=kept)
            write_nodes(out, column, table.tensor.view(shape).numpy(), called)
    return shape
