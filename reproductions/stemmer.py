"""Convolutions over the characters of a word and of its stem, Fornaciari et al. 2021, section 3.2.

For word and stem apart, windows of 3, 4 and 5 characters side by side, each

    a = pool(relu(conv64(x)))         max over two neighbours, at every place
    b = max over places of relu(conv128(a))

the three b (3 × 128) through one attention block; both results concatenated, z (B, 768). Places are those of the
characters: convolutions see zeros before the first and after the last, and padding changes nothing.

The paper's tasks have one fully connected layer each on z, which an objective's head already is. Its logit is then a
function of the word plus a function of the stem, so that no such network can compare the two; `hidden` gives every task
a layer before (None: as in the paper). The released code gives both convolutions the characters and leaves the first
one's output out; here they are stacked, as the paper says. Its other differences are options, for `stems` of
fornaciari2021.toml: it takes padding for a character, multiplies what the attention block reads by the root of its
width, adds sine and cosine of position 0, and has 2,048 numbers in the block.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d, pad

from dissensus.common.parameters import param
from dissensus.exceptions import DataError
from dissensus.learning.batches import Columns
from dissensus.learning.encoders.base import Encoder, encoders, sizes
from dissensus.learning.encoders.tagger import Block, blocks
from dissensus.learning.encoders.words import PADDING, character_vectors, encode, vocabulary
from dissensus.learning.inputs import pairs
from dissensus.table.names import shown


class CharacterConvolutions(nn.Module):
    """Character vectors (B, L, D) and which are there (B, L) → (B, windows × last channels)."""

    def __init__(self, width: int, channels: tuple[int, int], windows: tuple[int, ...], stacked: bool = True):
        super().__init__()
        self.windows, self.stacked = windows, stacked
        self.first = nn.ModuleList(nn.Conv1d(width, channels[0], window) for window in windows if stacked)
        self.second = nn.ModuleList(nn.Conv1d(channels[0] if stacked else width, channels[1], w) for w in windows)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """What follows a relu is never negative, so a place that is not there may hold 0 and never wins a maximum."""
        x, there = x.transpose(1, 2), there[:, None]  # (B, D, L), (B, 1, L)
        z = []
        for at, (window, second) in enumerate(zip(self.windows, self.second, strict=True)):
            sides, a = ((window - 1) // 2, window // 2), x
            if self.stacked:
                a = self.first[at](pad(x, sides)).relu() * there  # (B, 64, L)
                a = max_pool1d(pad(a, (0, 1)), 2, stride=1)
            b = second(pad(a, sides)).relu() * there  # (B, 128, L)
            z.append(b.amax(dim=2))
        return torch.cat(z, dim=1)


class StemmerModule(nn.Module):
    """Character codes of word and stem, (B, L) each → (B, 2 × windows × last channels)."""

    def __init__(self, of: Stemmer):
        super().__init__()
        self.characters = character_vectors(of.characters_, of.characters)
        with torch.no_grad():
            for row, known in enumerate(of.characters_, len(self.characters.weight) - len(of.characters_)):
                if known in (of.start or {}):
                    self.characters.weight[row] = torch.tensor((of.start or {})[known])
        self.dropout = nn.Dropout(of.dropout)
        self.convolutions = nn.ModuleList(
            CharacterConvolutions(of.characters, of.channels, of.windows, of.stacked) for _ in range(2)
        )
        full = len(of.windows) * of.channels[1]
        self.blocks = nn.ModuleList(blocks(of.layers, full, of.heads, of.dropout) for _ in range(2))
        if of.wide is not None:
            for block in (one for one in self.blocks.modules() if isinstance(one, Block)):
                block.wide, block.narrow = nn.Linear(full, of.wide), nn.Linear(of.wide, full)
        self.scale = full**0.5 if of.scaled else 1.0
        self.register_buffer("place", (torch.arange(full) % 2).float() * of.scaled)  # sin 0, cos 0, sin 0, …
        self.longest = of.longest_ if of.padded else 0
        self.padding = nn.Parameter(torch.randn(of.characters)) if of.padded else None

    def forward(self, word: Tensor, stem: Tensor) -> Tensor:
        """(B, L), (B, M) → (B, …)."""
        sides = zip((word, stem), self.convolutions, self.blocks, strict=True)
        z = []
        for codes, conv, block in sides:
            codes = pad(codes, (0, max(self.longest - codes.shape[1], 0)), value=PADDING)
            x, there = self.characters(codes), codes != PADDING
            if self.padding is not None:  # a character as any other
                x, there = torch.where(there[:, :, None], x, self.padding), torch.ones_like(there)
            z.append(block(self.dropout(conv(x, there)) * self.scale + self.place))
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
    stacked: bool = param(True, "second convolution over the first's output; False: no first one")
    padded: bool = param(False, "padding to the longest word is a character")
    scaled: bool = param(False, "blocks read √width · x + (0, 1, 0, 1, …)")
    start: dict[str, list[float]] | None = param(None, "vectors that characters start from; None: random")
    wide: int | None = param(None, "width of a block's feed-forward layer; None: twice the block's", low=1)

    characters_: list[str]
    longest_: int

    def fit(self, X: Any) -> Self:
        """Find the characters."""
        super().fit(X)
        read = self._read(X)
        self.characters_ = vocabulary(side for pair in read for side in pair)
        self.longest_ = max((len(side) for pair in read for side in pair), default=0)
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
