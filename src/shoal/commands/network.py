"""`shoal doctor` on several ranks: test the network between every two of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.analysis.probe import Network
    from shoal.distributed.transport import Transport


def test_network(save: Path | None, transport: Transport, *, as_json: bool) -> None:
    """Measure every pair of ranks; rank 0 reports the result."""
    from shoal.analysis.probe import advise, list_interfaces, probe_network
    from shoal.commands.screen import open_console, plain_table, print_json
    from shoal.wording import count

    network = probe_network(transport)
    if save is not None:
        _save_machine(transport, network, save)
    if transport.rank != 0:
        return
    if as_json:
        print_json({"ranks": transport.size, "transport": transport.name} | asdict(network))
        return
    console = open_console()
    console.say(f"{count(transport.size, 'rank')} by {transport.name}")
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
    console.say(
        f"all at once: {shortest * 1e6:,.0f} µs a message, {size / longest / 1e6:,.1f} MB/s a rank with messages of {size / 1e6:.2f} MB"
    )
    mine = ", ".join(f"{name} {address}" for name, address in list_interfaces())
    console.say(f"interfaces of rank 0's host: {mine}")
    for sentence in advise(network, list_interfaces()) or ["every pair works"]:
        console.say(sentence)
    if save is not None:
        console.say(f"saved to {save} for `shoal simulate --machine`")


def _save_machine(transport: Transport, network: Network, path: Path) -> None:
    """Measure compute rates too; rank 0 writes the machine file for `shoal simulate`."""
    from shoal.analysis.machine import Machine
    from shoal.analysis.speed import probe_rates
    from shoal.distributed.runtime import share_cores

    share_cores(transport)
    machine = Machine(
        network.typical_latency,
        network.worst_bandwidth,
        tuple(network.crowd),
        **probe_rates(transport, network.sums),
        sums=tuple(network.sums),
        ranks=transport.size,
    )
    if transport.rank == 0:
        machine.save(path)
