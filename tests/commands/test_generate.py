"""`shoal data generate`: the generator's graph on disk, within a budget, all or nothing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shoal as package
from command_line import Run
from shoal import conversion, memory, workspace
from shoal.memory import anonymous_memory, set_memory_budget
from shoal.store import verify_graph

LARGE = ("kronecker", "-o", "g", "--set", "scale=20", "--set", "num_features=0", "--memory", "340MB")


@pytest.fixture(autouse=True)
def no_budget():
    yield
    set_memory_budget(None)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("kronecker", {"scale": 12, "degree": 200, "num_features": 301, "directed": True}),
        ("kronecker", {"scale": 12, "degree": 400, "num_features": 0}),
        ("blocks", {"num_nodes": 5000, "num_classes": 7, "degree": 300, "num_features": 400, "skew": 0.3}),
    ],
)
def test_generated_graph_is_the_one_that_load_draws(
    shoal: Callable[..., Run], tmp_path: Path, name: str, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_CODE", 0)  # what a small graph leaves room for
    for module in (conversion, memory, workspace):
        monkeypatch.setattr(module, "BUILDING", 0)
    drawn = package.load(name, **settings)
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={str(value).lower()}")]
    budget = anonymous_memory() + 6_000_000  # the edges alone would take 9 MB
    done = shoal("data", "generate", name, "-o", "g", *words, "--memory", budget)
    assert done.code == 0, done.stderr
    assert verify_graph(tmp_path / "g") == []
    stored = package.open_graph(tmp_path / "g")
    for array in ("indptr", "indices", "x", "y", "train_mask", "val_mask", "test_mask"):
        found, expected = getattr(stored, array), getattr(drawn, array)
        np.testing.assert_array_equal(found, expected)
        assert expected is None or found.dtype == expected.dtype
    for field in ("directed", "num_classes", "notices"):
        assert getattr(stored, field) == getattr(drawn, field)
    assert list(tmp_path.glob(".g*")) == []


def test_unknown_generator_and_setting_are_refused_with_the_nearest(shoal: Callable[..., Run]) -> None:
    assert (
        "unknown generator 'kroneker': did you mean 'kronecker'?"
        in shoal("data", "generate", "kroneker", "-o", "g").refusal()
    )
    said = shoal("data", "generate", "blocks", "-o", "g", "--set", "num_node=5").refusal()
    assert "unknown setting of blocks 'num_node': did you mean 'num_nodes'?" in said


def test_graph_that_no_disk_or_budget_holds_is_refused_at_once(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    large = ("data", "generate", "kronecker", "-o", "g", "--set", "scale=31", "--set", "num_features=4096")
    said = shoal(*large).refusal()
    assert "a graph of 2,147,483,648 nodes and up to 34,359,738,368 entries takes 35.6 TB beside g" in said
    small = ("data", "generate", "kronecker", "-o", "g", "--set", "scale=24", "--set", "num_features=0")
    said = shoal(*small, "--set", "degree=1", "--memory", anonymous_memory() + 2 * 10**8).refusal()
    assert "generating a graph of 16,777,216 nodes and up to 16,777,216 entries takes about" in said
    assert "generate fewer nodes, or allow more" in said
    said = shoal(*small, "--set", "degree=1", "--memory", "10MB").refusal()
    assert "storing g takes about" in said
    assert "Python, torch and compiled kernels, and --memory allows 10.0 MB: allow more" in said
    assert list(tmp_path.glob("*g*")) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_generator_leaves_nothing(
    environment: dict[str, str], tmp_path: Path, number: int, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "data", "generate", *LARGE],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 120
    while not any(path.stat().st_size for path in tmp_path.glob(".g.*.partial/runs")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.005)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert list(tmp_path.glob("*g*")) == []


def test_disk_that_fills_up_ends_in_one_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "shoal", "data", "generate", *LARGE],
        cwd=tmp_path,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000_000, 50_000_000)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = Run(run.returncode, run.stdout, run.stderr).refusal()
    assert "no space left while writing g: free some, or choose another disk; nothing was left there" in said
    assert list(tmp_path.glob("*g*")) == []
