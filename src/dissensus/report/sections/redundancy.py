"""Redundancy: how many labels are enough, and whether buying more would change anything."""

from __future__ import annotations

from typing import Any

from dissensus.common.formatting import percent
from dissensus.questions.compare import fresh
from dissensus.questions.redundancy import redundancy
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.choice import brief
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import BRIEF, Study, plain, spread

BEST = 100  # items worth another label, in the table
ENOUGH = 0.02  # share of the labels that one label each changes, below which more are hardly worth it
SPREAD = 0.6  # share of the items above which what there is to gain is in no particular ones


@sections.enter("redundancy", title="Redundancy", summary="How many labels do I still have to buy?", place=60)
class RedundancySection(Section):
    """Stability and accuracy against labels per item; what one more would change."""

    def collect(self, study: Study) -> Facts:
        """See the class."""
        model = brief(fresh(study.fitted))
        found = redundancy(
            study.table,
            model,
            gold=study.gold,
            seed=study.seed,
            on_fit=lambda method, done, of: study.on_step(f"thinning out labels: {done} of {of} fits done"),
        )
        after = found.next_label
        at = {name: code for code, name in enumerate(study.table.items.tolist())}
        best = [at[name] for name in after.best(BEST)]
        return {
            "verdict": found.verdict(),
            "sampled_items": found.sampled_items,
            "levels": [
                {
                    "labels": level.labels,
                    "annotations": level.annotations,
                    "stability": spread(level.stability),
                    "accuracy": None if level.accuracy is None else spread(level.accuracy),
                }
                for level in found.levels
            ],
            "next_label": {
                "right_now": plain(after.expected_right),
                "right_after": plain(after.expected_right_after),
                "changed": plain(float(after.flips.mean())) if after.flips.size else None,
                "curve": plain(after.curve, 4),
                "items_with_most": after.holding(0.8),
                "items": int(after.gain.size),
            },
            "rehearsal": None
            if found.rehearsal is None
            else {
                "expected": plain(found.rehearsal.flips),
                "changed": spread(found.rehearsal.changed),
                "too_sure": found.rehearsal.too_sure,
            },
            "best": [
                {
                    "item": study.items[i],
                    **({"texts": study.texts(i, BRIEF)} if study.text_columns else {}),
                    "label": study.classes[study.label[i]],
                    "confidence": plain(study.confidence[i], 3),
                    "labels": int(study.labels_per_item[i]),
                    "gain": plain(after.gain[i], 3),
                    "flips": plain(after.flips[i], 3),
                }
                for i in best
                if after.gain[i] > 0
            ],
        }

    def findings(self, facts: Facts) -> list[Finding]:
        """Whether to buy more: by what the last label of each item changed, not only by what the method expects."""
        tried, after = facts["rehearsal"], facts["next_label"]
        if tried is None:
            return [Finding(facts["verdict"], "", "bad")]
        changed = tried["changed"]["value"]
        if tried["too_sure"]:
            return [
                Finding(
                    "The method is far too sure of itself: one label less of each item changed "
                    f"{percent(changed, 1)} of "
                    f"its labels, where it expected {percent(tried['expected'], 1)}.",
                    "Do not take its confidence at its word; more labels would still change things.",
                    "bad",
                )
            ]
        few = after["items_with_most"] < SPREAD * after["items"]
        advice = (
            f"If you buy more, buy for the {after['items_with_most']:,} items with the most to gain." if few else ""
        )
        enough = changed < ENOUGH
        return [
            Finding(
                f"One label less of each item changed {percent(changed, 1)} of the labels; one more each would "
                "change about "
                f"{percent(after['changed'], 1)}, by the method's own reckoning.",
                "More labels would change little." if enough else advice,
                "good" if enough else "note",
            )
        ]

    def draw(self, facts: Facts) -> list[Block]:
        """Figures, the curve, what one more label brings, for which items."""
        after = facts["next_label"]
        numbers = []
        if after["right_now"] is not None:
            numbers = [
                Number(percent(after["right_now"], 1), "right now", "by the method's own reckoning"),
                Number(
                    f"+{percent(max(after['right_after'] - after['right_now'], 0), 2)}",
                    "right with one more label each",
                    "by the same",
                ),
                Number(percent(after["changed"], 1), "of the labels would change"),
                Number(f"{after['items_with_most']:,}", "items hold 80 % of the gain", f"of {after['items']:,}"),
            ]
        blocks: list[Block] = [Numbers(numbers)] if numbers else []
        blocks.append(Text(facts["verdict"]))
        if facts["sampled_items"]:
            blocks.append(
                Text(f"The curve is that of a random {facts['sampled_items']:,} items, with all their labels.")
            )
        if len(facts["levels"]) > 1:
            blocks.append(_curve(facts))
        if any(after["curve"]):
            blocks.append(_gain(facts))
        if facts["best"]:
            text = "texts" in facts["best"][0]
            blocks.append(
                Table(
                    "next-labels",
                    "Where another label is worth most",
                    "Expected rise of the probability that the label is right, from one more label by an annotator "
                    "like those who labelled.",
                    [
                        Column("item"),
                        *([Column("text", "long")] if text else []),
                        Column("label"),
                        Column("confidence", "percent"),
                        Column("labels", "number", note="so far"),
                        Column("gain", "percent", 1),
                        Column("would change", "percent", note="chance that the label changes"),
                    ],
                    [
                        [
                            one["item"],
                            *([one["texts"]] if text else []),
                            one["label"],
                            one["confidence"],
                            one["labels"],
                            one["gain"],
                            one["flips"],
                        ]
                        for one in facts["best"]
                    ],
                    page=10,
                )
            )
        return blocks


def _curve(facts: Facts) -> Chart:
    alt = charts.altair()
    names = {"stability": "same label as with all", "accuracy": "right, by gold"}
    rows = [
        {"labels": level["labels"], "what": names[key], **level[key]}
        for level in facts["levels"]
        for key in names
        if level[key] is not None
    ]
    base = alt.Chart(charts.data(rows))
    x = alt.X(
        "labels:Q",
        title="labels per item, at most",
        axis=alt.Axis(tickMinStep=1, tickCount=8),
        scale=alt.Scale(zero=False, nice=False, padding=10),
    )
    color = alt.Color(
        "what:N",
        scale=alt.Scale(domain=[n for n in names.values() if any(r["what"] == n for r in rows)]),
        legend=alt.Legend(orient="top", title=None, columns=1),
    )
    band = base.mark_area(opacity=0.2).encode(
        x=x,
        y=alt.Y(
            "low:Q", title="share of the items", scale=alt.Scale(zero=False), axis=alt.Axis(format="%", tickCount=5)
        ),
        y2="high:Q",
        color=color,
    )
    line = base.mark_line(point=True).encode(
        x=x,
        y="value:Q",
        color=color,
        tooltip=[
            alt.Tooltip("labels:Q", title="labels per item"),
            alt.Tooltip("what:N", title="share"),
            alt.Tooltip("value:Q", title="is", format=".1%"),
        ],
    )
    return Chart(
        charts.spec(band + line, 260),
        "How many labels are enough",
        "Where the line has gone flat, further labels change little. Labels were taken away at random; the band is "
        "a 95 % interval.",
        "; ".join(f"{row['labels']} labels: {percent(row['value'], 1)} {row['what']}" for row in rows) + ".",
    )


def _gain(facts: Facts) -> Chart:
    alt = charts.altair()
    after = facts["next_label"]
    rows: list[dict[str, Any]] = [{"items": share / 100, "gain": gain} for share, gain in enumerate(after["curve"])]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_line(strokeWidth=2.5)
        .encode(
            x=alt.X(
                "items:Q",
                title="items given another label, best first",
                axis=alt.Axis(format="%", tickCount=5),
            ),
            y=alt.Y("gain:Q", title="share of the gain", axis=alt.Axis(format="%", tickCount=5)),
            tooltip=[
                alt.Tooltip("items:Q", title="items", format=".0%"),
                alt.Tooltip("gain:Q", title="gain", format=".0%"),
            ],
        )
    )
    return Chart(
        charts.spec(chart, 260),
        "Whom to buy more labels for",
        f"{after['items_with_most']:,} of {after['items']:,} items hold 80 % of what one more label each would bring.",
        f"Share of the gain against share of items: 80 % of it lies in {after['items_with_most']:,} of "
        f"{after['items']:,} items.",
    )
