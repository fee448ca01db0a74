"""Configuration: YAML and key=value settings, with names and types checked."""

import pytest

import shoal
from shoal.config import RunConfig, apply_setting, read_config


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
        ("model.hidden=wide", "got 'wide', expected int"),
        ("model.hidden=true", "got True, expected int"),
        ("training.patience=x", "got 'x', expected int | None"),
        ("model=sage", "expected keys and values"),
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
