"""Random splits of nodes into training, validation and test sets."""

import numpy as np

from shoal.checks import MAX_SEED, check_whole
from shoal.errors import ShoalError
from shoal.validation import MASKS

_DREW, _REPLACED = "no split given: ", "replaced the split: "


def draw_split(
    nodes: np.ndarray, num_nodes: int, train: float = 0.6, val: float = 0.2, seed: int = 0
) -> dict[str, np.ndarray]:
    """Masks of a random split of `nodes`, a subset of 0 … num_nodes-1; the rest after train and val is the test set."""
    try:
        train, val = float(train), float(val)
    except (TypeError, ValueError):
        raise ShoalError(
            f"a split of {train!r:.40} / {val!r:.40} is impossible: expected two numbers"
        ) from None
    check_whole("seed", seed, 0, MAX_SEED)
    if not (train > 0 and val >= 0 and train + val <= 1):
        raise ShoalError(
            f"a split of {train} / {val} is impossible: fractions must be positive and sum to at most 1"
        )
    order = np.random.default_rng(seed).permutation(nodes)
    ends = np.cumsum([round(train * len(order)), round(val * len(order))])
    masks = {}
    for name, chosen in zip(MASKS, np.split(order, ends)):
        mask = np.zeros(num_nodes, np.bool_)
        mask[chosen] = True
        masks[name] = mask
    return masks


def note_split(notices: tuple[str, ...], said: str, *, replaces: bool) -> tuple[str, ...]:
    """A graph's notices after a split was drawn as `said`; a notice of the split that it `replaces` is left out."""
    if not replaces:
        return (*notices, _DREW + said)
    kept = [one for one in notices if not one.startswith((f"{_DREW}drew", _REPLACED))]
    return (*kept, _REPLACED + said)
