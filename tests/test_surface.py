"""The names that others rely on, as the design lists them: they stay, whatever changes behind them."""

import numpy as np
import pytest

import dissensus as dz
from dissensus.table.simulate import simulate

DATA = simulate(150, 9, 3, redundancy=6, seed=2)
TABLE = DATA.annotations


def test_a_table_is_made_from_arrays_and_frames_and_shows_its_parts(tmp_path):
    arrays = dz.Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], ["yes", "no", "yes"])
    frame = {"item": ["a", "a", "b"], "annotator": ["x", "y", "x"], "label": ["yes", "no", "yes"]}
    import pyarrow as pa

    framed = dz.Annotations.from_frame(pa.table(frame), item="item", annotator="annotator", label="label")
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,x,yes\na,y,no\nb,x,yes\n")
    read = dz.read(tmp_path / "labels.csv")
    for table in (arrays, framed, read):
        assert [*table.items, *table.annotators, *table.classes] == ["a", "b", "x", "y", "no", "yes"]
        assert table.n_annotations == 3
        assert table.votes().tolist() == [[1, 1], [0, 1]]


def test_every_method_takes_a_seed_and_em_methods_their_options():
    for name in dz.methods:
        assert "seed" in dz.methods[name]().get_params()
    model = dz.methods["dawid-skene"](seed=0, max_iter=50, tol=1e-4, accelerate="squarem", dependence="auto").fit(TABLE)
    assert model.predict().shape == (150,)
    assert model.predict_proba().shape == (150, 3)
    assert model.reliability_.shape == (9,)
    assert model.trace_.ndim == 1
    assert isinstance(model.n_iter_, int)
    assert isinstance(model.converged_, bool)
    assert model.effective_labels_.shape == (150,)
    assert (model.effective_labels_ < 6).all()
    assert list(model.to_frame("items"))[:3] == ["item", "label", "confidence"]
    assert "reliability" in list(model.to_frame("annotators"))
    other = dz.Annotations.from_arrays([900], [900], [TABLE.classes[0]])
    assert model.predict_proba(other).shape == (1, 3)


def test_consensus_is_the_default_and_says_what_it_rests_on():
    best = dz.consensus(TABLE, gold=None, seed=0)
    np.testing.assert_array_equal(best.posterior_, dz.methods["consensus"](seed=0).fit(TABLE).posterior_)
    assert isinstance(best.chosen_, str)
    assert "Dawid-Skene" in best.chosen_
    assert sum(best.weights_.values()) == pytest.approx(1)
    assert set(best.weights_) <= set(dz.methods)
    gold = np.where(np.arange(150) < 40, DATA.truth, -1)
    assert dz.consensus(TABLE, gold=gold).posterior_[:40].max(axis=1).min() == 1
    numbers = dz.Annotations.from_arrays(["a", "a", "b", "b"], ["x", "y"] * 2, [1.5, 2.5, 4.0, 4.5], kind="numbers")
    graded = dz.consensus(numbers)
    assert graded.weights_ == {"gaussian": 1.0}
    assert graded.chosen_


def test_a_diagnosis_has_flag_probability_and_evidence():
    data = dz.load_dataset("digits-crowd")
    frame = dz.diagnose(data.annotations).to_frame()
    columns = {name: np.asarray(frame[name]) for name in ("annotator", "flag", "probability", "evidence")}
    flagged = columns["flag"] != ""
    assert 0 < flagged.sum() < flagged.size
    assert (columns["probability"][flagged] >= 0.75).all()
    assert (columns["probability"] <= 1).all()
    assert all(text for text in columns["evidence"][flagged])
    assert not any(columns["evidence"][~flagged])


def test_data_sets_have_their_parts():
    data = dz.load_dataset("digits-crowd")
    assert data.gold.shape == (data.annotations.n_items,)
    for part in ("items", "features", "annotators", "splits"):
        assert hasattr(data, part)


def test_calibrate_has_rates_posterior_judges_and_a_plan():
    found = dz.calibrate(TABLE, np.where(np.arange(150) < 60, DATA.truth, -1))
    assert {one.name for one in found.rates} == {str(name) for name in TABLE.classes}
    assert all(one.corrected.low <= one.corrected.value <= one.corrected.high for one in found.rates)
    assert found.posterior_.shape == (150, 3)
    assert found.judges is None or found.judges.effective_judges.value > 0
    assert found.plan(0.5).n_gold_needed == 60


def test_kinds_are_listed():
    assert {"classes", "graded", "numbers", "pairs", "sets", "objects", "spans"} == set(dz.kinds)
    assert TABLE.kind in dz.kinds


def test_a_classifier_learns_from_a_table_and_features():
    pytest.importorskip("torch")
    X = np.eye(3)[DATA.truth] + 0.3 * np.random.default_rng(0).standard_normal((150, 3))
    clf = dz.learning.CrowdClassifier(encoder="mlp", objective="auto", seed=0, epochs=2)
    clf.fit(TABLE, X, validation=None)
    assert clf.predict(X[:5]).shape == (5,)
    assert clf.predict_proba(X[:5]).shape == (5, 3)
    assert clf.posterior_.shape == (150, 3)
    assert clf.predict_sets(X[:5], coverage=0.9).members.shape == (5, 3)
