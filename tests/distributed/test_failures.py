"""Ranks that die, hang or find bad input: the others end in time and name the one and the phase."""

import json
from dataclasses import asdict

import numpy as np
import pytest

import rank_jobs
from launched_ranks import run_ranks
from rank_jobs import Job, assign_nodes, make_graph


def prepare(folder, num_ranks):
    job = Job("gcn", epochs=3)
    np.save(folder / f"random-False-{num_ranks}.npy", assign_nodes(job, make_graph(job), num_ranks))
    (folder / "jobs.json").write_text(json.dumps([asdict(job)] * 3))


@pytest.mark.parametrize("trouble", ["die", pytest.param("hang", marks=pytest.mark.slow)])
def test_a_rank_that_is_gone_is_named_in_time(trouble, tmp_path):
    prepare(tmp_path, 3)
    ended = run_ranks(3, rank_jobs.__file__, tmp_path, limit=90, TROUBLE=f"{trouble}:1:1", SHOAL_TIMEOUT="5")
    assert ended.codes == [2, 9, 2]
    for text in (ended.texts[0], ended.texts[2]):
        assert "rank 1 did not answer in the" in text, ended.texts


@pytest.mark.slow
def test_a_hanging_rank_is_named_under_mpi(tmp_path):
    prepare(tmp_path, 3)
    ended = run_ranks(
        3, rank_jobs.__file__, tmp_path, transport="mpi", limit=60, TROUBLE="hang:1:1", SHOAL_TIMEOUT="5"
    )
    assert ended.codes != [0]
    assert "rank 1 did not answer in the" in ended.texts[0]
