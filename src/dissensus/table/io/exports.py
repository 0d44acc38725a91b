"""What the exports of annotation tools have in common: answers to one or several questions, some of them not used.

A tool is one file with two functions: `answers` yields an `Answer` for every answer in the file, used or not, an `Item`
for every text, a `Target` for the expected answer in a log, and a `Note` for the import report; `claims` recognises the
tool's records. Which answers count is decided here, equally for all tools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dissensus.messages import ParameterName, quote_name
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import Columns, check_names
from dissensus.table.import_report import ImportReport, join_lines
from dissensus.table.io.build import Golds, Taken
from dissensus.table.io.files import reading
from dissensus.table.io.readers import JSON_SUFFIXES, Reader
from dissensus.table.kinds import CONTEXT_SEPARATOR, PAIR_SEPARATOR, name_pair_items, name_set
from dissensus.table.kinds import EMPTY_SET as EMPTY_SET
from dissensus.table.names import to_column
from dissensus.table.notes import ComparisonsAreLabels, Note, ReadByLabel, SpansOverlap, TargetsNotGold
from dissensus.table.spans import assign_span_layers, convert_spans_to_tags

MIN_SHARE_OF_TARGETS = (
    0.9  # share that are also labels, before targets are taken for gold; a letter may be one by chance
)
MAX_REASON_LENGTH = 200  # characters
MAX_TEXT_FIELDS_NAMED = 3
LABEL, RATING, NUMBER, SPANS, COMPARED = "label", "rating", "number", "spans", "comparisons"
"""Kinds of answers that are read: one label or a list of ticked ones; a grade; a score; a list of (start, end, label)
in characters; a list of (left, right, which is better). All others are only counted."""
_RATED = (RATING, NUMBER)
_LABELS = (LABEL, *_RATED)
_TABLES = {SPANS: "spans", COMPARED: "pairs"}  # kinds of answers that make tables of their own kind
_READABLE = (*_LABELS, *_TABLES)
NO_CHOICE = "answers without a choice"
NOTHING = "annotations without an answer"  # excluded if labels are read; if spans are read, the item has none


class Answer(NamedTuple):
    """One answer. If the label is None or [], the item and the annotator stay, the row does not."""

    item: Any
    annotator: Any
    label: Any
    question: str = ""
    kind: str = LABEL  # or RATING, NUMBER, SPANS, COMPARED, or the plural noun for other answers: "texts"
    excluded: str = ""  # the reason why this answer does not count, as a plural: "answers skipped"
    gold: bool = False  # True if it is known to be right; then it is not a vote
    seen: bool = False  # True for a comparison whose left and right are those that the annotator saw
    at: Any = None  # the time of the answer, as in the export


class Item(NamedTuple):
    """The fields of an item in an export besides answers: its text, its own id."""

    item: Any
    fields: dict[str, Any]
    question: str = ""


class Target(NamedTuple):
    """The expected answer of an item: a gold label if it is one of the labels given; None without one."""

    item: Any
    value: Any
    question: str = ""


Rows = Iterator[Answer | Item | Target | Note]


def export_reader(
    answers: Callable[[Path, Columns], Rows],
    claims: Callable[[dict[str, Any]], bool],
    *,
    suffixes: tuple[str, ...] = JSON_SUFFIXES,
    words: tuple[str, str] = ("id", "who answered"),
    own_items: bool = False,
    aside: Callable[[str], bool] = lambda question: False,
    claims_zip: Callable[[Sequence[str]], bool] | None = None,
    companions: Callable[[Sequence[str]], Iterable[str]] | None = None,
) -> Reader:
    """Make the reader of an annotation tool's exports; `words` describe what names its items and annotators.

    `own_items`: each question numbers its own items. `aside`: questions that repeat another one; they are read on
    request.
    """

    def answers_of(path: Path, columns: Columns) -> Rows:
        with reading(path):  # a record without an entry that the reader relies on is one error
            yield from answers(path, columns)

    def read_items(path: Path, columns: Columns | None) -> pa.Table:
        return _item_table(answers_of(path, columns or Columns()), path)

    def collect(paths: Sequence[Path], columns: Columns, ticks: str | None, kind: str | None = None) -> Taken:
        rows = answers_of(paths[0], columns)
        if len(paths) > 1:
            rows = _joined({path: answers_of(path, columns) for path in paths}, own_items)
        path = paths[0] if len(paths) == 1 else paths[0].parent
        return _collect(rows, Request(path, columns, ticks, kind, words, aside, {}))

    return Reader(read_items, suffixes, claims=claims, collect=collect, claims_zip=claims_zip, companions=companions)


def _joined(files: Mapping[Path, Rows], own_items: bool) -> Rows:
    """Yield the rows of several files: an answer in two files counts once, and an item is the same in all files."""
    rows = [
        (path, row)
        for path, found in files.items()
        for row in found
        if not (isinstance(row, Note) and row.single_file_only)
    ]
    apart = own_items and len({row.question for _, row in rows if not isinstance(row, Note)}) > 1
    texts: dict[str, tuple[str, Path]] = {}
    answered: dict[str, Path] = {}
    for path, row in rows:
        if isinstance(row, Note):
            yield row
            continue
        row = row._replace(item=f"{row.question}/{row.item}") if apart else row
        if isinstance(row, Item):
            text, other = texts.setdefault(repr(row.item), (repr(row.fields), path))
            if text != repr(row.fields):
                raise errors.DifferentTexts(item=row.item, file=path.name, other_file=other.name)
        elif isinstance(row, Answer) and not row.excluded:
            if answered.setdefault(repr(row._replace(at=None)), path) != path:
                row = row._replace(excluded="answers that another file has too")
        yield row


class Request(NamedTuple):
    """The caller's choices, the tool's words, and the targets of the whole file."""

    path: Path
    columns: Columns
    ticks: str | None
    kind: str | None
    words: tuple[str, str]
    aside: Callable[[str], bool]
    targets: dict[Any, Any]  # item → expected answer

    def roles(self, questions: Iterable[str], item: str = "{}", unnamed: str = "the answers") -> dict[str, str]:
        """Describe what is taken for item, annotator and label."""
        given = zip((self.columns.item, self.columns.annotator), self.words, strict=True)
        name, annotator = (usual if named is None else f"'{named}'" for named, usual in given)
        label = ", ".join(f"'{question}'" for question in questions if question) or unnamed
        return {"item": item.format(name), "annotator": annotator, "label": label}


def _collect(rows: Rows, request: Request) -> Taken:
    """Sort out which answers count; the others are counted by reason."""
    reading = ImportReport(unit="answers")
    given: list[Answer] = []
    for row in rows:
        if isinstance(row, Note):
            reading.add_note(row)
            continue
        _check_names(row, request.path)
        if isinstance(row, Item):
            reading.item_fields[row.item] = row.fields
        elif isinstance(row, Target):
            if isinstance(row.value, str | int | float) and str(row.value).strip():
                request.targets[row.item] = row.value
        else:
            row = _compared(row, request.kind) if row.kind == COMPARED and not row.excluded else row
            is_label = row.kind in _LABELS and not row.excluded
            given.append(row._replace(label=_labels(row, request.path)) if is_label else row)
    if any(answer.at is not None for answer in given):
        reading.label_times = tuple(map(list, zip(*((a.item, a.annotator, a.at) for a in given), strict=True)))  # type: ignore[assignment]
    if request.kind is None:
        given = _unranked(given, request.columns.label, reading)
    given = _layered(given, reading)
    own: dict[str, list[Answer]] = {}  # readable question → all its answers
    if request.columns.label is request.ticks is request.kind is None:
        used = [answer for answer in given if _is_used(answer) and answer.kind in _READABLE]
        own = {answer.question: [] for answer in used if not request.aside(answer.question)}
        for answer in given:
            if answer.question in own:
                own[answer.question].append(answer)
    if len({_table_kind(answers) for answers in own.values()}) < 2:
        return _collect_one(given, reading, request)
    reading.columns = request.roles(own)
    taken = Taken({}, reading)
    rest = [answer for answer in given if answer.question not in own]
    _sort_out(rest, reading, lambda answer: False, quiet=NOTHING)
    reading.n_rows = len(given)
    for question, answers in own.items():
        about = ImportReport(unit="answers", item_fields=reading.item_fields, label_times=reading.label_times)
        own_request = request._replace(columns=replace(request.columns, label=question))
        taken.parts[question] = _collect_one(answers, about, own_request, given)
        reading.unused_counts += about.unused_counts
        reading.advice_by_reason |= about.advice_by_reason
        for note in about.notes:
            reading.add_note(note)
        reading.columns |= {role: word for role, word in about.columns.items() if role in ("text", "gold")}
        reading.n_rows += about.n_rows - len(answers)  # each span or comparison is an answer
        reading.warn_about_unused |= about.warn_about_unused
    return taken


def _sort_out(
    given: list[Answer], reading: ImportReport, is_read: Callable[[Answer], bool], quiet: str = "", known: str = ""
) -> tuple[list[Answer], list[Answer]]:
    """Return the answers that count, and the gold ones (`known` describes these); count the others by reason.

    Excluded answers of annotators make the report loud, except for the reason `quiet`.
    """
    used: list[Answer] = []
    gold: list[Answer] = []
    for answer in given:
        reason, how = answer.excluded, None
        if not reason and not answer.label and (answer.kind in _LABELS or is_read(answer)):
            reason = NO_CHOICE
        elif not reason and not is_read(answer):
            reason, how = _not_read(answer.question, answer.kind)
        elif not reason and answer.gold:
            reason = f"answers marked as right ({known})"
            gold.append(answer)
        if reason:
            reading.exclude(_short(reason), advice=how)
            reading.warn_about_unused |= answer.annotator != "" and not answer.gold and reason != quiet
        else:
            used.append(answer)
    return used, gold


def _is_used(answer: Answer) -> bool:
    return bool(answer.label) and not answer.excluded


def _check_names(row: Answer | Item | Target, path: Path) -> None:
    for role, name in (("item", row.item), ("annotator", getattr(row, "annotator", ""))):
        if not isinstance(name, str | int | float):
            raise errors.UnusableName(path=path, role=role, name=name)


def _table_kind(answers: list[Answer]) -> str | None:
    """Return the kind of table that the answers to one question make, or None if the labels decide."""
    used = list(filter(_is_used, answers))
    kinds = {answer.kind for answer in used}
    if own := [table for kind, table in _TABLES.items() if kind in kinds]:
        return own[0]
    if kinds == {RATING}:
        return "graded"
    if kinds == {NUMBER}:
        return "numbers" if {label for answer in used for label in answer.label} - {0, 1} else None
    return "sets" if any(len(answer.label) > 1 for answer in used) else None


def _collect_one(
    given: list[Answer], reading: ImportReport, request: Request, everything: list[Answer] | None = None
) -> Taken:
    """Take the answers that make one table, or several of one kind; `everything`: answers to other questions too."""
    path, ticks = request.path, request.ticks
    reading.n_rows = len(given)
    answered = [answer for answer in given if not answer.excluded]
    if marked := _questions_alone(answered, SPANS, (LABEL, RATING, COMPARED), request):
        return _collect_spans(given, marked, reading, request, everything or given)
    if request.kind == SPANS and not any(answer.kind == SPANS for answer in answered):
        raise errors.NoSpans(path=path)
    if ranked := _questions_alone(answered, COMPARED, _LABELS, request):
        return _collect_compared(given, ranked, reading, request)
    chosen = _choose_questions(answered, request)
    if request.kind in (None, "sets") and ticks is None:  # an answer without ticks to a question with sets is a set
        sets = {answer.question for answer in answered if answer.kind == LABEL and len(answer.label or ()) > 1}
        for n, answer in enumerate(given):
            if answer.question in sets and answer.label == [] and answer.kind == LABEL and answer.annotator != "":
                given[n] = answer._replace(label=[EMPTY_SET])
    known = "known labels, no votes"
    used, gold = _sort_out(given, reading, lambda answer: (answer.question, answer.kind) in chosen, known=known)
    if not used:
        raise errors.NothingUsable(what="answer", report=reading.describe_unused())
    several = any(len(answer.label) > 1 for answer in used)
    columns: dict[str, list[Any]] = {
        "item": [answer.item for answer in used],
        "annotator": [str(answer.annotator) for answer in used],
        "label": [answer.label if several else answer.label[0] for answer in used],
    }
    questions = sorted({answer.question for answer in used})
    if len(questions) > 1:
        columns["question"] = [answer.question for answer in used]
    arrays = {
        role: pa.array(values) if several and role == "label" else to_column(values, role)
        for role, values in columns.items()
    }
    reading.columns = request.roles(questions)
    if texts := list(dict.fromkeys(key for fields in reading.item_fields.values() for key in fields)):
        reading.columns["text"] = ", ".join(f"'{key}'" for key in texts[:MAX_TEXT_FIELDS_NAMED])
    if gold:
        reading.columns["gold"] = f"{len(gold):,} answers marked as right"
    if ticks and several and any(len(answer.label) > 1 for answer in gold):
        raise errors.SeveralKnownLabels(path=path)
    golds: Golds = {}
    for answer in gold:
        items, labels = golds.setdefault(answer.question, ([], []))
        items.append(answer.item)
        labels.append(name_set(answer.label) if several else answer.label[0])
    voters = (str(answer.annotator) for answer in given if answer.annotator != "" and not answer.gold)
    return Taken(
        arrays,
        reading,
        list(dict.fromkeys(answer.item for answer in given)),
        list(dict.fromkeys(voters)),
        _table_kind(used) if not several else None,
        golds or (_golds_of_targets(request.targets, used, reading) if request.targets else {}),
    )


def _golds_of_targets(targets: dict[Any, Any], used: list[Answer], reading: ImportReport) -> Golds:
    """Return question → items and gold labels, if nearly all targets are among its labels; else add a note."""
    golds = {}
    for question in sorted({answer.question for answer in used}):
        answered = [answer for answer in used if answer.question == question]
        classes = {str(label): label for answer in answered for label in answer.label}
        expected = {answer.item: targets[answer.item] for answer in answered if answer.item in targets}
        known = {item: classes[str(value)] for item, value in expected.items() if str(value) in classes}
        if len(set(map(str, known.values()))) > 1 and len(known) >= MIN_SHARE_OF_TARGETS * len(expected):
            golds[question] = (list(known), list(known.values()))
            reading.columns["gold"] = f"{len(known):,} targets, which are among the labels"
    if not golds:
        reading.add_note(TargetsNotGold(target=next(iter(targets.values()))))
    return golds


def _questions_alone(answers: list[Answer], kind: str, others: tuple[str, ...], request: Request) -> list[str]:
    """Return the questions whose spans or comparisons are read: those chosen, or all if nothing else can be read."""
    label = request.columns.label
    there = sorted({answer.question for answer in answers if answer.kind == kind and label in (None, answer.question)})
    alone = not any(answer.kind in others and answer.label for answer in answers)
    return there if label is not None or request.kind == _TABLES[kind] or alone else []


def _layered(given: list[Answer], reading: ImportReport) -> list[Answer]:
    """Divide overlapping spans of one annotator among several questions, see `layers_of`."""
    pieces: dict[int, list[Answer]] = {}
    marked = [n for n, answer in enumerate(given) if answer.kind == SPANS and not answer.excluded]
    for question in sorted({given[n].question for n in marked}):
        own = [n for n in marked if given[n].question == question]
        spans = [(n, span) for n in own for span in given[n].label]
        layers = assign_span_layers((given[n].item, (given[n].annotator, given[n].gold), *span) for n, span in spans)
        if not any(layers):
            continue
        names = {layer: ", ".join(filter(None, (question or "spans", layer))) for layer in sorted(set(layers))}
        split: dict[int, dict[str, list[Any]]] = {n: {} if given[n].label else {"": []} for n in own}
        for (n, span), layer in zip(spans, layers, strict=True):
            split[n].setdefault(layer, []).append(span)
        for n, parts in split.items():
            pieces[n] = [given[n]._replace(question=names[layer], label=part) for layer, part in parts.items()]
        reading.add_note(SpansOverlap(question=names[""], names=tuple(names.values())))
    return [piece for n, answer in enumerate(given) for piece in pieces.get(n, [answer])]


def _compared(answer: Answer, kind: str | None) -> Answer:
    """Return an answer that compares; as a label, left or right, if the caller reads classes."""
    if not answer.label:
        return answer._replace(excluded="comparisons without two things and which is better")
    if kind == "classes" and answer.seen:
        return answer._replace(kind=LABEL, label=answer.label[0][2])
    things = {thing for left, right, _ in answer.label for thing in (left, right)}
    if any(not thing.strip() or PAIR_SEPARATOR in thing or CONTEXT_SEPARATOR in thing for thing in things):
        return answer._replace(
            excluded=f"comparisons of things without a name, or with '{PAIR_SEPARATOR}' or '{CONTEXT_SEPARATOR}' in it"
        )
    return answer


def _unranked(given: list[Answer], label: str | None, reading: ImportReport) -> list[Answer]:
    """Exclude rankings of alternatives that no two items share; choices of two such alternatives become labels."""
    compared = [(n, answer) for n, answer in enumerate(given) if answer.kind == COMPARED and not answer.excluded]
    items: dict[tuple[str, Any], set[Any]] = {}  # question, and an alternative or None for all → its items
    for _, answer in compared:
        for thing in {None, *(thing for left, right, _ in answer.label for thing in (left, right))}:
            items.setdefault((answer.question, thing), set()).add(answer.item)
    several = [key for key, own in items.items() if len(own) > 1]
    shared = {question for question, thing in several if thing is not None}
    alone = {question for question, thing in several if thing is None} - shared
    for n, answer in compared:
        if answer.question not in alone:
            continue
        if answer.seen:
            given[n] = answer._replace(kind=LABEL, label=[answer.label[0][2]])
            reading.add_note(ComparisonsAreLabels(question=answer.question))
        elif answer.question != label:
            reason, how = _not_read(answer.question, COMPARED)
            reason = _short(f"comparisons of other things in every item: {reason}")
            given[n] = answer._replace(excluded=reason)
            reading.advice_by_reason |= {} if how is None else {reason: how}
    return given


def _collect_compared(given: list[Answer], questions: list[str], reading: ImportReport, request: Request) -> Taken:
    """Take the comparisons of some questions, a row each; the item of an export is their context."""

    def is_read(answer: Answer) -> bool:
        return answer.kind == COMPARED and answer.question in questions

    used, _ = _sort_out(given, reading, is_read, NOTHING, "comparisons, not used")
    if not used:
        raise errors.NothingUsable(what="comparison", report=reading.describe_unused())
    rows = [(*pair, answer) for answer in used for pair in answer.label]
    reading.n_rows += len(rows) - len(used)  # each comparison is an answer
    left, right, better, answers = map(list, zip(*rows, strict=True))
    columns = {
        "item": name_pair_items(left, right, [str(answer.item) for answer in answers]),
        "annotator": [str(answer.annotator) for answer in answers],
        "label": better,
    }
    if len({answer.question for answer in used}) > 1:
        columns["question"] = [answer.question for answer in answers]
    reading.columns = request.roles(questions, "two things in {}")
    return Taken(columns, reading, kind="pairs")


def _collect_spans(
    given: list[Answer], questions: list[str], reading: ImportReport, request: Request, everything: list[Answer]
) -> Taken:
    """Take the spans of some questions as tags, see `table.spans`; an annotator with any answer has read the item."""
    readings = {
        (str(answer.item), str(answer.annotator)): None
        for answer in everything
        if answer.annotator != "" and not answer.gold and answer.excluded in ("", NOTHING)
    }
    is_gold = (answer for answer in everything if answer.kind == SPANS and answer.gold and not answer.excluded)
    known = [(str(answer.item), None) for answer in is_gold]
    spans: dict[str, list[Any]] = {question: [] for question in questions}
    lengths: dict[str, int] = {}  # item → the end of its last span
    for answer in given:
        if answer.excluded:
            if answer.excluded != NOTHING:
                reading.exclude(answer.excluded)
                reading.warn_about_unused |= answer.annotator != ""
        elif answer.kind == SPANS and answer.question in spans:
            item, who = str(answer.item), None if answer.gold else str(answer.annotator)
            spans[answer.question] += [(item, who, *span) for span in answer.label]
            lengths[item] = max([lengths.get(item, 0), *(end for _, end, _ in answer.label)])
            reading.n_rows += max(len(answer.label) - 1, 0)  # each span is an answer
            if answer.gold:
                reading.exclude("answers marked as right (known spans, no votes)", max(len(answer.label), 1))
        elif answer.label:
            reason, how = _not_read(answer.question, answer.kind)
            reading.exclude(_short(reason), advice=how)
    texts: dict[str, str] = {}  # item → the text of its spans: `text`, or the first field that is long enough
    for name, fields in reading.item_fields.items():
        for key in sorted(fields, key=lambda key: key != "text"):
            if isinstance(text := fields[key], str) and len(text) >= max(lengths.get(str(name), 0), 1):
                texts.setdefault(str(name), text)
    tags = convert_spans_to_tags(spans, [*readings, *known], texts)
    reading.exclude("spans that overlap another one of the same annotator", tags.n_overlapping)
    reading.exclude("spans without a character", tags.n_empty)
    votes = tags.annotator != np.array(None)
    columns = {role: getattr(tags, role)[votes].tolist() for role in ("item", "annotator", "label", "question")}
    golds: Golds = {}
    for question in questions if known else ():
        own = ~votes & (tags.question == question)
        golds[question] = tags.item[own].tolist(), tags.label[own].tolist()
    if len(questions) == 1:
        del columns["question"]
    reading.columns = request.roles(questions, "places in {}", "the spans")
    return Taken(columns, reading, kind="spans", golds=golds)


def _choose_questions(answers: list[Answer], request: Request) -> set[tuple[str, str]]:
    """Return the questions and kinds of answers that are read: labels, or ratings if there are none."""
    path, label = request.path, request.columns.label
    counted = (answer for answer in answers if answer.kind not in _LABELS or answer.label)
    kinds = Counter((answer.question, answer.kind) for answer in counted)
    there = sorted({question for question, _ in kinds})
    if label is not None and label not in there:
        raise errors.NoSuchQuestion(path=path, label=label, questions=tuple(there))
    wanted = {key: count for key, count in kinds.items() if label in (None, key[0])}
    single, rated = ({key for key in wanted if key[1] in kinds_read} for kinds_read in ((LABEL,), _RATED))
    if kinds and not single and not rated:
        contents = ", ".join(f"{count:,} {kind}" for (_, kind), count in wanted.items())
        raise errors.NoReadableAnswers(
            path=path, contents=contents if label is None else f"{quote_name(label)}: {contents}"
        )
    if request.ticks == "questions" and len(single) > 1:
        names = tuple(sorted(question for question, _ in single))
        raise errors.OneQuestionNeeded(parameter=ParameterName("ticks='questions'"), questions=names)
    return single or rated


def _labels(answer: Answer, path: Path) -> list[Any]:
    """Return the distinct labels of an answer; empty texts are missing."""
    given = answer.label if isinstance(answer.label, list) else [answer.label]
    for label in given:
        if not (label is None or isinstance(label, str | int | float)):
            where = f"{path}: item {quote_name(answer.item)}"
            raise errors.UnexpectedValue(where=where, field="label", value=label, expected="text or a number")
    return list(dict.fromkeys(label for label in given if label is not None and str(label).strip()))


def _item_table(rows: Rows, path: Path) -> pa.Table:
    """Return one row per item: its name, the fields that are text or numbers, and its gold label if there is one."""
    about: dict[Any, dict[str, Any]] = {}
    for row in rows:
        if isinstance(row, Note):
            continue
        _check_names(row, path)
        fields = about.setdefault(row.item, {})
        if isinstance(row, Item):
            fields |= {key: value for key, value in row.fields.items() if isinstance(value, str | int | float)}
        elif isinstance(row, Answer) and row.gold:
            fields["gold"] = (_labels(row, path) or [None])[0]
    if not about:
        raise errors.EmptyFile(where=str(path), needs="at least one item")
    names = list(dict.fromkeys(key for fields in about.values() for key in fields if key != "item"))
    check_names(names)
    columns = {"item": to_column(list(about), "item")}
    for name in names:
        values = [fields.get(name) for fields in about.values()]
        if len({type(value) for value in values if value is not None}) != 1:
            values = [None if value is None else str(value) for value in values]
        columns[name] = to_column(values, name)
    return pa.table(columns)


def _short(reason: str) -> str:
    """Return a reason that may hold a name from the data, on one line and shortened."""
    plain = join_lines(reason)
    return plain if len(plain) <= MAX_REASON_LENGTH else plain[: MAX_REASON_LENGTH - 1] + "…"


def _not_read(question: str, kind: str) -> tuple[str, ReadByLabel | None]:
    """Return which answers are not read, and the parameter that reads them."""
    plural = {LABEL: "answers", RATING: "ratings", NUMBER: "scores"}
    what = plural.get(kind, kind) + (f" '{question}'" if question else "")
    on_request = kind in plural or (kind in _READABLE and question)
    return what, ReadByLabel(label=question) if on_request else None
