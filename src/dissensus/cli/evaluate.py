"""`dissensus evaluate`: score the predictions of any model, or compare the methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli import folder, options, show
from dissensus.cli.errors import print_to_stderr
from dissensus.cli.options import option
from dissensus.cli.question import answer_question, new_question, question_option
from dissensus.cli.source import Gold, Source
from dissensus.exceptions import MissingColumn
from dissensus.questions.definitions.agreement import Scale
from dissensus.questions.definitions.compare import Compare

if TYPE_CHECKING:
    from dissensus.common.types import IntArray
    from dissensus.evaluation import Estimate
    from dissensus.evaluation.error_cells import ErrorCells
    from dissensus.questions.evaluate import Evaluation, Score
    from dissensus.questions.predictions import Predictions
    from dissensus.table.annotations import Annotations


RANKING_PANEL = "Without PREDICTIONS"  # panel of the help


def evaluate(
    *,
    source: Source,
    predictions: list[Path] | None = typer.Argument(
        None,
        metavar="[PREDICTIONS]…",
        show_default=False,
        help="Files with item and label, item and p_CLASS …, or either with annotator too.",
    ),
    output: Path | None = option(
        None, "Write the scores as .csv, .parquet or .jsonl.", "--output", "-o", metavar="OUT"
    ),
    predicted: str | None = option(None, "PREDICTIONS' column of labels (prediction, label, …).", metavar="COLUMN"),
    scale: Scale = option("nominal", "Type of the classes: names, grades in an order, or numbers."),
    cells: bool = option(False, "For two PREDICTIONS: how many items only one of them gets right.", "--cells"),
    methods: list[str] | None = question_option(Compare, "methods", panel=RANKING_PANEL),
    share: float = question_option(Compare, "share", panel=RANKING_PANEL),
    splits: int = question_option(Compare, "splits", panel=RANKING_PANEL),
    limit: int = question_option(Compare, "limit", panel=RANKING_PANEL),
    resamples: int = option(1000, "Resamples of the items, for the intervals.", min=0),
    seed: int | None = options.SEED,
    gold: Gold,
) -> None:
    """Score predictions against labels, or rank the methods on held-out labels.

    FILE has annotations, or gold if it has no annotators. Hard scores and calibration compare with gold, without
    gold with the most frequent label and the votes; soft scores with the votes; perspectivist ones with the labels of
    each annotator. All PREDICTIONS are scored on the items that all of them predict. The intervals are by bootstrap
    over items; those of differences to the first PREDICTIONS are paired.

    Without PREDICTIONS, part of the annotations is hidden, every method is fitted to the rest and predicts the hidden
    ones. The score is the mean log probability of the hidden labels; for numbers and texts it is the mean error. A
    method that is statistically tied with the best, by a paired bootstrap over items, is marked. --gold adds accuracy.

    Example: dissensus evaluate test.csv predicted.csv

    Example: dissensus evaluate labels.csv model.csv baseline.csv --gold gold.csv -o scores.csv

    Example: dissensus evaluate labels.csv --methods majority-vote,dawid-skene,glad --gold gold.csv
    """
    if not predictions:
        options.refuse_without("PREDICTIONS", "predicted", "scale", "cells")
        ranking = {"methods": methods, "share": share, "splits": splits, "limit": limit}
        question = new_question(Compare, **ranking, resamples=resamples, seed=seed)
        answer_question(question, source, gold=gold, output=output)
        return
    options.refuse_together("PREDICTIONS", "methods", "share", "splits", "limit")
    folder.check_output_file(output, "scores")
    table, known = read_labels(source, gold)
    from dissensus.common.frames import columns_to_frame
    from dissensus.questions.compare_errors import compare_errors
    from dissensus.questions.evaluate import evaluate
    from dissensus.questions.exceptions import TwoPredictionsNeeded

    if scale != "nominal" and source.classes is None:
        with suppress(ValueError):  # classes that are numbers have an order
            table = table.with_classes(table.classes[table.classes.astype(float).argsort(kind="stable")])
    if cells and len(predictions) != 2:
        raise TwoPredictionsNeeded(n=len(predictions))
    read = _read_predictions(predictions, table, predicted)
    with show.show_progress(f"resampling {source.file}", resamples) as on_step:
        found = evaluate(
            read, table, gold=known, scale=scale, resamples=resamples, seed=seed or 0, on_step=on_step
        )  # fmt: skip
    errors = None
    if cells:
        first, second = read.values()
        errors = compare_errors(first, second, table, known)
    for note in found.notes:
        print_to_stderr(f"warning: {note}")
    if output is not None:
        folder.write_file(columns_to_frame(found.rows(), "pyarrow"), output)
    if source.json:
        source.print_json(gold.file_facts() | _make_facts(found, errors, resamples), output=output)
        return
    _print_scores(source.make_title(None), found)
    if errors is not None:
        _print_error_cells(errors, found.predictions)
    if output is not None:
        show.print_line(f"Scores are in {show.escape(output)}")


def _read_predictions(paths: list[Path], table: Annotations, predicted: str | None) -> dict[str, Predictions]:
    """Return the predictions by file name, or by path if two files have the same name."""
    from dissensus.questions.predictions import Predictions

    stems, read = Counter(path.stem for path in paths), {}
    for path in paths:
        with show.show_progress(f"reading {path}"):
            read[show.escape(path if stems[path.stem] > 1 else path.stem)] = Predictions.read(path, table, predicted)
    return read


def _make_facts(found: Evaluation, errors: ErrorCells | None, resamples: int) -> dict[str, Any]:
    """Return the scores as plain values."""
    facts = {"resamples": resamples, "predictions": found.predictions, "reference": found.reference}
    facts |= {"scores": found.rows(), "notes": found.notes}
    return facts if errors is None else facts | {"cells": errors.to_dict()["cells"]}


def read_labels(source: Source, gold: Gold) -> tuple[Annotations, IntArray | None]:
    """Return the annotations and the gold labels; a FILE without annotators holds gold, and the table has no rows."""
    try:
        table = source.read_single_table()
        return table, gold.read_scoring(table)
    except MissingColumn:
        from dissensus.table.find_columns import guess_column
        from dissensus.table.io import read_frame

        there = read_frame(source.file).column_names
        if source.annotator is not None or gold.gold is not None or guess_column("annotator", there) is not None:
            raise
    from dissensus.table.annotations import Annotations
    from dissensus.table.io import read_gold_columns

    item, label = read_gold_columns(source.file, source.item, source.label)
    table = Annotations.from_arrays(item, ["gold"] * len(item), label, source.class_names(), abstain=[None])
    return table.select(rows=[]), table.gold_codes(item, label)


def _print_scores(title: str, found: Evaluation) -> None:
    several = len(found.predictions) > 1
    rows: list[tuple[str, ...]] = []
    kind = ""
    for one in found:
        if one.kind != kind:
            rows.append((f"{one.kind}, {show.format_count(one.items, 'item')}",))
        kind = one.kind
        sign = "↑" if one.higher_is_better else "↓"
        cells = (_format_score(one.values.get(name), several) for name in found.predictions)
        rows.append((f"  {one.name} {sign}", *cells))
        if several and one.differences:
            rows.append(("", "", *(_format_difference(one, name) for name in found.predictions[1:])))
    columns = ["", *(show.shorten(name) for name in found.predictions)] if several else ["", "score"]
    show.print_table(show.escape(title), columns, rows, numbers=columns[1:], unbroken=columns[:1])
    more = "; below, the difference to the first, with ▲ where it is better and ▼ where it is worse" if several else ""
    show.print_text(f"Hard scores compare with {found.reference}. Intervals are of 95 %, over items{more}.")


def _print_error_cells(errors: ErrorCells, names: Sequence[str]) -> None:
    first, second = map(show.shorten, names)
    words = (("both", f"only {first}"), (f"only {second}", "neither"))
    rows = []
    for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        kurtosis = float(errors.kurtosis[a, b])
        rows.append(
            (words[a][b], f"{errors.count[a, b]:,}", "–" if kurtosis != kurtosis else show.format_number(kurtosis))
        )
    columns = ("right", "items", "kurtosis")
    show.print_table("Items by which predictions are right", columns, rows, numbers=columns[1:])
    show.print_text("Kurtosis is the mean over the soft labels of the items: high if the votes agree.")


def _format_score(value: Estimate | None, short: bool) -> str:
    if value is None or value.value != value.value:
        return "–"
    if value.value == float("inf"):
        return "∞"
    if short or value.low != value.low:
        return f"{show.format_number(value.value)}{_format_half_width(value)}"
    return f"{show.format_number(value.value)} ({show.format_interval(value.low, value.high)})"


def _format_difference(score: Score, name: str) -> str:
    one = score.differences.get(name)
    mark = {"better": "▲", "worse": "▼", "": " "}[score.verdict(name)]
    return "" if one is None else f"{mark} {one.value:+z.3f}{_format_half_width(one)}"


def _format_half_width(value: Estimate) -> str:
    return "" if value.low != value.low else f" ± {show.format_number((value.high - value.low) / 2)}"
