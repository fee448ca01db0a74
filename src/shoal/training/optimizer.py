"""torch's Adam and AdamW without its compiler, which their constructors import: 2.6 s and 80 MB per process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import torch

from shoal.errors import ShoalError
from shoal.settings import Choices

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
Optimizing = Annotated[
    str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer],
    Choices(OPTIMIZERS),
    "adam, or adamw (decoupled weight decay)",
]


def make_optimizer(
    given: str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer],
    weights: Iterable[torch.nn.Parameter],
    **settings: float,
) -> torch.optim.Optimizer:
    """An optimizer of OPTIMIZERS with torch's fused step; or the user's, or what the user's class or function makes of the
    weights, with those `settings` that it has parameters for and does not set itself."""
    if isinstance(given, str):
        made: Any = (AdamW if given == "adamw" else Adam)(weights, **settings, fused=True)
        return made
    made = given
    if not isinstance(given, torch.optim.Optimizer):
        takes, own = inspect.signature(given).parameters, getattr(given, "keywords", {})
        made = given(
            weights, **{name: value for name, value in settings.items() if name in takes and name not in own}
        )
    if not isinstance(made, torch.optim.Optimizer) or isinstance(made, torch.optim.LBFGS):
        raise ShoalError(
            f"optimizer gave a {type(made).__name__}: expected a torch.optim.Optimizer whose step needs no closure, "
            "or adam, adamw"
        )
    known = {id(weight) for weight in weights}
    if not any(id(weight) in known for group in made.param_groups for weight in group["params"]):
        raise ShoalError("the optimizer has no parameters of this model: make it with model.parameters()")
    return made
