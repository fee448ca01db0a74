"""Stored files are read through once: what was changed since is refused, what is known is not read again."""

import json
import shutil
import socket
import time
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal import verified
from shoal.errors import ShoalError
from shoal.partitioning.stored import open_part, store_parts
from shoal.store import META, open_graph, save_graph
from shoal.verified import SEAL, seal
from small_graphs import make_labelled


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A graph that is large enough to be remembered."""
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(verified, "LEAST_KEPT", 1)
    return save_graph(make_labelled(60), tmp_path / "graph")


def change(path, at=-1, mask=1):
    content = bytearray(path.read_bytes())
    content[at] ^= mask
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["indptr", "indices", "x", "y", "train_mask"])
def test_every_changed_array_is_refused_on_opening(stored, name):
    open_graph(stored)
    change(stored / f"{name}.npy")
    with pytest.raises(ShoalError, match=rf"{name}\.npy has changed since it was written"):
        open_graph(stored)


def test_known_files_are_not_read_again_and_changed_ones_are(stored, monkeypatch):
    time.sleep(0.1)  # until later changes bear another time
    open_graph(stored)
    hashed = []
    monkeypatch.setattr(verified, "hash_file", lambda path: hashed.append(path.name))
    assert open_graph(stored).num_nodes == 60
    assert hashed == []
    (stored / "x.npy").touch()
    with pytest.raises(ShoalError, match=r"x\.npy has changed"):
        open_graph(stored)
    assert hashed == ["x.npy"]


def test_copies_are_known_each_by_its_own_place(stored, tmp_path, monkeypatch):
    other = Path(shutil.copytree(stored, tmp_path / "copy"))
    time.sleep(0.1)
    for folder in (stored, other):
        open_graph(folder)
    hashed = []
    monkeypatch.setattr(verified, "hash_file", lambda path: hashed.append(path.name))
    for folder in (stored, other):
        open_graph(folder)
    assert hashed == []  # neither has taken the other's place
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    with pytest.raises(ShoalError, match="has changed"):
        open_graph(stored)
    assert hashed


def test_a_home_that_cannot_be_written_costs_time_only(stored, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "file"))
    assert open_graph(stored).num_nodes == 60


def test_files_just_written_are_not_trusted_by_their_times(stored):
    (record,) = (stored.parent / "home" / "verified").iterdir()
    for name, stamp in json.loads(record.read_text())["files"].items():
        assert record.stat().st_ctime_ns - stamp[3] > 0, name


def test_changed_description_is_refused(stored):
    meta = json.loads((stored / META).read_text())
    (stored / META).write_text(json.dumps({**meta, "directed": True}))
    with pytest.raises(ShoalError, match=r"meta\.json has changed since it was written: its seal"):
        open_graph(stored)
    (stored / META).write_text(json.dumps({key: value for key, value in meta.items() if key != SEAL}))
    assert open_graph(stored).num_nodes == 60  # of the time before there were seals


def vouch(folder, about_name, array):
    """Make the checksums fit what was changed, as a stranger would."""
    from shoal.array_files import hash_file

    path = folder / about_name
    about = json.loads(path.read_text())
    about["arrays"][array]["sha256"] = hash_file(folder / f"{array}.npy")
    path.write_text(json.dumps({**about, SEAL: seal(about)} if SEAL in about else about))


@pytest.mark.parametrize(("array", "place"), [("indices", -1), ("indptr", -8), ("y", -1), ("train_mask", -1)])
def test_numbers_that_kernels_would_not_survive_are_refused_whoever_vouches_for_them(stored, array, place):
    change(stored / f"{array}.npy", place, 0x40)
    vouch(stored, META, array)
    with pytest.raises(ShoalError, match="is damaged"):
        open_graph(stored)


PART_ARRAYS = (
    "local_indices",
    "halo_indptr",
    "halo_indices",
    "send_rows",
    "halo_offsets",
    "keep",
    "n_id",
    "degree",
)


@pytest.mark.parametrize("array", PART_ARRAYS)
def test_numbers_of_a_part_are_checked_whoever_vouches_for_them(tmp_path, monkeypatch, array):
    from shoal.array_files import hash_file

    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    graph = make_labelled(60)
    folder = store_parts(graph, shoal.Partition(graph, np.arange(60) % 2, 2), tmp_path / "parts")
    own = folder / "part-00000"
    change(own / f"{array}.npy", -1, 0x80 if array != "keep" else 0x40)
    with pytest.raises(ShoalError, match=rf"{array}\.npy has changed since it was written"):
        open_part(folder, 0)
    vouch(own, "part.json", array)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["parts"][0]["sha256"] = hash_file(own / "part.json")
    (folder / "manifest.json").write_text(json.dumps({**manifest, SEAL: seal(manifest)}))
    with pytest.raises(ShoalError, match=rf"part-00000 is damaged: {array}"):
        open_part(folder, 0)
