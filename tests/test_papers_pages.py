"""docs/papers says what the papers' experiments saved; the cheapest of them run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import graphs
import harness
import items
import pages
import pytest
import scheduler
from matplotlib.figure import Figure

from shoal.kernels import plan

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("page", pages.PAGES)
def test_pages_of_papers_are_in_step_with_the_results(page):
    text = (pages.FOLDER / f"{page}.md").read_text()
    assert pages.build_page(page) == text, "run `make benchmarks-page`"


def test_every_experiment_is_on_a_page_and_every_result_has_an_experiment():
    names = set(pages.list_names())
    files = {path.stem for path in harness.HERE.glob("*.py")} - {"harness", "items", "pages", "run"}
    assert files == names
    assert {path.stem for path in harness.RESULTS.glob("*.json")} <= names
    assert {path.stem for path in pages.FOLDER.glob("*.svg")} <= names


@pytest.mark.parametrize("name", pages.list_names())
def test_experiments_have_all_profiles_and_a_place_in_the_paper(name):
    experiment = pages.load_experiment(name)
    assert set(experiment.profiles) == {"tiny", *harness.PROFILES}
    assert experiment.published.place


def test_every_item_of_the_papers_has_an_experiment_or_a_reason():
    for item in items.ITEMS:
        assert item.paper in items.PAPERS
        assert item.made or item.left, f"{item.paper} {item.name} is neither made nor explained"
    assert {name for item in items.ITEMS for name in item.made} == set(pages.list_names())
    assert len({(item.paper, item.name) for item in items.ITEMS}) == len(items.ITEMS)


def list_numbers(place: str) -> set[tuple[str, str, str]]:
    """(paper, kind, number) of what an experiment's place names: `JPDC'21 figures 3 A to F, 4A and 4C, table 3`."""
    found = set()
    for part in place.split(";"):
        paper = next((paper for paper in items.PAPERS if paper in part), None)
        for kind, numbers in re.findall(
            r"(figure|table|theorem)s? ([^(§]*?)(?= (?:figure|table|theorem)|[(§]|$)", part
        ):
            found |= {(paper, kind, number) for number in re.findall(r"\b(\d+|I+)(?!\w{2})", numbers)}
    return found


@pytest.mark.parametrize("name", pages.list_names())
def test_items_are_those_that_experiments_name(name):
    listed = {
        (item.paper, *re.match(r"(\w+) (\d+|I+)", item.name).groups())
        for item in items.ITEMS
        if name in item.made and item.name.startswith(("figure", "table"))
    }
    named = list_numbers(pages.load_experiment(name).published.place)
    assert {one for one in named if one[1] != "theorem"} == listed


def test_an_experiment_is_made_of_the_names_of_its_file():
    def show(rows):
        return rows

    published = harness.Published("table 1", {})
    names = {"__file__": "papers/volumes.py", "PUBLISHED": published, "SAVED": "volumes.json"}
    names |= dict.fromkeys(("run", "tabulate", "explain", "draw"), show)
    said = {"paper": "partitions", "title": "Volume", "ours": "512 parts", "theirs": "the same"}
    profiles = {"tiny": {"parts": 4}, "small": {"graph": "cora"}}
    made = harness.declare(names, profiles=profiles, common={"parts": 512, "seed": 0}, **said)
    assert (made.name, made.published, made.reads, made.draw) == (
        "volumes",
        published,
        ("volumes.json",),
        show,
    )
    assert made.profiles == {
        "tiny": {"parts": 4, "seed": 0},
        "small": {"graph": "cora", "parts": 512, "seed": 0},
    }


@pytest.mark.parametrize("name", ["theorem1", "billion_edges"])
def test_cheap_experiments_run_and_are_shown(name, tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "KEPT", tmp_path)
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    experiment = pages.load_experiment(name)
    assert not harness.is_done(experiment, "tiny")
    record = harness.run_experiment(experiment, "tiny")
    assert harness.is_done(experiment, "tiny")
    assert experiment.title in pages.build_section(experiment, record)
    pages.draw_plot(experiment, record["rows"])
    assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")


def test_results_of_a_larger_profile_stand_beside_those_of_the_small_one(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    experiment = pages.load_experiment("theorem1")
    assert pages.describe_profiles(experiment, "small") == " Profiles never run: regular, large."
    for profile, seconds in (("small", 3.0), ("regular", 41.0)):
        file = experiment.find_file(profile)
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"profile": profile, "date": "2026-11-19", "seconds": seconds}))
    assert harness.read_record(experiment)["seconds"] == 3.0
    assert harness.read_record(experiment, "regular")["seconds"] == 41.0
    said = pages.describe_profiles(experiment, "small")
    assert said == " Profile regular: 2026-11-19, 41 s, not shown. Profiles never run: large."


def test_the_order_of_a_wide_block_changes_at_the_weight_of_a_tie(monkeypatch):
    shape = (1000, 4000, 20_000, 256, 64, True)  # rows, columns, entries, widths
    tie = scheduler.find_tie(plan.plan_layer(*shape))
    for weight, transforms_first in ((0.99 * tie, False), (1.01 * tie, True)):
        monkeypatch.setattr(plan, "SPARSE_WEIGHT", weight)
        assert plan.plan_layer(*shape).transform_first == transforms_first
    assert scheduler.find_tie(plan.plan_layer(4000, 4000, 20_000, 256, 64, True)) is None


def test_generated_graphs_have_what_was_asked_for():
    graph = harness.load_graph("kronecker:com-Youtube/4")
    asked = graphs.list_asked("kronecker:com-Youtube/4")
    assert (graph.num_nodes, graph.num_features) == (asked["nodes"], asked["features"])
    assert len(graph.indices) / graph.num_nodes == pytest.approx(asked["degree"], rel=0.01)
    assert graphs.list_asked("cora") is None


def test_bars_stand_side_by_side_under_marks_of_the_paper():
    axes = Figure().subplots()
    ours = {"HP, ours": [1, None], "GP, ours": [3, 4]}
    harness.draw_bars(axes, ["a", "b"], ours, theirs=[[2, None], [None, 5]], xlabel="volume")
    middles = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches]
    assert middles == pytest.approx([0, 1, 0.4, 1.4])
    assert [list(line.get_ydata()) for line in axes.lines] == [[0, 1], [0.4, 1.4]]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert set(axes.get_legend_handles_labels()[1]) == {*ours, "HP, paper", "GP, paper"}
    assert axes.yaxis_inverted()


def test_lines_are_drawn_from_rows_and_from_points():
    axes = Figure().subplots()
    rows = [{"way": "a", "p": 1, "s": 2.0}, {"way": "b", "p": 1, "s": 3.0}, {"way": "a", "p": 2, "s": 4.0}]
    harness.draw_lines(axes, harness.group(rows, "way"), "p", lambda row: 10 * row["s"], **harness.LOG)
    harness.draw_lines(
        axes, {"paper": [(1, 5), (2, 6)]}, 0, 1, lambda name: "k--" if name == "paper" else "o"
    )
    drawn = {line.get_label(): list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines}
    assert drawn == {"a": [(1, 20.0), (2, 40.0)], "b": [(1, 30.0)], "paper": [(1, 5), (2, 6)]}
    assert (axes.get_xscale(), axes.lines[-1].get_linestyle()) == ("log", "--")
