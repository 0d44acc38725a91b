"""The confusion family: the likelihood of a label depends on the annotator, the label and the class, and on nothing
else.

    z_i ~ Cat(π)        P(y_ij = l | z_i = c) = L_j[c, l]

E step  q_i(c) ∝ π_c Π_{j∈M_i} L_j[c, y_ij]
counts  n_j[c, l] = Σ_{i: y_ij = l} q_i(c)        n_c = Σ_i q_i(c)
M step  π_c ∝ b_c + n_c, or fixed; the annotators' parameters are the method's

A method is four functions over a frozen value, its `Params`: `initial_params`, the `label_likelihood` that the E step
multiplies (`e_step`, below, is its readable form; kernels are verified against it), `m_step` and `log_prior`. What is
fixed while EM runs is set in `prepare`. docs/contributing/method.md has an example. Inherited are engines, weights,
probabilistic rows, gold, earlier counts, `partial_fit`, scoring, `predict_annotations`, intervals, the trace and
SQUAREM. If likelihoods are expected logarithms (variational Bayes), `expected_label_likelihood` gives the probability
of a label.

Some methods have a label change the odds of its own class alone: L_j[c, l] = right_j[l] if c = l, else wrong_j[l]. Such
a method sets `layout` to DIAGONAL (or COIN, if all labels of an annotator have the same odds) and returns
`RightWrongLikelihood`. A row then costs one multiplication instead of K, and the label counts are (A, 1, K) or
(A, 1, 1), the expected numbers of right labels.

Arrays here are [annotator, true, given]. The kernels have their own order, see `compute.kernels.confusion`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute import chunk as chunks
from dissensus.compute.chunk import ALL_ONES, COIN, DIAGONAL, FULL, LIKELIHOOD, POSTERIOR, VOTES, Chunk
from dissensus.compute.engines import ENGINE, EngineChoice, open_in_memory
from dissensus.compute.engines.base import Engine, Pass, Sums, TableSize, Worker
from dissensus.compute.engines.local import Threads, even_ranges
from dissensus.models.base import methods
from dissensus.models.em import EMAggregator
from dissensus.models.focus import MAX_FOCUS_BYTES, MIN_FOCUS_ROWS, focused_em
from dissensus.models.incremental import updated_copy
from dissensus.models.params import SIMPLEX, Params, em_parameter
from dissensus.models.tempering import run_tempered
from dissensus.table.annotations import Annotations

MAX_UPDATE_PASSES = 20  # passes over the rows of one update, at most
UPDATE_TOL = 1e-4  # largest change of a posterior at which they end
MIN_BEFORE = 1e-12  # probability that an item's posterior leaves to every class: new labels may still change it

__all__ = [
    "COIN",
    "DIAGONAL",
    "FULL",
    "SIMPLEX",
    "ClassParams",
    "ConfusionModel",
    "Engine",
    "ExpectedCounts",
    "FloatArray",
    "RightWrongLikelihood",
    "em_parameter",
    "methods",
    "param",
    "soft_counts",
]  # fmt: skip


# The value ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassParams(Params):
    """The parameters that all methods of the family have: π (K,)."""

    prior: FloatArray = em_parameter(SIMPLEX, "K")


P = TypeVar("P", bound=ClassParams)


@dataclass(frozen=True)
class RightWrongLikelihood:
    """Label likelihood in the layouts DIAGONAL, (A, K), and COIN, (A, 1)."""

    right: FloatArray  # P(label | its own class)
    wrong: FloatArray  # P(label | any other class)

    def to_matrices(self, n_classes: int) -> FloatArray:
        """(A, K, K) [annotator, true, given]."""
        if n_classes == 1:  # there is no wrong label
            return np.ones((len(self.right), 1, 1))
        return np.where(np.eye(n_classes, dtype=bool), self.right[:, None, :], self.wrong[:, None, :])


LabelLikelihood = FloatArray | RightWrongLikelihood


# The E step -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EStepParams:
    """What a pass needs: π (1, K) or (I, K), and likelihoods (A, true, given) or odds (A, 1, given)."""

    by_annotator: ClassVar = ("table",)
    prior: FloatArray
    likelihood: FloatArray

    @classmethod
    def from_likelihood(cls, prior: FloatArray, likelihood: LabelLikelihood) -> EStepParams:
        """Make them from likelihoods as a method states them."""
        prior = np.ascontiguousarray(np.atleast_2d(prior))
        if isinstance(likelihood, RightWrongLikelihood):
            return cls(prior, (likelihood.right / likelihood.wrong)[:, None, :])
        return cls(prior, likelihood)


@dataclass(frozen=True)
class ExpectedCounts(Sums):
    """What a pass adds up: log evidence, items of each class (K,), labels (A, true, given), all by the posterior.

    In the layouts DIAGONAL and COIN the label counts are (A, 1, given), those of right labels, and the log evidence
    lacks the factor that all classes share.
    """

    by_annotator: ClassVar = ("labels",)
    log_evidence: float
    class_counts: FloatArray
    label_counts: FloatArray


def e_step(chunk: Chunk, layout: int, likelihood: Any, prior: Any, gold: Any) -> tuple[Any, Any]:
    """Return the posterior (I, K) and the log evidence (I,) of a chunk's items: the E step of the module."""
    xp = chunks.array_library(chunk.label)
    logs = xp.log(xp.swapaxes(likelihood, 1, 2)).reshape(-1, likelihood.shape[1])  # (A·given, true)
    if layout == FULL:
        log_likelihood = chunk.sum_by_item(chunk.apply_weights(logs[chunk.annotator_label]))
    else:
        place = chunk.annotator if layout == COIN else chunk.annotator_label
        log_likelihood = chunk.votes(chunk.apply_weights(logs[:, 0][place]))
    return chunks.normalise_log_joint(xp.log(prior) + log_likelihood, gold)


def count_labels(chunk: Chunk, layout: int, posterior: Any) -> Any:
    """(A, true, given) labels of a chunk by a posterior (I, K): the counts of the module."""
    A, K, xp = chunk.n_annotators, chunk.n_classes, chunks.array_library(chunk.label)
    n_true, n_given = K if layout == FULL else 1, 1 if layout == COIN else K
    place = chunk.annotator if layout == COIN else chunk.annotator_label
    of_row = posterior[chunk.item] if layout == FULL else posterior.reshape(-1)[chunk.item_label]
    counts = chunk.scatter_sum(place, chunk.apply_weights(of_row), A * n_given).reshape(A, n_given, n_true)
    return xp.swapaxes(counts, 1, 2).reshape(-1).reshape(A, n_true, n_given)  # contiguous


@dataclass(eq=False)
class ConfusionPass(Pass[EStepParams | None, ExpectedCounts]):
    """One pass of the family, see `compute.chunk` for `source` and `layout`; may write `posterior`.

    `posterior` is that of POSTERIOR, (I, K) or the chunk's; with `rng` it is drawn from Dirichlet(1 + votes) instead.
    """

    source: int
    layout: int
    with_gold: bool = True
    posterior: FloatArray | None = None
    rng: np.random.Generator | None = None
    cells: Any = None  # (workers, A, given, 2, true) likelihoods and counts of the kernel, kept between passes

    sums_type = ExpectedCounts

    def __post_init__(self) -> None:
        self.sequential = self.rng is not None  # one generator draws item by item

    def array_form(self, chunk: Chunk, params: EStepParams | None) -> tuple[Any, ...]:
        """Return log evidence, classes (K,), labels (A, true, given) and posterior (I, K)."""
        gold, evidence = chunk.gold if self.with_gold else None, 0.0
        if self.source == LIKELIHOOD:
            assert params is not None
            prior = chunk.to_backend(params.prior) if len(params.prior) == 1 else chunk.select_item_values(params.prior)
            q, log_evidence = e_step(chunk, self.layout, chunk.to_backend(params.likelihood), prior, gold)
            evidence = log_evidence.sum()
        elif self.source == VOTES:
            q = chunks.vote_shares(chunk, gold)
        elif self.source == POSTERIOR:
            q = chunks.apply_gold(self._load_posterior(chunk), gold)
        else:
            q = chunk.zeros(chunk.n_items, chunk.n_classes) + 1
        return evidence, q.sum(0), count_labels(chunk, self.layout, q), q

    def _load_posterior(self, chunk: Chunk) -> Any:
        """(items, K) posterior of a chunk's items for POSTERIOR; None if there is none."""
        if self.rng is None:
            return chunk.select_item_values(self.posterior)
        votes = chunk.to_numpy(chunk.votes(chunk.row_weights()))
        return chunk.to_backend(draw_vote_shares(votes, chunk.to_numpy(chunk.gold), self.rng))

    def zeros(self, size: TableSize) -> list[Any]:
        """Evidence and classes; the labels are counted in the cells."""
        return [0.0, np.zeros(size.n_classes)]

    def open(self, params: EStepParams | None, size: TableSize, workers: int, pool: Threads) -> list[Worker]:
        """Load the cells; a worker's parameters are the prior, how many rows may be multiplied, and its cells."""
        opened = super().open(params, size, workers, pool)
        if size.is_short:
            return opened
        from dissensus.compute.kernels import confusion as kernels

        A, K = size.n_annotators, size.n_classes
        shape = (workers, A, 1 if self.layout == COIN else K, 2, K if self.layout == FULL else 1)
        if self.cells is None or self.cells.shape != shape:
            self.cells = np.zeros(shape)
        prior: FloatArray = np.ones((1, K))
        chunk_rows = 0
        if params is None:
            self.cells[..., 1, :] = 0.0
        else:
            table = params.likelihood
            prior, chunk_rows = params.prior, kernels.chunk_rows(table)
            pool.map(
                lambda _, start, stop: kernels.load_cells(start, stop, table, self.cells, size.weighted),
                even_ranges(A, pool.threads),
            )
        for worker, cells in zip(opened, self.cells, strict=True):
            worker.params = prior, chunk_rows, cells.reshape(-1)
        return opened

    def kernel(self, chunk: Chunk, worker: Worker, out: Mapping[str, Any]) -> None:
        """Run `kernels.confusion.sweep`."""
        from dissensus.compute.kernels import confusion as kernels

        K, weight, gold = chunk.n_classes, chunk.weight, chunk.gold if self.with_gold else None
        given = self._load_posterior(Chunk(chunk.rows, gold, 0, K, chunk.first)) if self.source == POSTERIOR else None
        prior, chunk_rows, cells = worker.params
        vector = self.layout == FULL and K <= kernels.MAX_VECTOR and weight is None
        loop = kernels.compile_pass(K if vector else 0, self.source, self.layout, weight is not None)
        worker.sums[0] += loop(
            chunk.start, chunk.stop, chunk.item_ptr, chunk.annotator, chunk.label,
            np.empty(0) if weight is None else weight,
            prior if len(prior) == 1 else chunk.select_item_values(prior), np.empty((0, K)) if given is None else given,
            chunk_rows, np.empty(0, np.int32) if gold is None else gold,
            cells, worker.sums[1], out.get("posterior", np.empty((0, K))),
        )  # fmt: skip

    def close(self, workers: list[Worker], pool: Threads) -> ExpectedCounts:
        """Return the sums of all workers, with the counts in their cells."""
        if workers[0].size.is_short:
            return super().close(workers, pool)
        from dissensus.compute.kernels import confusion as kernels

        _, A, n_given, _, n_true = self.cells.shape
        labels = np.empty((A, n_true, n_given))
        pool.map(
            lambda _, start, stop: kernels.collect_counts(start, stop, self.cells, labels), even_ranges(A, pool.threads)
        )
        evidence, classes = (sum(parts) for parts in zip(*(worker.sums for worker in workers), strict=True))
        return ExpectedCounts(evidence, classes, labels)

    def on_torch(self, params: EStepParams | None, data: Any, out: Mapping[str, Any]) -> ExpectedCounts:
        """Run the pass on a device, as one fused kernel if possible."""
        from dissensus.compute.kernels import on_torch

        if (
            params is not None
            and self.layout == FULL
            and (found := on_torch.run_fused_pass(data, params.likelihood, params.prior, out))
        ):
            return ExpectedCounts(*found)
        return super().on_torch(params, data, out)


def label_totals(engine: Engine) -> FloatArray:
    """(A, 1, given) weight of each annotator's labels."""
    return engine.run(ConfusionPass(ALL_ONES, DIAGONAL), None).label_counts


def run_e_step(engine: Engine, prior: FloatArray, likelihood: LabelLikelihood) -> tuple[FloatArray, ExpectedCounts]:
    """Return the posterior (I, K) of a table in memory and the sums by it: one E step."""
    layout = FULL
    if isinstance(likelihood, RightWrongLikelihood):
        layout = COIN if likelihood.right.shape[1] == 1 else DIAGONAL
    posterior = np.empty((engine.size.n_items, engine.size.n_classes))
    out = {"posterior": posterior}
    return posterior, engine.run(ConfusionPass(LIKELIHOOD, layout), EStepParams.from_likelihood(prior, likelihood), out)


def soft_counts(table: Annotations, posterior: FloatArray) -> FloatArray:
    """(A, K, K) [annotator, true, given] how often each annotator gave each label, by a posterior (I, K)."""
    with open_in_memory(table, None, 1) as engine:
        return engine.run(ConfusionPass(POSTERIOR, FULL, posterior=np.ascontiguousarray(posterior)), None).label_counts


def draw_vote_shares(votes: FloatArray, gold: IntArray | None, rng: np.random.Generator) -> FloatArray:
    """(I, K) a draw from Dirichlet(1 + votes) for every item; gold classes get all."""
    posterior = rng.standard_gamma(votes + 1)
    posterior /= posterior.sum(axis=1, keepdims=True)
    return np.asarray(chunks.apply_gold(posterior, gold))


# The model ------------------------------------------------------------------------------------------------------------


class computed_result:  # noqa: N801 - used as `property` is
    """A property that gives way to a stored result of the same name."""

    def __init__(self, compute: Callable[[Any], FloatArray]):
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, model: Any, kind: Any = None) -> Any:
        return self if model is None else self.compute(model)


class ConfusionModel(EMAggregator[P], Generic[P]):
    """A method of the family; see the module for what it defines."""

    engine: EngineChoice = ENGINE

    layout: ClassVar[int] = FULL

    label_counts_: Annotated[FloatArray, "A 1|K 1|K count"]  # [annotator, true, given] counts of the last pass
    label_totals_: Annotated[FloatArray, "A 1 K count"]  # weight of all labels
    class_pseudo_counts_: Annotated[FloatArray, "K count"]  # b of π; one of each class, unless `prepare` sets them
    fixed_prior_: Annotated[FloatArray | None, "optional K simplex"] = None  # π if it is not learnt
    class_counts_: Annotated[FloatArray, "K count"]

    # Defined by a method

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        """Set what is fixed while EM runs, from the counts under the vote shares.

        Set `class_pseudo_counts_`, `fixed_prior_` or results of the method; names that end in _ are saved.
        """

    def initial_params(self, prior: FloatArray) -> Any:
        """Return the parameters that the first M step starts from, with those of its own fields that it needs."""
        return ClassParams(prior)

    def label_likelihood(self, params: P) -> LabelLikelihood:
        """Return P(label | class), or its exp E log, as (A, K, K) [annotator, true, given].

        In the layouts DIAGONAL and COIN, return a `RightWrongLikelihood`.
        """
        raise NotImplementedError

    def expected_label_likelihood(self, params: P) -> LabelLikelihood:
        """Return P(label | class) if `label_likelihood` gives expected logarithms."""
        return self.label_likelihood(params)

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: Any) -> P:
        """Return the parameters of each annotator from its label counts (A, true, given), with π of `params`.

        `totals` (A, 1, given) are the weights of all labels.
        """
        raise NotImplementedError

    def update_hyperparameters(self, label_counts: FloatArray, params: Any) -> Any:
        """Return the parameters that annotators share, learnt before `m_step`; a partial fit keeps them."""
        return params

    def log_prior(self, params: P) -> float:
        """Return the log prior density of the parameters but π, up to a constant."""
        return 0.0

    def population_params(self, params: P) -> P:
        """Return the parameters of an unseen annotator: as if all labels together were one annotator's."""
        labels, totals = (counts.sum(axis=0, keepdims=True) for counts in (self.label_counts_, self.label_totals_))
        return self.m_step(labels, totals, params)

    def confusion_support(self) -> FloatArray | None:
        """Return the number of labels behind every entry of `confusion_`, in a shape that broadcasts to it."""
        labels = self.label_counts_ if self.layout == FULL else self.label_totals_
        return np.asarray(labels.sum(axis=2, keepdims=True))

    def set_derived_results(self) -> None:
        """Set results that follow from the parameters and the counts."""

    # EM

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with self._open_engine(table, gold) as engine:
            self._prepare(engine)
            self._set_params(self._run_em(engine, on_step))
            self._set_results(engine)

    def _prepare(self, engine: Engine) -> None:
        """Set what EM needs to know of the whole table."""
        votes = self.vote_counts(engine)
        full = self.layout == FULL
        self.label_totals_ = votes.label_counts.sum(axis=1, keepdims=True) if full else label_totals(engine)
        self.class_pseudo_counts_ = np.ones(votes.class_counts.size)
        self.prepare(votes, engine)

    def _run_em(self, engine: Engine, on_step: OnStep) -> P:
        """Find the parameters."""
        pass_ = self.e_step_pass()
        size = engine.size
        focus = size.n_rows >= MIN_FOCUS_ROWS and size.n_items * size.n_classes * 8 <= MAX_FOCUS_BYTES
        refine = partial(focused_em, self, engine, pass_) if focus else None
        return self.run_restarts(
            partial(self.em_step, engine, pass_), partial(self.initialise, engine), on_step, engine.checkpoint, refine
        )

    def e_step_pass(self) -> ConfusionPass:
        """Return the pass of an E step."""
        return ConfusionPass(LIKELIHOOD, self.layout)

    def initialise(self, engine: Engine, rng: np.random.Generator | None) -> P:
        """Return one M step from the votes; for a random start their shares are drawn from Dirichlet(1 + votes)."""
        if rng is not None:
            return self._next_params(engine.run(ConfusionPass(POSTERIOR, self.layout, rng=rng), None), None)
        return self._next_params(self.vote_counts(engine), None)

    def em_step(self, engine: Any, pass_: ConfusionPass, params: P) -> tuple[float, P]:
        """Return the objective at `params`, and the parameters of the next pass."""
        likelihood = self.label_likelihood(params)
        counts = engine.run(pass_, EStepParams.from_likelihood(params.prior, likelihood))
        return self._objective(counts, params, likelihood), self._next_params(counts, params)

    def vote_counts(self, engine: Engine, with_gold: bool = True) -> ExpectedCounts:
        """Return the counts by the shares of the votes and, with gold, the known classes."""
        return engine.run_cached((VOTES, self.layout, with_gold), ConfusionPass(VOTES, self.layout, with_gold))

    def _objective(self, counts: ExpectedCounts, params: P, likelihood: LabelLikelihood) -> float:
        """Return log evidence plus log prior density."""
        objective = counts.log_evidence + self.log_prior(params)
        if isinstance(likelihood, RightWrongLikelihood):
            objective += float((self.label_totals_ * np.log(likelihood.wrong)[:, None, :]).sum())
        return objective + self.log_class_prior(params)

    def _next_params(self, counts: ExpectedCounts, params: P | None) -> P:
        """Return the parameters of the next pass: the M step; of the first pass if `params` is None."""
        shares = self.update_class_shares(counts.class_counts, params)
        return self.m_step(
            counts.label_counts, self.label_totals_, self.update_hyperparameters(counts.label_counts, shares)
        )

    def update_class_shares(self, class_counts: FloatArray, params: Any) -> Any:
        """Return parameters with π of the next pass, from items of each class (K,)."""
        prior = self.class_shares(class_counts)
        return self.initial_params(prior) if params is None else replace(params, prior=prior)

    def log_class_prior(self, params: P) -> float:
        """Return the log prior density of π, up to a constant."""
        return float(self.class_pseudo_counts_ @ np.log(params.prior)) if self.fixed_prior_ is None else 0.0

    def class_shares(self, class_counts: FloatArray) -> FloatArray:
        """(K,) π from items of each class (K,)."""
        if self.fixed_prior_ is not None:
            return self.fixed_prior_
        shares = (
            np.maximum(class_counts, 0) + self.class_pseudo_counts_
        )  # an update may leave a rounding error below zero
        return np.asarray(shares / shares.sum())

    def _set_results(self, engine: Engine) -> None:
        """Set the tempered posterior at the fitted parameters, and what follows from it."""
        params, pass_ = self._params(), self.e_step_pass()
        likelihood = learnt = self.label_likelihood(params)
        if type(self).expected_label_likelihood is not ConfusionModel.expected_label_likelihood:
            likelihood = self.expected_label_likelihood(params)
        counts = run_tempered(
            self, engine, pass_, EStepParams.from_likelihood(params.prior, likelihood), self.label_totals_
        )
        self.class_counts_, self.label_counts_ = counts.class_counts, counts.label_counts
        if likelihood is not learnt:
            counts = engine.run(pass_, EStepParams.from_likelihood(params.prior, learnt))
            self.label_counts_ = counts.label_counts
        self.trace_ = np.append(
            self.trace_, self._objective(counts, params, learnt)
        )  # the objective of the returned parameters
        self.set_derived_results()

    # Results

    @classmethod
    def results(cls) -> dict[str, str]:
        """Return the axes and range of every result, with the parameters as `em_parameter` declares them."""
        declared = ((f.name, f.metadata) for f in fields(cls.Params) if f.metadata["axes"])  # type: ignore[attr-defined]
        return {f"{name}_": f"{about['axes']} {about['range']}" for name, about in declared} | super().results()

    def _params(self) -> P:
        """Return the fitted parameters, which are kept as results, each under its name and an underscore."""
        kind = self.Params  # type: ignore[attr-defined]
        return kind(*(getattr(self, f"{name}_") for name in kind.__dataclass_fields__))  # type: ignore[no-any-return]

    def _set_params(self, params: P) -> None:
        for name in params.__dataclass_fields__:
            setattr(self, f"{name}_", getattr(params, name))

    def _likelihood_of(self, annotators: IntArray) -> LabelLikelihood:
        """Return the label likelihood of annotators by code into `annotators_`, −1 unseen."""
        params = self._params()
        seen = self.expected_label_likelihood(params)
        unseen = self.expected_label_likelihood(self.population_params(params))  # −1 takes the last
        if isinstance(seen, RightWrongLikelihood) and isinstance(unseen, RightWrongLikelihood):
            right, wrong = (seen.right, unseen.right), (seen.wrong, unseen.wrong)
            return RightWrongLikelihood(np.concatenate(right)[annotators], np.concatenate(wrong)[annotators])
        return np.concatenate([seen, unseen])[annotators]

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        """(n, K, K) [annotator, true, given] of annotators by code, −1 unseen."""
        likelihood = self._likelihood_of(annotators)
        return (
            likelihood.to_matrices(self.classes_.size) if isinstance(likelihood, RightWrongLikelihood) else likelihood
        )

    @computed_result
    def confusion_(self) -> FloatArray:
        """(A, K, K) [annotator, true, given], computed when asked for unless it is a parameter."""
        if not hasattr(self, "label_counts_"):
            raise AttributeError("confusion_")
        return self.annotator_confusions(np.arange(self.annotators_.size))

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        with open_in_memory(table, None, self.threads) as engine:
            return run_e_step(engine, self.prior_, self._likelihood_of(annotators))[0]

    def _label_probabilities(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        likelihood = self._likelihood_of(annotator) if self.layout != FULL else None
        if not isinstance(likelihood, RightWrongLikelihood):
            return super()._label_probabilities(posterior, item, annotator)
        if self.classes_.size == 1:
            return np.ones_like(posterior)
        return np.asarray(posterior * likelihood.right + (1 - posterior) * likelihood.wrong)

    # More annotations

    def _unseen_annotator_values(self) -> dict[str, Any]:
        params = self._params()
        unseen = self.population_params(params)
        values = {f"{name}_": getattr(unseen, name)[0] for name in params.by_annotator}
        return values | {"label_counts_": 0.0, "label_totals_": 0.0}

    def _partial_update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """Run EM over the new rows alone.

        The posterior of an item replaces its class prior, and an annotator's counts so far are added to the new ones.
        The counts of the old rows are not revised by what the new rows show about their items (Neal & Hinton 1998 would
        revisit them); a test compares the result with a fit of everything.
        """
        before, params = self.posterior_[item], self._params().select_annotators(annotator)
        labels, totals = self.label_counts_[annotator], self.label_totals_[annotator]
        posterior, pass_ = before, self.e_step_pass()
        with open_in_memory(table, gold, self.threads) as engine:
            totals = totals + label_totals(engine)
            for _ in range(MAX_UPDATE_PASSES):
                last, posterior = posterior, np.empty_like(before)
                likelihood = self.expected_label_likelihood(params)
                e_step_params = EStepParams.from_likelihood(np.maximum(before, MIN_BEFORE), likelihood)
                counts = engine.run(pass_, e_step_params, {"posterior": posterior})
                params = self.m_step(labels + counts.label_counts, totals, params)
                if np.abs(posterior - last).max(initial=0) < UPDATE_TOL:
                    break
        params = self._params().replace_annotators(annotator, params)
        for key, new in (("label_counts_", labels + counts.label_counts), ("label_totals_", totals)):
            setattr(self, key, updated_copy(getattr(self, key), annotator, new))
        self.class_counts_ = self.class_counts_ + posterior.sum(axis=0) - before[old].sum(axis=0)
        self._set_params(self.update_class_shares(self.class_counts_, params))
        self.set_derived_results()
        return posterior
