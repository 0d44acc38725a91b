"""More annotations for a fitted model: new names are merged in order, and rows are inserted for them into its results.

What a model learns from the new rows is its own, see `ConfusionModel._partial_update`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dissensus.common.types import BoolArray, IntArray, Names
from dissensus.compute.rows import expand_rows
from dissensus.models.exceptions import NoPartialFit
from dissensus.models.fitting import check_gold, check_table
from dissensus.models.tempering import labels_per_item
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

M = TypeVar("M", bound="Aggregator")


def partial_fit(model: M, table: Annotations, *, gold: IntArray | None = None) -> M:
    """Learn from more annotations, in time that depends on their number.

    New rows of known items and annotators, new items and new annotators all update the fitted model; what was learnt
    from earlier rows is kept as counts and posteriors, and not visited again. Classes stay as they are.

    Parameters
    ----------
    table : Annotations
        The new rows only.
    gold : (I,) int, optional
        Known classes of the items of `table`, as in `fit`.

    Returns
    -------
    The model itself.
    """
    from dissensus.models.base import Aggregator

    model._check_fitted()
    check_table(table, "partial_fit")
    if type(model)._partial_update is Aggregator._partial_update:
        raise NoPartialFit(method=type(model).__name__)
    table = table.with_classes(model.classes_)
    gold = check_gold(gold, table)
    if table.n_annotations or table.n_items:
        update_results(model, table, gold)
    return model


def update_results(model: Aggregator, table: Annotations, gold: IntArray | None) -> None:
    """Learn from new rows in the classes of a fitted model, see `partial_fit`."""
    vars(model).pop("items_path_", None)  # the files there are from before
    model.items_, place, item, old = merge_names(np.asarray(model.items_), table.items, "items")
    unlabelled = model.prior_
    if model.shift_ is not None:
        unlabelled = model.tempering.temper(unlabelled[None], np.zeros(1))[0]
    for key in model._per_item_results():
        fill = {"posterior_": unlabelled, "difficulty_": 1.0}.get(key, 0.0)
        setattr(model, key, insert_rows(np.asarray(getattr(model, key)), place, fill))
    model.annotators_, place, annotator, _ = merge_names(model.annotators_, table.annotators, "annotators")
    fills = {"hits_": 0.0, "total_": 0.0, "n_annotations_": 0, "reliability_": np.nan}
    for key, fill in (fills | model._unseen_annotator_values()).items():
        setattr(model, key, insert_rows(getattr(model, key), place, fill))

    table, tempered = model._reweight(table, annotator), hasattr(model, "dependence")
    if tempered:
        rows, before = expand_rows(table), model.item_total_[item]
        untempered = model.tempering.untemper(model.posterior_[item], before)
        model.posterior_ = updated_copy(model.posterior_, item, untempered)
    posterior = model._partial_update(table, item, annotator, old, gold)
    if tempered:
        labels = before + labels_per_item(rows.item_ptr, rows.weight)
        model.item_total_ = updated_copy(model.item_total_, item, labels)
        posterior = model.tempering.temper(posterior, labels)
    model.posterior_ = updated_copy(model.posterior_, item, posterior)
    hits, total = model._count_agreement(table, posterior)
    n_annotations = model.n_annotations_[annotator] + np.diff(table.annotator_ptr)
    model.n_annotations_ = updated_copy(model.n_annotations_, annotator, n_annotations)
    model._set_reliability(
        updated_copy(model.hits_, annotator, model.hits_[annotator] + hits),
        updated_copy(model.total_, annotator, model.total_[annotator] + total),
    )


def merge_names(names: Names, more: Names, what: str) -> tuple[Names, IntArray, IntArray, BoolArray]:
    """Merge sorted names; return all names, where rows are inserted, and codes of `more` and which of them are old."""
    naming.match_names(more[:1], names[:1], what)  # raises an error if their types differ
    place = np.searchsorted(names, more)
    known = (place < names.size) & (names[np.minimum(place, names.size - 1)] == more) if names.size else place < 0
    new = np.flatnonzero(~known)
    codes = place + np.cumsum(~known) - ~known  # every new name before it moves it on by one
    return insert_rows(names, place[new], more[new]), place[new], codes, known


def insert_rows(values: Any, place: IntArray, row: Any) -> Any:
    """Return `values` with `row` inserted before each of the places (as of the old array)."""
    return np.insert(values, place, row, axis=0) if place.size else values


def updated_copy(values: Any, place: IntArray, new: Any) -> Any:
    """Return a copy of `values` with `new` at these places, so that other references to the old array stay valid."""
    values = values.copy()
    values[place] = new
    return values
