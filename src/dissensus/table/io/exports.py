"""What the exports of annotation tools have in common: answers to one or several questions, some of them not used.

A tool is one file with two functions: `answers` yields an `Answer` for every answer in the file, used or not, an `Item`
for every text, a `Target` where a log says what was asked for, and a `Note` for what else should be in the account;
`claims` tells the tool's records. Which answers count is decided here, for all tools alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as with_default
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dissensus.exceptions import BadParameter, DataError, UnreadableFile
from dissensus.table.find_columns import Columns, check_names, listed
from dissensus.table.io.formats import JSON_SUFFIXES, Format, add
from dissensus.table.names import shown, to_column
from dissensus.table.reading import Reading

MAX_REASON_LENGTH = 200  # characters
MIN_SHARE_OF_TARGETS = 0.9  # that are labels too, before they are taken for known ones; a letter may be one by chance
LABEL, RATING, NUMBER = "label", "rating", "number"
"""Kinds of answers that are read: one label or a list of ticked ones; a grade; a score. All others are only counted."""
_RATED = (RATING, NUMBER)


class Answer(NamedTuple):
    """One answer. A label of None or [] is none: the item and the annotator stay, the row does not."""

    item: Any
    annotator: Any
    label: Any
    question: str = ""
    kind: str = LABEL  # or RATING or NUMBER, or the word for what is not read, in the plural: "spans"
    left_out: str = ""  # why this answer does not count, after its number: "answers skipped"
    gold: bool = False  # True where it is known to be right; then it is no vote


class Item(NamedTuple):
    """What an export says of an item besides answers: its text, its own id."""

    item: Any
    fields: dict[str, Any]
    question: str = ""


class Target(NamedTuple):
    """What an item was asked for: a known label where it is one of the labels given, else a text like others."""

    item: Any
    value: Any
    question: str = ""


class Note(NamedTuple):
    """A sentence for the account of the reading; `loud` where answers may be missing."""

    text: str
    loud: bool = False
    alone: bool = False  # True where it holds of a file that is read alone


Rows = Iterator[Answer | Item | Target | Note]


@dataclass
class Collected:
    """The answers of a file that count, by column, and the account of all."""

    columns: dict[str, Any]
    items: list[Any]
    annotators: list[Any]
    reading: Reading
    kind: str | None = None  # of the table; None where the labels tell
    ticks: str | None = None  # how to take several, where the caller does not say it
    loud: bool = False  # True where answers that people gave are not used
    golds: dict[str, tuple[list[Any], list[Any]]] = with_default(
        default_factory=dict
    )  # question → items and known labels


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
    ticks_are: str | None = None,
) -> None:
    """Enter the format of an annotation tool; `words` say what names its items and annotators.

    `own_items`: each question numbers its own items. `ticks_are`: how to take several ticks where the caller does not
    say it; left out, such answers are an error.
    """

    def read_items(path: Path, columns: Columns | None) -> pa.Table:
        return _item_table(answers(path, columns or Columns()), path)

    def collect(paths: Sequence[Path], columns: Columns, ticks: str | None) -> Collected:
        rows = answers(paths[0], columns)
        if len(paths) > 1:
            rows = _joined({path: answers(path, columns) for path in paths}, own_items)
        where = paths[0] if len(paths) == 1 else paths[0].parent
        found = _collect(rows, where, columns, ticks or ticks_are, words)
        found.reading.format, found.ticks = name, ticks_are
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
        elif isinstance(row, Answer) and not row.left_out and answered.setdefault(repr(row), path) != path:
            row = row._replace(left_out="answers that another file has too")
        yield row


def _collect(rows: Rows, path: Path, columns: Columns, ticks: str | None, words: tuple[str, str]) -> Collected:
    """Sort out which answers count; the others are counted by why they do not."""
    reading = Reading(unit="answers")
    given: list[Answer] = []
    targets: dict[Any, Any] = {}
    loud = False
    for row in rows:
        if isinstance(row, Note):
            text = " ".join(row.text.split())  # which may hold a name from the data
            reading.notes += [] if text in reading.notes else [text]
            loud |= row.loud
            continue
        for role, name in (("item", row.item), ("annotator", getattr(row, "annotator", ""))):
            if not isinstance(name, str | int | float):
                raise DataError(
                    f"{path}: {role} {shown(name)} is no text or number; name another field: {role}=<field>."
                )
        if isinstance(row, Item):
            reading.texts[row.item] = row.fields
        elif isinstance(row, Target):
            targets[row.item] = row.value
        else:
            given.append(
                row._replace(label=_labels(row, path)) if not row.left_out and row.kind in (LABEL, *_RATED) else row
            )
    reading.rows = len(given)
    answered = [one for one in given if not one.left_out]
    chosen = _choose_questions(answered, path, columns.label, ticks)
    used, gold, left = [], [], []
    for one in given:
        why = one.left_out or chosen.get(one.question, {}).get(one.kind, "")
        if not why and not one.label:
            why = "answers without a choice"
        elif not why and one.gold:
            why = "answers marked as right (known labels, no votes)"
            gold.append(one)
        elif not why:
            used.append(one)
        if why:
            reading.unused[_one_line(why)] += 1
            left.append(one)
    if not used:
        raise DataError(
            f"{path} holds no answer that can be used; a table needs at least one. {reading.left_out()}".strip()
        )
    several = any(len(one.label) > 1 for one in used)
    label = [one.label if several else one.label[0] for one in used]
    made: dict[str, Any] = {
        "item": to_column([one.item for one in used], "item"),
        "annotator": to_column([str(one.annotator) for one in used], "annotator"),
        "label": pa.array(label) if several else to_column(label, "label"),
    }
    questions = sorted({one.question for one in used})
    if len(questions) > 1:
        made["question"] = to_column([one.question for one in used], "question")
    reading.columns = {"item": _word(columns.item, words[0]), "annotator": _word(columns.annotator, words[1])}
    reading.columns["label"] = ", ".join(f"'{question}'" for question in questions if question) or "the answers"
    if texts := list(dict.fromkeys(key for fields in reading.texts.values() for key in fields)):
        reading.columns["text"] = ", ".join(f"'{key}'" for key in texts[:3])
    if gold:
        reading.columns["gold"] = f"{len(gold):,} answers marked as right"
    loud |= any(one.annotator != "" and not one.gold for one in left)
    golds = {
        question: ([one.item for one in gold if one.question == question], _golds(gold, question, path))
        for question in {one.question for one in gold}
    }
    if targets and not golds:
        golds = _golds_of_targets(targets, used, reading)
    return Collected(
        made, _distinct(one.item for one in given),
        _distinct(str(one.annotator) for one in given if one.annotator != "" and not one.gold), reading,
        "numbers" if all(one.kind == NUMBER for one in used) and set(label) - {0, 1} else None, None, loud, golds,
    )  # fmt: skip


def _golds_of_targets(
    targets: dict[Any, Any], used: list[Answer], reading: Reading
) -> dict[str, tuple[list[Any], list[Any]]]:
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


def _golds(gold: list[Answer], question: str, path: Path) -> list[Any]:
    found = [one.label for one in gold if one.question == question]
    if any(len(labels) > 1 for labels in found):
        raise DataError(f"{path}: an answer marked as right ticks several labels; only one can be known.")
    return [labels[0] for labels in found]


def _choose_questions(
    answers: list[Answer], path: Path, label: str | None, ticks: str | None
) -> dict[str, dict[str, str]]:
    """Question → kind → why it is not read; nothing for what is read."""
    kinds = Counter((one.question, one.kind) for one in answers if one.kind not in (LABEL, *_RATED) or one.label)
    several = Counter(one.question for one in answers if one.kind == LABEL and len(one.label) > 1)
    there = [question for question, _ in kinds]
    if label is not None and label not in there:
        raise DataError(f"{path} has no answers called {label!r} for label; there are {listed(sorted(set(there)))}.")
    if label is not None and not {LABEL, *_RATED} & {kind for question, kind in kinds if question == label}:
        what = next(kind for question, kind in kinds if question == label)
        raise DataError(f"{path}: {label!r} holds {what}; only labels and ratings of whole items are read.")
    single = [q for q, kind in kinds if kind == LABEL and (ticks or not several[q]) and label in (None, q)]
    rated = [q for q, kind in kinds if kind in _RATED and label in (None, q)]
    ticked = [q for q, kind in kinds if kind == LABEL and several[q] and not ticks]
    if not single and (label in ticked or (label is None and ticked and not rated)):
        question = label or ticked[0]
        total = kinds[question, LABEL]
        some = next(one.label for one in answers if one.question == question and len(one.label) > 1)
        named = f" to {question!r}" if question else ""
        raise DataError(several_ticks(several[question], total, some, f"{path}: ", named))
    if kinds and not single and not rated:
        what = ", ".join(f"{count:,} {kind}" for (_, kind), count in kinds.items())
        raise DataError(f"{path} holds {what}; only labels and ratings of whole items are read.")
    if ticks == "questions" and len(single) > 1:
        raise BadParameter(
            f"ticks='questions' is for one question; choose it: label=, one of {listed(sorted(single))}."
        )
    reasons: dict[str, dict[str, str]] = {}
    for question, kind in kinds:
        named = f" '{question}'" if question else ""
        if kind == LABEL and question not in single:
            how = f"label='{question}'" + (", ticks='votes' or ticks='questions'" if several[question] else "")
            ticked_too = ", some with several ticks," if several[question] else ""
            reasons.setdefault(question, {})[kind] = f"answers{named}{ticked_too} (read by {how})"
        elif kind in _RATED and (single or question not in rated):
            what = "ratings" if kind == RATING else "scores"
            reasons.setdefault(question, {})[kind] = f"{what}{named} (read by label='{question}')"
        elif kind not in (LABEL, *_RATED):
            reasons.setdefault(question, {})[kind] = f"{kind}{named}"
    return reasons


def several_ticks(count: int, total: int, some: list[Any], where: str = "", named: str = "") -> str:
    """The refusal of answers that tick several labels."""
    ticked = ", ".join(map(repr, some[:3]))
    return (
        f"{where}{count:,} of {total:,} answers{named} tick several labels, such as {ticked}; say how to take them: "
        "ticks='votes' counts each tick as a vote, ticks='questions' asks of each label whether it was ticked."
    )


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
        if not isinstance(row.item, str | int | float):
            raise DataError(f"{path}: an item is called {shown(row.item)}; expected text or a number.")
        of_item = about.setdefault(row.item, {})
        if isinstance(row, Item):
            of_item |= {key: value for key, value in row.fields.items() if isinstance(value, str | int | float)}
        elif isinstance(row, Answer) and row.gold:
            of_item["gold"] = (_labels(row, path) or [None])[0]
    if not about:
        raise UnreadableFile(f"{path} holds no item.")
    names = list(dict.fromkeys(key for fields in about.values() for key in fields if key != "item"))
    check_names(names)
    columns = {name: [fields.get(name) for fields in about.values()] for name in names}
    return pa.table({"item": to_column(list(about), "item")} | {name: _column(c, name) for name, c in columns.items()})


def _column(values: list[Any], name: str) -> Any:
    kinds = {type(value) for value in values if value is not None}
    return to_column(values if len(kinds) == 1 else [None if v is None else str(v) for v in values], name)


def field(record: dict[str, Any], named: Any, usual: tuple[str, ...], role: str, where: str) -> Any:
    """Read the field that the caller named for a role, or the first usual one that is there; none raises."""
    keys = usual if named is None else (named,)
    for key in keys:
        if record.get(key) is not None:
            return record[key]
    raise DataError(f"{where} has no {' nor '.join(map(repr, keys))} for {role}; name the field: {role}=<field>.")


def part(record: Any, key: str, kind: type[Any], where: str) -> Any:
    """The entry of a record, empty where it is missing or null; a DataError where it is of another kind."""
    value = record.get(key)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        words: dict[Any, str] = {dict: "an object: {…}", list: "a list: […]", str: "text"}
        raise DataError(f"{where} has {shown(value)} as {key!r}; expected {words[kind]}.")
    return value


def objects(record: Any, key: str, where: str) -> list[dict[str, Any]]:
    """The entry of a record that is a list of objects; empty where it is missing or null."""
    entries = part(record, key, list, where)
    for entry in entries:
        if not isinstance(entry, dict):
            raise DataError(f"{where} has {shown(entry)} in {key!r}; expected an object: {{…}}.")
    return list(entries)


def _one_line(words: str) -> str:
    """Words that may hold a name from the data, as the part of a sentence."""
    plain = " ".join(words.split())
    return plain if len(plain) <= MAX_REASON_LENGTH else plain[: MAX_REASON_LENGTH - 1] + "…"


def _word(named: Any, usual: str) -> str:
    return usual if named is None else f"'{named}'"


def _distinct(names: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(names))
