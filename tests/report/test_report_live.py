"""The live view: a page that grows with its run, on this machine only, and ends with it."""

import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.client import HTTPConnection

import psutil
import pytest

from browser import look
from launched_ranks import rank_environment
from report_folders import write_run
from shoal.commands import viewing
from shoal.commands.screen import open_console
from shoal.errors import ShoalError
from shoal.report.live import HOST, LiveView, address_of, choose_port, open_door, serve

pytest.importorskip("matplotlib")


@contextmanager
def served(folder):
    view, door = LiveView([folder], clock=lambda: 0.0), open_door()  # drawing takes no time, and so no rest
    port = door.getsockname()[1]
    thread = threading.Thread(target=serve, args=(view, door))
    thread.start()
    try:
        yield view, port, thread
    finally:
        view.closed = threading.Event()
        view.closed.set()
        thread.join(30)
        assert not thread.is_alive()


def ask(port, path, **headers):
    connection = HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def append(folder, record):
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")


EPOCH = {"epoch": 3, "loss": 0.1, "seconds": 1.0, "val_accuracy": 0.7}


def test_the_page_grows_with_the_run_and_the_server_ends_with_it(tmp_path):
    folder = write_run(tmp_path / "run", epochs=2, ends=False)
    with served(folder) as (_, port, thread):
        status, _, page = ask(port, "/")
        assert status == 200
        assert "epoch 2 of 50" in page
        _, headers, _ = ask(port, "/main")
        assert headers["X-Run"] == "going"
        assert ask(port, "/main", **{"If-None-Match": headers["ETag"]})[0] == 304
        append(folder, EPOCH)
        status, _, main = ask(port, "/main", **{"If-None-Match": headers["ETag"]})
        assert status == 200
        assert "epoch 3 of 50" in main
        append(folder, {"best_epoch": 3, "test_accuracy": 0.7})
        assert ask(port, "/main")[1]["X-Run"] == "ended"
        thread.join(30)
        assert not thread.is_alive()


def test_only_this_machine_by_its_own_name_is_answered(tmp_path):
    folder = write_run(tmp_path / "run", epochs=1, ends=False)
    with served(folder) as (_, port, _):
        assert ask(port, "/", Host=f"evil.example:{port}")[0] == 403
        assert ask(port, "/../config.yaml")[0] == 404
        addresses = {
            one.laddr.ip for one in psutil.Process().net_connections("inet") if one.laddr.port == port
        }
        assert addresses == {HOST}


def test_a_browser_shows_new_epochs_by_itself(tmp_path):
    folder = write_run(tmp_path / "run", epochs=2, ends=False)
    with served(folder) as (view, port, _):

        def go_on():
            while not view.asked:
                time.sleep(0.02)
            append(folder, EPOCH)

        later = threading.Thread(target=go_on)
        later.start()
        seen = look(f"http://{HOST}:{port}/", milliseconds=20_000)
        later.join()
    assert seen.console == []
    assert "epoch 3 of 50" in seen.dom


def count_requests(view, text):
    """How often the page was asked for until it held a text; the clock of the view goes on by a second with every look at it."""
    for number in range(1, 100):
        if text in view.draw().text:
            return number
    raise AssertionError(f"{text} never came")


def test_a_page_is_drawn_again_only_if_files_changed_and_it_has_rested(tmp_path):
    folder = write_run(tmp_path / "run", epochs=2, ends=False)
    view = LiveView([folder], clock=itertools.count(1000.0).__next__)
    assert count_requests(view, "epoch 2 of 50") == 1
    first = view.draw()
    assert first is view.draw()
    assert "epoch 2 of 50" in view.page()
    append(folder, EPOCH)
    assert count_requests(view, "epoch 3 of 50") == 20  # as many seconds for one of drawing
    append(folder, EPOCH | {"epoch": 4})
    assert "epoch 3 of 50" in view.page()
    assert "epoch 4 of 50" in view.draw(at_once=True).text  # of a run that has ended


def test_a_page_that_cannot_be_drawn_rests_too(tmp_path):
    folder = write_run(tmp_path / "run", epochs=2, ends=False)
    view = LiveView([folder], clock=itertools.count(1000.0).__next__)
    view.draw()
    append(folder, {"epoch": 3})
    for _ in range(19):
        assert "epoch 2 of 50" in view.draw().text
    with pytest.raises(ShoalError, match="has no number 'loss'"):
        view.draw()
    assert "epoch 2 of 50" in view.draw().text


def test_a_taken_port_ends_training_before_it_starts(shoal, tmp_path):
    with open_door() as door:
        port = door.getsockname()[1]
        for more in ((), ("--workers", "2")):
            done = shoal("train", "digits", "--live", "--port", port, "--out", "run", *more)
            assert "choose another --port" in done.refusal()
    assert not (tmp_path / "run").exists()


def test_a_view_that_is_started_again_gets_the_port_of_the_last_one():
    port = choose_port()
    door = open_door(port)
    threading.Timer(0.5, door.close).start()
    with open_door(port, patience=30) as again:
        assert again.getsockname()[1] == port


def test_a_view_that_cannot_be_opened_is_a_notice(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(viewing, "_HANDOVER", 0.0)
    with open_door() as door, viewing.live_view(tmp_path, door.getsockname()[1], open_console()):
        pass
    assert "notice: no live view: port" in capsys.readouterr().out


def test_a_taken_port_is_refused():
    with open_door() as door:
        assert address_of(door).startswith("http://127.0.0.1:")
        with pytest.raises(ShoalError, match="choose another --port"):
            open_door(door.getsockname()[1])


def test_train_live_shows_a_run_while_it_trains(tmp_path):
    line = [sys.executable, "-m", "shoal", "train", "digits", "--live", "--no-report", "--epochs", "100000"]
    line += ["--set", "model.hidden=8", "--set", "training.patience=null", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        line, env=rank_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        said, deadline = b"", time.monotonic() + 240
        assert process.stdout is not None
        while (found := re.search(rb"live view: (\S+)", said)) is None and time.monotonic() < deadline:
            if select.select([process.stdout], [], [], 1)[0]:
                said += os.read(process.stdout.fileno(), 10_000)
        assert found is not None, said
        children = psutil.Process(process.pid).children()
        epochs: set[str] = set()
        while len(epochs) < 2 and time.monotonic() < deadline:
            with urllib.request.urlopen(f"{found[1].decode()}main", timeout=120) as answer:
                epochs |= set(re.findall(r"epoch ([\d,]+) of 100,000", answer.read().decode()))
            time.sleep(0.2)
        assert len(epochs) == 2
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert not any(child.is_running() for child in children)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
