"""The tables of settings in the docs are those that the components declare."""

import subprocess
from pathlib import Path

import pytest

from shoal.commands.components import fill_tables, list_kinds

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_of_settings_are_current(page):
    assert fill_tables(page.read_text()) == page.read_text(), "run `make tables`"


def test_every_setting_says_what_it_means():
    for kind, components in list_kinds().items():
        for name, (summary, settings) in components().items():
            assert summary or kind == "metric", f"{kind} {name} has no docstring"
            for setting in settings.values():
                assert len(setting.meaning) > 5, f"{kind} {name}.{setting.name}"


def test_setup_says_that_it_takes_long_before_it_installs():
    wanted = ["make", "-n", "--always-make", "--no-print-directory", "demo"]  # `make test` may run this
    steps = subprocess.run(wanted, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    said = next(k for k, step in enumerate(steps) if step.startswith('echo "installing torch'))
    assert said < next(k for k, step in enumerate(steps) if "pip install" in step)
    assert steps[-1].endswith("shoal demo")
