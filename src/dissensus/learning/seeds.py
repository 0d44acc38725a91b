"""Many small trainings as one: models that are alike but for their seeds, and their tables.

    fit_together([m.fit(t, X) for every model m and its table t]), but in one batched module (`stack.py`)

Every training keeps its seed's first weights and its seed's order of items, so it ends where it would have ended alone,
but for rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from dissensus.common.progress import waiting
from dissensus.common.types import IntArray, OnStep
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.objectives import Objective
from dissensus.learning.run import Run, begin
from dissensus.learning.stack import Stack
from dissensus.table.annotations import Annotations

__all__ = ["Stack", "fit_together", "stacked"]

PLAIN = {"accumulate": 1, "schedule": "constant", "warmup": 0.0, "sam": None, "clip": None, "patience": None,
         "processes": 1, "mixup": None, "checkpoint": None, "compile": False}  # fmt: skip
"""What a training must be like to be done together with others."""


def fit_together(
    models: Sequence[CrowdClassifier],
    tables: Sequence[Annotations] | Annotations,
    X: Any,
    *,
    gold: IntArray | Sequence[IntArray] | None = None,
    annotators: Any = None,
    on_step: OnStep | None = None,
) -> list[CrowdClassifier]:
    """Fit every model to its table (or all to one), as `model.fit(table, X)` would.

    Parameters
    ----------
    models : sequence of CrowdClassifier
        Alike but for their seeds, and for what their objective says may differ (the sizes of `ldl-nm` with `room`).
        Constant learning rates, no SAM, mixup, clipping or validation.
    tables : Annotations, or one per model
        Of the same items, annotators and classes; the same items teach in all of them.
    X : inputs
        One row per item, as in `CrowdClassifier.fit`; an encoder with columns of one size (mlp, identity,
        item-embedding).
    gold : (I,) int, or one per model, optional
    annotators : frame, optional
        What is known of them, as in `CrowdClassifier.fit`.
    on_step : callable, optional
        Called after every epoch with (epoch, mean loss of all).
    """
    models = list(models)
    if not models:
        return []
    stack = stacked(models, tables, X, gold=gold, annotators=annotators)
    with waiting("training", models[0].epochs) if on_step is None else nullcontext(on_step) as after_epoch:
        traces = stack.train(after_epoch)
    stack.unstack()
    return [model._end(run, trace) for model, run, trace in zip(models, stack.runs, traces, strict=True)]


def stacked(
    models: Sequence[CrowdClassifier],
    tables: Sequence[Annotations] | Annotations,
    X: Any,
    *,
    gold: IntArray | Sequence[IntArray] | None = None,
    annotators: Any = None,
) -> Stack:
    """The trainings of `fit_together`, ready; for those who want no more than the classes of the items."""
    models = list(models)
    each = [tables] * len(models) if isinstance(tables, Annotations) else list(tables)
    golds = [gold] * len(models) if gold is None or isinstance(gold, np.ndarray) else list(gold)
    if not len(each) == len(golds) == len(models):
        raise DataError(f"{len(models)} models, {len(each)} tables and {len(golds)} golds; give one of each per model.")
    _check(models, each)
    runs: list[Run] = []
    for model, table, known in zip(models, each, golds, strict=True):
        runs.append(begin(model, table, X, known, annotators=annotators, like=runs[0] if runs else None))
        if runs[-1].table is runs[0].table and runs[-1].gold is runs[0].gold:
            runs[-1] = dataclasses.replace(runs[-1], lessons=runs[0].lessons)  # kept once, however many there are
    if any(not np.array_equal(run.taught, runs[0].taught) for run in runs):
        raise DataError("fit_together: not the same items teach in all tables; give each item a label in all or none.")
    return Stack(runs)


def _check(models: list[CrowdClassifier], tables: list[Annotations]) -> None:
    first = models[0]
    for name, wanted in PLAIN.items():
        if (value := getattr(first, name)) != wanted:
            raise BadParameter(f"fit_together: {name} must be {wanted!r}, got {value!r}; fit such models one by one.")
    kind = _kind(first)
    for model in models:
        for name, value in first.get_params(deep=False).items():
            if name == "objective" and _kind(model) == kind:
                continue
            if name != "seed" and repr(getattr(model, name)) != repr(value):
                raise BadParameter(f"fit_together: models differ in {name}, {value!r} and {getattr(model, name)!r}.")
    for table in tables:
        for name in ("items", "annotators", "classes"):
            if not np.array_equal(getattr(table, name), getattr(tables[0], name)):
                raise DataError(f"fit_together: the tables have different {name}; select() rows of one table.")


def _kind(model: CrowdClassifier) -> str:
    """What an objective must have in common with others."""
    objective = model.objective
    return f"{type(objective).__name__} {objective.alike() if isinstance(objective, Objective) else objective}"
