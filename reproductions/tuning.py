"""Choose keywords without gold: hide some annotations, fit to the rest, and score how likely the hidden ones are.

    score = mean over hidden rows of log P(label | item, annotator; the other rows)

as in `questions.compare`, the same rows for all. Keywords are chosen one at a time: other values are tried with what
was chosen so far, and the best stays, so there are as many fits as values, not as their product. Hidden are annotations
of items that keep others, not items: judged is what LIA says of the items it was fitted to.

    found = tune(LIA(), CHOICES, table, X)
    model = LIA(**found.keywords).fit(table, X)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dissensus.common.frames import columns_to_frame
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.evaluation import Estimate, paired_bootstrap
from dissensus.questions.compare import make_estimate_columns
from dissensus.questions.scoring import SCORING_BY_LABEL_TYPE, log_likelihood
from dissensus.table.annotations import Annotations

SHARE = 0.2  # Share of the annotations that is hidden.
SPLITS = 2  # times that it is hidden
Choices = Mapping[str, Sequence[Any]]
CHOICES: dict[str, tuple[Any, ...]] = {
    "difficulty": (True, False),
    "penalty": (0.0, 0.01, 0.06),
    "residual_penalty": (0.3, 1.0, 3.0),
    "difficulty_penalty": (1.0, 3.0, 10.0),
    "hidden": ((16, 16, 16, 16), (64, 64)),
    "dropout": (0.0, 0.5),
    "entropy": (0.0, 0.1),
    "weight_decay": (0.0, 0.001),
    "annotator_size": (4, 16),
    "latent": (1, 2),
}
"""Keywords of LIA that are worth trying, in this order."""


@dataclass(frozen=True)
class Trial:
    """One value of a keyword, with what was chosen before."""

    keyword: str | None  # None: as it was
    value: Any
    log_likelihood: float  # mean over hidden annotations
    gain: Estimate  # over what was chosen before, by bootstrap over items
    p_value: float
    chosen: bool
    seconds: float  # Seconds of a fit.


@dataclass(frozen=True)
class Tuned:
    """Keywords that were chosen, and all that was tried, in its order."""

    keywords: dict[str, Any]
    trials: tuple[Trial, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return the trials as plain values."""
        return [
            {"keyword": one.keyword or "", "value": repr(one.value), "log_likelihood": one.log_likelihood}
            | make_estimate_columns("gain", one.gain)
            | {"p_value": one.p_value, "chosen": one.chosen, "seconds": one.seconds}
            for one in self.trials
        ]

    def to_frame(self) -> Any:
        """Return one row per trial: a pandas frame where pandas is installed, else an Arrow table."""
        return columns_to_frame(self.rows())


def tune(
    model: Any,
    choices: Choices,
    table: Annotations,
    X: Any = None,
    *,
    gold: IntArray | None = None,
    annotators: Any = None,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> Tuned:
    """Choose keywords of `model`, a LIA, among `choices`; its own values are tried first.

    `seed` draws what is hidden and the bootstrap. `on_step` is called after every fit with (fits, log-likelihood of its
    hidden annotations). The other arguments are those of `fit`.
    """
    hidden = [
        SCORING_BY_LABEL_TYPE[table.kind].choose_hidden_rows(table, SHARE, np.random.default_rng([seed, number]))
        for number in range(SPLITS)
    ]
    keywords, done = model.get_params(deep=False), 0

    def score(changed: dict[str, Any]) -> tuple[FloatArray, FloatArray, float]:
        """Log-likelihood (I,) and weight (I,) of the hidden rows of every item; seconds of a fit."""
        nonlocal done
        by_item, weight, began = np.zeros(table.n_items), np.zeros(table.n_items), time.perf_counter()
        for mask in hidden:
            fitted, rest = type(model)(**{**keywords, **changed}), table.select(rows=mask)
            fitted.fit(table.select(rows=~mask), X, gold=gold, annotators=annotators, on_step=lambda step, loss: None)
            logs, w = log_likelihood(rest, fitted.predict_annotations(rest))
            by_item += np.bincount(rest.item, logs * w, table.n_items)
            weight += np.bincount(rest.item, w, table.n_items)
            done += 1
            if on_step is not None:
                on_step(done, float((logs * w).sum() / w.sum()))
        return by_item, weight, (time.perf_counter() - began) / SPLITS

    chosen: dict[str, Any] = {}
    best, weight, seconds = score(chosen)
    some = weight > 0
    scale = int(some.sum()) / float(weight.sum())  # Converts a mean over items to one over annotations.
    trials = [Trial(None, None, float(best.sum() / weight.sum()), Estimate(0.0, 0.0, 0.0), 1.0, True, seconds)]
    for keyword, values in choices.items():
        before, winner = best, None
        for value in values:
            if value == keywords[keyword]:
                continue
            by_item, _, seconds = score({**chosen, keyword: value})
            difference = paired_bootstrap(by_item[some], before[some], seed=seed)
            mean = difference.mean
            gain = Estimate(mean.value * scale, mean.low * scale, mean.high * scale, mean.level)
            trials.append(
                Trial(keyword, value, float(by_item.sum() / weight.sum()), gain, difference.p_value, False, seconds)
            )
            if gain.value > 0 and (winner is None or trials[-1].log_likelihood > trials[winner].log_likelihood):
                winner, best = len(trials) - 1, by_item
        if winner is not None:
            trials[winner] = replace(trials[winner], chosen=True)
            chosen[keyword] = trials[winner].value
    return Tuned(chosen, tuple(trials))
