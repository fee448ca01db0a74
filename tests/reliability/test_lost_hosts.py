"""torchrun on two hosts of which one is lost and comes back: the run goes on and ends with the same weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_lost_ranks import COMMAND, SETTINGS, await_checkpoint, check_same, find_ranks, finish

from hosts import run_inside
from launched_ranks import rank_environment
from live_ranks import RankPool
from patience import LONGEST
from rank_runs import train_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LONGEST)]


class Hosts:
    """Two hosts, and torchrun on each."""

    def __init__(self, names: list[str], folder: Path) -> None:
        self.names, self.folder = names, folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, number: int, **settings: str) -> subprocess.Popen[str]:
        """torchrun on a host, with one rank; the first host keeps the rendezvous."""
        environment = rank_environment(GLOO_SOCKET_IFNAME="eth0", SHOAL_TIMEOUT="60", **settings)
        meeting = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29400", "--rdzv-id", "lost-host")
        known = ("--rdzv-conf", f"is_host={int(number == 0)}", "--local-addr", f"10.77.0.{number + 1}")
        ranks = ("--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3")
        torchrun = (sys.executable, "-m", "torch.distributed.run", *meeting, *known, *ranks)
        line = run_inside(self.names[number], *torchrun, "-m", "shoal", *COMMAND, "--out", str(self.folder))
        pipe = subprocess.PIPE
        self.started.append(
            subprocess.Popen(
                line, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
            )
        )
        return self.started[-1]

    def close(self) -> None:
        for agent in self.started:
            if agent.poll() is None:
                lose(agent)


@pytest.fixture
def hosts(two_hosts: list[str], tmp_path: Path) -> Iterator[Hosts]:
    found = Hosts(two_hosts, tmp_path / "run")
    yield found
    found.close()


def lose(agent: subprocess.Popen[str]) -> None:
    """Kill all that runs on a host at once."""
    ranks = find_ranks(agent)
    os.kill(agent.pid, signal.SIGKILL)
    for rank in ranks:
        rank.kill()
    agent.communicate()


@pytest.fixture(scope="module")
def undisturbed(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    ranks("gloo", 2).call(train_run, SETTINGS, str(folder))
    return folder


def check_ended(agents: list[subprocess.Popen[str]]) -> None:
    for agent in agents:
        code, _, error = finish(agent)
        assert code == 0, error[-5000:]


def test_a_host_that_comes_back_joins_and_the_run_goes_on(hosts: Hosts, undisturbed: Path) -> None:
    fresh = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    first, second = (hosts.start(number, **fresh) for number in (0, 1))
    await_checkpoint(hosts.folder, first)
    lose(second)
    check_ended([first, hosts.start(1, **fresh)])
    check_same(hosts.folder, undisturbed)


def test_the_same_commands_go_on_after_the_host_of_the_rendezvous_was_lost(
    hosts: Hosts, undisturbed: Path
) -> None:
    first, second = (hosts.start(number) for number in (0, 1))
    await_checkpoint(hosts.folder, first)
    lose(first)
    code, _, error = finish(second)
    assert code != 0, error
    check_ended([hosts.start(number) for number in (0, 1)])
    check_same(hosts.folder, undisturbed)


def test_a_rank_lost_on_one_host_starts_again_on_both(hosts: Hosts, undisturbed: Path) -> None:
    agents = [hosts.start(number) for number in (0, 1)]
    await_checkpoint(hosts.folder, agents[0])
    find_ranks(agents[1])[0].kill()
    check_ended(agents)
    check_same(hosts.folder, undisturbed)
