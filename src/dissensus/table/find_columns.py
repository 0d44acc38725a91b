"""Find the columns of items, annotators and labels in a frame or a file, and read them as Arrow arrays.

Frames may be from pandas, polars, DuckDB or Arrow. Columns are found by name, otherwise by content. A wide table has
one column per annotator. A column is guessed by its content only if there is a single candidate, and the import report
states the guess. If there are several candidates, an error names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.exceptions import MissingColumn
from dissensus.messages import quote_names
from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from dissensus.table.kinds import parse_numbers
from dissensus.table.spans import are_tags

COLUMN_SYNONYMS: dict[str, tuple[str, ...]] = {
    "item": ("task", "example", "id", "instance", "unit"),
    "annotator": ("worker", "rater", "performer", "judge"),
    "label": ("answer", "annotation"),
    "question": (),
    "weight": (),
    "gold": ("label", "truth", "true_label", "answer"),  # in a file of gold labels
}
"""Role → synonyms of its column name, in any case, with or without `_id`; the name of the role is preferred."""

COUNT_COLUMNS = ("count", "counts", "votes", "n")
"""Names of columns of vote counts in tables without annotators, in lower or upper case."""
GOLD_COLUMNS = ("gold", "gold_label", "ground_truth", "truth", "true_label")
"""Names of columns that are read as gold labels of the items in a table of labels."""
TIME_COLUMNS = ("time", "timestamp", "datetime", "date", "created_at", "submitted_at", "completed_at", "updated_at")
"""Names of columns with the time of a label; the first column that exists is used."""
NAME_SEPARATOR = "/"  # joins the values of several columns to the name of an item

MAX_ROWS_INSPECTED = 20_000  # rows from which roles of columns are guessed
MAX_CLASSES_GUESSED = 20  # A column with at most this many distinct values may hold classes, whatever its length.
MAX_CLASS_LENGTH = 60  # mean number of characters of a class name
MIN_ROWS_FOR_REPEATS = 8  # In shorter tables, items may not repeat by chance.


FURTHER_COLUMN_SYNONYMS: dict[str, str] = {
    "item": "doc document sample record row prompt text sentence image file filename url post tweet comment hit query "
    "pair conversation trace case answer_id completion_id output_id question_id response_id",
    "annotator": "user username labeler labeller coder reviewer annotated_by completed_by created_by email author "
    "participant expert grader evaluator assessor critic model llm scorer who judge rater annotator worker",
    "label": "labels rating score verdict class category choice vote grade response value decision judgement judgment "
    "sentiment tag result correct is_correct passed winner preference outcome",
}
"""Further synonyms, which are accepted only if the content of the column fits the role."""
SYSTEM_COLUMNS = ("model", "llm", "system", "assistant", "candidate", "provider", "generator")
"""Names of columns that name the evaluated system if another column names the judge."""
SPAN_COLUMNS: dict[str, str] = {
    "document": "document doc text file passage",
    "sentence": "sentence sent",
    "token": "token position token_index index tok",
    "start": "start begin start_offset start_char",
    "end": "end stop end_offset end_char",
    "label": "label tag ner ner_tag span_label entity type",
}
"""Role → column names in tables of tags (one token per row) and of spans (a start and an end per row)."""


@dataclass(frozen=True)
class ColumnNames:
    """The column names that the caller chose for each role; None if the column is to be found by name."""

    item: str | Sequence[str] | None = None  # Several columns, or "a,b", name items together.
    annotator: str | Sequence[str] | None = None
    label: str | None = None
    question: str | None = None
    weight: str | None = None
    proba: Mapping[Any, str] | Sequence[str] | None = None

    def split_names(self, available: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return role → columns chosen by the caller, for all roles except `proba`."""
        return {role: split_column_names(name, available) for role, name in vars(self).items() if role != "proba"}

    def resolve(self, available: Sequence[str]) -> dict[str, Any]:
        """Return role → column, and `proba` → {class: column}; raise if a column is missing.

        A role with several columns is mapped to a tuple.
        """
        chosen = self.split_names(available)
        resolved: dict[str, Any] = {}
        taken = flatten_column_names(chosen.values())
        free = [column for column in available if column not in taken]  # A column has only one role.
        for role, names in chosen.items():
            if not names and (column := guess_column(role, free)) is not None:
                names = (column,)
            if check_columns_exist(role, names, available):
                resolved[role] = names if len(names) > 1 else names[0]
        proba = self.proba
        if proba is None and "label" not in resolved:
            proba = [column for column in available if column.startswith("p_")]
        if proba:
            by_class = proba if isinstance(proba, Mapping) else {column.removeprefix("p_"): column for column in proba}
            check_columns_exist("proba", tuple(by_class.values()), available)
            resolved["proba"] = dict(by_class)
            resolved.pop("label", None)
        for role in ("item", "annotator", "label"):
            if role not in resolved and not (role == "label" and "proba" in resolved):
                raise missing_column_error(role, free, taken=resolved)
        return resolved

    def read_arrays(self, frame: Any) -> dict[str, Any]:
        """Return role → column of a frame as an Arrow array, and `proba` → {class: numbers}."""
        columns_by_role = self.resolve(column_names(frame))
        data = to_arrow(frame, flatten_column_names(columns_by_role.values()))
        by_class = columns_by_role.pop("proba", {})
        columns: dict[str, Any] = {
            role: read_role_column(data, column, role) for role, column in columns_by_role.items()
        }
        if by_class:
            columns["proba"] = {name: naming.to_floats(data[column], column) for name, column in by_class.items()}
        return columns


def columns_to_read(columns: ColumnNames | None, available: Sequence[str]) -> list[str]:
    """Return the names of the columns to read from a file; all columns if `columns` is None."""
    required = list(available)
    if columns is not None:
        required = flatten_column_names(columns.resolve(available).values())
        required += [name for name in available if name in GOLD_COLUMNS and name not in required]
        required += find_time_column(available, required)
    check_column_names(required)
    for name in required:
        if available.count(name) > 1:
            raise errors.DuplicateName(location="the columns", name=name, n=available.count(name))
    return list(dict.fromkeys(required))


def find_time_column(available: Sequence[str], used: Sequence[str]) -> list[str]:
    """Return a list with the name of the column of times, or an empty list if there is none."""
    plain = {name.strip().lower(): name for name in available if name not in used and available.count(name) == 1}
    return [plain[name] for name in TIME_COLUMNS if name in plain][:1]


def split_column_names(name: str | Sequence[str] | None, available: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that the caller chose for one role as a tuple; commas separate several columns."""
    if name is None:
        return ()
    if not isinstance(name, str):
        return tuple(name)
    parts = tuple(part.strip() for part in name.split(","))
    return parts if name not in available and len(parts) > 1 and all(parts) else (name,)


def flatten_column_names(columns: Iterable[str | tuple[str, ...] | Mapping[Any, str]]) -> list[str]:
    """Return all column names in one list; entries may be names, tuples, or mappings from class to name."""
    groups = (column.values() if isinstance(column, Mapping) else column for column in columns)
    return [name for group in groups for name in ([group] if isinstance(group, str) else group)]


def read_role_column(data: Mapping[str, Any], column: str | tuple[str, ...], role: str) -> Any:
    """Return one column, or several columns joined by slashes; raise if different rows get the same name."""
    if isinstance(column, str):
        return data[column]
    texts = [pc.cast(to_chunked_array(naming.to_column(data[name], name)), pa.string()) for name in column]
    together = pc.binary_join_element_wise(*texts, NAME_SEPARATOR)
    if count_distinct_rows(*texts) != count_distinct_rows(together):
        raise errors.AmbiguousJoinedNames(columns=column, role=role)
    return together


def to_chunked_array(column: Any) -> Any:
    """Convert a column of any type to a chunked Arrow array."""
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column)])


def count_distinct_rows(*columns: Any) -> int:
    """Return the number of distinct rows of these columns; missing values are equal to each other."""
    names = [str(i) for i in range(len(columns))]
    return int(
        pa.table([to_chunked_array(column) for column in columns], names=names).group_by(names).aggregate([]).num_rows
    )


def check_column_names(names: Iterable[str]) -> None:
    """Raise if a column name cannot be stored as UTF-8; JSON can contain such names (lone surrogates)."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise errors.UnusableColumnName(name=name, problem="cannot be stored as text") from None


def column_names(frame: Any) -> list[str]:
    """Return the column names of any frame; raise if they are not distinct text."""
    in_pandas = type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns")
    if in_pandas and frame.columns.nlevels > 1:
        raise errors.SeveralNameLevels
    pandas_names = list(frame.columns) if in_pandas else []
    for name in pandas_names:
        if not isinstance(name, str):
            raise errors.UnusableColumnName(name=name, problem="is not text")
        if pandas_names.count(name) > 1:
            raise errors.DuplicateName(location="the columns", name=name, n=pandas_names.count(name))
    return list(frame.column_names if isinstance(frame, pa.Table) else _to_narwhals(frame).collect_schema().names())


def to_arrow(frame: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return the named columns of any frame as Arrow arrays."""
    if isinstance(frame, pa.Table):  # narwhals would copy the data to join the chunks.
        return {column: frame[column] for column in columns}
    native = _to_narwhals(frame)
    if not hasattr(native, "to_arrow"):  # Lazy frames of DuckDB and polars must be collected first.
        native = native.select(list(dict.fromkeys(columns))).collect(backend="pyarrow")
    result = {}
    for column in columns:
        try:
            result[column] = native[column].to_arrow()
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # This is a pandas column of mixed types.
            result[column] = naming.to_column(native[column].to_list(), column)
    return result


def _to_narwhals(frame: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(frame)
    except TypeError:
        raise errors.UnsupportedSource(type=type(frame).__name__) from None


def missing_column_error(
    role: str,
    available: Sequence[str],
    name: str | None = None,
    taken: Mapping[str, Any] | None = None,
    candidates: Sequence[str] = (),
) -> MissingColumn:
    """Return the error for a role without a column, or for a column `name` that does not exist.

    `taken` maps other roles to their columns; `candidates` are columns that may have this role.
    """
    if name is not None:
        return errors.UnknownColumn(name=name, role=role, columns=tuple(available))
    counts = (
        next((column for column in available if column.strip().lower() in COUNT_COLUMNS), "")
        if role == "annotator"
        else ""
    )
    error = errors.AnnotatorColumnMissing if role == "annotator" and not counts else errors.RoleColumnMissing
    others = {
        other: quote_names(flatten_column_names([columns]))
        for other, columns in (taken or {}).items()
        if other != "proba"
    }
    return error(
        role=role, synonyms=", ".join(COLUMN_SYNONYMS[role]), columns=tuple(available), columns_of_roles=others,
        counts=counts, candidates=tuple(candidates),
    )  # fmt: skip


def guess_column(role: str, available: Sequence[str]) -> str | None:
    """Return the column whose name is the role or a synonym of it, or None."""

    def normalize_name(name: str) -> str:
        name = name.strip().lower()
        # The suffix is kept for labels, because an "annotation_id" numbers the rows.
        return name.removesuffix("_id") if role in ("item", "annotator", "question") and name != "_id" else name

    own = [c for c in available if c == role] or [c for c in available if normalize_name(c) == role]
    if own:
        return own[0]
    return require_one_candidate(role, [c for c in available if normalize_name(c) in COLUMN_SYNONYMS[role]])


def require_one_candidate(role: str, candidates: Sequence[str]) -> str | None:
    """Return the only candidate for a role, or None if there is none; raise if there are several."""
    if len(candidates) > 1:
        raise errors.AmbiguousColumns(role=role, columns=tuple(candidates))
    return candidates[0] if candidates else None


def check_columns_exist(role: str, names: tuple[str, ...], available: Sequence[str]) -> tuple[str, ...]:
    """Return the columns chosen for a role; raise if one of them does not exist."""
    for name in names:
        if name not in available:
            raise missing_column_error(role, available, name)
    return names


# By content -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnSample:
    """The first rows of a column, which are inspected to guess its role."""

    name: str
    values: Any

    @cached_property
    def present_values(self) -> Any:
        """Return the non-missing values as an Arrow array; nested values count as missing."""
        values = self.values.combine_chunks() if isinstance(self.values, pa.ChunkedArray) else self.values
        if pa.types.is_nested(values.type) or pa.types.is_null(values.type):
            return pa.array([], pa.string())
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_string_view(values.type):  # Arrow cannot filter string views.
            values = values.cast(pa.large_string())
        values = values.drop_null()
        return (
            values.filter(pc.not_equal(pc.utf8_trim_whitespace(values), ""))
            if naming.is_text_type(values.type)
            else values
        )

    @cached_property
    def distinct_values(self) -> set[Any]:
        """Return the distinct non-missing values."""
        return set(self.present_values.unique().to_pylist())

    @cached_property
    def holds_classes(self) -> bool:
        """Return True if the column repeats a few short values that are not JSON."""
        n, several = len(self.present_values), len(self.distinct_values)
        if not 1 <= several < n or several > max(MAX_CLASSES_GUESSED, n // 10):
            return False
        if not naming.is_text_type(self.present_values.type):
            return not pa.types.is_temporal(self.present_values.type)
        texts = [str(value) for value in self.distinct_values]
        long = sum(map(len, texts)) / len(texts) > MAX_CLASS_LENGTH
        return not long and not any(text.lstrip()[:1] in ("[", "{") for text in texts)

    @cached_property
    def holds_numbers(self) -> bool:
        """Return True if the values are numbers or text that spells numbers."""
        kind = self.present_values.type
        if not naming.is_text_type(kind):
            return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
        return parse_numbers(np.array(list(self.distinct_values), object)) is not None


def guess_missing_columns(frame: Any, columns: ColumnNames, error: MissingColumn) -> tuple[ColumnNames, dict[str, str]]:
    """Return the columns with guesses for missing roles, and role → reason; raise `error` if there is no candidate."""
    head = _sample_columns(frame)
    available = list(head)
    chosen_columns = columns.split_names(available)
    taken = set(flatten_column_names(chosen_columns.values()))
    if any(name not in available for name in taken):
        raise error
    free = [name for name in available if name not in taken and name not in GOLD_COLUMNS]
    reasons: dict[str, str] = {}
    for role in ("item", "annotator", "label"):
        if chosen_columns[role]:
            continue
        if column := guess_column(role, free):
            chosen_columns[role] = (column,)
        elif column := _find_by_other_name(role, [head[name] for name in free]):
            chosen_columns[role], reasons[role] = (column,), "by name and content"
        if chosen_columns[role]:
            free = [name for name in free if name not in chosen_columns[role]]
    missing = [role for role in ("item", "annotator", "label") if not chosen_columns[role]]
    if missing in (["label"], ["item"]):
        (role,) = missing
        chosen_columns[role], reasons[role] = (_find_by_content(role, head, chosen_columns, free),), "by content"
    elif missing:
        raise missing_column_error("annotator", available) if "annotator" in missing else error
    chosen: dict[str, Any] = {
        role: names if len(names) > 1 else names[0] for role, names in chosen_columns.items() if names
    }
    return replace(columns, **chosen), reasons


def find_span_columns(frame: Any, columns: ColumnNames) -> dict[str, Any] | None:
    """Return role → columns of a table of spans or tags, or None if the frame is not such a table.

    The roles are document, annotator, label, and either token or start and end.
    """
    available = column_names(frame)
    plain = {name: name.strip().lower() for name in available}
    columns_by_role: dict[str, Any] = {}
    for role, usual in SPAN_COLUMNS.items():
        named = [name for word in usual.split() for name in available if plain[name].removesuffix("_id") == word]
        if named:
            columns_by_role[role] = named[0]
    annotator = split_column_names(columns.annotator, available) or (guess_column("annotator", available),)
    if annotator[0] is None:
        annotator = tuple(name for name in available if plain[name] in FURTHER_COLUMN_SYNONYMS["annotator"].split())[:1]
    for role, chosen in (("annotator", annotator), ("label", split_column_names(columns.label, available))):
        if chosen:
            columns_by_role[role] = chosen if len(chosen) > 1 else chosen[0]
    sentence = columns_by_role.pop("sentence", None)
    if item := split_column_names(columns.item, available):
        columns_by_role["document"], sentence = item if len(item) > 1 else item[0], None
    spans = {"start", "end"} <= columns_by_role.keys()
    if not {"document", "annotator", "label"} <= columns_by_role.keys() or not (spans or "token" in columns_by_role):
        return None
    if any(name not in available for name in flatten_column_names(columns_by_role.values())):
        return None
    if spans:
        columns_by_role.pop("token", None)
        return columns_by_role
    labels = ColumnSample(
        "label", to_arrow(frame, [columns_by_role["label"]])[columns_by_role["label"]]
    ).distinct_values
    if sentence is not None and sentence != columns_by_role["document"]:
        columns_by_role["document"] = (*flatten_column_names([columns_by_role["document"]]), sentence)
    return columns_by_role if are_tags(labels) else None


def find_wide_columns(frame: Any, columns: ColumnNames, insist: bool) -> tuple[str | None, list[str]] | None:
    """Return the column of items (None if each row is an item) and those of annotators; None if not a wide table.

    With `insist`, the caller states that the table is wide; an error is raised if its columns cannot be found.
    """
    head = _sample_columns(frame)
    available = list(head)
    item, annotators = (
        check_columns_exist(role, split_column_names(getattr(columns, role), available), available)
        for role in ("item", "annotator")
    )
    if len(item) > 1:
        raise errors.SeveralItemColumns
    free = [name for name in available if name not in (*item, *annotators, *GOLD_COLUMNS)]
    item_column = item[0] if item else guess_column("item", free)
    others = [name for name in free if name != item_column]
    group = list(annotators) or _find_largest_group([head[name] for name in others])
    if (
        annotators
        and others
        and not insist
        and len(_find_largest_group([head[name] for name in annotators])) < len(annotators)
    ):
        return None
    if insist and len(group) < 2:
        group = [name for name in others if head[name].present_values and head[name].holds_numbers]
    if len(group) < 2:
        if insist:
            raise errors.NoWideColumns(columns=tuple(available))
        return None
    if not insist and (label := guess_column("label", group)):
        raise errors.AmbiguousWideTable(columns=tuple(group), label=label)
    if item_column is None:
        unique = [
            name for name in free if name not in group and len(head[name].distinct_values) == len(head[name].values)
        ]
        item_column = unique[0] if unique else None
    elif not insist and len(head[item_column].distinct_values) < len(head[item_column].values):
        return None
    return item_column, group


def check_item_column(read_columns: Callable[[None], Any], found: dict[str, Any], taken: dict[str, Any]) -> None:
    """Raise if the column used for items only numbers the rows, and another column may contain the items."""
    item, annotator, n = found["item"], found["annotator"], len(taken["item"])
    if item.strip().lower().removesuffix("_id") == "item" or n < MIN_ROWS_FOR_REPEATS or not isinstance(annotator, str):
        return
    if count_distinct_rows(naming.to_column(taken["item"], "item")) < n:
        return
    head = _sample_columns(read_columns(None))
    for name, other in _find_other_full_columns(head, item, annotator).items():
        n = len(other.values)
        if 2 * len(other.distinct_values) <= n and _count_distinct_samples(other, head[annotator]) >= 0.9 * n:
            raise errors.ItemColumnNeverRepeats(item=item, other_column=name)


def find_system_column(read_columns: Callable[[None], Any], found: dict[str, Any], taken: dict[str, Any]) -> str | None:
    """Return the column of the evaluated system if it is needed to distinguish items, or None."""
    item, annotator = found["item"], found["annotator"]
    if not (isinstance(item, str) and isinstance(annotator, str)) or "question" in found:
        return None
    if count_distinct_rows(*(naming.to_column(taken[role], role) for role in ("item", "annotator"))) == len(
        taken["item"]
    ):
        return None
    head = _sample_columns(read_columns(None))
    for name, other in _find_other_full_columns(head, item, annotator).items():
        if _name_variants(name) & set(SYSTEM_COLUMNS) and _count_distinct_samples(
            head[item], head[annotator], other
        ) == len(other.values):
            return name
    return None


def _sample_columns(frame: Any) -> dict[str, ColumnSample]:
    data = to_arrow(frame, column_names(frame))
    return {
        name: ColumnSample(name, column[:MAX_ROWS_INSPECTED] if len(column) else column)
        for name, column in data.items()
    }


def _find_other_full_columns(head: dict[str, ColumnSample], *used: str) -> dict[str, ColumnSample]:
    """Return the unused columns without missing values."""
    return {
        name: other
        for name, other in head.items()
        if name not in used and len(other.present_values) == len(other.values)
    }


def _find_by_other_name(role: str, free: Sequence[ColumnSample]) -> str | None:
    """Return the only column with a synonym from `FURTHER_COLUMN_SYNONYMS` whose content fits the role, or None."""

    def fits_role(column: ColumnSample) -> bool:
        if role == "label":
            is_list = pa.types.is_list(column.values.type)
            return is_list or (bool(column.distinct_values) and (column.holds_classes or column.holds_numbers))
        return bool(column.distinct_values) and (role != "item" or not pa.types.is_floating(column.present_values.type))

    fitting = [
        column
        for column in free
        if _name_variants(column.name) & set(FURTHER_COLUMN_SYNONYMS[role].split()) and fits_role(column)
    ]
    if role == "annotator" and len(fitting) > 1:  # If there is also a judge, the model is evaluated.
        fitting = [column for column in fitting if not _name_variants(column.name) & set(SYSTEM_COLUMNS)] or fitting
    if role == "label" and len(fitting) > 1:  # A verdict takes precedence over a score.
        fitting = [column for column in fitting if not column.holds_numbers] or fitting
    return require_one_candidate(role, [column.name for column in fitting])


def _name_variants(name: str) -> set[str]:
    """Return a column name in lower case, with and without the suffixes _id, _name and _model."""
    whole = name.strip().lower()
    return {whole, *(whole.removesuffix(end) for end in ("_id", "_name", "_model"))}


def _find_by_content(
    role: str, head: dict[str, ColumnSample], named: dict[str, tuple[str, ...]], free: list[str]
) -> str:
    """Return the only column whose content fits the role; raise if there is none or several.

    Labels are classes that differ within items. Items repeat, and an annotator has few rows of the same item.
    """
    partner = head[named["item" if role == "label" else "annotator"][0]]
    n = len(partner.values)

    def may_have_role(column: ColumnSample) -> bool:
        if role == "item":
            return (
                1.5 * len(column.distinct_values) <= n == len(column.present_values)
                and _count_distinct_samples(column, partner) >= 0.9 * n
            )
        if not column.holds_classes or len(column.distinct_values) < 2:
            return False
        return len(named["item"]) > 1 or _count_distinct_samples(partner, column) > len(partner.distinct_values)

    candidates = [name for name in free if may_have_role(head[name])]
    if len(candidates) == 1:
        return candidates[0]
    raise missing_column_error(
        role, free, taken={other: names for other, names in named.items() if names}, candidates=candidates
    )


def _find_largest_group(free: Sequence[ColumnSample]) -> list[str]:
    """Return the names of the largest group of columns that have the same few classes."""
    groups: list[tuple[list[str], set[Any], set[Any]]] = []  # column names, values, values with unified spelling
    for column in free:
        short = all(len(str(value)) <= MAX_CLASS_LENGTH for value in column.distinct_values)
        if not column.holds_classes and not (1 <= len(column.distinct_values) <= 3 and short):
            continue
        folded_values = set(
            map(naming.fold_spelling, column.distinct_values)
        )  # A column joins a group if they share half of their values.
        group_of_column = next(
            (group for group in groups if 2 * len(folded_values & group[2]) >= min(len(folded_values), len(group[2]))),
            None,
        )
        if group_of_column is None:
            groups.append(group_of_column := ([], set(), set()))
        group_of_column[0].append(column.name)
        group_of_column[1].update(column.distinct_values)
        group_of_column[2].update(folded_values)
    names, values, _ = max(groups, key=lambda group: len(group[0]), default=([], set(), set()))
    return names if len(values) > 1 else []


def _count_distinct_samples(*columns: ColumnSample) -> int:
    """Return the number of distinct rows of these columns."""
    return count_distinct_rows(*(naming.to_column(column.values, column.name) for column in columns))
