"""Pictures of what LIA learnt, for the report and as files: a map of annotators, difficulty against disagreement.

Rows of plain values (`map_rows`, `difficulty_rows`) are the facts of both; the charts are drawn from them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation import entropy
from dissensus.report import charts
from dissensus.report.study import COLORS, plain
from dissensus.table.annotations import Annotations

DOTS = 2000  # items in a picture
FEW, NONE = "(too few labels)", "(none)"  # in brackets: no names of classes
LAST = (FEW, NONE, charts.OTHER)
RIGHT, WRONG, UNKNOWN = "right", "wrong", "without gold"


def map_rows(found: Any, names: Sequence[str], classes: Sequence[str]) -> list[dict[str, Any]]:
    """One row per annotator of an `AnnotatorMap`; `names` are those of the table's annotators.

    With two classes the rates are of the second; with more there are the error rate and the class that is over-used.
    """
    err = found.mistakes
    rows = []
    for n, code in enumerate(found.annotator.tolist()):
        cluster, over = int(err.cluster[n]), int(err.overused[n])
        row = {
            "annotator": names[code],
            "x": plain(found.place[n, 0], 4),
            "y": plain(found.place[n, 1], 4),
            "labels": int(err.labels[n]),
            "cluster": FEW if cluster < 0 else f"{cluster + 1}",
            "error": plain(err.error[n], 3),
        }
        if len(classes) == 2:
            row["false_positive"] = plain(err.false_positive[n, 1], 3)
            row["false_negative"] = plain(err.false_negative[n, 1], 3)
        else:
            nothing = FEW if np.isnan(err.error[n]) else NONE
            row["overused"] = classes[over] if over >= 0 else nothing
        rows.append(row)
    return rows


def panels(rows: Sequence[dict[str, Any]], classes: Sequence[str]) -> list[tuple[str, str, Any]]:
    """(title, what to see, chart) of the map, in three colours."""
    made = [
        (
            "Clusters of mistakes",
            "Annotators of one colour and shape err alike.",
            _named(rows, "cluster", "cluster"),
        )
    ]
    if len(classes) == 2:
        made += [
            (
                "False positive rate",
                f"How often {classes[1]} is said of what is {classes[0]}.",
                _rated(rows, "false_positive"),
            ),
            (
                "False negative rate",
                f"How often {classes[0]} is said of what is {classes[1]}.",
                _rated(rows, "false_negative"),
            ),
        ]
    else:
        made += [
            ("Error rate", "Share of the labels that are wrong.", _rated(rows, "error")),
            (
                "Class that is over-used",
                "What an annotator says more often than it is true, by most labels.",
                _named(rows, "overused", "over-used"),
            ),
        ]
    return made


def clusters_by(by: str | None) -> str:
    """What the clusters rest on, in words."""
    if by is None:
        return "nobody with labels enough to compare mistakes"
    if by == "items":
        return "clusters by the items that they err on"
    return "clusters by what they take for what, as not all share enough items"


def _base(rows: Sequence[dict[str, Any]], *more: tuple[str, ...]) -> Any:
    alt = charts.altair()
    place = {"axis": alt.Axis(labels=False, ticks=False, title=None), "scale": alt.Scale(zero=False, padding=12)}
    tips = charts.tips(("annotator:N", "annotator"), ("labels:Q", "labels", charts.COUNT), *more)
    return alt.Chart(charts.data(rows)).encode(x=alt.X("x:Q", **place), y=alt.Y("y:Q", **place), tooltip=tips)


def _named(rows: Sequence[dict[str, Any]], field: str, title: str) -> Any:
    rows, there = _few(rows, field)
    return (
        _base(rows, (f"{field}:N", title))
        .mark_point(filled=True, size=70, opacity=0.85)
        .encode(color=charts.color(field, there, columns=4), shape=charts.shape(field, there, columns=4))
    )


def _few(rows: Sequence[dict[str, Any]], field: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows, of no more names in a field than have a colour, and these names as they are sorted."""
    rows = charts.few(rows, field, COLORS)
    return rows, sorted({row[field] for row in rows}, key=lambda name: (name in LAST, name))


def _rated(rows: Sequence[dict[str, Any]], field: str) -> Any:
    words = field.replace("_", " ")
    known = [row for row in rows if row[field] is not None]
    other = [row for row in rows if row[field] is None]
    dots = (
        _base(known, (f"{field}:Q", words, ".1%"))
        .mark_point(filled=True, size=70, opacity=0.9)
        .encode(color=charts.heat(field, ""))
    )
    if not other:
        return dots
    return _base(other).mark_point(size=40, opacity=0.5, color="grey") + dots


def difficulty_rows(
    difficulty: FloatArray,
    posterior: FloatArray,
    table: Annotations,
    names: Sequence[str],
    classes: Sequence[str],
    gold: IntArray | None,
) -> list[dict[str, Any]]:
    """One row per labelled item of known difficulty (NaN: unknown), some of them where they are many."""
    votes = table.votes()
    there = np.flatnonzero((votes.sum(axis=1) > 0) & ~np.isnan(difficulty))
    order = there[np.argsort(difficulty[there], kind="stable")]
    size = min(order.size, DOTS)
    order = np.sort(order[((np.arange(size) + 0.5) * order.size / max(size, 1)).astype(np.int64)])
    spread = entropy(votes[order] / votes[order].sum(axis=1, keepdims=True))
    said, most = posterior[order].argmax(axis=1), votes[order].argmax(axis=1)
    by_gold = gold is not None and bool((gold[there] >= 0).any())
    rows = []
    for n, i in enumerate(order.tolist()):
        row = {"item": names[i], "difficulty": plain(difficulty[i], 4), "entropy": plain(spread[n], 4)}
        if by_gold:
            assert gold is not None
            row["model"] = UNKNOWN if gold[i] < 0 else RIGHT if gold[i] == said[n] else WRONG
        else:
            row["most"] = classes[most[n]]
        rows.append(row)
    return rows


def difficulty_chart(rows: Sequence[dict[str, Any]]) -> Any:
    """Dots, by whether the class is right where gold is known, else by what most annotators say."""
    alt = charts.altair()
    field = "model" if rows and "model" in rows[0] else "most"
    rows, there = _few(rows, field)
    return (
        alt.Chart(charts.data(rows))
        .mark_point(filled=True, size=45, opacity=0.6)
        .encode(
            x=alt.X("entropy:Q", title="entropy of the votes (nats)", axis=charts.axis(".1f")),
            y=alt.Y("difficulty:Q", title="difficulty", axis=charts.axis(charts.SHARE)),
            color=charts.color(field, there),
            tooltip=charts.tips(
                ("item:N", "item"),
                ("difficulty:Q", "difficulty", ".1%"),
                ("entropy:Q", "entropy", ".2f"),
                (f"{field}:N", "the model is" if field == "model" else "most say"),
            ),
        )
    )
