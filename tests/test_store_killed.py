"""A writer that is killed in the middle leaves nothing half-written under a final name."""

import os
import signal
import subprocess
import sys
import time

import numpy as np

from shoal.graph import Graph
from shoal.store import open_graph, save_graph, verify_graph

SMALL = Graph.from_edge_index(np.array([[0, 1], [1, 2]]), 3, directed=False, name="small")
WRITER = """
import sys
import numpy as np
from shoal import Graph, save_graph
indices = np.array([], np.int32)
graph = Graph(np.zeros(400_001, np.int64), indices, x=np.zeros((400_000, 64), np.float32), name="large")
while True:
    save_graph(graph, sys.argv[1], overwrite=len(sys.argv) > 2)
"""


def kill_while_writing(folder, *arguments):
    """Start a writer and kill it once it has begun the features of a graph that is not in place yet."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder), *arguments], stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while not (found := list(folder.parent.glob(".*.partial/new/x.npy"))) or not found[0].stat().st_size:
            assert writer.poll() is None, writer.stderr.read().decode()
            assert time.monotonic() < end
            time.sleep(0.001)
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        _, said = writer.communicate()
    assert writer.returncode == -signal.SIGKILL, said


def test_killed_writer_leaves_nothing_under_the_final_name(tmp_path):
    kill_while_writing(tmp_path / "graph")
    assert not (tmp_path / "graph").exists()
    assert list(tmp_path.glob(".*.partial"))  # it was in the middle of writing
    save_graph(SMALL, tmp_path / "graph")
    assert verify_graph(tmp_path / "graph") == []


def test_killed_overwriter_leaves_the_old_graph(tmp_path):
    stored = save_graph(SMALL, tmp_path / "graph")
    kill_while_writing(stored, "overwrite")
    assert list(tmp_path.glob(".*.partial"))
    assert open_graph(stored).name == "small"
    assert verify_graph(stored) == []
