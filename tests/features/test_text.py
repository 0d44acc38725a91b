"""Texts and words as vectors: against transformers and sentence-transformers themselves."""

import numpy as np
import pytest

from dissensus.exceptions import DataError
from dissensus.features import hub
from dissensus.features.text import word_vectors


@pytest.fixture(scope="module")
def reference():
    """Transformers' own tokenizer and network of the bundled model."""
    import transformers

    folder = hub.folder_of(None)
    with hub.reading(folder):
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
    with pytest.raises(DataError, match="row 1 is None, not a text"):
        word_vectors(["a", None])
    with pytest.raises(DataError, match="one string"):
        word_vectors("abc")
    with pytest.raises(DataError, match="row 0 holds half a character at place 1"):
        word_vectors(["a\ud800"])
