"""Every file and every command that docs/extending.md shows works as it is shown, across ranks too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from launched_ranks import rank_environment

PAGE = Path(__file__).resolve().parents[1] / "docs/extending.md"
SECTIONS = PAGE.read_text().split("\n## ")[1:]


def list_blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@pytest.mark.parametrize("section", [s for s in SECTIONS if "```sh" in s], ids=lambda s: s.splitlines()[0])
def test_what_the_page_shows_runs(section, tmp_path):
    for code in list_blocks(section, "python"):
        assert len(code.splitlines()) <= 31, "a component is shown in at most 30 lines"
        name = re.match(r"# file: (\S+)\n", code)[1]
        (tmp_path / name).write_text(code)
    for number, line in enumerate("".join(list_blocks(section, "sh")).splitlines()):
        command = re.sub(r"^shoal ", f"{sys.executable} -m shoal ", line)
        if line.startswith("shoal train"):
            command += f" --out run-{number} --set training.eval_every=2"
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=rank_environment(SHOAL_HOME=str(tmp_path / "home")),
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        if line.startswith("shoal train"):
            assert "test accuracy" in done.stdout


def test_a_run_remembers_its_plugins(tmp_path):
    section = next(s for s in SECTIONS if s.startswith("A conv"))
    (tmp_path / "my_conv.py").write_text(list_blocks(section, "python")[0])
    (tmp_path / "elsewhere").mkdir()
    environment = rank_environment(SHOAL_HOME=str(tmp_path / "home"))

    def shoal(*args: str, cwd: Path) -> str:
        line = [sys.executable, "-m", "shoal", *args]
        done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shoal(
        *["train", "digits", "--plugin", "my_conv", "--model", "gin", "--epochs", "1", "--out", "run"],
        cwd=tmp_path,
    )
    shoal(*["train", "--resume", "../run", "--epochs", "2"], cwd=tmp_path / "elsewhere")
    assert "1,797 nodes" in shoal(*["predict", "../run", "-o", "labels.npy"], cwd=tmp_path / "elsewhere")
    listed = shoal(*["settings", "model", "gin", "--plugin", "../my_conv.py"], cwd=tmp_path / "elsewhere")
    assert "model.eps=0" in listed


def test_an_installed_package_offers_its_components(tmp_path):
    """An entry point of the group `shoal.plugins`, as pip leaves it beside the package."""
    section = next(s for s in SECTIONS if s.startswith("A conv"))
    (tmp_path / "my_conv.py").write_text(list_blocks(section, "python")[0])
    about = tmp_path / "my_conv-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-conv\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[shoal.plugins]\nconvs = my_conv\n")
    environment = rank_environment(SHOAL_HOME=str(tmp_path / "home"))
    environment["PYTHONPATH"] += f":{tmp_path}"
    line = [sys.executable, "-m", "shoal", "settings", "model", "gin"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=240)
    assert "model.eps=0" in done.stdout, done.stderr
