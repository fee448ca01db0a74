"""Kills runs at random moments, any of their ranks, and lets them go on: `make soak MINUTES=20`, or

    python kills.py FOLDER --kills 200 --minutes 20 --out kills.json

with `forked.FORKABLE` in the environment. Everything is imported and compiled once; runs and ranks are forked processes.
Each run is killed up to three times, then left alone; the command is the same every time, as a launcher would start it
again, or `--resume`. It must end with the bytes of a run that was never killed and leave no other file. In between,
sampled, partitioned and disk-based trainings come and go in this process, whose memory, threads, descriptors and temporary
files must not grow and whose scores must be finite. Results are added to those in the file until there are enough kills.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from crash_points import digest, run
from safetensors import safe_open

import shoal
from forked import fork, wait
from launched_ranks import free_port
from small_graphs import make_labelled

LIMIT = "20"  # seconds that ranks wait for a silent one; of one that was killed they hear at once
COMMON = (
    *("--set", "model.hidden=8", "--epochs", "6", "--set", "training.patience=null"),
    *("--checkpoint-minutes", "0.0005"),
)
PARTS = ("--method", "partitioned", "--set", "partition.method=block")
METHODS: dict[str, tuple[int, tuple[str, ...]]] = {  # ranks, options
    "random walk": (1, ("--set", "sampler.roots=20")),
    "frontier": (1, ("--sampler", "frontier", "--set", "sampler.budget=60", "--set", "sampler.frontier=10")),
    "neighbour": (1, ("--sampler", "neighbor")),
    "full": (1, ("--method", "full")),
    "features on disk": (1, ("--set", "sampler.roots=20", "--set", "features.cache=0.2")),
    "repeated": (1, ("--set", "sampler.roots=20", "--repeat", "2")),
    "partitioned": (2, PARTS),
    "stale": (2, (*PARTS, "--set", "partition.staleness=1")),
    "shared batches": (2, (*PARTS, "--sampler", "node", "--set", "sampler.budget=60")),
    "data-parallel": (2, ("--method", "sampled", "--set", "sampler.roots=20")),
}

HERE: dict[str, tuple[str, ...]] = {  # what is trained in this process, in turn
    "sampled": METHODS["random walk"][1],
    "partitioned": PARTS,
    "features on disk": METHODS["features on disk"][1],
    "swapped": ("--method", "swapped", "--parts", "3"),
}
SETTLED = 2  # rounds after which nothing may grow
MOST_GROWTH = {"bytes": 32 << 20, "threads": 0, "descriptors": 0, "temporary files": 0}


def start(args: Sequence[str], ranks: int, job: str, said: Path) -> list[int]:
    """Fork the ranks of a command; their numbers as processes."""
    meeting = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    def work(rank: int) -> None:
        os.environ["SHOAL_TIMEOUT"] = LIMIT
        if ranks > 1:
            os.environ |= {**meeting, "RANK": str(rank), "SHOAL_JOB": job, "GLOO_SOCKET_IFNAME": "lo"}
        with open(said, "a") as file, redirect_stderr(file):
            code = run(*args)
        os._exit(code)

    return [fork(lambda rank=rank: work(rank)) for rank in range(ranks)]


def attempt(
    method: str, root: Path, name: str, draw: random.Random, moments: Sequence[float]
) -> dict[str, Any]:
    """One run, killed after each of some seconds if it still runs by then; returns what became of it."""
    ranks, options = METHODS[method]
    said = root / f"{name}.log"
    command = ["train", "graph", *COMMON, *options, "--out", f"runs/{name}"]
    folder, kills = root / "runs" / name, 0
    for moment in (*moments, math.inf):
        # one rank is resumed by hand; ranks find the run that their job began
        goes_on = ranks == 1 and any((folder / one).is_file() for one in ("config.yaml", "repeat.yaml"))
        pids = start(["train", "--resume", f"runs/{name}"] if goes_on else command, ranks, name, said)
        deadline = time.monotonic() + min(moment, 120)
        codes: dict[int, int] = {}
        victim = draw.choice(pids)
        while len(codes) < ranks and time.monotonic() < deadline + 30:
            for pid in [pid for pid in pids if pid not in codes]:
                found, state = os.waitpid(pid, os.WNOHANG)
                if found:
                    codes[pid] = os.waitstatus_to_exitcode(state)
            if victim is not None and time.monotonic() >= deadline and victim not in codes:
                os.kill(victim, signal.SIGKILL)
                kills += 1
                victim = None  # type: ignore[assignment]
            time.sleep(0.002)
        for pid in [pid for pid in pids if pid not in codes]:
            os.kill(pid, signal.SIGKILL)
            codes[pid] = wait(pid)
        if not any(codes.values()):
            return {"kills": kills, "ended": True}
    return {"kills": kills, "ended": False, "said": said.read_text()[-500:]}


def read_step(path: Path) -> int:
    """The step of a checkpoint."""
    with safe_open(path, framework="numpy") as file:
        return int(json.loads(file.metadata()["progress"])["step"])


def compare(folder: Path) -> dict[str, str]:
    """Digests of what must be the same; memory, chosen kernels and when the last checkpoint but one was written may differ.

    Ranks may have files of their own beside that one, of its step and no other.
    """
    left_out = {"ranks.json", "plan.txt", "job.json", "repeat.yaml", "config.yaml", "last-1.safetensors"}
    of_ranks: set[str] = set()
    for before in folder.rglob("last-1.safetensors"):
        step = read_step(before)
        kinds = "buffers" if step == read_step(before.with_name("last.safetensors")) else "*"
        found = before.parent.glob(f"{kinds}-{step}-*.safetensors")
        of_ranks |= {str(path.relative_to(folder)) for path in found}
    kept = {name: one for name, one in digest(folder).items() if name not in of_ranks}
    return {name: one for name, one in kept.items() if Path(name).name not in left_out}


def measure() -> dict[str, int]:
    """What a process must not gather: bytes, threads, descriptors, files in its temporary folder."""
    gc.collect()
    here = psutil.Process()
    temporary = len(os.listdir(tempfile.gettempdir()))
    return {
        "bytes": here.memory_info().rss,
        "threads": max(threading.active_count(), here.num_threads()),
        "descriptors": here.num_fds(),
        "temporary files": temporary,
    }


def find_growth(rounds: Sequence[dict[str, Any]]) -> list[str]:
    """What the later half of the rounds has more of than the earlier one, first rounds left out; medians of memory."""
    kept = rounds[SETTLED:]
    grown = []
    for name, most in MOST_GROWTH.items():
        early, late = (
            [one[name] for one in half] for half in (kept[: len(kept) // 2], kept[len(kept) // 2 :])
        )
        if early and median(late) - median(early) > most:
            grown.append(f"{name}: {median(early):,.0f} to {median(late):,.0f}")
    return grown


def train_here(root: Path) -> dict[str, float]:
    """One short training of every kind in this process; their scores."""
    scores = {}
    for kind, options in HERE.items():
        with tempfile.TemporaryDirectory(dir=root) as folder:
            assert run("train", "graph", *COMMON, *options, "--out", f"{folder}/run") == 0, kind
            last = Path(folder, "run/metrics.jsonl").read_text().splitlines()[-1]
            scores[kind] = float(json.loads(last)["test_accuracy"])
    return scores


def write_results(out: Path, results: dict[str, Any]) -> None:
    """Keep the results, a line for each entry and each round."""
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for key, value in results.items():
        if isinstance(value, list) and value:
            value = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        else:
            value = json.dumps(value)
        lines.append(f' "{key}": {value}')
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    asked = parser.parse_args()
    root, out = asked.folder.resolve(), asked.out.resolve()
    ends = time.monotonic() + 60 * asked.minutes
    empty: dict[str, Any] = {
        "kills": 0,
        "runs": 0,
        "by_method": {},
        "wrong": [],
        "resources": [],
        "grown": [],
    }
    results: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else empty
    draw = random.Random(results["runs"])
    shutil.rmtree(root, ignore_errors=True)
    (root / "runs").mkdir(parents=True)
    os.chdir(root)
    os.environ["SHOAL_HOME"] = str(root / "home")
    tempfile.tempdir = os.environ["TMPDIR"] = str(root / "tmp")  # what is left there is ours
    (root / "tmp").mkdir()
    shoal.save_graph(make_labelled(300), root / "graph")
    with ExitStack() as quiet:
        quiet.enter_context(redirect_stderr(quiet.enter_context(open(root / "here.log", "w"))))
        for method in asked.methods:  # compile what ranks need, as one rank
            assert run("train", "graph", *COMMON, *METHODS[method][1], "--out", f"warm/{method}") == 0, method
    wanted: dict[str, dict[str, str]] = {}
    lasts: dict[str, float] = {}
    rounds: list[dict[str, Any]] = []  # of this process
    while time.monotonic() < ends and results["kills"] < asked.kills:
        for method in asked.methods:
            if time.monotonic() >= ends or results["kills"] >= asked.kills:
                break
            if method not in wanted:
                began = time.monotonic()
                plain = attempt(method, root, f"plain-{len(wanted)}", draw, ())
                assert plain["ended"], (method, plain)
                lasts[method] = time.monotonic() - began
                wanted[method] = compare(root / f"runs/plain-{len(wanted)}")
            name = f"run-{results['runs']}"
            moments = [draw.uniform(0, lasts[method]) for _ in range(3)]
            found = attempt(method, root, name, draw, moments)
            folder = root / "runs" / name
            same = found["ended"] and compare(folder) == wanted[method]
            strays = [path for path in os.listdir(root / "runs") if path.startswith(".")]
            if not same or strays:
                differ = sorted(set(compare(folder).items()) ^ set(wanted[method].items()))
                results["wrong"].append([method, name, moments, found, [one for one, _ in differ], strays])
            results["kills"] += found["kills"]
            results["runs"] += 1
            results["by_method"][method] = results["by_method"].get(method, 0) + found["kills"]
            shutil.rmtree(folder, ignore_errors=True)
            write_results(out, results)
        with open(root / "here.log", "a") as file, redirect_stderr(file):
            scores = train_here(root)
        assert all(map(math.isfinite, scores.values())), scores
        rounds.append({"scores": scores, **measure(), "load": round(os.getloadavg()[0], 1)})
        results["resources"] = (results["resources"] + rounds[-1:])[-200:]
        results["grown"] = find_growth(rounds)
        write_results(out, results)
        print(f"{results['kills']} kills, {results['runs']} runs, {len(results['wrong'])} wrong", flush=True)
    for one in (*results["wrong"], *results["grown"]):
        print(one)
    sys.exit(bool(results["wrong"] or results["grown"]))


if __name__ == "__main__":
    main()
