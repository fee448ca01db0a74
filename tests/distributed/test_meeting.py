"""Where ranks meet: rank 0's store listens on the address that MASTER_ADDR means, a name included."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import TCPStore

from hosts import run_inside
from launched_ranks import free_port, rank_environment, run_ranks
from patience import await_end, slow
from shoal.distributed.attempt import begin_attempt
from shoal.distributed.transports.gloo import find_addresses

MEET = """
import json, os, psutil
from shoal.distributed.launch import joined_ranks
with joined_ranks() as transport:
    found = psutil.Process().net_connections("inet")
    ports = {one.laddr.port: one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN}
    print(json.dumps(ports.get(int(os.environ["MASTER_PORT"]))))
    transport.barrier()
"""


def meet(hosts: list[str], known: list[str], folder: Path) -> list[str | None]:
    """Ranks on two hosts meet at `first.test`, which means `known` there; where each listens for others."""
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "first.test", "MASTER_PORT": "29541"}
    started = []
    for rank, (host, address) in enumerate(zip(hosts, known)):
        names = folder / f"hosts-{rank}"
        names.write_text(f"127.0.0.1 localhost\n{address} first.test\n")
        # a namespace of `ip netns` has mounts of its own
        mounted = ("sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(names))
        line = run_inside(host, *mounted, sys.executable, "-c", MEET)
        about = {"RANK": str(rank), "GLOO_SOCKET_IFNAME": "eth0", "SHOAL_TIMEOUT": "120"}
        pipe, environment = subprocess.PIPE, rank_environment(**meeting, **about)
        started.append(
            subprocess.Popen(
                line, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
            )
        )
    ended = [(process, *await_end(process)) for process in started]
    for process, _, error in ended:
        assert process.returncode == 0, error
    return [json.loads(out) for _, out, _ in ended]


def test_the_store_listens_on_the_address_that_a_name_means(two_hosts: list[str], tmp_path: Path) -> None:
    assert meet(two_hosts, ["10.77.0.1", "10.77.0.1"], tmp_path) == ["10.77.0.1", None]


@slow
def test_hosts_meet_where_the_first_knows_itself_by_a_loopback_address(
    two_hosts: list[str], tmp_path: Path
) -> None:
    first, other = meet(two_hosts, ["127.0.1.1", "10.77.0.1"], tmp_path)
    assert first in ("::", "0.0.0.0")  # no other address is known
    assert other is None


def test_at_localhost_the_store_is_not_reached_from_elsewhere() -> None:
    ended = run_ranks(2, "-c", MEET, MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
    ended.check()
    assert json.loads(ended.texts[0]) == "127.0.0.1"


def test_ranks_that_start_again_meet_in_a_store_that_holds_what_lost_ones_said() -> None:
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)

    def begin(rank: int) -> Any:
        store = TCPStore("127.0.0.1", server.port, None, False)
        return begin_attempt(store, rank, 3, timedelta(seconds=60))

    with ThreadPoolExecutor(3) as pool:
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
            coming = list[Future[Any]]()
            for rank in order:
                coming.append(pool.submit(begin, rank))
                time.sleep(0.2)
            stores = [one.result() for one in coming]
            assert not any(one.check(["a"]) for one in stores)  # nothing of an earlier attempt
            stores[0].set("a", f"{order}")
            assert {one.get("a") for one in stores} == {f"{order}".encode()}
            first, _ = (pool.submit(begin, rank) for rank in (0, 2))
            time.sleep(0.5)
            assert not first.done()  # what rank 1 said is old
            begin(1)


def test_a_rank_that_does_not_come_is_named() -> None:
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    with pytest.raises(RuntimeError, match="rank 1, 2 did not come"):
        begin_attempt(server, 0, 3, timedelta(seconds=0.3))


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("localhost", ["127.0.0.1"]),
        ("10.1.2.3", ["10.1.2.3"]),
        ("::1", ["::1"]),
        ("no-such-host.invalid", []),
        ("a..b", []),
        ("x" * 300, []),
    ],
)
def test_addresses_of_a_host(host: str, addresses: list[str]) -> None:
    assert find_addresses(host) == addresses
