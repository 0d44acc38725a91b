"""Redundancy: how many labels are enough, and whether buying more would change anything."""

from __future__ import annotations

from dissensus.common.formatting import percent
from dissensus.questions.compare import fresh
from dissensus.questions.redundancy import redundancy
from dissensus.report import charts
from dissensus.report.blocks import ITEM_COLUMNS, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import Study, entries, facts_of, plain

MAX_ITEMS = 100  # worth another label, in the table
MIN_CHANGED = 0.02  # share of the labels that one label each changes, below which more are hardly worth it
MAX_SPREAD = 0.6  # share of the items above which what there is to gain is in no particular ones
CURVES = {"stability": "same label as with all", "accuracy": "right, by gold"}


@sections.register("redundancy", title="Redundancy", summary="How many labels do I still have to buy?", place=60)
class RedundancySection(Section):
    """Stability and accuracy against labels per item; what one more would change."""

    def collect(self, study: Study) -> Facts:
        found = redundancy(
            study.table,
            fresh(study.fitted),
            gold=study.gold,
            seed=study.seed,
            on_fit=lambda method, done, of: study.on_step(f"thinning out labels: {done} of {of} fits done"),
        )
        after, tried = found.next_label, found.rehearsal
        code = {name: code for code, name in enumerate(study.table.items.tolist())}
        best = [i for name in after.best(MAX_ITEMS) if after.gain[i := code[name]] > 0]
        columns: Facts = {"confidence": study.confidence, "labels": study.labels_per_item}
        columns |= {"gain": after.gain, "flips": after.flips}
        return {
            "verdict": found.verdict(),
            "sampled_items": found.sampled_items,
            "levels": [facts_of(level, "labels", "annotations", "stability", "accuracy") for level in found.levels],
            "next_label": {
                "right_now": after.expected_right,
                "right_after": after.expected_right_after,
                "changed": after.flips.mean() if after.flips.size else None,
                "curve": plain(after.curve, 4),
                "items_with_most": after.holding(0.8),
                "items": after.gain.size,
            },
            "rehearsal": tried and facts_of(tried, "changed", "too_sure") | {"expected": tried.flips},
            "best": [study.about(i) | {"label": study.classes[study.label[i]]} | entries(i, **columns) for i in best],
        }

    def findings(self, facts: Facts) -> Findings:
        tried = facts["rehearsal"]
        if tried is None:
            return
        changed = tried["changed"]["value"]
        if tried["too_sure"]:
            yield Finding(
                "Labels change far more than the method foresees: one label less of each item changed "
                f"{percent(changed, 1)} of them, where it expected {percent(tried['expected'], 1)}.",
                "More labels would still change things.",
                "bad",
            )
            return
        yield Finding(
            f"One label less of each item changed {percent(changed, 1)} of the labels.",
            "",
            "good" if tried["changed"]["high"] < MIN_CHANGED else "note",
        )

    def draw(self, facts: Facts) -> Blocks:
        after = facts["next_label"]
        now = after["right_now"]
        if now is not None:
            gain = f"+{percent(max(after['right_after'] - now, 0), 2)}"
            yield Numbers(
                [
                    Number(gain, "right with one more label each", "by the method's own reckoning"),
                    Number(percent(after["changed"], 1), "of the labels would change"),
                ]
            )
        if facts["rehearsal"] is None:
            yield Text(facts["verdict"])
        if facts["sampled_items"]:
            yield Text(f"The curve is that of a random {facts['sampled_items']:,} items, with all their labels.")
        if len(facts["levels"]) > 1:
            yield _stability_chart(facts)
        if any(after["curve"]):
            yield _gain_chart(after)
        if facts["best"]:
            yield Table.of(
                "next-labels",
                "Where another label is worth most",
                "Gain: how much likelier the label is to be right after one more label.",
                {
                    **ITEM_COLUMNS,
                    "label": Column("label"),
                    "confidence": Column("confidence", "percent"),
                    "labels": Column("labels", "number", note="so far"),
                    "gain": Column("gain", "percent", 1),
                    "flips": Column("would change", "percent", note="chance that the label changes"),
                },
                facts["best"],
                page=10,
            )


def next_step(facts: Facts) -> str:
    """Advise whether to buy labels, and for which items."""
    tried, after = facts["rehearsal"], facts["next_label"]
    if tried is None:
        return str(facts["verdict"])
    if not tried["too_sure"] and tried["changed"]["high"] < MIN_CHANGED:
        return "Next: buy nothing; more labels would change few classes."
    if 0 < after["items_with_most"] < MAX_SPREAD * after["items"]:
        n = after["items_with_most"]
        which = "one item that holds" if n == 1 else f"{n:,} items that hold"
        return f"Next: buy labels for the {which} 80 % of the gain."
    return "Next: buy another label for every item, or look at the items below."


def _stability_chart(facts: Facts) -> Chart:
    rows = [
        {"labels": level["labels"], "what": CURVES[key], **level[key]}
        for level in facts["levels"]
        for key in CURVES
        if level[key] is not None
    ]
    there = [name for name in CURVES.values() if any(row["what"] == name for row in rows)]
    scale = {"zero": False, "nice": False, "padding": 10}
    x = charts.quantity("labels", "labels per item, at most", ticks=8, scale=scale, tickMinStep=1)
    y = charts.quantity("low", "share of the items", "%", scale={"zero": False})
    color = charts.color("what", there, columns=1)
    band = charts.plot(rows, {"type": "area", "opacity": 0.2}, x=x, y=y, y2="high:Q", color=color)
    tips = [("labels:Q", "labels per item"), ("what:N", "share"), ("value:Q", "is", charts.EXACT_SHARE)]
    line = charts.plot(rows, {"type": "line", "point": True}, tips, x=x, y="value:Q", color=color)
    return Chart(
        charts.spec(band + line, 260),
        "How many labels are enough",
        "Where the line is flat, more labels change little. Band: 95 % interval.",
        "; ".join(f"{row['labels']} labels: {percent(row['value'], 1)} {row['what']}" for row in rows) + ".",
    )


def _gain_chart(after: Facts) -> Chart:
    rows = [{"items": share / 100, "gain": gain} for share, gain in enumerate(after["curve"])]
    x = charts.quantity("items", "items given another label, best first", "%")
    y = charts.quantity("gain", "share of the gain", "%")
    tips = [("items:Q", "items", charts.SHARE), ("gain:Q", "gain", charts.SHARE)]
    chart = charts.plot(rows, {"type": "line", "strokeWidth": 2.5}, tips, x=x, y=y)
    most = f"{after['items_with_most']:,} of {after['items']:,} items"
    return Chart(
        charts.spec(chart, 260),
        "Whom to buy more labels for",
        "From one more label each.",
        f"Share of the gain against share of items: 80 % of it lies in {most}.",
    )
