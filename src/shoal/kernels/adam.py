"""Adam with each parameter updated in one parallel pass."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from shoal.errors import ShoalError
from shoal.kernels.jit import parallel_kernel

_BLOCK = 1 << 14  # elements a thread updates at a time


class FusedAdam(torch.optim.Optimizer):
    """`p ← p − lr · m̂ / (√v̂ + eps)`, m and v the running means of g and g², corrected for their start at zero.

    Equal to `torch.optim.Adam` (`decoupled=False`: weight decay is added to the gradient) and to
    `torch.optim.AdamW` (`decoupled=True`: the parameter itself decays) to rounding; its state has the same
    names and shapes (`step`, `exp_avg`, `exp_avg_sq`), so that checkpoints are interchangeable. The trick:
    four reads and three writes per element where separate operations make a dozen.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        decoupled: bool = False,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ShoalError(
                f"lr {lr}, betas {betas}, eps {eps}, weight_decay {weight_decay}: expected none negative and betas below 1"
            )
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled": decoupled,
        }
        super().__init__(params, settings)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # a state of torch's Adam or AdamW
            group.setdefault("decoupled", group.get("decoupled_weight_decay", False))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        state["step"] += 1
        tensors = (parameter, grad, state["exp_avg"], state["exp_avg_sq"])
        steps = int(state["step"])
        fast = all(t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in tensors)
        if not fast:
            adam_step_reference(*tensors, steps, group)
            return
        beta1, beta2 = group["betas"]
        numbers = (
            group["lr"] / (1 - beta1**steps),
            beta1,
            beta2,
            (1 - beta2**steps) ** -0.5,
            group["eps"],
            0.0 if group["decoupled"] else group["weight_decay"],
            1.0 - group["lr"] * group["weight_decay"] if group["decoupled"] else 1.0,
        )
        arrays = [t.detach().view(-1).numpy() for t in tensors]
        scalars = [np.float32(number) for number in numbers]
        if parameter.numel() <= 2 * _BLOCK:
            _update_slice(*arrays, *scalars, np.float32(1 - beta1), np.float32(1 - beta2))
        else:
            _update_parallel(*arrays, *scalars, np.float32(1 - beta1), np.float32(1 - beta2))
        torch.autograd.graph.increment_version(parameter)


def adam_step_reference(
    p: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, steps: int, group: dict[str, Any]
) -> None:
    """The same update by torch operations, for any device, dtype and layout."""
    beta1, beta2 = group["betas"]
    if group["decoupled"]:
        p.mul_(1 - group["lr"] * group["weight_decay"])
    elif group["weight_decay"]:
        grad = grad + group["weight_decay"] * p
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    root = exp_avg_sq.sqrt().mul_((1 - beta2**steps) ** -0.5).add_(group["eps"])
    p.addcdiv_(exp_avg, root, value=-group["lr"] / (1 - beta1**steps))


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _update_slice(p, g, m, v, rate, beta1, beta2, root_scale, eps, decay, shrink, rest1, rest2):
    for i in range(len(p)):
        x = p[i] * shrink
        slope = g[i] + decay * x
        mean = beta1 * m[i] + rest1 * slope
        square = beta2 * v[i] + rest2 * slope * slope
        m[i] = mean
        v[i] = square
        p[i] = x - rate * mean / (np.sqrt(square) * root_scale + eps)


@parallel_kernel
def _update_parallel(p, g, m, v, rate, beta1, beta2, root_scale, eps, decay, shrink, rest1, rest2):
    for block in prange((len(p) + _BLOCK - 1) // _BLOCK):
        a, b = block * _BLOCK, min(len(p), (block + 1) * _BLOCK)
        _update_slice(
            p[a:b], g[a:b], m[a:b], v[a:b], rate, beta1, beta2, root_scale, eps, decay, shrink, rest1, rest2
        )
