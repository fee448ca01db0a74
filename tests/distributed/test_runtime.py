"""Who started this process, and what doctor advises, from the environment and from measurements."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launched_ranks import rank_environment
from shoal.analysis.probe import Network, advise
from shoal.commands.runs import note_resume
from shoal.distributed.detect import Launch, detect_launch
from shoal.distributed.runtime import open_transport
from shoal.distributed.slurm import find_first_host, pick_port
from shoal.distributed.transport import read_limit
from shoal.errors import ShoalError

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
STEP = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "node[003-010]"}


@pytest.mark.parametrize(
    ("environment", "launch"),
    [
        ({}, Launch("none", "local", 0, 1)),
        (TORCHRUN, Launch("torchrun", "gloo", 1, 4)),
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, Launch("mpi", "mpi", 2, 3)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, Launch("mpi", "mpi", 0, 2)),
        (STEP, Launch("slurm", "gloo", 3, 8)),
        ({**STEP, "SHOAL_TRANSPORT": "mpi"}, Launch("slurm", "mpi", 3, 8)),
        ({**STEP, "PMI_RANK": "3", "PMI_SIZE": "8"}, Launch("slurm", "gloo", 3, 8)),
        ({**STEP, **TORCHRUN}, Launch("torchrun", "gloo", 1, 4)),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},
            Launch("none", "local", 0, 1),
        ),  # beside srun, not inside
    ],
)
def test_the_launcher_is_known_from_the_environment(environment, launch):
    assert detect_launch(environment) == launch


def test_bad_settings_are_refused_with_what_is_expected(monkeypatch):
    monkeypatch.setenv("SHOAL_TRANSPORT", "glo")
    with pytest.raises(ShoalError, match="did you mean 'gloo'"):
        open_transport()
    with pytest.raises(ShoalError, match="expected numbers from the launcher"):
        detect_launch({**TORCHRUN, "RANK": "first"})
    monkeypatch.setenv("SHOAL_TIMEOUT", "soon")
    with pytest.raises(ShoalError, match="number of seconds"):
        read_limit()


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("node[003-010]", "node003"), ("a1,b2", "a1"), ("big[12,14]", "big12"), ("one", "one")],
)
def test_the_first_host_of_a_slurm_step_is_where_ranks_meet(nodes, first):
    assert find_first_host({"SLURM_STEP_NODELIST": nodes}) == first
    assert 15000 <= pick_port("4711.0") < 35000
    assert pick_port("4711") == pick_port("4711")


def test_doctor_names_the_setting_where_a_host_name_leads_nowhere_and_the_pair_that_is_slow():
    latency = np.full((3, 3), 1e-4)
    bandwidth = np.full((3, 3), 1e8)
    bandwidth[0, 2] = bandwidth[2, 0] = 1e6
    np.fill_diagonal(bandwidth, np.inf)
    network = Network(
        ["a", "b", "c"], ["127.0.1.1", "10.0.0.2", "10.0.0.3"], ["", "", ""], latency, bandwidth, [], []
    )
    advice = advise(network, [("lo", "127.0.0.1"), ("eth1", "10.0.0.1")])
    assert any("rank 0 (a)" in line and "GLOO_SOCKET_IFNAME=eth1" in line for line in advice)
    assert any("ranks 0 and 2: 1.0 MB/s" in line for line in advice)
    assert len(advice) == 2
    bandwidth[0, 2] = bandwidth[2, 0] = 1e8
    assert advise(Network(["a"] * 3, ["127.0.0.1"] * 3, [""] * 3, latency, bandwidth, [], []), []) == []


def test_a_process_group_of_the_users_keeps_its_own_limit() -> None:
    program = (
        "import datetime, os, torch.distributed as dist\n"
        "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=1234), rank=0, world_size=1, store=dist.HashStore())\n"
        "from shoal.distributed.runtime import default_transport\n"
        "print(default_transport().limit)\n"
        "os.environ['SHOAL_TIMEOUT'] = '55'\n"
        "print(default_transport().limit)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=rank_environment()
    )
    assert ended.stdout.split() == ["1234.0", "55.0"]


@pytest.mark.parametrize(
    ("environment", "is_said"),
    [
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, True),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, True),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, False),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node1"}, False),  # restarted, or told by a rank
        ({}, False),
    ],
)
def test_launchers_that_end_all_ranks_have_the_command_that_resumes_said_first(
    environment: dict[str, str], is_said: bool
) -> None:
    said = note_resume(detect_launch(environment), Path("my runs/first"))
    resume = "if a rank is lost, start the ranks again with: shoal train --resume 'my runs/first'"
    assert said == (resume if is_said else None)
