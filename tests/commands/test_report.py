"""`shoal report` and the page that `shoal train` leaves."""

import json
import sys

import pytest

from report_folders import write_run
from shoal.commands.screen import Screen
from shoal.commands.viewing import write_report

SMALL = ("--method", "sampled", "--set", "model.hidden=8", "--set", "sampler.roots=50", "--epochs", "3")


def test_train_writes_a_page_and_says_where(shoal, tmp_path):
    pytest.importorskip("matplotlib")
    done = shoal("train", "digits", *SMALL, "--out", "run", SHOAL_REPORT="1")
    assert done.code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "report: run/report.html"
    page = (tmp_path / "run/report.html").read_text()
    for title in (
        "Validation accuracy against time",
        "Degrees in batches of random-walk",
        "Confusion matrix",
    ):
        assert title in page
    shown = json.loads((tmp_path / "run/outcomes.json").read_text())
    final = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    right = sum(shown["hits"]) / (sum(shown["hits"]) + sum(shown["missed"]))
    assert right == pytest.approx(final["test_accuracy"])


def test_a_resumed_run_has_the_outcomes_and_figures_of_a_straight_one(shoal, tmp_path):
    from shoal.report.facts import read_run

    shoal("train", "digits", *SMALL, "--out", "straight")
    shoal("train", "digits", *SMALL[:-1], "1", "--out", "halved")
    shoal("train", "--resume", "halved", "--epochs", "3")
    straight, halved = (read_run(tmp_path / name) for name in ("straight", "halved"))
    assert straight.outcomes == halved.outcomes
    assert straight.best is not None
    assert halved.best is not None
    assert (straight.best[0], straight.best[2]) == (halved.best[0], halved.best[2])
    assert straight.settings == halved.settings
    assert straight.measured["samples"] == halved.measured["samples"]


def test_compare_prints_a_table_and_writes_one(shoal, tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", model={"hidden": 8})
    done = shoal("report", "a", "b", "--compare")
    assert done.code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["run", "a", "b"]
    assert shoal("report", "a", "b", "--compare", "--format", "latex", "-o", "t.tex").code == 0
    assert "\\toprule" in (tmp_path / "t.tex").read_text()
    assert (
        shoal("report", "a", "b", "--json").stdout
        == shoal("report", "a", "b", "--compare", "--format", "json").stdout
    )


def test_a_table_in_a_pipe_has_a_line_for_each_run(shoal, tmp_path):
    names = [f"{letter}-run-with-{'a-long-' * 12}name" for letter in "ab"]
    for number, name in enumerate(names):
        write_run(tmp_path / name, model={"hidden": 8 + number})
    head, *rows, said = shoal("report", *names, "--compare").stdout.splitlines()
    assert [row.split()[0] for row in rows] == names
    assert {len(row) for row in rows} == {len(head)}
    assert len(head) > 100
    assert said.startswith("score:")


def test_what_else_lies_beside_runs_is_left_out(shoal, tmp_path):
    write_run(tmp_path / "a")
    (tmp_path / "a-tune-1").mkdir()
    done = shoal("report", "a", "a-tune-1", "--compare", "--format", "json")
    assert [one["run"] for one in json.loads(done.stdout)] == ["a"]
    assert "holds no run: a-tune-1" in done.stderr
    assert "a-tune-1 is not a run folder" in shoal("report", "a-tune-1", "--compare").refusal()
    assert "nowhere is not a run folder" in shoal("report", "a", "nowhere", "--compare").refusal()


def test_a_long_path_stays_in_one_line(shoal, tmp_path):
    pytest.importorskip("matplotlib")
    folder = write_run(tmp_path / "/".join(["a-rather-long-name"] * 8))
    assert shoal("report", folder).stdout == f"report: {folder}/report.html\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nowhere",), "nowhere is not a run folder"),
        (("a", "--format", "csv"), "add --compare"),
        (("a", "--json", "--format", "csv"), "leave one out"),
        (("a", "--port", "1"), "add --watch"),
        (("a", "--watch"), "has ended: `shoal report a` writes its page"),
        (("a", "--watch", "--compare"), "leave out --compare"),
    ],
)
def test_refusals_say_what_to_do(shoal, tmp_path, args, message):
    write_run(tmp_path / "a")
    assert message in shoal("report", *args).refusal()


def test_a_damaged_file_is_named(shoal, tmp_path):
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "a", outcomes={"task": "single-label", "hits": "x"})
    assert "remove a damaged ranks.json, outcomes.json or measured.json" in shoal("report", "a").refusal()
    (tmp_path / "a/outcomes.json").write_text("{")
    assert "a/outcomes.json is damaged" in shoal("report", "a").refusal()


def test_without_matplotlib_the_extra_is_named(shoal, tmp_path, monkeypatch):
    write_run(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'shoal[report]'" in shoal("report", "a").refusal()
    console = Screen(record=True, width=200)
    write_report(tmp_path / "a", console)
    assert "shoal[report]" in console.export_text()
    assert shoal("report", "a", "--compare").code == 0  # tables need no charts


def test_a_report_that_fails_never_ends_a_run(tmp_path):
    pytest.importorskip("matplotlib")
    console = Screen(record=True, width=200)
    write_report(tmp_path / "nowhere", console)
    assert "notice: no report was written: ShoalError" in console.export_text()
