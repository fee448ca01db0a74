"""Parts worked on one after the other, with activations in files, take the steps of one process that holds everything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import shoal
from rank_jobs import Job, assign_nodes, make_graph, make_model, summarize, train_alone
from shoal.block import Block
from shoal.errors import ShoalError
from shoal.memory import set_memory_budget
from shoal.partitioning.partition import Partition
from shoal.runs.data import share_among
from shoal.runs.folder import read_run_config
from shoal.runs.need import estimate_need
from shoal.training import evaluation
from shoal.training.swap_norm import SwappedBatchNorm
from small_graphs import make_labelled
from user_models import TiedModel

MODELS = ("sage", "gcn", "mixhop", "gat")
LINEAR = (("residual", "linear"), ("norm_place", "conv"))
EDGES = (("symmetric", True), ("edge_dropout", 0.4), ("attention_dropout", 0.3), ("output_heads", 1))
PRE_NORM = (("norm_place", "input"), ("residual", "linear"))
REUSE = (("label_reuse", 0.5),)
ROWS = (("input_norm", "rows"),)
JOBS = [
    *(Job(model, directed=directed, double=True, epochs=3) for model in MODELS for directed in (False, True)),
    *(Job(model, norm="batch", deep=True, double=True, epochs=3, directed=True) for model in MODELS),
    *(
        Job(model, sparse=True, double=True, epochs=3, input_dropout=0.2, partition="empty")
        for model in MODELS
    ),
    Job("mixhop", deep=True, double=True, epochs=3),
    Job("sage", double=True, epochs=3, settings=ROWS),
    Job("gcn", sparse=True, double=True, epochs=3, input_dropout=0.2, settings=ROWS),
    Job("gcn", multi_label=True, double=True, epochs=3, head_layers=0, norm="batch"),
    Job("sage", targets=2, double=True, epochs=3),
    Job("sage", norm="batch", head_layers=3, double=True, epochs=3, input_dropout=0.2),
    Job("gat", head_layers=3, double=True, epochs=3),
    Job("sage", orders="0-1-1", norm="batch", double=True, epochs=3),
    Job("mlp", norm="batch", double=True, epochs=3),
    Job("sage", partition="metis", epochs=3),
    *(Job(model, directed=True, double=True, epochs=3, settings=LINEAR) for model in MODELS),
    Job("gcn", sparse=True, norm="batch", double=True, epochs=3, input_dropout=0.2, settings=LINEAR),
    *(Job(model, norm="batch", deep=True, double=True, epochs=3, settings=PRE_NORM[:1]) for model in MODELS),
    Job("mixhop", directed=True, double=True, epochs=3, settings=PRE_NORM),
    Job("sage", orders="1-0-1", norm="batch", double=True, epochs=3, head_layers=3, settings=PRE_NORM),
    Job("gat", directed=True, double=True, epochs=3, settings=EDGES),
    Job("gat", sparse=True, double=True, epochs=3, head_layers=0, settings=EDGES),
    Job("gcn", orders="1-1-0", norm="batch", double=True, epochs=3, head_layers=0, settings=PRE_NORM),
    *(Job(model, double=True, epochs=3, training=REUSE) for model in MODELS),
    Job("gcn", norm="batch", double=True, epochs=3, training=REUSE),
    *(Job(model, double=True, epochs=3, weighted=True, directed=model == "gcn") for model in MODELS),
    Job("sage", sparse=True, directed=True, double=True, epochs=3, input_dropout=0.2, training=REUSE),
]


def make_swapped(job: Job, num_parts: int = 3, **settings: Any) -> shoal.Trainer:
    graph = make_graph(job)
    parts = Partition(graph, assign_nodes(job, graph, num_parts).astype(np.int32), num_parts)
    settings = {"eval_every": job.eval_every, **dict(job.training)} | settings
    return shoal.Trainer(make_model(job), graph, swapped=parts, **settings)


def take_traffic(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("bytes_read", "bytes_written", "swaps")}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_swapped_parts_take_the_steps_of_one_process_and_move_the_bytes_predicted(job):
    wanted = train_alone(job)
    trainer = make_swapped(job)
    predicted = trainer.share.plan.predict().to_record()
    found = summarize(trainer, job)
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=1e-10 if job.double else 1e-5)
    assert found["test"] == pytest.approx(wanted["test"], abs=1e-12)
    if job.double:
        np.testing.assert_allclose(trainer.embed(), wanted["embedding"], rtol=1e-8, atol=1e-11)
    assert take_traffic(found["first"]) == take_traffic(found["last"]) == predicted
    assert predicted["bytes_written"] > 0
    assert predicted["bytes_read"] > predicted["bytes_written"]


@pytest.mark.parametrize("num_parts", [1, 7])
def test_any_number_of_parts_gives_the_same_steps(num_parts):
    job = Job("gcn", double=True, epochs=2)
    found = summarize(make_swapped(job, num_parts), job)
    np.testing.assert_allclose(found["losses"], train_alone(job)["losses"], rtol=1e-12)


def test_bytes_written_are_those_that_the_system_counts():
    def read_written() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])

    if not Path("/proc/self/io").is_file():
        pytest.skip("the system counts nothing")
    trainer = make_swapped(Job("gat", norm="batch"))
    trainer.train_epoch()  # cuts the parts
    before = read_written()
    record = trainer.train_epoch()
    trainer.share._swap._pass(trainer.share.plan.stages[0], "forward", lambda work: None)  # waits for writes
    assert read_written() - before == record["bytes_written"] > 10_000


def test_files_have_no_names_and_end_with_training(tmp_path):
    trainer = make_swapped(Job())
    trainer.share.scratch_folder = tmp_path
    trainer.train_epoch()
    swap = trainer.share._swap
    assert swap.scratch.folder == tmp_path
    assert swap.scratch.held == 0
    assert swap.scratch.filed >= trainer.share.plan.filed > 0
    assert list(tmp_path.iterdir()) == []
    trainer.fit(2)
    assert swap.scratch.filed == 0
    assert trainer.share._swap is None


def test_files_end_with_training_that_fails(tmp_path):
    trainer = make_swapped(Job())
    opened = []

    def fail(record: dict[str, Any]) -> None:
        opened.append(trainer.share._swap)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        trainer.fit(2, fail)
    assert opened[0].scratch.filed == 0
    assert trainer.share._swap is None


def test_a_resumed_trainer_equals_an_uninterrupted_one(tmp_path):
    job = Job("sage", norm="batch")
    whole = [record["loss"] for record in make_swapped(job).fit(4)]
    make_swapped(job, checkpoints=tmp_path).fit(2)
    resumed = make_swapped(job)
    resumed.resume(tmp_path)
    assert [record["loss"] for record in resumed.fit(4)] == whole[2:]


def test_neither_counting_nor_explaining_makes_operators_of_the_whole_graph(monkeypatch):
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)
    job = Job("gcn", deep=True)
    plain = shoal.Trainer(make_model(job), make_graph(job))
    trainer = make_swapped(job)
    monkeypatch.setattr(Block, "adjacency", lambda *_: pytest.fail("an operator was made"))
    work = evaluation.count_work(trainer.share, trainer.model)
    assert work == evaluation.count_work(plain.share, plain.model)
    lines = trainer.share.explain(trainer.model)
    assert [line.partition(":")[0] for line in lines][:2] == ["layer 1", "layer 2"]
    assert f"gcn over {trainer.share.plan.sizes.entries.sum():,} entries of 3 parts" in "".join(lines)


def test_the_interval_may_be_asked_while_parts_are_cut(monkeypatch):
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)
    trainer = make_swapped(Job("sage", deep=True))
    before = evaluation.choose_interval(trainer.share, trainer.model, 0.1)
    trainer.share.begin(1)
    assert evaluation.choose_interval(trainer.share, trainer.model, 0.1) == before > 1
    trainer.share.release()


def test_a_batch_norm_serves_other_trainers_afterwards():
    job = Job("sage", norm="batch", double=True)
    trainer = make_swapped(job)
    assert any(isinstance(module, SwappedBatchNorm) for module in trainer.model.modules())
    trainer.fit(2)
    plain = make_model(job)
    plain.load_state_dict(trainer.model.state_dict())
    losses = [shoal.Trainer(model, make_graph(job)).train_epoch()["loss"] for model in (plain, trainer.model)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    states = [model.state_dict() for model in (plain, trainer.model)]
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], rtol=1e-10, atol=1e-12)


MEASURE = """
import sys, threading, time
import numpy as np, shoal, torch
from shoal.memory import anonymous_memory, return_freed_memory
from shoal.partitioning.partition import Partition

n, num_parts = 60_000, int(sys.argv[1])
rng = np.random.default_rng(0)
source = rng.integers(0, n, 6 * n)
edges = np.stack([source, (source + rng.integers(1, 200, len(source))) % n])
x = rng.normal(size=(n, 32)).astype(np.float32)
graph = shoal.Graph.from_edge_index(edges, n, x=x, y=rng.integers(0, 4, n)).with_split(0.5, 0.25, seed=0)
model = shoal.GNN("sage", 32, 128, 4, num_layers=3)
cut = Partition(graph, (np.arange(n) * num_parts // n).astype(np.int32), num_parts)
first = shoal.Trainer(shoal.GNN("sage", 32, 128, 4, num_layers=3), graph, swapped=cut)
first.train_epoch()  # kernels are loaded
first.share.release()
trainer = shoal.Trainer(model, graph, swapped=cut)
plan = trainer.share.plan
return_freed_memory()
held = most = anonymous_memory()
done = threading.Event()
def watch():
    global most
    while not done.wait(0.002):
        most = max(most, anonymous_memory())
thread = threading.Thread(target=watch); thread.start()
for _ in range(2): trainer.train_epoch()
done.set(); thread.join()
print(most - held, plan.held)
"""


def test_a_step_holds_what_one_part_takes():
    answer = subprocess.run(
        [sys.executable, "-c", MEASURE, "8"], capture_output=True, text=True, check=True, timeout=300
    )
    grown, estimated = map(int, answer.stdout.split())
    weights = 4 * 6 * 50_000
    assert grown <= estimated + weights
    assert (
        grown < 4 * 60_000 * 3 * 128
    )  # one activation of every layer, of which training in memory holds three


def test_what_cannot_be_exact_is_refused():
    graph = make_labelled(200)
    parts = Partition(graph, np.arange(200, dtype=np.int32) % 2, 2)
    model = shoal.GNN("sage", 8, 16, 3)
    with pytest.raises(ShoalError, match="TiedModel is none"):
        shoal.Trainer(TiedModel(8, 3), graph, swapped=parts)
    for sampler in (shoal.NodeSampler(graph, budget=10), shoal.FullSampler(graph, setting="inductive")):
        with pytest.raises(ShoalError, match="leave out the sampler"):
            shoal.Trainer(model, graph, sampler, swapped=parts)
    with pytest.raises(ShoalError, match="give the graph"):
        shoal.Trainer(model, parts.split()[0], swapped=parts)
    with pytest.raises(ShoalError, match="assignment"):
        shoal.Trainer(model, make_labelled(100), swapped=parts)


def test_need_names_swapped_parts_where_they_help(tmp_path):
    nodes = np.arange(2000)
    ring = shoal.Graph.from_edge_index(
        np.stack([nodes, (nodes + 1) % 2000]), 2000
    )  # parts have two halo rows
    graph = ring._copy(x=make_labelled(2000).x, y=nodes % 3, num_classes=3).with_split(0.5, 0.25, seed=0)
    model = shoal.GNN("sage", 8, 512, 3)
    whole = estimate_need(shoal.Trainer(model, graph), tmp_path)
    parts = Partition(graph, np.arange(2000, dtype=np.int32) // 250, 8)
    trainer = shoal.Trainer(model, graph, swapped=parts)
    swapped = estimate_need(trainer, tmp_path)
    assert swapped.step < 0.75 * whole.step
    moved = trainer.share.plan.predict()
    assert f"reads {moved.read / 1e6:.1f} MB and writes {moved.written / 1e6:.1f} MB" in swapped.check()
    try:
        for need, helps in ((whole, "give --method swapped"), (swapped, "give more --parts")):
            need.evaluation = 0
            set_memory_budget(need.held + need.code + 1)
            with pytest.raises(ShoalError, match=helps):
                need.check()
    finally:
        set_memory_budget(None)


SETTINGS = ("--set", "model.hidden=16", "--set", "model.head_layers=1", "--set", "training.patience=null")


def read_losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_a_swapped_run_is_trained_resumed_and_used_like_any_other(shoal, tmp_path):
    common = ("train", "digits", *SETTINGS, "--epochs", 4)
    assert shoal(*common, "--method", "full", "--out", "full").code == 0
    run = shoal(*common, "--method", "swapped", "--parts", 3, "--out", "swapped")
    assert run.code == 0
    assert "3 parts, one after the other" in run.stdout
    assert "an epoch reads" in run.stdout
    losses = read_losses(tmp_path / "full")
    np.testing.assert_allclose(read_losses(tmp_path / "swapped"), losses, rtol=1e-4)
    config = yaml.safe_load((tmp_path / "swapped/config.yaml").read_text())
    assert (config["method"], config["partition"]["parts"]) == ("swapped", 3)

    line = ("train", "digits", *SETTINGS, "--method", "swapped", "--parts", 3, "--epochs", 2)
    assert shoal(*line, "--out", "resumed").code == 0
    assert shoal("train", "--resume", "resumed", "--epochs", 4).code == 0
    assert read_losses(tmp_path / "resumed") == read_losses(tmp_path / "swapped")
    assert shoal("predict", "swapped", "-o", "labels.npy").code == 0
    assert shoal("predict", "full", "-o", "full.npy").code == 0
    assert (np.load("labels.npy") == np.load("full.npy")).mean() > 0.999
    assert shoal("embed", "swapped", "-o", "rows.npy").code == 0
    assert np.load("rows.npy").shape == (1797, 16)

    assert shoal("partition", "digits", "--parts", 3, "--method", "block", "-o", "parts").code == 0
    stored = ("--method", "swapped", "--parts", "parts", "--out", "stored")
    assert shoal(*common, *stored).code == 0
    np.testing.assert_allclose(read_losses(tmp_path / "stored"), losses, rtol=1e-4)
    assert not (tmp_path / "stored/assignment.npy").exists()
    with pytest.raises(ShoalError, match="keeps its parts: leave out --parts"):
        share_among(read_run_config(tmp_path / "stored"), 1, "parts")
    (tmp_path / "parts/assignment.npy").write_bytes(b"no array")
    refused = shoal("train", "--resume", "stored", "--epochs", 5)
    assert "assignment.npy is damaged: expected the part of every node" in refused.refusal()
    (tmp_path / "parts").rename(tmp_path / "away")
    assert shoal("predict", "stored", "-o", "stored.npy").code == 0
    (tmp_path / "away").rename(tmp_path / "parts")
    refused = shoal("train", "blocks", "--method", "swapped", "--parts", "parts")
    assert "another graph than blocks" in refused.refusal()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("digits", "--parts", "4"), "--workers 4 for 4 ranks, or --method swapped"),
        (("--method", "swapped", "--parts", "4"), "no data given"),
        (("digits", "--method", "full", "--parts", "4"), "belongs to methods partitioned and swapped"),
        (("digits", "--method", "swapped", "--workers", "2"), "method swapped trains in one process"),
        (("digits", "--method", "swapped", "--sampler", "node"), "leave out --sampler"),
        (("digits", "--method", "swapped", "--boundary-rate", "0.5"), "not to swapped"),
        (
            ("digits", "--method", "swapped", "--set", "training.setting=inductive"),
            "leave out training.setting=inductive",
        ),
    ],
)
def test_options_that_contradict_swapped_parts_are_refused(shoal, words, message):
    refused = shoal("train", *words)
    assert message in refused.refusal()
