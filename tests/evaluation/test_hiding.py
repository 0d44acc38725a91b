from __future__ import annotations

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.evaluation import hide_annotators
from dissensus.evaluation.exceptions import NoHideableAnnotations


def test_half_of_an_items_annotators_are_hidden_with_all_their_labels():
    item = np.repeat(np.arange(20), 8)
    annotator = np.tile(np.repeat(np.arange(4), 2), 20)  # two labels of each annotator
    label = np.tile([0, 1], 80)
    lonely = [20], [0], [0]  # one annotator: nothing of it can be hidden
    table = Annotations.from_arrays(
        *(np.concatenate(pair) for pair in zip((item, annotator, label), lonely, strict=True))
    )
    given, hidden = hide_annotators(table, 0.5, 0)
    assert given.n_items == hidden.n_items == 20
    assert (np.diff(given.item_ptr) == 4).all()
    assert (np.diff(hidden.item_ptr) == 4).all()
    for i in range(20):
        here, there = (set(t.annotator[t.item_ptr[i] : t.item_ptr[i + 1]].tolist()) for t in (given, hidden))
        assert not here & there
        assert len(here) == len(there) == 2
    assert not np.array_equal(hide_annotators(table, 0.5, 1)[0].annotator, given.annotator)
    with pytest.raises(NoHideableAnnotations):
        hide_annotators(table.select(items=[20]), 0.5, 0)
