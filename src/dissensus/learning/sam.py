"""Sharpness-aware minimisation around any optimiser (Foret et al. 2021; adaptive: Kwon et al. 2021).

    g = ∇L(θ)      ε = ρ g / ‖g‖               adaptive: ε = ρ T² g / ‖T g‖, T = |θ|
    step of the optimiser at θ, with the gradient ∇L(θ + ε)

‖·‖ is the norm over all parameters together. ε does not depend on the scale of the loss, so a scaled loss (mixed
precision), or a sum instead of a mean, gives the same step. If the norm is zero or not finite, the optimiser takes its
usual step. If gradients are row-sparse, only the rows of the batch are changed.

Both passes use the same network. The second pass draws the same random numbers (dropout) from torch's generators, and
does not change the running statistics of normalisation layers. If ρ is 0, the step is exactly that of the optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from dissensus.common.exceptions import UnknownParameter
from dissensus.common.parameters import check_argument, is_number, param
from dissensus.learning.rows import get_gradient_rows


def read_sam_options(sam: float | Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `SAM` as a mapping, given ρ or such a mapping."""
    options = dict(sam) if isinstance(sam, Mapping) else {"rho": sam}
    if extra := set(options) - {"rho", "adaptive"}:
        raise UnknownParameter(owner="sam", name=min(extra), parameters=("adaptive", "rho"))
    return options


def _is_sam_setting(sam: Any) -> bool:
    """Return True if `sam` is ρ or a mapping with rho and adaptive; raise BadParameter if a value is wrong."""
    is_valid_type = isinstance(sam, Mapping) or is_number(sam)
    return is_valid_type and SAM(torch.optim.SGD([torch.zeros(1)]), **read_sam_options(sam)) is not None


SAM_PARAM: Any = param(
    None,
    "ρ of sharpness-aware training (0.05 is usual), or a mapping with rho and adaptive",
    check=_is_sam_setting,
    must="must be ρ, a mapping with rho and adaptive, or None",
)


class SAM(Optimizer):
    """An optimiser that uses the gradient at the nearby point with the largest loss.

    Parameters
    ----------
    base : torch.optim.Optimizer
        The optimiser that takes the steps; groups, learning rates, state and `state_dict` are those of `base`.
    rho : float
        ρ, the distance to the point with the largest loss.
    adaptive : bool
        Whether distances are proportional to the size of each parameter.
    model : nn.Module, optional
        The network, whose running statistics the second pass must not change.
    """

    def __init__(self, base: Optimizer, rho: float = 0.05, adaptive: bool = False, model: nn.Module | None = None):
        check_argument("rho", rho, float, low=0)
        super().__init__(base.param_groups, {})
        self.base, self.rho, self.adaptive = base, rho, adaptive
        layers = [] if model is None else [layer for layer in model.modules() if isinstance(layer, _NormBase)]
        self.statistics = [buffer for layer in layers for buffer in layer.buffers()]
        self._share_state()

    def _share_state(self) -> None:
        self.param_groups, self.state = self.base.param_groups, self.base.state

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Take a step with the gradient at θ + ε, and return the loss at θ (for `closure`, see `compute_gradients`)."""
        loss = self.compute_gradients(closure)
        self.base.step()
        return loss

    @torch.no_grad()
    def compute_gradients(self, closure: Callable[[], Any]) -> Any:
        """Compute the gradients at θ + ε, restore θ, and return the loss at θ; the caller takes the step.

        `closure` is called twice. It clears the gradients, runs the forward and backward passes over all items of the
        step (in parts if gradients are accumulated) and returns the loss.
        """
        closure = torch.enable_grad()(closure)
        params = [parameter for group in self.base.param_groups for parameter in group["params"]]
        devices = sorted({p.device for p in params if p.device.type != "cpu"}, key=str)
        generators = [torch.random, *(torch.get_device_module(device) for device in devices)]
        device_args: list[tuple[Any, ...]] = [(), *((device,) for device in devices)]
        drawn = [of.get_rng_state(*at) for of, at in zip(generators, device_args, strict=True)]
        loss = closure()
        if restore := self._ascend([p for p in params if p.grad is not None]):
            for of, at, state in zip(generators, device_args, drawn, strict=True):
                of.set_rng_state(state, *at)
            kept = [buffer.clone() for buffer in self.statistics]
            closure()
            for buffer, values in zip(self.statistics, kept, strict=True):
                buffer.copy_(values)
            for back in restore:
                back()
        return loss

    def _ascend(self, params: list[Tensor]) -> list[Callable[[], Any]]:
        """Move the parameters to θ + ε, and return functions that restore θ exactly."""
        moves, norms = [], []
        for weight in params:
            assert weight.grad is not None
            rows, grad = get_gradient_rows(weight) if weight.grad.is_sparse else (None, weight.grad)
            values = (
                weight.clone() if rows is None else weight.index_select(0, rows)
            )  # These copies restore the exact values.
            slope = grad * values.abs() if self.adaptive else grad
            norms.append(torch.linalg.vector_norm(slope, dtype=torch.promote_types(slope.dtype, torch.float32)))
            moves.append((weight, rows, values, grad * values**2 if self.adaptive else grad))
        norm = float(torch.stack(norms).norm()) if norms else 0.0  # Only this line waits for the device.
        if not 0 < norm < float("inf"):
            return []
        for weight, rows, values, direction in moves:
            _copy_rows(weight, rows, torch.add(values, direction, alpha=self.rho / norm))
        return [partial(_copy_rows, weight, rows, values) for weight, rows, values, _ in moves]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the base optimiser."""
        return self.base.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the base optimiser."""
        self.base.load_state_dict(state_dict)
        self._share_state()


@torch.no_grad()
def _copy_rows(parameter: Tensor, rows: Tensor | None, values: Tensor) -> None:
    """Copy values into a parameter, or into `rows` of it."""
    if rows is None:
        parameter.copy_(values)
    else:
        parameter.index_copy_(0, rows, values)
