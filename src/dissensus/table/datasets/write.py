"""A set as a folder that `load_dataset` reads again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.table.annotations import ANONYMOUS, Annotations
from dissensus.table.datasets.dataset import Dataset
from dissensus.table.io import atomic, write_frame
from dissensus.table.questions import Questions


def write_folder(data: Dataset, folder: str | Path, *, features: bool = False) -> list[Path]:
    """Write the files of a set, each whole or not at all; returns their paths."""
    folder, data = Path(folder), data.whole
    folder.mkdir(parents=True, exist_ok=True)
    frames = {folder / f"{stem}.csv": frame for stem, frame in _frames(data).items()}
    arrays = {folder / f"{stem}.npz": rows for stem, rows in (_arrays(data) if features else {}).items()}
    for path, frame in frames.items():
        write_frame(frame, path)
    for path, (known, x) in arrays.items():
        with atomic(path) as stream:
            np.savez_compressed(stream, item=data.item_names[known].astype(str), x=x[known])
    with atomic(folder / "README.md") as stream:
        stream.write(f"# {data.description}\n".encode())
    return sorted([*frames, *arrays, folder / "README.md"])


def _frames(data: Dataset) -> dict[str, Any]:
    frames = {"items": data.items, "annotators": data.annotators, "responses": data.responses}
    table = data.annotations
    if isinstance(table, Questions):
        asked = [t.to_arrow().append_column("question", pa.array([question] * len(t))) for question, t in table.items()]
        frames["annotations"] = pa.concat_tables(asked)
    elif table.annotators.tolist() == [ANONYMOUS]:
        frames["counts"] = _counts(table)
    else:
        frames["annotations"] = table.to_arrow()
    if data.gold is not None and isinstance(table, Annotations):
        known = data.gold >= 0
        frames["gold"] = pa.table({"item": table.items[known], "label": table.classes[data.gold[known]]})
    return {stem: frame for stem, frame in frames.items() if frame is not None}


def _counts(table: Annotations) -> Any:
    votes = table.votes()
    item, label = np.nonzero(votes)
    count = votes[item, label].astype(np.int64)
    return pa.table({"item": table.items[item], "label": table.classes[label], "count": count})


def _arrays(data: Dataset) -> dict[str, tuple[Any, Any]]:
    """Which items have a row, and the rows of all items."""
    arrays = {}
    if data.features is not None:
        arrays["features"] = (~np.isnan(data.features).any(axis=1), data.features)
    if data.images is not None:
        arrays["images"] = (data.has_image, data.images)
    return arrays
