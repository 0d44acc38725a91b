"""Infer embeddings of annotators that LDL-NM was not fitted to (Algorithm 4, Weerasooriya et al. 2021).

    z_A ← 0, or a draw from N(0, σ²)
    repeat K times:  z_A ← z_A − β ∂KL(y ‖ ŷ)/∂z_A − γ z_A

The algorithm runs for all annotators at once, and the network does not change. It has two uses:

- A new annotator has labelled a few items. `infer_annotators(model, X, y, annotator=…)` finds one embedding per
  annotator, with which the network predicts these labels. `label_proba(X_other)` then predicts the annotator's labels
  of other items. This is a valid prediction.
- In the paper, unknown annotators have labelled an item. z_A is inferred from the label distribution of the item, and
  ŷ_I is then compared with the same distribution (`leaking_proba`). **For test items, this uses the test labels.**
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dissensus.common.exceptions import UnknownParameter
from dissensus.common.parameters import Parameters, param
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.learning import inputs as input_data
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.exceptions import (
    AnnotatorNameMissing,
    DistributionsNeeded,
    RowCountDiffers,
    WrongModel,
)
from dissensus.learning.losses import kl, log_softmax
from dissensus.learning.objectives.ldl_nm import LDLNMHead
from dissensus.table import names as naming

EXPECTED_MODEL = "a fitted CrowdClassifier with objective 'ldl-nm'"


@dataclass(frozen=True, eq=False)
class InferredAnnotators:
    """Inferred embeddings of annotators, and the model that they belong to."""

    model: CrowdClassifier
    annotators: Names  # (n,) names, or row numbers if each row has its own embedding
    embedding: FloatArray  # (n, J_A)
    trace: FloatArray  # (steps + 1, n) mean KL(y ‖ ŷ) over an annotator's rows, initially and after each step

    def label_proba(self, X: Any) -> FloatArray:
        """Predict P(label) (rows, n, K) of each annotator for other items."""
        head = _get_head(self.model)
        z_annotator = torch.as_tensor(self.embedding.astype(np.float32)).to(self.model.network_.device)

        def predict_labels(batch: dict[str, Tensor]) -> Tensor:
            z_item = head.z_item(self.model.network_.encoder(**batch))
            return log_softmax(head.to_label(head.z_pairs(z_item, z_annotator))).exp()

        return self.model._apply_network(predict_labels, self.model.encoder_.prepare(X))


class EmbeddingDescent(Parameters):
    """Algorithm 4 with its keywords."""

    compared_output: Literal["label", "item"] = param(
        "label", "predicted distribution that is compared with y: of the annotator's label (ŷ) or of the item (ŷ_I)"
    )
    steps: int = param(
        100,
        "K, the number of steps; the paper reports neither K nor β, and KL nearly converges on the jobs sets",
        low=0,
    )
    rate: float = param(0.3, "β, the length of a step", low=0)
    decay: float = param(0.0, "γ, the decay of the embedding in a step", low=0)
    spread: float = param(0.0, "σ, the standard deviation of the initial embeddings; if it is 0, all are 0", low=0)
    seed: int = param(0, "seed of the initial embeddings", low=0)

    def run(self, head: LDLNMHead, z_item: Tensor, y: FloatArray, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Return embeddings (n, J_A) and the trace (steps + 1, n), given each label's annotator in `rows`."""
        target, row = (torch.as_tensor(value).to(z_item.device) for value in (y.astype(np.float32), rows))
        counts = torch.bincount(row)
        draw = torch.Generator().manual_seed(self.seed)
        z = torch.randn(len(counts), head.table.embedding_dim, generator=draw).to(z_item.device) * self.spread
        answer = head.to_label if self.compared_output == "label" else head.to_item
        trace = []
        for step in range(self.steps + 1):
            z.requires_grad_()
            divergence = kl(target, answer(head.z_pair(z_item, z.index_select(0, row))))
            mean = divergence.new_zeros(len(counts)).index_add(0, row, divergence) / counts
            trace.append(mean.detach())
            (slope,) = torch.autograd.grad(mean.sum(), z)
            z = z.detach()
            if step < self.steps:
                z = z - self.rate * slope - self.decay * z
        return z, torch.stack(trace)


def infer_annotators(
    model: CrowdClassifier, X: Any, y: Any, *, annotator: Any = None, **keywords: Any
) -> InferredAnnotators:
    """Infer embeddings of annotators that the model was not fitted to.

    Parameters
    ----------
    model : CrowdClassifier
        A classifier that was fitted with objective "ldl-nm".
    X : array, list or frame
        Inputs of the labelled items, one row per label.
    y : (n, K) float
        Labels as distributions over `model.classes_`, which are one-hot for plain labels.
    annotator : (n,) names, optional
        The annotator of each row; rows of one annotator share an embedding. By default every row has its own.
    **keywords
        Keywords of `EmbeddingDescent`: compared_output, steps, rate, decay, spread, seed.

    Returns
    -------
    InferredAnnotators
        The embeddings, which predict labels of other items with `label_proba`.
    """
    head, descent = _get_head(model), _make_descent(**keywords)
    y = np.asarray(y, np.float64)
    if y.ndim != 2 or y.shape[1] != model.classes_.size:
        raise DistributionsNeeded(argument="y", expected=f"(rows, {model.classes_.size})", shape=y.shape)
    if input_data.count_rows(X) != len(y):
        raise RowCountDiffers(argument="y", n_rows=input_data.count_rows(X), n_entries=len(y), entries="labels")
    if not (np.isfinite(y).all() and (y >= 0).all() and np.allclose(y.sum(axis=1), 1)):
        raise DistributionsNeeded(argument="y", expected=f"(rows, {model.classes_.size})", shape=y.shape)
    names, rows = _match_rows(annotator, len(y))
    z, trace = descent.run(head, _encode_items(model, X), y, rows)
    return InferredAnnotators(model, names, z.cpu().double().numpy(), trace.cpu().double().numpy())


def leaking_proba(model: CrowdClassifier, X: Any, y: FloatArray, **keywords: Any) -> FloatArray:
    """Return ŷ_I (rows, K) of each item, with an annotator that is inferred from y, the distribution to be predicted.

    The result is not a prediction, because y is also the distribution that it is compared with.
    """
    descent, head, z_item = (
        _make_descent(**{"compared_output": "item"} | keywords),
        _get_head(model),
        _encode_items(model, X),
    )
    z, _ = descent.run(head, z_item, y, np.arange(len(y)))
    with torch.inference_mode():
        proba = log_softmax(head.to_item(head.z_pair(z_item, z))).exp().cpu().double().numpy()
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def _make_descent(**keywords: Any) -> EmbeddingDescent:
    if unknown := keywords.keys() - EmbeddingDescent.declared().keys():
        known = tuple(EmbeddingDescent.declared())
        raise UnknownParameter(owner="infer_annotators", name=min(unknown), parameters=known)
    descent = EmbeddingDescent(**keywords)
    descent.check_parameters()
    return descent


def _encode_items(model: CrowdClassifier, X: Any) -> Tensor:
    head = _get_head(model)
    z = model._apply_network(lambda batch: head.z_item(model.network_.encoder(**batch)), model.encoder_.prepare(X))
    return torch.as_tensor(z).float().to(model.network_.device)


def _get_head(model: Any) -> LDLNMHead:
    if not isinstance(model, CrowdClassifier):
        raise WrongModel(caller="infer_annotators", expected=EXPECTED_MODEL, actual=type(model).__name__)
    model._check_fitted()
    if not isinstance(model.network_.head, LDLNMHead):
        raise WrongModel(caller="infer_annotators", expected=EXPECTED_MODEL, actual=type(model.objective_).__name__)
    return model.network_.head


def _match_rows(annotator: Any, n: int) -> tuple[Names, Any]:
    """Return the names of the annotators, and the annotator's code for each row."""
    if annotator is None:
        return np.arange(n), np.arange(n)
    column = naming.to_column(annotator, "annotator")
    if (missing := naming.missing_rows(column)).any():
        raise AnnotatorNameMissing(argument="annotator", row=int(missing.argmax()))
    names = naming.to_names(column)
    if len(names) != n:
        raise RowCountDiffers(argument="annotator", n_rows=n, n_entries=len(names), entries="names")
    return np.unique(names, return_inverse=True)
