"""The account of a reading: what was taken for what, how many rows were used, which were not, and why."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MAX_COLUMNS_NAMED = 8


@dataclass
class Reading:
    """How a table was read from a file or a frame; `table.source` holds it, and `str` says it in one or two lines.

    `rows` are those of the file (of an export: its answers; of a wide table: its cells); `rows` is the sum of `used`
    and of all counts in `unused`.
    """

    file: str = ""
    format: str = ""
    columns: dict[str, str] = field(default_factory=dict)  # role → what was taken for it
    unit: str = "rows"
    rows: int = 0
    unused: Counter[str] = field(default_factory=Counter)  # why → how many
    notes: list[str] = field(default_factory=list)
    period: tuple[str, str] | None = None  # the first and the last time of a row, where a column tells
    times: tuple[Any, Any, Any] | None = field(default=None, repr=False)  # items, annotators, times as in the file
    gold: tuple[list[Any], list[Any]] | None = None  # items and their known labels, where the file has them
    texts: dict[Any, dict[str, Any]] = field(default_factory=dict)  # item → its fields, where an export has them
    loud: bool = field(default=False, repr=False)  # True where answers that people gave are not used

    @property
    def used(self) -> int:
        """How many rows count."""
        return self.rows - self.unused.total()

    def leave_out(self, why: str, count: int) -> None:
        """Count rows that are not used."""
        if count:
            self.unused[why] += count

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "format": self.format,
            "columns": dict(self.columns),
            self.unit: self.rows,
            "used": self.used,
            "not_used": dict(self.unused),
            "notes": list(self.notes),
            **({"period": list(self.period)} if self.period else {}),
        }

    def lines(self) -> list[str]:
        """One line that says how the file was read; where something was not used, a second that counts it."""
        found = ", ".join(f"{role} {column}" for role, column in self.columns.items())
        used = f"all {counted(self.rows, self.unit)}"
        if self.used < self.rows:
            used = f"{self.used:,} of {counted(self.rows, self.unit)}"
        change = ", ".join(f"{role}=" for role in self.columns if role in ("item", "annotator", "label", "question"))
        said = [f"Read as {self.format}: {found}; {used} used. Change: {change or 'format='}."]
        if left := self.left_out():
            said.append(left)
        return said

    def left_out(self) -> str:
        """What was not used and what was done, in one line; "" where there is nothing to say."""
        unused = "; ".join(counted(count, why) for why, count in self.unused.items() if count)
        return " ".join([*([f"Not used: {unused}."] if unused else []), *self.notes])

    def __str__(self) -> str:
        return "\n".join(self.lines())


def counted(count: int, what: str) -> str:
    """A count before a plural, whose first noun loses its s after 1."""
    nouns = (
        r"\b(annotation|answer|assertion|cell|comparison|correction|draft|grade|prediction|ranking|rating|result|row|sample|score|"
        r"span|suggestion|task|text)s\b"
    )
    if count == 1:
        what = re.sub(nouns, r"\1", what, count=1)
    return f"{count:,} {what}"


def columns_named(names: list[str]) -> str:
    """The first few column names, quoted."""
    more = f" and {len(names) - MAX_COLUMNS_NAMED:,} more" if len(names) > MAX_COLUMNS_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:MAX_COLUMNS_NAMED]) + more
