"""Leave-one-out estimates of an item's class from the other items, computed by kernel ridge regression.

    k(x, x') = exp(−|x − x'|² / median |x − x'|²)
    f = ȳ + P (s + λ)⁻¹ Pᵀ y                 H_ii = 1/T + Σ_r P_ir² / (s_r + λ)
    f_i without item i = (f_i − H_ii y_i) / (1 − H_ii)
    log h_k(x_i) = log π_k + a (f_ik − ȳ_k) − norm

A network that has memorised its items repeats their labels, but this h does not use the labels of the item itself.
P (I, R) are the principal axes of the kernel between items and landmarks, s (R,) are their squares summed over the T
training items, and y (T, K) are the class probabilities given the labels alone. λ and a maximise the leave-one-out
likelihood of y. If features are independent of the classes, a is 0 and h is π.

y is the posterior given the labels, without h. If the posterior included h, items would confirm each other in every
round. On RTE with two labels per item, this would reduce the accuracy from 79 % to 72 %.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dissensus.common.types import IntArray

MAX_LANDMARKS = 1000  # maximum number of landmarks
MAX_KERNEL_ENTRIES = 2**27  # maximum items × landmarks, which need 512 MiB
PENALTIES = tuple(float(power) for power in 10.0 ** np.arange(-2, 2.5, 0.5))  # values of λ
MAX_SLOPE = 30.0  # maximum a
NEWTON_STEPS = 25  # number of steps for a
MIN_SHARE = 1e-6  # minimum class share, so that its logarithm is finite


class LeaveOneOutClasses:
    """Leave-one-out estimates of classes from features (I, D) of the items and the labels of training items (T,)."""

    def __init__(self, x: Tensor, train_items: IntArray):
        self.train_items = torch.as_tensor(train_items.astype(np.int64))
        self.train_mask = torch.zeros(len(x), dtype=torch.bool)
        self.train_mask[self.train_items] = True
        self.axes = _principal_axes(x.double(), self.train_items).float()  # P (I, R)
        self.squares = self.axes[self.train_items].square().sum(dim=0)  # s (R,)

    def to(self, device: torch.device) -> LeaveOneOutClasses:
        if self.axes.device != device:
            self.train_items, self.train_mask, self.axes, self.squares = (
                value.to(device) for value in (self.train_items, self.train_mask, self.axes, self.squares)
            )
        return self

    def log_classes(self, y: Tensor, prior: Tensor) -> Tensor:
        """Return log h (I, K) of every item from the class shares y (I, K) of the other training items.

        `prior` (K,) is π. λ and a are estimated with the mean of y in place of π.
        """
        y, T, P = y[self.train_items], len(self.train_items), self.axes
        penalty = torch.tensor(PENALTIES, dtype=P.dtype, device=P.device)[:, None]  # (G, 1)
        weight = 1 / (self.squares + penalty)  # (G, R)
        mean = y.mean(dim=0)
        effect = weight[:, :, None] * (P[self.train_items].T @ (y - mean))  # (G, R, K)
        own = P[self.train_items]
        hat = 1 / T + weight @ own.square().T  # (G, T)
        left_out = (own @ effect - hat[..., None] * (y - mean)) / (1 - hat[..., None])  # (G, T, K) f − ȳ
        base = ((T * mean - y) / max(T - 1, 1)).clamp(min=MIN_SHARE)  # (T, K) ȳ without the item
        shift = left_out + mean - base
        slope = _fit_slope(shift, base.log(), y)  # (G,)
        score = (y * torch.log_softmax(base.log() + slope[:, None, None] * shift, dim=-1)).sum(dim=(1, 2))
        best = (torch.arange(len(score), device=score.device) == score.argmax()).to(P.dtype)[:, None, None]  # one-hot
        by_all = P @ (best * effect).sum(dim=0)  # (I, K) f − ȳ, corrected for training items in the next line
        away = by_all.index_copy(0, self.train_items, (best * shift).sum(dim=0))
        return torch.log_softmax(prior.log() + (best[:, 0, 0] @ slope) * away, dim=-1)


def _fit_slope(shift: Tensor, base: Tensor, y: Tensor) -> Tensor:
    """Fit a (G,) that maximises the likelihood of y (T, K) under base + a · shift (G, T, K), by Newton's method."""
    slope = shift.new_ones(len(shift))
    for _ in range(NEWTON_STEPS):
        p = torch.softmax(base + slope[:, None, None] * shift, dim=-1)
        middle = (p * shift).sum(dim=-1, keepdim=True)
        bend = (p * (shift - middle).square()).sum(dim=(1, 2)) + MIN_SHARE
        slope = (slope + (((y - p) * shift).sum(dim=(1, 2)) / bend).clamp(-3, 3)).clamp(0, MAX_SLOPE)
    return slope


def _principal_axes(x: Tensor, train_items: Tensor) -> Tensor:
    """Return P (I, R), the centred kernel between all items and landmarks along its principal axes."""
    n = min(len(train_items), MAX_LANDMARKS, max(MAX_KERNEL_ENTRIES // len(x), 1))
    landmarks = train_items[torch.arange(n) * len(train_items) // n]
    apart = torch.cdist(x, x[landmarks]).square()  # (I, n)
    among = apart[landmarks]
    positive = among[among > 0]
    width = positive.median() if len(positive) else among.new_ones(())
    value, vector = torch.linalg.eigh(torch.exp(-among / width))
    kept = value > 1e-6 * value[-1]
    made = torch.exp(-apart / width) @ (vector[:, kept] / value[kept].sqrt())  # (I, R), k ≈ its inner products
    made = made - made[train_items].mean(dim=0)
    value, vector = torch.linalg.eigh(made[train_items].T @ made[train_items])
    made = made @ vector[:, value > 1e-9 * value[-1].clamp(min=1e-12)]
    size = made[train_items].square().sum(dim=1).mean()
    scaled: Tensor = made / size.sqrt() if size > 0 else made
    return scaled
