"""The run token: ranks with another one, strangers in the store and strangers on connections take no part."""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch.distributed as dist
from safetensors.numpy import load_file

from launched_ranks import Ended, run_ranks
from live_ranks import LiveRanks, RankPool
from rank_runs import train_run
from shoal.distributed.token import SignedStore, TokenError, read_token
from shoal.errors import ShoalError

MEET = """
import os
from shoal.distributed.detect import detect_launch
from shoal.distributed.launch import joined_ranks
rank = detect_launch().rank
{first}
with joined_ranks() as transport:
    transport.barrier()
"""

# rank 1 has the place of a rank, and knows all that is said, but not the token with which challenges are answered
STRANGER = """
import shoal.distributed.token as token
own = token.check_connections
if rank == 1:
    import shoal.distributed.transports.gloo as gloo
    gloo.check_connections = lambda held, *others: own(b"guessed", *others)
"""


def meet(first: str, **settings: str) -> Ended:
    """Two ranks that meet after doing something `first`; how they ended."""
    return run_ranks(2, "-c", MEET.format(first=first), SHOAL_TIMEOUT="60", **settings)


def test_a_rank_with_another_token_is_named_and_no_data_is_used() -> None:
    ended = meet("os.environ['SHOAL_TOKEN'] += str(rank)")
    assert ended.codes == [2, 2]
    assert "rank 1 and rank 0 hold different run tokens: set SHOAL_TOKEN" in ended.texts[0]
    assert "rank 0 and rank 1 hold different run tokens" in ended.texts[1]


def test_the_other_end_of_a_connection_proves_that_it_holds_the_token() -> None:
    ended = meet(STRANGER)
    assert ended.codes[0] == 2
    assert "the connection to rank 1 is a stranger's" in ended.texts[0]


def test_ranks_of_mpi_prove_the_token_that_they_were_given() -> None:
    began = time.monotonic()
    ended = meet("os.environ['SHOAL_TOKEN'] += str(rank)", transport="mpi")
    assert ended.codes == [2]
    assert "hold different run tokens: give all ranks the same SHOAL_TOKEN" in ended.texts[0]
    ended = meet("if rank == 1: del os.environ['SHOAL_TOKEN']", transport="mpi")
    assert ended.codes == [2]
    assert "rank 1 and rank 0 hold different run tokens" in ended.texts[0]
    assert time.monotonic() - began < 60  # nobody waited for the limit


def test_ranks_of_mpi_without_a_token_trust_their_launcher() -> None:
    meet("del os.environ['SHOAL_TOKEN']", transport="mpi").check()


def test_hosts_that_share_a_home_need_no_setting(tmp_path: Path) -> None:
    ended = meet("del os.environ['SHOAL_TOKEN']", SHOAL_HOME=str(tmp_path / "home"))
    ended.check()
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["token"]


def test_ranks_without_a_token_say_so_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # a home that nobody can make
    ended = meet("del os.environ['SHOAL_TOKEN']", SHOAL_HOME=str(tmp_path / "file"))
    ended.check()
    assert (
        f"notice: 2 ranks hold no run token, because {tmp_path / 'file'} cannot be written" in ended.texts[0]
    )
    assert "set SHOAL_TOKEN to the same secret on all hosts" in ended.texts[0]
    assert "notice" not in ended.texts[1]


@pytest.mark.parametrize("without", [0, 1])
def test_ranks_with_a_token_refuse_one_without_at_once(tmp_path: Path, without: int) -> None:
    (tmp_path / "file").touch()
    began = time.monotonic()
    ended = meet(f"if rank == {without}: del os.environ['SHOAL_TOKEN']", SHOAL_HOME=str(tmp_path / "file"))
    assert ended.codes == [2, 2]
    assert "rank 1 and rank 0 hold different run tokens: set SHOAL_TOKEN" in ended.texts[0]
    assert "rank 0 and rank 1 hold different run tokens" in ended.texts[1]
    assert time.monotonic() - began < 60  # nobody waited for the limit


def test_values_of_strangers_are_refused() -> None:
    plain = dist.HashStore()
    store = SignedStore(plain, b"secret")
    store.set("a", "1")
    assert store.get("a") == b"1"
    plain.set("b", plain.get("a"))  # a rank's, but under another name
    plain.set("c", "1")
    plain.set("d", secrets.token_bytes(40))
    for key in "bcd":
        with pytest.raises(TokenError, match=f"^{key} in the ranks' store was not written by a rank"):
            store.get(key)
    with pytest.raises(TokenError):
        SignedStore(plain, b"another").get("a")


def test_the_file_is_made_once_and_is_its_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOAL_TOKEN", raising=False)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    token, path = read_token(), tmp_path / "home/token"
    assert token is not None
    assert len(token) == 64
    assert read_token() == token
    assert os.listdir(tmp_path / "home") == ["token"]
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(ShoalError, match="others can read the run token"):
        read_token()
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(ShoalError, match="has 5 characters: a run token has at least 16"):
        read_token()
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(ShoalError, match="cannot be read"):
        read_token()
    monkeypatch.setenv("SHOAL_TOKEN", "another secret, long")
    assert read_token() == b"another secret, long"
    monkeypatch.delenv("SHOAL_TOKEN")
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "file"))
    assert read_token() is None


def disturb(processes: list[psutil.Process]) -> int:
    """Connect to every port on which the processes listen, say what nobody understands, and change the store."""
    ports = {
        one.laddr.port
        for process in processes
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    }
    for port in ports:
        for said in (b"", b"\0" * 8, b"GET / HTTP/1.1\r\n\r\n", secrets.token_bytes(1000), b"\xff" * 8):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as door:
                door.sendall(said)
    meeting = int(processes[0].environ()["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", meeting, timeout=timedelta(seconds=20), wait_for_workers=False)
    for rank in range(2):
        store.set(f"shoal/stopped/{rank}", '{"reason": "a stranger says so"}')
        store.set(f"default_pg/0//cpu//0/{rank}", secrets.token_bytes(170))
    for key in store.list_keys():
        store.delete_key(key)
    return len(ports)


def test_strangers_who_connect_change_nothing(ranks: RankPool, tmp_path: Path) -> None:
    settings = {"data": "digits", "method": "partitioned", "model": {"hidden": 8}}
    settings |= {"partition": {"method": "block"}, "training": {"epochs": 10}}
    disturbed = LiveRanks("gloo", 2)
    try:
        here = [psutil.Process(process.pid) for process in disturbed._started]
        found = [one for process in here for one in process.net_connections("inet")]
        listening = [one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN]
        assert set(listening) == {"127.0.0.1"}  # which they were given
        assert disturb(here) >= 3  # the store, and gloo's on every rank
        disturbed.call(train_run, settings, str(tmp_path / "disturbed"))
        disturb(here)
        disturbed.end()
    finally:
        disturbed.kill()
    ranks("gloo", 2).call(train_run, settings, str(tmp_path / "quiet"))
    ours, theirs = (
        load_file(tmp_path / name / "checkpoints/last.safetensors") for name in ("disturbed", "quiet")
    )
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
