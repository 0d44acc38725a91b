"""Frames of a model's results, with the names of items, annotators and classes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import numpy as np

from dissensus.common.arrays import TIE_TOLERANCE
from dissensus.common.frames import columns_to_frame
from dissensus.common.notebook import MAX_ROWS_SHOWN, make_html_table
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.models.exceptions import NoConfusion, UnknownFrame
from dissensus.table import names as naming

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

FrameKind = Literal["items", "annotators", "confusions"]
FRAME_BATCH_ROWS = 1_000_000  # number of rows that are read at a time from a Parquet file of results


def arg_max(posterior: FloatArray, items: Names, classes: Names, seed: int) -> IntArray:
    """Return the index of the largest value in each row, (I,).

    Ties are broken by a draw keyed on the seed, the item's name and the class name, so that neither the order of rows
    nor that of classes matters and no class is favoured.
    """
    best = posterior.max(axis=1, keepdims=True, initial=0)
    tied = posterior >= best * (1 - TIE_TOLERANCE)
    winner: IntArray = tied.argmax(axis=1)
    rows = np.flatnonzero(tied.sum(axis=1) > 1)
    if rows.size:
        item_hashes = naming.scramble_integers(naming.hash_names(items[rows]) ^ np.uint64(seed))
        draw = naming.scramble_integers(item_hashes[:, None] ^ naming.hash_names(classes)[None, :])  # (ties, K)
        winner[rows] = np.where(tied[rows], draw, np.uint64(0)).argmax(axis=1)
    return winner


def item_columns(
    classes: Names, seed: int, items: Names, posterior: FloatArray, difficulty: FloatArray | None
) -> dict[str, Any]:
    """Return the columns of the frame of items: name, label, confidence, difficulty (if known) and P(class)."""
    winner = arg_max(posterior, items, classes, seed)
    columns = {"item": items, "label": classes[winner], "confidence": posterior.max(axis=1, initial=0)}
    if difficulty is not None:
        columns["difficulty"] = difficulty
    return columns | {f"p_{name}": posterior[:, k] for k, name in enumerate(classes)}


def frame_columns(model: Aggregator, kind: str) -> dict[str, Any]:
    """Return the columns of one of the frames that `to_frame` returns."""
    if kind == "items":
        difficulty = getattr(model, "difficulty_", None)
        return model.item_columns(np.asarray(model.items_), np.asarray(model.posterior_), difficulty)
    if kind == "annotators":
        columns = {"annotator": model.annotators_, "annotations": model.n_annotations_}
        return columns | {"reliability": model.reliability_} | _interval_columns(model.reliability_interval())
    if kind != "confusions":
        raise UnknownFrame(kind=kind)
    if not hasattr(model, "confusion_"):
        raise NoConfusion(method=type(model).__name__)
    A, K = model.annotators_.size, model.classes_.size
    columns = {
        "annotator": np.repeat(model.annotators_, K * K),
        "true": np.tile(np.repeat(model.classes_, K), A),
        "given": np.tile(model.classes_, A * K),
        "probability": model.confusion_.reshape(-1),
    }
    counted = model.confusion_support() is not None
    return columns | (_interval_columns(model.confusion_interval().reshape(-1, 2)) if counted else {})


def to_frame(
    model: Aggregator, kind: FrameKind = "items", backend: Literal["pandas", "polars", "pyarrow"] | None = None
) -> Any:
    """Return a data frame of results.

    Parameters
    ----------
    kind : {"items", "annotators", "confusions"}
        `items` has the columns item, label, confidence, and p_<class> for every class. `annotators` has the columns
        annotator, annotations, reliability, and low and high, its 95 % interval. `confusions` has the columns
        annotator, true, given, probability, low and high.
    backend : {"pandas", "polars", "pyarrow"}, optional
        The default is pandas if it is installed, else pyarrow. If an engine stores the posterior, the default for the
        frame of items is the engine's own type, such as a PySpark DataFrame.

    Returns
    -------
    DataFrame or Table
    """
    model._check_fitted()
    posterior: Any = getattr(model, "posterior_", None)
    if kind == "items" and backend is None and hasattr(posterior, "item_frame"):
        return posterior.item_frame(getattr(model, "difficulty_", None), model.item_columns)
    return columns_to_frame(model._frame_columns(kind), backend)


def item_frames(model: Aggregator) -> Iterator[Any]:
    """Yield `to_frame("items")` as Arrow tables in the order of items, with one part in memory at a time."""
    model._check_fitted()
    posterior: Any = getattr(model, "posterior_", None)
    if hasattr(posterior, "item_parts"):
        yield from posterior.item_parts(getattr(model, "difficulty_", None), model.item_columns)
    elif "items_path_" in vars(model):
        import pyarrow as pa
        import pyarrow.parquet as pq

        for file in sorted(Path(model.items_path_).iterdir()):
            for batch in pq.ParquetFile(file).iter_batches(FRAME_BATCH_ROWS):
                yield pa.Table.from_batches([batch])
    else:
        yield model.to_frame("items", "pyarrow")


def to_html(model: Aggregator) -> str | None:
    """Return an HTML table of the first items for Jupyter, or None if the model is not fitted in memory."""
    if not hasattr(model, "n_iter_") or not isinstance(model.items_, np.ndarray):
        return None
    frame = model.to_frame("items", backend="pyarrow")
    about = f"{model!r}, fitted to {model.n_annotations_.sum():,.0f} labels of {model.items_.size:,} items"
    return make_html_table(about, frame[:MAX_ROWS_SHOWN].to_pylist(), len(frame))


@cache
def annotated_results(kind: type[Aggregator]) -> dict[str, str]:
    """Return the text of each attribute that a class or its parents declare as `Annotated[type, text]`."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def _interval_columns(interval: FloatArray) -> dict[str, FloatArray]:
    return {"low": interval[:, 0], "high": interval[:, 1]}
