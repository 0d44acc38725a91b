"""Rates and clusters of mistakes, against plain loops."""

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.exceptions import BadParameter
from dissensus.questions import annotator_errors as module
from dissensus.questions.annotator_errors import annotator_errors, confusion_distance, error_distance
from dissensus.questions.exceptions import PosteriorShapeMismatch
from tables import KINDS, random_table, shares_of


def crowd(n=60, seed=0):
    """Six annotators who label everything: two err on the first ten items, two on the last ten, two hardly ever."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    wrong = np.zeros((n, 6), bool)
    wrong[:10, :2] = wrong[-10:, 2:4] = True
    wrong[[20, 30], [4, 5]] = True
    return Annotations.from_matrix(np.where(wrong, 1 - truth[:, None], truth[:, None]), classes=2), truth


@pytest.mark.parametrize("kind", KINDS)
def test_rates_are_those_of_loops(kind):
    table = random_table(2, n=160, **KINDS[kind])
    K, A = table.n_classes, table.n_annotators
    q = np.random.default_rng(1).dirichlet(np.ones(K), table.n_items)
    found = annotator_errors(table, q, least=1)
    count = np.zeros((A, K, K))
    for row in range(table.n_annotations):
        for k in range(K):
            count[table.annotator[row], k] += q[table.item[row], k] * shares_of(table, row)
    for j in range(A):
        if not (table.annotator == j).any():
            assert np.isnan(found.error_rate[j])
            assert found.overused_class[j] == -1
            continue
        assert found.error_rate[j] == pytest.approx(1 - np.trace(count[j]) / count[j].sum())
        over = []
        for c in range(K):
            rest = [k for k in range(K) if k != c]
            positives = sum(count[j, k, c] for k in rest) / sum(count[j, k].sum() for k in rest)
            negatives = sum(count[j, c, k] for k in rest) / count[j, c].sum()
            assert found.false_positive[j, c] == pytest.approx(positives)
            assert found.false_negative[j, c] == pytest.approx(negatives)
            over.append(count[j, :, c].sum() - count[j, c].sum())
        assert found.overused_class[j] == (int(np.argmax(over)) if max(over) > 0.5 else -1)


def test_distance_is_the_share_of_shared_items_on_which_one_errs_alone():
    table = random_table(3, n=160)
    truth = np.random.default_rng(0).integers(-1, table.n_classes, table.n_items)
    found, shared = error_distance(table, truth)
    errs = {}
    for i, j, y in zip(table.item.tolist(), table.annotator.tolist(), table.label.tolist(), strict=True):
        if truth[i] >= 0:
            errs.setdefault((j, i), []).append(y != truth[i])
    assert any(len(each) > 1 for each in errs.values())  # some labelled an item twice
    for a in range(table.n_annotators):
        for b in range(table.n_annotators):
            both = [i for i in range(table.n_items) if (a, i) in errs and (b, i) in errs]
            assert shared[a, b] == len(both)
            apart = [abs((np.mean(errs[a, i]) > 0.5) - (np.mean(errs[b, i]) > 0.5) * 1) for i in both]
            np.testing.assert_allclose(found[a, b], np.mean(apart) if both else np.nan)


def test_who_errs_on_the_same_items_is_in_one_cluster():
    table, truth = crowd()
    found = annotator_errors(table, np.eye(2)[truth], clusters=3)
    assert found.distance_basis == "items"
    assert found.cluster[0] == found.cluster[1]
    assert found.cluster[2] == found.cluster[3]
    assert found.cluster[4] == found.cluster[5]
    assert len(set(found.cluster.tolist())) == 3
    uneven = annotator_errors(table.select(annotators=[0, 2, 3, 4, 5]), np.eye(2)[truth], clusters=3)
    assert np.bincount(uneven.cluster).tolist() == [2, 2, 1]  # the largest is the first
    assert uneven.cluster[0] == 2


def test_clusters_are_those_of_scikit_learn():
    from sklearn.cluster import AgglomerativeClustering

    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 400)
    wrong = rng.random((400, 12)) < rng.uniform(0.05, 0.5, 12)
    table = Annotations.from_matrix(np.where(wrong, 1 - truth[:, None], truth[:, None]), classes=2)
    other = AgglomerativeClustering(4, metric="l1", linkage="complete").fit(wrong.T.astype(float)).labels_
    single = AgglomerativeClustering(4, metric="l1", linkage="single").fit(wrong.T.astype(float)).labels_
    found = annotator_errors(table, np.eye(2)[truth], clusters=4).cluster
    assert ((found[:, None] == found) == (other[:, None] == other)).all()
    assert not ((found[:, None] == found) == (single[:, None] == single)).all()


def test_distance_of_confusions_is_that_of_a_loop():
    counts = np.random.default_rng(0).gamma(1, 3, (5, 3, 3))
    counts[2, 1] = 0  # never met that class
    everyone = counts.sum(axis=0)
    found = confusion_distance(counts, everyone)
    theta = np.zeros((5, 3, 3))
    for j in range(5):
        for k in range(3):
            row = [counts[j, k, y] + everyone[k, y] / sum(everyone[k]) for y in range(3)]
            theta[j, k] = [value / sum(row) for value in row]
    for a in range(5):
        for b in range(5):
            each = [sum(abs(theta[a, k] - theta[b, k])) * sum(everyone[k]) / everyone.sum() for k in range(3)]
            assert found[a, b] == pytest.approx(sum(each) / 2)


def test_without_shared_items_confusions_are_compared():
    """Four annotators with 40 items each, of which two say 1 too often and two say 0 too often."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 160)
    annotator = np.repeat(np.arange(4), 40)
    label = np.where(rng.random(160) < 0.5, (annotator % 2), truth)
    table = Annotations.from_arrays(range(160), annotator, label)
    found = annotator_errors(table, np.eye(2)[truth], clusters=2)
    assert found.distance_basis == "confusions"
    assert found.cluster[0] == found.cluster[2] != found.cluster[1] == found.cluster[3]
    assert found.overused_class.tolist() == [0, 1, 0, 1]


def test_few_labels_unknown_items_and_many_annotators(monkeypatch):
    table, truth = crowd()
    q = np.eye(2)[truth]
    q[10:] = 0
    few = annotator_errors(table, q)
    assert few.n_labels.tolist() == [10] * 6
    assert few.error_rate[:2] == pytest.approx(1)
    assert few.error_rate[2] == 0
    none = annotator_errors(table, q, least=11)
    assert none.distance_basis is None
    assert (none.cluster == -1).all()
    assert np.isnan(none.error_rate).all()
    monkeypatch.setattr(module, "MAX_CLUSTERED_ANNOTATORS", 2)
    part = table.select(rows=(table.annotator > 1) | (table.item < 30))
    assert (annotator_errors(part, np.eye(2)[truth]).cluster >= 0).tolist() == [False, False, True, True, False, False]
    alone = table.select(annotators=[3])
    assert annotator_errors(alone, np.eye(2)[truth]).cluster.tolist() == [0]


def test_wrong_arguments_are_named():
    table, truth = crowd()
    with pytest.raises(PosteriorShapeMismatch) as caught:
        annotator_errors(table, truth)
    assert (caught.value.n_items, caught.value.n_classes, caught.value.shape) == (60, 2, (60,))
    with pytest.raises(BadParameter):
        annotator_errors(table, np.eye(2)[truth], clusters=0)
