"""MODELS: whole models by name, beside the GNN's stacks of convs."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from shoal.registry import Registry

# A model is constructed with (in_features, num_classes, **settings). It maps a Batch to one row of logits for each of
# its output nodes. docs/extending.md lists its optional methods.
MODELS: Registry[Callable[..., nn.Module]] = Registry("model", "shoal.models")
