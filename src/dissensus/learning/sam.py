"""Sharpness-aware minimisation around any optimiser (Foret et al. 2021; adaptive: Kwon et al. 2021).

    g = ∇L(θ)      ε = ρ g / ‖g‖               adaptive: ε = ρ T² g / ‖T g‖, T = |θ|
    the optimiser's own step at θ, with the gradient ∇L(θ + ε)

‖·‖ runs over all parameters together. ε does not depend on the scale of the loss, so a scaled one (mixed precision) or
a sum in place of a mean gives the same. Where the norm is zero or not finite there is no ascent and the step is the
optimiser's own. Of row-sparse gradients only the rows of the batch are moved.

Both passes see the same network: the second one draws the same random numbers (dropout) from torch's generators, and
leaves the running statistics of normalisation layers alone. With ρ = 0 the step is the optimiser's own, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from dissensus.common.parameters import is_number
from dissensus.exceptions import BadParameter
from dissensus.learning.rows import touched_rows


def is_sam(sam: Any) -> bool:
    """True for ρ, or a mapping with rho and adaptive; BadParameter where such a mapping or ρ is wrong."""
    if not isinstance(sam, Mapping) and not is_number(sam):
        return False
    SAM(torch.optim.SGD([torch.zeros(1)]), **sam_options(sam))
    return True


def sam_options(sam: float | Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of `SAM` of such a keyword."""
    options = dict(sam) if isinstance(sam, Mapping) else {"rho": sam}
    if extra := set(options) - {"rho", "adaptive"}:
        raise BadParameter(f"sam has keywords rho and adaptive, got {', '.join(sorted(extra))}.")
    return options


class SAM(Optimizer):
    """An optimiser that steps with the gradient from the worst point nearby.

    Parameters
    ----------
    base : torch.optim.Optimizer
        Takes the steps; groups, learning rates, state and `state_dict` are its own.
    rho : float
        ρ, how far the worst point is looked for.
    adaptive : bool
        Distances in proportion to the size of each parameter.
    model : nn.Module, optional
        The network, where it has layers with running statistics: the second pass leaves those alone.
    """

    def __init__(self, base: Optimizer, rho: float = 0.05, adaptive: bool = False, model: nn.Module | None = None):
        if not 0 <= rho < float("inf"):
            raise BadParameter(f"rho must be 0 or more, got {rho}.")
        super().__init__(base.param_groups, {})
        self.base, self.rho, self.adaptive = base, rho, adaptive
        layers = [] if model is None else [layer for layer in model.modules() if isinstance(layer, _NormBase)]
        self.statistics = [buffer for layer in layers for buffer in layer.buffers()]
        self._share()

    def _share(self) -> None:
        self.param_groups, self.state = self.base.param_groups, self.base.state

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """One step with the gradient at θ + ε; returns the loss at θ. `closure` as in `around`."""
        loss = self.around(closure)
        self.base.step()
        return loss

    @torch.no_grad()
    def around(self, closure: Callable[[], Any]) -> Any:
        """Leave the gradients of θ + ε at θ, for whoever clips or unscales them and takes the step; the loss at θ.

        `closure` clears the gradients, goes forward and backward over all items of the step (in parts, where they are
        accumulated) and returns the loss; it is called twice.
        """
        closure = torch.enable_grad()(closure)
        devices = sorted({p.device for p in self._params() if p.device.type != "cpu"}, key=str)
        before = random_state(devices)
        loss = closure()
        undo = self._ascend()
        if undo:
            set_random_state(before, devices)
            with unchanged(self.statistics):
                closure()
            for restore in undo:
                restore()
        return loss

    def _ascend(self) -> list[Callable[[], Any]]:
        """Move to θ + ε; what has to be called to be at θ again, to the bit."""
        slopes = [Slope(p) for p in self._params() if p.grad is not None]
        norms = [s.steepness(self.adaptive) for s in slopes]
        norm = float(torch.stack(norms).norm()) if norms else 0.0  # the one time that the processor waits for a device
        if not 0 < norm < float("inf"):
            return []
        return [slope.climb(self.rho / norm, self.adaptive) for slope in slopes]

    def _params(self) -> Iterator[Tensor]:
        for group in self.base.param_groups:
            yield from group["params"]

    def state_dict(self) -> dict[str, Any]:
        """The base optimiser's."""
        return self.base.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Into the base optimiser."""
        self.base.load_state_dict(state_dict)
        self._share()


class Slope:
    """A parameter's values and gradient where it has one: all of it, or the rows that a batch touched."""

    def __init__(self, param: Tensor):
        self.param = param
        assert param.grad is not None
        self.rows: Tensor | None = None
        self.grad = param.grad
        if param.grad.is_sparse:
            self.rows, self.grad = touched_rows(param)
        self.values = (
            param.clone() if self.rows is None else param.index_select(0, self.rows)
        )  # copies, to come back exactly

    def steepness(self, adaptive: bool) -> Tensor:
        """‖g‖, or ‖T g‖, of this parameter; in float32 at least."""
        grad = self.grad * self.values.abs() if adaptive else self.grad
        norm: Tensor = torch.linalg.vector_norm(grad, dtype=torch.promote_types(grad.dtype, torch.float32))
        return norm

    def climb(self, scale: float, adaptive: bool) -> Callable[[], Any]:
        """Add ε = scale · g, or scale · T² g; the function that takes it back."""
        there = torch.add(self.values, self.grad * self.values**2 if adaptive else self.grad, alpha=scale)
        self.write(there)
        return lambda: self.write(self.values)

    def write(self, values: Tensor) -> None:
        """Put these values where the gradient was."""
        if self.rows is None:
            self.param.copy_(values)
        else:
            self.param.index_copy_(0, self.rows, values)


def random_state(devices: list[torch.device]) -> list[Tensor]:
    """The state of torch's own generators: the processor's and those of these devices."""
    return [torch.get_rng_state()] + [torch.get_device_module(d).get_rng_state(d) for d in devices]


def set_random_state(states: list[Tensor], devices: list[torch.device]) -> None:
    """Back to what `random_state` said."""
    torch.set_rng_state(states[0])
    for state, device in zip(states[1:], devices, strict=True):
        torch.get_device_module(device).set_rng_state(state, device)


@contextmanager
def unchanged(buffers: list[Tensor]) -> Iterator[None]:
    """These tensors are after the block what they were before."""
    kept = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, values in zip(buffers, kept, strict=True):
            buffer.copy_(values)
