"""Machines that are measured once: kept in Shoal's home, read again, measured anew when asked to or damaged."""

import json
from pathlib import Path

import pytest

from shoal.analysis.calibration import find_calibration, join_calibration, measure_rates, read_calibration
from shoal.analysis.machine import Machine, read_machine
from shoal.threads import available_cores

WIRE = (
    "--latency",
    "100",
    "--bandwidth",
    "12.5",
    "--set",
    "model.hidden=16",
    "--method",
    "random",
    "--parts",
    "2",
)


def find_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "home" / "machines").glob("*.json"))


def test_this_machine_is_measured_once_and_again_on_request(shoal, tmp_path):
    first = shoal("simulate", "digits", *WIRE, "--json")
    assert "measuring how fast" in first.stderr
    (path,) = find_files(tmp_path)
    kept = read_machine(path)
    assert min(kept.dense_rate, kept.sparse_rate, kept.code_rate, kept.layer_seconds) > 0
    assert kept.batch_seconds >= 0
    assert (kept.cores, kept.host_ranks) == (available_cores(), 1)
    again = shoal("simulate", "digits", *WIRE, "--json")
    assert "measuring" not in again.stderr
    assert json.loads(again.stdout)[0]["epoch"] == json.loads(first.stdout)[0]["epoch"]
    path.write_text("{}")
    assert "measuring how fast" in shoal("simulate", "digits", *WIRE).stderr
    path.write_text(json.dumps({"latency": 1, "bandwidth": 1, "dense_rate": 1e-3}))
    assert "measuring how fast" in shoal("simulate", "digits", *WIRE, "--measure").stderr
    assert read_machine(path).dense_rate > 1


def test_messages_between_two_ranks_are_measured_where_no_network_is_given(shoal, tmp_path):
    said = shoal("simulate", "digits", *WIRE[4:])
    assert said.code == 0, said.stderr
    assert "messages cost what they cost between two ranks here" in said.stdout
    wire = next(path for path in find_files(tmp_path) if path.name.startswith("wire"))
    kept = read_machine(wire)
    assert len(kept.crowd) >= 2
    assert [size for size, _ in kept.sums] == sorted(size for size, _ in kept.sums)
    assert min(seconds for _, seconds in kept.sums) > 0
    assert kept.message_seconds >= 0
    assert kept.ranks == 2
    told = shoal("simulate", "digits", *WIRE[4:], "--latency", "5")
    assert "measuring" not in told.stderr


def test_rates_and_messages_are_kept_apart_and_joined(monkeypatch, tmp_path):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    assert read_calibration(wire=False) is None
    rates = measure_rates()
    assert read_calibration(wire=False) == rates
    assert find_calibration(wire=True) != find_calibration(wire=False)
    wire = Machine(
        1e-3, 1e6, ((8.0, 1e-3), (16.0, 2e-3)), sums=((16.0, 1.0), (32.0, 2.0)), message_seconds=0.5, ranks=2
    )
    joined = join_calibration(rates, wire)
    assert (joined.latency, joined.bandwidth, len(joined.crowd)) == (1e-3, 1e6, 2)
    assert (len(joined.sums), joined.message_seconds, joined.ranks) == (2, 0.5, 2)
    assert joined.sharing == 1
    assert joined.dense_rate == pytest.approx(rates.dense_rate)
