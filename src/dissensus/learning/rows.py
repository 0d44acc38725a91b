"""Adam for parameters with rows of which a step uses few, such as one matrix per annotator.

Row r with gradient g_r has its own number of steps t_r (Kingma & Ba 2015, Algorithm 1, row by row):

    t_r ← t_r + 1      m_r ← β1 m_r + (1 − β1) g_r      v_r ← β2 v_r + (1 − β2) g_r²
    θ_r ← θ_r − lr · (m_r / (1 − β1^t_r)) / (√(v_r / (1 − β2^t_r)) + ε)

The moments of a row are those of Adam over the steps in which the row had a gradient. In other steps, the row does not
change and its moments do not decay. Therefore the momentum of an annotator who has a label in every hundredth batch
comes from that annotator's last labels. The time of a step grows with the number of rows that have a gradient.
(`torch.optim.SparseAdam` counts t over all steps instead, so that the first step of a row is
(1 − β1)/√(1 − β2) = 3.2 times too long if it is late.)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT


class RowEmbedding(nn.Embedding):
    """An embedding with the initial rows (A, D) as its weight.

    Gradients are dense by default. If `sparse` is True, as in the trainer, they contain only the rows of a batch.
    """

    def __init__(self, rows: Tensor):
        super().__init__(rows.shape[0], rows.shape[1], _weight=rows)
        self._mark_row_sparse()

    def forward(self, codes: Tensor) -> Tensor:
        """Return rows (…, D) of codes (…)."""
        if self.sparse:
            return super().forward(codes)
        rows = self.weight.index_select(0, codes.reshape(-1))  # vmap supports index_select, but not embedding().
        return rows.reshape(*codes.shape, self.embedding_dim)

    def _mark_row_sparse(self) -> None:
        self.weight.row_sparse = True  # type: ignore[attr-defined]  # read by `optimizers.split_sparse_groups`

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch's method has no types
        self._mark_row_sparse()  # Copies of a parameter lose the attribute.


def use_row_sparse(module: nn.Module, sparse: bool = True) -> None:
    """Make the gradients of all `RowEmbedding`s in a module row-sparse, as `RowAdam` needs, or dense."""
    for part in module.modules():
        if isinstance(part, RowEmbedding):
            part.sparse = sparse


class RowAdam(Optimizer):
    """Adam that is applied row by row to the sparse gradients of `embedding(…, sparse=True)`."""

    def __init__(self, params: ParamsT, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows that have a gradient."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._update_rows(param, group["lr"], group["betas"], group["eps"])
        return loss

    def _update_rows(self, param: Tensor, lr: float, betas: tuple[float, float], eps: float) -> None:
        (beta1, beta2), state = betas, self.state[param]
        if not state:
            state["moments"] = param.new_zeros((len(param), 2, *param.shape[1:]))  # m and v, adjacent for each row
            state["steps"] = param.new_zeros((len(param), *[1] * (param.ndim - 1)))  # (A, 1)
        rows, grad = get_gradient_rows(param)
        # index_select is four times as fast as indexing with [rows].
        steps = state["steps"].index_select(0, rows) + 1  # (rows, 1)
        moments = state["moments"].index_select(0, rows)  # (rows, 2, D)
        mean, square = moments.unbind(1)
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        state["steps"].index_copy_(0, rows, steps)
        state["moments"].index_copy_(0, rows, moments)
        scale = (square / one_minus_power(beta2, steps)).sqrt_().add_(eps)
        move = (mean / one_minus_power(beta1, steps)).div_(scale)
        param.index_copy_(0, rows, param.index_select(0, rows).sub_(move, alpha=lr))


class JointOptimizer(Optimizer):
    """Two optimisers as one: `dense` for most parameters, `rows` for those that are marked `row_sparse`.

    All three share their groups, learning rates and states, so schedulers and checkpoints handle a single optimiser.
    """

    def __init__(self, dense: Optimizer, rows: Optimizer):
        super().__init__([*dense.param_groups, *rows.param_groups], {})
        self.dense, self.rows = dense, rows
        self.state = defaultdict(dict, {**dense.state, **rows.state})
        self._share_state()

    def _share_state(self) -> None:
        n = len(self.dense.param_groups)
        self.dense.param_groups, self.rows.param_groups = self.param_groups[:n], self.param_groups[n:]
        self.dense.state = self.rows.state = self.state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step of both optimisers."""
        loss = None if closure is None else closure()
        self.dense.step()
        self.rows.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of a JointOptimizer of the same two classes."""
        super().load_state_dict(state_dict)
        self._share_state()


def take_rows_or_mean(table: Tensor, codes: Tensor, totals: Tensor) -> Tensor:
    """Return the rows (n, D) of annotators, or the mean row for annotators who are unknown (−1) or have no labels.

    The mean is weighted by `totals` (A,), the weight of each annotator's labels.
    """
    has_labels = (codes >= 0) & (totals[codes] > 0)
    share = (totals / totals.sum()).unsqueeze(1)
    return torch.where(has_labels[:, None], table[codes], (share * table).sum(dim=0))


def one_minus_power(beta: float, steps: Tensor) -> Tensor:
    """Return 1 − β^t without cancellation, which would lose four digits of float32 for β = 0.999 and t = 1."""
    return -torch.expm1(steps * (math.log(beta) if beta > 0 else -math.inf))


def get_gradient_rows(param: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices (rows,) of a parameter's rows that have a gradient, and their gradients (rows, D)."""
    assert param.grad is not None
    param.grad = param.grad.coalesce()  # The next call then does not sort and sum the gradient again.
    return param.grad.indices()[0], param.grad.values()


def clip_gradients(params: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients to a joint norm of at most `max_norm`, and return the norm before scaling.

    Row-sparse gradients are included.
    """
    holders = []
    for param in params:
        if param.grad is not None and param.grad.is_sparse:
            _, values = get_gradient_rows(param)
            holder = torch.empty_like(values)
            holder.grad = values  # The values share memory with the gradient, so both are scaled.
            holders.append(holder)
        else:
            holders.append(param)
    return clip_grad_norm_(holders, max_norm)
