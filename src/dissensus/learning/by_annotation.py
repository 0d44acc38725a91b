"""What a trained network expects annotators to say: P(label | x_i, j), of all pairs (i, j) or of the rows of a table.

    modelled annotators      P(y | x_i, j) by the objective (`Objective.row_proba`)
    else                     P(y | x_i, j) = Σ_k p_k(x_i) M_j[k, y]       p: the network's classes, M: `confusion_`

Of a table, items are encoded once and only the rows that are there are asked for: time and memory are those of the
rows, never of items × annotators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import DataError
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import find
from dissensus.learning.batches import Columns
from dissensus.learning.trainer import BATCHES_AT_ONCE
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

CELLS = 2**22  # of confusion matrices that are looked at together: rows × K × K

Ask = Callable[[Tensor, Tensor, slice], Tensor]
"""The encoder's output of some items (B, …), the place among them of each of n rows (n,), and which rows of the table
these are → (n, K)."""


def predict_annotators(model: CrowdClassifier, X: Any, annotators: Any) -> FloatArray:
    """Return P (rows, annotators, K) for all pairs of a row of X and one of `annotators`, names or a frame."""
    codes, features = find(annotators, model.annotators_, model.annotator_features_)
    columns, network = model.encoder_.prepare(X), model.network_
    if not model.objective_.models_annotators or not codes.size:
        known = softmax(model._ask(network.logits, columns), axis=1)
        return np.asarray(np.einsum("ic,acl->ial", known, model._confusions()[codes]))  # −1 takes the last
    proba = model._ask(lambda batch: network.label_proba(batch, *network.placed(codes, features)), columns)
    return np.asarray(proba / proba.sum(axis=2, keepdims=True))


def predict_annotations(model: CrowdClassifier, table: Annotations, X: Any, annotators: Any) -> FloatArray:
    """Return P (N, K) for the rows of `table`, with one row of X per item of it; `annotators` is a frame, or None."""
    given.check_table(table, "predict_annotations")
    X = given.aligned(X, table)
    table = table.to_classes(model.classes_)
    known = naming.match(table.annotators, model.annotators_, "annotators")  # (A,) −1: was not there
    features = None
    if annotators is not None:
        if model.annotator_features_ is None:
            raise DataError("annotators: this model was fitted without a frame of annotators; leave it out.")
        features = model.annotator_features_.of(annotators, table.annotators)
    network, head, objective = model.network_, model.network_.head, model.objective_

    def modelled(z: Tensor, row: Tensor, at: slice) -> Tensor:
        who = table.annotator[at]
        placed = network.placed(known[who], None if features is None else features[who])
        return objective.row_proba(head, z, row, *placed)

    confusion = torch.as_tensor(model._confusions())

    def confused(z: Tensor, row: Tensor, at: slice) -> Tensor:
        p = objective.logits(head, z).cpu().double().softmax(dim=1)[row.cpu()]
        return torch.einsum("nk,nkl->nl", p, confusion[known[table.annotator[at]]])  # −1 takes the last

    columns = model.encoder_.prepare(X)
    found = ask_rows(model, columns, table, modelled if objective.models_annotators else confused)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def ask_rows(
    model: CrowdClassifier, columns: Columns, table: Annotations, ask: Ask, places: IntArray | None = None
) -> FloatArray:
    """Ask about all rows (N, K), some at a time; item i is row `places[i]` of `columns`, or row i."""
    K, device = model.objective_.n_classes_, model.place()
    network = model.network_.to(device).eval()
    found = np.empty((len(table), K))
    items = np.flatnonzero(np.diff(table.item_ptr))
    items_at_once, at_once = BATCHES_AT_ONCE * model.batch_size, max(CELLS // K**2, 1)
    with torch.inference_mode():
        for place in range(0, items.size, items_at_once):
            some = items[place : place + items_at_once]
            batch = columns.take(torch.as_tensor((some if places is None else places[some]).astype(np.int64)))
            z = network.encoder(**{name: value.to(device) for name, value in batch.items()})
            first, last = int(table.item_ptr[some[0]]), int(table.item_ptr[some[-1] + 1])
            for start in range(first, last, at_once):  # an item may have more rows than are looked at together
                at = slice(start, min(start + at_once, last))
                row = torch.as_tensor(np.searchsorted(some, table.item[at])).to(device)
                found[at] = ask(z, row, at).cpu().double().numpy()
    return found
