import numpy as np
import torch

from dissensus.learning.batches import BatchColumns, PaddedSequences, RaggedColumn
from dissensus.learning.exceptions import ArgumentLengthsDiffer
from faults import raised

PTR = torch.tensor([0, 2, 2, 6])
ROWS = torch.tensor([2, 1, 0])


def test_padded_sequences_are_those_of_a_loop():
    values = torch.arange(12).reshape(6, 2) + 1
    batch = PaddedSequences({"x": values}, PTR, pad=-1).take("x", ROWS)["x"]
    assert batch.shape == (3, 4, 2)
    for place, row in enumerate(ROWS):
        own = values[PTR[row] : PTR[row + 1]]
        assert torch.equal(batch[place, : len(own)], own)
        assert (batch[place, len(own) :] == -1).all()


def test_a_batch_is_at_least_as_long_as_asked():
    assert PaddedSequences({"x": torch.arange(6)}, PTR, shortest=5).take("x", ROWS)["x"].shape == (3, 5)
    assert PaddedSequences({"x": torch.arange(6)}, PTR).take("x", torch.tensor([1]))["x"].shape == (1, 1)


def test_a_bag_gives_every_row_of_its_items_and_whose_it_is():
    batch = RaggedColumn({"annotator": torch.arange(6)}, PTR).take("labels", ROWS)
    assert batch["annotator"].tolist() == [2, 3, 4, 5, 0, 1]
    assert batch["row"].tolist() == [0, 0, 0, 0, 2, 2]


def test_an_item_may_be_taken_twice():
    batch = RaggedColumn({"annotator": torch.arange(6)}, PTR).take("labels", torch.tensor([0, 0]))
    assert batch["annotator"].tolist() == [0, 1, 0, 1]
    assert batch["row"].tolist() == [0, 0, 1, 1]


def test_columns_are_taken_together():
    columns = BatchColumns(
        x=torch.eye(3),
        words=PaddedSequences({"x": torch.arange(6)}, PTR),
        labels=RaggedColumn({"label": torch.arange(6)}, PTR),
    )
    assert len(columns) == 3
    batch = columns.take(torch.tensor([1, 2]))
    assert set(batch) == {"x", "words", "label", "row"}
    np.testing.assert_array_equal(batch["x"], np.eye(3)[1:])
    assert columns.nbytes == 9 * 4 + 6 * 8 + 6 * 8


def test_columns_of_different_lengths_are_refused():
    with raised(ArgumentLengthsDiffer, lengths={"x": 3, "y": 2}):
        BatchColumns(x=torch.eye(3), y=torch.eye(2))
