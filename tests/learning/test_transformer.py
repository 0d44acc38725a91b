"""The transformer encoder: against transformers itself, alone and in a classifier that is saved and loaded."""

import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="needs the `text` extra")

from dissensus import Annotations
from dissensus.exceptions import BadParameter
from dissensus.features import embed_texts, hub
from dissensus.features.exceptions import LoneSurrogate, NotAText
from dissensus.features.text import pool_states
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import Transformer, encoders
from dissensus.learning.encoders import transformer as module
from dissensus.learning.encoders.transformer import TransformerModule
from dissensus.learning.exceptions import TextModelDiffers, WrongInputRow
from faults import raised
from features.tiny import tiny_bert

TEXTS = ["the cat sat", "", "a good dog", "bad", "the good cat sat on the bad mat"]
PAIRS = [(text, target) for text, target in zip(TEXTS, ["cat", "mat", "", "bad", "the dog sat"], strict=True)]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def literal(folder, inputs, pooling):
    """One text or pair at a time, by transformers alone."""
    import transformers

    with hub.quiet_transformers(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        network = transformers.AutoModel.from_pretrained(folder).eval()
    rows = []
    for given in inputs:
        parts = ([given],) if isinstance(given, str) else ([given[0]], [given[1]])
        found = tokenizer(*parts, return_tensors="pt", return_token_type_ids=True)
        hidden = network(**found).last_hidden_state[0].detach().numpy()
        rows.append(hidden[0] if pooling == "cls" else hidden.mean(axis=0))
    return np.array(rows)


def vectors(encoder, X, rows=None):
    columns = encoder.prepare(X)
    batch = columns.take(torch.arange(len(columns)) if rows is None else torch.as_tensor(rows))
    with torch.inference_mode():
        return encoder.module().eval()(**batch).numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("X", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_vectors_are_transformers_own(bert, X, pooling):
    encoder = Transformer(bert, pooling=pooling).fit(X)
    expected = literal(bert, X, pooling)
    assert encoder.width == expected.shape[1] == 8
    np.testing.assert_allclose(vectors(encoder, X), expected, atol=1e-5)
    np.testing.assert_allclose(vectors(encoder, X, [4, 1]), expected[[4, 1]], atol=1e-5)
    np.testing.assert_allclose(vectors(encoder, X, [1]), expected[[1]], atol=1e-5)


@pytest.mark.parametrize("kind", ["roberta", "distilbert"])
def test_models_without_token_types(tmp_path, kind):
    folder = tiny_bert(tmp_path, kind)
    encoder = Transformer(folder).fit(PAIRS)
    assert encoder.width == 8
    frozen = embed_texts([a for a, _ in PAIRS], folder, pair=[b for _, b in PAIRS], cache=False)
    np.testing.assert_allclose(vectors(encoder, PAIRS), frozen, atol=1e-5)


def test_a_pair_is_cls_text_sep_target_sep(bert):
    batch = Transformer(bert).fit(PAIRS).prepare(PAIRS).take(torch.tensor([0, 1]))
    assert batch["ids"].tolist() == [[2, 7, 8, 9, 3, 8, 3], [2, 3, 13, 3, -1, -1, -1]]
    assert batch["types"].tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0, 0]]


def test_long_texts_are_cut(bert):
    batch = Transformer(bert, max_length=6).fit(TEXTS).prepare(["cat " * 30]).take(torch.tensor([0]))
    assert batch["ids"].tolist() == [[2, 8, 8, 8, 8, 3]]
    with raised(BadParameter, keyword="max_length"):
        Transformer(bert, max_length=99).fit(TEXTS)
    with raised(BadParameter, keyword="pooling"):
        Transformer(bert, pooling="max").fit(TEXTS)


def test_many_are_predicted_in_parts_of_like_length(bert, monkeypatch):
    encoder = Transformer(bert).fit(PAIRS)
    whole = vectors(encoder, PAIRS)
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 2)
    seen = []
    real = TransformerModule._pool_tokens

    def noted(self, ids, types):
        seen.append(tuple(ids.shape))
        return real(self, ids, types)

    monkeypatch.setattr(TransformerModule, "_pool_tokens", noted)
    np.testing.assert_allclose(vectors(encoder, PAIRS), whole, atol=1e-5)
    assert seen == [(2, 14), (2, 6), (1, 4)]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_float32_under_mixed_precision(bert, pooling):
    encoder = Transformer(bert, pooling=pooling).fit(PAIRS)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        found = encoder.module().eval()(**encoder.prepare(PAIRS).take(torch.arange(5)))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, vectors(encoder, PAIRS), atol=0.1)


def test_a_mean_is_taken_in_float32():
    hidden = torch.ones(1, 300, 1, dtype=torch.bfloat16)
    hidden[0, 0] = 1.5
    inside = torch.arange(300)[None] < 257
    assert float(pool_states(hidden, inside, "mean")) == pytest.approx(1 + 0.5 / 257, abs=1e-6)
    assert pool_states(hidden, inside, "cls").dtype == torch.float32


def test_every_weight_of_the_module_learns(bert):
    encoder = Transformer(bert).fit(PAIRS)
    network = encoder.module()
    network(**encoder.prepare(PAIRS).take(torch.arange(5))).square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_frozen_vectors_are_those_of_features_at_length_sqrt_width(bert, tmp_path):
    encoder = Transformer(bert, tune=False, cache=tmp_path).fit(TEXTS)
    rows = embed_texts(TEXTS, bert, cache=tmp_path)
    found = vectors(encoder, TEXTS)
    np.testing.assert_allclose(found, np.sqrt(8) * rows / np.linalg.norm(rows, axis=1)[:, None], rtol=1e-5)
    assert not list(encoder.module().parameters())
    assert encoder.learning_rate == 1e-3 > Transformer().learning_rate == 5e-5
    pairs = Transformer(bert, tune=False, cache=tmp_path).fit(PAIRS)
    assert np.abs(vectors(pairs, PAIRS) - found).max() > 0.01


def test_inputs_must_be_of_the_kind_that_was_fitted(bert):
    texts, pairs = Transformer(bert).fit(TEXTS), Transformer(bert).fit(PAIRS)
    with raised(NotAText, row=0):
        texts.prepare(PAIRS)
    with raised(WrongInputRow, row=0, value="'the cat sat'"):
        pairs.prepare(TEXTS)
    with raised(WrongInputRow, row=1, value="('b', 3)"):
        pairs.prepare([("a", "a"), ("b", 3)])
    with raised(LoneSurrogate, row=1):
        texts.prepare(["a", "\ud800"])
    assert len(texts.prepare([])) == len(pairs.prepare([])) == 0


def test_frames_have_texts_and_pairs(bert):
    import polars as pl

    frame = pl.DataFrame({"text": [a for a, _ in PAIRS], "target": [b for _, b in PAIRS]})
    by_list, by_frame = Transformer(bert).fit(PAIRS), Transformer(bert).fit(frame)
    assert by_frame.pairs_
    np.testing.assert_array_equal(vectors(by_frame, frame), vectors(by_list, PAIRS))
    assert not Transformer(bert).fit(frame["text"]).pairs_


def labelled(n=24):
    """Texts that are good or bad, labelled by three who agree."""
    X = [("the good cat", "the bad dog", "good", "bad")[i % 4] + " sat" * (i % 3) for i in range(n)]
    names = [("good", "bad")[i % 2] for i in range(n) for _ in range(3)]
    item = [f"i{i:02d}" for i in range(n) for _ in range(3)]
    return Annotations.from_arrays(item, ["u", "v", "w"] * n, names), X


@pytest.mark.parametrize("tune", [True, False], ids=["tuned", "frozen"])
@pytest.mark.parametrize("paired", [False, True], ids=["texts", "pairs"])
def test_a_saved_model_needs_no_folder(tmp_path, monkeypatch, tune, paired):
    folder = tiny_bert(tmp_path / "bert")
    table, X = labelled()
    if paired:
        X = [(text, "cat") for text in X]
    encoder = Transformer(folder, tune=tune, cache=tmp_path / "cache")
    model = CrowdClassifier(
        encoder=encoder, objective="hard", epochs=12, batch_size=8, learning_rate=1e-2, device="cpu"
    ).fit(table, X)
    if tune:  # eight random numbers per text are no features
        assert model.score(X, [("good", "bad")[i % 2] for i in range(len(X))]) == 1.0
    assert model.trace_[-1] < model.trace_[0]
    new = [("bad dog", ""), ("", "a"), ("the cats", "dog")] if paired else ["bad dog", "", "the cats"]
    before = model.predict_proba(new)
    model.save(tmp_path / "saved")
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    monkeypatch.setattr(hub, "load_pretrained", lambda folder: pytest.fail("pretrained weights were read"))
    loaded = CrowdClassifier.load(tmp_path / "saved", device="cpu")
    np.testing.assert_allclose(loaded.predict_proba(new), before, atol=1e-6)


def test_the_bundled_model_is_named_by_what_it_is_and_frozen_models_do_not_carry_it():
    encoder = encoders["transformer"](tune=False, cache=False).fit(["a"])
    assert encoder.weights_ is None
    assert encoder.width == 384
    np.testing.assert_allclose(np.linalg.norm(vectors(encoder, ["", "cat"]), axis=1), np.sqrt(384), rtol=1e-5)
    encoder.identity_ = "another"
    with raised(TextModelDiffers, package=hub.BUNDLED_MODEL):
        encoder.prepare(["a"])


def test_the_same_seed_gives_the_same_bits(bert):
    table, X = labelled(12)
    runs = [
        CrowdClassifier(encoder=Transformer(bert), objective="hard", epochs=2, device="cpu", seed=3).fit(table, X)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].proba_, runs[1].proba_)
