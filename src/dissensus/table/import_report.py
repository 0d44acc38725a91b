"""Import reports, which describe how columns were read, how many rows are used, and why other rows are not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dissensus.messages import PYTHON_FACE, Face, Message
from dissensus.table.notes import Note, ReadSummary

_PLURAL_NOUNS = re.compile(
    r"\b(annotation|answer|assertion|cell|comparison|correction|draft|grade|prediction|ranking|rating|result|row|sample|score|"
    r"span|suggestion|task|text)s\b"
)
"""Plural nouns that become singular after the number 1."""
SINGULAR_REPLACEMENT = r"\1"


@dataclass
class ImportReport:
    """The import report of a table that was read from a file or a frame (`table.import_report`).

    `n_rows` counts the rows of the file, the answers of an export, or the cells of a wide table. It is the sum of
    `n_used` and all `unused_counts`. `str(report)` describes the import in one or two lines.
    """

    file: str = ""
    format: str = ""
    columns: dict[str, str] = field(default_factory=dict)  # role → description of the column or field used for it
    unit: str = "rows"
    n_rows: int = 0
    unused_counts: Counter[str] = field(default_factory=Counter)  # reason → number of rows
    advice_by_reason: dict[str, Message] = field(
        default_factory=dict, repr=False
    )  # reason → message that names the parameter to change
    notes: list[Note] = field(default_factory=list)
    period: tuple[str, str] | None = None  # the first and the last time, if a column holds times
    label_times: tuple[Any, Any, Any] | None = field(default=None, repr=False)  # columns of items, annotators and times
    gold: tuple[list[Any], list[Any]] | None = None  # items and gold labels, if the file has gold labels
    item_fields: dict[Any, dict[str, Any]] = field(
        default_factory=dict
    )  # item → its fields in an export, such as its text
    warn_about_unused: bool = field(default=False, repr=False)  # True if any answers of annotators are excluded

    @property
    def n_used(self) -> int:
        """Return the number of rows that are used."""
        return self.n_rows - self.unused_counts.total()

    def exclude(self, reason: str, count: int = 1, advice: Message | None = None) -> None:
        """Increase the number of rows that are excluded for a reason."""
        if count:
            self.unused_counts[reason] += count
            self.advice_by_reason |= {} if advice is None else {reason: advice}

    def add_note(self, note: Note) -> None:
        """Add a note unless the report already contains it."""
        self.notes += [] if note in self.notes else [note]
        self.warn_about_unused |= note.warns

    def to_dict(self, face: Face = PYTHON_FACE) -> dict[str, Any]:
        """Return the report as plain values for JSON, in the words of an interface."""
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
        """Return one line that describes how the file was read, and a second line if rows are excluded."""
        rows = count_with_noun(self.n_rows, self.unit)
        summary = ReadSummary(
            format=self.format, columns=self.columns, rows=rows, n_used=self.n_used, n_rows=self.n_rows
        )
        excluded = self.describe_unused(face)
        return [summary.render(face), *([excluded] if excluded else [])]

    def describe_unused(self, face: Face = PYTHON_FACE) -> str:
        """Return the excluded rows and all notes in one line; "" if there are none."""
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
    """Return a count and its noun, which becomes singular if the count is 1."""
    return f"{count:,} {_PLURAL_NOUNS.sub(SINGULAR_REPLACEMENT, what, count=1) if count == 1 else what}"


def join_lines(text: str) -> str:
    """Return the text without line breaks, which names from the data may contain."""
    return " ".join(text.split())
