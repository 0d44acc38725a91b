"""Item effect: confusion matrices, and an easiness of each item that all its labels share.

Use it when hard items make every annotator err and confidence matters more than speed.

Item i has a true class z_i and an easiness b_i. With easier items the right label is more likely for every annotator:

    z_i ~ Cat(π)      b_i ~ N(0, 1)      P(y_ij = l | z_i = c, b_i) = L_j[c, b_i, l] ∝ exp(θ_j[c, l] + λ_c b_i [l = c])

[l = c] is 1 if the label is right and 0 otherwise; the loading λ_c ~ N(0, `loading_sd`²) is the weight of easiness for
class c. λ = 0 gives `dawid-skene`. EM integrates over b by `points` Gauss–Hermite points b_s with weights w_s:

    E step  q_i(c, s) ∝ π_c w_s Π_{j∈M_i} L_j[c, b_s, y_ij]      the posterior of class c is Σ_s q_i(c, s)
    sums    n_j[c, s, l] = w_s a[c, l] + Σ_{i: y_ij = l} q_i(c, s)      N_j[c, s] = Σ_l n_j[c, s, l]
    M step  π_c ∝ g_c + Σ_i Σ_s q_i(c, s)
            θ_j[c, l] += log Σ_s n_j[c, s, l] − log Σ_s N_j[c, s] L_j[c, b_s, l]
            λ_c += (Σ_js b_s (n_j[c, s, c] − N_j[c, s] L_j[c, b_s, c]) − λ_c/t²) / (Σ_js b_s² N_j[c, s] h(x) + 1/t²)

The update of θ is iterative scaling, which is exact for λ = 0. In the update of λ, t is `loading_sd`, x are the log
odds of the right label, and h(x) = tanh(x/2)/(2x) is the curvature of a parabola below the logistic function (Jaakkola
& Jordan 2000). Both raise the objective. The sign of λ is arbitrary.

- `theta_` (A, K, K) [annotator, true, given]: θ; `confusion_` is the mean of L over b
- `loading_` (K,): λ
- `prior_` (K,): π, the class shares
- `pseudo_counts_` (K, K) and `class_pseudo_counts_` (K,): a and g, the pseudo-counts of `dawid-skene`

The effect explains only a part of the dependence of an item's labels: an item that misleads every annotator looks like
an easy item of another class. Therefore the posterior is tempered, as in other methods (`models.tempering`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute.chunk import FULL, VOTES, build_label_matrix
from dissensus.compute.engines import open_in_memory
from dissensus.compute.rows import expand_rows
from dissensus.models.base import methods
from dissensus.models.confusion import ConfusionPass, draw_vote_shares
from dissensus.models.em import EMAggregator, cached_by_params
from dissensus.models.methods.dawid_skene import CrowdPseudoCounts
from dissensus.models.params import SIMPLEX, Params, em_parameter, real_transform
from dissensus.table.annotations import Annotations

INITIAL_LOADING = 1.0  # initial λ; it is not 0, where the gradient with respect to λ is 0
MAX_LOGIT = 40.0  # upper limit of |θ| and |λ| after a step
MIN_PROBABILITY = 1e-12  # lower limit of a probability, so that log odds are finite
UNSEEN_SCALING_STEPS = 50  # number of iterative scaling steps that fit θ of an unseen annotator


@dataclass(frozen=True)
class ItemEffectParams(Params):
    """Parameters of the EM: π (K,), λ (K,) and θ (A, K, K) [annotator, true, given]."""

    prior: FloatArray = em_parameter(SIMPLEX)
    loading: FloatArray = em_parameter(real_transform(MAX_LOGIT))
    theta: FloatArray = em_parameter(real_transform(MAX_LOGIT), "A K K")


@methods.register(
    "item-effect", summary="confusion matrices, and an ease of each item that all its labels share; EM",
    cite="Qu et al. 1996",
)  # fmt: skip
class ItemEffect(CrowdPseudoCounts, EMAggregator[ItemEffectParams]):
    """Estimate confusion matrices and an easiness of each item by EM, in memory."""

    points: int = param(11, "number of Gauss–Hermite points of the item effect", low=2, high=100)
    loading_sd: float = param(1.5, "prior standard deviation of the loadings", low=1e-6, high=1e6)

    theta_: Annotated[FloatArray, "A K K real"]
    loading_: Annotated[FloatArray, "K real"]
    population_theta_: Annotated[FloatArray, "K K real"]

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        labels, K = build_label_matrix(expand_rows(table), table.n_annotators, table.n_classes), table.n_classes
        with open_in_memory(table, gold, 1) as engine:
            votes = engine.run(ConfusionPass(VOTES, FULL), None)
            self.prepare(votes, engine)

        def start(rng: np.random.Generator | None) -> ItemEffectParams:
            counts = votes.label_counts
            if rng is not None:
                shares = draw_vote_shares(table.votes(), gold, rng)
                counts = (labels.T @ shares).reshape(-1, K, K).swapaxes(1, 2)
            theta = np.log(counts + self.pseudo_counts_)
            prior = self._class_shares(votes.class_counts)
            return ItemEffectParams(prior, np.full(K, INITIAL_LOADING), theta - theta.mean(axis=2, keepdims=True))

        def em_step(params: ItemEffectParams) -> tuple[float, ItemEffectParams]:
            evidence, posterior = self.e_step(labels, params, gold)
            return evidence + self.log_prior(params), self.m_step(labels, posterior, params)

        params = self.run_restarts(em_step, start, on_step)
        evidence, posterior = self.e_step(labels, params, gold)
        # The last entry is the objective of the returned parameters.
        self.trace_ = np.append(self.trace_, evidence + self.log_prior(params))
        self.prior_, self.loading_, self.theta_ = params.prior, params.loading, params.theta
        self.posterior_ = _class_posterior(posterior)
        counts = self._count_labels(labels, posterior).sum(axis=0, keepdims=True)
        population = replace(params, theta=np.log(counts.sum(axis=2) + self.pseudo_counts_))
        for _ in range(UNSEEN_SCALING_STEPS):
            population = replace(population, theta=self._scale_theta(counts + self._point_pseudo_counts, population))
        self.population_theta_ = population.theta[0]

    def m_step(self, labels: Any, posterior: FloatArray, params: ItemEffectParams) -> ItemEffectParams:
        """Return the next parameters from the label matrix (I, A·K) and q (I, K, S)."""
        counts = self._count_labels(labels, posterior) + self._point_pseudo_counts  # (A, K, S, K)
        params = replace(
            params, prior=self._class_shares(posterior.sum(axis=(0, 2))), theta=self._scale_theta(counts, params)
        )
        right = np.einsum("acsc->acs", self.likelihood(params))
        total, points, precision = counts.sum(axis=3), self._quadrature[0], self.loading_sd**-2
        odds = np.log(np.maximum(right, MIN_PROBABILITY)) - np.log(np.maximum(1 - right, MIN_PROBABILITY))
        curved = np.divide(np.tanh(odds / 2), 2 * odds, out=np.full_like(odds, 0.25), where=np.abs(odds) > 1e-6)
        pull = np.einsum("acs,s->c", np.einsum("acsc->acs", counts) - total * right, points)
        curvature = np.einsum("acs,s->c", total * curved, points**2)
        return replace(params, loading=params.loading + (pull - precision * params.loading) / (curvature + precision))

    @cached_by_params
    def likelihood(self, params: ItemEffectParams) -> FloatArray:
        """Return L (A, K, S, K) [annotator, true, point, given]."""
        K, points = params.prior.size, self._quadrature[0]
        effect = np.eye(K)[:, None, :] * (params.loading[:, None] * points)[:, :, None]  # (K, S, K)
        logits = params.theta[:, :, None, :] + effect
        weights = np.exp(logits - logits.max(axis=3, keepdims=True))
        return np.asarray(weights / weights.sum(axis=3, keepdims=True))

    def log_prior(self, params: ItemEffectParams) -> float:
        logs = np.log(np.maximum(self.likelihood(params), 1e-300))
        matrices = np.einsum("cl,s,acsl->", self.pseudo_counts_, self._quadrature[1], logs)
        loading = float(params.loading @ params.loading) / (2 * self.loading_sd**2)
        return float(matrices + self.class_pseudo_counts_ @ np.log(params.prior)) - loading

    def _scale_theta(self, counts: FloatArray, params: ItemEffectParams) -> FloatArray:
        """Return θ after an iterative scaling step (A, K, K)."""
        expected = np.einsum("acs,acsl->acl", counts.sum(axis=3), self.likelihood(params))
        theta = params.theta + np.log(counts.sum(axis=2)) - np.log(expected)
        return np.asarray(theta - theta.mean(axis=2, keepdims=True))

    def e_step(self, labels: Any, params: ItemEffectParams, gold: IntArray | None) -> tuple[float, FloatArray]:
        """Return the log evidence and q (I, K, S)."""
        by_label = np.log(np.maximum(self.likelihood(params), 1e-300)).transpose(0, 3, 1, 2)  # [annotator, given, …]
        prior = np.log(params.prior)[:, None] + np.log(self._quadrature[1])
        q = (labels @ by_label.reshape(labels.shape[1], -1)).reshape(-1, *prior.shape) + prior
        if gold is not None:
            q[(gold >= 0)[:, None] & (gold[:, None] != np.arange(prior.shape[0]))] = -np.inf
        most = q.max(axis=(1, 2), keepdims=True, initial=-np.inf)
        np.exp(q - most, out=q)
        total = q.sum(axis=(1, 2), keepdims=True)
        return float((most + np.log(total)).sum()), np.asarray(q / total)

    def _count_labels(self, labels: Any, posterior: FloatArray) -> FloatArray:
        """Return n without pseudo-counts (A, K, S, K) [annotator, true, point, given]."""
        _, K, S = posterior.shape
        return np.asarray((labels.T @ posterior.reshape(-1, K * S)).reshape(-1, K, K, S).transpose(0, 2, 3, 1))

    def _class_shares(self, classes: FloatArray) -> FloatArray:
        return np.asarray((classes + self.class_pseudo_counts_) / (classes + self.class_pseudo_counts_).sum())

    @property
    def _quadrature(self) -> tuple[FloatArray, FloatArray]:
        """The quadrature points and weights, both (S,)."""
        return _quadrature(self.points)

    @property
    def _point_pseudo_counts(self) -> FloatArray:
        """The pseudo-counts of n, (K, S, K) [true, point, given]."""
        return np.asarray(self.pseudo_counts_[:, None, :] * self._quadrature[1][:, None])

    def _annotator_params(self, annotators: IntArray) -> ItemEffectParams:
        """Return the parameters of annotators, given by code; −1 is an unseen annotator."""
        everyone = np.concatenate([self.theta_, self.population_theta_[None]])  # code −1 takes the last entry
        return ItemEffectParams(self.prior_, self.loading_, everyone[annotators])

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        labels = build_label_matrix(expand_rows(table), table.n_annotators, table.n_classes)
        return _class_posterior(self.e_step(labels, self._annotator_params(annotators), None)[1])

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        return np.asarray(
            np.einsum("s,acsl->acl", self._quadrature[1], self.likelihood(self._annotator_params(annotators)))
        )

    @property
    def confusion_(self) -> FloatArray:
        """The mean of L over b, (A, K, K) [annotator, true, given], computed on access."""
        return self.annotator_confusions(np.arange(self.annotators_.size))


@cache
def _quadrature(n: int) -> tuple[FloatArray, FloatArray]:
    points, weights = np.polynomial.hermite_e.hermegauss(n)
    return points, weights / weights.sum()


def _class_posterior(posterior: FloatArray) -> FloatArray:
    """Return the posterior of classes (I, K), given q (I, K, S); the probability of a gold class is exactly 1."""
    shares = posterior.sum(axis=2)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
