"""Updating: names merged in order, EM over the new rows alone, and time that depends on them."""

import time

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.models import incremental as online
from dissensus.models.methods import DawidSkene
from dissensus.table.simulate import simulate
from tables import KINDS, random_table, some_gold


@pytest.mark.parametrize("names", [list("bdfh"), [2, 4, 6, 8], []])
@pytest.mark.parametrize("more", [list("aabcdhi"), [1, 2, 3, 8, 9], [4]])
def test_names_are_merged_in_order(names, more):
    if names and isinstance(names[0], str) != isinstance(more[0], str):
        pytest.skip("kinds differ")
    kind = object if isinstance(more[0], str) else np.int64
    old, new = np.array(names, kind), np.array(sorted(set(more)), kind)
    merged, at, codes = online.merge(old, new, "items")
    assert merged.tolist() == sorted(set(names) | set(more))
    assert merged[codes].tolist() == new.tolist()
    values = online.put_in(np.arange(len(names)) * 10.0, at, -1.0)
    assert [v for v in values if v >= 0] == [10.0 * i for i in range(len(names))]
    assert [name for name, v in zip(merged, values, strict=True) if v < 0] == sorted(set(more) - set(names))
    assert online.known_before(merged.size, at, codes).tolist() == [name in names for name in new]


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_the_em_of_a_literal_loop(kind):
    before, new = random_table(1, **KINDS[kind]), random_table(2, n=40, **KINDS[kind])
    model = DawidSkene().fit(before)
    K, gold = 4, some_gold(new)
    counts, q_before, theta = model.counts_.copy(), model.posterior_.copy(), model.confusion_.copy()
    class_counts, pseudo = model.class_counts_.copy(), model.pseudo_.T
    last = q_before
    for _ in range(online.PASSES):
        q = np.maximum(q_before, online.LEAST)
        added = np.zeros_like(counts)
        for i in range(new.n_items):
            for r in range(new.item_ptr[i], new.item_ptr[i + 1]):
                w = 1.0 if new.weight is None else new.weight[r]
                says = np.eye(K)[new.label[r]] if new.proba is None else new.proba[r]
                for label in range(K):
                    q[i] *= theta[new.annotator[r], :, label] ** (w * says[label])
            q[i] /= q[i].sum()
            if gold[i] >= 0:
                q[i] = np.eye(K)[gold[i]]
            for r in range(new.item_ptr[i], new.item_ptr[i + 1]):
                w = 1.0 if new.weight is None else new.weight[r]
                says = np.eye(K)[new.label[r]] if new.proba is None else new.proba[r]
                added[new.annotator[r]] += w * np.outer(q[i], says)
        theta = counts + added + pseudo
        theta /= theta.sum(axis=2, keepdims=True)
        if np.abs(q - last).max() < online.NEAR:
            break
        last = q
    model.partial_fit(new, gold=gold)
    np.testing.assert_allclose(model.posterior_, q, atol=1e-8)
    np.testing.assert_allclose(model.counts_, counts + added, atol=1e-8)
    np.testing.assert_allclose(model.confusion_, theta, atol=1e-8)
    shares = class_counts + (q - q_before).sum(axis=0) + model.class_pseudo_
    np.testing.assert_allclose(model.prior_, shares / shares.sum(), atol=1e-8)


def test_an_update_costs_what_is_new_not_what_is_there():
    table = simulate(60_000, 300, 4, redundancy=5, seed=0).annotations
    new = Annotations.from_arrays(np.arange(60_000, 60_050).repeat(2), np.tile([3, 999], 50), np.arange(100) % 4)
    began = time.perf_counter()
    model = DawidSkene(threads=1).fit(table)
    fit = time.perf_counter() - began
    model.partial_fit(new)  # compiles
    began = time.perf_counter()
    model.partial_fit(new)
    assert time.perf_counter() - began < fit / 3  # a fiftieth on a quiet machine
