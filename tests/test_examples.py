"""The examples for clusters: parsed, their commands checked, and run on local ranks without the service."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
import yaml

from launched_ranks import free_port, rank_environment, run_ranks
from shoal.cli import shoal as group
from shoal.datasets import load
from shoal.partitioning.partition import partition_graph
from shoal.partitioning.stored import store_parts
from shoal.store import save_graph

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

# What srun does, on this host: as many processes as tasks, each with the variables that Slurm gives its step.
SRUN = """#!/bin/bash
tasks=$SLURM_NTASKS
while [[ $1 == --* ]]; do
    [[ $1 == --ntasks=* ]] && tasks=${1#*=}
    shift
done
for ((rank = 1; rank < tasks; rank++)); do
    SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=$tasks "$@" &
done
SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=$tasks "$@"
code=$?
wait
exit $code
"""

# The two calls into Ray that a worker makes.
RAY_WORKER = """
import json, os, sys, types
import torch.distributed as dist

class Context:
    def get_world_rank(self):
        return dist.get_rank()

def report(metrics, checkpoint=None):
    if dist.get_rank() == 0:
        print(json.dumps(metrics, default=str), flush=True)

train = types.ModuleType("ray.train")
train.get_context, train.report = Context, report
train.Checkpoint = types.SimpleNamespace(from_directory=lambda folder: os.listdir(folder))
train.ScalingConfig = None
train.torch = types.ModuleType("ray.train.torch")
train.torch.TorchConfig = train.torch.TorchTrainer = None
ray = types.ModuleType("ray")
ray.train = train
sys.modules |= {"ray": ray, "ray.train": train, "ray.train.torch": train.torch}
dist.init_process_group("gloo")
sys.path.insert(0, sys.argv[1])
from ray_train import train_part
train_part({"parts": sys.argv[2], "epochs": 2, "hidden": 8, "lr": 0.01, "patience": None})
"""


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    return save_graph(load("digits"), tmp_path / "digits")


def store_two_parts(folder: Path) -> Path:
    graph = load("digits")
    store_parts(graph, partition_graph(graph, 2, method="block"), folder)
    return folder


def test_examples_are_short_and_say_how_they_are_run() -> None:
    for path in EXAMPLES.iterdir():
        if path.is_file():
            text = path.read_text()
            assert len(text.splitlines()) < 80, path.name
            assert f"examples/{path.name}" in text


def test_slurm_script_is_bash() -> None:
    subprocess.run(["bash", "-n", EXAMPLES / "slurm.sh"], check=True)


def test_slurm_script_gives_steps_their_cpus_and_strips_slashes(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/bash\necho "$SRUN_CPUS_PER_TASK: $*"\n')
    (tmp_path / "srun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": "8"}
    said = subprocess.run(
        ["bash", EXAMPLES / "slurm.sh", "my-graph/", "runs/first/"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said == [
        "8: --nodes=1 --ntasks=1 python -m shoal partition my-graph --parts 4 -o my-graph.parts-4 --refresh",
        "8: python -m shoal doctor",
        "8: python -m shoal train --parts my-graph.parts-4 --epochs 100 --out runs/first",
        "8: python -m shoal predict runs/first -o runs/first/labels.parquet",
    ]


def run_slurm_script(folder: Path, srun: str, **variables: str) -> tuple[int, list[str]]:
    """The job's exit code, and the steps and requeues of it, where `srun` is the body of a script."""
    record = f"#!/bin/bash\necho ${{0##*/}} $* >> {folder}/steps\n"
    for name, text in (("srun", srun), ("scontrol", "")):
        (folder / name).write_text(record + text)
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "71", **variables}
    line = ["bash", EXAMPLES / "slurm.sh", "my-graph", "runs/first"]
    code = subprocess.run(line, env=environment, cwd=folder, check=False).returncode
    return code, (folder / "steps").read_text().splitlines()


def test_slurm_script_writes_parts_where_it_is_told(tmp_path: Path) -> None:
    code, steps = run_slurm_script(tmp_path, "", PARTS="/scratch/mine")
    assert code == 0
    assert steps[0].endswith("shoal partition my-graph --parts 4 -o /scratch/mine --refresh")
    assert "shoal train --parts /scratch/mine " in steps[2]


@pytest.mark.parametrize("how", ["exit 138", "kill -USR1 $PPID"])  # a step of Slurm's, or the script itself
@pytest.mark.parametrize("phase", ["partition", "doctor", "train", "predict"])
def test_slurm_script_is_queued_again_by_a_signal_in_every_phase(
    tmp_path: Path, phase: str, how: str
) -> None:
    code, steps = run_slurm_script(tmp_path, f'[[ "$*" != *"shoal {phase}"* ]] || {how}\n')
    assert code == 0
    assert f"shoal {phase}" in steps[-2]
    assert steps[-1] == "scontrol requeue 71"


def test_slurm_script_ends_with_the_code_of_a_failed_step(tmp_path: Path) -> None:
    code, steps = run_slurm_script(tmp_path, '[[ "$*" != *doctor* ]] || exit 2\n')
    assert code == 2
    assert "shoal doctor" in steps[-1]


def test_kubernetes_pods_run_a_command_that_shoal_takes() -> None:
    text = (EXAMPLES / "pytorchjob.yaml").read_text()
    job = yaml.safe_load(text)
    assert job["kind"] == "PyTorchJob"
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert sum(replica["replicas"] for replica in replicas.values()) == 4
    for replica in replicas.values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"
        assert container["command"][:4] == ["python", "-m", "shoal", "train"]
        command = group.commands["train"]
        context = command.make_context("train", container["command"][4:])
        assert context.params["epochs"] == 100
        given = {variable.pop("name"): variable for variable in map(dict, container["env"])}
        secret = given.pop("SHOAL_TOKEN")["valueFrom"]["secretKeyRef"]  # pods share no home
        assert f"create secret generic {secret['name']} --from-literal={secret['key']}=" in text
        assert all(isinstance(variable["value"], str) for variable in given.values())


def run_while_it_works(
    line: list, environment: dict[str, str], log: Path, idle: float = 300
) -> tuple[int, str]:
    """Exit code and output of a command that may take as long as it works: it has failed when no process of it has used
    any CPU for `idle` seconds, however busy the machine is."""
    with log.open("w") as out:
        process = psutil.Popen(line, env=environment, stdout=out, stderr=subprocess.STDOUT)
        seen: dict[int, float] = {}
        since = time.monotonic()
        try:
            while process.poll() is None:
                used = {}
                with suppress(psutil.NoSuchProcess):
                    for one in [process, *process.children(recursive=True)]:
                        with suppress(psutil.NoSuchProcess):
                            used[one.pid] = sum(one.cpu_times()[:2])
                if used != seen:
                    seen, since = used, time.monotonic()
                assert time.monotonic() - since < idle, f"nothing worked for {idle:.0f} s:\n{log.read_text()}"
                time.sleep(0.5)
        finally:
            for one in [*process.children(recursive=True), process] if process.poll() is None else []:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
    return process.returncode, log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(7200)  # `run_while_it_works` ends it where nothing works
def test_slurm_script_cuts_trains_and_predicts_on_two_ranks(tmp_path: Path, digits: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("python", f'#!/bin/bash\nexec {sys.executable} "$@"\n')):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = rank_environment(
        SLURM_NTASKS="2",
        SLURM_JOB_ID=str(free_port()),
        SLURM_STEP_NODELIST="localhost",
        SHOAL_HOME=str(tmp_path / "home"),
        SHOAL_TIMEOUT="3600",
    )
    environment["PATH"] = f"{tools}:{environment['PATH']}"
    line = ["bash", EXAMPLES / "slurm.sh", digits, tmp_path / "run", "2"]
    code, said = run_while_it_works(line, environment, tmp_path / "first.log")
    assert code == 0, said
    labels = pq.read_table(tmp_path / "run" / "labels.parquet")
    assert (labels.num_rows, "class" in labels.column_names) == (1797, True)
    code, said = run_while_it_works(line, environment, tmp_path / "second.log")
    assert code == 0, said  # queued again after the training: only predicts
    assert "epoch" not in said


@pytest.mark.slow
def test_kubernetes_command_trains_on_two_ranks_and_goes_on_when_started_again(tmp_path: Path) -> None:
    job = yaml.safe_load((EXAMPLES / "pytorchjob.yaml").read_text())
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    store_two_parts(tmp_path / "my-parts")
    command = [part.replace("/data", str(tmp_path)).replace("100", "2") for part in container["command"][1:]]
    variables = {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    variables["SHOAL_TOKEN"] = secrets.token_hex(32)  # what the Secret holds
    variables |= {"SHOAL_THREADS": "1", "SHOAL_HOME": str(tmp_path / "home")}
    for _ in range(2):
        run_ranks(2, *command, **variables).check()
    assert (tmp_path / "runs" / "first" / "checkpoints" / "last.safetensors").is_file()


@pytest.mark.slow
def test_what_a_ray_worker_does_trains_on_two_ranks(tmp_path: Path) -> None:
    store_two_parts(tmp_path / "parts")
    (tmp_path / "worker.py").write_text(RAY_WORKER)
    ended = run_ranks(2, tmp_path / "worker.py", EXAMPLES, tmp_path / "parts")
    ended.check()
    assert '"epoch": 2' in ended.texts[0]
    assert '"test_accuracy"' in ended.texts[0]
