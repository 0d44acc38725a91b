import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dissensus.exceptions import DataError
from dissensus.learning import inputs


@pytest.mark.parametrize(
    "X",
    [["a", ""], np.array(["a", ""]), np.array(["a", ""], object), pd.Series(["a", ""]), pl.Series(["a", ""]),
     pa.chunked_array([["a", ""]]), pd.DataFrame({"text": ["a", ""]}), pa.table({"text": ["a", ""]})],
)  # fmt: skip
def test_texts_from_every_kind_of_column(X):
    assert inputs.texts(X) == ["a", ""]
    assert inputs.rows(X) == 2
    assert inputs.texts(inputs.take(X, np.array([1, 0]))) == ["", "a"]


@pytest.mark.parametrize(
    "X", [[("a b", 1), ("c", 0)], pd.DataFrame({"t": ["a b", "c"], "p": [1, 0]}), [["a b", 1], ["c", 0]]]
)
def test_pairs_from_two_columns_or_tuples(X):
    assert inputs.pairs(X) == [("a b", 1), ("c", 0)]
    assert inputs.pairs(inputs.take(X, [1])) == [("c", 0)]


@pytest.mark.parametrize(
    "X", [np.eye(2), np.eye(2).tolist(), pd.DataFrame(np.eye(2)), pl.DataFrame({"a": [1, 0], "b": [0, 1]})]
)
def test_vectors_from_arrays_and_frames(X):
    np.testing.assert_array_equal(inputs.vectors(X), np.eye(2, dtype=np.float32))


def test_tokens_are_given_or_parted_by_spaces():
    assert inputs.tokens("a  bc", 0) == ["a", "bc"]
    assert inputs.tokens("a \xa0 bc\n", 0) == ["a", "\xa0", "bc"]  # a no-break space is a token of gimpel_pos
    assert inputs.tokens(("a", "bc"), 0) == ["a", "bc"]
    with pytest.raises(DataError, match="row 3 is 7, not tokens"):
        inputs.tokens(7, 3)


@pytest.mark.parametrize(
    ("X", "ask", "sentence"),
    [
        (["a", None], inputs.texts, "row 1 is None, not a text"),
        ("abc", inputs.texts, "X is one string"),
        ([("a", 1), "ab"], inputs.pairs, "row 1 is 'ab', not a pair"),
        ([[1.0], [np.nan]], inputs.vectors, r"X has nan in row 1, column 0 \(1 such values in 1 rows\)"),
        ([["a"]], inputs.vectors, "X must hold numbers"),
        ([1.0, 2.0], inputs.vectors, "1 dimensions"),
        (7, inputs.rows, "got int"),
    ],
)
def test_what_cannot_be_used_is_named(X, ask, sentence):
    with pytest.raises(DataError, match=sentence):
        ask(X)
