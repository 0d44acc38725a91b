"""The contract of methods whose truth is a number: `values_` (I,), `interval_` (I, 2), and no classes.

After `fit` there are `items_`, `annotators_`, `values_`, `interval_` (95 %), `reliability_` (A,) (the correlation of an
annotator's labels with the truth, 0 where it is negative), `bias_`, `stretch_`, `precision_` (A,), `trace_`, `n_iter_`,
`converged_`, `dependence_`. Labels of one item are not independent given its truth: the variance of a posterior is
multiplied by the design effect of `models.dependence`, with the ρ of classes where no gold says more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from dissensus.common.arrays import unmasked
from dissensus.common.frames import as_frame
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.base import Aggregator, FrameKind
from dissensus.models.dependence import (
    CANDIDATES,
    DEFAULT,
    MIN_GOLD,
    PRIOR_SD,
    RANGE,
    DependenceChoice,
    design_effect,
    most_probable,
)
from dissensus.models.dependence import DEPENDENCE as DEPENDENCE
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

LEVEL = 0.95


class NumberModel(Aggregator):
    """Answers about the items of a table of numbers: the value, how sure it is, and how each annotator rates."""

    dependence: DependenceChoice = DEPENDENCE

    kinds: ClassVar = ("numbers",)
    lacks: ClassVar = ("posterior_", "prior_", "tie_seed_", "shift_")
    takes_earlier: ClassVar = False
    values_: Annotated[FloatArray, "I real"]
    interval_: Annotated[FloatArray, "I 2 real"]
    bias_: Annotated[FloatArray, "A real"]  # how far its labels lie above the crowd's in the middle, in units of labels
    stretch_: Annotated[FloatArray, "A real"]  # how far its labels move where the crowd's move by one
    precision_: Annotated[FloatArray, "A real"]  # 1 / variance of what its labels have besides, as modelled
    item_total_: Annotated[FloatArray, "I count"]

    def fit(self, table: Any, *, gold: Any = None, earlier: Any = None, on_step: OnStep | None = None) -> Self:
        """Learn from a table of numbers.

        Parameters
        ----------
        table : Annotations of the kind "numbers"
        gold : (I,) float, optional
            Known values of some items, NaN where unknown: with 30 or more they say how far labels depend on each other.
        """
        if not isinstance(table, Annotations):
            raise DataError(
                f"{type(self).__name__} takes a table of annotations in memory, got {type(table).__name__}."
            )
        self._check_kind(table)
        if earlier is not None:
            raise DataError(f"{type(self).__name__} has no use for earlier counts of annotators; leave them out.")
        if table.n_annotations == 0:
            raise DataError("the table has no annotations; there is nothing to learn from.")
        self.check_parameters()
        self.items_, self.annotators_, self.classes_ = table.items, table.annotators, np.empty(0)
        self.n_annotations_ = table.per_annotator
        weight = table.row_weights
        self.total_ = np.bincount(table.annotator, weight, table.n_annotators).astype(np.float64)
        self.item_total_ = np.bincount(table.item, weight, table.n_items).astype(np.float64)
        if not weight.sum() > 0:
            raise DataError("all rows have the weight 0; there is nothing to learn from.")
        self._fit_numbers(table, weight, on_step or (lambda step, objective: None))
        mean, variance = self._posterior(table, np.arange(table.n_annotators))
        self.dependence_, self.dependence_interval_ = self._dependence(mean, variance, check_values(gold, table))
        self.values_, self.interval_ = self._answers(mean, variance, self.item_total_, LEVEL)
        return self

    def predict(self, table: Annotations | None = None) -> FloatArray:
        """(I,) the value of each item; of a new table, with what was learnt of known annotators."""
        self._check_fitted()
        return self.values_ if table is None else self._of(table, LEVEL)[0]

    def predict_interval(self, table: Annotations | None = None, level: float = LEVEL) -> FloatArray:
        """(I, 2) where the value lies with the probability `level`."""
        self._check_fitted()
        check_argument("level", level, float, above=0, below=1)
        if table is None and level == LEVEL:
            return self.interval_
        if table is None:
            raise BadParameter("an interval of another level needs the labels; give the table that was fitted.")
        return self._of(table, level)[1]

    def answers_for(self, table: Annotations) -> dict[str, Any]:
        """The results with one row per item, for the items of another table."""
        return {"values_": self.predict(table), "interval_": self.predict_interval(table)}

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """Numbers have no probabilities of classes; see `predict_interval`."""
        raise BadParameter("numbers have no probabilities of classes; predict_interval says how sure a value is.")

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """Numbers have no probabilities of labels."""
        return self.predict_proba(table)

    def _of(self, table: Annotations, level: float) -> tuple[FloatArray, FloatArray]:
        self._check_kind(table)
        known = naming.match(table.annotators, self.annotators_, "annotators")
        weight = table.row_weights
        n = np.bincount(table.item, weight, table.n_items).astype(np.float64)
        return self._answers(*self._posterior(table, known), n, level)

    def _answers(
        self, mean: FloatArray, variance: FloatArray, n: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray]:
        """(I,) values and (I, 2) intervals of a posterior, Gaussian on the scale that is modelled."""
        from scipy.special import ndtri

        half = ndtri((1 + level) / 2) * np.sqrt(variance * design_effect(n, self.dependence_))
        half = np.minimum(half, ndtri((1 + level) / 2) * self._prior_sd())  # no label says less than none
        value, plain = self._curves()
        low = np.minimum(value(mean - half), plain(mean - half))
        high = np.maximum(value(mean + half), plain(mean + half))
        return value(mean), np.stack([low, high], axis=1)

    def _dependence(self, mean: FloatArray, variance: FloatArray, gold: FloatArray | None) -> tuple[float, list[float]]:
        """ρ as asked for: given, or the one with which known values are most probable, drawn to the default."""
        if self.dependence != "auto":
            given = float(self.dependence or 0)
            return given, [given, given]
        if gold is None or np.count_nonzero(~np.isnan(gold)) < MIN_GOLD:
            return DEFAULT, list(RANGE)
        known = np.flatnonzero(~np.isnan(gold))
        value, _ = self._curves()
        grid = np.linspace(mean.min() - 4 * self._prior_sd(), mean.max() + 4 * self._prior_sd(), 1000)
        away = (np.interp(gold[known], value(grid), grid) - mean[known]) ** 2  # on the scale that is modelled
        scores = []
        for rho in CANDIDATES:
            wide = variance[known] * design_effect(self.item_total_[known], float(rho))
            pull = (np.log(rho / DEFAULT) / PRIOR_SD) ** 2
            scores.append(-0.5 * float((np.log(wide) + away / wide).sum()) - pull / 2)
        found = most_probable(scores)
        return found.dependence, list(found.interval)

    # What a method writes ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _fit_numbers(self, table: Annotations, weight: FloatArray, on_step: OnStep) -> None:
        """Set what is learnt of annotators, and `trace_`, `n_iter_`, `converged_`, `reliability_`."""

    @abstractmethod
    def _posterior(self, table: Annotations, known: IntArray) -> tuple[FloatArray, FloatArray]:
        """(I,) mean and variance of each item on the scale that is modelled; `known` (A,) codes, −1 unseen."""

    @abstractmethod
    def _curves(self) -> tuple[Callable[[FloatArray], FloatArray], Callable[[FloatArray], FloatArray]]:
        """From the scale that is modelled to labels: as annotators say on average, and as one would without error."""

    @abstractmethod
    def _prior_sd(self) -> float:
        """Standard deviation of the items on the scale that is modelled."""

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        raise NotImplementedError

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        raise NotImplementedError

    # What is said of it -----------------------------------------------------------------------------------------------

    def to_frame(self, kind: FrameKind = "items", backend: Literal["pandas", "polars", "pyarrow"] | None = None) -> Any:
        """Results with names: of "items" value, low and high (95 %), of "annotators" how each rates."""
        self._check_fitted()
        if kind == "items":
            columns = {"item": self.items_, "value": self.values_, "low": self.interval_[:, 0]}
            columns |= {"high": self.interval_[:, 1], "annotations": self.item_total_}
        elif kind == "annotators":
            columns = {"annotator": self.annotators_, "annotations": self.n_annotations_}
            columns |= {name: getattr(self, f"{name}_") for name in ("reliability", "bias", "stretch", "precision")}
        else:
            raise BadParameter(f"{type(self).__name__} models no confusion matrices; ask for 'items' or 'annotators'.")
        return as_frame(columns, backend)

    def item_frames(self) -> Iterator[Any]:
        """`to_frame("items")` as one Arrow table."""
        yield self.to_frame("items", "pyarrow")

    def reliability_interval(self, level: float = LEVEL) -> FloatArray:
        """(A, 2) bounds of each annotator's correlation with the truth: Fisher's z of so many labels."""
        from scipy.special import ndtri

        self._check_fitted()
        half = ndtri((1 + level) / 2) / np.sqrt(np.maximum(self.total_ - 3, 1))
        at = np.arctanh(np.minimum(self.reliability_, 1 - 1e-9))
        return np.asarray(np.clip(np.tanh(np.stack([at - half, at + half], axis=1)), 0, 1))

    def _check_fitted(self) -> None:
        from dissensus.exceptions import NotFitted

        if not hasattr(self, "values_"):
            raise NotFitted(f"this {type(self).__name__} is not fitted yet; call fit(table) first.")


def check_values(gold: Any, table: Annotations) -> FloatArray | None:
    """`gold` as floats (I,), NaN where unknown; None where nothing is known."""
    if gold is None:
        return None
    values = unmasked(gold, np.nan)
    if values.shape != (table.n_items,) or values.dtype.kind not in "iuf":
        raise DataError(
            f"gold must hold one number per item, {table.n_items} in all, NaN where unknown; got {values.dtype} of "
            f"shape {values.shape}. `table.gold_values(item, value)` makes it from names."
        )
    values = values.astype(np.float64)
    return values if np.isfinite(values).any() else None
