"""Overview: what the table contains, and how far its labels agree."""

from __future__ import annotations

import numpy as np

from dissensus.common.formatting import format_percent
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock, KeyFigure, KeyFigures
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import Study, format_interval, format_range
from dissensus.table import names as naming

MAX_CHART_CLASSES = 15  # classes with a bar of their own
MAX_CHANCE_ALPHA = 0.05  # α below which labels agree about as often as by chance
MIN_ITEMS_FOR_CHANCE = 30  # items with two annotators; if there are fewer, agreement is not compared with chance
COUNT_FACTS = (
    "annotations", "items", "annotators", "items_with_two_annotators", "repeated_pairs", "weighted", "probabilistic",
)  # fmt: skip
SHARE_TITLES = {"votes": "share of the labels given", "labels": "share of the items, as inferred"}


class NoSharedItemsCard(Finding):
    template = "No item was labelled by two annotators, so no label can be compared with another."
    advice = "Have some items labelled by two annotators."
    tone = "bad"


class OneClassCard(Finding):
    template = "All labels are of the same class, so there is nothing to decide."


class OneSharedClass(Finding):
    template = "All items with two annotators have the same class, so agreement cannot be measured."


class AgreementAtChanceCard(Finding):
    template = "Labels of the same item agree no more often than labels given at random ({coefficient} {alpha:.2f})."
    advice = (
        "Check the instructions and the flagged annotators first: no method can correct this unless a few annotators "
        "cause it."
    )
    tone = "bad"
    coefficient: str
    alpha: float
    example = {"coefficient": "Krippendorff's α"}


class UnlabelledItems(Finding):
    template = "{unlabelled:,} of {items:,} items have no label."
    advice = "Have them labelled, or remove them."
    tone = "bad"
    unlabelled: int
    items: int


class RepeatedLabelsCard(Finding):
    template = "{labels:,} labels repeat an item by the same annotator; they do not count as further annotators."
    advice = "If annotators could give several answers, make one table per question."
    labels: int


@sections.register("overview", title="Overview", summary="What is in the table, and do its labels agree?", place=10)
class OverviewSection(Section):
    """Show counts, agreement with intervals, and the frequency of classes."""

    def collect(self, study: Study) -> Facts:
        study.on_step("counting")
        about = study.table.describe()
        labels = naming.match_names(study.fitted.predict(), study.fitted.classes_, "classes")
        # Tempering flattens the mean posterior, so labels are counted.
        given = np.bincount(labels, minlength=len(study.classes))
        columns = (study.classes, about["class_shares"].values(), given / max(given.sum(), 1))
        return {
            **{key: about[key] for key in COUNT_FACTS},
            "classes": [
                {"class": name, "votes": votes, "labels": labels} for name, votes, labels in zip(*columns, strict=True)
            ],
            "agreement": study.agreement,
            "unanimous": about["unanimous_items"],
            "labels_per_item": about["annotations_per_item"],
            "labels_per_annotator": about["annotations_per_annotator"],
            "unlabelled_items": about["items_without_annotation"],
        }

    def findings(self, facts: Facts) -> Findings:
        if facts["agreement"] is None:
            yield NoSharedItemsCard()
            return
        alpha = facts["agreement"]["krippendorff_alpha"]["value"]
        checked = facts["items_with_two_annotators"] >= MIN_ITEMS_FOR_CHANCE
        if sum(one["votes"] > 0 for one in facts["classes"]) == 1:
            yield OneClassCard()
        elif alpha is None:
            yield OneSharedClass()
        elif (
            alpha < MAX_CHANCE_ALPHA
            and checked
            and not naming.find_spelling_variants(one["class"] for one in facts["classes"])
        ):
            yield AgreementAtChanceCard(coefficient="Krippendorff's α", alpha=alpha)
        if facts["unlabelled_items"]:
            yield UnlabelledItems(unlabelled=facts["unlabelled_items"], items=facts["items"])
        if facts["repeated_pairs"]:
            yield RepeatedLabelsCard(labels=facts["repeated_pairs"])

    def draw(self, facts: Facts) -> Blocks:
        weighted = "with weights, which agreement ignores" if facts["weighted"] else ""
        numbers = [
            KeyFigure(format_range(facts["labels_per_item"].values()), "labels per item", weighted),
            KeyFigure(format_range(facts["labels_per_annotator"].values()), "labels per annotator"),
            KeyFigure(f"{len(facts['classes']):,}", "classes"),
        ]
        if (found := facts["agreement"]) is not None:
            share, alpha = found["percent"], found["krippendorff_alpha"]
            numbers.append(
                KeyFigure(
                    format_percent(share["value"], 1), "agreement of two labels of an item", format_interval(share)
                )
            )
            if alpha["value"] is not None:
                between = f"{alpha['low']:.2f} to {alpha['high']:.2f}; 0: as by chance, 1: perfect"
                numbers.append(KeyFigure(f"{alpha['value']:.2f}", "Krippendorff's α", between))
        yield KeyFigures(numbers)
        yield _make_class_chart(facts["classes"])


def _make_class_chart(classes: list[Facts]) -> ChartBlock:
    ordered = sorted(classes, key=lambda one: -one["votes"])
    shown, rest = ordered[:MAX_CHART_CLASSES], ordered[MAX_CHART_CLASSES:]
    if rest:
        shown.append({"class": f"{len(rest)} more"} | {key: sum(one[key] for one in rest) for key in SHARE_TITLES})
    top = ordered[0]
    apart = max(ordered, key=lambda one: abs(one["votes"] - one["labels"]))
    caption = (
        "Share of each class (horizontal axis) among the labels given and among the labels that the method infers for "
        f"the items. {top['class']} is the most frequent class: {format_percent(top['votes'])} of the labels given."
    )
    if abs(apart["votes"] - apart["labels"]) >= 0.02:
        word = "more" if apart["labels"] > apart["votes"] else "fewer"
        caption += f" The largest difference: {apart['class']} is inferred for {word} items than its share of labels."
    listing = ", ".join(f"{one['class']} {format_percent(one['votes'])}" for one in shown[:8])
    chart = charts.make_grouped_bars(shown, "class", SHARE_TITLES)
    return ChartBlock(chart, "Classes", caption, f"Bars of the share of each class: {listing}.")
