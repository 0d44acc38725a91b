"""Optimisers by name, and schedules of their learning rates.

    factor = (step + 1) / (warm + 1)                 in the first steps, whose share is `warmup`
             1;  1 − t;  (1 + cos πt) / 2            constant, linear, cosine; t: finished share of other steps
             product of the factors so far           {epoch: factor}

Parameters that are marked `row_sparse` always use `RowAdam`, independent of the optimiser of the other parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dissensus.common.parameters import is_number, is_whole_number, param
from dissensus.learning.exceptions import WrongOptimizer
from dissensus.learning.rows import JointOptimizer, RowAdam

OptimizerSpec = str | Mapping[str, Any] | Callable[..., torch.optim.Optimizer]
"""An optimiser as a name, a mapping with its name and keywords, or a function of parameter groups."""
Schedule = str | Mapping[int, float]
ParameterGroups = list[dict[str, Any]]

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
}


def pack_optimizer(wanted: OptimizerSpec) -> Any:
    """Return the optimiser as a name or a mapping with keywords, which can be stored in a file."""
    if callable(wanted):  # The repr of a function may contain an address.
        return getattr(wanted, "__qualname__", type(wanted).__qualname__)
    return wanted if isinstance(wanted, str) else dict(wanted)


def make_optimizer(wanted: OptimizerSpec, groups: ParameterGroups, weight_decay: float) -> torch.optim.Optimizer:
    """Return the optimiser of these groups, with `RowAdam` for row-sparse parameters."""
    dense, sparse = split_sparse_groups(groups)
    if not dense:  # The encoder has no weights, and all parameters of the head are row-sparse.
        return RowAdam(sparse)
    optimizer: torch.optim.Optimizer
    if callable(wanted):
        optimizer = wanted(dense)
    else:
        name, options = _split_name(wanted)
        kind, defaults = OPTIMIZERS[name]
        # For a small network, a fused step takes a third of the time.
        fused = all(p.device.type in ("cpu", "cuda") for group in dense for p in group["params"])
        try:
            optimizer = kind(dense, **{"weight_decay": weight_decay, "fused": fused, **defaults, **options})
        except (TypeError, ValueError) as error:
            raise WrongOptimizer(optimizer=repr(wanted), reason=str(error)) from error
    return JointOptimizer(optimizer, RowAdam(sparse)) if sparse else optimizer


def split_sparse_groups(groups: ParameterGroups) -> tuple[ParameterGroups, ParameterGroups]:
    """Split parameter groups into groups of dense and groups of row-sparse parameters."""
    split_groups: tuple[ParameterGroups, ParameterGroups] = ([], [])
    for group in groups:
        for sparse in (False, True):
            params = [p for p in group["params"] if getattr(p, "row_sparse", False) is sparse]
            split_groups[sparse].extend([{**group, "params": params}] if params else [])
    return split_groups


def rate_factor(schedule: Schedule, warmup: float, step: int, steps: int, epoch: int) -> float:
    """Return the factor of the learning rates in step number `step` of `steps`."""
    warm = max(round(warmup * steps), 0)
    if step < warm:
        return (step + 1) / (warm + 1)
    if isinstance(schedule, Mapping):
        return math.prod(f for at, f in schedule.items() if epoch >= at)
    done = (step - warm) / max(steps - warm, 1)
    return {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[schedule]


def _split_name(wanted: Any) -> tuple[str, dict[str, Any]]:
    options = dict(wanted) if isinstance(wanted, Mapping) else {"name": wanted}
    return options.pop("name", None), options


def _is_schedule(schedule: Any) -> bool:
    if isinstance(schedule, Mapping):
        return all(is_whole_number(at) and is_number(factor) and factor >= 0 for at, factor in schedule.items())
    return schedule in ("constant", "linear", "cosine")


OPTIMIZER_PARAM: Any = param(
    "adam",
    "name of an optimiser, a mapping with its name and keywords, or a function of parameter groups",
    check=lambda wanted: callable(wanted) or _split_name(wanted)[0] in OPTIMIZERS,
    must=f"must be one of {', '.join(OPTIMIZERS)}, a mapping with such a 'name', or a function of parameter groups",
)
SCHEDULE_PARAM: Any = param(
    "constant",
    "schedule of the learning rates; {epoch: factor} multiplies them by the factor from that epoch on (the first is 0)",
    check=_is_schedule,
    must="must be 'constant', 'linear', 'cosine' or {epoch: factor}",
)
