"""One writer at a time, and nothing left of those that were killed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

import shoal as package
from command_line import Run
from forked import holding
from shoal.files import replace_file
from shoal.lock import building, writing
from small_graphs import make_labelled


def hold(target: Path) -> AbstractContextManager[int]:
    """Another process that writes `target` while the block runs; its number."""

    def enter() -> AbstractContextManager[Path]:
        (opened := building(target)).__enter__()
        return opened

    return holding(enter)


def test_a_second_writer_is_refused_with_who_the_first_is_until_that_is_dead(tmp_path: Path) -> None:
    graph, target = make_labelled(60), tmp_path / "target"
    parts = package.partition_graph(graph, 2, "random")
    with hold(target) as pid:
        who = f"target is being written by process {pid} on {socket.gethostname()}: wait"
        with pytest.raises(package.ShoalError, match=who):
            package.save_graph(graph, target)
        with pytest.raises(package.ShoalError, match=who):
            package.store_parts(graph, parts, target)
        assert sorted(path.suffix for path in tmp_path.iterdir()) == [".lock", ".partial"]
    assert list(tmp_path.glob(".target.*.partial"))  # of the killed one
    package.save_graph(graph, target)
    assert os.listdir(tmp_path) == ["target"]


def test_commands_are_refused_while_another_process_writes(shoal: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    shoal("train", "digits", "--epochs", 1, "--out", "run", "--set", "model.hidden=8")
    for target, command in (
        ("new", ("data", "import", "edges.csv", "-o", "new")),
        ("parts", ("partition", "digits", "--parts", 2, "--method", "block", "-o", "parts")),
        ("run", ("train", "--resume", "run", "--epochs", 2)),
        ("y.npy", ("predict", "run", "-o", "y.npy")),
    ):
        with hold(tmp_path / target) as pid:
            assert f"{target} is being written by process {pid} on" in shoal(*command).refusal()
        done = shoal(*command)
        assert done.code == 0, done.stderr
    assert not list(tmp_path.glob(".*"))


def test_a_lock_is_taken_again_by_its_process_and_ends_with_the_outermost_block(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with writing(target), building(target) as folder:
        with writing(target):
            pass
        assert (tmp_path / ".target.lock").is_file()
        assert folder.is_dir()
    assert os.listdir(tmp_path) == []


def test_only_leftovers_of_the_same_name_are_removed(tmp_path: Path) -> None:
    others = (
        ".target.1.abcdefgh.partial",
        ".target.partial",
        ".targets.abcdefgh.partial",
        "target.x.partial",
    )
    for name in (*others, ".target.abcdefgh.partial"):
        (tmp_path / name).mkdir()
    with writing(tmp_path / "target"):
        assert {path.name for path in tmp_path.iterdir()} == {*others, ".target.lock"}


def test_names_that_begin_alike_keep_what_each_writes(tmp_path: Path) -> None:
    stem = "scores-of-a-run-with-a-very-long-name-indeed"
    first, second = tmp_path / f"{stem}-1.npy", tmp_path / f"{stem}-2.npy"
    with building(first) as folder, replace_file(first) as scratch:
        with writing(second):
            assert scratch.is_file()
            assert folder.is_dir()
        left = scratch.with_name(scratch.name[:-16] + "abcdefgh.partial")
        left.write_text("of a killed writer")
    with writing(first):
        assert not left.exists()
    assert os.listdir(tmp_path) == [first.name]


def test_a_name_as_long_as_names_can_be_is_locked(tmp_path: Path) -> None:
    with building(tmp_path / ("ä" * 127)) as folder:
        assert folder.is_dir()
    assert os.listdir(tmp_path) == []


def test_a_graph_that_was_moved_away_to_be_replaced_comes_back(tmp_path: Path) -> None:
    stored = package.save_graph(make_labelled(60), tmp_path / "graph")
    os.rename(stored, tmp_path / ".graph.abcdefgh.old")  # where a killed overwriter stopped
    with writing(stored):
        assert package.open_graph(stored).num_nodes == 60
    package.save_graph(make_labelled(61), stored, overwrite=True)
    assert np.array_equal(package.open_graph(stored).indptr, make_labelled(61).indptr)
    assert os.listdir(tmp_path) == ["graph"]
