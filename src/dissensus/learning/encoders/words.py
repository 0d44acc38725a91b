"""Codes of words and characters, and initial word vectors.

A vocabulary is a sorted list of the distinct words (or characters) of the training inputs. Entry n has code n + 2; code
0 is padding and code 1 is an unknown word. A word that is not in the vocabulary is looked up in lower case.

Word vectors are initialised by one of:

- `vectors="glove.txt"`: a text file with a word and its numbers per line, such as those of GloVe and word2vec (the
  first line of word2vec, which contains two sizes, is skipped; gzip is unpacked),
- `vectors="transformer"`: the input embeddings of the bundled MiniLM, averaged over the pieces of a word, centred and
  scaled to a standard deviation of 1,
- `vectors=None`: random numbers.

The words of the training inputs come first, and their vectors are trained unless `tune=False`. With the first two kinds
of vectors, further words have vectors: the first `extra_words` words of the file (which are the frequent words in all
published files), or the words that are a single piece of the transformer. These words come last. Their vectors are
saved with the model and are not trained, so a saved model needs neither the file nor the transformer. All unknown words
share one vector. Its initial value is the mean of all others. It is trained, because words of the training inputs are
replaced by the unknown word with probability `word_dropout`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray
from dissensus.learning.batches import PaddedSequences
from dissensus.learning.encoders.base import Encoder
from dissensus.learning.exceptions import NotAWordVector, NoWordVectors, UnknownWords
from dissensus.messages import quote_name
from dissensus.table.io.files import open_bytes, report_read_errors

PADDING, UNKNOWN, FIRST_CODE = 0, 1, 2  # FIRST_CODE is the code of the first entry of the vocabulary.


def build_vocabulary(sequences: Iterable[Iterable[str]]) -> list[str]:
    """Return the sorted distinct words (or characters) of the sequences."""
    return sorted({entry for sequence in sequences for entry in sequence})


def encode_sequences(sequences: Sequence[Sequence[str]], known: Sequence[str], shortest: int = 1) -> PaddedSequences:
    """Return the codes of sequences of words (or characters) as a column of padded sequences."""
    code = {entry: n for n, entry in enumerate(known, FIRST_CODE)}
    codes = [code.get(e) or code.get(e.lower(), UNKNOWN) for sequence in sequences for e in sequence]
    ptr = np.cumsum([0, *(len(sequence) for sequence in sequences)])
    return PaddedSequences({"code": torch.tensor(codes, dtype=torch.int64)}, torch.from_numpy(ptr), PADDING, shortest)


def find_distinct_rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of one row per distinct entry of a batch, and the number of the entry of each row."""
    values, which = torch.unique(ids, return_inverse=True)
    first = values.new_empty(len(values)).scatter_(0, which, torch.arange(len(ids), device=ids.device))
    return first, which


def make_character_vectors(characters: Sequence[str], size: int) -> nn.Embedding:
    """Return a random embedding of the codes of these characters, with zeros for padding."""
    return nn.Embedding(FIRST_CODE + len(characters), size, padding_idx=PADDING)


class WordVectors(nn.Module):
    """Word vectors (…, D) for codes (…), with zeros for padding.

    `start` (W, D) contains the initial vectors of codes 1, 2, …, with NaN for words without a vector. The last `kept`
    rows are not trained.
    """

    def __init__(self, start: Tensor, kept: int = 0, tune: bool = True, word_dropout: float = 0.0):
        super().__init__()
        self.word_dropout = word_dropout
        start = start.clone()
        without = start.isnan().any(dim=1)
        spread = start[~without].std() if (~without).sum() > 1 else torch.tensor(1.0)
        start[without] = torch.randn(int(without.sum()), start.shape[1]) * spread
        start[0] = start[1:].mean(dim=0) if len(start) > 1 else 0.0
        self.tuned = nn.Parameter(start[: len(start) - kept].clone(), requires_grad=tune)
        self.register_buffer("frozen", start[len(start) - kept :].clone())
        self.frozen: Tensor

    def forward(self, codes: Tensor) -> Tensor:
        if self.training and self.word_dropout:
            drop = torch.rand(codes.shape, device=codes.device) < self.word_dropout
            codes = torch.where(drop & (codes != PADDING), UNKNOWN, codes)
        row, n = codes - UNKNOWN, len(self.tuned)
        z = embedding(row.clamp(0, n - 1), self.tuned)
        if len(self.frozen) and not self.training:
            beyond = embedding((row - n).clamp(min=0), self.frozen)
            z = torch.where((row >= n)[..., None], beyond, z)
        return z * (codes != PADDING)[..., None]


class WordEncoder(Encoder):
    """Base class for encoders of words, such as `text-cnn` and `tagger`."""

    vectors: str | None = param(
        None,
        "initial word vectors: a file, 'transformer', or None for random numbers",
        check=lambda value: isinstance(value, str),
        must="must be the name of a file, 'transformer' or None",
    )
    dimensions: int = param(100, "length of the word vectors if `vectors` is None", low=1)
    tune: bool = param(True, "whether training changes the word vectors")
    extra_words: int = param(20_000, "maximum number of words with vectors that are not in the training inputs", low=0)
    word_dropout: float = param(
        0.05, "probability that a word is replaced by the unknown word while training", low=0, below=1
    )

    words_: list[str]
    n_extra_words_: int  # number of words at the end that were not in the training inputs
    dimensions_: int

    def fit_words(self, sequences: Iterable[Iterable[str]]) -> None:
        """Check the keywords, and compute the vocabulary and its initial vectors."""
        self.check_parameters()
        seen, more = build_vocabulary(sequences), list[str]()
        if self.vectors is None:
            found = np.full((len(seen), self.dimensions), np.nan, np.float32)
        elif self.vectors == "transformer":
            found, more = read_transformer_vectors(seen, self.extra_words)
        else:
            found, more = read_vectors(Path(self.vectors), seen, self.extra_words)
        if self.vectors is not None and seen and np.isnan(found[: len(seen), 0]).all():
            warn(UnknownWords(n_words=len(seen), source=self.vectors), stacklevel=2)
        self.words_, self.n_extra_words_, self.dimensions_ = seen + more, len(more), found.shape[1]
        self._start = found  # The array is not saved, because the weights of a loaded module replace it.

    def word_vectors(self) -> WordVectors:
        """Return the first layer with its initial vectors; after loading, they are placeholders of the right size."""
        start = np.full((1 + len(self.words_), self.dimensions_), np.nan, np.float32)
        if (found := getattr(self, "_start", None)) is not None:
            start[1:] = found
        return WordVectors(torch.from_numpy(start), self.n_extra_words_, self.tune, self.word_dropout)


def read_vectors(path: Path, seen: Sequence[str], keep: int) -> tuple[FloatArray, list[str]]:
    """Return vectors (W + M, D) of the W words `seen` (NaN if absent) and of M other words; also return the latter."""
    wanted = {*seen, *(word.lower() for word in seen)}
    vectors: dict[str, FloatArray] = {}
    with report_read_errors(path), open_bytes(path) as file:
        D = n = 0
        for n, raw in enumerate(file, 1):
            line = raw.decode("utf-8").rstrip(" \r\n")
            if n == 1:
                if len(sizes := line.split(" ")) == 2 and all(size.isdigit() for size in sizes):
                    continue  # The first line of word2vec files has two sizes.
            D = D or len(line.split(" ")) - 1
            if len(vectors) >= keep and line.partition(" ")[0] not in wanted:
                continue
            word, *numbers = line.rsplit(" ", D) if D else [line]
            if word not in vectors:
                vectors[word] = _parse_numbers(numbers, D, path, n)
    if not D:
        raise NoWordVectors(path=path)
    more = sorted(word for word in vectors if word not in wanted)
    nothing = np.full(D, np.nan, np.float32)
    rows = [vectors.get(word, vectors.get(word.lower(), nothing)) for word in seen] + [vectors[word] for word in more]
    return np.array(rows, np.float32).reshape(len(rows), D), more


def _parse_numbers(texts: list[str], D: int, path: Path, line: int) -> FloatArray:
    try:
        vector = np.array(texts, np.float32)
    except ValueError:
        vector = np.full(D, np.nan, np.float32)
    if len(vector) != D or D < 1 or not np.isfinite(vector).all():
        raise NotAWordVector(path=path, line=line, size=str(D or "some"), text=quote_name(" ".join(texts)[:40]))
    return vector


def read_transformer_vectors(seen: Sequence[str], keep: int) -> tuple[FloatArray, list[str]]:
    """Return vectors as in `read_vectors`, but from the bundled transformer, averaged over the pieces of a word."""
    from dissensus.features.text import make_tokenizer, read_text_model, word_vectors

    tokenizer = make_tokenizer(read_text_model().tokenizer)
    special = tokenizer.get_added_tokens_decoder()
    words = {i: tokenizer.decode([i]).strip() for i in range(tokenizer.get_vocab_size()) if i not in special}
    pieces = tokenizer.encode_batch(list(words.values()), add_special_tokens=False)
    whole = [word for (i, word), found in zip(words.items(), pieces, strict=True) if found.ids == [i]]
    more = sorted(set(whole[:keep]).difference(seen))
    vectors = word_vectors([*seen, *more])
    if not len(vectors):
        return vectors, more
    return (vectors - vectors.mean(axis=0)) / vectors.std(), more  # The scale is arbitrary, as the model normalises.
