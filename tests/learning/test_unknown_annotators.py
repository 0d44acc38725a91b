"""Algorithm 4: every step lowers KL, all at once is one by one; and what reads the answer says so."""

import numpy as np
import pytest
import torch

from dissensus.common.exceptions import UnknownParameter
from dissensus.evaluation import kl_divergence
from dissensus.exceptions import BadParameter
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import Identity
from dissensus.learning.exceptions import (
    AnnotatorNameMissing,
    DistributionsNeeded,
    RowCountDiffers,
    WrongModel,
)
from dissensus.learning.objectives.ldl_nm import LDLNMObjective
from dissensus.learning.unknown_annotators import infer_annotators, leaking_proba
from learning.test_ldl_nm import TABLE, X, two_camps

Y = TABLE.soft_labels()


@pytest.fixture(scope="module")
def model():
    objective = LDLNMObjective(item_size=4, annotator_size=5)
    return CrowdClassifier(encoder=Identity(), objective=objective, epochs=15, batch_size=10, device="cpu").fit(
        TABLE, X
    )


@pytest.mark.parametrize("by", ["label", "item"])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_every_step_lowers_kl_for_everybody(model, by, spread):
    found = infer_annotators(model, X, Y, compared_output=by, rate=0.2, steps=60, spread=spread)
    assert found.trace.shape == (61, TABLE.n_items)
    assert (np.diff(found.trace, axis=0) <= 1e-6).all()
    assert (np.diff(found.trace.mean(axis=1)) < 0).all()
    assert found.trace[-1].mean() < 0.97 * found.trace[0].mean()


def test_the_trace_is_kl_to_what_the_network_says(model):
    found = infer_annotators(model, X, Y, steps=3, rate=0.5)
    said = np.stack([found.label_proba(X[i : i + 1])[0, i] for i in range(TABLE.n_items)])
    np.testing.assert_allclose(kl_divergence(Y, said / said.sum(axis=1, keepdims=True)), found.trace[-1], atol=1e-5)


def test_a_step_is_the_slope_by_differences(model):
    """z after one step from 0 is −β times the gradient, and decay takes its share of what is there."""
    rate, head, width = 0.5, model.network_.head, 5
    first = infer_annotators(model, X[:2], Y[:2], steps=1, rate=rate).embedding
    z_item = head.z_item(model.network_.encoder(**model.encoder_.prepare(X[:2]).take(torch.arange(2))))

    def kl(z):
        with torch.no_grad():
            h = torch.softmax(head.to_label(head.z_pair(z_item, torch.as_tensor(z).float())).double(), dim=1).numpy()
        return kl_divergence(Y[:2], h / h.sum(axis=1, keepdims=True))

    for d in range(width):
        step = np.zeros((2, width))
        step[:, d] = 1e-3
        np.testing.assert_allclose(first[:, d], -rate * (kl(step) - kl(-step)) / 2e-3, atol=2e-3)
    start = infer_annotators(model, X[:2], Y[:2], steps=0, spread=1.0).embedding
    plain = infer_annotators(model, X[:2], Y[:2], steps=1, spread=1.0, rate=rate).embedding
    decayed = infer_annotators(model, X[:2], Y[:2], steps=1, spread=1.0, rate=rate, decay=0.1).embedding
    np.testing.assert_allclose(plain - decayed, 0.1 * start, atol=1e-6)


def test_all_at_once_is_one_by_one(model):
    names = np.array(["b", "a", "b", "c", "a"])
    together = infer_annotators(model, X[:5], Y[:5], annotator=names, steps=7)
    assert together.annotators.tolist() == ["a", "b", "c"]
    for at, name in enumerate("abc"):
        own = np.flatnonzero(names == name)
        alone = infer_annotators(model, X[own], Y[own], annotator=names[own], steps=7)
        np.testing.assert_allclose(together.embedding[at], alone.embedding[0], atol=1e-6)
        np.testing.assert_allclose(together.trace[:, at], alone.trace[:, 0], atol=1e-6)
        each = infer_annotators(model, X[own], Y[own], steps=0)
        assert together.trace[0, at] == pytest.approx(each.trace[0].mean(), abs=1e-6)


def test_somebody_new_is_found_by_a_few_labels():
    """Of the camp that sees it the other way round: three labels tell."""
    table, x = two_camps()
    objective = LDLNMObjective(item_size=4, annotator_size=4, dropout=0.1)
    model = CrowdClassifier(encoder=Identity(), objective=objective, epochs=60, batch_size=25, learning_rate=0.01,
                            head_learning_rate=0.02, device="cpu").fit(table, x)  # fmt: skip
    new = np.array([[1.0], [-1.0], [1.2]], np.float32)
    yes = model.classes_.tolist().index("yes")
    labels = np.eye(2)[[1 - yes, yes, 1 - yes]]
    found = infer_annotators(model, new, labels, annotator=["n", "n", "n"])
    said = found.label_proba(np.array([[-0.8], [0.8]], np.float32))
    assert said[0, 0, yes] > 0.8
    assert said[1, 0, yes] < 0.2


def test_the_answer_is_read_by_the_leaking_protocol(model):
    trace = infer_annotators(model, X, Y, compared_output="item", steps=200).trace
    leaked = kl_divergence(Y, leaking_proba(model, X, Y, steps=200)).mean()
    assert leaked == pytest.approx(trace[-1].mean(), abs=1e-5)
    assert leaked < kl_divergence(Y, model.predict_proba(X)).mean()


def test_wrong_arguments_are_one_clear_error(model):
    with pytest.raises(AnnotatorNameMissing) as missing:
        infer_annotators(model, X[:2], Y[:2], annotator=["eve", None])
    assert missing.value.row == 1
    with pytest.raises(UnknownParameter) as unknown:
        leaking_proba(model, X, Y, speed=3)
    assert unknown.value.name == "speed"
    for keywords in ({"compared_output": "votes"}, {"steps": -1}, {"rate": -1.0}, {"spread": np.nan}, {"seed": "x"}):
        with pytest.raises(BadParameter):
            infer_annotators(model, X, Y, **keywords)
    for y in (Y[:, :2], 2 * Y):
        with pytest.raises(DistributionsNeeded) as wrong:
            infer_annotators(model, X, y)
        assert wrong.value.shape == y.shape
    with pytest.raises(RowCountDiffers) as uneven:
        infer_annotators(model, X, Y, annotator=["a"])
    assert (uneven.value.n_rows, uneven.value.n_entries) == (len(Y), 1)
    other = CrowdClassifier(encoder=Identity(), objective="soft", epochs=1, device="cpu").fit(TABLE, X)
    with pytest.raises(WrongModel) as needed:
        infer_annotators(other, X, Y)
    assert needed.value.actual == "Soft"
