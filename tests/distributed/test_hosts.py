"""Real ranks on hosts of their own: network namespaces joined by links of a stated rate."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from hosts import why_not  # noqa: E402


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("rate", ["100mbit", "1gbit"])
def test_point_to_point_beats_broadcast_between_hosts(rate, tmp_path):
    missing = why_not()
    if missing is not None:
        pytest.skip(missing)
    told = tmp_path / "results.json"
    command = [sys.executable, str(BENCHMARKS / "bench_distributed.py"), "hosts", "--graph", "grid:20000"]
    command += ["--epochs", "6", "--rates", rate, "--json", str(told)]
    subprocess.run(command, check=True, timeout=1200)
    ours, random, broadcast = json.loads(told.read_text())
    assert ours["bytes"] < random["bytes"] < broadcast["bytes"]
    assert ours["communication"] < random["communication"] < broadcast["communication"]
    if rate == "100mbit":
        assert broadcast["epoch"] > 5 * ours["epoch"]
        for result in (random, broadcast):  # where bytes decide, not how soon a busy machine wakes a rank
            assert 0.7 < result["predicted"] / result["communication"] < 1.3


def test_ended_benchmarks_leave_no_namespaces():
    missing = why_not()
    if missing is not None:
        pytest.skip(missing)
    code = "from hosts import network_hosts\nwith network_hosts(2, '100mbit'):\n print('made', flush=True)\n input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=BENCHMARKS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "made\n"
        assert any(f"sh{process.pid % 100000}n" in name for name in os.listdir("/run/netns"))
        process.terminate()
        assert process.wait(timeout=60) == 143
    assert not any(f"sh{process.pid % 100000}n" in name for name in os.listdir("/run/netns"))
    assert not any(name.startswith(f"sh{process.pid % 100000}") for name in os.listdir("/sys/class/net"))
