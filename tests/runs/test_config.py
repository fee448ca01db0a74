"""Configuration: YAML and key=value settings, with names and types checked."""

import re

import pytest

import shoal
from shoal.runs.config import RunConfig, apply_setting, read_config


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
    assert config.sampler.options == {"roots": 10}
    assert config.training.lr == 1.0
    assert config.data_options == {"seed": 4}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.hiden=64", "did you mean 'hidden'"),
        ("modl.hidden=64", "did you mean 'model'"),
        ("model.heads=wide", "got 'wide', expected int"),
        ("model.hidden=true", "got True, expected int"),
        ("training.patience=x", "got 'x', expected int | None"),
        ("model=sage", "expected keys and values"),
        ("hidden=64", "did you mean model.hidden=64?"),
        ("hidden", "expected key=value"),
        ("model.hidden=[", "not a valid value"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, message):
    with pytest.raises(shoal.ShoalError) as caught:
        apply_setting(RunConfig(), setting)
    assert message in str(caught.value)


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
    for setting in ("training.lr=1e-3", "training.clip=5E+0", "sampler.rate=1e-2"):
        apply_setting(config, setting)
    assert (config.training.lr, config.training.clip) == (0.001, 5.0)
    assert config.sampler.options == {"rate": 0.01}
    path = tmp_path / "recipe.yaml"
    path.write_text("training: {lr: 1e-3, weight_decay: '0.5'}\n")
    assert (read_config(path).training.lr, read_config(path).training.weight_decay) == (0.001, 0.5)
    with pytest.raises(shoal.ShoalError, match=r"--set training.lr=fast: got 'fast', expected float"):
        apply_setting(config, "training.lr=fast")
    path.write_text("training: {lr: fast}\n")
    with pytest.raises(shoal.ShoalError, match=r"recipe.yaml, training.lr: got 'fast', expected float"):
        read_config(path)


def test_options_given_in_both_ways_are_joined():
    config = RunConfig()
    for setting in ("sampler.roots=10", "sampler.options.depth=1", "data.seed=4", "data_options.nodes=5"):
        apply_setting(config, setting)
    assert config.sampler.options == {"roots": 10, "depth": 1}
    assert config.data_options == {"seed": 4, "nodes": 5}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.name=sagee", "unknown model 'sagee': did you mean 'sage'"),
        ("model.norm=bach", "unknown norm 'bach': did you mean 'batch'"),
        ("model.dropout=1", "dropout is 1.0: expected a rate from 0 up to, not including, 1"),
        ("model.dropout=.nan", "dropout is nan: expected a rate"),
        ("model.hidden=0", "hidden is 0: expected a width of at least 1"),
        ("model.heads=0", "heads is 0: expected at least 1"),
        ("model.orders=1-x", "layer pattern '1-x'"),
        ("sampler.name=random-wak", "did you mean 'random-walk'"),
        ("sampler.rots=3", "unknown option of sampler 'random-walk' 'rots': did you mean 'roots'"),
        ("sampler.seed=3", "unknown option of sampler 'random-walk' 'seed'"),
        ("training.setting=inductiv", "unknown setting 'inductiv': did you mean 'inductive'"),
        ("method=ful", "did you mean 'full'"),
        ("partition.boundary_rate=0.5", "belong to method partitioned, not to sampled"),
        ("partition.boundary_sampling=edge", "did you mean 'edges'"),
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
        (("partition.exchange=broadcast", "partition.last_boundary_rate=0.5"), "broadcast sends every row"),
        (("partition.boundary_rate=1.5",), "partition.boundary_rate is 1.5: expected a rate from 0 to 1"),
        (("partition.sampled=true", "partition.boundary_rate=0.5"), "leave out the sampler, or the rate"),
        (("training.setting=inductive",), "give a --sampler"),
        (("sampler.roots=5",), "leave out sampler.roots"),
        (("partition.sampled=true", "sampler.name=neighbor"), "'neighbor' draws no whole subgraphs"),
    ],
)
def test_contradictions_across_ranks_are_refused(settings, message):
    config = RunConfig(method="partitioned")
    for setting in settings:
        apply_setting(config, setting)
    with pytest.raises(shoal.ShoalError, match=re.escape(message)):
        config.validate()
