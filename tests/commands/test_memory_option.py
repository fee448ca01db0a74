"""`--memory`: what is kept, what is refused, and work that goes on after a kill."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import shoal as package
from command_line import run_shoal
from shoal.memory import base_memory, given_budget, memory_budget, parse_bytes, set_memory_budget
from shoal.runs.run import Run
from shoal.training import inference
from shoal.training.inference import free_for_matrices
from shoal.wording import format_bytes


@pytest.fixture(autouse=True)
def no_budget():
    yield
    set_memory_budget(None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run whose layers take long enough to be killed between two of them."""
    folder = tmp_path_factory.mktemp("memory")
    rng = np.random.default_rng(0)
    n = 40_000
    graph = package.Graph.from_edge_index(
        rng.integers(0, n, (2, 10 * n)),
        n,
        directed=False,
        x=rng.standard_normal((n, 16)).astype(np.float32),
        y=rng.integers(0, 5, n),
    )
    package.save_graph(graph, folder / "graph")
    options = ["model.hidden=128", "model.num_layers=4", "sampler.budget=4000"]
    sets = [part for option in options for part in ("--set", option)]
    run_shoal(
        "train",
        str(folder / "graph"),
        "--sampler",
        "node",
        "--epochs",
        "1",
        "--out",
        str(folder / "run"),
        *sets,
    )
    return folder / "run"


def start(*args):
    return subprocess.Popen(
        [sys.executable, "-m", "shoal", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_prediction_goes_on_and_writes_the_same_bytes(trained, tmp_path):
    straight, resumed = tmp_path / "straight.npy", tmp_path / "resumed.npy"
    run_shoal("predict", str(trained), "-o", str(straight))
    process = start("predict", trained, "-o", resumed, "--memory", "10MB")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 2
    least = re.search(r"this needs about (\d+\.\d MB) of memory .*: give more memory$", said.strip())
    assert least is not None, said
    budget = str(parse_bytes(least[1]) + 6 * 10**6)  # matrices of all nodes have 20 MB
    assert not (trained / "scratch").exists()

    process = start("predict", trained, "-o", resumed, "--memory", budget)
    done = trained / "scratch" / "layer-2.done"
    until = time.monotonic() + 200
    while not done.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert done.exists()
    assert not resumed.exists()
    kept = (trained / "scratch" / "layer-2.rows").stat().st_mtime_ns

    process = start("predict", trained, "-o", resumed, "--memory", budget)
    layer = trained / "scratch" / "layer-3.rows"
    while not layer.exists() and process.poll() is None:
        time.sleep(0.002)
    assert (trained / "scratch" / "layer-2.rows").stat().st_mtime_ns == kept  # it was not written again
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    assert f"in files of {trained}" in said
    assert resumed.read_bytes() == straight.read_bytes()
    assert not (trained / "scratch").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_in_memory_and_in_files_are_the_same_bytes(trained, tmp_path):
    run_shoal("predict", str(trained), "-o", str(tmp_path / "a.npy"))
    run = Run.open(trained, to_train=False)
    run.trainer.restore_best()
    set_memory_budget(1)
    assert free_for_matrices() == 0
    assert np.array_equal(np.load(tmp_path / "a.npy"), run.trainer.predict().numpy())
    run_shoal("predict", str(trained), "-o", str(tmp_path / "a.parquet"))


def test_a_table_and_the_layers_share_one_limit(trained, tmp_path, monkeypatch):
    run = Run.open(trained, to_train=False)
    chunks = inference.count_held(run.trainer.model, run.trainer.share.whole)
    monkeypatch.setattr(inference, "free_for_matrices", lambda promised=0: 10**6 + 2 * chunks - promised)
    with inference.open_scratch(trained) as room:
        room.make(1000, 100)
        scratch = run.open_kept_scratch(room.held)
    assert (room.limit, scratch.limit) == (10**6 + 2 * chunks, 600_000 + chunks)
    limits = []
    real = inference.KeptScratch.__init__

    def note(self, limit, *args, **settings):
        limits.append(limit)
        real(self, limit, *args, **settings)

    monkeypatch.setattr(inference.KeptScratch, "__init__", note)
    run_shoal("predict", str(trained), "-o", str(tmp_path / "a.parquet"))
    assert limits == [10**6 + chunks - 40_000 * 8]


def test_a_budget_that_is_too_small_is_refused_before_a_folder_is_made(shoal, tmp_path):
    refusal = shoal("train", "digits", "--memory", "50MB", "--out", tmp_path / "run").refusal()
    assert "for Python, torch, kernels and loaded data" in refusal
    assert "--memory allows 50.0 MB: give more memory" in refusal  # smaller batches would not help
    assert not (tmp_path / "run").exists()
    refusal = shoal("train", "digits", "--memory", "lots").refusal()
    assert "'lots' is not a memory size" in refusal


def test_a_budget_below_what_the_process_itself_takes_is_refused_with_the_least(shoal, tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n")
    for command in (
        ("data", "import", "edges.txt", "-o", "made"),
        ("data", "order", "digits", "--by", "degree", "-o", "made"),
        ("partition", "digits", "--parts", "2", "-o", "made"),
    ):
        refusal = shoal(*command, "--memory", "10MB").refusal()
        least = re.search(r"takes? about (\d+\.\d [MG]B) of memory", refusal)
        assert least is not None, refusal
        assert parse_bytes(least[1]) > base_memory() - (64 << 20), refusal
        assert "allow more" in refusal
        assert not (tmp_path / "made").exists()


def test_a_command_without_the_option_has_no_budget_of_an_earlier_one(tmp_path):
    set_memory_budget(parse_bytes("3GB"))
    run_shoal("partition", "digits", "--parts", "2", "--method", "block")
    assert given_budget() is None
    assert memory_budget() > 0
    said = [format_bytes(size) for size in (3 * 10**9, 20 * 10**6, 2000)]
    assert said == ["3.0 GB", "20.0 MB", "2.0 kB"]
    assert [parse_bytes(size) for size in said] == [3 * 10**9, 20 * 10**6, 2000]  # what is said can be typed
