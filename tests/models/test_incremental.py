"""Updating: names merged in order, EM over the new rows alone, and no other row looked at."""

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.compute.engines.local import LocalEngine
from dissensus.models import incremental
from dissensus.models.base import Aggregator, methods_for
from dissensus.models.confusion import MAX_UPDATE_PASSES, MIN_UPDATE_PRIOR, UPDATE_TOL
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.table.simulate import simulate
from tables import KINDS, random_table, shares_of, some_gold

UPDATED = [name for name in methods_for("classes") if methods[name]._partial_update is not Aggregator._partial_update]


@pytest.mark.parametrize("names", [list("bdfh"), [2, 4, 6, 8], []])
@pytest.mark.parametrize("more", [list("aabcdhi"), [1, 2, 3, 8, 9], [4]])
def test_names_are_merged_in_order(names, more):
    if names and isinstance(names[0], str) != isinstance(more[0], str):
        pytest.skip("kinds differ")
    kind = object if isinstance(more[0], str) else np.int64
    old, new = np.array(names, kind), np.array(sorted(set(more)), kind)
    merged, at, codes, known = incremental.merge_names(old, new, "items")
    assert merged.tolist() == sorted(set(names) | set(more))
    assert merged[codes].tolist() == new.tolist()
    values = incremental.insert_rows(np.arange(len(names)) * 10.0, at, -1.0)
    assert [v for v in values if v >= 0] == [10.0 * i for i in range(len(names))]
    assert [name for name, v in zip(merged, values, strict=True) if v < 0] == sorted(set(more) - set(names))
    assert known.tolist() == [name in names for name in new]


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_the_em_of_a_literal_loop(kind):
    before, new = random_table(1, **KINDS[kind]), random_table(2, n=40, **KINDS[kind])
    model = DawidSkene(dependence=None).fit(before)
    K, gold = 4, some_gold(new)
    labels, q_before, theta = model.label_counts_.copy(), model.posterior_.copy(), model.confusion_.copy()
    class_counts, pseudo = model.class_counts_.copy(), model.pseudo_counts_
    last = q_before
    for _ in range(MAX_UPDATE_PASSES):
        q = np.maximum(q_before, MIN_UPDATE_PRIOR)
        added = np.zeros_like(labels)
        for i in range(new.n_items):
            rows = range(new.item_ptr[i], new.item_ptr[i + 1])
            for row in rows:
                for label in range(K):
                    q[i] *= theta[new.annotator[row], :, label] ** shares_of(new, row)[label]
            q[i] /= q[i].sum()
            if gold[i] >= 0:
                q[i] = np.eye(K)[gold[i]]
            for row in rows:
                added[new.annotator[row]] += np.outer(q[i], shares_of(new, row))
        theta = labels + added + pseudo
        theta /= theta.sum(axis=2, keepdims=True)
        if np.abs(q - last).max() < UPDATE_TOL:
            break
        last = q
    model.partial_fit(new, gold=gold)
    np.testing.assert_allclose(model.posterior_, q, atol=1e-8)
    np.testing.assert_allclose(model.label_counts_, labels + added, atol=1e-8)
    np.testing.assert_allclose(model.confusion_, theta, atol=1e-8)
    shares = class_counts + (q - q_before).sum(axis=0) + model.class_pseudo_counts_
    np.testing.assert_allclose(model.prior_, shares / shares.sum(), atol=1e-8)
    np.testing.assert_allclose(model.label_totals_[:, 0], (labels + added).sum(axis=1), atol=1e-8)


@pytest.mark.parametrize("name", UPDATED)
def test_an_update_walks_what_is_new_and_not_what_is_there(name, monkeypatch):
    model = methods[name]().fit(simulate(900, 30, 4, redundancy=5, seed=0).annotations)
    new = Annotations.from_arrays(np.arange(895, 905).repeat(2), np.tile([3, 999], 10), np.arange(20) % 4)
    placed, walked, place, sweep = [], [], LocalEngine.__init__, LocalEngine.run

    def watched_place(self, rows, *arguments):
        placed.append(rows.annotator.size)
        place(self, rows, *arguments)

    def watched_sweep(self, *arguments):
        walked.append(self.rows.annotator.size)
        return sweep(self, *arguments)

    monkeypatch.setattr(LocalEngine, "__init__", watched_place)
    monkeypatch.setattr(LocalEngine, "run", watched_sweep)
    model.partial_fit(new)
    assert set(placed + walked) <= {len(new)}
    assert len(walked) <= MAX_UPDATE_PASSES + 1  # and the weights of all labels, once
    assert model.n_annotations_.sum() == 900 * 5 + len(new)
