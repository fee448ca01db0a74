"""MODELS: whole models by name, beside the stacks of convs that GNN makes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from shoal.registry import Registry

# A model is made with (in_features, num_classes, **settings) and maps a Batch to one row of logits for each of its
# output nodes. What it may offer beside that is in docs/extending.md.
MODELS: Registry[Callable[..., nn.Module]] = Registry("model", "shoal.models")
