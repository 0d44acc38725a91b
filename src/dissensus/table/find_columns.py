"""Find which column of a frame (pandas, polars, DuckDB, Arrow) or file holds what, and take it as an Arrow array.

Where names do not tell, the content may: which column is which, and whether a table is wide. A guess by content is made
only where one candidate is left, and is always said; where there are several, the error names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.exceptions import DataError, MissingColumn
from dissensus.table import names as naming
from dissensus.table.kinds import numbers_of
from dissensus.table.spans import are_tags

SYNONYMS: dict[str, tuple[str, ...]] = {
    "item": ("task", "example", "id", "instance", "unit"),
    "annotator": ("worker", "rater", "performer", "judge"),
    "label": ("answer", "annotation"),
    "question": (),
    "weight": (),
    "gold": ("label", "truth", "true_label", "answer"),  # the column of a gold file
}
"""Column names taken for one of ours, in any case and with or without `_id`; our own name wins over its synonyms."""

COUNTS = ("count", "counts", "votes", "n")
"""Column names, in any case, of how many people gave an item a label, in a table without annotators."""
GOLD_BESIDE_LABELS = ("gold", "gold_label", "ground_truth", "truth", "true_label")
"""Columns of a table of labels that are taken for known labels of its items."""
TIMES = ("time", "timestamp", "datetime", "date", "created_at", "submitted_at", "completed_at", "updated_at")
"""Columns that are taken for the time of a label, the first that is there."""
SEPARATOR = "/"  # between the values of several columns that name an item together

MAX_NAMES_LISTED = 12
N_ROWS_LOOKED_AT = 20_000  # the first ones
MAX_CLASSES_GUESSED = 20  # distinct values up to which a column with repeats may hold classes whatever its length
MAX_CLASS_LENGTH = 60  # characters, on average
MIN_ROWS_FOR_REPEATS = 8  # below, a column of items without repeats means nothing

OTHER_NAMES: dict[str, str] = {
    "item": "doc document sample record row prompt text sentence image file filename url post tweet comment hit query "
    "pair conversation trace case answer_id completion_id output_id question_id response_id",
    "annotator": "user username labeler labeller coder reviewer annotated_by completed_by created_by email author "
    "participant expert grader evaluator assessor critic model llm scorer who judge rater annotator worker",
    "label": "labels rating score verdict class category choice vote grade response value decision judgement judgment "
    "sentiment tag result correct is_correct passed winner preference outcome",
}
"""Column names that are taken for one of ours only where the content agrees."""
SYSTEMS = ("model", "llm", "system", "assistant", "candidate", "provider", "generator")
"""Names of columns that say whose answer was judged, where another column says who judged it."""


PLACES: dict[str, str] = {
    "document": "document doc text file passage",
    "sentence": "sentence sent",
    "token": "token position token_index index tok",
    "start": "start begin start_offset start_char",
    "end": "end stop end_offset end_char",
    "label": "label tag ner ner_tag span_label entity type",
}
"""Column names of tables of tags, with a token each, and of spans, with a start and an end each."""


@dataclass(frozen=True)
class Columns:
    """The names that a caller gave for our columns; None where they are found by the usual names."""

    item: str | Sequence[str] | None = None  # several columns, or "a,b", name it together
    annotator: str | Sequence[str] | None = None
    label: str | None = None
    question: str | None = None
    weight: str | None = None
    proba: Mapping[Any, str] | Sequence[str] | None = None

    def named(self, there: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Our name → the columns that the caller named for it; all but `proba`."""
        return {role: split(name, there) for role, name in vars(self).items() if role != "proba"}

    def find(self, there: Sequence[str]) -> dict[str, Any]:
        """Map our names to those of the columns there, `proba` to {class: column}; a missing column raises.

        An item or annotator that several columns name together is mapped to a tuple of them.
        """
        given = self.named(there)
        found: dict[str, Any] = {}
        taken = flat(given.values())
        free = [column for column in there if column not in taken]  # what is named for one role is no other's
        for role, names in given.items():
            if not names and (column := guess_column(role, free)) is not None:
                names = (column,)
            if check_there(role, names, there):
                found[role] = names if len(names) > 1 else names[0]
        proba = self.proba
        if proba is None and "label" not in found:
            proba = [column for column in there if column.startswith("p_")]
        if proba:
            by_class = proba if isinstance(proba, Mapping) else {column.removeprefix("p_"): column for column in proba}
            check_there("proba", tuple(by_class.values()), there)
            found["proba"] = dict(by_class)
            found.pop("label", None)
        for role in ("item", "annotator", "label"):
            if role not in found and not (role == "label" and "proba" in found):
                raise no_column(role, free, taken=found)
        return found

    def take(self, frame: Any) -> dict[str, Any]:
        """Take the columns of a frame as Arrow arrays, under our names; `proba` as {class: numbers}."""
        found = self.find(column_names(frame))
        data = to_arrow(frame, flat(found.values()))
        by_class = found.pop("proba", {})
        columns: dict[str, Any] = {role: take_column(data, column, role) for role, column in found.items()}
        if by_class:
            columns["proba"] = {name: naming.floats(data[column], column) for name, column in by_class.items()}
        return columns


def needed(columns: Columns | None, there: Sequence[str]) -> list[str]:
    """List the columns that have to be read; all of those there where `columns` is None."""
    wanted = list(there)
    if columns is not None:
        wanted = flat(columns.find(there).values())
        wanted += [name for name in there if name in GOLD_BESIDE_LABELS and name not in wanted]
        wanted += time_column(there, wanted)
    check_names(wanted)
    for name in wanted:
        if there.count(name) > 1:
            raise DataError(f"{there.count(name)} columns are called {naming.shown(name)}; rename or drop all but one.")
    return list(dict.fromkeys(wanted))


def time_column(there: Sequence[str], used: Sequence[str]) -> list[str]:
    """The column of times, by its name, in a list; an empty one where there is none."""
    plain = {name.strip().lower(): name for name in there if name not in used and there.count(name) == 1}
    return [plain[name] for name in TIMES if name in plain][:1]


def split(name: str | Sequence[str] | None, there: Sequence[str]) -> tuple[str, ...]:
    """The columns that a caller named for one role: none, one, or several with commas between them."""
    if name is None:
        return ()
    if not isinstance(name, str):
        return tuple(name)
    parts = tuple(part.strip() for part in name.split(","))
    return parts if name not in there and len(parts) > 1 and all(parts) else (name,)


def flat(columns: Iterable[str | tuple[str, ...] | Mapping[Any, str]]) -> list[str]:
    """The names of columns, of which several may stand together, or under the names of classes."""
    together = (column.values() if isinstance(column, Mapping) else column for column in columns)
    return [name for column in together for name in ([column] if isinstance(column, str) else column)]


def take_column(data: Mapping[str, Any], column: str | tuple[str, ...], role: str) -> Any:
    """One column, or the values of several joined by a stroke; an error where two rows would get the same name so."""
    if isinstance(column, str):
        return data[column]
    texts = [pc.cast(chunked(naming.to_column(data[name], name)), pa.string()) for name in column]
    together = pc.binary_join_element_wise(*texts, SEPARATOR)
    if count_rows(*texts) != count_rows(together):
        raise DataError(
            f"columns {listed(column)} name no {role} together: a value holds {SEPARATOR!r}; replace it there."
        )
    return together


def chunked(column: Any) -> Any:
    """A column of any kind as a chunked Arrow array."""
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column)])


def count_rows(*columns: Any) -> int:
    """How many different rows the columns have together; missing values count as one."""
    names = [str(i) for i in range(len(columns))]
    return int(pa.table([chunked(column) for column in columns], names=names).group_by(names).aggregate([]).num_rows)


def check_names(names: Iterable[str]) -> None:
    """Raise where a column's name cannot be stored: half a pair of surrogates, as JSON may write it."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise DataError(f"a column is called {name!r}, which is no text that can be stored; rename it.") from None


def column_names(frame: Any) -> list[str]:
    """The names of the columns of any frame, which must be text, each once."""
    in_pandas = type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns")
    if in_pandas and frame.columns.nlevels > 1:
        raise DataError("the frame's columns have several levels; give them one, such as frame.columns.map('_'.join).")
    pandas_names = list(frame.columns) if in_pandas else []
    for name in pandas_names:
        if not isinstance(name, str):
            raise DataError(
                f"a column of the frame is called {name!r}, which is no text; rename it, or, if each annotator has a "
                "column, use Annotations.from_matrix."
            )
        if pandas_names.count(name) > 1:
            raise DataError(f"{pandas_names.count(name)} columns are called {name!r}; rename or drop all but one.")
    return list(frame.column_names if isinstance(frame, pa.Table) else _native(frame).collect_schema().names())


def to_arrow(frame: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Take the named columns of any frame as Arrow arrays."""
    if isinstance(frame, pa.Table):  # narwhals would join the chunks, which costs a copy
        return {column: frame[column] for column in columns}
    native = _native(frame)
    if not hasattr(native, "to_arrow"):  # lazy: DuckDB, polars' lazy frames
        native = native.select(list(dict.fromkeys(columns))).collect(backend="pyarrow")
    result = {}
    for column in columns:
        try:
            result[column] = native[column].to_arrow()
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # a pandas column of mixed kinds
            result[column] = naming.to_column(native[column].to_list(), column)
    return result


def _native(frame: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(frame)
    except TypeError:
        raise DataError(
            f"cannot read an object of type {type(frame).__name__}; give a path, a frame, an Arrow table or a dataset."
        ) from None


def no_column(
    role: str, there: Sequence[str], name: str | None = None, taken: Mapping[str, Any] | None = None
) -> MissingColumn:
    """Make the error for a role that no column plays, or for a column that was named and is not there.

    `taken` are the columns of other roles.
    """
    if name is not None:
        return MissingColumn(f"no column '{name}' for {role}; the columns are {listed(there)}.")
    other = ", ".join(SYNONYMS[role])
    wide = ", or say wide=True if each annotator has a column" if role == "annotator" else ""
    if role == "annotator" and (counts := next((one for one in there if one.strip().lower() in COUNTS), None)):
        wide = f"; of vote counts, Annotations.from_counts(item, label, {counts}) makes a table in Python"
    others = [f"{listed(flat([column]))} for the {one}" for one, column in (taken or {}).items() if one != "proba"]
    besides = f" besides {', '.join(others)}" if others else ""
    left = f"the columns are {listed(there)}{besides}" if there else f"no column is left for it{besides}"
    return MissingColumn(f"no column '{role}' (nor {other}); {left}. Name it: {role}=<column>{wide}.")


def guess_column(role: str, there: Sequence[str]) -> str | None:
    """Find the column that is called by the role's name or a synonym; None where there is none."""

    def plain(name: str) -> str:
        name = name.strip().lower()
        # an "annotation_id" numbers the rows; it is no label
        return name.removesuffix("_id") if role in ("item", "annotator", "question") and name != "_id" else name

    own = [c for c in there if c == role] or [c for c in there if plain(c) == role]
    if own:
        return own[0]
    return one_of(role, [c for c in there if plain(c) in SYNONYMS[role]])


def one_of(role: str, found: Sequence[str]) -> str | None:
    """The one column that may play a role; None where there is none, an error where there are several."""
    if len(found) > 1:
        raise DataError(f"columns {listed(found)} could each be {role}; say which: {role}=<column>.")
    return found[0] if found else None


def check_there(role: str, names: tuple[str, ...], there: Sequence[str]) -> tuple[str, ...]:
    """The columns that were named for a role; an error where one is not there."""
    for name in names:
        if name not in there:
            raise no_column(role, there, name)
    return names


def listed(names: Sequence[str]) -> str:
    """List the first dozen names, quoted."""
    return ", ".join(map(naming.shown, names[:MAX_NAMES_LISTED])) + (", …" if len(names) > MAX_NAMES_LISTED else "")


# By content -----------------------------------------------------------------------------------------------------------


class NoAnnotator(MissingColumn):
    """No column names who gave the labels: it may be a wide table."""


@dataclass(frozen=True)
class Column:
    """What the first rows of a column look like."""

    name: str
    values: Any

    @cached_property
    def known(self) -> Any:
        """The values that are there, as an Arrow array; none where they are no names."""
        found = self.values.combine_chunks() if isinstance(self.values, pa.ChunkedArray) else self.values
        if pa.types.is_nested(found.type) or pa.types.is_null(found.type):
            return pa.array([], pa.string())
        if pa.types.is_dictionary(found.type):
            found = found.cast(found.type.value_type)
        if pa.types.is_string_view(found.type):  # Arrow cannot filter these
            found = found.cast(pa.large_string())
        found = found.filter(found.is_valid())
        return found.filter(pc.not_equal(pc.utf8_trim_whitespace(found), "")) if naming.is_text(found.type) else found

    @cached_property
    def distinct(self) -> set[Any]:
        """The different values."""
        return set(self.known.unique().to_pylist())

    @cached_property
    def holds_classes(self) -> bool:
        """True where few short values repeat, none of them JSON."""
        n, several = len(self.known), len(self.distinct)
        if not 1 <= several < n or several > max(MAX_CLASSES_GUESSED, n // 10):
            return False
        if not naming.is_text(self.known.type):
            return not pa.types.is_temporal(self.known.type)
        texts = [str(value) for value in self.distinct]
        long = sum(map(len, texts)) / len(texts) > MAX_CLASS_LENGTH
        return not long and not any(text.lstrip()[:1] in ("[", "{") for text in texts)

    @cached_property
    def holds_numbers(self) -> bool:
        """True where the values are numbers, or spell some; such a column is called score, rating, value, …."""
        kind = self.known.type
        if not naming.is_text(kind):
            return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
        return numbers_of(np.array(list(self.distinct), object)) is not None


def complete(frame: Any, columns: Columns, error: MissingColumn) -> tuple[Columns, dict[str, str]]:
    """The columns with those that the names did not tell, and role → why; where there is no telling, raise `error`."""
    head = _head(frame)
    there = list(head)
    named = columns.named(there)
    taken = set(flat(named.values()))
    if any(name not in there for name in taken):
        raise error
    free = [name for name in there if name not in taken and name not in GOLD_BESIDE_LABELS]
    found: dict[str, str] = {}
    for role in ("item", "annotator", "label"):
        if named[role]:
            continue
        if column := guess_column(role, free):
            named[role] = (column,)
        elif column := _by_other_name(role, [head[name] for name in free]):
            named[role], found[role] = (column,), "by name and content"
        if named[role]:
            free = [name for name in free if name not in named[role]]
    missing = [role for role in ("item", "annotator", "label") if not named[role]]
    if missing in (["label"], ["item"]):
        (role,) = missing
        named[role], found[role] = (_by_content(role, head, named, free),), "by content"
    elif missing:
        raise NoAnnotator(str(no_column("annotator", there))) if "annotator" in missing else error
    chosen: dict[str, Any] = {role: names if len(names) > 1 else names[0] for role, names in named.items() if names}
    return replace(columns, **chosen), found


def place_columns(frame: Any, columns: Columns) -> dict[str, Any] | None:
    """Role → columns of a table of spans: document, annotator, label, and token or start and end; None for another."""
    there = column_names(frame)
    plain = {name: name.strip().lower() for name in there}
    found: dict[str, Any] = {}
    for role, usual in PLACES.items():
        named = [name for word in usual.split() for name in there if plain[name].removesuffix("_id") == word]
        if named:
            found[role] = named[0]
    annotator = split(columns.annotator, there) or (guess_column("annotator", there),)
    if annotator[0] is None:
        annotator = tuple(name for name in there if plain[name] in OTHER_NAMES["annotator"].split())[:1]
    for role, given in (("annotator", annotator), ("label", split(columns.label, there))):
        if given:
            found[role] = given if len(given) > 1 else given[0]
    sentence = found.pop("sentence", None)
    if item := split(columns.item, there):
        found["document"], sentence = item if len(item) > 1 else item[0], None
    spans = {"start", "end"} <= found.keys()
    if not {"document", "annotator", "label"} <= found.keys() or not (spans or "token" in found):
        return None
    if any(name not in there for name in flat(found.values())):
        return None
    if spans:
        found.pop("token", None)
        return found
    known = Column("label", to_arrow(frame, [found["label"]])[found["label"]]).distinct
    if sentence is not None and sentence != found["document"]:
        found["document"] = (*flat([found["document"]]), sentence)
    return found if are_tags(known) else None


def wide_columns(frame: Any, columns: Columns, insist: bool) -> tuple[str | None, list[str]] | None:
    """The column of the items (None: each row is one) and those of the annotators; None where a table is not wide.

    With `insist`, because the caller says that it is one, an error where its columns cannot be told.
    """
    head = _head(frame)
    there = list(head)
    item, people = (check_there(role, split(getattr(columns, role), there), there) for role in ("item", "annotator"))
    if len(item) > 1:
        raise DataError("a wide table has one column that names the items; item= names several.")
    free = [name for name in there if name not in (*item, *people, *GOLD_BESIDE_LABELS)]
    named = item[0] if item else guess_column("item", free)
    others = [name for name in free if name != named]
    group = list(people) or _alike([head[name] for name in others])
    if people and others and not insist and len(_alike([head[name] for name in people])) < len(people):
        return None
    if insist and len(group) < 2:
        group = [name for name in others if head[name].known and head[name].holds_numbers]
    if len(group) < 2:
        if insist:
            raise DataError(
                f"no columns of the same labels were found among {listed(there)}; name them: wide=True, annotator=[…]."
            )
        return None
    if not insist and (label := guess_column("label", group)):
        raise DataError(
            f"each of {listed(group)} may hold one annotator's labels, and {label!r} all labels or the known ones; say "
            "which: wide=True, annotator=[…], or annotator=<column>."
        )
    if named is None:
        unique = [name for name in free if name not in group and len(head[name].distinct) == len(head[name].values)]
        named = unique[0] if unique else None
    elif not insist and len(head[named].distinct) < len(head[named].values):
        return None
    return named, group


def check_item(read_columns: Callable[[None], Any], found: dict[str, Any], taken: dict[str, Any]) -> None:
    """Ask where a column called `id` or the like numbers the rows, and another one may name the items."""
    item, annotator, n = found["item"], found["annotator"], len(taken["item"])
    if item.strip().lower().removesuffix("_id") == "item" or n < MIN_ROWS_FOR_REPEATS or not isinstance(annotator, str):
        return
    if count_rows(naming.to_column(taken["item"], "item")) < n:
        return
    head = _head(read_columns(None))
    for name, one in _beside(head, item, annotator).items():
        n = len(one.values)
        if 2 * len(one.distinct) <= n and _pairs(one, head[annotator]) >= 0.9 * n:
            raise DataError(
                f"column {item!r} is another in every row, so that no item would have two labels; say what names the "
                f"items: item={name!r}, whose values repeat, or item={item!r}."
            )


def system_column(read_columns: Callable[[None], Any], found: dict[str, Any], taken: dict[str, Any]) -> str | None:
    """The column that names an item together with `item`: whose answer it is, where annotators judged several."""
    item, annotator = found["item"], found["annotator"]
    if not (isinstance(item, str) and isinstance(annotator, str)) or "question" in found:
        return None
    if count_rows(*(naming.to_column(taken[role], role) for role in ("item", "annotator"))) == len(taken["item"]):
        return None
    head = _head(read_columns(None))
    for name, one in _beside(head, item, annotator).items():
        if _plain(name) & set(SYSTEMS) and _pairs(head[item], head[annotator], one) == len(one.values):
            return name
    return None


def _head(frame: Any) -> dict[str, Column]:
    data = to_arrow(frame, column_names(frame))
    return {name: Column(name, column[:N_ROWS_LOOKED_AT] if len(column) else column) for name, column in data.items()}


def _beside(head: dict[str, Column], *used: str) -> dict[str, Column]:
    """The other columns, of those that have a value in every row."""
    return {name: one for name, one in head.items() if name not in used and len(one.known) == len(one.values)}


def _by_other_name(role: str, free: Sequence[Column]) -> str | None:
    """The one column with another usual name whose content does not contradict it."""

    def fits(one: Column) -> bool:
        if role == "label":
            return pa.types.is_list(one.values.type) or (
                bool(one.distinct) and (one.holds_classes or one.holds_numbers)
            )
        return bool(one.distinct) and (role != "item" or not pa.types.is_floating(one.known.type))

    found = [one for one in free if _plain(one.name) & set(OTHER_NAMES[role].split()) and fits(one)]
    if role == "annotator" and len(found) > 1:  # a model beside a judge is whose answer was judged
        found = [one for one in found if not _plain(one.name) & set(SYSTEMS)] or found
    if role == "label" and len(found) > 1:  # a verdict goes before its score
        found = [one for one in found if not one.holds_numbers] or found
    return one_of(role, [one.name for one in found])


def _plain(name: str) -> set[str]:
    """A column's name in lower case, with and without what often ends it."""
    whole = name.strip().lower()
    return {whole, *(whole.removesuffix(end) for end in ("_id", "_name", "_model"))}


def _by_content(role: str, head: dict[str, Column], named: dict[str, tuple[str, ...]], free: list[str]) -> str:
    """The one column that can play the role by what it holds; where there are none or several, raise.

    A label is a column of classes whose values differ within items; an item repeats, and tells the rows of an annotator
    apart.
    """
    beside = head[named["item" if role == "label" else "annotator"][0]]
    n = len(beside.values)

    def may_be(one: Column) -> bool:
        if role == "item":
            return 1.5 * len(one.distinct) <= n == len(one.known) and _pairs(one, beside) >= 0.9 * n
        if not one.holds_classes or len(one.distinct) < 2:
            return False
        return len(named["item"]) > 1 or _pairs(beside, one) > len(beside.distinct)

    found = [name for name in free if may_be(head[name])]
    if len(found) == 1:
        return found[0]
    error = no_column(role, free, taken={one: names for one, names in named.items() if names})
    raise MissingColumn(f"{str(error)[:-1]}; it may be {' or '.join(map(repr, found))}.") if found else error


def _alike(free: Sequence[Column]) -> list[str]:
    """The largest group of columns that hold the same few classes."""
    groups: list[tuple[list[str], set[Any], set[Any]]] = []  # names, values, values however spelt
    for one in free:
        short = all(len(str(value)) <= MAX_CLASS_LENGTH for value in one.distinct)
        if not one.holds_classes and not (1 <= len(one.distinct) <= 3 and short):
            continue
        own = set(map(naming.folded, one.distinct))  # half of them, or of the group's, are in the other
        home = next((group for group in groups if 2 * len(own & group[2]) >= min(len(own), len(group[2]))), None)
        if home is None:
            groups.append(home := ([], set(), set()))
        home[0].append(one.name)
        home[1].update(one.distinct)
        home[2].update(own)
    names, values, _ = max(groups, key=lambda group: len(group[0]), default=([], set(), set()))
    return names if len(values) > 1 else []


def _pairs(*columns: Column) -> int:
    """How many different pairs of values two columns have, or rows several."""
    return count_rows(*(naming.to_column(column.values, column.name) for column in columns))
