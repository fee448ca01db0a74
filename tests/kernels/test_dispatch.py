"""One table of kernels: what stands on it runs on a device that has no kernels of its own."""

import os
import subprocess
import sys
from collections import Counter
from functools import wraps

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings

import shoal
from random_adjacencies import adjacencies
from shoal.batch import Batch
from shoal.block import Block
from shoal.kernels.dispatch import ANY, KERNELS, Kernel, kernel_of
from shoal.kernels.gather import gather_rows
from shoal.kernels.patterns import add_diagonal, find_mirrors, join_columns, list_edges, transpose_pattern
from shoal.training.loss import compute_loss

MODELS = {"sage": {}, "gcn": {"norm": "none"}, "mixhop": {"norm": "batch"}, "gat": {"heads": 2}}


def refuse(tensor, *args, **kwargs):
    raise AssertionError("a tensor was turned into an array outside the kernels of the CPU")


@pytest.fixture
def plain_torch(monkeypatch):
    """No operation has a kernel for the CPU, and no tensor becomes an array; counts the calls of each operation."""
    calls = Counter()

    def counted(operation, function):
        @wraps(function)
        def call(*args, **kwargs):
            calls[operation] += 1
            return function(*args, **kwargs)

        return call

    def start():
        for operation, kernels in KERNELS.items():
            monkeypatch.setitem(kernels, "cpu", Kernel(counted(operation, kernels[ANY].function)))
        monkeypatch.setattr(torch.Tensor, "numpy", refuse)
        monkeypatch.setattr(torch.Tensor, "__array__", refuse)
        return calls

    return start


def make_graph(*, sparse):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 12)).astype(np.float32)
    if sparse:
        x = sp.csr_array(x * (rng.random(x.shape) < 0.3))
    edges = rng.integers(0, 60, (2, 200))
    return shoal.Graph.from_edge_index(
        edges, 60, directed=True, x=x, y=rng.integers(0, 4, 60), train_mask=rng.random(60) < 0.7
    )


def train_once(model, graph, *, weighted):
    """Loss and gradients of one step on a batch made anew."""
    indptr, indices = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)
    norm = torch.linspace(0.5, 2, len(indices)) if weighted else None
    batch = Batch(graph, np.arange(60), (Block(indptr, indices, 60, edge_norm=norm),))
    loss = compute_loss(model(batch, step=3), batch)
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_models_train_without_cpu_kernels_and_without_arrays(name, weighted, sparse, plain_torch):
    graph = make_graph(sparse=sparse)
    model = shoal.GNN(name, 12, 16, 4, dropout=0.3, input_dropout=0.2, **MODELS[name])
    fast = train_once(model, graph, weighted=weighted)
    calls = plain_torch()
    plain = train_once(model, graph, weighted=weighted)
    torch.testing.assert_close(plain, fast, rtol=1e-4, atol=1e-5)
    expected = {"gat_attention" if name == "gat" else "multiply", "drop_entries" if sparse else "gather_rows"}
    assert expected <= set(calls)


@settings(max_examples=60, deadline=None)
@given(adj=adjacencies())
def test_patterns_by_plain_torch_are_those_of_the_kernels(adj):
    pattern = (adj.indptr, adj.indices)
    wide = (adj.transpose().indptr, adj.transpose().indices)
    cases = [
        ("transpose_pattern", (*pattern, adj.num_columns)),
        ("list_edges", pattern),
        ("join_columns", (pattern, pattern, adj.num_columns, torch.int32)),
        ("add_diagonal", pattern if adj.num_rows <= adj.num_columns else wide),
    ]
    if adj.num_rows == adj.num_columns:
        cases.append(("find_mirrors", pattern))
    for operation, args in cases:
        fast, plain = (KERNELS[operation][device].function(*args) for device in ("cpu", ANY))
        torch.testing.assert_close(plain, fast, rtol=0, atol=0)


def test_patterns_equal_what_is_written_out():
    indptr, indices = torch.tensor([0, 2, 2, 3]), torch.tensor([0, 2, 1], dtype=torch.int32)
    looped = add_diagonal(indptr, indices)
    assert [part.tolist() for part in looped] == [[0, 2, 3, 5], [0, 2, 1, 1, 2], [0, 1, -1, 2, -1]]
    assert list_edges(indptr, indices).tolist() == [[0, 2, 1], [0, 0, 2]]
    transposed = transpose_pattern(indptr, indices, 3)
    assert [part.tolist() for part in transposed] == [[0, 1, 2, 3], [0, 2, 0], [0, 2, 1]]
    assert find_mirrors(indptr, indices) is None
    joined = join_columns((indptr, indices), (indptr, indices), 3, 3)
    assert [part.tolist() for part in joined] == [[0, 4, 4, 6], [0, 2, 3, 5, 1, 4]]


def test_rows_gathered_by_plain_torch_are_those_of_the_kernel(plain_torch):
    source, rows = (
        np.random.default_rng(0).standard_normal((50, 7)).astype(np.float16),
        torch.arange(49, 9, -2),
    )
    fast = gather_rows(source, rows)
    plain_torch()
    assert torch.equal(gather_rows(source, rows), fast)
    with pytest.raises(shoal.ShoalError, match="row 50 asked for: expected rows 0 to 49"):
        gather_rows(source, rows + 1)


def test_a_device_without_a_kernel_and_a_dtype_it_is_not_for_get_plain_torch():
    plain = KERNELS["dropout"][ANY].function
    assert kernel_of("dropout", torch.empty(0, device="meta")) is plain
    assert kernel_of("dropout", torch.empty(0, dtype=torch.float16)) is plain
    assert kernel_of("dropout", torch.empty(0)) is not plain


def test_compiling_is_said_once_for_each_kernel_that_no_earlier_process_used(tmp_path):
    use = "import numpy as np; from shoal.kernels.csr import count_diagonal as one, first_bad_row as other"
    called = "{}(np.array([0, 1]), np.array([0], np.int32))"
    errors = []
    for name in ("one", "one", "other"):
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        code = f"{use}; {called.format(name)}"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        errors.append(done.stderr)
    said = "shoal: compiling kernels that no earlier command used (up to a minute); they are cached for the next one\n"
    assert errors == [said, "", said]
