"""Support for scikit-learn, with annotations as y in `fit(X, y)` and scores for `GridSearchCV` and similar tools.

    search = GridSearchCV(CrowdClassifier(), {"encoder__dropout": [0, 0.5]}, scoring=soft_cross_entropy)
    search.fit(X, ByItem(table))

`fit` takes (table, X) or, as in scikit-learn, (X, y). In the second form, y is a table with one item per row of X in
the same order, a `ByItem`, which can be indexed by item, or one class per row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
from scipy import sparse

from dissensus.common.parameters import Parameters
from dissensus.common.types import IntArray, Names
from dissensus.evaluation import cross_entropy
from dissensus.learning import exceptions as faults
from dissensus.learning import inputs as input_data
from dissensus.learning.devices import isolated_rng, resolve_device
from dissensus.learning.encoders.mlp import ScaledFeatureEncoder
from dissensus.learning.objectives.labels import vote_weight
from dissensus.learning.storage import read_tree, report_other_version, resolve_file, write_tree
from dissensus.messages import quote_name
from dissensus.models.base import arg_max
from dissensus.models.exceptions import ModelNotFitted
from dissensus.questions.scoring import log_likelihood
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations


class ByItem:
    """Wrapper of a table as scikit-learn's y, which has one entry per item in the order of `table.items`.

    The wrapper can be indexed. Converted to an array, it is the most frequent label of each item (ties are broken at
    random). Scikit-learn uses these labels to stratify folds and for its own scores, such as "accuracy".

    >>> y = ByItem(Annotations.from_arrays(["a", "b", "b", "c"], [0, 0, 1, 1], ["no", "yes", "yes", "no"]))
    >>> np.asarray(y[[2, 1]]).tolist()
    ['no', 'yes']
    >>> y.shape
    (3,)
    """

    ndim = 1

    def __init__(self, table: Annotations, item_codes: IntArray | None = None):
        input_data.check_table(table, "ByItem")
        self.table = table
        self.item_codes = np.arange(table.n_items) if item_codes is None else item_codes  # (n,) item code of each entry

    def __len__(self) -> int:
        return int(self.item_codes.size)

    @property
    def shape(self) -> tuple[int]:
        """Number of entries, as the shape of an array with one axis."""
        return (len(self),)

    def __getitem__(self, key: Any) -> ByItem:
        key = key[0] if isinstance(key, tuple) else key  # Scikit-learn indexes with [rows, ...].
        return ByItem(self.table, np.atleast_1d(self.item_codes[key]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._labels[self.item_codes], dtype)

    def __repr__(self) -> str:
        return f"ByItem({len(self):,} of {self.table!r})"

    @cached_property
    def _labels(self) -> Names:
        table = self.table
        return np.asarray(table.classes[arg_max(table.votes(), table.items, table.classes, 0)])

    def select_table(self) -> tuple[Annotations, IntArray]:
        """Return the table of the selected items, and the indices of the entries in the order of its items."""
        mask = np.bincount(self.item_codes, minlength=self.table.n_items)
        if (mask > 1).any():
            item = quote_name(self.table.items[mask.argmax()])
            raise faults.RepeatedItem(item=item, times=int(mask.max()))
        return self.table.select(items=mask > 0), np.argsort(self.item_codes)


class Learner(Parameters, ABC):
    """Base class for models of annotations and inputs, which follow scikit-learn's protocol and are saved as one file.

    >>> import tempfile
    >>> from dissensus.learning import LIA, Learner
    >>> from dissensus.table.simulate import simulate
    >>> model = LIA(steps=1, seed=0).fit(simulate(80, 8, 2, seed=1).annotations, np.eye(80))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = model.save(folder)
    ...     np.array_equal(LIA.load(folder).posterior_, model.posterior_)
    True
    >>> isinstance(model, Learner), model.n_features_in_
    (True, 80)
    """

    file_name: ClassVar[str]  # name of the file in a folder
    stored_kind: ClassVar[str]  # kind of model, stored in the file
    _estimator_type = "classifier"  # Scikit-learn reads this attribute before version 1.6.

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model to one file in `folder`, which is created if needed, and return its path."""
        self._check_fitted()
        return write_tree(Path(folder) / self.file_name, self._to_tree(), self.stored_kind)

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> Self:
        """Load a model that `save` wrote to `folder`; its predictions are the same.

        The model computes on `device`; None stands for the keyword's default.
        """
        path, device = resolve_file(folder, cls.file_name), device or cls.declared()["device"].default
        tree = read_tree(path, cls.stored_kind)
        resolve_device(device)  # An error about a wrong device is raised first.
        with report_other_version(path), isolated_rng():
            return cls._from_tree(tree, device)

    @abstractmethod
    def _to_tree(self) -> dict[str, Any]:
        """Return the keywords, results and weights that `save` writes."""

    @classmethod
    @abstractmethod
    def _from_tree(cls, tree: dict[str, Any], device: str) -> Self:
        """Make a model from the result of `_to_tree`."""

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise ModelNotFitted(method=type(self).__name__)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier", target_tags=TargetTags(required=True), classifier_tags=ClassifierTags(),
            input_tags=InputTags(sparse=True),
        )  # fmt: skip

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trace_")

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X if it was a table of numbers."""
        model = getattr(self, "classifier_", self)  # LIA has a classifier in this attribute.
        if isinstance(encoder := getattr(model, "encoder_", None), ScaledFeatureEncoder):
            return int(encoder.center_.size)
        raise AttributeError("n_features_in_")


def order_arguments(table: Any, X: Any, gold: Any = None) -> tuple[Any, Any, Any]:
    """Return table, inputs and gold in the order of the table's items, given (table, X) or (X, y)."""
    swapped = not isinstance(table, Annotations) and X is not None
    X, y = (table, X) if swapped else (X, table)
    X = X.tocsr() if sparse.issparse(X) else X  # A sparse matrix may also be a mapping.
    if not swapped or isinstance(y, Annotations):
        return y, X, gold
    if not isinstance(y, ByItem):
        y = _table_from_classes(y)
    input_data.check_row_count(X, len(y), "entries", "y")
    found, order = y.select_table()
    X = _drop_positional_index(X, y)
    if input_data.find_row_names(X, found) is not None:
        X = input_data.align_rows(X, found)
    elif not np.array_equal(order, np.arange(order.size)):
        X = input_data.take_rows(X, order)
    return found, X, None if gold is None else np.asarray(gold)[order]


def _drop_positional_index(X: Any, y: ByItem) -> Any:
    """Return X without an index of positions; raise IndexMismatch if an index names items that y does not have."""
    frame = nw.from_native(X, allow_series=True, pass_through=True)
    index = nw.maybe_get_index(frame) if isinstance(frame, nw.DataFrame | nw.Series) else None
    if index is None or getattr(index, "nlevels", 1) > 1 or index.name == input_data.ITEM_COLUMN:
        return X  # `align_rows` handles these.
    text, items = index.dtype.kind not in "iu", y.table.items
    at = y.item_codes  # row numbers
    if not np.array_equal(index, at) and text == (items.dtype.kind not in "iu"):
        at = naming.match_names(np.asarray(index.astype(object) if text else index), items, "items")
    if (at < 0).any() or np.array_equal(at, y.item_codes):
        return nw.maybe_reset_index(frame).to_native()
    if set(at.tolist()) != set(y.item_codes.tolist()):
        raise faults.IndexMismatch(name=quote_name(index[0]))
    return X


def _table_from_classes(y: Any) -> ByItem:
    """Return a ByItem of a table in which one annotator labels every row of X with its class."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise faults.InvalidTargets(type_name=type(y).__name__, shape=labels.shape)
    if labels.dtype.kind == "f":
        bad = ~np.isfinite(labels) | (labels != np.floor(labels))
        if bad.any():
            row = int(bad.argmax())
            raise faults.ContinuousTargets(n_rows=int(bad.sum()), value=float(labels[row]), row=row)
    number = np.arange(labels.size)
    return ByItem(Annotations.from_arrays(number, np.zeros_like(number), labels.tolist()))


def soft_cross_entropy(estimator: Any, X: Any, y: Any) -> float:
    """Return minus the mean cross entropy to the votes of the items, as a score of which higher values are better.

    Parameters
    ----------
    estimator : object
        A fitted estimator with `predict_proba` and `classes_`.
    X : array, list or frame
        Inputs of the items.
    y : Annotations, ByItem or classes
        As in `fit`. Items without votes are skipped.

    Returns
    -------
    float
        The score in nats.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.eye(2), ByItem(Annotations.from_arrays(["a", "b"], [0, 0], ["no", "yes"]))
    >>> round(soft_cross_entropy(LogisticRegression().fit(X, y), X, y), 2)
    -0.51
    """
    table, X, _ = order_arguments(X, y)
    table = table.with_classes(np.asarray(estimator.classes_))
    proba, voted = np.asarray(estimator.predict_proba(X)), vote_weight(table) > 0
    return -float(cross_entropy(table.soft_labels()[voted], proba[voted]).mean())


def annotation_likelihood(estimator: Any, X: Any, y: Any) -> float:
    """Return the mean log probability of annotations, predicted for their annotators; higher values are better.

    An estimator that does not model annotators predicts the same distribution for all annotators.

    Parameters
    ----------
    estimator : object
        A fitted estimator with `predict_proba` and `classes_`, or a Pipeline whose last step is one.
    X : array, list or frame
        Inputs of the items.
    y : Annotations, ByItem or classes
        As in `fit`.

    Returns
    -------
    float
        The score in nats.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.eye(2), ByItem(Annotations.from_arrays(["a", "b"], [0, 0], ["no", "yes"]))
    >>> round(annotation_likelihood(LogisticRegression().fit(X, y), X, y), 2)
    -0.51
    """
    table, X, _ = order_arguments(X, y)
    table = table.with_classes(np.asarray(estimator.classes_))
    while hasattr(estimator, "named_steps"):  # The estimator is a Pipeline.
        estimator, X = estimator[-1], estimator[:-1].transform(X)
    model = getattr(estimator, "classifier_", estimator)  # LIA has a classifier in this attribute.
    models_them = hasattr(model, "predict_annotations")
    proba = model.predict_annotations(table, X) if models_them else np.asarray(model.predict_proba(X))[table.item]
    logs, weight = log_likelihood(table, proba)
    return float((logs * weight).sum() / weight.sum())
