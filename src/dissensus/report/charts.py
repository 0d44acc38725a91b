"""Build Vega-Lite charts with Altair, in the colours and fonts of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

DEFAULT_CHART_HEIGHT = 220  # pixels
MIN_CHART_HEIGHT = 60
BAR_HEIGHT = 22  # pixels of each row of a bar chart
MAX_NAMES_ON_TOP = 20  # a matrix with more rows has names on the left side only
COUNT_FORMAT = ",d"
SHARE_FORMAT = ".0%"
EXACT_SHARE_FORMAT = ".1%"

TooltipLine = Sequence[str]
"""Line of a tooltip: a field with its type, a title if it differs from the field name, and an optional format."""
ChartRows = Iterable[Mapping[str, Any]]
Encoding = dict[str, Any]
"""Encoding of x, y, color or shape: a mapping, which Altair accepts for all of them."""


def draw_marks(
    rows: ChartRows, mark: str | Mapping[str, Any], tips: Iterable[TooltipLine] = (), **channels: Any
) -> Any:
    """Draw rows as marks ("bar" or {"type": "bar", …}) with tooltips; `channels` are Altair's encodings."""
    alt: Any = import_module("altair")  # untyped, because Altair itself checks `channels`
    if tips:
        lines = [(tip, tip.partition(":")[0]) if isinstance(tip, str) else tip for tip in tips]
        channels["tooltip"] = [
            alt.Tooltip(field, title=title, **({"format": form[0]} if form else {})) for field, title, *form in lines
        ]
    return alt.Chart(alt.Data(values=[dict(row) for row in rows]), mark=mark).encode(**channels)


def draw_points(rows: ChartRows, size: int, opacity: float, tips: Iterable[TooltipLine], **channels: Any) -> Any:
    """Draw rows as filled points."""
    return draw_marks(rows, {"type": "point", "filled": True, "size": size, "opacity": opacity}, tips, **channels)


def make_interval_chart(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    x: Encoding,
    tips: Iterable[TooltipLine],
    *,
    opens: str = "",
    **channels: Any,
) -> dict[str, Any]:
    """Draw each row, from top to bottom, as a dot at `value` on a line from `low` to `high`."""
    y = make_name_axis(name, [str(row[name]) for row in rows], limit=200)
    lines = draw_marks(rows, {"type": "rule", "strokeWidth": 2}, x=x, x2="high:Q", y=y, **channels)
    values = draw_points(rows, 80, 1, [f"{name}:N", *tips], x="value:Q", y=y, **channels)
    return to_spec(lines + values, _chart_height(rows, channels), opens=(opens, name))


def make_interval_tooltip(title: str, form: str = "") -> list[TooltipLine]:
    """Return the tooltip lines for a value and the ends of its interval."""
    fields = {"value:Q": title, "low:Q": "from", "high:Q": "to"}
    return [(field, words, *([form] if form else [])) for field, words in fields.items()]


def make_bar_chart(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    x: Encoding,
    tips: Iterable[TooltipLine],
    *,
    opens: str = "",
    **channels: Any,
) -> dict[str, Any]:
    """Draw each row as a bar, from top to bottom."""
    y = make_name_axis(name, [str(row[name]) for row in rows])
    return to_spec(
        draw_marks(rows, "bar", tips, x=x, y=y, **channels), _chart_height(rows, channels), opens=(opens, name)
    )


def _chart_height(rows: Sequence[Any], channels: Encoding) -> int:
    """Return the height in pixels of a chart with one line per row, plus a legend if there are other channels."""
    return max(MIN_CHART_HEIGHT, BAR_HEIGHT * len(rows) + 10) + (20 if channels else 0)


def to_spec(chart: Any, height: int = DEFAULT_CHART_HEIGHT, *, opens: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """Return the Vega-Lite specification of a chart that is as wide as its container.

    With `opens` = (table, field), a click on a mark opens the row of that table whose first cell equals the field.
    """
    result: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    result.pop("config", None)  # The page sets its own configuration.
    if opens[0]:
        result["usermeta"] = {"opens": {"table": opens[0], "field": opens[1]}}
    return result


def make_quantity_axis(
    field: str, title: str | None, form: str = "", *, ticks: int = 5, scale: Encoding | None = None, **axis: Any
) -> Encoding:
    """Return the encoding of numbers along an axis with few ticks."""
    axis |= {"tickCount": ticks} | ({"format": form} if form else {})
    return {"field": field, "type": "quantitative", "title": title, "axis": axis} | ({"scale": scale} if scale else {})


def make_name_axis(
    field: str, order: Sequence[str] | None, *, title: str | None = None, limit: int = 170, **axis: Any
) -> Encoding:
    """Return the encoding of names along an axis in this order, cut to `limit` pixels."""
    return {"field": field, "type": "nominal", "title": title, "sort": order, "axis": {"labelLimit": limit, **axis}}


def make_color_encoding(
    field: str, domain: Sequence[str], colors: Sequence[str] = (), *, legend: bool = True, columns: int = 3
) -> Encoding:
    """Return the encoding of names by the colours of the page, or by `colors` (`var(--…)` of the style sheet)."""
    scale = {"domain": list(domain)} | ({"range": list(colors)} if colors else {})
    shown = {"orient": "top", "title": None, "columns": columns} if legend else None
    return {"field": field, "type": "nominal", "title": None, "scale": scale, "legend": shown}


def make_heat_encoding(field: str, title: str, form: str = SHARE_FORMAT) -> Encoding:
    """Return the encoding of numbers by colour."""
    legend = {"orient": "top", "gradientLength": 140} | ({"format": form} if form else {})
    return {"field": field, "type": "quantitative", "title": title, "legend": legend}


def list_matrix_cells(
    down: Sequence[str], across: Sequence[str], **values: Sequence[Sequence[Any]]
) -> list[dict[str, Any]]:
    """Return one row per cell of matrices whose rows are named `down` and whose columns are named `across`."""
    return [
        {"down": one, "across": other} | {key: matrix[i][j] for key, matrix in values.items()}
        for i, one in enumerate(down)
        for j, other in enumerate(across)
    ]


def make_matrix_chart(
    names_: Sequence[str], rows: ChartRows, tips: Iterable[TooltipLine], color: Encoding
) -> dict[str, Any]:
    """Draw the cells of a symmetric matrix, with names along both sides if they fit."""
    shown = len(names_) <= MAX_NAMES_ON_TOP
    scale, title = {"scale": {"domain": list(names_)}}, None if shown else "the same names in the same order"
    x = make_name_axis("across", names_, title=title, limit=180, labels=shown, ticks=shown, labelAngle=-90) | scale
    chart = draw_marks(rows, "rect", tips, x=x, y=make_name_axis("down", names_) | scale, color=color)
    return to_spec(chart, max(DEFAULT_CHART_HEIGHT, 13 * len(names_) + 60))


def make_grouped_bars(things: Sequence[Mapping[str, Any]], name: str, words: Mapping[str, str]) -> dict[str, Any]:
    """Draw several shares of each row as grouped bars; `words` maps fields to legend entries."""
    rows = [{name: one[name], "what": word, "share": one[key]} for one in things for key, word in words.items()]
    legends = list(words.values())
    x, y = (
        make_quantity_axis("share", "share", "%", ticks=4),
        make_name_axis(name, [one[name] for one in things], limit=180),
    )
    offset = {"field": "what", "type": "nominal", "sort": legends}
    tips = [f"{name}:N", ("what:N", "share"), ("share:Q", "is", EXACT_SHARE_FORMAT)]
    chart = draw_marks(rows, "bar", tips, x=x, y=y, yOffset=offset, color=make_color_encoding("what", legends))
    return to_spec(chart, max(MIN_CHART_HEIGHT, 30 * len(things) + 10))


def make_histogram(counts: Sequence[int], edges: Sequence[float], *, x_title: str, y_title: str) -> dict[str, Any]:
    """Draw a histogram of counts between edges."""
    rows = [
        {"low": low, "high": high, "count": count, "zero": 0}
        for (low, high), count in zip(pairwise(edges), counts, strict=True)
    ]
    x = make_quantity_axis("low", x_title, "~s", scale={"zero": False, "nice": False}, labelOverlap=True)
    mark = {"type": "rect", "stroke": "var(--card)", "strokeWidth": 1}
    tips = [("low:Q", "from", "~g"), ("high:Q", "to below", "~g"), ("count:Q", y_title, COUNT_FORMAT)]
    y = make_quantity_axis("count", y_title, COUNT_FORMAT, ticks=4)
    return to_spec(draw_marks(rows, mark, tips, x=x, x2="high:Q", y=y, y2="zero:Q"))
