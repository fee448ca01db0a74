"""More ranks than cores, again and again: nothing waits for ever."""

from dataclasses import asdict

import pytest

from live_ranks import LiveRanks
from rank_jobs import Job, assign_nodes, make_graph, train_here


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_eight_ranks_on_few_cores_finish_twenty_times_in_a_row():
    jobs = [
        Job("gcn", epochs=10),
        Job("gat", norm="batch", epochs=5),
        Job("sage", exchange="broadcast", epochs=5),
    ]
    assignment = assign_nodes(jobs[0], make_graph(jobs[0]), 8).tolist()
    for transport in ("gloo", "mpi") * 10:
        ranks = LiveRanks(transport, 8)  # they meet and part anew
        for job in jobs:
            ranks.call(train_here, asdict(job), assignment, limit=120)
        ranks.end()
