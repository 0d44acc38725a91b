import subprocess
import sys

import pytest

from dissensus.table import exceptions as errors
from dissensus.table import io
from facts import raises

COLUMNS = {"item": [3, 1, 1], "worker": ["a", "a", "b"], "label": [1, 0, 1], "text": ["x", "y", "z"]}


def test_reading_a_file_does_not_import_the_hub(tmp_path):
    (tmp_path / "table.csv").write_text("item,annotator,label\n1,2,3\n")
    code = "import sys; from dissensus.table import io; io.read(sys.argv[1]); assert 'datasets' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "table.csv")], check=True)


@pytest.fixture
def datasets():
    pytest.importorskip("datasets.arrow_dataset")  # not "datasets" alone: our own tests have a folder of that name
    return sys.modules["datasets"]


@pytest.fixture
def dataset(datasets):
    features = {
        "item": "int64",
        "worker": "string",
        "label": datasets.ClassLabel(names=["no", "maybe", "yes"]),
        "text": "string",
    }
    made = {n: datasets.Value(kind) if isinstance(kind, str) else kind for n, kind in features.items()}
    return datasets.Dataset.from_dict(COLUMNS, features=datasets.Features(made))


def test_class_labels_give_their_names_in_their_order(dataset):
    table = io.read(dataset)
    assert table.classes.tolist() == ["no", "maybe", "yes"]
    assert table.votes().tolist() == [[1, 1, 0], [0, 1, 0]]
    assert table.annotators.tolist() == ["a", "b"]


def test_rows_that_were_selected_or_shuffled_count_as_they_are(dataset):
    assert io.read(dataset.shuffle(seed=0).select([0, 1, 2])).votes().tolist() == io.read(dataset).votes().tolist()
    assert io.read(dataset.select([2])).items.tolist() == [1]


def test_a_label_held_back_is_missing(datasets, dataset):
    hidden = dataset.map(lambda row: {"label": -1 if row["item"] == 3 else row["label"]})
    with raises(errors.MissingLabels, column="label", n_bad=1, n_rows=3, row=0, value=None):
        io.read(hidden)
    assert len(io.read(hidden, abstain=[None])) == 2


def test_plain_columns_are_read_with_their_types(datasets):
    table = io.read(datasets.Dataset.from_dict(COLUMNS), annotator="text")
    assert table.classes.tolist() == [0, 1]
    assert table.annotators.tolist() == ["x", "y", "z"]


def test_a_dictionary_of_splits_and_a_stream_say_what_to_do(datasets, dataset):
    with raises(errors.SeveralSplits, type="DatasetDict"):
        io.read(datasets.DatasetDict(train=dataset))
    with raises(errors.StreamedDataset, type="IterableDataset"):
        io.read(dataset.to_iterable_dataset())
