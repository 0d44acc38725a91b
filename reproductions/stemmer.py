"""Convolutions over the characters of a word and of its stem, Fornaciari et al. 2021, section 3.2.

For word and stem apart, windows of 3, 4 and 5 characters side by side, each

    a = pool(relu(conv64(x)))         max over two neighbours, at every place
    b = max over places of relu(conv128(a))

the three b (3 × 128) through one attention block; both results concatenated, z (B, 768). Places are those of the
characters: convolutions see zeros before the first and after the last, and padding changes nothing.

The paper's tasks have one fully connected layer each on z, which an objective's head already is. Its logit is then a
function of the word plus a function of the stem, so that no such network can compare the two; `hidden` gives every task
a layer before (None: as in the paper). The released code gives both convolutions the characters and leaves the first
one's output out; here they are stacked, as the paper says.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d, pad

from dissensus.common.parameters import param
from dissensus.exceptions import DataError
from dissensus.learning.batches import Columns
from dissensus.learning.encoders.attention import blocks
from dissensus.learning.encoders.base import Encoder, encoders, sizes
from dissensus.learning.encoders.words import PADDING, character_vectors, encode, vocabulary
from dissensus.learning.inputs import pairs
from dissensus.table.names import shown


class CharacterConvolutions(nn.Module):
    """Character vectors (B, L, D) and which are there (B, L) → (B, windows × last channels)."""

    def __init__(self, width: int, channels: tuple[int, int], windows: tuple[int, ...]):
        super().__init__()
        self.windows = windows
        self.first = nn.ModuleList(nn.Conv1d(width, channels[0], window) for window in windows)
        self.second = nn.ModuleList(nn.Conv1d(channels[0], channels[1], window) for window in windows)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """What follows a relu is never negative, so a place that is not there may hold 0 and never wins a maximum."""
        x, there = x.transpose(1, 2), there[:, None]  # (B, D, L), (B, 1, L)
        z = []
        for window, first, second in zip(self.windows, self.first, self.second, strict=True):
            sides = ((window - 1) // 2, window // 2)
            a = first(pad(x, sides)).relu() * there  # (B, 64, L)
            a = max_pool1d(pad(a, (0, 1)), 2, stride=1)
            b = second(pad(a, sides)).relu() * there  # (B, 128, L)
            z.append(b.amax(dim=2))
        return torch.cat(z, dim=1)


class StemmerModule(nn.Module):
    """Character codes of word and stem, (B, L) each → (B, 2 × windows × last channels)."""

    def __init__(self, of: Stemmer):
        super().__init__()
        self.characters = character_vectors(of.characters_, of.characters)
        self.dropout = nn.Dropout(of.dropout)
        self.convolutions = nn.ModuleList(
            CharacterConvolutions(of.characters, of.channels, of.windows) for _ in range(2)
        )
        full = len(of.windows) * of.channels[1]
        self.blocks = nn.ModuleList(blocks(of.layers, full, of.heads, of.dropout) for _ in range(2))

    def forward(self, word: Tensor, stem: Tensor) -> Tensor:
        """(B, L), (B, M) → (B, …)."""
        sides = zip((word, stem), self.convolutions, self.blocks, strict=True)
        z = [block(self.dropout(conv(self.characters(codes), codes != PADDING))) for codes, conv, block in sides]
        return torch.cat(z, dim=1)


@encoders.register(
    "stemmer",
    summary="a word and its stem: convolutions over the characters of both, attention",
    cite="Fornaciari et al. 2021",
)
class Stemmer(Encoder):
    """(word, stem) pairs of strings → vectors."""

    takes = "(word, stem) pairs"

    characters: int = param(100, "length of the characters' vectors; upper and lower case are one", low=1)
    channels: tuple[int, int] = sizes(
        (64, 128), "outputs of the two convolutions", "must be two numbers of outputs", least=2, most=2
    )
    windows: tuple[int, ...] = sizes(
        (3, 4, 5), "characters that a convolution sees at once", "must be numbers of characters"
    )
    layers: int = param(1, "attention blocks for each side", low=0)
    heads: int = param(1, "heads of a block", low=1)
    dropout: float = param(0.1, "share left out in training", low=0, below=1)
    hidden: int | None = param(256, "outputs of a layer that every task has before its last; None: no layer", low=1)

    characters_: list[str]

    def fit(self, X: Any) -> Self:
        """Find the characters."""
        super().fit(X)
        self.characters_ = vocabulary(side for pair in self._read(X) for side in pair)
        return self

    def prepare(self, X: Any) -> Columns:
        """Make two columns, the codes of the characters of both."""
        words, stems = zip(*read, strict=True) if (read := self._read(X)) else ((), ())
        return Columns(word=encode(words, self.characters_), stem=encode(stems, self.characters_))

    @staticmethod
    def _read(X: Any) -> list[tuple[str, str]]:
        read = pairs(X)
        for row, pair in enumerate(read):
            if not all(isinstance(side, str) for side in pair):
                raise DataError(f"X: row {row} is {shown(pair)}; give a word and a stem, both strings.")
        return [(word.lower(), stem.lower()) for word, stem in read]

    def module(self) -> StemmerModule:
        """Make the network that all tasks share."""
        return StemmerModule(self)

    def branch(self) -> nn.Module:
        """Make a fully connected layer, where there is one."""
        return nn.Identity() if self.hidden is None else nn.Sequential(nn.Linear(self._full, self.hidden), nn.ReLU())

    @property
    def _full(self) -> int:
        return 2 * len(self.windows) * self.channels[1]

    @property
    def width(self) -> int:
        """What a branch gives: `hidden`, or both sides."""
        return self._full if self.hidden is None else self.hidden
