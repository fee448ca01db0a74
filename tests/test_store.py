"""Stored graphs: what is written is what is read, all or nothing, and damage is found."""

import hashlib
import json
import os
import stat
import time

import numpy as np
import pytest
import scipy.sparse as sp

from shoal.array_files import hash_file
from shoal.errors import ShoalError
from shoal.graph import MASKS, Graph
from shoal.names import Names
from shoal.progress import watching
from shoal.store import META, open_graph, save_graph, verify_graph
from shoal.verified import SEAL, seal


def make_graph(*, sparse=False, multi_label=False, directed=False, name="small"):
    rng = np.random.default_rng(0)
    x = rng.random((40, 5), np.float32) * (rng.random((40, 5)) < 0.3)
    return Graph.from_edge_index(
        rng.integers(0, 40, (2, 150)),
        40,
        directed=directed,
        x=sp.csr_array(x) if sparse else x,
        y=rng.integers(0, 2, (40, 3)) if multi_label else rng.integers(0, 3, 40),
        name=name,
    ).with_split()


@pytest.fixture
def stored(tmp_path):
    return save_graph(make_graph(), tmp_path / "graph")


def hidden(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_stored_graph_is_read_as_it_was_written(tmp_path, sparse, multi_label, directed):
    graph = make_graph(sparse=sparse, multi_label=multi_label, directed=directed)
    read = open_graph(save_graph(graph, tmp_path / "a" / "graph"))
    for name in ("indptr", "indices", "y", *MASKS):
        found, expected = getattr(read, name), getattr(graph, name)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    assert sp.issparse(read.x) == sparse
    np.testing.assert_array_equal(sp.csr_array(read.x).toarray(), sp.csr_array(graph.x).toarray())
    for name in ("num_edges", "num_features", "num_classes", "directed", "name", "notices", "checksum"):
        assert getattr(read, name) == getattr(graph, name)
    read.validate()
    assert verify_graph(tmp_path / "a" / "graph") == []


def test_topology_alone_is_stored_too(tmp_path):
    read = open_graph(save_graph(Graph.from_edge_index([[], []], 3), tmp_path / "bare"))
    assert (read.num_nodes, read.num_entries, read.x, read.y) == (3, 0, None, None)
    assert verify_graph(tmp_path / "bare") == []


def test_inductive_training_graph_is_stored_with_its_own_features(tmp_path):
    part = make_graph().train_graph()
    np.testing.assert_array_equal(open_graph(save_graph(part, tmp_path / "part")).x, part.x)


def test_opened_arrays_are_memory_mapped_and_read_only(stored):
    graph = open_graph(stored)
    for array in (graph.indptr, graph.indices, graph.x, graph.y, graph.train_mask):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


@pytest.mark.parametrize("sparse", [False, True])
def test_stored_content_is_identified_without_reading_it_as_in_memory(tmp_path, monkeypatch, sparse):
    graph = make_graph(sparse=sparse)
    expected = graph.content_checksum
    other = make_graph(sparse=sparse).with_split(seed=5)
    stored = open_graph(save_graph(graph, tmp_path / "graph"))
    assert stored.with_split(seed=5).content_checksum == other.content_checksum != expected
    monkeypatch.setattr("shoal.digest.digest_array", None)
    assert stored.content_checksum == expected


def test_sparse_features_are_not_copied_into_memory_on_opening(tmp_path):
    x = open_graph(save_graph(make_graph(sparse=True), tmp_path / "graph")).x
    for array in (x.data, x.indices, x.indptr):
        while not isinstance(array, np.memmap):
            assert array.base is not None
            array = array.base


def test_graph_of_ten_million_entries_opens_within_50_milliseconds(tmp_path):
    n = 1_000_000
    indices = np.tile(np.arange(10, dtype=np.int32), n)
    save_graph(Graph(np.arange(n + 1) * 10, indices, directed=True), tmp_path / "large")
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        graph = open_graph(tmp_path / "large")
        seconds.append(time.perf_counter() - start)
    assert graph.num_entries == 10_000_000
    assert min(seconds) < 0.05


def test_failed_write_leaves_nothing_behind(tmp_path):
    graph = make_graph()
    graph.y = np.array([object()] * 40)  # cannot be written without pickle
    with pytest.raises(ValueError, match="pickle"):
        save_graph(graph, tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


def test_failed_overwrite_keeps_the_old_graph(stored):
    graph = make_graph(name="other")
    graph.y = np.array([object()] * 40)
    with pytest.raises(ValueError, match="pickle"):
        save_graph(graph, stored, overwrite=True)
    assert open_graph(stored).name == "small"
    assert hidden(stored.parent) == []


def test_truncated_file_is_refused_on_opening_with_both_sizes(stored):
    path = stored / "indices.npy"
    size = path.stat().st_size
    os.truncate(path, size - 4)
    with pytest.raises(
        ShoalError, match=rf"indices.npy has {size - 4:,} bytes, expected {size:,}: the file is truncated"
    ):
        open_graph(stored)
    assert len(verify_graph(stored)) == 1


def test_flipped_byte_is_found_by_verify_which_names_the_file(stored):
    path = stored / "x.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    (problem,) = verify_graph(stored)
    assert problem.startswith(f"{path} has changed since it was written")


def test_swapped_dtype_is_refused_on_opening(stored):
    path = stored / "y.npy"
    np.save(path, np.load(path).view(np.uint64))
    with pytest.raises(
        ShoalError, match=r"y.npy holds uint64 of shape \(40,\), expected int64 of shape \(40,\)"
    ):
        open_graph(stored)


def test_file_that_is_not_npy_is_refused_on_opening(stored):
    path = stored / "y.npy"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(ShoalError, match=r"y\.npy is not a readable \.npy file"):
        open_graph(stored)


def test_missing_file_is_refused_on_opening(stored):
    (stored / "train_mask.npy").unlink()
    with pytest.raises(ShoalError, match=r"train_mask\.npy is missing: the stored graph is incomplete"):
        open_graph(stored)


def write_meta(folder, meta):
    """Write a meta.json with its seal, as somebody who wants to be believed would."""
    (folder / META).write_text(json.dumps({**meta, SEAL: seal(meta)}))


def change_meta(folder, **changes):
    write_meta(folder, {**json.loads((folder / META).read_text()), **changes})


def test_other_version_is_refused_with_the_version_that_is_read(stored):
    change_meta(stored, version=99)
    with pytest.raises(ShoalError, match="has format version 99: this Shoal reads version 1"):
        open_graph(stored)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', "\0"])
def test_damaged_meta_is_refused(stored, text):
    (stored / META).write_text(text)
    with pytest.raises(ShoalError, match="is damaged or not Shoal's: expected format 'shoal-graph'"):
        open_graph(stored)


def test_meta_without_its_arrays_is_refused_naming_them(stored):
    change_meta(stored, arrays={})
    with pytest.raises(ShoalError, match="is damaged: it lacks arrays/indptr, arrays/indices"):
        open_graph(stored)


META_DAMAGE = {
    "no class names": (lambda meta: meta.pop("class_names"), "it lacks class_names"),
    "no number of edges": (lambda meta: meta.pop("num_edges"), "it lacks num_edges"),
    "a list of arrays": (lambda meta: meta.update(arrays=[]), "malformed arrays"),
    "text for a number": (lambda meta: meta.update(num_nodes="40"), "malformed num_nodes"),
    "negative number": (lambda meta: meta.update(num_classes=-1), "malformed num_classes"),
    "notices that are no text": (lambda meta: meta.update(notices=[1]), "malformed notices"),
    "an array that is text": (lambda meta: meta["arrays"].update(x="x.npy"), "malformed arrays/x"),
    "an unknown array": (
        lambda meta: meta["arrays"].update({"../x": {**meta["arrays"]["x"], "file": "../x.npy"}}),
        "malformed arrays/../x",
    ),
    "a file elsewhere": (
        lambda meta: meta["arrays"]["x"].update(file="../x.npy"),
        "malformed arrays/x/file",
    ),
    "no size": (lambda meta: meta["arrays"]["x"].pop("bytes"), "malformed arrays/x/bytes"),
    "text for a size": (lambda meta: meta["arrays"]["x"].update(bytes="1"), "malformed arrays/x/bytes"),
    "odd shape": (lambda meta: meta["arrays"]["x"].update(shape=[40, None]), "malformed arrays/x/shape"),
    "no checksum": (lambda meta: meta["arrays"]["x"].pop("sha256"), "malformed arrays/x/sha256"),
    "other number of nodes": (lambda meta: meta.update(num_nodes=41), r"indptr has shape \(41,\) but"),
    "half a sparse matrix": (
        lambda meta: meta["arrays"].update(x_data=meta["arrays"].pop("x")),
        "it lacks arrays/x_indices, arrays/x_indptr",
    ),
}


@pytest.mark.parametrize("case", META_DAMAGE)
def test_meta_that_cannot_be_what_was_stored_is_refused(stored, case):
    damage, message = META_DAMAGE[case]
    meta = json.loads((stored / META).read_text())
    damage(meta)
    write_meta(stored, meta)
    with pytest.raises(ShoalError, match=rf"meta\.json is damaged: {message}"):
        open_graph(stored)


def test_deeply_nested_meta_is_refused(stored):
    (stored / META).write_text("[" * 200_000)
    with pytest.raises(ShoalError, match="is damaged or not Shoal's"):
        open_graph(stored)


def test_archive_in_place_of_an_array_is_refused(stored):
    path = stored / "y.npy"
    path.write_bytes(b"PK\x03\x04".ljust(path.stat().st_size, b"x"))
    with pytest.raises(ShoalError, match=r"y\.npy is not a readable \.npy file"):
        open_graph(stored)


def test_sparse_features_whose_parts_do_not_fit_are_refused(tmp_path):
    graph = make_graph(sparse=True)
    folder = save_graph(graph, tmp_path / "graph")
    meta = json.loads((folder / META).read_text())
    np.save(folder / "x_data.npy", graph.x.data[:-1])
    entry = meta["arrays"]["x_data"]
    entry.update(shape=[len(graph.x.data) - 1], bytes=(folder / "x_data.npy").stat().st_size)
    write_meta(folder, meta)
    with pytest.raises(ShoalError, match="do not form a sparse matrix"):
        open_graph(folder)


def test_names_that_run_past_their_text_are_refused(tmp_path):
    graph = make_graph()._copy(node_ids=Names.from_texts([f"node {i}" for i in range(40)]))
    graph.node_ids.offsets[-1] += 1
    folder = save_graph(graph, tmp_path / "graph")
    with pytest.raises(ShoalError, match="node_id_offsets does not fit node_id_text"):
        open_graph(folder)


def test_too_small_a_number_of_classes_is_found_by_verify(stored):
    change_meta(stored, num_classes=2)
    (problem,) = verify_graph(stored)
    assert "has label 2: expected 0 to 1" in problem


def test_folder_that_is_missing_or_no_graph_is_refused(tmp_path):
    with pytest.raises(ShoalError, match="does not exist: expected a folder"):
        open_graph(tmp_path / "nowhere")
    with pytest.raises(ShoalError, match=r"is not a stored graph: it has no meta.json"):
        open_graph(tmp_path)


def test_existing_graph_is_overwritten_only_when_allowed(stored):
    other = make_graph(name="other")
    with pytest.raises(
        ShoalError, match=r"exists already: choose another name, or allow overwriting it \(overwrite=True\)"
    ):
        save_graph(other, stored)
    assert open_graph(stored).name == "small"
    save_graph(other, stored, overwrite=True)
    assert open_graph(stored).name == "other"
    assert hidden(stored.parent) == []


def test_folder_of_something_else_is_never_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ShoalError, match="is not a stored graph: refusing to overwrite it"):
        save_graph(make_graph(), tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_opened_graph_can_be_stored_over_itself(stored):
    before = open_graph(stored)
    save_graph(before, stored, overwrite=True)
    np.testing.assert_array_equal(open_graph(stored).x, before.x)


def test_stored_folder_has_the_permissions_of_any_new_folder(stored):
    plain = stored.parent / "plain"
    plain.mkdir()
    assert stat.S_IMODE(stored.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_stored_graph_with_a_drawn_split_is_identified_without_reading_it(tmp_path):
    plain = make_graph()._copy(**dict.fromkeys(MASKS))
    stored = save_graph(plain, tmp_path / "graph")
    first, again = (open_graph(stored).with_split(seed=1) for _ in range(2))
    assert first.checksum == again.checksum
    assert open_graph(stored).with_split(seed=2).checksum != first.checksum
    assert first.has_checksum(
        plain.with_split(seed=1).checksum
    )  # as runs from before digests were combined have it
    assert not first.has_checksum(plain.with_split(seed=2).checksum)
    content = (stored / "indices.npy").read_bytes()
    (stored / "indices.npy").write_bytes(content[:-4] + bytes(4))
    assert verify_graph(stored)  # reads every byte


def test_checksum_of_a_large_file_is_watched(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"shoal")
    os.truncate(path, (1 << 28) + 5)  # a hole
    seen = []
    with watching(lambda *said: seen.append(said)):
        found = hash_file(path)
    assert found == hashlib.sha256(b"shoal" + bytes(1 << 28)).hexdigest()
    assert seen[-1] == ("checksum of x.npy", (1 << 28) + 5, (1 << 28) + 5)
    assert len(seen) == 65
