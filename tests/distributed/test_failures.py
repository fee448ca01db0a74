"""Ranks that die, hang or find bad input: the others end in time and name the one and the phase."""

import shutil
import time

import pytest

import rank_jobs
import shoal
from launched_ranks import run_ranks
from shoal.distributed.transport import KEPT


@pytest.mark.parametrize("trouble", ["die", pytest.param("hang", marks=pytest.mark.slow)])
def test_a_rank_that_is_gone_is_named_in_time(trouble):
    ended = run_ranks(3, rank_jobs.__file__, trouble, 1, limit=90, SHOAL_TIMEOUT="5")
    assert ended.codes == [2, 9, 2]
    for text in (ended.texts[0], ended.texts[2]):
        assert "rank 1 did not answer in the" in text, ended.texts


@pytest.mark.slow
def test_a_hanging_rank_is_named_under_mpi():
    ended = run_ranks(3, rank_jobs.__file__, "hang", 1, transport="mpi", limit=60, SHOAL_TIMEOUT="5")
    assert ended.codes != [0]
    assert "rank 1 did not answer in the" in ended.texts[0]


@pytest.mark.parametrize("transport", ["gloo", "mpi"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_of_all_ranks_is_said_once(when, transport, tmp_path):
    settings = {"before": ("model.hidden=0",), "after": ("data.colour=red",)}[
        when
    ]  # before and after they met
    command = ("-m", "shoal", "train", "digits", "--method", "partitioned", "--out", tmp_path / "run")
    ended = run_ranks(3, *command, "--set", *settings, transport=transport, limit=90)
    said = [line for text in ended.texts for line in text.splitlines() if line.startswith("shoal: ")]
    assert len(said) == 1, ended.texts
    assert "rank" not in said[0]
    assert "Traceback" not in "".join(ended.texts)
    assert set(ended.codes) == {2}
    assert not (tmp_path / "run").exists()


LEAVE = """
import os, sys, time
from shoal.distributed.launch import joined_ranks
from shoal.errors import ShoalError
with joined_ranks() as transport:
    transport.barrier()
    if transport.rank == 0:
        time.sleep(1)  # the other one is gone by then
        print(time.monotonic(), file=sys.stderr, flush=True)
        raise ShoalError("rank 0 ends later, and badly")
"""


def test_rank_0_does_not_wait_for_a_rank_that_has_taken_leave():
    ended = run_ranks(2, "-c", LEAVE, limit=90)
    seconds = time.monotonic() - float(ended.texts[0].split()[0])
    assert ended.codes == [2, 0]
    assert "shoal: rank 0 ends later, and badly" in ended.texts[0]
    assert seconds < KEPT


@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_an_error_of_one_rank_is_said_with_its_number(transport, tmp_path):
    graph = shoal.load("digits")
    shoal.store_parts(graph, shoal.partition_graph(graph, 3, "random", seed=0), tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "part-00001")
    command = ("-m", "shoal", "train", "--parts", tmp_path / "parts", "--out", tmp_path / "run")
    ended = run_ranks(3, *command, transport=transport, limit=90)
    said = [line for text in ended.texts for line in text.splitlines() if line.startswith("shoal: ")]
    assert len(said) == 1, ended.texts
    assert said[0].startswith("shoal: rank 1: ")
    assert all(ended.codes)
