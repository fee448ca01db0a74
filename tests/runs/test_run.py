"""The run folder: which graph it was trained on, where its data is, every setting in its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

import shoal as package
from command_line import Run as Answer
from shoal.digest import digest_arrays
from shoal.runs.build import make_batches
from shoal.runs.config import make_config, read_config
from shoal.runs.run import Run
from shoal.sampling.base import SAMPLERS, make_sampler, sampler_settings
from small_graphs import make_labelled

SMALL = ("--set", "model.hidden=8", "--set", "sampler.roots=50", "--epochs", "1")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return package.save_graph(make_labelled(), tmp_path / "graph")


def test_config_holds_every_setting_and_the_path_in_full(
    shoal: Callable[..., Answer], stored: Path, tmp_path: Path
) -> None:
    assert shoal("train", "graph", *SMALL, "--out", "run", "--set", "training.lr=1e-3").code == 0
    config = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert config["data"] == str(stored)
    assert config["sampler"] == {"name": "random-walk", "roots": 50, "depth": 2, "coverage": None}
    assert config["model"]["num_layers"] == 4  # as the graph has many labels
    assert config["training"]["lr"] == 0.001
    assert shoal("train", "digits", *SMALL, "--out", "named").code == 0
    assert yaml.safe_load((tmp_path / "named/config.yaml").read_text())["data"] == "digits"


def test_a_width_that_has_no_effect_is_said(shoal: Callable[..., Answer], stored: Path) -> None:
    single = (
        "--model",
        "gcn",
        "--set",
        "model.num_layers=1",
        "--set",
        "model.head_layers=0",
        "--method",
        "full",
    )
    said = shoal("train", "graph", *single, "--epochs", 1, "--set", "model.hidden=8", "--out", "one")
    assert "notice: model.hidden has no effect: the only layer gives the logits" in said.stdout
    assert "model.hidden" not in shoal("train", "graph", *single, "--epochs", 1, "--out", "two").stdout
    fitted = package.NodeClassifier(
        "gcn", epochs=1, model__num_layers=1, model__head_layers=0, model__hidden=8, method="full"
    ).fit(package.open_graph(stored))
    assert any("model.hidden has no effect" in one for one in fitted.notices_)


def test_more_epochs_asked_for_when_resuming_are_kept(
    shoal: Callable[..., Answer], stored: Path, tmp_path: Path
) -> None:
    shoal("train", "graph", *SMALL, "--out", "run")
    assert shoal("train", "--resume", "run", "--epochs", 2).code == 0
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["training"]["epochs"] == 2


def test_a_run_is_opened_from_any_folder(
    shoal: Callable[..., Answer], stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shoal("train", "graph", *SMALL, "--out", "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert shoal("predict", "../run", "-o", "y.npy").code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_nodes": 500}, "it has 500 nodes and the run began with 600"),
        ({"seed": 1}, "its edges or its split differ"),
        ({"num_classes": 4}, "it has 4 classes and the run began with 3"),
    ],
)
def test_another_graph_under_the_same_path_is_refused(
    shoal: Callable[..., Answer], stored: Path, change: dict[str, int], message: str
) -> None:
    shoal("train", "graph", *SMALL, "--out", "run")
    package.save_graph(make_labelled(**change), stored, overwrite=True)
    for command in (("train", "--resume", "run", "--epochs", 2), ("predict", "run", "-o", "y.npy")):
        said = shoal(*command).refusal()
        assert "run was trained on another graph" in said
        assert message in said


@pytest.mark.parametrize("kept_as", ["stored", "file"])
@pytest.mark.parametrize("changed", ["x", "y", "val_mask"])
def test_a_graph_with_other_features_labels_or_masks_is_refused(
    shoal: Callable[..., Answer], tmp_path: Path, kept_as: str, changed: str
) -> None:
    def keep(graph: package.Graph) -> None:
        if kept_as == "stored":
            package.save_graph(graph, tmp_path / "graph", overwrite=True)
            return
        split = np.select([graph.train_mask, graph.val_mask], ["train", "val"], "test")
        rows = zip(range(graph.num_nodes), graph.y, split, *graph.x.T)
        (tmp_path / "graph/nodes.csv").write_text(
            "id,label,split,a,b\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
        )
        (tmp_path / "graph/edges.csv").write_text(
            "source,target\n" + "".join(f"{i},{(i + 1) % 60}\n" for i in range(60))
        )

    plain = make_labelled(60)
    graph = plain._copy(x=np.ascontiguousarray(plain.x[:, :2]))
    if kept_as == "file":
        (tmp_path / "graph").mkdir()
    keep(graph)
    assert shoal("train", "graph", *SMALL, "--out", "run").code == 0
    assert shoal("predict", "run", "-o", "y.npy").code == 0
    node = int(np.flatnonzero(graph.val_mask)[0])
    changes = {changed: getattr(graph, changed).copy()}
    changes[changed][node] = {"x": 3, "y": (graph.y[node] + 1) % 3, "val_mask": False}[changed]
    if changed == "val_mask":
        changes["test_mask"] = graph.test_mask | (np.arange(60) == node)
    keep(graph._copy(**changes))
    assert "its features, its labels or its split differ" in shoal("predict", "run", "-o", "y.npy").refusal()


def test_a_run_that_never_noted_its_features_is_still_opened(
    shoal: Callable[..., Answer], stored: Path, tmp_path: Path
) -> None:
    shoal("train", "graph", *SMALL, "--out", "run")
    noted = json.loads((tmp_path / "run/graph.json").read_text())
    del noted["content"]
    (tmp_path / "run/graph.json").write_text(json.dumps(noted))
    assert shoal("predict", "run", "-o", "y.npy").code == 0


def test_a_damaged_graph_file_is_named(shoal: Callable[..., Answer], stored: Path, tmp_path: Path) -> None:
    shoal("train", "graph", *SMALL, "--out", "run")
    for content in ("{", "[]", '{"num_nodes": null}'):
        (tmp_path / "run/graph.json").write_text(content)
        assert "run/graph.json is damaged" in shoal("embed", "run", "-o", "z.npy").refusal()


def test_features_that_were_cut_are_noticed(shoal: Callable[..., Answer], stored: Path) -> None:
    shoal("train", "graph", *SMALL, "--out", "run")
    graph = make_labelled()
    package.save_graph(graph._copy(x=np.ascontiguousarray(graph.x[:, :5])), stored, overwrite=True)
    assert "it has 5 features and the run began with 8" in shoal("embed", "run", "-o", "z.npy").refusal()


def test_data_that_is_gone_is_said_to_be_the_runs(
    shoal: Callable[..., Answer], stored: Path, tmp_path: Path
) -> None:
    shoal("train", "graph", *SMALL, "--out", "run")
    stored.rename(tmp_path / "moved")
    said = shoal("train", "--resume", "run", "--epochs", 2).refusal()
    assert f"the data of run run was not found: looked for {stored}" in said


def test_notices_of_an_import_are_not_repeated_when_training(
    shoal: Callable[..., Answer], tmp_path: Path
) -> None:
    rows = "".join(f"{i},{'ab'[i % 2]},{i / 10}\n" for i in range(10))
    (tmp_path / "nodes.csv").write_text("id,label,f\n" + rows)
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{i},{9 - i}\n" for i in range(10)))
    imported = shoal("data", "import", ".", "-o", "stored").stdout
    assert "notice: numbered the classes: 0 = a, 1 = b" in imported
    assert "notice: no split given: 60 / 20 / 20 percent are drawn with seed 0 when training" in imported
    trained = shoal("train", "stored", *SMALL, "--out", "run").stdout
    assert "numbered the classes" not in trained
    assert "notice: no split given: drew 60%" in trained
    assert "stored: 10 nodes, 5 edges, 1 features, 2 classes" in trained
    assert "notice: numbered the classes" in shoal("train", ".", *SMALL, "--out", "direct").stdout
    identity = json.loads((tmp_path / "run/graph.json").read_text())
    assert {key: identity[key] for key in ("name", "num_nodes", "num_features", "num_classes")} == {
        "name": "stored",
        "num_nodes": 10,
        "num_features": 1,
        "num_classes": 2,
    }


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"full", "cluster", "rows"}))
def test_the_stored_options_of_every_sampler_make_it_again(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.yaml").write_text(make_config({"sampler": {"name": name}}).to_yaml())
    config = read_config(tmp_path / "config.yaml")
    config.validate()
    assert set(config.sampler.given) == {"name", *sampler_settings(name)}
    graph = make_labelled()
    again, plain = make_batches(config, graph), make_sampler(name, graph)
    assert np.array_equal(again.sample(3).nodes, plain.sample(3).nodes)


@pytest.mark.parametrize("method", ["partitioned", "full"])
def test_a_run_whose_graph_was_known_by_its_arrays_is_resumed(tmp_path: Path, method: str) -> None:
    graph = make_labelled(60)
    stored = package.save_graph(
        graph._copy(train_mask=None, val_mask=None, test_mask=None), tmp_path / "graph"
    )
    settings = {"data": str(stored), "method": method, "model": {"hidden": 8}, "training": {"epochs": 1}}
    run = Run.create(tmp_path / "run", make_config(settings))
    run.train()
    assert run.data.source is None  # no rank keeps the whole graph
    noted = json.loads((tmp_path / "run/graph.json").read_text())
    known = package.open_graph(stored).with_split(seed=0)
    noted["checksum"] = digest_arrays(known.indptr, known.indices, known.train_mask)
    (tmp_path / "run/graph.json").write_text(json.dumps(noted))
    assert Run.open(tmp_path / "run").trainer.epoch == 1
    noted["checksum"] = digest_arrays(known.indptr, known.indices, known.val_mask)
    (tmp_path / "run/graph.json").write_text(json.dumps(noted))
    with pytest.raises(package.ShoalError, match="its edges or its split differ"):
        Run.open(tmp_path / "run")


def test_a_sampler_of_the_same_graph_in_memory_is_accepted(tmp_path: Path) -> None:
    bare = make_labelled(60)._copy(train_mask=None, val_mask=None, test_mask=None)
    stored = package.open_graph(package.save_graph(bare, tmp_path / "graph")).with_split(seed=0)
    graph = bare.with_split(seed=0)
    assert graph.checksum != stored.checksum
    model = package.GNN("sage", 8, 8, 3)
    package.Trainer(model, stored, package.NodeSampler(graph, budget=9))
    package.Trainer(model, graph, package.NodeSampler(stored, budget=9))
    with pytest.raises(package.ShoalError, match="made for another graph"):
        package.Trainer(model, stored, package.NodeSampler(bare.with_split(seed=1), budget=9))
