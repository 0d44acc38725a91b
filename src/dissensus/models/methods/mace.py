"""MACE (Hovy et al. 2013): an annotator either copies the truth or spams, and each spams in its own way.

    z_i ~ Cat(π)      s_ij ~ Bernoulli(1 − θ_j)      y_ij = z_i where s_ij = 0,  else  y_ij ~ Cat(ξ_j)
    θ_j ~ Beta(α, β)      ξ_j ~ Dirichlet(δ, …, δ)

Variational Bayes: z and s keep a joint distribution, θ_j and ξ_j a Beta and a Dirichlet, and every step raises the
bound on the log evidence.

E step  q_i(c) ∝ π_c Π_{j∈M_i} (copy_j·[y_ij = c] + spam_j[y_ij])
            copy_j = exp E log θ_j = exp(ψ(α_j) − ψ(α_j + β_j))
            spam_j[l] = exp(E log(1 − θ_j) + E log ξ_j[l]) = exp(ψ(β_j) − ψ(α_j + β_j) + ψ(δ_j[l]) − ψ(Σ_l δ_j[l]))
M step  κ_j[l] = Σ_{i: y_ij = l} q_i(l) copy_j / (copy_j + spam_j[l]),  how many of j's n_j[l] labels l were copied
            α_j = α + Σ_l κ_j[l]      β_j = β + Σ_l (n_j[l] − κ_j[l])      δ_j[l] = δ + n_j[l] − κ_j[l]
            π_c = 1/K, or ∝ b_c + Σ_i q_i(c)
bound   Σ_i log Σ_c π_c Π_j (copy_j·[y_ij = c] + spam_j[y_ij]) − Σ_j KL(Beta_j ‖ Beta) − Σ_j KL(Dir_j ‖ Dir)
            + Σ_c b_c log π_c where π is learnt

Where annotators have few labels each, spammers who lean one way and uneven classes explain the same labels, and a
learnt π runs off. It is held near the geometric mean of the paper's uniform shares and those of the votes v, by as many
items as the annotators have parameters:  b_c = `class_count` + `vote_count`·A·K √v_c / Σ_k √v_k.

What is returned as posterior takes E θ_j for copy_j and (1 − E θ_j) E ξ_j for spam_j, the chance of the label that was
seen: exp(E log) is smaller where little is known, and made the posterior too sure (log loss on labelme 1.40, not 1.30).

| symbol | name | shape |
|---|---|---|
| q | posterior | (I, K) |
| π | prior | (K,) |
| κ / n | share | (A, K) share of an annotator's labels that were copied; any share in [0, 1] gives a valid bound |
| n | total | (A, K) how often an annotator gave a label |
| E θ, E ξ | `competence_`, `strategy_` | (A,), (A, K) |

A row of weight w counts as w rows: its factor to the power of w.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice, in_memory, place
from dissensus.compute.engines.base import Block, Engine, Pass, Rows, Size, Sums, hard_rows
from dissensus.compute.engines.local import Threads, even
from dissensus.compute.kernels import mace as kernels
from dissensus.exceptions import BadParameter
from dissensus.models.base import methods
from dissensus.models.em import Accelerate, EMAggregator
from dissensus.models.incremental import settle
from dissensus.models.methods.dawid_skene import Confusions, DawidSkene
from dissensus.models.methods.majority_vote import AgreementPass
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

LEAST = 0.01  # smallest parameter of a prior: ψ(0.01) = −101, so that ratios stay below `kernels.RATIO`
LARGEST = 1e9
GRID = 2.0**16  # of what random draws are keyed on: coarser than any rounding, finer than any difference


@dataclass(frozen=True)
class Copied:
    """The parameters: π (K,) and the share (A, K) of an annotator's labels of each class that were copied, of `total`.

    The Beta and the Dirichlet of an annotator are made of its copied and its other labels, so this is all there is.
    """

    prior: FloatArray
    share: FloatArray
    total: FloatArray  # (A, K) n: data, not a parameter

    def to_vector(self) -> FloatArray:
        """Angles whose sine squared is the share, and roots of π: there is no border to step over."""
        return np.concatenate([np.sqrt(self.prior), np.arcsin(np.sqrt(self.share)).reshape(-1)])

    def from_vector(self, vector: FloatArray) -> Self:
        """Squares again, π normalised."""
        K = self.prior.size
        prior = np.maximum(vector[:K] ** 2, 1e-18)
        return type(self)(prior / prior.sum(), np.sin(vector[K:]).reshape(self.share.shape) ** 2, self.total)


@methods.register(
    "mace", summary="an annotator copies the truth or spams in its own way; variational Bayes", cite="Hovy et al. 2013"
)
class MACE(EMAggregator[Copied]):
    """Variational MACE.

    Parameters
    ----------
    alpha, beta : float
        Beta prior of an annotator's competence θ, the chance that it copies the truth. The paper has a half each, which
        expects annotators to be either very good or very bad.
    strategy_count : float
        δ, of the Dirichlet prior of what an annotator says when it spams. The paper has 10, which hides the leanings
        of annotators with a hundred labels.
    class_prior : "uniform" or "learned"
        π: all classes alike, as in the paper, or learnt with the rest, which is better wherever classes are skewed.
    class_count, vote_count : float
        Pseudo-counts of a learnt π: so many of every class, and so many per annotator and class, shared as the square
        roots of the votes' shares are.
    max_iter, tol, accelerate
        Passes over the data at most, for one start; stop when a pass gains less than `tol` of the bound; "squarem" or
        None.
    restarts : int
        Number of starts, of which the best bound is kept. In the first all annotators are alike; in the others their
        competences are random.
    threads : int, optional
        Threads for the passes; None for all cores.
    engine : "local", "disk", "torch", "spark", or one with options
        Where the passes run, see `dissensus.compute.engines`.
    seed : int or None
    """

    class_pseudo_: FloatArray  # (K,) b

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        strategy_count: float = 1.0,
        class_prior: Literal["uniform", "learned"] = "learned",
        class_count: float = 1.0,
        vote_count: float = 1.0,
        max_iter: int = 500,
        tol: float = 1e-7,
        accelerate: Accelerate = "squarem",
        restarts: int = 10,
        threads: int | None = None,
        engine: EngineChoice = "local",
        seed: int | None = 0,
    ):
        self.alpha = alpha
        self.beta = beta
        self.strategy_count = strategy_count
        self.class_prior = class_prior
        self.class_count = class_count
        self.vote_count = vote_count
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.restarts = restarts
        self.threads = threads
        self.engine = engine
        self.seed = seed

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for keyword in ("alpha", "beta", "strategy_count", "class_count"):
            if not LEAST <= getattr(self, keyword) <= LARGEST:
                raise BadParameter(f"{keyword} must lie from {LEAST:g} to {LARGEST:g}, got {getattr(self, keyword)}.")
        if not 0 <= self.vote_count <= LARGEST:
            raise BadParameter(f"vote_count must lie from 0 to {LARGEST:g}, got {self.vote_count}.")
        if self.class_prior not in ("uniform", "learned"):
            raise BadParameter(f"class_prior must be 'uniform' or 'learned', got {self.class_prior!r}.")

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with place(self, table, gold) as engine:
            walk = CopyPass()

            def em_pass(params: Copied) -> tuple[float, Copied]:
                beliefs = self._beliefs(params, engine.pool)
                sums = engine.sweep(walk, Believed(params.prior, beliefs))
                bound = sums.evidence + shared(params.total, beliefs) + self._log_density(params) - beliefs.divergence
                return bound, self._maximise(sums, params, beliefs)

            params = self.run(em_pass, partial(self.start, engine), on_step, engine.checkpoint)
            self.trace_ = np.append(self.trace_, em_pass(params)[0])  # the bound of what is returned
            self.prior_ = params.prior
            self.competence_counts_, self.strategy_counts_ = self.counts(params)
            self.competence_ = self.competence_counts_[:, 0] / self.competence_counts_.sum(axis=1)
            self.strategy_ = self.strategy_counts_ / self.strategy_counts_.sum(axis=1, keepdims=True)
            self.posterior_ = engine.per_item("posterior", engine.size.n_classes)
            means = Believed(self.prior_, certain(self.competence_, self.strategy_))
            sums = engine.sweep(walk, means, {"posterior": self.posterior_})
        self.class_counts_ = sums.prior_counts
        self.confusion_ = confusions(self.competence_, self.strategy_)
        copied = (params.share * params.total).sum()
        spammed = ((1 - params.share) * params.total).sum(axis=0) + self.strategy_count
        self.population_competence_ = float((copied + self.alpha) / (params.total.sum() + self.alpha + self.beta))
        self.population_strategy_ = spammed / spammed.sum()
        self._judge(sums.hits.sum(axis=1), params.total.sum(axis=1))

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        competence = np.append(self.competence_, self.population_competence_)[known]  # −1, unseen, takes the last
        strategy = np.concatenate([self.strategy_, self.population_strategy_[None]])[known]
        posterior = np.empty((table.n_items, table.n_classes))
        with in_memory(table, None, self.threads) as engine:
            engine.sweep(CopyPass(), Believed(self.prior_, certain(competence, strategy)), {"posterior": posterior})
        return posterior

    def _confusions(self, known: IntArray) -> FloatArray:
        unseen = confusions(np.array([self.population_competence_]), self.population_strategy_[None])
        return np.concatenate([self.confusion_, unseen])[known]  # −1 takes the last

    def _confusion_size(self) -> FloatArray:
        """Of the Beta with the mean and the variance of θ·[label = class] + (1 − θ) ξ[label]."""
        spamming, says = self.competence_counts_[:, ::-1], self.strategy_counts_  # Beta and Dirichlet
        n, m = spamming.sum(axis=1), says.sum(axis=1, keepdims=True)
        square = (spamming[:, 0] * (spamming[:, 0] + 1) / (n * (n + 1)))[:, None, None]  # E (1 − θ)²
        given = says * (says + 1) / (m * (m + 1))  # E ξ²
        others = (m - says) * (m - says + 1) / (m * (m + 1))  # E (1 − ξ)²
        right = np.eye(says.shape[1], dtype=bool)
        mean = np.where(right, 1 - self.confusion_, self.confusion_)  # of 1 − an entry on the diagonal
        variance = square * np.where(right, others[:, None, :], given[:, None, :]) - mean**2
        return np.asarray(mean * (1 - mean) / np.maximum(variance, 1e-300) - 1)

    def _newcomer(self) -> dict[str, Any]:
        competence, strategy = np.array([self.population_competence_]), self.population_strategy_[None]
        return {
            "competence_counts_": [self.alpha, self.beta],
            "strategy_counts_": self.strategy_count,
            "competence_": competence[0],
            "strategy_": strategy[0],
            "confusion_": confusions(competence, strategy)[0],
        }

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """With E θ and E ξ themselves, as the posterior that is returned."""
        before = self.posterior_[item]
        rows, A, K = hard_rows(table), table.n_annotators, table.n_classes
        total = label_totals(rows, A, K)
        cell = rows.annotator.astype(np.int64) * K + rows.label
        of_item = np.repeat(np.arange(table.n_items), np.diff(rows.item_ptr))
        competence, strategy = self.competence_counts_[annotator], self.strategy_counts_[annotator]
        now = [competence, strategy]  # Beta and Dirichlet with what the new rows say

        def means() -> tuple[FloatArray, FloatArray]:
            return now[0][:, 0] / now[0].sum(axis=1), now[1] / now[1].sum(axis=1, keepdims=True)

        def learn(posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
            theta, xi = means()
            right = posterior[of_item, rows.label] * (1.0 if rows.weight is None else rows.weight)
            hits = np.bincount(cell, right, A * K).reshape(A, K)
            copied = hits * theta[:, None] / (theta[:, None] + (1 - theta)[:, None] * xi)
            spammed = total - copied
            now[0] = competence + np.stack([copied.sum(axis=1), spammed.sum(axis=1)], axis=1)
            now[1] = strategy + spammed
            return means()

        def log_votes(params: tuple[FloatArray, FloatArray]) -> FloatArray:
            return DawidSkene().log_votes(table, Confusions(self.prior_, confusions(*params).transpose(0, 2, 1)))

        posterior, params = settle(table, before, gold, means(), log_votes, learn)
        for key, new in (
            ("competence_counts_", now[0]), ("strategy_counts_", now[1]), ("competence_", params[0]),
            ("strategy_", params[1]), ("confusion_", confusions(*params)),
        ):  # fmt: skip
            values = getattr(self, key).copy()
            values[annotator] = new
            setattr(self, key, values)
        as_before = self.prior_
        self._recount(posterior, before, old, self.class_pseudo_)
        if self.class_prior == "uniform":
            self.prior_ = as_before
        return posterior

    def start(self, engine: Engine, rng: np.random.Generator | None) -> Copied:
        """Everyone copied half of its labels; a random start draws the share of each annotator.

        The draw is keyed on how often an annotator agrees with the votes, not on its name or place, so that the fit
        does not depend on either.
        """
        votes, K = engine.once(AgreementPass()), engine.size.n_classes
        self.class_pseudo_ = self._class_pseudo(votes.classes[1], int(np.count_nonzero(engine.per_annotator)))
        share = np.full(engine.size.n_annotators, 0.5)
        if rng is not None:
            among = votes if engine.gold is None else engine.once(AgreementPass(with_gold=False))
            agreed, given = among.hits.sum(axis=1), among.total.sum(axis=1)
            profile = [np.round(number * GRID).astype(np.uint64) for number in (agreed, given)]
            key = rng.integers(2**64, dtype=np.uint64)
            share = naming.mix(naming.mix(profile[0] ^ key) ^ profile[1]) / 2.0**64
        return Copied(np.full(K, 1 / K), np.where(votes.total > 0, share[:, None], 0.0), votes.total)

    def _class_pseudo(self, votes: FloatArray, busy: int) -> FloatArray:
        """(K,) b of the module; `votes` (K,) shares of the votes, summed over items with any; annotators with any."""
        root = np.sqrt(votes)
        parameters = votes.size * busy
        return np.asarray(self.class_count + self.vote_count * parameters * root / max(root.sum(), 1e-300))

    def counts(self, params: Copied) -> tuple[FloatArray, FloatArray]:
        """(A, 2) α_j, β_j and (A, K) δ_j, what is believed of every annotator."""
        copied = params.share * params.total
        spammed = params.total - copied
        competence = np.stack([copied.sum(axis=1) + self.alpha, spammed.sum(axis=1) + self.beta], axis=1)
        return competence, spammed + self.strategy_count

    def _beliefs(self, params: Copied, pool: Threads) -> Beliefs:
        """What a pass needs to know of the annotators, made in threads."""

        def work(_: int, start: int, stop: int) -> Beliefs:
            part = Copied(params.prior, params.share[start:stop], params.total[start:stop])
            competence, strategy = self.counts(part)
            log_theta, log_strategy = expected_log(competence), expected_log(strategy)
            away = divergence(competence, np.array([self.alpha, self.beta]), log_theta)
            away += divergence(strategy, np.full(part.prior.size, self.strategy_count), log_strategy)
            return Beliefs(log_theta[:, 0], log_theta[:, 1:] + log_strategy, away)

        parts = pool.map(work, even(len(params.total), pool.threads))
        if len(parts) == 1:
            return parts[0]
        return Beliefs(
            np.concatenate([part.log_copy for part in parts]),
            np.concatenate([part.log_spam for part in parts]),
            sum(part.divergence for part in parts),
        )

    def _maximise(self, sums: CopySums, params: Copied, beliefs: Beliefs) -> Copied:
        """The M step from the hits of the last pass."""
        of_hits = 1 / (1 + np.exp(beliefs.log_spam - beliefs.log_copy[:, None]))  # (A, K) copy / (copy + spam)
        hits = np.divide(sums.hits, params.total, out=np.zeros_like(params.total), where=params.total > 0)
        prior = params.prior
        if self.class_prior == "learned":
            prior = sums.prior_counts + self.class_pseudo_
            prior /= prior.sum()
        return Copied(prior, np.minimum(hits * of_hits, 1.0), params.total)

    def _log_density(self, params: Copied) -> float:
        """Log prior density of π, up to a constant."""
        return float(self.class_pseudo_ @ np.log(params.prior)) if self.class_prior == "learned" else 0.0

    # The readable form ------------------------------------------------------------------------------------------------

    def log_votes(self, table: Annotations, params: Copied) -> FloatArray:
        """(N, K) log(copy_j·[y = c] + spam_j[y]); of a probabilistic row, its mean under the row's distribution."""
        log_copy, log_spam, _ = self._beliefs(params, Threads(1))
        copied = np.where(np.eye(table.n_classes, dtype=bool), log_copy[:, None, None], -np.inf)
        votes = np.logaddexp(copied, log_spam[:, :, None])[table.annotator]  # (N, K, K) [row, given, true]
        shares = np.eye(table.n_classes)[table.label] if table.proba is None else table.proba
        votes = np.einsum("ny,nyk->nk", shares, votes)
        return np.asarray(votes if table.weight is None else votes * table.weight[:, None])

    def log_prior(self, params: Copied) -> FloatArray:
        """(K,) log π."""
        return np.asarray(np.log(params.prior))

    def log_penalty(self, params: Copied) -> float:
        """How far the beliefs are from their priors, negative, and the log density of π."""
        return self._log_density(params) - self._beliefs(params, Threads(1)).divergence


class Beliefs(NamedTuple):
    """Expected logarithms (A,), (A, K) of copying and of spamming with a label, and how far they are from the prior."""

    log_copy: FloatArray
    log_spam: FloatArray
    divergence: float

    @property
    def by_annotator(self) -> tuple[str, ...]:
        """As of `Sums`."""
        return ("log_copy", "log_spam")


def certain(competence: FloatArray, strategy: FloatArray) -> Beliefs:
    """Beliefs in θ (A,) and ξ (A, K) themselves instead of distributions over them."""
    return Beliefs(np.log(competence), np.log1p(-competence)[:, None] + np.log(strategy), 0.0)


def expected_log(counts: FloatArray) -> FloatArray:
    """E log of probabilities (…, K) that are Dirichlet(counts)."""
    from scipy.special import psi

    return np.asarray(psi(counts) - psi(counts.sum(axis=-1, keepdims=True)))


def divergence(counts: FloatArray, prior: FloatArray, logs: FloatArray) -> float:
    """Σ_a KL(Dirichlet(counts_a) ‖ Dirichlet(prior)), counts (A, K); `logs` are their `expected_log`."""
    from scipy.special import gammaln

    normaliser = gammaln(counts.sum(axis=1)).sum() - gammaln(counts).sum()
    of_prior = gammaln(prior.sum()) - gammaln(prior).sum()
    return float(normaliser - len(counts) * of_prior + ((counts - prior) * logs).sum())


def confusions(competence: FloatArray, strategy: FloatArray) -> FloatArray:
    """(A, K, K) [annotator, true, given] P(label | class): θ·[label = class] + (1 − θ) ξ[label]."""
    theta = competence[:, None, None]
    return np.asarray(theta * np.eye(strategy.shape[1]) + (1 - theta) * strategy[:, None, :])


def label_totals(rows: Rows, n_annotators: int, n_classes: int) -> FloatArray:
    """(A, K) summed weight of every annotator's labels of each class."""
    cell = rows.annotator.astype(np.int64) * n_classes + rows.label
    return np.bincount(cell, rows.weight, n_annotators * n_classes).reshape(n_annotators, n_classes).astype(np.float64)


def shared(total: FloatArray, beliefs: Beliefs) -> float:
    """The log of the factor that all classes share: of every label (A, K) that it was spammed."""
    return float((total * beliefs.log_spam).sum())


class Believed(NamedTuple):
    """What a pass needs to know: π (K,) and what is believed of the annotators."""

    prior: FloatArray
    beliefs: Beliefs

    @property
    def by_annotator(self) -> tuple[str, ...]:
        """As of `Sums`."""
        return ("beliefs",)

    def odds(self) -> FloatArray:
        """(A, K) copy / spam."""
        return np.asarray(np.exp(self.beliefs.log_copy[:, None] - self.beliefs.log_spam))


@dataclass(frozen=True)
class CopySums(Sums):
    """Log evidence less the factor that all classes share, classes (K,), hits (A, K) [annotator, given]."""

    by_annotator: ClassVar = ("hits",)
    evidence: float
    prior_counts: FloatArray
    hits: FloatArray


class CopyPass(Pass[Believed, CopySums, Any]):
    """One fused pass, see `kernels.mace`; may write `posterior`."""

    cells: FloatArray = np.empty((0, 0, 0, 2))  # of every worker, kept between passes

    def open(self, params: Believed, size: Size, workers: int, pool: Threads) -> list[Any]:
        """Ratios and hits (A, K, 2), prior, classes (K,) and evidence (1,), for each worker."""
        shape = (workers, size.n_annotators, size.n_classes, 2)
        if self.cells.shape != shape:
            self.cells = np.empty(shape)
        self.cells[..., kernels.RATIOS] = np.log1p(params.odds()) if size.weighted else 1 + params.odds()
        self.cells[..., kernels.HITS] = 0.0
        sums = np.zeros((workers, size.n_classes)), np.zeros((workers, 1))
        return [(self.cells[t], params.prior, sums[0][t], sums[1][t]) for t in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.mace.sweep`, or in logarithms."""
        rows, evidence = block.rows, buffer[3]
        table = (block.start, block.stop, rows.item_ptr, rows.annotator, rows.label)
        rest = (*buffer[:3], block.gold, out.get("posterior"))
        if rows.weight is None:
            evidence[0] += kernels.sweep(*table, *rest)
        else:
            evidence[0] += kernels.sweep_logs(*table, rows.weight, *rest)

    def close(self, buffers: list[Any], pool: Threads) -> CopySums:
        """The sums of all workers."""
        hits = self.cells[..., kernels.HITS].sum(axis=0)
        return CopySums(sum(float(b[3][0]) for b in buffers), sum(b[2] for b in buffers), hits)

    def on_torch(self, params: Believed, data: Any, out: Mapping[str, Any]) -> CopySums:
        """The same in torch."""
        from dissensus.compute.kernels import on_torch

        return CopySums(*on_torch.own_class(data, np.log1p(params.odds()), params.prior, out.get("posterior")))
