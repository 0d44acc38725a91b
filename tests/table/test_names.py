import zlib

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from facts import raises
from strategies import names

KINDS = {
    "list": list,
    "numpy": np.array,
    "object": lambda values: np.array(values, object),
    "arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([values[:2], values[2:]], type=pa.array(values).type),
    "dictionary": lambda values: pa.array(values).dictionary_encode(),
    "string view": lambda values: pa.array(values, pa.string_view() if isinstance(values[0], str) else None),
    "pandas": pd.Series,
    "categorical": lambda values: pd.Series(
        pd.Categorical(values, categories=[*sorted(set(values)), type(values[0])(99)])
    ),
    "polars": pl.Series,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [["b", "a", "ä", "b", "B"], [30, -2, 7, 30, 10**12]])
def test_codes_point_into_sorted_names_whatever_holds_the_column(kind, values):
    found, codes = naming.encode_column(naming.to_column(KINDS[kind](values), "item"), "item")
    assert found.tolist() == sorted(set(values))
    assert found[codes].tolist() == values
    assert codes.dtype == np.int32


@given(st.integers(1, 9).flatmap(lambda n: names(n)), st.data())
def test_encode_equals_sorting_the_distinct_values(distinct, data):
    values = data.draw(st.lists(st.sampled_from(distinct), min_size=1, max_size=40))
    found, codes = naming.encode_column(naming.to_column(values, "item"), "item")
    assert found.tolist() == sorted(set(values))
    assert found[codes].tolist() == values


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "i4", "i8", "u8"])
def test_integers_of_every_width_become_the_same_names(dtype):
    found, codes = naming.encode_column(naming.to_column(np.array([5, 3, 100, 3], dtype), "item"), "item")
    assert found.tolist() == [3, 5, 100]
    assert found.dtype == np.int64
    assert codes.tolist() == [1, 0, 2, 0]


def test_unsigned_integers_keep_their_last_bits():
    big = np.array([2**60 + 1, 2**60, 2**60 + 3], np.uint64)
    found, codes = naming.encode_column(big, "item")
    assert found[codes].tolist() == big.tolist()


def test_whole_floats_are_integers_and_others_stay():
    assert naming.to_column([1.0, 2.0], "item").tolist() == [1, 2]
    found, _ = naming.encode_column(naming.to_column([2.5, 1.0], "item"), "item")
    assert found.tolist() == [1.0, 2.5]


def test_dates_become_text():
    found, _ = naming.encode_column(naming.to_column(np.array(["2024-02-01", "2023-01-31"], "M8[D]"), "item"), "item")
    assert found.tolist() == ["2023-01-31", "2024-02-01"]


def test_truth_values_are_names():
    found, codes = naming.encode_column(naming.to_column([True, False, True], "label"), "label")
    assert found.tolist() == [False, True]
    assert codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize("blank", [None, "", "  ", "\u00a0", "\x1c", "\n"])
def test_a_blank_name_is_an_error_that_says_where(blank):
    with raises(errors.MissingNames, column="item", n_bad=1, n_rows=3, row=1, value=None):
        naming.encode_column(naming.to_column(["a", blank, "b"], "item"), "item")


@pytest.mark.parametrize(("labels", "sets"), [(["a|b", "a", "", "b"], True), (["a", "b", None, "c"], False)])
def test_a_blank_label_among_sets_may_be_the_empty_set(labels, sets):
    with raises(errors.MissingSets if sets else errors.MissingLabels, n_bad=1, n_rows=4):
        naming.encode_column(naming.to_column(labels, "label"), "label")


def test_nan_is_a_missing_name():
    with raises(errors.MissingNames, column="item", n_bad=1, n_rows=2, row=1, value=None):
        naming.encode_column(naming.to_column([1.5, np.nan], "item"), "item")
    with raises(errors.MissingNames, column="item", n_bad=1, n_rows=2, row=0, value=None):
        naming.encode_column(naming.to_column([np.nan, 3.0], "item"), "item")


@pytest.mark.parametrize("values", [[1, "1"], np.array(["1", 1], object), [True, 1], [1.5, "a"]])
def test_kinds_that_differ_only_in_type_are_an_error(values):
    with raises(errors.MixedTypes, column="item"):
        naming.to_column(values, "item")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([2**70], (errors.UnstorableName, {"column": "item"})),
        (["\ud800"], (errors.UnstorableName, {"column": "item"})),
        ([b"a"], (errors.UnsupportedType, {"column": "item", "type": "binary"})),
        ([["a"]], (errors.UnsupportedType, {"column": "item", "type": "list<item: string>"})),
        (np.zeros((2, 3), int), (errors.WrongColumn, {"column": "column 'item'", "expected": "one dimension"})),
        (np.array([["a"]]), (errors.WrongColumn, {"column": "column 'item'", "expected": "one dimension"})),
    ],
)
def test_what_cannot_be_a_name_is_an_error(values, message):
    with raises(message[0], **message[1]):
        naming.to_column(values, "item")


def test_integers_beyond_64_signed_bits_are_an_error():
    with raises(errors.IntegerTooLarge, value=9223372036854775808):
        naming.encode_column(np.array([1, 2**63], np.uint64), "item")


def test_no_rows_give_no_names():
    for empty in ([], np.empty(0, int), pa.array([], pa.string())):
        found, codes = naming.encode_column(naming.to_column(empty, "item"), "item")
        assert found.size == codes.size == 0


def test_match_finds_positions_in_any_order():
    assert naming.match_names(np.array(["b", "x"], object), np.array(["c", "b", "a"], object), "items").tolist() == [
        1,
        -1,
    ]
    assert naming.match_names(np.array([5, 9, 7]), np.array([7, 5, 1, 2]), "items").tolist() == [1, -1, 0]
    assert naming.match_names(np.array([5]), np.array([]), "items").tolist() == [-1]


def test_match_refuses_to_compare_text_with_integers():
    with raises(errors.DifferentNameTypes, names="items", type="integers", other_type="text", other_name="1"):
        naming.match_names(np.array(["1"], object), np.array([1]), "items")


def test_declared_names_keep_their_order_and_take_the_kind_of_the_column():
    assert naming.check_declared_names(["b", "a"], pa.array(["a"]), "classes").tolist() == ["b", "a"]
    assert naming.check_declared_names(["2", "10"], np.array([1]), "classes").tolist() == [2, 10]
    assert naming.check_declared_names(["2", "10"], pa.array([1, None]), "classes").tolist() == [2, 10]
    assert naming.check_declared_names(3, pa.array(["a"]), "classes").tolist() == ["0", "1", "2"]
    assert naming.check_declared_names(np.int64(2), np.array([1]), "classes").tolist() == [0, 1]


def test_a_name_declared_twice_or_blank_is_an_error():
    with raises(errors.DuplicateName, location="classes", name="a"):
        naming.check_declared_names(["a", "b", "a"], pa.array(["a"]), "classes")
    with raises(errors.WrongColumn, column="classes", description="['a', '']"):
        naming.check_declared_names(["a", ""], pa.array(["a"]), "classes")


def test_hashes_are_the_same_in_every_process():
    def splitmix(x):  # Steele, Lea & Flood 2014, in plain integers
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    assert splitmix(0) == 0xE220A8397B1DCDAF  # the generator's published first output for seed 0
    assert naming.hash_names(np.array([0, 1, 7])).tolist() == [splitmix(0), splitmix(1), splitmix(7)]
    assert naming.hash_names(np.array(["a", "é"], object)).tolist() == [
        splitmix(zlib.crc32(b)) for b in (b"a", "é".encode())
    ]


@pytest.mark.parametrize(("n", "dtype"), [(1, np.int8), (128, np.int8), (129, np.int16), (32769, np.int32)])
def test_codes_take_the_smallest_type(n, dtype):
    assert naming.smallest_int_type(n) is dtype


def test_long_names_are_cut_in_errors():
    assert quote_name("y" * 10**6) == "'" + "y" * 56 + "…'"
    assert quote_name(np.int64(3)) == "3"
