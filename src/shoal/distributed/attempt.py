"""Rendezvous in a store that outlives ranks: torchrun's keeps the keys of lost ranks when it restarts them."""

from __future__ import annotations

import secrets
import time
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore

_PAUSE = 0.05  # seconds between polls


def begin_attempt(store: Any, rank: int, size: int, limit: timedelta) -> Any:
    """A prefix of `store` that only the ranks of this attempt use; a RuntimeError names ranks that did not come.

    Restart counts may differ between hosts, so rank 0 draws a name for the attempt. It sends the name to each rank under
    a number that the rank has drawn: keys of an earlier attempt answer no new number.
    """
    own = secrets.token_hex(8)
    if rank != 0:
        store.set(f"came/{rank}", own)
        store.wait([f"attempt/{rank}/{own}"], limit)
        attempt = store.get(f"attempt/{rank}/{own}").decode(errors="replace")
        store.set(f"met/{attempt}/{rank}", "")
        return PrefixStore(f"attempt {attempt}", store)
    deadline = time.monotonic() + limit.total_seconds()
    answered = dict.fromkeys(range(1, size), "")
    while answered:
        for q, before in list(answered.items()):
            if store.check([f"met/{own}/{q}"]):
                del answered[q]
            elif store.check([f"came/{q}"]):
                number = store.get(f"came/{q}").decode(errors="replace")
                if number != before:
                    store.set(f"attempt/{q}/{number}", own)
                    answered[q] = number
        if answered and time.monotonic() > deadline:
            raise RuntimeError(f"rank {', '.join(map(str, answered))} did not come")
        time.sleep(_PAUSE if answered else 0)
    return PrefixStore(f"attempt {own}", store)
