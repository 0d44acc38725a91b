"""A map of items that a network learnt, for the report and as a file.

Rows of plain values (`item_rows`) are the facts; the chart is drawn from them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dissensus.report import charts
from dissensus.report.blocks import Row
from dissensus.report.study import entries

MAX_MARKS = 24  # classes told apart: eight colours and six shapes, each turned by one, meet again after so many
NO_LABELS = "(no labels)"  # in brackets: no name of a class


def place_of(found: Any, n: int) -> Row:
    """Return x and y of the n-th place of a map."""
    return entries(n, 4, x=found.place[:, 0], y=found.place[:, 1])


def place(**axis: Any) -> dict[str, charts.Channel]:
    """Return x and y of a map, without labels on the axes."""
    more = {
        "type": "quantitative",
        "axis": {"labels": False, "ticks": False, "title": None, **axis},
        "scale": {"zero": False, "padding": 12},
    }
    return {"x": {"field": "x", **more}, "y": {"field": "y", **more}}


def item_rows(
    found: Any, names: Sequence[str], classes: Sequence[str], text: Callable[[int], str] | None = None
) -> list[Row]:
    """Return a row for each item of an `ItemMap`; `names` are of the rows of X, `text` says what to read of one."""
    return [
        {
            "item": names[row],
            **place_of(found, n),
            "class": NO_LABELS if code < 0 else classes[code],
            **({} if text is None else {"text": text(row)}),
        }
        for n, (row, code) in enumerate(zip(found.item.tolist(), found.code.tolist(), strict=True))
    ]


def item_chart(rows: Sequence[Row], classes: Sequence[str], *, columns: int = 4, size: int = 40) -> Any:
    """Draw items by class: each has a colour and a shape, so that more classes than colours can be told apart."""
    rows = charts.merge_rare(rows, "class", MAX_MARKS)
    seen = {row["class"] for row in rows}
    there = [name for name in (*classes, charts.OTHER, NO_LABELS) if name in seen]
    tips = [(f"{field}:N", field) for field in ("item", "class", "text") if rows and field in rows[0]]
    color, shape = charts.color("class", there, columns=columns), charts.shape("class", there, columns=columns)
    mark = {"type": "point", "filled": True, "size": size, "opacity": 0.75}
    mark["aria"] = False  # 1,500 places say nothing to who cannot see them
    return charts.plot(rows, mark, tips, **place(grid=False), color=color, shape=shape)
