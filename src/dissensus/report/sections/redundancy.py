"""Redundancy: how many labels are enough, and what collecting more would change."""

from __future__ import annotations

import numpy as np

from dissensus.common.formatting import Share, format_percent
from dissensus.questions.compare import make_unfitted_copy
from dissensus.questions.recommend import ADVICE_BUDGET, recommend
from dissensus.questions.redundancy import MIN_REHEARSED_ITEMS, redundancy
from dissensus.report import charts
from dissensus.report.blocks import ITEM_COLUMNS, ChartBlock, KeyFigure, KeyFigures, TableBlock, TableColumn, TextBlock
from dissensus.report.face import describe_next_step
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, Tone, sections
from dissensus.report.study import Study, extract_attributes, extract_entry, to_plain
from dissensus.table import names as naming

# If one more label each changes a smaller share of the items, more are hardly worth collecting.
MIN_CHANGED_SHARE = 0.02
CURVE_TITLES = {"stability": "same label as with all annotators", "accuracy": "right, by gold"}


class ChangesMoreThanExpected(Finding):
    template = (
        "The labels are less stable than the method expects: with one label fewer per item {changed} of them differ, "
        "where {expected} were expected."
    )
    tone = "bad"
    changed: Share
    expected: Share


class ChangesWithOneLabelFewer(Finding):
    template = "With one label fewer per item, {changed} of the inferred labels would differ."
    changed: Share
    high: Share
    items: int

    @property
    def tone(self) -> Tone:
        return "good" if self.items >= MIN_REHEARSED_ITEMS and self.high < MIN_CHANGED_SHARE else "note"


@sections.register("redundancy", title="Redundancy", summary="How many more labels are needed?", place=60)
class RedundancySection(Section):
    """Show stability and accuracy by the number of labels per item, and the effect of one more label."""

    def collect(self, study: Study) -> Facts:
        found = redundancy(
            study.table,
            make_unfitted_copy(study.fitted),
            gold=study.gold,
            seed=study.seed,
            on_fit=lambda method, done, of: study.on_step(f"removing labels at random: {done} of {of} fits done"),
        )
        after, tried, chosen = found.next_label, found.rehearsal, found.advice
        if study.training_gold is not None:  # The fits of `redundancy` do not use gold labels.
            chosen = recommend(study.fitted, study.table, budget=ADVICE_BUDGET)
        columns: Facts = {"confidence": study.confidence, "labels": study.labels_per_item}
        item = naming.match_names(chosen.items, study.table.items, "items").tolist()
        who = naming.match_names(chosen.annotators, study.table.annotators, "annotators").tolist()
        return {
            "verdict": found.verdict(),
            "advice": chosen.advice(),
            "next_labels": {
                "labels": len(chosen),
                "items": np.unique(chosen.items).size,
                "changes": chosen.expected_changes,
            }
            if len(chosen)
            else None,
            "sampled_items": found.sampled_items,
            "levels": [
                extract_attributes(level, "labels", "annotations", "stability", "accuracy") for level in found.levels
            ],
            "next_label": {
                "right_now": after.expected_right,
                "right_after": after.expected_right_after,
                "changed": after.flips.mean() if after.flips.size else None,
                "curve": to_plain(after.gain_curve, 4),
                "items_with_most": after.count_items_with_share(0.8),
                "items": after.gain.size,
            },
            "rehearsal": tried
            and extract_attributes(tried, "items", "changed", "is_overconfident") | {"expected": tried.flips},
            "ask": [
                study.describe_item(i)
                | {"annotator": study.annotator_names[j], "label": study.classes[study.label[i]]}
                | extract_entry(i, **columns)
                | extract_entry(n, p_change=chosen.p_change)
                for n, (i, j) in enumerate(zip(item, who, strict=True))
            ],
        }

    def findings(self, facts: Facts) -> Findings:
        if (tried := facts["rehearsal"]) is None:
            return
        changed = Share(tried["changed"]["value"])
        if tried["is_overconfident"]:
            yield ChangesMoreThanExpected(changed=changed, expected=Share(tried["expected"]))
        else:
            yield ChangesWithOneLabelFewer(changed=changed, high=Share(tried["changed"]["high"]), items=tried["items"])

    def draw(self, facts: Facts) -> Blocks:
        after = facts["next_label"]
        if (now := after["right_now"]) is not None:
            gain = f"+{format_percent(max(after['right_after'] - now, 0), 2)}"
            yield KeyFigures(
                [
                    KeyFigure(gain, "right labels with one more label per item", "as estimated by the method"),
                    KeyFigure(format_percent(after["changed"], 1), "of the labels would then change"),
                ]
            )
        if facts["sampled_items"]:
            yield TextBlock(f"The first chart uses {facts['sampled_items']:,} random items, with all their labels.")
        if len(facts["levels"]) > 1:
            yield _make_stability_chart(facts)
        if any(after["curve"]):
            yield _make_gain_chart(after)
        if facts["ask"]:
            yield TableBlock.from_rows(
                "next-labels",
                "Labels to collect next",
                describe_next_step(facts),
                {
                    **ITEM_COLUMNS,
                    "annotator": TableColumn("annotator to ask"),
                    "label": TableColumn("label", note="inferred so far"),
                    "confidence": TableColumn("confidence", "percent"),
                    "labels": TableColumn("labels", "number", note="so far"),
                    "p_change": TableColumn("may change", "percent", note="probability that the label changes"),
                },
                facts["ask"],
                page=10,
            )
        else:
            yield TextBlock(describe_next_step(facts))


def _make_stability_chart(facts: Facts) -> ChartBlock:
    rows = [
        {"labels": level["labels"], "what": CURVE_TITLES[key], **level[key]}
        for level in facts["levels"]
        for key in CURVE_TITLES
        if level[key] is not None
    ]
    there = [name for name in CURVE_TITLES.values() if any(row["what"] == name for row in rows)]
    scale = {"zero": False, "nice": False, "padding": 10}
    x = charts.make_quantity_axis("labels", "maximum number of labels per item", ticks=8, scale=scale, tickMinStep=1)
    y = charts.make_quantity_axis("low", "share of the items", "%", scale={"zero": False})
    color = charts.make_color_encoding("what", there, columns=1)
    band = charts.draw_marks(rows, {"type": "area", "opacity": 0.2}, x=x, y=y, y2="high:Q", color=color)
    tips = [("labels:Q", "labels per item"), ("what:N", "share"), ("value:Q", "is", charts.EXACT_SHARE_FORMAT)]
    line = charts.draw_marks(rows, {"type": "line", "point": True}, tips, x=x, y="value:Q", color=color)
    return ChartBlock(
        charts.to_spec(band + line, 260),
        "How many labels are enough?",
        "Share of the items (vertical axis) that would be right or keep their label with fewer labels per item "
        "(horizontal axis). Where a curve is flat, more labels change little. Bands are 95 % intervals.",
        "; ".join(f"{row['labels']} labels: {format_percent(row['value'], 1)} {row['what']}" for row in rows) + ".",
    )


def _make_gain_chart(after: Facts) -> ChartBlock:
    rows = [{"items": share / 100, "gain": gain} for share, gain in enumerate(after["curve"])]
    x = charts.make_quantity_axis("items", "share of the items that get another label", "%")
    y = charts.make_quantity_axis("gain", "share of the total gain", "%")
    tips = [("items:Q", "items", charts.SHARE_FORMAT), ("gain:Q", "gain", charts.SHARE_FORMAT)]
    chart = charts.draw_marks(rows, {"type": "line", "strokeWidth": 2.5}, tips, x=x, y=y)
    most = f"{after['items_with_most']:,} of {after['items']:,} items"
    return ChartBlock(
        charts.to_spec(chart, 260),
        "Which items gain from another label?",
        "Share of the total information gain (vertical axis) if only some items get one more label (horizontal axis), "
        "those with the largest gain first.",
        f"Share of the gain against share of items: 80 % of it lies in {most}.",
    )
