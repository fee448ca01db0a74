"""The training section of a configuration: settings of the run, its trainer, its loss and its callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from shoal.checks import MAX_NODES, MAX_THREADS
from shoal.errors import ShoalError
from shoal.graph import SETTINGS
from shoal.runs.sections import Declared, Section, chosen_name
from shoal.settings import AtLeast, Choices, Null, Range, Seed, Setting, check_options, list_settings
from shoal.training.callback import CALLBACKS
from shoal.training.loss import LOSSES, default_loss, loss_settings
from shoal.training.trainer import Trainer


@dataclass
class RunSettings:
    """Settings of a run beside those of its trainer."""

    epochs: Annotated[int, AtLeast(1), "most epochs to train"] = 50
    setting: Annotated[
        str,
        Choices(SETTINGS),
        "graph of the training steps: the whole graph, or training nodes and the edges between them",
    ] = "transductive"
    edge_weights: Annotated[bool, "use the graph's edge weights, if it has any"] = True
    node_multiple: Annotated[
        int,
        Range(1, MAX_NODES, said="1 to 2^31"),
        "drop random nodes of a subgraph so that their number is a multiple of this (node clipping); 1: none",
    ] = 1
    seed: Seed = 0
    threads: Annotated[
        int | None, Range(1, MAX_THREADS), Null("all cores"), "threads of this process, or of each rank"
    ] = None


def training_section() -> Section:
    """The section `training`: the settings of the trainer, the loss, the callbacks and the run."""

    def declare(section: Section) -> Declared:
        trainer = dict(list_settings(Trainer))
        trainer["patience"] = replace(trainer["patience"], default=10)
        name = default_loss(regression=False)
        if section.given.get("loss") is not None:
            name = chosen_name(section, "loss", name)
        own = {name: _callback_setting(name) for name in name_callbacks(section)}
        return dict(list_settings(RunSettings)) | trainer | dict(loss_settings(name)) | own

    def check(section: Section) -> None:
        for name in name_callbacks(section):
            where = section.origins.get(name, "")
            settings = list_settings(CALLBACKS[name])
            given = check_options(
                settings, section.given.get(name, {}), what=f"callback {name!r}", where=where
            )
            if given:
                section.given[name] = given

    def rivals() -> Mapping[str, Declared]:
        losses = {f"loss {name!r}": loss_settings(name) for name in LOSSES}
        return losses | {f"callback {name!r}": {name: _callback_setting(name)} for name in CALLBACKS}

    return Section("training", declare, rivals, check)


def name_callbacks(section: Section) -> list[str]:
    """The names of the callbacks in a training section."""
    given = section.given.get("callbacks", ())
    if not isinstance(given, str | list | tuple):
        raise ShoalError(f"training.callbacks is {given!r}: expected names of callbacks, [] for none")
    names = [given] if isinstance(given, str) else list(given)
    odd = next((name for name in names if not isinstance(name, str)), None)
    if odd is not None:
        raise ShoalError(f"training.callbacks has {odd!r}: expected names of callbacks")
    return names


def _callback_setting(name: str) -> Setting:
    return Setting(name, (dict,), False, {}, f"settings of callback {name}, by name")
