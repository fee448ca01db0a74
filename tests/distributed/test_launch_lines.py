"""The lines of the docs that start ranks on several hosts, run on several hosts: network namespaces with names.

torchrun and MPICH come with the environment; Slurm's daemons (Debian's slurmctld, slurmd, slurm-client) are started by the test.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import shoal
from doc_pages import ROOT, find_shoal, list_blocks, list_commands, name_page
from launched_ranks import find_mpiexec
from named_hosts import NamedHosts, named_hosts
from patience import LONGEST, slow
from shoal.partitioning.stored import store_parts
from shoal.store import save_graph

PAGES = [
    ROOT / "docs" / name for name in ("index.md", "tutorials/cluster.md", "cluster.md", "howto/slurm.md")
]
EPOCHS = 2

# What ssh does for mpiexec: a command on a host.
SHELL = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
case $host in
{cases}
esac
"""

SLURM = """ClusterName=tests
SlurmctldHost=node1
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2
NodeName=node[1-4] CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def list_lines(launcher: str) -> list[tuple[str, str]]:
    """(page, command) of every line by which a launcher trains on stored parts of several hosts."""
    found = []
    for page in PAGES:
        for block in list_blocks(page):
            for command in list_commands(block.text) if block.language == "sh" else ():
                several = re.search(r"--nnodes|-hosts|--nodes", command)
                if command.startswith(f"{launcher} ") and several and "train" in (find_shoal(command) or ()):
                    found.append((name_page(page), command))
    return found


TORCHRUN, MPIEXEC, SRUN = (list_lines(launcher) for launcher in ("torchrun", "mpiexec", "srun"))


def find_block(page: str, word: str) -> list[str]:
    """The commands of the block of a page in which a word stands."""
    blocks = [block for block in list_blocks(ROOT / "docs" / page) if word in block.text]
    assert len(blocks) == 1, f"{page} has {len(blocks)} blocks with {word}"
    return list_commands(blocks[0].text)


def shorten(command: str) -> str:
    return command.replace("--epochs 100", f"--epochs {EPOCHS}")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamedHosts]:
    with named_hosts(4, tmp_path_factory.mktemp("shared")) as made:
        graph = shoal.load("blocks", num_nodes=300, degree=6)
        save_graph(graph, made.folder / "my-graph")
        graph = shoal.load(made.folder / "my-graph")
        store_parts(graph, shoal.partition_graph(graph, 4, method="block"), made.folder / "my-parts")
        yield made


@pytest.fixture(scope="module")
def losses(hosts: NamedHosts) -> list[float]:
    """Losses of one process that trains on the whole graph."""
    hosts.run(f"shoal train my-graph --method full --epochs {EPOCHS} --out alone", ["node1"])
    return read_losses(hosts.folder / "alone")


@pytest.fixture
def desk(hosts: NamedHosts, tmp_path: Path) -> Path:
    """A folder of all hosts, with the graph and its four parts."""
    for name in ("my-graph", "my-parts"):
        shutil.copytree(hosts.folder / name, tmp_path / name)
    return tmp_path


def read_losses(run: Path) -> list[float]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if "loss" in record]


def check_run(command: str, desk: Path, losses: list[float]) -> None:
    """A run on four ranks of several hosts made the steps of one process."""
    words = shlex.split(command)
    run = desk / words[words.index("--out") + 1]
    assert read_losses(run) == pytest.approx(losses, rel=1e-4)
    assert len(json.loads((run / "ranks.json").read_text())) == 4


def test_every_launcher_has_a_line_for_several_hosts():
    assert len(TORCHRUN) == 3
    assert len(MPIEXEC) == 2
    assert len(SRUN) == 1


@slow
@pytest.mark.parametrize(("page", "command"), TORCHRUN)
def test_torchrun_trains_on_several_hosts(page, command, hosts, desk, losses):
    count = int(re.search(r"--nnodes (\d+)", command)[1])
    hosts.run(shorten(command), list(hosts.spaces)[:count], desk)
    check_run(command, desk, losses)


@slow
@pytest.mark.parametrize(("page", "command"), MPIEXEC)
def test_mpiexec_trains_on_several_hosts(page, command, hosts, desk, losses, tmp_path):
    find_mpiexec()
    cases = [f'{host}) exec {shlex.join(hosts.line(host))} sh -c "$*" ;;' for host in hosts.spaces]
    reach = tmp_path / "reach"
    reach.write_text(SHELL.format(cases="\n".join(cases)))
    reach.chmod(0o755)
    hosts.run(shorten(command), ["node1"], desk, HYDRA_LAUNCHER="ssh", HYDRA_LAUNCHER_EXEC=str(reach))
    check_run(command, desk, losses)


@pytest.fixture(scope="module")
def slurm(hosts: NamedHosts) -> dict[str, str]:
    """The variables of a Slurm of four nodes."""
    for tool in ("slurmctld", "slurmd", "srun", "sbatch"):
        if shutil.which(tool, path=hosts.environment["PATH"]) is None:
            pytest.skip(f"{tool} is not installed")
    folder = hosts.folder / "slurm"
    for name in ("state", *hosts.spaces):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(SLURM.format(folder=folder))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    hosts.start("node1", "slurmctld -D -i", **variables)
    for host in hosts.spaces:
        hosts.start(host, "slurmd -D", **variables)
    ready = "for k in $(seq 60); do sinfo -h -t idle -o %D | grep -qx 4 && exit 0; sleep 1; done; exit 1"
    hosts.run(ready, ["node1"], **variables)
    return variables


@slow
@pytest.mark.parametrize(("page", "command"), SRUN)
def test_srun_trains_on_several_hosts(page, command, hosts, desk, losses, slurm):
    hosts.run(shorten(command), ["node1"], desk, LONGEST, **slurm)
    check_run(command, desk, losses)


@slow
def test_a_batch_script_trains_on_several_hosts(hosts, desk, losses, slurm):
    (block,) = (block for block in list_blocks(ROOT / "docs/cluster.md") if "#SBATCH" in block.text)
    (desk / "job.sh").write_text(shorten(block.text))
    hosts.run("sbatch --wait --output=log job.sh || { cat log; exit 1; }", ["node1"], desk, LONGEST, **slurm)
    check_run(block.text, desk, losses)


@slow
def test_steps_by_hand_in_an_allocation(hosts, desk, slurm):
    allocate, *steps = find_block("howto/slurm.md", "salloc")
    shutil.rmtree(desk / "my-parts")  # the steps make them
    (desk / "steps.sh").write_text("\n".join(["set -e", *map(shorten, steps)]))
    (said,) = hosts.run(f"{allocate} sh steps.sh", ["node1"], desk, LONGEST, **slurm)
    assert f"epoch {EPOCHS}/{EPOCHS}" in said
    assert pq.read_table(desk / "labels.parquet").num_rows == 300


@slow
def test_a_whole_job_is_requeued_and_goes_on(hosts, desk, slurm):
    """SIGUSR1 reaches the steps as it does before the time is over; the job queues itself again, and resumes."""
    (command,) = find_block("howto/slurm.md", "sbatch")
    (desk / "examples").symlink_to(ROOT / "examples")
    watch = """
    job=$(sbatch --parsable %s) || exit 1
    until grep -qs '"epoch": 3,' runs/first/metrics.jsonl; do sleep 0.2; done
    scancel --signal=USR1 $job
    while squeue -h -j $job | grep -q .; do sleep 1; done
    cat shoal-$job.log
    scontrol show job $job
    """
    (said,) = hosts.run(
        watch % command.replace(" 100", " 150").split(" ", 1)[1], ["node1"], desk, LONGEST, **slurm
    )
    assert "JobState=COMPLETED" in said, said
    assert "Restarts=1" in said, said
    lines = (desk / "runs/first/metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if "loss" in record]
    best = max(records, key=lambda record: record.get("val_accuracy", 0))["epoch"]
    assert len(records) == min(150, best + 30)  # patience is a fifth of the epochs
    assert pq.read_table(desk / "runs/first/labels.parquet").num_rows == 300
