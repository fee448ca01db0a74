"""What several tests share: the command line with a home of its own, ranks that stay alive, the folder of real graphs."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import Run
from hosts import network_hosts, why_not
from live_ranks import RankPool
from shoal.cli import main


def find_group(nodeid: str) -> str:
    """Tests of a group are run by one worker: those of a file, all that share live ranks; a command's by itself."""
    file = nodeid.split("::")[0]
    if "test_extending" in file:
        return nodeid
    return "ranks" if "distributed/" in file or "ranks" in file else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side, with `-n 2`. (xdist's own groups do not reach it under pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return find_group(nodeid)

    return GroupScheduling(config, log)


gc.set_threshold(50_000)  # as commands have it: compiling kernels makes objects by the million


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, so that what is left at the end is small."""
    order = {"ranks": 0}
    items.sort(key=lambda item: order.get(group := find_group(item.nodeid), 1 if "::" in group else 2))


os.environ.setdefault("SHOAL_REPORT", "0")  # a page a run would take longer than most of the tests' runs
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of many processes would compile sources


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
    return {
        **kept,
        "SHOAL_HOME": str(tmp_path / "home"),
        "SHOAL_REPORT": "0",
        "no_proxy": "127.0.0.1",
        "PYTHONWARNINGS": "error",
    }


@pytest.fixture
def shoal(
    tmp_path: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Run]:
    """The command line, run in this process."""
    monkeypatch.chdir(tmp_path)
    for variable in ("SHOAL_DATA", "SHOAL_MIRROR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SHOAL_HOME", environment["SHOAL_HOME"])

    def run(*args: object, **settings: str) -> Run:
        with monkeypatch.context() as patch:
            for variable, value in settings.items():
                patch.setenv(variable, value)
            with pytest.raises(SystemExit) as done:
                main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Run(int(done.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def two_hosts() -> Iterator[list[str]]:
    """Network namespaces of two hosts, joined by a link of 1 Gbit/s; skips where none can be made."""
    missing = why_not()
    if missing is not None:
        pytest.skip(missing)
    with network_hosts(2, "1gbit") as names:
        yield names


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """`ranks("gloo", 3).call(function, *arguments)` runs a job on real ranks that stay alive from test to test."""
    pool = RankPool()
    yield pool
    pool.end()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real graphs: $SHOAL_DATA, else ../shared/data beside the repository; skips without it."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("SHOAL_DATA", root / "../shared/data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no real graphs in {folder}")
    return folder
