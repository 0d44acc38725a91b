import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from PIL import Image

from dissensus.features.exceptions import NotAnImage, NotAText, PixelsOutOfRange, SingleString
from dissensus.learning import inputs
from dissensus.learning.exceptions import (
    FeatureNotFinite,
    InputsWithoutRows,
    NotNumbers,
    NotTwoDimensional,
    WrongInputRow,
)
from faults import raised


@pytest.mark.parametrize(
    "X",
    [["a", ""], np.array(["a", ""]), np.array(["a", ""], object), pd.Series(["a", ""]), pl.Series(["a", ""]),
     pa.chunked_array([["a", ""]]), pd.DataFrame({"text": ["a", ""]}), pa.table({"text": ["a", ""]})],
)  # fmt: skip
def test_texts_from_every_kind_of_column(X):
    assert inputs.to_texts(X) == ["a", ""]
    assert inputs.count_rows(X) == 2
    assert inputs.to_texts(inputs.take_rows(X, np.array([1, 0]))) == ["", "a"]


@pytest.mark.parametrize(
    "X", [[("a b", 1), ("c", 0)], pd.DataFrame({"t": ["a b", "c"], "p": [1, 0]}), [["a b", 1], ["c", 0]]]
)
def test_pairs_from_two_columns_or_tuples(X):
    assert inputs.to_pairs(X) == [("a b", 1), ("c", 0)]
    assert inputs.to_pairs(inputs.take_rows(X, [1])) == [("c", 0)]


@pytest.mark.parametrize("X", [pd.DataFrame({"x": [1.0, 2.0]}, index=[7, 9]), pl.DataFrame({"x": [1.0, 2.0]})])
def test_some_rows_of_one_feature_are_a_table_still(X):
    assert inputs.to_vectors(inputs.take_rows(X, np.array([1]))).tolist() == [[2.0]]


@pytest.mark.parametrize(
    "X", [np.eye(2), np.eye(2).tolist(), pd.DataFrame(np.eye(2)), pl.DataFrame({"a": [1, 0], "b": [0, 1]})]
)
def test_vectors_from_arrays_and_frames(X):
    np.testing.assert_array_equal(inputs.to_vectors(X), np.eye(2, dtype=np.float32))


@pytest.mark.parametrize(
    "X", [pd.DataFrame({"a": [1, 2]}), pa.table({"a": [1, 2]}), pl.DataFrame({"a": [1, 2]}).lazy()]
)
def test_one_column_of_a_frame_is_one_feature(X):
    assert inputs.to_vectors(X).tolist() == [[1.0], [2.0]]
    assert inputs.count_rows(X) == 2


def test_tokens_are_given_or_parted_by_spaces():
    assert inputs.to_tokens("a  bc", 0) == ["a", "bc"]
    assert inputs.to_tokens("a \xa0 bc\n", 0) == ["a", "\xa0", "bc"]  # a no-break space is a token of gimpel_pos
    assert inputs.to_tokens(("a", "bc"), 0) == ["a", "bc"]
    with raised(WrongInputRow, row=3, value="7"):
        inputs.to_tokens(7, 3)


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
    found = inputs.to_images(form(pixels))
    assert {image.dtype for image in found} == {np.dtype(np.uint8)}
    np.testing.assert_array_equal(np.stack(found), pixels if pixels.ndim == 4 else pixels[..., None])


def test_images_may_differ_in_size_and_be_black_and_white():
    found = inputs.to_images([np.eye(2, dtype=bool), COLOUR[0]])
    np.testing.assert_array_equal(found[0][..., 0], 255 * np.eye(2))
    assert [image.shape for image in found] == [(2, 2, 1), (4, 2, 3)]
    assert inputs.to_images(COLOUR[:0]) == []


def test_a_larger_image_is_the_bilinear_one():
    image = np.random.default_rng(0).integers(0, 256, (3, 4, 2), dtype=np.uint8)
    found = inputs.resize_image(image, (6, 9))
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
    found = inputs.resize_image(image, size)
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found.astype(int), expected.astype(int), atol=1)


def test_an_image_of_the_size_is_left_as_it_is():
    image = COLOUR[0]
    assert inputs.resize_image(image, (4, 2)) is image


def pairs_of_texts(X):
    return inputs.to_pairs(X, "texts")


@pytest.mark.parametrize(
    ("X", "ask", "error", "facts"),
    [
        (["a", None], inputs.to_texts, NotAText, {"argument": "X", "row": 1, "value": "None"}),
        ("abc", inputs.to_texts, SingleString, {"argument": "X"}),
        ([("a", 1), "ab"], pairs_of_texts, WrongInputRow, {"row": 1, "value": "'ab'", "expected": "a pair of texts"}),
        ([[1.0], [np.nan]], inputs.to_vectors, FeatureNotFinite, {"row": 1, "column": 0, "n_values": 1, "n_rows": 1}),
        ([["a"]], inputs.to_vectors, NotNumbers, {}),
        ([1.0, 2.0], inputs.to_vectors, NotTwoDimensional, {"shape": (2,)}),
        (np.ones((3, 0)), inputs.to_vectors, NotTwoDimensional, {"shape": (3, 0)}),
        (7, inputs.count_rows, InputsWithoutRows, {"type_name": "int"}),
        ([GREY[0], "cat.png"], inputs.to_images, NotAnImage, {"row": 1, "got": "'cat.png'"}),
        ([[["a", "b"]]], inputs.to_images, NotAnImage, {"row": 0, "got": "of shape (1, 2, 1), <U1"}),
        ([GREY[0], None], inputs.to_images, NotAnImage, {"row": 1, "got": "None"}),
        ([[[1, 2], [3]]], inputs.to_images, NotAnImage, {"row": 0}),
        (np.zeros((2, 5)), inputs.to_images, NotAnImage, {"row": 0, "got": "of shape (5,), float64"}),
        (
            [COLOUR[0], np.zeros((3, 8, 9))],
            inputs.to_images,
            NotAnImage,
            {"row": 1, "got": "of shape (3, 8, 9), float64"},
        ),
        (np.zeros((2, 0, 4)), inputs.to_images, NotAnImage, {"row": 0, "got": "of shape (0, 4, 1), float64"}),
        (COLOUR.astype(float), inputs.to_images, PixelsOutOfRange, {"row": 0, "low": 0, "high": 115}),
        ([GREY[0], GREY[0] * np.nan], inputs.to_images, PixelsOutOfRange, {"row": 1}),
        ([GREY[0].astype(int) - 1], inputs.to_images, PixelsOutOfRange, {"row": 0, "low": -1, "high": 219}),
        ([GREY[0].astype(int) + 40], inputs.to_images, PixelsOutOfRange, {"row": 0, "low": 40, "high": 260}),
    ],
)
def test_what_cannot_be_used_is_named(X, ask, error, facts):
    with raised(error, **facts):
        ask(X)
