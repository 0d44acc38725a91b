"""Maps of annotators and items that a network learnt, for the papers' figures.

Rows of plain values (`annotator_rows`, `difficulty_rows`, `item_rows`) are the facts; charts are drawn from them alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.evaluation import entropy
from dissensus.report import charts
from dissensus.report.blocks import Row
from dissensus.report.study import N_COLORS, Study, entries

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
OTHER = "(others)"  # in brackets: no name of a class
MAX_DOTS = 2000  # items in the chart of difficulty
MAX_MARKS = 24  # classes told apart: eight colours and six shapes, each turned by one, meet again after so many
TOO_FEW, NONE, NO_LABELS = "(too few labels)", "(none)", "(no labels)"  # in brackets: no names of classes
RIGHT, WRONG, UNKNOWN = "right", "wrong", "without gold"
CLUSTERS_BY = {  # what clusters of mistakes rest on
    None: "nobody with labels enough to compare mistakes",
    "items": "clusters by the items that they err on",
    "confusions": "clusters by what they take for what, as not all share enough items",
}


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


def shape(field: str, domain: Sequence[str], *, columns: int) -> charts.Channel:
    """Give named things shapes, beside their colours."""
    return charts.color(field, domain, [SHAPES[n % len(SHAPES)] for n in range(len(domain))], columns=columns)


def merge_rare(rows: Sequence[dict[str, Any]], field: str, max_names: int) -> list[dict[str, Any]]:
    """Return the rows; where a field has more names than can be told apart, rare names become one."""
    times = Counter(row[field] for row in rows)
    if len(times) <= max_names:
        return list(rows)
    kept = {name for name, _ in times.most_common(max_names - 1)}
    return [row if row[field] in kept else row | {field: OTHER} for row in rows]


# Annotators -----------------------------------------------------------------------------------------------------------


def annotator_rows(found: Any, study: Study) -> list[Row]:
    """Return a row for each annotator of an `AnnotatorMap`.

    With two classes the rates are of the second; with more there are the error rate and the class that is over-used.
    """
    mistakes, rows = found.mistakes, []
    for n, code in enumerate(found.annotator.tolist()):
        cluster, over = int(mistakes.cluster[n]), int(mistakes.overused[n])
        row = {
            "annotator": study.annotator_names[code],
            **place_of(found, n),
            "cluster": TOO_FEW if cluster < 0 else f"{cluster + 1}",
            **entries(n, labels=mistakes.labels, error=mistakes.error),
        }
        if len(study.classes) == 2:
            positive, negative = mistakes.false_positive[:, 1], mistakes.false_negative[:, 1]
            row |= entries(n, false_positive=positive, false_negative=negative)
        elif over >= 0:
            row["overused"] = study.classes[over]
        else:
            row["overused"] = TOO_FEW if np.isnan(mistakes.error[n]) else NONE
        rows.append(row)
    return rows


def annotator_charts(rows: Sequence[Row], classes: Sequence[str]) -> list[tuple[str, str, Any]]:
    """Draw the map of annotators in three colours: (title, what to see, chart)."""
    clusters = _by_name(rows, "cluster", "cluster")
    made = [("Clusters of mistakes", "Annotators of one colour and shape err alike.", clusters)]
    if len(classes) == 2:
        for kind, one, other in (("positive", 1, 0), ("negative", 0, 1)):
            said = f"How often {classes[one]} is said of what is {classes[other]}."
            made.append((f"False {kind} rate", said, _by_rate(rows, f"false_{kind}")))
        return made
    overused = _by_name(rows, "overused", "over-used")
    return [
        *made,
        ("Error rate", "Share of the labels that are wrong.", _by_rate(rows, "error")),
        ("Class that is over-used", "What an annotator says more often than it is true, by most labels.", overused),
    ]


def _by_name(rows: Sequence[Row], field: str, title: str) -> Any:
    rows, there = _with_colors(rows, field)
    color, marks = charts.color(field, there, columns=4), shape(field, there, columns=4)
    tips = [*_TIPS, (f"{field}:N", title)]
    return charts.dots(rows, 70, 0.85, tips, **place(), color=color, shape=marks)


def _by_rate(rows: Sequence[Row], field: str) -> Any:
    known = [row for row in rows if row[field] is not None]
    other = [row for row in rows if row[field] is None]
    tips = [*_TIPS, (f"{field}:Q", field.replace("_", " "), charts.EXACT_SHARE)]
    dots = charts.dots(known, 70, 0.9, tips, **place(), color=charts.heat(field, ""))
    if not other:
        return dots
    grey = {"type": "point", "size": 40, "opacity": 0.5, "color": "grey"}
    return charts.plot(other, grey, _TIPS, **place()) + dots


_TIPS = ("annotator:N", ("labels:Q", "labels", charts.COUNT))


def _with_colors(rows: Sequence[Row], field: str) -> tuple[list[Row], list[str]]:
    """Return the rows with no more names in a field than there are colours, and these names in order."""
    rows = merge_rare(rows, field, N_COLORS)
    last = (TOO_FEW, NONE, OTHER)
    return rows, sorted({row[field] for row in rows}, key=lambda name: (name in last, name))


# Difficulty -----------------------------------------------------------------------------------------------------------


def difficulty_rows(difficulty: FloatArray, posterior: FloatArray, study: Study) -> list[Row]:
    """Return a row for each labelled item of known difficulty (NaN: unknown), some of them where they are many."""
    votes, gold = study.votes, study.gold
    there = np.flatnonzero((votes.sum(axis=1) > 0) & ~np.isnan(difficulty))
    order = there[np.argsort(difficulty[there], kind="stable")]
    size = min(order.size, MAX_DOTS)
    order = np.sort(order[((np.arange(size) + 0.5) * order.size / max(size, 1)).astype(np.int64)])
    spread = entropy(votes[order] / votes[order].sum(axis=1, keepdims=True))
    by_gold = gold is not None and bool((gold[there] >= 0).any())
    rows = []
    for n, i in enumerate(order.tolist()):
        row = {"item": study.item_names[i], **entries(i, 4, difficulty=difficulty), **entries(n, 4, entropy=spread)}
        if by_gold:
            assert gold is not None
            row["model"] = UNKNOWN if gold[i] < 0 else RIGHT if gold[i] == posterior[i].argmax() else WRONG
        else:
            row["most"] = study.classes[votes[i].argmax()]
        rows.append(row)
    return rows


def difficulty_chart(rows: Sequence[Row]) -> Any:
    """Draw items by whether the class is right where gold is known, else by what most annotators say."""
    field, title = ("model", "the model is") if rows and "model" in rows[0] else ("most", "most say")
    rows, there = _with_colors(rows, field)
    x = charts.quantity("entropy", "entropy of the votes (nats)", ".1f")
    y = charts.quantity("difficulty", "difficulty", charts.SHARE)
    tips = [
        "item:N",
        ("difficulty:Q", "difficulty", charts.EXACT_SHARE),
        ("entropy:Q", "entropy", ".2f"),
        (f"{field}:N", title),
    ]
    return charts.dots(rows, 45, 0.6, tips, x=x, y=y, color=charts.color(field, there))


# Items ----------------------------------------------------------------------------------------------------------------


def item_rows(found: Any, names: Sequence[str], classes: Sequence[str]) -> list[Row]:
    """Return a row for each item of an `ItemMap`; `names` are of the rows of X."""
    return [
        {
            "item": names[row],
            **place_of(found, n),
            "class": NO_LABELS if code < 0 else classes[code],
        }
        for n, (row, code) in enumerate(zip(found.item.tolist(), found.code.tolist(), strict=True))
    ]


def item_chart(rows: Sequence[Row], classes: Sequence[str], *, columns: int = 4, size: int = 40) -> Any:
    """Draw items by class: each has a colour and a shape, so that more classes than colours can be told apart."""
    rows = merge_rare(rows, "class", MAX_MARKS)
    seen = {row["class"] for row in rows}
    there = [name for name in (*classes, OTHER, NO_LABELS) if name in seen]
    tips = [(f"{field}:N", field) for field in ("item", "class")]
    color, marks = charts.color("class", there, columns=columns), shape("class", there, columns=columns)
    mark = {"type": "point", "filled": True, "size": size, "opacity": 0.75}
    mark["aria"] = False  # 1,500 places say nothing to who cannot see them
    return charts.plot(rows, mark, tips, **place(grid=False), color=color, shape=marks)
