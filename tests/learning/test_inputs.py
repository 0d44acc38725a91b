import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from PIL import Image

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


@pytest.mark.parametrize("X", [pd.DataFrame({"x": [1.0, 2.0]}, index=[7, 9]), pl.DataFrame({"x": [1.0, 2.0]})])
def test_some_rows_of_one_feature_are_a_table_still(X):
    assert inputs.vectors(inputs.take(X, np.array([1]))).tolist() == [[2.0]]


@pytest.mark.parametrize(
    "X", [np.eye(2), np.eye(2).tolist(), pd.DataFrame(np.eye(2)), pl.DataFrame({"a": [1, 0], "b": [0, 1]})]
)
def test_vectors_from_arrays_and_frames(X):
    np.testing.assert_array_equal(inputs.vectors(X), np.eye(2, dtype=np.float32))


@pytest.mark.parametrize(
    "X", [pd.DataFrame({"a": [1, 2]}), pa.table({"a": [1, 2]}), pl.DataFrame({"a": [1, 2]}).lazy()]
)
def test_one_column_of_a_frame_is_one_feature(X):
    assert inputs.vectors(X).tolist() == [[1.0], [2.0]]
    assert inputs.rows(X) == 2


def test_tokens_are_given_or_parted_by_spaces():
    assert inputs.tokens("a  bc", 0) == ["a", "bc"]
    assert inputs.tokens("a \xa0 bc\n", 0) == ["a", "\xa0", "bc"]  # a no-break space is a token of gimpel_pos
    assert inputs.tokens(("a", "bc"), 0) == ["a", "bc"]
    with pytest.raises(DataError, match="row 3 is 7, not tokens"):
        inputs.tokens(7, 3)


GREY = np.arange(12, dtype=np.uint8).reshape(1, 3, 4) * 20
COLOUR = np.arange(48, dtype=np.uint8).reshape(2, 4, 2, 3) * 5


@pytest.mark.parametrize("pixels", [GREY, COLOUR])
@pytest.mark.parametrize(
    "form",
    [np.asarray, list, lambda x: x.tolist(), lambda x: x / 255, lambda x: (x / 255).astype(np.float32),
     lambda x: (x / 255).astype(np.float16), lambda x: x / 255 + 1e-7, lambda x: x.astype(np.int64),
     lambda x: pd.Series(list(x)), lambda x: pl.Series(x.tolist()), lambda x: pa.array(x.tolist()),
     lambda x: pd.DataFrame({"image": list(x)}), torch.tensor],
)  # fmt: skip
def test_images_from_arrays_lists_and_columns(pixels, form):
    found = inputs.images(form(pixels))
    assert {image.dtype for image in found} == {np.dtype(np.uint8)}
    np.testing.assert_array_equal(np.stack(found), pixels if pixels.ndim == 4 else pixels[..., None])


def test_images_may_differ_in_size_and_be_black_and_white():
    found = inputs.images([np.eye(2, dtype=bool), COLOUR[0]])
    np.testing.assert_array_equal(found[0][..., 0], 255 * np.eye(2))
    assert [image.shape for image in found] == [(2, 2, 1), (4, 2, 3)]
    assert inputs.images(COLOUR[:0]) == []


def test_a_larger_image_is_the_bilinear_one():
    image = np.random.default_rng(0).integers(0, 256, (3, 4, 2), dtype=np.uint8)
    found = inputs.resized(image, (6, 9))
    for r, c in np.ndindex(6, 9):
        y, x = np.clip((r + 0.5) * 3 / 6 - 0.5, 0, 2), np.clip((c + 0.5) * 4 / 9 - 0.5, 0, 3)
        top, left = min(int(y), 1), min(int(x), 2)
        fy, fx = y - top, x - left
        square = image[top : top + 2, left : left + 2].astype(float)
        value = np.einsum("y,x,yxc->c", [1 - fy, fy], [1 - fx, fx], square)
        np.testing.assert_allclose(found[r, c], value, atol=0.5 + 1e-3)


@pytest.mark.parametrize("size", [(5, 3), (20, 4), (9, 31), (1, 1)])
def test_a_resized_image_is_that_of_pillow(size):
    image = np.random.default_rng(0).integers(0, 256, (13, 17, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))
    found = inputs.resized(image, size)
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found.astype(int), expected.astype(int), atol=1)


def test_an_image_of_the_size_is_left_as_it_is():
    image = COLOUR[0]
    assert inputs.resized(image, (4, 2)) is image


@pytest.mark.parametrize(
    ("X", "ask", "sentence"),
    [
        (["a", None], inputs.texts, "row 1 is None, not a text"),
        ("abc", inputs.texts, "X is one string"),
        ([("a", 1), "ab"], inputs.pairs, "row 1 is 'ab', not a pair"),
        ([[1.0], [np.nan]], inputs.vectors, r"X has nan in row 1, column 0 \(1 such values in 1 rows\)"),
        ([["a"]], inputs.vectors, "X must hold numbers"),
        ([1.0, 2.0], inputs.vectors, "1 dimensions"),
        (np.ones((3, 0)), inputs.vectors, "X has no columns, for 3 items"),
        (7, inputs.rows, "got int"),
        ([GREY[0], "cat.png"], inputs.images, "row 1 is 'cat.png', not an image"),
        ([[["a", "b"]]], inputs.images, r"row 0 is of shape \(1, 2\), <U1, not an image"),
        ([GREY[0], None], inputs.images, "row 1 is None, not an image"),
        ([[[1, 2], [3]]], inputs.images, "row 0 is .*, not an image; give numbers, height × width"),
        (np.zeros((2, 5)), inputs.images, r"row 0 is of shape \(5,\), float64, not an image"),
        ([COLOUR[0], np.zeros((3, 8, 9))], inputs.images, r"row 1 .* shape \(3, 8, 9\); .* channels, which come last"),
        (np.zeros((2, 0, 4)), inputs.images, "row 0 .* at least one pixel"),
        (COLOUR.astype(float), inputs.images, "row 0 has pixels from 0 to 115; give whole numbers up to 255 or floats"),
        ([GREY[0], GREY[0] * np.nan], inputs.images, "row 1 has pixels from nan to nan"),
        ([GREY[0].astype(int) - 1], inputs.images, "row 0 has pixels from -1 to 219"),
        ([GREY[0].astype(int) + 40], inputs.images, "row 0 has pixels from 40 to 260"),
    ],
)
def test_what_cannot_be_used_is_named(X, ask, sentence):
    with pytest.raises(DataError, match=sentence):
        ask(X)
