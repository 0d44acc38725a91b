"""Find which column of a frame (pandas, polars, DuckDB, Arrow) or file holds what, and take it as an Arrow array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dissensus.exceptions import DataError, MissingColumn
from dissensus.table import names as naming
from dissensus.table.encoding import floats

SYNONYMS: dict[str, tuple[str, ...]] = {
    "item": ("task", "example", "id", "instance", "unit"),
    "annotator": ("worker", "rater", "performer", "judge"),
    "label": ("answer", "annotation"),
    "question": (),
    "weight": (),
    "gold": ("label", "truth", "true_label", "answer"),  # the column of a gold file
}
"""Column names taken for one of ours, in any case and with or without `_id`; our own name wins over its synonyms."""

GOLD_BESIDE_LABELS = ("gold", "gold_label", "ground_truth", "truth", "true_label")
"""Columns of a table of labels that are taken for known labels of its items."""
TIMES = ("time", "timestamp", "datetime", "date", "created_at", "submitted_at", "completed_at", "updated_at")
"""Columns that are taken for the time of a label, the first that is there."""
SEPARATOR = "/"  # between the values of several columns that name an item together

MAX_NAMES_LISTED = 12


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
            columns["proba"] = {name: floats(data[column], column) for name, column in by_class.items()}
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
    import pyarrow.compute as pc

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
