"""The confusion family: the likelihood of a label depends only on the annotator, the label and the class.

    z_i ~ Cat(π)        P(y_ij = l | z_i = c) = L_j[c, l]

E step  q_i(c) ∝ π_c Π_{j∈M_i} L_j[c, y_ij]
counts  n_j[c, l] = Σ_{i: y_ij = l} q_i(c)        n_c = Σ_i q_i(c)
M step  π_c ∝ b_c + n_c, or fixed; the method updates the annotators' parameters

A method defines four functions of its frozen parameters `Params`: `initial_params`, `label_likelihood`, `m_step` and
`log_prior`. `prepare` sets quantities that are constant during EM. docs/contributing/method.md has an example. The
E step multiplies the likelihoods; `e_step` below is its readable form, and tests verify the kernels against it. Methods
inherit engines, weights, probabilistic rows, gold, earlier counts, `partial_fit`, scoring, `predict_annotations`,
intervals, the trace and SQUAREM. If `label_likelihood` returns expected logarithms (variational Bayes),
`expected_label_likelihood` returns the probability of a label.

In some methods a label changes the odds of its own class only: L_j[c, l] = right_j[l] if c = l, else wrong_j[l]. Such a
method sets `layout` to DIAGONAL (or COIN, if all labels of an annotator have the same odds) and returns
`RightWrongLikelihood`. A row then costs one multiplication instead of K, and the label counts are (A, 1, K) or
(A, 1, 1), the expected numbers of right labels.

Arrays here have the axes [annotator, true, given]. The kernels use another order, see `compute.kernels.confusion`.
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

MAX_UPDATE_PASSES = 20  # maximum number of passes over the new rows in one update
UPDATE_TOL = 1e-4  # an update ends when no posterior changes by more than this
MIN_UPDATE_PRIOR = 1e-12  # minimum prior probability of a class in an update, so that new labels can change it

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
    "expected_label_counts",
    "methods",
    "param",
]  # fmt: skip


# The value ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassParams(Params):
    """The parameters that all methods of the family have: the class shares π (K,)."""

    prior: FloatArray = em_parameter(SIMPLEX, "K")


P = TypeVar("P", bound=ClassParams)


@dataclass(frozen=True)
class RightWrongLikelihood:
    """The label likelihood in the layouts DIAGONAL, (A, K), and COIN, (A, 1)."""

    right: FloatArray  # P(label | the class that it names)
    wrong: FloatArray  # P(label | any other class)

    def to_matrices(self, n_classes: int) -> FloatArray:
        """Return the likelihood as matrices (A, K, K) [annotator, true, given]."""
        if n_classes == 1:  # with one class no label is wrong
            return np.ones((len(self.right), 1, 1))
        return np.where(np.eye(n_classes, dtype=bool), self.right[:, None, :], self.wrong[:, None, :])


LabelLikelihood = FloatArray | RightWrongLikelihood


# The E step -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EStepParams:
    """The parameters of a pass: π, (1, K) or (I, K), and likelihoods (A, true, given) or odds (A, 1, given)."""

    by_annotator: ClassVar = ("likelihood",)
    prior: FloatArray
    likelihood: FloatArray

    @classmethod
    def from_likelihood(cls, prior: FloatArray, likelihood: LabelLikelihood) -> EStepParams:
        """Return the parameters for class shares and a label likelihood."""
        prior = np.ascontiguousarray(np.atleast_2d(prior))
        if isinstance(likelihood, RightWrongLikelihood):
            return cls(prior, (likelihood.right / likelihood.wrong)[:, None, :])
        return cls(prior, likelihood)


@dataclass(frozen=True)
class ExpectedCounts(Sums):
    """The sums of a pass: log evidence, expected items per class (K,), expected label counts (A, true, given).

    In the layouts DIAGONAL and COIN only right labels are counted, (A, 1, given), and the log evidence lacks the
    factor that is the same for all classes.
    """

    by_annotator: ClassVar = ("label_counts",)
    log_evidence: float
    class_counts: FloatArray
    label_counts: FloatArray


def e_step(chunk: Chunk, layout: int, likelihood: Any, prior: Any, gold: Any) -> tuple[Any, Any]:
    """Return the posterior (I, K) and the log evidence (I,) of a chunk's items."""
    xp = chunks.array_library(chunk.label)
    logs = xp.log(xp.swapaxes(likelihood, 1, 2)).reshape(-1, likelihood.shape[1])  # (A·given, true)
    if layout == FULL:
        log_likelihood = chunk.sum_by_item(chunk.apply_weights(logs[chunk.annotator_label]))
    else:
        place = chunk.annotator if layout == COIN else chunk.annotator_label
        log_likelihood = chunk.votes(chunk.apply_weights(logs[:, 0][place]))
    return chunks.normalise_log_joint(xp.log(prior) + log_likelihood, gold)


def count_labels(chunk: Chunk, layout: int, posterior: Any) -> Any:
    """Return the expected label counts (A, true, given) of a chunk, given a posterior (I, K)."""
    A, K, xp = chunk.n_annotators, chunk.n_classes, chunks.array_library(chunk.label)
    n_true, n_given = K if layout == FULL else 1, 1 if layout == COIN else K
    place = chunk.annotator if layout == COIN else chunk.annotator_label
    row_posterior = posterior[chunk.item] if layout == FULL else posterior.reshape(-1)[chunk.item_label]
    counts = chunk.scatter_sum(place, chunk.apply_weights(row_posterior), A * n_given).reshape(A, n_given, n_true)
    return xp.swapaxes(counts, 1, 2).reshape(-1).reshape(A, n_true, n_given)  # contiguous


@dataclass(eq=False)
class ConfusionPass(Pass[EStepParams | None, ExpectedCounts]):
    """A pass of the confusion family, which can also write the output `posterior`.

    `compute.chunk` describes `source` and `layout`. With the source POSTERIOR, the pass uses `posterior`, which has a
    row for each item of the table or of the chunk; if `rng` is set, it draws from Dirichlet(1 + votes) instead.
    """

    source: int
    layout: int
    with_gold: bool = True
    posterior: FloatArray | None = None
    rng: np.random.Generator | None = None
    cells: Any = None  # (workers, A, given, 2, true) likelihoods and counts of the kernel, kept between passes

    sums_type = ExpectedCounts

    def __post_init__(self) -> None:
        self.sequential = self.rng is not None  # the random generator draws item by item

    def array_form(self, chunk: Chunk, params: EStepParams | None) -> tuple[Any, ...]:
        """Return log evidence, class counts (K,), label counts (A, true, given) and posterior (I, K)."""
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
        """Return the posterior (items, K) of a chunk if the source is POSTERIOR, else None."""
        if self.rng is None:
            return chunk.select_item_values(self.posterior)
        votes = chunk.to_numpy(chunk.votes(chunk.row_weights()))
        return chunk.to_backend(draw_vote_shares(votes, chunk.to_numpy(chunk.gold), self.rng))

    def initial_sums(self, size: TableSize) -> list[Any]:
        """Return zeros for the evidence and the class counts; labels are counted in the cells."""
        return [0.0, np.zeros(size.n_classes)]

    def create_workers(self, params: EStepParams | None, size: TableSize, workers: int, pool: Threads) -> list[Worker]:
        """Create workers, whose parameters are the prior, the number of rows in one product, and the cells."""
        opened = super().create_workers(params, size, workers, pool)
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
        """Run the compiled pass `kernels.confusion.compile_pass` over the chunk."""
        from dissensus.compute.kernels import confusion as kernels

        K, weight, gold = chunk.n_classes, chunk.weight, chunk.gold if self.with_gold else None
        given = self._load_posterior(Chunk(chunk.rows, gold, 0, K, chunk.first)) if self.source == POSTERIOR else None
        prior, chunk_rows, cells = worker.params
        vector = self.layout == FULL and K <= kernels.MAX_VECTOR_CLASSES and weight is None
        loop = kernels.compile_pass(K if vector else 0, self.source, self.layout, weight is not None)
        worker.sums[0] += loop(
            chunk.start, chunk.stop, chunk.item_ptr, chunk.annotator, chunk.label,
            np.empty(0) if weight is None else weight,
            prior if len(prior) == 1 else chunk.select_item_values(prior), np.empty((0, K)) if given is None else given,
            chunk_rows, np.empty(0, np.int32) if gold is None else gold,
            cells, worker.sums[1], out.get("posterior", np.empty((0, K))),
        )  # fmt: skip

    def sum_workers(self, workers: list[Worker], pool: Threads) -> ExpectedCounts:
        """Return the sums of all workers, including the counts in their cells."""
        if workers[0].size.is_short:
            return super().sum_workers(workers, pool)
        from dissensus.compute.kernels import confusion as kernels

        _, A, n_given, _, n_true = self.cells.shape
        labels = np.empty((A, n_true, n_given))
        pool.map(
            lambda _, start, stop: kernels.collect_counts(start, stop, self.cells, labels), even_ranges(A, pool.threads)
        )
        evidence, classes = (sum(parts) for parts in zip(*(worker.sums for worker in workers), strict=True))
        return ExpectedCounts(evidence, classes, labels)

    def on_torch(self, params: EStepParams | None, data: Any, out: Mapping[str, Any]) -> ExpectedCounts:
        """Run the pass in torch, as one fused kernel if possible."""
        from dissensus.compute.kernels import on_torch

        if (
            params is not None
            and self.layout == FULL
            and (found := on_torch.run_fused_pass(data, params.likelihood, params.prior, out))
        ):
            return ExpectedCounts(*found)
        return super().on_torch(params, data, out)


def label_totals(engine: Engine) -> FloatArray:
    """Return the weight of each annotator's labels by class, (A, 1, given)."""
    return engine.run(ConfusionPass(ALL_ONES, DIAGONAL), None).label_counts


def run_e_step(engine: Engine, prior: FloatArray, likelihood: LabelLikelihood) -> tuple[FloatArray, ExpectedCounts]:
    """Run one E step over a table in memory; return the posterior (I, K) and the sums."""
    layout = FULL
    if isinstance(likelihood, RightWrongLikelihood):
        layout = COIN if likelihood.right.shape[1] == 1 else DIAGONAL
    posterior = np.empty((engine.size.n_items, engine.size.n_classes))
    out = {"posterior": posterior}
    return posterior, engine.run(ConfusionPass(LIKELIHOOD, layout), EStepParams.from_likelihood(prior, likelihood), out)


def expected_label_counts(table: Annotations, posterior: FloatArray) -> FloatArray:
    """Return the expected label counts (A, K, K) [annotator, true, given], given a posterior (I, K)."""
    with open_in_memory(table, None, 1) as engine:
        return engine.run(ConfusionPass(POSTERIOR, FULL, posterior=np.ascontiguousarray(posterior)), None).label_counts


def draw_vote_shares(votes: FloatArray, gold: IntArray | None, rng: np.random.Generator) -> FloatArray:
    """Draw a posterior (I, K) from Dirichlet(1 + votes); gold classes have probability 1."""
    posterior = rng.standard_gamma(votes + 1)
    posterior /= posterior.sum(axis=1, keepdims=True)
    return np.asarray(chunks.apply_gold(posterior, gold))


# The model ------------------------------------------------------------------------------------------------------------


class computed_result:  # noqa: N801 - used as `property` is
    """A property that is computed unless the instance stores a result of the same name."""

    def __init__(self, compute: Callable[[Any], FloatArray]):
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, model: Any, kind: Any = None) -> Any:
        return self if model is None else self.compute(model)


class ConfusionModel(EMAggregator[P], Generic[P]):
    """Base class for the methods of the confusion family; the module's docstring lists the functions to define."""

    engine: EngineChoice = ENGINE

    layout: ClassVar[int] = FULL

    label_counts_: Annotated[FloatArray, "A 1|K 1|K count"]  # expected counts [annotator, true, given] of the last pass
    label_totals_: Annotated[FloatArray, "A 1 K count"]  # weight of each annotator's labels by class
    class_pseudo_counts_: Annotated[FloatArray, "K count"]  # b, the pseudo-counts of π; one per class by default
    fixed_prior_: Annotated[FloatArray | None, "optional K simplex"] = None  # π, if it is constant
    class_counts_: Annotated[FloatArray, "K count"]

    # Defined by a method

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        """Set the quantities that are constant during EM, given the expected counts under the vote shares.

        These are `class_pseudo_counts_`, `fixed_prior_` or results of the method. Attributes that end in _ are saved.
        """

    def initial_params(self, prior: FloatArray) -> Any:
        """Return the parameters that are passed to the first M step, with these class shares."""
        return ClassParams(prior)

    def label_likelihood(self, params: P) -> LabelLikelihood:
        """Return P(label | class), or exp E log P(label | class), as (A, K, K) [annotator, true, given].

        In the layouts DIAGONAL and COIN, return a `RightWrongLikelihood`.
        """
        raise NotImplementedError

    def expected_label_likelihood(self, params: P) -> LabelLikelihood:
        """Return P(label | class); override it if `label_likelihood` uses expected logarithms."""
        return self.label_likelihood(params)

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: Any) -> P:
        """Return the next parameters, given expected label counts (A, true, given); keep the class shares of `params`.

        `label_totals` (A, 1, given) is the weight of each annotator's labels.
        """
        raise NotImplementedError

    def update_hyperparameters(self, label_counts: FloatArray, params: Any) -> Any:
        """Return `params` with updated hyperparameters of the crowd, which `partial_fit` keeps constant."""
        return params

    def log_prior(self, params: P) -> float:
        """Return the log prior density of all parameters except π, up to a constant."""
        return 0.0

    def population_params(self, params: P) -> P:
        """Return the parameters of an unseen annotator, estimated as if one annotator had given all labels."""
        labels, totals = (counts.sum(axis=0, keepdims=True) for counts in (self.label_counts_, self.label_totals_))
        return self.m_step(labels, totals, params)

    def confusion_support(self) -> FloatArray | None:
        """Return the number of labels behind each entry of `confusion_`, in a shape that broadcasts to it."""
        labels = self.label_counts_ if self.layout == FULL else self.label_totals_
        return np.asarray(labels.sum(axis=2, keepdims=True))

    def set_derived_results(self) -> None:
        """Set the results that are computed from the parameters and the counts."""

    # EM

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with self._open_engine(table, gold) as engine:
            self._prepare(engine)
            self._set_params(self._run_em(engine, on_step))
            self._set_results(engine)

    def _prepare(self, engine: Engine) -> None:
        """Compute the label totals, and call `prepare` with the expected counts under the vote shares."""
        votes = self.vote_counts(engine)
        full = self.layout == FULL
        self.label_totals_ = votes.label_counts.sum(axis=1, keepdims=True) if full else label_totals(engine)
        self.class_pseudo_counts_ = np.ones(votes.class_counts.size)
        self.prepare(votes, engine)

    def _run_em(self, engine: Engine, on_step: OnStep) -> P:
        """Run EM on an engine and return the best parameters."""
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
        """Return the first parameters: an M step from the vote shares, or from Dirichlet(1 + votes) if `rng` is set."""
        if rng is not None:
            return self._next_params(engine.run(ConfusionPass(POSTERIOR, self.layout, rng=rng), None), None)
        return self._next_params(self.vote_counts(engine), None)

    def em_step(self, engine: Any, pass_: ConfusionPass, params: P) -> tuple[float, P]:
        """Run one E step and M step; return the objective at `params` and the next parameters."""
        likelihood = self.label_likelihood(params)
        counts = engine.run(pass_, EStepParams.from_likelihood(params.prior, likelihood))
        return self._objective(counts, params, likelihood), self._next_params(counts, params)

    def vote_counts(self, engine: Engine, with_gold: bool = True) -> ExpectedCounts:
        """Return the expected counts under the vote shares, with gold classes if `with_gold` is set."""
        return engine.run_cached((VOTES, self.layout, with_gold), ConfusionPass(VOTES, self.layout, with_gold))

    def _objective(self, counts: ExpectedCounts, params: P, likelihood: LabelLikelihood) -> float:
        """Return the log evidence plus the log prior density."""
        objective = counts.log_evidence + self.log_prior(params)
        if isinstance(likelihood, RightWrongLikelihood):
            objective += float((self.label_totals_ * np.log(likelihood.wrong)[:, None, :]).sum())
        return objective + self.log_class_prior(params)

    def _next_params(self, counts: ExpectedCounts, params: P | None) -> P:
        """Run the M step; `params` is None before the first pass."""
        shares = self.update_class_shares(counts.class_counts, params)
        return self.m_step(
            counts.label_counts, self.label_totals_, self.update_hyperparameters(counts.label_counts, shares)
        )

    def update_class_shares(self, class_counts: FloatArray, params: Any) -> Any:
        """Return `params` with the class shares for the next pass, given expected items per class (K,)."""
        prior = self.class_shares(class_counts)
        return self.initial_params(prior) if params is None else replace(params, prior=prior)

    def log_class_prior(self, params: P) -> float:
        """Return the log prior density of π, up to a constant."""
        return float(self.class_pseudo_counts_ @ np.log(params.prior)) if self.fixed_prior_ is None else 0.0

    def class_shares(self, class_counts: FloatArray) -> FloatArray:
        """Return the class shares π (K,), given expected items per class (K,)."""
        if self.fixed_prior_ is not None:
            return self.fixed_prior_
        # A partial fit may leave rounding errors below zero.
        shares = np.maximum(class_counts, 0) + self.class_pseudo_counts_
        return np.asarray(shares / shares.sum())

    def _set_results(self, engine: Engine) -> None:
        """Set the tempered posterior for the fitted parameters, and the results that depend on it."""
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
        # The last entry is the objective of the returned parameters.
        self.trace_ = np.append(self.trace_, self._objective(counts, params, learnt))
        self.set_derived_results()

    # Results

    @classmethod
    def results(cls) -> dict[str, str]:
        """Return the axes and range of every result, including the parameters."""
        declared = ((f.name, f.metadata) for f in fields(cls.Params) if f.metadata["axes"])  # type: ignore[attr-defined]
        return {f"{name}_": f"{about['axes']} {about['range']}" for name, about in declared} | super().results()

    def _params(self) -> P:
        """Return the fitted parameters, which are stored as results whose names end in an underscore."""
        kind = self.Params  # type: ignore[attr-defined]
        return kind(*(getattr(self, f"{name}_") for name in kind.__dataclass_fields__))  # type: ignore[no-any-return]

    def _set_params(self, params: P) -> None:
        for name in params.__dataclass_fields__:
            setattr(self, f"{name}_", getattr(params, name))

    def _likelihood_of(self, annotators: IntArray) -> LabelLikelihood:
        """Return the label likelihood of annotators, given by code; −1 stands for an unseen annotator."""
        params = self._params()
        seen = self.expected_label_likelihood(params)
        unseen = self.expected_label_likelihood(self.population_params(params))  # code −1 selects it
        if isinstance(seen, RightWrongLikelihood) and isinstance(unseen, RightWrongLikelihood):
            right, wrong = (seen.right, unseen.right), (seen.wrong, unseen.wrong)
            return RightWrongLikelihood(np.concatenate(right)[annotators], np.concatenate(wrong)[annotators])
        return np.concatenate([seen, unseen])[annotators]

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        """Return the confusion matrices (n, K, K) [annotator, true, given]; −1 is the code of unseen annotators."""
        likelihood = self._likelihood_of(annotators)
        return (
            likelihood.to_matrices(self.classes_.size) if isinstance(likelihood, RightWrongLikelihood) else likelihood
        )

    @computed_result
    def confusion_(self) -> FloatArray:
        """Return the confusion matrices (A, K, K) [annotator, true, given], unless they are a stored parameter."""
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
        """Update the model by EM over the new rows only.

        The posterior of a fitted item serves as its prior, and an annotator's new counts are added to the fitted ones.
        The counts of old rows are not revised when new rows change the posterior of their items, unlike in Neal &
        Hinton (1998). A test compares the result with a fit to all rows.
        """
        before, params = self.posterior_[item], self._params().select_annotators(annotator)
        labels, totals = self.label_counts_[annotator], self.label_totals_[annotator]
        posterior, pass_ = before, self.e_step_pass()
        with open_in_memory(table, gold, self.threads) as engine:
            totals = totals + label_totals(engine)
            for _ in range(MAX_UPDATE_PASSES):
                last, posterior = posterior, np.empty_like(before)
                likelihood = self.expected_label_likelihood(params)
                e_step_params = EStepParams.from_likelihood(np.maximum(before, MIN_UPDATE_PRIOR), likelihood)
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
