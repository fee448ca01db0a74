"""The run token: a secret by which the ranks of a run authenticate each other."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from shoal.distributed.detect import TOKEN
from shoal.distributed.transport import LAST_WORD
from shoal.errors import ShoalError
from shoal.home import home_folder

MESSAGE = hashlib.sha256().digest_size  # bytes of a proof
_LEAST = 16  # characters of a token
_HELD = "held"  # what every rank writes, signed if it holds a token


class TokenError(ShoalError):
    """A peer does not hold the run token; `transport` reports the error to the other ranks."""

    transport: Any = None


def read_token(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """SHOAL_TOKEN, or the file `token` in Shoal's home, created at first use; None if it cannot be created."""
    path = home_folder() / "token"
    text, where = environment.get(TOKEN), TOKEN
    if text is None:
        text, where = _read_file(path), str(path)
    if text is not None and len(text) < _LEAST:
        raise ShoalError(f"{where} has {len(text)} characters: a run token has at least {_LEAST}")
    return None if text is None else text.encode()


def _read_file(path: Path) -> str | None:
    with suppress(OSError):
        if not path.exists():
            _make_file(path)
    try:
        with open(path) as file:
            found = os.fstat(file.fileno())
            if found.st_mode & 0o077:
                raise ShoalError(f"others can read the run token {path}: chmod 600 {path}")
            return file.read().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ShoalError(
            f"the run token {path} cannot be read ({error}): set {TOKEN}, or remove it"
        ) from None


def _make_file(path: Path) -> None:
    """Create the token file atomically, readable by its owner only; a file that another rank created meanwhile is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, beside = tempfile.mkstemp(prefix=".token.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(number, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        os.unlink(beside)


def sign(token: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 of the parts, each prefixed with its length, under the token."""
    content = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hmac.digest(token, content, "sha256")


class SignedStore(Store):
    """A store whose values carry an HMAC of key and value: values that no rank of the run wrote are refused."""

    def __init__(self, store: Any, token: bytes) -> None:
        super().__init__()
        self._held, self._token = store, token

    def set(self, key: str, value: str | bytes) -> None:
        content = value.encode() if isinstance(value, str) else bytes(value)
        self._held.set(key, sign(self._token, key.encode(), content) + content)

    def get(self, key: str) -> bytes:
        found = self._held.get(key)
        content = found[MESSAGE:]
        if not hmac.compare_digest(found[:MESSAGE], sign(self._token, key.encode(), content)):
            raise TokenError(f"{key} in the ranks' store was not written by a rank of this run")
        return bytes(content)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        if timeout is None:
            self._held.wait(keys)
        else:
            self._held.wait(keys, timeout)

    def check(self, keys: list[str]) -> bool:
        return bool(self._held.check(keys))

    def add(self, key: str, amount: int) -> int:
        return int(self._held.add(key, amount))

    def set_timeout(self, timeout: timedelta) -> None:
        self._held.set_timeout(timeout)


def check_tokens(store: Any, rank: int, size: int, limit: timedelta) -> None:
    """Raise if ranks hold other tokens, naming them, before any of their values is used.

    `store` is signed if this rank holds a token; ranks with one and ranks without refuse each other.
    """
    store.set(f"token/{rank}", _HELD)
    store.wait([f"token/{q}" for q in range(size)], limit)
    strange = []
    for q in range(size):
        try:
            is_same = store.get(f"token/{q}") == _HELD.encode()
        except TokenError:
            is_same = False
        if not is_same:
            strange.append(q)
    if not strange:
        return
    store.set(f"read/{rank}", "")
    if rank == 0:  # the store is in this process
        with suppress(RuntimeError, ValueError):
            store.wait([f"read/{q}" for q in range(size)], timedelta(seconds=LAST_WORD))
    who = f"rank{'s' if len(strange) > 1 else ''} {', '.join(map(str, strange))}"
    raise TokenError(
        f"{who} and rank {rank} hold different run tokens: set {TOKEN} to the same secret on all hosts, "
        f"or copy {home_folder() / 'token'} from one host to the others"
    )


def notice_no_token(size: int) -> None:
    """Print that the ranks hold no token, and what to do."""
    print(
        f"notice: {size} ranks hold no run token, because {home_folder()} cannot be written: whoever reaches their "
        f"ports can take part; set {TOKEN} to the same secret on all hosts",
        file=sys.stderr,
        flush=True,
    )


def check_connections(token: bytes, rank: int, size: int, limit: timedelta) -> None:
    """Authenticate the peer of every gloo connection: it holds the token and is the rank that it claims to be.

    Gloo has a connection to every rank on each of its interfaces.
    """
    for tag in range(os.environ.get("GLOO_SOCKET_IFNAME", "").count(",") + 1):
        for q in find_strangers(token, rank, size, lambda messages, tag=tag: _swap(messages, tag, limit)):  # type: ignore[misc]
            raise TokenError(f"the connection to rank {q} is a stranger's: it does not hold the run's token")


def find_strangers(
    token: bytes, rank: int, size: int, swap: Callable[[dict[int, bytes]], dict[int, bytes]]
) -> list[int]:
    """Ranks that fail a challenge-response under the token. Every rank challenges, and answers, all others.

    `swap` sends every peer a message of `MESSAGE` bytes, and receives one from each.
    """
    peers = [q for q in range(size) if q != rank]
    challenge = secrets.token_bytes(MESSAGE)
    asked = swap(dict.fromkeys(peers, challenge))
    answers = swap({q: sign(token, b"%d to %d" % (rank, q), asked[q], challenge) for q in peers})
    expected = {q: sign(token, b"%d to %d" % (q, rank), challenge, asked[q]) for q in peers}
    return [q for q in peers if not hmac.compare_digest(answers[q], expected[q])]


def _swap(messages: dict[int, bytes], tag: int, limit: timedelta) -> dict[int, bytes]:
    """Send every peer a message of `MESSAGE` bytes, and receive one from each."""
    received = {q: torch.zeros(MESSAGE, dtype=torch.uint8) for q in messages}
    sent = {q: torch.frombuffer(bytearray(content), dtype=torch.uint8) for q, content in messages.items()}
    works: list[Any] = [dist.irecv(into, q, tag=tag) for q, into in received.items()]
    works += [dist.isend(content, q, tag=tag) for q, content in sent.items()]
    for work in works:
        work.wait(limit)
    return {q: into.numpy().tobytes() for q, into in received.items()}
