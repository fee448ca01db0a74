"""CPU seconds of the steps of a partition, estimated from pins and parts; the rates are measured on real graphs."""

from __future__ import annotations

import numpy as np

from shoal.partitioning.nets import ROOM, Nets, count_spread

CUT = (3.5e-6, 3e-7)  # METIS by cut: for a node and for a pin, times 1 + parts / 128
VOLUME = 1.8e-7  # METIS by volume: for a pin and part that its net touches
ANEW = {"DETERMINISTIC": 2.1e-5, "DETERMINISTIC_QUALITY": 2.8e-5}  # Mt-KaHyPar: for a pin, times log2(parts)
CYCLE = 6e-6  # a cycle of Mt-KaHyPar on a partition: for a pin, times log2(parts)
SWEEP = (4e-6, 2.5e-9)  # of the local search: for a node, and for each count it looks at


def estimate_cut(nets: Nets, num_parts: int, *, directed: bool) -> float:
    """METIS by cut; it reads directed edges both ways."""
    read = len(nets.nets) * (2 if directed else 1)
    return (CUT[0] * nets.num_nets + CUT[1] * read) * (1 + num_parts / 128)


def estimate_volume(nets: Nets, num_parts: int, *, directed: bool, cut: np.ndarray | None = None) -> float:
    """METIS by volume, from its partition by `cut`; without one, nets are taken to touch half of the parts that they could.

    METIS stores the parts that every node touches: its time grows with Σ_j pins_j · λ_j, and faster with many parts for
    the degree.
    """
    pins = np.bincount(nets.nets, minlength=nets.num_nets)
    spread = np.minimum(pins, num_parts) / 2 if cut is None else count_spread(nets, cut, num_parts)
    touched = float((pins * spread).sum()) * (2 if directed else 1)
    return VOLUME * touched * max(1.0, num_parts / pins.mean()) ** 0.5


def estimate_anew(num_pins: int, num_parts: int, preset: str) -> float:
    """Mt-KaHyPar from scratch."""
    return ANEW[preset] * num_pins * float(np.log2(num_parts))


def estimate_cycle(num_pins: int, num_parts: int) -> float:
    """A cycle of Mt-KaHyPar on a partition."""
    return CYCLE * num_pins * float(np.log2(num_parts))


def estimate_sweep(nets: Nets, num_parts: int) -> float:
    """A sweep of the local search: for every pin the counts of its net, at most."""
    pins = np.bincount(nets.nets, minlength=nets.num_nets).astype(np.float64)
    counts = np.where(pins * ROOM >= num_parts, num_parts, pins)
    return SWEEP[0] * (len(nets.indptr) - 1) + SWEEP[1] * float((pins * counts).sum())
