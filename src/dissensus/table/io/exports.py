"""Import the answers in exports of annotation tools.

A tool is one file with two functions. `read_answers` yields an `ExportedAnswer` for every answer in the file (used or
not), an `ExportedItem` for every text, an `ExportedTarget` for the expected answer in a log, and a `Note` for the
import report. `matches_record` recognises the tool's records. This module decides which answers count, by the same
rules for all tools.
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
from dissensus.table.find_columns import ColumnNames, check_column_names
from dissensus.table.import_report import ImportReport, join_lines
from dissensus.table.io.build import GoldByQuestion, ImportedColumns
from dissensus.table.io.files import report_read_errors
from dissensus.table.io.readers import JSON_SUFFIXES, Reader
from dissensus.table.kinds import CONTEXT_SEPARATOR, PAIR_SEPARATOR, name_pair_items, name_set
from dissensus.table.kinds import EMPTY_SET as EMPTY_SET
from dissensus.table.names import to_column
from dissensus.table.notes import ComparisonsReadAsLabels, LabelOptionAdvice, Note, SpansOverlap, TargetsNotReadAsGold
from dissensus.table.spans import assign_span_layers, convert_spans_to_tags

MIN_SHARE_OF_TARGETS = 0.9  # share of targets that must also be labels; single letters match by chance
MAX_REASON_LENGTH = 200  # characters
MAX_TEXT_FIELDS_NAMED = 3
LABEL, RATING, NUMBER, SPANS, COMPARISONS = "label", "rating", "number", "spans", "comparisons"
"""Kinds of answers that can be read: a label or a list of selected ones; a grade; a score; a list of (start, end,
label) in characters; a list of (left, right, better one). Other kinds of answers are only counted."""
_RATED_KINDS = (RATING, NUMBER)
_LABEL_KINDS = (LABEL, *_RATED_KINDS)
_TABLE_KINDS = {
    SPANS: "spans",
    COMPARISONS: "pairs",
}  # kind of answer → label type, for answers that need a table of their own
_READABLE_KINDS = (*_LABEL_KINDS, *_TABLE_KINDS)
NO_CHOICE_REASON = "answers without a choice"
NO_ANSWER_REASON = (
    "annotations without an answer"  # excluded if labels are read; for spans, it means that the item has none
)


class ExportedAnswer(NamedTuple):
    """One answer in an export. If it has no label (None or []), only its item and annotator are used."""

    item: Any
    annotator: Any
    label: Any
    question: str = ""
    kind: str = LABEL  # or RATING, NUMBER, SPANS, COMPARISONS, or the plural noun for other answers: "texts"
    excluded: str = ""  # the reason why the answer is not used, as a plural: "answers skipped"
    gold: bool = False  # True if the answer is a gold label and not a vote
    as_shown: bool = False  # True if left and right of a comparison are as the annotator saw them
    at: Any = None  # the time of the answer, as in the export


class ExportedItem(NamedTuple):
    """The fields of an item in an export, such as its text, without its answers."""

    item: Any
    fields: dict[str, Any]
    question: str = ""


class ExportedTarget(NamedTuple):
    """The expected answer of an item in a log; it is a gold label if it also occurs as a label."""

    item: Any
    value: Any
    question: str = ""


ExportRows = Iterator[ExportedAnswer | ExportedItem | ExportedTarget | Note]


def make_export_reader(
    answers: Callable[[Path, ColumnNames], ExportRows],
    matches_record: Callable[[dict[str, Any]], bool],
    *,
    suffixes: tuple[str, ...] = JSON_SUFFIXES,
    words: tuple[str, str] = ("id", "who answered"),
    own_items: bool = False,
    aside: Callable[[str], bool] = lambda question: False,
    matches_zip: Callable[[Sequence[str]], bool] | None = None,
    find_companions: Callable[[Sequence[str]], Iterable[str]] | None = None,
) -> Reader:
    """Return the reader of an annotation tool's exports.

    `words` describes where the names of items and annotators come from. `own_items` is True if each question numbers
    its items separately. `aside` returns True for questions that repeat another question and are read only on request.
    """

    def yield_checked_answers(path: Path, columns: ColumnNames) -> ExportRows:
        with report_read_errors(path):  # A missing entry in a record becomes an error that names the file.
            yield from answers(path, columns)

    def read_items(path: Path, columns: ColumnNames | None) -> pa.Table:
        return _make_item_table(yield_checked_answers(path, columns or ColumnNames()), path)

    def collect(
        paths: Sequence[Path], columns: ColumnNames, ticks: str | None, kind: str | None = None
    ) -> ImportedColumns:
        rows = yield_checked_answers(paths[0], columns)
        if len(paths) > 1:
            rows = _merge_files({path: yield_checked_answers(path, columns) for path in paths}, own_items)
        path = paths[0] if len(paths) == 1 else paths[0].parent
        return _import_answers(rows, ImportRequest(path, columns, ticks, kind, words, aside, {}))

    return Reader(
        read_items,
        suffixes,
        matches_record=matches_record,
        collect=collect,
        matches_zip=matches_zip,
        find_companions=find_companions,
    )


def _merge_files(files: Mapping[Path, ExportRows], own_items: bool) -> ExportRows:
    """Yield the rows of several files; an answer that is in two files is used once."""
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
        if isinstance(row, ExportedItem):
            text, other = texts.setdefault(repr(row.item), (repr(row.fields), path))
            if text != repr(row.fields):
                raise errors.DifferentTexts(item=row.item, file=path.name, other_file=other.name)
        elif isinstance(row, ExportedAnswer) and not row.excluded:
            if answered.setdefault(repr(row._replace(at=None)), path) != path:
                row = row._replace(excluded="answers that another file contains too")
        yield row


class ImportRequest(NamedTuple):
    """The options of `read`, the tool's descriptions of roles, and the targets of the file."""

    path: Path
    columns: ColumnNames
    ticks: str | None
    kind: str | None
    words: tuple[str, str]
    aside: Callable[[str], bool]
    targets: dict[Any, Any]  # item → expected answer

    def roles(self, questions: Iterable[str], item: str = "{}", unnamed: str = "the answers") -> dict[str, str]:
        """Return role → description of the fields used for item, annotator and label."""
        given = zip((self.columns.item, self.columns.annotator), self.words, strict=True)
        name, annotator = (usual if named is None else f"'{named}'" for named, usual in given)
        label = ", ".join(f"'{question}'" for question in questions if question) or unnamed
        return {"item": item.format(name), "annotator": annotator, "label": label}


def _import_answers(rows: ExportRows, request: ImportRequest) -> ImportedColumns:
    """Return the columns of the used answers; other answers are counted by reason in the import report."""
    report = ImportReport(unit="answers")
    read_rows: list[ExportedAnswer] = []
    for row in rows:
        if isinstance(row, Note):
            report.add_note(row)
            continue
        _check_names_usable(row, request.path)
        if isinstance(row, ExportedItem):
            report.item_fields[row.item] = row.fields
        elif isinstance(row, ExportedTarget):
            if isinstance(row.value, str | int | float) and str(row.value).strip():
                request.targets[row.item] = row.value
        else:
            row = _check_comparison(row, request.kind) if row.kind == COMPARISONS and not row.excluded else row
            is_label = row.kind in _LABEL_KINDS and not row.excluded
            read_rows.append(row._replace(label=_list_labels(row, request.path)) if is_label else row)
    if any(answer.at is not None for answer in read_rows):
        report.label_times = tuple(map(list, zip(*((a.item, a.annotator, a.at) for a in read_rows), strict=True)))  # type: ignore[assignment]
    if request.kind is None:
        read_rows = _exclude_unshared_rankings(read_rows, request.columns.label, report)
    read_rows = _split_overlapping_spans(read_rows, report)
    answers_by_question: dict[str, list[ExportedAnswer]] = {}  # question that can be read → its answers
    if request.columns.label is request.ticks is request.kind is None:
        used = [answer for answer in read_rows if _is_used(answer) and answer.kind in _READABLE_KINDS]
        answers_by_question = {answer.question: [] for answer in used if not request.aside(answer.question)}
        for answer in read_rows:
            if answer.question in answers_by_question:
                answers_by_question[answer.question].append(answer)
    if len({_table_kind(answers) for answers in answers_by_question.values()}) < 2:
        return _import_one_table(read_rows, report, request)
    report.columns = request.roles(answers_by_question)
    taken = ImportedColumns({}, report)
    rest = [answer for answer in read_rows if answer.question not in answers_by_question]
    _select_answers(rest, report, lambda answer: False, quiet=NO_ANSWER_REASON)
    report.n_rows = len(read_rows)
    for question, answers in answers_by_question.items():
        about = ImportReport(unit="answers", item_fields=report.item_fields, label_times=report.label_times)
        own_request = request._replace(columns=replace(request.columns, label=question))
        taken.parts[question] = _import_one_table(answers, about, own_request, read_rows)
        report.unused_counts += about.unused_counts
        report.advice_by_reason |= about.advice_by_reason
        for note in about.notes:
            report.add_note(note)
        report.columns |= {role: word for role, word in about.columns.items() if role in ("text", "gold")}
        report.n_rows += about.n_rows - len(answers)  # Each span or comparison counts as an answer.
        report.warn_about_unused |= about.warn_about_unused
    return taken


def _select_answers(
    given: list[ExportedAnswer],
    report: ImportReport,
    is_readable: Callable[[ExportedAnswer], bool],
    quiet: str = "",
    known: str = "",
) -> tuple[list[ExportedAnswer], list[ExportedAnswer]]:
    """Return the used answers and the gold answers; count other answers by reason.

    `known` describes the gold answers. Excluded answers of annotators cause a warning, unless the reason is `quiet`.
    """
    used_answers: list[ExportedAnswer] = []
    gold: list[ExportedAnswer] = []
    for answer in given:
        reason, how = answer.excluded, None
        if not reason and not answer.label and (answer.kind in _LABEL_KINDS or is_readable(answer)):
            reason = NO_CHOICE_REASON
        elif not reason and not is_readable(answer):
            reason, how = _describe_unread_answers(answer.question, answer.kind)
        elif not reason and answer.gold:
            reason = f"answers marked as correct ({known})"
            gold.append(answer)
        if reason:
            report.exclude(_shorten_reason(reason), advice=how)
            report.warn_about_unused |= answer.annotator != "" and not answer.gold and reason != quiet
        else:
            used_answers.append(answer)
    return used_answers, gold


def _is_used(answer: ExportedAnswer) -> bool:
    return bool(answer.label) and not answer.excluded


def _check_names_usable(row: ExportedAnswer | ExportedItem | ExportedTarget, path: Path) -> None:
    for role, name in (("item", row.item), ("annotator", getattr(row, "annotator", ""))):
        if not isinstance(name, str | int | float):
            raise errors.UnusableName(path=path, role=role, name=name)


def _table_kind(answers: list[ExportedAnswer]) -> str | None:
    """Return the label type of the answers to one question, or None if it depends on the labels."""
    used = list(filter(_is_used, answers))
    kinds = {answer.kind for answer in used}
    if own := [table for kind, table in _TABLE_KINDS.items() if kind in kinds]:
        return own[0]
    if kinds == {RATING}:
        return "graded"
    if kinds == {NUMBER}:
        return "numbers" if {label for answer in used for label in answer.label} - {0, 1} else None
    return "sets" if any(len(answer.label) > 1 for answer in used) else None


def _import_one_table(
    given: list[ExportedAnswer],
    report: ImportReport,
    request: ImportRequest,
    everything: list[ExportedAnswer] | None = None,
) -> ImportedColumns:
    """Return the columns of one table, or of several with the same label type.

    `everything` also includes the answers to other questions.
    """
    path, ticks = request.path, request.ticks
    report.n_rows = len(given)
    answered = [answer for answer in given if not answer.excluded]
    if marked := _find_readable_questions(answered, SPANS, (LABEL, RATING, COMPARISONS), request):
        return _import_spans(given, marked, report, request, everything or given)
    if request.kind == SPANS and not any(answer.kind == SPANS for answer in answered):
        raise errors.NoSpans(path=path)
    if ranked := _find_readable_questions(answered, COMPARISONS, _LABEL_KINDS, request):
        return _import_comparisons(given, ranked, report, request)
    chosen = _choose_questions(answered, request)
    if request.kind in (None, "sets") and ticks is None:  # If labels are sets, an empty answer is the empty set.
        sets = {answer.question for answer in answered if answer.kind == LABEL and len(answer.label or ()) > 1}
        for n, answer in enumerate(given):
            if answer.question in sets and answer.label == [] and answer.kind == LABEL and answer.annotator != "":
                given[n] = answer._replace(label=[EMPTY_SET])
    known = "gold labels, no votes"
    used, gold = _select_answers(given, report, lambda answer: (answer.question, answer.kind) in chosen, known=known)
    if not used:
        raise errors.NoUsableRows(unit="answer", report=report.describe_unused())
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
    report.columns = request.roles(questions)
    if texts := list(dict.fromkeys(key for fields in report.item_fields.values() for key in fields)):
        report.columns["text"] = ", ".join(f"'{key}'" for key in texts[:MAX_TEXT_FIELDS_NAMED])
    if gold:
        report.columns["gold"] = f"{len(gold):,} answers marked as correct"
    if ticks and several and any(len(answer.label) > 1 for answer in gold):
        raise errors.SeveralGoldLabels(path=path)
    gold_by_question: GoldByQuestion = {}
    for answer in gold:
        items, labels = gold_by_question.setdefault(answer.question, ([], []))
        items.append(answer.item)
        labels.append(name_set(answer.label) if several else answer.label[0])
    voters = (str(answer.annotator) for answer in given if answer.annotator != "" and not answer.gold)
    return ImportedColumns(
        arrays,
        report,
        list(dict.fromkeys(answer.item for answer in given)),
        list(dict.fromkeys(voters)),
        _table_kind(used) if not several else None,
        gold_by_question or (_gold_from_targets(request.targets, used, report) if request.targets else {}),
    )


def _gold_from_targets(targets: dict[Any, Any], used: list[ExportedAnswer], report: ImportReport) -> GoldByQuestion:
    """Return question → items and gold labels if nearly all targets are among its labels; otherwise add a note."""
    gold_by_question = {}
    for question in sorted({answer.question for answer in used}):
        answered = [answer for answer in used if answer.question == question]
        classes = {str(label): label for answer in answered for label in answer.label}
        expected = {answer.item: targets[answer.item] for answer in answered if answer.item in targets}
        known = {item: classes[str(value)] for item, value in expected.items() if str(value) in classes}
        if len(set(map(str, known.values()))) > 1 and len(known) >= MIN_SHARE_OF_TARGETS * len(expected):
            gold_by_question[question] = (list(known), list(known.values()))
            report.columns["gold"] = f"{len(known):,} targets, which are among the labels"
    if not gold_by_question:
        report.add_note(TargetsNotReadAsGold(target=next(iter(targets.values()))))
    return gold_by_question


def _find_readable_questions(
    answers: list[ExportedAnswer], kind: str, others: tuple[str, ...], request: ImportRequest
) -> list[str]:
    """Return the questions whose spans or comparisons are read: the chosen one, or all without other answers."""
    label = request.columns.label
    there = sorted({answer.question for answer in answers if answer.kind == kind and label in (None, answer.question)})
    alone = not any(answer.kind in others and answer.label for answer in answers)
    return there if label is not None or request.kind == _TABLE_KINDS[kind] or alone else []


def _split_overlapping_spans(given: list[ExportedAnswer], report: ImportReport) -> list[ExportedAnswer]:
    """Assign overlapping spans of an annotator to several questions, see `assign_span_layers`."""
    pieces: dict[int, list[ExportedAnswer]] = {}
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
        report.add_note(SpansOverlap(question=names[""], names=tuple(names.values())))
    return [piece for n, answer in enumerate(given) for piece in pieces.get(n, [answer])]


def _check_comparison(answer: ExportedAnswer, kind: str | None) -> ExportedAnswer:
    """Return a comparison, marked as excluded if it is invalid; if the caller reads classes, return it as a label."""
    if not answer.label:
        return answer._replace(excluded="comparisons without two alternatives and the better one")
    if kind == "classes" and answer.as_shown:
        return answer._replace(kind=LABEL, label=answer.label[0][2])
    things = {thing for left, right, _ in answer.label for thing in (left, right)}
    if any(not thing.strip() or PAIR_SEPARATOR in thing or CONTEXT_SEPARATOR in thing for thing in things):
        return answer._replace(
            excluded="comparisons of alternatives without a name, or whose name contains "
            f"'{PAIR_SEPARATOR}' or '{CONTEXT_SEPARATOR}'"
        )
    return answer


def _exclude_unshared_rankings(
    given: list[ExportedAnswer], label: str | None, report: ImportReport
) -> list[ExportedAnswer]:
    """Exclude rankings of alternatives that occur in one item only; choices between two of them become labels."""
    compared = [(n, answer) for n, answer in enumerate(given) if answer.kind == COMPARISONS and not answer.excluded]
    items: dict[tuple[str, Any], set[Any]] = {}  # (question, alternative or None for all) → items
    for _, answer in compared:
        for thing in {None, *(thing for left, right, _ in answer.label for thing in (left, right))}:
            items.setdefault((answer.question, thing), set()).add(answer.item)
    several = [key for key, own in items.items() if len(own) > 1]
    shared = {question for question, thing in several if thing is not None}
    alone = {question for question, thing in several if thing is None} - shared
    for n, answer in compared:
        if answer.question not in alone:
            continue
        if answer.as_shown:
            given[n] = answer._replace(kind=LABEL, label=[answer.label[0][2]])
            report.add_note(ComparisonsReadAsLabels(question=answer.question))
        elif answer.question != label:
            reason, how = _describe_unread_answers(answer.question, COMPARISONS)
            reason = _shorten_reason(f"comparisons of different alternatives in every item: {reason}")
            given[n] = answer._replace(excluded=reason)
            report.advice_by_reason |= {} if how is None else {reason: how}
    return given


def _import_comparisons(
    given: list[ExportedAnswer], questions: list[str], report: ImportReport, request: ImportRequest
) -> ImportedColumns:
    """Return the columns of the comparisons of some questions; the item of the export is the context."""

    def is_readable(answer: ExportedAnswer) -> bool:
        return answer.kind == COMPARISONS and answer.question in questions

    used, _ = _select_answers(given, report, is_readable, NO_ANSWER_REASON, "comparisons, not used")
    if not used:
        raise errors.NoUsableRows(unit="comparison", report=report.describe_unused())
    rows = [(*pair, answer) for answer in used for pair in answer.label]
    report.n_rows += len(rows) - len(used)  # Each comparison counts as an answer.
    left, right, better, answers = map(list, zip(*rows, strict=True))
    columns = {
        "item": name_pair_items(left, right, [str(answer.item) for answer in answers]),
        "annotator": [str(answer.annotator) for answer in answers],
        "label": better,
    }
    if len({answer.question for answer in used}) > 1:
        columns["question"] = [answer.question for answer in answers]
    report.columns = request.roles(questions, "two alternatives in {}")
    return ImportedColumns(columns, report, kind="pairs")


def _import_spans(
    given: list[ExportedAnswer],
    questions: list[str],
    report: ImportReport,
    request: ImportRequest,
    everything: list[ExportedAnswer],
) -> ImportedColumns:
    """Return the columns of the spans of some questions as tags, see `table.spans`.

    An annotator with any answer to an item has read it.
    """
    readings = {
        (str(answer.item), str(answer.annotator)): None
        for answer in everything
        if answer.annotator != "" and not answer.gold and answer.excluded in ("", NO_ANSWER_REASON)
    }
    is_gold = (answer for answer in everything if answer.kind == SPANS and answer.gold and not answer.excluded)
    known = [(str(answer.item), None) for answer in is_gold]
    spans: dict[str, list[Any]] = {question: [] for question in questions}
    lengths: dict[str, int] = {}  # item → end of its last span
    for answer in given:
        if answer.excluded:
            if answer.excluded != NO_ANSWER_REASON:
                report.exclude(answer.excluded)
                report.warn_about_unused |= answer.annotator != ""
        elif answer.kind == SPANS and answer.question in spans:
            item, who = str(answer.item), None if answer.gold else str(answer.annotator)
            spans[answer.question] += [(item, who, *span) for span in answer.label]
            lengths[item] = max([lengths.get(item, 0), *(end for _, end, _ in answer.label)])
            report.n_rows += max(len(answer.label) - 1, 0)  # Each span counts as an answer.
            if answer.gold:
                report.exclude("answers marked as correct (gold spans, no votes)", max(len(answer.label), 1))
        elif answer.label:
            reason, how = _describe_unread_answers(answer.question, answer.kind)
            report.exclude(_shorten_reason(reason), advice=how)
    texts: dict[str, str] = {}  # item → its text: the field `text`, or the first field that contains all spans
    for name, fields in report.item_fields.items():
        for key in sorted(fields, key=lambda key: key != "text"):
            if isinstance(text := fields[key], str) and len(text) >= max(lengths.get(str(name), 0), 1):
                texts.setdefault(str(name), text)
    tags = convert_spans_to_tags(spans, [*readings, *known], texts)
    report.exclude("spans that overlap another one of the same annotator", tags.n_overlapping)
    report.exclude("spans without a character", tags.n_empty)
    votes = tags.annotator != np.array(None)
    columns = {role: getattr(tags, role)[votes].tolist() for role in ("item", "annotator", "label", "question")}
    gold_by_question: GoldByQuestion = {}
    for question in questions if known else ():
        own = ~votes & (tags.question == question)
        gold_by_question[question] = tags.item[own].tolist(), tags.label[own].tolist()
    if len(questions) == 1:
        del columns["question"]
    report.columns = request.roles(questions, "positions in {}", "the spans")
    return ImportedColumns(columns, report, kind="spans", gold_by_question=gold_by_question)


def _choose_questions(answers: list[ExportedAnswer], request: ImportRequest) -> set[tuple[str, str]]:
    """Return the (question, kind of answer) pairs to read: labels, or ratings if there are no labels."""
    path, label = request.path, request.columns.label
    counted = (answer for answer in answers if answer.kind not in _LABEL_KINDS or answer.label)
    kinds = Counter((answer.question, answer.kind) for answer in counted)
    there = sorted({question for question, _ in kinds})
    if label is not None and label not in there:
        raise errors.NoSuchQuestion(path=path, label=label, questions=tuple(there))
    wanted = {key: count for key, count in kinds.items() if label in (None, key[0])}
    single, rated = ({key for key in wanted if key[1] in kinds_read} for kinds_read in ((LABEL,), _RATED_KINDS))
    if kinds and not single and not rated:
        contents = ", ".join(f"{count:,} {kind}" for (_, kind), count in wanted.items())
        raise errors.NoReadableAnswers(
            path=path, contents=contents if label is None else f"{quote_name(label)}: {contents}"
        )
    if request.ticks == "questions" and len(single) > 1:
        names = tuple(sorted(question for question, _ in single))
        raise errors.OneQuestionNeeded(parameter=ParameterName("ticks='questions'"), questions=names)
    return single or rated


def _list_labels(answer: ExportedAnswer, path: Path) -> list[Any]:
    """Return the distinct labels of an answer; blank texts are dropped."""
    given = answer.label if isinstance(answer.label, list) else [answer.label]
    for label in given:
        if not (label is None or isinstance(label, str | int | float)):
            where = f"{path}: item {quote_name(answer.item)}"
            raise errors.UnexpectedValue(location=where, field="label", value=label, expected="text or a number")
    return list(dict.fromkeys(label for label in given if label is not None and str(label).strip()))


def _make_item_table(rows: ExportRows, path: Path) -> pa.Table:
    """Return a table with the name, the fields that are text or numbers, and the gold label of each item."""
    about: dict[Any, dict[str, Any]] = {}
    for row in rows:
        if isinstance(row, Note):
            continue
        _check_names_usable(row, path)
        fields = about.setdefault(row.item, {})
        if isinstance(row, ExportedItem):
            fields |= {key: value for key, value in row.fields.items() if isinstance(value, str | int | float)}
        elif isinstance(row, ExportedAnswer) and row.gold:
            fields["gold"] = (_list_labels(row, path) or [None])[0]
    if not about:
        raise errors.EmptyFile(location=str(path), needs="at least one item")
    names = list(dict.fromkeys(key for fields in about.values() for key in fields if key != "item"))
    check_column_names(names)
    columns = {"item": to_column(list(about), "item")}
    for name in names:
        values = [fields.get(name) for fields in about.values()]
        if len({type(value) for value in values if value is not None}) != 1:
            values = [None if value is None else str(value) for value in values]
        columns[name] = to_column(values, name)
    return pa.table(columns)


def _shorten_reason(reason: str) -> str:
    """Return a reason, which may contain a name from the data, in one line and shortened."""
    plain = join_lines(reason)
    return plain if len(plain) <= MAX_REASON_LENGTH else plain[: MAX_REASON_LENGTH - 1] + "…"


def _describe_unread_answers(question: str, kind: str) -> tuple[str, LabelOptionAdvice | None]:
    """Return a description of unread answers, and a message with the option that reads them."""
    plural = {LABEL: "answers", RATING: "ratings", NUMBER: "scores"}
    what = plural.get(kind, kind) + (f" '{question}'" if question else "")
    on_request = kind in plural or (kind in _READABLE_KINDS and question)
    return what, LabelOptionAdvice(label=question) if on_request else None
