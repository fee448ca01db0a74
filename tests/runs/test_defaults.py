"""Settings that follow the graph: the facts, the rule, and what overrides it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

import shoal
from shoal.runs.build import make_trainer
from shoal.runs.config import FROM_GRAPH, RunConfig, apply_setting, make_config
from shoal.runs.data import load_graph
from shoal.runs.defaults import FEW_LABELS, choose_settings, follow_graph
from shoal.runs.effort import choose_epochs
from shoal.runs.facts import Facts, measure_facts
from small_graphs import make_labelled


def settle(*settings: str, data: str = "digits") -> tuple[RunConfig, tuple[str, ...]]:
    config = RunConfig(data=data, defaults=FROM_GRAPH)
    for setting in settings:
        apply_setting(config, setting)
    config.validate()
    _, notices = load_graph(config)
    config.validate()
    return config, notices


def test_a_layered_sampler_decides_the_depth_of_the_model():
    for settings, depth in (
        (("sampler.name=neighbor", "sampler.fanouts=5-5-5"), 3),
        (("sampler.name=labor",), 2),
        (("sampler.name=ladies", "sampler.num_layers=4"), 4),
    ):
        config, notices = settle("method=sampled", *settings)
        assert config.model.num_layers == depth
        name = settings[0].partition("=")[2]
        assert f"sampler {name} draws for this depth: model.num_layers={depth}" in notices
    config, notices = settle("method=sampled", "sampler.name=neighbor", "model.orders=1-1-0")
    assert not any("draws for this depth" in one for one in notices)


def test_a_class_with_most_training_nodes_chooses_the_metric():
    """Accuracy would keep the weights of an epoch that predicts one class for all."""

    def choose(**about):
        facts = Facts(10**4, 10**5, 100, num_labels=5000, **about)
        return [
            one.settings["training.metric"]
            for one in choose_settings(facts)
            if "training.metric" in one.settings
        ]

    assert choose(num_classes=2, largest_class=0.97) == ["roc_auc"]
    assert choose(num_classes=3, largest_class=0.97) == ["roc_auc"]
    assert choose(num_classes=2, largest_class=0.8) == []
    assert choose(num_classes=1, largest_class=1.0) == []


def test_more_than_four_layers_take_batch_norm_unless_a_norm_is_given():
    """With layer norm they stay at the largest class for many epochs."""
    for layers, norm in ((4, "layer"), (5, "batch"), (8, "batch")):
        config, notices = settle(f"model.num_layers={layers}", data="blocks")
        assert config.model.norm == norm
        assert any("learn slowly with layer norm: model.norm=batch" in one for one in notices) == (
            norm == "batch"
        )
    config, _ = settle("model.num_layers=6", "model.hidden=32-32-32-32-32-32", data="blocks")
    assert config.model.norm == "batch"
    config, _ = settle("model.num_layers=8", "model.norm=layer", data="blocks")
    assert config.model.norm == "layer"


def test_directed_graphs_are_aggregated_both_ways_where_the_run_can():
    directed = make_labelled(directed=True)
    cases = {
        "training.epochs=3": "both",
        "model.name=sage": "both",
        "model.directions=in": "in",
        "method=full": "both",
        "sampler.name=frontier": "both",
        "sampler.coverage=50": "in",
        "sampler.name=neighbor": "in",
        "method=swapped": "in",
        "model.name=gat": "in",
        "model.name=mlp": "in",
        "training.history=true": "in",
        "method=partitioned": "both",
        "method=partitioned partition.boundary_rate=0.5": "in",
        "method=partitioned partition.staleness=1": "in",
    }
    for settings, expected in cases.items():
        config = RunConfig(defaults=FROM_GRAPH)
        for setting in settings.split():
            apply_setting(config, setting)
        lines = follow_graph(config, directed)
        assert getattr(config.model, "directions", "in") == expected, settings
        assert any("model.directions=both" in line for line in lines) == (expected == "both")
        named = [line for line in lines if "in one direction only" in line]
        if expected == "both" or settings.startswith("model."):
            assert not named
        else:
            reason = settings.split()[-1].partition("=")
            assert (reason[2] if reason[0] in ("sampler.name", "method") else reason[0]) in named[0]
        if config.method not in ("partitioned", "swapped"):
            make_trainer(config, directed)  # raises if directions cannot be aggregated
    config = RunConfig(defaults=FROM_GRAPH)
    follow_graph(config, make_labelled())
    assert config.model.directions == "in"


def test_few_labels_of_many_classes_take_cross_entropy():
    """The log-ε loss weighs nodes by 1 / (ε + loss): those of many classes, whose losses begin large, hardly count."""
    few = Facts(num_nodes=1000, num_entries=5000, num_features=10, num_classes=7, num_labels=140)
    assert choose_settings(few)[0].settings["training.loss"] == "log_epsilon"
    many = replace(few, num_classes=44, num_labels=880)
    assert choose_settings(many)[0].settings["training.loss"] == "cross_entropy"


def test_few_labels_whose_neighbours_have_other_classes_keep_own_features_apart():
    few = Facts(num_nodes=1000, num_entries=5000, num_features=10, num_classes=5, num_labels=100, words=True)
    mixed = choose_settings(replace(few, homophily=0.1))
    assert "edges seldom join equal classes" in mixed[0].reason
    assert mixed[0].settings["model.name"] == "sage"
    assert mixed[0].settings["model.input_dropout"] == 0.5
    assert not any("model.input_norm" in one.settings for one in mixed)
    assert choose_settings(few)[0].settings["model.name"] == "gcn"
    many = replace(few, num_labels=5000, homophily=0.1)
    assert choose_settings(many)[0].settings["model.name"] == "gcn"


@pytest.mark.parametrize(("per_class", "short", "long"), [(49, 2, 2), (50, 2, 4), (99, 2, 4), (100, 4, 4)])
def test_more_labels_of_short_texts_are_few(per_class: int, short: int, long: int):
    texts = Facts(1000, 5000, num_features=30, num_classes=5, num_labels=5 * per_class, words=True)
    for facts, layers in ((texts, short), (replace(texts, num_features=100), long)):
        assert choose_settings(facts)[0].settings["model.num_layers"] == layers


def test_long_texts_with_few_labels_keep_their_rows():
    """Divided by the sum of many words, values are too small for the weight decay of few labels."""
    few = Facts(num_nodes=1000, num_entries=5000, num_features=20, num_classes=7, num_labels=140, words=True)
    long, many = replace(few, num_features=267), replace(few, num_features=267, num_labels=7000)
    settings = [
        {name: value for one in choose_settings(facts) for name, value in one.settings.items()}
        for facts in (few, long, many)
    ]
    assert [one.get("model.input_norm") for one in settings] == ["rows", None, "rows"]
    assert settings[0]["training.weight_decay"] < settings[1]["training.weight_decay"]


def test_few_and_many_labels_get_other_settings():
    few = Facts(num_nodes=1000, num_entries=5000, num_features=10, num_classes=4, num_labels=80)
    many = Facts(num_nodes=1000, num_entries=5000, num_features=10, num_classes=4, num_labels=4 * FEW_LABELS)
    shallow, deep = choose_settings(few)[0].settings, choose_settings(many)[0].settings
    assert shallow["model.num_layers"] < deep["model.num_layers"]
    assert shallow["training.weight_decay"] > 0
    assert deep["model.residual"] == "linear"


def test_rows_of_words_are_normalised_unless_the_model_or_a_setting_forbids_it():
    counts = sp.csr_array(sp.random_array((200, 300), density=0.1, random_state=1, dtype=np.float32)).ceil()
    words = make_labelled()._copy(x=counts[np.arange(make_labelled().num_nodes) % 200])
    assert measure_facts(words).words
    assert not measure_facts(make_labelled()).words
    assert not measure_facts(words._copy(x=-words.x)).words
    assert not measure_facts(words._copy(x=0.3 * words.x)).words  # such as TF-IDF
    assert not measure_facts(words._copy(x=words.x[:, :100])).words
    cases = {
        "training.epochs=3": "rows",
        "model.name=gat": "none",
        "model.name=sign": "none",
        "training.label_reuse=0.5": "none",
    }
    for setting, expected in cases.items():
        config = RunConfig(defaults=FROM_GRAPH)
        apply_setting(config, setting)
        follow_graph(config, words)
        assert config.model.input_norm == expected
    few = Facts(num_nodes=1000, num_entries=5000, num_features=10, num_classes=4, num_labels=80)
    raw, normal = (choose_settings(replace(few, words=one)) for one in (False, True))
    assert normal[0].settings["training.weight_decay"] < raw[0].settings["training.weight_decay"]


def test_a_regression_is_not_given_a_loss_of_classes():
    graph = make_labelled()
    target = shoal.Graph(
        graph.indptr, graph.indices, x=graph.x, y=graph.x[:, 0] + 0.5, train_mask=graph.train_mask
    )
    facts = measure_facts(target)
    assert facts.regression
    assert not any("training.loss" in choice.settings for choice in choose_settings(facts))


def take(facts: Facts, **given: object) -> dict[str, object]:
    """The settings of the rule, by name."""
    choices = choose_settings(facts, given=given)
    return {name: value for choice in choices for name, value in choice.settings.items()}


def test_layers_are_as_wide_as_enough_steps_allow():
    small, large = Facts(10**4, 10**5, 100, 5, 5000), Facts(2 * 10**5, 2 * 10**6, 100, 5, 10**5)
    found = [(take(facts)["model.hidden"], take(facts)["model.dropout"]) for facts in (small, large)]
    assert found == [(128, 0.5), (64, 0.2)]
    assert take(large, num_layers=2)["model.hidden"] == 128
    sizes = (10**4, 5 * 10**4, 10**6)
    multi = [replace(small, multi_label=True, num_nodes=size, num_entries=10 * size) for size in sizes]
    assert [take(facts)["model.hidden"] for facts in multi] == [512, 256, 128]


def test_what_is_given_counts_for_dropout_and_epochs():
    large = Facts(10**5, 10**6, 100, 5, 10**5)
    assert [take(large, hidden=width)["model.dropout"] for width in (32, 64, 128, 512)] == [
        0.2,
        0.2,
        0.5,
        0.5,
    ]
    shapes = (
        {"hidden": 512},
        {"hidden": 64},
        {"hidden": "64-64-64-64", "num_layers": None},
        {"hidden": 64, "orders": "1-1", "num_layers": None},
    )
    epochs = [take(large, **shape)["training.epochs"] for shape in shapes]
    assert epochs[0] == 60
    assert epochs[0] < epochs[1] == epochs[2] <= epochs[3]
    line = next(
        choice
        for choice in choose_settings(large, given={"hidden": 64})
        if "model.dropout" in choice.settings
    )
    assert line.explain(["model.dropout"]) == "layers of width 64: model.dropout=0.2"


def test_the_learning_rate_rises_at_first_where_layers_are_many():
    many = Facts(10**4, 10**5, 100, 5, 5000)

    def find_warmup(facts: Facts, epochs: int | None, **given: object) -> int:
        choices = choose_settings(facts, epochs, given)
        return sum(choice.settings.get("training.warmup", 0) for choice in choices)

    assert [find_warmup(many, epochs) for epochs in (None, 100, 9)] == [20, 10, 0]
    assert find_warmup(many, None, num_layers=1) == 0
    assert find_warmup(replace(many, num_labels=80), None) == 0
    assert find_warmup(replace(many, regression=True), None) == 0


def test_larger_graphs_get_fewer_epochs_within_bounds():
    sizes = [10**3, 10**5, 10**6, 10**8]
    found = [choose_epochs(Facts(size, 10 * size, 100, 5, size // 2), [256] * 3) for size in sizes]
    assert found == sorted(found, reverse=True)
    assert found[0] == 500
    assert found[-1] == 60


def test_what_is_given_stays_and_the_rest_is_said_with_its_reason():
    config, notices = settle("model.name=gat", "training.epochs=7", "model.dropout=0.25")
    assert (config.model.name, config.training.epochs, config.model.dropout) == ("gat", 7, 0.25)
    assert config.training.weight_decay == 0.005
    assert any(
        "on average 36 training nodes per class are few" in line and "weight_decay" in line
        for line in notices
    )
    assert not any(name in line for line in notices for name in ("epochs=", "model.dropout=", "model.name="))


def test_a_reason_speaks_only_of_settings_that_are_taken():
    many = Facts(num_nodes=1000, num_entries=5000, num_features=10, num_classes=4, num_labels=4 * FEW_LABELS)
    shape, _, length, _ = choose_settings(many)
    assert shape.explain(["training.lr"]) == "on average 50 training nodes per class: training.lr=0.01"
    both = shape.explain(["model.num_layers", "model.residual"])
    assert both.startswith(
        "on average 50 training nodes per class (four layers, learned residuals): model.num_layers=4"
    )
    assert "ten minutes" in length.explain(["training.epochs", "training.patience"])
    assert "ten minutes" not in length.explain(["training.patience"])
    _, notices = settle("model.num_layers=2", "model.residual=none", "model.norm_place=conv", data="blocks")
    assert not any(word in line for line in notices for word in ("four layers", "residuals", "activation"))


@pytest.mark.parametrize(("epochs", "patience"), [(6, 20), (100, 20), (400, 80)])
def test_patience_is_a_fifth_of_the_epochs_that_are_given(epochs: int, patience: int):
    config, notices = settle(f"training.epochs={epochs}")
    assert config.training.patience == patience
    assert (
        f"a fifth of the {epochs} epochs that were given, at least 20: training.patience={patience}"
        in notices
    )
    config, _ = settle(f"training.epochs={epochs}", data="blocks")
    assert config.training.patience == max(patience, 50)
    config, notices = settle(f"training.epochs={epochs}", "training.patience=7")
    assert config.training.patience == 7
    assert not any("a fifth" in line for line in notices)


@pytest.mark.parametrize(
    "settings",
    [("model.orders=1-0-1",), ("model.hidden=32-16",), ("model.norm_place=input",), ("model.jumping=max",)],
)
@pytest.mark.parametrize("data", ["blocks", "digits"])
def test_settings_that_decide_for_others_are_not_contradicted(settings, data):
    config, _ = settle(*settings, data=data)
    assert config.model.num_layers in (None, 2, 4)
    shoal.GNN(
        "sage", 8, config.model.hidden, 3, orders=config.model.orders, num_layers=config.model.num_layers
    )


def test_layered_samplers_keep_the_depth_they_sample():
    config, _ = settle("method=sampled", "sampler.name=neighbor", data="blocks")
    assert config.model.num_layers in (None, 2)


def test_a_recipe_is_what_it_says(tmp_path: Path):
    config = make_config({"data": "digits", "model": {"hidden": 8}})
    assert follow_graph(config, shoal.load("digits")) == ()
    assert config.model.name == "sage"


def test_a_run_that_follows_the_graph_is_written_out_in_full(shoal, tmp_path):
    small = ("--set", "model.hidden=8", "--epochs", "2")
    assert shoal("train", "digits", *small, "--out", "run").code == 0
    config = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert config["model"]["name"] == "gcn"
    assert config["training"]["weight_decay"] == 0.005
    assert "defaults" not in config
