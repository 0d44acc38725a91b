"""Vega-Lite charts by Altair: what they have in common. Colours and fonts are the page's, in light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dissensus.common.extras import need

HEIGHT = 220  # pixels
COUNT = ",d"
SHARE = ".0%"
BAND = 22  # pixels for each row of a chart of bars
FEWEST = 60
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
OTHER = "(others)"  # in brackets: no name of a class


def altair() -> Any:
    """The library; one sentence where it is not installed."""
    return need("altair", "the report needs", "report")


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


def axis(form: str = "", **more: Any) -> Any:
    """An axis with few ticks."""
    return altair().Axis(**{"tickCount": 5} | ({"format": form} if form else {}) | more)


def names(field: str, order: Sequence[str] | None, **more: Any) -> Any:
    """The names beside bars and dots, in this order."""
    alt = altair()
    return alt.Y(
        f"{field}:N", title=None, sort=None if order is None else list(order), axis=alt.Axis(labelLimit=170), **more
    )


def color(
    field: str, domain: Sequence[str], colors: Sequence[str] = (), *, legend: bool = True, columns: int = 3
) -> Any:
    """Colours of named things, the page's own or those given (`var(--…)` of the style sheet)."""
    alt = altair()
    scale = alt.Scale(domain=list(domain), **({"range": list(colors)} if colors else {}))
    shown = alt.Legend(orient="top", title=None, columns=columns) if legend else None
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=shown)


def shape(field: str, domain: Sequence[str], *, columns: int) -> Any:
    """Shapes of named things, beside their colours."""
    alt = altair()
    scale = alt.Scale(domain=list(domain), range=[SHAPES[n % len(SHAPES)] for n in range(len(domain))])
    return alt.Shape(f"{field}:N", title=None, scale=scale, legend=alt.Legend(orient="top", columns=columns))


def few(rows: Sequence[dict[str, Any]], field: str, most: int) -> list[dict[str, Any]]:
    """The rows; of more names in a field than can be told apart, rare ones become one."""
    times = Counter(row[field] for row in rows)
    if len(times) <= most:
        return list(rows)
    kept = {name for name, _ in times.most_common(most - 1)}
    return [row if row[field] in kept else row | {field: OTHER} for row in rows]


def heat(field: str, title: str) -> Any:
    """Colours of shares in a matrix."""
    alt = altair()
    return alt.Color(f"{field}:Q", title=title, legend=alt.Legend(format=SHARE, orient="top", gradientLength=140))


def tips(*fields: tuple[str, ...]) -> list[Any]:
    """Tooltips: (field with its type, title[, format])."""
    alt = altair()
    return [alt.Tooltip(field, title=title, **({"format": form[0]} if form else {})) for field, title, *form in fields]


def histogram(
    counts: list[int], edges: list[float], *, x_title: str, y_title: str, log: bool = False
) -> dict[str, Any]:
    """Counts between edges; whole numbers with half numbers for edges are bars beside each other."""
    alt = altair()
    whole = not log and all(high - low == 1 for low, high in pairwise(edges))
    rows = [
        {"low": low, "high": high, "count": count, "zero": 0, "value": (low + high) / 2}
        for (low, high), count in zip(pairwise(edges), counts, strict=True)
    ]
    y = alt.Y("count:Q", title=y_title, axis=axis(COUNT, tickCount=4))
    base = alt.Chart(data(rows))
    if whole:
        x = alt.X("value:O", title=x_title, axis=alt.Axis(labelAngle=0, labelOverlap=True))
        return spec(base.mark_bar().encode(x=x, y=y, tooltip=tips(("value:O", x_title), ("count:Q", y_title, COUNT))))
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False, nice=False)
    chart = base.mark_rect(stroke="var(--card)", strokeWidth=1).encode(
        x=alt.X("low:Q", title=x_title, scale=scale, axis=axis("~s", labelOverlap=True)),
        x2="high:Q",
        y=y,
        y2="zero:Q",
        tooltip=tips(("low:Q", "from", COUNT), ("high:Q", "to below", COUNT), ("count:Q", y_title, COUNT)),
    )
    return spec(chart)
