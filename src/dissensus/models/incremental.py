"""More rows for a fitted model: new names are merged in order, with rows of its results put in for them.

What a model learns from the new rows is its own, see `ConfusionModel._update`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.common.types import BoolArray, IntArray, Names
from dissensus.compute.engines.base import hard_rows
from dissensus.models.dependence import labels_per_item
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator


def update(model: Aggregator, table: Annotations, gold: IntArray | None) -> None:
    """Learn from new rows in the classes of a fitted model, see `Aggregator.partial_fit`."""
    vars(model).pop("items_path_", None)  # what is there is of before
    model.items_, at, item, old = merge(np.asarray(model.items_), table.items, "items")
    unlabelled = model.prior_
    if model.shift_ is not None:
        unlabelled = model._soften(unlabelled[None], np.zeros(1))[0]
    for key in model._per_item():
        fill = {"posterior_": unlabelled, "difficulty_": 1.0}.get(key, 0.0)
        setattr(model, key, put_in(np.asarray(getattr(model, key)), at, fill))
    model.annotators_, at, annotator, _ = merge(model.annotators_, table.annotators, "annotators")
    fills = {"hits_": 0.0, "total_": 0.0, "n_annotations_": 0, "reliability_": np.nan} | model._newcomer()
    for key, fill in fills.items():
        setattr(model, key, put_in(getattr(model, key), at, fill))

    table, softens = model._weigh(table, annotator), hasattr(model, "dependence")
    if softens:
        rows, before = hard_rows(table), model.item_total_[item]
        model.posterior_ = written(model.posterior_, item, model._sharpen(model.posterior_[item], before))
    posterior = model._update(table, item, annotator, old, gold)
    if softens:
        labels = before + labels_per_item(rows.item_ptr, rows.weight)
        model.item_total_ = written(model.item_total_, item, labels)
        posterior = model._soften(posterior, labels)
    model.posterior_ = written(model.posterior_, item, posterior)
    hits, total = model._agreement(table, posterior)
    model.n_annotations_ = written(
        model.n_annotations_, annotator, model.n_annotations_[annotator] + np.diff(table.annotator_ptr)
    )
    model._judge(
        written(model.hits_, annotator, model.hits_[annotator] + hits),
        written(model.total_, annotator, model.total_[annotator] + total),
    )


def merge(names: Names, more: Names, what: str) -> tuple[Names, IntArray, IntArray, BoolArray]:
    """Sorted names with `more` merged in: all names, where rows are put in; of `more`, codes and which were there."""
    naming.match(more[:1], names[:1], what)  # an error where the kinds differ
    at = np.searchsorted(names, more)
    known = (at < names.size) & (names[np.minimum(at, names.size - 1)] == more) if names.size else at < 0
    new = np.flatnonzero(~known)
    codes = at + np.cumsum(~known) - ~known  # each new name before it moves it on by one
    return put_in(names, at[new], more[new]), at[new], codes, known


def put_in(values: Any, at: IntArray, row: Any) -> Any:
    """`values` with `row` put in before each of the places `at` (as of the old array)."""
    return np.insert(values, at, row, axis=0) if at.size else values


def written(values: Any, at: IntArray, new: Any) -> Any:
    """A copy of `values` with `new` at these places: what somebody else holds does not change."""
    values = values.copy()
    values[at] = new
    return values
