"""Labels: their confidence, the number of settled items and, with gold, the calibration of the confidence."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dissensus.common.formatting import Share, format_count, format_percent
from dissensus.evaluation import bootstrap, log_loss
from dissensus.evaluation.hard import probability_correct
from dissensus.models.tempering import MIN_GOLD
from dissensus.questions.item_status import SETTLED
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock, KeyFigure, KeyFigures
from dissensus.report.calibration import calibration_chart, calibration_facts
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, Tone, sections
from dissensus.report.study import Study, interval_text

UNSURE_CONFIDENCE = 0.7  # confidence below which a label is unsure
LOW_ALPHA = 0.4  # α below which confidence is due to the model more than to the labels
MISLEADING_GAP = 0.1  # difference by which confidence above accuracy misleads
N_BINS = 20
CONFIDENCE_LEVELS = {
    "settled": f"settled ({format_percent(SETTLED)} or more)",
    "likely": "likely",
    "unsure": f"unsure (below {format_percent(UNSURE_CONFIDENCE)})",
}
LEVEL_COLORS = charts.color_encoding("state", list(CONFIDENCE_LEVELS.values()))
ITEM_COUNT_AXIS = charts.quantity_axis("count", "items", charts.COUNT_FORMAT, ticks=4)


class ConfidentDespiteDisagreement(Finding):
    template = "So much confidence from so little agreement rests on the assumption that every item has one true class."
    advice = (
        "Where people may rightly differ, as in matters of taste or offence, use the votes' shares and not one label."
    )


class ConfidenceAgainstGold(Finding):
    template = (
        "The mean confidence of {confidence:0} {verdict} the share that is right by gold, {right} ({low} to {high})."
    )
    confidence: Share
    right: Share
    low: Share
    high: Share
    items: int
    tempered: bool
    example = {"right": Share(0.5), "low": Share(0.4), "high": Share(0.6)}

    @property
    def fits(self) -> bool:
        return self.low <= self.confidence <= self.high

    @property
    def verdict(self) -> str:
        if self.fits:
            return "agrees with" if self.items >= MIN_GOLD else "does not differ clearly from"
        return "is above" if self.confidence > self.right else "is below"

    @property
    def advice(self) -> str:
        learn = "; `{param[gold]}` learns from gold how sure to be" if self.tempered else ""
        return "" if self.fits else f"Do not take its 90 % for 90 %{learn}."

    @property
    def tone(self) -> Tone:
        if self.fits:
            return "good" if self.items >= MIN_GOLD else "note"
        return "bad" if self.confidence - self.right > MISLEADING_GAP else "note"


@sections.register("labels", title="Labels", summary="What are the labels, and how sure are they?", place=20)
class LabelsSection(Section):
    """Posterior confidence, settled items, calibration."""

    def collect(self, study: Study) -> Facts:
        study.on_step("weighing the labels")
        confidence = study.confidence
        edges = np.linspace(0, 1, N_BINS + 1)
        state = np.where(study.settled, 0, np.where(confidence >= UNSURE_CONFIDENCE, 1, 2))  # (I,) index in STATES
        tied = (study.fitted.posterior_ >= confidence[:, None] * (1 - 1e-9)).sum(axis=1) > 1
        return {
            "dependence": study.fitted.dependence_,
            "items": study.table.n_items,
            **dict(zip(CONFIDENCE_LEVELS, np.bincount(state, minlength=len(CONFIDENCE_LEVELS)).tolist(), strict=True)),
            "tied": tied.sum(),
            "expected_right": confidence.mean() if confidence.size else None,
            "histogram": {"counts": np.histogram(confidence, edges)[0], "edges": edges},
            "alpha": study.agreement and study.agreement["krippendorff_alpha"].value,
            "gold": None if study.gold is None else _compare_with_gold(study),
        }

    def findings(self, facts: Facts) -> Findings:
        share = facts["settled"] / max(facts["items"], 1)
        alpha, gold = facts["alpha"], facts["gold"]
        if gold is None and alpha is not None and alpha < LOW_ALPHA and share >= 0.5:
            yield ConfidentDespiteDisagreement()
        if gold is not None:
            right, low, high = (Share(gold["accuracy"][key]) for key in ("value", "low", "high"))
            yield ConfidenceAgainstGold(
                confidence=Share(gold["expected"]),
                right=right,
                low=low,
                high=high,
                items=gold["items"],
                tempered=bool(facts["dependence"]),
            )

    def draw(self, facts: Facts) -> Blocks:
        numbers = [KeyFigure(f"{facts['unsure']:,}", "unsure", f"below {format_percent(UNSURE_CONFIDENCE)}")]
        if facts["tied"]:
            numbers.append(KeyFigure(f"{facts['tied']:,}", "ties", "the label is a draw"))
        if (gold := facts["gold"]) is not None:
            note = f"{interval_text(gold['accuracy'])}; {format_count(gold['items'], 'item')}"
            numbers.append(KeyFigure(format_percent(gold["accuracy"]["value"], 1), "right, by gold", note))
            numbers.append(KeyFigure(f"{gold['calibration_error']:.3f}", "calibration error", "0 is perfect"))
        yield KeyFigures(numbers)
        yield _confidence_chart(facts)
        if gold is not None:
            yield calibration_chart(gold["bins"], subject="the method", right="right, by gold")


def _compare_with_gold(study: Study) -> Facts:
    assert study.gold is not None
    known = study.gold >= 0
    gold, posterior = study.gold[known], study.fitted.posterior_[known]
    return {
        "items": known.sum(),
        "accuracy": bootstrap(probability_correct(gold, posterior), seed=study.seed),
        "expected": study.confidence[known].mean(),
        "log_loss": log_loss(gold, np.maximum(posterior, 1e-15)),
        **calibration_facts(gold, posterior),
    }


def _confidence_chart(facts: Facts) -> ChartBlock:
    edges, counts = facts["histogram"]["edges"], facts["histogram"]["counts"]
    words = list(CONFIDENCE_LEVELS.values())[::-1]
    rows = [
        {"from": low, "to": high, "count": n, "state": words[np.digitize(low + 1e-9, [UNSURE_CONFIDENCE, SETTLED])]}
        for (low, high), n in zip(pairwise(edges), counts, strict=True)
    ]
    first = next((i for i, row in enumerate(rows) if row["count"]), 0)
    x = charts.quantity_axis("from", "confidence", "%", ticks=6) | {"bin": {"binned": True}}
    tips = [
        ("from:Q", "from", charts.SHARE_FORMAT),
        ("to:Q", "to", charts.SHARE_FORMAT),
        ("count:Q", "items", charts.COUNT_FORMAT),
    ]
    chart = charts.plot(rows[first:], "bar", tips, x=x, x2="to:Q", y=ITEM_COUNT_AXIS, color=LEVEL_COLORS)
    return ChartBlock(
        charts.to_spec(chart),
        "How sure the labels are",
        "Probability of each item's label.",
        f"Histogram of confidence: {format_count(facts['settled'], 'item')} settled, {facts['likely']:,} likely, "
        f"{facts['unsure']:,} unsure.",
    )
