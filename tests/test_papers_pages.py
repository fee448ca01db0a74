"""docs/papers says what the papers' experiments saved; the cheapest of them run."""

from __future__ import annotations

from pathlib import Path

import harness
import pages
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("page", pages.PAGES)
def test_pages_of_papers_are_in_step_with_the_results(page):
    text = (pages.FOLDER / f"{page}.md").read_text()
    assert pages.build_page(page) == text, "run `make benchmarks-page`"


def test_every_experiment_is_on_a_page_and_every_result_has_an_experiment():
    names = set(pages.list_names())
    files = {path.stem for path in harness.HERE.glob("*.py")} - {"harness", "pages", "run"}
    assert files == names
    assert {path.stem for path in harness.RESULTS.glob("*.json")} <= names
    assert {path.stem for path in pages.FOLDER.glob("*.svg")} <= names


@pytest.mark.parametrize("name", pages.list_names())
def test_experiments_have_all_profiles_and_a_place_in_the_paper(name):
    experiment = pages.load_experiment(name)
    assert set(experiment.profiles) == {"tiny", *harness.PROFILES}
    assert experiment.published.place


@pytest.mark.parametrize("name", ["theorem1"])
def test_cheap_experiments_run_and_are_shown(name, tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "KEPT", tmp_path)
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    experiment = pages.load_experiment(name)
    assert not harness.is_done(experiment, "tiny")
    record = harness.run_experiment(experiment, "tiny")
    assert harness.is_done(experiment, "tiny")
    assert experiment.title in pages.build_section(experiment, record["rows"], record)
    pages.draw_plot(experiment, record["rows"])
    assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")
