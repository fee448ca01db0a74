"""What `shoal train` refuses before it works, and what it leaves when it is stopped."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Run
from shoal.datasets import load
from shoal.store import save_graph
from small_graphs import make_labelled

SMALL = ("--set", "model.hidden=8", "--set", "sampler.roots=100")


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "home")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--set", "training.lr=-1"], "lr is -1.0: expected a number above 0"),
        (["--set", "training.lr=0"], "lr is 0.0: expected a number above 0"),
        (["--set", "training.lr=.nan"], "lr is nan: expected a number above 0"),
        (["--set", "training.weight_decay=-1"], "weight_decay is -1.0: expected 0 or more"),
        (["--set", "training.clip=0"], "clip is 0.0: expected a number above 0, or null"),
        (["--set", "training.patience=0"], "patience is 0: expected at least 1, or null for never"),
        (["--set", "training.eval_every=0"], "eval_every is 0: expected at least 1"),
        (["--set", "training.epochs=0"], "epochs is 0: expected at least 1"),
        (["--set", "training.sampling_threads=-1"], "sampling_threads is -1: expected 0 to 4096"),
        (["--set", "training.threads=0"], "threads is 0: expected 1 to 4096"),
        (["--set", "training.threads=4097"], "threads is 4097: expected 1 to 4096"),
        (["--set", "method=ful"], "did you mean 'full'"),
        (["--model", "sagee"], "did you mean 'sage'"),
        (["--sampler", "random-wak"], "did you mean 'random-walk'"),
        (["--set", "sampler.rots=3"], "did you mean 'roots'"),
        (["--seed", "-1"], "seed is -1: expected 0 to 2^63 - 1"),
        (["--seed", str(2**63)], f"seed is {2**63}: expected 0 to 2^63 - 1"),
        (["--method", "full", "--sampler", "edge"], "leave out --sampler"),
        (["--method", "full", "--set", "sampler.roots=3"], "leave out sampler.roots"),
        (["--set", "model.num_layers=3", "--set", "model.orders=1-0"], "leave num_layers out"),
        (
            ["--set", "trainning.lr=3"],
            "unknown key 'trainning' in --set trainning.lr=3: did you mean 'training'?",
        ),
        (["--out", "file/run"], "file is a file: file/run cannot be made inside it"),
        (["--recipe", "binary.yaml"], "binary.yaml is not a text file"),
        (["--recipe", "text.yaml"], "unknown key 'hiden' in text.yaml, model: did you mean 'hidden'?"),
        (["--recipe", "odd.yaml"], "sampler has the key 1 in odd.yaml, sampler: expected names"),
        (["--resume", "run"], "leave out DATA"),
        (
            ["--boundary-rate", "0.5"],
            "a boundary rate is for several ranks and there is one: add --workers N",
        ),
        (["--workers", "2", "--sampler", "ladies"], "sampler 'ladies' draws no induced subgraphs"),
    ],
)
def test_nonsense_is_refused_in_one_sentence_before_a_folder_is_made(
    shoal: Callable[..., Run], tmp_path: Path, args: list[str], message: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "binary.yaml").write_bytes(b"\x80\x81\x00PAR1")
    (tmp_path / "odd.yaml").write_text("sampler: {options: {1: 2}}\n")
    (tmp_path / "text.yaml").write_text("model: {hiden: 3}\n")
    assert message in shoal("train", "digits", *args).refusal()
    assert left_in(tmp_path) == ["binary.yaml", "file", "odd.yaml", "text.yaml"]


def test_the_largest_seed_trains_and_the_smallest_too_large_one_does_not_sample(
    shoal: Callable[..., Run],
) -> None:
    assert shoal("train", "digits", *SMALL, "--epochs", 1, "--seed", 2**63 - 1).code == 0
    assert "seed is" in shoal("sample", "digits", "--seed", 2**63).refusal()
    assert "expected 1 to 4096" in shoal("train", "digits", SHOAL_THREADS="5000").refusal()


def test_a_sampler_named_on_the_command_line_replaces_the_recipes_with_its_options(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "data: digits\nmodel: {hidden: 8}\nsampler: {options: {roots: 100}}\n"
    )
    assert shoal("train", "--recipe", "recipe.yaml", "--method", "full", "--epochs", 1).code == 0
    assert shoal("train", "--recipe", "recipe.yaml", "--sampler", "node", "--epochs", 1).code == 0


def test_other_data_on_the_command_line_drops_the_options_of_the_recipes_data(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "data: blocks\ndata_options: {num_nodes: 500}\nmodel: {hidden: 8}\nsampler: {options: {roots: 100}}\n"
    )
    assert shoal("train", "digits", "--recipe", "recipe.yaml", "--epochs", 1).code == 0
    kept = shoal("train", "blocks", "--recipe", "recipe.yaml", "--epochs", 1)
    assert "500 nodes" in kept.stdout


def test_a_typo_is_refused_before_the_graph_is_looked_for(shoal: Callable[..., Run]) -> None:
    assert "did you mean 'sage'" in shoal("train", "nowhere", "--model", "sagee").refusal()


def test_a_graph_without_features_is_refused_in_its_own_words(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    said = shoal("train", "edges.csv").refusal()
    assert "graph 'edges' has no features and no labels: training needs features and labels" in said
    assert left_in(tmp_path) == ["edges.csv"]


def start(environment: dict[str, str], folder: Path, *args: object, **settings: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "shoal", "train", *map(str, args)],
        env={**environment, "SHOAL_THREADS": "1"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def finish(process: subprocess.Popen) -> Run:
    """What the process said; it is gone afterwards, whatever happened."""
    try:
        out, err = process.communicate(timeout=120)
        return Run(process.returncode, out, err)
    finally:
        process.kill()
        process.wait()


def limit_files(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_disk_that_is_full_from_the_start_leaves_no_run(
    environment: dict[str, str], tmp_path: Path
) -> None:
    args = ("digits", *SMALL, "--epochs", 2, "--out", "run")
    said = finish(start(environment, tmp_path, *args, preexec_fn=limit_files(2_000))).refusal()
    assert "no space left while writing run: " in said
    assert "nothing was left there" in said
    assert left_in(tmp_path) == []


def test_a_disk_that_fills_up_leaves_a_run_that_resumes(
    shoal: Callable[..., Run], environment: dict[str, str], tmp_path: Path
) -> None:
    assert shoal("train", "digits", *SMALL, "--epochs", 1, "--out", "run").code == 0
    full = start(environment, tmp_path, "--resume", "run", "--epochs", 3, preexec_fn=limit_files(2_000))
    assert "`shoal train --resume run` continues" in finish(full).refusal()
    assert shoal("train", "--resume", "run", "--epochs", 2).code == 0


def test_ctrl_c_says_how_to_go_on(environment: dict[str, str], tmp_path: Path) -> None:
    args = ("digits", *SMALL, "--epochs", 100_000, "--set", "training.patience=null", "--out", "run")
    process = start(environment, tmp_path, *args)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (tmp_path / "run/checkpoints/last.safetensors").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    finally:
        run = finish(process)
    assert run.code == 130, run.stderr
    assert run.stderr.strip() == "shoal: interrupted; continue with: shoal train --resume run"


def test_data_beside_stored_parts_is_refused(shoal, tmp_path):
    said = shoal("train", "blocks", "--parts", tmp_path)
    assert "leave out DATA" in said.refusal()


def test_parts_of_another_graph_are_named(shoal, tmp_path):
    save_graph(load("digits"), tmp_path / "mine")
    save_graph(make_labelled(), tmp_path / "other")
    for data in ("mine", "digits"):
        assert shoal("partition", data, "--parts", 2, "--method", "block", "-o", f"{data}-parts").code == 0
    for data, parts in (("other", "mine-parts"), ("blocks", "digits-parts")):
        said = shoal("train", data, "--parts", parts).refusal()
        assert (
            f"--parts {parts} holds another graph than {data} (digits of 1,797 nodes): leave out DATA" in said
        )
    for data, parts in (("mine", "mine-parts"), ("digits", "digits-parts")):
        said = shoal("train", data, "--parts", parts).refusal()
        assert "--parts holds the graph to train on (digits of 1,797 nodes): leave out DATA" in said
