"""The map of items, for the report and as a file: rows of plain values (`latent_rows`), and a chart of them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dissensus.report import charts
from dissensus.report.study import plain

MARKS = 24  # classes told apart: eight colours and six shapes, each turned by one, meet again after so many
NOBODY = "(no labels)"


def latent_rows(
    found: Any, names: Sequence[str], classes: Sequence[str], text: Callable[[int], str] | None = None
) -> list[dict[str, Any]]:
    """One row per item of an `ItemMap`; `names` are those of the rows of X, `text` says what to read of one."""
    return [
        {
            "item": names[row],
            "x": plain(found.place[n, 0], 4),
            "y": plain(found.place[n, 1], 4),
            "class": NOBODY if code < 0 else classes[code],
            **({} if text is None else {"text": text(row)}),
        }
        for n, (row, code) in enumerate(zip(found.item.tolist(), found.code.tolist(), strict=True))
    ]


def latent_chart(rows: Sequence[dict[str, Any]], classes: Sequence[str], *, columns: int = 4, size: int = 40) -> Any:
    """Dots by class: a colour and a shape each, so that neither is the only cue, and more classes than colours go."""
    alt = charts.altair()
    rows = charts.few(rows, "class", MARKS)
    seen = {row["class"] for row in rows}
    there = [name for name in (*classes, charts.OTHER, NOBODY) if name in seen]
    place = {
        "axis": alt.Axis(labels=False, ticks=False, grid=False, title=None),
        "scale": alt.Scale(zero=False, padding=12),
    }
    more = (("text:N", "text"),) if rows and "text" in rows[0] else ()
    return (
        alt.Chart(charts.data(rows))
        .mark_point(filled=True, size=size, opacity=0.75, aria=False)  # 1,500 places say nothing to who cannot see them
        .encode(
            x=alt.X("x:Q", **place),
            y=alt.Y("y:Q", **place),
            color=charts.color("class", there, columns=columns),
            shape=charts.shape("class", there, columns=columns),
            tooltip=charts.tips(("item:N", "item"), ("class:N", "class"), *more),
        )
    )
