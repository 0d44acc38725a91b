"""Gaussian: numbers, with a bias, a scale and a precision per annotator.

Use it for numeric labels when annotators rate too high, too low or imprecisely.

The true value θ_i of item i and annotator j's bias b_j, scale a_j and residual variance σ_j² give the label's score
x_ij:

    θ_i ~ N(μ, τ²)        x_ij = b_j + a_j θ_i + ε_ij        ε_ij ~ N(0, σ_j²)
    b_j ~ N(0, s_b²)      a_j ~ N(1, s_a²)      σ_j² ~ scaled-inv-χ²(`crowd_labels`, σ²)

With `scores="ranks"`, x is the normal score of the label, the quantile of N(0, 1) at its rank among all labels, so that
outliers and skewed ratings do no harm. With `scores="labels"`, x is the label itself. θ and (a_j, b_j) have posterior
distributions; m_i and v_i are the mean and variance of θ_i. Variational Bayes raises a bound on the log evidence by
updates in closed form, with row weights w:

    v_i = 1 / (1/τ² + Σ_j w E[a_j²]/σ_j²)        m_i = v_i (μ/τ² + Σ_j w (E[a_j] x_ij − E[a_j b_j])/σ_j²)
    (b_j, a_j): ridge regression of x_ij on m_i, with E[θ_i²] = m_i² + v_i on the diagonal
    σ_j² = (Σ w E[(x − b − aθ)²] + `crowd_labels`·σ²) / (Σ w + `crowd_labels` + 2)     σ² = (A + 1) / (1/W + Σ_j 1/σ_j²)
    μ = mean m      τ² = mean (m − μ)² + v      s_a² = mean E[(a − 1)²]      s_b² = mean E[b²]

W, the variance of x within items, stands for one additional annotator, and τ² is at least W/I. The scale a_j matters:
without it, an annotator who always gives the same label would have the largest weight.

- `values_` (I,) and `interval_` (I, 2): r(θ), the expected label, averaged over annotators, and its 95 % interval
- `bias_` (A,): b in units of labels, relative to the crowd, for an average item
- `stretch_` (A,) and `precision_` (A,): a and 1/σ²

r weights the annotators by their squared correlation with θ. The interval of θ uses v_i times the design effect
(`models.tempering`), and is converted to labels. `reliability_` is the correlation of an annotator's labels with the
truth, or 0 if it is negative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr, ndtri

from dissensus.common.parameters import check_argument, param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.evaluation import bootstrap
from dissensus.models.answers import AnswerModel, check_gold_values
from dissensus.models.base import methods
from dissensus.models.exceptions import AllWeightsZero, IntervalNeedsTable, NoClassProbabilities
from dissensus.models.fitting import check_label_type
from dissensus.models.gold_tempering import fit_correlation
from dissensus.models.tempering import DEPENDENCE, MIN_GOLD_ITEMS, DependenceChoice, Tempering, design_effect
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

MAX_CURVE_ANNOTATORS = 200  # maximum number of annotators in the mean r; the largest weights count
CURVE_POINTS = 400  # number of values of θ for which r is computed
MAX_KNOTS = 2_000  # maximum number of label quantiles that define Q
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(21)  # Gauss–Hermite quadrature of the mean over ε
OUTLIER_TAIL = 0.05  # share of labels in each tail
OUTLIER_DISTANCE = 10.0  # maximum distance of labels from the median, as a multiple of the tail quantile's
MIN_TOLERANCE_ROWS = 1_000  # number of rows below which the absolute tolerance is constant
ANNOTATOR_COLUMNS = ("reliability", "bias", "stretch", "precision")
INTERVAL_LEVEL = 0.95  # default level of intervals
MIN_VARIANCE = 1e-4  # lower limit of σ_j², τ², s_a² and s_b², on the scale of x


class GaussianParams(NamedTuple):
    """Parameters of the variational fit."""

    mu: float
    tau2: float
    b: FloatArray  # (A,) posterior mean of b
    a: FloatArray  # (A,) posterior mean of a
    V: FloatArray  # (A, 3) posterior variances of b and a, and their covariance
    s2: FloatArray  # (A,) σ²
    pool: float
    sa2: float
    sb2: float


@methods.register(
    "gaussian", summary="numbers: a bias, scale and precision per annotator", cite="Raykar et al. 2010", place=1
)
class Gaussian(AnswerModel):
    """Estimate a number per item, and the bias, scale and precision of each annotator."""

    scores: Literal["ranks", "labels"] = param(
        "ranks", "whether the model describes normal scores of the labels or the labels"
    )
    crowd_labels: float = param(
        100.0, "number of labels of average precision that are added to those of each annotator", above=0
    )
    max_iter: int = param(500, "largest number of passes over the data", low=1)
    tol: float = param(1e-7, "stop when a pass raises the bound by less than this number per row", low=0)
    dependence: DependenceChoice = DEPENDENCE

    kinds: ClassVar = ("numbers",)
    missing_results: ClassVar = ("posterior_", "prior_")
    tie_seed_: Annotated[int, "optional whole"]
    values_: Annotated[FloatArray, "I real"]
    interval_: Annotated[FloatArray, "I 2 real"]  # 95 % interval
    bias_: Annotated[FloatArray, "A real"]  # expected label of an average item minus the crowd's
    stretch_: Annotated[FloatArray, "A real"]  # slope of an annotator's labels as a function of the crowd's
    precision_: Annotated[FloatArray, "A real"]  # 1 / residual variance, on the scale of x
    item_total_: Annotated[FloatArray, "I count"]
    knots_: Annotated[FloatArray, "Q 2 share"]  # first and last quantile of each label
    knot_labels_: Annotated[FloatArray, "Q real"]  # labels in ascending order
    center_: Annotated[FloatArray, "2 real"]  # mean and standard deviation of the labels, by which x is standardised
    theta_prior_: Annotated[FloatArray, "2 real"]  # μ and τ²
    spread_: Annotated[FloatArray, "A 5 real"]  # E b, E a, Var b, Var a and σ², on the scale of x
    typical_spread_: Annotated[FloatArray, "3 real"]  # b, a and σ² of an unseen annotator

    def _fit(self, table: Annotations, gold: Any, on_step: OnStep) -> None:
        self.classes_, weight = np.empty(0), table.row_weights
        if not weight.sum() > 0:
            raise AllWeightsZero
        self.total_ = np.bincount(table.annotator, weight, table.n_annotators).astype(np.float64)
        self.item_total_ = np.bincount(table.item, weight, table.n_items).astype(np.float64)
        self._set_quantiles(table, weight)
        x = self._to_scores(table.values)[table.label]
        fit, trace, done = self._optimise(table, x, weight, on_step)
        if not done:
            self._warn_unconverged("passes", "the bound", trace[-1] - trace[-2] if len(trace) > 1 else np.nan)
        self.trace_, self.n_iter_, self.converged_ = np.array(trace), len(trace), done
        self.theta_prior_ = np.array([fit.mu, fit.tau2])
        self.spread_ = np.column_stack([fit.b, fit.a, fit.V[:, 0], fit.V[:, 1], fit.s2])
        self.typical_spread_ = np.array([0.0, 1.0, fit.pool])
        signal = fit.a * np.sqrt(fit.tau2)
        self.reliability_ = np.maximum(signal / np.sqrt(signal**2 + fit.s2), 0.0)
        self.hits_ = self.reliability_**2 * self.total_
        expected = self._mean_labels(fit.b + fit.a * fit.mu, fit.s2)  # expected labels of an average item
        self.bias_ = expected - (self.total_ @ expected) / self.total_.sum()
        self.stretch_, self.precision_ = fit.a, 1 / fit.s2
        self._theta, variance = self.latent_posterior(table, np.arange(table.n_annotators))
        if gold is not None:
            self._learn_dependence(self._theta, variance, gold)
        self.values_, self.interval_ = self._values_and_intervals(
            self._theta, variance, self.item_total_, INTERVAL_LEVEL
        )

    def _optimise(
        self, table: Annotations, x: FloatArray, weight: FloatArray, on_step: OnStep
    ) -> tuple[GaussianParams, list[float], bool]:
        """Raise the bound until it gains less than `tol` per row; return parameters, trace and whether it converged."""
        item, annotator, rows = table.item, table.annotator, float(weight.sum())
        I, A = table.n_items, table.n_annotators

        def sum_by_item(values: FloatArray) -> FloatArray:
            return np.bincount(item, weight * values, I).astype(np.float64)

        def sum_by_annotator(values: FloatArray) -> FloatArray:
            return np.bincount(annotator, weight * values, A).astype(np.float64)

        n, labelled = sum_by_annotator(np.ones(x.size)), sum_by_item(np.ones(x.size))
        mean = sum_by_item(x) / np.maximum(labelled, 1e-300)
        within = max(float((weight * (x - mean[item]) ** 2).sum() / rows), MIN_VARIANCE)
        between = max(float(mean[labelled > 0].var()), within / I, within / 10, MIN_VARIANCE)
        ones, none = np.ones(A), np.zeros((A, 3))
        fit = GaussianParams(0.0, between, 0 * ones, ones, none, within * ones, within, 0.1, within / 10)
        trace: list[float] = []
        xx = sum_by_annotator(x**2)
        sums_x = sum_by_annotator(x)
        for step in range(1, self.max_iter + 1):
            b, a, V, s2 = fit.b, fit.a, fit.V, fit.s2
            aa, ab = a**2 + V[:, 1], a * b + V[:, 2]
            v = 1 / (1 / fit.tau2 + sum_by_item((aa / s2)[annotator]))
            m = v * (fit.mu / fit.tau2 + sum_by_item((a / s2)[annotator] * x - (ab / s2)[annotator]))
            mu = float(m.mean())
            tau2 = max(float(((m - mu) ** 2 + v).mean()), within / I, MIN_VARIANCE)
            at, square = m[item], (m**2 + v)[item]
            t1, t2, xt = sum_by_annotator(at), sum_by_annotator(square), sum_by_annotator(x * at)
            # The posterior of (b, a) is Gaussian with precision [[A11, t1], [t1, A22]] / s2.
            A11, A22 = n + s2 / fit.sb2, t2 + s2 / fit.sa2
            determinant = A11 * A22 - t1**2
            right = xt + s2 / fit.sa2
            b, a = (A22 * sums_x - t1 * right) / determinant, (A11 * right - t1 * sums_x) / determinant
            V = np.column_stack([A22, A11, -t1]) * (s2 / determinant)[:, None]
            sa2 = max(float(((a - 1) ** 2 + V[:, 1]).mean()), MIN_VARIANCE)
            sb2 = max(float((b**2 + V[:, 0]).mean()), MIN_VARIANCE)
            # The sums give Σ w E[(x − b − aθ)²] of each annotator.
            bb, aa, ab = b**2 + V[:, 0], a**2 + V[:, 1], a * b + V[:, 2]
            off = np.maximum(xx - 2 * (b * sums_x + a * xt) + n * bb + 2 * ab * t1 + aa * t2, 0)
            s2 = np.maximum((off + self.crowd_labels * fit.pool) / (n + self.crowd_labels + 2), MIN_VARIANCE)
            pool = float((A + 1) / ((1 / s2).sum() + 1 / within))
            fit = GaussianParams(mu, tau2, b, a, V, s2, pool, sa2, sb2)
            trace.append(evidence_bound(fit, n, off, m, v, self.crowd_labels, within))
            on_step(step, trace[-1])
            if step > 1 and trace[-1] - trace[-2] <= self.tol * max(rows, MIN_TOLERANCE_ROWS):
                return fit, trace, True
        return fit, trace, False

    def _check_gold(self, gold: Any, table: Any) -> FloatArray | None:
        return check_gold_values(gold, table)

    def _estimate_tempering(self, data: Any, gold: Any, earlier: Any) -> Tempering:
        return super()._estimate_tempering(data, None, earlier)  # gold values are used to set ρ after the fit

    def predict(self, table: Annotations | None = None) -> FloatArray:
        """Return the value of each item (I,); for a new table, fitted annotators keep their parameters."""
        self._check_fitted()
        return self.values_ if table is None else self._score_table(table, INTERVAL_LEVEL)[0]

    def predict_interval(self, table: Annotations | None = None, level: float = INTERVAL_LEVEL) -> FloatArray:
        """Return bounds (I, 2) that contain the value with the probability `level`."""
        self._check_fitted()
        check_argument("level", level, float, above=0, below=1)
        if table is None and level == INTERVAL_LEVEL:
            return self.interval_
        if table is None:
            raise IntervalNeedsTable
        return self._score_table(table, level)[1]

    def predict_answers(self, table: Annotations) -> dict[str, Any]:
        return {"values_": self.predict(table), "interval_": self.predict_interval(table)}

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """Raise an error: numbers have no class probabilities; see `predict_interval`."""
        raise NoClassProbabilities(labels="numbers", instead="predict_interval")

    def predict_annotations(self, table: Annotations) -> FloatArray:
        return self.predict_proba(table)

    def _score_table(self, table: Annotations, level: float) -> tuple[FloatArray, FloatArray]:
        check_label_type(self, table)
        known = naming.match_names(table.annotators, self.annotators_, "annotators")
        weight = table.row_weights
        n = np.bincount(table.item, weight, table.n_items).astype(np.float64)
        return self._values_and_intervals(*self.latent_posterior(table, known), n, level)

    def _values_and_intervals(
        self, mean: FloatArray, variance: FloatArray, n: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return values (I,) and intervals (I, 2) for Gaussian posteriors on the scale of x."""
        half = ndtri((1 + level) / 2) * np.sqrt(variance * design_effect(n, self.dependence_))
        # An interval is at most as wide as that of an item without labels.
        half = np.minimum(half, ndtri((1 + level) / 2) * self._prior_sd())
        value, plain = self._make_conversion_functions()
        low = np.minimum(value(mean - half), plain(mean - half))
        high = np.maximum(value(mean + half), plain(mean + half))
        return value(mean), np.stack([low, high], axis=1)

    def _learn_dependence(self, mean: FloatArray, variance: FloatArray, gold: FloatArray) -> None:
        """Set ρ to its most probable value, given gold and a prior around the default, unless the user has set ρ."""
        known = np.flatnonzero(~np.isnan(gold))
        if self.dependence != "auto" or known.size < MIN_GOLD_ITEMS:
            return
        value, _ = self._make_conversion_functions()
        grid = np.linspace(mean.min() - 4 * self._prior_sd(), mean.max() + 4 * self._prior_sd(), 1000)
        squared_error = (np.interp(gold[known], value(grid), grid) - mean[known]) ** 2  # on the scale of x

        def log_likelihood(rho: float) -> float:
            wide = variance[known] * design_effect(self.item_total_[known], rho)
            return -0.5 * float((np.log(wide) + squared_error / wide).sum())

        best = fit_correlation(log_likelihood)
        self.dependence_, self.dependence_interval_ = best.dependence, list(best.interval)

    def expected_labels(self, table: Annotations) -> FloatArray:
        """Return the expected median label of each row's annotator (N,); the labels of `table` are not used."""
        self._check_fitted()
        item = naming.match_names(table.items, self.items_, "items")[table.item]
        annotators = naming.match_names(table.annotators, self.annotators_, "annotators")[table.annotator]
        at = np.where(item >= 0, self._theta[item], self.theta_prior_[0])
        b, a = (np.append(self.spread_[:, k], self.typical_spread_[k])[annotators] for k in (0, 1))
        return self._to_labels(b + a * at)

    def latent_posterior(self, table: Annotations, annotators: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean and variance of θ (I,), given codes of the annotators (A,); −1 is an unseen annotator."""
        b, a, s2 = (
            np.append(self.spread_[:, column], typical)[annotators][table.annotator]
            for column, typical in zip((0, 1, 4), self.typical_spread_, strict=True)
        )
        aa = a**2 + np.append(self.spread_[:, 3], 0.0)[annotators][table.annotator]
        weight = table.row_weights
        x, (mu, tau2) = self._to_scores(table.values)[table.label], self.theta_prior_
        v = 1 / (1 / tau2 + np.bincount(table.item, weight * aa / s2, table.n_items))
        return v * (mu / tau2 + np.bincount(table.item, weight * a * (x - b) / s2, table.n_items)), v

    def _frame_columns(self, kind: str) -> dict[str, Any]:
        if kind == "items":
            low, high = self.interval_.T
            columns = {"item": self.items_, "value": self.values_, "low": low, "high": high}
            return columns | {"annotations": self.item_total_}
        if kind == "annotators":
            columns = {"annotator": self.annotators_, "annotations": self.n_annotations_}
            return columns | {name: getattr(self, f"{name}_") for name in ANNOTATOR_COLUMNS}
        return super()._frame_columns(kind)

    def summarise_answers(self, gold: Any = None) -> dict[str, Any]:
        """Return quantiles of the values, the mean interval width and, with gold values, the error and coverage."""
        quantiles = np.quantile(self.values_, [0, 0.5, 1]).tolist()
        about: dict[str, Any] = {
            "values": dict(zip(("min", "median", "max"), quantiles, strict=True)),
            "interval_width": float(np.diff(self.interval_).mean()),
            "dependence": self.dependence_,
        }
        if gold is None:
            return about
        known = np.flatnonzero(~np.isnan(gold))
        if not known.size:
            return about | {"gold": {"items": 0, "mean_absolute_error": None}}
        value, truth = self.values_[known], gold[known]
        error = bootstrap(np.abs(value - truth))
        low, high = self.interval_[known].T
        spread = known.size > 1 and value.std() > 0 and truth.std() > 0
        about["gold"] = {
            "items": int(known.size),
            "mean_absolute_error": error.value,
            "mean_absolute_error_low": error.low,
            "mean_absolute_error_high": error.high,
            "correlation": float(np.corrcoef(value, truth)[0, 1]) if spread else None,
            "covered": float(((truth >= low) & (truth <= high)).mean()),
        }
        return about

    def reliability_interval(self, level: float = INTERVAL_LEVEL) -> FloatArray:
        """Return bounds (A, 2) of each annotator's correlation with the truth, by Fisher's z transformation."""
        self._check_fitted()
        half = ndtri((1 + level) / 2) / np.sqrt(np.maximum(self.total_ - 3, 1))
        at = np.arctanh(np.minimum(self.reliability_, 1 - 1e-9))
        return np.asarray(np.clip(np.tanh(np.stack([at - half, at + half], axis=1)), 0, 1))

    def _prior_sd(self) -> float:
        """Return the standard deviation of the items' true values on the scale of x."""
        return float(np.sqrt(self.theta_prior_[1]))

    def _make_conversion_functions(
        self,
    ) -> tuple[Callable[[FloatArray], FloatArray], Callable[[FloatArray], FloatArray]]:
        """Return the functions r and Q, which convert θ to labels."""
        some = np.argsort(-self.hits_, kind="stable")[:MAX_CURVE_ANNOTATORS]
        share = self.hits_[some] if self.hits_.sum() > 0 else self.total_[some]
        share = share / share.sum()
        b, a, _, _, s2 = self.spread_[some].T
        if self.scores == "labels":  # r is linear
            mean_b, mean_a = share @ b, share @ a
            return lambda at: self._to_labels(mean_b + mean_a * at), self._to_labels
        mu, sd = self.theta_prior_[0], self._prior_sd()
        grid = np.linspace(mu - 8 * sd, mu + 8 * sd, CURVE_POINTS)
        total = share @ self._mean_labels(b[:, None] + a[:, None] * grid, s2[:, None])
        return lambda at: np.interp(at, grid, np.maximum.accumulate(total)), self._to_labels

    def _mean_labels(self, x: FloatArray, s2: FloatArray) -> FloatArray:
        """Return the expected label E Q(x + ε) with ε ~ N(0, s2)."""
        parts = NODE_WEIGHTS / NODE_WEIGHTS.sum()
        return np.asarray(
            sum(part * self._to_labels(x + np.sqrt(s2) * node) for node, part in zip(NODES, parts, strict=True))
        )

    def _set_quantiles(self, table: Annotations, weight: FloatArray) -> None:
        """Set Q, which maps the N(0, 1) quantile at the middle of a label's ranks to the label."""
        count = np.bincount(table.label, weight, table.n_classes)
        given = np.flatnonzero(count)
        values, count = table.values[given], count[given]
        order = np.argsort(values, kind="stable")
        values, count = values[order], count[order]
        if self.scores == "labels":
            mean = count @ values / count.sum()
            sd = np.sqrt(count @ (values - mean) ** 2 / count.sum())
            self.center_ = np.array([mean, sd if sd > 0 else 1.0])
            self.knots_, self.knot_labels_ = np.empty((0, 2)), np.empty(0)
            return
        half = np.minimum(count / 2, 0.5)
        upper = np.cumsum(count)
        self.center_ = np.array([0.0, 1.0])
        self.knots_, self.knot_labels_ = np.column_stack([upper - count + half, upper - half]) / upper[-1], values
        if values.size > MAX_KNOTS:  # choose knots evenly over the labels, including both ends
            some = np.searchsorted(upper, np.linspace(0, upper[-1], MAX_KNOTS), side="left")
            some = np.unique(np.minimum(some, values.size - 1))
            self.knots_, self.knot_labels_ = self.knots_[some], values[some]

    def _to_scores(self, labels: FloatArray) -> FloatArray:
        if self.scores == "labels":
            return np.asarray((labels - self.center_[0]) / self.center_[1])
        return np.asarray(np.interp(labels, self.knot_labels_, ndtri(self.knots_.mean(axis=1))))

    def _to_labels(self, x: FloatArray) -> FloatArray:
        """Return the label Q(x); Q is constant over the ranks of a label and linear between labels."""
        if self.scores == "labels":
            return np.asarray(self.center_[0] + self.center_[1] * x)
        at, labels = self.knots_.ravel(), np.repeat(self.knot_labels_, 2)
        low, middle, high = np.interp([OUTLIER_TAIL, 0.5, 1 - OUTLIER_TAIL], at, labels)
        # A limit keeps mistyped labels from becoming expected labels.
        furthest = OUTLIER_DISTANCE * max(high - middle, middle - low)
        if furthest > 0:
            labels = np.clip(labels, middle - furthest, middle + furthest)
        return np.asarray(np.interp(ndtr(x), at, labels))


def evidence_bound(
    fit: GaussianParams,
    n: FloatArray,
    off: FloatArray,
    m: FloatArray,
    v: FloatArray,
    crowd_labels: float,
    within: float,
) -> float:
    """Return the bound on the log evidence with q(θ) = N(m, v) and q(b, a) = N((b, a), V)."""
    two_pi, (Vbb, Vaa, Vab), s2 = np.log(2 * np.pi), fit.V.T, fit.s2
    rows = -0.5 * (n * (two_pi + np.log(s2)) + off / s2).sum()
    items = 0.5 * (1 + np.log(v / fit.tau2) - ((m - fit.mu) ** 2 + v) / fit.tau2).sum()
    annotators = 1 + 0.5 * np.log((Vbb * Vaa - Vab**2) / (fit.sa2 * fit.sb2))
    annotators -= 0.5 * (((fit.a - 1) ** 2 + Vaa) / fit.sa2 + (fit.b**2 + Vbb) / fit.sb2)
    half, s2 = crowd_labels / 2, np.append(s2, within)  # W stands for one additional annotator
    precision = half * np.log(half * fit.pool) - gammaln(half) - (1 + half) * np.log(s2) - half * fit.pool / s2
    return float(rows + items + annotators.sum() + precision.sum())
