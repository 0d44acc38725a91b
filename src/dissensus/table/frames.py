"""Frames of any kind (pandas, polars, DuckDB, Arrow): which column holds what, and the columns as Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dissensus.exceptions import DataError, MissingColumn
from dissensus.table import names as naming

SYNONYMS: dict[str, tuple[str, ...]] = {
    "item": ("task", "example", "id", "instance", "unit"),
    "annotator": ("worker", "rater", "performer", "judge"),
    "label": ("answer", "annotation"),
    "question": (),
    "weight": (),
    "gold": ("label", "truth", "true_label", "answer"),  # the column of a gold file
}
"""Column names taken for one of ours, in any case and with or without `_id`; our own name wins over its synonyms."""


def find_columns(
    frame: Any,
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    question: str | None = None,
    proba: Mapping[Any, str] | Sequence[str] | None = None,
) -> dict[str, Any]:
    """Which column of a frame holds what: our names → its names, `proba` → {class: column}. A missing one raises."""
    import narwhals as nw

    there = list(nw.from_native(frame).collect_schema().names())
    given = {"item": item, "annotator": annotator, "label": label, "weight": weight, "question": question}
    found: dict[str, Any] = {}
    free = [column for column in there if column not in given.values()]  # what is named for one role is no other's
    for role, name in given.items():
        column = name if name is not None else guess_column(role, free)
        if column is not None and column not in there:
            raise no_column(role, there, column)
        if column is not None:
            found[role] = column
    if proba is None and "label" not in found:
        proba = [c for c in there if c.startswith("p_")]
    if proba:
        found["proba"] = dict(proba) if isinstance(proba, Mapping) else {c.removeprefix("p_"): c for c in proba}
        for column in found["proba"].values():
            if column not in there:
                raise MissingColumn(f"no column '{column}' for proba; the columns are {listed(there)}.")
        found.pop("label", None)
    for role in ("item", "annotator", "label"):
        if role not in found and not (role == "label" and "proba" in found):
            raise no_column(role, free)  # not those that were named for another role
    return found


def to_arrow(frame: Any, columns: Sequence[str]) -> dict[str, Any]:
    """The named columns of any frame as Arrow arrays."""
    import narwhals as nw

    if isinstance(frame, pa.Table):  # narwhals would join the chunks, which costs a copy
        return {column: frame[column] for column in columns}
    native = nw.from_native(frame)
    if isinstance(native, nw.LazyFrame):  # DuckDB, polars' lazy frames
        native = native.select(list(dict.fromkeys(columns))).collect(backend="pyarrow")
    result = {}
    for column in columns:
        try:
            result[column] = native[column].to_arrow()
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # a pandas column of mixed kinds
            result[column] = naming.to_column(native[column].to_list(), column)
    return result


def no_column(role: str, there: Sequence[str], name: str | None = None) -> MissingColumn:
    """The error for a table in which no column plays a role, or not the one that was named."""
    if name is not None:
        return MissingColumn(f"no column '{name}' for {role}; the columns are {listed(there)}.")
    other = ", ".join(SYNONYMS[role])
    return MissingColumn(
        f"no column '{role}' (nor {other}); the columns are {listed(there)}. Name it: {role}=<column>."
    )


def guess_column(role: str, there: Sequence[str]) -> str | None:
    """The column whose name is a role's own or one of its synonyms; None where there is none."""

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
    """The first dozen names, quoted."""
    return ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")
