"""What `shoal doctor` does on several ranks: tests the network between every two of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.analysis.probe import Network
    from shoal.distributed.transport import Transport


def test_network(save: Path | None, transport: Transport) -> None:
    """Measure every pair of ranks; rank 0 tells the result."""
    from shoal.analysis.probe import advise, list_interfaces, probe_network
    from shoal.commands.screen import open_console, plain_table

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
        **probe_rates(transport),
        ranks=transport.size,
    )
    if transport.rank == 0:
        machine.save(path)
