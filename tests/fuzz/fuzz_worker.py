"""A process that reads mutated files, with a limit on its time and memory; what becomes of each is one word."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psutil
from fuzz_mutate import DESCRIPTIONS, mutate_folder, vouch
from fuzz_samples import SAMPLES, Read

from shoal.errors import ShoalError

SECONDS = 10.0  # of processor time that a file may take
MOST_SECONDS = 60.0  # of any time
MEMORY = 1 << 30
GOOD = ("refused", "equal", "said", "different")
BAD = ("traceback", "crash", "hang", "memory")


class Outcome(NamedTuple):
    """What became of an input, where (of a traceback), and the file that was changed."""

    kind: str
    where: str = ""
    file: str = ""
    content: bytes = b""


# forks of a server that has the modules but has never run a parallel kernel, after which a fork may not
_METHOD = multiprocessing.get_context("forkserver")
_METHOD.set_forkserver_preload(["fuzz_samples"])


class Worker:
    """Reads mutations of one sample in a process of its own, started anew when it dies or has read many."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.original = folder / name
        self.original.mkdir(parents=True)
        self._process: Any = None
        self._pipe: Connection | None = None
        self._done = 0

    def mutate(self, seed: str) -> Outcome:
        """The outcome of the mutation that `seed` decides."""
        return self._ask(("mutate", seed))

    def replace(self, file: str, content: bytes) -> Outcome:
        """The outcome with one file replaced."""
        return self._ask(("replace", file, content))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = None

    def _ask(self, task: tuple[Any, ...]) -> Outcome:
        if self._process is None or self._done >= 2000:
            self.close()
            self._start()
        assert self._pipe is not None
        self._done += 1
        self._pipe.send(task)
        began, used = time.monotonic(), self._used()
        while not self._pipe.poll(0.5):
            if not self._process.is_alive():
                break
            waited = time.monotonic() - began
            if waited > MOST_SECONDS or (waited > SECONDS and self._used() - used > SECONDS):
                return self._bury("hang")
        try:
            outcome: Outcome = self._pipe.recv()
        except EOFError:
            return self._bury("crash")
        return outcome

    def _used(self) -> float:
        with suppress(psutil.Error):
            times = psutil.Process(self._process.pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def _bury(self, kind: str) -> Outcome:
        """The outcome of a process that died or hangs; the file it read is still there."""
        self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        where = signal.Signals(-code).name if kind == "crash" and code < 0 else ""
        self._process = None
        return Outcome(kind, where, *find_change(self.original, self.folder / f"{self.name}.work"))

    def _start(self) -> None:
        _start_server()
        self._pipe, there = multiprocessing.Pipe()
        self._process = _METHOD.Process(target=_serve, args=(self.name, self.original, there), daemon=True)
        self._process.start()
        there.close()
        self._done = 0
        if not self._pipe.poll(300) or self._pipe.recv() != "ready":
            raise RuntimeError(f"the valid files of {self.name} cannot be read")


def _start_server() -> None:
    """Start what processes are forked from, unless it runs. It finds modules by PYTHONPATH alone, and says nothing if it does not."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def find_change(original: Path, work: Path) -> tuple[str, bytes]:
    """The file that differs; files that hold the checksums of others, which are mended with them, come last."""
    paths = [path for path in work.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.name in DESCRIPTIONS, path)):
        name = str(path.relative_to(work))
        if (original / name).is_file():
            content = path.read_bytes()
            if content != (original / name).read_bytes():
                return name, content
    return "", b""


def _serve(name: str, original: Path, pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    sample = SAMPLES[name]
    if not any(original.iterdir()):
        sample.make(original)
    work = original.with_name(f"{name}.work")

    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work)
    valid = {str(path.relative_to(work)): path.read_bytes() for path in work.rglob("*") if path.is_file()}
    expected = sample.read(work)
    held = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    pipe.send("ready")
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            os._exit(0)
        _renew(work, valid)
        if task[0] == "mutate":
            path = mutate_folder(
                work, Random(f"{name} {task[1]}"), vouched=sample.vouched, repack=not sample.checked
            )
            file, content = str(path.relative_to(work)), path.read_bytes()
        else:
            _, file, content = task
            (work / file).parent.mkdir(parents=True, exist_ok=True)
            (work / file).write_bytes(content)
            if sample.vouched:
                vouch(work)
        kind, where = _judge(sample.read, work, expected)
        pipe.send(Outcome(kind, where, file, content if kind in BAD else b""))


def _renew(work: Path, valid: dict[str, bytes]) -> None:
    """Have `work` hold the valid files and nothing else."""
    for path in sorted(work.rglob("*"), reverse=True):
        name = str(path.relative_to(work))
        if path.is_dir():
            if not any(other.startswith(f"{name}/") for other in valid):
                shutil.rmtree(path)
        elif name not in valid:
            path.unlink()
    for name, content in valid.items():
        path = work / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _judge(read: Any, work: Path, expected: Read) -> tuple[str, str]:
    try:
        found = read(work)
    except MemoryError as error:
        return "memory", _locate(error)
    except ShoalError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, MemoryError):
                return "memory", _locate(cause)
            cause = cause.__context__
        return "refused", ""
    except BaseException as error:
        is_memory = "can't allocate memory" in str(error) or "alloc" in type(error).__name__.lower()
        return "memory" if is_memory else "traceback", _locate(error)
    if found.content == expected.content:
        return "equal", ""
    return ("different" if found.notices == expected.notices else "said"), ""


def _locate(error: BaseException) -> str:
    """The error and the last two lines of the package that it went through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/shoal/" in frame.filename]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-2:]]
    return f"{type(error).__name__}: {str(error)[:80]!r} at {' < '.join(reversed(places))}"


def make_scratch() -> Path:
    """A folder for files and a home of its own, in memory where that is possible."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="shoal-fuzz-", dir=shared if os.access(shared, os.W_OK) else None))
    os.environ["SHOAL_HOME"] = str(folder / "home")
    return folder
