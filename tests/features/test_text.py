"""Texts and words as vectors: against transformers and sentence-transformers themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the `text` extra")

from dissensus.exceptions import BadParameter, MissingExtra
from dissensus.features import embed_pairs, embed_texts, hub, word_vectors
from dissensus.features import text as module
from dissensus.features.exceptions import (
    BundledModelMissing,
    GenerativeModel,
    LoneSurrogate,
    ModelNotFound,
    ModelOfWrongType,
    ModelWithoutConfig,
    ModelWithoutWeights,
    NotAText,
    SingleString,
    UnequalTexts,
    UnreadableModel,
)
from dissensus.features.text import read_text_model, tokenize_texts
from faults import raised
from features.tiny import tiny_bert

TEXTS = [
    "the cat sat", "", "a", "Zürich is a city — 日本語, too :-)", "\n", "[PAD] [SEP] are words here", "the cat sat",
    "many words " * 200,
]  # fmt: skip
KINDS = ["bert", "roberta", "distilbert"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One tiny model of every kind."""
    return {kind: tiny_bert(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def literal(folder, first, second=None, pooling="mean", max_length=18):
    """One text at a time, by transformers alone, without padding."""
    import transformers

    with hub.quiet_transformers(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        network = transformers.AutoModel.from_pretrained(folder).eval()
    types = network.config.to_dict().get("type_vocab_size") == 2
    rows = []
    for i, text in enumerate(first):
        found = tokenizer(
            [text], None if second is None else [second[i]],
            truncation=True, max_length=max_length, return_tensors="pt", return_token_type_ids=types,
        )  # fmt: skip
        hidden = network(**found).last_hidden_state[0].detach().numpy()
        rows.append(hidden[0] if pooling == "cls" else hidden.mean(axis=0))
    return np.array(rows)


def test_the_bundled_model_gives_sentence_transformers_vectors():
    from sentence_transformers import SentenceTransformer

    folder = hub.find_model_folder(None)
    with hub.quiet_transformers(folder):
        theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, show_progress_bar=False)
    ours = embed_texts(TEXTS, cache=False, batch_size=3, device="cpu")
    assert ours.dtype == np.float32
    assert ours.shape == (8, 384)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(ours[0], ours[6])
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_any_model_from_a_folder_alone_and_in_pairs(folders, kind, pooling):
    first = ["the cat sat on the mat", "", "dogs", "the bad dog " * 9]
    second = ["mat", "good", "", "the good cats"]
    for more in ({}, {"pair": second}):
        ours = embed_texts(first, folders[kind], pooling=pooling, cache=False, batch_size=3, **more)
        np.testing.assert_allclose(ours, literal(folders[kind], first, more.get("pair"), pooling), rtol=0, atol=1e-5)


def test_a_pair_keeps_its_short_target_whole(folders):
    found, types = tokenize_texts(read_text_model(folders["bert"]), ["the cat " * 30], ["bad dog"], 10)[0]
    assert len(found) == 10
    assert found[-4:] == [3, 16, 10, 3]  # [SEP] bad dog [SEP]
    assert types == [0] * 7 + [1] * 3


def test_a_tokenizer_without_special_tokens_and_an_empty_text(tmp_path):
    folder = tiny_bert(tmp_path, special=False)
    rows = embed_texts(["", "cat"], folder, cache=False)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows[1:], literal(folder, ["cat"]), atol=1e-6)


def test_texts_are_embedded_once(folders, tmp_path, monkeypatch):
    asked = []

    def noted(model, texts, pair, max_length):
        asked.extend(texts)
        return tokenize_texts(model, texts, pair, max_length)

    monkeypatch.setattr(module, "tokenize_texts", noted)
    first = embed_texts(["cat", "the dog", "cat"], folders["bert"], cache=tmp_path)
    assert sorted(asked) == ["cat", "the dog"]
    again = embed_texts(["the dog", "cat"], folders["bert"], cache=tmp_path)
    assert len(asked) == 2
    np.testing.assert_array_equal(again, first[[1, 0]])
    for other in ({"pooling": "cls"}, {"max_length": 5}, {"pair": ["", ""]}, {"model": folders["roberta"]}):
        before = len(asked)
        embed_texts(["the dog", "cat"], **{"model": folders["bert"], "cache": tmp_path} | other)
        assert len(asked) == before + 2, other


def test_weights_that_changed_in_the_same_folder_are_another_model(tmp_path):
    folder = tiny_bert(tmp_path / "model")
    before = embed_texts(["cat"], folder, cache=tmp_path)
    tiny_bert(folder, seed=1)
    after = embed_texts(["cat"], folder, cache=tmp_path)
    assert np.abs(before - after).max() > 0.01
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert hub.hash_model_files(moved) == hub.hash_model_files(folder)


def test_vectors_that_are_all_there_need_no_weights(folders, tmp_path, monkeypatch):
    kept = embed_texts(["cat", "dog"], folders["bert"], cache=tmp_path)
    monkeypatch.setattr(module, "load_network", lambda model: pytest.fail("the network was read"))
    np.testing.assert_array_equal(embed_texts(["cat", "dog"], folders["bert"], cache=tmp_path), kept)


def test_no_texts_are_no_rows(folders):
    assert embed_texts([], folders["bert"], cache=False).shape == (0, 8)
    assert embed_pairs([], [], folders["bert"], cache=False).shape == (0, 32)


def test_pairs_are_both_their_difference_and_their_product(folders):
    first, second = ["cat", "the dog", ""], ["the dog", "the dog", "a"]
    a, b = (embed_texts(texts, folders["bert"], cache=False) for texts in (first, second))
    found = embed_pairs(first, second, folders["bert"], cache=False)
    for i in range(3):
        for d in range(8):
            expected = [a[i, d], b[i, d], abs(a[i, d] - b[i, d]), a[i, d] * b[i, d]]
            np.testing.assert_allclose(found[i, d::8], expected, atol=1e-5)


def test_wrong_arguments_are_one_sentence(folders, tmp_path):
    bert = folders["bert"]
    with raised(BadParameter, keyword="pooling"):
        embed_texts(["a"], bert, pooling="max")
    with raised(BadParameter, keyword="max_length"):
        embed_texts(["a"], bert, max_length=21)
    with raised(BadParameter, keyword="batch_size"):
        embed_texts(["a"], bert, batch_size=0)
    with raised(UnequalTexts, argument="pair", n_texts=2, other_argument="texts", n_other=1):
        embed_texts(["a"], bert, pair=["b", "c"])
    with raised(UnequalTexts, argument="second", n_texts=2, other_argument="first", n_other=1):
        embed_pairs(["a"], ["b", "c"], bert)
    with raised(NotAText, argument="pair", row=0, value="3"):
        embed_texts(["a"], bert, pair=[3])
    with raised(ModelNotFound, model="no/such"):
        embed_texts(["a"], "no/such")
    with raised(ModelOfWrongType, got="int"):
        embed_texts(["a"], 3)
    with raised(ModelWithoutConfig, folder=tmp_path):
        embed_texts(["a"], tmp_path)


@pytest.mark.parametrize("harm", ["config", "weights", "tokenizer", "lacking"])
def test_a_damaged_model_is_one_sentence(tmp_path, harm):
    folder = tiny_bert(tmp_path)
    if harm == "lacking":
        from safetensors.torch import load_file, save_file

        state = load_file(folder / "model.safetensors")
        kept = {name: value for name, value in state.items() if not name.startswith("encoder.layer.1.")}
        save_file(kept, folder / "model.safetensors", {"format": "pt"})
    else:
        name = {"config": "config.json", "weights": "model.safetensors", "tokenizer": "tokenizer.json"}[harm]
        (folder / name).write_bytes((folder / name).read_bytes()[:99])
    with raised(ModelWithoutWeights, n_missing=16) if harm == "lacking" else raised(UnreadableModel, folder=folder):
        embed_texts(["a"], folder, cache=False)


def test_a_model_that_writes_texts_is_refused(tmp_path):
    import transformers

    transformers.T5Config(vocab_size=9, d_model=8, num_layers=1).save_pretrained(tmp_path)
    with raised(GenerativeModel, kind="t5"):
        embed_texts(["a"], tmp_path)


def test_reading_a_model_is_quiet(tmp_path, capfd):
    folder = tiny_bert(tmp_path, seed=5)
    capfd.readouterr()
    embed_texts(["cat"], folder, cache=False)
    assert capfd.readouterr() == ("", "")


def test_a_missing_extra_is_named(monkeypatch, folders):
    def without(name):
        raise ImportError("no", name=name)

    monkeypatch.setattr("dissensus.common.extras.import_module", without)
    module._read_cached_model.cache_clear()
    with pytest.raises(MissingExtra):
        embed_texts(["a"], folders["bert"])
    monkeypatch.setattr(hub, "BUNDLED_MODEL", "no_such_package")
    with pytest.raises(BundledModelMissing):
        embed_texts(["a"])


def test_import_brings_no_torch():
    code = "import sys, dissensus.features; print([name for name in ('torch', 'transformers') if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def reference():
    """Transformers' own tokenizer and network of the bundled model."""
    import transformers

    folder = hub.find_model_folder(None)
    with hub.quiet_transformers(folder):
        return transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()


def test_a_word_is_the_mean_of_its_pieces_input_embeddings(reference):
    tokenizer, network = reference
    words = ["hello", "crowdsourcing", "Zürich", "zzyzx", "hello"]
    found = word_vectors(words)
    table = network.get_input_embeddings().weight.detach().numpy()
    assert found.shape == (5, 384)
    assert found.dtype == np.float32
    for word, vector in zip(words, found, strict=True):
        ids = tokenizer(word, add_special_tokens=False)["input_ids"]
        np.testing.assert_allclose(vector, np.mean([table[i] for i in ids], axis=0), rtol=0, atol=1e-7)
    assert len(tokenizer("crowdsourcing", add_special_tokens=False)["input_ids"]) > 1


def test_a_word_without_pieces_is_zero():
    assert not word_vectors([""]).any()
    assert word_vectors([]).shape == (0, 384)


def test_what_is_no_word_is_named():
    with raised(NotAText, row=1, value="None"):
        word_vectors(["a", None])
    with raised(SingleString, argument="words"):
        word_vectors("abc")
    with raised(LoneSurrogate, argument="words", row=0, position=1):
        word_vectors(["a\ud800"])
