"""Print the result of `dissensus aggregate`: the answers, the annotators and next steps, in at most 25 lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.cli import show
from dissensus.cli.errors import render_for_command_line
from dissensus.models.answers import AnswerModel
from dissensus.models.confidence import advise_gold_labels
from dissensus.questions.bias_tests import FLAG_WORDS
from dissensus.questions.findings import SpellingFirst

if TYPE_CHECKING:
    from dissensus.cli.results import Result
    from dissensus.cli.source import Source
    from dissensus.models.base import Aggregator

CLASSES_SHOWN = 5
ITEMS_SHOWN = 3
ANNOTATORS_SHOWN = 3  # number of the most reliable annotators, and of the least reliable ones
FLAGGED_SHOWN = 2  # annotators named for each flag
RANKS_SHOWN = 3  # number of the best alternatives, and of the worst ones
QUESTIONS_SHOWN = 5  # questions of one file that are named; the others are counted
MAX_FILE_LENGTH = 30  # characters of a file name; commands with a longer name would not fit on a line
MIN_LABELS = 5  # minimum number of labels of an annotator whose reliability is printed
MIN_CONFIDENCE = 0.7  # items with a lower confidence are counted if their status is not known


def print_results(results: Mapping[str | None, Result], source: Source, *, preview: bool) -> None:
    """Print the result of each question, and with `preview` also its first items."""
    if len(results) == 1:
        ((question, result),) = results.items()
        _print_answer(result, source.make_title(question))
        _print_first(result, preview)
        _print_annotators(result)
        _print_next_steps(result, source, preview)
        return
    for question, result in [*results.items()][:QUESTIONS_SHOWN]:
        _print_answer(result, source.make_title(question))
    if (more := len(results) - QUESTIONS_SHOWN) > 0:
        show.print_text(f"… and {show.format_count(more, 'more question')}; --json prints all of them.")


def _print_answer(result: Result, title: str) -> None:
    """Print the number of labels, the answers, and their confidence."""
    summary, model = result.summary, result.model
    counts = [show.format_count(summary[f"{noun}s"], noun) for noun in ("annotation", "item", "annotator")]
    show.print_text(f"{show.escape(title)}: {counts[0]} of {counts[1]} by {counts[2]}; {_describe_fit(result)}.")
    if isinstance(model, AnswerModel):
        PRINTERS[summary["kind"]](summary)
        if result.status is not None and model.items_.size:
            show.print_text(result.status.sentence())
        return
    show.print_text(f"Labels, with their numbers of items: {_list_counts(summary['labels'])}.")
    if "spans" in summary:
        _print_spans(summary["spans"])
    if result.status is not None:
        show.print_text(result.status.sentence())
    else:
        unsure = summary["items_below_0.7"]
        share = show.format_percent(unsure / max(summary["items"], 1))
        show.print_text(f"{show.format_count(unsure, 'item')} ({share}) below {MIN_CONFIDENCE} confidence.")
    if (effective := model.mean_effective_labels()) is not None:
        show.print_text(str(effective))
    if (gold := summary.get("gold")) is not None and gold["accuracy"] is not None:
        loss = f"{gold['log_loss']:.3f}".replace("inf", "infinite, since a gold class was given probability 0")
        error = f"calibration error {gold['calibration_error']:.3f}, log loss {loss}"
        show.print_text(f"{_describe_accuracy(gold, 'label')}; {error}.")


def _describe_fit(result: Result) -> str:
    summary = result.summary
    seconds = f"in {summary['seconds']:.1f} s"
    if not result.fitted:
        return f"scored with a fitted {summary['method']} {seconds}"
    if "new_annotations" in summary:
        added = show.format_count(summary["new_annotations"], "annotation")
        return f"{summary['method']} updated with {added} {seconds}"
    passes = "1 pass" if summary["passes"] == 1 else f"{summary['passes']:,} passes"
    ending = "converged" if summary["converged"] else "did not converge"
    return f"{summary['method']} {ending} after {passes} {seconds}"


def _list_counts(counts: Mapping[str, int]) -> str:
    """Return the most frequent names, each with its number of items."""
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    if rest := ordered[CLASSES_SHOWN + 1 :]:  # naming one more class takes no more room than the words "1 other"
        rest = ordered[CLASSES_SHOWN:]
        ordered = [*ordered[:CLASSES_SHOWN], (f"{len(rest):,} others", sum(count for _, count in rest))]
    return ", ".join(f"{show.shorten(name)} ({count:,})" for name, count in ordered) or "none"


def _describe_accuracy(gold: Mapping[str, Any], what: str) -> str:
    interval = show.format_interval(gold["accuracy_low"], gold["accuracy_high"], show.format_percent)
    return f"Accuracy {show.format_percent(gold['accuracy'])} ({interval}) {_describe_scored_items(gold, what)}"


def _describe_scored_items(gold: Mapping[str, Any], what: str) -> str:
    """Describe the items that a score is about: those with gold that was not used for training."""
    n = gold.get("left_out", 0)
    excluded = f" ({n:,} more {'was' if n == 1 else 'were'} used for training)" if n else ""
    return f"on the {show.format_count(gold['items'], 'item')} with a gold {what}{excluded}"


def _print_spans(spans: Mapping[str, Any]) -> None:
    named = _list_counts(spans["labels"])
    count = show.format_count(spans["count"], "span")
    text = f"{count}: {named}; about {spans['expected_right']:,.0f} of them are right."
    if (gold := spans.get("gold")) is not None and gold["spans"]:
        text += (
            f" Against {gold['spans']:,} gold spans: F1 {gold['f1']:.4f}, precision {gold['precision']:.4f}, recall "
            f"{gold['recall']:.4f}."
        )
    show.print_text(text)


def _print_numbers(summary: Mapping[str, Any]) -> None:
    low, middle, high = (f"{value:,.4g}" for value in summary["values"].values())
    width = f"{summary['interval_width']:,.3g}"
    show.print_text(f"Values: {low} to {high}, median {middle}; their 95 % intervals are {width} wide on average.")
    if (gold := summary.get("gold")) is not None and gold["mean_absolute_error"] is not None:
        error, low, high = (gold[f"mean_absolute_error{end}"] for end in ("", "_low", "_high"))
        show.print_text(
            f"Mean absolute error {error:.4g} ({low:.4g} to {high:.4g}) {_describe_scored_items(gold, 'value')}; the "
            f"intervals contain {show.format_percent(gold['covered'])} of these values."
        )


def _print_sets_or_objects(summary: Mapping[str, Any]) -> None:
    what = "set" if "options" in summary else "answer"
    if "options" in summary:
        show.print_text(
            f"Options: {_list_counts(summary['options'])} of {show.format_count(summary['items'], 'item')}."
        )
    probability = show.format_percent(summary["mean_confidence"])
    show.print_text(f"The probability that exactly this {what} is right is {probability} on average.")
    if (gold := summary.get("gold")) is not None:
        show.print_text(f"{_describe_accuracy(gold, what)}.")


def _print_ranking(summary: Mapping[str, Any]) -> None:
    ranking = summary["ranking"]
    rows: list[tuple[str, ...]] = [
        (
            str(row["rank"]), show.shorten(row["thing"]), f"{row['score']:+.2f}",
            f"{row['low']:+.2f} to {row['high']:+.2f}", f"{row['rank_low']} to {row['rank_high']}",
            f"{row['comparisons']:,.0f}",
        )
        for row in ranking
    ]  # fmt: skip
    columns = ("rank", "thing", "score", "95 % interval", "95 % of ranks", "comparisons")
    show.print_table(None, columns, show.shorten_rows(rows, RANKS_SHOWN), numbers=("rank", *columns[2:]))
    best, ties = show.shorten(ranking[0]["thing"]), sum(row["rank_low"] == 1 for row in ranking[1:])
    if ties:
        others = show.format_count(ties, "other")
        show.print_text(f"{best} has the highest score; {others} may be as good by these comparisons.")
    else:
        show.print_text(f"{best} is the best alternative: its 95 % interval of ranks contains only rank 1.")
    if abs(summary["favours_left"]) > 0.01:
        side = "left" if summary["favours_left"] > 0 else "right"
        odds = float(np.exp(abs(summary["favours_left"])))
        show.print_text(f"Between equally good alternatives, the {side} one is preferred at odds of {odds:.2f} to 1.")


PRINTERS = {
    "numbers": _print_numbers, "pairs": _print_ranking, "sets": _print_sets_or_objects,
    "objects": _print_sets_or_objects,
}  # fmt: skip
"""Label type → the function that prints the answers."""


def _print_first(result: Result, preview: bool) -> None:
    """Print the first items with their answers in one line."""
    if not preview or result.summary.get("kind") == "pairs":
        return
    model = result.model
    frame = model.to_frame("items", "pyarrow") if isinstance(model, AnswerModel) else next(model.item_frames())
    first = [
        f"{show.shorten(row['item'])}: {row['value']:,.4g}" if "value" in row
        else f"{show.shorten(row['item'])}: {show.shorten(row['label'])} ({show.format_percent(row['confidence'])})"
        for row in frame.slice(0, ITEMS_SHOWN).to_pylist()
    ]  # fmt: skip
    if first:
        how = "" if "value" in frame.column_names else ", with their confidence"
        show.print_text(f"First items{how}: {', '.join(first)}.")


def _print_annotators(result: Result) -> None:
    """Print the most and the least reliable annotators, and the flagged annotators."""
    model = result.model
    if not result.ranked:
        show.print_text("Annotators are not ranked: no item has labels by two of them, so they cannot be compared.")
    elif model.annotators_.size > 1:
        _print_reliability(model)
    if result.diagnosis is None:
        return
    flagged: dict[str, list[str]] = {}
    for name, flags in zip(result.diagnosis.annotators, result.diagnosis.flags, strict=True):
        for flag in flags:
            flagged.setdefault(FLAG_WORDS[flag], []).append(show.shorten(name))
    if flagged:
        n = sum(map(bool, result.diagnosis.flags))
        groups = []
        for words, names in flagged.items():
            more = f" and {len(names) - FLAGGED_SHOWN:,} more" if len(names) > FLAGGED_SHOWN else ""
            groups.append(f"{', '.join(names[:FLAGGED_SHOWN])}{more} ({words})")
        total = show.format_count(result.diagnosis.active_annotators, "annotator")
        show.print_text(f"{n:,} of {total} {'is' if n == 1 else 'are'} flagged for their labels: {'; '.join(groups)}.")
    if result.diagnosis.unsettled:
        show.print_text(render_for_command_line(SpellingFirst()))


def _print_reliability(model: Aggregator) -> None:
    known = np.flatnonzero(~np.isnan(model.reliability_))
    enough = known[model.n_annotations_[known] >= MIN_LABELS]
    listed = enough if enough.size else known
    ordered = listed[np.argsort(-model.reliability_[listed], kind="stable")]
    answers = isinstance(model, AnswerModel)  # for other label types, reliability is not a share of correct labels
    write = show.format_number if answers else show.format_percent
    names: list[tuple[str, ...]] = [
        (f"{show.shorten(model.annotators_[j])} {write(model.reliability_[j])}",) for j in ordered.tolist()
    ]
    text = ", ".join(row[0] for row in show.shorten_rows(names, ANNOTATORS_SHOWN))
    few = model.annotators_.size - listed.size
    excluded = f" Not listed: {show.format_count(few, 'annotator')} with fewer than {MIN_LABELS} labels." if few else ""
    what = "" if answers else " (share of labels that are probably right)"
    show.print_text(f"Most to least reliable annotators{what}: {text}.{excluded}")


def _print_next_steps(result: Result, source: Source, preview: bool) -> None:
    file = shlex.quote(show.escape(source.named))
    steps = list(_next_steps(result, file if len(file) <= MAX_FILE_LENGTH else "FILE"))
    if steps:
        show.print_text("Next:")
        for step in steps:
            show.print_text(f"  • {step}")


def _next_steps(result: Result, file: str) -> Iterator[str]:
    """Yield suggestions for the next step, one sentence each."""
    if result.diagnosis is not None and (n := sum(map(bool, result.diagnosis.flags))):
        verb = "is" if n == 1 else "are"
        yield f"See why {show.format_count(n, 'annotator')} {verb} flagged: dissensus diagnose {file}"
    if not result.fitted or "new_annotations" in result.summary:
        return
    if not isinstance(result.model, AnswerModel) and (advice := advise_gold_labels(result.model)) is not None:
        yield render_for_command_line(advice)
    if result.status is not None and result.status.counts()["settled"] < result.model.items_.size:
        yield f"Collect the most useful labels: dissensus recommend {file} --budget 100"
    yield f"See all of it on a page: dissensus report {file}"
