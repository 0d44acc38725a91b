"""Convolutions over the characters of a word and of its stem (Fornaciari et al. 2021, section 3.2).

Word and stem have separate layers. Each of them has parallel convolutions over windows of 3, 4 and 5 characters, with

    a = pool(relu(conv64(x)))         max over two neighbours, at every position
    b = max over positions of relu(conv128(a))

The concatenated vectors b (3 × 128) pass through one attention block, and the results for word and stem are
concatenated to z (B, 768). There is one position per character. Zeros precede the first and follow the last character,
so padding does not change the result of a convolution.

In the paper every task has one fully connected layer on z, as an objective's head has. The logit is then a function of
the word plus a function of the stem, so the network cannot compare the two. `hidden` adds a layer for every task; None
gives the network of the paper. The released code feeds the characters to both convolutions and ignores the output of
the first; here the convolutions are stacked, as in the paper. Keywords select the other differences of the released
code. With `padded`, padding is a character. With `scaled`, the input of the attention block is multiplied by the root
of its width, and sine and cosine of position 0 are added. With `wide`, the block has 2,048 inner units.

If soft labels (KL) are a second task, the macro-F1 on stems changes by +1.4 points (−2.4 to +5.1) with gold labels and
by −0.1 (−2.7 to +2.5) with silver labels, which is no clear gain (`reproductions/results/fornaciari2021.md`).
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d, pad

from dissensus.common.parameters import param
from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders.base import Encoder, encoders, size_param
from dissensus.learning.encoders.tagger import AttentionBlock, stack_blocks
from dissensus.learning.encoders.words import PADDING, build_vocabulary, encode_sequences, make_character_vectors
from dissensus.learning.exceptions import WrongInputRow
from dissensus.learning.inputs import to_pairs
from dissensus.messages import quote_name


class CharacterConvolutions(nn.Module):
    """Parallel convolutions that map character vectors (B, L, D) to (B, windows × last channels)."""

    def __init__(self, width: int, channels: tuple[int, int], windows: tuple[int, ...], stacked: bool = True):
        super().__init__()
        self.windows, self.stacked = windows, stacked
        self.first = nn.ModuleList(nn.Conv1d(width, channels[0], window) for window in windows if stacked)
        self.second = nn.ModuleList(nn.Conv1d(channels[0] if stacked else width, channels[1], w) for w in windows)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the maximum over positions; masked positions are 0, the minimum of a relu."""
        x, mask = x.transpose(1, 2), mask[:, None]  # (B, D, L), (B, 1, L)
        z = []
        for at, (window, second) in enumerate(zip(self.windows, self.second, strict=True)):
            sides, a = ((window - 1) // 2, window // 2), x
            if self.stacked:
                a = self.first[at](pad(x, sides)).relu() * mask  # (B, 64, L)
                a = max_pool1d(pad(a, (0, 1)), 2, stride=1)
            b = second(pad(a, sides)).relu() * mask  # (B, 128, L)
            z.append(b.amax(dim=2))
        return torch.cat(z, dim=1)


class StemmerModule(nn.Module):
    """Network of `Stemmer`, which maps character codes of word and stem to (B, 2 × windows × last channels)."""

    def __init__(self, encoder: Stemmer):
        super().__init__()
        self.characters = make_character_vectors(encoder.characters_, encoder.characters)
        start, first = encoder.start or {}, len(self.characters.weight) - len(encoder.characters_)
        with torch.no_grad():
            for row, character in enumerate(encoder.characters_, first):
                if character in start:
                    self.characters.weight[row] = torch.tensor(start[character])
        self.dropout = nn.Dropout(encoder.dropout)
        channels, windows = encoder.channels, encoder.windows
        self.convolutions = nn.ModuleList(
            CharacterConvolutions(encoder.characters, channels, windows, encoder.stacked) for _ in range(2)
        )
        full = len(windows) * channels[1]
        self.blocks = nn.ModuleList(
            stack_blocks(encoder.layers, full, encoder.heads, encoder.dropout) for _ in range(2)
        )
        if encoder.wide is not None:
            for block in (part for part in self.blocks.modules() if isinstance(part, AttentionBlock)):
                block.wide, block.narrow = nn.Linear(full, encoder.wide), nn.Linear(encoder.wide, full)
        self.scale = full**0.5 if encoder.scaled else 1.0
        self.register_buffer(
            "position_code", (torch.arange(full) % 2).float() * encoder.scaled
        )  # sin 0, cos 0, sin 0 …
        self.longest = encoder.longest_ if encoder.padded else 0
        self.padding = nn.Parameter(torch.randn(encoder.characters)) if encoder.padded else None

    def forward(self, word: Tensor, stem: Tensor) -> Tensor:
        """Return vectors (B, …) for the codes of words (B, L) and stems (B, M)."""
        sides = zip((word, stem), self.convolutions, self.blocks, strict=True)
        z = []
        for codes, conv, block in sides:
            codes = pad(codes, (0, max(self.longest - codes.shape[1], 0)), value=PADDING)
            x, mask = self.characters(codes), codes != PADDING
            if self.padding is not None:  # Padding is then treated as a character.
                x, mask = torch.where(mask[:, :, None], x, self.padding), torch.ones_like(mask)
            z.append(block(self.dropout(conv(x, mask)) * self.scale + self.position_code))
        return torch.cat(z, dim=1)


@encoders.register(
    "stemmer",
    summary="a word and its stem: convolutions over the characters of both, attention",
    cite="Fornaciari et al. 2021",
)
class Stemmer(Encoder):
    """An encoder of (word, stem) pairs of strings."""

    input_kind = "(word, stem) pairs"

    characters: int = param(100, "length of the characters' vectors; upper and lower case are not distinguished", low=1)
    channels: tuple[int, int] = size_param(
        (64, 128), "outputs of the two convolutions", "must be two numbers of outputs", least=2, most=2
    )
    windows: tuple[int, ...] = size_param(
        (3, 4, 5), "numbers of characters in the windows of the convolutions", "must be numbers of characters"
    )
    layers: int = param(1, "attention blocks for each side", low=0)
    heads: int = param(1, "heads of a block", low=1)
    dropout: float = param(0.1, "share of values set to zero while training", low=0, below=1)
    hidden: int | None = param(256, "width of each task's layer before its last layer; None: no such layer", low=1)
    stacked: bool = param(True, "apply the second convolution to the output of the first; False: no first convolution")
    padded: bool = param(False, "treat padding to the longest word as a character")
    scaled: bool = param(False, "use √width · x + (0, 1, 0, 1, …) as the input of a block")
    start: dict[str, list[float]] | None = param(None, "initial vectors of characters; None: random")
    wide: int | None = param(None, "width of a block's feed-forward layer; None: twice the block's", low=1)

    characters_: list[str]
    longest_: int

    def fit(self, X: Any) -> Self:
        """Find the characters of the words and stems, and the length of the longest."""
        super().fit(X)
        sides = [side for pair in self._read_pairs(X) for side in pair]
        self.characters_, self.longest_ = build_vocabulary(sides), max(map(len, sides), default=0)
        return self

    def prepare(self, X: Any) -> BatchColumns:
        """Return two columns: the character codes of words, and those of stems."""
        words, stems = zip(*rows, strict=True) if (rows := self._read_pairs(X)) else ((), ())
        return BatchColumns(
            word=encode_sequences(words, self.characters_), stem=encode_sequences(stems, self.characters_)
        )

    @staticmethod
    def _read_pairs(X: Any) -> list[tuple[str, str]]:
        rows = to_pairs(X)
        for row, pair in enumerate(rows):
            if not all(isinstance(side, str) for side in pair):
                raise WrongInputRow(row=row, value=quote_name(pair), expected="a pair of strings, a word and its stem")
        return [(word.lower(), stem.lower()) for word, stem in rows]

    def module(self) -> StemmerModule:
        """Return the network that all tasks share."""
        return StemmerModule(self)

    def branch(self) -> nn.Module:
        """Return a fully connected layer of width `hidden`, or no layer if it is None."""
        return (
            nn.Identity()
            if self.hidden is None
            else nn.Sequential(nn.Linear(self._joint_width, self.hidden), nn.ReLU())
        )

    @property
    def _joint_width(self) -> int:
        return 2 * len(self.windows) * self.channels[1]

    @property
    def width(self) -> int:
        """Width of a branch, which is `hidden` or, without it, the joint width of word and stem."""
        return self._joint_width if self.hidden is None else self.hidden
