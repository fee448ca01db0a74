"""python benchmarks/papers/run.py [--profile small|regular|large] [--again] [NAME …]: run the papers' experiments, then write docs/papers.

Each runs in a process of its own. What was run in this clone is skipped, so that a run that was stopped goes on; `--again` begins anew. One that
fails does not keep the others from running; the command then ends with its name and code 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import harness
import pages


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all by default")
    parser.add_argument("--profile", choices=harness.PROFILES, default="small")
    parser.add_argument("--again", action="store_true", help="run what has been run before")
    options = parser.parse_args()
    known = pages.list_names()
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"no experiment {unknown[0]!r}: there are {', '.join(known)}")
    failed = []
    began = time.perf_counter()
    for name in options.names or known:
        line = [sys.executable, str(harness.HERE / f"{name}.py"), "--profile", options.profile]
        started = time.perf_counter()
        print(f"-- {name}", flush=True)
        done = subprocess.run(line + ["--again"] * options.again, check=False)
        failed += [name] * (done.returncode != 0)
        print(f"-- {name}: {time.perf_counter() - started:.0f} s", flush=True)
    pages.write_pages(profile=options.profile)
    print(
        f"all: {time.perf_counter() - began:.0f} s; results in benchmarks/results/papers, pages in {pages.FOLDER.relative_to(harness.ROOT)}"
    )
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
