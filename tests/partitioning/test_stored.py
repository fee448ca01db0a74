"""Stored parts equal parts in memory; damage, wrong names and wrong options are refused."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

import shoal
from partitioned_graphs import assert_same_part
from shoal.commands import screen
from shoal.partitioning import estimate
from shoal.partitioning.manifest import read_manifest
from shoal.partitioning.stored import open_part, store_parts
from shoal.store import save_graph
from small_graphs import make_labelled


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_stored_parts_equal_parts_in_memory(tmp_path, sparse, directed):
    graph = make_labelled(120, directed=directed)
    if sparse:
        graph = graph._copy(x=sp.csr_array(graph.x))
    shoal.save_graph(graph, tmp_path / "graph")
    mapped = shoal.open_graph(tmp_path / "graph")
    assignment = np.minimum(np.arange(120) % 5, 3).astype(np.int32)  # part 4 is empty
    partition = shoal.Partition(mapped, assignment, 5)
    store_parts(mapped, partition, tmp_path / "parts")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    for rank, part in enumerate(shoal.Partition(graph, assignment, 5).split()):
        assert_same_part(open_part(tmp_path / "parts", rank, verify=True), part)
    manifest = read_manifest(tmp_path / "parts")
    assert manifest["quality"]["total_volume"] == partition.quality().total_volume
    assert manifest["checksum"] == graph.checksum
    np.testing.assert_array_equal(np.load(tmp_path / "parts" / "assignment.npy"), assignment)


STORE = """
import sys, threading, time
import numpy as np
import shoal
from shoal.partitioning.quality import measure_quality

small = shoal.load("digits")
shoal.store_parts(small, shoal.partition_graph(small, 4, "block"), sys.argv[2])  # compiles
graph = shoal.open_graph(sys.argv[1])
assignment = (np.arange(graph.num_nodes) * 200 // graph.num_nodes).astype(np.int32)
quality = measure_quality(graph, assignment, 200)
anonymous = lambda: int(open("/proc/self/status").read().split("RssAnon:")[1].split()[0])
seen = [anonymous()]

def watch():
    while True:
        seen.append(anonymous())
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
shoal.store_parts(graph, shoal.Partition(graph, assignment, 200), sys.argv[3], quality=quality)
print((max(seen) - seen[0]) / 1024)
"""


def test_parts_of_a_mapped_graph_are_written_in_little_memory(tmp_path):
    """A twentieth of the graph's 90 MB and more; pages of mapped files are the system's to take back and not counted."""
    n, degree = 200_000, 20
    near = (np.arange(n)[:, None] + np.arange(1, degree + 1)).ravel() % n
    ends = np.stack([np.repeat(np.arange(n), degree), near])
    x = np.zeros((n, 100), np.float32)
    shoal.save_graph(shoal.Graph.from_edge_index(ends, n, directed=True, x=x), tmp_path / "graph")
    script = [sys.executable, "-c", STORE, *(str(tmp_path / name) for name in ("graph", "small", "parts"))]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    size = sum(path.stat().st_size for path in (tmp_path / "graph").iterdir()) / 2**20
    assert size > 90
    assert float(done.stdout.splitlines()[-1]) < 25
    assert read_manifest(tmp_path / "parts")["num_parts"] == 200


def test_parts_are_cut_by_as_many_threads_as_memory_allows(monkeypatch):
    graph = make_labelled(500)
    monkeypatch.setattr(estimate, "available_cores", lambda: 3)
    assert estimate.count_part_threads(graph, 8) == 3
    assert estimate.count_part_threads(graph, 2) == 2
    monkeypatch.setattr(estimate, "memory_left", lambda: 1000)
    assert estimate.count_part_threads(graph, 8) == 1


def fill_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("happen", "error"), [(fill_disk, shoal.ShoalError), (interrupt, KeyboardInterrupt)])
def test_every_thread_stops_when_one_fails_or_the_command_is_interrupted(
    tmp_path, monkeypatch, happen, error
):
    monkeypatch.setattr(estimate, "available_cores", lambda: 2)
    graph, written = make_labelled(500), []

    def follow(done, total):
        if done <= 40:
            return  # the halos
        written.append(done)
        if len(written) == 1:
            happen()
        time.sleep(0.1)

    with pytest.raises(error):
        store_parts(
            graph, shoal.Partition(graph, np.arange(500) % 40, 40), tmp_path / "parts", progress=follow
        )
    assert len(written) < 10
    assert not (tmp_path / "parts").exists()


def test_progress_of_several_threads_never_goes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "available_cores", lambda: 2)
    graph, seen = make_labelled(500), []

    def follow(done, total):
        time.sleep(0.02 if done % 4 == 1 else 0)
        seen.append(done)

    store_parts(graph, shoal.Partition(graph, np.arange(500) % 10, 10), tmp_path / "parts", progress=follow)
    assert seen == list(range(1, 21))


def test_progress_in_a_pipe_is_lines(monkeypatch):
    monkeypatch.setattr(screen, "_SECONDS_BETWEEN_LINES", 0.0)
    stream = io.StringIO()
    with screen.follow_steps(screen.Screen(file=stream, width=80), "writing parts") as follow:
        follow(1, 2000)
        follow(2000, 2000)
    assert stream.getvalue().splitlines()[0] == "writing parts …"
    assert "writing parts: 1 of 2,000 steps" in stream.getvalue()


def test_the_command_writes_parts_and_a_table(shoal, tmp_path):
    run = shoal("partition", "digits", "--parts", 4, "--method", "metis", "--parts-per-host", 2, "-o", "p")
    assert run.code == 0, run.stderr
    for words in ("rows sent in one exchange", "random", "ratio", "cross hosts", "parts: p"):
        assert words in run.stdout
    assert "weight of the heaviest part / mean (balanced)" in run.stdout
    assert "writing parts …" in run.stderr
    assert read_manifest(tmp_path / "p")["method"] == "metis"
    assert "exists already" in shoal("partition", "digits", "--parts", 4, "-o", "p").refusal()
    assert (
        "expected at most as many parts" in shoal("partition", "digits", "--parts", 1798, "-o", "q").refusal()
    )
    assert shoal("partition", "digits", "--parts", 2, "--method", "block", "-o", "p", "--overwrite").code == 0
    assert read_manifest(tmp_path / "p")["num_parts"] == 2


def test_mistakes_are_refused_before_work_starts(shoal, tmp_path):
    (tmp_path / "other").mkdir()
    for args, message in {
        ("partition", "digits", "--parts", 0): "num_parts is 0",
        ("partition", "nowhere", "--parts", 2, "--method", "mettis"): "did you mean 'metis'",
        ("partition", "nowhere", "--parts", 2, "-o", "other", "--overwrite"): "refusing to overwrite",
        (
            "partition",
            "digits",
            "--parts",
            2,
            "--method",
            "metis",
            "--set",
            "theta=1",
        ): "takes no settings: 'theta'",
        ("partition", "digits"): "--parts",
    }.items():
        assert message in shoal(*args).refusal()


def test_damage_is_named(tmp_path):
    graph = make_labelled(60)
    folder = store_parts(graph, shoal.Partition(graph, np.arange(60, dtype=np.int32) % 2, 2), tmp_path / "p")
    with pytest.raises(shoal.ShoalError, match="rank is 2"):
        open_part(folder, 2)
    with pytest.raises(shoal.ShoalError, match="holds no stored parts"):
        open_part(tmp_path, 0)
    x = folder / "part-00000" / "x.npy"
    content = bytearray(x.read_bytes())
    content[-1] ^= 1
    x.write_bytes(content)
    for verify in (False, True):
        with pytest.raises(shoal.ShoalError, match="has changed since it was written"):
            open_part(folder, 0, verify=verify)
    about = folder / "part-00001" / "part.json"
    about.write_text(about.read_text().replace("60", "61") + " ")
    with pytest.raises(shoal.ShoalError, match="was changed: partition again"):
        open_part(folder, 1)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": 9}))
    with pytest.raises(shoal.ShoalError, match="version 9"):
        open_part(folder, 0)


def test_stored_parts_with_weights_are_refused_by_a_run_without(shoal, tmp_path):
    graph = make_labelled(120)
    weights = np.full(graph.num_entries, 2, np.float32)
    save_graph(graph._copy(edge_weight=weights), tmp_path / "graph")
    assert shoal("partition", "graph", "--parts", 1, "--method", "block", "-o", "parts").code == 0
    train = ("train", "--parts", "parts", "--epochs", 1)
    said = shoal(*train, "--set", "training.edge_weights=false").refusal()
    assert "have edge weights and training.edge_weights is false" in said
    assert shoal(*train).code == 0


def test_parts_of_a_graph_that_has_changed_are_refused_and_refreshed(shoal, tmp_path):
    graph = make_labelled(120)
    weights = np.ones(graph.num_entries, np.float32)
    save_graph(graph._copy(edge_weight=weights), tmp_path / "graph")
    cut = ("partition", "graph/", "--parts", 1, "--method", "block", "-o", "parts", "--refresh")
    train = ("train", "--parts", "parts", "--epochs", 1, "--set", "model.hidden=8", "--out")
    assert "kept" not in shoal(*cut).stdout
    written = (tmp_path / "parts" / "manifest.json").read_bytes()
    assert "parts: parts, kept: graph/ and the options have not changed" in shoal(*cut).stdout
    assert (tmp_path / "parts" / "manifest.json").read_bytes() == written
    assert shoal(*train, "first").code == 0
    save_graph(graph._copy(edge_weight=2 * weights), tmp_path / "graph", overwrite=True)
    said = shoal(*train, "second").refusal()
    assert "has changed since the parts in" in said
    assert f"--parts 1 -o {tmp_path / 'parts'} --refresh" in said
    assert "kept" not in shoal(*cut).stdout
    assert shoal(*train, "second").code == 0
    assert (
        "its features, its labels or its split differ"
        in shoal("train", "--resume", "first", "--epochs", 2).refusal()
    )
    assert shoal(*cut[:-1], "--refresh", "--seed", 3).code == 0
    assert read_manifest(tmp_path / "parts")["seed"] == 3
    assert "add -o DIR" in shoal("partition", "graph", "--parts", 2, "--refresh").refusal()


def test_parts_are_refreshed_where_ids_or_the_options_of_a_cut_have_changed(shoal, tmp_path):
    graph = make_labelled(120)
    save_graph(graph._copy(node_ids=np.arange(120) + 5), tmp_path / "graph")
    cut = ("partition", "graph", "--parts", 2, "--method", "hypergraph", "--effort", "fast", "-o", "parts")
    assert "kept" not in shoal(*cut, "--refresh").stdout
    assert "kept" in shoal(*cut, "--refresh").stdout
    assert "kept" not in shoal(*cut, "--refresh", "--no-refine").stdout
    save_graph(graph._copy(node_ids=np.arange(120) + 7), tmp_path / "graph", overwrite=True)
    assert "kept" not in shoal(*cut, "--refresh", "--no-refine").stdout
    assert "kept" in shoal(*cut, "--refresh", "--no-refine").stdout


def test_parts_beside_a_graph_of_other_weights_are_refused(shoal, tmp_path):
    graph = make_labelled(120)
    weights = np.ones(graph.num_entries, np.float32)
    for name, factor in (("one", 1), ("other", 2)):
        save_graph(graph._copy(edge_weight=factor * weights), tmp_path / name)
    assert shoal("partition", "one", "--parts", 1, "--method", "block", "-o", "parts").code == 0
    line = ("--parts", "parts", "--sampler", "node", "--epochs", 1, "--set", "sampler.budget=40")
    assert "features, labels, edge weights or split differ" in shoal("train", "other", *line).refusal()
    assert shoal("train", "one", *line, "--set", "model.hidden=8").code == 0
