"""Weights of the judges of a panel, learnt from gold together with a trust in the whole panel.

A panel is a few annotators who label nearly every item. With x_ij(c) the score of judge j for class c of item i,

    P(z_i = c) ∝ exp(a log q_i(c) + b_c + Σ_j w_j x_ij(c))      a ~ N(1, s²)   b_c ~ N(0, t²)   w_j ~ N(0, τ²)

q is the posterior without gold, so that without gold nothing changes; numeric scores have none (no a). A vote is
x_ij(c) = [y_ij = c] − 1/K. A numeric score is replaced by its rank among the judge's own, scaled to an SD of 1: judges
use scales differently, and ranks had less log loss than scores on the panel with both. With more than two classes each
judge's score has a weight for every class.

A priori, items with labels of the whole panel have Σ_j w_j x_ij of variance n τ² (n judges per item).
`PANEL_SD`² = n τ² is the middle of a prior on log τ; τ = 0 has a probability of its own. The posterior averages over τ,
s and t by evidence (Laplace), and over w given τ (MacKay 1992: logits are divided by √(1 + π v/8), v their variance).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from scipy.special import softmax
from scipy.stats import rankdata

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.table.annotations import Annotations

PANEL_SD = 1.2  # SD of the sum of log odds of all judges of an item
LOG_SCALE_SD = 0.5  # SD of the prior of log τ
SCALES = np.array([0.35, 0.65, 1.1, 2.0])  # τ that are averaged over, in multiples of its prior median
NO_WEIGHTS_PROBABILITY = 0.3  # prior probability of τ = 0
SHIFT_AND_SLOPE_SDS = ((0.1, 0.1), (1.0, 0.5))  # SD of b, and of a around 1, that are averaged over
MIN_COVERAGE = 0.7  # least share of the items that a judge of a panel labels
MIN_PANEL_SHARE = 0.8  # least share of the labels given by judges of the panel
MAX_JUDGES = 100
MAX_GOLD = 2_000  # gold items used for training, at even distances
MAX_CELLS = 2**24  # numbers in an array of features
NEWTON_STEPS = 25
TINY = 1e-9


def panel_judges(table: Annotations) -> IntArray:
    """Return codes of the annotators of a panel; empty if the table is not from a panel."""
    labelled = int(np.count_nonzero(np.diff(table.item_ptr)))
    pairs = np.unique(table.item.astype(np.int64) * table.n_annotators + table.annotator)
    items = np.bincount(pairs % table.n_annotators, minlength=table.n_annotators)
    judges = np.flatnonzero(items >= MIN_COVERAGE * labelled)
    labels = table.annotations_per_annotator[judges].sum()
    is_panel = 1 < judges.size <= MAX_JUDGES and labels >= MIN_PANEL_SHARE * len(table)
    return judges if is_panel else judges[:0]


@dataclass(frozen=True, eq=False)
class Panel:
    """A panel of judges with their labels and, for votes, the posterior (I, K) without gold."""

    table: Annotations
    judges: IntArray  # codes
    n_classes: int  # K
    posterior: FloatArray | None = None

    def features(self, items: IntArray) -> FloatArray:
        """(m, K, D) features of the weights of judges, of b and of a, in this order."""
        contrast = np.array([[-0.5], [0.5]]) if self.n_classes == 2 else np.eye(self.n_classes) - 1 / self.n_classes
        scores = self._score_matrix(items)  # (m, J, K), or (m, J) for numeric scores
        if scores.ndim == 2:
            parts = (scores[:, None, :, None] * contrast[None, :, None, :]).reshape(items.size, self.n_classes, -1)
        else:
            parts = scores.swapaxes(1, 2)
        shift = np.broadcast_to(contrast, (items.size, *contrast.shape))
        own = [] if self.posterior is None else [np.log(np.maximum(self.posterior[items], TINY))[:, :, None]]
        return np.concatenate([parts, shift, *own], axis=2)

    def fit(self, known: IntArray, gold: IntArray) -> FittedPanel:
        """Learn from items (n,) of known class."""
        some = slice(None, None, -(-known.size // MAX_GOLD))
        known, gold = known[some], gold[some]
        x, K = self.features(known), self.n_classes
        own = 0 if self.posterior is None else 1
        D, P = x.shape[2], 1 if K == 2 else K
        n_weights = D - P - own
        mean = np.append(np.zeros(D - own), np.ones(own))
        middle = PANEL_SD / np.sqrt(max(self._judges_per_item(), 1.0))
        fits, scores, start = [], [], mean.copy()
        for (shift_sd, slope_sd), scale in product(SHIFT_AND_SLOPE_SDS, (0.0, *SCALES)):
            sd = np.concatenate([np.full(n_weights, scale * middle), np.full(P, shift_sd), np.full(own, slope_sd)])
            used = sd > 0
            weight, covariance, evidence = fit_laplace(x[:, :, used], gold, mean[used], sd[used], start[used])
            start[used] = weight  # the next maximum is near
            prior = (
                np.log(NO_WEIGHTS_PROBABILITY)
                if not scale
                else np.log(1 - NO_WEIGHTS_PROBABILITY) + np.log(_scale_prior()[scale == SCALES][0])
            )
            fits.append((used, weight, covariance))
            scores.append(evidence + prior)
        share = np.exp(np.array(scores) - max(scores))
        return FittedPanel(self, fits, share / share.sum())

    def _judges_per_item(self) -> float:
        inside = np.isin(self.table.annotator, self.judges)
        return float(inside.sum() / max(np.count_nonzero(np.diff(self.table.item_ptr)), 1))

    def _score_matrix(self, items: IntArray, scores: FloatArray | None = None) -> FloatArray:
        """(m, J, K) Return shares of a judge's votes less 1/K, or (m, J) means of scores (N,)."""
        table, J = self.table, self.judges.size
        column = np.full(table.n_annotators, -1)
        column[self.judges] = np.arange(J)
        place = np.full(table.n_items, -1)
        place[items] = np.arange(items.size)
        rows = np.flatnonzero((place[table.item] >= 0) & (column[table.annotator] >= 0))
        cell = place[table.item[rows]] * np.int64(J) + column[table.annotator[rows]]
        times = np.bincount(cell, minlength=items.size * J)
        if table.kind == "numbers":
            scores = self._rank_scores if scores is None else scores
            total = np.bincount(cell, scores[rows], items.size * J)
            return np.asarray(total / np.maximum(times, 1)).reshape(-1, J)
        K = table.n_classes
        if table.proba is None:
            votes = np.bincount(cell * K + table.label[rows], minlength=times.size * K).reshape(-1, K) * 1.0
        else:
            votes = np.stack([np.bincount(cell, column, times.size) for column in table.proba[rows].T], axis=1)
        votes = votes / np.maximum(times, 1)[:, None] - (times > 0)[:, None] / K
        return np.asarray(votes.reshape(-1, J, K))

    @cached_property
    def _rank_scores(self) -> FloatArray:
        return self._standardise_scores()

    def raw_scores(self, items: IntArray) -> FloatArray:
        """(m, J) scores, standardised by judge; 0 where a judge gave none."""
        return self._score_matrix(items, self._standardise_scores(ranks=False))

    def _standardise_scores(self, ranks: bool = True) -> FloatArray:
        """(N,) scores, or their ranks among those of the same judge, of mean 0 and standard deviation 1."""
        table, found = self.table, np.zeros(len(self.table))
        for judge in self.judges:
            rows = table.by_annotator[table.annotator_ptr[judge] : table.annotator_ptr[judge + 1]]
            own = table.values[table.label[rows]]
            own = rankdata(own) if ranks else own
            found[rows] = (own - own.mean()) / (own.std() or 1.0)
        return found


@dataclass(frozen=True, eq=False)
class FittedPanel:
    """A panel with the weights learnt from gold."""

    panel: Panel
    fits: list[tuple[BoolArray, FloatArray, FloatArray]]  # for each τ: used features, their weights and covariance
    probabilities: FloatArray  # probability of each τ

    def posterior(self, items: IntArray) -> FloatArray:
        """(m, K) P(class) of items."""
        K, D = self.panel.n_classes, self.fits[-1][1].size
        size = max(1, MAX_CELLS // (K * D))
        parts = [self._chunk_posterior(items[start : start + size]) for start in range(0, items.size, size)]
        return np.concatenate([np.empty((0, K)), *parts])

    def _chunk_posterior(self, items: IntArray) -> FloatArray:
        x, K = self.panel.features(items), self.panel.n_classes
        found = np.zeros((items.size, K))
        for share, (used, weight, covariance) in zip(self.probabilities, self.fits, strict=True):
            if share < 1e-3:
                continue
            own = x[:, :, used]
            logits = own @ weight
            centred = own - own.mean(axis=1, keepdims=True)
            variance = ((centred @ covariance) * centred).sum(axis=2).mean(axis=1) * (K / (K - 1)) ** 2
            logits /= np.sqrt(1 + np.pi * variance / 8)[:, None]
            found += share * softmax(logits, axis=1)
        return np.asarray(found / found.sum(axis=1, keepdims=True))


def fit_laplace(
    x: FloatArray, gold: IntArray, mean: FloatArray, sd: FloatArray, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, float]:
    """Return weights (D,) of features (n, K, D) with the prior N(mean, sd²), their covariance, and the log evidence."""
    n, K, D = x.shape
    flat, precision, weight = x.reshape(n * K, D), sd**-2.0, mean if start is None else start
    hit = np.zeros((n, K))
    hit[np.arange(n), gold] = 1
    for _ in range(NEWTON_STEPS):
        p = softmax(x @ weight, axis=1)
        average = np.einsum("nk,nkd->nd", p, x)
        curvature = (flat * p.reshape(-1, 1)).T @ flat - average.T @ average + np.diag(precision)
        step = np.linalg.solve(curvature, flat.T @ (hit - p).reshape(-1) - precision * (weight - mean))
        most = np.abs(x @ step).max(initial=0)
        weight = weight + step * min(1.0, 3.0 / max(most, TINY))
        if most < 1e-5:
            break
    chosen = np.log(np.maximum(softmax(x @ weight, axis=1)[np.arange(n), gold], 1e-300)).sum()
    away = ((weight - mean) ** 2 * precision).sum()
    evidence = chosen - away / 2 - np.linalg.slogdet(curvature * np.outer(sd, sd))[1] / 2
    return weight, np.linalg.inv(curvature), float(evidence)


def _scale_prior() -> FloatArray:
    """Return prior probabilities of `SCALES`."""
    density = np.exp(-((np.log(SCALES) / LOG_SCALE_SD) ** 2) / 2)
    return np.asarray(density / density.sum())
