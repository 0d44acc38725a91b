"""`dissensus aggregate --model`: score a table with a stored model, or add its annotations to the model."""

from __future__ import annotations

import copy
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.cli import exceptions as faults
from dissensus.cli import show
from dissensus.cli.aggregate import FitOptions, answer_and_write, check_label_type
from dissensus.cli.results import Result, count_items, make_result, read_question_folders, summarise
from dissensus.common.types import IntArray, Names
from dissensus.exceptions import UnknownClass
from dissensus.models.answers import AnswerModel, SpanModel
from dissensus.models.saving import load
from dissensus.models.tempering import labels_per_item
from dissensus.questions.item_status import status_by_model
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.cli.aggregate import Answers
    from dissensus.cli.source import Source, SourceOfTables, TrainingGold
    from dissensus.models.base import Aggregator

ROUNDING = 1e-6  # maximum rounding error of a count that is a sum of weights
MAX_CLASSES_NAMED = 5  # maximum number of new classes in the error


def score_tables(task: FitOptions, gold: TrainingGold, source: SourceOfTables) -> Answers:
    """Label the items of each question of FILE with the stored model."""

    def answer(table: Annotations, question: str | None) -> Result:
        model = _load_task_model(task, question)
        if isinstance(model, AnswerModel):
            check_label_type(model, to=None if question else task.to)
            table = gold.include_gold_classes(table).as_kind(model.kinds[0])
        else:
            table = _use_model_classes(model, table, task, source)
        return _score_table(model, table, gold.read_scoring(table), f"scoring {source.make_title(question)}")

    return answer_and_write(task, gold, source, answer)


def update_model(task: FitOptions, gold: TrainingGold, source: SourceOfTables) -> Answers:
    """Add the annotations of each question of FILE to the stored model."""
    from dissensus.models.incremental import merge_names

    def answer(table: Annotations, question: str | None) -> Result:
        model = _load_task_model(task, question)
        if isinstance(model, AnswerModel):
            check_label_type(model, update=True)
        table = _use_model_classes(model, table, task, source)
        if not model.items_.size:
            raise faults.ModelWithoutItems(model=task.model)
        all_items = make_item_table(merge_names(model.items_, table.items, "items")[0], model)
        return _update_with_table(model, table, gold.read_scoring(all_items), f"updating with {source.file}")

    return answer_and_write(task, gold, source, answer)


def load_model(folder: Path, question: str | None) -> Aggregator:
    """Return the model that an earlier run wrote for a question, or for a table without questions."""
    if question is None:
        return load(folder)
    folders = read_question_folders(folder)
    if question not in folders:
        raise faults.NoModelOfQuestion(folder=folder, questions=tuple(folders))
    return load(folder / folders[question])


def _load_task_model(task: FitOptions, question: str | None) -> Aggregator:
    assert task.model is not None
    model = load_model(task.model, question)
    task.set_threads(model)
    return model


def _use_model_classes(model: Aggregator, table: Annotations, task: FitOptions, source: Source) -> Annotations:
    """Return the table with the classes of the model."""
    try:
        return table.with_classes(model.classes_)
    except UnknownClass as error:
        new = tuple(sorted(set(map(str, table.classes)) - set(map(str, model.classes_))))
        raise faults.NewClasses(file=source.file, model=task.model, classes=new[:MAX_CLASSES_NAMED]) from error


def _score_table(model: Aggregator, table: Annotations, gold: Any, text: str) -> Result:
    """Return the answers of a fitted model about another table; the reliability of unseen annotators is NaN."""
    began = time.perf_counter()
    with show.show_progress(text):
        scored = copy.copy(model)
        scored.items_, scored.item_total_ = table.items, labels_per_item(table.item_ptr, table.weight)
        if isinstance(model, AnswerModel):
            vars(scored).update(model.predict_answers(table))
        else:
            known = naming.match_names(table.annotators, model.annotators_, "annotators")
            scored.posterior_, scored.annotators_ = model.predict_proba(table), table.annotators
            scored.n_annotations_ = np.bincount(table.annotator, minlength=table.n_annotators)
            if isinstance(scored, SpanModel):
                scored.tags_, scored.span_probability_ = scored.predict_tags(table)[1:]
            for key in ("reliability_", "hits_", "total_"):
                setattr(scored, key, np.where(known >= 0, getattr(model, key)[known], np.nan))
            vars(scored).pop("difficulty_", None)  # it belongs to the items of the fit
    return make_result(scored, table, gold, time.perf_counter() - began, status_by_model(scored, table), fitted=False)


def _update_with_table(model: Aggregator, table: Annotations, gold: IntArray | None, text: str) -> Result:
    """Add a table to a model and return its answers; `gold` has an entry for each item of the model and the table."""
    began = time.perf_counter()
    _warn_of_repeats(model, table)
    with show.show_progress(text):
        model.partial_fit(table)
    summary = summarise(model, count_items(model, gold), time.perf_counter() - began)
    return Result(model, summary | {"new_annotations": len(table)})


def _warn_of_repeats(model: Aggregator, table: Annotations) -> None:
    """Warn if the model was probably fitted to labels of the table before, so that they would count twice."""
    at = naming.match_names(table.items, model.items_, "items")
    total = getattr(model, "item_total_", None)
    if total is None or not total.size or not (at >= 0).any():
        return
    given, known = labels_per_item(table.item_ptr, table.weight)[at >= 0], total[at[at >= 0]]
    all_known = (at >= 0).all() and (given <= known + ROUNDING).all()
    holds_all = np.isin(np.flatnonzero(total > 0), at).all() and (given >= known - ROUNDING).all()
    if all_known or holds_all:
        warnings.warn(faults.CountedTwice(), stacklevel=2)


def make_item_table(items: Names, model: Aggregator) -> Annotations:
    """Return a table with these items and no rows, to align gold labels with."""
    none = np.empty(0, np.int32)
    return Annotations.from_codes(none, none, none, items, model.annotators_, model.classes_)
