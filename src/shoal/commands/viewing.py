"""Live view and report of `shoal train`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.commands.screen import Screen

_RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SHOAL_JOB")
_ROOM = 120 << 20  # bytes that drawing a report takes
_HANDOVER = 10.0  # seconds until the view of a lost run has released its port


@contextmanager
def live_view(folder: Path, port: int, console: Screen) -> Iterator[None]:
    """Show the run in `folder` on this machine while the block runs, from a separate process of low priority.

    A view that cannot be opened is a notice, not an error: `shoal train` checks the port before it starts.
    """
    try:
        viewer = _start_viewer(folder, port, console)
    except Exception as error:
        console.notice(f"no live view: {error}")
        yield
        return
    try:
        yield
    finally:
        assert viewer.stdin is not None
        with suppress(OSError):
            viewer.stdin.close()  # the viewer exits once an open browser has the last state
        try:
            viewer.wait(timeout=10)
        except subprocess.TimeoutExpired:
            viewer.kill()
            viewer.wait()


def _start_viewer(folder: Path, port: int, console: Screen) -> subprocess.Popen[bytes]:
    """Start the process that draws and serves the page. After a restart, the old view may hold the port for a while."""
    from shoal.report.live import address_of, open_door

    with open_door(port, patience=_HANDOVER) as door:
        handle = door.fileno()
        line = [sys.executable, "-m", "shoal", "report", str(folder), "--watch", "--socket", str(handle)]
        environment = {key: value for key, value in os.environ.items() if key not in _RANK_VARIABLES}
        environment |= {"OMP_NUM_THREADS": "1", "SHOAL_THREADS": "1"}
        viewer = subprocess.Popen(
            line,
            env=environment,
            pass_fds=[handle],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        console.say(f"live view: {address_of(door)}")
    return viewer


def write_report(folder: Path, console: Screen) -> None:
    """Write a run's page into its folder and print its path. A failure is a notice, not an error."""
    from shoal.memory import given_budget, memory_left
    from shoal.report.svg import has_matplotlib
    from shoal.runs.folder import PAGE

    if not has_matplotlib():
        console.say("report: `pip install 'shoal[report]'` adds a page that shows the run")
        return
    if given_budget() is not None and memory_left() < _ROOM:
        console.say(f"report: `shoal report {folder}` writes it, outside this run's --memory")
        return
    try:
        from shoal.report.page import write_page

        write_page([folder], folder / PAGE)
    except Exception as error:
        console.notice(f"no report was written: {type(error).__name__}: {error}")
    else:
        console.say(f"report: {folder / PAGE}")
