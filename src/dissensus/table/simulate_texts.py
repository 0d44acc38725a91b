"""Draw tables of texts whose truth is known: annotators replace, leave out and add words, or write something else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dissensus.common.types import FloatArray, Names
from dissensus.table.annotations import Annotations

SPAM = 1.0  # word error rate of who writes a text of their own


class SimulatedTexts(NamedTuple):
    """A table and what it was drawn from."""

    annotations: Annotations
    truth: Names  # (I,)
    error: FloatArray  # (A,) chance that an annotator errs on a word


def simulate_texts(
    n_items: int,
    n_annotators: int,
    *,
    words: int = 12,
    vocabulary: int = 200,
    redundancy: int = 5,
    spammers: int = 0,
    seed: int = 0,
) -> SimulatedTexts:
    """Draw texts of about so many `words`; annotators err on 2 to 30 % of them, spammers on all."""
    rng = np.random.default_rng(seed)
    truth = [rng.integers(0, vocabulary, rng.integers(words // 2, words * 3 // 2)) for _ in range(n_items)]
    error = np.append(np.full(spammers, SPAM), rng.uniform(0.02, 0.3, n_annotators - spammers))
    item = np.repeat(np.arange(n_items), redundancy)
    annotator = np.argsort(rng.random((n_items, n_annotators)), axis=1)[:, :redundancy].reshape(-1)
    texts = []
    for i, a in zip(item, annotator, strict=True):
        wrong = rng.random(truth[i].size) < error[a]
        text = np.where(wrong, rng.integers(0, vocabulary, truth[i].size), truth[i]).tolist()
        places = np.flatnonzero(wrong)[::-1]
        for place, how in zip(places, rng.integers(0, 3, places.size), strict=True):
            if how == 0:
                del text[place]
            elif how == 1:
                text.insert(place, int(rng.integers(0, vocabulary)))
        texts.append(_written(text) or "w")
    table = Annotations.from_arrays(
        item, annotator, texts, kind="objects", items=np.arange(n_items), annotators=np.arange(n_annotators)
    )
    return SimulatedTexts(table, np.array([_written(one) for one in truth], object), error)


def _written(words: object) -> str:
    return " ".join(f"w{word}" for word in words)  # type: ignore[attr-defined]
