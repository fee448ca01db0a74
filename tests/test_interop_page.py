"""Every Python block of docs/interop.md runs, one after the other, and what it says of the result is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs/interop.md"


def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    pytest.importorskip("torch_geometric")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)):
        exec(compile(code, f"block {number} of {PAGE.name}", "exec"), names)
    assert names["by_pyg"] > 0.8
    assert names["by_shoal"] > 0.8
    assert names["trainer"].evaluate("test")["accuracy"] > 0.8
    assert len(names["row"]) == names["graph"].num_entries
