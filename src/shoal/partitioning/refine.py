"""Local search that lowers a partition's volume, its messages and what the busiest rank sends or receives."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.kernels.jit import kernel
from shoal.partitioning.nets import Loads, Nets, count_pins, get_count, move_vertex
from shoal.rng import key, permute, random_u64, uniform

_PRICES = (0.4, 3.0, 0.2)  # price of a message, of a row above the peak; excess of the peak over the average
_CHOICES = 4  # best parts by volume, which are priced exactly
_COOL_SWEEPS = 3  # last sweeps, which only make moves that lower the objective
_ORDERS = 1 << 40  # random streams of the orders, apart from those of the acceptances
MAX_MESSAGE_TABLE = 4096  # parts up to which rows between all pairs are counted


class Objective(NamedTuple):
    """The objective of the search: rows sent + message_price · messages + peak_price · rows above the peaks.

    Rows above the peaks are those that ranks send beyond `send_peak` and receive beyond `receive_peak`.
    """

    message_price: float
    peak_price: float
    send_peak: float
    receive_peak: float


class Scratch(NamedTuple):
    """Work space with one number per part."""

    reach: np.ndarray
    found: np.ndarray
    sent: np.ndarray
    from_old: np.ndarray
    from_new: np.ndarray
    touched: np.ndarray
    is_touched: np.ndarray


def refine_assignment(
    nets: Nets,
    assignment: np.ndarray,
    weights: np.ndarray,
    num_parts: int,
    max_weight: float,
    *,
    seed: int = 0,
    sweeps: int = 12,
    heat: float = 0.5,
    slack: float = 0.0,
    max_rows: int | None = None,
    message_price: float = _PRICES[0],
    peak_price: float = _PRICES[1],
    peak: float = _PRICES[2],
) -> np.ndarray:
    """A better partition near `assignment`, or the same one; deterministic in the seed.

    Every sweep visits the vertices in random order and tries the parts that their nets reach. A move changes

        Δ = Δ rows sent + message_price · Δ messages + peak_price · Δ (rows above the peaks)

    and is made if Δ is below a random threshold, Exp(temperature). This is simulated annealing: the temperature falls
    linearly from `heat` to 0. Peaks are `1 + peak` times the average volume of a rank. A part never grows above
    `max_weight`; one that is above from the start only shrinks. The rows sent never exceed `(1 + slack)` times those of
    the start, nor `max_rows`; from a start that sends more, only moves that add no rows are made.

    Messages are counted where every vertex owns one net of weight 1 and there are at most `MAX_MESSAGE_TABLE` parts.
    Cost of a sweep: for every pin the spread of its net. Memory: 8 bytes for each count of `Counts`, at most
    `4 · 8` bytes a pin, and 4·P² bytes for the messages.
    """
    one_each = nets.num_nets == len(assignment)
    with_messages = message_price > 0 and one_each and num_parts <= MAX_MESSAGE_TABLE
    current = np.array(assignment, np.int32)
    counts, loads = count_pins(nets, current, weights, num_parts, with_messages)
    start = int(loads.send.sum())
    limit = int(start * (1 + slack))
    limit = limit if max_rows is None else min(limit, max_rows)
    scratch = Scratch(
        np.zeros(num_parts, np.int32),
        np.zeros(num_parts, np.int32),
        np.zeros(num_parts, np.int64),
        np.zeros(num_parts, np.int64),
        np.zeros(num_parts, np.int64),
        np.zeros(num_parts + 2, np.int64),
        np.zeros(num_parts, np.bool_),
    )
    aim = _aim(start, num_parts, message_price if with_messages else 0.0, peak_price, peak)
    begin = _excess(loads, max_weight), _price(loads, aim)
    for sweep in range(sweeps + _COOL_SWEEPS):
        objective = _aim(int(loads.send.sum()), num_parts, aim.message_price, peak_price, peak)
        temperature = heat * max(0.0, 1 - sweep / sweeps) if sweeps else 0.0
        order = permute(len(current), seed, _ORDERS + sweep)
        state = (nets, counts, loads, num_parts, current, weights)
        rules = (temperature, max_weight, limit, objective, scratch)
        moved = _sweep(*state, order, seed, sweep, *rules)
        if temperature == 0 and moved == 0:
            break
    end = _excess(loads, max_weight), _price(loads, aim)
    return np.array(assignment, np.int32) if end > begin else current


def price_partition(
    nets: Nets, assignment: np.ndarray, weights: np.ndarray, num_parts: int, max_weight: float, total: int
) -> tuple[float, float]:
    """(weight above the limit, the search's objective) with peaks from `total` rows, to choose between partitions."""
    with_messages = nets.num_nets == len(assignment) and num_parts <= MAX_MESSAGE_TABLE
    _, loads = count_pins(nets, assignment, weights, num_parts, with_messages)
    return _excess(loads, max_weight), _price(loads, _aim(total, num_parts, *_PRICES))


def _excess(loads: Loads, max_weight: float) -> float:
    return float(np.maximum(loads.weight - max_weight, 0).sum())


def _aim(total: int, num_parts: int, message_price: float, peak_price: float, peak: float) -> Objective:
    top = (1 + peak) * total / num_parts
    return Objective(message_price, peak_price, top, top)


def _price(loads: Loads, objective: Objective) -> float:
    """The whole objective, to compare two partitions by."""
    above = np.maximum(loads.send - objective.send_peak, 0).sum()
    above += np.maximum(loads.receive - objective.receive_peak, 0).sum()
    messages = np.count_nonzero(loads.rows)
    return float(loads.send.sum() + objective.message_price * messages + objective.peak_price * above)


@kernel
def _sweep(
    nets,
    counts,
    loads,
    num_parts,
    assignment,
    weights,
    order,
    seed,
    number,
    temperature,
    max_weight,
    limit,
    objective,
    scratch,
):
    """Move vertices to better parts; returns how many moved."""
    stream = key(seed, number)
    total = loads.send.sum()
    moved = 0
    best_parts = np.empty(_CHOICES + 1, np.int64)
    best_changes = np.empty(_CHOICES + 1, np.float64)
    lighter = 0.4 / max(loads.weight.max(), 1)  # ties go to the lighter part
    reach = scratch.reach
    has_prices = objective.message_price > 0 or objective.peak_price > 0
    any_above = loads.send.max() > objective.send_peak or loads.receive.max() > objective.receive_peak
    for i in range(len(order)):
        v = order[i]
        a = assignment[v]
        too_heavy = loads.weight[a] > max_weight
        num_found, entering, leaving, own = _find_parts(nets, counts, num_parts, v, a, scratch)
        num_best = 0
        for f in range(num_parts if num_found < 0 else num_found):
            p = f if num_found < 0 else scratch.found[f]
            change = entering - reach[p] - leaving + lighter * loads.weight[p]
            if num_best == _CHOICES and change >= best_changes[_CHOICES - 1]:
                continue
            if p != a and reach[p] > 0 and loads.weight[p] + weights[v] <= max_weight:
                at = num_best if num_best < _CHOICES else _CHOICES - 1
                while at > 0 and best_changes[at - 1] > change:
                    best_changes[at] = best_changes[at - 1]
                    best_parts[at] = best_parts[at - 1]
                    at -= 1
                best_changes[at] = change
                best_parts[at] = p
                num_best = min(num_best + 1, _CHOICES)
        if own > 0 and loads.send[a] > objective.send_peak and objective.peak_price > 0:
            idle = _find_idle(loads, a, weights[v], max_weight)
            if idle >= 0:  # also if its nets do not reach it: nets in every part count for none
                best_changes[num_best] = entering - reach[idle] - leaving
                best_parts[num_best] = idle
                num_best += 1
        if num_found < 0:
            reach[:] = 0
        else:
            for f in range(num_found):
                reach[scratch.found[f]] = 0
        threshold = -1e-9
        if temperature > 0:
            threshold = -temperature * math.log(1.0 - uniform(random_u64(stream, i)))
        if too_heavy:
            threshold = np.inf
        # No move saves more than this beyond its rows: moves that add more rows need no exact price.
        saving = objective.message_price * (leaving + own)
        if any_above:
            saving += objective.peak_price * (leaving + own + 1)
        chosen, least, sent = -1, np.inf, 0
        for c in range(num_best):
            rows = math.floor(best_changes[c])
            if rows - saving >= threshold:
                break
            if total + rows > limit and rows > 0:
                continue
            change = float(rows)
            if has_prices:
                change += _price_move(
                    nets, counts, loads, num_parts, assignment, v, best_parts[c], objective, scratch
                )
            if change < least:
                chosen, least, sent = best_parts[c], change, rows
        if chosen >= 0 and least < threshold:
            move_vertex(nets, counts, loads, num_parts, assignment, weights, v, chosen)
            total += sent
            moved += 1
    return moved


@kernel
def _find_idle(loads, a, weight, max_weight):
    """The part other than `a` that sends least, of those with room for `weight`; -1 if there is none."""
    idle = -1
    for p in range(len(loads.send)):
        has_room = p != a and loads.weight[p] + weight <= max_weight
        if has_room and (idle < 0 or loads.send[p] < loads.send[idle]):
            idle = p
    return idle


@kernel
def _find_parts(nets, counts, num_parts, v, a, scratch):
    """How many of v's nets reach each part, in `reach`: moving v to p sends `entering - reach[p] - leaving` more rows.

    Returns the number of parts listed in `found` (-1: look at all of them), entering, leaving, and to how many
    parts v's own nets go. Nets in every part reach all and are left out.
    """
    reach, found = scratch.reach, scratch.found
    num_found, entering, leaving, own = 0, 0, 0, 0
    for k in range(nets.indptr[v], nets.indptr[v + 1]):
        j = nets.nets[k]
        w = nets.weight[j]
        if nets.owner[j] == v:
            own += w * (counts.spread[j] - 1)
        if counts.spread[j] == num_parts:
            leaving += w * (get_count(counts, j, a) == 1)
            continue
        entering += w
        first = counts.start[j]
        if counts.is_table[j]:
            num_found = -1
            row = counts.counts[first : first + num_parts]
            for p in range(num_parts):
                reach[p] += w * (row[p] > 0)
            leaving += w * (row[a] == 1)
        else:
            for t in range(first, first + counts.size[j]):
                p = counts.parts[t]
                if reach[p] == 0 and num_found >= 0:
                    found[num_found] = p
                    num_found += 1
                reach[p] += w
                leaving += w * (p == a and counts.counts[t] == 1)
    return num_found, entering, leaving, own


@kernel
def _above(rows, peak):
    return rows - peak if rows > peak else 0.0


@kernel
def _price_move(nets, counts, loads, num_parts, assignment, v, b, objective, scratch):
    """What moving v to b adds to the objective in addition to rows sent: messages and rows above the peaks."""
    a = assignment[v]
    with_messages = len(loads.rows) > 0
    sent, from_old, from_new = scratch.sent, scratch.from_old, scratch.from_new
    touched, is_touched = scratch.touched, scratch.is_touched
    touched[0], touched[1] = a, b
    is_touched[a] = is_touched[b] = True
    num_touched = 2
    received_a, received_b, messages = 0, 0, 0
    for k in range(nets.indptr[v], nets.indptr[v + 1]):
        j = nets.nets[k]
        w = nets.weight[j]
        in_a, in_b = get_count(counts, j, a), get_count(counts, j, b)
        if nets.owner[j] == v:
            spread = counts.spread[j]
            sent[a] -= w * (spread - 1)
            sent[b] += w * (spread - 1 - (in_a == 1) + (in_b == 0))
            if in_a > 1:
                received_a += w
                from_old[b] += w
            if in_b > 0:
                received_b -= w
                from_new[a] -= w
            if with_messages:
                messages += _change_receivers(counts, loads, num_parts, j, a, b)
        elif in_a == 1 or in_b == 0:
            o = assignment[nets.owner[j]]
            if not is_touched[o]:
                is_touched[o] = True
                touched[num_touched] = o
                num_touched += 1
            if in_a == 1:
                sent[o] -= w
                received_a -= w
                from_old[o] -= w
            if in_b == 0:
                sent[o] += w
                received_b += w
                from_new[o] += w
    above = _above(loads.receive[a] + received_a, objective.receive_peak)
    above -= _above(loads.receive[a], objective.receive_peak)
    above += _above(loads.receive[b] + received_b, objective.receive_peak)
    above -= _above(loads.receive[b], objective.receive_peak)
    for t in range(num_touched):
        o = touched[t]
        if sent[o] != 0:
            above += _above(loads.send[o] + sent[o], objective.send_peak)
            above -= _above(loads.send[o], objective.send_peak)
        if with_messages:
            if o != a:
                rows = loads.rows[o, a]
                messages += (rows + from_old[o] > 0) - (rows > 0)
            if o != b:
                rows = loads.rows[o, b]
                messages += (rows + from_new[o] > 0) - (rows > 0)
        sent[o] = from_old[o] = from_new[o] = 0
        is_touched[o] = False
    return objective.message_price * messages + objective.peak_price * above


@kernel
def _change_receivers(counts, loads, num_parts, j, a, b):
    """Messages gained when net j comes from b instead of a, to all parts but these two."""
    messages = 0
    first = counts.start[j]
    for t in range(first, first + (num_parts if counts.is_table[j] else counts.size[j])):
        p = t - first if counts.is_table[j] else counts.parts[t]
        if counts.counts[t] > 0 and p != a and p != b:
            messages += loads.rows[b, p] == 0
            messages -= loads.rows[a, p] == 1
    return messages
