"""Read and write Inspect's logs (`.eval`, which is a zip, and `.json`) of samples scored by judges.

A scorer is either one judge, whose score is a value, or a panel of judges. The votes of a panel are read from the first
of these that exists: `metadata.panel.votes` of the score; a list or an object of judges as the value of the score; the
answers "GRADE: x" of the models that the scorer called. Scorers that ask different models the same question are judges
of one question, see `_group_into_questions`. An item is the id of a sample, with its epoch if there are several
("s1_epoch_2").

Our labels are written as an additional score of each sample; the log is JSON even if it was `.eval`. Without a log,
labels are written as precomputed scores, records of `id` and `value`, for `inspect score LOG --scorer
precomputed_scores -S scores=to-inspect.json`; the value contains the answers to several questions by name.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table import notes
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import (
    LABEL,
    NUMBER,
    ExportedAnswer,
    ExportedItem,
    ExportedTarget,
    ExportRows,
    make_export_reader,
)
from dissensus.table.io.files import is_zip, open_zip_member, report_read_errors
from dissensus.table.io.jsonl import (
    EXPECTED_OBJECT,
    Record,
    check_unique,
    get_entry,
    get_objects,
    read_records,
    require_field,
)
from dissensus.table.io.readers import JSON_SUFFIXES, readers
from dissensus.table.io.writers import (
    OWN_ANSWER_PREFIX,
    ItemLabel,
    LabelsToWrite,
    json_writer,
    own_answer_name,
    writers,
)

HEADER_FILE, START_FILE = "header.json", "_journal/start.json"  # The second file exists if the run did not finish.
NO_GRADE_EXPLANATION = "Grade not found in model output"  # Inspect before version 0.3.245 scored this as incorrect.
_GRADE_PATTERN = re.compile(r"(?is).*(?<!\w)GRADE(?!\w)\W*?:\W*(\w+)")  # This matches the last grade.
_GRADE_LETTERS = {"C", "I", "P", "N"}  # correct, incorrect, partial, no answer
_GRADE_WORDS = {"correct": "C", "incorrect": "I", "partial": "P"}


class JudgeVote(NamedTuple):
    """The answer of one judge to a sample; `judge` is "" if the scorer itself is the judge."""

    item: Any
    slot: tuple[str, str]  # name of the scorer, and key in an object of scores
    judge_name: str
    label: Any
    excluded: str = ""


def matches_record(record: Record) -> bool:
    """Return True if the record is a log of Inspect."""
    return {"eval", "version"} <= record.keys() and ("samples" in record or "status" in record)


def matches_zip(names: Sequence[str]) -> bool:
    """Return True if these are the files of a zipped log."""
    return HEADER_FILE in names or any(name.startswith("_journal/") for name in names)


def open_log(path: Path) -> tuple[Record, Iterator[Record]]:
    """Return the header of a log, which describes the run, and an iterator over its samples."""
    with report_read_errors(path):
        if not is_zip(path):
            log = next(read_records(path), {})
            return log, iter(get_objects(log, "samples", str(path)))
    header = next((record for name in (HEADER_FILE, START_FILE) for record in _read_zip_entries(path, name)), None)
    if header is None:
        raise errors.NoInspectHeader(path=path, header=HEADER_FILE)
    return header, _read_zip_entries(path, "samples/")


def _read_zip_entries(path: Path, begin: str, kind: type[Any] = dict) -> Iterator[Any]:
    """Yield the parsed JSON of the files in a zip whose names begin with `begin`; raise if one has another type."""
    with report_read_errors(path), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(begin):
                with open_zip_member(archive, entry, path) as file:
                    content = json.load(file)
                if not isinstance(content, kind):
                    raise errors.UnexpectedValue(
                        location=str(path), field=entry.filename, value=content, expected=EXPECTED_OBJECT
                    )
                yield content


def sample_name(sample: Record, epochs: Any, field_name: Any = None, where: str = "") -> Any:
    """Return the name of a sample, which is its id, with its epoch if there are several."""
    name = require_field(sample, field_name, ("id",), "item", where)
    epoch = sample.get("epoch", 1)
    return name if epochs in (1, None) and epoch == 1 else f"{name}_epoch_{epoch}"


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield the texts and the target of each sample, and one answer per judge."""
    header, samples = open_log(path)
    about = get_entry(header, "eval", dict, str(path))
    declared = _declared_models(about, str(path))
    epochs = get_entry(about, "config", dict, str(path)).get("epochs")
    if columns.annotator not in (None, "model", "scorer"):
        raise errors.UnexpectedValue(
            location=str(path), field="annotator", value=columns.annotator, expected="'scorer' or 'model'"
        )
    votes: list[JudgeVote] = []
    models: dict[str, set[str]] = {}  # name of the scorer → its models
    sample_keys: set[tuple[Any, Any]] = set()
    for sample in samples:
        where = f"{path}: sample {quote_name(sample.get('id'))}"
        item = sample_name(sample, epochs, columns.item, where)
        key = (str(sample.get("id")), str(sample.get("epoch", 1)))
        check_unique(sample_keys, key, f"{where}, epoch {key[1]},", "write the log")
        output = get_entry(sample, "output", dict, where)
        yield ExportedItem(
            item, {"input": _message_text(sample.get("input")), "answer": _message_text(output.get("completion"))}
        )
        target = sample.get("target")
        yield ExportedTarget(item, target[0] if isinstance(target, list) and len(target) == 1 else target)
        given = list(_read_votes(sample, item, declared, models, where))
        votes += given or [JudgeVote(item, ("", ""), "", None, "samples without a score")]
    sample_ids = {name for name, _ in sample_keys}
    expected = get_entry(get_entry(about, "dataset", dict, str(path)), "sample_ids", list, str(path))
    if missing := [name for name in expected if str(name) not in sample_ids]:
        yield notes.SamplesMissing(n=len(missing), sample=missing[0])
    status = header.get("status")
    if status not in ("success", None):
        yield notes.RunNotSuccessful(status=status)
    yield from _group_into_questions(votes, models, columns)


def _read_votes(
    sample: Record, item: Any, declared: dict[str, list[str]], models: dict[str, set[str]], where: str
) -> Iterator[JudgeVote]:
    """Yield one vote per judge of a sample."""
    called = _find_model_calls(sample, where)
    invalid = "scores of samples marked as invalid" if sample.get("invalidation") else ""
    scores = get_entry(sample, "scores", dict, where)
    for key in scores:
        score = get_entry(scores, key, dict, where)
        metadata = get_entry(score, "metadata", dict, where)
        value = score.get("value")
        if key.startswith(OWN_ANSWER_PREFIX) and str(metadata.get("agent")).startswith(OWN_ANSWER_PREFIX):
            yield JudgeVote(item, (key, ""), "", None, "scores by dissensus")
            continue
        if str(score.get("explanation")).startswith(NO_GRADE_EXPLANATION):
            value = None
        calls = called.get(key, [])
        behind = declared.get(key) or [model for model, _ in calls]
        panel = metadata.get("panel")
        if isinstance(panel, dict) and isinstance(panel.get("votes"), list):
            given = _panel_votes(key, panel["votes"], declared.get(key), calls)
        elif isinstance(value, list):
            given = _panel_votes(key, value, declared.get(key), calls)
        elif isinstance(value, dict) and value and set(value) <= set(behind):
            given = value
        elif len(set(behind)) > 1 and (graded := _parse_grades(calls, value)):
            given = graded
        else:
            grading = metadata.get("grading") if isinstance(metadata.get("grading"), list) else []
            graders = [str(grade["model"]) for grade in grading if isinstance(grade, dict) and grade.get("model")]
            models.setdefault(key, set()).update(behind or graders)
            for name, label in value.items() if isinstance(value, dict) else [("", value)]:
                yield JudgeVote(item, (key, str(name)), "", *_parse_score(label, invalid))
            continue
        for judge, label in given.items():
            yield JudgeVote(item, (key, ""), judge, *_parse_score(label, invalid))


def _parse_score(value: Any, invalid: str) -> tuple[Any, str]:
    """Return a score as a label, and the reason why it is excluded ("" if it is used)."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None, "scores not given (no grade was found)"
    return str(value) if isinstance(value, bool) else value, invalid


def _panel_votes(
    key: str, given: list[Any], declared: list[str] | None, calls: list[tuple[str, str]]
) -> dict[str, Any]:
    """Return judge → vote; judges are named by their models, or else by numbers.

    Models that are called concurrently may be logged in another order than their votes, so their own answers take
    precedence.
    """
    grades = {} if len(declared or []) == len(given) else _parse_grades(calls, None)
    if grades and sorted(map(str, grades.values())) == sorted(map(str, given)):
        return grades
    for names in (declared or [], [model for model, _ in calls]):
        if len(names) == len(given):
            before = [names[:place].count(name) for place, name in enumerate(names)]
            unique = [f"{name} #{nth + 1}" if nth else name for name, nth in zip(names, before, strict=True)]
            return dict(zip(unique, given, strict=True))
    return {f"{key} #{place}": vote for place, vote in enumerate(given, start=1)}


def _parse_grades(calls: list[tuple[str, str]], value: Any) -> dict[str, Any]:
    """Return model → grade (None if it is invalid), or an empty dict if no model gave a grade."""
    grades: dict[str, Any] = {}
    for model, text in calls:
        match = _GRADE_PATTERN.match(text)
        word = match.group(1) if match else ""
        grade: Any = _GRADE_WORDS.get(word.lower(), word.upper())
        if isinstance(value, int | float) and grade.isdecimal():
            grades[model] = int(grade)
        else:
            grades[model] = grade if grade in _GRADE_LETTERS or grade == value else None
    return grades if any(grade is not None for grade in grades.values()) else {}


def _find_model_calls(sample: Record, where: str) -> dict[str, list[tuple[str, str]]]:
    """Return scorer → list of (model, answer) of the models that it called."""
    spans: dict[str, Record] = {}
    calls: dict[str, list[tuple[str, str]]] = {}
    for event in get_objects(sample, "events", where):
        if event.get("event") == "span_begin":
            spans[str(event.get("id"))] = event
        elif event.get("event") == "model" and not event.get("error"):
            span, steps = spans.get(str(event.get("span_id"))), 0
            while span is not None and span.get("type") != "scorer" and steps < len(spans):
                span, steps = spans.get(str(span.get("parent_id"))), steps + 1
            if span is not None and span.get("type") == "scorer":
                text = _message_text(get_entry(event, "output", dict, where).get("completion"))
                calls.setdefault(str(span.get("name")), []).append((str(event.get("model")), text))
    return calls


def _declared_models(about: Record, path: str) -> dict[str, list[str]]:
    """Return scorer → its declared models; a second scorer with the same name gets a number."""
    declared: dict[str, list[str]] = {}
    count: dict[str, int] = {}
    for scorer in get_objects(about, "scorers", path):
        name = str(scorer.get("name")).rpartition("/")[2]
        key = f"{name}{count[name]}" if name in count else name
        count[name] = count.get(name, 0) + 1
        model = get_entry(scorer, "options", dict, path).get("model")
        models = model if isinstance(model, list) else [model]
        names = [model.get("model") if isinstance(model, dict) else model for model in models]
        declared[key] = [str(name) for name in names if name is not None]
    return declared


def _group_into_questions(votes: list[JudgeVote], models: dict[str, set[str]], columns: ColumnNames) -> ExportRows:
    """Yield the votes as answers to questions.

    Scorers are judges of one question if their names differ only by a number, or if they give the same labels (or
    numbers) and use different models. A model that is used by two scorers answers two questions.
    """
    values: dict[tuple[str, str], list[Any]] = {}
    for vote in votes:
        if not vote.judge_name and not vote.excluded:
            values.setdefault(vote.slot, []).append(vote.label)
    groups: list[list[tuple[str, str]]] = []
    for slot in values:
        home = next(
            (group for group in groups if all(_are_same_question(slot, other, values, models) for other in group)), None
        )
        if home is None:
            groups.append([slot])
        else:
            home.append(slot)
    question = {slot: _question_name(group) for group in groups for slot in group}
    for group in groups:
        if len(group) > 1:
            named = (f"{key} ({', '.join(sorted(models[key]))})" if models.get(key) else key for key, _ in group)
            yield notes.ScorersReadAsJudges(scorers=", ".join(named))
    for vote in votes:
        key, _ = vote.slot
        judge = vote.judge_name or key
        if not vote.judge_name and columns.annotator == "model" and len(models.get(key, ())) == 1:
            (judge,) = models[key]
        number = isinstance(vote.label, int | float)
        asked = question.get(vote.slot, key)
        yield ExportedAnswer(vote.item, judge, vote.label, asked, NUMBER if number else LABEL, vote.excluded)


def _are_same_question(
    slot_a: tuple[str, str],
    slot_b: tuple[str, str],
    values: dict[tuple[str, str], list[Any]],
    models: dict[str, set[str]],
) -> bool:
    """Return True if two scorers are judges of the same question."""
    numbers = [all(isinstance(value, int | float) for value in values[slot]) for slot in (slot_a, slot_b)]
    if numbers[0] != numbers[1] or slot_a[1] != slot_b[1] or slot_a[0] == slot_b[0]:
        return False
    if _strip_number(slot_a[0]) == _strip_number(slot_b[0]):
        return True
    behind = [models.get(key, set()) for key, _ in (slot_a, slot_b)]
    if behind[0] & behind[1]:
        return False
    labels = [set(map(str, values[slot])) for slot in (slot_a, slot_b)]
    return all(behind) if numbers[0] else bool(labels[0] & labels[1]) or all(own <= _GRADE_LETTERS for own in labels)


def _question_name(group: list[tuple[str, str]]) -> str:
    """Return the name of a question: the common name of its scorers, and the key in an object of scores."""
    bases = {_strip_number(key) for key, _ in group}
    key, name = group[0]
    common = key if len(group) == 1 else bases.pop() if len(bases) == 1 else ""
    return "/".join(word for word in (common, name) if word) or "score"


def _strip_number(key: str) -> str:
    return key.rstrip("0123456789") or key


def _message_text(value: Any) -> str:
    """Return the text of a message, or of a list of messages or parts."""
    if isinstance(value, list):
        parts = [
            _message_text(part.get("text", part.get("content")) if isinstance(part, dict) else part) for part in value
        ]
        return "\n".join(filter(None, parts))
    return value if isinstance(value, str) else ""


def add_scores(labels: LabelsToWrite) -> Record | Iterator[Record]:
    """Return the log with our scores, or precomputed scores without a log; metrics of the log do not change."""
    if labels.source is None:
        return ({"id": item} | _make_joint_score(given, labels.agent) for item, given in labels.iterate_items())
    by_item = labels.labels_by_item()
    log, samples = open_log(labels.source)
    log["samples"] = list(samples)
    if is_zip(labels.source):
        for reductions in _read_zip_entries(labels.source, "reductions.json", object):
            log["reductions"] = reductions
    epochs = log["eval"].get("config", {}).get("epochs")
    for sample in log["samples"]:
        if (given := by_item.get(str(sample_name(sample, epochs, labels.item)))) is not None:
            ours = {own_answer_name(question): _make_score(answer, labels.agent) for question, answer in given.items()}
            sample["scores"] = (sample.get("scores") or {}) | ours
    return log


def _make_score(answer: ItemLabel, agent: str) -> Record:
    metadata = {"confidence": answer.confidence, "agent": agent}
    return {"value": answer.label, "explanation": answer.describe_agent(agent), "metadata": metadata}


def _make_joint_score(given: dict[str | None, ItemLabel], agent: str) -> Record:
    """Return one score for all questions, with the explanation of the least confident answer."""
    least = _make_score(min(given.values(), key=lambda answer: answer.confidence), agent)
    if None in given:
        return least
    confidence = {question: answer.confidence for question, answer in given.items()}
    return least | {
        "value": {question: answer.label for question, answer in given.items()},
        "metadata": {"confidence": confidence, "agent": agent},
    }


readers.register("inspect", summary="Inspect's logs: judges' grades", place=56)(
    make_export_reader(
        read_answers, matches_record, suffixes=(".eval", *JSON_SUFFIXES), words=("the sample's id", "the judge"),
        matches_zip=matches_zip,
    )
)  # fmt: skip
writers.register("inspect", summary="Inspect's log with scores", place=50)(json_writer("to-inspect.json", add_scores))
