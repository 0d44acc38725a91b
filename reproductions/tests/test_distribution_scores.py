"""Scores of predicted distributions; a protocol that has read the votes is marked."""

import pytest

from dissensus import Annotations
from dissensus.evaluation import kl_divergence, manhattan
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning.size_search import winner_agreement
from dissensus.learning.unknown_annotators import infer_annotators
from learning.test_ldl_nm import TABLE, X
from learning.test_unknown_annotators import Y, model
from reproductions.distribution_scores import distribution_scores

__all__ = ["model"]  # a fixture


def test_what_reads_the_answer_says_so(model):
    honest = distribution_scores(model, X, TABLE)
    h = model.predict_proba(X)
    assert honest.kl == pytest.approx(kl_divergence(Y, h).mean())
    assert honest.manhattan == pytest.approx(manhattan(Y, h).mean())
    assert honest.accuracy == pytest.approx(winner_agreement(Y, h).mean())
    assert not honest.leaked
    assert "LEAKED" not in str(honest)
    leaked = distribution_scores(model, X, TABLE, leak_test_labels=True, steps=200)
    assert leaked.leaked is True
    assert str(leaked).startswith("LEAKED")
    assert leaked.kl < honest.kl
    trace = infer_annotators(model, X, Y, compared_output="item", steps=200).trace
    assert leaked.kl == pytest.approx(trace[-1].mean(), abs=1e-5)


def test_only_items_with_labels_are_judged(model):
    some = Annotations.from_arrays(["i0000", "i0001"], ["w0", "w1"], ["a", "b"], items=["i0000", "i0001", "i0002"])
    assert distribution_scores(model, X[:3], some).n_items == 2
    weighed = Annotations.from_arrays(["i0000", "i0001"], ["w0", "w1"], ["a", "b"], weight=[1, 0])
    assert distribution_scores(model, X[:2], weighed).n_items == 1
    with pytest.raises(DataError):
        distribution_scores(model, X[:2], some)
    with pytest.raises(BadParameter):
        distribution_scores(model, X, TABLE, steps=3)
