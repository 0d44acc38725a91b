"""What the tests of all engines ask: is it the answer of `local`?"""

import warnings
from typing import Any

import numpy as np

from dissensus import methods
from dissensus.evaluation.hard import TIE_TOLERANCE
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.base import methods_for

METHODS = [name for name in methods_for("classes") if "engine" in methods[name].declared()]
"""Those that run everywhere."""


def fit(method: str, table, gold=None, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return methods[method](**keywords).fit(table, gold=gold)


def assert_agree(one, other, atol: float = 1e-6) -> None:
    """Posteriors, annotators and the way there; labels, but where the best two classes are within 1e-9."""
    assert one.n_iter_ == other.n_iter_
    np.testing.assert_allclose(other.posterior_, one.posterior_, atol=atol)
    np.testing.assert_allclose(other.reliability_, one.reliability_, atol=atol)
    np.testing.assert_allclose(other.item_total_, one.item_total_, rtol=1e-9)
    assert other.dependence_ == one.dependence_
    np.testing.assert_allclose(other.trace_, one.trace_, rtol=1e-9)
    best = np.sort(one.posterior_, axis=1)[:, -2:]
    clear = best[:, 1] - best[:, 0] > TIE_TOLERANCE
    np.testing.assert_array_equal(one.predict()[clear], other.predict()[clear])


def independent(method: str) -> dict[str, Any]:
    """Keywords of a method that takes the labels of an item for independent."""
    return {"dependence": None} if "dependence" in methods[method].declared() else {}


def short(method: str, passes: int) -> dict[str, Any]:
    """Keywords that end a fit early; restarts, which draw, are among what must agree."""
    if method in ("majority-vote", "wawa"):
        return {}
    communities = {"communities": 2} if method == "community-bcc" else {}
    return {"max_iter": passes} | communities | ({} if method == "zero-based-skill" else {"restarts": 2})
