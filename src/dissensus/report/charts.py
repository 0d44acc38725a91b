"""Vega-Lite charts by Altair: what they have in common. Colours and fonts are the page's, in light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from dissensus.report.extra import need

HEIGHT = 220  # pixels
COUNT = ",d"
PERCENT = ".0%"
BAND = 22  # pixels for each row of a chart of bars
FEWEST = 60


def altair() -> Any:
    """The library; one sentence where it is not installed."""
    return need("altair")


def data(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows as a chart's data."""
    return altair().Data(values=[dict(row) for row in rows])


def spec(chart: Any, height: int = HEIGHT, *, opens: tuple[str, str] | None = None) -> dict[str, Any]:
    """A chart as the page takes it: as wide as its place.

    `opens` (table, field): a click on a mark opens the row of that table whose first cell is the mark's field.
    """
    result: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    result.pop("config", None)  # the page has its own
    if opens is not None:
        result["usermeta"] = {"opens": {"table": opens[0], "field": opens[1]}}
    return result


def rows_high(n: int) -> int:
    """Height of a chart with n bars above each other."""
    return max(FEWEST, BAND * n + 10)


def histogram(
    counts: list[int], edges: list[float], *, x_title: str, y_title: str, log: bool = False
) -> dict[str, Any]:
    """Counts between edges; whole numbers with half numbers for edges are bars beside each other."""
    alt = altair()
    whole = not log and all(high - low == 1 for low, high in pairwise(edges))
    rows = [
        {"low": low, "high": high, "count": count, "zero": 0, "value": (low + high) / 2}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    y = alt.Y("count:Q", title=y_title, axis=alt.Axis(format=COUNT, tickCount=4))
    how_many = alt.Tooltip("count:Q", title=y_title, format=COUNT)
    base = alt.Chart(data(rows))
    if whole:
        axis = alt.Axis(labelAngle=0, labelOverlap=True)
        chart = base.mark_bar().encode(
            x=alt.X("value:O", title=x_title, axis=axis), y=y, tooltip=[alt.Tooltip("value:O", title=x_title), how_many]
        )
        return spec(chart)
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False, nice=False)
    axis = alt.Axis(format="~s", tickCount=5, labelOverlap=True)
    tooltip = [
        alt.Tooltip("low:Q", title="from", format=COUNT),
        alt.Tooltip("high:Q", title="to below", format=COUNT),
        how_many,
    ]
    chart = base.mark_rect(stroke="var(--card)", strokeWidth=1).encode(
        x=alt.X("low:Q", title=x_title, scale=scale, axis=axis), x2="high:Q", y=y, y2="zero:Q", tooltip=tooltip
    )
    return spec(chart)
