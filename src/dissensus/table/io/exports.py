"""What the exports of annotation tools have in common: answers to one or several questions, some of them not used.

A tool is one file with two functions: `answers` yields an `Answer` for every answer in the file, used or not, an `Item`
for every text, a `Target` where a log says what was asked for, and a `Note` for what else should be in the account;
`claims` tells the tool's records. Which answers count is decided here, for all tools alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dissensus.exceptions import BadParameter, DataError, UnreadableFile
from dissensus.table.find_columns import Columns, check_names, listed
from dissensus.table.io.build import Golds, Taken
from dissensus.table.io.formats import JSON_SUFFIXES, Format, add
from dissensus.table.kinds import CONTEXT, VERSUS, pair_items, set_name
from dissensus.table.kinds import NOTHING as EMPTY_SET
from dissensus.table.names import shown, to_column
from dissensus.table.reading import Reading
from dissensus.table.spans import layers_of, tags_of_layers

MIN_SHARE_OF_TARGETS = 0.9  # that are labels too, before they are taken for known ones; a letter may be one by chance
MAX_REASON_LENGTH = 200  # characters
LABEL, RATING, NUMBER, SPANS, COMPARED = "label", "rating", "number", "spans", "comparisons"
"""Kinds of answers that are read: one label or a list of ticked ones; a grade; a score; a list of (start, end, label)
in characters; a list of (left, right, which is better). All others are only counted."""
_RATED = (RATING, NUMBER)
_LABELS = (LABEL, *_RATED)
_TABLES = {SPANS: "spans", COMPARED: "pairs"}  # kinds of answers that have a kind of table of their own
_READABLE = (*_LABELS, *_TABLES)
NO_CHOICE = "answers without a choice"
NOTHING = "annotations without an answer"  # left out where labels are read; of spans they say that there are none


class Answer(NamedTuple):
    """One answer. A label of None or [] is none: the item and the annotator stay, the row does not."""

    item: Any
    annotator: Any
    label: Any
    question: str = ""
    kind: str = LABEL  # or RATING, NUMBER, SPANS, COMPARED, or the word for what is not read, in the plural: "texts"
    left_out: str = ""  # why this answer does not count, after its number: "answers skipped"
    gold: bool = False  # True where it is known to be right; then it is no vote
    seen: bool = False  # True for a comparison whose left and right are those that the annotator saw
    at: Any = None  # when it was given, as the export says


class Item(NamedTuple):
    """What an export says of an item besides answers: its text, its own id."""

    item: Any
    fields: dict[str, Any]
    question: str = ""


class Target(NamedTuple):
    """What an item was asked for: a known label where it is one of the labels given; None where there is none."""

    item: Any
    value: Any
    question: str = ""


class Note(NamedTuple):
    """A sentence for the account of the reading; `loud` where answers may be missing."""

    text: str
    loud: bool = False
    alone: bool = False  # True where it holds of a file that is read alone


Rows = Iterator[Answer | Item | Target | Note]


def add_export(
    name: str,
    answers: Callable[[Path, Columns], Rows],
    *,
    claims: Callable[[dict[str, Any]], bool],
    summary: str,
    place: int,
    suffixes: tuple[str, ...] = JSON_SUFFIXES,
    words: tuple[str, str] = ("id", "who answered"),
    own_items: bool = False,
    aside: Callable[[str], bool] = lambda question: False,
) -> None:
    """Enter the format of an annotation tool; `words` say what names its items and annotators.

    `own_items`: each question numbers its own items. `aside`: questions that say again what another one says; they are
    read on request.
    """

    def read_items(path: Path, columns: Columns | None) -> pa.Table:
        return _item_table(answers(path, columns or Columns()), path)

    def collect(paths: Sequence[Path], columns: Columns, ticks: str | None, kind: str | None = None) -> Taken:
        rows = answers(paths[0], columns)
        if len(paths) > 1:
            rows = _joined({path: answers(path, columns) for path in paths}, own_items)
        path = paths[0] if len(paths) == 1 else paths[0].parent
        found = _collect(rows, Ask(path, columns, ticks, kind, words, aside, {}))
        found.reading.format = name
        return found

    add(Format(name, suffixes, read_items, claims=claims, collect=collect, summary=summary, place=place))


def _joined(files: Mapping[Path, Rows], own_items: bool) -> Rows:
    """The rows of several files: what two of them have counts once, and an item is one thing in all of them."""
    rows = [(path, row) for path, found in files.items() for row in found if not (isinstance(row, Note) and row.alone)]
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
                raise DataError(
                    f"item {shown(row.item)} has other texts in {path.name} than in {other.name}: these are two "
                    "projects; read each by itself, or name a field that tells their items apart: item=<field>."
                )
        elif (
            isinstance(row, Answer)
            and not row.left_out
            and answered.setdefault(repr(row._replace(at=None)), path) != path
        ):
            row = row._replace(left_out="answers that another file has too")
        yield row


class Ask(NamedTuple):
    """What the caller asked for, how the tool calls things, and the targets of the whole file."""

    path: Path
    columns: Columns
    ticks: str | None
    kind: str | None
    words: tuple[str, str]
    aside: Callable[[str], bool]
    targets: dict[Any, Any]  # item → what it was asked for

    def roles(self, questions: Iterable[str], item: str = "{}", unnamed: str = "the answers") -> dict[str, str]:
        """What is taken for item, annotator and label, in words."""
        given = zip((self.columns.item, self.columns.annotator), self.words, strict=True)
        name, annotator = (usual if named is None else f"'{named}'" for named, usual in given)
        label = ", ".join(f"'{question}'" for question in questions if question) or unnamed
        return {"item": item.format(name), "annotator": annotator, "label": label}


def _collect(rows: Rows, ask: Ask) -> Taken:
    """Sort out which answers count; the others are counted by why they do not."""
    reading = Reading(unit="answers")
    given: list[Answer] = []
    for row in rows:
        if isinstance(row, Note):
            text = " ".join(row.text.split())  # which may hold a name from the data
            reading.notes += [] if text in reading.notes else [text]
            reading.loud |= row.loud
            continue
        _check_names(row, ask.path)
        if isinstance(row, Item):
            reading.texts[row.item] = row.fields
        elif isinstance(row, Target):
            if isinstance(row.value, str | int | float) and str(row.value).strip():
                ask.targets[row.item] = row.value
        else:
            row = _compared(row, ask.kind) if row.kind == COMPARED and not row.left_out else row
            is_label = row.kind in _LABELS and not row.left_out
            given.append(row._replace(label=_labels(row, ask.path)) if is_label else row)
    if any(one.at is not None for one in given):
        reading.times = ([one.item for one in given], [one.annotator for one in given], [one.at for one in given])
    given = _layered(_unranked(given, ask.columns.label, reading) if ask.kind is None else given, reading)
    own: dict[str, list[Answer]] = {}  # question → all its answers, of those that can be read
    if ask.columns.label is ask.ticks is ask.kind is None:
        own = {
            one.question: [] for one in given if _is_used(one) and one.kind in _READABLE and not ask.aside(one.question)
        }
        for one in given:
            if one.question in own:
                own[one.question].append(one)
    if len({_table_kind(answers) for answers in own.values()}) < 2:
        return _collect_one(given, reading, ask)
    reading.columns = ask.roles(own)
    found = Taken({}, reading)
    _sort_out([one for one in given if one.question not in own], reading, lambda one: False, quiet=NOTHING)
    reading.rows = len(given)
    for question, answers in own.items():
        about = Reading(unit="answers", texts=reading.texts, times=reading.times)
        own_ask = ask._replace(columns=replace(ask.columns, label=question))
        found.parts[question] = _collect_one(answers, about, own_ask, given)
        reading.unused += about.unused
        reading.notes += [note for note in about.notes if note not in reading.notes]
        reading.columns |= {role: word for role, word in about.columns.items() if role in ("text", "gold")}
        reading.rows += about.rows - len(answers)  # each span or comparison is an answer
        reading.loud |= about.loud
    return found


def _sort_out(
    given: list[Answer], reading: Reading, is_read: Callable[[Answer], bool], quiet: str = "", known: str = ""
) -> tuple[list[Answer], list[Answer]]:
    """The answers that count, and those marked as right (`known` says what these are); the others are counted.

    Who gave an answer that does not count is told, but for the reason `quiet`.
    """
    used: list[Answer] = []
    gold: list[Answer] = []
    for one in given:
        why = one.left_out
        if not why and not one.label and (one.kind in _LABELS or is_read(one)):
            why = NO_CHOICE
        elif not why and not is_read(one):
            why = _not_read(one.question, one.kind)
        elif not why and one.gold:
            why = f"answers marked as right ({known})"
            gold.append(one)
        if why:
            reading.unused[_one_line(why)] += 1
            reading.loud |= one.annotator != "" and not one.gold and why != quiet
        else:
            used.append(one)
    return used, gold


def _is_used(one: Answer) -> bool:
    return bool(one.label) and not one.left_out


def _check_names(row: Answer | Item | Target, path: Path) -> None:
    for role, name in (("item", row.item), ("annotator", getattr(row, "annotator", ""))):
        if not isinstance(name, str | int | float):
            raise DataError(f"{path}: {role} {shown(name)} is no text or number; name another field: {role}=<field>.")


def _table_kind(answers: list[Answer]) -> str | None:
    """The kind of table that the answers to one question make; None where the labels tell."""
    used = list(filter(_is_used, answers))
    kinds = {one.kind for one in used}
    if own := [table for kind, table in _TABLES.items() if kind in kinds]:
        return own[0]
    if kinds == {RATING}:
        return "graded"
    if kinds == {NUMBER}:
        return "numbers" if {label for one in used for label in one.label} - {0, 1} else None
    return "sets" if any(len(one.label) > 1 for one in used) else None


def _collect_one(given: list[Answer], reading: Reading, ask: Ask, everything: list[Answer] | None = None) -> Taken:
    """The answers that make one table, or several of one kind; `everything`: answers to other questions too."""
    path, ticks = ask.path, ask.ticks
    reading.rows = len(given)
    answered = [one for one in given if not one.left_out]
    if marked := _questions_alone(answered, SPANS, (LABEL, RATING, COMPARED), ask):
        return _collect_spans(given, marked, reading, ask, everything or given)
    if ask.kind == SPANS and not any(one.kind == SPANS for one in answered):
        raise DataError(f"{path} holds no spans of text; leave out kind='spans'.")
    if ranked := _questions_alone(answered, COMPARED, _LABELS, ask):
        return _collect_compared(given, ranked, reading, ask)
    chosen = _choose_questions(answered, ask)
    if ask.kind in (None, "sets") and ticks is None:  # who ticks nothing where several may be ticked has answered
        sets = {one.question for one in answered if one.kind == LABEL and len(one.label or ()) > 1}
        for n, one in enumerate(given):
            if one.question in sets and one.label == [] and one.kind == LABEL and one.annotator != "":
                given[n] = one._replace(label=[EMPTY_SET])
    known = "known labels, no votes"
    used, gold = _sort_out(given, reading, lambda one: (one.question, one.kind) in chosen, known=known)
    if not used:
        said = f"{path} holds no answer that can be used; a table needs at least one."
        raise DataError(f"{said} {reading.left_out()}".strip())
    several = any(len(one.label) > 1 for one in used)
    columns: dict[str, list[Any]] = {
        "item": [one.item for one in used],
        "annotator": [str(one.annotator) for one in used],
        "label": [one.label if several else one.label[0] for one in used],
    }
    questions = sorted({one.question for one in used})
    if len(questions) > 1:
        columns["question"] = [one.question for one in used]
    made = {
        role: pa.array(values) if several and role == "label" else to_column(values, role)
        for role, values in columns.items()
    }
    reading.columns = ask.roles(questions)
    if texts := list(dict.fromkeys(key for fields in reading.texts.values() for key in fields)):
        reading.columns["text"] = ", ".join(f"'{key}'" for key in texts[:3])
    if gold:
        reading.columns["gold"] = f"{len(gold):,} answers marked as right"
    if ticks and several and any(len(one.label) > 1 for one in gold):
        raise DataError(f"{path}: an answer marked as right ticks several labels; only one can be known.")
    golds: Golds = {}
    for one in gold:
        items, labels = golds.setdefault(one.question, ([], []))
        items.append(one.item)
        labels.append(set_name(one.label) if several else one.label[0])
    return Taken(
        made,
        reading,
        list(dict.fromkeys(one.item for one in given)),
        list(dict.fromkeys(str(one.annotator) for one in given if one.annotator != "" and not one.gold)),
        _table_kind(used) if not several else None,
        golds or (_golds_of_targets(ask.targets, used, reading) if ask.targets else {}),
    )


def _golds_of_targets(targets: dict[Any, Any], used: list[Answer], reading: Reading) -> Golds:
    """Question → items and known labels, where nearly all targets are among its labels; else a note."""
    found = {}
    for question in sorted({one.question for one in used}):
        answered = [one for one in used if one.question == question]
        classes = {str(label): label for one in answered for label in one.label}
        asked = {one.item: targets[one.item] for one in answered if one.item in targets}
        known = {item: classes[str(value)] for item, value in asked.items() if str(value) in classes}
        if len(set(map(str, known.values()))) > 1 and len(known) >= MIN_SHARE_OF_TARGETS * len(asked):
            found[question] = (list(known), list(known.values()))
            reading.columns["gold"] = f"{len(known):,} targets, which are among the labels"
    if not found:
        some = shown(next(iter(targets.values())))
        reading.notes.append(f"Targets, such as {some}, are not taken for known labels: they are not among the labels.")
    return found


def _questions_alone(answers: list[Answer], kind: str, others: tuple[str, ...], ask: Ask) -> list[str]:
    """The questions of which spans or comparisons are read: those asked for, or all where nothing else can be read."""
    label = ask.columns.label
    there = sorted({one.question for one in answers if one.kind == kind and label in (None, one.question)})
    alone = not any(one.kind in others and one.label for one in answers)
    return there if label is not None or ask.kind == _TABLES[kind] or alone else []


def _layered(given: list[Answer], reading: Reading) -> list[Answer]:
    """Take spans of one annotator that overlap apart into questions, see `layers_of`."""
    pieces: dict[int, list[Answer]] = {}
    marked = [n for n, one in enumerate(given) if one.kind == SPANS and not one.left_out]
    for question in sorted({given[n].question for n in marked}):
        own = [n for n in marked if given[n].question == question]
        spans = [(n, span) for n in own for span in given[n].label]
        layers = layers_of((given[n].item, (given[n].annotator, given[n].gold), *span) for n, span in spans)
        if not any(layers):
            continue
        names = {layer: ", ".join(filter(None, (question or "spans", layer))) for layer in sorted(set(layers))}
        split: dict[int, dict[str, list[Any]]] = {n: {} if given[n].label else {"": []} for n in own}
        for (n, span), layer in zip(spans, layers, strict=True):
            split[n].setdefault(layer, []).append(span)
        for n, parts in split.items():
            pieces[n] = [given[n]._replace(question=names[layer], label=part) for layer, part in parts.items()]
        tables = ", ".join(f"'{name}'" for name in names.values())
        reading.notes.append(f"Spans of '{names['']}' overlap: labels that do are in different tables, {tables}.")
    return [piece for n, one in enumerate(given) for piece in pieces.get(n, [one])]


def _compared(one: Answer, kind: str | None) -> Answer:
    """An answer that compares; as a label, left or right, where kind= asks for classes."""
    if not one.label:
        return one._replace(left_out="comparisons without two things and which is better")
    if kind == "classes" and one.seen:
        return one._replace(kind=LABEL, label=one.label[0][2])
    things = {thing for left, right, _ in one.label for thing in (left, right)}
    if any(not thing.strip() or VERSUS in thing or CONTEXT in thing for thing in things):
        return one._replace(left_out=f"comparisons of things without a name, or with '{VERSUS}' or '{CONTEXT}' in it")
    return one


def _unranked(given: list[Answer], label: str | None, reading: Reading) -> list[Answer]:
    """Of things that no two items share none can be ranked: choices of two are labels then, rankings are left out."""
    compared = [(n, one) for n, one in enumerate(given) if one.kind == COMPARED and not one.left_out]
    items: dict[tuple[str, Any], set[Any]] = {}  # question, and a thing or None for all → its items
    for _, one in compared:
        for thing in {None, *(thing for left, right, _ in one.label for thing in (left, right))}:
            items.setdefault((one.question, thing), set()).add(one.item)
    several = [key for key, own in items.items() if len(own) > 1]
    alone = {question for question, thing in several if thing is None} - {
        q for q, thing in several if thing is not None
    }
    for n, one in compared:
        if one.question not in alone:
            continue
        if one.seen:
            given[n] = one._replace(kind=LABEL, label=[one.label[0][2]])
            said = f"'{one.question}' compares other things in every item: its answers are labels, left and right"
            reading.notes += [note for note in [f"{said} (kind='pairs' compares)."] if note not in reading.notes]
        elif one.question != label:
            why = f"comparisons of other things in every item: {_not_read(one.question, COMPARED)}"
            given[n] = one._replace(left_out=_one_line(why))
    return given


def _collect_compared(given: list[Answer], questions: list[str], reading: Reading, ask: Ask) -> Taken:
    """The comparisons of some questions, a row each; the item of an export is their context."""
    known = "comparisons, not used"
    used, _ = _sort_out(given, reading, lambda one: one.kind == COMPARED and one.question in questions, NOTHING, known)
    if not used:
        raise DataError(f"{ask.path} holds no comparison that can be used. {reading.left_out()}".strip())
    rows = [(*pair, one) for one in used for pair in one.label]
    reading.rows += len(rows) - len(used)  # each comparison is an answer
    left, right, better, answer = map(list, zip(*rows, strict=True))
    made = {
        "item": pair_items(left, right, [str(one.item) for one in answer]),
        "annotator": [str(one.annotator) for one in answer],
        "label": better,
    }
    if len({one.question for one in used}) > 1:
        made["question"] = [one.question for one in answer]
    reading.columns = ask.roles(questions, "two things in {}")
    return Taken(made, reading, kind="pairs")


def _collect_spans(
    given: list[Answer], questions: list[str], reading: Reading, ask: Ask, everything: list[Answer]
) -> Taken:
    """The spans of some questions as tags, see `table.spans`; who answered anything about an item has read it."""
    readings = {
        (str(one.item), str(one.annotator)): None
        for one in everything
        if one.annotator != "" and not one.gold and one.left_out in ("", NOTHING)
    }
    known = [(str(one.item), None) for one in everything if one.kind == SPANS and one.gold and not one.left_out]
    spans: dict[str, list[Any]] = {question: [] for question in questions}
    lengths: dict[str, int] = {}  # item → where its last span ends
    for one in given:
        if one.left_out:
            if one.left_out != NOTHING:
                reading.unused[one.left_out] += 1
                reading.loud |= one.annotator != ""
        elif one.kind == SPANS and one.question in spans:
            item, who = str(one.item), None if one.gold else str(one.annotator)
            spans[one.question] += [(item, who, *span) for span in one.label]
            lengths[item] = max([lengths.get(item, 0), *(end for _, end, _ in one.label)])
            reading.rows += max(len(one.label) - 1, 0)  # each span is an answer
            if one.gold:
                reading.unused["answers marked as right (known spans, no votes)"] += max(len(one.label), 1)
        elif one.label:
            reading.unused[_not_read(one.question, one.kind)] += 1
    texts: dict[str, str] = {}  # item → its text that spans are of: `text`, or the first that is as long as these
    for name, fields in reading.texts.items():
        for key in sorted(fields, key=lambda key: key != "text"):
            if isinstance(text := fields[key], str) and len(text) >= max(lengths.get(str(name), 0), 1):
                texts.setdefault(str(name), text)
    tags = tags_of_layers(spans, [*readings, *known], texts)
    reading.unused["spans that overlap another one of the same annotator"] += tags.overlapping
    reading.unused["spans without a character"] += tags.empty
    votes = tags.annotator != np.array(None)
    made = {role: getattr(tags, role)[votes].tolist() for role in ("item", "annotator", "label", "question")}
    golds: Golds = {}
    for question in questions if known else ():
        own = ~votes & (tags.question == question)
        golds[question] = tags.item[own].tolist(), tags.label[own].tolist()
    if len(questions) == 1:
        del made["question"]
    reading.columns = ask.roles(questions, "places in {}", "the spans")
    return Taken(made, reading, kind="spans", golds=golds)


def _choose_questions(answers: list[Answer], ask: Ask) -> set[tuple[str, str]]:
    """The questions and kinds of answers that are read: labels, or what is rated where there are none."""
    path, label = ask.path, ask.columns.label
    kinds = Counter((one.question, one.kind) for one in answers if one.kind not in _LABELS or one.label)
    there = sorted({question for question, _ in kinds})
    if label is not None and label not in there:
        raise DataError(f"{path} has no answers called {label!r} for label; there are {listed(there)}.")
    wanted = {one: count for one, count in kinds.items() if label in (None, one[0])}
    single, rated = ({one for one in wanted if one[1] in kinds_read} for kinds_read in ((LABEL,), _RATED))
    if kinds and not single and not rated:
        what = ", ".join(f"{count:,} {kind}" for (_, kind), count in wanted.items())
        holds = f"{path} holds {what}" if label is None else f"{path}: {label!r} holds {next(iter(wanted))[1]}"
        raise DataError(f"{holds}; only labels, ratings, spans of text and comparisons are read.")
    if ask.ticks == "questions" and len(single) > 1:
        names = listed(sorted(question for question, _ in single))
        raise BadParameter(f"ticks='questions' is for one question; choose it: label=, one of {names}.")
    return single or rated


def _labels(one: Answer, path: Path) -> list[Any]:
    """The labels of an answer, each once; an empty text is none."""
    given = one.label if isinstance(one.label, list) else [one.label]
    for label in given:
        if not (label is None or isinstance(label, str | int | float)):
            raise DataError(f"{path}: item {shown(one.item)} has the label {shown(label)}; expected text or a number.")
    return list(dict.fromkeys(label for label in given if label is not None and str(label).strip()))


def _item_table(rows: Rows, path: Path) -> pa.Table:
    """One row per item: its name, the fields that are text or numbers, and its known label where there is one."""
    about: dict[Any, dict[str, Any]] = {}
    for row in rows:
        if isinstance(row, Note):
            continue
        _check_names(row, path)
        of_item = about.setdefault(row.item, {})
        if isinstance(row, Item):
            of_item |= {key: value for key, value in row.fields.items() if isinstance(value, str | int | float)}
        elif isinstance(row, Answer) and row.gold:
            of_item["gold"] = (_labels(row, path) or [None])[0]
    if not about:
        raise UnreadableFile(f"{path} holds no item.")
    names = list(dict.fromkeys(key for fields in about.values() for key in fields if key != "item"))
    check_names(names)
    columns = {"item": to_column(list(about), "item")}
    for name in names:
        values = [fields.get(name) for fields in about.values()]
        if len({type(value) for value in values if value is not None}) != 1:
            values = [None if value is None else str(value) for value in values]
        columns[name] = to_column(values, name)
    return pa.table(columns)


def _one_line(words: str) -> str:
    """Words that may hold a name from the data, as the part of a sentence."""
    plain = " ".join(words.split())
    return plain if len(plain) <= MAX_REASON_LENGTH else plain[: MAX_REASON_LENGTH - 1] + "…"


def _not_read(question: str, kind: str) -> str:
    """What is not read, and by which keyword it is."""
    plural = {LABEL: "answers", RATING: "ratings", NUMBER: "scores"}
    what = plural.get(kind, kind) + (f" '{question}'" if question else "")
    on_request = kind in plural or (kind in _READABLE and question)
    return f"{what} (read by label='{question}')" if on_request else what
