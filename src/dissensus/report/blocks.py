"""Blocks of a section: they contain plain values, which the page draws and escapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

Row = dict[str, Any]


class PageBlock:
    """Base class of everything that a section shows on the page."""

    @property
    def kind(self) -> str:
        """Return the name under which page.html looks up the macro that draws the block."""
        return type(self).__name__


@dataclass(frozen=True)
class KeyFigure:
    """One number with its name and a note, such as its interval."""

    value: str
    name: str
    note: str = ""


@dataclass(frozen=True)
class KeyFigures(PageBlock):
    """Key figures in one row."""

    numbers: Sequence[KeyFigure]


@dataclass(frozen=True)
class TextBlock(PageBlock):
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class ChartBlock(PageBlock):
    """A Vega-Lite chart with a title, a caption and an alternative text."""

    spec: dict[str, Any]
    title: str
    caption: str
    alt: str
    wide: bool = False


@dataclass(frozen=True)
class TableColumn:
    """One column of a table.

    The kinds are text, long (a text of several lines, or a list of texts), picture (a data URI), number, percent,
    chips (a list), shares (class → share, drawn as a bar), list (shares that need not sum to one), marked (parts of a
    text: [text] or [text, label, colour number, confidence]) and interval ([value, low, high]). Values of percent and
    interval are shares from 0 to 1.
    """

    title: str
    kind: Literal["text", "long", "picture", "number", "percent", "chips", "shares", "list", "marked", "interval"] = (
        "text"
    )
    digits: int = 0
    note: str = ""  # explanation under the column title

    def cell(self, value: Any) -> Any:
        """Return the value as the page expects it: "" for None, a list for a single chip or an estimate."""
        if self.kind == "text" and value is None:
            return ""
        if self.kind == "interval" and isinstance(value, dict):
            return [value[end] for end in ("value", "low", "high")]
        return [value] if self.kind == "chips" and isinstance(value, str) else value


@dataclass(frozen=True)
class TableBlock(PageBlock):
    """A table whose rows can be searched, sorted and opened.

    The `details` of a row are shown below it when it is opened. They are a list of {"type": "text", "title", "text"},
    {"type": "list", "title", "columns", "rows"} or {"type": "matrix", "title", "rows", "columns", "values" (shares),
    "counts" (of each row)}, each with an optional "note".
    """

    name: str  # unique on the page, because links point to it
    title: str
    caption: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Any]]
    details: Sequence[Sequence[dict[str, Any]]] | None = None
    page: int = 15
    search: bool = True

    @classmethod
    def from_rows(
        cls, name: str, title: str, caption: str, columns: dict[str, TableColumn], rows: list[Row], **more: Any
    ) -> Self:
        """Make a table of rows that are mappings; columns that the first row does not have are left out.

        If rows can be opened, their field "about" is the first detail.
        """
        shown = {key: column for key, column in columns.items() if rows and key in rows[0]}
        cells = [[column.cell(row[key]) for key, column in shown.items()] for row in rows]
        if more.get("details"):
            first = [
                [make_detail_list("About", ["", ""], list(row["about"].items()))] if "about" in row else []
                for row in rows
            ]
            more["details"] = [[*about, *detail] for about, detail in zip(first, more["details"], strict=True)]
        return cls(name, title, caption, list(shown.values()), cells, **more)


def make_detail_list(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = ""
) -> dict[str, Any]:
    """Return a list to show below an opened row of a table."""
    return {"type": "list", "title": title, "columns": columns, "rows": rows} | ({"note": note} if note else {})


ITEM_COLUMNS = {
    "item": TableColumn("item"),
    "picture": TableColumn("picture", "picture"),
    "texts": TableColumn("text", "long"),
}
VOTE_COLUMNS = {
    "votes": TableColumn("votes", "shares", note="share of the labels"),
    "labels": TableColumn("labels", "number"),
    "gold": TableColumn("gold"),
}
"""Columns for the facts that `Study.describe_item_with_votes` returns."""
