"""ROVER: one text from many, by a weighted vote word by word.

Use it for transcripts of the same speech or page, when the best text may not be among the given texts.

The texts of an item are aligned: first that of the best annotator, then each of the others with the fewest edits. A
word costs nothing in a slot that already contains it, and skipping a slot costs nothing if an earlier text skips it.
Every text votes for its word in each slot, or for no word, with weight 1/σ_j, where σ_j is the error of annotator j as
estimated by `closest`. The answer has the word with the most weight in every slot. `confidence_` is the mean share of
the weight of these words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, Names
from dissensus.evaluation.distances import pair_distances
from dissensus.models.base import methods
from dissensus.models.methods.closest import CandidateLabels, Closest
from dissensus.table.annotations import Annotations

Slot = dict[str, float]  # maps a word to the weight of the texts with it; "" is no word


@methods.register("rover", summary="texts: a weighted vote, word by word", cite="Fiscus 1997")
class Rover(Closest):
    """Combine texts word by word."""

    def _choose_answers(
        self, table: Annotations, weight: FloatArray, error: FloatArray, candidates: CandidateLabels
    ) -> tuple[Names, FloatArray, FloatArray]:
        label, confidence = np.full(table.n_items, "", object), np.zeros(table.n_items)
        texts = [str(name).split() for name in table.classes]
        value = weight / error[table.annotator]
        for i in range(table.n_items):
            rows = np.arange(table.item_ptr[i], table.item_ptr[i + 1])
            if rows.size:
                rows = rows[np.argsort(-value[rows], kind="stable")]
                label[i], confidence[i] = vote_by_word([texts[table.label[row]] for row in rows], value[rows])
        all_texts = np.concatenate([table.classes.astype(object), label])
        apart = pair_distances(all_texts, table.label, table.n_classes + table.item, "words")
        mean = np.bincount(table.item, apart * value, table.n_items) / np.maximum(
            np.bincount(table.item, value, table.n_items), 1e-300
        )
        return label, confidence, mean


def vote_by_word(texts: list[list[str]], weight: Any) -> tuple[str, float]:
    """Return the word with the most weight in each slot, and the mean share of the weight of these words."""
    slots: list[Slot] = [{word: weight[0]} for word in texts[0]]
    before = float(weight[0])
    for words, text_weight in zip(texts[1:], weight[1:], strict=True):
        slots = _align_text(slots, words, float(text_weight), before)
        before += float(text_weight)
    best = [max(slot.items(), key=lambda entry: (entry[1], entry[0])) for slot in slots]
    answer = [(word, share) for word, share in best if word]
    shares = [share / before for _, share in best]
    return " ".join(word for word, _ in answer), float(np.mean(shares)) if shares else 1.0


def _align_text(slots: list[Slot], words: list[str], text_weight: float, before: float) -> list[Slot]:
    """Return the slots after aligning one more text with the fewest edits."""
    n, m = len(slots), len(words)
    cost = np.zeros((n + 1, m + 1))
    skip = [0.0 if "" in slot else 1.0 for slot in slots]
    cost[1:, 0] = np.cumsum(skip)
    cost[0, :] = np.arange(m + 1)
    for i in range(1, n + 1):
        for k in range(1, m + 1):
            same = 0.0 if words[k - 1] in slots[i - 1] else 1.0
            cost[i, k] = min(cost[i - 1, k - 1] + same, cost[i - 1, k] + skip[i - 1], cost[i, k - 1] + 1)
    aligned: list[Slot] = []
    i, k = n, m
    while i or k:
        same = 0.0 if i and k and words[k - 1] in slots[i - 1] else 1.0
        if i and k and cost[i, k] == cost[i - 1, k - 1] + same:
            slot, word, i, k = slots[i - 1], words[k - 1], i - 1, k - 1
        elif i and cost[i, k] == cost[i - 1, k] + skip[i - 1]:
            slot, word, i = slots[i - 1], "", i - 1
        else:
            slot, word, k = {"": before}, words[k - 1], k - 1
        aligned.append(slot | {word: slot.get(word, 0.0) + text_weight})
    return aligned[::-1]
