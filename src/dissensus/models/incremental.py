"""Update a fitted model with more annotations: merge new names, and insert rows for new names into the results.

Each model defines its own update, such as `ConfusionModel._partial_update`.
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
    """Update the model with more annotations, in time proportional to their number.

    The new rows may be about fitted or new items, and by fitted or new annotators. Earlier rows are represented by
    counts and posteriors and are not processed again. The classes cannot change.

    Parameters
    ----------
    table : Annotations
        The new rows, without the rows that have been fitted.
    gold : (I,) int, optional
        Gold classes of the items of `table`, as in `fit`.

    Returns
    -------
    Aggregator
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
    """Update the results of a fitted model with new rows; see `partial_fit`."""
    vars(model).pop("items_path_", None)  # the files belong to the earlier fit
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
    """Merge sorted names; return them, the insertion positions, and for `more` the codes and a mask of old names."""
    naming.match_names(more[:1], names[:1], what)  # raises an error if the types of the names differ
    place = np.searchsorted(names, more)
    old = (place < names.size) & (names[np.minimum(place, names.size - 1)] == more) if names.size else place < 0
    new = np.flatnonzero(~old)
    codes = place + np.cumsum(~old) - ~old  # every new name before it increases a code by one
    return insert_rows(names, place[new], more[new]), place[new], codes, old


def insert_rows(values: Any, place: IntArray, row: Any) -> Any:
    """Return `values` with `row` inserted before each of the positions `place`."""
    return np.insert(values, place, row, axis=0) if place.size else values


def updated_copy(values: Any, place: IntArray, new: Any) -> Any:
    """Return a copy of `values` with `new` at the positions `place`; the old array stays unchanged."""
    values = values.copy()
    values[place] = new
    return values
