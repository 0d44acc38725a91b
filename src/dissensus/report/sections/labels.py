"""Labels: how sure the labels are, how many are settled, and, with gold, whether the confidence can be believed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.formatting import percent
from dissensus.evaluation import bootstrap, log_loss
from dissensus.evaluation.hard import hits
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Number, Numbers
from dissensus.report.calibration import calibration, calibration_chart
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import Study, plain, spread

SETTLED = 0.9  # confidence from which a label is settled
UNSURE = 0.7  # below which it is unsure
LITTLE = 0.4  # α below which confidence is owed to the model more than to the labels
FAR = 0.1  # above accuracy, at which confidence misleads
HONEST = 0.03  # between confidence and accuracy, below which it can be believed
BINS = 20
MOST = 15  # classes with a bar of their own
WORDS = {
    "settled": f"settled ({percent(SETTLED)} or more)",
    "likely": "likely",
    "unsure": f"unsure (below {percent(UNSURE)})",
}


@sections.enter("labels", title="Labels", summary="What are the labels, and how sure are they?", place=20)
class Labels(Section):
    """Posterior confidence, settled items, calibration."""

    def collect(self, study: Study) -> Facts:
        """See the class."""
        study.on_step("weighing the labels")
        confidence = study.confidence
        edges = np.linspace(0, 1, BINS + 1)
        state = np.digitize(confidence, [UNSURE, SETTLED])  # 0 unsure, 1 likely, 2 settled
        by_class = np.zeros((study.table.n_classes, 3), np.int64)
        np.add.at(by_class, (study.label, state), 1)
        tied = (study.fitted.posterior_ >= confidence[:, None] * (1 - 1e-9)).sum(axis=1) > 1
        facts: Facts = {
            "method": study.method,
            "items": study.table.n_items,
            "settled": int((state == 2).sum()),
            "likely": int((state == 1).sum()),
            "unsure": int((state == 0).sum()),
            "tied": int(tied.sum()),
            "expected_right": plain(confidence.mean()) if confidence.size else None,
            "histogram": {"counts": plain(np.histogram(confidence, edges)[0]), "edges": plain(edges)},
            "by_class": [
                {"class": name, "settled": int(row[2]), "likely": int(row[1]), "unsure": int(row[0])}
                for name, row in zip(study.classes, by_class, strict=True)
            ],
            "alpha": None if study.agreement is None else plain(study.agreement["krippendorff_alpha"].value),
            "gold": None,
        }
        if study.gold is not None:
            facts["gold"] = _against_gold(study)
        return facts

    def findings(self, facts: Facts) -> list[Finding]:
        """How many are settled; whether confidence can be believed."""
        n = max(facts["items"], 1)
        share = facts["settled"] / n
        alpha = facts["alpha"]
        doubtful = facts["gold"] is None and alpha is not None and alpha < LITTLE and share >= 0.5
        honest = facts["gold"] is None or abs(facts["gold"]["accuracy"]["value"] - facts["gold"]["expected"]) <= HONEST
        result = [
            Finding(
                f"{facts['settled']:,} of {facts['items']:,} labels ({percent(share)}) are settled at "
                f"{percent(SETTLED)} "
                f"confidence or more; {facts['unsure']:,} are unsure.",
                "Look at the unsure ones first, or ask for more labels on them." if facts["unsure"] else "",
                "good" if share >= 0.9 and honest and not doubtful else "note",
            )
        ]
        if doubtful:
            result.append(
                Finding(
                    "So much confidence from so little agreement rests on the assumption that every item has one "
                    "true class.",
                    "Where people may rightly differ, as in matters of taste or offence, use the votes' shares and "
                    "not one label.",
                )
            )
        if (gold := facts["gold"]) is not None:
            accuracy, expected = gold["accuracy"], gold["expected"]
            direction = "too high" if expected > accuracy["value"] else "too low"
            believed = (
                "as often as the confidence says"
                if honest
                else f"while the confidence says {percent(expected)}: it is {direction}"
            )
            result.append(
                Finding(
                    f"Against gold, {percent(accuracy['value'], 1)} of the labels are right "
                    f"({percent(accuracy['low'], 1)} to {percent(accuracy['high'], 1)}), {believed}.",
                    "" if honest else "Do not take its 90 % for 90 %.",
                    "good" if honest else "bad" if expected - accuracy["value"] > FAR else "note",
                )
            )
        return result

    def draw(self, facts: Facts) -> list[Block]:
        """Figures, confidence, classes, calibration."""
        n = max(facts["items"], 1)
        numbers = [
            Number(
                percent(facts["settled"] / n), "settled", f"{facts['settled']:,} items at {percent(SETTLED)} or more"
            ),
            Number(percent(facts["likely"] / n), "likely", f"{facts['likely']:,} items"),
            Number(percent(facts["unsure"] / n), "unsure", f"{facts['unsure']:,} items below {percent(UNSURE)}"),
        ]
        if facts["tied"]:
            numbers.append(Number(f"{facts['tied']:,}", "ties", "the label is a draw"))
        if (gold := facts["gold"]) is not None:
            accuracy = gold["accuracy"]
            numbers += [
                Number(
                    percent(accuracy["value"], 1),
                    "right, by gold",
                    f"{percent(accuracy['low'], 1)} to {percent(accuracy['high'], 1)}; {gold['items']:,} items",
                ),
                Number(f"{gold['calibration_error']:.3f}", "calibration error", "0 is perfect"),
            ]
        blocks: list[Block] = [Numbers(numbers), _confidence(facts), _by_class(facts)]
        if gold is not None:
            blocks.append(calibration_chart(gold["bins"], who="the method", right="right, by gold"))
        return blocks


def _against_gold(study: Study) -> dict[str, Any]:
    gold, posterior = study.gold, study.fitted.posterior_
    assert gold is not None
    known = gold >= 0
    right = hits(gold[known], posterior[known])
    return {
        "items": int(known.sum()),
        "accuracy": spread(bootstrap(right, seed=study.seed)),
        "expected": plain(study.confidence[known].mean()),
        "log_loss": plain(log_loss(gold[known], np.maximum(posterior[known], 1e-15))),
        **calibration(gold[known], posterior[known]),
    }


def _confidence(facts: Facts) -> Chart:
    alt = charts.altair()
    edges, counts = facts["histogram"]["edges"], facts["histogram"]["counts"]
    rows = [
        {"from": low, "to": high, "count": count, "state": _state(low)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    first = next((i for i, row in enumerate(rows) if row["count"]), 0)
    chart = (
        alt.Chart(charts.data(rows[first:]))
        .mark_bar()
        .encode(
            x=alt.X(
                "from:Q", title="confidence", bin=alt.BinParams(binned=True), axis=alt.Axis(format="%", tickCount=6)
            ),
            x2="to:Q",
            y=alt.Y("count:Q", title="items", axis=alt.Axis(format=charts.COUNT, tickCount=4)),
            color=_states(alt),
            tooltip=[
                alt.Tooltip("from:Q", title="from", format=".0%"),
                alt.Tooltip("to:Q", title="to", format=".0%"),
                alt.Tooltip("count:Q", title="items", format=charts.COUNT),
            ],
        )
    )
    return Chart(
        charts.spec(chart),
        "How sure the labels are",
        f"Probability of each item's label, by {facts['method']}. The more stands on the right, the more is settled.",
        f"Histogram of confidence: {facts['settled']:,} items settled, {facts['likely']:,} likely, "
        f"{facts['unsure']:,} unsure.",
    )


def _by_class(facts: Facts) -> Chart:
    alt = charts.altair()
    classes = sorted(facts["by_class"], key=lambda one: -(one["settled"] + one["likely"] + one["unsure"]))[:MOST]
    rows = [
        {"class": one["class"], "state": WORDS[state], "count": one[state], "order": order}
        for one in classes
        for order, state in enumerate(WORDS)
    ]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("count:Q", title="items", axis=alt.Axis(format=charts.COUNT, tickCount=4)),
            y=alt.Y("class:N", title=None, sort=[one["class"] for one in classes]),
            color=_states(alt),
            order="order:Q",
            tooltip=[
                alt.Tooltip("class:N", title="label"),
                alt.Tooltip("state:N", title="state"),
                alt.Tooltip("count:Q", title="items", format=charts.COUNT),
            ],
        )
    )
    shares = [
        (one["unsure"] / total, one["class"])
        for one in classes
        if (total := one["settled"] + one["likely"] + one["unsure"]) >= 5
    ]
    worst = max(shares, default=(0.0, ""))
    caption = "Items by their label." + (
        f" {worst[1]} is the least settled: {percent(worst[0])} of its items are unsure." if worst[0] >= 0.05 else ""
    )
    if len(facts["by_class"]) > MOST:
        caption += f" The {MOST} most frequent of {len(facts['by_class'])} classes."
    return Chart(
        charts.spec(chart, charts.rows_high(len(classes)) + 20),
        "Settled, class by class",
        caption,
        "Bars of items by label and state: "
        + "; ".join(f"{one['class']} {one['settled']:,} settled, {one['unsure']:,} unsure" for one in classes[:8])
        + ".",
    )


def _states(alt: Any) -> Any:
    return alt.Color(
        "state:N",
        scale=alt.Scale(domain=list(WORDS.values())),
        legend=alt.Legend(orient="top", title=None, columns=3),
    )


def _state(low: float) -> str:
    return WORDS["settled" if low >= SETTLED - 1e-9 else "likely" if low >= UNSURE - 1e-9 else "unsure"]
