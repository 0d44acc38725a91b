"""Infer annotators that LDL-NM does not know from labels (Algorithm 4, Weerasooriya et al. 2021), and what that leaks.

    z_A ← 0, or drawn from N(0, σ²)
    repeat K times:  z_A ← z_A − β ∂KL(y ‖ ŷ)/∂z_A − γ z_A

for all annotators at once, the rest of the network being left as it is. Two uses:

- Somebody new has labelled a few items. `infer_annotators(model, X, y, annotator=…)` finds one embedding for all rows
  of an annotator, by what the network says that they would label, and `label_proba(X_other)` is what they would say of
  other items. This is honest.
- The paper's: an item has labels, of whom is not known; z_A is found from the item's own label distribution, and then
  ŷ_I is compared with that very distribution. **On test items this reads the answer.** `distribution_scores` does it
  only for `leak_test_labels=True`, and its result says `leaked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dissensus.common.parameters import Parameters, param
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning import inputs as given
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.losses import kl, log_softmax
from dissensus.table import names as naming
from reproductions.ldl_nm import LDLNMHead


@dataclass(frozen=True, eq=False)
class Inferred:
    """Embeddings that were found, and the model that they are of."""

    model: CrowdClassifier
    annotators: Names  # (n,) names, or numbers of the rows where each row has its own
    embedding: FloatArray  # (n, J_A)
    trace: FloatArray  # (steps + 1, n) mean KL(y ‖ ŷ) over an annotator's rows, before the first step and after each

    def label_proba(self, X: Any) -> FloatArray:
        """Return P (rows, n, K) of what each of them would say of other items."""
        head = _head(self.model)
        z_annotator = torch.as_tensor(self.embedding.astype(np.float32)).to(self.model.network_.device)

        def ask(batch: dict[str, Tensor]) -> Tensor:
            z_item = head.z_item(self.model.network_.encoder(**batch))
            return log_softmax(head.to_label(head.z_pairs(z_item, z_annotator))).exp()

        return self.model._ask(ask, self.model.encoder_.prepare(X))


class Descent(Parameters):
    """The keywords of Algorithm 4, and the algorithm."""

    by: Literal["label", "item"] = param(
        "label",
        "what y is compared with: the label that the annotator would give (ŷ), or the item's distribution (ŷ_I)",
    )
    steps: int = param(
        100, "K; the paper names neither K nor β, with these KL has nearly stopped falling on the jobs sets", low=0
    )
    rate: float = param(0.3, "β, the length of a step", low=0)
    decay: float = param(0.0, "γ, the decay of the embedding in a step", low=0)
    spread: float = param(0.0, "σ of the start; 0 starts at 0", low=0)
    seed: int = param(0, "seed of the start", low=0)

    def run(self, head: LDLNMHead, z_item: Tensor, y: FloatArray, who: IntArray) -> tuple[Tensor, Tensor]:
        """Find the embeddings (n, J_A); also return the trace (steps + 1, n)."""
        target, row = (torch.as_tensor(value).to(z_item.device) for value in (y.astype(np.float32), who))
        rows = torch.bincount(row)
        draw = torch.Generator().manual_seed(self.seed)
        z = torch.randn(len(rows), head.table.embedding_dim, generator=draw).to(z_item.device) * self.spread
        answer = head.to_label if self.by == "label" else head.to_item
        trace = []
        for step in range(self.steps + 1):
            z.requires_grad_()
            far = kl(target, answer(head.z_pair(z_item, z.index_select(0, row))))
            mean = far.new_zeros(len(rows)).index_add(0, row, far) / rows
            trace.append(mean.detach())
            (slope,) = torch.autograd.grad(mean.sum(), z)
            z = z.detach()
            if step < self.steps:
                z = z - self.rate * slope - self.decay * z
        return z, torch.stack(trace)


def infer_annotators(model: CrowdClassifier, X: Any, y: Any, *, annotator: Any = None, **keywords: Any) -> Inferred:
    """Find embeddings of annotators whom the model does not know.

    Parameters
    ----------
    model : CrowdClassifier
        Fitted with objective "ldl-nm".
    X : inputs
        Of the labelled items, one row per label.
    y : (n, K)
        What was said: distributions over `model.classes_`, one-hot for a label.
    annotator : (n,) names, optional
        Who said it; rows of one annotator share an embedding. None: every row has its own.
    keywords
        Those of `Descent`: by, steps, rate, decay, spread, seed.
    """
    head, descent = _head(model), _descent(**keywords)
    y = np.asarray(y, np.float64)
    K = model.classes_.size
    if y.ndim != 2 or y.shape[1] != K or given.rows(X) != len(y):
        raise DataError(f"y must be ({given.rows(X)}, {K}), a distribution per row of X, got shape {y.shape}.")
    if not (np.isfinite(y).all() and (y >= 0).all() and np.allclose(y.sum(axis=1), 1)):
        raise DataError("y must hold distributions: numbers from 0 that sum to 1 in each row.")
    names, who = _whose(annotator, len(y))
    z, trace = descent.run(head, _z_item(model, X), y, who)
    return Inferred(model, names, z.cpu().double().numpy(), trace.cpu().double().numpy())


def leaking_proba(model: CrowdClassifier, X: Any, y: FloatArray, **keywords: Any) -> FloatArray:
    """Return ŷ_I (rows, K) of each item with the annotator that its own label distribution y asks for: y is read."""
    descent, head, z_item = _descent(**{"by": "item"} | keywords), _head(model), _z_item(model, X)
    z, _ = descent.run(head, z_item, y, np.arange(len(y)))
    with torch.inference_mode():
        proba = log_softmax(head.to_item(head.z_pair(z_item, z))).exp().cpu().double().numpy()
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def _descent(**keywords: Any) -> Descent:
    if unknown := keywords.keys() - Descent.declared().keys():
        known = ", ".join(Descent.declared())
        raise BadParameter(f"{', '.join(sorted(unknown))}: no keyword of Algorithm 4; it has {known}.")
    descent = Descent(**keywords)
    descent.check_parameters()
    return descent


def _z_item(model: CrowdClassifier, X: Any) -> Tensor:
    head = _head(model)
    found = model._ask(lambda batch: head.z_item(model.network_.encoder(**batch)), model.encoder_.prepare(X))
    return torch.as_tensor(found).float().to(model.network_.device)


def _head(model: Any) -> LDLNMHead:
    if not isinstance(model, CrowdClassifier):
        raise BadParameter(f"expected a CrowdClassifier with objective 'ldl-nm', got {type(model).__name__}.")
    model._check_fitted()
    if not isinstance(model.network_.head, LDLNMHead):
        raise BadParameter(f"expected objective 'ldl-nm', got {type(model.objective_).__name__}.")
    return model.network_.head


def _whose(annotator: Any, rows: int) -> tuple[Names, Any]:
    """Names (n,), and which of them each row belongs to."""
    if annotator is None:
        return np.arange(rows), np.arange(rows)
    column = naming.to_column(annotator, "annotator")
    if (missing := naming.missing_rows(column)).any():
        raise DataError(f"annotator: row {int(missing.argmax())} has no name; leave the row out, or name them.")
    names = naming.to_names(column)
    if len(names) != rows:
        raise DataError(f"annotator has {len(names)} names for {rows} rows of X; give one per row.")
    return np.unique(names, return_inverse=True)
