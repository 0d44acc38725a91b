"""Maps of items that a network learnt, for the papers' figures; that of annotators is a section of the report.

Rows of plain values (`difficulty_rows`, `item_rows`) are the facts; charts are drawn from them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.evaluation import entropy
from dissensus.report import charts
from dissensus.report.blocks import Row
from dissensus.report.sections.annotator_map import (
    OTHERS_NAME,
    get_map_position,
    limit_names_to_colors,
    make_position_axes,
    make_shape_encoding,
    merge_rare_names,
)
from dissensus.report.study import Study, extract_entry

MAX_DOTS = 2000  # items in the chart of difficulty
MAX_MARKS = 24  # distinct classes: eight colours and six shapes, each turned by one, repeat after that many
NO_LABELS = "(no labels)"  # The brackets distinguish it from the name of a class.
RIGHT, WRONG, UNKNOWN = "right", "wrong", "without gold"


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
        row = {
            "item": study.item_names[i],
            **extract_entry(i, 4, difficulty=difficulty),
            **extract_entry(n, 4, entropy=spread),
        }
        if by_gold:
            assert gold is not None
            row["model"] = UNKNOWN if gold[i] < 0 else RIGHT if gold[i] == posterior[i].argmax() else WRONG
        else:
            row["most"] = study.classes[votes[i].argmax()]
        rows.append(row)
    return rows


def difficulty_chart(rows: Sequence[Row]) -> Any:
    """Draw items, coloured by correctness if gold is known, else by the majority of their labels."""
    field, title = ("model", "the model is") if rows and "model" in rows[0] else ("most", "most say")
    rows, there = limit_names_to_colors(rows, field)
    x = charts.make_quantity_axis("entropy", "entropy of the votes (nats)", ".1f")
    y = charts.make_quantity_axis("difficulty", "difficulty", charts.SHARE_FORMAT)
    tips = [
        "item:N",
        ("difficulty:Q", "difficulty", charts.EXACT_SHARE_FORMAT),
        ("entropy:Q", "entropy", ".2f"),
        (f"{field}:N", title),
    ]
    return charts.draw_points(rows, 45, 0.6, tips, x=x, y=y, color=charts.make_color_encoding(field, there))


# Items ----------------------------------------------------------------------------------------------------------------


def item_rows(found: Any, names: Sequence[str], classes: Sequence[str]) -> list[Row]:
    """Return a row for each item of an `ItemMap`; `names` are of the rows of X."""
    return [
        {
            "item": names[row],
            **get_map_position(found, n),
            "class": NO_LABELS if code < 0 else classes[code],
        }
        for n, (row, code) in enumerate(zip(found.item.tolist(), found.class_code.tolist(), strict=True))
    ]


def item_chart(rows: Sequence[Row], classes: Sequence[str], *, columns: int = 4, size: int = 40) -> Any:
    """Draw items by class: each class has a colour and a shape, since there may be more classes than colours."""
    rows = merge_rare_names(rows, "class", MAX_MARKS)
    seen = {row["class"] for row in rows}
    there = [name for name in (*classes, OTHERS_NAME, NO_LABELS) if name in seen]
    tips = [(f"{field}:N", field) for field in ("item", "class")]
    color, marks = (
        charts.make_color_encoding("class", there, columns=columns),
        make_shape_encoding("class", there, columns=columns),
    )
    mark = {"type": "point", "filled": True, "size": size, "opacity": 0.75}
    mark["aria"] = False  # 1,500 places say nothing to who cannot see them
    return charts.draw_marks(rows, mark, tips, **make_position_axes(grid=False), color=color, shape=marks)
