"""LIA with several seeds: answers are means over fits."""

import numpy as np
import pytest
import torch

from crowds import blobs
from dissensus.exceptions import BadParameter
from dissensus.learning import LIA

NEAR = 2e-5
SEEDS = 3
TABLE, X, TRUTH = blobs(60, redundancy=6)


def test_lia_with_many_seeds():
    """Answers are means over the seeds."""
    together = LIA(steps=20, dropout=0, n_seeds=SEEDS, seed=4).fit(TABLE, X)
    found = [LIA(steps=20, dropout=0, seed=4 + s).classifier(TABLE, features=True) for s in range(SEEDS)]
    alone = [m.fit(TABLE, X) for m in found]
    np.testing.assert_allclose(together.posteriors_, [m.posterior_ for m in alone], atol=NEAR)
    np.testing.assert_allclose(together.posterior_, np.mean([m.posterior_ for m in alone], axis=0), atol=NEAR)
    np.testing.assert_allclose(
        together.predict_proba(X[:5]), np.mean([m.predict_proba(X[:5]) for m in alone], axis=0), atol=NEAR
    )
    each = [LIA(steps=20, dropout=0, seed=4 + s) for s in range(SEEDS)]
    for model in each:
        model.fit(TABLE, X)
    np.testing.assert_allclose(
        together.confusion(TABLE.items[:4], TABLE.annotators[:5]),
        np.mean([m.confusion(TABLE.items[:4], TABLE.annotators[:5]) for m in each], axis=0),
        atol=NEAR,
    )


def test_there_is_a_seed():
    with pytest.raises(BadParameter, match="n_seeds must be a whole number, at least 1"):
        LIA(n_seeds=0).fit(TABLE, X)


def test_the_same_seed_gives_the_same_bits_and_draws_nothing_from_others():
    """Dropout's random numbers are the run's own."""
    before = torch.get_rng_state()
    found = [LIA(steps=10, seed=0, n_seeds=2, dropout=0.5).fit(TABLE, X).posteriors_ for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(*found)


def test_gold_may_be_a_list_for_many_seeds():
    gold = [int(truth) if i < 9 else -1 for i, truth in enumerate(TRUTH)]
    model = LIA(steps=5, n_seeds=2).fit(TABLE, X, gold=gold)
    np.testing.assert_array_equal(model.posteriors_[:, np.arange(9), TRUTH[:9]], 1)
