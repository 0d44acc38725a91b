"""How `fit` runs a method: load and check the table, estimate the tempering, run the method's steps, store the results."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dissensus.common.types import IntArray, OnStep
from dissensus.compute.chunk import expand_rows
from dissensus.compute.engines import engine_options
from dissensus.compute.engines.base import Engine, RemoteTable
from dissensus.models.checks import check_class_number, check_label_type, check_table
from dissensus.models.earlier_counts import Earlier, check_earlier, with_earlier
from dissensus.models.exceptions import NoAnnotations, NoEarlierCounts, NotConverged
from dissensus.models.tempering import (
    CORRELATION_INTERVAL,
    DEFAULT_CORRELATION,
    MIN_GOLD,
    Tempering,
    gold_items_with_labels,
    labels_per_item,
    limit_shift,
    tempering_from_gold,
)
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

M = TypeVar("M", bound="Aggregator")


def fit(
    model: M, table: Annotations | RemoteTable | str | Path | Any, *, gold: IntArray | None = None,
    earlier: Earlier | None = None, on_step: OnStep | None = None,
) -> M:  # fmt: skip
    """Learn from a table.

    Parameters
    ----------
    table : Annotations; or what the engine loads: a path, a pattern of paths or a data frame
        See `dissensus.compute.engines` for what is loaded, and where results with a row per item are then kept.
    gold : (I,) int, optional
        Known classes of some items, as codes into `table.classes`; −1 where unknown.
    earlier : annotator → (K, K) counts, or (A, K, K), optional
        Earlier knowledge of annotators: how often each gave each label to items of each class, [true, given]. It counts
        as that many labels on items of known class.
    on_step : callable, optional
        Called after every pass over the data with (pass number, objective).

    Returns
    -------
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
    for key in ("items_path_", "item_total_"):  # results of an earlier fit
        vars(model).pop(key, None)
    if isinstance(data, RemoteTable) and data.n_annotations <= model.max_rows_in_memory:
        local = type(model)(**{name: value for name, value in model.get_params().items() if name != "engine"})
        local.fit(data.in_memory(), gold=gold, earlier=earlier, on_step=on_step)
        vars(model).update({key: value for key, value in vars(local).items() if key.endswith("_")})
        model.items_ = data.items
        options.store_results(model, data, model._check_gold(gold, data))
        return model
    set_names(model, data)
    gold, on_step = model._check_gold(gold, data), on_step or (lambda step, objective: None)
    model.tempering = model._estimate_tempering(data, gold, earlier)
    whole, known = (data, gold) if earlier is None else add_earlier(model, data, gold, earlier)
    model._fit(whole, known, on_step)
    if hasattr(model, "dependence") and "item_total_" not in vars(model):  # otherwise its last pass has tempered
        temper_results(model, model._reweight(whole, np.arange(whole.n_annotators)))
    if earlier is not None:
        for key in model._per_item_results():
            setattr(model, key, np.ascontiguousarray(getattr(model, key)[: data.n_items]))
    options.store_results(model, data, gold)
    return model


def set_names(model: Aggregator, data: Any) -> None:
    """Set the names, and the seed that breaks ties, drawn once so that `predict` agrees with itself."""
    model.classes_, model.items_, model.annotators_ = data.classes, data.items, data.annotators
    model.n_annotations_ = data.per_annotator
    model.tie_seed_ = int(np.random.SeedSequence(model.seed).generate_state(1, np.uint64)[0])


def estimate_tempering(model: Aggregator, data: Any, gold: IntArray | None, earlier: Earlier | None) -> Tempering:
    """Return ρ as given, or with class shifts from gold, or the default."""
    choice = getattr(model, "dependence", None)
    if choice != "auto":
        return Tempering(float(choice or 0), (float(choice or 0), float(choice or 0)))
    known = gold_items_with_labels(gold, data)
    if gold is None or known.size < MIN_GOLD:
        return Tempering(DEFAULT_CORRELATION, CORRELATION_INTERVAL, assumed=True)
    blind = type(model)(**model.get_params() | {"dependence": None})  # it has not seen the gold that scores it
    blind.fit(data, earlier=earlier)
    posterior, total = (np.asarray(values)[known] for values in (blind.posterior_, blind.item_total_))
    return tempering_from_gold(posterior, total, gold[known])


def temper_results(model: Aggregator, table: Annotations) -> None:
    """Temper the posterior, and set the annotators' reliability by it."""
    rows, untempered = expand_rows(table), model.posterior_
    model.item_total_ = labels_per_item(rows.item_ptr, rows.weight)

    def apply(tempering: Tempering) -> float:
        model.posterior_ = tempering.temper(untempered, model.item_total_)
        return float(np.abs((model.posterior_ - untempered).mean(axis=0)).sum() / 2)

    model.tempering = limit_shift(model.tempering, model.prior_, apply)
    model._set_reliability(*model._count_agreement(table, model.posterior_))


def add_earlier(
    model: Aggregator, data: Any, gold: IntArray | None, earlier: Earlier
) -> tuple[Annotations, IntArray | None]:
    """Return the table and gold with items added that stand for what is known of annotators from before."""
    if not (model.takes_earlier and isinstance(data, Annotations)):
        reason = "" if isinstance(data, Annotations) else f"of a table {data.where}"
        raise NoEarlierCounts(method=type(model).__name__, reason=reason)
    return with_earlier(data, gold, check_earlier(earlier, data))


def open_engine(model: Aggregator, table: Any, gold: IntArray | None) -> Engine:
    """Return the engine that holds the table where passes run."""
    return engine_options(getattr(model, "engine", None)).open(model, table, gold)


def warn_unconverged(model: Any, unit: str, quantity: str, change: float) -> None:
    """Warn that `max_iter` ended a fit, in the name of the first caller outside the package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("dissensus."):
        frame, level = frame.f_back, level + 1
    limits = {"max_iter": model.max_iter, "tol": model.tol}
    message = NotConverged(method=type(model).__name__, unit=unit, quantity=quantity, change=change, **limits)
    warnings.warn(message, stacklevel=level)
