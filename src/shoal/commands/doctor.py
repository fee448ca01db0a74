"""`shoal doctor`: what is installed, how many threads are used, where caches are."""

from __future__ import annotations

from pathlib import Path

import click

EXTRAS = {
    "pymetis": "partition",
    "mtkahypar": "partition",
    "kaminpar": "partition",
    "mpi4py": "mpi",
    "torch_geometric": "pyg",
    "matplotlib": "report",
    "optuna": "tune",
}
CORE = ("torch", "numpy", "scipy", "numba", "safetensors", "pyarrow", "yaml", "rich", "click", "psutil")
_DISTRIBUTIONS = {"yaml": "PyYAML", "torch_geometric": "torch-geometric"}


@click.command()
@click.option("--workers", type=click.IntRange(2, 4096), help="Ranks to start on this machine for the test.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="File for what ranks measured, computing too: `shoal simulate --machine FILE`.",
)
def doctor(workers: int | None, save: Path | None) -> None:
    """Tell what is installed and missing, the threads in use, and that the kernels compute what they should.

    Started on several ranks, it tests the network between every two of them instead.

    \b
    Examples:
      shoal doctor
      shoal doctor --workers 2 --save machine.json
      torchrun --nnodes 2 --nproc-per-node 1 --rdzv-endpoint HOST:29400 --rdzv-backend c10d -m shoal doctor
      mpiexec -n 4 python -m shoal doctor
    """
    from shoal.distributed.detect import detect_launch

    launch = detect_launch()
    if launch.size > 1 or launch.launcher != "none" or workers is not None:
        from shoal.commands.jobs import run_on_ranks

        run_on_ranks(workers or 1, {"task": "doctor", "save": None if save is None else str(save)})
    elif save is not None:
        from shoal.errors import ShoalError

        raise ShoalError("--save keeps what ranks measure: add --workers N, or start it under a launcher")
    else:
        _describe_host()


def _describe_host() -> None:
    import platform

    from rich.table import Table

    from shoal import __version__
    from shoal.commands.screen import format_bytes, open_console
    from shoal.kernels.plan import cache_bytes
    from shoal.threads import available_cores, set_threads

    threads = set_threads()
    table = Table(title=f"Shoal {__version__}", show_header=False, title_justify="left")
    table.add_row("Python", platform.python_version())
    for module in CORE:
        table.add_row(module, _version(module) or "[red]missing: reinstall shoal[/red]")
    for module, extra in EXTRAS.items():
        table.add_row(
            module, _version(module) or f"[yellow]not installed: pip install 'shoal\\[{extra}]'[/yellow]"
        )
    table.add_row("threads", f"{threads} of {available_cores()} cores (SHOAL_THREADS changes it)")
    table.add_row("waiting threads", _wait_policy())
    table.add_row("caches", ", ".join(f"L{level} {format_bytes(cache_bytes(level))}" for level in (1, 2, 3)))
    table.add_row("kernels", _check_kernels())
    for line in _try_scheduler():
        table.add_row("scheduler", line)
    open_console().print(table)


def _wait_policy() -> str:
    import os

    policy = os.environ.get("OMP_WAIT_POLICY", "").upper()
    if policy == "PASSIVE":
        return "sleep"
    return f"[yellow]spin (OMP_WAIT_POLICY={policy}): torch's and Numba's threads get in each other's way[/yellow]"


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

    try:
        return version(_DISTRIBUTIONS.get(module, module))
    except PackageNotFoundError:
        return None


def _check_kernels() -> str:
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
    right = torch.allclose(spmm(adj, h), spmm_reference(adj, h), atol=1e-5)
    seconds = time.perf_counter() - started
    state = "agree with torch" if right else "[red]DISAGREE with torch[/red]"
    return f"{state}; first call {seconds:.2f} s; Numba layer {numba.threading_layer()}"
