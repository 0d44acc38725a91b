"""What the other items say of an item's class: kernel ridge regression with each item left out, in closed form.

    k(x, x') = exp(−|x − x'|² / median |x − x'|²)
    f = ȳ + P (s + λ)⁻¹ Pᵀ y                 H_ii = 1/T + Σ_r P_ir² / (s_r + λ)
    f_i without item i = (f_i − H_ii y_i) / (1 − H_ii)
    log h_k(x_i) = log π_k + a (f_ik − ȳ_k) − norm

A network that has learnt its items by heart repeats their labels when asked about them. This h has not seen the item:
P (I, R) are the principal axes of the kernel between items and landmarks, s (R,) their squares summed over the T items
that teach, and y (T, K) the classes by the labels alone. λ and a are those that make y of the items left out most
probable, so features that know nothing of the classes get a = 0, and h is π.

y are the labels' own posterior, without h. Taught by posteriors that hold h already, items confirm each other in
rounds: on RTE with two labels an item, accuracy falls from 79 to 72.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dissensus.common.types import IntArray

MAX_LANDMARKS = 1000
MAX_NUMBERS = 2**27  # items × landmarks, 512 MiB
PENALTIES = tuple(float(power) for power in 10.0 ** np.arange(-2, 2.5, 0.5))  # λ, where k(x, x) − its mean is about 1
MAX_SLOPE = 30.0  # a
NEWTON_STEPS = 25
MIN_SHARE = 1e-6


class Others:
    """Features (I, D) of the items, of which `taught` (T,) teach."""

    def __init__(self, x: Tensor, taught: IntArray):
        self.taught = torch.as_tensor(taught.astype(np.int64))
        self.teaches = torch.zeros(len(x), dtype=torch.bool)
        self.teaches[self.taught] = True
        self.axes = _axes(x.double(), self.taught).float()  # P (I, R)
        self.squares = self.axes[self.taught].square().sum(dim=0)  # s (R,)

    def to(self, device: torch.device) -> Others:
        if self.axes.device != device:
            self.taught, self.teaches, self.axes, self.squares = (
                value.to(device) for value in (self.taught, self.teaches, self.axes, self.squares)
            )
        return self

    def log_classes(self, y: Tensor, prior: Tensor) -> Tensor:
        """(I, K) log h of all items by the shares y (I, K) of those that teach; an item's own are left out.

        `prior` (K,) is π: λ and a are found with the mean of y in its place.
        """
        y, T, P = y[self.taught], len(self.taught), self.axes
        penalty = torch.tensor(PENALTIES, dtype=P.dtype, device=P.device)[:, None]  # (G, 1)
        weight = 1 / (self.squares + penalty)  # (G, R)
        mean = y.mean(dim=0)
        effect = weight[:, :, None] * (P[self.taught].T @ (y - mean))  # (G, R, K)
        own = P[self.taught]
        hat = 1 / T + weight @ own.square().T  # (G, T)
        left_out = (own @ effect - hat[..., None] * (y - mean)) / (1 - hat[..., None])  # (G, T, K) f − ȳ
        base = ((T * mean - y) / max(T - 1, 1)).clamp(min=MIN_SHARE)  # (T, K) ȳ without the item
        shift = left_out + mean - base
        slope = _slope(shift, base.log(), y)  # (G,)
        score = (y * torch.log_softmax(base.log() + slope[:, None, None] * shift, dim=-1)).sum(dim=(1, 2))
        best = (torch.arange(len(score), device=score.device) == score.argmax()).to(P.dtype)[:, None, None]  # one-hot
        by_all = P @ (best * effect).sum(dim=0)  # (I, K) f − ȳ; what follows corrects those that teach
        away = by_all.index_copy(0, self.taught, (best * shift).sum(dim=0))
        return torch.log_softmax(prior.log() + (best[:, 0, 0] @ slope) * away, dim=-1)


def _slope(shift: Tensor, base: Tensor, y: Tensor) -> Tensor:
    """A (G,) that makes y (T, K) most probable under base + a · shift (G, T, K), by Newton's steps."""
    slope = shift.new_ones(len(shift))
    for _ in range(NEWTON_STEPS):
        p = torch.softmax(base + slope[:, None, None] * shift, dim=-1)
        middle = (p * shift).sum(dim=-1, keepdim=True)
        bend = (p * (shift - middle).square()).sum(dim=(1, 2)) + MIN_SHARE
        slope = (slope + (((y - p) * shift).sum(dim=(1, 2)) / bend).clamp(-3, 3)).clamp(0, MAX_SLOPE)
    return slope


def _axes(x: Tensor, taught: Tensor) -> Tensor:
    """P (I, R): the kernel between all items and landmarks that teach, centred, along its principal axes."""
    n = min(len(taught), MAX_LANDMARKS, max(MAX_NUMBERS // len(x), 1))
    landmarks = taught[torch.arange(n) * len(taught) // n]
    apart = torch.cdist(x, x[landmarks]).square()  # (I, n)
    among = apart[landmarks]
    positive = among[among > 0]
    width = positive.median() if len(positive) else among.new_ones(())
    value, vector = torch.linalg.eigh(torch.exp(-among / width))
    kept = value > 1e-6 * value[-1]
    made = torch.exp(-apart / width) @ (vector[:, kept] / value[kept].sqrt())  # (I, R), k ≈ its inner products
    made = made - made[taught].mean(dim=0)
    value, vector = torch.linalg.eigh(made[taught].T @ made[taught])
    made = made @ vector[:, value > 1e-9 * value[-1].clamp(min=1e-12)]
    size = made[taught].square().sum(dim=1).mean()
    scaled: Tensor = made / size.sqrt() if size > 0 else made
    return scaled
