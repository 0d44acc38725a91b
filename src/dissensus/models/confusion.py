"""The confusion family: how probable a label is depends on the annotator, the label and the class, and on nothing else.

    z_i ~ Cat(π)        P(y_ij = l | z_i = c) = L_j[c, l]

E step  q_i(c) ∝ π_c Π_{j∈M_i} L_j[c, y_ij]
sums    n_j[c, l] = Σ_{i: y_ij = l} q_i(c)        n_c = Σ_i q_i(c)
M step  π_c ∝ b_c + n_c, or as it was; the rest is the method's: `maximise`

A method states its parameters (`Params`), the likelihoods that they make (`cells`), its M step (`maximise`), the log
prior density of its parameters (`log_penalty`) and, where it needs more than one pseudo-item of every class, what is
fixed while EM runs (`prepare`); docs/contributing/method.md has an example. It inherits engines, weights,
probabilistic rows, gold, earlier counts, `partial_fit`, scoring, `predict_annotations`, intervals, the trace and
SQUAREM. Where likelihoods are expected logarithms (variational Bayes), `mean_cells` says how probable a label is.

Where a label speaks for its own class alone, L_j[c, l] = right_j[l] if c = l, else wrong_j[l], a method sets `shape` to
OWN (or COIN, where all labels of an annotator are alike) and returns `OwnCells`: a row then costs one multiplication
instead of K, and the sums are (A, 1, K) or (A, 1, 1), how much of an annotator's labels is right.

Arrays here are [annotator, true, given]; `models.confusion_pass` is one pass over the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice, in_memory
from dissensus.compute.engines.base import Engine, Pass
from dissensus.compute.engines.local import Local, Threads
from dissensus.compute.readable import COIN, FULL, GIVEN, LIKELIHOOD, OWN, VOTES
from dissensus.models.base import ENGINE, Aggregator, methods
from dissensus.models.confusion_pass import (
    Cells,
    ConfusionPass,
    Counts,
    Likelihood,
    OwnCells,
    judge,
    label_totals,
    soft_counts,
)
from dissensus.models.dependence import SoftenedPass
from dissensus.models.em import EMAggregator, climb
from dissensus.models.incremental import written
from dissensus.models.matrices import MIN_BEFORE
from dissensus.models.params import SIMPLEX, Params, moved, normalised
from dissensus.table.annotations import Annotations

MAX_UPDATE_PASSES = 20  # over the rows of one update
UPDATE_TOL = 1e-4  # largest change of a posterior that ends them
MIN_FOCUS_ROWS = 2_000_000  # rows from which on the passes over items in doubt save time
MAX_FOCUS_BYTES = 2**31  # of the posterior that says which items those are
DOUBT = 1e-3  # probability that an item's best class is not its class, from which on it is in doubt

__all__ = [
    "COIN", "FULL", "OWN", "SIMPLEX", "Classes", "ConfusionModel", "Counts", "Engine", "FloatArray", "OwnCells",
    "methods", "moved", "param", "soft_counts",
]  # fmt: skip


@dataclass(frozen=True)
class Classes(Params):
    """The parameters that all have: π (K,)."""

    prior: FloatArray = moved(SIMPLEX, "K")


P = TypeVar("P", bound=Classes)


@dataclass(frozen=True)
class Focused:
    """Passes over some items, `rest`; the others keep their posterior, and with it their sums.

    Σ q log joint and the entropy of q bound their log evidence at other parameters; `settled.evidence` is the entropy.
    """

    rest: Engine
    settled: Counts

    @classmethod
    def of(cls, sums: Counts, rest: Engine, likelihood: Likelihood, walk: ConfusionPass) -> Focused:
        """From the sums of all items at some parameters."""
        own = rest.sweep(walk, likelihood)
        settled = Counts(0.0, sums.classes - own.classes, sums.labels - own.labels)
        entropy = sums.evidence - own.evidence - expected_joint(settled, likelihood)
        return cls(rest, replace(settled, evidence=entropy))

    def sweep(self, walk: ConfusionPass, params: Likelihood, out: Mapping[str, Any] | None = None) -> Counts:
        """As an engine's."""
        bound = self.settled.evidence + expected_joint(self.settled, params)
        return self.rest.sweep(walk, params) + replace(self.settled, evidence=bound)


def expected_joint(sums: Counts, likelihood: Likelihood) -> float:
    """Σ q log (π L) of the items behind the sums."""
    return float((sums.labels * np.log(likelihood.table)).sum() + sums.classes @ np.log(likelihood.prior[0]))


class on_demand:  # noqa: N801 - used as `property` is
    """A property that a result of the same name takes the place of."""

    def __init__(self, make: Callable[[Any], FloatArray]):
        self.make, self.__doc__ = make, make.__doc__

    def __get__(self, model: Any, kind: Any = None) -> Any:
        return self if model is None else self.make(model)


class ConfusionModel(EMAggregator[P], Generic[P]):
    """A method of the family; see the module for what it writes."""

    engine: EngineChoice = ENGINE

    shape: ClassVar[int] = FULL

    labels_: Annotated[FloatArray, "A 1|K 1|K count"]  # [annotator, true, given] sums of the last pass
    label_totals_: Annotated[FloatArray, "A 1 K count"]  # weight of all labels
    class_pseudo_: Annotated[FloatArray, "K count"]  # b of π; one of each class, unless `prepare` sets them
    fixed_prior_: Annotated[FloatArray | None, "optional K simplex"] = None  # π where it is not learnt
    class_counts_: Annotated[FloatArray, "K count"]

    # What a method writes ---------------------------------------------------------------------------------------------

    def prepare(self, votes: Counts, engine: Engine) -> None:
        """Set what is fixed while EM runs, from sums by the votes: `class_pseudo_`, `fixed_prior_`, or its own.

        A name that ends in _ is saved with the model.
        """

    def first(self, prior: FloatArray) -> Classes:
        """Where the first `maximise` begins; its own fields, if it needs any of them."""
        return Classes(prior)

    def cells(self, params: P) -> Cells:
        """(A, K, K) [annotator, true, given] P(label | class), or exp E log of it; `OwnCells` in OWN and COIN."""
        raise NotImplementedError

    def mean_cells(self, params: P) -> Cells:
        """How probable a label is, where `cells` are expected logarithms."""
        return self.cells(params)

    def maximise(self, labels: FloatArray, totals: FloatArray, params: Any) -> P:
        """The M step from the sums (A, true, given), with π of `params`; annotator by annotator.

        `totals` (A, 1, given) are the weights of all labels.
        """
        raise NotImplementedError

    def learn_crowd(self, labels: FloatArray, params: Any) -> Any:
        """Parameters that annotators share, learnt before `maximise`; an update leaves them as they are."""
        return params

    def log_penalty(self, params: P) -> float:
        """Log prior density of the parameters but π, up to a constant."""
        return 0.0

    def population(self, params: P) -> P:
        """Parameters of one annotator who was not there: as if all labels together were one annotator's."""
        labels, totals = (sums.sum(axis=0, keepdims=True) for sums in (self.labels_, self.label_totals_))
        return self.maximise(labels, totals, params)

    def labels_behind(self) -> FloatArray | None:
        """How many labels are behind every entry of `confusion_`, (A, K, K) or what spreads to it, for intervals."""
        labels = self.labels_ if self.shape == FULL else self.label_totals_
        return np.asarray(labels.sum(axis=2, keepdims=True))

    # What it inherits -------------------------------------------------------------------------------------------------

    @classmethod
    def results(cls) -> dict[str, str]:
        """As `Aggregator.results`, with the parameters as `moved` declares them."""
        own = ((one.name, one.metadata) for one in fields(cls.Params) if one.metadata["axes"])  # type: ignore[attr-defined]
        return {f"{name}_": f"{about['axes']} {about['range']}" for name, about in own} | super().results()

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with self._engine_of(table, gold) as engine:
            self._climb(engine, on_step)
            self._conclude(engine)

    def _climb(self, engine: Engine, on_step: OnStep) -> None:
        """Find the parameters."""
        self._begin(engine)
        size = engine.size
        long = size.n_rows >= MIN_FOCUS_ROWS and size.n_items * size.n_classes * 8 <= MAX_FOCUS_BYTES
        refine = partial(self._focus, engine) if long else None
        climbing = partial(self.em_pass, engine), partial(self.start, engine)
        params = self.run(*climbing, on_step, engine.checkpoint, refine)
        self._set(params)

    def _begin(self, engine: Engine) -> None:
        """What EM needs to know of the whole table."""
        votes = self.votes(engine)
        self.label_totals_ = votes.labels.sum(axis=1, keepdims=True) if self.shape == FULL else label_totals(engine)
        self._walk = ConfusionPass(LIKELIHOOD, self.shape)
        self.class_pseudo_ = np.ones(votes.classes.size)
        self.prepare(votes, engine)

    def start(self, engine: Engine, rng: np.random.Generator | None) -> P:
        """One M step from the votes; a random start draws the shares of the votes from Dirichlet(1 + votes)."""
        if rng is not None:
            return self._next(engine.sweep(ConfusionPass(GIVEN, self.shape, rng=rng), None), None)
        return self._next(self.votes(engine), None)

    def votes(self, engine: Engine, with_gold: bool = True) -> Counts:
        """Sums by the shares of the votes and, with gold, the known classes."""
        return engine.once((VOTES, self.shape, with_gold), ConfusionPass(VOTES, self.shape, with_gold))

    def _focus(self, engine: Engine, params: P) -> P:
        """Run EM over the items in doubt alone; what the others say of annotators stays (Neal & Hinton 1998).

        Most items are clear after a few passes, and the others decide when EM ends: at 10M annotations a twelfth of the
        items took 22 passes, and the whole table needed two more, where it had taken fourteen.
        """
        posterior = engine.per_item("posterior", engine.size.n_classes)
        likelihood = Likelihood.of(params.prior, self.cells(params))
        sums = engine.sweep(self._walk, likelihood, {"posterior": posterior})
        doubtful = np.asarray(posterior.open() if hasattr(posterior, "open") else posterior).max(axis=1) < 1 - DOUBT
        if not doubtful.any():
            return params
        gold = None if engine.gold is None else engine.gold[doubtful]
        size, pool = engine.size, Threads(engine.pool.threads)
        with Local(engine.rows_of(doubtful), size.n_annotators, size.n_classes, pool, gold) as rest:
            focused = Focused.of(sums, rest, likelihood, self._walk)
            em_pass, limits = partial(self.em_pass, focused), {"max_iter": self.max_iter, "tol": self.tol}
            return climb(em_pass, self._next(sums, params), accelerate=self.accelerate, **limits).params

    def em_pass(self, engine: Engine | Focused, params: P) -> tuple[float, P]:
        """The objective at `params`, and the parameters of the next pass."""
        cells = self.cells(params)
        sums = engine.sweep(self._walk, Likelihood.of(params.prior, cells))
        return self._objective(sums, params, cells), self._next(sums, params)

    def _objective(self, sums: Counts, params: P, cells: Cells) -> float:
        """Log evidence and log prior density."""
        objective = sums.evidence + self.log_penalty(params)
        if isinstance(cells, OwnCells):
            objective += float((self.label_totals_ * np.log(cells.wrong)[:, None, :]).sum())
        return objective + self.log_class_density(params)

    def _next(self, sums: Counts, params: P | None) -> P:
        """The M step."""
        before = self.learn_classes(sums.classes, params)
        return self.maximise(sums.labels, self.label_totals_, self.learn_crowd(sums.labels, before))

    def learn_classes(self, classes: FloatArray, params: Any) -> Any:
        """Parameters with π of the next pass, from items of each class (K,); None: where EM begins."""
        prior = self._class_shares(classes)
        return self.first(prior) if params is None else replace(params, prior=prior)

    def log_class_density(self, params: P) -> float:
        """Log prior density of π, up to a constant."""
        return float(self.class_pseudo_ @ np.log(params.prior)) if self.fixed_prior_ is None else 0.0

    def _class_shares(self, classes: FloatArray) -> FloatArray:
        """(K,) π from items of each class (K,)."""
        if self.fixed_prior_ is not None:
            return self.fixed_prior_
        shares = np.maximum(classes, 0) + self.class_pseudo_  # an update may leave a rounding error below zero
        return np.asarray(shares / shares.sum())

    def _conclude(self, engine: Engine) -> None:
        """The posterior at the parameters found, and what follows from it."""
        params = self._params()
        cells = learnt_cells = self.cells(params)
        if type(self).mean_cells is not ConfusionModel.mean_cells:
            cells = self.mean_cells(params)
        sums = softened_sweep(self, engine, self._walk, Likelihood.of(params.prior, cells), self.label_totals_)
        self.class_counts_, self.labels_ = sums.classes, sums.labels
        if cells is not learnt_cells:
            sums = engine.sweep(self._walk, Likelihood.of(params.prior, learnt_cells))
            self.labels_ = sums.labels
        self.trace_ = np.append(self.trace_, self._objective(sums, params, learnt_cells))  # of what is returned
        del self._walk
        self.describe()

    def describe(self) -> None:
        """Set results that follow from the parameters and the sums."""

    def _params(self) -> P:
        """The fitted parameters; they are kept as results, each under its name and an underscore."""
        kind = self.Params  # type: ignore[attr-defined]
        return kind(*(getattr(self, f"{name}_") for name in kind.__dataclass_fields__))  # type: ignore[no-any-return]

    def _set(self, params: P) -> None:
        for name in params.__dataclass_fields__:
            setattr(self, f"{name}_", getattr(params, name))

    def _cells_of(self, known: IntArray) -> Cells:
        """Of annotators by code into `annotators_`, −1 for one who was not there."""
        params = self._params()
        everyone, unseen = self.mean_cells(params), self.mean_cells(self.population(params))
        if isinstance(everyone, OwnCells) and isinstance(unseen, OwnCells):
            right, wrong = ((everyone.right, unseen.right), (everyone.wrong, unseen.wrong))
            return OwnCells(np.concatenate(right)[known], np.concatenate(wrong)[known])  # −1 takes the last
        return np.concatenate([everyone, unseen])[known]

    def _confusions(self, known: IntArray) -> FloatArray:
        cells = self._cells_of(known)
        return cells.full(self.classes_.size) if isinstance(cells, OwnCells) else cells

    @on_demand
    def confusion_(self) -> FloatArray:
        """(A, K, K) [annotator, true, given], made when asked for unless it is a parameter."""
        if not hasattr(self, "labels_"):
            raise AttributeError("confusion_")
        cells = self.mean_cells(self._params())
        return cells.full(self.classes_.size) if isinstance(cells, OwnCells) else cells

    def _confusion_size(self) -> FloatArray | None:
        return self.labels_behind()

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        with in_memory(table, None, self.threads) as engine:
            return judge(engine, self.prior_, self._cells_of(known))[0]

    def _label_proba(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        cells = self._cells_of(annotator) if self.shape != FULL else None
        if not isinstance(cells, OwnCells):
            return super()._label_proba(posterior, item, annotator)
        if self.classes_.size == 1:
            return np.ones_like(posterior)
        return np.asarray(posterior * cells.right + (1 - posterior) * cells.wrong)

    def _newcomer(self) -> dict[str, Any]:
        params = self._params()
        unseen = self.population(params)
        own = {f"{name}_": getattr(unseen, name)[0] for name in params.by_annotator}
        return own | {"labels_": 0.0, "label_totals_": 0.0}

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """EM over the new rows alone.

        The posterior of an item takes the place of its class prior, and the sums of an annotator's labels so far are
        added to the new ones. What is left undone is to revise the old rows' part of the sums by what the new rows say
        of their items (Neal & Hinton 1998 would revisit them); a test holds the result to a fit of everything.
        """
        before, params = self.posterior_[item], self._params().take(annotator)
        labels, totals = self.labels_[annotator], self.label_totals_[annotator]
        posterior, walk = before, ConfusionPass(LIKELIHOOD, self.shape)
        with in_memory(table, gold, self.threads) as engine:
            totals = totals + label_totals(engine)
            for _ in range(MAX_UPDATE_PASSES):
                last, posterior = posterior, np.empty_like(before)
                prior = np.maximum(before, MIN_BEFORE)
                sums = engine.sweep(walk, Likelihood.of(prior, self.mean_cells(params)), {"posterior": posterior})
                params = self.maximise(labels + sums.labels, totals, params)
                if np.abs(posterior - last).max(initial=0) < UPDATE_TOL:
                    break
        params = self._params().put(annotator, params)
        for key, new in (("labels_", labels + sums.labels), ("label_totals_", totals)):
            setattr(self, key, written(getattr(self, key), annotator, new))
        self.class_counts_ = self.class_counts_ + posterior.sum(axis=0) - before[old].sum(axis=0)
        self._set(self.learn_classes(self.class_counts_, params))
        self.describe()
        return posterior


def softened_sweep(
    model: Aggregator, engine: Engine, walk: Pass[Any, Any], params: Any, totals: FloatArray, **out: Any
) -> Any:
    """The last pass of a fit: sets the softened posterior and what it says of annotators, returns the pass's sums.

    The model has its `prior_`. `totals` (A, 1, given) are the weights of all labels.
    """
    model.posterior_ = engine.per_item("posterior", engine.size.n_classes)
    model.item_total_ = engine.per_item("item_total")
    out |= {"posterior": model.posterior_, "item_total": model.item_total_}
    sums: Any = None

    def moved() -> float:
        nonlocal sums
        walked = SoftenedPass(walk, ConfusionPass(GIVEN, COIN), model.dependence_, model.shift_, model.held_)
        sums = engine.sweep(walked, params, out)
        return float(np.abs(normalised(sums.independent.classes) - normalised(sums.counts.classes)).sum() / 2)

    model._hold(moved)
    model._judge(sums.counts.labels.sum(axis=(1, 2)), totals.sum(axis=(1, 2)))
    return sums.independent
