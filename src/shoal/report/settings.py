"""A run's settings by key, those that differ from the defaults, and the command that repeats the run."""

from __future__ import annotations

import json
import shlex
from typing import Any

from shoal.errors import ShoalError
from shoal.runs.config import METHODS, RunConfig, parse_value
from shoal.runs.sections import Section
from shoal.wording import count

_SKIPPED = ("target", "defaults")  # no effect in a run that has started
_OPTIONS = {
    "method": "--method",
    "model.name": "--model",
    "sampler.name": "--sampler",
    "training.epochs": "--epochs",
    "training.seed": "--seed",
    "ranks": "--workers",
    "repeat": "--repeat",
}


def list_values(config: RunConfig) -> dict[str, Any]:
    """Every setting of a run by its key, as in its file."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if name in _SKIPPED:
            continue
        if isinstance(value, Section):
            found |= {f"{name}.{key}": one for key, one in value.given.items()}
        elif isinstance(value, dict):
            found |= {f"{name}.{key}": one for key, one in value.items()}
        elif value not in (None, []):
            found[name] = value
    return found


def list_defaults(config: RunConfig) -> dict[str, Any]:
    """The declared defaults of a run's settings, without components that are not registered here."""
    plain = RunConfig()
    found: dict[str, Any] = {"method": plain.method, "repeat": plain.repeat}
    for name, section in config.items():
        if isinstance(section, Section) and name not in _SKIPPED:
            try:
                declared = section.declared
            except ShoalError:  # of a plug-in, which is not loaded to show a run
                continue
            found |= {f"{name}.{key}": setting.default for key, setting in declared.items()}
    return found


def list_changed(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The settings that differ from their defaults, or have none."""
    return {
        key: value
        for key, value in values.items()
        if key not in defaults or _plain(value) != _plain(defaults[key])
    }


def describe_method(config: RunConfig) -> str:
    """How a run trained, in a few words."""
    method = config.method
    ranks = config.num_ranks or 1
    if method == "partitioned":
        drawn = f"{config.sampler.given.get('name', 'batches')}, " if config.partition.sampled else ""
        return f"partitioned ({drawn}{count(ranks, 'rank')})"
    if method == "sampled":
        among = f", {count(ranks, 'rank')}" if ranks > 1 else ""
        kept = ", histories" if config.training.history else ""
        return f"{config.sampler.given.get('name', 'random-walk')}{kept}{among}"
    return "full batch" if method == "full" else method if method in METHODS else str(method)


def make_command(config: RunConfig) -> list[str]:
    """The words of the command that trains a run once more, from any folder."""
    values, defaults = list_values(config), list_defaults(config)
    changed = list_changed(values, defaults)
    for key in ("data", "data_options", "plugins", "partition.sampled"):
        changed.pop(key, None)
    words = ["shoal", "train"]
    stored = changed.pop("partition.folder", None)
    parts = changed.pop("partition.parts", None)
    is_drawn = config.draws
    if config.method != "partitioned" or stored is None or is_drawn:
        words.append(str(config.data))
    changed.setdefault("method", config.method)
    if is_drawn:
        changed.setdefault("sampler.name", config.sampler.name)
    for key, option in _OPTIONS.items():
        if key in changed:
            words += [option, str(changed.pop(key))]
    if stored is not None:
        words += ["--parts", str(stored)]
    elif config.method == "swapped" and parts is not None:
        words += ["--parts", str(parts)]
    for plugin in config.plugins:
        words += ["--plugin", str(plugin)]
    words += ["--set", "defaults=fixed"]
    for key, value in changed.items():
        words += ["--set", f"{key.replace('data_options.', 'data.', 1)}={write_value(value)}"]
    return words


def format_command(words: list[str]) -> str:
    """A shell command with one option per line."""
    lines, line = list[str](), ""
    for word in words:
        if word.startswith("--"):
            lines.append(line)
            line = word
        else:
            line = f"{line} {shlex.quote(word)}".strip()
    return " \\\n  ".join([*lines, line])


def write_value(value: Any) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, str):
        try:
            return value if parse_value(value, "") == value else json.dumps(value)
        except ShoalError:
            return json.dumps(value)
    return json.dumps(value, default=str)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
