"""docs/benchmarks.md, and other pages between marks, say what the files in benchmarks/results say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import page

ROOT = Path(__file__).resolve().parents[1]


def test_the_benchmarks_page_is_in_step_with_the_results():
    text = page.PAGE.read_text()
    assert page.build_page(page.read_dates(text)) == text, "run `make benchmarks-page`"


@pytest.mark.parametrize(
    ("path", "name"),
    [(path, name) for path, names in page.MARKED.items() for name in names],
    ids=lambda one: getattr(one, "name", one),
)
def test_marked_parts_are_in_step_with_the_results(path, name):
    text = path.read_text()
    assert page.fill(text, name) == text, "run `make benchmarks-page`"


def test_no_page_has_marks_that_nothing_fills():
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")):
        ends = re.findall(r"<!-- end of (.+?) -->", path.read_text())
        assert sorted(ends) == sorted(page.MARKED.get(path, ())), path


def test_losing_cases_are_listed_first():
    text = page.PAGE.read_text()
    losses = text.index("## Where Shoal loses")
    assert losses < text.index("## Product")
    for case in page.tables.list_cases():
        if any(ratio and ratio < 1 for ratio in case["ratios"].values()):
            assert case["name"] in " ".join(text[losses : text.index("## Product")].split())
