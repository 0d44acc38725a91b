"""Labels: their confidence, the number of settled items and, with gold labels, their calibration."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dissensus.common.formatting import Share, format_count, format_percent
from dissensus.evaluation import bootstrap, log_loss
from dissensus.evaluation.hard import probability_correct
from dissensus.models.tempering import MIN_GOLD_ITEMS
from dissensus.questions.item_status import SETTLED_CONFIDENCE
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock, KeyFigure, KeyFigures
from dissensus.report.calibration import compute_calibration_facts, make_calibration_chart
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, Tone, sections
from dissensus.report.study import Study, format_interval

UNSURE_CONFIDENCE = 0.7  # Labels with a lower confidence are called unsure.
MIN_ALPHA = 0.4  # Krippendorff's α; if it is lower, confidence rests on the model more than on the labels
MAX_CONFIDENCE_EXCESS = 0.1  # Confidence that exceeds accuracy by more is reported as bad.
N_HISTOGRAM_BINS = 20
CONFIDENCE_LEVEL_TITLES = {
    "settled": f"settled ({format_percent(SETTLED_CONFIDENCE)} or more)",
    "likely": "likely",
    "unsure": f"unsure (below {format_percent(UNSURE_CONFIDENCE)})",
}
LEVEL_COLORS = charts.make_color_encoding("state", list(CONFIDENCE_LEVEL_TITLES.values()))
ITEM_COUNT_AXIS = charts.make_quantity_axis("count", "items", charts.COUNT_FORMAT, ticks=4)


class ConfidentDespiteDisagreement(Finding):
    template = (
        "Annotators agree little, yet the labels have a high confidence: this assumes that every item has one true "
        "class."
    )
    advice = "If people may rightly differ, as on taste or offence, use the distribution of labels, not one label."


class ConfidenceAgainstGold(Finding):
    template = (
        "The mean confidence is {confidence:0}, and {right} ({low} to {high}) of the labels are right by gold: "
        "{verdict}."
    )
    confidence: Share
    right: Share
    low: Share
    high: Share
    items: int
    example = {"right": Share(0.5), "low": Share(0.4), "high": Share(0.6)}

    @property
    def is_calibrated(self) -> bool:
        return self.low <= self.confidence <= self.high

    @property
    def verdict(self) -> str:
        if self.is_calibrated:
            return "the confidence is calibrated" if self.items >= MIN_GOLD_ITEMS else "no difference can be shown"
        return "the confidence is too high" if self.confidence > self.right else "the confidence is too low"

    @property
    def advice(self) -> str:
        return "" if self.is_calibrated else "Calibrate it with gold labels before you use it as a probability."

    @property
    def tone(self) -> Tone:
        if self.is_calibrated:
            return "good" if self.items >= MIN_GOLD_ITEMS else "note"
        return "bad" if self.confidence - self.right > MAX_CONFIDENCE_EXCESS else "note"


@sections.register("labels", title="Labels", summary="How certain are the inferred labels?", place=20)
class LabelsSection(Section):
    """Show the confidence of the labels and, with gold, its calibration."""

    def collect(self, study: Study) -> Facts:
        study.on_step("computing the confidence")
        confidence = study.confidence
        edges = np.linspace(0, 1, N_HISTOGRAM_BINS + 1)
        state = np.where(study.is_settled, 0, np.where(confidence >= UNSURE_CONFIDENCE, 1, 2))  # (I,) index in STATES
        tied = (study.fitted.posterior_ >= confidence[:, None] * (1 - 1e-9)).sum(axis=1) > 1
        return {
            "dependence": study.fitted.dependence_,
            "items": study.table.n_items,
            **dict(
                zip(
                    CONFIDENCE_LEVEL_TITLES,
                    np.bincount(state, minlength=len(CONFIDENCE_LEVEL_TITLES)).tolist(),
                    strict=True,
                )
            ),
            "tied": tied.sum(),
            "expected_right": confidence.mean() if confidence.size else None,
            "histogram": {"counts": np.histogram(confidence, edges)[0], "edges": edges},
            "alpha": study.agreement and study.agreement["krippendorff_alpha"].value,
            "gold": None if study.gold is None else _compare_with_gold(study),
        }

    def findings(self, facts: Facts) -> Findings:
        share = facts["settled"] / max(facts["items"], 1)
        alpha, gold = facts["alpha"], facts["gold"]
        if gold is None and alpha is not None and alpha < MIN_ALPHA and share >= 0.5:
            yield ConfidentDespiteDisagreement()
        if gold is not None:
            right, low, high = (Share(gold["accuracy"][key]) for key in ("value", "low", "high"))
            yield ConfidenceAgainstGold(
                confidence=Share(gold["expected"]),
                right=right,
                low=low,
                high=high,
                items=gold["items"],
            )

    def draw(self, facts: Facts) -> Blocks:
        numbers = [
            KeyFigure(f"{facts['unsure']:,}", "unsure labels", f"confidence below {format_percent(UNSURE_CONFIDENCE)}")
        ]
        if facts["tied"]:
            numbers.append(KeyFigure(f"{facts['tied']:,}", "tied labels", "two classes are equally likely"))
        if (gold := facts["gold"]) is not None:
            note = f"{format_interval(gold['accuracy'])}; {format_count(gold['items'], 'item')}"
            numbers.append(KeyFigure(format_percent(gold["accuracy"]["value"], 1), "right, by gold", note))
            numbers.append(
                KeyFigure(
                    f"{gold['calibration_error']:.3f}",
                    "calibration error",
                    "mean gap of confidence and accuracy; 0: none",
                )
            )
        yield KeyFigures(numbers)
        yield _make_confidence_chart(facts)
        if gold is not None:
            yield make_calibration_chart(gold["bins"], subject="the method", right="right, by gold")


def _compare_with_gold(study: Study) -> Facts:
    assert study.gold is not None
    known = study.gold >= 0
    gold, posterior = study.gold[known], study.fitted.posterior_[known]
    return {
        "items": known.sum(),
        "accuracy": bootstrap(probability_correct(gold, posterior), seed=study.seed),
        "expected": study.confidence[known].mean(),
        "log_loss": log_loss(gold, np.maximum(posterior, 1e-15)),
        **compute_calibration_facts(gold, posterior),
    }


def _make_confidence_chart(facts: Facts) -> ChartBlock:
    edges, counts = facts["histogram"]["edges"], facts["histogram"]["counts"]
    words = list(CONFIDENCE_LEVEL_TITLES.values())[::-1]
    rows = [
        {
            "from": low,
            "to": high,
            "count": n,
            "state": words[np.digitize(low + 1e-9, [UNSURE_CONFIDENCE, SETTLED_CONFIDENCE])],
        }
        for (low, high), n in zip(pairwise(edges), counts, strict=True)
    ]
    first = next((i for i, row in enumerate(rows) if row["count"]), 0)
    x = charts.make_quantity_axis("from", "confidence", "%", ticks=6) | {"bin": {"binned": True}}
    tips = [
        ("from:Q", "from", charts.SHARE_FORMAT),
        ("to:Q", "to", charts.SHARE_FORMAT),
        ("count:Q", "items", charts.COUNT_FORMAT),
    ]
    chart = charts.draw_marks(rows[first:], "bar", tips, x=x, x2="to:Q", y=ITEM_COUNT_AXIS, color=LEVEL_COLORS)
    return ChartBlock(
        charts.to_spec(chart),
        "Confidence of the labels",
        "Number of items by the probability of their inferred label (horizontal axis).",
        f"Histogram of confidence: {format_count(facts['settled'], 'item')} settled, {facts['likely']:,} likely, "
        f"{facts['unsure']:,} unsure.",
    )
