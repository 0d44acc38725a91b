"""What is said of a whole project: its annotators, its progress, its export and its report."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from dissensus.exceptions import BadParameter, DataError
from dissensus.questions.diagnose import FLAG_WORDS, diagnose
from dissensus.questions.diff import diff
from dissensus.questions.item_status import SETTLED, item_status
from dissensus.table.io.formats import FORMATS as FILES
from dissensus.table.io.writers import WRITERS, Answers, Labels, Span
from dissensus.table.kinds import CLASS_KINDS, KINDS
from dissensus.table.names import shown

if TYPE_CHECKING:
    from dissensus.serve.project import Fitted, Project

KEPT_SECONDS = 60.0  # for which what takes seconds to find out is not found out again
DAY_SECONDS = 86_400
WEEK = 7  # days that are compared with all before
MAX_DAYS = 366
TOOLS = ("label-studio", "argilla")
WHAT = ("annotations", "items", "decisions")


class Format(NamedTuple):
    """A form of export: the file's name, and its type for browsers."""

    file: str
    media: str


FORMATS = {
    "csv": Format("annotations.csv", "text/csv; charset=utf-8"),
    "parquet": Format("annotations.parquet", "application/vnd.apache.parquet"),
    "jsonl": Format("annotations.jsonl", "application/x-ndjson"),
    "label-studio": Format("to-label-studio.json", "application/json"),
    "argilla": Format("to-argilla.json", "application/json"),
}


@dataclass
class Kept:
    """Something that was found out, and when."""

    value: Any
    at: float

    def fresh(self) -> bool:
        """True for a minute."""
        return time.monotonic() - self.at < KEPT_SECONDS


def annotators(project: Project) -> list[dict[str, Any]]:
    """Everybody who gave a label: how many, reliability with its interval, last seen, flags with their reasons."""
    fitted = project.fitted
    known: dict[str, dict[str, Any]] = {}
    if fitted is not None:
        for row in fitted.model.to_frame("annotators", "pyarrow").to_pylist():
            known[str(row.pop("annotator"))] = {
                key: None if isinstance(value, float) and np.isnan(value) else value for key, value in row.items()
            }
    flags = project.kept("flags", lambda: _flags(fitted)) if fitted is not None else {}
    with project.lock:
        texts = project.names[1].texts
        found = []
        for code in np.flatnonzero(project.n_given).tolist():
            name = texts[code]
            about = known.get(name, {})
            about.pop("annotations", None)
            found.append(
                {
                    "annotator": name,
                    "labels": int(project.n_given[code]),
                    "reliability": None,
                    "low": None,
                    "high": None,
                }
                | about
                | {"last": float(project.last_at[code]), "flags": [], "reasons": ""}
                | flags.get(name, {})
            )
    return sorted(found, key=lambda one: (-one["labels"], one["annotator"]))


def _flags(fitted: Fitted) -> dict[str, dict[str, Any]]:
    """Annotator → flags in words, and why."""
    if fitted.table.kind not in CLASS_KINDS:
        return {}
    found = diagnose(fitted.table)
    rows = zip(found.annotators.tolist(), found.flags, found.reasons, strict=True)
    return {name: {"flags": [FLAG_WORDS[one] for one in flags], "reasons": why} for name, flags, why in rows if flags}


def progress(project: Project, days: int) -> dict[str, Any]:
    """Day by day (UTC): labels, items, how many are settled and wait; of everybody labels and agreement; who drifts."""
    if not 1 <= days <= MAX_DAYS:
        raise BadParameter(f"days must be from 1 to {MAX_DAYS}, got {days}.")
    today = datetime.fromtimestamp(project.clock(), UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    starts = [today - timedelta(days=days - 1 - at) for at in range(days)]
    with project.lock:
        rows = project.rows.columns().counting()
        top, fitted, texts = project.top.copy(), project.fitted, project.names[1].texts
        masks = project._masks()
        now = {key: int(masks[key].sum()) for key in ("settled", "decided", "queue", "unsettled")}
    day = ((rows.at - starts[0].timestamp()) // DAY_SECONDS).astype(np.int64)
    inside = (day >= 0) & (day < days)
    per_day = np.bincount(day[inside], minlength=days)
    found = []
    for at, start in enumerate(starts):
        end = (start + timedelta(days=1)).timestamp()
        one: dict[str, Any] = {"day": start.date().isoformat(), "labels": int(per_day[at])}
        if at == days - 1:
            one |= {"settled": now["settled"] + now["decided"], "queue": now["queue"]}
        else:
            one |= project.kept(f"day {one['day']}", lambda end=end: _state_at(project, fitted, end), forever=True)
        found.append(one)
    people = []
    if fitted is not None and fitted.table.kind in CLASS_KINDS:
        given = np.append(fitted.class_of, -1)[np.minimum(rows.label, fitted.class_of.size)]
        agree = (given == top[rows.item]).astype(np.float64)
        key = (rows.annotator.astype(np.int64) * days + day)[inside]
        labels = np.bincount(key, minlength=len(texts) * days).reshape(-1, days)
        right = np.bincount(key, agree[inside], len(texts) * days).reshape(-1, days)
        for code in np.flatnonzero(labels.sum(axis=1)).tolist():
            share = [None if not n else float(h / n) for h, n in zip(right[code], labels[code], strict=True)]
            people.append({"annotator": texts[code], "labels": labels[code].tolist(), "agreement": share})
    week_ago = (today - timedelta(days=WEEK - 1)).timestamp()
    drift = project.kept("drift", lambda: _drift(project, week_ago))
    return {"days": found, "annotators": people, "drift": drift, **project._as_of()}


def _state_at(project: Project, fitted: Fitted | None, until: float) -> dict[str, Any]:
    """What was settled at a time, by what is known of the annotators now."""
    if fitted is None or fitted.table.kind not in CLASS_KINDS:
        return {"settled": None, "queue": None}
    table = project.table(until)
    if not len(table):
        return {"settled": 0, "queue": 0}
    try:
        sure = fitted.model.predict_proba(table).max(axis=1)
    except DataError:  # a class that nobody says any more
        return {"settled": None, "queue": None}
    settled = int((sure >= SETTLED).sum())
    return {"settled": settled, "queue": int(((sure < SETTLED) & (np.diff(table.item_ptr) > 1)).sum())}


def _drift(project: Project, since: float) -> list[dict[str, Any]]:
    """Who agrees with the others clearly more or less often since a time than before."""
    before, now = project.table(since), project.table()
    if not (len(before) and len(now)) or now.kind not in CLASS_KINDS or before.kind != now.kind:
        return []
    found = diff(before, now)
    order = np.flatnonzero(found.drift.drifts)[np.argsort(found.drift.p_value[found.drift.drifts], kind="stable")]
    names = [str(found.annotators[at]) for at in order]
    return [{"annotator": name, "said": said} for name, said in zip(names, found.drift_sentences(), strict=True)]


def export(project: Project, form: str, what: str | None, called: dict[str, str] | None) -> bytes:
    """A file: the rows that count, what became of the items, or decisions; for a tool, the labels it takes."""
    if form not in FORMATS:
        raise BadParameter(f"format must be {', '.join(FORMATS)}, got {shown(form)}.")
    if what not in (None, *WHAT):
        raise BadParameter(f"what must be {', '.join(WHAT)}, got {shown(what)}.")
    project.refit()
    file = io.BytesIO()
    if form in TOOLS:
        WRITERS[form].write(_for_tool(project, form), file)
        return file.getvalue()
    frame = {"annotations": _annotations, "items": _items, "decisions": _decisions}[what or "annotations"](project)
    for column in ("annotator", "by"):
        if called is not None and column in frame.column_names:
            names = [called[one] for one in frame[column].to_pylist()]
            frame = frame.set_column(frame.column_names.index(column), column, pa.array(names, pa.string()))
    write = FILES[form].write
    assert write is not None
    write(frame, file)
    return file.getvalue()


def _annotations(project: Project) -> Any:
    return project.table().to_arrow()


def _items(project: Project) -> Any:
    """The frame that `aggregate` writes, with what was decided."""
    fitted = project.fitted
    if fitted is None:
        return pa.table({"item": pa.array([], pa.string()), "label": pa.array([], pa.string())})
    frame = fitted.model.to_frame("items", "pyarrow")
    if fitted.table.kind in CLASS_KINDS:
        status = item_status(fitted.table, fitted.top, np.asarray(fitted.model.posterior_).max(axis=1))
        for place, (name, values) in enumerate(status.columns().items(), frame.column_names.index("confidence") + 1):
            frame = frame.add_column(place, name, pa.array(values))
    decided = {one["item"]: one for one in project.all_decisions()}
    said = [decided.get(name, {}).get("label") for name in map(str, frame["item"].to_pylist())]
    return frame.append_column("decided", pa.array([None if one is None else str(one) for one in said], pa.string()))


def _decisions(project: Project) -> Any:
    rows = project.all_decisions()
    text = {
        key: [None if row[key] is None else str(row[key]) for row in rows] for key in ("item", "label", "by", "note")
    }
    both = [None if row["both"] is None else "|".join(row["both"]) for row in rows]
    return pa.table(
        {key: pa.array(values, pa.string()) for key, values in text.items()}
        | {"both": pa.array(both, pa.string()), "unclear": [bool(row["unclear"]) for row in rows]}
    )


def _for_tool(project: Project, form: str) -> Labels:
    """The answers as a tool's writer takes them; what was decided is as sure as can be."""
    fitted = project.fitted
    kind = project.kind
    if kind not in (*CLASS_KINDS, "spans"):
        raise BadParameter(f"format {form} holds classes and spans, and these labels are {KINDS[kind]}; take csv.")
    answers: dict[str, tuple[Any, float]] = {}
    if fitted is not None and kind == "spans":
        for name, one in fitted.answers.items():
            answers[name] = ([Span(**span) for span in one["label"]], one["confidence"] or float("nan"))
    elif fitted is not None:
        names = zip(fitted.table.items.tolist(), fitted.top.tolist(), fitted.sure.tolist(), strict=True)
        answers = {name: (str(fitted.model.classes_[top]), sure) for name, top, sure in names}
        for one in project.all_decisions():
            if one["label"] is not None:
                answers[one["item"]] = (one["label"], 1.0)
    items, labels = np.array(list(answers), object), np.empty(len(answers), object)
    labels[:] = [label for label, _ in answers.values()]
    sure = np.array([one for _, one in answers.values()], np.float64)
    return Labels({None: Answers(items, labels, sure)}, f"dissensus {_method(fitted)}")


def _method(fitted: Fitted | None) -> str:
    from dissensus.models.base import default_method

    return default_method(fitted.table.kind) if fitted is not None else "consensus"


def report(project: Project, names: bool, salt: str) -> str:
    """The page of `dissensus report` on the rows that count now."""
    from dissensus.report import Report

    project.refit()
    fitted = project.fitted
    if fitted is None:
        raise DataError(f"project {project.name!r} has no labels yet; there is nothing to report.")
    return Report(fitted.table, fitted.model, title=project.title, names=names, salt=salt).html()
