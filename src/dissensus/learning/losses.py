"""Divergences between target and predicted distributions, with one value per item.

P is the target (B, K), and Q = softmax(logits) is the prediction.

    cross_entropy   −Σ P log Q          kl   Σ P log(P/Q)          inverse_kl   Σ Q log(Q/P)

0 · log 0 is 0, and `inverse_kl` is infinite if P is 0 and Q is not. The functions take tensors. The default base of the
logarithm is e; Eqs. 1, 2 and 4 of Fornaciari et al. 2021 have base 2, and Eq. 4 lacks its minus sign. Logits in half
precision are converted to float32 first, because a sum of logarithms needs its precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from dissensus.learning.batches import Batch


def cross_entropy(target: Tensor, logits: Tensor, base: float = math.e) -> Tensor:
    """Return the cross entropy −Σ P log Q (B,) for a target P (B, K)."""
    log_q = log_softmax(logits)
    return -torch.where(target > 0, target * log_q, 0).sum(dim=-1) / math.log(base)


def kl(target: Tensor, logits: Tensor, base: float = math.e) -> Tensor:
    """Return KL(P‖Q) = Σ P log(P/Q) (B,)."""
    log_q = log_softmax(logits)
    return torch.where(target > 0, torch.xlogy(target, target) - target * log_q, 0).sum(dim=-1) / math.log(base)


def inverse_kl(target: Tensor, logits: Tensor, base: float = math.e) -> Tensor:
    """Return KL(Q‖P) = Σ Q log(Q/P) (B,)."""
    log_q = log_softmax(logits)
    q = log_q.exp()
    return torch.where(q > 0, q * (log_q - target.log()), 0).sum(dim=-1) / math.log(base)


Divergence = Literal["kl", "inverse-kl", "ce"]
DIVERGENCES: dict[Divergence, Callable[[Tensor, Tensor, float], Tensor]] = {
    "kl": kl,
    "inverse-kl": inverse_kl,
    "ce": cross_entropy,
}
"""Divergences by name, as functions of (target, logits, base)."""


def hard_loss(logits: Tensor, label: Tensor) -> Tensor:
    """Return the sum of −log Q(label) in nats over items with label codes (B,); a code of −1 adds 0."""
    return functional.nll_loss(log_softmax(logits), label, ignore_index=-1, reduction="sum")


def label_log_likelihood(log_label: Tensor, targets: Batch) -> Tensor:
    """Return log P (n,) of the given labels under log_label (n, K), averaged for probabilistic annotations."""
    if "proba" in targets:
        return torch.where(targets["proba"] > 0, targets["proba"] * log_label, 0).sum(dim=1)
    return log_label.gather(1, targets["label"].unsqueeze(1)).squeeze(1)


def weighted_sum(values: Tensor, targets: Batch) -> Tensor:
    """Return the sum of values (n,), each multiplied by the weight of its annotation."""
    return (values * targets["weight"] if "weight" in targets else values).sum()


def log_softmax(logits: Tensor) -> Tensor:
    """Return log Q with at least float32 precision, also under autocast."""
    return functional.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
