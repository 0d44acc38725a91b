"""Out-of-fold predictions, in which a network that was trained on the other folds predicts each item.

    p_i = softmax(network trained on all folds except that of item i)        q_i(c) ∝ p_i(c)^τ Π_{j∈M_i} Θ_j[c, y_ij]

A network that has memorised its training items gives no independent predictions for these items. Out-of-fold
predictions are independent of the item's labels. Θ and τ are estimated with p as in `posterior.py`. The gold label of
an item is not used for its p and q, so that both can be compared with the gold label.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.common.exceptions import OutOfRange
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.exceptions import DataError
from dissensus.learning import exceptions as faults
from dissensus.learning.annotator_features import AnnotatorFeatures
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.posterior import combine_posterior
from dissensus.learning.run import make_tie_seed
from dissensus.learning.validation import assign_stratified_folds
from dissensus.messages import ParameterName
from dissensus.models.base import check_gold, item_columns
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import to_arrow
from dissensus.table.io import read_frame

FILE_STEM = "out_of_fold"  # name of the file in the folder of a trained model, without suffix


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Predictions for I items and K classes by networks that were not trained on the item."""

    items: Names  # (I,)
    classes: Names  # (K,)
    proba: FloatArray  # (I, K) P(class) predicted by the network alone
    posterior: FloatArray  # (I, K) P(class) given the network's prediction and the item's annotations
    fold: IntArray  # (I,) number of the fold; −1 for items without labels, whose `proba` is the networks' mean
    tie_seed: int = 0

    def to_frame(self) -> Any:
        """Return an Arrow table with one row per item.

        The columns are item, fold, label and confidence (from the posterior), model (the class predicted by the
        network), p_<class> (posterior) and model_<class> (probabilities predicted by the network).
        """
        import pyarrow as pa

        columns = item_columns(self.classes, self.tie_seed, self.items, self.posterior, None)
        columns |= {"fold": self.fold, "model": self.classes[self.proba.argmax(axis=1)]}
        columns |= {f"model_{name}": self.proba[:, k] for k, name in enumerate(self.classes)}
        first = ("item", "fold", "label", "confidence", "model")
        return pa.table({name: columns[name] for name in (*first, *columns)})

    @classmethod
    def from_frame(cls, frame: Any, model: CrowdClassifier) -> OutOfFold:
        """Make the object from the result of `to_frame` or a CSV file of it, for a model fitted to the same items."""
        columns = to_arrow(frame, ["item", "fold", *(f"{p}_{name}" for p in ("p", "model") for name in model.classes_)])
        names = [str(name) for name in columns["item"].to_pylist()]
        if names != [str(name) for name in model.items_]:
            raise faults.OutOfFoldItemsDiffer()
        proba, posterior = (
            np.array([[float(p) for p in columns[f"{prefix}_{name}"].to_pylist()] for name in model.classes_]).T
            for prefix in ("model", "p")
        )
        fold = np.array([int(number) for number in columns["fold"].to_pylist()])
        return cls(model.items_, model.classes_, proba, posterior, fold, model.tie_seed_)


def load_trained(folder: str | Path) -> tuple[CrowdClassifier, OutOfFold | None]:
    """Load a model from a folder of `dissensus train`, with its out-of-fold predictions, or None if there are none."""
    model = CrowdClassifier.load(folder, device="cpu")
    found = [path for path in sorted(Path(folder).glob(f"{FILE_STEM}.*")) if path.is_file()]
    try:
        return model, OutOfFold.from_frame(read_frame(found[0]), model) if found else None
    except (ValueError, KeyError) as error:
        raise faults.UnreadablePredictions(path=found[0], reason=str(error)) from error


def out_of_fold(
    model: CrowdClassifier,
    table: Annotations,
    X: Any,
    *,
    gold: IntArray | None = None,
    annotators: Any = None,
    validation: float | None = None,
    folds: int = 5,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> OutOfFold:
    """Predict every item by a network that was not trained on its annotations.

    Parameters
    ----------
    model : CrowdClassifier
        The classifier whose keywords are used; it is not changed. Each fold has its own folder of checkpoints.
    table, X, gold, annotators
        As in `CrowdClassifier.fit`.
    validation : float, optional
        Share of each network's training items that is held out to choose the epoch.
    folds : int
        Number of folds of equal size. The fold of an item depends on its name and `seed`, but not on the order of
        items.
    on_step : callable, optional
        Called after every epoch with (number of epochs of all networks so far, mean loss).

    Returns
    -------
    OutOfFold
        Predictions for all items of the table.

    Examples
    --------
    >>> from dissensus.table.simulate import simulate
    >>> crowd = simulate(80, 8, 2, seed=1)
    >>> table, X = crowd.annotations, np.eye(2)[crowd.truth]
    >>> model = CrowdClassifier(objective="soft", epochs=1, device="cpu", seed=0)
    >>> found = out_of_fold(model, table, X, folds=2)
    >>> found.proba.shape, found.to_frame().num_rows
    ((80, 2), 80)
    >>> OutOfFold.from_frame(found.to_frame(), model.fit(table, X)).posterior.shape
    (80, 2)
    """
    gold = check_gold(gold, table)
    if not isinstance(model, CrowdClassifier):
        expected = "a CrowdClassifier (of a LIA, give model.classifier(table, features=True))"
        raise faults.WrongModel(caller="out_of_fold", expected=expected, actual=type(model).__name__)
    if annotators is not None:
        AnnotatorFeatures.fit(annotators, table.annotators)  # Errors in the frame are raised before training starts.
    elif getattr(model, "annotator_features_", None) is not None:
        raise faults.FittedWithFeatures()
    fold = _assign_folds(table, gold, folds, seed)
    proba = np.zeros((table.n_items, table.n_classes))
    done = 0
    for number in range(folds):
        here = fold == number
        part = table.select(rows=~here[table.item])
        network = CrowdClassifier(**model.get_params(deep=False))
        if model.checkpoint is not None:
            network.set_params(checkpoint=Path(model.checkpoint) / f"fold-{number}")
        try:
            network.fit(
                part,
                X,
                gold=None if gold is None else np.where(here, -1, gold),
                annotators=annotators,
                validation=validation,
                on_step=None if on_step is None else lambda epoch, loss, done=done: on_step(done + epoch, loss),  # type: ignore[misc]
            )
        except DataError as error:
            error.add_subject(f"without fold {number + 1} of {folds}")
            raise
        done += network.n_iter_
        proba[here] = network.proba_[here]
        proba[fold < 0] += network.proba_[fold < 0] / folds
    posterior = _fold_posterior(table, proba, gold, fold, network.objective_.predicts_votes)
    return OutOfFold(table.items, table.classes, proba, posterior, fold, make_tie_seed(model.seed))


def _assign_folds(table: Annotations, gold: IntArray | None, folds: int, seed: int) -> IntArray:
    """Return the fold (I,) of each training item, and −1 for other items."""
    train_mask = np.diff(table.item_ptr) > 0
    train_mask = train_mask if gold is None else train_mask | (gold >= 0)
    if not 2 <= folds <= train_mask.sum():
        allowed = f"be from 2 to {int(train_mask.sum()):,}, the number of training items"
        raise OutOfRange(name=ParameterName("folds"), allowed=allowed, value=folds)
    return assign_stratified_folds(table, np.zeros((table.n_items, 1)), train_mask, folds, seed)


def _fold_posterior(
    table: Annotations, proba: FloatArray, gold: IntArray | None, fold: IntArray, predicts_votes: Any
) -> FloatArray:
    """Combine predictions and annotations into the posterior (I, K), without gold labels from the item's own fold."""
    if gold is None:
        return combine_posterior(table, proba, None, predicts_votes)[0].posterior
    posterior = proba.copy()
    for number in range(fold.max() + 1):
        here = fold == number
        other_gold = np.where(here, -1, gold)
        posterior[here] = combine_posterior(table, proba, other_gold, predicts_votes)[0].posterior[here]
    return posterior
