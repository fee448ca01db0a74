"""Replacement policy of the feature cache: slots are listed by the next use of their row, and the farthest is evicted.

A slot is in one of `classes + window + 1` lists. The first `classes` lists hold rows that no known batch reads, by
increasing degree. List `classes + u mod (window + 1)` holds rows that batch u reads next. A row is admitted if it can
evict one that is read later, or one of lower degree that no known batch reads. With a window over all batches this is
Belady's algorithm with bypass, which reads the fewest rows. With `recent` there is one list in the order of last use
(LRU), and every row is admitted.
"""

import math
from typing import NamedTuple

import numpy as np

from shoal.kernels.bits import prefetch
from shoal.kernels.encoding import decode_row
from shoal.kernels.jit import kernel

NONE = -1
SLOT, LAST = range(2)
ROW, LIST, BEFORE, AFTER = range(4)
_CLASSES_PER_DOUBLING = 8
_CLASSES = 32 * _CLASSES_PER_DOUBLING
_AHEAD = 8  # rows, for each stage of dependent reads
_LINE = 64  # bytes


class Slots(NamedTuple):
    """The state of a cache's slots.

    Attributes:
        rows: SLOT of every row and, with a window, its LAST position in `follow`; -1 for none.
        links: ROW and LIST of every slot, and the slots BEFORE and AFTER it in that list; together, to share a cache line.
        heads, tails: first and last slot of every list.
        follow: for every row of the window's batches, the next batch that reads it, -1 for none; a ring buffer.
        used: number of slots in use, an array of one.
        window: number of batches known ahead.
        classes: number of lists by degree.
        recent: whether the least recently used row is evicted.
    """

    rows: np.ndarray
    links: np.ndarray
    heads: np.ndarray
    tails: np.ndarray
    follow: np.ndarray
    used: np.ndarray
    window: int
    classes: int
    recent: bool


def make_slots(num_rows: int, num_slots: int, window: int, *, recent: bool = False) -> Slots:
    """Empty slots; `grow_follow` makes room in `follow`."""
    lists = _CLASSES + window + 1
    return Slots(
        rows=np.full((num_rows, 2 if window else 1), NONE, np.int32),
        links=np.full((num_slots, 4), NONE, np.int32),
        heads=np.full(lists, NONE, np.int32),
        tails=np.full(lists, NONE, np.int32),
        follow=np.empty(1, np.int64),
        used=np.zeros(1, np.int64),
        window=window,
        classes=_CLASSES,
        recent=recent,
    )


def slots_bytes(num_rows: int, num_slots: int, window: int) -> int:
    """Bytes of the state, without `follow`."""
    return num_rows * (8 if window else 4) + 16 * num_slots


def grow_follow(slots: Slots, place: int, lists: list[np.ndarray], more: int) -> Slots:
    """The state with `follow` enlarged by `more` rows; the rows of `lists`, the batches from `place` on, move to 0."""
    held = sum(map(len, lists))
    follow = np.full(1 << (held + more - 1).bit_length(), NONE, np.int64)
    follow[:held] = slots.follow[(place + np.arange(held)) & (len(slots.follow) - 1)]
    for start, rows in zip(np.cumsum([0, *map(len, lists)]), lists):
        slots.rows[rows, LAST] = start + np.arange(len(rows))  # a repeated row keeps its last position
    return slots._replace(follow=follow)


@kernel
def enter_batch(slots, rows, batch, place):
    """Register batch number `batch`, which reads `rows`; its positions in `follow` begin at `place`."""
    mask = len(slots.follow) - 1
    for i in range(len(rows)):
        _ask_ahead(slots, rows, i)
        row, at = rows[i], (place + i) & mask
        slots.follow[at] = NONE
        if slots.rows[row, LAST] >= 0:
            slots.follow[slots.rows[row, LAST]] = batch
        slots.rows[row, LAST] = at
        slot = slots.rows[row, SLOT]
        if slot >= 0 and slots.links[slot, LIST] < slots.classes:
            _unlink(slots, slot)
            _append(slots, slot, slots.classes + batch % (slots.window + 1))


@kernel
def plan_batch(slots, rows, batch, place, indptr):
    """(source, misses, moved, to): where batch number `batch` finds its rows, and what the cache holds afterwards.

    `source[i]` is the slot of `rows[i]`, or `-1 - j` if it is not in the cache and has to be read as `misses[j]`. After the
    batch is gathered, row `misses[moved[i]]` is written to slot `to[i]`, in this order.
    """
    source = np.empty(len(rows), np.int32)
    misses = np.empty(len(rows), np.int32)
    lists = np.empty(len(rows), np.int32)
    count = 0
    for i in range(len(rows)):
        _ask_ahead(slots, rows, i)
        prefetch(indptr, np.int64(rows[min(i + _AHEAD, len(rows) - 1)]))
        row = rows[i]
        chosen = _find_list(slots, row, place + i, indptr)
        slot = slots.rows[row, SLOT]
        if slot >= 0:
            source[i] = slot
            _unlink(slots, slot)
            _append(slots, slot, chosen)
        else:
            source[i] = -1 - count
            misses[count] = row
            lists[count] = chosen
            count += 1
    moved = np.empty(count, np.int32)
    to = np.empty(count, np.int32)
    size, rank = 0, 0
    for j in range(count):
        row, slot = misses[j], -1
        if slots.rows[row, SLOT] >= 0 or len(slots.links) == 0:
            continue
        own = _rank(slots, lists[j], batch)
        if slots.used[0] < len(slots.links):
            slot = slots.used[0]
            slots.used[0] += 1
        else:
            while slots.heads[_list_at(slots, rank, batch)] < 0:
                rank += 1
            if own <= rank and not slots.recent:
                continue
            slot = slots.heads[_list_at(slots, rank, batch)]
            _unlink(slots, slot)
            slots.rows[slots.links[slot, ROW], SLOT] = NONE
        slots.rows[row, SLOT] = slot
        slots.links[slot, ROW] = row
        _append(slots, slot, lists[j])
        rank = min(rank, own)
        moved[size], to[size] = j, slot
        size += 1
    return source, misses[:count], moved[:size], to[:size]


@kernel
def _ask_ahead(slots, rows, i):
    """Prefetch for the rows after row i: first a row's state, then the links of its slot, then those of that slot's neighbours."""
    last, width = len(rows) - 1, slots.rows.shape[1]
    prefetch(slots.rows, width * np.int64(rows[min(i + 3 * _AHEAD, last)]))
    row = rows[min(i + 2 * _AHEAD, last)]
    if width > 1:
        prefetch(slots.follow, np.int64(slots.rows[row, LAST]))
    prefetch(slots.links, 4 * np.int64(slots.rows[row, SLOT]))
    slot = slots.rows[rows[min(i + _AHEAD, last)], SLOT]
    if slot >= 0:
        prefetch(slots.links, 4 * np.int64(slots.links[slot, BEFORE]))
        prefetch(slots.links, 4 * np.int64(slots.links[slot, AFTER]))


@kernel
def _find_list(slots, row, place, indptr):
    """The list of a row after the current batch has read it: by its next batch, else by its degree."""
    if slots.recent:
        return 0
    if slots.window > 0:
        following = slots.follow[place & (len(slots.follow) - 1)]
        if following >= 0:
            return slots.classes + following % (slots.window + 1)
        slots.rows[row, LAST] = NONE
    degree = indptr[row + 1] - indptr[row]
    return min(slots.classes - 1, int(_CLASSES_PER_DOUBLING * math.log2(degree + 1.0)))


@kernel
def _rank(slots, chosen, batch):
    """The order of eviction of a list: low degrees first, then those whose next batch is the farthest."""
    if chosen < slots.classes:
        return chosen
    ahead = (chosen - slots.classes - batch) % (slots.window + 1)
    return slots.classes + slots.window - ahead


@kernel
def _list_at(slots, rank, batch):
    """The list of a rank."""
    if rank < slots.classes:
        return rank
    ahead = slots.classes + slots.window - rank
    return slots.classes + (batch + ahead) % (slots.window + 1)


@kernel
def _unlink(slots, slot):
    before, after, old = slots.links[slot, BEFORE], slots.links[slot, AFTER], slots.links[slot, LIST]
    if before >= 0:
        slots.links[before, AFTER] = after
    else:
        slots.heads[old] = after
    if after >= 0:
        slots.links[after, BEFORE] = before
    else:
        slots.tails[old] = before


@kernel
def _append(slots, slot, chosen):
    tail = slots.tails[chosen]
    slots.links[slot, BEFORE], slots.links[slot, AFTER], slots.links[slot, LIST] = tail, NONE, chosen
    if tail >= 0:
        slots.links[tail, AFTER] = slot
    else:
        slots.heads[chosen] = slot
    slots.tails[chosen] = slot


@kernel
def take_cached(kept, read, source, width, kind, out, f):
    """`out[i]` = the row in slot `source[i]` of `kept`, or row `-1 - source[i]` of `read`, decoded; all flat."""
    step = max(_LINE // kept.itemsize, 1)
    for i in range(len(source)):
        coming = np.int64(source[min(i + _AHEAD, len(source) - 1)])
        if coming >= 0:
            for place in range(coming * width, (coming + 1) * width, step):
                prefetch(kept, place)
        if source[i] >= 0:
            start = np.int64(source[i]) * width
            decode_row(kept[start : start + width], kind, out[i * f : (i + 1) * f])
        else:
            start = (-1 - np.int64(source[i])) * width
            decode_row(read[start : start + width], kind, out[i * f : (i + 1) * f])


@kernel
def keep_rows(kept, read, moved, to, width):
    """Copy row `moved[i]` of `read` to slot `to[i]` of `kept`; both flat."""
    for i in range(len(moved)):
        source, target = np.int64(moved[i]) * width, np.int64(to[i]) * width
        kept[target : target + width] = read[source : source + width]
