"""Draw charts of results in notebooks, as SVG and without a network connection."""

from __future__ import annotations

import json
import re
from importlib import resources
from textwrap import wrap
from typing import Any

import numpy as np
from scipy.special import logit

from dissensus.common.formatting import format_percent
from dissensus.common.types import IntArray
from dissensus.questions.compare import Comparison
from dissensus.questions.diagnose import FLAG_WORDS, Diagnosis
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock
from dissensus.report.calibration import compute_calibration_facts, make_calibration_chart
from dissensus.report.exceptions import NothingToChart
from dissensus.report.sections.methods import make_ranking_chart
from dissensus.report.study import extract_attributes, make_distinct_names

CHART_WIDTH = 520  # pixels
MAX_LINE_LENGTH = 90  # characters in a line of the caption
N_HISTOGRAM_BINS = 20
MAX_LOG_ODDS = 6  # odds are clipped at 10^±6


def chart(result: Any, gold: IntArray | None = None) -> Picture:
    """Draw a comparison, a diagnosis or the confidence of a fitted model; Jupyter displays the chart.

    Parameters
    ----------
    result : Comparison, Diagnosis or fitted method
    gold : (I,) int, optional
        Gold classes, −1 where unknown, to compare the confidence of a fitted method with. Without gold, the
        confidence is shown as a histogram.

    Returns
    -------
    picture : Picture

    >>> from dissensus import chart, methods, simulate
    >>> data = simulate.simulate(100, 8, 2, seed=1)
    >>> picture = chart(methods["dawid-skene"]().fit(data.annotations), gold=data.truth)
    >>> picture
    Chart: Is the confidence calibrated?
    >>> picture.svg()[:4]
    '<svg'
    """
    if isinstance(result, Comparison):
        rows = [extract_attributes(one, "method", "behind", "tied") for one in result]
        facts = {"methods": rows, "n_hidden": result.n_hidden, "unit": result.measure.unit}
        return Picture(make_ranking_chart(facts))
    if isinstance(result, Diagnosis):
        return Picture(_annotator_chart(result))
    if not hasattr(result, "posterior_"):
        raise NothingToChart(got=type(result).__name__)
    if gold is not None:
        bins = compute_calibration_facts(gold, result.posterior_)["bins"]
        return Picture(make_calibration_chart(bins, subject="the model", right="right, by gold"))
    return Picture(_confidence_chart(result.posterior_.max(axis=1)))


class Picture:
    """A single chart: SVG in Jupyter, its title in other consoles."""

    def __init__(self, chart: ChartBlock):
        self.chart = chart

    def svg(self) -> str:
        """Return the chart as SVG."""
        import vl_convert

        spec = self.chart.spec | {"width": CHART_WIDTH, "background": "white", "config": {"view": {"stroke": None}}}
        spec["title"] = {
            "text": self.chart.title, "subtitle": wrap(self.chart.caption, MAX_LINE_LENGTH), "anchor": "start",
        }  # fmt: skip
        return str(vl_convert.vegalite_to_svg(_fill_in_colors(spec)))

    def __repr__(self) -> str:
        return f"Chart: {self.chart.title}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg(), "text/plain": f"{self!r} {self.chart.alt}"}


def _fill_in_colors(spec: dict[str, Any]) -> str:
    """Return a specification in which colour names of the style sheet are replaced by their light colours."""
    sheet = resources.files("dissensus.report").joinpath("page.css").read_text(encoding="utf-8")
    colors = dict(re.findall(r"(--\w+): (#\w+);", sheet.split("}", 1)[0]))
    return re.sub(r"var\((--\w+)\)", lambda found: colors[found[1]], json.dumps(spec))


def _confidence_chart(confidence: Any) -> ChartBlock:
    edges = np.linspace(0, 1, N_HISTOGRAM_BINS + 1)
    counts = np.histogram(confidence, edges)[0]
    first = int(np.flatnonzero(counts)[0]) if counts.any() else 0
    spec = charts.make_histogram(counts[first:].tolist(), edges[first:].tolist(), x_title="confidence", y_title="items")
    mean = f"{format_percent(float(confidence.mean()))} on average" if confidence.size else "no items"
    return ChartBlock(
        spec, "Confidence of the labels", f"Number of items by confidence, {mean}.", f"Histogram: {mean}."
    )


def _annotator_chart(found: Diagnosis) -> ChartBlock:
    odds = np.clip(logit(found.p_typical) / np.log(10), -MAX_LOG_ODDS, MAX_LOG_ODDS)
    words = [FLAG_WORDS[flags[0]] if flags else "none" for flags in found.flags]
    names, seen = make_distinct_names(found.annotators.tolist(), 60), (found.labels > 0) & ~np.isnan(found.p_typical)
    rows = [
        {"annotator": names[at], "labels": float(found.labels[at]), "odds": float(odds[at])}
        | {"honest": float(found.p_typical[at]), "flag": words[at]}
        for at in np.flatnonzero(seen)
    ]
    there = [word for word in (*FLAG_WORDS.values(), "none") if any(row["flag"] == word for row in rows)]
    dots = charts.draw_points(
        rows, 60, 0.8,
        [
            "annotator:N", ("labels:Q", "labels", charts.COUNT_FORMAT), ("honest:Q", "depends on the items", ".0%"),
            "flag:N",
        ],
        x=charts.make_quantity_axis("labels", "labels on items with other labels", "~s"),
        y=charts.make_quantity_axis("odds", "log₁₀ odds that labels depend on the items"),
        color=charts.make_color_encoding("flag", there), shape=charts.make_color_encoding("flag", there),
    )  # fmt: skip
    flagged = sum(row["flag"] != "none" for row in rows)
    caption = (
        f"{flagged:,} of {len(rows):,} annotators are flagged. The vertical axis is logarithmic (powers of ten); below "
        "0, labels look unrelated to the items."
    )
    return ChartBlock(charts.to_spec(dots, 260), "Whose labels depend on the items", caption, caption)
