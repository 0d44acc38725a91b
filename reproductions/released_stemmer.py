"""The stemmer of Fornaciari et al. 2021 as its released program has it, with a switch for every difference to ours.

One convolution over the characters (windows of 3, 4 and 5, without zeros at the ends; padding is a character), maximum
over places, dropout twice, one attention block on √384 · x + (0, 1, 0, 1, …) with 2,048 numbers inside; word and stem
concatenated. One number through a sigmoid says yes; the second task has two numbers and divergences in bits. Batches
come in the order of the file, the same in every epoch, and of epochs that are equally good on the development items
(macro-F1 in %, two digits) the last counts.

A convolution of characters is a product of one-hot windows and the characters' vectors times the filters: so it costs a
processor less than the block does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation import macro_f1
from dissensus.learning.devices import resolve_device
from dissensus.learning.encoders.tagger import AttentionBlock

WINDOWS, CHANNELS, CHARACTERS, INNER, DROPOUT = (3, 4, 5), 128, 300, 2048, 0.1
WIDTH = len(WINDOWS) * CHANNELS
BATCH, RATE = 1024, 1e-3


class ReleasedStemmer(nn.Module):
    """One-hot windows of word and stem → logit of yes (B,) and log P of the second task (B, 2), yes first."""

    position_encoding: Tensor

    def __init__(self, n_characters: int, ours: Sequence[str]):
        super().__init__()
        self.ours = ours
        self.characters = nn.Parameter(torch.randn(n_characters, CHARACTERS))
        sides = range(2)
        self.filters = nn.ModuleList(nn.ModuleList(nn.Conv1d(CHARACTERS, CHANNELS, w) for w in WINDOWS) for _ in sides)
        self.blocks = nn.ModuleList(
            nn.Sequential(AttentionBlock(WIDTH, dropout=DROPOUT), nn.LayerNorm(WIDTH)) for _ in sides
        )
        for block in (one for one in self.blocks.modules() if isinstance(one, AttentionBlock)):
            block.wide, block.narrow = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.register_buffer("position_encoding", (torch.arange(WIDTH) % 2).float())  # sin 0, cos 0, sin 0, …
        self.dropout = nn.Dropout(DROPOUT)
        self.hard, self.soft = nn.Linear(2 * WIDTH, 2 if "two logits" in ours else 1), nn.Linear(2 * WIDTH, 2)

    def forward(self, sides: Sequence[Sequence[Tensor]]) -> tuple[Tensor, Tensor]:
        """Per side and window (B, places, window × characters)."""
        z = []
        for windows, filters, block in zip(sides, self.filters, self.blocks, strict=True):
            found = []
            for hot, conv in zip(windows, cast(Any, filters), strict=True):
                weight = torch.einsum("vd,odk->kvo", self.characters, conv.weight).flatten(0, 1)  # (window × V, 128)
                found.append((hot @ weight).amax(dim=1).add(conv.bias).relu())
            x = self.dropout(torch.cat(found, dim=1))
            z.append(
                block((x if "one dropout" in self.ours else self.dropout(x)) * WIDTH**0.5 + self.position_encoding)
            )
        both = torch.cat(z, dim=1)
        yes, soft = self.hard(both).float(), self.soft(both).float().log_softmax(dim=1)
        return yes[:, -1] - yes[:, 0] if "two logits" in self.ours else yes[:, 0], soft


def windows_of(texts: Sequence[str], known: dict[str, int], longest: int) -> list[Tensor]:
    """Per window (I, places, window × characters), one-hot; code 0 is padding."""
    codes = torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        codes[row, : len(text)] = torch.tensor([known[character] for character in text])
    hot = functional.one_hot(codes, len(known) + 1).bfloat16()  # 0 and 1 are exact
    return [hot.unfold(1, window, 1).transpose(2, 3).flatten(2) for window in WINDOWS]


def predict_released(
    X: Sequence[tuple[str, str]], votes: FloatArray, labels: IntArray, train: IntArray, dev: IntArray,
    test: Sequence[tuple[str, str]], *, seed: int, divergence: str | None, ours: Sequence[str], epochs: int,
    device: str = "cpu",
) -> IntArray:  # fmt: skip
    """Train as the program does, in bfloat16 products; return the classes of the test pairs.

    `ours` names what is as in our network instead: "drawn order" of the batches, "one dropout", "two logits" and a
    softmax for yes and no, "nats", "first epoch" of equally good ones.
    """
    texts = [[word.lower() for word in side] for side in zip(*X, *test, strict=True)]
    known = {character: code for code, character in enumerate(sorted(set("".join(map("".join, texts)))), 1)}
    longest = max(len(text) for side in texts for text in side)
    where = resolve_device(device)
    sides = [[windows.to(where) for windows in windows_of(side, known, longest)] for side in texts]
    soft = (
        torch.tensor(np.asarray(votes)[:, ::-1].copy()).float().log_softmax(1).to(where)
    )  # The counts of "yes" come first.
    y, asked = torch.tensor(labels).float().to(where), np.arange(len(X), len(X) + len(test))
    torch.manual_seed(seed)
    order, unit = np.random.default_rng(seed), 1.0 if "nats" in ours else math.log(2)
    model = ReleasedStemmer(len(known) + 1, ours).to(where)
    optimizer, best, kept = torch.optim.Adam(model.parameters(), RATE), -1.0, np.zeros(0, np.int64)

    def predict_rows(rows: IntArray) -> Any:
        with torch.autocast(where.type, torch.bfloat16):
            return model([[window[rows] for window in side] for side in sides])

    for _ in range(epochs):
        model.train()
        rows = order.permutation(train) if "drawn order" in ours else np.sort(train)
        for batch in np.split(rows, range(BATCH, len(rows), BATCH)):
            yes, log_q = predict_rows(batch)
            loss = functional.binary_cross_entropy_with_logits(yes, y[batch])
            if divergence is not None:
                p, q = (soft[batch], log_q) if divergence == "kl" else (log_q, soft[batch])
                loss = loss + (p.exp() * (p - q)).sum(dim=1).mean() / unit
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found, tested = ((predict_rows(some)[0] >= 0).long().cpu().numpy() for some in (dev, asked))
        score = round(100 * macro_f1(labels[dev], found), 2)
        if score > best or (score == best and "first epoch" not in ours):
            best, kept = score, tested
    return np.asarray(kept)
