"""Accuracies of classifiers without labels."""

import dataclasses

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from dissensus import Annotations, classifier_accuracy
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.matrices import learn_matrices
from dissensus.models.methods import DawidSkene

ACCURACIES = np.array([0.5, 0.6, 0.7, 0.8, 0.9])


def outputs(n: int = 400, K: int = 3, seed: int = 0, accuracies: np.ndarray = ACCURACIES):
    """Labels (n, M) of classifiers that err independently, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, K, n)
    right = rng.random((n, accuracies.size)) < accuracies
    wrong = (truth[:, None] + rng.integers(1, K, right.shape)) % K
    return np.where(right, truth[:, None], wrong), truth


def own_matrix(q: np.ndarray, label: np.ndarray, pseudo: np.ndarray):
    """Posterior and matrix of one classifier; q is what the others say of its items."""
    table = Annotations.from_arrays(np.arange(len(q)), np.zeros(len(q), int), label, classes=q.shape[1])
    learnt = learn_matrices(table, q, pseudo, max_passes=1000, tol=1e-7)
    return learnt.posterior, learnt.confusion[0]


def test_one_matrix_is_the_optimum_of_its_posterior():
    """Against SciPy's minimiser over softmax parameters."""
    rng = np.random.default_rng(0)
    q, label = rng.dirichlet(np.full(3, 0.3), 60), rng.integers(0, 3, 60)
    pseudo = rng.random((3, 3))
    r, theta = own_matrix(q, label, pseudo)

    def value(free: np.ndarray) -> float:
        logs = free.reshape(3, 3) - np.log(np.exp(free.reshape(3, 3)).sum(axis=1, keepdims=True))
        each = [np.log(sum(q[i, c] * np.exp(logs[c, label[i]]) for c in range(3))) for i in range(60)]
        return -sum(each) - (pseudo * logs).sum()

    best = np.exp(minimize(value, np.zeros(9), tol=1e-12).x.reshape(3, 3))
    np.testing.assert_allclose(theta, best / best.sum(axis=1, keepdims=True), atol=2e-4)
    joint = q * theta[:, label].T
    np.testing.assert_allclose(r, joint / joint.sum(axis=1, keepdims=True), atol=1e-6)


def test_each_is_judged_by_the_others_and_the_interval_is_that_of_the_jackknife():
    given, _ = outputs(150)
    found = classifier_accuracy(given)
    M = given.shape[1]

    def judged(j: int, left_out: list[int]) -> float:
        others = [k for k in range(M) if k not in (j, *left_out)]
        model = DawidSkene(dependence=None).fit(Annotations.from_matrix(given[:, others], classes=3, annotators=others))
        r, _ = own_matrix(model.posterior_, given[:, j], model.pseudo_)
        return float(np.mean([r[i, given[i, j]] for i in range(150)]))

    for j in (0, 3):
        a = judged(j, [])
        assert found.accuracy[j] == pytest.approx(a, abs=1e-6)
        without = [judged(j, [k]) for k in range(M) if k != j]
        jeffreys = stats.beta(150 * a + 0.5, 150 * (1 - a) + 0.5)
        variance = jeffreys.var() + (M - 2) / (M - 1) * sum((b - np.mean(without)) ** 2 for b in without)
        mean = jeffreys.mean()
        size = mean * (1 - mean) / variance - 1
        beta = stats.beta(mean * size, (1 - mean) * size)
        assert beta.var() == pytest.approx(variance)
        np.testing.assert_allclose([found.low[j], found.high[j]], beta.ppf([0.025, 0.975]), atol=1e-5)


def test_independent_classifiers_are_found_and_the_truth_with_them():
    given, truth = outputs(1500)
    found = classifier_accuracy(given)
    right = (given == truth[:, None]).mean(axis=0)
    assert np.abs(found.accuracy - right).max() < 0.02
    assert ((found.low < right) & (right < found.high)).all()
    assert (found.labels == truth).mean() > 0.9
    np.testing.assert_allclose(np.diagonal(found.confusion, axis1=1, axis2=2).mean(axis=1), right, atol=0.03)


def test_classifiers_that_err_together_come_out_better_than_they_are_and_less_so_than_in_one_model():
    given, truth = outputs(800, accuracies=np.array([0.7, 0.7, 0.7, 0.8, 0.8]))
    same = np.random.default_rng(1).random((800, 1)) < 0.5
    given = np.where(same & (np.arange(5) < 3), given[:, :1], given)  # three share half of their outputs
    right = (given == truth[:, None]).mean(axis=0)[:3]
    table = Annotations.from_matrix(given)
    q = DawidSkene(dependence=None).fit(table).posterior_
    together = np.array([q[np.arange(800), given[:, j]].mean() for j in range(3)])
    alone = classifier_accuracy(given).accuracy[:3]
    assert (alone > right).all()
    assert (alone < together).all()


def test_every_form_of_outputs_says_the_same():
    given, _ = outputs(80)
    names = np.array(["cat", "dog", "eel"])
    first = classifier_accuracy(given)
    by_name = classifier_accuracy({f"m{j}": names[given[:, j]] for j in range(5)})
    proba = 0.6 * np.eye(3)[given] + 0.4 / 3
    by_proba = classifier_accuracy(proba, classes=names)
    by_mapping = classifier_accuracy({f"m{j}": proba[:, j] for j in range(5)}, classes=names)
    by_table = classifier_accuracy(Annotations.from_matrix(names[given]))
    for other in (by_name, by_proba, by_mapping, by_table):
        np.testing.assert_array_equal(other.accuracy, first.accuracy)
        np.testing.assert_array_equal(other.high, first.high)
        np.testing.assert_array_equal(other.labels, names[first.labels])
    assert by_name.classifiers.tolist() == ["m0", "m1", "m2", "m3", "m4"]
    assert first.classifiers.tolist() == [0, 1, 2, 3, 4]


def test_labels_of_minus_one_are_labels():
    given, _ = outputs(60, K=2)
    assert classifier_accuracy(2 * given - 1).classes.tolist() == [-1, 1]


def test_the_order_of_items_and_classifiers_changes_nothing():
    given, _ = outputs(90)
    order = np.random.default_rng(3).permutation(90)
    first, second = classifier_accuracy(given), classifier_accuracy(given[order][:, ::-1])
    np.testing.assert_allclose(second.accuracy[::-1], first.accuracy, atol=1e-6)
    np.testing.assert_allclose(second.low[::-1], first.low, atol=1e-5)
    np.testing.assert_allclose(second.posterior, first.posterior[order], atol=1e-6)


def test_one_who_is_silent_has_no_accuracy_and_one_who_is_silent_on_most_has_a_wide_interval():
    given, _ = outputs(200, accuracies=np.array([0.8, 0.85, 0.85, 0.9, 0.95]))
    given[20:, 4] = -1
    table = Annotations.from_matrix(given, annotators=list("abcde"), classes=3)
    table = Annotations.from_arrays(
        table.items[table.item], table.annotators[table.annotator], table.label, classes=3, annotators=list("abcdef")
    )
    found = classifier_accuracy(table)
    assert np.isnan(found.accuracy[5])
    assert np.isnan(found.low[5])
    assert np.isfinite(found.accuracy[:5]).all()
    width = found.high - found.low
    assert width[4] > 2 * width[:4].max()
    frame = found.to_frame()
    assert list(frame["classifier"]) == [*np.array(list("abcdef"))[np.argsort(-found.accuracy[:5])], "f"]


def test_a_few_items_and_steps():
    given, _ = outputs(5, accuracies=np.array([1.0, 1.0, 1.0]))
    steps: list[int] = []
    found = classifier_accuracy(given, on_step=lambda step, _: steps.append(step))
    assert steps == list(range(1, 8))
    assert ((found.low >= 0) & (found.low <= found.accuracy) & (found.accuracy <= found.high)).all()
    assert "3 classifiers on 5 items" in repr(found)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (np.zeros((4, 2), int), "outputs of 2 classifiers"),
        (np.zeros(4, int), r"labels \(I, M\) or probabilities"),
        ({"a": [0, 1], "b": [0, 1, 1], "c": [1, 1]}, "different shapes"),
        (np.full((4, 3, 2), np.nan), "must be finite"),
        ([[0, 1, 1], [0, 1]], "rows are of different lengths"),
    ],
)
def test_outputs_that_cannot_be_judged_are_named(bad, sentence):
    with pytest.raises(DataError, match=sentence):
        classifier_accuracy(bad)


def test_bad_keywords_are_named():
    given, _ = outputs(10)
    with pytest.raises(BadParameter, match="level must be between"):
        classifier_accuracy(given, level=1)
    with pytest.raises(BadParameter, match="level must be between 0 and 1, got '95 %'"):
        classifier_accuracy(given, level="95 %")
    with pytest.raises(DataError, match="2 classes for probabilities of 3"):
        classifier_accuracy(np.eye(3)[given], classes=["a", "b"])
    with pytest.raises(BadParameter, match="classes are those of the table"):
        classifier_accuracy(Annotations.from_matrix(given), classes=["a", "b"])


def test_one_whose_labels_weigh_nothing_has_no_accuracy():
    given, _ = outputs(60)
    table = Annotations.from_matrix(given)
    found = classifier_accuracy(dataclasses.replace(table, weight=np.where(table.annotator == 4, 0.0, 1.0)))
    alone = classifier_accuracy(given[:, :4])
    assert np.isnan(found.accuracy[4])
    assert np.isnan(found.low[4])
    for name in ("accuracy", "low", "high"):
        np.testing.assert_allclose(getattr(found, name)[:4], getattr(alone, name), atol=0.01)
