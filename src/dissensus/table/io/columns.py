"""Which columns the caller named, and which of a file's columns have to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dissensus.exceptions import DataError
from dissensus.table.frames import find_columns


@dataclass(frozen=True)
class Columns:
    """The names that a caller gave for our columns; None where they are to be found by the usual names."""

    item: str | None = None
    annotator: str | None = None
    label: str | None = None
    question: str | None = None
    weight: str | None = None
    proba: Mapping[Any, str] | Sequence[str] | None = None

    def find(self, frame: Any) -> dict[str, Any]:
        """Our names → the frame's, `proba` → {class: column}; a missing column is an error."""
        return find_columns(frame, **vars(self))


def needed(columns: Columns | None, there: Sequence[str]) -> list[str]:
    """Which of the columns there have to be read; all of them where the caller names none (None)."""
    if columns is None:
        wanted = list(there)
    else:
        found = columns.find(pa.table({name: pa.nulls(0) for name in there}))
        wanted = [*(name for role, name in found.items() if role != "proba"), *found.get("proba", {}).values()]
    for name in wanted:
        if there.count(name) > 1:
            raise DataError(f"{there.count(name)} columns are called {name!r}; rename or drop all but one.")
    return list(dict.fromkeys(wanted))
