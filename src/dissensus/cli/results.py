"""What `aggregate` makes of one table: the answer, its summary, its files, and how it is shown."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dissensus.cli import kinds, show
from dissensus.cli.errors import say
from dissensus.cli.face import COMMAND_LINE
from dissensus.cli.folder import SUMMARY, tables
from dissensus.cli.question import print_findings
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.compute.engines import engine_name
from dissensus.evaluation import bootstrap, expected_calibration_error, log_loss, span_scores
from dissensus.evaluation.hard import hits
from dissensus.exceptions import BadParameter, UnreadableFile
from dissensus.models.answers import AnswerModel, SpanModel
from dissensus.models.base import Aggregator, methods
from dissensus.models.confidence import ask_for_gold
from dissensus.models.saving import load, save
from dissensus.models.tempering import labels_per_item
from dissensus.questions.declared.diagnose import Diagnose, flag_findings
from dissensus.questions.item_status import ItemStatus, status_of
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.io import write_frame
from dissensus.table.io.writers import Answers, Labels, Span, write_labels, writers
from dissensus.table.spans import PLACE, sequences_of, spans_of

if TYPE_CHECKING:
    from dissensus.cli.options import Source
    from dissensus.questions.diagnose import Diagnosis

MIN_SURE_CONFIDENCE = 0.7  # below, an item is counted as unsure
ITEMS_SHOWN = 5
ANNOTATORS_SHOWN = 3  # at either end
ROUNDING = 1e-6  # of a count that is a sum of weights
MIN_LABELS = 5  # below, an annotator is neither best nor worst
MAX_CONFUSION_ROWS = 2_000_000  # of confusions.csv; beyond, the array in model.npz has to do
MODEL = "model.npz"
SPAN_TOOLS = ("label-studio", "argilla", "doccano", "prodigy")  # of --to: they take spans; others take tags
_ONE_NAME = re.compile(r"'[^']+'$")  # a column, as an account of reading quotes it
FILES = (
    *tables("items", "annotators", "confusions", "things", "spans"),
    *(Path(one.file) for one in writers.values()),
)


@dataclass(frozen=True)
class Result:
    """One table, answered."""

    model: Aggregator  # fitted to the table, or `score`d on it
    summary: dict[str, Any]
    fitted: bool = True
    diagnosis: Diagnosis | None = None
    status: ItemStatus | None = None  # None where not all labels of the items are here
    ranked: bool = True  # False where nothing says who is right: nobody has labelled what somebody else has


def fit_with_bar(model: Aggregator, table: Any, text: str, gold: IntArray | None = None) -> float:
    """Fit to a table and show how far it is; the seconds that it took."""
    parameters = model.get_params(deep=False)
    passes, began = parameters.get("max_iter"), time.perf_counter()
    with show.waiting(text, None if passes is None else passes * parameters.get("restarts", 1)) as on_step:
        model.fit(table, gold=gold, on_step=on_step)
    return time.perf_counter() - began


def fit(model: Aggregator, table: Annotations, gold: Any, text: str, *, known: Any, flags: bool) -> Result:
    """Fit to a table; `gold` (I,) is for the summary only, `known` (I,) for the fit, `flags` for the annotators."""
    from dissensus.questions.scoring import unseen

    seconds, rest = fit_with_bar(model, table, text, known), unseen(gold, known)
    told = 0 if gold is None else _count_known(gold) - _count_known(rest)
    if told and not _count_known(rest):
        say("warning: --known tells the label of every item that --gold has; accuracy cannot be measured.")
        rest = None
    result = _answered(model, table, rest, seconds, status_of(model, table, known))
    unchecked = known is None and not (table.ratings_per_item > 1).any()
    result = replace(result, ranked=table.kind == "pairs" or not unchecked)
    if told and rest is not None:
        result.summary["gold"]["left_out"] = told
    if not isinstance(model, AnswerModel):
        result.summary["pairwise_agreement"] = table.describe().get("pairwise_agreement")
    if not flags:
        return result
    from dissensus.questions.diagnose import diagnose_classes

    with show.waiting("looking at the annotators"):
        found = diagnose_classes(table, threads=model.get_params(deep=False).get("threads"))
    result.summary["annotators_to_look_at"] = Diagnose().plain(found)
    return replace(result, diagnosis=found)


def _count_known(gold: Any) -> int:
    """How many items have a known label: codes from 0, or numbers."""
    return int((gold >= 0).sum() if gold.dtype.kind in "iu" else (~np.isnan(gold)).sum())


def _answered(
    model: Aggregator, table: Annotations, gold: Any, seconds: float, status: ItemStatus, *, fitted: bool = True
) -> Result:
    """The answers of a model to a table, of any kind of labels, with their summary."""
    if isinstance(model, AnswerModel):
        counts = {"annotations": table.n_annotations, "items": table.n_items, "annotators": table.n_annotators}
        about = {"kind": table.kind} | counts | fit_facts(model, seconds) | model.about_answers(gold)
    else:
        about = summarise(model, count_items(model, gold), seconds)
    return Result(model, about | {"status": status.counts()}, fitted, status=status)


def update(model: Aggregator, table: Annotations, gold: IntArray | None, text: str) -> Result:
    """A fitted model with the annotations of a table added to what it knows; `gold` is of all its items then."""
    began = time.perf_counter()
    _warn_of_repeats(model, table)
    with show.waiting(text):
        model.partial_fit(table)
    summary = summarise(model, count_items(model, gold), time.perf_counter() - began)
    return Result(model, summary | {"new_annotations": len(table)})


def _warn_of_repeats(model: Aggregator, table: Annotations) -> None:
    """Warn where a model may know the labels of a table already: all of them, or all of its own are in the table."""
    at = naming.match(table.items, model.items_, "items")
    total = getattr(model, "item_total_", None)
    if total is None or not total.size or not (at >= 0).any():
        return
    given, known = labels_per_item(table.item_ptr, table.weight)[at >= 0], total[at[at >= 0]]
    all_known = (at >= 0).all() and (given <= known + ROUNDING).all()
    holds_all = np.isin(np.flatnonzero(total > 0), at).all() and (given >= known - ROUNDING).all()
    if all_known or holds_all:
        say(
            "warning: FILE may hold labels that the model was fitted to, and these count twice now; --update takes the "
            "new labels only."
        )


def score(model: Aggregator, table: Annotations, gold: Any, text: str) -> Result:
    """A fitted model that speaks of another table's items and annotators; reliability is NaN where it is not known."""
    began = time.perf_counter()
    with show.waiting(text):
        scored = copy.copy(model)
        scored.items_, scored.item_total_ = table.items, labels_per_item(table.item_ptr, table.weight)
        if isinstance(model, AnswerModel):
            vars(scored).update(model.answers_for(table))
        else:
            known = naming.match(table.annotators, model.annotators_, "annotators")
            scored.posterior_, scored.annotators_ = model.predict_proba(table), table.annotators
            scored.n_annotations_ = np.bincount(table.annotator, minlength=table.n_annotators)
            if isinstance(scored, SpanModel):
                scored.tags_, scored.span_probability_ = scored.answer(table)[1:]
            for key in ("reliability_", "hits_", "total_"):
                setattr(scored, key, np.where(known >= 0, getattr(model, key)[known], np.nan))
            vars(scored).pop("difficulty_", None)  # of the items it was fitted to
    return _answered(scored, table, gold, time.perf_counter() - began, status_of(scored, table), fitted=False)


def table_of_items(items: Names, model: Aggregator) -> Annotations:
    """A table without rows that names some items; golds are read by it."""
    none = np.empty(0, np.int32)
    return Annotations.from_codes(none, none, none, items, model.annotators_, model.classes_)


def load_model(folder: Path, question: str | None) -> Aggregator:
    """The model that an earlier run wrote, for one question where there were several."""
    if question is None:
        return load(folder)
    there = question_folders(folder)
    if question not in there:
        raise UnreadableFile(
            f"no model for this question in {folder}; there are {', '.join(map(repr, there)) or 'none'}."
        )
    return load(folder / there[question])


def question_folders(folder: Path) -> dict[str, str]:
    """Question → sub-folder of an earlier run; empty where there was one question, or no such run."""
    try:
        questions = json.loads((folder / SUMMARY).read_bytes())["questions"]
        found = {str(question): str(about["folder"]) for question, about in questions.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # not there, or not ours
        return {}
    return {question: name for question, name in found.items() if Path(name).name == name}  # nothing outside


def stale_files(folder: Path) -> list[Path]:
    """Every file of an earlier run that would be mistaken for one of this run."""
    inside = [Path(name) for name in question_folders(folder).values()]
    return [*FILES, *(sub / file for sub in inside for file in FILES)]


def safe_names(questions: Iterable[str]) -> dict[str | None, str]:
    """Question → name of its folder: letters, digits, `-`, `_` and dots, all different in any case."""
    names: dict[str | None, str] = {}
    for question in questions:
        plain = re.sub(r"[^\w.-]+", "_", question).strip("._")[:60] or "question"
        taken, name, number = {other.casefold() for other in names.values()}, plain, 2
        while name.casefold() in taken:
            name, number = f"{plain}-{number}", number + 1
        names[question] = name
    return names


def write(result: Result, folder: Path, suffix: str, *, items: bool = True) -> None:
    """The tables of one answer, perhaps without its items, and its model where it was fitted here."""
    model = result.model
    folder.mkdir(exist_ok=True)
    if isinstance(model, AnswerModel):
        for name in model.frames:
            frame = model.to_frame(name, "pyarrow") if name != "items" else _item_frame(result)  # type: ignore[arg-type]
            write_frame(frame, folder / f"{name}.{suffix}")
        if result.fitted:
            save(model, folder)
        return
    if items:
        write_frame(_item_frame(result), folder / f"items.{suffix}")
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
        say(f"warning: the confusions would take {confusion.size:,} rows; they are in model.npz only.")
    save(model, folder, items=items)


def write_for_tool(answers: Mapping[str | None, Result], to: str, source: Source, folder: Path) -> None:
    """The labels of all questions in one file for a tool; added to FILE's records where it is the tool's export.

    An item that nobody labelled gets no label there.
    """
    found, left = {}, []
    for question, one in answers.items():
        model = one.model
        if isinstance(model, AnswerModel):
            left.append(repr(question))
            continue
        if isinstance(model, SpanModel) and to in SPAN_TOOLS:
            found[question] = _span_answers(model, to)
            continue
        some = np.ones(model.items_.size, np.bool_) if one.status is None else one.status.labels > 0
        label = model.predict()
        sure = model.posterior_[np.arange(label.size), naming.match(label, model.classes_, "classes")]
        found[question] = Answers(model.items_[some], label[some], sure[some])
    if left:
        say(f"warning: --to {to} holds classes and spans; left out: {', '.join(left)}.")
    columns = {role: said[1:-1] for role, said in source.account.get("columns", {}).items() if _ONE_NAME.match(said)}
    labels = Labels(
        found,
        f"dissensus {next(iter(answers.values())).summary['method']}",
        source.file if source.account.get("format") == to and source.file.is_file() else None,
        source.item,
        columns.get("label"),
        columns,
    )
    write_labels(labels, to, folder)


def _span_answers(model: SpanModel, to: str) -> Answers:
    """The spans of every document, for a tool that counts characters; a document is as sure as its least sure span."""
    where = sequences_of(np.asarray(model.items_))
    if PLACE in str(model.items_[0]) and "-" not in str(model.items_[0]).rpartition(PLACE)[2]:
        raise BadParameter(f"--to {to} counts characters, and these spans are of tokens; take --to conll or spans.csv.")
    by_document: dict[str, list[Span]] = {name: [] for name in where.documents.tolist()}
    for row in model.spans("pyarrow").to_pylist():
        by_document[row["document"]].append(Span(row["start"], row["end"], row["label"], row["probability"]))
    label = np.empty(len(by_document), object)
    label[:] = list(by_document.values())
    sure = [min((one.probability for one in spans), default=float("nan")) for spans in by_document.values()]
    return Answers(where.documents, label, np.array(sure))


def _item_frame(result: Result) -> Any:
    """The items with what they are called, how sure that is, and what to do about them."""
    frame = result.model.to_frame("items", "pyarrow")
    return frame if result.status is None else result.status.beside(frame)


def print_result(result: Result, title: str, *, preview: bool) -> None:
    """The summary for people; with `preview` also the first items."""
    about, model = result.summary, result.model
    labels, items = show.count(about["annotations"], "annotation"), show.count(about["items"], "item")
    show.line(f"{show.clean(title)}: {labels} of {items}")
    passes = "1 pass" if about["passes"] == 1 else f"{about['passes']:,} passes"
    how = f"{about['method']} {'converged' if about['converged'] else 'did not converge'} after {passes}"
    if not result.fitted:
        how = f"Scored with a fitted {about['method']}"
    elif "new_annotations" in about:
        how = f"{about['method']} updated with {show.count(about['new_annotations'], 'annotation')}"
    show.line(f"{how} in {about['seconds']:.1f} s.")
    if isinstance(model, AnswerModel):
        kinds.PRINTERS[about["kind"]](about, model, preview)
        if result.status is not None and model.items_.size:
            show.text(result.status.sentence())
        if result.ranked:
            kinds.print_annotators(model)
        return
    show.bars(("label", "items"), about["labels"], about["items"])
    if "spans" in about:
        show.text(_about_spans(about["spans"]))
    if result.status is not None:
        show.text(result.status.sentence() + _worth(result))
    else:
        unsure = about["items_below_0.7"]
        share = show.percent(unsure / max(about["items"], 1))
        show.text(f"{show.count(unsure, 'item')} ({share}) below {MIN_SURE_CONFIDENCE} confidence.{_worth(result)}")
    if (gold := about.get("gold")) is not None and gold["accuracy"] is not None:
        loss = f"{gold['log_loss']:.3f}".replace("inf", "infinite, since a known class was given probability 0")
        error = f"calibration error {gold['calibration_error']:.3f}, log loss {loss}"
        show.text(f"{kinds.accuracy(gold, 'label')}; {error}.")
    if result.ranked:
        _print_annotators(model)
    else:
        show.text("Annotators are not ranked: no item has labels by two of them, so nothing tells whose are right.")
    if result.diagnosis is not None:
        print_findings("", flag_findings(result.diagnosis))
    if preview:
        kinds.print_first(next(model.item_frames()), ITEMS_SHOWN, "label")


def _about_spans(about: dict[str, Any]) -> str:
    named = ", ".join(f"{name} {count:,}" for name, count in about["labels"].items())
    said = f"Spans: {about['count']:,} ({named or 'none'}), of which about {about['expected_right']:,.0f} are right."
    if (gold := about.get("gold")) is not None and gold["spans"]:
        said += (
            f" Against {gold['spans']:,} known spans: F1 {gold['f1']:.4f}, precision {gold['precision']:.4f}, recall "
            f"{gold['recall']:.4f}."
        )
    return said


def _worth(result: Result) -> str:
    """As how many an item's labels count, where they are not taken for independent."""
    worth = result.model.mean_effective_labels()
    if worth is None:
        return ""
    fresh = result.fitted and "new_annotations" not in result.summary
    advice = ask_for_gold(result.model) if fresh else None
    return f" {worth}" + ("" if advice is None else f" {advice.render(COMMAND_LINE)}")


def _print_annotators(model: Aggregator) -> None:
    interval = model.reliability_interval()
    known = np.flatnonzero(~np.isnan(model.reliability_))
    enough = known[model.n_annotations_[known] >= MIN_LABELS]
    among = enough if enough.size else known
    rows: list[tuple[str, ...]] = []
    for code in among[np.argsort(-model.reliability_[among], kind="stable")]:
        numbers = f"{model.n_annotations_[code]:,}", show.number(model.reliability_[code])
        rows.append((show.name(model.annotators_[code]), *numbers, show.interval(*interval[code])))
    columns = ("annotator", "labels", "reliability", "95 % interval")
    show.table("Most and least reliable", columns, show.ends(rows, ANNOTATORS_SHOWN), numbers=columns[1:])
    if few := int(model.annotators_.size - among.size):
        show.text(f"Not listed: {show.count(few, 'annotator')} with fewer than {MIN_LABELS} labels.")


def count_items(model: Aggregator, gold: IntArray | None) -> dict[str, Any]:
    """The `item_facts` of a model whose items are in memory; `gold` (I,), −1 where unknown."""
    predicted = model.predict()
    labels = np.bincount(naming.match(predicted, model.classes_, "classes"), minlength=model.classes_.size)
    unsure = int((model.posterior_.max(axis=1, initial=0) < MIN_SURE_CONFIDENCE).sum())
    about = {"spans": span_facts(model, gold)} if isinstance(model, SpanModel) else {}
    known = None if gold is None else (gold[gold >= 0], model.posterior_[gold >= 0])
    return item_facts(model, labels, unsure, known) | about


def span_facts(model: SpanModel, gold: IntArray | None) -> dict[str, Any]:
    """What a summary says of spans: how many of each label, how many are probably right, and scores by known tags."""
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
        spans_of(np.asarray(model.items_)[known], model.classes_, tags[known]).values() for tags in (model.tags_, gold)
    )
    ours, right = (set(zip(*(column.tolist() for column in columns), strict=True)) for columns in sides)
    return facts | {"gold": {"spans": len(right), **span_scores(ours, right)}}


def item_facts(
    model: Aggregator, labels: IntArray, unsure: int, known: tuple[IntArray, FloatArray] | None
) -> dict[str, Any]:
    """What a summary says of the items: (K,) items of each class, those that are unsure, `gold_scores` of `known`."""
    facts = {"labels": dict(zip(map(str, model.classes_), labels.tolist(), strict=True)), "items_below_0.7": unsure}
    if known is None:
        return facts
    gold, posterior = known
    if not gold.size:
        warn_of_no_gold()
    right = hits(gold, posterior) if gold.size else np.empty(0)  # a tie counts by its share
    return facts | {"gold": gold_scores(gold, right, posterior)}


def fit_facts(model: Aggregator, seconds: float) -> dict[str, Any]:
    """What a summary says of a fit, whatever the kind of labels."""
    # where it ran, without the options: they name folders and devices of this machine
    engine = {"engine": engine_name(model.engine)} if "engine" in model.parameter_names() else {}  # type: ignore[attr-defined]
    return {
        "method": methods.name_of(type(model)),
        "parameters": model.get_params(deep=False) | engine,
        "passes": model.n_iter_,
        "converged": model.converged_,
        "objective": float(model.trace_[-1]) if model.trace_.size else None,
        "seconds": seconds,
    }


def summarise(model: Aggregator, items: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The summary of one answer; `items` are its `item_facts`."""
    return {
        "annotations": int(model.n_annotations_.sum()),
        "items": int(model.items_.size),
        "annotators": int(model.annotators_.size),
        "classes": model.classes_.tolist(),
        **fit_facts(model, seconds),
        **({} if (worth := model.mean_effective_labels()) is None else {"counted_labels": worth}),
        **items,
    }


def gold_scores(gold: IntArray, right: BoolArray | FloatArray, posterior: FloatArray) -> dict[str, Any]:
    """How good answers are: (n,) known classes, (n,) how far each answer is right, (n, K) probabilities."""
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


def warn_of_no_gold() -> None:
    """Say why there is no accuracy."""
    say("warning: no item has a known label that was not taught; accuracy cannot be measured.")
