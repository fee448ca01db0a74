"""Inductive full-graph training on ranks that hold parts: nothing of a validation or test node reaches a step."""

from __future__ import annotations

import numpy as np

from inductive_ranks import check_all


def test_training_does_not_depend_on_unseen_nodes(ranks):
    """Losses are the same, bit for bit, when features, labels and edges of all other nodes change."""
    for name, (losses, changed) in ranks("gloo", 3).call(check_all).items():
        assert np.isfinite(losses).all(), name
        assert losses == changed, name
