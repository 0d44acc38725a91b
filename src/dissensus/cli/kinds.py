"""Print the results of `dissensus aggregate` on numbers, pairs, sets and objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.cli import show
from dissensus.models.base import Aggregator

ROWS_SHOWN = 10  # items or ranked alternatives
ANNOTATORS_SHOWN = 5  # the best, and the worst


def _print_numbers(about: dict[str, Any], model: Aggregator, preview: bool) -> None:
    low, middle, high = (f"{value:,.4g}" for value in about["values"].values())
    show.text(
        f"Values lie between {low} and {high}, median {middle}; their 95 % intervals are "
        f"{about['interval_width']:,.3g} wide on average."
    )
    if (gold := about.get("gold")) is not None and gold["mean_absolute_error"] is not None:
        show.text(
            f"Mean absolute error {gold['mean_absolute_error']:.4g} ({gold['mean_absolute_error_low']:.4g} to "
            f"{gold['mean_absolute_error_high']:.4g}) {scored_on(gold, 'value')}; "
            f"the intervals hold {show.percent(gold['covered'])} of them."
        )
    if preview:
        first = model.to_frame("items", "pyarrow").slice(0, ROWS_SHOWN).to_pylist()
        rows = [
            (show.name(row["item"]), f"{row['value']:,.4g}", f"{row['low']:,.4g} to {row['high']:,.4g}")
            for row in first
        ]
        show.table("First items", ("item", "value", "95 % interval"), rows, numbers=("value", "95 % interval"))


def _print_answers(about: dict[str, Any], model: Aggregator, preview: bool) -> None:
    if "options" in about:
        show.bars(("option", "items"), about["options"], about["items"])
    what = "set" if "options" in about else "answer"
    show.text(
        f"Exactly this {what} is right with a probability of {show.percent(about['mean_confidence'])}, on average."
    )
    if (gold := about.get("gold")) is not None:
        show.text(f"{accuracy(gold, what)}.")
    if preview:
        print_first(model.to_frame("items", "pyarrow"), ROWS_SHOWN, what)


def accuracy(gold: dict[str, Any], what: str) -> str:
    """Return the accuracy of answers as text."""
    found = f"Accuracy {gold['accuracy']:.4f} ({gold['accuracy_low']:.4f} to {gold['accuracy_high']:.4f})"
    return f"{found} {scored_on(gold, what)}"


def scored_on(gold: dict[str, Any], what: str) -> str:
    """Return the items of a score as text: those with a gold label that was not used for training."""
    excluded, n = "", gold.get("left_out", 0)
    if n:
        excluded = f" ({n:,} more {'was' if n == 1 else 'were'} used for training)"
    return f"on the {show.format_count(gold['items'], 'item')} with a known {what}{excluded}"


def print_first(frame: Any, n: int, what: str) -> None:
    """Print the first answers with their confidence."""
    first = frame.slice(0, n).select(["item", "label", "confidence"]).to_pylist()
    rows = [(show.name(row["item"]), show.name(row["label"]), show.format_number(row["confidence"])) for row in first]
    show.table("First items", ("item", what, "confidence"), rows, numbers=("confidence",))


def _print_ranking(about: dict[str, Any], model: Aggregator, preview: bool) -> None:
    found = about["ranking"]
    rows: list[tuple[str, ...]] = [
        (
            str(row["rank"]), show.name(row["thing"]), f"{row['score']:+.2f}",
            f"{row['low']:+.2f} to {row['high']:+.2f}", f"{row['rank_low']} to {row['rank_high']}",
            f"{row['comparisons']:,.0f}",
        )
        for row in found
    ]  # fmt: skip
    columns = ("rank", "thing", "score", "95 % interval", "95 % of ranks", "comparisons")
    show.table("Ranking", columns, show.ends(rows, ROWS_SHOWN), numbers=("rank", *columns[2:]))
    best, rest = found[0], [row for row in found[1:] if row["rank_low"] == 1]
    if rest:
        show.text(
            f"{show.name(best['thing'])} has the highest score; {show.format_count(len(rest), 'other')} may be as good "
            "by these comparisons."
        )
    else:
        show.text(f"{show.name(best['thing'])} is best by the 95 % intervals of ranks.")
    if abs(about["favours_left"]) > 0.01:
        side = "left" if about["favours_left"] > 0 else "right"
        odds = float(np.exp(abs(about["favours_left"])))
        show.text(f"Between equally good alternatives, the {side} one is preferred at odds of {odds:.2f} to 1.")


PRINTERS = {
    "numbers": _print_numbers, "pairs": _print_ranking, "sets": _print_answers, "objects": _print_answers,
}  # fmt: skip
"""Label type → the function that prints its summary."""


def print_annotators(model: Aggregator) -> None:
    """Print the most and the least reliable annotators, with what else the model estimates of them."""
    if model.annotators_.size < 2:
        return
    frame = model.to_frame("annotators", "pyarrow").to_pylist()
    frame.sort(key=lambda row: -row["reliability"])
    own = [name for name in frame[0] if name not in ("annotator", "annotations", "reliability")]
    rows = [
        (
            show.name(row["annotator"]), f"{row['annotations']:,}", show.format_number(row["reliability"]),
            *(f"{row[name]:,.3g}" for name in own),
        )
        for row in frame
    ]  # fmt: skip
    columns = ("annotator", "labels", "reliability", *(name.replace("_", " ") for name in own))
    show.table("Most and least reliable", columns, show.ends(rows, ANNOTATORS_SHOWN), numbers=columns[1:])
