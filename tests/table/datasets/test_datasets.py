from __future__ import annotations

import gzip

import numpy as np
import pytest

from dissensus import Annotations, Questions
from dissensus.common.exceptions import OutOfRange
from dissensus.exceptions import DataError, MissingColumn
from dissensus.table import exceptions as errors
from dissensus.table.datasets import list_datasets, load_dataset
from facts import raises


def put(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    if name.endswith(".gz"):
        (folder / name).write_bytes(gzip.compress(text.encode()))
    else:
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """Three annotated items of five; two annotators of whom one is described; a gold label that nobody gave."""
    small = tmp_path / "small"
    put(small, "README.md", "# A small set\nFor tests.\nOf three items.\n- source: here\n- counts: few\n")
    put(small, "annotations.csv.gz", "item,annotator,label\nc,y,2\na,x,9\nc,x,10\nb,y,2\n")
    put(small, "gold.csv", "item,label\nb,7\ne,2\na,9\n")
    put(small, "gold_other.csv.gz", "item,label\nb,2\n")
    put(
        small,
        "items.csv",
        'item,text,split,fold\ne,"five,\n""e""",test,1\na,one,train,10\nb,two,,2\nd,four,test,\nc,,train,2\n',
    )
    put(small, "annotators.csv", "annotator,age\ny,30\nz,99\n")
    np.savez(small / "features.npz", item=np.array(["d", "a", "c"]), x=np.array([[4.0, 4.5], [1.0, 1.5], [3.0, 3.5]]))
    np.savez(small / "images.npz", item=np.array(["e", "c"]), x=np.arange(1, 9, dtype=np.uint8).reshape(2, 2, 2))
    return tmp_path


def test_everything_is_aligned_with_the_annotated_items(folder):
    data = load_dataset("small", folder=folder)
    assert data.description == "A small set\nFor tests.\nOf three items."
    assert data.item_names.tolist() == ["a", "b", "c"]
    assert data.annotations.classes.tolist() == ["2", "7", "9", "10"]  # by value, with the gold's own 7
    assert data.gold.tolist() == [2, 1, -1]
    assert data.items["text"].to_pylist()[:2] == ["one", "two"]
    np.testing.assert_array_equal(data.features, np.array([[1, 1.5], [np.nan, np.nan], [3, 3.5]], np.float32))
    assert data.annotators["annotator"].to_pylist() == ["x", "y"]
    assert data.annotators["age"].to_pylist() == [None, "30"]
    assert data.has_image.tolist() == [False, False, True]
    np.testing.assert_array_equal(data.images[:, 0, 0], [0, 0, 5])
    assert data.missing_parts == (
        "small has every part; gold for 2 of its 3 items; features for 2 of its 3 items; images for 1 of its 3 items."
    )


def test_splits_hold_items_that_nobody_labelled(folder):
    data = load_dataset("small", folder=folder)
    assert list(data.splits) == ["test", "train"]
    test = data.splits["test"]
    assert test.item_names.tolist() == ["d", "e"]
    assert len(test.annotations) == 0
    assert test.gold.tolist() == [-1, 0]
    assert test.items["text"].to_pylist() == ["four", 'five,\n"e"']
    assert test.features[0].tolist() == [4.0, 4.5]
    assert list(test.splits) == ["test"]
    assert data.splits["train"].annotations.annotators.tolist() == ["x", "y"]
    assert {fold: part.item_names.tolist() for fold, part in data.split_by("fold").items()} == {
        "1": ["e"], "2": ["b", "c"], "10": ["a"],
    }  # fmt: skip
    with raises(errors.UnknownColumn, subjects=("small",), name="folds", columns=("item", "text", "split", "fold")):
        data.split_by("folds")


def test_row_order_changes_nothing(folder):
    first = load_dataset("small", folder=folder)
    for file in ("gold.csv", "items.csv", "annotators.csv"):
        head, *rows = (folder / "small" / file).read_text().replace(',\n"', ",~").splitlines()
        put(folder / "small", file, "\n".join([head, *reversed(rows)]).replace(",~", ',\n"') + "\n")
    second = load_dataset("small", folder=folder)
    assert first.with_unlabelled_items.items.equals(second.with_unlabelled_items.items)
    assert first.annotators.equals(second.annotators)
    np.testing.assert_array_equal(first.with_unlabelled_items.gold, second.with_unlabelled_items.gold)


def test_another_gold_is_read_by_name_and_a_wrong_name_is_told_which_there_are(folder):
    assert load_dataset("small", folder=folder, gold="other").gold.tolist() == [-1, 0, -1]
    with raises(errors.UnknownGold, name="small", gold="ohter", golds=("other",), has_default=True):
        load_dataset("small", folder=folder, gold="ohter")


def test_votes_without_annotators(tmp_path):
    put(tmp_path / "votes", "counts.csv", "item,label,count\nq,no,2\np,yes,3\nq,yes,1\n")
    data = load_dataset("votes", folder=tmp_path)
    assert data.annotations.votes().tolist() == [[0, 3], [2, 1]]
    assert data.description == "votes"
    lacking = "annotator ids (votes only), no gold, no item columns, no features, no annotator metadata and no splits"
    assert data.missing_parts == f"votes has no {lacking}."
    with raises(OutOfRange, name="votes", allowed="be 'counts' for 'votes'", value="annotations"):
        load_dataset("votes", folder=tmp_path, votes="annotations")


def test_a_question_column_makes_questions_over_all_items(tmp_path):
    put(tmp_path / "asked", "annotations.csv", "item,annotator,label,question\np,x,1,hot\np,x,b,kind\nq,y,0,hot\n")
    put(tmp_path / "asked", "items.csv", "item,split\np,in\nq,in\nr,out\n")
    data = load_dataset("asked", folder=tmp_path)
    assert isinstance(data.annotations, Questions)
    assert data.item_names.tolist() == ["p", "q"]
    assert data.annotations["kind"].n_items == 2
    assert data.splits["out"].annotations["hot"].items.tolist() == ["r"]


def test_a_set_written_is_the_set_read_again(folder):
    data = load_dataset("small", folder=folder)
    paths = data.write(folder / "copy", features=True)
    assert {path.name for path in paths} == {path.name for path in (folder / "copy").iterdir()}
    again = load_dataset("copy", folder=folder)
    assert again.description == data.description
    for one, other in ((data, again), (data.splits["test"], again.splits["test"])):
        for field in ("annotator", "label", "item_ptr", "items", "annotators", "classes"):
            np.testing.assert_array_equal(getattr(one.annotations, field), getattr(other.annotations, field))
        np.testing.assert_array_equal(one.gold, other.gold)
        np.testing.assert_array_equal(one.features, other.features)
        np.testing.assert_array_equal(one.images, other.images)
        assert one.items["fold"].to_pylist() == other.items["fold"].to_pylist()
    assert "features.npz" not in {path.name for path in data.write(folder / "lean")}
    data.splits["test"].write(folder / "test-only")
    assert load_dataset("test-only", folder=folder).with_unlabelled_items.item_names.tolist() == ["d", "e"]


def test_votes_and_questions_are_written_too(tmp_path):
    put(tmp_path / "votes", "counts.csv", "item,label,count\nq,no,2\np,yes,3\nq,yes,1\n")
    put(tmp_path / "ticks", "annotations.csv", "item,annotator,label,relation\np,x,1,A\nq,x,1,B\np,y,1,B\n")
    votes, ticks = (load_dataset(name, folder=tmp_path) for name in ("votes", "ticks"))
    votes.write(tmp_path / "votes2")
    ticks.write(tmp_path / "ticks2")
    assert load_dataset("votes2", folder=tmp_path).annotations.votes().tolist() == votes.annotations.votes().tolist()
    again = load_dataset("ticks2", folder=tmp_path).annotations
    assert {q: t.votes().tolist() for q, t in again.items()} == {
        q: t.votes().tolist() for q, t in ticks.annotations.items()
    }


def test_names_that_are_not_there(folder, monkeypatch):
    with raises(
        errors.UnknownDataset,
        name="smal",
        guess=" did you mean 'small'?",
        n_datasets=2,
        variable="DISSENSUS_DATA",
        folder_named=True,
    ):
        load_dataset("smal", folder=folder)
    monkeypatch.setenv("DISSENSUS_DATA", str(folder))
    assert load_dataset("small").name == "small"
    assert [info.name for info in list_datasets()] == ["digits-crowd", "small"]
    monkeypatch.setenv("DISSENSUS_DATA", str(folder / "nowhere"))
    with raises(errors.NotAFolder, source="the environment variable DISSENSUS_DATA"):
        load_dataset("small")
    monkeypatch.delenv("DISSENSUS_DATA")
    assert [info.name for info in list_datasets()] == ["digits-crowd"]
    with raises(
        errors.UnknownDataset, name="small", guess="", n_datasets=1, variable="DISSENSUS_DATA", folder_named=False
    ):
        load_dataset("small")
    with raises(
        errors.UnknownDataset,
        name="digit-crowd",
        guess=" did you mean 'digits-crowd'?",
        n_datasets=1,
        variable="DISSENSUS_DATA",
        folder_named=False,
    ):
        load_dataset("digit-crowd")


def test_a_folder_without_labels_and_a_broken_archive_are_told(folder):
    put(folder / "words", "README.md", "# Only words\n")
    assert {info.name: info.labelled for info in list_datasets(folder)} == {
        "digits-crowd": True, "small": True, "words": False,
    }  # fmt: skip
    with raises(errors.NotALabelledSet, name="words"):
        load_dataset("words", folder=folder)
    (folder / "small" / "features.npz").write_bytes((folder / "small" / "features.npz").read_bytes()[:100])
    with raises(errors.DamagedFile, reason="no arrays `item` and `x`: File is not a zip file"):
        load_dataset("small", folder=folder)


@pytest.mark.parametrize(
    ("file", "text", "error", "message"),
    [
        (
            "annotations.csv",
            "item,worker,label\na,x,1\n",
            MissingColumn,
            (errors.UnknownColumn, {"name": "annotator", "columns": ("item", "worker", "label")}),
        ),
        (
            "annotations.csv",
            "item,annotator,label\na,x,\n",
            DataError,
            (errors.MissingLabels, {"column": "label", "n_bad": 1, "n_rows": 1, "row": 0, "value": None}),
        ),
        (
            "gold.csv",
            "item,label\na,9\na,2\n",
            DataError,
            (errors.ContradictoryGold, {"item": "a", "row": 0, "content": "labels"}),
        ),
        (
            "items.csv",
            "item,split\na,train\na,test\n",
            DataError,
            (errors.DuplicateName, {"location": "items.csv", "name": "a", "n": 2}),
        ),
        (
            "annotators.csv",
            "worker\nx\n",
            MissingColumn,
            (errors.UnknownColumn, {"name": "annotator", "columns": ("worker",)}),
        ),
    ],
)
def test_bad_files_are_named(folder, file, text, error, message):
    put(folder / "small", file, text)
    with raises(message[0], **message[1]):
        load_dataset("small", folder=folder)


def test_counts_must_be_whole_numbers(tmp_path):
    put(tmp_path / "votes", "counts.csv", "item,label,count\np,yes,many\n")
    with raises(errors.WrongColumn, column="column 'count'", expected="whole numbers"):
        load_dataset("votes", folder=tmp_path)


def test_the_seed_is_for_the_bundled_set_alone(folder):
    with raises(errors.UnusedForDataset, name="small", parameters=("seed=",)):
        load_dataset("small", folder=folder, seed=1)
    with raises(errors.UnusedForDataset, name="digits-crowd"):
        load_dataset("digits-crowd", gold="paper")


def test_repr_says_what_is_there_and_what_is_not(folder):
    shown = repr(load_dataset("small", folder=folder))
    assert shown.startswith("Dataset small: A small set\n  Annotations: 4 annotations of 3 items by 2 annotators")
    assert "splits: test 2, train 2" in shown
    assert shown.endswith("images for 1 of its 3 items.")
    assert isinstance(load_dataset("small", folder=folder).annotations, Annotations)
