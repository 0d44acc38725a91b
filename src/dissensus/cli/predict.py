"""`dissensus predict`: what a trained model says of new items."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli import folder, options, show
from dissensus.cli.errors import say
from dissensus.cli.options import option

if TYPE_CHECKING:
    from dissensus.common.types import FloatArray, Names
    from dissensus.learning import CrowdClassifier

ITEMS_SHOWN = 5


def predict(
    model: Path = typer.Argument(..., metavar="FOLDER", show_default=False, help="What `dissensus train` wrote."),
    items: Path = typer.Argument(
        ..., metavar="ITEMS", show_default=False, help="A file like the one that it was trained with."
    ),
    *,
    output: Path | None = options.OUTPUT_FILE,
    item: str | None = option(None, "ITEMS' column of items.", metavar="COLUMN"),
    annotators: str | None = option(None, "Say what each of these would answer, one row each.", metavar="A,B,…"),
    device: str | None = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """OUT gets item, label, confidence and p_CLASS …; with --annotators item, annotator, label, confidence and p_CLASS
    …: the answer that is expected of each annotator. One whom the model has not met is taken for an average one.

    Example: dissensus predict model items.csv -o predicted.csv

    Example: dissensus predict model items.csv --annotators ann,bob
    """
    folder.check_file(output, "predictions")
    from dissensus.cli.inputs import Inputs

    inputs = Inputs.of_model(model)
    from dissensus.learning import CrowdClassifier

    began = time.perf_counter()
    with show.waiting(f"reading {model}"):
        fitted = CrowdClassifier.load(model, device=device or "auto")
    names, X = inputs.read(items, item)
    people = None if annotators is None else _people(annotators, fitted)
    with show.waiting(f"predicting {items}"):
        proba = fitted.predict_proba(X) if people is None else fitted.predict_annotator_proba(X, people)
    columns = _columns(names, people, proba, fitted)
    folder.write_file(columns, output)
    labels = columns["label"].tolist()
    summary: dict[str, Any] = {
        **show.paths(model=model, items_file=items),
        "items": len(names),
        **({} if people is None else {"annotators": [str(name) for name in people.tolist()]}),
        "labels": {str(name): labels.count(name) for name in fitted.classes_.tolist()},
        "seconds": time.perf_counter() - began,
    }
    if json:
        show.json(summary, output=output)
        return
    show.line(f"{show.clean(items)}: {show.count(len(names), 'item')} in {summary['seconds']:.1f} s")
    show.bars(("label, by the model alone", "predicted"), summary["labels"], len(labels))
    if output is None:
        keys = [key for key in ("item", "annotator", "label", "confidence") if key in columns]
        first = zip(*(columns[key][:ITEMS_SHOWN].tolist() for key in keys), strict=True)
        rows = [(*map(show.name, said), show.number(confidence)) for *said, confidence in first]
        show.table("First predictions", keys, rows, numbers=("confidence",))
    show.written(output, "Predictions are", "FILE to keep the predictions")


def _people(text: str, model: CrowdClassifier) -> Names:
    """The annotators to speak for; a warning names those whom the model has not met."""
    from dissensus.cli.inputs import split_names
    from dissensus.table import names as naming

    new = people = split_names(text, model.annotators_)
    if people.dtype.kind == model.annotators_.dtype.kind:
        new = people[naming.match(people, model.annotators_, "annotators") < 0]
    if new.size:
        named = ", ".join(repr(str(name)) for name in new[:5].tolist())
        say(f"warning: the model has not met {named}; taken for an average annotator.")
    return people


def _columns(names: Names, people: Names | None, proba: FloatArray, model: CrowdClassifier) -> dict[str, Any]:
    import numpy as np

    columns: dict[str, Any] = {"item": names}
    if people is not None:
        columns = {"item": np.repeat(names, people.size), "annotator": np.tile(people, len(names))}
        proba = proba.reshape(-1, model.classes_.size)
    columns |= {"label": model.classes_[proba.argmax(axis=1)], "confidence": proba.max(axis=1)}
    return columns | {f"p_{name}": proba[:, k] for k, name in enumerate(model.classes_)}
