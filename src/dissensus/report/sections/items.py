"""Items: which to review first, and why their labels disagree: errors, ambiguity or perspectives of groups."""

from __future__ import annotations

import numpy as np

from dissensus.common.formatting import Share, format_percent, join_words
from dissensus.common.types import FloatArray, IntArray
from dissensus.messages import Message
from dissensus.questions.explain import DISAGREEMENT_KINDS, KIND_MEANINGS, MIN_CONFIDENCE, Explanation
from dissensus.report import charts
from dissensus.report.blocks import (
    ITEM_COLUMNS,
    VOTE_COLUMNS,
    ChartBlock,
    KeyFigure,
    KeyFigures,
    TableBlock,
    TableColumn,
    TextBlock,
    make_detail_list,
)
from dissensus.report.face import REPORT_FACE
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import (
    MAX_TEXT_LENGTH,
    Study,
    extract_attributes,
    extract_entry,
    format_shown_count,
    limit_json_size,
    list_largest_shares,
    to_plain,
)

N_FIRST_ITEMS = 10  # items to review first
MAX_LISTED_ITEMS = 1_500  # items in the table
MAX_RANDOM_ITEMS = 300  # random items among them, for comparison
MAX_TABLE_CHARACTERS = 1_600_000  # JSON characters of the table
MAX_TEXT_CHARACTERS = 1_000_000  # total characters of all texts
MAX_DRAWN_ITEMS = 1_500  # items in the chart
MAX_LABELS_OF_ITEM, MAX_LABELS = 30, 20_000  # listed labels per item, and in total
SURPRISE_WEIGHT = 0.2  # probability of a wrong label per standard deviation of surprise
MIN_RELIABILITY_GAP = 0.1  # Smaller differences in reliability between groups are not reported.
MIN_AMBIGUITY = 0.01  # Smaller probabilities of two answers are not reported.
REASON_COLORS = {
    "agreed": "var(--grey)",
    "ambiguous": "var(--c3)",
    "group perspective": "var(--c5)",
    "cannot tell": "var(--c2)",
    "likely error": "var(--c1)",
}
"""Reason for disagreement → colour, in the order of the legend."""
REASON_PHRASES = {
    "likely error": "{n:,} probably contain a wrong label",
    "ambiguous": "{n:,} look ambiguous",
    "group perspective": "{n:,} are seen differently by groups of annotators",
    "cannot tell": "{n:,} have too few labels to tell why annotators disagree",
    "unlabelled": "{n:,} have no label",
}
"""Reason for disagreement → part of a sentence about the number of items."""
ITEM_TABLE_COLUMNS = {
    **ITEM_COLUMNS,
    "why": TableColumn("why", "long"),
    "votes": VOTE_COLUMNS["votes"],
    "label": TableColumn("label", note="inferred"),
    "confidence": TableColumn("confidence", "percent"),
    "gold": VOTE_COLUMNS["gold"],
    "kind": TableColumn("reason", "chips", note="why annotators disagree"),
    "disagreement": TableColumn("disagreement", "percent", note="share of pairs of labels that differ"),
    "difficulty": TableColumn("difficulty", "number", 2),
}


class ReasonsOfDisagreement(Finding):
    template = "On {agreed:0} of the items all annotators agree. Of the others, {listing}."
    agreed: Share
    counts_by_reason: dict[str, int]
    items_to_review: tuple[str, ...]  # items to review first
    example = {"counts_by_reason": {"ambiguous": 90}, "items_to_review": ("i1", "i2")}

    @property
    def listing(self) -> str:
        phrases = [
            words.format(n=n) for kind, words in REASON_PHRASES.items() if (n := self.counts_by_reason.get(kind))
        ]
        return join_words(phrases)

    @property
    def first_items(self) -> str:
        return ", ".join(self.items_to_review[:5]) + (" …" if len(self.items_to_review) > 5 else ".")

    @property
    def advice(self) -> str:
        return "Review these first: {first_items}" if self.items_to_review else ""

    @property
    def table(self) -> str:
        return "items-first" if self.items_to_review else ""


class GroupsDifferCard(Finding):
    template = (
        "Groups of annotators by {column} label differently: {effect} of the disagreement lies between them "
        "(p = {p_value:.2g})."
    )
    advice = "A single label would hide this; keep the distribution of labels, or one label per group."
    column: str
    effect: Share
    p_value: float


class GroupsDifferInReliabilityCard(GroupsDifferCard):
    template = (
        "Groups of annotators by {column} label differently: {effect} of the disagreement lies between them "
        "(p = {p_value:.2g}). The estimated reliability is {low:0} for {worst} and {high:0} for {best}."
    )
    advice = "One group may see the items differently or make more mistakes; read some of them before you decide."
    worst: str
    low: Share
    best: str
    high: Share


class OnlyLabel(Message):
    template = "Its only label is {top}. Best guess: {label} ({confidence:0} likely)."
    top: str
    share: Share
    label: str
    confidence: Share


class NoLeadingClass(OnlyLabel):
    template = "The votes are tied. Best guess: {label} ({confidence:0} likely)."


class MinorityTrusted(OnlyLabel):
    template = "{share:0} chose {top}, but the more reliable annotators chose {label} ({confidence:0} likely)."


class VotesDoubted(OnlyLabel):
    template = "{share:0} chose {top}. Best guess: {label}, only {confidence:0} likely; please check."


class MajorityConfirmed(OnlyLabel):
    template = "{share:0} chose {top}, which is {confidence:0} likely."


@sections.register("items", title="Items", summary="Which items are hard, ambiguous or wrongly labelled?", place=50)
class ItemsSection(Section):
    """Show the reasons for disagreement, ten items to review first, and a table of all items."""

    def collect(self, study: Study) -> Facts:
        found = study.explanation
        worth = compute_review_priority(found)
        rng = np.random.default_rng(study.seed)
        order = np.argsort(-worth, kind="stable")
        most = max(min(MAX_LISTED_ITEMS, order.size), 1)
        max_length = min(MAX_TEXT_LENGTH, MAX_TEXT_CHARACTERS // most)
        max_labels = min(MAX_LABELS_OF_ITEM, max(5, MAX_LABELS // most))

        def about(chosen: IntArray, max_characters: int) -> list[Facts]:
            rows = (_collect_item_facts(study, found, i, max_length, max_labels) for i in chosen.tolist())
            return limit_json_size(rows, max_characters)

        first = order[: MAX_LISTED_ITEMS if order.size <= MAX_LISTED_ITEMS else MAX_LISTED_ITEMS - MAX_RANDOM_ITEMS]
        table = about(first, MAX_TABLE_CHARACTERS)
        others = about(rng.permutation(order[len(table) :])[:MAX_RANDOM_ITEMS], MAX_TABLE_CHARACTERS // 4)
        dots = rng.permutation(found.kind.size)[:MAX_DRAWN_ITEMS]
        return {
            "items": found.kind.size,
            "kinds": found.counts(),
            "first": table[: min(N_FIRST_ITEMS, int((worth > 0).sum()))],
            "table": table + others,
            "others": len(others),
            "groups": [
                extract_attributes(effect, "column", "effect", "p_value", "significant")
                | {
                    "groups": [
                        {"group": name} | extract_entry(n, labels=effect.labels, reliability=effect.reliability)
                        for n, name in enumerate(effect.groups)
                    ],
                    "strongest": [study.item_names[i] for i in effect.items[:N_FIRST_ITEMS].tolist()],
                }
                for effect in found.groups
            ],
            "map": [
                {"item": study.item_names[i], "kind": DISAGREEMENT_KINDS[found.kind[i]]}
                | extract_entry(i, disagreement=found.disagreement, confidence=found.confidence)
                for i in dots.tolist()
                if np.isfinite(found.disagreement[i])
            ],
        }

    def findings(self, facts: Facts) -> Findings:
        kinds, n = facts["kinds"], max(facts["items"], 1)
        others = {kind: kinds[kind] for kind in KIND_MEANINGS if kinds[kind] and kind not in ("agreed", "unlabelled")}
        if others:
            first = tuple(one["item"] for one in facts["first"])
            yield ReasonsOfDisagreement(
                agreed=Share(kinds["agreed"] / n), counts_by_reason=others, items_to_review=first
            )
        yield from [_make_group_card(group) for group in facts["groups"] if group["significant"]][:1]

    def draw(self, facts: Facts) -> Blocks:
        kinds, n = facts["kinds"], max(facts["items"], 1)
        there = [kind for kind in DISAGREEMENT_KINDS if kinds[kind]]
        yield KeyFigures(
            [
                KeyFigure(f"{kinds[kind]:,}", kind, f"{format_percent(kinds[kind] / n)}: {KIND_MEANINGS[kind]}")
                for kind in there
            ]
        )
        if facts["map"]:
            yield _make_disagreement_chart(facts)
        if facts["groups"]:
            yield _make_group_chart(facts)
        if first := facts["first"]:
            yield TableBlock.from_rows(
                "items-first",
                "Ten items to review first" if len(first) == N_FIRST_ITEMS else "Items to review first",
                "Open a row to see the label of each annotator.",
                {
                    key: ITEM_TABLE_COLUMNS[key]
                    for key in ITEM_TABLE_COLUMNS
                    if key not in ("disagreement", "difficulty")
                },
                [one | {"why": _explain_review(one)} for one in first],
                details=[_make_item_details(one) for one in first],
                page=N_FIRST_ITEMS,
                search=False,
            )
        else:
            yield TextBlock("No item needs a review: no labels differ, and every inferred label has a high confidence.")
        table, others = facts["table"], f"and {facts['others']} random others."
        cut = format_shown_count(table, facts["items"], f"items are listed: those most in need of review, {others}")
        yield TableBlock.from_rows(
            "items",
            "Items" if cut else "All items",
            f"Search, or click a column title to sort.{cut}",
            ITEM_TABLE_COLUMNS,
            table,
            details=[_make_item_details(one) for one in table],
        )


def compute_review_priority(found: Explanation) -> FloatArray:
    """Return the (I,) review priority of the items: high if the label may be wrong or no single label is right.

    Surprising labels raise the priority: they show that the model fits badly, so its posterior is overconfident.
    """
    surprise = np.nan_to_num(found.surprise, posinf=8.0, neginf=0.0)
    disagreement = np.nan_to_num(found.disagreement)
    worth = (1 - found.confidence) + SURPRISE_WEIGHT * np.clip(surprise, 0, 8) + 1e-3 * disagreement
    worth[(disagreement == 0) & (found.confidence >= MIN_CONFIDENCE)] = 0
    return np.asarray(worth)


def _collect_item_facts(study: Study, found: Explanation, item: int, max_length: int, max_labels: int) -> Facts:
    """Return the facts of one item as plain values."""
    table = study.table
    rows = np.arange(table.item_ptr[item], table.item_ptr[item + 1])
    rows = rows[np.argsort(study.annotator_rank[table.annotator[rows]], kind="stable")]
    result = study.describe_item_with_votes(item, max_length) | {
        "label": study.classes[study.label[item]],
        "kind": DISAGREEMENT_KINDS[found.kind[item]],
        **extract_entry(item, confidence=study.confidence, two_answers=found.ambiguity),
        **extract_entry(item, disagreement=found.disagreement, surprise=found.surprise),
        "posterior": list_largest_shares(study.fitted.posterior_[item], study.classes),
        "voices": [
            [
                study.annotator_names[table.annotator[row]],
                study.classes[table.label[row]],
                to_plain(study.fitted.reliability_[table.annotator[row]], 3),
                to_plain(found.p_mistake[row], 3),
            ]
            for row in rows[:max_labels]
        ],
    }
    if about := study.other_columns(item):
        result["about"] = about
    if hasattr(study.fitted, "difficulty_"):
        result |= extract_entry(item, difficulty=study.fitted.difficulty_)
    if (group := int(found.group_index[item])) >= 0:
        result["group"] = found.groups[group].column
    return result


def _explain_review(one: Facts) -> str:
    if not one["votes"]:
        return "It has no label."
    (top, share, _), *others = one["votes"]
    kind: type[OnlyLabel] = MajorityConfirmed
    if one["labels"] == 1:
        kind = OnlyLabel
    elif others and others[0][1] == share:
        kind = NoLeadingClass
    elif one["label"] in [name for name, *_ in others]:
        kind = MinorityTrusted
    elif one["label"] != top:
        kind = VotesDoubted
    found = kind(top=top, share=Share(share), label=one["label"], confidence=Share(one["confidence"]))
    reasons = {
        "group perspective": f" Groups by {one.get('group', 'metadata')} label it differently.",
        "ambiguous": " Reliable annotators contradict each other.",
        "likely error": " One of the labels is probably a mistake.",
    }
    return found.render(REPORT_FACE) + reasons.get(one["kind"], "")


def _make_item_details(one: Facts) -> list[Facts]:
    voices = [
        [name, label, *("" if share is None else format_percent(share) for share in (right, wrong))]
        for name, label, right, wrong in one["voices"]
    ]
    more = one["labels"] - len(voices)
    title = "Labels of annotators" + (f" ({more} more)" if more > 0 else "")
    beliefs = [[name, format_percent(share, 1)] for name, share, _ in one["posterior"]]
    two = one["two_answers"] or 0
    note = (
        f"If the item has one true class; the probability that two fit is {format_percent(two)}."
        if two >= MIN_AMBIGUITY
        else ""
    )
    return [
        make_detail_list(title, ["annotator", "label", "reliability", "probably a mistake"], voices),
        make_detail_list("Inferred probabilities", ["class", "probability"], beliefs, note),
    ]


def _make_group_card(group: Facts) -> GroupsDifferCard:
    """Return the finding that groups label differently, with their reliability if that differs too."""
    facts: Facts = {"column": group["column"], "effect": Share(group["effect"]), "p_value": group["p_value"]}
    rated = sorted((r, one["group"]) for one in group["groups"] if (r := one["reliability"]) is not None)
    if rated and rated[-1][0] - rated[0][0] >= MIN_RELIABILITY_GAP:
        (low, worst), (high, best) = rated[0], rated[-1]
        return GroupsDifferInReliabilityCard(**facts, worst=worst, low=Share(low), best=best, high=Share(high))
    return GroupsDifferCard(**facts)


def _make_disagreement_chart(facts: Facts) -> ChartBlock:
    there = [kind for kind in REASON_COLORS if any(dot["kind"] == kind for dot in facts["map"])]
    x = charts.make_quantity_axis("disagreement", "disagreement", "%")
    y = charts.make_quantity_axis("confidence", "confidence", "%", scale={"zero": False})
    color = charts.make_color_encoding("kind", there, [REASON_COLORS[kind] for kind in there])
    in_percent = [(f"{field}:Q", field, charts.SHARE_FORMAT) for field in ("disagreement", "confidence")]
    tips = ["item:N", ("kind:N", "reason"), *in_percent]
    chart = charts.draw_points(facts["map"], 28, 0.6, tips, x=x, y=y, color=color)
    some = (
        f" {MAX_DRAWN_ITEMS:,} random items of {facts['items']:,} are shown."
        if facts["items"] > MAX_DRAWN_ITEMS
        else ""
    )
    return ChartBlock(
        charts.to_spec(chart, 280, opens=("items", "item")),
        "Disagreement and confidence of the items",
        "Horizontal axis: share of the pairs of labels that differ; vertical axis: confidence of the inferred label. "
        "Items at the bottom right are hard; at the top right, annotators disagree but the more reliable ones decide."
        f"{some} Click a dot to see the item.",
        f"Scatter of disagreement against confidence of {len(facts['map']):,} items.",
    )


def _make_group_chart(facts: Facts) -> ChartBlock:
    words = ("more than by chance", "may be chance")
    rows = [
        {"column": one["column"], "effect": max(one["effect"] or 0.0, 0.0), "p": one["p_value"]}
        | {"word": words[not one["significant"]]}
        for one in facts["groups"]
    ]
    x = charts.make_quantity_axis("effect", "share of the disagreement", charts.EXACT_SHARE_FORMAT, ticks=4)
    tips = [("column:N", "groups by"), ("effect:Q", "share", ".2%"), ("p:Q", "p-value", ".3g")]
    sure = ", ".join(one["column"] for one in facts["groups"] if one["significant"])
    shares_ = ", ".join(f"{row['column']} {format_percent(row['effect'], 1)} (p {row['p']:.2g})" for row in rows)
    return ChartBlock(
        charts.make_bar_chart(rows, "column", x, tips, color=charts.make_color_encoding("word", words, columns=1)),
        "Do groups label differently?",
        "Horizontal axis: share of the disagreement that lies between groups. "
        + (f"Groups by {sure} differ more than by chance." if sure else "No difference exceeds chance."),
        f"Share of disagreement between groups: {shares_}.",
    )
