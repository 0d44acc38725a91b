"""Show results in Jupyter as a line of text and the first rows of their frame, with names escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dissensus.common.frames import columns_to_frame

MAX_ROWS_SHOWN = 8
MAX_COLUMNS_SHOWN = 12
MAX_LETTERS_SHOWN = 80  # characters per cell


def make_html_table(line: str, rows: Sequence[Mapping[str, Any]], total: int) -> str:
    """Return HTML with a line of text, a table of the rows, and the number of further rows."""
    names = list(rows[0])[:MAX_COLUMNS_SHOWN] if rows else []
    head = "".join(f"<th>{_cell_text(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_cell_text(row[name])}</td>" for name in names) + "</tr>" for row in rows)
    more = f"<p>… and {total - len(rows):,} more rows</p>" if total > len(rows) else ""
    return f"<p>{escape(line)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell_text(value: Any) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return escape(text if len(text) <= MAX_LETTERS_SHOWN else f"{text[: MAX_LETTERS_SHOWN - 1]}…")


class NotebookTable:
    """Base class for results that Jupyter shows as a table; they define `rows` or `to_frame`."""

    __slots__ = ()

    def to_frame(self) -> Any:
        """Return `rows` as a pandas frame, or as an Arrow table if pandas is not installed."""
        return columns_to_frame(self.rows())  # type: ignore[attr-defined]

    def _repr_html_(self) -> str | None:
        frame = self.to_frame()
        head = frame[:MAX_ROWS_SHOWN]
        rows = head.to_pylist() if hasattr(head, "to_pylist") else head.to_dict("records")
        return make_html_table(repr(self), rows, len(frame))
