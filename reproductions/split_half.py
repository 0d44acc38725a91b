"""How well annotators predict each other: one half of an item's annotators against the other half.

    y = votes of one half, h = votes of the other half, drawn anew in every draw; means over items with two annotators

It measures how far from the votes a good answer may still be, and is often called the annotators' own ceiling. It is
one only in part:

- Half of the votes judge more noisily than all of them. A model that is compared with all votes of an item meets a
  fairer judge, and can do better than this without knowing more than people do.
- h is noisy too: it is a few votes, while a model may have learnt from thousands. The true distribution of an item
  would be closer to y than h is. So a model may well beat the figures here; one that stays far behind them has
  something left to learn.
- What it does show is how much of a few votes is chance. A model that predicts an item's votes far better than their
  other half does should be asked whether it has seen them.

h has zeros, where KL(y‖h) is infinite: it is taken after adding `pseudocount` votes to every class of h. KL(h‖y) has y
smoothed by ε as everywhere (`soft.py`). Both figures depend on what is added; Jensen-Shannon and Manhattan need
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.evaluation import hide_annotators, soft
from dissensus.learning.size_search import winner_agreement
from dissensus.table.annotations import Annotations


@dataclass(frozen=True)
class Ceiling:
    """Scores of halves against halves, by name: means over draws, and standard deviations over them."""

    mean: dict[str, float]
    spread: dict[str, float]
    n_items: int  # Number of items with two annotators or more.
    draws: int

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.3f} ± {self.spread[name]:.3f}" for name, value in self.mean.items())


def split_half(
    table: Annotations,
    *,
    draws: int = 20,
    pseudocount: float | None = None,
    epsilon: float = soft.SMOOTHING_EPSILON,
    seed: int = 0,
) -> Ceiling:
    """One half of the annotators of each item against the other half; see the module for what it means.

    Parameters
    ----------
    table : Annotations
        Items with one annotator are left out.
    draws : int
        Times that halves are drawn.
    pseudocount : float
        Votes added to every class of the predicting half, in KL(y‖h). None: 1/K, one vote shared by all classes, which
        on the test items of `jobs_q1..3` was within 0.03 nats of the best of 1, 0.5, 0.3, 1/K, 0.5/K and 0.1/K.
    epsilon : float
        Smoothing of the judging half, in KL(h‖y).

    Names of the scores: `kl_divergence`, `inverse_kl_divergence`, `jensen_shannon`, `manhattan` and `accuracy`, the
    chance that both halves have the same most frequent class, where ties are drawn fairly.

    >>> from dissensus.table.simulate import simulate
    >>> round(split_half(simulate(200, 12, 3, seed=1).annotations, draws=2).mean["accuracy"], 3)
    0.675
    """
    check_argument("draws", draws, int, low=1)
    check_argument("seed", seed, int, low=0)
    must = "must be above 0 (KL(y‖h) is infinite without)"
    check_argument("pseudocount", pseudocount, float | None, above=0, must=must)
    pseudocount = 1 / max(table.n_classes, 1) if pseudocount is None else pseudocount
    if table.weight is not None:
        table = table.select(rows=table.weight > 0)
    found = []
    for child in np.random.SeedSequence(seed).spawn(draws):
        judging, predicting = hide_annotators(table, 0.5, child)
        found.append(_scores(judging, predicting, pseudocount, epsilon))
    values = {name: [scores[name] for scores in found] for name in found[0]}
    spread = {name: float(np.std(some, ddof=1)) if draws > 1 else np.nan for name, some in values.items()}
    return Ceiling({name: float(np.mean(some)) for name, some in values.items()}, spread, judging.n_items, draws)


def _scores(judging: Annotations, predicting: Annotations, pseudocount: float, epsilon: float) -> dict[str, float]:
    y, h = judging.soft_labels(), predicting.soft_labels()
    smooth = predicting.soft_labels("smoothed", pseudocount=pseudocount)
    return {
        "kl_divergence": float(soft.kl_divergence(y, smooth).mean()),
        "inverse_kl_divergence": float(soft.inverse_kl_divergence(y, h, epsilon=epsilon).mean()),
        "jensen_shannon": float(soft.jensen_shannon(y, h).mean()),
        "manhattan": float(soft.manhattan(y, h).mean()),
        "accuracy": float(winner_agreement(y, h).mean()),
    }
