"""Learners inside scikit-learn's own loops, and under its checks of estimators."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_predict,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from dissensus.evaluation import cross_entropy
from dissensus.learning import LIA, ByItem, CrowdClassifier, annotation_likelihood, soft_cross_entropy
from dissensus.learning.exceptions import (
    ContinuousTargets,
    IndexMismatch,
    InvalidTargets,
    RepeatedItem,
    RowCountDiffers,
)
from dissensus.questions.compare import log_likelihood
from dissensus.table.annotations import Annotations
from dissensus.table.simulate import simulate
from faults import raised


def quick(**keywords):
    given = {"encoder": "identity", "objective": "soft", "epochs": 2, "learning_rate": 0.1, "device": "cpu"}
    return CrowdClassifier(**(given | keywords))


WORDS = "the message says the same in other words"
EXPECTED = {
    "check_fit_score_takes_y": "fit is (table, X) in this library; (X, y) is taken by position",
    "check_estimators_unfitted": "NotFitted is a ValueError and an AttributeError, as scikit-learn's is, but not its",
    "check_dtype_object": "a cell that is no number is a DataError, not a TypeError",
    "check_classifier_data_not_an_array": "X is an array, a list, a frame or a mapping",
    "check_supervised_y_2d": "a column of y is taken without a warning",
    "check_n_features_in_after_fitting": WORDS,
    "check_complex_data": WORDS,
    "check_estimators_empty_data_messages": WORDS,
    "check_estimators_nan_inf": WORDS,
    "check_fit2d_predict1d": WORDS,
    "check_requires_y_none": WORDS,
}


@pytest.mark.filterwarnings("ignore")  # what scikit-learn's checks provoke
def test_scikit_learn_s_checks():
    done = check_estimator(quick(epochs=4, learning_rate=0.3), on_fail=None, on_skip=None)
    assert len(done) > 50
    failed = {one["check_name"]: str(one["exception"]) for one in done if one["status"] == "failed"}
    assert failed.keys() == EXPECTED.keys(), failed


@pytest.fixture(scope="module")
def crowd():
    """60 items with features that tell the class, 3 labels each; an item nobody labelled."""
    data = simulate(60, 8, 3, redundancy=3, seed=2)
    table = data.annotations.select(rows=data.annotations.item != 17)
    X = np.eye(3)[data.truth] + np.random.default_rng(0).normal(0, 0.3, (60, 3))
    return table, X, data.truth


def part_of(table, rows):
    mask = np.zeros(table.n_items, bool)
    mask[rows] = True
    return table.select(items=mask)


def test_x_then_y_is_table_then_x(crowd):
    table, X, _ = crowd
    expected = quick().fit(table, X).predict_proba(X)
    for y in (table, ByItem(table)):
        np.testing.assert_array_equal(quick().fit(X, y).predict_proba(X), expected)
    np.testing.assert_array_equal(quick().fit(sparse.dok_array(X), ByItem(table)).predict_proba(X), expected)
    labels = np.array(["a", "b", "c"], object)[X.argmax(axis=1)]
    single = Annotations.from_arrays(np.arange(60), np.zeros(60, int), labels)
    np.testing.assert_array_equal(quick().fit(X, labels).predict_proba(X), quick().fit(single, X).predict_proba(X))


def test_items_in_any_order_are_the_same_items(crowd):
    table, X, truth = crowd
    some = np.random.default_rng(1).permutation(60)[:40]
    gold = np.where(np.arange(60) % 2, truth, -1)
    expected = quick().fit(part_of(table, some), X[np.sort(some)], gold=gold[np.sort(some)]).predict_proba(X)
    found = quick().fit(X[some], ByItem(table)[some], gold=gold[some]).predict_proba(X)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [int, str])
def test_rows_of_a_frame_are_by_position_or_by_name_and_never_mixed_up(crowd, kind):
    pd = pytest.importorskip("pandas", reason="a frame with an index")
    table, X, _ = crowd
    names = np.array([f"n{i:02}" for i in range(60)], object) if kind is str else np.arange(60) * 3
    rows = names[table.item], table.annotators[table.annotator], table.label
    table = Annotations.from_arrays(*rows, 3, items=names)
    some = np.random.default_rng(1).permutation(60)[:40]
    y, expected = ByItem(table)[some], quick().fit(part_of(table, some), X[np.sort(some)]).predict_proba(X)
    plain = pd.DataFrame(X, columns=["a", "b", "c"])
    named = plain.set_axis(names)
    for frame in (
        plain.iloc[some],
        named.iloc[some],
        plain.iloc[some].reset_index(drop=True),
        named.iloc[np.sort(some)],
    ):
        np.testing.assert_array_equal(quick().fit(frame, y).predict_proba(X), expected)
    with_column = plain.assign(item=names).iloc[np.sort(some)]
    np.testing.assert_array_equal(quick().fit(with_column, y).predict_proba(X), expected)
    model = quick().fit(X[some], y)
    scores = [soft_cross_entropy(model, one, y) for one in (X[some], with_column, named.iloc[np.sort(some)])]
    assert scores == pytest.approx([scores[0]] * 3)
    with pytest.raises(IndexMismatch):
        quick().fit(named.iloc[::-1].iloc[some], y)


@pytest.mark.parametrize("score", [soft_cross_entropy, annotation_likelihood])
def test_grid_search_scores_what_a_loop_over_folds_would(crowd, score):
    table, X, _ = crowd
    folds = ShuffleSplit(2, random_state=0)
    grid = {"epochs": [1, 4], "learning_rate": [0.1]}
    search = GridSearchCV(quick(), grid, scoring=score, cv=folds).fit(X, ByItem(table))
    for number, epochs in enumerate([1, 4]):
        for k, (train, test) in enumerate(folds.split(X)):
            train, test = np.sort(train), np.sort(test)
            model = quick(epochs=epochs).fit(part_of(table, train), X[train])
            rest = part_of(table, test)
            if score is soft_cross_entropy:
                voted = rest.votes().any(axis=1)
                proba = model.predict_proba(X[test])
                expected = -cross_entropy(rest.soft_labels()[voted], proba[voted]).mean()
            else:
                expected = log_likelihood(rest, model.predict_annotations(rest, X[test]))[0].mean()
            assert search.cv_results_[f"split{k}_test_score"][number] == pytest.approx(expected)
    assert search.best_params_["epochs"] == 4
    assert search.best_estimator_.predict_proba(X).shape == (60, 3)


def test_pipelines_and_several_scores(crowd):
    table, X, _ = crowd
    y = ByItem(table)
    pipe = make_pipeline(StandardScaler(), quick(epochs=5))
    scores = {"entropy": soft_cross_entropy, "likelihood": annotation_likelihood, "accuracy": "accuracy"}
    found = cross_validate(pipe, X, y, scoring=scores, cv=3)
    assert found["test_accuracy"].min() > 0.5
    assert (found["test_entropy"] < 0).all()
    fitted = clone(pipe).fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    rows = fitted[-1].predict_annotations(table, scaled)
    assert annotation_likelihood(fitted, X, y) == pytest.approx(log_likelihood(table, rows)[0].mean())
    search = GridSearchCV(pipe, {"crowdclassifier__epochs": [1, 5]}, scoring=soft_cross_entropy, cv=2).fit(X, y)
    assert search.best_params_ == {"crowdclassifier__epochs": 5}
    assert cross_val_predict(pipe, X, y, cv=3).shape == (60,)


def test_folds_are_stratified_by_the_most_frequent_label(crowd):
    table, X, _ = crowd
    y = ByItem(table)
    votes = table.votes()
    labels = np.asarray(y)
    clear = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) == 1
    np.testing.assert_array_equal(labels[clear], table.classes[votes.argmax(axis=1)][clear])
    np.testing.assert_array_equal(np.asarray(y[::-1]), labels[::-1])
    assert is_classifier(quick())
    for by_hand, found in zip(StratifiedKFold(3).split(X, labels), StratifiedKFold(3).split(X, y), strict=True):
        np.testing.assert_array_equal(by_hand[1], found[1])
    found = cross_validate(quick(), X, y, cv=StratifiedKFold(3))["test_score"]  # its own score: accuracy
    expected = cross_validate(quick(), X, y, cv=3, scoring="accuracy")["test_score"]
    np.testing.assert_allclose(found, expected)


def test_other_learners_and_other_people_s(crowd):
    table, X, truth = crowd
    found = cross_validate(LIA(steps=5), X, ByItem(table), scoring=annotation_likelihood, cv=KFold(2))["test_score"]
    assert np.isfinite(found).all()
    model = LIA(steps=5).fit(X, ByItem(table))
    rows = model.classifier_.predict_annotations(table, X)
    assert annotation_likelihood(model, X, table) == pytest.approx(log_likelihood(table, rows)[0].mean())
    theirs = LogisticRegression().fit(X, truth)
    same = theirs.predict_proba(X)[table.item]
    voted = table.votes().any(axis=1)
    expected = -cross_entropy(table.soft_labels()[voted], theirs.predict_proba(X)[voted]).mean()
    assert soft_cross_entropy(theirs, X, ByItem(table)) == pytest.approx(expected)
    assert annotation_likelihood(theirs, X, table) == pytest.approx(log_likelihood(table, same)[0].mean())


def test_texts_are_cut_by_item(crowd):
    table, _, truth = crowd
    texts = [f"a {('red', 'green', 'blue')[k]} thing" for k in truth]
    model = quick(encoder="text-cnn", epochs=1)
    assert np.isfinite(
        cross_validate(model, texts, ByItem(table), scoring=soft_cross_entropy, cv=2)["test_score"]
    ).all()


@pytest.mark.parametrize(
    ("y", "error", "facts"),
    [
        (lambda t: ByItem(t)[[4, 4]], RepeatedItem, {"item": "4", "times": 2}),
        (lambda t: ByItem(t)[[1, 2, 3]], RowCountDiffers, {"argument": "y", "n_rows": 2, "n_entries": 3}),
        (lambda t: np.ones((2, 3)), InvalidTargets, {"type_name": "ndarray", "shape": (2, 3)}),
        (lambda t: [0.5, 1.5], ContinuousTargets, {"n_rows": 2, "value": 0.5, "row": 0}),
    ],
)
def test_targets_that_cannot_be_used_are_an_error(crowd, y, error, facts):
    with raised(error, **facts):
        quick().fit(np.ones((2, 3)), y(crowd[0]))
