"""`dissensus predict`: what a trained model says of new items."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import show
from dissensus.cli.errors import say
from dissensus.cli.folder import check_file
from dissensus.cli.inputs import Inputs

if TYPE_CHECKING:
    from dissensus.common.types import FloatArray, Names
    from dissensus.learning import CrowdClassifier

HEAD = 5  # items that are shown
MOST = 20  # classes that are shown


def predict(
    model: Annotated[Path, typer.Argument(metavar="FOLDER", show_default=False, help="What `dissensus train` wrote.")],
    items: Annotated[
        Path, typer.Argument(metavar="ITEMS", show_default=False, help="A file like the one that it was trained with.")
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a .csv, .parquet or .jsonl file; left out, see --json."
        ),
    ] = None,
    item: Annotated[str | None, typer.Option("--item", metavar="COLUMN", help="ITEMS' column of items.")] = None,
    annotators: Annotated[
        str | None,
        typer.Option("--annotators", metavar="A,B,…", help="Say what each of these would answer, one row each."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print a summary as one JSON object instead.")] = False,
) -> None:
    """Predict the labels of items with a trained model; which columns to take is remembered from training.

    FILE gets item, label, confidence and p_CLASS …; with --annotators item, annotator, label, confidence and p_CLASS …:
    the answer that is expected of each annotator. One whom the model has not met is taken for an average one.

    Example: dissensus predict model items.csv -o predicted.csv

    Example: dissensus predict model items.csv --annotators ann,bob
    """
    if output is not None:
        check_file(output, "predictions", [items])
    inputs = Inputs.of(model)
    from dissensus.learning import CrowdClassifier

    began = time.perf_counter()
    with show.waiting(f"reading {model}"):
        fitted = CrowdClassifier.load(model, device=device)
    names, X = inputs.read(items, item)
    people = None if annotators is None else _people(annotators, fitted)
    with show.waiting(f"predicting {items}"):
        proba = fitted.predict_proba(X) if people is None else fitted.predict_annotator_proba(X, people)
    columns = _columns(names, people, proba, fitted)
    if output is not None:
        from dissensus.table.io import write_frame

        with show.waiting(f"writing {output}"):
            write_frame(columns, output)
    label = columns["label"].tolist()
    counts = {str(name): label.count(name) for name in fitted.classes_.tolist()}
    summary: dict[str, Any] = {
        "model": show.path(model),
        "items_file": show.path(items),
        "items": len(names),
        **({} if people is None else {"annotators": [str(name) for name in people.tolist()]}),
        "labels": counts,
        "seconds": time.perf_counter() - began,
    }
    if json:
        show.json(summary | ({} if output is None else {"file": show.path(output)}))
        return
    _show(summary, columns, preview=output is None)
    out = show.console()
    if output is None:
        out.print("Nothing was written; add -o FILE to keep the predictions.")
    else:
        out.print(f"Predictions are in {show.clean(output)}", soft_wrap=True)


def _people(text: str, model: CrowdClassifier) -> Names:
    import numpy as np

    from dissensus.cli.inputs import like
    from dissensus.table import names as naming

    people = like(np.array([part for name in text.split(",") if (part := name.strip())], object), model.annotators_)
    strange = (
        people.dtype.kind != model.annotators_.dtype.kind or naming.match(people, model.annotators_, "annotators") < 0
    )
    new = [str(name) for name in people[np.broadcast_to(strange, people.shape)].tolist()]
    if new:
        say(f"warning: the model has not met {', '.join(map(repr, new[:5]))}; taken for an average annotator.")
    return people


def _columns(names: Names, people: Names | None, proba: FloatArray, model: CrowdClassifier) -> dict[str, Any]:
    import numpy as np

    columns: dict[str, Any] = {"item": names}
    if people is not None:
        columns = {"item": np.repeat(names, people.size), "annotator": np.tile(people, len(names))}
        proba = proba.reshape(-1, model.classes_.size)
    columns |= {"label": model.classes_[proba.argmax(axis=1)], "confidence": proba.max(axis=1)}
    return columns | {f"p_{name}": proba[:, k] for k, name in enumerate(model.classes_)}


def _show(about: dict[str, Any], columns: dict[str, Any], *, preview: bool) -> None:
    out = show.console()
    rows = len(columns["label"])
    out.print(
        f"{show.clean(about['items_file'])}: {about['items']:,} items in {about['seconds']:.1f} s", soft_wrap=True
    )
    table = show.grid(None, "label", "predicted", "", numbers=("predicted",))
    labels = sorted(about["labels"].items(), key=lambda pair: -pair[1])
    for label, count in labels[:MOST]:
        table.add_row(show.name(label), f"{count:,}", show.bar(count / max(rows, 1)))
    if len(labels) > MOST:
        table.add_row(f"… {len(labels) - MOST:,} more", f"{sum(count for _, count in labels[MOST:]):,}")
    out.print(table)
    if preview:
        keys = [key for key in ("item", "annotator", "label", "confidence") if key in columns]
        first = show.grid("First predictions", *keys, numbers=("confidence",))
        for row in zip(*(columns[key][:HEAD].tolist() for key in keys), strict=True):
            first.add_row(*(show.name(cell) for cell in row[:-1]), f"{row[-1]:.3f}")
        out.print(first)
