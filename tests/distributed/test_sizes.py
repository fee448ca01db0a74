"""What ranks hold and send, at sizes where it matters: memory beside a rank's share, messages above 2 GiB."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launched_ranks import rank_environment, run_ranks

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SEND = """
import torch
from shoal.distributed.launch import joined_ranks
with joined_ranks() as transport:
    rows = torch.zeros((1 << 31) + 4099, dtype=torch.uint8)
    if transport.rank == 0:
        rows[::1 << 20] = 7
    exchange = transport.start({0: rows} if transport.rank else {})
    if transport.rank == 0:
        exchange.send(1, rows)
    for _ in exchange.arrivals():
        pass
    exchange.finish()
    assert bool((rows[::1 << 20] == 7).all())
    assert int(torch.count_nonzero(rows[-1000:])) == 0
    transport.barrier()
"""


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_messages_above_two_gigabytes_arrive_whole(transport):
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8e9:
        pytest.skip("needs 8 GB of memory")
    run_ranks(2, "-c", SEND, transport=transport).check()


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
