"""What several tests share: the command line with a home of its own, the folder of real graphs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Run
from shoal.cli import main


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
    return {**kept, "SHOAL_HOME": str(tmp_path / "home"), "no_proxy": "127.0.0.1", "PYTHONWARNINGS": "error"}


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


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real graphs: $SHOAL_DATA, else ../shared/data beside the repository; skips without it."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("SHOAL_DATA", root / "../shared/data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no real graphs in {folder}")
    return folder
