"""torch's Adam and AdamW without its compiler, which their constructors import: 2.6 s and 80 MB per process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_WRAPPED = ("add_param_group", "state_dict", "load_state_dict", "zero_grad", "step")


def _plain(cls: type[torch.optim.Optimizer]) -> Any:
    """`cls` with methods unwrapped from torch's guard against compilation, so that torch's compiler is not imported."""
    methods = {name: getattr(cls, name) for name in _WRAPPED}
    methods = {name: getattr(method, "__wrapped__", method) for name, method in methods.items()}
    methods["step"] = torch.no_grad()(methods["step"])
    return type(cls.__name__, (cls,), {**methods, "__doc__": cls.__doc__, "__module__": __name__})


Adam = _plain(torch.optim.Adam)
AdamW = _plain(torch.optim.AdamW)
OPTIMIZERS = ("adam", "adamw")


def make_optimizer(name: str, weights: Iterable[torch.nn.Parameter], **settings: float) -> torch.optim.Adam:
    """An optimizer of OPTIMIZERS with torch's fused step."""
    made: torch.optim.Adam = (AdamW if name == "adamw" else Adam)(weights, **settings, fused=True)
    return made
