"""What a run is estimated to hold: sparse features by what is stored, layered batches by what they read."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import shoal
from shoal.distributed.batch import local_graph
from shoal.errors import ShoalError
from shoal.memory import set_memory_budget
from shoal.runs import need
from shoal.runs.build import check_training_graph
from shoal.runs.need import Need, estimate_need
from shoal.sampling.feature_cache import FeatureCaching
from shoal.training.part_share import PartShare
from small_graphs import make_labelled


@pytest.fixture(autouse=True)
def no_budget():
    yield
    set_memory_budget(None)


def estimate(graph, sampler, place, **settings):
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes, **settings)
    return estimate_need(shoal.Trainer(model, graph, sampler), place)


def widen(graph, width):
    """A few entries in each of many columns, sparse and dense."""
    rng = np.random.default_rng(1)
    x = sp.random_array((graph.num_nodes, width), density=4 / width, rng=rng, dtype=np.float32).tocsr()
    return graph._copy(x=sp.csr_array(x)), graph._copy(x=x.toarray())


def test_sparse_features_count_by_their_entries_and_only_where_batches_are_drawn(tmp_path):
    width = 20_000
    sparse, dense = widen(make_labelled(600), width)
    steps = {
        (kind, drawn): estimate(graph, shoal.NodeSampler(graph, budget=300) if drawn else None, tmp_path).step
        for kind, graph in (("sparse", sparse), ("dense", dense))
        for drawn in (False, True)
    }
    weights = 6 * 4 * 2 * 16 * width
    assert steps["sparse", False] < 1.2 * weights
    assert (
        steps["dense", False] - steps["sparse", False] == 4 * 600 * width
    )  # `A x`, of features that are dense
    assert steps["sparse", True] < 1.2 * weights
    assert steps["dense", True] - steps["sparse", True] > 0.7 * 3 * 4 * 300 * width


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("kind", ["full", "subgraph", "layered"])
@pytest.mark.parametrize("setting", [{"input_norm": "rows"}, {"input_dropout": 0.5}])
def test_a_copy_of_dense_features_is_counted(setting, kind, is_sparse, tmp_path):
    width = 2000
    graph = widen(make_labelled(600), width)[0 if is_sparse else 1]
    sampler, rows = None, 600
    if kind == "subgraph":
        sampler = shoal.NodeSampler(graph, budget=300)
        rows = int(sampler.batch_size)
    elif kind == "layered":
        sampler = shoal.NeighborSampler(graph, fanouts=(5, 5), batch_size=10)
        rows = sampler.sample(0).num_nodes
    plain, copied = (estimate(graph, sampler, tmp_path, num_layers=2, **more) for more in ({}, setting))
    size = 0 if is_sparse else 4 * width
    assert (copied.step - copied.ahead) - (plain.step - plain.ahead) == size * rows
    is_normal = "input_norm" in setting
    assert copied.evaluation - plain.evaluation == (size * 600 if is_normal else 0)


MEASURE = """
import threading
import numpy as np, shoal
from pathlib import Path
from shoal.memory import anonymous_memory, return_freed_memory
from shoal.runs.need import estimate_need

n, width = 8_000, 2_000
rng = np.random.default_rng(0)
x = rng.random((n, width), np.float32)
graph = shoal.Graph.from_edge_index(rng.integers(0, n, (2, 3 * n)), n, x=x, y=rng.integers(0, 4, n)).with_split(seed=0)
for norm in ("none", "none", "rows"):  # the first loads kernels
    trainer = shoal.Trainer(shoal.GNN("gcn", width, 16, 4, input_norm=norm), graph)
    need = estimate_need(trainer, Path("."))
    return_freed_memory()
    held = most = anonymous_memory()
    done = threading.Event()
    def watch():
        global most
        while not done.wait(0.001):
            most = max(most, anonymous_memory())
    thread = threading.Thread(target=watch); thread.start()
    trainer.train_epoch()
    trainer.evaluate("val")
    done.set(); thread.join()
    grown = most - held
    del trainer
print(grown, 4 * n * width, max(need.step, need.ahead + need.evaluation + need.matrices))
"""


def test_training_on_normalised_features_holds_what_is_estimated():
    answer = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=300
    )
    grown, copied, estimated = map(int, answer.stdout.split())
    assert copied < grown <= estimated


def test_a_layered_batch_counts_the_rows_its_layers_read(tmp_path):
    graph = make_labelled(600)
    sampler = shoal.NeighborSampler(graph, fanouts=(5, 5), batch_size=10)
    few = estimate(graph, shoal.NeighborSampler(graph, fanouts=(1, 1), batch_size=10), tmp_path, num_layers=2)
    many = estimate(graph, sampler, tmp_path, num_layers=2)
    read = sampler.sample(0).num_nodes
    assert read > 100
    assert many.step - few.step > 4 * 3 * 8 * (read - 40)  # features alone
    assert many.step < estimate(graph, None, tmp_path, num_layers=2).step


def test_only_a_given_budget_is_refused(tmp_path, monkeypatch):
    found = estimate(make_labelled(600), None, tmp_path)
    monkeypatch.setattr(need, "memory_budget", lambda: found.held)
    assert "which may not suffice" in found.check()
    set_memory_budget(found.held)
    with pytest.raises(ShoalError, match="--memory allows"):
        found.check()


def test_freed_memory_is_kept_only_if_a_budget_allows_for_a_fragmented_heap(tmp_path):
    graph = make_labelled(5000)
    trainer = shoal.Trainer(shoal.GNN("sage", graph.num_features, 64, graph.num_classes), graph)
    assert estimate_need(trainer, tmp_path).enough == 0
    assert trainer.share.keeps_freed
    set_memory_budget(2**40)
    least = estimate_need(trainer, tmp_path).least
    assert trainer.share.keeps_freed
    set_memory_budget(least + 3 * 10**6)
    for _ in range(2):  # also if it is estimated again
        found = estimate_need(trainer, tmp_path)
        assert found.enough > found.least
        assert not trainer.share.keeps_freed
    assert "steps are faster with --memory" in found.check()


def test_the_line_says_what_is_in_use_and_what_comes_on_top(tmp_path):
    graph = make_labelled(300)
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes)
    line = estimate_need(shoal.Trainer(model, graph), tmp_path).check()
    said = r"memory: .* free or in use.*; .* in use, compiled kernels .*, a step takes about .*, evaluation .* and layer outputs of all nodes "
    assert re.match(said, line), line


def test_features_in_files_are_nobodys_memory(tmp_path):
    graph = make_labelled(600)
    stored = shoal.open_graph(shoal.save_graph(graph, tmp_path / "graph", features="float16"))
    plain = shoal.open_graph(shoal.save_graph(graph, tmp_path / "plain"))
    halved = estimate(plain, None, tmp_path).mapped - estimate(stored, None, tmp_path).mapped
    assert halved == 2 * 8 * 600


def test_an_inductive_graph_beyond_the_budget_is_refused_before_it_is_made():
    graph = make_labelled(600)
    set_memory_budget(1)
    with pytest.raises(ShoalError, match="the inductive training graph, at most, takes about"):
        check_training_graph(graph, "inductive")
    check_training_graph(graph, "transductive")
    set_memory_budget(None)
    check_training_graph(graph, "inductive")


def test_batches_drawn_ahead_count_by_their_threads(tmp_path):
    graph = widen(make_labelled(600), 2000)[1]
    steps = {}
    for threads in (0, 4):
        model = shoal.GNN("sage", 2000, 16, 3)
        sampler = shoal.NodeSampler(graph, budget=300)
        steps[threads] = estimate_need(
            shoal.Trainer(model, graph, sampler, sampling_threads=threads), tmp_path
        ).step
    batch = 4 * sampler.batch_size * 2000
    assert steps[4] - steps[0] == pytest.approx(7 * batch, rel=0.05)  # ten of them instead of three


def test_reading_ahead_is_counted_only_where_a_cache_is_made(tmp_path):
    graph = shoal.open_graph(shoal.save_graph(make_labelled(600), tmp_path / "graph"))
    needs = {}
    for name, settings in {
        "mapped": {"policy": "mapped"},
        "fits": {},
        "lru": {"cache": 0.1, "policy": "lru", "direct": False, "readers": 1},
        "window": {"cache": 0.1, "window": 1000, "direct": False, "readers": 1},
        "queued": {"cache": 0.1, "policy": "lru", "direct": True, "readers": 256},
    }.items():
        trainer = shoal.Trainer(
            shoal.GNN("sage", 8, 16, 3),
            graph,
            shoal.NodeSampler(graph, budget=300),
            features=FeatureCaching(**settings),
        )
        needs[name] = estimate_need(trainer, tmp_path).step
    nodes = int(trainer.sampler.batch_size)
    assert needs["mapped"] == needs["fits"] < needs["lru"]
    assert needs["window"] - needs["lru"] == 20 * 1000 * nodes
    assert (
        30e6 < needs["queued"] - needs["lru"] < 70e6
    )  # buffers of 256 threads or of two queues of 256 reads


def test_factors_of_unbiased_batches_count_by_the_entry(tmp_path):
    graph = make_labelled(600)
    plain, unbiased = (
        estimate(graph, shoal.NodeSampler(graph, budget=30, coverage=coverage), tmp_path)
        for coverage in (None, 5)
    )
    assert unbiased.ahead - plain.ahead == 12 * graph.num_entries
    assert unbiased.step - unbiased.ahead >= 40 * graph.num_entries


def test_a_part_counts_the_rows_of_others(tmp_path):
    graph = make_labelled(600)
    part = shoal.partition_graph(graph, 2, "random").split()[0]
    trainer = SimpleNamespace(
        share=object.__new__(PartShare),
        graph=local_graph(part),
        sampler=None,
        sampling_threads=0,
        model=shoal.GNN("sage", 8, 16, 3),
    )
    trainer.share.part = trainer.share.training = part
    assert part.num_halo > 100
    step, ahead = need._count_step(trainer)
    assert step == 4 * 3 * (part.num_local + part.num_halo) * 32
    aggregate = 4 * 8 * part.num_local  # `A x`
    assert ahead == 4 * 2 * (len(part.local_indices) + len(part.halo_indices)) + aggregate
    trainer.share.training = seen = shoal.partition_graph(graph.train_graph(), 2, "random").split()[0]
    more = need._count_step(trainer)[1] - ahead  # pattern, features and `A x` of the training graph
    entries = len(seen.local_indices) + len(seen.halo_indices)
    assert more == 4 * 2 * entries + 2 * 4 * 8 * seen.num_local


@pytest.mark.parametrize("matrices", [0, 2 * 10**6])
def test_matrices_are_named_where_there_are_any(matrices: int, tmp_path: Path) -> None:
    others = dict.fromkeys(("held", "code", "step", "ahead", "cache", "mapped"), 0)
    line = Need(**others, evaluation=3 * 10**6, matrices=matrices, place=tmp_path).check()
    assert "evaluation 3.0 MB" in line
    assert ("layer outputs of all nodes 2.0 MB" in line) == bool(matrices)
    assert "all nodes 0" not in line
