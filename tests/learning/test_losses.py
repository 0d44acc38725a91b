"""Losses against SciPy's values, at the edges of their domain, and in half precision."""

import numpy as np
import pytest
import torch
from scipy.special import rel_entr, softmax
from scipy.stats import entropy

from dissensus.exceptions import BadParameter
from dissensus.learning.losses import DIVERGENCES, cross_entropy, hard_loss, inverse_kl, kl
from dissensus.learning.objectives import Soft
from faults import raised

rng = np.random.default_rng(0)
LOGITS = rng.normal(0, 3, (5, 7))
Q = softmax(LOGITS, axis=1)
P = rng.dirichlet(np.ones(7), 5)
SPARSE = np.where(rng.random((5, 7)) < 0.5, 0, P) + np.eye(5, 7)  # zeros in every row
SPARSE /= SPARSE.sum(axis=1, keepdims=True)


def call(loss, target, logits, **keywords) -> np.ndarray:
    return loss(torch.as_tensor(target), torch.as_tensor(logits), **keywords).numpy()


@pytest.mark.parametrize(("keywords", "base"), [({}, None), ({"base": 2.0}, 2)])
@pytest.mark.parametrize("target", [P, SPARSE], ids=["positive", "with zeros"])
def test_kl_and_cross_entropy_equal_scipys(target, keywords, base):
    np.testing.assert_allclose(call(kl, target, LOGITS, **keywords), entropy(target, Q, axis=1, base=base), rtol=1e-12)
    np.testing.assert_allclose(
        call(cross_entropy, target, LOGITS, **keywords),
        entropy(target, Q, axis=1, base=base) + entropy(target, axis=1, base=base),
        rtol=1e-12,
    )


@pytest.mark.parametrize(("keywords", "base"), [({}, None), ({"base": 2.0}, 2)])
def test_inverse_kl_equals_scipys(keywords, base):
    np.testing.assert_allclose(call(inverse_kl, P, LOGITS, **keywords), entropy(Q, P, axis=1, base=base), rtol=1e-12)


def test_a_class_that_is_ruled_out_costs_nothing_where_the_target_has_none_of_it():
    logits, target = np.array([[0.3, -np.inf, 1.1]]), np.array([[0.25, 0.0, 0.75]])
    q = softmax(logits, axis=1)
    np.testing.assert_allclose(call(kl, target, logits), rel_entr(target, q).sum(axis=1))
    np.testing.assert_allclose(call(cross_entropy, target, logits), -0.25 * np.log(q[:, 0]) - 0.75 * np.log(q[:, 2]))
    np.testing.assert_allclose(call(inverse_kl, np.array([[0.25, 0.5, 0.25]]), logits),
                               rel_entr(q, [[0.25, 0.5, 0.25]]).sum(axis=1))  # fmt: skip
    x = torch.tensor(logits, requires_grad=True)
    (kl(torch.tensor(target), x) + cross_entropy(torch.tensor(target), x)).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_inverse_kl_is_infinite_where_the_target_is_zero():
    assert np.isinf(call(inverse_kl, SPARSE, LOGITS)).all()


@pytest.mark.parametrize("name", DIVERGENCES)
def test_gradients_are_those_of_finite_differences(name):
    target = torch.as_tensor(P)
    assert torch.autograd.gradcheck(lambda x: DIVERGENCES[name](target, x, 2.0), torch.tensor(LOGITS).requires_grad_())


@pytest.mark.parametrize("name", DIVERGENCES)
def test_logits_far_apart_stay_finite_in_float32(name):
    logits = torch.tensor([[-3e4, 2e4, 0.0]], requires_grad=True)
    value = DIVERGENCES[name](torch.tensor([[0.2, 0.3, 0.5]]), logits, 2.0)
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("name", DIVERGENCES)
def test_half_precision_logits_are_worked_on_in_float32(name):
    target, logits = torch.as_tensor(P, dtype=torch.float32), torch.as_tensor(LOGITS, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        value = DIVERGENCES[name](target, logits, 2.0)
    assert value.dtype == torch.float32
    np.testing.assert_allclose(value, DIVERGENCES[name](target.double(), logits.double(), 2.0), rtol=1e-5)


def test_hard_loss_is_the_sum_of_minus_log_q_over_the_items_with_a_label():
    label = np.array([3, -1, 0, 6, -1])
    expected = -sum(np.log(Q[i, y]) for i, y in enumerate(label) if y >= 0)
    np.testing.assert_allclose(hard_loss(torch.as_tensor(LOGITS), torch.as_tensor(label)), expected)
    assert hard_loss(torch.as_tensor(LOGITS), torch.full((5,), -1)) == 0


def test_a_wrong_name_is_told_the_right_ones():
    with raised(BadParameter, keyword="divergence"):
        Soft(divergence="js").check_parameters()
