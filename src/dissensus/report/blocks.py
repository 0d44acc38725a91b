"""Blocks of a section. They contain plain values; the page draws and escapes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

Row = dict[str, Any]


class PageBlock:
    """Something on the page."""

    @property
    def kind(self) -> str:
        """Return the name of the macro of page.html that draws it."""
        return type(self).__name__


@dataclass(frozen=True)
class KeyFigure:
    """One figure with its name and a note, such as its interval."""

    value: str
    name: str
    note: str = ""


@dataclass(frozen=True)
class KeyFigures(PageBlock):
    """Figures in a row."""

    numbers: Sequence[KeyFigure]


@dataclass(frozen=True)
class TextBlock(PageBlock):
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class ChartBlock(PageBlock):
    """A Vega-Lite chart with a caption and an alternative text."""

    spec: dict[str, Any]
    title: str
    caption: str
    alt: str
    wide: bool = False


@dataclass(frozen=True)
class TableColumn:
    """One column of a table.

    kind: text, long (text over several lines, or a list of texts), picture (a data URI), number, percent, chips (a
    list), shares (class → share, as a bar), list (shares that need not sum to one), marked (parts of a text: [text] or
    [text, label, number of its colour, confidence]), interval ([value, low, high]). Percent and interval are shares
    from 0 to 1.
    """

    title: str
    kind: Literal["text", "long", "picture", "number", "percent", "chips", "shares", "list", "marked", "interval"] = (
        "text"
    )
    digits: int = 0
    note: str = ""  # explanation, shown with the column's head

    def cell(self, value: Any) -> Any:
        """Return the value as the page expects it: None as "", one chip or an estimate as a list."""
        if self.kind == "text" and value is None:
            return ""
        if self.kind == "interval" and isinstance(value, dict):
            return [value[end] for end in ("value", "low", "high")]
        return [value] if self.kind == "chips" and isinstance(value, str) else value


@dataclass(frozen=True)
class TableBlock(PageBlock):
    """Rows to search, sort and open.

    `details` are shown below a row when it is opened: a list of {"type": "text", "title", "text"}, {"type": "list",
    "title", "columns", "rows"} or {"type": "matrix", "title", "rows", "columns", "values" (shares), "counts" (of each
    row)}, with an optional "note".
    """

    name: str  # unique on the page, for links
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
        """Return a table of rows that are mappings, with those of `columns` that the first row has.

        If rows can be opened, their field "about" comes first.
        """
        shown = {key: column for key, column in columns.items() if rows and key in rows[0]}
        cells = [[column.cell(row[key]) for key, column in shown.items()] for row in rows]
        if more.get("details"):
            first = [
                [detail_list("About", ["", ""], list(row["about"].items()))] if "about" in row else [] for row in rows
            ]
            more["details"] = [[*about, *detail] for about, detail in zip(first, more["details"], strict=True)]
        return cls(name, title, caption, list(shown.values()), cells, **more)


def detail_list(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> dict[str, Any]:
    """Return a list that is shown below a row of a table."""
    return {"type": "list", "title": title, "columns": columns, "rows": rows} | ({"note": note} if note else {})


ITEM_COLUMNS = {
    "item": TableColumn("item"),
    "picture": TableColumn("picture", "picture"),
    "texts": TableColumn("text", "long"),
}
VOTE_COLUMNS = {
    "votes": TableColumn("votes", "shares", note="of the annotators"),
    "labels": TableColumn("labels", "number"),
    "gold": TableColumn("gold"),
}
"""Columns for the facts of `Study.about_with_votes`."""
