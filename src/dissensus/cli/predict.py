"""`dissensus predict`: label new items with a trained model."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli import exceptions as faults
from dissensus.cli import folder, options, show
from dissensus.cli.options import option

if TYPE_CHECKING:
    from dissensus.common.types import FloatArray, Names
    from dissensus.learning import CrowdClassifier

ITEMS_SHOWN = 5


def predict(
    model: Path = typer.Argument(
        ..., metavar="FOLDER", show_default=False, help="The folder that `dissensus train` wrote."
    ),
    items: Path = typer.Argument(
        ..., metavar="ITEMS", show_default=False, help="A file with the same columns as the training file."
    ),
    *,
    output: Path | None = options.OUTPUT_FILE,
    item: str | None = option(None, "Column of ITEMS with the names of the items.", metavar="COLUMN"),
    annotators: str | None = option(None, "Predict the answers of these annotators, one row each.", metavar="A,B,…"),
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Label new items with a trained model, and print and write the predictions.

    OUT gets item, label, confidence and p_CLASS …; with --annotators item, annotator, label, confidence and p_CLASS
    …: the expected answer of each annotator. An annotator that the model has not seen is treated as average.

    Example: dissensus predict model items.csv -o predicted.csv

    Example: dissensus predict model items.csv --annotators ann,bob
    """
    folder.check_output_file(output, "predictions")
    from dissensus.cli.inputs import Inputs

    inputs = Inputs.read_from_model(model)
    from dissensus.learning import CrowdClassifier

    began = time.perf_counter()
    with show.show_progress(f"reading {model}"):
        fitted = CrowdClassifier.load(model, device=device or "auto")
    names, X = inputs.read(items, item)
    answering = None if annotators is None else _parse_annotators(annotators, fitted)
    with show.show_progress(f"predicting {items}"):
        proba = fitted.predict_proba(X) if answering is None else fitted.predict_annotator_proba(X, answering)
    columns = _make_columns(names, answering, proba, fitted)
    folder.write_file(columns, output)
    labels = columns["label"].tolist()
    summary: dict[str, Any] = {
        **show.format_paths(model=model, items_file=items),
        "items": len(names),
        **({} if answering is None else {"annotators": [str(name) for name in answering.tolist()]}),
        "labels": {str(name): labels.count(name) for name in fitted.classes_.tolist()},
        "seconds": time.perf_counter() - began,
    }
    if json:
        show.print_json(summary, output=output)
        return
    show.print_line(f"{show.escape(items)}: {show.format_count(len(names), 'item')} in {summary['seconds']:.1f} s")
    show.print_bars(("label, by the model alone", "predicted"), summary["labels"], len(labels))
    if output is None:
        keys = [key for key in ("item", "annotator", "label", "confidence") if key in columns]
        first = zip(*(columns[key][:ITEMS_SHOWN].tolist() for key in keys), strict=True)
        rows = [(*map(show.shorten, row), show.format_number(confidence)) for *row, confidence in first]
        show.print_table("First predictions", keys, rows, numbers=("confidence",))
    show.print_written(output, "Predictions are", "FILE to keep the predictions")


def _parse_annotators(text: str, model: CrowdClassifier) -> Names:
    """Return the annotators whose answers are predicted; warn about those that the model was not trained on."""
    from dissensus.cli.inputs import parse_names
    from dissensus.table import names as naming

    new = names = parse_names(text, model.annotators_)
    if names.dtype.kind == model.annotators_.dtype.kind:
        new = names[naming.match_names(names, model.annotators_, "annotators") < 0]
    if new.size:
        warnings.warn(faults.UnseenAnnotators(annotators=tuple(map(str, new[:5].tolist()))), stacklevel=2)
    return names


def _make_columns(names: Names, annotators: Names | None, proba: FloatArray, model: CrowdClassifier) -> dict[str, Any]:
    import numpy as np

    columns: dict[str, Any] = {"item": names}
    if annotators is not None:
        columns = {"item": np.repeat(names, annotators.size), "annotator": np.tile(annotators, len(names))}
        proba = proba.reshape(-1, model.classes_.size)
    columns |= {"label": model.classes_[proba.argmax(axis=1)], "confidence": proba.max(axis=1)}
    return columns | {f"p_{name}": proba[:, k] for k, name in enumerate(model.classes_)}
