"""Read data sets from a data folder, which has one sub-folder per data set.

Tables are `.csv` or `.csv.gz` files; if both exist, the `.csv` file is read. A sub-folder may contain:


- the table annotations (item, annotator, label), or counts (item, label, count) if annotators are unknown; with a
  column `question`, or `relation` for a list of selected options, there is one table per question;
- the tables gold and gold_<name> (item, label), items (item, …, split), annotators (annotator, …) and responses;
- features.npz and images.npz, which contain the arrays `item` and `x`;
- README.md, which contains a title and a description.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.common.exceptions import OutOfRange
from dissensus.common.types import Names
from dissensus.messages import ParameterName
from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.datasets.dataset import Dataset, sort_classes
from dissensus.table.io import read_frame
from dissensus.table.io.files import name_file_in_errors
from dissensus.table.questions import Questions

FOLDER_VARIABLE = "DISSENSUS_DATA"
"""The environment variable that names the data folder."""

REQUIRED_COLUMNS = {
    "annotations": ("item", "annotator", "label"),
    "counts": ("item", "label", "count"),
    "gold": ("item", "label"),
    "items": ("item",),
    "annotators": ("annotator",),
    "responses": (),
}
"""File → its required columns."""
MAX_REASON_LENGTH = 100  # characters of an error message of a library


def find_data_folder(folder: str | Path | None = None) -> Path | None:
    """Return the data folder (`folder`, or the one in the environment), or None if there is none."""
    path = folder if folder is not None else os.environ.get(FOLDER_VARIABLE) or None
    if path is None:
        return None
    if not Path(path).is_dir():
        where = f"the environment variable {FOLDER_VARIABLE}" if folder is None else "folder"
        raise errors.NotAFolder(source=where, path=str(path))
    return Path(path)


def find_dataset_folders(folder: Path) -> dict[str, Path]:
    """Return name → path of all sub-folders that contain a data set or a README."""
    paths = (p for p in sorted(folder.iterdir()) if p.is_dir() and (is_labelled(p) or (p / "README.md").is_file()))
    return {path.name: path for path in paths}


def is_labelled(path: Path) -> bool:
    """Return True if the folder contains annotations or counts."""
    return _find_csv(path, "annotations") is not None or _find_csv(path, "counts") is not None


def read_description(path: Path) -> str:
    """Return the part of a folder's README before its first list, which is a title and a description."""
    readme = path / "README.md"
    lines = readme.read_text(encoding="utf-8").splitlines() if readme.is_file() else []
    end = next((at for at, line in enumerate(lines) if line.startswith("- ")), len(lines))
    return "\n".join(line for line in lines[:end] if line).removeprefix("# ") or path.name


def read_folder(path: Path, *, gold: str | None = None, votes: str | None = None) -> Dataset:
    """Read the data set in one folder, including items without annotations; see `load_dataset`."""
    if not is_labelled(path):
        raise errors.NotALabelledSet(name=path.name)
    available = [stem for stem in ("annotations", "counts") if _find_csv(path, stem) is not None]
    if votes not in (None, *available):
        expected = f"{' or '.join(map(repr, available))} for '{path.name}'"
        raise OutOfRange(name=ParameterName("votes"), allowed=f"be {expected}", value=votes)
    rows = _read_csv(path, votes or available[0])
    golds = tuple(sorted({file.name.split(".")[0].removeprefix("gold_") for file in path.glob("gold_*.csv*")}))
    gold_rows = _read_csv(path, "gold" if gold is None else f"gold_{gold}")
    if gold is not None and gold_rows is None:
        has_default = _find_csv(path, "gold") is not None
        raise errors.UnknownGold(name=path.name, gold=gold, golds=golds, has_default=has_default)
    frame = {stem: _read_csv(path, stem) for stem in ("items", "annotators", "responses")}
    stored = {
        stem: (_check_names_distinct(read_array(file, "item"), file.name), cache(partial(read_array, file, "x")))
        for stem in ("features", "images")
        if (file := path / f"{stem}.npz").is_file()
    }
    named = [_distinct_values(part, "item") for part in (rows, gold_rows, frame["items"]) if part is not None]
    items = np.array(sorted(set().union(*named, *(names.tolist() for names, _ in stored.values()))), object)
    with name_file_in_errors(path):
        annotations = _make_annotations(rows, gold_rows, items)
        data = Dataset(
            path.name,
            read_description(path),
            annotations,
            items=_align_frame(frame["items"], "item", items),
            responses=frame["responses"],
            golds=golds,
            stored=stored,
        )
        if isinstance(annotations, Annotations) and gold_rows is not None:
            data = replace(data, gold=annotations.gold_codes(gold_rows["item"], gold_rows["label"]))
        return replace(data, annotators=_align_frame(frame["annotators"], "annotator", data.annotator_names))


def _make_annotations(rows: Any, gold_rows: Any, items: Names) -> Annotations | Questions:
    if "relation" in rows.column_names:
        return Questions.from_ticks(rows["relation"], rows["item"], rows["annotator"], items)
    columns = {name: rows[name] for name in ("question", "item", "annotator", "label") if name in rows.column_names}
    if "question" in columns:
        return Questions.from_arrays(**columns, items=items)
    # Gold labels are classes even if no annotator gave them.
    classes = sort_classes(
        _distinct_values(rows, "label") | (set() if gold_rows is None else _distinct_values(gold_rows, "label"))
    )
    if "annotator" in columns:
        return Annotations.from_arrays(**columns, classes=classes, items=items)
    try:
        count = rows["count"].cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise errors.WrongColumn(column="column 'count'", expected="whole numbers", description=str(error)) from error
    return Annotations.from_counts(**columns, count=count, classes=classes, items=items)


def _find_csv(path: Path, stem: str) -> Path | None:
    return next((file for end in (".csv", ".csv.gz") if (file := path / (stem + end)).is_file()), None)


def _read_csv(path: Path, stem: str) -> Any:
    """Return a frame with all columns as text, or None if there is no such file."""
    file = _find_csv(path, stem)
    if file is None:
        return None
    frame = read_frame(file)
    for column in REQUIRED_COLUMNS[stem.partition("_")[0]]:
        if column not in frame.column_names:
            error = errors.UnknownColumn(name=column, role=stem, columns=tuple(frame.column_names))
            raise error.add_subject(str(file))
    return frame


def read_array(file: Path, name: str) -> Any:
    """Return one array of an .npz file; text becomes an object array of `str`."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            array = archive[name]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise errors.DamagedFile(
            path=file, reason=f"no arrays `item` and `x`: {str(error)[:MAX_REASON_LENGTH]}"
        ) from error
    return array.astype(object) if array.dtype.kind == "U" else array


def _distinct_values(frame: Any, column: str) -> set[str]:
    return set(frame[column].drop_null().unique().to_pylist())  # The constructor of the table checks for missing names.


def _check_names_distinct(names: Names, where: str) -> Names:
    known, count = np.unique(names[names != np.array(None)], return_counts=True)
    if (count > 1).any():
        raise errors.DuplicateName(location=where, name=known[count > 1][0], n=int(count.max()))
    return names


def _align_frame(frame: Any, key: str, names: Names) -> Any:
    """Return one row per name, in the order of `names`; cells are empty if the frame has no such row."""
    if frame is None:
        return None
    at = naming.match_names(names, _check_names_distinct(np.array(frame[key].to_pylist(), object), f"{key}s.csv"), key)
    frame = frame.take(pa.array(at, mask=at < 0))
    return frame.set_column(frame.column_names.index(key), key, pa.array(names.tolist(), pa.string()))
