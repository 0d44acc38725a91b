"""`dissensus describe`: what is in a table, and what looks doubtful."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dissensus.cli import options, show
from dissensus.cli.options import Source
from dissensus.table.names import unsettled_spellings


def describe(*, source: Source) -> None:
    """Columns are found by their usual names; the options below name others.

    Example: dissensus describe labels.csv --item task --abstain "can't say"
    """
    source.print_each(options.answer_each(source.read(), lambda table, _: table.describe()), _show)


DISTINCT = {"numbers": "different numbers", "sets": "different sets", "objects": "different labels"}


def _show(title: str, about: dict[str, Any]) -> None:
    kind = "probabilistic" if about["probabilistic"] else "weighted" if about["weighted"] else ""
    counts = [
        ("annotations", f"{about['annotations']:,}", kind),
        ("items", f"{about['items']:,}", _each(about["annotations_per_item"], "annotation")),
        ("annotators", f"{about['annotators']:,}", _each(about["annotations_per_annotator"], "label")),
    ]
    if "things" in about:
        counts.append(("things", f"{about['things']:,}", _each(about["comparisons_per_thing"], "comparison")))
    if about["kind"] in DISTINCT:
        counts.append((DISTINCT[about["kind"]], f"{about['distinct_values']:,}", ""))
    else:
        what = {"graded": "grades", "pairs": "outcomes"}.get(about["kind"], "classes")
        counts.append((what, f"{about['classes']:,}", ""))
    show.table(show.clean(title), ("what", "count", "each"), counts, numbers=("count",), header=False)
    if about["kind"] == "numbers" and about["values"] is not None:
        low, quarter, middle, three, high = (f"{value:,.6g}" for value in about["values"].values())
        show.text(f"Numbers: {low} to {high}, half of them between {quarter} and {three}, median {middle}.")
        if about["sd_within_items"] is not None:
            show.text(
                f"Spread: standard deviation {about['sd']:,.4g} over all, {about['sd_within_items']:,.4g} among the "
                "labels of one item."
            )
    elif about["kind"] == "sets":
        show.bars(("option", "ticked"), about["option_shares"], 1, shares=True)
        show.text(f"Ticks: {about['ticks_per_annotation']:.2f} of {about['options']:,} options at a time, on average.")
    elif about["kind"] not in ("objects", "numbers"):
        show.bars(("class", "share"), about["class_shares"], 1, shares=True)
        if (agreement := about["pairwise_agreement"]) is not None:
            show.text(f"Agreement: two annotators of one item agree {show.percent(agreement)} of the time.")
        if about["unanimous_items"] is not None and about["annotators_per_item"]["max"] > 1:
            show.text(f"Unanimous: {show.percent(about['unanimous_items'])} of the items with two annotators or more.")
    doubts = list(_doubts(about))
    show.text("Doubtful:" if doubts else "Nothing looks doubtful.")
    for doubt in doubts:
        show.text(f"  • {doubt}")
    show.text()


MIN_SCORES = 5  # different numbers that are rather scores than names of classes
AT_CHANCE = 0.02  # agreement above chance below which nothing can be learnt
MIN_ITEMS = 30  # with two annotators, below which agreement is not held against chance
RARE, COMMON = 2, 20  # labels of a class that may be mistyped, where half of the classes have so many or more
MAX_RARE_SHOWN = 5
NO_ANSWER = {
    "", "-", "?", "can't say", "can't tell", "cannot tell", "don't know", "n/a", "na", "nan", "nil", "none", "not sure",
    "null", "skip", "unclear", "unknown", "unsure",
}  # fmt: skip
"""Class names, in small letters, that may be no answer at all."""


MEND = "; no method can mend that unless a few annotators cause it (`dissensus diagnose`)"


def _doubts(about: dict[str, Any]) -> Iterator[str]:
    """What to look at before trusting a result, in plain words."""
    import numpy as np

    from dissensus.table.kinds import numbers_of

    shares = about.get("class_shares", {})  # numbers have none
    chance = sum(share**2 for share in shares.values())
    agreement = about.get("pairwise_agreement")
    checked, spelt = about["items_with_two_annotators"], unsettled_spellings(shares)
    if agreement is not None and about["classes"] > 1 and agreement < chance + AT_CHANCE and checked >= MIN_ITEMS:
        yield f"Labels agree about as often as by chance, or less ({show.percent(chance)}){'' if spelt else MEND}."
    if about["kind"] == "numbers" and checked >= MIN_ITEMS and about["sd_within_items"] >= about["sd"]:
        yield f"Labels of one item differ as much as those of different items{MEND}."
    if few := about["annotators_with_fewer_than_5"]:
        all_ = show.count(about["annotators"], "annotator")
        yield f"{few:,} of {all_} gave fewer than 5 labels; little is learnt about each."
    if silent := about["annotators_without_annotation"]:
        yield f"{silent:,} of {show.count(about['annotators'], 'annotator')} gave no label that counts."
    if bare := about["items_without_annotation"]:
        gets = "what all items have in common" if about["kind"] == "numbers" else "the shares of the classes"
        yield f"{bare:,} of {about['items']:,} items have no annotation; each will get {gets}."
    if again := about["repeated_pairs"]:
        repeat = "1 annotation repeats" if again == 1 else f"{again:,} annotations repeat"
        yield f"{repeat} an item and annotator: they share one vote in `consensus`, and count each elsewhere."
    if spelt:
        yield "Some classes differ by capitals or spaces only; --normalize merges them."
    if missing := [label for label in shares if " ".join(label.casefold().split()) in NO_ANSWER]:
        yield f"Classes may be missing answers: {', '.join(map(show.name, missing))}; --abstain leaves a label out."
    if about["kind"] == "classes" and not about["weighted"] and not about["probabilistic"]:
        given = {label: round(share * about["annotations"]) for label, share in shares.items()}
        rare = [label for label, n in given.items() if 0 < n <= RARE and np.median([*given.values()]) >= COMMON]
        if rare:
            named = ", ".join(f"{show.name(label)} ({given[label]})" for label in rare[:MAX_RARE_SHOWN])
            more = ", …" * (len(rare) > MAX_RARE_SHOWN)
            yield f"Classes with so few labels may be typing errors: {named}{more}; --map OLD=NEW renames."
    names = [label for label in shares if label not in missing]
    if about["kind"] == "classes" and len(names) >= MIN_SCORES and numbers_of(np.array(names, object)) is not None:
        yield "Classes are numbers; --kind numbers takes them for scores, --kind graded for grades in this order."
    if about.get("classes", about.get("distinct_values", 0)) == 1:
        yield "There is one class only; there is nothing to decide."
    if about["annotators"] < 2 and about["annotators_per_item"]["max"] < 2:  # more are votes without ids
        yield "There is one annotator only; nothing can tell whether they are right."
    elif about["annotators_per_item"]["max"] == 1:
        yield "No item has labels by two annotators; nobody's labels can be checked against another's."
    elif about["annotators_per_item"]["median"] == 1:
        yield "Most items have labels by one annotator only, which nobody has checked."


def _each(counts: dict[str, float], noun: str) -> str:
    low, high = counts["min"], counts["max"]
    many = f"{low:,} to {high:,} (on average {counts['mean']:,.1f}) {noun}s"
    return f"{show.count(int(low), noun) if low == high else many} each"
