"""`shoal doctor`: what is installed, how many threads are used, where caches are."""

import click

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
def doctor() -> None:
    """Tell what is installed and missing, the threads in use, and that the kernels compute what they should.

    \b
    Example:
      shoal doctor
    """
    import platform

    from rich.table import Table

    from shoal import __version__
    from shoal.commands.screen import open_console
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
    table.add_row("kernels", _check_kernels())
    open_console().print(table)


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
