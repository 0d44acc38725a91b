"""MACE: an annotator either copies the true class or spams, and each spams in its own way.

Use it when you suspect annotators who answer without looking, and want the competence of each.

Annotator j gives the true class with probability θ_j, and otherwise spams: it draws a label from its own strategy ξ_j.
s_ij is 1 if the label of j on item i is spam:

    z_i ~ Cat(π)      s_ij ~ Bernoulli(1 − θ_j)      y_ij = z_i if s_ij = 0,  else  y_ij ~ Cat(ξ_j)
    θ_j ~ Beta(`alpha`, `beta`)      ξ_j ~ Dirichlet(δ, …, δ) with δ = `strategy_count`

These are K + 1 parameters per annotator instead of the K² of `dawid-skene`. Variational Bayes approximates the
posterior of θ_j by Beta(α_j, β_j) and that of ξ_j by Dirichlet(δ_j), and every pass raises a bound on the log evidence:

    E step  q_i(c) ∝ π_c Π_{j∈M_i} (copy_j [y_ij = c] + spam_j[y_ij])
            copy_j = exp(ψ(α_j) − ψ(α_j + β_j))
            spam_j[l] = exp(ψ(β_j) − ψ(α_j + β_j) + ψ(δ_j[l]) − ψ(Σ_l δ_j[l]))
    M step  κ_j[l] = Σ_{i: y_ij = l} q_i(l) copy_j / (copy_j + spam_j[l])
            α_j = `alpha` + Σ_l κ_j[l]      β_j = `beta` + Σ_l (n_j[l] − κ_j[l])      δ_j[l] = δ + n_j[l] − κ_j[l]
            π_c = 1/K, or ∝ b_c + Σ_i q_i(c)
    bound   Σ_i log Σ_c π_c Π_j (copy_j [y_ij = c] + spam_j[y_ij]) − Σ_j KL(Beta_j ‖ Beta) − Σ_j KL(Dir_j ‖ Dir)
            + Σ_c b_c log π_c if π is learnt

- `competence_` (A,) and `strategy_` (A, K): means of θ and ξ
- `competence_counts_` (A, 2) and `strategy_counts_` (A, K): α_j, β_j and δ_j
- `given_` (A, K): n, how often each annotator gave each label
- `copied_share_` (A, K): κ / n, the share of these labels that were copied
- `prior_` (K,): π, the class shares; ψ is the digamma function

With few labels per annotator, the same labels can be explained by biased spammers or by uneven classes, and a freely
learnt π moves to one class. The pseudo-counts b_c = `class_count` + `vote_count`·A·K √v_c / Σ_k √v_k keep π near the
geometric mean of uniform shares and the vote shares v.

The returned posterior uses E θ_j for copy_j and (1 − E θ_j) E ξ_j for spam_j; the factors of the E step make it
overconfident (log loss on labelme 1.40 instead of 1.30).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from dissensus.compute.chunk import apply_gold
from dissensus.compute.engines.base import Engine
from dissensus.models.confusion import (
    DIAGONAL,
    ClassParams,
    ConfusionModel,
    ExpectedCounts,
    FloatArray,
    RightWrongLikelihood,
    em_parameter,
    methods,
    param,
)
from dissensus.models.dirichlet import expected_log, kl_divergence
from dissensus.models.em import cached_by_params
from dissensus.models.params import SHARE
from dissensus.table import names as naming

MIN_PRIOR_PARAMETER, MAX_PRIOR_PARAMETER = 0.01, 1e9  # ψ(0.01) = −101 keeps odds finite
MAX_EXACT_LABELS = 1024  # number of labels beyond which the grid is coarser than `KEY_STEPS_PER_LABEL`
KEY_STEPS_PER_LABEL = 2.0**16  # grid steps per label for keys of random draws; coarser than rounding errors


@dataclass(frozen=True)
class MACEParams(ClassParams):
    """Parameters of the EM: π (K,), and the share of each annotator's labels of each class that were copied (A, K).

    The Beta and the Dirichlet of an annotator follow from its copied and its spammed labels.
    """

    copied_share: FloatArray = em_parameter(SHARE, "A K")
    given: FloatArray = em_parameter(axes="A K")  # counts of labels, which are constant during EM


class MACEPosterior(NamedTuple):
    """Parameters of the Beta and of the Dirichlet distribution of every annotator."""

    competence: FloatArray  # (A, 2) α_j and β_j
    strategy: FloatArray  # (A, K) δ_j


@methods.register(
    "mace", summary="an annotator copies the truth or spams in its own way; variational Bayes", cite="Hovy et al. 2013"
)
class MACE(ConfusionModel[MACEParams]):
    """Estimate class posteriors, competences and spamming strategies by variational Bayes.

    The settings of the paper are alpha = beta = 0.5, strategy_count = 10 and class_prior = "uniform".
    """

    alpha: float = param(1.0, "prior count of copied labels", low=MIN_PRIOR_PARAMETER, high=MAX_PRIOR_PARAMETER)
    beta: float = param(1.0, "prior count of spammed labels", low=MIN_PRIOR_PARAMETER, high=MAX_PRIOR_PARAMETER)
    strategy_count: float = param(
        1.0, "prior count of each spammed label", low=MIN_PRIOR_PARAMETER, high=MAX_PRIOR_PARAMETER
    )
    class_prior: Literal["uniform", "learned"] = param("learned", "class shares: equal, or learnt")
    class_count: float = param(
        1.0, "pseudo-count of every class in a learnt π", low=MIN_PRIOR_PARAMETER, high=MAX_PRIOR_PARAMETER
    )
    vote_count: float = param(
        1.0,
        "pseudo-items per annotator and class, divided in proportion to the roots of the vote shares",
        low=0,
        high=MAX_PRIOR_PARAMETER,
    )
    restarts: int = param(10, "number of starts, of which the best is used; all but the first are random", low=1)

    Params, layout = MACEParams, DIAGONAL
    copied_share_: FloatArray
    given_: FloatArray
    competence_counts_: Annotated[FloatArray, "A 2 count"]
    strategy_counts_: Annotated[FloatArray, "A K count"]
    competence_: Annotated[FloatArray, "A share"]
    strategy_: Annotated[FloatArray, "A K share"]
    population_competence_: Annotated[float, "number"]
    population_strategy_: Annotated[FloatArray, "K share"]

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        K, labelled = votes.class_counts.size, engine.has_labels()
        unlabelled = np.full((np.count_nonzero(~labelled), K), 1 / K)
        unlabelled = apply_gold(unlabelled, None if engine.gold is None else engine.gold[~labelled])
        root = np.sqrt(np.maximum(votes.class_counts - unlabelled.sum(axis=0), 0))
        parameters = K * np.count_nonzero(engine.annotations_per_annotator)
        self.class_pseudo_counts_ = self.class_count + self.vote_count * parameters * root / max(root.sum(), 1e-300)
        self.fixed_prior_ = None if self.class_prior == "learned" else np.full(K, 1 / K)

    def initialise(self, engine: Engine, rng: np.random.Generator | None) -> MACEParams:
        """Return parameters with which half of every annotator's labels are copied; with `rng`, a random share.

        The random share depends on an annotator's agreement with the votes, so that names and order do not matter.
        """
        K, given = engine.size.n_classes, self.label_totals_[:, 0]
        share = np.full(len(given), 0.5)
        if rng is not None:
            agreed = self.vote_counts(engine, with_gold=False).label_counts.sum(axis=(1, 2))
            share = draw_keys_by_counts(rng, agreed, given.sum(axis=1)) / 2.0**64
        return MACEParams(np.full(K, 1 / K), np.where(given > 0, share[:, None], 0.0), given)

    def annotator_posterior(self, params: MACEParams) -> MACEPosterior:
        """Return α_j, β_j and δ_j of every annotator."""
        copied = params.copied_share * params.given
        spammed = params.given - copied
        competence = np.stack([copied.sum(axis=1) + self.alpha, spammed.sum(axis=1) + self.beta], axis=1)
        return MACEPosterior(competence, spammed + self.strategy_count)

    @cached_by_params
    def expected_logs(self, params: MACEParams) -> tuple[FloatArray, FloatArray]:
        """Return E log θ and E log(1 − θ) (A, 2), and E log ξ (A, K)."""
        posterior = self.annotator_posterior(params)
        return expected_log(posterior.competence), expected_log(posterior.strategy)

    def label_likelihood(self, params: MACEParams) -> RightWrongLikelihood:
        """Return copy + spam for the class of the label and spam for other classes, from expected logarithms."""
        log_theta, log_xi = self.expected_logs(params)
        spam = np.exp(log_theta[:, 1:] + log_xi)
        return RightWrongLikelihood(np.exp(log_theta[:, :1]) + spam, spam)

    def expected_label_likelihood(self, params: MACEParams) -> RightWrongLikelihood:
        theta, xi = posterior_means(self.annotator_posterior(params))
        spam = (1 - theta)[:, None] * xi
        return RightWrongLikelihood(theta[:, None] + spam, spam)

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: MACEParams) -> MACEParams:
        """Return the share of each annotator's labels that were copied."""
        cells, hits, given = self.label_likelihood(params), label_counts[:, 0], label_totals[:, 0]
        right = np.divide(hits, given, out=np.zeros_like(given), where=given > 0)
        return MACEParams(params.prior, np.minimum(right * (1 - cells.wrong / cells.right), 1.0), given)

    def log_prior(self, params: MACEParams) -> float:
        """Return minus the divergences of the annotators' posteriors from their priors."""
        posterior, (log_theta, log_xi) = self.annotator_posterior(params), self.expected_logs(params)
        away = kl_divergence(posterior.competence, np.array([self.alpha, self.beta]), log_theta)
        return -away - kl_divergence(posterior.strategy, np.full(params.prior.size, self.strategy_count), log_xi)

    def population_params(self, params: MACEParams) -> MACEParams:
        """Return the parameters of one annotator who gave all labels and copied the same share of them."""
        given = params.given.sum(axis=0, keepdims=True)
        copied = (params.copied_share * params.given).sum(axis=0, keepdims=True)
        return MACEParams(params.prior, copied / np.where(given > 0, given, 1), given)

    def set_derived_results(self) -> None:
        """Set E θ, E ξ and their counts, including those of an unseen annotator."""
        self.competence_counts_, self.strategy_counts_ = self.annotator_posterior(self._params())
        self.competence_, self.strategy_ = posterior_means(
            MACEPosterior(self.competence_counts_, self.strategy_counts_)
        )
        theta, xi = posterior_means(self.annotator_posterior(self.population_params(self._params())))
        self.population_competence_, self.population_strategy_ = float(theta[0]), xi[0]

    def confusion_support(self) -> FloatArray:
        """Return the support (A, K, K) of the Beta distributions with the mean and variance of each confusion entry."""
        spamming, strategy = self.competence_counts_[:, ::-1], self.strategy_counts_  # Beta and Dirichlet
        n, m = spamming.sum(axis=1), strategy.sum(axis=1, keepdims=True)
        square = (spamming[:, 0] * (spamming[:, 0] + 1) / (n * (n + 1)))[:, None, None]  # E (1 − θ)²
        given = strategy * (strategy + 1) / (m * (m + 1))  # E ξ²
        others = (m - strategy) * (m - strategy + 1) / (m * (m + 1))  # E (1 − ξ)²
        right = np.eye(strategy.shape[1], dtype=bool)
        mean = np.where(right, 1 - self.confusion_, self.confusion_)  # on the diagonal, the mean of 1 minus the entry
        variance = square * np.where(right, others[:, None, :], given[:, None, :]) - mean**2
        return np.asarray(mean * (1 - mean) / np.maximum(variance, 1e-300) - 1)


def posterior_means(posterior: MACEPosterior) -> tuple[FloatArray, FloatArray]:
    """Return the means of θ (A,) and ξ (A, K)."""
    competence, strategy = posterior
    return competence[:, 0] / competence.sum(axis=1), strategy / strategy.sum(axis=1, keepdims=True)


def draw_keys_by_counts(rng: np.random.Generator, hits: FloatArray, total: FloatArray) -> Any:
    """Return random 64-bit integers (A,) that depend on an annotator's counts, not on its name or position.

    Counts above `MAX_EXACT_LABELS` are rounded to the same number of binary digits, because larger sums have larger
    rounding errors.
    """
    scale = np.exp2(np.maximum(np.frexp(total / MAX_EXACT_LABELS)[1], 0))
    right, given = (np.round(number / scale * KEY_STEPS_PER_LABEL).astype(np.uint64) for number in (hits, total))
    return naming.scramble_integers(naming.scramble_integers(right ^ rng.integers(2**64, dtype=np.uint64)) ^ given)
