"""Compare confidence with the share of right labels, for several sections."""

from __future__ import annotations

from typing import Any

from dissensus.common.formatting import format_percent
from dissensus.evaluation import reliability_curve
from dissensus.evaluation.pairs import wilson_interval_of_mean
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock
from dissensus.report.study import extract_entry

N_CALIBRATION_BINS = 10


def compute_calibration_facts(gold: Any, h: Any) -> dict[str, Any]:
    """Return the expected calibration error and the bins that have items; arguments as in `reliability_curve`."""
    curve = reliability_curve(gold, h, bins=N_CALIBRATION_BINS)
    some = curve.count > 0
    share, items = curve.accuracy[some], curve.count[some]
    low, high = wilson_interval_of_mean(share, share * (1 - share), items.astype(float))
    columns: dict[str, Any] = {"items": items, "confidence": curve.confidence[some], "accuracy": share}
    bins = [extract_entry(b, 5, **columns, low=low, high=high) for b in range(items.size)]
    return {"calibration_error": curve.error, "bins": bins}


def make_calibration_chart(bins: list[dict[str, Any]], *, subject: str, right: str) -> ChartBlock:
    """Draw confidence against accuracy by bin; `subject` names the predictor, `right` what its accuracy means."""
    scale = {"domain": [0, 1]}
    x = charts.make_quantity_axis("confidence", "confidence", "%", scale=scale)
    diagonal = {"type": "line", "strokeDash": [4, 4], "strokeWidth": 1}
    line = charts.draw_marks([{"a": 0}, {"a": 1}], diagonal, x="a:Q", y="a:Q")
    low = {"field": "low", "type": "quantitative", "scale": scale}
    bars = charts.draw_marks(bins, "rule", x=x, y=low, y2="high:Q")
    y = charts.make_quantity_axis("accuracy", right, "%", scale=scale)
    size = {"field": "items", "type": "quantitative", "legend": None, "scale": {"range": [40, 400]}}
    tips = [
        ("confidence:Q", "confidence", charts.EXACT_SHARE_FORMAT),
        ("accuracy:Q", "right", charts.EXACT_SHARE_FORMAT),
        ("items:Q", "items", charts.COUNT_FORMAT),
    ]
    dots = charts.draw_marks(bins, {"type": "point", "filled": True, "opacity": 1}, tips, x=x, y=y, size=size)
    words = "; ".join(f"at {format_percent(one['confidence'])} {format_percent(one['accuracy'])} right" for one in bins)
    return ChartBlock(
        charts.to_spec(line + bars + dots, 260),
        "Is the confidence calibrated?",
        f"Horizontal axis: confidence; vertical axis: share that is {right}. On the dashed line the confidence is "
        f"correct; below it, {subject} is overconfident. Larger dots stand for more items; lines are 95 % intervals.",
        f"Confidence against share right: {words}.",
    )
