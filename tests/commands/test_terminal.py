"""What commands print into a pipe: plain tables of 80 columns, JSON where asked for, help in whole sentences."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from command_line import Run
from shoal.cli import shoal as group
from shoal.commands import completion
from shoal.commands.progress import describe_epoch
from shoal.commands.tables import fact_table, plain_table
from shoal.models.conv import CONVS
from shoal.models.module import MODELS
from shoal.partitioning.work import PARTITION_METHODS
from shoal.sampling.base import SAMPLERS
from shoal.wording import count

COLUMNS = 80


def list_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, one in getattr(command, "commands", {}).items():
        yield from list_commands(one, (*path, name))


@pytest.mark.parametrize("path", list(list_commands(group)), ids=" ".join)
def test_help_fits_a_terminal_and_has_whole_sentences(path: tuple[str, ...]) -> None:
    said = CliRunner().invoke(group, [*path, "--help"], terminal_width=COLUMNS).output
    assert [line for line in said.splitlines() if len(line) > COLUMNS] == []
    listed = said.partition("\nCommands:\n")[2]
    assert "..." not in listed
    assert all(line.endswith(".") for line in listed.splitlines())


@pytest.mark.parametrize(
    "command",
    [
        "data list",
        "data info digits",
        "recipes",
        "settings sampler frontier",
        "sample digits --samples 2 --sampler random-walk --set roots=50",
        "partition digits --parts 1 --method block",
        "simulate digits --parts 2,4 --method block --latency 50 --bandwidth 1000",
    ],
)
def test_tables_in_a_pipe_are_plain_and_fit_80_columns(shoal: Callable[..., Run], command: str) -> None:
    run = shoal(*command.split(), COLUMNS="80")
    assert run.code == 0, run.stderr
    lines = [line for line in run.stdout.splitlines() if not line.startswith(("notice:", "sampler"))]
    assert max(map(len, lines)) <= COLUMNS
    assert not set("│─┃━┏┓\x1b") & set(run.stdout)
    assert not any(f" 1 {many}" in run.stdout for many in ("parts", "batches", "ranks", "threads", "nodes"))


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("settings", "settings"),
        ("settings sampler frontier", "summary"),
        ("data list", "name"),
        ("data info digits", "num_nodes"),
        ("recipes cora ppi-rw", "where"),
        ("sample digits --samples 2 --sampler random-walk --set roots=50", "batches_per_epoch"),
        ("partition digits --parts 2 --method block", "total_volume"),
        ("simulate digits --parts 2 --method block --latency 50 --bandwidth 1000", "num_bytes"),
        ("baseline digits", "label propagation"),
        ("demo --epochs 1", "sage_seconds"),
        ("data get digits", "name"),
        ("train digits --method full --epochs 1", "test_accuracy"),
        ("train digits --method full --epochs 1 --repeat 2 --out again", "seeds"),
    ],
)
def test_json_is_all_that_stdout_gets(shoal: Callable[..., Run], command: str, key: str) -> None:
    run = shoal(*command.split(), "--json")
    assert run.code == 0, run.stderr
    found = json.loads(run.stdout)
    assert key in (found[0] if isinstance(found, list) else found)


# Commands that print no figures, or print them in another way.
WITHOUT_JSON = {
    "completion": "prints a script",
    "_rank": "is a rank of another command, which says what it prints",
}


def test_every_command_that_prints_figures_has_json() -> None:
    lacking = []
    for path in list_commands(group):
        command = group
        for name in path:
            command = command.commands[name]
        options = {one for parameter in command.params for one in parameter.opts}
        if not isinstance(command, click.Group) and "--json" not in options:
            lacking.append(" ".join(path))
    assert sorted(lacking) == sorted(WITHOUT_JSON)


def test_settings_as_json_have_key_default_values_and_meaning(shoal: Callable[..., Run]) -> None:
    (found,) = json.loads(shoal("settings", "sampler", "random-walk", "--json").stdout)
    (roots,) = [one for one in found["settings"] if one["key"] == "sampler.roots"]
    assert (roots["default"], roots["required"]) == (3000, False)
    assert roots["values"]
    assert "walks" in roots["meaning"]


def test_stored_graphs_are_described_and_verified_as_json(shoal: Callable[..., Run], tmp_path: Path) -> None:
    stored = json.loads(
        shoal("data", "generate", "blocks", "-o", "g", "--set", "num_nodes=300", "--json").stdout
    )
    assert (stored["folder"], stored["num_nodes"]) == ("g", 300)
    ordered = json.loads(shoal("data", "order", "g", "--by", "degree", "-o", "h", "--json").stdout)
    assert ordered["num_edges"] == stored["num_edges"]
    assert json.loads(shoal("data", "verify", "g", "--json").stdout) == {
        "folder": "g",
        "sound": True,
        "problems": [],
    }
    (tmp_path / "g/y.npy").write_bytes((tmp_path / "g/y.npy").read_bytes()[:-1] + b"\7")
    damaged = shoal("data", "verify", "g", "--json")
    assert "y.npy" in damaged.refusal()
    found = json.loads(damaged.stdout)
    assert not found["sound"]
    assert "y.npy" in found["problems"][0]


def test_imported_tables_are_described_as_json(shoal: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    run = shoal("data", "import", "edges.csv", "-o", "g", "--json")
    assert run.code == 0, run.stderr
    assert json.loads(run.stdout)["num_nodes"] == 3


def test_written_rows_are_described_as_json(shoal: Callable[..., Run]) -> None:
    settings = ("--method", "full", "--epochs", "2", "--set", "model.hidden=8", "--out", "run")
    assert shoal("train", "digits", *settings).code == 0
    labels = json.loads(shoal("predict", "run", "-o", "labels.npy", "--json").stdout)
    assert labels == {"file": "labels.npy", "nodes": 1797, "column": "label", "shape": [1797]}
    assert json.loads(shoal("embed", "run", "-o", "z.parquet", "--json").stdout)["nodes"] == 1797
    assert json.loads(shoal("predict", "run", "--data", "digits", "-o", "new.npy", "--json").stdout) == {
        **labels,
        "file": "new.npy",
    }
    smoothed = json.loads(shoal("predict", "run", "-o", "smooth.npy", "--smooth", "--json").stdout)
    assert smoothed["validation"] >= smoothed["validation_before"]
    assert 0 < smoothed["test"] <= 1


def test_doctor_reports_the_same_as_table_and_as_json(
    shoal: Callable[..., Run], environment: dict[str, str]
) -> None:
    kept = Path(environment["SHOAL_HOME"]) / "hops/0123"
    kept.mkdir(parents=True)
    (kept / "x.npy").write_bytes(bytes(3_000_000))
    found, table = json.loads(shoal("doctor", "--json").stdout), shoal("doctor").stdout
    assert found["kernels"]["agree"] is True
    assert f"torch            {found['packages']['torch']}" in table
    assert {"duckdb", "tensorboard", "wandb", "mlflow", "optuna"} <= set(found["extras"])
    assert found["home"]["bytes"]["hops"] >= 3_000_000
    assert "hops 3.0 MB" in table
    assert "rm -r $SHOAL_HOME/hops" in table
    assert max(map(len, table.splitlines())) <= COLUMNS


def test_repeated_runs_introduce_the_graph_once(shoal: Callable[..., Run]) -> None:
    said = shoal("train", "digits", "--method", "full", "--epochs", "1", "--repeat", "2").stdout
    assert said.count("digits: 1,797 nodes") == 1
    assert said.count("memory: ") == 1
    assert "run 2 of 2, seed 1" in said


def test_colour_is_left_out_where_the_reader_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(force_terminal=True, width=COLUMNS)
    with console.capture() as said:
        console.print(plain_table("name", "nodes"), style="red")
        console.print("red", style="red")
    assert "[31m" not in said.get()


def test_columns_for_wide_terminals_are_left_out_of_narrow_ones() -> None:
    table = plain_table("name", "nodes", "licence", "title", right=("nodes",), wide=("licence", "title"))
    table.add_row("cora", "2,708", "unknown", "citations")
    assert table.format_lines(60)[1].split() == ["cora", "2,708", "unknown", "citations"]
    assert table.format_lines(22)[1].split() == ["cora", "2,708", "unknown"]
    assert table.format_lines(12)[1].split() == ["cora", "2,708"]


def test_facts_of_several_lines_have_their_name_once() -> None:
    lines = fact_table({"a": "one", "b": ["two", "three"], "c": None}).format_lines(COLUMNS)
    assert lines == ["a  one", "b  two", "   three"]


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [(1, "batch", "1 batch"), (2, "batch", "2 batches"), (2, "epoch", "2 epochs"), (0, "class", "0 classes")],
)
def test_nouns_follow_their_number(number: int, noun: str, said: str) -> None:
    assert count(number, noun) == said


def test_an_epoch_that_compiled_says_so() -> None:
    record = {"epoch": 1, "loss": 1.0, "seconds": 9.0, "nodes_per_second": 50.0}
    assert describe_epoch(record | {"compile_seconds": 8.0}, "accuracy").endswith("9.00 s  (8.0 s compiling)")
    assert describe_epoch(record, "accuracy").endswith("9.00 s")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_shoal(shoal: Callable[..., Run], shell: str) -> None:
    assert "_SHOAL_COMPLETE" in shoal("completion", shell).stdout


def test_completed_names_are_those_that_are_registered() -> None:
    assert completion.list_samplers() == list(SAMPLERS)
    assert completion.list_models() == sorted({*CONVS, *MODELS})
    assert completion.list_partition_methods() == ["auto", *PARTITION_METHODS]


def test_bash_completes_commands_and_data_sets(
    shoal: Callable[..., Run], tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "completion.bash").write_text(shoal("completion", "bash").stdout)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"  # where `shoal` is
    script = """
    source completion.bash
    COMP_WORDS=(shoal %s) COMP_CWORD=%d
    _shoal_completion shoal
    echo "${COMPREPLY[@]}"
    """
    for words, found in (("tra", "train"), ("train dig", "digits"), ("train --sampler fron", "frontier")):
        text = script % (words, len(words.split()))
        done = subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [found], done
