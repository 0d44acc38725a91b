"""The result of `aggregate` on one table: its summary and its files."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dissensus.cli import exceptions as faults
from dissensus.cli import show
from dissensus.cli.folder import SUMMARY, table_files
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute.engines import engine_name
from dissensus.evaluation import bootstrap, expected_calibration_error, log_loss, span_scores
from dissensus.evaluation.hard import probability_correct
from dissensus.models.answers import AnswerModel, SpanModel
from dissensus.models.base import Aggregator, methods
from dissensus.models.exceptions import GoldNotUsed, OutcomesNotUsed
from dissensus.models.saving import save
from dissensus.questions.definitions.diagnose import Diagnose
from dissensus.questions.exceptions import NoGoldToScore
from dissensus.questions.item_status import ItemStatus, status_by_model
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.io import write_frame
from dissensus.table.io.writers import writers
from dissensus.table.spans import extract_spans

if TYPE_CHECKING:
    from dissensus.questions.diagnose import Diagnosis

MIN_CONFIDENCE = 0.7  # the summary counts the items with a lower confidence
MAX_CONFUSION_ROWS = (
    2_000_000  # maximum number of rows of confusions.csv; larger confusion matrices are in model.npz only
)
MODEL_FILE = "model.npz"
RESULT_FILES = (
    *table_files("items", "annotators", "confusions", "things", "spans"),
    *(Path(writer.file) for writer in writers.values()),
)


@dataclass(frozen=True)
class Result:
    """The answers of a model about one table."""

    model: Aggregator  # a model fitted to the table, or a copy of a stored model with its answers about the table
    summary: dict[str, Any]
    fitted: bool = True
    diagnosis: Diagnosis | None = None
    status: ItemStatus | None = None  # None if not all labels of the items are in the table
    ranked: bool = True  # False if no item has labels by two annotators


def fit_with_progress(model: Aggregator, table: Any, text: str, gold: IntArray | None = None) -> float:
    """Fit a model to a table with a progress bar, and return the duration in seconds."""
    parameters = model.get_params(deep=False)
    passes, began = parameters.get("max_iter"), time.perf_counter()
    with show.show_progress(text, None if passes is None else passes * parameters.get("restarts", 1)) as on_step:
        model.fit(table, gold=gold, on_step=on_step)
    return time.perf_counter() - began


def fit_table(model: Aggregator, table: Annotations, gold: Any, title: str, *, training: Any, flags: bool) -> Result:
    """Fit a model to a table and return its answers.

    `gold` (I,) measures accuracy, and `training` (I,) is used to fit the model. With `flags`, unusual annotators are
    searched for.
    """
    try:
        seconds = fit_with_progress(model, table, f"fitting {title}", training)
    except (OutcomesNotUsed, GoldNotUsed) as error:
        raise faults.GoldOnlyScores(option=error.method) from error
    scored, trained_on = gold, 0
    if gold is not None and training is not None:
        from dissensus.questions.scoring import exclude_training_gold

        scored = exclude_training_gold(gold, training)
        trained_on = _count_gold(gold) - _count_gold(scored)
        if trained_on and not _count_gold(scored):
            warnings.warn(NoGoldToScore(), stacklevel=2)
            scored = None
    result = make_result(model, table, scored, seconds, status_by_model(model, table, training))
    compared = training is not None or bool((table.annotators_per_item > 1).any())
    result = replace(result, ranked=table.kind == "pairs" or compared)
    if trained_on and scored is not None:
        result.summary["gold"]["left_out"] = trained_on
    if not isinstance(model, AnswerModel):
        result.summary["pairwise_agreement"] = table.describe().get("pairwise_agreement")
    if not flags:
        return result
    from dissensus.questions.diagnose import diagnose_classes

    with show.show_progress("examining the annotators"):
        found = diagnose_classes(table, threads=model.get_params(deep=False).get("threads"))
    result.summary["annotators_to_look_at"] = Diagnose().to_json(found)
    return replace(result, diagnosis=found)


def _count_gold(gold: Any) -> int:
    """Return the number of items with a gold label; `gold` holds codes (−1 if unknown) or numbers (NaN if unknown)."""
    return int((gold >= 0).sum() if gold.dtype.kind in "iu" else (~np.isnan(gold)).sum())


def make_result(
    model: Aggregator, table: Annotations, gold: Any, seconds: float, status: ItemStatus, *, fitted: bool = True
) -> Result:
    """Return the answers of a model about a table of any label type, with their summary."""
    if isinstance(model, AnswerModel):
        counts = {"annotations": table.n_annotations, "items": table.n_items, "annotators": table.n_annotators}
        about = {"kind": table.kind} | counts | fit_facts(model, seconds) | model.summarise_answers(gold)
    else:
        about = summarise(model, count_items(model, gold), seconds)
    return Result(model, about | {"status": status.counts()}, fitted, status=status)


def read_question_folders(folder: Path) -> dict[str, str]:
    """Return question → sub-folder of an earlier run; empty if it had a single table, or if there is no earlier run."""
    try:
        questions = json.loads((folder / SUMMARY).read_bytes())["questions"]
        found = {str(question): str(about["folder"]) for question, about in questions.items()}
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ):  # there is no such file, or another program wrote it
        return {}
    return {
        question: name for question, name in found.items() if Path(name).name == name
    }  # only names inside the folder


def list_replaceable_files(folder: Path) -> list[Path]:
    """Return every file of an earlier run that could be mistaken for a result of this run."""
    inside = [Path(name) for name in read_question_folders(folder).values()]
    return [*RESULT_FILES, *(sub / file for sub in inside for file in RESULT_FILES)]


def make_folder_names(questions: Iterable[str]) -> dict[str | None, str]:
    """Return question → folder name of letters, digits, `-`, `_` and dots; no two names differ only in capitals."""
    names: dict[str | None, str] = {}
    for question in questions:
        plain = re.sub(r"[^\w.-]+", "_", question).strip("._")[:60] or "question"
        taken, name, number = {other.casefold() for other in names.values()}, plain, 2
        while name.casefold() in taken:
            name, number = f"{plain}-{number}", number + 1
        names[question] = name
    return names


def write_result(result: Result, folder: Path, suffix: str, *, items: bool = True) -> None:
    """Write the tables of one result, with or without its items, and its model if it was fitted here."""
    model = result.model
    folder.mkdir(exist_ok=True)
    if items:
        frame = model.to_frame("items", "pyarrow")
        frame = frame if result.status is None else result.status.add_columns(frame)
        write_frame(frame, folder / f"items.{suffix}")
    if isinstance(model, AnswerModel):
        for name in set(model.frame_kinds) - {"items"}:
            write_frame(model.to_frame(name, "pyarrow"), folder / f"{name}.{suffix}")  # type: ignore[arg-type]
        if result.fitted:
            save(model, folder)
        return
    if isinstance(model, SpanModel):
        write_frame(model.spans("pyarrow"), folder / f"spans.{suffix}")
    annotators = model.to_frame("annotators", "pyarrow")
    for name in ("reliability", "low", "high"):
        unknown_is_empty = pa.array(annotators[name].to_numpy(), from_pandas=True)
        annotators = annotators.set_column(annotators.column_names.index(name), name, unknown_is_empty)
    if result.diagnosis is not None:
        annotators = annotators.append_column("flags", pa.array([", ".join(one) for one in result.diagnosis.flags]))
        annotators = annotators.append_column("reasons", pa.array(result.diagnosis.reasons))
    write_frame(annotators, folder / f"annotators.{suffix}")
    if not result.fitted:
        return
    confusion = getattr(model, "confusion_", None)
    if confusion is not None and confusion.size <= MAX_CONFUSION_ROWS:
        write_frame(model.to_frame("confusions", "pyarrow"), folder / f"confusions.{suffix}")
    elif confusion is not None:
        warnings.warn(faults.ManyConfusions(rows=confusion.size, model=MODEL_FILE), stacklevel=2)
    save(model, folder, items=items)


def count_items(model: Aggregator, gold: IntArray | None) -> dict[str, Any]:
    """Return the `item_facts` of a model whose items are in memory; `gold` (I,) is −1 where unknown."""
    predicted = model.predict()
    labels = np.bincount(naming.match_names(predicted, model.classes_, "classes"), minlength=model.classes_.size)
    unsure = int((model.posterior_.max(axis=1, initial=0) < MIN_CONFIDENCE).sum())
    about = {"spans": span_facts(model, gold)} if isinstance(model, SpanModel) else {}
    known = None if gold is None else (gold[gold >= 0], model.posterior_[gold >= 0])
    return item_facts(model, labels, unsure, known) | about


def span_facts(model: SpanModel, gold: IntArray | None) -> dict[str, Any]:
    """Return the number of spans by label, the expected number of correct spans, and their scores if gold is known."""
    found = model.spans("pyarrow")
    names, count = np.unique(found["label"].to_numpy(zero_copy_only=False).astype(str), return_counts=True)
    facts: dict[str, Any] = {
        "count": found.num_rows,
        "labels": dict(zip(names.tolist(), count.tolist(), strict=True)),
        "expected_right": float(found["probability"].to_numpy().sum()),
    }
    if gold is None or not (gold >= 0).any():
        return facts
    known = gold >= 0
    sides = (
        extract_spans(np.asarray(model.items_)[known], model.classes_, tags[known]).values()
        for tags in (model.tags_, gold)
    )
    ours, right = (set(zip(*(column.tolist() for column in columns), strict=True)) for columns in sides)
    return facts | {"gold": {"spans": len(right), **span_scores(ours, right)}}


def item_facts(
    model: Aggregator, labels: IntArray, unsure: int, known: tuple[IntArray, FloatArray] | None
) -> dict[str, Any]:
    """Return facts about items.

    `labels` (K,) are counts by class, and `unsure` is the number of items with a low confidence. `known` holds the gold
    codes (n,) and the posterior (n, K) of items with gold; their `gold_scores` are added.
    """
    facts = {"labels": dict(zip(map(str, model.classes_), labels.tolist(), strict=True)), "items_below_0.7": unsure}
    if known is None:
        return facts
    gold, posterior = known
    if not gold.size:
        warnings.warn(NoGoldToScore(), stacklevel=2)
    right = probability_correct(gold, posterior) if gold.size else np.empty(0)  # a tie counts as a fraction
    return facts | {"gold": gold_scores(gold, right, posterior)}


def fit_facts(model: Aggregator, seconds: float) -> dict[str, Any]:
    """Return facts about the fit of a model for any label type."""
    # the options of the engine name folders and devices of this machine
    engine = {"engine": engine_name(model.engine)} if "engine" in model.parameter_names() else {}  # type: ignore[attr-defined]
    return {
        "method": methods.get_name(type(model)),
        "parameters": model.get_params(deep=False) | engine,
        "passes": model.n_iter_,
        "converged": model.converged_,
        "objective": float(model.trace_[-1]) if model.trace_.size else None,
        "seconds": seconds,
    }


def summarise(model: Aggregator, items: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the summary of one result with its `item_facts`."""
    return {
        "annotations": int(model.n_annotations_.sum()),
        "items": int(model.items_.size),
        "annotators": int(model.annotators_.size),
        "classes": model.classes_.tolist(),
        **fit_facts(model, seconds),
        **({} if (worth := model.mean_effective_labels()) is None else {"effective_labels": worth}),
        **items,
    }


def gold_scores(gold: IntArray, right: BoolArray | FloatArray, posterior: FloatArray) -> dict[str, Any]:
    """Return scores of answers, given gold classes (n,), correctness (n,) of each answer, and probabilities (n, K)."""
    if not gold.size:
        return {"items": 0, "accuracy": None}
    accuracy = bootstrap(right)
    return {
        "items": int(gold.size),
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "calibration_error": expected_calibration_error(gold, posterior),
        "log_loss": log_loss(gold, posterior),
    }
