"""Convert inputs X to vectors, texts, pairs or images in plain Python and NumPy, with one row per item.

X may be an array, a sparse matrix (which becomes dense), a list, or one or more columns of any frame that narwhals
supports: pandas, polars, pyarrow, DuckDB. Every function keeps the order of the rows, and raises an error that names
the first row that cannot be used.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import narwhals as nw
import numpy as np
import torch
from scipy import sparse
from torch.nn.functional import interpolate

from dissensus.common.types import ByteArray, FloatArray, IntArray, Names
from dissensus.features.exceptions import NotAnImage, PixelsOutOfRange, SingleString
from dissensus.features.text import check_texts
from dissensus.learning import exceptions as faults
from dissensus.learning.batches import ROWS_PER_READ, MappedRows
from dissensus.messages import quote_name
from dissensus.models.exceptions import NotATable
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

MAX_CHANNELS = 4  # maximum number of channels: three colours and transparency
PIXEL_TOLERANCE = 1e-3  # amount by which rounding may move pixels outside 0 to 1
ITEM_COLUMN = "item"  # column or index that names the rows of a frame
BLANK_PATTERN = re.compile(r"[ \t\r\n]+")


def check_table(table: Any, caller: str = "fit") -> None:
    """Raise DataError unless `table` is an Annotations table of classes."""
    if not isinstance(table, Annotations):
        raise NotATable(caller=caller, type=type(table).__name__)
    check_kind(table.kind, CLASS_KINDS, "training")


def strip_row_names(X: Any) -> Any:
    """Return X without row names, as an array, a sparse matrix, a list, or a narwhals frame or series in memory.

    A memory-mapped table of numbers becomes `MappedRows`, except in mode "c", in which changes are not in the file.
    """
    if isinstance(X, str):
        raise SingleString(argument="X")
    if isinstance(X, np.memmap) and X.filename is not None and X.mode != "c":
        return MappedRows(X) if X.ndim == 2 and X.flags.c_contiguous and X.dtype.kind in "fiub" else X
    if isinstance(X, np.ndarray | MappedRows) or sparse.issparse(X):
        return X
    if isinstance(X, Mapping):
        return list(X.values())
    frame = nw.from_native(X, allow_series=True, pass_through=True)
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    named = isinstance(frame, nw.DataFrame) and ITEM_COLUMN in frame.columns and len(frame.columns) > 1
    return frame.drop(ITEM_COLUMN) if named else frame


def align_rows(X: Any, table: Annotations, items: Any = None) -> Any:
    """Return the rows of X in the order of the table's items; rows with names are joined by name.

    Raise DataError if an item has no row, or if X has no names and its length differs from the number of items.
    """
    named = find_row_names(X, table) if items is None else naming.to_names(naming.to_column(items, "items"))
    n = count_rows(X)
    if named is None:
        if n != table.n_items:
            raise faults.UnnamedRows(n_rows=n, n_items=table.n_items)
        return X
    check_row_count(X, named.size, "names", "items")
    known, count = np.unique(named, return_counts=True)
    if (count > 1).any():
        name = f"item {quote_name(known[count > 1][0])}"
        raise faults.RepeatedRow(argument="X", name=name, n_rows=int(count.max()))
    row_index = naming.match_names(table.items, named, "items")
    missing, extra = row_index < 0, naming.match_names(named, table.items, "items") < 0
    n_unused, unused = int(extra.sum()), quote_name(named[extra][0]) if extra.any() else ""
    if missing.any():
        raise faults.MissingInputs(
            n_missing=int(missing.sum()), n_items=table.n_items, item=quote_name(table.items[missing][0]),
            n_unused=n_unused, unused=unused,
        )  # fmt: skip
    if n_unused:
        warnings.warn(faults.UnusedInputs(n_rows=n_unused, item=unused), stacklevel=3)
    X = strip_row_names(X) if np.array_equal(row_index, np.arange(n)) else strip_row_names(take_rows(X, row_index))
    return nw.maybe_reset_index(X).to_native() if isinstance(X, nw.DataFrame | nw.Series) else X


def find_row_names(X: Any, table: Annotations) -> Names | None:
    """Return the item of each row of X, or None if X does not name its rows.

    Names are the keys of a mapping, a column or an index `item`, or an index that contains all items.
    """
    if isinstance(X, Mapping):
        return naming.to_names(naming.to_column(list(X), "X"))
    frame = nw.from_native(X, allow_series=True, pass_through=True)
    if isinstance(frame, nw.DataFrame | nw.LazyFrame) and len(columns := frame.collect_schema().names()) > 1:
        if ITEM_COLUMN in columns:
            return naming.to_names(
                naming.to_column(frame.select(ITEM_COLUMN).lazy().collect()[ITEM_COLUMN].to_list(), "X")
            )
    index = nw.maybe_get_index(frame) if isinstance(frame, nw.DataFrame | nw.Series) else None
    if index is None or getattr(index, "nlevels", 1) > 1 or index.dtype.kind not in "iuO":
        return None
    if index.name != ITEM_COLUMN and np.array_equal(index, np.arange(len(index))):
        return None
    found = naming.to_names(naming.to_column(index.tolist(), "X"))
    if index.name == ITEM_COLUMN:
        return found
    same = (found.dtype.kind == "O") == (table.items.dtype.kind == "O")
    return found if same and (naming.match_names(table.items, found, "items") >= 0).all() else None


def count_rows(X: Any) -> int:
    """Count the rows of X."""
    shape = getattr(X := strip_row_names(X), "shape", None)
    try:
        return int(shape[0]) if shape else len(X)
    except TypeError:
        raise faults.InputsWithoutRows(type_name=type(X).__name__) from None


def check_row_count(X: Any, n: int, entries: str, argument: str) -> None:
    """Raise RowCountDiffers unless X has `n` rows; `entries` is the noun for the n entries in the message."""
    if (n_rows := count_rows(X)) != n:
        raise faults.RowCountDiffers(argument=argument, n_rows=n_rows, n_entries=n, entries=entries)


def take_rows(X: Any, row_index: Any) -> Any:
    """Return the rows of X at these indices."""
    X = strip_row_names(X)
    if isinstance(X, MappedRows):
        return X.select_rows(np.asarray(row_index))
    if sparse.issparse(X):
        return X.tocsr()[row_index]
    if isinstance(X, nw.DataFrame | nw.Series):
        return X[np.asarray(row_index).tolist()].to_native()
    if isinstance(X, np.ndarray):
        return X[row_index]
    values = _to_list(X)
    return [values[i] for i in row_index]


def to_vectors(X: Any) -> Any:
    """Return features (I, D) as float32, or check a memory-mapped file block by block and return it unchanged."""
    X = strip_row_names(X)
    if sparse.issparse(X):
        X = X.astype(np.float32).toarray()
    if isinstance(X, nw.DataFrame | nw.Series):
        X = X.to_numpy()
    try:
        with np.errstate(over="ignore"):  # Infinite values are reported below.
            array = X if isinstance(X, MappedRows) else np.asarray(X, np.float32)
    except (TypeError, ValueError):
        raise faults.NotNumbers() from None
    if array.ndim != 2 or not array.shape[1]:
        raise faults.NotTwoDimensional(shape=array.shape)
    first, values, rows_hit = None, 0, 0
    for number, block in enumerate(iterate_blocks(array)):
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            first = first or (number * ROWS_PER_READ + int(bad[0, 0]), int(bad[0, 1]), float(block[tuple(bad[0])]))
            values, rows_hit = values + len(bad), rows_hit + np.unique(bad[:, 0]).size
    if first is not None:
        row, column, value = first
        raise faults.FeatureNotFinite(value=value, row=row, column=column, n_values=values, n_rows=rows_hit)
    return array


def column_names(X: Any) -> list[str] | None:
    """Return the names of the features if X is a frame with column names, or None."""
    X = strip_row_names(X)
    named = isinstance(X, nw.DataFrame) and all(isinstance(name, str) for name in X.columns)
    return X.columns if named else None


def reorder_columns(X: Any, names: list[str] | None) -> Any:
    """Return X with its columns in the order of `names`; X is unchanged if X or `names` has no names."""
    own_names = column_names(X)
    if names is None or own_names is None or own_names == names:
        return X
    missing = tuple(name for name in names if name not in set(own_names))
    unexpected = tuple(name for name in own_names if name not in set(names))
    if missing or unexpected:
        raise faults.FeatureNamesDiffer(n_columns=len(names), missing=missing, unexpected=unexpected)
    return strip_row_names(X).select(names).to_native()


def iterate_blocks(array: Any) -> Iterator[FloatArray]:
    """Yield the rows of an array as float32, `ROWS_PER_READ` at a time."""
    for start in range(0, len(array), ROWS_PER_READ):
        yield np.asarray(array[start : start + ROWS_PER_READ], np.float32)


def to_texts(X: Any) -> list[str]:
    """Return one text per item; texts may be empty."""
    return check_texts(_to_list(X), "X")


def to_pairs(X: Any, expected: str = "values") -> list[tuple[Any, Any]]:
    """Return two values per item, from two columns of a frame or a list of pairs; `expected` is for error messages."""
    values = _to_list(X)
    for row, value in enumerate(values):
        if isinstance(value, str) or not isinstance(value, Iterable) or len(tuple(value)) != 2:
            raise faults.WrongInputRow(row=row, value=quote_name(value), expected=f"a pair of {expected}")
    return [tuple(value) for value in values]


def to_tokens(value: Any, row: int) -> list[str]:
    """Return the tokens of one item, given as a sequence of strings or as a string that is split at blanks.

    A string is not split at a no-break space, because that is a token in the tweets of gimpel_pos.
    """
    if isinstance(value, str):
        return [token for token in BLANK_PATTERN.split(value) if token]
    try:
        found = list(value)
    except TypeError:
        found = [None]
    if not all(isinstance(token, str) for token in found):
        raise faults.WrongInputRow(row=row, value=quote_name(value), expected="a string or a sequence of strings")
    return found


def to_images(X: Any) -> list[ByteArray]:
    """Return one array of bytes (height, width, channels) per item; a grey image has one channel.

    X is an array (I, H, W) or (I, H, W, C), or a list or column of images (H, W) or (H, W, C) of any sizes. Pixels are
    integers from 0 to 255, floats from 0 to 1 (rounded to multiples of 1/255), or booleans.
    """
    return [_to_pixels(value, i) for i, value in enumerate(list(X) if isinstance(X, np.ndarray) else _to_list(X))]


def _to_pixels(value: Any, row: int) -> ByteArray:
    """Return one image as bytes (height, width, channels); raise an error that names the row if this is impossible."""
    try:
        pixels = np.asarray(value)
    except (TypeError, ValueError):  # The rows of pixels have different lengths.
        pixels = np.empty(0, object)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.dtype.kind not in "buif" or pixels.ndim != 3 or not pixels.size or pixels.shape[2] > MAX_CHANNELS:
        found = quote_name(value) if pixels.ndim == 0 else f"of shape {pixels.shape}, {pixels.dtype}"
        raise NotAnImage(argument="X", row=row, got=found)
    if pixels.dtype == np.uint8:
        return pixels
    low, high, most = float(pixels.min()), float(pixels.max()), 255 if pixels.dtype.kind in "ui" else 1
    if not (low >= -PIXEL_TOLERANCE and high <= most + PIXEL_TOLERANCE):  # This is also True for NaN.
        raise PixelsOutOfRange(argument="X", row=row, low=low, high=high)
    if most == 255:
        return pixels.astype(np.uint8)
    return np.rint(np.clip(pixels.astype(np.float64), 0, 1) * 255).astype(np.uint8)


def resize_image(image: ByteArray, size: tuple[int, int]) -> ByteArray:
    """Resize an image to this height and width by bilinear interpolation with anti-aliasing."""
    if image.shape[:2] == size:
        return image
    planes = torch.tensor(image, dtype=torch.float32).permute(2, 0, 1)[None]  # (1, C, H, W)
    found = interpolate(planes, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0)
    return np.asarray(found.round().clamp(0, 255).to(torch.uint8).numpy())


def _to_list(X: Any) -> list[Any]:
    """Return one value per row of X, or a tuple per row if X has several columns."""
    X = strip_row_names(X)
    if isinstance(X, nw.DataFrame):
        columns = [column.to_list() for column in X.iter_columns()]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    if isinstance(X, np.ndarray | nw.Series):
        return list(X.to_list() if isinstance(X, nw.Series) else X.tolist())
    return list(X.to_pylist() if hasattr(X, "to_pylist") else X)  # X is an Arrow array, or a list.


def match_names(names: Any, fitted: Names, argument: str) -> IntArray:
    """Return the codes of `names` among `fitted`, with −1 for unknown names; None stands for all fitted names."""
    if names is None:
        return np.arange(fitted.size)
    if isinstance(names, str):
        raise SingleString(argument=argument)
    return naming.match_names(naming.to_names(naming.to_column(names, argument)), fitted, argument)


def check_codes(codes: IntArray, n_classes: int, argument: str) -> None:
    """Raise CodesOutOfRange unless all codes are from −1 (unknown) to `n_classes` − 1."""
    if codes.size and (codes.min() < -1 or codes.max() >= n_classes):
        low, high = int(codes.min()), int(codes.max())
        raise faults.CodesOutOfRange(argument=argument, highest=n_classes - 1, low=low, high=high)


def match_items(items: Any, fitted: Names) -> IntArray:
    """Return the codes of items by their names; None stands for all fitted items."""
    codes = match_names(items, fitted, "items")
    if (codes < 0).any():
        bad = naming.to_names(naming.to_column(items, "items"))[codes < 0][0]
        raise faults.UnknownItem(item=quote_name(bad), n_items=fitted.size)
    return codes
