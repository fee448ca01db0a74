"""docs/benchmarks.md and the summary tables say what the files in benchmarks/results say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import page  # noqa: E402


def test_the_benchmarks_page_is_in_step_with_the_results():
    text = page.PAGE.read_text()
    assert page.build_page(page.read_dates(text)) == text, "run `make benchmarks-page`"


@pytest.mark.parametrize("path", page.SUMMARIES, ids=lambda path: path.name)
def test_summary_tables_are_in_step_with_the_results(path):
    text = path.read_text()
    assert "<!-- summary of benchmarks -->" in text
    assert page.fill_summary(text) == text, "run `make benchmarks-page`"


def test_the_table_of_reliability_is_in_step_with_the_results():
    text = page.reliability.PAGE.read_text()
    assert "<!-- results of reliability -->" in text
    assert page.fill_reliability(text) == text, "run `make benchmarks-page`"


def test_losing_cases_are_listed_first():
    text = page.PAGE.read_text()
    losses = text.index("## Where Shoal loses")
    assert losses < text.index("## Product")
    for case in page.tables.list_cases():
        if any(ratio and ratio < 1 for ratio in case["ratios"].values()):
            assert case["name"] in " ".join(text[losses : text.index("## Product")].split())
