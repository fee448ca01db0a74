"""Planetoid pickles as Python 2 wrote them, and pickles that must not be run."""

import io
import pickle
import struct
from collections import defaultdict
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError

OLD_NAMES = {
    ("numpy._core.multiarray", "_reconstruct"): "numpy.core.multiarray",
    ("scipy.sparse._csr", "csr_matrix"): "scipy.sparse.csr",
    ("builtins", "list"): "__builtin__",
}


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2 wrote: bytes as `str` opcodes, the module names of that time."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        self.write(b"T" + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes

    def save_global(self, value, name=None):
        name = name or value.__qualname__
        module = OLD_NAMES.get((value.__module__, name), value.__module__)
        self.write(f"c{module}\n{name}\n".encode())
        self.memoize(value)

    dispatch[type] = save_global
    dispatch[type(len)] = save_global
    dispatch[type(struct.pack)] = save_global


def dump(path, value):
    buffer = io.BytesIO()
    Python2Pickler(buffer, 2).dump(value)
    path.write_bytes(buffer.getvalue())


def write_planetoid(folder, *, name="toy", test=(5, 3), graph=None):
    """Nodes 0-2 in allx (node 0 trains), test rows for `test`; features name the row they came from."""
    allx = np.diag([1.0, 2.0, 3.0, 0.0, 0.0]).astype(np.float32)[:3]
    tx = np.array([[0, 0, 0, 9, 0], [0, 0, 0, 0, 7]], np.float32)
    onehot = np.eye(3, dtype=np.int32)
    parts = {
        "x": sp.csr_matrix(allx[:1]),
        "allx": sp.csr_matrix(allx),
        "tx": sp.csr_matrix(tx),
        "y": onehot[[2]],
        "ally": onehot[[2, 0, 1]],
        "ty": onehot[[1, 0]],
        "graph": defaultdict(list, graph or {0: [1, 1, 0], 1: [0, 5], 2: [3], 3: [2], 4: [], 5: [1]}),
    }
    for part, value in parts.items():
        dump(folder / f"ind.{name}.{part}", value)
    (folder / f"ind.{name}.test.index").write_text("".join(f"{i}\n" for i in test))


def test_rows_go_where_test_index_says_and_gaps_stay_empty(tmp_path):
    write_planetoid(tmp_path)
    graph = import_graph(tmp_path)
    assert sp.issparse(graph.x)
    assert graph.x.dtype == np.float32
    assert graph.x.toarray()[3].tolist() == [0, 0, 0, 0, 7]
    assert graph.x.toarray()[5].tolist() == [0, 0, 0, 9, 0]
    assert graph.x.toarray()[4].tolist() == [0] * 5
    assert graph.y.tolist() == [2, 0, 1, 0, -1, 1]
    assert np.flatnonzero(graph.train_mask).tolist() == [0]
    assert np.flatnonzero(graph.val_mask).tolist() == [1, 2]
    assert np.flatnonzero(graph.test_mask).tolist() == [3, 5]
    assert graph.indices.tolist() == [1, 0, 5, 3, 2, 1]
    assert (graph.name, graph.directed, graph.num_edges) == ("toy", False, 3)
    assert any("1 node missing from test.index" in notice for notice in graph.notices)
    assert any("dropped 1 self loops" in notice for notice in graph.notices)
    assert import_graph(tmp_path / "ind.toy.allx").num_nodes == 6


def test_pickles_of_this_python_are_read_too(tmp_path):
    write_planetoid(tmp_path)
    expected = import_graph(tmp_path)
    for protocol in (0, 2, 4):
        value = sp.csr_matrix(np.array([[0, 0, 0, 9, 0], [0, 0, 0, 0, 7]], np.float32))
        (tmp_path / "ind.toy.tx").write_bytes(pickle.dumps(value, protocol))
        assert (import_graph(tmp_path).x != expected.x).nnz == 0


class Hostile:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        import os

        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_hostile_pickle_is_refused_and_not_run(tmp_path, protocol):
    write_planetoid(tmp_path)
    mark = tmp_path / "ran"
    (tmp_path / "ind.toy.graph").write_bytes(pickle.dumps({0: [Hostile(mark)]}, protocol))
    with pytest.raises(ShoalError, match=r"ind\.toy\.graph refers to (posix|nt|os)\.system: refused"):
        import_graph(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "builtins eval",
        "builtins getattr",
        "numpy load",
        "numpy.core.multiarray fromstring",
        "scipy.sparse csc_matrix",
        "builtins list.append",
    ],
)
def test_no_other_global_is_allowed(tmp_path, name):
    write_planetoid(tmp_path)
    module, function = name.split()
    (tmp_path / "ind.toy.x").write_bytes(f"c{module}\n{function}\n(tR.".encode())
    with pytest.raises(ShoalError, match=rf"ind\.toy\.x refers to {module}\.{function}"):
        import_graph(tmp_path)


def test_allowed_names_cannot_be_changed_from_a_pickle(tmp_path):
    write_planetoid(tmp_path)
    for target in (
        b"cnumpy\nndarray\n",
        b"cnumpy.core.multiarray\n_reconstruct\n",
        b"cnumpy\ndtype\n",
        b"c__builtin__\nlist\n",
    ):
        (tmp_path / "ind.toy.x").write_bytes(target + b"(N}S'resolve'\nI1\nstb.")
        with pytest.raises(ShoalError, match=r"ind\.toy\.x"):
            import_graph(tmp_path)
    write_planetoid(tmp_path)
    assert import_graph(tmp_path).num_nodes == 6


def test_object_arrays_and_damage_are_refused(tmp_path):
    write_planetoid(tmp_path)
    path = tmp_path / "ind.toy.y"
    whole = path.read_bytes()
    dump(path, np.array([{}], object))
    with pytest.raises(ShoalError, match=r"ind\.toy\.y cannot be read"):
        import_graph(tmp_path)
    for content in (whole[:-20], whole[:1], b"", b"not a pickle"):
        path.write_bytes(content)
        with pytest.raises(ShoalError, match=r"ind\.toy\.y"):
            import_graph(tmp_path)
    path.unlink()
    with pytest.raises(ShoalError, match=r"ind\.toy\.y does not exist"):
        import_graph(tmp_path)


def test_inconsistent_files_are_named(tmp_path):
    write_planetoid(tmp_path, test=(5, 3, 4))
    with pytest.raises(ShoalError, match=r"test\.index lists 3 nodes: expected 2"):
        import_graph(tmp_path)
    write_planetoid(tmp_path, test=(5, 1))
    with pytest.raises(ShoalError, match="lists node 1: expected 3 or more"):
        import_graph(tmp_path)
    write_planetoid(tmp_path, graph={0: [17]})
    with pytest.raises(ShoalError, match=r"ind\.toy\.graph names node 17"):
        import_graph(tmp_path)
    write_planetoid(tmp_path)
    dump(tmp_path / "ind.toy.y", np.array([[1, 1, 0]], np.int32))
    with pytest.raises(ShoalError, match=r"ind\.toy\.y: row 0 is not one-hot"):
        import_graph(tmp_path)
