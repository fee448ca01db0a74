"""Settings: declared in a signature, checked wherever they are given, described in words."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import pytest

import shoal
from shoal.errors import ShoalError
from shoal.registry import Registry
from shoal.settings import (
    REQUIRED,
    Above,
    AtLeast,
    Choices,
    Null,
    Range,
    Rate,
    check_options,
    check_settings,
    list_settings,
    show_value,
)


class Walker:
    @check_settings
    def __init__(
        self,
        graph: object,
        *,
        roots: Annotated[int, AtLeast(1), "walks started in a batch"] = 3000,
        lr: Annotated[float | None, Above(0), Null("none"), "learning rate"] = None,
        way: Annotated[str, Choices(("down", "up")), "where to go"] = "up",
        drop: Annotated[float, Rate, "share left out"] = 0.1,
        size: Annotated[int, Range(0, 9), "a digit"] = 1,
        hidden: int = 3,
    ) -> None:
        self.values = (roots, lr, way, drop, size)


def test_a_parameter_with_a_meaning_is_a_setting():
    declared = list_settings(Walker)
    assert list(declared) == ["roots", "lr", "way", "drop", "size"]
    assert declared["roots"].default == 3000
    assert declared["roots"].meaning == "walks started in a batch"
    assert declared["lr"].optional
    assert declared["way"].values == "down | up"
    assert list_settings(object) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"roots": 0}, "roots is 0: expected at least 1"),
        ({"roots": "many"}, "roots is 'many': expected a whole number"),
        ({"roots": True}, "roots is True: expected a whole number"),
        ({"roots": 1.5}, "roots is 1.5: expected a whole number"),
        ({"roots": None}, "roots is None: expected a whole number"),
        ({"lr": 0}, "lr is 0.0: expected a number above 0, or null for none"),
        ({"lr": float("nan")}, "lr is nan: expected a number above 0"),
        ({"lr": float("inf")}, "lr is inf: expected a number above 0"),
        ({"way": "upp"}, "unknown way 'upp': did you mean 'up'?"),
        ({"way": 1}, "way is 1: expected text"),
        ({"drop": 1}, "drop is 1.0: expected a rate from 0 up to, not including, 1"),
        ({"size": 10}, "size is 10: expected 0 to 9"),
    ],
)
def test_what_a_setting_does_not_take_is_refused_with_what_it_takes(given, said):
    with pytest.raises(ShoalError) as caught:
        Walker(None, **given)
    assert said in str(caught.value)


def test_a_literal_is_a_choice():
    def move(way: Annotated[Literal["up", "down"] | None, "where to go"] = None) -> None: ...

    assert list_settings(move)["way"].values == "up | down"
    with pytest.raises(ShoalError, match="did you mean 'down'"):
        check_settings(move)("dwn")


def test_numbers_of_other_types_are_taken_for_what_they_are():
    made = Walker(None, roots=np.int64(5), lr=1, size=2.0)
    assert made.values == (5, 1.0, "up", 0.1, 2)
    assert [type(value) for value in made.values[:2]] == [int, float]


def test_unknown_arguments_are_refused_with_the_nearest_or_the_one_they_spell_out():
    with pytest.raises(TypeError, match="'rots'; did you mean 'roots'"):
        Walker(None, rots=3)
    graph = shoal.load("digits")
    model = shoal.GNN("gcn", graph.num_features, 8, graph.num_classes)
    with pytest.raises(TypeError, match="unexpected keyword argument 'learning_rate'; did you mean 'lr'"):
        shoal.Trainer(model, graph, learning_rate=0.1)


def test_unknown_options_are_refused_with_the_nearest():
    with pytest.raises(ShoalError, match="unknown setting of a walker 'rots': did you mean 'roots'"):
        check_options(list_settings(Walker), {"rots": 3}, what="a walker")


def test_values_are_shown_as_they_are_written():
    assert [show_value(value) for value in (None, True, 0.5, (25, 10), "a")] == [
        "null",
        "true",
        "0.5",
        "25-10",
        "a",
    ]
    assert show_value(REQUIRED) == "required"


def test_a_name_is_registered_once_and_found_with_did_you_mean():
    registry: Registry[type] = Registry("walker", "shoal.commands")
    registry.add("walker", Walker)
    registry.add("walker", Walker)  # the same again
    with pytest.raises(ShoalError, match="there is a walker called 'walker' already"):
        registry.add("walker", dict)
    with pytest.raises(ShoalError, match="unknown walker 'waker': did you mean 'walker'"):
        registry["waker"]
    with pytest.raises(ShoalError, match="Walker has no name"):
        registry.register(Walker)
