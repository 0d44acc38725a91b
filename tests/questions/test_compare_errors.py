"""Error cells of two predictions, against a loop over items."""

import numpy as np
import pyarrow as pa
import pytest

from dissensus import Annotations
from dissensus.questions.compare_errors import compare_errors
from dissensus.questions.exceptions import NoComparableItem
from dissensus.questions.predictions import Predictions
from dissensus.table.simulate import simulate


@pytest.mark.parametrize("with_gold", [True, False])
def test_cells_are_the_literal_counts(with_gold):
    data = simulate(120, 9, 3, redundancy=4, seed=2)
    table, rng = data.annotations, np.random.default_rng(0)
    first, second = rng.integers(0, 3, 120), rng.integers(0, 3, 120)
    gold = np.where(np.arange(120) % 4 == 0, -1, data.truth) if with_gold else None
    read = [Predictions.read(table.classes[codes], table) for codes in (first, second)]
    expected = np.zeros((2, 2), int)
    for i, votes in enumerate(table.votes()):
        top = np.flatnonzero(votes == votes.max())
        truth = (top[0] if top.size == 1 else -1) if gold is None else gold[i]
        if truth >= 0:
            expected[int(first[i] != truth), int(second[i] != truth)] += 1
    assert compare_errors(*read, table, gold).count.tolist() == expected.tolist()


def test_nothing_in_common_is_an_error():
    table = Annotations.from_arrays(["a", "b"], ["x", "x"], ["yes", "no"])
    other = Predictions.read(pa.table({"item": ["c"], "label": ["yes"]}), table)
    with pytest.raises(NoComparableItem):
        compare_errors(other, other, table)
