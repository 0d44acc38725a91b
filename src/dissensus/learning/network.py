"""The module that combines an encoder with an objective's head, and its training data.

Mixup (Zhang et al. 2018) works with any objective: x̃ = λ x_a + (1 − λ) x_b. Every loss here is a sum over annotations,
so ℓ̃ = λ ℓ(annotations of a) + (1 − λ) ℓ(annotations of b). λ ~ Beta(α, α) is drawn once per batch. If inputs cannot be
averaged, such as texts, the encoder's vectors are mixed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.devices import isolated_rng
from dissensus.learning.encoders.base import Encoder
from dissensus.learning.objectives.base import Objective

MAX_CONFUSION_ENTRIES = 2**22  # maximum (item, annotator) pairs × K × K that are computed at once
ITEMS_AT_ONCE = 4096  # default maximum number of items that are predicted at once

BatchMixture = tuple[Tensor, Tensor, Batch]
"""Mixture of a batch with itself: λ, the indices (B,) of the partners, and the partners' targets.

The type is a tuple because fabric moves and casts the contents of tuples and dicts."""


@dataclass(frozen=True)
class TrainingData:
    """Inputs and targets of the training items; if `mixup` (α) is set, a batch includes its mixture."""

    inputs: BatchColumns
    targets: BatchColumns
    mixup: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of inputs and targets."""
        return self.inputs.nbytes + self.targets.nbytes

    def to(self, device: Any) -> TrainingData:
        """Return the same data on another device."""
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def take(self, rows: Tensor) -> tuple[Batch, Batch, BatchMixture | None]:
        """Return the arguments of `Network.forward` for these items."""
        mix = None
        if self.mixup is not None:
            partner = torch.randperm(len(rows)).to(rows.device)
            weight = torch.distributions.Beta(self.mixup, self.mixup).sample().to(rows.device)
            mix = (weight, partner, self.targets.take(rows[partner]))
        return self.inputs.take(rows), self.targets.take(rows), mix


class Network(nn.Module):
    """Network of an encoder and a head; `forward` returns the loss, and `logits` predicts the classes."""

    head: Any  # module made by the objective
    objective: Objective

    def __init__(self, encoder: nn.Module, head: nn.Module, objective: Objective, *, mixes_inputs: bool = False):
        super().__init__()
        self.encoder, self.head, self.objective, self.mixes_inputs = encoder, head, objective, mixes_inputs

    @classmethod
    def initialise(cls, encoder: Encoder, objective: Objective, seed: int = 0) -> Self:
        """Return a network with random weights, drawn for the encoder first, and restore the generator."""
        with isolated_rng(seed):
            module = encoder.module()
            return cls(
                module, objective.head(encoder.branch, encoder.width), objective, mixes_inputs=encoder.averages_inputs
            )

    def forward(self, inputs: Batch, targets: Batch, mix: BatchMixture | None = None) -> Tensor:
        """Return the sum of the batch's losses."""
        if mix is None:
            return self.objective.loss(self.head, self.encoder(**inputs), targets)
        weight, partner, others = mix
        if self.mixes_inputs:
            z = self.encoder(**{name: weight * x + (1 - weight) * x[partner] for name, x in inputs.items()})
        else:
            whole = self.encoder(**inputs)
            z = weight * whole + (1 - weight) * whole[partner]
        own, other = (self.objective.loss(self.head, z, part) for part in (targets, others))
        return weight * own + (1 - weight) * other

    @torch.no_grad()
    def begin_epoch(self, epoch: int, epochs: int, iterate_batches: Callable[[], Iterator[tuple[Any, ...]]]) -> None:
        """Let the objective prepare the epoch; `iterate_batches()` yields batches of all training items."""
        if not self.objective.needs_begin_epoch(epoch, epochs):
            return

        def iterate_encoded() -> Iterator[tuple[Tensor, Batch]]:
            for inputs, targets, _ in iterate_batches():
                yield self.encoder(**inputs), targets

        self.eval()
        self.objective.begin_epoch(self.head, epoch, epochs, iterate_encoded)
        self.train()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile only the encoder, which takes most of the time; sizes of targets change with every batch."""
        self.encoder.compile(*args, **kwargs)

    def logits(self, inputs: Batch) -> Tensor:
        """Return unnormalised log P(class | x) (B, K)."""
        return self.objective.logits(self.head, self.encoder(**inputs))

    def log_posterior(self, inputs: Batch, targets: Batch) -> Tensor:
        """Return unnormalised log P(class | x, annotations) (B, K)."""
        return self.objective.log_posterior(self.head, self.encoder(**inputs), targets)

    # Answers ----------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(iter(self.parameters())).device

    def to_device(self, codes: IntArray, features: FloatArray | None = None) -> tuple[Tensor, Tensor | None]:
        """Return codes (n,) of annotators and their features (n, F) as tensors on the network's device."""
        at = torch.as_tensor(codes.astype(np.int64)).to(self.device)
        return at, None if features is None else torch.as_tensor(features.astype(np.float32)).to(self.device)

    @torch.inference_mode()
    def apply_in_batches(
        self,
        compute: Callable[..., Tensor],
        *columns: BatchColumns,
        rows: IntArray | None = None,
        at_once: int = ITEMS_AT_ONCE,
    ) -> FloatArray:
        """Apply a function to the columns in batches, and return the concatenated results.

        `compute` takes a batch of each of the `columns` and returns (B, …). `rows` selects items; None stands for all.
        """
        self.eval()
        device, results = self.device, []
        indices = torch.arange(len(columns[0])) if rows is None else torch.as_tensor(rows.astype(np.int64))
        for chunk in torch.split(indices, at_once):
            batches = [{name: value.to(device) for name, value in part.take(chunk).items()} for part in columns]
            results.append(compute(*batches).cpu().double())
        return np.asarray(torch.cat(results).numpy())
