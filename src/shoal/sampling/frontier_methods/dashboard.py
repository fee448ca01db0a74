"""Frontier sampling by a Dashboard of pins and tiles (IPDPS'19 algorithms 2-4, JPDC'21 §4.2)."""

import numpy as np

from shoal.kernels.bits import mark
from shoal.kernels.jit import kernel
from shoal.rng import below, random_u64
from shoal.sampling.frontier_methods.start import FRONTIER_METHODS, draw_frontier, step, weigh

_INVALID = np.int32(-1)


@FRONTIER_METHODS.named("dashboard")
@kernel
def draw_by_dashboard(indptr, indices, pin_cap, frontier, budget, max_pops, stream, bitmap, length):
    """Put the batch's nodes into `bitmap`; returns (number of nodes, pops).

    A frontier node owns w(v) consecutive pins on a board of `length` ≥ frontier pins; a pin holds the number
    of the node's tile (node, first pin, pins). A pop probes random pins until one is valid, and invalidates
    that tile's pins; a push appends. When the board is full, live tiles are compacted. If a node's pins do not fit even
    then, it takes the pins that are left: only then does the distribution deviate.

    Cost: O(η + d̄) per pop, on a board of η·m·d̄ pins.
    """
    num_nodes = len(indptr) - 1
    pins = np.empty(length, np.int32)
    tile_node = np.empty(length, np.int64)
    tile_first = np.empty(length, np.int64)
    tile_pins = np.empty(length, np.int64)
    tiles, used = 0, 0
    walkers = draw_frontier(num_nodes, frontier, stream, bitmap)
    for i in range(frontier):
        v = walkers[i]
        for_others = frontier - 1 - i
        size = min(weigh(indptr[v + 1] - indptr[v], pin_cap), length - used - for_others)
        tile_node[tiles], tile_first[tiles], tile_pins[tiles] = v, used, size
        pins[used : used + size] = tiles
        used += size
        tiles += 1
    counter = frontier
    count, pops = frontier, 0
    while count < budget and pops < max_pops:
        tile = _INVALID
        while tile == _INVALID:
            tile = pins[below(random_u64(stream, counter), used)]
            counter += 1
        first = tile_first[tile]
        pins[first : first + tile_pins[tile]] = _INVALID
        tile_pins[tile] = 0
        v = step(indptr, indices, tile_node[tile], random_u64(stream, counter))
        counter += 1
        size = weigh(indptr[v + 1] - indptr[v], pin_cap)
        if used + size > length:
            tiles, used = _compact(pins, tile_node, tile_first, tile_pins, tiles)
            size = min(size, length - used)
        tile_node[tiles], tile_first[tiles], tile_pins[tiles] = v, used, size
        pins[used : used + size] = tiles
        used += size
        tiles += 1
        count += mark(bitmap, v)
        pops += 1
    return count, pops


@kernel
def _compact(pins, tile_node, tile_first, tile_pins, tiles):
    """Move live tiles and their pins to the front; returns how many tiles and pins are in use."""
    live, used = 0, 0
    for t in range(tiles):
        size = tile_pins[t]
        if size > 0:
            tile_node[live], tile_first[live], tile_pins[live] = tile_node[t], used, size
            pins[used : used + size] = live
            used += size
            live += 1
    return live, used
