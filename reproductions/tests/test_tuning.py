"""Keywords chosen by annotations that are hidden."""

import numpy as np
import pytest

from crowds import blobs
from dissensus import Annotations
from dissensus.learning import LIA
from dissensus.questions.scoring import select_held_out_rows
from reproductions.tuning import SHARE, SPLITS, tune

QUICK = {
    "steps": 120, "hidden": (16,), "dropout": 0.0, "learning_rate": 0.01, "head_learning_rate": 0.1, "penalty": 0.05,
    "difficulty_penalty": 0, "residual_penalty": 0,
}  # fmt: skip


def crowd(hard: bool, seed: int = 0):
    """Items with x < 0 are labelled at random, where `hard`, or as all others; most features say nothing."""
    rng = np.random.default_rng(seed)
    x, truth = rng.choice([-1.0, 1.0], 80), rng.integers(0, 3, 80)
    wrong = rng.random((80, 6)) < (np.where(x < 0, 0.7, 0.0) if hard else np.full(80, 0.2))[:, None]
    label = np.where(wrong, rng.integers(0, 3, (80, 6)), truth[:, None])
    features = 3 * np.column_stack([x, np.eye(3)[truth]]), rng.normal(0, 1, (80, 16))
    return Annotations.from_matrix(label, classes=3), np.concatenate(features, axis=1)


@pytest.mark.parametrize("hard", [True, False])
def test_difficulty_is_chosen_where_there_is_any(hard):
    table, X = crowd(hard)
    found = tune(LIA(**QUICK, difficulty=not hard), {"difficulty": (True, False)}, table, X)
    assert found.keywords == {"difficulty": hard}
    assert [trial.chosen for trial in found.trials] == [True, True]
    gain = found.trials[1].gain
    assert gain.low < gain.value < gain.high


def test_a_score_is_the_mean_log_probability_of_what_was_hidden():
    table, X, _ = blobs(40, redundancy=4)
    model = LIA(**{**QUICK, "steps": 20, "penalty": 0.25})
    found = tune(model, {"penalty": (0.25, 2.0)}, table, X, seed=3)
    logs = {0.25: [], 2.0: []}
    for number in range(SPLITS):
        mask = select_held_out_rows(table, SHARE, np.random.default_rng([3, number]))
        for penalty, own in logs.items():
            fitted = LIA(**{**QUICK, "steps": 20, "penalty": penalty}).fit(table.select(rows=~mask), X)
            confusion = fitted.confusion()
            for row in np.flatnonzero(mask):
                i, j, y = table.item[row], table.annotator[row], table.label[row]
                own.append(np.log(sum(fitted.posterior_[i, k] * confusion[i, j, k, y] for k in range(3))))
    for trial, own in zip(found.trials, logs.values(), strict=True):
        assert trial.log_likelihood == pytest.approx(np.mean(own), rel=1e-4)
    assert found.trials[1].gain.value == pytest.approx(np.mean(logs[2.0]) - np.mean(logs[0.25]), rel=1e-3)


def test_keywords_are_chosen_one_after_another():
    table, X, _ = blobs(40, redundancy=4)
    model = LIA(**{**QUICK, "steps": 20, "penalty": 2.0})
    found = tune(model, {"difficulty": (True, False), "penalty": (0.25, 2.0), "annotator_size": (4, 16)}, table, X)
    assert model.penalty == 2.0
    assert found.keywords["penalty"] == 0.25
    assert list(found.to_frame()["keyword"]) == ["", "difficulty", "penalty", "annotator_size"]


def test_what_is_known_of_annotators_is_known_in_tuning(monkeypatch):
    table, X, _ = blobs(40, redundancy=4)
    frame = {"annotator": table.annotators, "number": np.linspace(-1, 1, table.n_annotators)}
    fits = []
    fit = LIA.fit
    monkeypatch.setattr(LIA, "fit", lambda self, *a, **k: fits.append(k.get("annotators")) or fit(self, *a, **k))
    tune(LIA(**{**QUICK, "steps": 5}), {"penalty": (0.05,)}, table, X, annotators=frame)
    assert len(fits) == SPLITS
    assert all(one is frame for one in fits)
