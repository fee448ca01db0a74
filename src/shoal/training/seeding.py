"""seeded: torch's random numbers of a step, such as dropout's, as a pure function of seed, step and rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from shoal.rng import key


@contextmanager
def seeded(seed: int, step: int, rank: int) -> Iterator[None]:
    """Torch's default generator is seeded inside the block; afterwards it has the state that it had before."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(int(key(int(key(seed, step)) >> 1, rank)))
    try:
        yield
    finally:
        generator.set_state(before)
