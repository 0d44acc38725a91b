"""The import report: what was taken for what, how many rows are used, which are not, and why."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dissensus.messages import PYTHON_FACE, Face, Message
from dissensus.table.notes import Note, ReadSummary

_NOUNS = re.compile(
    r"\b(annotation|answer|assertion|cell|comparison|correction|draft|grade|prediction|ranking|rating|result|row|sample|score|"
    r"span|suggestion|task|text)s\b"
)
"""Nouns that lose their s after 1."""
SINGULAR = r"\1"


@dataclass
class ImportReport:
    """The import report of a table from a file or a frame, `table.import_report`; `str` gives it in one or two lines.

    `rows` counts those of the file (of an export: its answers; of a wide table: its cells); it is the sum of `used` and
    of all counts in `unused`.
    """

    file: str = ""
    format: str = ""
    columns: dict[str, str] = field(default_factory=dict)  # role → what was taken for it
    unit: str = "rows"
    n_rows: int = 0
    unused_counts: Counter[str] = field(default_factory=Counter)  # reason → number of rows
    advice_by_reason: dict[str, Message] = field(default_factory=dict, repr=False)  # reason → which parameter matters
    notes: list[Note] = field(default_factory=list)
    period: tuple[str, str] | None = None  # the first and the last time of a row, if a column holds times
    label_times: tuple[Any, Any, Any] | None = field(
        default=None, repr=False
    )  # items, annotators, times as in the file
    gold: tuple[list[Any], list[Any]] | None = None  # items and their gold labels, if the file has them
    item_fields: dict[Any, dict[str, Any]] = field(default_factory=dict)  # item → its fields, if an export has them
    warn_about_unused: bool = field(default=False, repr=False)  # True if answers of annotators are not used

    @property
    def n_used(self) -> int:
        """Return how many rows are used."""
        return self.n_rows - self.unused_counts.total()

    def exclude(self, reason: str, count: int = 1, advice: Message | None = None) -> None:
        """Count rows that are not used."""
        if count:
            self.unused_counts[reason] += count
            self.advice_by_reason |= {} if advice is None else {reason: advice}

    def add_note(self, note: Note) -> None:
        """Add a note, unless the report has it."""
        self.notes += [] if note in self.notes else [note]
        self.warn_about_unused |= note.warns

    def to_dict(self, face: Face = PYTHON_FACE) -> dict[str, Any]:
        """Return plain values for JSON; reasons and notes in the words of an interface."""
        return {
            "format": self.format,
            "columns": dict(self.columns),
            self.unit: self.n_rows,
            "used": self.n_used,
            "not_used": {self._render_reason(reason, face): count for reason, count in self.unused_counts.items()},
            "notes": [join_lines(note.render(face)) for note in self.notes],
            **({"period": list(self.period)} if self.period else {}),
        }

    def render_lines(self, face: Face = PYTHON_FACE) -> list[str]:
        """Return one line on how the file was read; if something was not used, a second that counts it."""
        rows = count_with_noun(self.n_rows, self.unit)
        found = ReadSummary(format=self.format, columns=self.columns, rows=rows, n_used=self.n_used, n_rows=self.n_rows)
        excluded = self.describe_unused(face)
        return [found.render(face), *([excluded] if excluded else [])]

    def describe_unused(self, face: Face = PYTHON_FACE) -> str:
        """Return in one line what was not used, and all notes; "" if there is neither."""
        unused = [
            count_with_noun(count, self._render_reason(reason, face))
            for reason, count in self.unused_counts.items()
            if count
        ]
        notes = [join_lines(note.render(face)) for note in self.notes]
        return " ".join([*([f"Not used: {'; '.join(unused)}."] if unused else []), *notes])

    def _render_reason(self, reason: str, face: Face) -> str:
        return f"{reason} ({self.advice_by_reason[reason].render(face)})" if reason in self.advice_by_reason else reason

    def __str__(self) -> str:
        return "\n".join(self.render_lines())


def count_with_noun(count: int, what: str) -> str:
    """Return a count before a plural, whose first noun loses its s after 1."""
    return f"{count:,} {_NOUNS.sub(SINGULAR, what, count=1) if count == 1 else what}"


def join_lines(text: str) -> str:
    """Return a text that may hold a name from the data, without its line breaks."""
    return " ".join(text.split())
