"""Methods: which one suits these labels, asked without gold, and where the methods disagree."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.formatting import percent
from dissensus.common.types import IntArray
from dissensus.evaluation import paired_bootstrap
from dissensus.exceptions import DataError
from dissensus.questions.compare import MAJORITY
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.choice import Contest
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import BRIEF, Study, plain, spread

MOST = 200  # items on which methods disagree, in the table


@sections.enter("methods", title="Methods", summary="Which method suits these labels, and does it matter?", place=30)
class Methods(Section):
    """The comparison without gold, and the labels that depend on the method."""

    def applies(self, study: Study) -> bool:
        """Somewhere two labels of one item are needed."""
        return bool((study.labels_per_item > 1).any())

    def collect(self, study: Study) -> Facts:
        """See the class."""
        held = study.contest
        if isinstance(held, DataError):
            return {"failed": str(held)}
        found, chosen = held.comparison, held.items
        matrix = np.stack(list(held.labels.values()))
        differ = np.array([[(one != other).mean() for other in matrix] for one in matrix])
        return {
            "method": study.method,
            "best": found.best,
            "tied": found.tied,
            "verdict": found.verdict(),
            "majority_will_do": found.majority_will_do,
            "by_gold": _by_gold(study, held),
            "hidden": found.hidden,
            "sampled_items": int(chosen.size) if held.sampled else None,
            "items": int(chosen.size),
            "methods": [
                {
                    "method": one.method,
                    "log_likelihood": spread(one.log_likelihood),
                    "behind": spread(one.behind),
                    "tied": one.tied,
                    "accuracy": None if one.accuracy is None else spread(one.accuracy),
                    "seconds": plain(one.seconds, 2),
                }
                for one in found
            ],
            "failed_methods": found.failed,
            "differ": plain(differ, 3),
            "contested": int((matrix != matrix[0]).any(axis=0).sum()),
            "contested_items": _contested(study, matrix, chosen),
        }

    def findings(self, facts: Facts) -> list[Finding]:
        """Whether the method matters, and whether gold says otherwise."""
        if "failed" in facts:
            return []
        vote = next((one for one in facts["methods"] if one["method"] == MAJORITY), None)
        said = f"{facts['best']} predicts hidden labels best"
        if facts["majority_will_do"]:
            said = f"{said}, but majority vote is as good" if facts["best"] != MAJORITY else f"{said}: a vote is enough"
        elif vote is not None:
            said += ", majority vote clearly worse"
        share = percent(facts["contested"] / max(facts["items"], 1))
        advice = ""
        if facts["method"] not in facts["tied"] and not facts["majority_will_do"]:
            advice = f"This report uses {facts['method']}; --method {facts['best']} may serve better."
        result = [Finding(f"{said}. The labels of {share} of the items depend on the method.", advice)]
        if (gold := facts["by_gold"]) is not None:
            result.append(
                Finding(
                    f"By gold, {gold['method']} is right more often than {facts['method']}: by "
                    f"{100 * gold['ahead']['value']:.1f} points ({100 * gold['ahead']['low']:.1f} to "
                    f"{100 * gold['ahead']['high']:.1f}).",
                    f"Try --method {gold['method']}.",
                )
            )
        return result

    def draw(self, facts: Facts) -> list[Block]:
        """Ranking, matrix, the items that depend on it."""
        if "failed" in facts:
            return [Text(f"The methods could not be compared: {facts['failed']}")]
        used = next((one for one in facts["methods"] if one["method"] == facts["method"]), None)
        place = ""
        if used is not None:
            place = "as good as the best" if used["tied"] else f"{used['behind']['value']:.3f} nats behind the best"
        numbers = [Number(facts["method"], "is used in this report", place)]
        if facts["best"] != facts["method"]:
            numbers.append(Number(facts["best"], "predicts hidden labels best"))
        share = percent(facts["contested"] / max(facts["items"], 1))
        many = f"{facts['contested']:,} of {facts['items']:,} items"
        blocks: list[Block] = [Numbers([*numbers, Number(share, "of the labels depend on the method", many)])]
        if facts["sampled_items"]:
            blocks.append(Text(f"Compared on a random {facts['sampled_items']:,} of the items, with all their labels."))
        blocks.append(_ranking(facts))
        if any(one["accuracy"] for one in facts["methods"]):
            blocks.append(_accuracy(facts))
        blocks.append(_differences(facts))
        if facts["contested_items"]:
            names = [one["method"] for one in facts["methods"]]
            rows = [
                [one["item"], *([one["texts"]] if "texts" in one else []), *one["labels"]]
                for one in facts["contested_items"]
            ]
            text = [Column("text", "long")] if "texts" in facts["contested_items"][0] else []
            blocks.append(
                Table(
                    "contested",
                    "Items on which they disagree",
                    "Items whose label depends on the method, the most contested first"
                    + (f"; {len(rows)} of {facts['contested']:,}." if len(rows) < facts["contested"] else "."),
                    [Column("item"), *text, *(Column(name) for name in names)],
                    rows,
                    page=10,
                )
            )
        for name, why in facts["failed_methods"].items():
            blocks.append(Text(f"{name} is left out: {why}"))
        return blocks


def _by_gold(study: Study, held: Contest) -> dict[str, Any] | None:
    """The method that is right most often, where beyond doubt it is so more often than the one that is used."""
    if study.gold is None or study.method not in held.labels:
        return None
    gold = study.gold[held.items]
    known = gold >= 0
    right = {name: (labels[known] == gold[known]).astype(float) for name, labels in held.labels.items()}
    if not known.any():
        return None
    best = max(right, key=lambda name: float(right[name].mean()))
    ahead = paired_bootstrap(right[best], right[study.method], seed=study.seed).mean
    return {"method": best, "ahead": spread(ahead)} if ahead.low > 0 else None


def _contested(study: Study, matrix: IntArray, chosen: IntArray) -> list[dict[str, Any]]:
    """The items to which methods give most different labels."""
    where = np.flatnonzero((matrix != matrix[0]).any(axis=0))
    kinds = np.count_nonzero(np.diff(np.sort(matrix[:, where], axis=0), axis=0), axis=0)
    minority = np.count_nonzero(matrix[:, where] != matrix[0, where], axis=0)
    order = where[np.lexsort((-minority, -kinds))][:MOST]
    rows = []
    for i in order.tolist():
        item = int(chosen[i])
        row: dict[str, Any] = {"item": study.items[item], "labels": [study.classes[k] for k in matrix[:, i].tolist()]}
        if study.text_columns:
            row["texts"] = study.texts(item, BRIEF)
        rows.append(row)
    return rows


def _ranking(facts: Facts) -> Chart:
    alt = charts.altair()
    rows = [
        {
            "method": one["method"],
            "behind": one["behind"]["value"],
            "low": one["behind"]["low"],
            "high": one["behind"]["high"],
            "word": "best, or level with it" if one["tied"] else "worse",
        }
        for one in facts["methods"]
    ]
    words = ["best, or level with it", "worse"]
    base = alt.Chart(charts.data(rows))
    y = alt.Y("method:N", title=None, sort=[row["method"] for row in rows], axis=alt.Axis(labelLimit=200))
    color = alt.Color("word:N", scale=alt.Scale(domain=words), legend=alt.Legend(orient="top", title=None, columns=1))
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title="behind the best (nats per hidden label)", axis=alt.Axis(tickCount=5)),
        x2="high:Q",
        y=y,
        color=color,
    )
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(
        x="behind:Q",
        y=y,
        color=color,
        tooltip=[
            alt.Tooltip("method:N", title="method"),
            alt.Tooltip("behind:Q", title="nats behind", format=".4f"),
            alt.Tooltip("low:Q", title="from", format=".4f"),
            alt.Tooltip("high:Q", title="to", format=".4f"),
        ],
    )
    return Chart(
        charts.spec(bars + dots, charts.rows_high(len(rows)) + 20),
        "Which method predicts hidden labels best",
        f"{facts['verdict']} {facts['hidden']:,} labels were hidden and predicted from the rest; further left is "
        "better.",
        "Methods from the best: " + ", ".join(f"{row['method']} {row['behind']:.3f} behind" for row in rows) + ".",
    )


def _accuracy(facts: Facts) -> Chart:
    alt = charts.altair()
    rows = [{"method": one["method"], **one["accuracy"]} for one in facts["methods"] if one["accuracy"]]
    base = alt.Chart(charts.data(rows))
    y = alt.Y("method:N", title=None, sort=[row["method"] for row in rows], axis=alt.Axis(labelLimit=200))
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title="right, by gold", scale=alt.Scale(zero=False), axis=alt.Axis(format=".0%", tickCount=5)),
        x2="high:Q",
        y=y,
    )
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(
        x="value:Q",
        y=y,
        tooltip=[alt.Tooltip("method:N", title="method"), alt.Tooltip("value:Q", title="right", format=".1%")],
    )
    return Chart(
        charts.spec(bars + dots, charts.rows_high(len(rows))),
        "And which is right most often",
        "Accuracy on the items with gold, with 95 % intervals over items. Gold did not decide the ranking beside "
        "it. All "
        "are judged on the same items, so that their differences are surer than these intervals look.",
        "Accuracy: " + ", ".join(f"{row['method']} {percent(row['value'], 1)}" for row in rows) + ".",
    )


def _differences(facts: Facts) -> Chart:
    alt = charts.altair()
    names = [one["method"] for one in facts["methods"]]
    rows = [
        {"a": names[i], "b": names[j], "share": share}
        for i, line in enumerate(facts["differ"])
        for j, share in enumerate(line)
    ]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_rect()
        .encode(
            x=alt.X("b:N", title=None, sort=names, axis=alt.Axis(labelAngle=-40, labelLimit=140)),
            y=alt.Y("a:N", title=None, sort=names, axis=alt.Axis(labelLimit=140)),
            color=alt.Color(
                "share:Q", title="differ", legend=alt.Legend(format=".0%", orient="top", gradientLength=140)
            ),
            tooltip=[
                alt.Tooltip("a:N", title="method"),
                alt.Tooltip("b:N", title="and"),
                alt.Tooltip("share:Q", title="labels differ", format=".1%"),
            ],
        )
    )
    most = max(rows, key=lambda row: row["share"])
    return Chart(
        charts.spec(chart, 24 * len(names) + 60),
        "Where the methods disagree",
        f"Share of the items to which two methods give different labels; {most['a']} and {most['b']} differ most, on "
        f"{percent(most['share'], 1)}.",
        f"Matrix of differences between {len(names)} methods, at most {percent(most['share'], 1)}.",
    )
