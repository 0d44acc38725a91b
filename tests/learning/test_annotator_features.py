"""What is known of annotators: how a frame becomes numbers, what LIA makes of them, and who was not there."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from crowds import blobs
from dissensus import Annotations
from dissensus.exceptions import DataError, MissingColumn
from dissensus.learning import LIA, CrowdClassifier
from dissensus.learning.annotator_features import AnnotatorFeatures, is_frame
from dissensus.learning.encoders import MLP
from dissensus.learning.exceptions import (
    AnnotatorNameMissing,
    ArgumentLengthsDiffer,
    CheckpointOfAnotherRun,
    ColumnTypeDiffers,
    FittedWithoutFeatures,
    InfiniteFeature,
    MissingFeature,
    NoAnnotatorFeatures,
    NoCommonAnnotators,
    NotAFrame,
    RepeatedRow,
    UnsupportedColumn,
    UnusedAnnotatorFeatures,
)
from dissensus.learning.objectives import LIAObjective
from faults import raised
from learning.tables import fitted, sparse_table
from tables import KINDS as ROWS

NAMES = np.array([f"w{j:02d}" for j in range(13)], object)
FRAME = {
    "annotator": NAMES.tolist(),
    "age": [20, 30, None, 50, 40, 35, 25, 45, 55, 31, 29, 28, 60],
    "country": ["DE"] * 6 + ["US"] * 5 + ["FR", "IT"],
}

# The encoding ---------------------------------------------------------------------------------------------------------


def test_numbers_are_standardised_and_levels_are_columns_all_centred():
    made = AnnotatorFeatures.fit(FRAME, NAMES)
    names, r = made.encode(FRAME)
    assert names.tolist() == NAMES.tolist()
    ages = np.array([age for age in FRAME["age"] if age is not None])
    for j, age in enumerate(FRAME["age"]):
        expected = 0.0 if age is None else (age - ages.mean()) / ages.std()
        assert r[j, 0] == pytest.approx(expected)
        assert r[j, 1] == pytest.approx((age is None) - 1 / 13)
    known = FRAME["country"][:11]  # FR and IT are two annotators together, and have no column
    assert r.shape == (13, 4)
    for j, country in enumerate(known):
        assert r[j, 2:] == pytest.approx([(country == "DE") - 6 / 11, (country == "US") - 5 / 11])
    assert (r[11:, 2:] == 0).all()


def test_rare_levels_are_one_and_missing_is_a_level():
    levels = ["a"] * 6 + ["b", "b", "c", "d", "e"] + [None] * 5 + [""]
    names = np.array([f"w{j:02d}" for j in range(len(levels))], object)
    _, r = AnnotatorFeatures.fit({"annotator": names, "x": levels}, names).encode({"annotator": names, "x": levels})
    assert r.shape == (17, 3)
    centre = np.array([6, 5, 6]) / 17
    for j, place in enumerate([0] * 6 + [1] * 5 + [2] * 6):
        assert r[j] == pytest.approx(np.eye(3)[place] - centre)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table, dict, lambda f: pl.DataFrame(f).lazy()])
def test_frames_of_all_kinds_are_the_same(kind):
    frame = kind(FRAME)
    assert is_frame(frame)
    made = AnnotatorFeatures.fit(frame, NAMES)
    assert np.array_equal(
        made.compute_features(frame, NAMES), AnnotatorFeatures.fit(FRAME, NAMES).compute_features(FRAME, NAMES)
    )


def test_names_are_no_frame():
    for names in (["a", "b"], np.array(["a"]), pa.array(["a"]), pl.Series(["a"]), pd.Series(["a"])):
        assert not is_frame(names)


def test_categories_and_booleans_are_levels():
    frame = pd.DataFrame(FRAME).assign(country=pd.Categorical(FRAME["country"]), expert=[True] * 7 + [False] * 6)
    made = AnnotatorFeatures.fit(frame, NAMES)
    assert list(made.columns["country"]) == ["DE", "US"]
    assert list(made.columns["expert"]) == ["False", "True"]


def test_rows_in_another_order_and_rows_of_others_change_no_bit():
    frame = pd.DataFrame(FRAME)
    expected = AnnotatorFeatures.fit(frame, NAMES)
    other = pd.DataFrame({"annotator": ["x1", "x2"], "age": [1000, 2000], "country": ["US", "FR"]})
    again = AnnotatorFeatures.fit(pd.concat([frame, other]).sample(frac=1, random_state=3), NAMES)
    assert again.columns == expected.columns
    assert np.array_equal(again.mean, expected.mean)
    assert np.array_equal(again.scale, expected.scale)


def test_what_is_not_known_is_average():
    made = AnnotatorFeatures.fit(FRAME, NAMES)
    _, r = made.encode({"annotator": ["new"], "age": pa.array([None], pa.int64()), "country": ["Atlantis"]})
    assert r[0, [0, 2, 3]].tolist() == [0, 0, 0]
    assert made.compute_features(FRAME, np.array(["stranger", "w03"], object))[0].tolist() == [0] * 4


@pytest.mark.parametrize(
    ("frame", "error", "facts"),
    [
        ({"annotator": ["w00", "w00"], "age": [1, 2]}, RepeatedRow, {"name": "'w00'", "n_rows": 2}),
        ({"annotator": ["w00"]}, NoAnnotatorFeatures, {}),
        ({"age": [1, 2]}, MissingColumn, {}),
        ({"annotator": ["a", "b"], "age": [1, 2]}, NoCommonAnnotators, {"n_annotators": 13, "frame_name": "'a'"}),
        ({"annotator": ["w00", None], "age": [1, 2]}, AnnotatorNameMissing, {"row": 1}),
        ({"annotator": ["w00", "w01"], "age": [1, math.inf]}, InfiniteFeature, {"column": "age", "row": 1}),
        ({"annotator": [0, 1], "age": [1, 2]}, DataError, {}),
        (
            pa.table({"annotator": ["w00"], "when": pa.array([18262], pa.date32())}),
            UnsupportedColumn,
            {"column": "when", "kind": "date32[day]"},
        ),
        (["w00", "w01"], NotAFrame, {"type_name": "list"}),
    ],
)
def test_bad_frames_are_named(frame, error, facts):
    with raised(error, **facts):
        AnnotatorFeatures.fit(frame, NAMES)


def test_columns_must_be_those_of_the_fit():
    made = AnnotatorFeatures.fit(FRAME, NAMES)
    with raised(MissingFeature, column="country", columns=("annotator", "age")):
        made.encode({"annotator": ["a"], "age": [1]})
    with raised(ColumnTypeDiffers, column="age", expected="numbers"):
        made.encode({"annotator": ["a"], "age": ["old"], "country": ["DE"]})
    with raised(ColumnTypeDiffers, column="country", expected="texts"):
        made.encode({"annotator": ["a"], "age": [1], "country": [7]})


# In the objective -----------------------------------------------------------------------------------------------------

FORMS = {"plain": {}, "one-hot": {"annotator_size": None}, "latent": {"latent": 3, "annotator_size": 5}}
A, K, F = 7, 4, 3


def described(table=None, **keywords):
    """(objective, head, z, targets) with features; annotators, their residuals and what features do all differ."""
    objective = LIAObjective(**keywords)
    objective.annotator_features_ = np.random.default_rng(2).normal(size=(A, F))
    objective, head, z, targets = fitted(objective, table)
    with torch.no_grad():
        for weight in (head.competence.table.weight, head.competence.feature_layer.weight):
            weight.add_(torch.randn(weight.shape))
    head.q.fill_(0.25)
    return objective, head, z, targets


def literal_rows(objective, head):
    """(A, E) u_j + W r_j, entry by entry; and V (K·K·L, E), b."""
    c = head.competence
    u, W = c.table.weight.detach().double().numpy(), c.feature_layer.weight.detach().double().numpy()
    e = np.zeros_like(u)
    for j in range(A):
        for m in range(u.shape[1]):
            e[j, m] = u[j, m] + sum(W[m, f] * objective.annotator_features_[j, f] for f in range(F))
    if c.linear is None:
        return e, u, W, np.eye(u.shape[1]), c.crowd.detach().double().numpy()
    return e, u, W, c.linear.weight.detach().double().numpy(), c.crowd.detach().double().numpy()


@pytest.mark.parametrize("form", FORMS)
def test_competence_is_residual_and_features(form):
    objective, head, _, _ = described(**FORMS[form])
    e, _, _, V, b = literal_rows(objective, head)
    shape = (K, K, objective.latent)
    who = torch.tensor([6, 2, 2, 0])
    found = head.competence(who)[0].detach().numpy()
    expected = np.stack([(V @ e[j] + b).reshape(shape) for j in who])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(head.competence.embeddings().detach(), e, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        head.competence.rows_or_average(who, torch.as_tensor(objective.label_totals_)).detach(),
        e[who],
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ROWS)
def test_pulls_are_the_literal_sums_over_annotators(rows, form):
    """α/2 Σ_j |V u_j|² of those with labels, once each, and β/2 |V W|², when all items have been seen."""
    table = sparse_table(**ROWS[rows])
    with_pulls, head, z, _ = described(table, residual_penalty=0.7, feature_penalty=0.3, **FORMS[form])
    without = LIAObjective(residual_penalty=0, feature_penalty=0, **FORMS[form]).fit(table, None, 0)
    without.annotator_features_ = with_pulls.annotator_features_
    _, u, W, V, _ = literal_rows(with_pulls, head)
    weight = np.ones(table.n_annotations) if table.weight is None else table.weight
    given = {j for j, w in zip(table.annotator, weight, strict=True) if w > 0}
    expected = 0.7 / 2 * sum(((V @ u[j]) ** 2).sum() for j in given) + 0.3 / 2 * ((V @ W) ** 2).sum()
    taught = torch.as_tensor(np.flatnonzero(with_pulls.train_mask_))
    found = 0.0
    for part in taught.split(5):
        targets = with_pulls.targets().take(part)
        found += (with_pulls.loss(head, z[part], targets) - without.loss(head, z[part], targets)).item()
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_who_was_not_there_has_the_mean_residual_and_its_features(form):
    objective, head, _, _ = described(**FORMS[form])
    e, u, W, _, _ = literal_rows(objective, head)
    share = objective.label_totals_ / objective.label_totals_.sum()
    r = np.random.default_rng(5).normal(size=(2, F))
    totals = torch.as_tensor(objective.label_totals_)
    found = head.competence.rows_or_average(torch.tensor([-1, 4]), totals, torch.as_tensor(r, dtype=torch.float32))
    expected = [share @ u + W @ r[0], u[4] + W @ r[1]]
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-4, atol=1e-5)
    average = head.competence.rows_or_average(torch.tensor([-1]), totals)[0].detach()
    np.testing.assert_allclose(average, share @ e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_features_start_without_effect(form):
    _, head, _, _ = fitted(LIAObjective(**FORMS[form]))
    known = LIAObjective(**FORMS[form])
    known.annotator_features_ = np.random.default_rng(2).normal(size=(A, F))
    _, other, _, _ = fitted(known)
    everyone = torch.arange(A)
    torch.testing.assert_close(head.competence(everyone), other.competence(everyone))


# In the models --------------------------------------------------------------------------------------------------------


SHORT = {"steps": 80, "hidden": (8,), "learning_rate": 0.02, "head_learning_rate": 0.05, "penalty": 0.02}


def two_groups(n=150, per_group=12, seed=0):
    """Annotators of a good group (right on 95 %) and of a bad one (on 55 %, who say "b" for "a"): table, X, frame."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    X = (np.eye(3)[truth] * 3 + rng.normal(size=(n, 3))).astype(np.float32)
    good = np.arange(2 * per_group) % 2 == 0
    item = np.repeat(np.arange(n), 6)
    who = np.concatenate([rng.permutation(2 * per_group)[:6] for _ in range(n)])
    right = rng.random(item.size) < np.where(good[who], 0.95, 0.55)
    label = np.where(right, truth[item], (truth[item] + 1) % 3)
    table = Annotations.from_arrays(
        [f"i{i:03d}" for i in item], [f"w{j:02d}" for j in who], np.array(list("abc"))[label]
    )
    return table, X, pd.DataFrame({"annotator": table.annotators, "group": np.where(good, "good", "bad")})


@pytest.fixture(scope="module")
def groups():
    table, X, frame = two_groups()
    return LIA(**SHORT).fit(table, X, annotators=frame), table, X, frame


def test_an_unseen_annotator_has_the_confusion_of_its_group(groups):
    model, _, _, frame = groups
    new = pl.DataFrame({"annotator": ["n1", "n2"], "group": ["good", "bad"]})
    confusion = model.confusion(None, new).mean(axis=0)  # (2, K, K)
    seen = model.confusion().mean(axis=0)  # (A, K, K)
    for place, group in enumerate(["good", "bad"]):
        own = seen[(frame["group"] == group).to_numpy()].mean(axis=0)
        np.testing.assert_allclose(confusion[place], own, atol=0.1)
    able = model.competence(None, new).mean(axis=0)
    assert able == pytest.approx([0.95, 0.55], abs=0.1)  # as simulated
    average = model.competence(None, ["n1"]).mean()
    assert able[1] + 0.1 < average < able[0] - 0.1


def test_what_each_would_say_of_new_items_is_asked_with_a_frame(groups):
    model, _, X, _ = groups
    proba = model.classifier_.predict_annotator_proba(X[:5], {"annotator": ["n1", "n2"], "group": ["good", "bad"]})
    assert proba.shape == (5, 2, 3)
    np.testing.assert_allclose(proba.sum(axis=2), 1)
    assert np.abs(proba[:, 0] - proba[:, 1]).max() > 0.2


def test_order_of_the_rows_and_the_kind_of_frame_change_no_bit(groups):
    model, table, X, frame = groups
    mixed = pl.DataFrame(frame.sample(frac=1, random_state=1).to_dict("list"))
    again = LIA(**SHORT).fit(table, X, annotators=mixed)
    assert np.array_equal(model.posterior_, again.posterior_)
    assert np.array_equal(model.embedding_, again.embedding_)


def test_without_features_nothing_changes():
    """Keywords that are of features only do nothing, and a frame of a fit before is forgotten."""
    table, X, frame = two_groups(60)
    plain = LIA(steps=20).fit(table, X)
    other = LIA(steps=20, feature_penalty=9)
    other.fit(table, X, annotators=frame)
    assert not np.array_equal(plain.posterior_, other.posterior_)
    other.fit(table, X)
    assert np.array_equal(plain.posterior_, other.posterior_)
    assert np.array_equal(plain.embedding_, other.embedding_)
    competence = plain.classifier_.network_.head.competence
    assert sorted(dict(competence.named_parameters())) == ["crowd", "linear.weight", "table.weight"]


def test_saved_and_loaded_says_the_same(tmp_path):
    table, X, frame = two_groups(60)
    frame["age"] = np.arange(len(frame)) * 1.5
    model = CrowdClassifier(encoder=MLP(hidden=(8,)), objective="lia", epochs=4, device="cpu")
    model.fit(table, X, annotators=frame, validation=0.2).save(tmp_path)
    again = CrowdClassifier.load(tmp_path, device="cpu")
    new = pd.DataFrame({"annotator": ["n1", "w03"], "group": ["good", None], "age": [30.0, None]})
    for whom in (new, ["w03", "nobody"]):
        assert np.array_equal(model.predict_annotator_proba(X, whom), again.predict_annotator_proba(X, whom))


def test_a_run_of_other_annotators_features_is_another_run(tmp_path):
    table, X, frame = two_groups(30)
    keywords = {"encoder": MLP(hidden=(8,)), "objective": "lia", "epochs": 2, "device": "cpu", "checkpoint": tmp_path}
    first = CrowdClassifier(**keywords).fit(table, X, annotators=frame)
    again = CrowdClassifier(**keywords).fit(table, X, annotators=frame)
    assert np.array_equal(first.posterior_, again.posterior_)
    frame["group"] = frame["group"].to_numpy()[::-1]
    with pytest.raises(CheckpointOfAnotherRun):
        CrowdClassifier(**keywords).fit(table, X, annotators=frame)


def test_objectives_without_a_use_for_features_say_so():
    table, X, _ = blobs()
    frame = {"annotator": table.annotators, "age": np.arange(table.n_annotators)}
    with raised(UnusedAnnotatorFeatures, objective="crowd-layer") as caught:
        CrowdClassifier(objective="crowd-layer", device="cpu").fit(table, X, annotators=frame)
    assert "lia" in caught.value.able
    model = CrowdClassifier(encoder=MLP(hidden=(8,)), objective="lia", epochs=1, device="cpu").fit(table, X)
    with pytest.raises(FittedWithoutFeatures):
        model.predict_annotator_proba(X, frame)


def test_columns_of_different_lengths_are_named_and_names_of_columns_may_be_numbers():
    with raised(ArgumentLengthsDiffer, argument="annotators", lengths={"annotator": 3, "age": 2}):
        AnnotatorFeatures.fit({"annotator": ["a", "b", "c"], "age": [1, 2]}, np.array(["a", "b"], object))
    described = AnnotatorFeatures.fit({"annotator": ["a", "b"], 2020: [1, 3]}, np.array(["a", "b"], object))
    np.testing.assert_allclose(described.encode({"annotator": ["c"], 2020: [5]})[1], [[3, 0]])
