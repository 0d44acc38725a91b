"""Estimate weights of the judges of a panel from gold, together with the weight of the panel's posterior.

In a panel, a few annotators label nearly every item. With the score x_ij(c) of judge j for class c of item i,

    P(z_i = c) ∝ exp(a log q_i(c) + b_c + Σ_j w_j x_ij(c))      a ~ N(1, s²)   b_c ~ N(0, t²)   w_j ~ N(0, τ²)

q is the posterior without gold, so without gold the posterior does not change. For numeric scores there is no such
posterior, so the term with a is left out. A vote has the score x_ij(c) = [y_ij = c] − 1/K. A numeric score is replaced
by its rank among the judge's scores, scaled to an SD of 1, because judges use scales differently; ranks gave a smaller
log loss than scores. With more than two classes, each judge's score has one weight per class.

A priori, Σ_j w_j x_ij has the variance n τ² for items with labels of n judges. The prior median of log τ is given by
`PANEL_SD`² = n τ², and τ = 0 has a prior probability of its own. The posterior averages over τ, s and t by their
evidence (Laplace's approximation), and over w given τ (MacKay 1992: logits of variance v are divided by √(1 + π v/8)).
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

PANEL_SD = 1.2  # prior SD of the sum of all judges' log odds of an item
LOG_SCALE_SD = 0.5  # SD of the prior on log τ
WEIGHT_SCALE_GRID = np.array([0.35, 0.65, 1.1, 2.0])  # grid of τ, as multiples of its prior median
ZERO_WEIGHTS_PROBABILITY = 0.3  # prior probability of τ = 0
SHIFT_AND_SLOPE_SDS = ((0.1, 0.1), (1.0, 0.5))  # grid of pairs (t, s): the SDs of b and of a
MIN_JUDGE_COVERAGE = 0.7  # minimum share of the items that a judge of a panel has labelled
MIN_PANEL_SHARE = 0.8  # minimum share of all labels that come from the panel
MAX_JUDGES = 100  # maximum number of judges of a panel
MAX_GOLD_ITEMS = 2_000  # maximum number of gold items that are used; they are evenly spaced
MAX_FEATURE_ENTRIES = 2**24  # maximum number of entries in an array of features; limits memory
NEWTON_STEPS = 25  # maximum number of Newton steps
MIN_POSITIVE = 1e-9  # lower limit of probabilities and step lengths, so that logarithms and quotients are finite


def panel_judges(table: Annotations) -> IntArray:
    """Return the codes of the panel's judges, or an empty array if the labels do not come from a panel."""
    labelled = int(np.count_nonzero(np.diff(table.item_ptr)))
    pairs = np.unique(table.item.astype(np.int64) * table.n_annotators + table.annotator)
    items = np.bincount(pairs % table.n_annotators, minlength=table.n_annotators)
    judges = np.flatnonzero(items >= MIN_JUDGE_COVERAGE * labelled)
    labels = table.annotations_per_annotator[judges].sum()
    is_panel = 1 < judges.size <= MAX_JUDGES and labels >= MIN_PANEL_SHARE * len(table)
    return judges if is_panel else judges[:0]


@dataclass(frozen=True, eq=False)
class Panel:
    """A panel of judges: their labels and, if labels are classes, the posterior (I, K) without gold."""

    table: Annotations
    judges: IntArray  # codes of the judges
    n_classes: int  # K
    posterior: FloatArray | None = None

    def features(self, items: IntArray) -> FloatArray:
        """Return the features (m, K, D) of items, which belong to the judges' weights, to b and to a."""
        contrast = np.array([[-0.5], [0.5]]) if self.n_classes == 2 else np.eye(self.n_classes) - 1 / self.n_classes
        scores = self._score_matrix(items)  # (m, J, K), or (m, J) for numeric scores
        if scores.ndim == 2:
            parts = (scores[:, None, :, None] * contrast[None, :, None, :]).reshape(items.size, self.n_classes, -1)
        else:
            parts = scores.swapaxes(1, 2)
        shift = np.broadcast_to(contrast, (items.size, *contrast.shape))
        own = [] if self.posterior is None else [np.log(np.maximum(self.posterior[items], MIN_POSITIVE))[:, :, None]]
        return np.concatenate([parts, shift, *own], axis=2)

    def fit(self, known: IntArray, gold: IntArray) -> FittedPanel:
        """Estimate the weights from gold items (n,) and their classes (n,)."""
        some = slice(None, None, -(-known.size // MAX_GOLD_ITEMS))
        known, gold = known[some], gold[some]
        x, K = self.features(known), self.n_classes
        own = 0 if self.posterior is None else 1
        D, P = x.shape[2], 1 if K == 2 else K
        n_weights = D - P - own
        mean = np.append(np.zeros(D - own), np.ones(own))
        middle = PANEL_SD / np.sqrt(max(self._judges_per_item(), 1.0))
        fits, scores, start = [], [], mean.copy()
        for (shift_sd, slope_sd), scale in product(SHIFT_AND_SLOPE_SDS, (0.0, *WEIGHT_SCALE_GRID)):
            sd = np.concatenate([np.full(n_weights, scale * middle), np.full(P, shift_sd), np.full(own, slope_sd)])
            used = sd > 0
            weight, covariance, evidence = fit_laplace(x[:, :, used], gold, mean[used], sd[used], start[used])
            start[used] = weight  # starting value for the next prior, whose optimum is close
            prior = (
                np.log(ZERO_WEIGHTS_PROBABILITY)
                if not scale
                else np.log(1 - ZERO_WEIGHTS_PROBABILITY) + np.log(_scale_prior()[scale == WEIGHT_SCALE_GRID][0])
            )
            fits.append((used, weight, covariance))
            scores.append(evidence + prior)
        share = np.exp(np.array(scores) - max(scores))
        return FittedPanel(self, fits, share / share.sum())

    def _judges_per_item(self) -> float:
        inside = np.isin(self.table.annotator, self.judges)
        return float(inside.sum() / max(np.count_nonzero(np.diff(self.table.item_ptr)), 1))

    def _score_matrix(self, items: IntArray, scores: FloatArray | None = None) -> FloatArray:
        """Return each judge's vote shares minus 1/K, (m, J, K), or mean numeric scores, (m, J)."""
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
        """Return the scores (m, J), standardised for each judge; 0 where a judge gave no score."""
        return self._score_matrix(items, self._standardise_scores(ranks=False))

    def _standardise_scores(self, ranks: bool = True) -> FloatArray:
        """Return all scores, or their ranks, standardised to mean 0 and SD 1 for each judge, (N,)."""
        table, found = self.table, np.zeros(len(self.table))
        for judge in self.judges:
            rows = table.by_annotator[table.annotator_ptr[judge] : table.annotator_ptr[judge + 1]]
            own = table.values[table.label[rows]]
            own = rankdata(own) if ranks else own
            found[rows] = (own - own.mean()) / (own.std() or 1.0)
        return found


@dataclass(frozen=True, eq=False)
class FittedPanel:
    """A panel with weights estimated from gold."""

    panel: Panel
    fits: list[tuple[BoolArray, FloatArray, FloatArray]]  # per prior: used features, their weights and covariance
    probabilities: FloatArray  # posterior probability of each prior

    def posterior(self, items: IntArray) -> FloatArray:
        """Return the class probabilities of items, (m, K)."""
        K, D = self.panel.n_classes, self.fits[-1][1].size
        size = max(1, MAX_FEATURE_ENTRIES // (K * D))
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
    """Return the weights (D,) of features (n, K, D), with prior N(mean, sd²), their covariance and log evidence."""
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
        weight = weight + step * min(1.0, 3.0 / max(most, MIN_POSITIVE))
        if most < 1e-5:
            break
    chosen = np.log(np.maximum(softmax(x @ weight, axis=1)[np.arange(n), gold], 1e-300)).sum()
    away = ((weight - mean) ** 2 * precision).sum()
    evidence = chosen - away / 2 - np.linalg.slogdet(curvature * np.outer(sd, sd))[1] / 2
    return weight, np.linalg.inv(curvature), float(evidence)


def _scale_prior() -> FloatArray:
    """Return the prior probabilities of `WEIGHT_SCALE_GRID`."""
    density = np.exp(-((np.log(WEIGHT_SCALE_GRID) / LOG_SCALE_SD) ** 2) / 2)
    return np.asarray(density / density.sum())
