"""The question `describe`: what a table contains, and what looks doubtful."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dissensus.common.formatting import Count, Share, format_count
from dissensus.messages import Message
from dissensus.questions import findings as found
from dissensus.questions.base import Finding, MessageList, Question, ShareBars, Table, questions

DISTINCT_COUNT_TITLES = {"numbers": "different numbers", "sets": "different sets", "objects": "different labels"}
RANGE_FIELDS = {"min": "low", "max": "high"}  # maps names of facts to names of message fields
MIN_NUMERIC_CLASSES = 5  # minimum number of classes for numeric classes to be probable scores
MAX_CHANCE_EXCESS = 0.02  # maximum excess over chance agreement for labels that look random
MIN_ITEMS_FOR_CHANCE = 30  # minimum number of items with two annotators for comparing agreement with chance
MAX_RARE_LABELS, MIN_COMMON_LABELS = (
    2,
    20,
)  # a class with few labels may be a typing error if half of the classes are common
MISSING_ANSWER_NAMES = {
    "", "-", "?", "can't say", "can't tell", "cannot tell", "don't know", "n/a", "na", "nan", "nil", "none", "not sure",
    "null", "skip", "unclear", "unknown", "unsure",
}  # fmt: skip
"""Names of classes in lower case that may stand for a missing answer."""


@questions.register("describe", summary="What is in the table, and what looks doubtful?")
class Describe(Question):
    """Columns are found by their usual names; other names can be given with the options below.

    Example: dissensus describe labels.csv --item task --abstain "can't say"
    """

    kinds = ("classes", "graded", "numbers", "pairs", "sets", "objects", "spans")

    def compute(self, table: Any) -> dict[str, Any]:
        return dict(table.describe())

    def to_json(self, facts: dict[str, Any]) -> dict[str, Any]:
        return facts

    def findings(self, facts: dict[str, Any]) -> Iterator[Finding]:
        kind = facts["kind"]
        yield _tabulate_counts(facts)
        if kind == "numbers" and facts["values"] is not None:
            yield found.NumberRange(**{RANGE_FIELDS.get(name, name): value for name, value in facts["values"].items()})
            if facts["sd_within_items"] is not None:
                yield found.NumberSpread(overall=facts["sd"], within_items=facts["sd_within_items"])
        elif kind == "sets":
            yield ShareBars(("option", "selected"), facts["option_shares"])
            yield found.SelectedOptions(mean=facts["ticks_per_annotation"], n_options=facts["options"])
        elif kind not in ("objects", "numbers"):
            yield ShareBars(("class", "share"), facts["class_shares"])
            if (agreement := facts["pairwise_agreement"]) is not None:
                yield found.PairwiseAgreement(share=Share(agreement))
            if facts["unanimous_items"] is not None and facts["annotators_per_item"]["max"] > 1:
                yield found.UnanimousItems(share=Share(facts["unanimous_items"]))
        doubts = list(_find_doubts(facts))
        yield MessageList("Please check:", doubts) if doubts else found.NoDoubts()


def _tabulate_counts(facts: dict[str, Any]) -> Table:
    weights = "probabilistic" if facts["probabilistic"] else "weighted" if facts["weighted"] else ""
    rows = [
        ("annotations", f"{facts['annotations']:,}", weights),
        ("items", f"{facts['items']:,}", _describe_range(facts["annotations_per_item"], "annotation")),
        ("annotators", f"{facts['annotators']:,}", _describe_range(facts["annotations_per_annotator"], "label")),
    ]
    if "things" in facts:
        rows.append(("things", f"{facts['things']:,}", _describe_range(facts["comparisons_per_thing"], "comparison")))
    classes = {"graded": "grades", "pairs": "outcomes"}.get(facts["kind"], "classes")
    name, key = (
        (DISTINCT_COUNT_TITLES[facts["kind"]], "distinct_values")
        if facts["kind"] in DISTINCT_COUNT_TITLES
        else (classes, "classes")
    )
    rows.append((name, f"{facts[key]:,}", ""))
    return Table(("what", "count", "each"), rows, numbers=("count",), header=False)


def _describe_range(counts: dict[str, float], noun: str) -> str:
    low, high = counts["min"], counts["max"]
    several = f"{low:,} to {high:,} (on average {counts['mean']:,.1f}) {noun}s"
    return f"{format_count(int(low), noun) if low == high else several} each"


def _find_doubts(facts: dict[str, Any]) -> Iterator[Message]:
    """Yield messages about what to check before using a result."""
    import numpy as np

    from dissensus.table.kinds import parse_numbers
    from dissensus.table.names import find_spelling_variants

    shares = facts.get("class_shares", {})  # tables of numbers have none
    chance = sum(share**2 for share in shares.values())
    agreement, annotators = facts.get("pairwise_agreement"), Count(facts["annotators"])
    enough, spellings = facts["items_with_two_annotators"] >= MIN_ITEMS_FOR_CHANCE, bool(find_spelling_variants(shares))
    if agreement is not None and facts["classes"] > 1 and agreement < chance + MAX_CHANCE_EXCESS and enough:
        yield found.AgreementAtChance(chance=Share(chance), several_spellings=spellings)
    if facts["kind"] == "numbers" and enough and facts["sd_within_items"] >= facts["sd"]:
        yield found.DisagreementAtChance()
    if n := facts["annotators_with_fewer_than_5"]:
        yield found.AnnotatorsWithFewLabels(n=n, annotators=annotators)
    if n := facts["annotators_without_annotation"]:
        yield found.AnnotatorsWithoutLabels(n=n, annotators=annotators)
    if n := facts["items_without_annotation"]:
        yield found.ItemsWithoutLabel(n=n, items=facts["items"], numbers=facts["kind"] == "numbers")
    if n := facts["repeated_pairs"]:
        yield found.RepeatedLabels(n=Count(n))
    if spellings:
        yield found.SeveralSpellings(effect="")
    missing = tuple(label for label in shares if " ".join(label.casefold().split()) in MISSING_ANSWER_NAMES)
    if missing:
        yield found.MissingAnswers(classes=missing)
    if facts["kind"] == "classes" and not facts["weighted"] and not facts["probabilistic"]:
        counts = {label: round(share * facts["annotations"]) for label, share in shares.items()}
        common = np.median([*counts.values()]) >= MIN_COMMON_LABELS
        if rare := {label: n for label, n in counts.items() if 0 < n <= MAX_RARE_LABELS and common}:
            yield found.RareClasses(labels=rare)
    names = [label for label in shares if label not in missing]
    if (
        facts["kind"] == "classes"
        and len(names) >= MIN_NUMERIC_CLASSES
        and parse_numbers(np.array(names, object)) is not None
    ):
        yield found.ClassesAreNumbers()
    if facts.get("classes", facts.get("distinct_values", 0)) == 1:
        yield found.OneClass()
    if (
        annotators < 2 and facts["annotators_per_item"]["max"] < 2
    ):  # items with more annotators come from counts of votes
        yield found.OneAnnotator()
    elif facts["annotators_per_item"]["max"] == 1:
        yield found.NoItemLabelledTwice()
    elif facts["annotators_per_item"]["median"] == 1:
        yield found.MostItemsLabelledOnce()
