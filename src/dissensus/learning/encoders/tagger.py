"""Two bi-LSTMs and attention for a word in context (Fornaciari et al. 2021, section 3.1, after Plank et al. 2016).

    u = state at the target of a bi-LSTM over the word vectors of the sentence        (B, 2H)
    v = last states, in both directions, of a bi-LSTM over the target's characters    (B, 2H)
    z = blocks([u, v])                                                                (B, 4H)
    branch of a task: one more block, then a fully connected layer to half the width  (B, 2H)

H is 256. The two blocks with two heads are transformer encoder blocks (Vaswani et al. 2017) for one vector:

    x ← x + drop(O · heads(V · norm(x)))        x ← x + drop(W₂ drop(relu(W₁ norm(x))))

The softmax over a single position is 1 for any query and key, so attention consists only of the value map V and the
output map O. The heads differ only in dropout, which drops whole heads. The LSTMs do not read padding (the released
code uses the state after the padding of a word). Sizes are those of the released runs, except for the branch, which has
two blocks there and no relu after its linear layer. Equal sentences and equal words in a batch are encoded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dissensus.common.parameters import param
from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders.base import encoders
from dissensus.learning.encoders.words import (
    PADDING,
    WordEncoder,
    build_vocabulary,
    encode_sequences,
    find_distinct_rows,
    make_character_vectors,
)
from dissensus.learning.exceptions import PositionOutOfRange
from dissensus.learning.inputs import to_pairs, to_tokens
from dissensus.messages import quote_name

FEED_FORWARD_RATIO = 2  # width of the feed-forward layer divided by the width of the block, as in the paper


class AttentionBlock(nn.Module):
    """Transformer encoder block for sequences of a single vector, which maps (B, D) to (B, D)."""

    def __init__(self, width: int, heads: int = 1, dropout: float = 0.1):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        inner = FEED_FORWARD_RATIO * width
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Any:
        """Apply attention and the two feed-forward layers, each after its norm."""
        value = self.value(self.norm1(x))  # (B, D)
        weight = self.dropout(
            value.new_ones(len(x), self.heads, 1)
        )  # (B, heads, 1) attention weight of the only position
        value = (value.view(len(x), self.heads, -1) * weight).flatten(1)
        x = x + self.dropout(self.output(value))
        wide = self.dropout(self.wide(self.norm2(x)).relu())
        return x + self.dropout(self.narrow(wide))


def stack_blocks(n: int, width: int, heads: int, dropout: float) -> nn.Sequential:
    """Return n attention blocks, followed by a norm."""
    return nn.Sequential(*(AttentionBlock(width, heads, dropout) for _ in range(n)), nn.LayerNorm(width))


class TaggerModule(nn.Module):
    """Network of `Tagger`, which maps sentences, positions and characters of the targets to (B, 4 × hidden)."""

    def __init__(self, of: Tagger):
        super().__init__()
        # Initial weights depend on the order of these lines.
        characters = make_character_vectors(of.characters_, of.characters)
        self.vectors, self.characters = of.word_vectors(), characters
        self.context = nn.LSTM(of.dimensions_, of.hidden, batch_first=True, bidirectional=True)
        self.spelling = nn.LSTM(of.characters, of.hidden, batch_first=True, bidirectional=True)
        self.blocks = stack_blocks(of.layers, 4 * of.hidden, of.heads, of.dropout)
        self.dropout = nn.Dropout(of.dropout)

    def forward(self, sentence: Tensor, words: Tensor, position: Tensor, word: Tensor, characters: Tensor) -> Any:
        """Return vectors from words (B, L), position (B,) and characters (B, C).

        `sentence` and `word` (B,) have equal numbers for equal sentences and equal target words.
        """
        one, which = find_distinct_rows(sentence)
        states, _ = self.context(_pack_sequences(self.vectors(words[one]), words[one]))
        u = pad_packed_sequence(states, batch_first=True)[0][which, position]  # (B, 2H)
        one, which = find_distinct_rows(word)
        _, (last, _) = self.spelling(_pack_sequences(self.characters(characters[one]), characters[one]))
        v = torch.cat([last[0], last[1]], dim=1)[which]  # (B, 2H) last states of both directions
        return self.dropout(self.blocks(torch.cat([u, v], dim=1)))


def _pack_sequences(x: Tensor, codes: Tensor) -> Any:
    length = (codes != PADDING).sum(dim=1).clamp(min=1)  # A word without letters is read as one padding character.
    return pack_padded_sequence(x, length.cpu(), batch_first=True, enforce_sorted=False)


@encoders.register(
    "tagger",
    summary="a word in its sentence: bi-LSTMs over words and characters, attention",
    cite="Fornaciari et al. 2021",
)
class Tagger(WordEncoder):
    """Encoder of (tokens, position) pairs; tokens are a sequence of strings, or a string that is split at blanks."""

    input_kind = "(tokens, position) pairs"

    dimensions: int = param(300, "length of the word vectors if `vectors` is None", low=1)
    characters: int = param(100, "length of the characters' vectors, which are always trained", low=1)
    hidden: int = param(256, "length of an LSTM's state in each direction", low=1)
    layers: int = param(2, "attention blocks shared by all tasks", low=0)
    heads: int = param(2, "heads of a block", low=1)
    dropout: float = param(0.1, "share of values set to zero while training", low=0, below=1)
    max_characters: int = param(30, "maximum number of characters of a word that are read", low=1)

    characters_: list[str]

    def fit(self, X: Any) -> Self:
        read = self._read_words_in_context(X)
        self.fit_words(sentence for sentence, _ in read)
        self.characters_ = build_vocabulary(sentence[at] for sentence, at in read)
        return self

    def prepare(self, X: Any) -> BatchColumns:
        """Return codes of words and characters, and numbers of sentences and targets that are equal for equal ones."""
        read = self._read_words_in_context(X)
        sentences = [sentence for sentence, _ in read]
        targets = [sentence[at][: self.max_characters] for sentence, at in read]
        return BatchColumns(
            sentence=_assign_value_numbers([tuple(sentence) for sentence in sentences]),
            words=encode_sequences(sentences, self.words_),
            position=torch.tensor([at for _, at in read], dtype=torch.int64),
            word=_assign_value_numbers(targets),
            characters=encode_sequences(targets, self.characters_),
        )

    def _read_words_in_context(self, X: Any) -> list[tuple[list[str], int]]:
        """Return the tokens and the position of the target for each row."""
        read: list[tuple[list[str], int]] = []
        for row, (value, position) in enumerate(to_pairs(X, "tokens and a position")):
            found = to_tokens(value, row)
            if (at := _parse_position(position)) is None or not 0 <= at < len(found):
                raise PositionOutOfRange(row=row, position=quote_name(position), n_tokens=len(found))
            read.append((found, at))
        return read

    def module(self) -> TaggerModule:
        return TaggerModule(self)

    def branch(self) -> nn.Module:
        full = 4 * self.hidden
        return nn.Sequential(stack_blocks(1, full, self.heads, self.dropout), nn.Linear(full, self.width), nn.ReLU())

    @property
    def width(self) -> int:
        return 2 * self.hidden


def _assign_value_numbers(values: Sequence[Any]) -> Tensor:
    number: dict[Any, int] = {}
    return torch.tensor([number.setdefault(value, len(number)) for value in values], dtype=torch.int64)


def _parse_position(value: Any) -> int | None:
    """Return the value as an integer (3.0 and "3" become 3), or None for other values."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == value or str(number) == value else None
