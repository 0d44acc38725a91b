"""Convert columns of names to codes, and check labels, distributions, weights and numbers.

A column of ids or labels is converted to sorted distinct names and int32 codes. It may be an Arrow array, a NumPy
array, a list, or a series of pandas or polars. Names are int64, float64, bool, or object arrays of `str`; text is
sorted by code point. All values of a column must have one type: a column with both 1 and "1" is an error, because it is
unclear whether they are the same name.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Integral
from typing import Any, NoReturn
from warnings import catch_warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.arrays import fill_masked
from dissensus.common.exceptions import OutOfRange
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.messages import ParameterName, quote_name
from dissensus.table import exceptions as errors
from dissensus.table.notes import SpellingVariants

MAX_NUMBERED_CLASSES = 1_000_000  # maximum of `classes=` if it is a number
MIN_WEIGHT, MAX_WEIGHT = 1e-9, 1e9  # Products of a few weights outside this range may overflow or underflow.
MAX_SUM_ERROR = 1e-4  # largest accepted deviation from 1 of a row's sum of probabilities
CHUNK = 2**15  # integers that are encoded together; they fit into the processor's cache


def to_column(values: Any, column: str) -> Any:
    """Convert values to an integer or boolean NumPy array, or to an Arrow array of one type.

    Masked values become missing values, which only an Arrow array can contain.
    """
    mask: BoolArray | None = None
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise _wrong_shape_error(f"column '{column}'", "one dimension", values)
        if np.ma.isMaskedArray(values) and values.mask.any():
            mask = np.ma.getmaskarray(values)
        values = np.asarray(values)
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        if values.dtype.kind in "iub" and mask is None:
            return values
    if hasattr(values, "to_arrow"):  # polars, narwhals
        values = values.to_arrow()
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        if not isinstance(values, np.ndarray) and not hasattr(values, "__arrow_array__"):
            values = np.asarray(values) if hasattr(values, "dtype") else _to_list(values, column)
        try:
            # With from_pandas, NaN in an object column means missing, as in pandas.
            values = pa.array(values, from_pandas=True, mask=mask)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise _mixed_types_error(values, column) from error
        except (OverflowError, UnicodeEncodeError) as error:  # an integer of more than 64 bits, or a lone surrogate
            raise errors.UnstorableName(column=column, reason=str(error)) from None
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string_view(values.type):  # Arrow cannot sort string views.
        values = values.cast(pa.large_string())
    kind = values.type
    if pa.types.is_floating(kind):
        values = _whole_floats_to_integers(values)
    elif pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    elif not (pa.types.is_null(kind) or is_text_type(kind) or _is_integer_type(kind)):
        raise errors.UnsupportedType(column=column, type=str(kind))
    return _integers_to_numpy(values)


def to_arrow_array(values: Any, column: str) -> Any:
    """Convert values as `to_column` does, but always to one Arrow array without chunks."""
    column_array = to_column(values, column)
    return column_array.combine_chunks() if isinstance(column_array, pa.ChunkedArray) else pa.array(column_array)


def _integers_to_numpy(column: Any) -> Any:
    """Convert integers and booleans without missing values to NumPy; return other columns unchanged."""
    if isinstance(column, np.ndarray) or column.null_count or not _is_integer_type(column.type):
        return column
    return np.asarray(column)


def is_collection(values: Any) -> bool:
    """Return True for iterables, except zero-dimensional arrays."""
    return isinstance(values, Iterable) and (not isinstance(values, np.ndarray) or values.ndim > 0)


def _to_list(values: Any, column: str) -> list[Any]:
    if not is_collection(values):
        found = quote_name(values)
        raise errors.WrongColumn(column=f"column '{column}'", expected="a list or an array", description=found)
    return [None if value is np.ma.masked else value for value in values]


def check_codes(codes: Any, n: int, what: str) -> None:
    """Raise unless codes (N,) are integers from 0 to n − 1, because compiled loops use them as addresses."""
    codes = np.asarray(codes)
    if codes.ndim != 1 or codes.dtype.kind not in "iub":
        found = f"{codes.dtype} of shape {codes.shape}"
        raise errors.WrongColumn(column=what, expected="one vector of integer codes", description=found)
    if codes.size and not (codes.min() >= 0 and codes.max() < n):
        raise errors.CodeOutsideNames(name=what, code=int(codes.min() if codes.min() < 0 else codes.max()), n=n)


def missing_rows(column: Any) -> BoolArray:
    """Return the mask (N,) of rows without a name (null, NaN or blank text) in a column from `to_column`."""
    if isinstance(column, np.ndarray):
        return np.zeros(column.size, np.bool_)
    missing = column.is_null(nan_is_null=True)
    if is_text_type(column.type):
        blank = [name for name in column.unique().to_pylist() if name is not None and not name.strip()]
        missing = pc.or_(missing, pc.is_in(column, value_set=pa.array(blank, column.type)))
    return np.asarray(missing, dtype=np.bool_)


def encode_column(column: Any, what: str) -> tuple[Names, IntArray]:
    """Return the sorted names of a column from `to_column` and the code of each row; raise if a name is missing."""
    column = _integers_to_numpy(column)
    if isinstance(column, np.ndarray) and column.dtype.kind != "b":
        return _encode_integers(column)
    if isinstance(column, np.ndarray) or pa.types.is_floating(column.type):
        names, codes = np.unique(column, return_inverse=True)
        if names.dtype.kind == "f" and np.isnan(names).any():
            _raise_missing(column, what)
        return names, codes.astype(np.int32)
    if column.null_count:
        _raise_missing(column, what)
    names, codes = _encode_hashed(column)
    if names.dtype == object and (not all(names.tolist()) or any(map(str.isspace, names.tolist()))):
        _raise_missing(column, what)
    return names, codes


def translate_codes(codes: IntArray, names: Names, into: Names, what: str) -> IntArray:
    """Translate codes into `names` to codes into `into`, or −1 for names that are not in `into`."""
    return np.append(match_names(names, into, what), -1).astype(np.int32)[codes]


def match_names(names: Names, into: Names, what: str) -> IntArray:
    """Return the position of each name in `into`, or −1 if it is not there; raise if the types differ."""
    if names.size == 0 or into.size == 0:
        return np.full(names.size, -1, np.int32)
    types = _describe_type(into), _describe_type(names)
    if types[0] != types[1] and set(types) != {"integers", "numbers"}:
        raise errors.DifferentNameTypes(
            names=what, type=types[0], name=into[0], other_type=types[1], other_name=names[0]
        )
    if types[1] != "text":
        order = np.argsort(into, kind="stable")
        at = order[np.minimum(np.searchsorted(into, names, sorter=order), into.size - 1)]
        return np.where(into[at] == names, at, -1).astype(np.int32)
    positions = {name: position for position, name in enumerate(into.tolist())}
    return np.fromiter((positions.get(name, -1) for name in names.tolist()), np.int32, names.size)


def check_declared_names(names: Iterable[Any] | int, like: Any, what: str) -> Names:
    """Return declared names in their order, converted to the type of the column `like` if that is possible."""
    if isinstance(names, Integral):
        check_argument(what, names, int, low=0, high=MAX_NUMBERED_CLASSES)
        values: list[Any] = list(range(int(names)))
    elif is_collection(names) and not isinstance(names, str | bytes):
        values = _to_list(names, what)
    else:
        raise OutOfRange(name=ParameterName(what), allowed="be a list of names, or their number", value=names)
    column = to_column(values, what)
    kind, wanted = _arrow_type_of(column), _arrow_type_of(like)
    if pa.types.is_integer(wanted) and is_text_type(kind):
        with suppress(ValueError, TypeError):  # The command line passes integers as text.
            column = np.array([int(value) for value in values], np.int64)
    elif is_text_type(wanted) and _is_integer_type(kind):
        column = pa.array([str(value) for value in values])
    if missing_rows(column).any():
        raise errors.WrongColumn(column=what, expected="names that are not blank", description=quote_name(values))
    result = to_names(column)
    result = result.astype(np.int64) if result.dtype.kind in "iu" else result
    for name, count in Counter(result.tolist()).items():
        if count > 1:
            raise errors.DuplicateName(location=what, name=name, n=count)
    return result


def to_names(column: Any) -> Names:
    """Convert a column from `to_column` to a NumPy array of names; text becomes an object array of `str`."""
    if isinstance(column, np.ndarray):
        return column
    return np.array(column.to_pylist(), object) if is_text_type(column.type) else np.asarray(column)


def hash_names(names: Names) -> IntArray:
    """Return a 64-bit hash of each name (n,), which is the same on every machine and in every process."""
    if names.dtype.kind in "iub":
        return np.asarray(scramble_integers(names.astype(np.int64).view(np.uint64)))
    return np.asarray(scramble_integers([zlib.crc32(str(name).encode()) for name in names.tolist()]))


def scramble_integers(x: Any) -> Any:
    """Map 64-bit integers to pseudo-random ones by a bijection (the finaliser of SplitMix64)."""
    x = np.asarray(x, np.uint64)
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def smallest_int_type(n: int) -> type[np.signedinteger[Any]]:
    """Return the smallest signed integer type that can hold the codes −1 to n − 1."""
    return np.int8 if n <= 2**7 else np.int16 if n <= 2**15 else np.int32


def check_fits_int64(name: int) -> None:
    """Raise for an unsigned integer that would overflow to a negative one."""
    if name > np.iinfo(np.int64).max:
        raise errors.IntegerTooLarge(value=name)


def _encode_integers(values: IntArray) -> tuple[Names, IntArray]:
    if values.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    low, high = int(values.min()), int(values.max())
    check_fits_int64(high)
    span = high - low + 1
    if span > 4 * values.size + 1024:
        names, codes = _encode_hashed(pa.array(values))
        return names.astype(np.int64), codes

    def offsets_from_lowest(rows: slice) -> IntArray:
        chunk = values[rows].astype(np.int64, copy=False)  # Differences may not fit into the type of the values.
        return chunk - low if low else chunk

    chunks = [slice(start, start + CHUNK) for start in range(0, values.size, CHUNK)]
    seen = np.zeros(span, np.bool_)
    for rows in chunks:
        seen[offsets_from_lowest(rows)] = True
        if seen.all():  # Without gaps, the code of a name is its difference from the lowest name.
            codes = offsets_from_lowest(slice(None)) if low else values
            return np.arange(low, high + 1), codes.astype(np.int32, copy=False)
    code = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    codes = np.empty(values.size, np.int32)
    for rows in chunks:
        codes[rows] = code[offsets_from_lowest(rows)]
    return np.flatnonzero(seen) + low, codes


def _encode_hashed(column: Any) -> tuple[Names, IntArray]:
    encoded = column.dictionary_encode()  # All chunks share one dictionary.
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    if len(encoded) == 0:
        return np.empty(0, object if is_text_type(column.type) else np.int64), np.empty(0, np.int32)
    dictionary = chunks[-1].dictionary
    order = np.asarray(pc.sort_indices(dictionary))
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    codes = np.concatenate([rank[np.asarray(chunk.indices)] for chunk in chunks])
    return to_names(dictionary.take(order)), codes


def is_text_type(kind: Any) -> bool:
    """Return True for an Arrow type that holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _arrow_type_of(column: Any) -> Any:
    return pa.from_numpy_dtype(column.dtype) if isinstance(column, np.ndarray) else column.type


def _is_integer_type(kind: Any) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind))


def _whole_floats_to_integers(values: Any) -> Any:
    """Convert floats to integers if all are whole, because pandas stores integers with missing values as floats."""
    array = np.asarray(values).astype(np.float64, copy=False)  # Half precision is exact only for small integers.
    known = array[~np.isnan(array)]
    values = pa.array(array, from_pandas=True)
    if known.size and np.all(np.isfinite(known)) and np.all(known == np.floor(known)) and np.abs(known).max() < 2**53:
        return values.cast(pa.int64())
    return values


def _describe_type(names: Names) -> str:
    return {"i": "integers", "u": "integers", "f": "numbers", "b": "truth values"}.get(names.dtype.kind, "text")


def _raise_missing(column: Any, what: str) -> NoReturn:
    """Raise the error about missing names in a column."""
    missing = missing_rows(column)
    error = errors.MissingLabels if what == "label" else errors.MissingNames
    if what == "label" and not isinstance(column, np.ndarray) and is_text_type(column.type):
        from dissensus.table.kinds import look_like_sets  # imports this module

        if look_like_sets(_encode_hashed(column.filter(pa.array(~missing)))[0]):
            error = errors.MissingSets
    raise error.from_mask(what, missing, np.full(missing.size, None))


def _mixed_types_error(values: Any, column: str) -> errors.MixedTypes | errors.UnsupportedType:
    examples: dict[str, tuple[int, str]] = {}
    for row, value in enumerate(values):
        examples.setdefault(type(value).__name__, (row, str(value)))
    if len(examples) == 1:
        return errors.UnsupportedType(column=column, type=next(iter(examples)))
    return errors.MixedTypes(column=column, example_by_type=examples)


def fold_spelling(value: Any) -> Any:
    """Return text in lower case with single spaces; return other values unchanged."""
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def group_spellings(classes: Iterable[Any]) -> dict[Any, list[Any]]:
    """Return unified spelling (lower case, single spaces) → classes with this spelling."""
    variants: dict[Any, list[Any]] = {}
    for label in classes:
        variants.setdefault(fold_spelling(label), []).append(label)
    return variants


def find_spelling_variants(classes: Iterable[Any]) -> SpellingVariants | None:
    """Return a note about classes that differ only by capitals or spaces, or None if there are none."""
    several = tuple(tuple(labels) for labels in group_spellings(map(str, classes)).values() if len(labels) > 1)
    return SpellingVariants(variants=several) if several else None


def encode_names(column: Any, what: str, all_names: Any) -> tuple[Names, IntArray]:
    """Return the sorted names, or `all_names` if it is given, and the code of each row."""
    names, codes = encode_column(column, what)
    if all_names is None:
        return names, codes
    everything, _ = encode_column(to_column(all_names, f"{what}s"), f"{what}s")
    positions = match_names(names, everything, f"{what}s")
    if (positions < 0).any():
        raise errors.UndeclaredName(role=what, name=names[positions < 0][0])
    return everything, positions[codes] if codes.size else codes


def encode_labels(column: Any, classes: Any, abstain: Any) -> tuple[Names, IntArray, BoolArray | None]:
    """Return the classes, the label codes of the remaining rows, and their mask (None if all rows remain).

    Rows whose label is in `abstain` are removed; None, NaN and "" in `abstain` stand for a missing label.
    """
    keep: BoolArray | None = None
    if answers := list_abstentions(abstain):
        column = to_arrow_array(column, "label")
        excluded_labels = [
            answer for answer in answers if answer is not None and answer == answer and str(answer).strip()
        ]  # NaN ≠ NaN
        keep = ~missing_rows(column)
        if len(excluded_labels) == len(answers) and not keep.all():
            _raise_missing(column, "label")
        if excluded_labels:
            values = check_declared_names(excluded_labels, column, "abstain")
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError):  # Abstentions of another type do not occur.
                keep &= ~np.asarray(pc.is_in(column, value_set=pa.array(values, column.type)))
        column = to_column(
            column.take(np.flatnonzero(keep)), "label"
        )  # Without missing values, integers are converted to NumPy.
    label_names, codes = encode_column(column, "label")
    if classes is None:
        return label_names, codes, keep
    names = check_declared_names(classes, column, "classes")
    if label_names.dtype.kind in "iu" and names.dtype == object:  # Integer labels are codes into text classes.
        positions = np.where((label_names >= 0) & (label_names < names.size), label_names, -1)
    else:
        positions = match_names(label_names, names, "classes")
    if (positions < 0).any():
        kept_rows = None if keep is None else np.flatnonzero(keep)
        raise errors.LabelOutsideClasses.from_mask(
            "label", positions[codes] < 0, label_names[codes], kept_rows, n_classes=names.size
        )
    return names, positions[codes] if codes.size else codes, keep


def list_abstentions(answers: Any) -> list[Any]:
    """Return the abstentions as a list, also if there is only one."""
    if answers is None or isinstance(answers, str | bytes | int | float):
        return [answers]
    labels = list(answers) if is_collection(answers) else [answers]
    if not all(answer is None or np.isscalar(answer) for answer in labels):
        raise OutOfRange(name=ParameterName("abstain"), allowed="be a label or a list of labels", value=answers)
    return labels


def encode_proba(proba: Any, classes: Iterable[Any] | int | None) -> tuple[Names, FloatArray]:
    """Return the classes, and the distributions (N, K) from a matrix or from a mapping of classes to columns.

    Rows are divided by their sum; a sum that differs from 1 by more than `MAX_SUM_ERROR` is an error.
    """
    if isinstance(proba, Mapping):
        classes = list(proba) if classes is None else range(classes) if isinstance(classes, int) else list(classes)
        if not classes:
            raise errors.WrongColumn(column="proba", expected="class → probabilities", description="no class")
        try:
            proba = np.column_stack([to_floats(proba[name], f"p_{name}") for name in classes])
        except KeyError as error:
            columns = tuple(sorted(map(str, proba)))
            raise errors.UnknownColumn(name=str(error.args[0]), role="its probability", columns=columns) from None
    try:
        proba = fill_masked(proba, np.nan)
        if proba.dtype.kind == "c":
            raise TypeError("complex ones")
        proba = np.array(proba, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.WrongColumn(column="proba", expected="numbers", description=str(error)) from None
    if proba.ndim != 2:
        expected = "one row per annotation and one column per class"
        raise _wrong_shape_error("proba", expected, proba)
    names = check_declared_names(proba.shape[1] if classes is None else classes, np.empty(0), "classes")
    if names.size != proba.shape[1]:
        raise errors.WrongColumn(column="proba", expected=f"{names.size} columns", description=str(proba.shape[1]))
    negative = ~np.isfinite(proba).all(axis=1) | (proba < 0).any(axis=1)
    if negative.any():
        raise errors.InvalidRows.from_mask("proba", negative, proba, problem="hold a negative or missing probability")
    total = proba.sum(axis=1)
    bad = np.abs(total - 1) > MAX_SUM_ERROR
    if bad.any():
        raise errors.ProbabilitiesNotNormalised.from_mask("proba", bad, proba, total=float(total[bad][0]))
    return names, np.asarray(proba / total[:, None])


def check_weight(values: Any) -> FloatArray:
    """Return the weights (N,) as floats; raise if a weight is negative, missing or extreme."""
    weight = to_floats(values, "weight")
    bad = ~np.isfinite(weight) | (weight < 0)
    if bad.any():
        raise errors.InvalidRows.from_mask("weight", bad, weight, problem="are negative or missing")
    bad = (weight > 0) & ((weight < MIN_WEIGHT) | (weight > MAX_WEIGHT))
    if bad.any():
        raise errors.ExtremeWeights.from_mask("weight", bad, weight, low=MIN_WEIGHT, high=MAX_WEIGHT)
    return weight


def to_floats(values: Any, column: str) -> FloatArray:
    """Convert a column of numbers, or of text that spells numbers, to floats; missing values become NaN."""
    if isinstance(values, pa.Array):
        values = values.to_numpy(zero_copy_only=False)
    elif hasattr(values, "to_numpy"):  # chunked Arrow arrays, pandas and polars
        values = values.to_numpy()
    try:
        numbers = fill_masked(values, np.nan)
        if numbers.dtype.kind == "c":
            raise TypeError
        numbers = numbers.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        for row, value in enumerate(values if is_collection(values) else ()):
            if not _is_number(value):
                raise errors.InvalidCell(column=column, row=row, value=value, expected="a number") from None
        raise errors.WrongColumn(
            column=f"column '{column}'", expected="numbers", description=quote_name(values)
        ) from None
    if numbers.ndim != 1:
        raise _wrong_shape_error(f"column '{column}'", "one number per row", numbers)
    return numbers


def _wrong_shape_error(column: str, expected: str, array: Any) -> errors.WrongColumn:
    return errors.WrongColumn(column=column, expected=expected, description=f"shape {array.shape}")


def _is_number(value: Any) -> bool:
    if value is None or value is np.ma.masked:
        return True
    try:
        return not np.iscomplexobj(value) and np.ndim(value) == 0 and isinstance(float(value), float)
    except (TypeError, ValueError, OverflowError):
        return False


def encode_matrix(matrix: Any, missing: Any, items: Any, annotators: Any, numbers: bool) -> dict[str, Any]:
    """Return the arguments of `Annotations.from_arrays` for an items × annotators matrix."""
    if hasattr(matrix, "columns"):
        columns = matrix.column_names if isinstance(matrix, pa.Table) else list(matrix.columns)
        annotators = columns if annotators is None else annotators
        items = list(matrix.index) if items is None and hasattr(matrix, "index") else items
        if any(isinstance(name, tuple) for name in (*annotators, *(() if items is None else items))):
            raise errors.SeveralNameLevels
    try:
        if isinstance(matrix, list):  # A list may contain np.ma.masked.
            with catch_warnings(action="ignore", category=UserWarning):
                matrix = np.ma.asarray(matrix)
        hidden = np.ma.getmaskarray(matrix) if np.ma.isMaskedArray(matrix) else np.False_
        matrix = np.asarray(matrix)
    except ValueError as error:
        raise errors.WrongColumn(column="matrix", expected="items × annotators", description=str(error)) from None
    if matrix.ndim != 2:
        raise _wrong_shape_error("matrix", "items × annotators", matrix)
    if missing is ...:
        missing = None if numbers else -1
    empty = hidden | np.False_ if missing is None else hidden | (matrix == missing)
    if matrix.dtype.kind in "fO":
        empty = empty | (matrix != matrix) | (matrix == np.array(None))  # NaN is not equal to itself.
    names = []
    for what, axis_names, n in (("items", items, matrix.shape[0]), ("annotators", annotators, matrix.shape[1])):
        names.append(np.arange(n) if axis_names is None else np.asarray(axis_names))
        if len(names[-1]) != n or len(set(names[-1].tolist())) != n:
            raise errors.WrongColumn(column=what, expected=f"{n:,} different names", description=quote_name(names[-1]))
    i, a = np.nonzero(~np.asarray(empty, bool))
    columns = {"item": names[0][i], "annotator": names[1][a], "label": matrix[i, a]}
    return columns | {"items": names[0], "annotators": names[1]}
