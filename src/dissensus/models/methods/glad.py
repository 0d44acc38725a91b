"""GLAD: one ability per annotator and one difficulty per item, estimated together with the true classes by EM.

Use it when items differ in difficulty and you want that difficulty per item.

A label is right with a probability that depends on the ability α_j and the easiness β_i = exp(b_i); σ is the logistic
function:

    z_i ~ Cat(π)      P(y_ij = z_i) = σ(α_j β_i), and the wrong labels share the rest equally
    α_j ~ N(1, `ability_sd`²)        b_i ~ N(0, `easiness_sd`²)        π uniform, or ~ Dirichlet(1 + `class_count`)

    E step  q_i(c) ∝ π_c Π_{j∈M_i} σ(α_j β_i)^[y_ij = c] ((1 − σ(α_j β_i)) / (K − 1))^[y_ij ≠ c]
    M step  raise the expected log posterior in every b_i, then in every α_j

- `ability_` (A,): α; below −log(K − 1)/β an annotator is worse than chance
- `difficulty_` (I,): 1/β; larger is harder, and 1 is the median of the prior
- `prior_` (K,): π, the class shares

The paper uses gradient ascent and two classes. Here there may be any number of classes, and the M step has closed forms
from a parabola below the logistic function (Jaakkola & Jordan 2000, `kernels.glad`). The likelihood does not determine
a common factor of all α and all 1/β, so every pass sets this factor to its most probable value under the priors. EM
took 23 to 48 passes on six tables, for which SciPy's L-BFGS needed 28 to 150 evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names, OnStep
from dissensus.compute.chunk import Chunk
from dissensus.compute.engines import ENGINE, EngineChoice, open_in_memory
from dissensus.compute.engines.base import Engine, Pass, Sums, TableSize, Worker
from dissensus.compute.kernels import glad as kernels
from dissensus.compute.rows import expand_rows
from dissensus.exceptions import DataError
from dissensus.models.base import methods
from dissensus.models.confusion import MAX_UPDATE_PASSES, MIN_UPDATE_PRIOR, UPDATE_TOL, label_totals
from dissensus.models.em import EMAggregator
from dissensus.models.incremental import updated_copy
from dissensus.models.matrices import MIN_PSEUDO_COUNT
from dissensus.models.params import LOG_SIMPLEX, Params, em_parameter, real_transform
from dissensus.models.tempering import run_tempered
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

MEAN_ABILITY = 1.0  # prior mean of α
MAX_EASINESS = 50.0  # maximum |b| after an extrapolation


@dataclass(frozen=True)
class GLADParams(Params):
    """Parameters of the EM: α (A,), b (I,) and π (K,)."""

    ability: FloatArray = em_parameter(real_transform(), "A")
    easiness: FloatArray = em_parameter(real_transform(MAX_EASINESS))
    prior: FloatArray = em_parameter(LOG_SIMPLEX)


@methods.register(
    "glad", summary="an ability per annotator and a difficulty per item, learnt with the truth by EM",
    cite="Whitehill et al. 2009",
)  # fmt: skip
class GLAD(EMAggregator[GLADParams]):
    """Estimate class posteriors, abilities and difficulties by EM, with one number per item in memory on any engine."""

    ability_sd: float = param(1.0, "standard deviation of the prior of α, whose mean is 1", low=1e-6, high=1e6)
    easiness_sd: float = param(
        0.35, "standard deviation of the prior of b = log β, whose mean is 0", low=1e-6, high=1e6
    )
    class_count: float | None = param(
        None, "pseudo-count of every class if π is learnt; None for a uniform π", low=MIN_PSEUDO_COUNT
    )
    engine: EngineChoice = ENGINE

    labels_depend_on_items: ClassVar = True
    ability_: Annotated[FloatArray, "A real"]
    difficulty_: Annotated[FloatArray, "I real"]
    class_counts_: Annotated[FloatArray, "K count"]
    pull_: Annotated[FloatArray, "A real"]
    curvature_: Annotated[FloatArray, "A real"]

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with self._open_engine(table, gold) as engine:
            pass_, labelled = AbilityPass(1 / self.easiness_sd**2), engine.has_labels()

            def run_pass(params: GLADParams, **out: Any) -> tuple[AbilitySums, FloatArray]:
                easiness = np.empty_like(params.easiness)  # values of b for the next pass
                return engine.run(pass_, params, {"easiness": easiness} | out), easiness

            def em_step(params: GLADParams) -> tuple[float, GLADParams]:
                sums, easiness = run_pass(params)
                prior = params.prior
                if self.class_count is not None:
                    prior = (sums.class_counts + self.class_count) / (easiness.size + self.class_count * prior.size)
                ability, easiness = self._m_step(sums, easiness, labelled)
                return sums.log_evidence + self.log_prior(params), GLADParams(ability, easiness, prior)

            params = self.run_restarts(em_step, partial(self.initialise, engine), on_step, engine.checkpoint)
            self.prior_ = params.prior
            sums = run_tempered(
                self, engine, pass_, params, label_totals(engine), easiness=np.empty_like(params.easiness)
            )
        # The last entry is the objective of the returned parameters.
        self.trace_ = np.append(self.trace_, sums.log_evidence + self.log_prior(params))
        self.ability_, self.class_counts_ = params.ability, sums.class_counts
        self.pull_, self.curvature_ = sums.pull, sums.curvature  # kept for updates
        self.difficulty_ = np.exp(-params.easiness)

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        everyone = np.append(self.ability_, self.ability_.mean())  # code −1, an unseen annotator, takes the last entry
        params = GLADParams(everyone[annotators], self._match_easiness(table.items), self.prior_)
        out = {"posterior": np.empty((table.n_items, table.n_classes)), "easiness": np.empty(table.n_items)}
        with open_in_memory(table, None, self.threads) as engine:
            engine.run(AbilityPass(1 / self.easiness_sd**2), params, out)
        return out["posterior"]

    def _label_probabilities(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        if self.classes_.size == 1:
            return np.ones_like(posterior)
        easiness = np.append(1 / self.difficulty_, 1.0)[item]  # code −1, a new item, takes the last entry
        right = 1 / (1 + np.exp(-np.append(self.ability_, self.ability_.mean())[annotator] * easiness))[:, None]
        return np.asarray(posterior * right + (1 - posterior) * (1 - right) / (self.classes_.size - 1))

    def _unseen_annotator_values(self) -> dict[str, Any]:
        return {"ability_": self.ability_.mean(), "pull_": 0.0, "curvature_": 0.0}

    def _partial_update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """Return the posterior (I, K) of a new table's items; estimate new difficulties and update the abilities."""
        before = self.posterior_[item]
        chunk = Chunk(expand_rows(table).arrays, gold, annotator.size, table.n_classes)
        posterior, log_prior, precision = before, np.log(np.maximum(before, MIN_UPDATE_PRIOR)), 1 / self.ability_sd**2
        ability, easiness = self.ability_[annotator], -np.log(self.difficulty_[item])
        for _ in range(MAX_UPDATE_PASSES):
            last, (_, _, pull, curvature, posterior, easiness) = (
                posterior,
                kernels.process_arrays(chunk, ability, easiness, log_prior, 1 / self.easiness_sd**2, old),
            )
            pull, curvature = self.pull_[annotator] + pull, self.curvature_[annotator] + curvature
            ability = (pull + precision * MEAN_ABILITY) / (curvature + precision)
            if np.abs(posterior - last).max(initial=0) < UPDATE_TOL:
                break
        for key, new in (("ability_", ability), ("pull_", pull), ("curvature_", curvature)):
            setattr(self, key, updated_copy(getattr(self, key), annotator, new))
        self.difficulty_ = updated_copy(self.difficulty_, item, np.exp(-easiness))
        self.class_counts_ = self.class_counts_ + posterior.sum(axis=0) - before[old].sum(axis=0)
        if self.class_count is not None:
            shares = np.maximum(self.class_counts_, 0) + self.class_count
            self.prior_ = shares / shares.sum()
        return posterior

    def _match_easiness(self, items: Names) -> FloatArray:
        """Return b of each item, found by its name, or 0 for new items; names of another type are new."""
        try:
            known = naming.match_names(items, self.items_, "items")
        except DataError:
            return np.zeros(items.size)
        return np.append(-np.log(self.difficulty_), 0.0)[known]

    def initialise(self, engine: Engine, rng: np.random.Generator | None) -> GLADParams:
        """Return the prior means, so that the first E step is a vote; with `rng`, random draws around them."""
        size = engine.size
        ability, easiness = np.full(size.n_annotators, MEAN_ABILITY), np.zeros(size.n_items)
        if rng is not None:
            ability += rng.normal(0, self.ability_sd / 2, ability.size)
            easiness += rng.normal(0, self.easiness_sd / 2, easiness.size)
        return GLADParams(ability, easiness, np.full(size.n_classes, 1 / size.n_classes))

    def _m_step(self, sums: AbilitySums, easiness: FloatArray, labelled: BoolArray) -> tuple[FloatArray, FloatArray]:
        tau = 1 / self.ability_sd**2
        ability = (sums.pull + tau * MEAN_ABILITY) / (sums.curvature + tau)
        return self._rescale(ability, easiness, sums.curvature > 0, labelled)

    def _rescale(
        self, ability: FloatArray, easiness: FloatArray, busy: BoolArray, labelled: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return α·eᵗ and b − t with the most probable t under the priors.

        The likelihood depends on α_j β_i only and does not determine t. Annotators (not `busy`) and items without
        labels stay at the prior mean.
        """
        tau, tau_b, a, b = 1 / self.ability_sd**2, 1 / self.easiness_sd**2, ability[busy], easiness[labelled]
        if not a.size:
            return ability, easiness
        # `maximise` takes −½ τ Σ (α eᵗ − 1)² − ½ τ_b Σ (b − t)² as a function of u = t − mean of b.
        middle = float(b.mean())
        slope = tau * MEAN_ABILITY * float(a.sum()) * np.exp(middle)
        square = tau * float(a @ a) * np.exp(2 * middle)
        t = (
            middle
            + kernels.maximise_easiness(np.array([slope]), np.array([square]), tau_b * b.size, np.array([-middle]))[0]
        )
        return np.where(busy, ability * np.exp(t), ability), np.where(labelled, easiness - t, easiness)

    def log_prior(self, params: GLADParams) -> float:
        penalty = -0.5 * float(np.square((params.ability - MEAN_ABILITY) / self.ability_sd).sum())
        penalty -= 0.5 * float(np.square(params.easiness / self.easiness_sd).sum())
        return penalty + (self.class_count or 0.0) * float(np.log(params.prior).sum())


@dataclass(frozen=True)
class AbilitySums(Sums):
    """Sums of one pass: log evidence, class counts (K,), and the sums that determine the next α (A,)."""

    by_annotator: ClassVar = ("pull", "curvature")
    log_evidence: float
    class_counts: FloatArray
    pull: FloatArray
    curvature: FloatArray


@dataclass(frozen=True)
class AbilityPass(Pass[GLADParams, AbilitySums]):
    """E step and M step in one pass, with the precision of b's prior; writes `posterior` and the next `easiness`."""

    easiness_precision: float

    sums_type, outputs = AbilitySums, ("posterior", "easiness")

    def initial_sums(self, size: TableSize) -> list[Any]:
        return [0.0, np.zeros(size.n_classes), *np.zeros((2, size.n_annotators))]

    def array_form(self, chunk: Chunk, params: GLADParams) -> tuple[Any, ...]:
        easiness, log_prior = chunk.select_item_values(params.easiness), chunk.to_backend(np.log(params.prior))
        return kernels.process_arrays(
            chunk, chunk.to_backend(params.ability), easiness, log_prior, self.easiness_precision
        )

    def kernel(self, chunk: Chunk, worker: Worker, out: Mapping[str, Any]) -> None:
        params, (_, classes, pull, curvature) = worker.params, worker.sums
        worker.sums[0] += kernels.process_items(
            chunk.start, chunk.stop, chunk.rows, params.ability, chunk.select_item_values(params.easiness),
            np.log(params.prior), self.easiness_precision, chunk.gold, out["easiness"], pull, curvature,
            classes, out.get("posterior", np.empty((0, classes.size))),
        )  # fmt: skip
