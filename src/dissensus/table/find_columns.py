"""Find which column of a frame (pandas, polars, DuckDB, Arrow) or file holds what, and take it as an Arrow array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

MAX_NAMES_LISTED = 12


@dataclass(frozen=True)
class Columns:
    """The names that a caller gave for our columns; None where they are found by the usual names."""

    item: str | None = None
    annotator: str | None = None
    label: str | None = None
    question: str | None = None
    weight: str | None = None
    proba: Mapping[Any, str] | Sequence[str] | None = None

    def find(self, there: Sequence[str]) -> dict[str, Any]:
        """Map our names to those of the columns there, `proba` to {class: column}; a missing column raises."""
        given = {role: name for role, name in vars(self).items() if role != "proba"}
        found: dict[str, Any] = {}
        free = [column for column in there if column not in given.values()]  # what is named for one role is no other's
        for role, name in given.items():
            column = name if name is not None else guess_column(role, free)
            if column is not None and column not in there:
                raise no_column(role, there, column)
            if column is not None:
                found[role] = column
        proba = self.proba
        if proba is None and "label" not in found:
            proba = [column for column in there if column.startswith("p_")]
        if proba:
            by_class = proba if isinstance(proba, Mapping) else {column.removeprefix("p_"): column for column in proba}
            for column in by_class.values():
                if column not in there:
                    raise no_column("proba", there, column)
            found["proba"] = dict(by_class)
            found.pop("label", None)
        for role in ("item", "annotator", "label"):
            if role not in found and not (role == "label" and "proba" in found):
                raise no_column(role, free)  # not those that were named for another role
        return found

    def take(self, frame: Any) -> dict[str, Any]:
        """Take the columns of a frame as Arrow arrays, under our names; `proba` as {class: numbers}."""
        found = self.find(column_names(frame))
        by_class = found.pop("proba", {})
        data = to_arrow(frame, [*found.values(), *by_class.values()])
        columns: dict[str, Any] = {role: data[column] for role, column in found.items()}
        if by_class:
            columns["proba"] = {name: floats(data[column], column) for name, column in by_class.items()}
        return columns


def needed(columns: Columns | None, there: Sequence[str]) -> list[str]:
    """List the columns that have to be read; all of those there where `columns` is None."""
    wanted = list(there)
    if columns is not None:
        found = columns.find(there)
        by_class = found.pop("proba", {})
        wanted = [*found.values(), *by_class.values()]
    for name in wanted:
        if there.count(name) > 1:
            raise DataError(f"{there.count(name)} columns are called {naming.shown(name)}; rename or drop all but one.")
    return list(dict.fromkeys(wanted))


def column_names(frame: Any) -> list[str]:
    """The names of the columns of any frame."""
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


def no_column(role: str, there: Sequence[str], name: str | None = None) -> MissingColumn:
    """Make the error for a role that no column plays, or for a column that was named and is not there."""
    if name is not None:
        return MissingColumn(f"no column '{name}' for {role}; the columns are {listed(there)}.")
    other = ", ".join(SYNONYMS[role])
    return MissingColumn(
        f"no column '{role}' (nor {other}); the columns are {listed(there)}. Name it: {role}=<column>."
    )


def guess_column(role: str, there: Sequence[str]) -> str | None:
    """Find the column that is called by the role's name or a synonym; None where there is none."""

    def plain(name: str) -> str:
        name = name.strip().lower()
        # an "annotation_id" numbers the rows; it is no label
        return name.removesuffix("_id") if role in ("item", "annotator", "question") and name != "_id" else name

    own = [c for c in there if c == role] or [c for c in there if plain(c) == role]
    if own:
        return own[0]
    others = [c for c in there if plain(c) in SYNONYMS[role]]
    if len(others) > 1:
        raise DataError(f"columns {listed(others)} could each be {role}; say which: {role}=<column>.")
    return others[0] if others else None


def listed(names: Sequence[str]) -> str:
    """List the first dozen names, quoted."""
    return ", ".join(map(naming.shown, names[:MAX_NAMES_LISTED])) + (", …" if len(names) > MAX_NAMES_LISTED else "")
