"""Graded response: ordered classes, with a shift, a scale and a precision per annotator.

Use it for ordered ratings when annotators use the scale in their own way.

Grades are 0 … K − 1 with the middle m = (K − 1)/2, and F is the logistic function. The probability of a grade up to l
is

    z_i ~ Cat(π)      P(y_ij ≤ l | z_i = c) = F(λ_j (l + ½ − m − b_j − a_j (c − m)))
    P(y_ij = l | z_i = c) = (1 − g_j) (P(y_ij ≤ l | z_i = c) − P(y_ij ≤ l − 1 | z_i = c)) + g_j r_l

Annotator j gives grades that are b_j too high, stretches the scale by a_j (a negative a_j reverses it), has precision
λ_j, and with probability g_j guesses according to the shares r of all labels. These are four parameters instead of the
K² of a confusion matrix, and an error of one grade is more likely than one of three. Priors are b ~ N(0, 1), a ~ N(1,
½²), log λ ~ N(log λ₀, 1), logit g ~ N(logit 0.05, 1) and log λ₀ ~ N(0, 1). EM has the E step of `dawid-skene` and three
Fisher scoring steps per M step, halved where they would lower the objective.

- `grading_` (A, 4): b, a, log λ and logit g
- `precision_center_` (1,): log λ₀
- `label_shares_` (K,): r
- `prior_` (K,): π

The answer is the median of the posterior, which has the least expected absolute error. `values_` (I,) are the means,
and `predict_interval` returns quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.special import expit

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.models.confusion import ClassParams, ConfusionModel, Engine, ExpectedCounts, em_parameter, methods
from dissensus.models.matrices import class_pseudo_counts
from dissensus.models.params import real_transform
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import class_values

FISHER_SCORING_STEPS = 3  # number of Fisher scoring steps per M step
MAX_STEP_HALVINGS = 6  # maximum number of halvings of a scoring step
PRIOR_MEANS = np.array([0.0, 1.0, 0.0, np.log(0.05 / 0.95)])  # prior means of b, a, log λ − log λ₀ and logit g
PRIOR_SDS = np.array([1.0, 0.5, 1.0, 1.0])
MAX_LOG_PRECISION = 4.0  # upper limit of log λ; at larger values not even errors of one grade occur
MIN_LIKELIHOOD = 1e-12  # lower limit of the likelihood of a label


@dataclass(frozen=True)
class GraderParams(ClassParams):
    """Parameters of the EM: π (K,), b, a, log λ and logit g of every annotator (A, 4), and log λ₀ (1,)."""

    grading: FloatArray = em_parameter(real_transform(20.0), "A 4")
    precision_center: FloatArray = em_parameter(real_transform(20.0), "1")


@methods.register(
    "graded-response",
    summary="ordered classes: a shift, scale and precision per annotator on one line of grades",
    cite="Samejima 1969",
    place=1,
)
class GradedResponse(ConfusionModel[GraderParams]):
    """Estimate the median grade of every item, with an interval."""

    Params = GraderParams
    kinds: ClassVar = ("graded",)
    grading_: FloatArray
    precision_center_: FloatArray
    label_shares_: Annotated[FloatArray, "K simplex"]  # r, the shares of all labels

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        """Set the label shares r, and the pseudo-counts that keep π near the vote shares."""
        counts = votes.label_counts.sum(axis=(0, 1)) + 1.0
        self.label_shares_ = counts / counts.sum()
        self.class_pseudo_counts_ = class_pseudo_counts(engine, votes, 1.0, 0.5)

    def initial_params(self, prior: FloatArray) -> GraderParams:
        """Return the prior means, with which annotators err by about one grade."""
        return GraderParams(prior, np.tile(PRIOR_MEANS, (self.label_totals_.shape[0], 1)), np.zeros(1))

    def label_likelihood(self, params: GraderParams) -> FloatArray:
        return grade_likelihoods(params.grading, self.label_shares_)[0]

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: Any) -> GraderParams:
        """Return the annotators' parameters after some Fisher scoring steps that start from `params`."""
        grading = params.grading
        if len(grading) != len(label_counts):  # an unseen annotator starts from the prior mean
            grading = np.tile(grading.mean(axis=0), (len(label_counts), 1))
        mean = PRIOR_MEANS + np.array([0, 0, params.precision_center[0], 0])
        best = m_step_objective(label_counts, grading, self.label_shares_, mean)
        for _ in range(FISHER_SCORING_STEPS):
            step = scoring_step(label_counts, grading, self.label_shares_, mean)
            for _ in range(MAX_STEP_HALVINGS):
                new = grading + step
                new[:, 2] = np.minimum(new[:, 2], MAX_LOG_PRECISION)
                value = m_step_objective(label_counts, new, self.label_shares_, mean)
                better = value >= best
                grading, best = np.where(better[:, None], new, grading), np.where(better, value, best)
                step = np.where(better[:, None], 0.0, step / 2)
        return GraderParams(params.prior, grading, params.precision_center)

    def update_hyperparameters(self, label_counts: FloatArray, params: GraderParams) -> GraderParams:
        """Return `params` with log λ₀ set to the mean of log λ, including one pseudo-annotator with log λ = 0."""
        log_precision = params.grading[:, 2]
        return replace(params, precision_center=np.array([log_precision.sum() / (log_precision.size + 1)]))

    def log_prior(self, params: GraderParams) -> float:
        """Return the log prior of all annotators' parameters and of log λ₀, up to a constant."""
        mean = PRIOR_MEANS + np.array([0, 0, params.precision_center[0], 0])
        return float(
            -0.5 * (((params.grading - mean) / PRIOR_SDS) ** 2).sum() - 0.5 * (params.precision_center**2).sum()
        )

    def predict(self, table: Annotations | None = None) -> Names:
        """Return the median grade of each item (I,)."""
        return self.classes_[median_codes(np.asarray(self.predict_proba(table)))]

    def predict_interval(self, table: Annotations | None = None, level: float = 0.95) -> Names:
        """Return intervals of grades (I, 2) that contain the item's grade with a probability of at least `level`."""
        return self.classes_[interval_codes(np.asarray(self.predict_proba(table)), level)]

    @property
    def item_columns(self) -> Any:
        return partial(grade_columns, self.classes_)

    @property
    def values_(self) -> FloatArray:
        """Return the posterior mean of each item (I,), with grades as numbers (`Annotations.values`)."""
        return np.asarray(np.asarray(self.posterior_) @ np.asarray(class_values("graded", self.classes_)))


def grade_columns(classes: Names, items: Names, posterior: FloatArray, difficulty: FloatArray | None) -> dict[str, Any]:
    """Return the columns of the items: name, median grade, its probability, 95 % interval and P(grade)."""
    middle, ends, places = (
        median_codes(posterior),
        interval_codes(posterior, 0.95),
        np.asarray(class_values("graded", classes)),
    )
    columns = {"item": items, "label": classes[middle], "confidence": posterior[np.arange(middle.size), middle]}
    columns |= {"low": classes[ends[:, 0]], "high": classes[ends[:, 1]], "value": posterior @ places}
    return columns | {f"p_{name}": posterior[:, k] for k, name in enumerate(classes)}


def median_codes(posterior: FloatArray) -> IntArray:
    """Return the codes of the median grades (I,)."""
    return np.asarray((np.cumsum(posterior, axis=1) >= 0.5 - 1e-12).argmax(axis=1))


def interval_codes(posterior: FloatArray, level: float) -> IntArray:
    """Return the codes of the grades (I, 2) that enclose a share `level` of each posterior."""
    below = np.cumsum(posterior, axis=1)
    tail = (1 - level) / 2
    return np.stack([(below > tail).argmax(axis=1), (below >= 1 - tail - 1e-12).argmax(axis=1)], axis=1)


def grade_likelihoods(grading: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return P(label | grade) (A, K, K) [annotator, true, given], and its parameter derivatives (4, A, K, K)."""
    K = shares.size
    b, a, log_precision, logit = (column[:, None, None] for column in grading.T)
    precision, guess = np.exp(log_precision), expit(logit)
    true = (np.arange(K) - (K - 1) / 2)[:, None]  # grades as distances from the middle
    edge = np.arange(K - 1) + 0.5 - (K - 1) / 2
    u = precision * (edge - b - a * true)  # (A, K, K − 1)
    F = expit(u)
    f = F * (1 - F)

    def steps(values: FloatArray, last: float) -> FloatArray:
        ends = np.full((*values.shape[:2], 1), 0.0), np.full((*values.shape[:2], 1), last)
        return np.diff(np.concatenate([ends[0], values, ends[1]], axis=2), axis=2)

    attentive = steps(F, 1.0)
    likelihood = np.maximum((1 - guess) * attentive + guess * shares, MIN_LIKELIHOOD)
    slopes = [steps(f * -precision, 0.0), steps(f * -precision * true, 0.0), steps(f * u, 0.0)]
    return likelihood, np.stack(
        [*((1 - guess) * slope for slope in slopes), guess * (1 - guess) * (shares - attentive)]
    )


def m_step_objective(labels: FloatArray, grading: FloatArray, shares: FloatArray, mean: FloatArray) -> FloatArray:
    """Return the objective of the M step for each annotator (A,)."""
    logs = np.log(grade_likelihoods(grading, shares)[0])
    return np.asarray((labels * logs).sum(axis=(1, 2)) - 0.5 * (((grading - mean) / PRIOR_SDS) ** 2).sum(axis=1))


def scoring_step(labels: FloatArray, grading: FloatArray, shares: FloatArray, mean: FloatArray) -> FloatArray:
    """Return a Fisher scoring step (A, 4), which uses expected second derivatives."""
    likelihood, slopes = grade_likelihoods(grading, shares)
    pull = np.einsum("ack,pack->ap", labels / likelihood, slopes) - (grading - mean) / PRIOR_SDS**2
    weight = labels.sum(axis=2)[:, :, None] / likelihood
    information = np.einsum("ack,pack,qack->apq", weight, slopes, slopes) + np.diag(1 / PRIOR_SDS**2)
    return np.asarray(np.linalg.solve(information, pull[:, :, None])[:, :, 0])
