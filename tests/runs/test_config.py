"""Configuration: YAML and key=value settings, with names and types checked."""

import re

import pytest

import shoal
from shoal.runs.config import RunConfig, apply_setting, make_config, read_config


def test_a_configuration_survives_yaml(tmp_path):
    config = RunConfig(data="digits", data_options={"seed": 3})
    for setting in (
        "model.hidden=64",
        "model.orders=1-0",
        "sampler.roots=10",
        "training.lr=1",
        "data.seed=4",
        "method=full",
    ):
        apply_setting(config, setting)
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    assert read_config(path) == config
    assert config.model.hidden == 64
    assert config.sampler.roots == 10
    assert config.training.lr == 1.0
    assert config.data_options == {"seed": 4}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.hiden=64", "did you mean 'hidden'"),
        ("modl.hidden=64", "did you mean 'model'"),
        ("model.hidden=true", "--set model.hidden=true: got True, expected a whole number or text"),
        ("model.heads=8", "model.heads=8 belongs to model 'gat'"),
        ("training.patience=x", "got 'x', expected a whole number, or null"),
        ("model=sage", "expected keys and values"),
        ("hidden=64", "did you mean model.hidden=64?"),
        ("hidden", "expected key=value"),
        ("model.hidden=[", "not a valid value"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, message):
    with pytest.raises(shoal.ShoalError) as caught:
        apply_and_validate(setting)
    assert message in str(caught.value)


def apply_and_validate(setting):
    config = RunConfig()
    apply_setting(config, setting)
    config.validate()


def test_norm_first_of_old_configurations_is_a_place_of_the_norm():
    for given, place in (({"norm_first": True}, "conv"), ({"norm_first": False}, "activation")):
        config = make_config({"model": given})
        config.validate()
        assert config.model.norm_place == place
        assert "norm_first" not in config.to_dict()["model"]
        assert shoal.GNN("gcn", 8, 16, 3, **given).layers[1].norm_place == place
    config = make_config({"model": {"norm_first": True}})
    apply_setting(config, "model.norm_place=input")
    config.validate()
    assert config.model.norm_place == "input"
    with pytest.raises(shoal.ShoalError, match="norm_first is 'yes!': expected true"):
        make_config({"model": {"norm_first": "yes!"}}).validate()


def test_optional_numbers_take_numbers_and_null():
    config = RunConfig()
    apply_setting(config, "training.patience=null")
    assert config.training.patience is None
    apply_setting(config, "training.clip=1")
    assert config.training.clip == 1


def test_a_broken_recipe_is_named_with_its_line(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("data: digits\nmodel: [\n")
    with pytest.raises(shoal.ShoalError, match=r"recipe.yaml, line 3: not valid YAML"):
        read_config(path)
    with pytest.raises(shoal.ShoalError, match="does not exist"):
        read_config(tmp_path / "none.yaml")


def test_a_number_without_a_point_is_a_number_in_settings_and_recipes(tmp_path):
    config = RunConfig()
    for setting in ("training.lr=1e-3", "training.clip=5E+0"):
        apply_setting(config, setting)
    assert (config.training.lr, config.training.clip) == (0.001, 5.0)
    path = tmp_path / "recipe.yaml"
    path.write_text("training: {lr: 1e-3, weight_decay: '0.5'}\n")
    written = read_config(path)
    written.validate()
    assert (written.training.lr, written.training.weight_decay) == (0.001, 0.5)
    apply_setting(config, "training.lr=fast")
    with pytest.raises(shoal.ShoalError, match=r"--set training.lr=fast: got 'fast', expected a number"):
        config.validate()
    path.write_text("training: {lr: fast}\n")
    with pytest.raises(shoal.ShoalError, match=r"recipe.yaml, training.lr: got 'fast', expected a number"):
        read_config(path).validate()


def test_options_given_in_both_ways_are_joined():
    config = RunConfig()
    for setting in ("sampler.roots=10", "sampler.options.depth=1", "data.seed=4", "data_options.nodes=5"):
        apply_setting(config, setting)
    assert config.sampler.given == {"roots": 10, "depth": 1}
    assert config.data_options == {"seed": 4, "nodes": 5}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.name=sagee", "unknown model 'sagee': did you mean 'sage'"),
        ("model.norm=bach", "unknown norm 'bach': did you mean 'batch'"),
        ("model.dropout=1", "dropout is 1.0: expected a rate from 0 up to, not including, 1"),
        ("model.dropout=.nan", "dropout is nan: expected a rate"),
        ("model.hidden=0", "hidden is 0: expected a width of at least 1"),
        ("model.orders=1-x", "layer pattern '1-x'"),
        ("sampler.name=random-wak", "did you mean 'random-walk'"),
        ("sampler.rots=3", "unknown key 'rots' in --set sampler.rots=3: did you mean 'roots'"),
        ("sampler.seed=3", "unknown key 'seed' in --set sampler.seed=3"),
        ("training.setting=inductiv", "unknown setting 'inductiv': did you mean 'inductive'"),
        ("method=ful", "did you mean 'full'"),
        ("partition.boundary_rate=0.5", "boundary_rate=0.5 belongs to method partitioned, not to sampled"),
        ("partition.boundary_sampling=edge", "did you mean 'edges'"),
        ("partition.messages=int88", "unknown messages 'int88': did you mean 'int8'"),
        ("partition.staleness=1", "staleness=1 belongs to method partitioned, not to sampled"),
        ("partition.cover=true", "cover=True belongs to method partitioned, not to sampled: leave it out"),
        ("partition.messages=int8", "messages=int8 belongs to method partitioned, not to sampled"),
        ("partition.sampled=true", "sampled=True belongs to method partitioned, not to sampled"),
    ],
)
def test_a_configuration_is_refused_without_a_graph(setting, message):
    config = RunConfig()
    config.validate()
    apply_setting(config, setting)
    with pytest.raises(shoal.ShoalError, match=re.escape(message)):
        config.validate()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("partition.exchange=broadcast", "partition.last_boundary_rate=0.5"),
            "partition.last_boundary_rate=0.5 belongs to exchange 'p2p'",
        ),
        (("partition.boundary_rate=1.5",), "boundary_rate is 1.5: expected a rate from 0 to 1"),
        (("partition.exchange=broadcast", "partition.sampled=true"), "broadcast sends every row"),
        (("partition.sampled=true", "partition.boundary_rate=0.5"), "leave out the sampler, or the rate"),
        (
            ("partition.exchange=broadcast", "partition.staleness=1"),
            "partition.staleness=1 belongs to exchange 'p2p'",
        ),
        (("partition.sampled=true", "partition.staleness=1"), "leave out the sampler, or staleness"),
        (
            ("partition.staleness=1", "partition.boundary_rate=0.5"),
            "leave out the boundary rate, or staleness",
        ),
        (("partition.smoothing=0.5",), "add staleness=1"),
        (("sampler.roots=5",), "leave out sampler.roots"),
        (("partition.sampled=true", "sampler.name=neighbor"), "'neighbor' draws no induced subgraphs"),
    ],
)
def test_contradictions_across_ranks_are_refused(settings, message):
    config = RunConfig(method="partitioned")
    for setting in settings:
        apply_setting(config, setting)
    with pytest.raises(shoal.ShoalError, match=re.escape(message)):
        config.validate()


def test_a_configuration_of_an_older_version_is_read(tmp_path):
    """Sampler options below `options`, and every component's settings written out, whichever was chosen."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "data: digits\nmethod: partitioned\nmodel: {name: sage, heads: 4, hidden: 16}\n"
        "sampler: {name: random-walk, options: {}}\n"
        "partition: {exchange: broadcast, messages: float32, boundary_rate: 1.0, last_boundary_rate: null, "
        "boundary_sampling: nodes, sampled: false, parts: 2}\ntarget: {metric: '', score: null, source: ''}\n"
    )
    config = read_config(path)
    config.validate()
    assert config.num_ranks == 2
    assert "heads" not in config.to_dict()["model"]


def test_the_name_may_come_after_the_settings_it_decides():
    config = make_config({"sampler": {"budget": 50}})
    apply_setting(config, "sampler.name=node")
    config.validate()
    assert config.sampler.budget == 50
