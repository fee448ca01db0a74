"""The page, in a real browser: everything is there, nothing is loaded, nothing sticks out, also on a phone."""

import json
import re

import pytest

from browser import lay_out, look
from report_folders import write_run
from shoal.report.curves import _spread
from shoal.report.facts import read_runs
from shoal.report.page import describe_page, make_page, write_page

pytest.importorskip("matplotlib")

SAMPLES = {
    "sampler": "random-walk",
    "batches": 3,
    "coverage": 0.7,
    "graph": {"nodes": 100, "edges": 400, "mean_degree": 4.0, "quantiles": [3, 8, 20], "clustering": 0.3}
    | {"assortativity": 0.1, "degrees": [[1, 1.0], [4, 0.5], [20, 0.01]]},
    "samples": [
        {"nodes": 50, "edges": 150, "mean_degree": 3.0, "quantiles": [2, 6, 11], "clustering": 0.2}
        | {"assortativity": 0.0, "degrees": [[1, 1.0], [3, 0.5], [11, 0.01]]}
    ],
}
REGRESSION = {
    "task": "regression",
    "num_targets": 1,
    "targets": [{"known": 3, "absolute": 0.3, "squared": 0.03, "spread": 2, "points": [[0, 0.1], [1, 0.9]]}],
}
MULTI_LABEL = {"task": "multi-label", "hits": [3, 0], "false": [1, 0], "missed": [0, 4]}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of several runs that has every section."""
    root = tmp_path_factory.mktemp("runs")
    folders = [
        write_run(root / "parts", ranks=4, measured={"samples": SAMPLES}),
        *(write_run(root / f"s{seed}", lift=0.01 * seed, training={"seed": seed}) for seed in (1, 2, 3)),
        write_run(root / "numbers", outcomes=REGRESSION, model={"hidden": 32}),
        write_run(root / "labels", outcomes=MULTI_LABEL, model={"hidden": 16}),
        write_run(root / "an-odd-name<script>alert(1)", model={"hidden": 8}),
    ]
    write_page(folders, root / "page.html")
    return root / "page.html"


def test_every_chart_is_shown_and_the_console_is_silent(page):
    seen = look(page.as_uri())
    assert seen.console == []
    for key in ("learning", "costs", "exchange", "parts", "batches", "predictions", "settings", "comparison"):
        assert re.search(rf'<section id="{key}\d*"', seen.dom), key
    figures = seen.count("figure")
    assert figures >= 14
    assert (
        len(re.findall(r'<svg role="img"[^>]*><title>[^<]+</title><desc>[^<]+</desc>', seen.dom)) == figures
    )
    assert seen.count("details") >= figures  # the numbers behind each


@pytest.mark.parametrize("width", [380, 1200])
def test_nothing_sticks_out_of_the_page(page, width):
    found = json.loads(lay_out(page, width))
    assert found["scroll"] <= found["width"] <= width
    assert found["wide"] == []


def test_nothing_is_loaded_and_names_are_escaped(page):
    text = page.read_text()
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "<script>alert" not in text
    assert not re.search(r"#0102[0-9a-f]{2}", text)  # colours are the page's, light or dark
    assert len(text) < 600_000


def test_the_page_of_one_run_is_the_same_every_time_and_small(tmp_path):
    runs = read_runs([write_run(tmp_path / "run", ranks=4, measured={"samples": SAMPLES})])
    assert make_page(runs) == make_page(runs)
    assert len(make_page(runs)) < 300_000


def test_numbers_on_axes_keep_their_digits(tmp_path):
    text = make_page(read_runs([write_run(tmp_path / "run", epochs=3, lift=0.015)]))
    (chart,) = re.findall(r"<title>Validation accuracy against epochs</title>.*?</svg>", text, re.DOTALL)
    shown = [float(one) for one in re.findall(r">(0\.\d+)</text>", chart)]
    assert len(set(shown)) == len(shown) >= 3


def test_dollars_in_names_are_dollars(tmp_path):
    table = {"task": "single-label", "hits": [3, 2], "false": [1, 0], "missed": [0, 1]}
    table |= {"confusion": [[3, 0], [1, 2]], "class_names": ["$5 to $10", "$x_{$"]}
    text = make_page(read_runs([write_run(tmp_path / "run", outcomes=table)]))
    assert len(re.findall(r">\$5 to \$10</text>", text)) == len(re.findall(r">\$x_\{\$</text>", text)) == 3


def test_a_run_without_an_epoch_has_a_page(tmp_path):
    runs = read_runs([write_run(tmp_path / "run", epochs=0, ends=False)])
    assert describe_page(runs)["sections"] == []
    assert "No epoch has ended yet" in make_page(runs)


def test_names_of_curves_lie_apart_and_below_the_top():
    assert _spread([10, 100], top=200) == [10, 100]
    assert _spread([50, 51, 52], top=200) == [50, 64, 78]
    assert _spread([195, 196, 198], top=200) == [172, 186, 200]
