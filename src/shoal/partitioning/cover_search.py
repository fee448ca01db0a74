"""Local search that lowers the cover of a partition: the items sent with a minimum cover for every pair of parts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.kernels.jit import kernel
from shoal.partitioning.cover_items import Entries, cover_again, load_item, make_items
from shoal.partitioning.nets import add_pin, drop_pin, get_count
from shoal.rng import key, permute, random_u64, uniform

_PEAK_PRICE, _PEAK = 3.0, 0.2  # price of an item above the peak; excess of the peak over the average
_HEAT = 1.0  # the temperature that the search starts from, in items
_COVER_AGAIN = 4  # sweeps after which the minimum covers are recomputed
_CHOICES = 4  # best parts by items, which are priced exactly
_ORDERS = 1 << 41  # random streams of the orders


class Scratch(NamedTuple):
    """Work space with one number per part; `group` has one per entry of a node."""

    near: np.ndarray
    place: np.ndarray
    found: np.ndarray
    alive: np.ndarray
    gain: np.ndarray
    is_bad: np.ndarray
    send: np.ndarray
    receive: np.ndarray
    group: np.ndarray


def search_covers(
    entries: Entries,
    assignment: np.ndarray,
    weights: np.ndarray,
    num_parts: int,
    max_weight: float,
    *,
    sweeps: int,
    seed: int = 0,
    heat: float = _HEAT,
) -> np.ndarray:
    """A partition near `assignment` with a smaller cover, or the same one; deterministic in the seed.

    Every sweep visits the boundary nodes in random order and tries the parts that their neighbours are in or send to. A
    move assigns the node's entries to new carriers, with the fewest items towards every part: to the neighbours there if
    all of them have an item with the node's new part already, otherwise to the node. A move changes

        Δ = Δ items + 3 · Δ (items that parts send and receive above the peaks, 1.2 times the average)

    and is made if Δ is below a random threshold, Exp(temperature); the temperature falls linearly from `heat` to 0. After
    every fourth sweep the entries are assigned by minimum covers again, which never adds items. A part never grows above
    `max_weight`; one that is above from the start only shrinks. Of the partitions after these sweeps the one with the
    lowest price is returned: its exact cover, and 3 for every item above the peaks.

    Cost of a sweep: for every node its degree, and for every part of its neighbours the spread of one of them.
    """  # fmt: skip
    current = np.array(assignment, np.int32)
    items = make_items(entries, current, weights, num_parts)
    loads = items.loads
    scratch = make_scratch(entries, num_parts)
    start = int(loads.send.sum())
    aim = (1 + _PEAK) * start / num_parts

    def judge() -> tuple[float, float]:
        above = sum(float(np.maximum(load - aim, 0).sum()) for load in (loads.send, loads.receive))
        excess = float(np.maximum(loads.weight - max_weight, 0).sum())
        return excess, float(loads.send.sum()) + _PEAK_PRICE * above

    best, least = current.copy(), judge()
    for sweep in range(sweeps):
        temperature = heat * (1 - (sweep + 1) / sweeps)
        peak = (1 + _PEAK) * loads.send.sum() / num_parts
        order = permute(len(current), seed, _ORDERS + sweep)
        moved = _sweep(
            *(entries, items, num_parts, current, weights, order),
            *(seed, sweep, temperature, max_weight, peak, scratch),
        )
        if sweep % _COVER_AGAIN == _COVER_AGAIN - 1 or sweep == sweeps - 1 or moved == 0:
            size, found = cover_again(items, entries, current, num_parts), judge()
            if size <= start and found < least:
                best, least = current.copy(), found
            if moved == 0 and temperature == 0:
                break
    return best


def make_scratch(entries: Entries, num_parts: int) -> Scratch:
    """Work space for one partition's moves."""
    widest = int(np.diff(entries.indptr).max(initial=0))
    sizes = dict.fromkeys(Scratch._fields, num_parts) | {"group": widest}
    return Scratch(**{name: np.zeros(size, np.int64) for name, size in sizes.items()})


@kernel
def _sweep(
    entries,
    items,
    num_parts,
    assignment,
    weights,
    order,
    seed,
    number,
    temperature,
    max_weight,
    peak,
    scratch,
):
    """Move boundary nodes to better parts; returns how many moved."""
    stream = key(seed, number)
    loads, gain, shift = items.loads, scratch.gain, entries.shift
    best_parts, best_changes = np.empty(_CHOICES, np.int64), np.empty(_CHOICES, np.float64)
    lighter = 0.4 / max(loads.weight.max(), 1)  # ties go to the lighter part
    each = 1 if shift else 2  # rows and sums that are sent for an item of a net
    moved = 0
    for i in range(len(order)):
        v = order[i]
        a = assignment[v]
        too_heavy = loads.weight[a] > max_weight
        if not too_heavy and _is_inside(entries, assignment, v):
            continue
        begin, middle, end = entries.indptr[v], entries.split[v], entries.indptr[v + 1]
        groups, freed, hot = _look(
            entries, items, num_parts, assignment, v, v, begin, middle, shift, peak, scratch
        )
        if shift:
            more, gone, burning = _look(
                entries, items, num_parts, assignment, v, v + shift, middle, end, 0, peak, scratch
            )
            groups, freed, hot = groups + more, freed + gone, hot + burning
        num_best = 0
        for b in range(num_parts):
            change = each * (groups - gain[b] - freed) + lighter * loads.weight[b]
            if num_best == _CHOICES and change >= best_changes[_CHOICES - 1]:
                continue
            if b != a and (gain[b] > 0 or too_heavy) and loads.weight[b] + weights[v] <= max_weight:
                at = num_best if num_best < _CHOICES else _CHOICES - 1
                while at > 0 and best_changes[at - 1] > change:
                    best_changes[at], best_parts[at] = best_changes[at - 1], best_parts[at - 1]
                    at -= 1
                best_changes[at], best_parts[at] = change, b
                num_best = min(num_best + 1, _CHOICES)
        gain[:] = 0
        threshold = -1e-9
        if temperature > 0:
            threshold = -each * temperature * math.log(1.0 - uniform(random_u64(stream, i)))
        if too_heavy:
            threshold = np.inf
        if max(loads.send[a], loads.receive[a]) > peak:
            hot += freed
        saving = each * _PEAK_PRICE * hot  # no move saves more than this beyond its items
        chosen, least = -1, np.inf
        for c in range(num_best):
            change = math.floor(best_changes[c])
            if change - saving >= threshold:
                break
            change += _PEAK_PRICE * price_peaks(entries, items, assignment, v, best_parts[c], peak, scratch)
            if change < least:
                chosen, least = best_parts[c], change
        if chosen >= 0 and least < threshold:
            move_node(entries, items, assignment, v, chosen, scratch)
            loads.weight[a] -= weights[v]
            loads.weight[chosen] += weights[v]
            moved += 1
    return moved


@kernel
def _is_inside(entries, assignment, v):
    k, end = entries.indptr[v], entries.indptr[v + 1]
    while k < end and assignment[entries.other[k]] == assignment[v]:
        k += 1
    return k == end


@kernel
def _look(entries, items, num_parts, assignment, v, own, begin, end, shift, peak, scratch):
    """Group the entries `begin` … `end` of v's net `own` by the part at their other end, whose nets are nodes + `shift`.

    If v moves to b, every group needs an item, except the one in b and those whose nets all have an item with b already;
    `gain[b]` counts these exceptions. Returns the number of groups, of items that end when v leaves, and of those among
    them that are with a part above the peak.
    """
    near, place, found, group = scratch.near, scratch.place, scratch.found, scratch.group
    counts, loads, a = items.counts, items.loads, assignment[v]
    num_found, freed, hot = 0, items.counts.spread[own], 0
    for k in range(begin, end):
        w = entries.other[k]
        if w != v:
            c = assignment[w]
            if near[c] == 0:
                found[num_found] = c
                num_found += 1
            near[c] += 1
            carried = c != a and items.carrier[entries.number[k]] == w + shift
            if carried and get_count(counts, w + shift, a) == 1:
                freed += 1
                hot += max(loads.send[c], loads.receive[c]) > peak
    t = 0
    for f in range(num_found):
        place[found[f]] = t
        t += near[found[f]]
    for k in range(begin, end):
        w = entries.other[k]
        if w != v:
            c = assignment[w]
            group[place[c]] = w + shift
            place[c] += 1
    for f in range(num_found):
        c = found[f]
        scratch.gain[c] += 1
        hot += max(loads.send[c], loads.receive[c]) > peak and get_count(counts, own, c) > 0
        num_alive = _list_common(counts, num_parts, group[place[c] - near[c] : place[c]], scratch.alive)
        for s in range(num_alive):
            scratch.gain[scratch.alive[s]] += 1
        near[c] = 0
    return num_found, freed, hot


@kernel
def _list_common(counts, num_parts, nets, alive):
    """The parts that all of `nets` have an item with, in `alive`; returns how many. Starts from the net with fewest."""
    fewest = 0
    for i in range(len(nets)):
        if counts.spread[nets[i]] == 0:
            return 0
        if counts.spread[nets[i]] < counts.spread[nets[fewest]]:
            fewest = i
    j = nets[fewest]
    first, size = counts.start[j], 0
    if counts.is_table[j]:
        for p in range(num_parts):
            if counts.counts[first + p] > 0:
                alive[size] = p
                size += 1
    else:
        for t in range(first, first + counts.size[j]):
            alive[size] = counts.parts[t]
            size += 1
    for i in range(len(nets)):
        if i == fewest:
            continue
        kept = 0
        for s in range(size):
            if get_count(counts, nets[i], alive[s]) > 0:
                alive[kept] = alive[s]
                kept += 1
        size = kept
        if size == 0:
            break
    return size


@kernel
def _mark_bad(entries, items, assignment, v, b, begin, end, shift, is_bad):
    """Mark the parts towards which v, in part b, would carry its entries itself: a neighbour there has no item with b."""
    for k in range(begin, end):
        w = entries.other[k]
        c = assignment[w]
        if w != v and c != b and is_bad[c] == 0:
            is_bad[c] = get_count(items.counts, w + shift, b) == 0


@kernel
def price_peaks(entries, items, assignment, v, b, peak, scratch):
    """Change of the items that parts send and receive above the peak, if v moves to b."""
    loads, shift, a = items.loads, entries.shift, assignment[v]
    send, receive, is_bad, near = scratch.send, scratch.receive, scratch.is_bad, scratch.near
    found, size = scratch.found, 2
    found[0], found[1] = a, b
    near[a] = near[b] = 1
    for half in range(2 if shift else 1):
        begin = entries.split[v] if half else entries.indptr[v]
        end = entries.indptr[v + 1] if half or shift == 0 else entries.split[v]
        own, others = (v + shift, 0) if half else (v, shift)
        _mark_bad(entries, items, assignment, v, b, begin, end, others, is_bad)
        for k in range(begin, end):
            w = entries.other[k]
            c = assignment[w]
            if w == v:
                continue
            if near[c] == 0:
                found[size] = c
                size += 1
            if near[c] < 2 + half:  # once in each half
                near[c] = 2 + half
                if c != a and get_count(items.counts, own, c) > 0:
                    load_item(send, receive, shift, half == 1, a, c, -1)
                if is_bad[c]:
                    load_item(send, receive, shift, half == 1, b, c, 1)
            if (
                c != a
                and items.carrier[entries.number[k]] == w + others
                and get_count(items.counts, w + others, a) == 1
            ):
                load_item(send, receive, shift, half == 0, c, a, -1)
        for f in range(size):
            is_bad[found[f]] = 0
    above = 0.0
    for f in range(size):
        c = found[f]
        above += max(loads.send[c] + send[c] - peak, 0.0) - max(loads.send[c] - peak, 0.0)
        above += max(loads.receive[c] + receive[c] - peak, 0.0) - max(loads.receive[c] - peak, 0.0)
        send[c] = receive[c] = near[c] = 0
    return above


@kernel
def move_node(entries, items, assignment, v, b, scratch):
    """Move v to part b: remove its entries from their carriers, and assign them to new ones."""
    loads, counts, carrier = items.loads, items.counts, items.carrier
    shift, a, is_bad = entries.shift, assignment[v], scratch.is_bad
    for half in range(2 if shift else 1):
        begin = entries.split[v] if half else entries.indptr[v]
        end = entries.indptr[v + 1] if half or shift == 0 else entries.split[v]
        own, others = (v + shift, 0) if half else (v, shift)
        for k in range(begin, end):
            w, e = entries.other[k], entries.number[k]
            c = assignment[w]
            if c != a and carrier[e] == own:
                if drop_pin(counts, own, c):
                    load_item(loads.send, loads.receive, shift, half == 1, a, c, -1)
            elif c != a and drop_pin(counts, w + others, a):
                load_item(loads.send, loads.receive, shift, half == 0, c, a, -1)
        _mark_bad(entries, items, assignment, v, b, begin, end, others, is_bad)
        for k in range(begin, end):
            w, e = entries.other[k], entries.number[k]
            c = assignment[w]
            if w == v or c == b:
                carrier[e] = -1
            elif is_bad[c]:
                carrier[e] = own
                if add_pin(counts, own, c):
                    load_item(loads.send, loads.receive, shift, half == 1, b, c, 1)
            else:
                carrier[e] = w + others
                add_pin(counts, w + others, b)
        for k in range(begin, end):
            is_bad[assignment[entries.other[k]]] = 0
    assignment[v] = b
