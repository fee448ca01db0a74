"""Commands that are killed before any of their changes to the disk go on to the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forked import FORKABLE
from launched_ranks import rank_environment
from patience import LONGEST, await_end


@pytest.mark.parametrize(
    ("jobs", "least"),
    [
        (("train", "import"), 30),
        pytest.param(
            ("repeat", "sharded", "resume", "overwrite", "partition", "predict"),
            150,
            marks=[pytest.mark.slow, pytest.mark.timeout(LONGEST)],
        ),
    ],
)
def test_every_crash_point_goes_on_to_the_same_bytes(
    tmp_path: Path, jobs: tuple[str, ...], least: int
) -> None:
    script = Path(__file__).with_name("crash_points.py")
    line = [sys.executable, str(script), str(tmp_path / "work"), *jobs]
    environment = rank_environment(**FORKABLE)
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        line, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    out, error = await_end(process)
    assert process.returncode == 0, error[-3000:]
    found = json.loads(out)
    assert sum(one["moments"] for one in found.values()) >= least
    wrong = [f"{name}, {one}" for name, result in found.items() for one in result["wrong"]]
    assert not wrong, "\n".join(wrong)
