"""`shoal doctor`: what is installed, how many threads are used, where caches are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shoal.analysis.probe import Network
    from shoal.distributed.transport import Transport

EXTRAS = {
    "pymetis": "partition",
    "mtkahypar": "partition",
    "mpi4py": "mpi",
    "torch_geometric": "pyg",
    "matplotlib": "report",
}
CORE = ("torch", "numpy", "scipy", "numba", "safetensors", "pyarrow", "yaml", "rich", "click")
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
    if launch.size > 1 or (launch.launcher != "none" and workers is None):
        _test_network(save)
    elif workers is not None:
        import sys

        from shoal.distributed.launch import start_workers

        kept = [] if save is None else ["--save", str(save)]
        sys.exit(start_workers(workers, ["doctor", *kept]))
    elif save is not None:
        from shoal.errors import ShoalError

        raise ShoalError("--save keeps what ranks measure: add --workers N, or start it under a launcher")
    else:
        _describe_host()


def _test_network(save: Path | None) -> None:
    """Measure every pair of ranks; rank 0 tells the result."""
    from shoal.analysis.probe import advise, list_interfaces, probe_network
    from shoal.commands.screen import open_console, plain_table
    from shoal.distributed.launch import joined_ranks

    with joined_ranks() as transport:
        network = probe_network(transport)
        if save is not None:
            _save_machine(transport, network, save)
        if transport.rank != 0:
            return
        console = open_console()
        console.print(f"{transport.size} ranks by {transport.name}", markup=False)
        ranks = plain_table("rank", "host", "address", "interface", right=("rank",))
        for rank, host in enumerate(network.hosts):
            chosen = network.interfaces[rank] or "chosen by the transport"
            ranks.add_row(str(rank), host, network.addresses[rank], chosen)
        console.print(ranks)
        pairs = plain_table("ranks", "latency µs", "bandwidth MB/s", right=("latency µs", "bandwidth MB/s"))
        for a in range(transport.size):
            for b in range(a + 1, transport.size):
                wire = f"{network.latency[a, b] * 1e6:,.0f}", f"{network.bandwidth[a, b] / 1e6:,.1f}"
                pairs.add_row(f"{a} – {b}", *wire)
        console.print(pairs)
        (_, shortest), (size, longest) = network.crowd[0], network.crowd[-1]
        console.print(
            f"all at once: {shortest * 1e6:,.0f} µs a message, {size / longest / 1e6:,.1f} MB/s a rank with messages of {size / 1e6:.2f} MB"
        )
        mine = ", ".join(f"{name} {address}" for name, address in list_interfaces())
        console.print(f"interfaces of rank 0's host: {mine}", markup=False)
        for sentence in advise(network, list_interfaces()) or ["every pair works"]:
            console.print(sentence, markup=False)
        if save is not None:
            console.print(f"kept in {save} for `shoal simulate --machine`", markup=False)


def _save_machine(transport: Transport, network: Network, path: Path) -> None:
    """Measure how fast ranks compute too, and keep all that predictions need; rank 0 writes it."""
    from shoal.analysis.simulate import Machine
    from shoal.analysis.speed import probe_rates
    from shoal.distributed.runtime import share_cores

    share_cores(transport)
    machine = Machine(
        network.typical_latency,
        network.worst_bandwidth,
        tuple(network.crowd),
        *probe_rates(transport),
        ranks=transport.size,
    )
    if transport.rank == 0:
        machine.save(path)


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
