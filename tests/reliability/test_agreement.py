"""Ranks that disagree on what they can read go back together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from kills import MOST_GROWTH, find_growth
from safetensors.numpy import load_file
from test_lost_ranks import SETTINGS

from live_ranks import RankPool
from rank_runs import train_run


def test_all_ranks_go_back_where_one_cannot_read_its_own_file(ranks: RankPool, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SETTINGS, "partition": {"method": "block", "staleness": 1}}
    settings["training"] = {**SETTINGS["training"], "epochs": 6}  # type: ignore[dict-item]
    pair = ranks("gloo", 2)
    assert pair.call(train_run, settings, str(tmp_path / "run")) == [0, 6]
    newest = max(
        (tmp_path / "run/checkpoints").glob("halo-*-1.safetensors"),
        key=lambda path: int(path.name.split("-")[1]),
    )
    newest.write_bytes(newest.read_bytes()[:-1])
    assert pair.call(train_run, {}, str(tmp_path / "run"), 12) == [5, 12]
    assert pair.call(train_run, settings, str(tmp_path / "straight")) == [0, 6]
    assert pair.call(train_run, {}, str(tmp_path / "straight"), 12) == [6, 12]
    ours, theirs = (load_file(tmp_path / one / "checkpoints/last.safetensors") for one in ("run", "straight"))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[key], theirs[key]) for key in ours)


def test_growth_is_found_and_noise_is_not() -> None:
    flat = [
        {"bytes": 10**9 + (i % 3) * 10**6, "threads": 4, "descriptors": 9, "temporary files": 1}
        for i in range(12)
    ]
    assert find_growth(flat) == []
    assert find_growth([{**flat[0], "bytes": 0, "threads": 1}, *flat]) == []  # before it has settled
    for name in MOST_GROWTH:
        leaking = [{**one, name: one[name] + i * (10 << 20)} for i, one in enumerate(flat)]
        assert [said.partition(":")[0] for said in find_growth(leaking)] == [name]
