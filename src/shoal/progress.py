"""Progress of long work: the code that works reports it, a watcher shows it.

with watching(show):  # show(what, done, total)
    ...               # follow_work("edges", 1_000_000, 5_000_000) somewhere below
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Follow: TypeAlias = Callable[[str, int, int], None]  # what is done, how much of it, of how much

_watchers: list[Follow] = []


@contextmanager
def watching(follow: Follow | None) -> Iterator[None]:
    """Call `follow` with the progress of all work in the block; None: no watcher."""
    if follow is None:
        yield
        return
    _watchers.append(follow)
    try:
        yield
    finally:
        _watchers.remove(follow)


def follow_work(what: str, done: int, total: int) -> None:
    """Report how far `what` is to the watcher, if there is one."""
    if _watchers:
        _watchers[-1](what, done, total)
