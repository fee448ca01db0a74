"""Read mutated files until the time is over; a table of what became of them, and a corpus of what went wrong.

make fuzz MINUTES=10
python tests/fuzz/run_fuzz.py --count 10000 --reader mtx --reader stored
python tests/fuzz/run_fuzz.py --count 10000 --seed 19 --out benchmarks/results/fuzz.json --corpus build/failed

With --out it goes on where the last such command stopped: readers that have had their inputs are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from fuzz_mutate import identify
from fuzz_samples import SAMPLES
from fuzz_worker import BAD, GOOD, Outcome, Worker, make_scratch

CORPUS = Path(__file__).parent / "corpus"


def minimize(worker: Worker, failed: Outcome, tries: int = 24) -> bytes:
    """A file nearer to the original that fails in the same way: changed bytes are put back half by half."""
    original = (worker.original / failed.file).read_bytes()
    content = failed.content

    def fails(candidate: bytes) -> bool:
        found = worker.replace(failed.file, candidate)
        return (found.kind, found.where) == (failed.kind, failed.where)

    if len(content) != len(original):
        return content
    while tries > 0:
        places = [i for i in range(len(content)) if content[i] != original[i]]
        if len(places) < 2:
            break
        for half in (places[: len(places) // 2], places[len(places) // 2 :]):
            tries -= 1
            candidate = bytearray(content)
            for i in half:
                candidate[i] = original[i]
            if fails(bytes(candidate)):
                content = bytes(candidate)
                break
        else:
            break
    return content


def keep(worker: Worker, failed: Outcome, corpus: Path) -> Path | None:
    """Put the file that failed into the corpus, smaller if that can be."""
    if not failed.file:
        return None
    content = minimize(worker, failed) if failed.kind != "hang" else failed.content
    path = corpus / worker.name / failed.file / identify(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def fuzz_reader(
    name: str, numbers: range, seconds: float, seed: int, scratch: Path, corpus: Path | None
) -> Counter[str]:
    """The mutations of a sample with these numbers, as many as fit in `seconds`; failures are told as they come."""
    worker, outcomes, seen = Worker(name, scratch), Counter[str](), set()
    began = time.monotonic()
    for i in numbers:
        found = worker.mutate(f"{seed} {i}")
        outcomes[found.kind] += 1
        if found.kind in BAD and (found.kind, found.where) not in seen:
            seen.add((found.kind, found.where))
            kept = keep(worker, found, corpus) if corpus is not None else None
            print(
                f"  {name}: {found.kind} {found.where} in {found.file} (seed {seed}, {i}) {kept or ''}",
                flush=True,
            )
        if time.monotonic() - began > seconds:
            break
    worker.close()
    shutil.rmtree(worker.original)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, help="for all readers together")
    parser.add_argument("--count", type=int, default=10**9, help="inputs for each reader")
    parser.add_argument("--reader", action="append", choices=list(SAMPLES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where failures are kept")
    parser.add_argument("--out", type=Path, help="the table as JSON")
    given = parser.parse_args()
    names = given.reader or list(SAMPLES)
    if given.minutes is None and given.count == 10**9:
        given.minutes = 10.0
    seconds = 60 * given.minutes / len(names) if given.minutes else float("inf")
    table: dict[str, dict[str, int]] = {}
    if given.out is not None and given.out.is_file():
        kept = json.loads(given.out.read_text())
        if kept["seed"] != given.seed:
            parser.error(f"{given.out} is of seed {kept['seed']}: give --seed {kept['seed']} or another file")
        table = kept["readers"]
    columns = (*GOOD, *BAD)
    scratch = make_scratch()
    print(f"{'reader':24}{'inputs':>8}" + "".join(f"{column:>11}" for column in columns))
    try:
        for name in names:
            before = table.get(name, {})
            numbers = range(before.get("inputs", 0), given.count)
            if not numbers:
                continue
            found = fuzz_reader(name, numbers, seconds, given.seed, scratch, given.corpus)
            found.update({column: before.get(column, 0) for column in columns})
            table[name] = {"inputs": found.total(), **{column: found[column] for column in columns}}
            table[name]["checksums"] = SAMPLES[name].checksums
            table[name]["load"] = round(os.getloadavg()[0], 1)
            print(
                f"{name:24}{found.total():8}" + "".join(f"{found[column]:11}" for column in columns),
                flush=True,
            )
            if given.out is not None:
                lines = ",\n".join(f"  {json.dumps(one)}: {json.dumps(row)}" for one, row in table.items())
                given.out.write_text(f'{{"seed": {given.seed}, "readers": {{\n{lines}\n}}}}\n')
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return int(any(row[column] for row in table.values() for column in BAD))


if __name__ == "__main__":
    sys.exit(main())
