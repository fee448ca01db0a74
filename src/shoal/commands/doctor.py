"""`shoal doctor`: what is installed, how many threads are used, where caches are."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from shoal.commands.listing import json_option
from shoal.wording import count

EXTRAS = {
    "pymetis": "partition",
    "mtkahypar": "partition",
    "kaminpar": "partition",
    "mpi4py": "mpi",
    "torch_geometric": "pyg",
    "duckdb": "sql",
    "matplotlib": "report",
    "jinja2": "report",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "optuna": "tune",
}
CORE = ("torch", "numpy", "scipy", "numba", "safetensors", "pyarrow", "yaml", "rich", "click", "psutil")
_DISTRIBUTIONS = {
    "yaml": ("PyYAML",),
    "torch_geometric": ("torch-geometric",),
    "mlflow": ("mlflow", "mlflow-skinny"),
}


@click.command()
@click.option("--workers", type=click.IntRange(2, 4096), help="Ranks to start on this machine for the test.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="File for measured network and compute rates, for `shoal simulate --machine FILE`.",
)
@json_option()
def doctor(workers: int | None, save: Path | None, as_json: bool) -> None:
    """Report versions, threads and caches, and test the kernels.

    Started on several ranks, it tests the network between every two of them instead.

    \b
    Examples:
      shoal doctor
      shoal doctor --workers 2 --save machine.json
      mpiexec -n 4 python -m shoal doctor
      torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d \\
        --rdzv-endpoint HOST:29400 -m shoal doctor
    """
    from shoal.distributed.detect import detect_launch

    launch = detect_launch()
    if launch.size > 1 or launch.launcher != "none" or workers is not None:
        from shoal.commands.jobs import run_on_ranks

        run_on_ranks(
            workers or 1, {"task": "doctor", "save": None if save is None else str(save), "json": as_json}
        )
    elif save is not None:
        from shoal.errors import ShoalError

        raise ShoalError("--save writes what ranks measure: add --workers N, or start it under a launcher")
    else:
        _show_host(as_json)


def _show_host(as_json: bool) -> None:
    from shoal.commands.screen import fact_table, format_bytes, open_console, print_json

    found = _describe_host()
    if as_json:
        print_json(found)
        return
    packages = {name: version or "missing: reinstall shoal" for name, version in found["packages"].items()}
    extras = {
        name: version or f"not installed: pip install 'shoal[{EXTRAS[name]}]'"
        for name, version in found["extras"].items()
    }
    kernels = found["kernels"]
    open_console().print(
        fact_table(
            {
                "shoal": found["shoal"],
                "Python": found["python"],
                **packages,
                **extras,
                "threads": f"{found['threads']} of {count(found['cores'], 'core')} (SHOAL_THREADS changes it)",
                "waiting threads": "sleep"
                if found["wait_policy"] == "PASSIVE"
                else f"spin (OMP_WAIT_POLICY={found['wait_policy']}): torch's and Numba's threads get in each other's way",
                "caches": ", ".join(f"{name} {format_bytes(size)}" for name, size in found["caches"].items()),
                "home": _describe_home(found["home"]["bytes"]),
                "kernels": f"{'agree' if kernels['agree'] else 'DISAGREE'} with torch; first call {kernels['seconds']:.2f} s; "
                f"Numba layer {kernels['layer']}",
                "scheduler": found["scheduler"],
            }
        )
    )


def _describe_host() -> dict[str, Any]:
    """Versions (None: not installed), threads, caches, whether kernels are right, what the scheduler chooses."""
    import os
    import platform

    from shoal import __version__
    from shoal.kernels.plan import cache_bytes
    from shoal.threads import available_cores, set_threads

    threads = set_threads()
    return {
        "shoal": __version__,
        "python": platform.python_version(),
        "packages": {module: _version(module) for module in CORE},
        "extras": {module: _version(module) for module in EXTRAS},
        "threads": threads,
        "cores": available_cores(),
        "wait_policy": os.environ.get("OMP_WAIT_POLICY", "").upper(),
        "caches": {f"L{level}": cache_bytes(level) for level in (1, 2, 3)},
        "home": measure_home(),
        "kernels": _check_kernels(),
        "scheduler": _try_scheduler(),
    }


def measure_home() -> dict[str, Any]:
    """Shoal's home, and the bytes on disk of each folder in it."""
    import os

    from shoal.home import home_folder

    home, sizes = home_folder(), {}
    for folder in sorted(home.iterdir()) if home.is_dir() else []:
        if folder.is_dir():
            sizes[folder.name] = 0
            for root, _, names in os.walk(folder):
                for name in names:
                    with suppress(OSError):  # another process may remove the file
                        sizes[folder.name] += (Path(root) / name).lstat().st_blocks * 512
    return {"folder": home, "bytes": sizes}


def _describe_home(sizes: dict[str, int]) -> list[str]:
    """Sizes of the folders in Shoal's home, and how to delete caches that can be recomputed."""
    import os

    from shoal.commands.screen import format_bytes
    from shoal.home import home_folder

    home = home_folder()
    named = "$SHOAL_HOME" if os.environ.get("SHOAL_HOME") else str(home)
    if not os.environ.get("SHOAL_HOME") and home.is_relative_to(Path.home()):
        named = f"~/{home.relative_to(Path.home())}"
    kept = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items() if size)
    lines = [f"{named}: {kept or 'empty'}"]
    if sizes.get("hops"):
        lines += [
            "hops are SIGN's propagated features, recomputed if missing; to delete:",
            f"rm -r {named}/hops",
        ]
    return lines


def _try_scheduler() -> list[str]:
    """What the scheduler decides for a typical subgraph: 8,000 nodes of degree 15, a 2-layer SAGE 512."""
    import numpy as np
    import torch

    from shoal.graph import Graph
    from shoal.kernels.plan import explain_products
    from shoal.models.gnn import GNN
    from shoal.sampling.full import FullSampler

    rng = np.random.default_rng(0)
    ends = rng.integers(0, 8000, (2, 60_000))
    graph = Graph.from_edge_index(ends, 8000, directed=False, x=rng.random((8000, 256), np.float32))
    batch = FullSampler(graph).sample(0)
    batch.fixed = False
    model = GNN("sage", 256, 512, 2)
    with torch.no_grad():
        for _ in range(6):
            model(batch)
    return [*model.explain(batch), *explain_products()]


def _version(module: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    for name in _DISTRIBUTIONS.get(module, (module,)):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _check_kernels() -> dict[str, Any]:
    """Multiply a small matrix with the compiled kernel and with plain torch."""
    import time

    import numba
    import scipy.sparse as sp
    import torch

    from shoal.kernels.adjacency import Adjacency
    from shoal.kernels.spmm import spmm, spmm_reference

    adj = Adjacency.from_scipy(sp.random_array((500, 500), density=0.02, rng=0, format="csr"))
    h = torch.randn(500, 64, generator=torch.Generator().manual_seed(0))
    started = time.perf_counter()
    agree = torch.allclose(spmm(adj, h), spmm_reference(adj, h), atol=1e-5)
    return {"agree": agree, "seconds": time.perf_counter() - started, "layer": numba.threading_layer()}
