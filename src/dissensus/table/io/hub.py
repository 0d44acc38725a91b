"""Hugging Face `datasets.Dataset` objects. The package is not imported here: whoever has such an object has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.exceptions import DataError
from dissensus.table.find_columns import Columns, needed


def is_dataset(source: Any) -> bool:
    """True for an object of the package `datasets`."""
    return type(source).__module__.partition(".")[0] == "datasets"


def read(dataset: Any, columns: Columns) -> tuple[pa.Table, list[str] | None]:
    """Read the columns needed, and the class names of the label where the dataset declares them (`ClassLabel`).

    Integers of a ClassLabel become their names; −1, by which the hub marks a label that is held back, becomes missing.
    """
    if not hasattr(dataset, "select_columns") or not isinstance(getattr(dataset, "column_names", None), list):
        raise DataError(f"a {type(dataset).__name__} holds several splits; name one: dataset['train'].")
    if not hasattr(dataset, "__len__"):
        raise DataError(f"a {type(dataset).__name__} is read piece by piece; load it whole, without streaming=True.")
    wanted = needed(columns, dataset.column_names)
    table = dataset.select_columns(wanted).with_format("arrow")[:]
    declared = {name: dataset.features[name].names for name in wanted if hasattr(dataset.features[name], "names")}
    for name, names in declared.items():
        codes = table[name].fill_null(-1).to_numpy()
        known = np.array([*names, None], object)
        text = pa.array(known[np.where(codes >= 0, codes, -1)], pa.string())
        table = table.set_column(table.column_names.index(name), name, text)
    return table, declared.get(columns.find(wanted).get("label", ""))
