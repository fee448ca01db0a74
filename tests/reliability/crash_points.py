"""Kills a command before each of its changes to the disk, in turn, and lets it go on: `python crash_points.py FOLDER [NAME ...]`,
with `forked.FORKABLE` in the environment.

Everything is imported and compiled once; each command is then run by a forked process, which ends without a word when
the k-th file is about to be opened for writing, renamed, linked, removed, or the k-th folder made. Half of the times the
file that was written last loses the second half of what was written. What goes on must end with the bytes of a command
that was never killed. Prints a JSON object.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from safetensors import safe_open

import shoal
from forked import fork, wait
from shoal.cli import main
from shoal.training import tensor_files
from shoal.verified import SEAL, seal
from small_graphs import make_labelled

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"}
KILLED = 77
SHARD, WHOLE = 200, tensor_files.SHARD_BYTES
TINY = ("--set", "model.hidden=4", "--epochs", "2", "--set", "sampler.roots=20")
JOBS: dict[str, tuple[list[str], list[str]]] = {  # what is killed, and what goes on
    "train": (["train", "graph", *TINY, "--out", "new/run"], ["train", "--resume", "new/run"]),
    "repeat": (
        ["train", "graph", *TINY, "--repeat", "2", "--out", "new/run"],
        ["train", "--resume", "new/run"],
    ),
    "sharded": (["train", "graph", *TINY, "--out", "new/run"], ["train", "--resume", "new/run"]),
    "resume": (["train", "--resume", "new/run", "--epochs", "3"],) * 2,
    "import": (["data", "import", "edges.csv", "-o", "new/run"],) * 2,
    "overwrite": (["data", "import", "edges.csv", "-o", "new/run", "--overwrite"],) * 2,
    "partition": (["partition", "graph", "--parts", "2", "--method", "block", "-o", "new/run"],) * 2,
    "predict": (["predict", "old", "-o", "new/y.npy"],) * 2,
}


def run(*args: str) -> int:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            main(list(args))
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


class Killer:
    """Ends this process before its k-th change below `root`."""

    def __init__(self, root: Path, moment: int, torn: bool) -> None:
        self.root, self.moment, self.torn = str(root), moment, torn
        self.changes = 0
        self.last: tuple[str, int] | None = None  # the file opened last for writing, and how long it was then
        sys.addaudithook(self.watch)

    def watch(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if (
                not (isinstance(path, str) and isinstance(flags, int))
                or flags & (os.O_WRONLY | os.O_RDWR) == 0
            ):
                return
        elif event in CHANGES and not isinstance(args[0], int):
            path = os.fspath(args[0])
            if event in ("os.remove", "os.rmdir") and args[1] >= 0:  # below an open folder
                path = os.path.join(os.readlink(f"/proc/self/fd/{args[1]}"), path)
        else:
            return
        path = os.path.abspath(path)
        if not path.startswith(self.root):
            return
        self.changes += 1
        if self.changes == self.moment:
            if self.torn and self.last is not None and os.path.isfile(self.last[0]):
                before, now = self.last[1], os.stat(self.last[0]).st_size
                os.truncate(self.last[0], before + max(0, now - before) // 2)
            os._exit(KILLED)
        if event == "open":
            self.last = (path, os.stat(path).st_size if os.path.isfile(path) and flags & os.O_APPEND else 0)


def digest(folder: Path) -> dict[str, str]:
    """Every file below a folder, hidden ones too, by name; what depends on the clock or the machine is left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        if path.name == "metrics.jsonl":
            kept = ("epoch", "loss", "best_epoch", "val_accuracy", "test_accuracy")
            lines = [json.loads(line) for line in content.splitlines()]
            content = json.dumps([{key: line.get(key) for key in kept} for line in lines]).encode()
        if path.suffix == ".safetensors" and not path.name.startswith(
            "."
        ):  # whose checksum covers all but its own order
            with safe_open(path, framework="numpy") as file:
                content = json.dumps(file.metadata(), sort_keys=True).encode()
        if path.name in ("measured.json", "report.html"):  # seconds and bytes of this very process
            content = b""
        if path.name == "manifest.json":
            about = json.loads(content)
            assert about.pop(SEAL) == seal(about)  # which covers the seconds too
            content = json.dumps(about | {"seconds": 0}).encode()
        found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


def in_child(action: Callable[[], Any]) -> int:
    return wait(fork(action))


def crash(name: str, root: Path) -> dict[str, Any]:
    """Kill a job at every moment there is; returns how many there were and what went wrong."""
    killed, goes_on = JOBS[name]
    new = root / "new"
    tensor_files.SHARD_BYTES = SHARD if name == "sharded" else WHOLE

    def begin() -> None:
        shutil.rmtree(new, ignore_errors=True)
        if name in ("resume", "overwrite"):
            shutil.copytree(root / ("old-parent" if name == "resume" else "old-graph"), new)
        else:
            new.mkdir()

    begin()
    assert in_child(lambda: os._exit(run(*killed))) == 0
    assert (name == "sharded") == any(new.rglob("last.*.safetensors"))
    wanted, wrong, moment = digest(new), list[str](), 0
    while True:
        moment += 1
        begin()

        def die(moment: int = moment) -> None:
            Killer(root, moment, torn=moment % 2 == 1)
            os._exit(run(*killed))

        code = in_child(die)
        if code == 0:
            break
        left = sorted(str(path.relative_to(new)) for path in new.rglob("*"))
        assert code == KILLED, f"{name}, moment {moment}: exit code {code}"
        with open(root / "said", "w") as said, redirect_stderr(said):
            first = in_child(lambda: os._exit(run(*goes_on)))
            if first and goes_on is not killed:  # nothing to resume: the same command
                first = in_child(lambda: os._exit(run(*killed)))
        if first and name == "overwrite":  # it had done all already
            first = in_child(lambda: os._exit(run(*killed)))
        text = (root / "said").read_text()
        done = "exists already" in text and name in ("import", "partition")
        if (first and not done) or digest(new) != wanted:
            differ = sorted(set(digest(new).items()) ^ set(wanted.items()))
            wrong.append(
                f"moment {moment}: left {left}, exit code {first}, {text.strip()[-300:]} {differ[:4]}"
            )
    return {"moments": moment - 1, "wrong": wrong}


def prepare(root: Path) -> None:
    """What the jobs start from; makes sure that everything is compiled."""
    root.mkdir(parents=True, exist_ok=True)
    os.chdir(root)
    os.environ["SHOAL_HOME"] = str(root / "home")
    shoal.save_graph(make_labelled(60), root / "graph")
    edges = "".join(f"{i},{(7 * i + 3) % 40}\n" for i in range(40))
    (root / "edges.csv").write_text(f"source,target\n{edges}")
    assert run("train", "graph", *TINY, "--out", "old-parent/run") == 0
    shutil.copytree(root / "old-parent/run", root / "old")
    assert run("data", "import", "edges.csv", "-o", "old-graph/run") == 0
    with suppress(FileNotFoundError):
        assert run("predict", "old", "-o", "y.npy") == 0
        os.remove("y.npy")
    assert run("partition", "graph", "--parts", "2", "--method", "block", "-o", "parts") == 0


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    prepare(place)
    print(json.dumps({name: crash(name, place) for name in sys.argv[2:] or JOBS}))
