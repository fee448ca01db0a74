"""Coverage-guided fuzzing of a reader's file, where atheris is installed (`pip install atheris`; Linux and macOS):

    python tests/fuzz/guided_fuzz.py mtx --seconds 60

Atheris changes the bytes of the sample's largest file towards new branches of Shoal's readers; anything but success and
a ShoalError ends the command and leaves the bytes in crash-*.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType

import atheris
from fuzz_mutate import vouch
from fuzz_samples import SAMPLES

from shoal.errors import ShoalError

READERS = (
    "shoal.datasets.",
    "shoal.partitioning.stored",
    "shoal.array_files",
    "shoal.store",
    "shoal.training.checkpoint",
)


def watch_branches() -> int:
    """Have atheris see the branches of all functions of the readers' modules; kernels, which Numba compiles, stay as they are."""
    count = 0
    for name, module in list(sys.modules.items()):
        if name.startswith(READERS):
            for value in list(vars(module).values()):
                methods = vars(value).values() if isinstance(value, type) else [value]
                for function in methods:
                    if isinstance(function, FunctionType) and function.__module__ == name:
                        atheris.instrument_func(function)
                        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reader", choices=SAMPLES)
    parser.add_argument("--seconds", type=int, default=60)
    given = parser.parse_args()
    sample = SAMPLES[given.reader]
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as folder:
        work, corpus = Path(folder, "work"), Path(folder, "corpus")
        work.mkdir()
        corpus.mkdir()
        sample.make(work)
        sample.read(work)
        print(f"{watch_branches()} functions of readers are watched")
        target = max(
            (path for path in work.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
        )
        (corpus / "valid").write_bytes(target.read_bytes())

        def read(content: bytes) -> None:
            target.write_bytes(content)
            if sample.vouched:
                vouch(work)
            with suppress(ShoalError):
                sample.read(work)

        limits = [f"-max_total_time={given.seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536"]
        atheris.Setup([sys.argv[0], *limits, str(corpus)], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
