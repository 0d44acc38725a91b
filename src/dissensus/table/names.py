"""Turn names into codes: any column of ids or labels → sorted distinct names and int32 codes.

A column is an Arrow array, a NumPy array, a list, or a series of pandas or polars. Names come out as int64, float64,
bool, or object holding `str`; text sorts by code point. A column must be of one kind: 1 and "1" in the same column are
an error, never silently the same or silently two. Below them: labels with abstentions, distributions, weights, numbers.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Integral
from typing import Any
from warnings import catch_warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.arrays import unmasked
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.exceptions import BadParameter, DataError, MissingColumn, UnknownClass

MAX_NUMBERED_CLASSES = 1_000_000  # that `classes=` takes as a number
MAX_SPELLINGS_SHOWN = 5  # classes
MIN_WEIGHT, MAX_WEIGHT = 1e-9, 1e9
BLOCK = 2**15  # integers that stay in the processor's cache while they are coded


def to_column(values: Any, column: str) -> Any:
    """Make an integer or boolean NumPy array of `values`, or an Arrow array of one kind (nulls kept).

    What a masked array hides is missing, like None.
    """
    hidden: BoolArray | None = None
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise DataError(f"column '{column}': expected one dimension, got shape {values.shape}.")
        if np.ma.isMaskedArray(values) and values.mask.any():
            hidden = np.ma.getmaskarray(values)
        values = np.asarray(values)
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        if values.dtype.kind in "iub" and hidden is None:
            return values
    if hasattr(values, "to_arrow"):  # polars, narwhals
        values = values.to_arrow()
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        if not isinstance(values, np.ndarray) and not hasattr(values, "__arrow_array__"):
            values = np.asarray(values) if hasattr(values, "dtype") else _listed(values, column)
        try:
            # from_pandas: NaN in an object column means "missing", as pandas and most readers write it
            values = pa.array(values, from_pandas=True, mask=hidden)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise DataError(_mixed_kinds(values, column)) from error
        except (OverflowError, UnicodeEncodeError) as error:  # beyond 64 bits; half a surrogate pair
            said = f"column '{column}' holds a name that cannot be stored ({error}); make it other text."
            raise DataError(said) from None
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string_view(values.type):  # Arrow cannot sort these
        values = values.cast(pa.large_string())
    kind = values.type
    if pa.types.is_floating(kind):
        values = _integral(values)
    elif pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    elif not (pa.types.is_null(kind) or is_text(kind) or _is_whole(kind)):
        raise DataError(f"column '{column}' holds values of type {kind}; convert it to text or integers.")
    return _in_numpy(values)


def to_array(values: Any, column: str) -> Any:
    """`to_column` as one Arrow array, so that rows can be taken by their numbers."""
    found = to_column(values, column)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else pa.array(found)


def _in_numpy(column: Any) -> Any:
    """Integers and truth values without a gap as a NumPy array; any other column as it is."""
    if isinstance(column, np.ndarray) or column.null_count or not _is_whole(column.type):
        return column
    return np.asarray(column)


def is_listing(values: Any) -> bool:
    """True for what can be walked: no scalar, in an array or not."""
    return isinstance(values, Iterable) and (not isinstance(values, np.ndarray) or values.ndim > 0)


def _listed(values: Any, column: str) -> list[Any]:
    if not is_listing(values):
        raise DataError(f"column '{column}': expected a list or an array, got {shown(values)}.")
    return [None if value is np.ma.masked else value for value in values]


def check_codes(codes: Any, n: int, what: str) -> None:
    """Raise DataError where codes (N,) are not integers from 0 to n − 1: compiled loops use them as addresses."""
    codes = np.asarray(codes)
    if codes.ndim != 1 or codes.dtype.kind not in "iub":
        raise DataError(f"{what}: expected one vector of integer codes, got {codes.dtype} of shape {codes.shape}.")
    if codes.size and not (codes.min() >= 0 and codes.max() < n):
        outside = codes.min() if codes.min() < 0 else codes.max()
        raise DataError(f"{what}: code {outside} lies outside the {n:,} names there; codes run from 0 to {n - 1:,}.")


def missing_rows(column: Any) -> BoolArray:
    """(N,) True where a row of a column from `to_column` holds no name: null, NaN, or blank text."""
    if isinstance(column, np.ndarray):
        return np.zeros(column.size, np.bool_)
    missing = column.is_null(nan_is_null=True)
    if is_text(column.type):
        blank = [name for name in column.unique().to_pylist() if name is not None and not name.strip()]
        missing = pc.or_(missing, pc.is_in(column, value_set=pa.array(blank, column.type)))
    return np.asarray(missing, dtype=np.bool_)


def encode(column: Any, what: str) -> tuple[Names, IntArray]:
    """Return the sorted names of a column from `to_column`, and the code of every row; a missing name raises."""
    column = _in_numpy(column)
    if isinstance(column, np.ndarray) and column.dtype.kind != "b":
        return _encode_integers(column)
    if isinstance(column, np.ndarray) or pa.types.is_floating(column.type):
        names, codes = np.unique(column, return_inverse=True)
        if names.dtype.kind == "f" and np.isnan(names).any():
            raise _missing(column, what)
        return names, codes.astype(np.int32)
    if column.null_count:
        raise _missing(column, what)
    names, codes = _encode_hashed(column)
    if names.dtype == object and (not all(names.tolist()) or any(map(str.isspace, names.tolist()))):
        raise _missing(column, what)
    return names, codes


def recode(codes: IntArray, names: Names, into: Names, what: str) -> IntArray:
    """Turn codes into `names` into codes into `into`; −1 where `into` lacks the name."""
    return np.append(match(names, into, what), -1).astype(np.int32)[codes]


def match(names: Names, into: Names, what: str) -> IntArray:
    """(len(names),) the position of each name in `into`, −1 where it is not there. Kinds must agree."""
    if names.size == 0 or into.size == 0:
        return np.full(names.size, -1, np.int32)
    if _kind(names) != _kind(into) and {_kind(names), _kind(into)} != {"integers", "numbers"}:
        raise DataError(
            f"{what}: one table names them by {_kind(into)} (such as {shown(into[0])}), the other by {_kind(names)} "
            f"(such as {shown(names[0])}); convert one to the other's kind."
        )
    if _kind(names) != "text":
        order = np.argsort(into, kind="stable")
        at = order[np.minimum(np.searchsorted(into, names, sorter=order), into.size - 1)]
        return np.where(into[at] == names, at, -1).astype(np.int32)
    place = {name: position for position, name in enumerate(into.tolist())}
    return np.fromiter((place.get(name, -1) for name in names.tolist()), np.int32, names.size)


def declared(names: Iterable[Any] | int, like: Any, what: str) -> Names:
    """Check names that the caller declares; keep their order, take the kind of the column `like` where possible."""
    if isinstance(names, Integral):
        check_argument(what, names, int, low=0, high=MAX_NUMBERED_CLASSES)
        values: list[Any] = list(range(int(names)))
    elif is_listing(names) and not isinstance(names, str | bytes):
        values = _listed(names, what)
    else:
        raise BadParameter(f"{what} must be a list of names, or their number, got {shown(names)}.")
    column = to_column(values, what)
    kind, wanted = _type(column), _type(like)
    if pa.types.is_integer(wanted) and is_text(kind):
        with suppress(ValueError, TypeError):  # text for integers, as a command line gives it
            column = np.array([int(value) for value in values], np.int64)
    elif is_text(wanted) and _is_whole(kind):
        column = pa.array([str(value) for value in values])
    if missing_rows(column).any():
        raise DataError(f"{what}: a declared name is blank or missing: {shown(values)}.")
    result = to_names(column)
    result = result.astype(np.int64) if result.dtype.kind in "iu" else result
    for name, count in Counter(result.tolist()).items():
        if count > 1:
            raise DataError(f"{what}: {shown(name)} is declared twice.")
    return result


def to_names(column: Any) -> Names:
    """Turn a column from `to_column` into names: object holding `str` for text, the natural dtype otherwise."""
    if isinstance(column, np.ndarray):
        return column
    return np.array(column.to_pylist(), object) if is_text(column.type) else np.asarray(column)


def hashes(names: Names) -> IntArray:
    """(n,) a 64-bit hash of each name, the same on every machine and in every process."""
    if names.dtype.kind in "iub":
        return np.asarray(mix(names.astype(np.int64).view(np.uint64)))
    return np.asarray(mix([zlib.crc32(str(name).encode()) for name in names.tolist()]))


def mix(x: Any) -> Any:
    """A bijection of 64-bit integers that scatters them (the finaliser of SplitMix64)."""
    x = np.asarray(x, np.uint64)
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def smallest_int(n: int) -> type[np.signedinteger[Any]]:
    """The smallest signed integer type that holds the codes 0 … n − 1 (and −1)."""
    return np.int8 if n <= 2**7 else np.int16 if n <= 2**15 else np.int32


def shown(name: Any) -> str:
    """Write a name as errors show it: quoted, and cut where it is long."""
    text = repr(getattr(name, "tolist", lambda: name)())  # what NumPy holds as Python does
    return text if len(text) <= 60 else f"{text[:57]}…{text[-1]}"


def bad_rows(what: str, bad: BoolArray, problem: str, values: Any = None, row_numbers: IntArray | None = None) -> str:
    """Say how many rows (N,) are bad, which is the first and what it holds; `row_numbers` (N,) of some rows only."""
    first = int(bad.argmax())
    row = first if row_numbers is None else row_numbers[first]
    holds = "" if values is None else f": {shown(values[first])}"
    return f"{what}: {bad.sum():,} of {bad.size:,} {problem}; first at row {row} (from 0){holds}."


def unknown_label(
    bad: BoolArray, labels: Names, n_classes: int, row_numbers: IntArray | None = None,
    advice: str = "Leave out classes to take them from the rows, or declare it in abstain.",
) -> UnknownClass:  # fmt: skip
    """Make the error for labels (N,) outside the declared classes."""
    problem = f"rows hold a name outside the {n_classes} {'class' if n_classes == 1 else 'classes'} given"
    said = bad_rows("column 'label'", bad, problem, labels, row_numbers)
    return UnknownClass(f"{said} {advice}")


def check_fits(name: int) -> None:
    """Raise DataError for an unsigned integer that would turn negative."""
    if name > np.iinfo(np.int64).max:
        raise DataError(f"an integer name, {name}, does not fit 64 signed bits; convert the column to text.")


def _encode_integers(values: IntArray) -> tuple[Names, IntArray]:
    if values.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    low, high = int(values.min()), int(values.max())
    check_fits(high)
    span = high - low + 1
    if span > 4 * values.size + 1024:
        names, codes = _encode_hashed(pa.array(values))
        return names.astype(np.int64), codes

    def place(rows: slice) -> IntArray:
        part = values[rows].astype(np.int64, copy=False)  # the difference may not fit the type of the values
        return part - low if low else part

    blocks = [slice(start, start + BLOCK) for start in range(0, values.size, BLOCK)]
    seen = np.zeros(span, np.bool_)
    for rows in blocks:
        seen[place(rows)] = True
        if seen.all():  # no gaps: a name is its code, but for `low`
            codes = place(slice(None)) if low else values
            return np.arange(low, high + 1), codes.astype(np.int32, copy=False)
    names = np.flatnonzero(seen) + low
    code = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    codes = np.empty(values.size, np.int32)
    for rows in blocks:
        codes[rows] = code[place(rows)]
    return names, codes


def _encode_hashed(column: Any) -> tuple[Names, IntArray]:
    encoded = column.dictionary_encode()  # one dictionary for all chunks
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    if len(encoded) == 0:
        return np.empty(0, object if is_text(column.type) else np.int64), np.empty(0, np.int32)
    dictionary = chunks[-1].dictionary
    order = np.asarray(pc.sort_indices(dictionary))
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    codes = np.concatenate([rank[np.asarray(chunk.indices)] for chunk in chunks])
    return to_names(dictionary.take(order)), codes


def is_text(kind: Any) -> bool:
    """True for an Arrow type that holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _type(column: Any) -> Any:
    return pa.from_numpy_dtype(column.dtype) if isinstance(column, np.ndarray) else column.type


def _is_whole(kind: Any) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind))


def _integral(values: Any) -> Any:
    """Turn floats that are all whole into integers: pandas makes such floats where integers have missing values."""
    array = np.asarray(values).astype(np.float64, copy=False)  # names are float64, and half precision ends at 65,504
    known = array[~np.isnan(array)]
    values = pa.array(array, from_pandas=True)
    if known.size and np.all(np.isfinite(known)) and np.all(known == np.floor(known)) and np.abs(known).max() < 2**53:
        return values.cast(pa.int64())
    return values


def _kind(names: Names) -> str:
    return {"i": "integers", "u": "integers", "f": "numbers", "b": "truth values"}.get(names.dtype.kind, "text")


def _missing(column: Any, what: str) -> DataError:
    missing = missing_rows(column)
    drop, abstain = "Name them or drop those rows.", "Drop those rows, or declare them as abstentions: abstain=[None]."
    if what == "label" and not isinstance(column, np.ndarray) and is_text(column.type):
        from dissensus.table.kinds import look_like_sets  # kinds are told by names

        if look_like_sets(_encode_hashed(column.filter(pa.array(~missing)))[0]):
            abstain = "Drop those rows, declare them as abstentions (abstain=[None]), or read them as sets without an "
            abstain += "option: kind='sets'."
    said = bad_rows(f"column '{what}'", missing, "rows are blank or missing")
    return DataError(f"{said} {abstain if what == 'label' else drop}")


def _mixed_kinds(values: Any, column: str) -> str:
    first: dict[str, tuple[int, Any]] = {}
    for row, value in enumerate(values):
        first.setdefault(type(value).__name__, (row, value))
    if len(first) == 1:
        return f"column '{column}' holds values of type {next(iter(first))}; convert it to text or integers."
    seen = "; ".join(f"{kind} at row {row}: {str(value)[:40]!r}" for kind, (row, value) in list(first.items())[:3])
    return f"column '{column}' mixes kinds of values ({seen}); convert it to one kind, such as text."


def folded(value: Any) -> Any:
    """A text without differences of capitals and spaces; anything else as it is."""
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def spellings(classes: Iterable[Any]) -> dict[Any, list[Any]]:
    """Folded text → the classes that are that text."""
    alike: dict[Any, list[Any]] = {}
    for label in classes:
        alike.setdefault(folded(label), []).append(label)
    return alike


def unsettled_spellings(classes: Iterable[Any]) -> str:
    """Say which classes are one word in several spellings: honest annotators seem to contradict each other. Else ""."""
    several = [labels for labels in spellings(map(str, classes)).values() if len(labels) > 1]
    named = "; ".join(", ".join(labels) for labels in several[:MAX_SPELLINGS_SHOWN])
    said = f"Classes differ by capitals or spaces only, and count as different: {named}; normalize=True merges them."
    return said if several else ""


def encode_names(column: Any, what: str, all_names: Any) -> tuple[Names, IntArray]:
    """Return the sorted names, or `all_names` where given, and the code of every row."""
    found, codes = encode(column, what)
    if all_names is None:
        return found, codes
    everything, _ = encode(to_column(all_names, f"{what}s"), f"{what}s")
    place = match(found, everything, f"{what}s")
    if (place < 0).any():
        raise DataError(f"{what} {shown(found[place < 0][0])} has annotations and is not in the list of {what}s given.")
    return everything, place[codes] if codes.size else codes


def encode_labels(column: Any, classes: Any, abstain: Any) -> tuple[Names, IntArray, BoolArray | None]:
    """Return the classes, the label codes of the rows that stay, and which rows stay (None: all).

    None, NaN and "" in `abstain` mean a missing label.
    """
    keep: BoolArray | None = None
    if answers := as_list(abstain):
        column = to_array(column, "label")
        named = [one for one in answers if one is not None and one == one and str(one).strip()]  # NaN ≠ NaN
        keep = ~missing_rows(column)
        if len(named) == len(answers) and not keep.all():
            raise _missing(column, "label")
        if named:
            values = declared(named, column, "abstain")
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError):  # of another kind than the labels: none of them occurs
                keep &= ~np.asarray(pc.is_in(column, value_set=pa.array(values, column.type)))
        column = to_column(column.take(np.flatnonzero(keep)), "label")  # integers again, without missing ones
    found, codes = encode(column, "label")
    if classes is None:
        return found, codes, keep
    names = declared(classes, column, "classes")
    if found.dtype.kind in "iu" and names.dtype == object:  # integer labels are codes into declared text classes
        place = np.where((found >= 0) & (found < names.size), found, -1)
    else:
        place = match(found, names, "classes")
    if (place < 0).any():
        kept = None if keep is None else np.flatnonzero(keep)
        raise unknown_label(place[codes] < 0, found[codes], names.size, kept)
    return names, place[codes] if codes.size else codes, keep


def as_list(answers: Any) -> list[Any]:
    """Put one answer, or several, into a list."""
    if answers is None or isinstance(answers, str | bytes | int | float):
        return [answers]
    found = list(answers) if is_listing(answers) else [answers]
    if not all(answer is None or np.isscalar(answer) for answer in found):
        raise BadParameter(f"abstain must be a label or a list of labels, got {shown(answers)}.")
    return found


def encode_proba(proba: Any, classes: Iterable[Any] | int | None) -> tuple[Names, FloatArray]:
    """Return the classes and (N, K) distributions, from a matrix or from class → column; each row divided by its sum.

    A sum more than 1e-4 from one is an error.
    """
    if isinstance(proba, Mapping):
        classes = list(proba) if classes is None else range(classes) if isinstance(classes, int) else list(classes)
        if not classes:
            raise DataError("proba names no class; give class → probabilities.")
        try:
            proba = np.column_stack([floats(proba[name], f"p_{name}") for name in classes])
        except KeyError as error:
            known = sorted(map(str, proba))
            raise MissingColumn(f"no column of probabilities for class {error}; there are {known}.") from None
    try:
        proba = unmasked(proba, np.nan)
        if proba.dtype.kind == "c":
            raise TypeError("complex ones")
        proba = np.array(proba, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"proba must hold numbers ({error}).") from None
    if proba.ndim != 2:
        raise DataError(f"proba must have one row per annotation and one column per class, got shape {proba.shape}.")
    names = declared(proba.shape[1] if classes is None else classes, np.empty(0), "classes")
    if names.size != proba.shape[1]:
        raise DataError(f"proba has {proba.shape[1]} columns for {names.size} classes.")
    negative = ~np.isfinite(proba).all(axis=1) | (proba < 0).any(axis=1)
    if negative.any():
        raise DataError(bad_rows("proba", negative, "rows hold a negative or missing probability", proba))
    total = proba.sum(axis=1)
    bad = np.abs(total - 1) > 1e-4
    if bad.any():
        said = bad_rows("proba", bad, "rows do not sum to one", proba)
        raise DataError(f"{said} It sums to {total[bad][0]:.6g}; divide each row by its sum.")
    return names, np.asarray(proba / total[:, None])


def check_weight(values: Any) -> FloatArray:
    """(N,) weights, none negative or missing."""
    weight = floats(values, "weight")
    bad = ~np.isfinite(weight) | (weight < 0)
    if bad.any():
        raise DataError(bad_rows("weight", bad, "rows are negative or missing", weight))
    bad = (weight > 0) & ((weight < MIN_WEIGHT) | (weight > MAX_WEIGHT))  # products of a few are out of range
    if bad.any():
        problem = f"rows are neither 0 nor from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        raise DataError(f"{bad_rows('weight', bad, problem, weight)} Divide all by their mean.")
    return weight


def floats(values: Any, column: str) -> FloatArray:
    """Turn a column of numbers, or of text that spells numbers, into floats; missing is NaN, as what a mask hides."""
    if isinstance(values, pa.Array):
        values = values.to_numpy(zero_copy_only=False)
    elif hasattr(values, "to_numpy"):  # chunks of Arrow, pandas, polars
        values = values.to_numpy()
    try:
        numbers = unmasked(values, np.nan)
        if numbers.dtype.kind == "c":
            raise TypeError
        numbers = numbers.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        for row, value in enumerate(values if is_listing(values) else ()):
            if not _is_number(value):
                raise DataError(
                    f"column '{column}': row {row} (from 0) holds {shown(value)}, which is no number."
                ) from None
        raise DataError(f"column '{column}' holds no numbers, but {shown(values)}.") from None
    if numbers.ndim != 1:
        raise DataError(f"column '{column}': expected one number per row, got shape {numbers.shape}.")
    return numbers


def _is_number(value: Any) -> bool:
    if value is None or value is np.ma.masked:
        return True
    try:
        return not np.iscomplexobj(value) and np.ndim(value) == 0 and isinstance(float(value), float)
    except (TypeError, ValueError, OverflowError):
        return False


def encode_matrix(matrix: Any, missing: Any, items: Any, annotators: Any, numbers: bool) -> dict[str, Any]:
    """The columns of an items × annotators matrix, and the names of both; see `Annotations.from_matrix`."""
    if hasattr(matrix, "columns"):
        columns = matrix.column_names if isinstance(matrix, pa.Table) else list(matrix.columns)
        annotators = columns if annotators is None else annotators
        items = list(matrix.index) if items is None and hasattr(matrix, "index") else items
        if any(isinstance(name, tuple) for name in (*annotators, *(() if items is None else items))):
            raise DataError("the frame's rows or columns are named on several levels; give them one.")
    try:
        if isinstance(matrix, list):  # which may hold np.ma.masked
            with catch_warnings(action="ignore", category=UserWarning):
                matrix = np.ma.asarray(matrix)
        hidden = np.ma.getmaskarray(matrix) if np.ma.isMaskedArray(matrix) else np.False_
        matrix = np.asarray(matrix)
    except ValueError as error:
        raise DataError(f"expected an items × annotators matrix ({error}).") from None
    if matrix.ndim != 2:
        raise DataError(f"expected an items × annotators matrix, got shape {matrix.shape}.")
    if missing is ...:
        missing = None if numbers else -1
    empty = hidden | np.False_ if missing is None else hidden | (matrix == missing)
    if matrix.dtype.kind in "fO":
        empty = empty | (matrix != matrix) | (matrix == np.array(None))  # NaN differs from itself
    names = []
    for what, given, n in (("items", items, matrix.shape[0]), ("annotators", annotators, matrix.shape[1])):
        names.append(np.arange(n) if given is None else np.asarray(given))
        if len(names[-1]) != n or len(set(names[-1].tolist())) != n:
            raise DataError(f"{what}: expected {n:,} different names for a matrix of shape {matrix.shape}.")
    i, a = np.nonzero(~np.asarray(empty, bool))
    columns = {"item": names[0][i], "annotator": names[1][a], "label": matrix[i, a]}
    return columns | {"items": names[0], "annotators": names[1]}
