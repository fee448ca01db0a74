"""What ranks hold and send, at sizes where it matters: memory beside a rank's share, messages above 2 GiB."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rank_jobs
from launched_ranks import rank_environment

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_messages_above_two_gigabytes_arrive_whole(transport, ranks):
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8e9:
        pytest.skip("needs 8 GB of memory")
    ranks(transport, 2).call(rank_jobs.send_two_gigabytes)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ranks_hold_their_rows_and_halo_and_no_more(tmp_path):
    told = tmp_path / "results.json"
    command = [sys.executable, BENCHMARKS / "bench_distributed.py", "--graph", "grid:60000", "--rounds", "1"]
    subprocess.run(
        [*command, "--epochs", "4", "--json", told], check=True, timeout=800, env=rank_environment()
    )
    for result in json.loads(told.read_text()):
        assert max(result["memory_over_share"]) < 1.2
