from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon

from dissensus import Annotations
from dissensus import evaluation as ev
from dissensus.evaluation import hide_annotators
from dissensus.exceptions import BadParameter, DataError
from reproductions.split_half import split_half


def matrix(I: int, A: int, K: int, seed: int, missing: float = 0.4) -> np.ndarray:
    """Return (I, A) labels, −1 for missing ones."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((I, A)) < missing, -1, rng.integers(0, K, (I, A)))


def test_scores_are_those_of_one_half_against_the_other_by_hand():
    table = Annotations.from_matrix(matrix(30, 8, 3, seed=1, missing=0.7))
    found = split_half(table, draws=3, pseudocount=0.5, epsilon=0.01, seed=7)
    values: dict[str, list[float]] = {name: [] for name in found.mean}
    for child in np.random.SeedSequence(7).spawn(3):
        judging, predicting = hide_annotators(table, 0.5, child)
        rows: dict[str, list[float]] = {name: [] for name in found.mean}
        for i in range(judging.n_items):
            counts = [np.bincount(t.label[t.item == i], minlength=3) for t in (judging, predicting)]
            y, h = (c / c.sum() for c in counts)
            rows["kl_divergence"].append(stats.entropy(y, (counts[1] + 0.5) / (counts[1].sum() + 1.5)))
            rows["inverse_kl_divergence"].append(stats.entropy(h, (y + 0.01) / 1.03))
            rows["jensen_shannon"].append(jensenshannon(y, h) ** 2)
            rows["manhattan"].append(sum(abs(y - h)))
            best = [[k for k in range(3) if c[k] == c.max()] for c in counts]
            rows["accuracy"].append(np.mean([a == b for a in best[0] for b in best[1]]))
        for name, some in rows.items():
            values[name].append(float(np.mean(some)))
    assert found.mean == pytest.approx({name: np.mean(some) for name, some in values.items()})
    assert found.spread == pytest.approx({name: np.std(some, ddof=1) for name, some in values.items()})
    assert found.n_items == (np.diff(table.item_ptr) > 1).sum() < table.n_items
    assert found.spread["manhattan"] > 0


def test_people_who_agree_have_nothing_between_their_halves():
    table = Annotations.from_matrix(np.repeat(np.arange(12)[:, None] % 3, 6, axis=1))
    found = split_half(table, draws=2)
    assert found.mean["accuracy"] == 1
    assert found.mean["manhattan"] == found.mean["jensen_shannon"] == 0
    assert found.mean["kl_divergence"] == pytest.approx(-np.log((3 + 1 / 3) / 4))  # KL of the smoothed votes.
    assert str(found).startswith("kl_divergence 0.182 ± 0.000")


def test_the_true_distribution_is_closer_to_a_half_than_the_other_half_is():
    """Check the statement in the module's docstring."""
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(4), 400)
    labels = np.array([rng.choice(4, 10, p=p) for p in truth])
    table = Annotations.from_matrix(labels)
    found = split_half(table, draws=2)
    half, _ = hide_annotators(table, 0.5, 0)
    for name in ("manhattan", "jensen_shannon", "kl_divergence"):
        assert getattr(ev, name)(half.soft_labels(), truth).mean() < 0.9 * found.mean[name]
        assert getattr(ev, name)(table.soft_labels(), truth).mean() < 0.75 * found.mean[name]


def test_the_order_of_rows_changes_nothing_and_the_seed_does():
    given = matrix(20, 6, 3, seed=2)
    item, annotator = np.nonzero(given >= 0)
    order = np.random.default_rng(0).permutation(item.size)
    label = given[item, annotator]
    tables = [Annotations.from_arrays(item[o], annotator[o], label[o]) for o in (order, order[::-1])]
    assert split_half(tables[0], draws=2) == split_half(tables[1], draws=2)
    assert split_half(tables[0], draws=2) != split_half(tables[0], draws=2, seed=1)
    nothing = np.zeros(3)
    weighted = Annotations.from_arrays(
        np.append(item, [0, 1, 2]), np.append(annotator, [90, 91, 92]),
        np.append(label, [0, 0, 0]), weight=np.append(np.ones(item.size), nothing),
    )  # fmt: skip
    plain = Annotations.from_arrays(item, annotator, label)
    assert split_half(weighted, draws=2) == split_half(plain, draws=2)


def test_what_cannot_be_halved_is_named():
    table = Annotations.from_arrays([0, 1], [0, 0], [0, 1])
    with pytest.raises(DataError):
        split_half(table)
    with pytest.raises(BadParameter, match="draws must be a whole number, at least 1"):
        split_half(table, draws=0)
    with pytest.raises(BadParameter, match="seed must be a whole number, at least 0"):
        split_half(table, seed=-1)
    with pytest.raises(BadParameter, match="pseudocount must be above 0"):
        split_half(table, pseudocount=0)
