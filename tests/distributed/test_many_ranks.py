"""More ranks than cores, again and again: nothing waits for ever."""

import json
from dataclasses import asdict

import numpy as np
import pytest

import rank_jobs
from launched_ranks import run_ranks
from rank_jobs import Job, assign_nodes, make_graph


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_eight_ranks_on_few_cores_finish_twenty_times_in_a_row(tmp_path):
    jobs = [
        Job("gcn", epochs=10),
        Job("gat", norm="batch", epochs=5),
        Job("sage", exchange="broadcast", epochs=5),
    ]
    np.save(tmp_path / "random-False-8.npy", assign_nodes(jobs[0], make_graph(jobs[0]), 8))
    (tmp_path / "jobs.json").write_text(json.dumps([asdict(job) for job in jobs]))
    for number in range(20):
        transport = ("gloo", "mpi")[number % 2]
        run_ranks(8, rank_jobs.__file__, tmp_path, transport=transport, limit=170).check()
