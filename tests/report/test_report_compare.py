"""The table of a paper: one row a configuration, mean and deviation over seeds, in every format the same figures."""

import csv
import io
import json

import pytest

from report_folders import write_run
from shoal.report.compare import format_comparison, list_figures, list_rows
from shoal.report.facts import group_runs, read_runs


@pytest.fixture
def groups(tmp_path):
    folders = [write_run(tmp_path / f"s{seed}", lift=0.01 * seed, training={"seed": seed}) for seed in (1, 3)]
    folders.append(write_run(tmp_path / "parts_4", ranks=4, model={"name": "gcn"}))
    return group_runs(read_runs(folders))


def test_rows_have_means_and_deviations(groups):
    seeds, parts = list_rows(groups)
    assert seeds == [
        "s1 +1 (2 seeds)", "full batch", "sage", "0.7700 ± 0.0141", "11.5 s", "1 s", "300.0 MB", "–"
    ]  # fmt: skip
    assert parts[:4] == ["parts_4", "partitioned (4 ranks)", "gcn", "0.7500"]
    assert parts[-1] == "3.0 kB"


def test_latex_is_a_tabular_with_escaped_names(groups):
    text = format_comparison(groups, "latex")
    assert r"parts\_4" in text
    assert r"0.7700 $\pm$ 0.0141" in text
    assert all(line.count("&") == 7 for line in text.splitlines() if line.endswith(r"\\"))


def test_markdown_has_as_many_cells_in_every_row(groups):
    lines = format_comparison(groups, "markdown").splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {9}


def test_csv_and_json_hold_plain_numbers(groups):
    rows = list(csv.DictReader(io.StringIO(format_comparison(groups, "csv"))))
    found = json.loads(format_comparison(groups, "json"))
    assert float(rows[0]["score"]) == found[0]["score"]["mean"] == pytest.approx(0.77)
    assert float(rows[1]["bytes_an_epoch"]) == 3000
    assert found[0]["memory"] == 300_000_000


def test_a_run_that_goes_on_shows_its_validation_score(tmp_path):
    (row,) = list_rows(group_runs(read_runs([write_run(tmp_path / "run", ends=False)])))
    assert row[3] == "0.8000 (val)"


def test_a_copy_of_a_run_is_no_second_seed(tmp_path):
    folders = [write_run(tmp_path / "run"), write_run(tmp_path / "copy")]
    rows = list_rows(group_runs(read_runs(folders)))
    assert [row[0] for row in rows] == ["run", "copy"]
    assert not any("seeds" in row[0] or "±" in row[3] for row in rows)


def test_the_time_to_the_best_score_is_without_compilation(tmp_path):
    """Compilation after the best epoch changes nothing."""
    folders = [write_run(tmp_path / name) for name in ("warm", "cold")]
    path = folders[1] / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[0] |= {"compile_seconds": 3.0, "eval_compile_seconds": 0.25}
    records[5] |= {"compile_seconds": 0.5}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    warm, cold = (list_figures(group_runs(read_runs([one])))[0]["seconds_to_best"]["mean"] for one in folders)
    assert warm - cold == pytest.approx(3.25)
