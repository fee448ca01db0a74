"""The command line across ranks: started here or by mpiexec, resumed, interrupted."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from launched_ranks import find_mpiexec, rank_environment
from shoal.analysis.machine import read_machine
from shoal.threads import available_cores

SETTINGS = ("--set", "model.hidden=16", "--set", "partition.method=metis", "--set", "training.patience=null")


def start(*args, front=(), cwd=None, **settings):
    environment = rank_environment(**settings)
    line = [*front, sys.executable, "-m", "shoal", *map(str, args)]
    return subprocess.Popen(
        line,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(*processes):
    """Exit code, output and errors of each; none is left, whatever happened."""
    try:
        said = [process.communicate(timeout=200) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return [(process.returncode, *texts) for process, texts in zip(processes, said)]


def run(*args, **settings):
    return finish(start(*args, **settings))[0]


def read_losses(folder: Path):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line], lines[-1]


def test_workers_resume_and_embed_as_one_process_would(shoal, tmp_path):
    whole = shoal("train", "digits", "--method", "full", "--epochs", "5", "--out", "alone", *SETTINGS)
    assert whole.code == 0, whole.stderr
    common = ("train", "digits", "--method", "partitioned", "--workers", "2", *SETTINGS)
    code, out, error = run(*common, "--epochs", "3", "--out", tmp_path / "ranks")
    assert code == 0, error
    assert "2 parts" in out
    assert out.count("epoch 3/3") == 1
    code, out, error = run("train", "--resume", tmp_path / "ranks", "--epochs", "5")
    assert code == 0, error
    losses, last = read_losses(tmp_path / "ranks")
    want, scores = read_losses(tmp_path / "alone")
    np.testing.assert_allclose(losses, want, rtol=1e-4)
    assert last == pytest.approx(scores)
    code, out, error = run("embed", tmp_path / "ranks", "-o", tmp_path / "z.npy")
    assert code == 0, error
    assert shoal("embed", "alone", "-o", "want.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), np.load("want.npy"), rtol=1e-3, atol=1e-4)


def test_doctor_keeps_what_ranks_measured_and_simulate_predicts_with_it(shoal, tmp_path):
    code, out, error = run("doctor", "--workers", "2", "--save", tmp_path / "machine.json")
    assert code == 0, error
    assert "0 – 1" in out
    assert "all at once:" in out
    machine = read_machine(tmp_path / "machine.json")
    assert 0 < machine.latency < 1
    assert 1e6 < machine.bandwidth < 1e12
    assert [size for size, _ in machine.crowd] == sorted(size for size, _ in machine.crowd)
    assert min(machine.dense_rate, machine.sparse_rate) > 1e6
    assert [size for size, _ in machine.sums] == sorted(size for size, _ in machine.sums)
    assert min(machine.message_seconds, machine.batch_seconds) >= 0
    assert (machine.ranks, machine.host_ranks, machine.cores) == (2, 2, available_cores())
    said = shoal("simulate", "digits", "--parts", "2", "--machine", tmp_path / "machine.json")
    assert said.code == 0, said.stderr
    assert "unknown" not in said.stdout
    assert "--workers N" in shoal("doctor", "--save", "machine.json").refusal()


@pytest.mark.slow
def test_repeated_runs_across_ranks_score_as_those_of_one_process(shoal, tmp_path):
    common = ("train", "digits", "--epochs", "2", "--repeat", "2", *SETTINGS)
    whole = shoal(*common, "--method", "full", "--out", "alone")
    assert whole.code == 0, whole.stderr
    code, out, error = run(*common, "--method", "partitioned", "--workers", "2", "--out", tmp_path / "ranks")
    assert code == 0, error
    assert out.count("over 2 seeds") == 3, out  # micro, macro, accuracy
    want = json.loads((tmp_path / "alone" / "summary.json").read_text())
    summary = json.loads((tmp_path / "ranks" / "summary.json").read_text())
    assert summary["test_accuracy"]["each"] == pytest.approx(want["test_accuracy"]["each"])
    shutil.rmtree(tmp_path / "ranks" / "seed-1")
    code, out, error = run("train", "--resume", tmp_path / "ranks")
    assert code == 0, error
    assert json.loads((tmp_path / "ranks" / "summary.json").read_text()) == summary
    assert "name one" in shoal("embed", tmp_path / "ranks", "-o", "z.npy").refusal()


def test_mpiexec_trains_on_stored_parts_and_refuses_with_one_sentence(shoal, tmp_path):
    front = (find_mpiexec(), "-n", "2")
    common = (
        "train",
        "digits",
        "--method",
        "partitioned",
        "--epochs",
        "2",
        "--out",
        tmp_path / "run",
        *SETTINGS,
    )
    code, out, error = run(*common, front=front)
    assert code == 0, error
    assert "mpi" in out
    resume = f"if a rank is lost, start the ranks again with: shoal train --resume {tmp_path / 'run'}"
    assert out.count(resume) == 1
    assert out.index(resume) < out.index("epoch 1")
    assert len(read_losses(tmp_path / "run")[0]) == 2
    code, out, error = run(*common, front=front)
    assert code != 0
    assert error.count("exists already") == 1, error


def test_interrupted_ranks_end_in_seconds_and_leave_a_checkpoint(tmp_path):
    folder = tmp_path / "run"
    process = start(
        "train",
        "digits",
        "--method",
        "partitioned",
        "--workers",
        "2",
        "--epochs",
        "100000",
        "--out",
        folder,
        *SETTINGS,
    )
    try:
        deadline = time.monotonic() + 90
        while not (folder / "checkpoints" / "last.safetensors").is_file():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C does
        pressed = time.monotonic()
        _, error = process.communicate(timeout=60)
        assert time.monotonic() - pressed < 15
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, error
    assert error.count("shoal train --resume") == 1, error
    assert (folder / "checkpoints" / "last.safetensors").is_file()


def test_a_thinned_boundary_is_resumed_as_if_never_interrupted(tmp_path):
    thin = ("--boundary-rate", "0.3", "--set", "partition.last_boundary_rate=0.6")
    common = (
        "train",
        "digits",
        "--method",
        "partitioned",
        "--workers",
        "2",
        "--epochs",
        "4",
        *thin,
        *SETTINGS,
    )
    short = [("2" if word == "4" else word) for word in common]
    (code, out, error), (cut, _, error_of_cut) = finish(  # side by side
        start(*common, "--out", tmp_path / "whole"),
        start(*short, "--set", "partition.last_boundary_rate=0.4", "--out", tmp_path / "cut"),
    )
    assert code == 0, error
    assert cut == 0, error_of_cut
    assert "memory: the largest rank held" in out
    assert "boundary rate 0.3 to 0.6 (nodes)" in out
    ranks = json.loads((tmp_path / "whole" / "ranks.json").read_text())
    assert len(ranks) == 2
    assert all(0 < rank["kept_halo_rows"] < rank["halo_rows"] for rank in ranks)
    config = tmp_path / "cut" / "config.yaml"  # its first two epochs had the rates of the whole run's
    config.write_text(config.read_text().replace("last_boundary_rate: 0.4", "last_boundary_rate: 0.6"))
    code, out, error = run("train", "--resume", tmp_path / "cut", "--epochs", "4")
    assert code == 0, error
    assert read_losses(tmp_path / "cut")[0] == read_losses(tmp_path / "whole")[0]


def test_ranks_share_the_batches_of_a_sampler(shoal, tmp_path):
    walk = ("--sampler", "random-walk", "--set", "sampler.roots=200", "--set", "sampler.coverage=5")
    common = ("train", "digits", *walk, "--epochs", "2", *SETTINGS)
    code, _, error = run(*common, "--method", "partitioned", "--workers", "2", "--out", tmp_path / "ranks")
    assert code == 0, error
    alone = shoal(*common, "--out", "alone")
    assert alone.code == 0, alone.stderr
    losses, _ = read_losses(tmp_path / "ranks")
    want, _ = read_losses(tmp_path / "alone")
    np.testing.assert_allclose(losses, want, rtol=1e-4)


def test_ranks_with_batches_of_their_own_resume_from_another_folder(tmp_path):
    """Data-parallel; the tables are named relative to where training began."""
    generator = np.random.default_rng(0)
    ends = generator.integers(0, 60, (200, 2))
    (tmp_path / "edges.csv").write_text("source,target\n" + "\n".join(f"{a},{b}" for a, b in ends) + "\n")
    rows = [f"{node},{node % 2},{node % 2 + generator.normal():.3f}" for node in range(60)]
    (tmp_path / "nodes.csv").write_text("id,label,x\n" + "\n".join(rows) + "\n")
    (tmp_path / "elsewhere").mkdir()
    small = ("--set", "model.hidden=8", "--set", "sampler.roots=10", "--set", "training.patience=null")
    train = ("train", "edges.csv", "--set", "data.nodes=nodes.csv", "--workers", "2", "--method", "sampled")
    code, out, error = run(*train, *small, "--epochs", "1", "--out", "run", cwd=tmp_path)
    assert code == 0, error
    assert "2 ranks by gloo" in out
    code, out, error = run("train", "--resume", "../run", "--epochs", "2", cwd=tmp_path / "elsewhere")
    assert code == 0, error
    assert len(read_losses(tmp_path / "run")[0]) == 2
    code, out, error = run("predict", "../run", "-o", "labels.parquet", cwd=tmp_path / "elsewhere")
    assert code == 0, error
    assert "60 nodes" in out
