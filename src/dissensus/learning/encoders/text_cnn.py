"""Convolutions over the words of a text (Kim 2014).

    c_t = relu(W · [x_t, …, x_{t+h−1}] + b)        Eq. 2, for windows of h = 3, 4, 5 words, 100 channels each
    z_h = max_t c_t                                 max over time, section 2
    z = [z_3, z_4, z_5]                             (B, 300), with dropout 0.5 in training

A text that is shorter than the longest window is padded with zeros to the length of this window; further padding of a
batch does not change the result. Words are lower-cased sequences of letters and digits, and every other character that
is not a blank is a word. An empty text has no words.
"""

from __future__ import annotations

import re
from typing import Any, Self

import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders.base import encoders, size_param
from dissensus.learning.encoders.words import PADDING, WordEncoder, encode_sequences
from dissensus.learning.inputs import to_texts

WORD_PATTERN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # "don't" is one word


class TextCNNModule(nn.Module):
    """Network of `TextCNN`, which maps word codes (B, L ≥ longest window) to (B, channels × windows)."""

    def __init__(self, of: TextCNN):
        super().__init__()
        self.vectors, self.windows = of.word_vectors(), of.windows
        self.convolutions = nn.ModuleList(nn.Conv1d(of.dimensions_, of.channels, window) for window in of.windows)
        self.dropout = nn.Dropout(of.dropout)

    def forward(self, words: Tensor) -> Any:
        x = self.vectors(words).transpose(1, 2)  # (B, D, L)
        length = (words != PADDING).sum(dim=1).clamp(min=max(self.windows))  # (B,)
        z = []
        for window, convolution in zip(self.windows, self.convolutions, strict=True):
            c = convolution(x)  # (B, channels, L − window + 1)
            padding = torch.arange(c.shape[2], device=c.device) > (length - window)[:, None]
            z.append(
                c.masked_fill(padding[:, None], -torch.inf).amax(dim=2).relu()
            )  # The order of relu and max does not matter.
        return self.dropout(torch.cat(z, dim=1))


@encoders.register("text-cnn", summary="convolutions over the words of a text, max over time", cite="Kim 2014")
class TextCNN(WordEncoder):
    """Encoder of texts by convolutions over their words."""

    input_kind = "texts"

    windows: tuple[int, ...] = size_param(
        (3, 4, 5), "numbers of words in the windows of the convolutions", "must be one or more numbers of words"
    )
    channels: int = param(100, "number of outputs of the convolution of each window", low=1)
    dropout: float = param(0.5, "share of all outputs set to zero while training", low=0, below=1)
    max_words: int = param(1_000, "maximum number of words of a text that are read", low=1)

    def fit(self, X: Any) -> Self:
        self.fit_words(self._split_words(X))
        return self

    def prepare(self, X: Any) -> BatchColumns:
        """Return one column, `words`, with the codes of the words."""
        return BatchColumns(words=encode_sequences(self._split_words(X), self.words_, shortest=max(self.windows)))

    def _split_words(self, X: Any) -> list[list[str]]:
        return [WORD_PATTERN.findall(text.lower())[: self.max_words] for text in to_texts(X)]

    def module(self) -> TextCNNModule:
        return TextCNNModule(self)

    @property
    def width(self) -> int:
        return self.channels * len(self.windows)
