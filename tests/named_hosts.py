"""Hosts called node1, node2, …: network namespaces with names of their own, that know each other by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hosts import network_hosts, run_inside, why_not
from launched_ranks import rank_environment
from patience import STILL, await_end

# The name and the table of hosts are seen by what runs there and by nothing else.
ENTER = 'echo "$1" > /proc/sys/kernel/hostname; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'


class NamedHosts:
    """Hosts that share `folder`."""

    def __init__(self, spaces: list[str], folder: Path) -> None:
        self.folder = folder
        self.spaces = {f"node{k + 1}": space for k, space in enumerate(spaces)}
        lines = [f"10.77.0.{k + 1} {name}" for k, name in enumerate(self.spaces)]
        self.table = folder / "hosts"
        self.table.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin"
        self.environment = rank_environment(PATH=paths, SHOAL_HOME=str(folder / "home"))
        del self.environment["GLOO_SOCKET_IFNAME"], self.environment["SHOAL_TOKEN"]  # hosts share a home
        self.started: list[subprocess.Popen[str]] = []

    def line(self, host: str, *command: str) -> list[str]:
        """The command line that runs `command` on a host."""
        enter = ("unshare", "--uts", "--mount", "sh", "-c", ENTER, "sh", host, str(self.table))
        return run_inside(self.spaces[host], *enter, *command)

    def start(
        self, host: str, command: str, folder: Path | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        """A command in the shell of a host."""
        process = subprocess.Popen(
            self.line(host, "sh", "-c", command),
            cwd=folder or self.folder,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(
        self,
        command: str,
        hosts: Sequence[str],
        folder: Path | None = None,
        still: float = STILL,
        **variables: str,
    ) -> list[str]:
        """What a command writes on each of some hosts, all at once; it must succeed on all.

        A command whose work others do, such as Slurm's daemons, may be `still` for long.
        """
        started = [self.start(host, command, folder, **variables) for host in hosts]
        texts = [await_end(process, still)[0] for process in started]
        assert not any(process.returncode for process in started), "\n".join(texts)
        return texts

    def end(self) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@contextmanager
def named_hosts(count: int, folder: Path) -> Iterator[NamedHosts]:
    """`count` hosts joined by links of 1 Gbit/s; skips where none can be made."""
    missing = why_not()
    if missing is not None:
        pytest.skip(missing)
    with network_hosts(count, "1gbit") as spaces:
        hosts = NamedHosts(spaces, folder)
        try:
            yield hosts
        finally:
            hosts.end()
