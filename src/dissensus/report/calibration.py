"""Confidence against how often it is right, for every section that asks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.formatting import percent
from dissensus.evaluation import reliability_curve
from dissensus.evaluation.pairs import wilson
from dissensus.report import charts
from dissensus.report.blocks import Chart
from dissensus.report.study import plain

BINS = 10


def calibration(gold: Any, h: Any) -> dict[str, Any]:
    """The expected calibration error, and the bins that hold items; `gold` and `h` as in `reliability_curve`."""
    curve = reliability_curve(gold, h, bins=BINS)
    bins = []
    for b in np.flatnonzero(curve.count).tolist():
        share, n = curve.accuracy[b], np.array(float(curve.count[b]))
        low, high = wilson(share, share * (1 - share), n)
        bins.append(
            {
                "items": int(n),
                "confidence": plain(curve.confidence[b]),
                "accuracy": plain(share),
                "low": plain(low),
                "high": plain(high),
            }
        )
    return {"calibration_error": plain(curve.error), "bins": bins}


def calibration_chart(bins: list[dict[str, Any]], *, who: str, right: str) -> Chart:
    """Dots for bins against the diagonal; `who` is sure, `right` says what is counted."""
    alt = charts.altair()
    base = alt.Chart(charts.data(bins))
    scale = alt.Scale(domain=[0, 1])
    x = alt.X("confidence:Q", title="confidence", scale=scale, axis=alt.Axis(format="%", tickCount=5))
    tooltip = [
        alt.Tooltip("confidence:Q", title="confidence", format=".1%"),
        alt.Tooltip("accuracy:Q", title="right", format=".1%"),
        alt.Tooltip("items:Q", title="items", format=charts.COUNT),
    ]
    line = (
        alt.Chart(charts.data([{"a": 0}, {"a": 1}]))
        .mark_line(strokeDash=[4, 4], strokeWidth=1)
        .encode(x="a:Q", y="a:Q")
    )
    bars = base.mark_rule().encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q")
    y = alt.Y("accuracy:Q", title=right, scale=scale, axis=alt.Axis(format="%", tickCount=5))
    dots = base.mark_point(filled=True, opacity=1).encode(
        x=x, y=y, size=alt.Size("items:Q", legend=None, scale=alt.Scale(range=[40, 400])), tooltip=tooltip
    )
    words = "; ".join(f"at {percent(one['confidence'])} {percent(one['accuracy'])} right" for one in bins)
    return Chart(
        charts.spec(line + bars + dots, 260),
        "Can the confidence be believed?",
        f"Dots on the dashed line: of labels with 80 % confidence, 80 % are right. Below it, {who} is too sure of "
        "itself. Size: items; lines: 95 % intervals.",
        f"Confidence against share right: {words}.",
    )
