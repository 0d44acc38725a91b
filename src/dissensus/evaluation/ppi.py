"""Mean of a quantity that is known for a few items and predicted for all, with an interval.

The interval is valid for predictions of any quality.

*Prediction-powered inference*, PPI++ (Angelopoulos, Duchi & Zrnic 2023). y is known for n items that were drawn at
random; f is predicted for these and for N other items:

    θ = λ mean_N(f) + mean_n(y − λ f)        λ = cov_n(y, f) / ((1 + n/N) var_{n+N}(f)), within 0 and 1
    Var θ = var_n(y − λ f)/n + λ² var_N(f)/N

λ = 0 uses only the human labels, so poor predictions do no harm. The estimand is the mean over the population from
which the items were drawn.

*Small n.* The coverage of the paper's interval θ ± z √Var is too low if n or the number of positives is small. Here,
the estimate of λ costs one degree of freedom (n − 2 remain, with Student's t). The denominator of λ is the larger of
var_n(f) and var_{n+N}(f). Otherwise, if the known items have more positives than the rest by chance, cov_n and
therefore λ would be larger, which biases θ (for rare classes by up to half a standard error). The interval of a rate is
Wilson's (1927) with n/R trials, where R = Var θ / (variance of the human labels alone). R is estimated from only e =
min(positives, negatives) events, so it is shrunk towards 1: R ← (e² R + 3) / (e² + 3). On 12 data sets, some with
cross-fitted panels, the coverage is 93 to 97 % if ten events are expected, and at least 92 % with fewer (`python -m
benchmarks.trust.ppi`). With 2 instead of 3, the coverage for one rare class is 92 %; with 4, it is 97.2 % if
predictions are nearly always right.

*Unequal probabilities.* If item i was drawn with probability π_i, it has a weight w_i ∝ 1/π_i; the weights of the known
items add up to 1 (Hájek 1971). With e = y − λ f and M items in all:

    θ = λ mean_M(f) + Σ w_i e_i        Var θ = Σ w_i (y_i − Σ w y)² / M + Σ (1 − π_i) w_i² (e_i − Σ w e)²

The first term is the variance between items. The second is the variance of the draw, which λ minimises. The π are
scaled so that their inverses add up to M; therefore relative probabilities suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation.exceptions import TooFewKnownItems
from dissensus.evaluation.intervals import Estimate, wilson_interval

SHRINKAGE_EVENTS = 3.0  # squared number of events at which R is shrunk half-way to 1
MIN_GOLD_FOR_VARIANCE = 5  # smallest number of known items from which a variance is estimated


@dataclass(frozen=True)
class CorrectedMean(Estimate):
    """A mean computed from human labels and predictions, together with the mean of the human labels alone."""

    human: Estimate = Estimate(np.nan, np.nan, np.nan)  # mean of the human labels alone
    predicted: float = np.nan  # mean of the predictions, uncorrected
    weight: float = 0.0  # λ
    n_gold: int = 0  # n
    trials: float = np.nan  # trials of a rate: n, or the effective number of labels after weighting
    ratio: float = 1.0  # R
    events: float = 0.0  # e
    freedom: float = np.inf  # degrees of freedom

    @property
    def human_only(self) -> CorrectedMean:
        """Return the mean of the human labels alone as a CorrectedMean."""
        one, freedom = self.human, self.freedom + 1
        return CorrectedMean(one.value, one.low, one.high, self.level, one, trials=self.trials, freedom=freedom)

    @property
    def effective_labels(self) -> float:
        """Return the number of human labels that would give an equally narrow interval without predictions."""
        narrower = (self.human.high - self.human.low) / (self.high - self.low) if self.high > self.low else 1.0
        return self.n_gold * narrower**2

    @property
    def labels_saved(self) -> float:
        """Return the number of human labels that the predictions save."""
        return max(self.effective_labels - self.n_gold, 0.0)


def estimate_tuned_mean(y: FloatArray, f: FloatArray, others: FloatArray, used: int = 0) -> tuple[float, float, float]:
    """Return θ, √Var θ and λ; variances have n − `used` degrees of freedom (in the paper, `used` is 0)."""
    n, N = y.size, others.size
    if N == 0 or np.ptp(np.concatenate([f, others])) == 0:
        weight = 0.0
    else:
        covariance = np.mean((y - y.mean()) * (f - f.mean()))
        spread = np.var(np.concatenate([f, others]), ddof=1)
        weight = covariance / ((1 + n / N) * max(spread, np.var(f) if used else 0.0))
        weight = float(np.clip(weight, 0, 1))
    left = y - weight * f
    variance = left.var() / (n - used) + (weight**2 * others.var() / N if N else 0.0)
    mean = left.mean() + (weight * others.mean() if N else 0.0)
    return float(mean), float(np.sqrt(variance)), weight


def _weighted_estimates(y: FloatArray, f: FloatArray, others: FloatArray, probability: FloatArray) -> tuple[float, ...]:
    """Return estimates for items that were drawn with the given probabilities.

    These are θ, √Var θ and λ, the mean and the standard error of the human labels alone, the number of independent
    labels with the same variance, and the effective number of labels after weighting.
    """
    n, items = y.size, y.size + others.size
    scaled = probability * (1 / probability).sum() / items
    w = 1 / (scaled * items)
    drawn = np.maximum(1 - scaled, 0) * w**2
    alone, middle = float(w @ y), float(w @ f)
    slope = drawn @ (f - middle) ** 2
    weight = float(np.clip(drawn @ ((y - alone) * (f - middle)) / slope, 0, 1)) if slope > 0 else 0.0
    left = y - weight * f
    between = float(w @ (y - alone) ** 2 / items)
    mean = w @ left + weight * np.concatenate([f, others]).mean()
    error = np.sqrt(between + drawn @ (left - w @ left) ** 2 * n / (n - 2))
    variance = between + float(drawn @ (y - alone) ** 2 * n / (n - 1))
    known = float(1 / (w @ w))
    trials = alone * (1 - alone) / variance if variance > 0 else known
    return float(mean), float(error), weight, alone, float(np.sqrt(variance)), trials, known


def corrected_mean(
    y: Any, f: Any, others: Any, *, rate: bool = False, level: float = 0.95, probability: Any = None
) -> CorrectedMean:
    """Return the mean of y with its interval, computed from human labels and predictions.

    Parameters
    ----------
    y : (n,)
        Known values of items drawn at random.
    f : (n,)
        Predictions for these items, made without using their y.
    others : (N,)
        Predictions for the other items.
    rate : bool
        True if y is 0 or 1, so that its mean is a rate.
    probability : (n,), optional
        Probability with which each known item was drawn, or numbers proportional to it; equal by default.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random(1000) < 0.3
    >>> judged = np.where(truth, 0.8, 0.1)
    >>> found = corrected_mean(truth[:100], judged[:100], judged[100:], rate=True)
    >>> print(found, found.human)
    0.271 (95 % interval 0.238 to 0.307) 0.250 (95 % interval 0.175 to 0.344)
    """
    from scipy.stats import t

    y, f, others = (np.asarray(one, np.float64) for one in (y, f, others))
    n = y.size
    if n < MIN_GOLD_FOR_VARIANCE:
        raise TooFewKnownItems(gold_items=n, required=MIN_GOLD_FOR_VARIANCE)
    tail = (1 + level) / 2
    estimates: tuple[float, ...]
    if probability is None:
        tuned = estimate_tuned_mean(y, f, others, used=2 if others.size else 1)
        estimates = *tuned, float(y.mean()), float(np.sqrt(y.var(ddof=1) / n)), n, n
    else:
        estimates = _weighted_estimates(y, f, others, np.asarray(probability, np.float64))
    mean, error, weight, alone, spread, independent, left = estimates
    freedom = max(left - 2, 1)
    events, ratio, trials = left * min(alone, 1 - alone), 1.0, np.nan
    if rate:
        trials, mean = independent, float(np.clip(mean, 0, 1))
        ratio = (error / spread) ** 2 if spread > 0 and others.size else 1.0
        low, high = _rate_interval(mean, trials, ratio, events, freedom, level)
        low_alone, high_alone = _rate_interval(alone, trials, 1.0, events, freedom + 1, level)
    else:
        z_alone, z = t.ppf(tail, freedom + 1), t.ppf(tail, freedom)
        low, high = mean - z * error, mean + z * error
        low_alone, high_alone = alone - z_alone * spread, alone + z_alone * spread
    human = Estimate(alone, float(low_alone), float(high_alone), level)
    everything = float(np.concatenate([f, others]).mean())
    return CorrectedMean(
        mean, float(low), float(high), level, human, everything, weight, n, trials, ratio, events, freedom
    )


def _rate_interval(
    mean: float, trials: float, ratio: float, events: float, freedom: float, level: float
) -> tuple[float, float]:
    """Return Wilson's interval of a rate, with R shrunk towards 1 according to the number of events."""
    from scipy.stats import t

    tail = (1 + level) / 2
    trust = events**2 / (events**2 + SHRINKAGE_EVENTS)
    low, high = wilson_interval(mean, trials / (1 - trust + trust * ratio), t.ppf(tail, freedom))
    return float(low), float(high)


def corrected_difference(one: CorrectedMean, other: CorrectedMean) -> Estimate:
    """Return the difference of two means over different items, with its interval (Zou & Donner 2008).

    For rates, the intervals of both means use the events and degrees of freedom of both, so that each R is shrunk less.
    """
    both = one.events + other.events, one.freedom + other.freedom
    (low, high), (other_low, other_high) = (
        _rate_interval(of.value, of.trials, of.ratio, *both, of.level) if np.isfinite(of.trials) else (of.low, of.high)
        for of in (one, other)
    )
    value = one.value - other.value
    low = value - np.hypot(one.value - low, other_high - other.value)
    high = value + np.hypot(high - one.value, other.value - other_low)
    return Estimate(value, float(low), float(high), one.level)


def compare_sample_to_rest(features: Any, known: IntArray) -> tuple[float, int, float]:
    """Return the p-value of a test that known items were drawn at random, and the feature that differs most.

    The feature is given by its column and its difference in standard deviations.

    Hotelling's T² compares the means of features (I, D) over the known items with the means over all items, for draws
    without replacement; D is at most a third of the number of known items. In 12 data sets, at most 1.3 % of random
    draws had p < 1 %.

    >>> sure = np.linspace(0, 1, 1000)[:, None]
    >>> p, column, gap = compare_sample_to_rest(sure, np.arange(100))  # the least confident items
    >>> p < 1e-6, column, round(gap, 1)
    (True, 0, -1.6)
    """
    from scipy.stats import f as f_distribution

    x, n = np.asarray(features, np.float64), known.size
    varied = np.flatnonzero(x.std(axis=0) > 0)[: max(n // 3, 1)]
    x, items, columns = x[:, varied], len(x), varied.size
    if columns == 0 or n == items:
        return 1.0, 0, 0.0
    apart = x[known].mean(axis=0) - x.mean(axis=0)
    spread = np.cov(x, rowvar=False).reshape(columns, columns)
    squared = apart @ np.linalg.pinv(spread) @ apart * n / (1 - n / items)
    gaps = apart / x.std(axis=0)
    at = int(np.abs(gaps).argmax())
    freedom = n - columns
    p = f_distribution.sf(squared * freedom / (columns * (n - 1)), columns, freedom)
    return float(p), int(varied[at]), float(gaps[at])


def rogan_gladen(y: Any, predicted: Any, others: Any, level: float = 0.95) -> Estimate:
    """Return the rate of y, estimated from the predicted rate, sensitivity and specificity (Rogan & Gladen 1978).

    The interval is from the delta method. The result is NaN if sensitivity and specificity add up to 1 or less, or if
    one of them is unknown.

    >>> truth, predicted = np.repeat([1, 0], [30, 70]), np.repeat([1, 0, 1, 0], [24, 6, 7, 63])
    >>> print(rogan_gladen(truth, predicted, predicted))
    0.300 (95 % interval 0.169 to 0.431)
    """
    from scipy.special import ndtri

    y, predicted, others = (np.asarray(one, np.float64) for one in (y, predicted, others))
    positive, negative = y.sum(), (1 - y).sum()
    if positive and negative:
        sensitivity = (y * predicted).sum() / positive
        specificity = ((1 - y) * (1 - predicted)).sum() / negative
        apparent, everything = np.concatenate([predicted, others]).mean(), y.size + others.size
        gain = sensitivity + specificity - 1
        if gain > 0:
            rate = float(np.clip((apparent + specificity - 1) / gain, 0, 1))
            variance = apparent * (1 - apparent) / everything
            variance += rate**2 * sensitivity * (1 - sensitivity) / positive
            variance += (1 - rate) ** 2 * specificity * (1 - specificity) / negative
            half = ndtri((1 + level) / 2) * np.sqrt(variance) / gain
            return Estimate(rate, float(max(rate - half, 0)), float(min(rate + half, 1)), level)
    return Estimate(np.nan, np.nan, np.nan, level)


def labels_needed(found: CorrectedMean, items: int, width: float, *, rate: bool = True) -> int | None:
    """Return the number of human labels needed for an interval of this width, or None if all `items` are too few.

    More labels reduce only the first part of Var θ = a/n + b/items, where b is the variance of λ f.
    """
    from scipy.special import ndtri

    spread = found.value * (1 - found.value) if rate else (found.human.high - found.human.low) ** 2
    if not rate:
        spread *= found.n_gold / (2 * ndtri((1 + found.level) / 2)) ** 2
    ratio = min(found.n_gold / found.effective_labels, 1.0)  # ratio of the variances with and without predictions
    explained = (1 - ratio) / max(1 - found.n_gold / items, 1e-9) * spread if found.n_gold < items else 0.0
    wanted = (width / (2 * ndtri((1 + found.level) / 2))) ** 2
    if wanted <= spread / items:
        return None
    return min(int(np.ceil((spread - explained) / (wanted - explained / items))), items)
