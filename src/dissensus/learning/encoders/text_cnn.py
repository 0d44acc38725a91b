"""Convolutions over the words of a text, Kim 2014.

    c_t = relu(W · [x_t, …, x_{t+h−1}] + b)        Eq. 2, for windows of h = 3, 4, 5 words, 100 channels each
    z_h = max_t c_t                                 max over time, section 2
    z = [z_3, z_4, z_5]                             (B, 300), half of it left out in training

A text shorter than the longest window is filled up to it with zeros; what a batch pads beyond that changes nothing.
Words are lower-cased runs of letters and digits; each other sign is a word of its own. An empty text has no words.
"""

from __future__ import annotations

import re
from typing import Any, Self

import torch
from torch import Tensor, nn

from dissensus.exceptions import BadParameter
from dissensus.learning.batches import Columns
from dissensus.learning.encoders.base import encoders
from dissensus.learning.encoders.words import PADDING, WordEncoder, WordVectors, encode
from dissensus.learning.inputs import texts

WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # don't is one word


class TextCNNModule(nn.Module):
    """Word codes (B, L) → (B, channels × windows); L at least the longest window."""

    def __init__(self, vectors: WordVectors, windows: tuple[int, ...], channels: int, dropout: float):
        super().__init__()
        self.vectors, self.windows = vectors, windows
        D = vectors.seen.shape[1]
        self.convolutions = nn.ModuleList(nn.Conv1d(D, channels, window) for window in windows)
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Tensor) -> Tensor:
        """(B, L) → (B, channels × windows)."""
        x = self.vectors(words).transpose(1, 2)  # (B, D, L)
        length = (words != PADDING).sum(dim=1).clamp(min=max(self.windows))  # (B,)
        z = []
        for window, convolution in zip(self.windows, self.convolutions, strict=True):
            c = convolution(x)  # (B, channels, L − window + 1)
            padding = torch.arange(c.shape[2], device=c.device) > (length - window)[:, None]
            z.append(c.masked_fill(padding[:, None], -torch.inf).amax(dim=2).relu())  # relu and max change places
        out: Tensor = self.dropout(torch.cat(z, dim=1))
        return out


@encoders.register("text-cnn", summary="convolutions over the words of a text, max over time", cite="Kim 2014")
class TextCNN(WordEncoder):
    """Texts → vectors.

    Parameters
    ----------
    vectors, dimensions, tune, keep, word_dropout
        Where word vectors start (a file, "transformer" or None), how long they are where that is None, whether
        training changes them, how many words are kept beside those of the training texts, and how often a word is
        taken for unknown in training; see `dissensus.learning.encoders.words`.
    windows, channels, dropout
        Words that a convolution sees at once, its outputs for each, and the share of all outputs left out in training.
    max_words
        What a longer text has beyond is not read.
    """

    takes = "texts"

    def __init__(
        self,
        *,
        vectors: str | None = None,
        dimensions: int = 100,
        tune: bool = True,
        keep: int = 20_000,
        word_dropout: float = 0.05,
        windows: tuple[int, ...] = (3, 4, 5),
        channels: int = 100,
        dropout: float = 0.5,
        max_words: int = 1_000,
    ):
        self.vectors, self.dimensions, self.tune, self.keep = vectors, dimensions, tune, keep
        self.word_dropout, self.windows, self.channels, self.dropout = word_dropout, windows, channels, dropout
        self.max_words = max_words

    def fit(self, X: Any) -> Self:
        """The vocabulary."""
        if not self.windows or min(self.windows) < 1:
            raise BadParameter(f"windows must be one or more numbers of words, got {self.windows}.")
        self.fit_words(self._words(X))
        return self

    def prepare(self, X: Any) -> Columns:
        """Word codes."""
        return Columns(words=encode(self._words(X), self.words_, shortest=max(self.windows)))

    def _words(self, X: Any) -> list[list[str]]:
        return [WORD.findall(text.lower())[: self.max_words] for text in texts(X)]

    def module(self) -> TextCNNModule:
        """The network."""
        return TextCNNModule(self.word_vectors(), tuple(self.windows), self.channels, self.dropout)

    @property
    def width(self) -> int:
        """Channels times windows."""
        return self.channels * len(self.windows)
