"""Inference with its matrices in files, in slices of columns, and for some rows only, beside a plain forward pass."""

import ctypes
import errno
import mmap
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.kernels.row_sets import LoopedAdjacency
from shoal.memory import set_memory_budget
from shoal.models import layerwise
from shoal.models.neighbourhood import take_rows
from shoal.scratch import FileMatrix, KeptScratch, Matrix, Scratch
from shoal.training.inference import embed_nodes, predict_logits
from small_graphs import make_labelled

NODES = 60
STACKS = [
    {"residual": True, "num_layers": 3},
    {"jumping": "concat", "hidden": "24-12", "head_layers": 2},
    {"jumping": "max", "residual": True, "num_layers": 3},
    {"norm": "batch", "norm_first": True},
    {"residual": "linear", "hidden": "12-24", "norm_place": "conv"},
    {"norm_place": "input", "residual": "identity", "num_layers": 3},
    {"orders": "1-0-1", "norm": "none"},
    {"head_layers": 0, "num_layers": 2},
]


@pytest.fixture(scope="module")
def graph():
    """Sparse enough that two hops do not reach everything; with self loops, a hub and isolated nodes."""
    rng = np.random.default_rng(3)
    edges = rng.integers(0, NODES - 6, (2, 70))
    hub = np.stack([np.full(12, 5), np.arange(20, 32)])
    loops = np.arange(0, 50, 9)[None].repeat(2, 0)
    return shoal.Graph.from_edge_index(
        np.concatenate([edges, hub, loops], axis=1),
        NODES,
        directed=True,
        x=rng.standard_normal((NODES, 8)).astype(np.float32),
        y=rng.integers(0, 3, NODES),
    )


def make_model(graph, name, settings):
    model = shoal.GNN(name, 8, **{"hidden": 12, "num_classes": 3} | settings)
    model.train()
    model(shoal.FullSampler(graph).sample(0))  # moves the statistics of batch norm
    return model.eval()


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop", "gat"])
@pytest.mark.parametrize("settings", STACKS, ids=str)
@pytest.mark.parametrize("near", [None, NODES * 4 * 3], ids=["whole", "slices"])
def test_inference_in_files_equals_a_forward_pass(graph, name, settings, near, tmp_path, monkeypatch):
    monkeypatch.setattr(layerwise, "ENTRIES_AT_ONCE", 9)
    model = make_model(graph, name, settings)
    batch = shoal.FullSampler(graph).sample(0)
    scratch = Scratch(0, tmp_path, near=near)
    found = embed_nodes(model, shoal.FullSampler(graph).sample(0), rows_at_once=7, scratch=scratch)
    with torch.no_grad():
        torch.testing.assert_close(found, model.embed(batch))
    assert scratch.most_filed > 0
    assert (scratch.held, scratch.filed) == (0, 0)
    assert list(tmp_path.iterdir()) == []
    in_memory = embed_nodes(model, batch, rows_at_once=7, scratch=Scratch(near=near))
    torch.testing.assert_close(found, in_memory)  # chunks may differ, and so rounding


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop", "gat"])
@pytest.mark.parametrize("settings", STACKS, ids=str)
@pytest.mark.parametrize("limit", [None, 0], ids=["memory", "files"])
def test_scores_of_some_nodes_compute_only_what_they_read(
    graph, name, settings, limit, tmp_path, monkeypatch
):
    model = make_model(graph, name, settings)
    batch = shoal.FullSampler(graph).sample(0)
    wanted = torch.zeros(NODES, dtype=torch.bool)
    wanted[[1, 2, 40, 59]] = True
    counted = []
    real = layerwise.take_operator_rows

    def count(adj, rows):
        part = real(adj, rows)
        counted.append(part.num_entries)
        return part

    monkeypatch.setattr(layerwise, "take_operator_rows", count)
    whole = predict_logits(model, batch, rows_at_once=7, scratch=Scratch(limit, tmp_path))
    everything, counted = sum(counted), []
    for rows in (wanted, wanted.nonzero()[:, 0].flip(0)):
        counted.clear()
        found = predict_logits(model, batch, rows=rows, rows_at_once=7, scratch=Scratch(limit, tmp_path))
        torch.testing.assert_close(found, whole[rows])
        assert sum(counted) < 0.8 * everything
    with torch.no_grad():
        torch.testing.assert_close(found, model(batch)[rows])


def test_rows_that_read_nearly_everything_are_not_chosen(graph):
    model = make_model(graph, "sage", {})
    batch = shoal.FullSampler(graph).sample(0)
    wanted = torch.ones(NODES, dtype=torch.bool)
    wanted[-1] = False
    plan = layerwise.plan_rows(batch.blocks[0].indptr, batch.blocks[0].indices, [1, 1], wanted)
    assert all(rows.mask is None for layer in plan for rows in layer)
    found = predict_logits(model, batch, rows=wanted, rows_at_once=7)
    with torch.no_grad():
        torch.testing.assert_close(found, model(batch)[wanted])
    assert predict_logits(model, batch, rows=torch.zeros(NODES, dtype=torch.bool)).shape == (0, 3)


def test_the_rows_of_a_split_are_planned_once(graph, monkeypatch):
    model = make_model(graph, "sage", {})
    batch = shoal.FullSampler(graph).sample(0)
    whole = predict_logits(model, batch)
    made = []
    real = layerwise.plan_rows
    monkeypatch.setattr(layerwise, "plan_rows", lambda *args: made.append(1) or real(*args))
    wanted = torch.arange(NODES) % 20 == 0
    for count in (1, 1, 2, 3):
        if count > 1:
            wanted[count] = True  # the mask itself has changed
        torch.testing.assert_close(predict_logits(model, batch, rows=wanted), whole[wanted])
        assert len(made) == count
    deeper = make_model(graph, "sage", {"num_layers": 3})
    with torch.no_grad():
        torch.testing.assert_close(predict_logits(deeper, batch, rows=wanted), deeper(batch)[wanted])


def test_sparse_features_are_projected_in_chunks(graph, tmp_path):
    sparse = graph._copy(x=sp.csr_array(np.where(graph.x > 0.3, graph.x, 0)))
    batch = shoal.FullSampler(sparse).sample(0)
    wanted = torch.arange(NODES) % 13 == 0
    for name in ("sage", "gcn", "mixhop", "gat"):
        model = make_model(sparse, name, {})
        found = predict_logits(model, batch, rows=wanted, rows_at_once=7, scratch=Scratch(0, tmp_path))
        with torch.no_grad():
            torch.testing.assert_close(found, model(batch)[wanted])


@pytest.mark.parametrize("kind", ["gcn", "attention"])
def test_self_loops_put_in_by_rows_are_those_of_the_whole_operator(graph, kind):
    block = shoal.FullSampler(graph).sample(0).blocks[0]
    lazy = block.by_rows(kind, lambda size: False)
    assert isinstance(lazy, LoopedAdjacency)
    dense = block.adjacency(kind).to_torch().to_dense()
    assert torch.equal(lazy.whole().to_torch().to_dense(), dense)
    assert torch.equal(lazy.slice_rows(3, 30).to_torch().to_dense(), dense[3:30])
    rows = torch.tensor([0, 5, 9, 59])
    assert torch.equal(lazy.select_rows(rows).to_torch().to_dense(), dense[rows])


def test_a_matrix_goes_to_a_file_when_memory_is_used_up(tmp_path):
    with Scratch(100 * 4 * 3, tmp_path) as scratch:
        first, second = scratch.make(100, 2), scratch.make(100, 2)
        assert (type(first), type(second)) == (Matrix, FileMatrix)
        second.write(slice(10, 20), torch.full((10, 2), 7.0))
        second.write(torch.tensor([3, 50]), torch.full((2, 2), 8.0))
        second.settle()
        assert second.tensor.sum() == 10 * 2 * 7 + 2 * 2 * 8
        first.close()
        assert type(scratch.make(100, 3)) is Matrix
        assert list(tmp_path.iterdir()) == []  # the file has no name
    assert (scratch.held, scratch.filed) == (0, 0)


def stamp(weights):
    return {"weights": weights}


class Killed(RuntimeError):
    pass


@pytest.mark.parametrize("jumping", ["none", "concat", "max"])
def test_finished_layers_are_not_computed_again(graph, jumping, tmp_path):
    model = make_model(graph, "sage", {"num_layers": 3, "jumping": jumping})
    batch = shoal.FullSampler(graph).sample(0)
    expected = embed_nodes(model, batch, rows_at_once=7)
    chunks = -(-NODES // 7)
    folder = tmp_path / "scratch"

    def stop(done, total):
        if done == 2 * chunks + 3:  # in the third layer
            raise Killed

    with pytest.raises(Killed):
        embed_nodes(model, batch, rows_at_once=7, scratch=KeptScratch(0, folder, stamp(1)), progress=stop)
    assert (folder / "layer-2.done").is_file()

    calls = []
    scratch = KeptScratch(0, folder, stamp(1))
    found = embed_nodes(
        model, batch, rows_at_once=7, scratch=scratch, progress=lambda done, total: calls.append(done)
    )
    assert torch.equal(found, expected)
    assert calls == list(range(2 * chunks + 1, 3 * chunks + 1))
    assert not folder.exists()


def test_another_checkpoint_begins_anew(graph, tmp_path):
    model = make_model(graph, "gcn", {"num_layers": 2})
    batch = shoal.FullSampler(graph).sample(0)
    folder = tmp_path / "scratch"
    expected = embed_nodes(model, batch)
    folder.mkdir()
    Path(folder, "layer-1.rows").write_bytes(bytes(NODES * 12 * 4))
    Path(folder, "layer-1.done").touch()
    Path(folder, "activations.json").write_text('{"weights": 1}')
    assert torch.equal(embed_nodes(model, batch, scratch=KeptScratch(0, folder, stamp(2))), expected)


def test_two_processes_do_not_share_kept_files(tmp_path):
    folder = tmp_path / "scratch"
    with KeptScratch(0, folder, stamp(1)) as first, KeptScratch(0, folder, stamp(2)) as second:
        mine = first.make(10, 3, name="layer-1")
        other = second.make(10, 3, name="layer-1")
        assert mine.path is not None
        assert other.path is None
        assert second.find(10, 3, torch.float32, "layer-1") is None
        assert second.folder == tmp_path  # the first one's folder may go before the second has ended
    assert not folder.exists()
    with KeptScratch(0, folder, stamp(2)) as second:
        with KeptScratch(0, folder, stamp(1)) as first:
            first.make(10, 3)
        assert second.make(10, 3, name="layer-1").path.parent.is_dir()  # it was not there, and is made again
    assert not folder.exists()


def test_a_folder_is_made_only_for_files_and_needs_not_be_writable(graph, tmp_path, monkeypatch):
    with KeptScratch(None, tmp_path / "scratch", stamp(1)) as scratch:
        scratch.make(10, 3, name="layer-1")
        assert list(tmp_path.iterdir()) == []

    def refuse(*args, **settings):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with KeptScratch(0, tmp_path / "scratch", stamp(1)) as scratch:
        assert scratch.make(10, 3, name="layer-1").path is None
    assert list(tmp_path.iterdir()) == []


def test_rows_of_another_type_are_written_where_they_belong(tmp_path):
    with Scratch(0, tmp_path) as scratch:
        made = scratch.make(10, 3)
        made.write(slice(4, 6), torch.full((2, 3), 7.0, dtype=torch.float64))
        made.settle()
        assert made.tensor[4:6].eq(7).all()
        assert made.tensor.sum() == 6 * 7


def test_a_full_disk_is_said_in_a_sentence(tmp_path, monkeypatch):
    def full(handle, start, size):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with Scratch(0, tmp_path) as scratch, pytest.raises(shoal.ShoalError, match="no space left"):
        scratch.make(10, 3)
    assert list(tmp_path.iterdir()) == []
    handles = len(os.listdir("/proc/self/fd"))
    with KeptScratch(0, tmp_path / "kept", stamp(1)) as scratch:
        for _ in range(2):
            with pytest.raises(shoal.ShoalError, match="no space left"):
                scratch.make(10, 3, name="layer-1")
        assert not list((tmp_path / "kept").glob("*.rows"))
    assert len(os.listdir("/proc/self/fd")) == handles


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting is root's")
def test_a_disk_without_room_for_activations_says_what_they_take(tmp_path):
    graph = make_labelled(2000)
    model = shoal.GNN("sage", graph.num_features, 256, graph.num_classes, num_layers=3)
    trainer = shoal.Trainer(model, graph)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], capture_output=True)
    if mounted.returncode:
        pytest.skip("no mount here")
    try:
        trainer.share.scratch_folder = tmp_path
        set_memory_budget(1)
        with pytest.raises(shoal.ShoalError, match=r"which takes 2\.0 MB where 1\.0 MB are free: free some"):
            trainer.evaluate("val")
        assert list(tmp_path.iterdir()) == []
    finally:
        set_memory_budget(None)
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop", "gat", "mlp"])
@pytest.mark.parametrize("features", ["float16", "int8"])
def test_encoded_features_are_decoded_by_chunks(graph, name, features, tmp_path, monkeypatch):
    shoal.save_graph(graph, tmp_path / "graph", features=features)
    stored = shoal.open_graph(tmp_path / "graph")
    model = make_model(graph, name, {"residual": True, "hidden": 8, "num_layers": 2})
    whole = shoal.FullSampler(stored).sample(0)
    rows = torch.zeros(NODES, dtype=torch.bool)
    rows[3:20:4] = True
    monkeypatch.setattr("shoal.batch._decode_all", None)  # all of them at once are asked for by nobody
    found = predict_logits(model, whole, rows_at_once=7, scratch=Scratch(0, tmp_path))
    some = predict_logits(model, whole, rows=rows, rows_at_once=7)
    decoded = shoal.FullSampler(stored._copy(x=stored.x[:])).sample(0)
    with torch.no_grad():
        expected = model(decoded)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(some, expected[rows])


def test_rows_behind_a_chunk_are_read_while_it_is_worked_on(tmp_path):
    """Of a mapped file whose pages were dropped; what is in memory is counted by mincore."""
    width, page = 1024, mmap.PAGESIZE
    np.save(tmp_path / "x.npy", np.ones((4096, width), np.float32))
    handle = os.open(tmp_path / "x.npy", os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")

    def count_resident(start, end):
        first = (mapped.ctypes.data + start * 4 * width) & -page
        pages = (mapped.ctypes.data + end * 4 * width - first) // page
        found = (ctypes.c_ubyte * pages)()
        ctypes.CDLL(None).mincore(ctypes.c_void_p(first), ctypes.c_size_t(pages * page), found)
        return sum(one & 1 for one in found) / pages

    layerwise.read_rows(torch.from_numpy(mapped), slice(0, 1024))
    until = time.monotonic() + 30
    while count_resident(1024, 2048) < 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert count_resident(1024, 2048) == 1


def test_rows_of_training_steps_are_not_read_ahead(monkeypatch):
    asked = []
    monkeypatch.setattr(layerwise, "read_ahead", lambda address, size: asked.append(size))
    x = torch.ones(4096, 1024)
    take_rows(x, 0, 1024)
    assert asked == []
    layerwise.read_rows(x, slice(0, 1024))
    assert asked == [1024 * 4096]
