"""What notebooks show: HTML tables, a progress bar, a figure; and a history that pandas takes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import shoal
from shoal.notebook import show_facts, show_rows

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

CELLS = [
    """import shoal
graph = shoal.load("digits")
sampler = shoal.RandomWalkSampler(graph, roots=100, depth=2)
model = shoal.GNN("gcn", graph.num_features, 8, graph.num_classes)
trainer = shoal.Trainer(model, graph, sampler)
graph""",
    "trainer.fit(2)\nNone",
    "trainer.plot()",
    "trainer.history",
]


class TextReader(HTMLParser):
    """Collects the cells of a table, and holds that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def read_cells(html: str) -> list[str]:
    reader = TextReader()
    reader.feed(html)
    assert reader.open == []
    return reader.cells


@pytest.fixture(scope="module")
def trainer() -> shoal.Trainer:
    graph = shoal.load("digits")
    model = shoal.GNN("gcn", graph.num_features, 8, graph.num_classes)
    found = shoal.Trainer(model, graph, shoal.RandomWalkSampler(graph, roots=100, depth=2), eval_every=2)
    found.fit(12)
    return found


def test_text_in_tables_is_escaped() -> None:
    html = show_facts("<b>", {"a & b": "<script>", "none": None})
    assert "<script>" not in html
    assert read_cells(html) == ["<b>", "a & b", "<script>"]


def test_tables_say_how_many_rows_they_leave_out() -> None:
    assert read_cells(show_rows(["n"], [[1], [20]], more=18)) == ["n", "1", "… 18 more", "20"]


def test_every_object_of_a_run_has_an_html_table(trainer: shoal.Trainer) -> None:
    partition = shoal.partition_graph(trainer.graph, 2, "block")
    batch = trainer.sampler.sample(0)
    for shown, expected in (
        (trainer.graph, "1,797"),
        (batch, f"{batch.num_nodes:,}"),
        (trainer.sampler, "100"),
        (trainer.model, "GCNConv 8 → GCNConv 8"),
        (trainer, f"{trainer.best_score:.4f} in epoch {trainer.best_epoch}"),
        (partition, "895 to 902"),
        (partition.split()[0], "902"),
        (trainer.history, "… 2 more"),
    ):
        assert expected in read_cells(shown._repr_html_()), type(shown)


def test_a_trainer_is_shown_by_its_parts_and_how_far_it_is(trainer: shoal.Trainer) -> None:
    best = f"best accuracy {trainer.best_score:.4f}"
    assert repr(trainer) == f"Trainer(GNN, 'digits', RandomWalkSampler, epoch 12, {best})"
    new = shoal.Trainer(trainer.model, trainer.graph)
    assert repr(new) == "Trainer(GNN, 'digits', FullSampler, epoch 0)"


def test_history_is_a_list_and_a_table(trainer: shoal.Trainer) -> None:
    history = trainer.history
    assert isinstance(history, list)
    assert [record["epoch"] for record in history] == list(range(1, 13))
    table = pd.DataFrame(history)
    assert table["loss"].tolist() == history.columns["loss"] == [record["loss"] for record in history]
    scores = history.to_pandas()["val_accuracy"]
    assert scores.index.tolist() == list(range(1, 13))
    whole = history.to_pandas()
    assert whole["epoch"].tolist() == table["epoch"].tolist()
    assert {*table.columns} - {*whole.columns} == {"time"}
    assert whole["time_compute"].tolist() == [record["time"]["compute"] for record in history]
    assert not whole.map(lambda cell: isinstance(cell, dict)).any(axis=None)
    assert np.flatnonzero(scores.notna()).tolist() == [1, 3, 5, 7, 9, 11]  # evaluated every second epoch


def test_plot_shows_loss_and_score_against_epochs(trainer: shoal.Trainer) -> None:
    loss, score = trainer.plot().axes
    assert [axes.get_ylabel() for axes in (loss, score)] == ["loss", "validation accuracy"]
    assert loss.lines[0].get_xdata().tolist() == list(range(1, 13))
    assert score.lines[0].get_ydata().max() == trainer.best_score
    with pytest.raises(shoal.ShoalError, match="no epoch has a val_speed"):
        trainer.history.plot("speed")


def test_bar_is_closed_when_training_fails(capsys: pytest.CaptureFixture[str]) -> None:
    class Fails(shoal.Callback):
        def on_epoch(self, trainer: shoal.Trainer, record: dict[str, object]) -> None:
            raise RuntimeError("no more")

    graph, bar = shoal.load("digits"), shoal.ProgressBar()
    model = shoal.GNN("gcn", graph.num_features, 8, graph.num_classes)
    with pytest.raises(RuntimeError, match="no more"):
        shoal.Trainer(model, graph, callbacks=[bar, Fails()]).fit(2)
    assert "epoch 1/2" in capsys.readouterr().out
    assert bar.is_closed


def test_fit_shows_epochs_where_asked_and_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    graph = shoal.load("digits")
    model = shoal.GNN("gcn", graph.num_features, 8, graph.num_classes)
    trainer, seen = shoal.Trainer(model, graph), list[int]()
    trainer.fit(1)
    assert capsys.readouterr().out == ""
    trainer.fit(2, lambda record: seen.append(record["epoch"]), progress=True)
    assert capsys.readouterr().out.startswith("epoch 2/2  loss")
    assert seen == [2]


def test_fit_trains_where_output_goes_to_something_that_only_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tee:
        def write(self, text: str) -> int:
            return len(text)

    monkeypatch.setattr(sys, "stdout", Tee())
    graph = shoal.load("digits")
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, num_layers=2)
    assert len(shoal.Trainer(model, graph).fit(1)) == 1


def test_fit_shows_a_bar_on_a_terminal_once() -> None:
    program = (
        "import sys, shoal\n"
        "graph = shoal.load('digits')\n"
        "for callbacks in ((), shoal.ProgressBar()):\n"
        "    model = shoal.GNN('gcn', graph.num_features, 8, graph.num_classes)\n"
        "    shoal.Trainer(model, graph, callbacks=callbacks).fit(1)\n"
        "    print('next')\n"
        "shoal.Trainer(model, graph).fit(1, print)\n"
    )
    own, its = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=its,
        stderr=its,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(its)
    shown = b""
    with suppress(OSError):  # of the closed end
        while some := os.read(own, 1 << 16):
            shown += some
    os.close(own)
    assert started.wait(120) == 0, shown.decode()
    first, second, third = shown.decode().split("next")
    assert first.count("\n") == second.count("\n") - 1 == 1
    assert "1/1" in first
    assert "1/1" not in third


def test_a_notebook_shows_tables_a_bar_and_a_figure() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [[dict(out.get("data", {})) for out in cell.outputs] for cell in notebook.cells]
    assert "Graph digits" in shown[0][-1]["text/html"]
    bar = "".join(str(data.get("text/html", "")) + str(data.get("text/plain", "")) for data in shown[1])
    assert "2/2" in bar
    assert "nodes/s" in bar
    assert "image/png" in shown[2][-1]
    assert "val_accuracy" in shown[3][-1]["text/html"]
