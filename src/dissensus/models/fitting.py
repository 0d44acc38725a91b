"""Fit a method: load and check the table, estimate the tempering, run the method and store the results."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dissensus.common.arrays import fill_masked
from dissensus.common.types import IntArray, OnStep
from dissensus.compute.engines import engine_options
from dissensus.compute.engines.base import Engine, RemoteTable
from dissensus.compute.rows import expand_rows
from dissensus.messages import quote_name
from dissensus.models.earlier_counts import EarlierCounts, add_earlier_items, check_earlier_counts
from dissensus.models.exceptions import (
    GoldCodeOutOfRange,
    NoAnnotations,
    NoEarlierCounts,
    NotATable,
    NotConverged,
    TooManyClasses,
    WrongGoldShape,
    WrongLabelType,
)
from dissensus.models.gold_tempering import gold_items_with_labels, tempering_from_gold
from dissensus.models.registry import methods, methods_for
from dissensus.models.tempering import (
    CORRELATION_INTERVAL,
    DEFAULT_CORRELATION,
    MIN_GOLD_ITEMS,
    Tempering,
    labels_per_item,
    limit_share_change,
)
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import KIND_DESCRIPTIONS

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

M = TypeVar("M", bound="Aggregator")


def fit(
    model: M, table: Annotations | RemoteTable | str | Path | Any, *, gold: IntArray | None = None,
    earlier: EarlierCounts | None = None, on_step: OnStep | None = None,
) -> M:  # fmt: skip
    """Fit the model to a table.

    Parameters
    ----------
    table : Annotations, or a source that the engine can load
        A source is a path, a pattern of paths or a data frame. `dissensus.compute.engines` describes the sources, and
        where results with one row per item are stored.
    gold : (I,) int, optional
        Gold classes of some items, as codes into `table.classes`; −1 where unknown.
    earlier : mapping of annotators to (K, K) counts, or (A, K, K), optional
        Counts from earlier tables: how often each annotator gave each label to items of each class, [true, given]. They
        are used like labels on gold items.
    on_step : callable, optional
        A function that is called after every pass over the data, with the number of the pass and the objective.

    Returns
    -------
    Aggregator
        The model itself.
    """
    options = engine_options(getattr(model, "engine", None))
    data: Any = options.load(table)
    check_table(data, "fit")
    check_label_type(model, data)
    if data.n_annotations == 0:
        raise NoAnnotations
    model.check_parameters()
    check_class_number(model, data)
    for key in ("items_path_", "item_total_"):  # remove results of an earlier fit
        vars(model).pop(key, None)
    if isinstance(data, RemoteTable) and data.n_annotations <= model.max_rows_in_memory:
        local = type(model)(**{name: value for name, value in model.get_params().items() if name != "engine"})
        local.fit(data.to_annotations(), gold=gold, earlier=earlier, on_step=on_step)
        vars(model).update({key: value for key, value in vars(local).items() if key.endswith("_")})
        model.items_ = data.items
        options.store_results(model, data, model._check_gold(gold, data))
        return model
    set_names(model, data)
    gold, on_step = model._check_gold(gold, data), on_step or (lambda step, objective: None)
    model.tempering = model._estimate_tempering(data, gold, earlier)
    extended, all_gold = (data, gold) if earlier is None else add_earlier(model, data, gold, earlier)
    model._fit(extended, all_gold, on_step)
    # If the model has `item_total_`, its last pass has tempered the results.
    if hasattr(model, "dependence") and "item_total_" not in vars(model):
        temper_results(model, model._reweight(extended, np.arange(extended.n_annotators)))
    if earlier is not None:
        for key in model._per_item_results():
            setattr(model, key, np.ascontiguousarray(getattr(model, key)[: data.n_items]))
    options.store_results(model, data, gold)
    return model


def set_names(model: Aggregator, data: Any) -> None:
    """Set the names, and the seed for breaking ties, which is drawn only once so that `predict` is repeatable."""
    model.classes_, model.items_, model.annotators_ = data.classes, data.items, data.annotators
    model.n_annotations_ = data.annotations_per_annotator
    model.tie_seed_ = int(np.random.SeedSequence(model.seed).generate_state(1, np.uint64)[0])


def estimate_tempering(model: Aggregator, data: Any, gold: IntArray | None, earlier: EarlierCounts | None) -> Tempering:
    """Return the tempering, with ρ as set by the user, or ρ and class shifts estimated from gold, or the default ρ."""
    choice = getattr(model, "dependence", None)
    if choice != "auto":
        return Tempering(float(choice or 0), (float(choice or 0), float(choice or 0)))
    gold_items = gold_items_with_labels(gold, data)
    if gold is None or gold_items.size < MIN_GOLD_ITEMS:
        return Tempering(DEFAULT_CORRELATION, CORRELATION_INTERVAL, is_default=True)
    without_gold = type(model)(**model.get_params() | {"dependence": None})  # gold must not be used twice
    without_gold.fit(data, earlier=earlier)
    results = without_gold.posterior_, without_gold.item_total_
    posterior, total = (np.asarray(values)[gold_items] for values in results)
    return tempering_from_gold(posterior, total, gold[gold_items])


def temper_results(model: Aggregator, table: Annotations) -> None:
    """Temper the posterior, and compute the annotators' reliability from it."""
    rows, untempered = expand_rows(table), model.posterior_
    model.item_total_ = labels_per_item(rows.item_ptr, rows.weight)

    def apply(tempering: Tempering) -> float:
        model.posterior_ = tempering.temper(untempered, model.item_total_)
        return float(np.abs((model.posterior_ - untempered).mean(axis=0)).sum() / 2)

    model.tempering = limit_share_change(model.tempering, model.prior_, apply)
    model._set_reliability(*model._count_agreement(table, model.posterior_))


def add_earlier(
    model: Aggregator, data: Any, gold: IntArray | None, earlier: EarlierCounts
) -> tuple[Annotations, IntArray | None]:
    """Return the table and gold with additional items that represent the earlier counts of annotators."""
    if not (model.takes_earlier and isinstance(data, Annotations)):
        raise NoEarlierCounts(method=type(model).__name__, location=getattr(data, "location", ""))
    return add_earlier_items(data, gold, check_earlier_counts(earlier, data))


def open_engine(model: Aggregator, table: Any, gold: IntArray | None) -> Engine:
    """Return the engine that stores the table and runs the passes."""
    return engine_options(getattr(model, "engine", None)).open_engine(model, table, gold)


def warn_unconverged(model: Any, unit: str, quantity: str, change: float) -> None:
    """Warn that a fit stopped at `max_iter`; the warning points to the first caller outside the package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("dissensus."):
        frame, level = frame.f_back, level + 1
    limits = {"max_iter": model.max_iter, "tol": model.tol}
    message = NotConverged(method=type(model).__name__, unit=unit, quantity=quantity, change=change, **limits)
    warnings.warn(message, stacklevel=level)


# Checks of arguments


def check_table(table: Any, caller: str) -> None:
    """Raise an error unless the argument is a table of annotations."""
    if not isinstance(table, Annotations | RemoteTable):
        raise NotATable(caller=caller, type=type(table).__name__)


def check_label_type(model: Aggregator, table: Any) -> None:
    """Raise an error if the method does not support the label type of a table."""
    found = getattr(table, "kind", "classes")  # a remote table has classes
    if found not in model.kinds:
        supported = " or ".join(KIND_DESCRIPTIONS[kind] for kind in model.kinds)
        raise WrongLabelType(
            method=type(model).__name__,
            supported=supported,
            label_type=KIND_DESCRIPTIONS[found],
            able=tuple(methods_for(found)),
        )


def check_class_number(model: Aggregator, table: Any) -> None:
    """Raise an error if a table has more than two classes and the method supports only two."""
    entry = methods.find_entry(type(model))
    if entry is not None and entry.facts.get("binary") and table.n_classes > 2:
        examples = ", ".join(map(quote_name, table.classes[:3]))
        raise TooManyClasses(method=entry.name, n_classes=table.n_classes, examples=examples)


def check_gold(gold: IntArray | None, table: Annotations | RemoteTable) -> IntArray | None:
    """Check gold and return it as int32 (I,), or None if no item has gold."""
    if gold is None:
        return None
    gold = fill_masked(gold, -1)
    if gold.shape != (table.n_items,) or gold.dtype.kind not in "iu":
        raise WrongGoldShape(n_items=table.n_items, dtype=str(gold.dtype), shape=gold.shape)
    bad = np.flatnonzero((gold < -1) | (gold >= table.n_classes))
    if bad.size:
        raise GoldCodeOutOfRange(item=int(bad[0]), code=int(gold[bad[0]]), highest=table.n_classes - 1)
    return np.ascontiguousarray(gold, np.int32) if (gold >= 0).any() else None
