"""The contract of methods whose truth is a number: `values_` (I,), `interval_` (I, 2), and no classes.

After `fit` there are `items_`, `annotators_`, `values_`, `interval_` (95 %), `reliability_` (A,) (the correlation of an
annotator's labels with the truth, 0 where it is negative), `bias_`, `stretch_`, `precision_` (A,), `trace_`, `n_iter_`,
`converged_`, `dependence_`. Labels of one item are not independent given its truth: the variance of a posterior is
multiplied by the design effect of `models.dependence`, with the ρ of classes where no gold says more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dissensus.common.arrays import unmasked
from dissensus.common.frames import as_frame
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.answers import AnswerModel, dependence_by
from dissensus.models.base import FrameKind
from dissensus.models.dependence import DEPENDENCE, MIN_GOLD, Calibration, DependenceChoice, design_effect
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

LEVEL = 0.95


class NumberModel(AnswerModel):
    """Answers about the items of a table of numbers: the value, how sure it is, and how each annotator rates."""

    dependence: DependenceChoice = DEPENDENCE

    kinds: ClassVar = ("numbers",)
    lacks: ClassVar = ("posterior_", "prior_")
    tie_seed_: Annotated[int, "optional whole"]
    values_: Annotated[FloatArray, "I real"]
    interval_: Annotated[FloatArray, "I 2 real"]
    bias_: Annotated[FloatArray, "A real"]  # how far its labels lie above the crowd's in the middle, in units of labels
    stretch_: Annotated[FloatArray, "A real"]  # how far its labels move where the crowd's move by one
    precision_: Annotated[FloatArray, "A real"]  # 1 / variance of what its labels have besides, as modelled
    item_total_: Annotated[FloatArray, "I count"]

    def _fit(self, table: Annotations, gold: Any, on_step: OnStep) -> None:
        """`gold` (I,) are values, NaN where unknown: 30 or more say how far labels depend on each other."""
        self.classes_, weight = np.empty(0), table.row_weights
        if not weight.sum() > 0:
            raise DataError("all rows have the weight 0; there is nothing to learn from.")
        self.total_ = np.bincount(table.annotator, weight, table.n_annotators).astype(np.float64)
        self.item_total_ = np.bincount(table.item, weight, table.n_items).astype(np.float64)
        self._fit_numbers(table, weight, on_step)
        mean, variance = self._posterior(table, np.arange(table.n_annotators))
        if gold is not None:
            self._learn_dependence(mean, variance, gold)
        self.values_, self.interval_ = self._answers(mean, variance, self.item_total_, LEVEL)

    def _check_gold(self, gold: Any, table: Any) -> FloatArray | None:
        return check_values(gold, table)

    def _calibrate(self, data: Any, gold: Any, earlier: Any) -> Calibration:
        return super()._calibrate(data, None, earlier)  # values are known after the fit

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

    def _learn_dependence(self, mean: FloatArray, variance: FloatArray, gold: FloatArray) -> None:
        """Set ρ to the one with which known values are most probable, drawn to the default, unless it is given."""
        known = np.flatnonzero(~np.isnan(gold))
        if self.dependence != "auto" or known.size < MIN_GOLD:
            return
        value, _ = self._curves()
        grid = np.linspace(mean.min() - 4 * self._prior_sd(), mean.max() + 4 * self._prior_sd(), 1000)
        away = (np.interp(gold[known], value(grid), grid) - mean[known]) ** 2  # on the scale that is modelled

        def fit(rho: float) -> float:
            wide = variance[known] * design_effect(self.item_total_[known], rho)
            return -0.5 * float((np.log(wide) + away / wide).sum())

        found = dependence_by(fit)
        self.dependence_, self.dependence_interval_ = found.dependence, list(found.interval)

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

    def about_answers(self, gold: Any = None) -> dict[str, Any]:
        """Quantiles of the values, the mean width of their intervals; mean absolute error and cover of known values."""
        from dissensus.evaluation import bootstrap

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

    def reliability_interval(self, level: float = LEVEL) -> FloatArray:
        """(A, 2) bounds of each annotator's correlation with the truth: Fisher's z of so many labels."""
        from scipy.special import ndtri

        self._check_fitted()
        half = ndtri((1 + level) / 2) / np.sqrt(np.maximum(self.total_ - 3, 1))
        at = np.arctanh(np.minimum(self.reliability_, 1 - 1e-9))
        return np.asarray(np.clip(np.tanh(np.stack([at - half, at + half], axis=1)), 0, 1))


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
