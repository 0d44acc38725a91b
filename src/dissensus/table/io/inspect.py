"""Inspect's logs, `.eval` (a zip) and `.json`: samples with the scores that judges gave them.

A scorer may be one judge, whose score is a value, or a panel. A panel's judges are found, in this order, in the score's
`metadata.panel.votes`, in a list or an object of judges as its value, and in the answers "GRADE: x" of the models that
were called under the scorer. Scorers that ask the same of other models are judges of one question; see `_questions`.
An item is a sample's id, with its epoch where there are several: "s1_epoch_2", as in the zip.

Our labels are one score more for every sample of the log, written as JSON, `.eval` too. Without a log they are
precomputed scores, records of a sample's `id` and `value`, for `inspect score LOG --scorer precomputed_scores -S
scores=to-inspect.json`; the value answers several questions by name.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dissensus.exceptions import DataError, UnreadableFile
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import LABEL, NUMBER, Answer, Item, Note, Rows, Target, add_export
from dissensus.table.io.files import is_zip, open_member, reading
from dissensus.table.io.formats import JSON_SUFFIXES
from dissensus.table.io.jsonl import Record, check_once, field, objects, part, records
from dissensus.table.io.writers import OURS, Given, Labels, add, our_name
from dissensus.table.names import shown

HEADER, START = "header.json", "_journal/start.json"  # the second where a run did not end
NO_GRADE = "Grade not found in model output"  # which versions before 0.3.245 scored as incorrect
_GRADE = re.compile(r"(?is).*(?<!\w)GRADE(?!\w)\W*?:\W*(\w+)")  # the last one
_GRADES = {"C", "I", "P", "N"}  # correct, incorrect, partial, no answer
_WORDS = {"correct": "C", "incorrect": "I", "partial": "P"}


class Vote(NamedTuple):
    """One judge's answer under one key of a sample's scores; `judge` is "" where the key itself is the judge."""

    item: Any
    slot: tuple[str, str]  # the key, and a part of an object of scores: what may be a question of its own
    judge: str
    label: Any
    left_out: str = ""


def claims(record: Record) -> bool:
    """True for a log."""
    return {"eval", "version"} <= record.keys() and ("samples" in record or "status" in record)


def open_log(path: Path) -> tuple[Record, Iterator[Record]]:
    """A log, which says of the run what it is, and its samples."""
    with reading(path):
        if not is_zip(path):
            log = next(records(path), {})
            return log, iter(objects(log, "samples", str(path)))
    header = next((found for name in (HEADER, START) for found in _entries(path, name)), None)
    if header is None:
        raise UnreadableFile(f"{path} is a zip without {HEADER}; expected a log of Inspect.")
    return header, _entries(path, "samples/")


def _entries(path: Path, begin: str, kind: type[Any] = dict) -> Iterator[Any]:
    """The JSON of the files of a zip whose names begin so; a DataError where it is of another kind."""
    with reading(path), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(begin):
                with open_member(archive, entry, path) as file:
                    found = json.load(file)
                if not isinstance(found, kind):
                    raise DataError(f"{path}: {entry.filename} holds {shown(found)}; expected an object: {{…}}.")
                yield found


def sample_name(sample: Record, epochs: Any, field_name: Any = None, where: str = "") -> Any:
    """How a sample is called: by its id, and by its epoch where there are several."""
    name = field(sample, field_name, ("id",), "item", where)
    epoch = sample.get("epoch", 1)
    return name if epochs in (1, None) and epoch == 1 else f"{name}_epoch_{epoch}"


def answers(path: Path, columns: Columns) -> Rows:
    """Yield the texts of every sample, its target, and one answer per judge."""
    header, samples = open_log(path)
    about = part(header, "eval", dict, str(path))
    declared = _declared(about, str(path))
    epochs = part(about, "config", dict, str(path)).get("epochs")
    if columns.annotator not in (None, "model", "scorer"):
        raise DataError(f"{path}: judges are called by scorer or by model; annotator={columns.annotator!r} is neither.")
    votes: list[Vote] = []
    models: dict[str, set[str]] = {}  # key → the models behind it
    seen: set[tuple[Any, Any]] = set()
    for sample in samples:
        where = f"{path}: sample {shown(sample.get('id'))}"
        item = sample_name(sample, epochs, columns.item, where)
        key = (str(sample.get("id")), str(sample.get("epoch", 1)))
        check_once(seen, key, f"{where}, epoch {key[1]},", "write the log")
        output = part(sample, "output", dict, where)
        yield Item(item, {"input": _text(sample.get("input")), "answer": _text(output.get("completion"))})
        target = sample.get("target")
        yield Target(item, target[0] if isinstance(target, list) and len(target) == 1 else target)
        found = list(_votes(sample, item, declared, models, where))
        votes += found or [Vote(item, ("", ""), "", None, "samples without a score")]
    there, expected = (
        {name for name, _ in seen},
        part(part(about, "dataset", dict, str(path)), "sample_ids", list, str(path)),
    )
    if missing := [name for name in expected if str(name) not in there]:
        said = f"Samples of the run that are not in the log: {len(missing):,}, such as {shown(missing[0])}."
        yield Note(said, loud=True)
    status = header.get("status")
    if status not in ("success", None):
        yield Note(f"The run has the status {shown(status)}.", loud=True)
    yield from _questions(votes, models, columns)


def _votes(
    sample: Record, item: Any, declared: dict[str, list[str]], models: dict[str, set[str]], where: str
) -> Iterator[Vote]:
    """One vote per judge of a sample."""
    called = _calls(sample, where)
    invalid = "scores of samples marked as invalid" if sample.get("invalidation") else ""
    scores = part(sample, "scores", dict, where)
    for key in scores:
        score = part(scores, key, dict, where)
        metadata = part(score, "metadata", dict, where)
        value = score.get("value")
        if key.startswith(OURS) and str(metadata.get("agent")).startswith(OURS):
            yield Vote(item, (key, ""), "", None, "scores by dissensus")
            continue
        if str(score.get("explanation")).startswith(NO_GRADE):
            value = None
        calls = called.get(key, [])
        behind = declared.get(key) or [model for model, _ in calls]
        panel = metadata.get("panel")
        if isinstance(panel, dict) and isinstance(panel.get("votes"), list):
            given = _panel(key, panel["votes"], declared.get(key), calls)
        elif isinstance(value, list):
            given = _panel(key, value, declared.get(key), calls)
        elif isinstance(value, dict) and value and set(value) <= set(behind):
            given = value
        elif len(set(behind)) > 1 and (graded := _grades(calls, value)):
            given = graded
        else:
            said = metadata.get("grading") if isinstance(metadata.get("grading"), list) else []
            graders = [str(one["model"]) for one in said if isinstance(one, dict) and one.get("model")]
            models.setdefault(key, set()).update(behind or graders)
            for name, one in value.items() if isinstance(value, dict) else [("", value)]:
                yield Vote(item, (key, str(name)), "", *_label(one, invalid))
            continue
        for judge, one in given.items():
            yield Vote(item, (key, ""), judge, *_label(one, invalid))


def _label(value: Any, invalid: str) -> tuple[Any, str]:
    """A value as a label, and why it is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None, "scores not given (no grade was found)"
    return str(value) if isinstance(value, bool) else value, invalid


def _panel(key: str, given: list[Any], declared: list[str] | None, calls: list[tuple[str, str]]) -> dict[str, Any]:
    """Judge → vote. The names are the models in the order in which the scorer has them, else numbers.

    Models that were called at once may be logged in another order than their votes: what each said goes first.
    """
    said = {} if len(declared or []) == len(given) else _grades(calls, None)
    if said and sorted(map(str, said.values())) == sorted(map(str, given)):
        return said
    for names in (declared or [], [model for model, _ in calls]):
        if len(names) == len(given):
            before = [names[:place].count(name) for place, name in enumerate(names)]
            unique = [f"{name} #{nth + 1}" if nth else name for name, nth in zip(names, before, strict=True)]
            return dict(zip(unique, given, strict=True))
    return {f"{key} #{place + 1}": one for place, one in enumerate(given)}


def _grades(calls: list[tuple[str, str]], value: Any) -> dict[str, Any]:
    """Model → its grade, None where it has none that is valid; nothing where no model gave one."""
    found: dict[str, Any] = {}
    for model, said in calls:
        match = _GRADE.match(said)
        word = match.group(1) if match else ""
        grade: Any = _WORDS.get(word.lower(), word.upper())
        if isinstance(value, int | float) and grade.isdecimal():
            found[model] = int(grade)
        else:
            found[model] = grade if grade in _GRADES or grade == value else None
    return found if any(grade is not None for grade in found.values()) else {}


def _calls(sample: Record, where: str) -> dict[str, list[tuple[str, str]]]:
    """Scorer → the models called under it, each with what it said."""
    spans: dict[str, Record] = {}
    found: dict[str, list[tuple[str, str]]] = {}
    for event in objects(sample, "events", where):
        if event.get("event") == "span_begin":
            spans[str(event.get("id"))] = event
        elif event.get("event") == "model" and not event.get("error"):
            span, steps = spans.get(str(event.get("span_id"))), 0
            while span is not None and span.get("type") != "scorer" and steps < len(spans):
                span, steps = spans.get(str(span.get("parent_id"))), steps + 1
            if span is not None and span.get("type") == "scorer":
                said = part(event, "output", dict, where).get("completion")
                found.setdefault(str(span.get("name")), []).append((str(event.get("model")), _text(said)))
    return found


def _declared(about: Record, path: str) -> dict[str, list[str]]:
    """Key in the scores → the models that the scorer was made with; a second scorer of a name gets a number."""
    found: dict[str, list[str]] = {}
    count: dict[str, int] = {}
    for scorer in objects(about, "scorers", path):
        name = str(scorer.get("name")).rpartition("/")[2]
        key = f"{name}{count[name]}" if name in count else name
        count[name] = count.get(name, 0) + 1
        given = part(scorer, "options", dict, path).get("model")
        names = [
            one.get("model") if isinstance(one, dict) else one
            for one in (given if isinstance(given, list) else [given])
        ]
        found[key] = [str(name) for name in names if name is not None]
    return found


def _questions(votes: list[Vote], models: dict[str, set[str]], columns: Columns) -> Rows:
    """The votes as answers. Scorers are judges of one question where they have the same name but for a number, or where
    they give the same labels (or numbers) and no model is behind two of them; a model behind two is asked two things.
    """
    values: dict[tuple[str, str], list[Any]] = {}
    for vote in votes:
        if not vote.judge and not vote.left_out:
            values.setdefault(vote.slot, []).append(vote.label)
    groups: list[list[tuple[str, str]]] = []
    for slot in values:
        home = next((group for group in groups if all(_same(slot, other, values, models) for other in group)), None)
        if home is None:
            groups.append([slot])
        else:
            home.append(slot)
    question = {slot: _name(group) for group in groups for slot in group}
    for group in groups:
        if len(group) > 1:
            named = (f"{key} ({', '.join(sorted(models[key]))})" if models.get(key) else key for key, _ in group)
            yield Note(f"Scorers are the judges of one question: {', '.join(named)}.")
    for vote in votes:
        key, _ = vote.slot
        who = vote.judge or key
        if not vote.judge and columns.annotator == "model" and len(models.get(key, ())) == 1:
            (who,) = models[key]
        number = isinstance(vote.label, int | float)
        asked = question.get(vote.slot, key)
        yield Answer(vote.item, who, vote.label, asked, NUMBER if number else LABEL, vote.left_out)


def _same(
    one: tuple[str, str], other: tuple[str, str], values: dict[tuple[str, str], list[Any]], models: dict[str, set[str]]
) -> bool:
    """True where two scorers are judges of one question."""
    numbers = [all(isinstance(value, int | float) for value in values[slot]) for slot in (one, other)]
    if numbers[0] != numbers[1] or one[1] != other[1] or one[0] == other[0]:
        return False
    if _base(one[0]) == _base(other[0]):
        return True
    behind = [models.get(key, set()) for key, _ in (one, other)]
    if behind[0] & behind[1]:
        return False
    said = [set(map(str, values[slot])) for slot in (one, other)]
    return all(behind) if numbers[0] else bool(said[0] & said[1]) or all(labels <= _GRADES for labels in said)


def _name(group: list[tuple[str, str]]) -> str:
    """What a question is called: by its scorer, by what its scorers have in common, or by its part of an object."""
    bases = {_base(key) for key, _ in group}
    key, name = group[0]
    common = key if len(group) == 1 else bases.pop() if len(bases) == 1 else ""
    return "/".join(part for part in (common, name) if part) or "score"


def _base(key: str) -> str:
    return key.rstrip("0123456789") or key


def _text(value: Any) -> str:
    """The text of a message, of its parts, or of the last message."""
    if isinstance(value, list):
        parts = [_text(one.get("text", one.get("content"))) if isinstance(one, dict) else _text(one) for one in value]
        return "\n".join(one for one in parts if one)
    return value if isinstance(value, str) else ""


def scored(labels: Labels) -> Record | Iterator[Record]:
    """The log, or precomputed scores; metrics and reductions of the log stay those of its own scorers."""
    if labels.source is None:
        return ({"id": item} | _together(given, labels.agent) for item, given in labels.named_items())
    said = labels.by_item()
    log, samples = open_log(labels.source)
    log["samples"] = list(samples)
    if is_zip(labels.source):
        for found in _entries(labels.source, "reductions.json", object):
            log["reductions"] = found
    epochs = log["eval"].get("config", {}).get("epochs")
    for sample in log["samples"]:
        if (given := said.get(str(sample_name(sample, epochs, labels.item)))) is not None:
            ours = {our_name(question): _score(one, labels.agent) for question, one in given.items()}
            sample["scores"] = (sample.get("scores") or {}) | ours
    return log


def _score(one: Given, agent: str) -> Record:
    metadata = {"confidence": one.confidence, "agent": agent}
    return {"value": one.label, "explanation": one.said_by(agent), "metadata": metadata}


def _together(given: dict[str | None, Given], agent: str) -> Record:
    """One score for all questions; its explanation is that of the least sure answer."""
    least = _score(min(given.values(), key=lambda one: one.confidence), agent)
    if None in given:
        return least
    return least | {
        "value": {question: one.label for question, one in given.items()},
        "metadata": {"confidence": {question: one.confidence for question, one in given.items()}, "agent": agent},
    }


add_export(
    "inspect", answers, claims=claims, summary="Inspect's logs: judges' grades", place=56,
    suffixes=(".eval", *JSON_SUFFIXES), words=("the sample's id", "the judge"),
)  # fmt: skip
add("inspect", "to-inspect.json", scored, "Inspect's log with scores", place=50)
