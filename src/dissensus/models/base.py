"""The contract of every aggregation method, which follows scikit-learn's conventions.

`__init__` stores its keywords, `fit` checks them and estimates the parameters, and the names of results end in `_`.
Every fitted model has `classes_`, `items_`, `annotators_`, `posterior_` (I, K), `reliability_` (A,), `trace_`,
`n_iter_` and `converged_`. Methods that model them also have `prior_` (K,), `confusion_` (A, K, K) [annotator, true,
given] and `difficulty_` (I,). `hits_` (A,) is the expected weight of each annotator's correct labels and `total_` (A,)
the weight of all labels of the annotator; intervals of the reliability are computed from both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from dissensus.common.parameters import Parameters, param
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names, OnStep
from dissensus.compute.rows import expand_rows
from dissensus.models import confidence, fitting, frames, incremental
from dissensus.models import likelihoods as expectations
from dissensus.models.earlier_counts import EarlierCounts
from dissensus.models.exceptions import ChosenModel, ModelNotFitted
from dissensus.models.fitting import check_gold
from dissensus.models.frames import FrameKind, annotated_results, arg_max, item_columns
from dissensus.models.likelihoods import Likelihoods, put_given_label_first
from dissensus.models.registry import default_method, methods, methods_for
from dissensus.models.tempering import Tempering, labels_per_item
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS

__all__ = [
    "Aggregator",
    "EarlierCounts",
    "FrameKind",
    "Likelihoods",
    "annotated_results",
    "arg_max",
    "check_gold",
    "default_method",
    "item_columns",
    "methods",
    "methods_for",
    "put_given_label_first",
]  # fmt: skip


class Aggregator(Parameters, ABC):
    """Estimate the label of every item, with its confidence, and the reliability of every annotator.

    >>> from dissensus import Annotations, methods
    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(200, 12, 3, seed=1).annotations
    >>> model = methods["dawid-skene"](seed=0).fit(table)
    >>> model.posterior_.shape, model.predict()[:3].tolist(), model.predict_proba().shape
    ((200, 3), [0, 2, 2], (200, 3))
    >>> print(model.mean_effective_labels())
    Annotators tend to make the same mistakes, so 5.0 labels of an item carry the evidence of about 1.5 independent ones (1.0 to 3.3).
    >>> model.weights_, model.chosen_.partition(".")[0], model.effective_labels_.shape
    ({'dawid-skene': 1.0}, 'DawidSkene', (200,))
    >>> new = Annotations.from_arrays([200, 200], [0, 5], [1, 1])
    >>> model.predict(new).tolist(), model.predict_annotations(table).shape, model.partial_fit(new).items_.size
    ([1], (1000, 3), 201)
    >>> model.reliability_interval().shape, model.confusion_interval().shape, model.annotator_confusions(np.array([0, -1])).shape
    ((12, 2), (12, 3, 3, 2), (2, 3, 3))
    >>> model.tempering.dependence, model.untempered_posterior().shape, model.results()["prior_"]
    (0.6, (201, 3), 'K simplex')
    >>> list(model.to_frame("annotators"))[:3], next(model.item_frames()).num_rows
    (['annotator', 'annotations', 'reliability'], 201)
    """  # noqa: E501 - the output of a doctest

    seed: int | None = param(0, "seed of all random draws; None draws a seed", low=0)

    classes_: Annotated[Names, "K names"]
    items_: Annotated[Names, "I names"]
    annotators_: Annotated[Names, "A names"]
    posterior_: Annotated[FloatArray, "I K simplex"]
    prior_: Annotated[FloatArray, "K simplex"]
    reliability_: Annotated[FloatArray, "A share?"]
    hits_: Annotated[FloatArray, "A count"]  # expected weight of each annotator's correct labels
    total_: Annotated[FloatArray, "A count"]  # weight of all labels of each annotator
    n_annotations_: Annotated[IntArray, "A count"]  # number of rows of each annotator
    trace_: Annotated[FloatArray, "T any"]
    n_iter_: Annotated[int, "whole"]
    converged_: Annotated[bool, "flag"]
    items_path_: str  # folder of Parquet files with the frame of the items, set by a fit on a disk
    item_total_: Annotated[FloatArray, "optional I count"]  # weight of the labels of each item
    difficulty_: Annotated[FloatArray, "optional I real"]
    dependence_: Annotated[float, "number"] = 0.0  # ρ, the intra-item correlation; 0 if labels are independent
    dependence_interval_: Annotated[list[float], "2 count"]  # 95 % interval of ρ: low, high
    shift_: Annotated[FloatArray | None, "optional K real"] = None  # shift of the log posterior, or None
    damping_: Annotated[FloatArray | None, "optional K real"] = (
        None  # log h, which damps rare classes; see `models.tempering`
    )
    tie_seed_: Annotated[int, "whole"]
    class_counts_: FloatArray  # (K,) expected items of each class, if the method learns class shares

    missing_results: ClassVar[tuple[str, ...]] = ()  # results that this method does not have
    kinds: ClassVar[tuple[str, ...]] = CLASS_KINDS  # supported label types, see `table.kinds`
    takes_earlier: ClassVar[bool] = True
    labels_depend_on_items: ClassVar[bool] = False  # True if labels depend on the item beyond its class
    models_annotators: ClassVar[bool] = True  # False if all annotators are treated equally
    max_rows_in_memory: ClassVar[int] = 0  # maximum number of rows of a remote table that is fitted in memory
    _default_correlation = False  # True if ρ is the default, neither given nor learnt from gold

    fit = fitting.fit
    partial_fit = incremental.partial_fit

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """Return P(class | annotations of the item), (I, K), in the order of `classes_`.

        Without a table, return the posterior of the fitted items. In another table, fitted annotators keep their
        estimated parameters, unseen annotators get those of the population, and an item without annotations gets the
        prior. A class that was not fitted raises an error.
        """
        self._check_fitted()
        if table is None:
            return self.posterior_
        table = table.with_classes(self.classes_)
        annotators = naming.match_names(table.annotators, self.annotators_, "annotators")
        table = self._reweight(table, annotators)
        posterior, rows = self._compute_posterior(table, annotators), expand_rows(table)
        return self.tempering.temper(posterior, labels_per_item(rows.item_ptr, rows.weight))

    def predict(self, table: Annotations | None = None) -> Names:
        """Return the most probable class of each item, (I,); ties are broken by draws keyed on seed and item name."""
        posterior = np.asarray(self.predict_proba(table))
        items = np.asarray(self.items_) if table is None else table.items
        return self.classes_[arg_max(posterior, items, self.classes_, self.tie_seed_)]

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """Return P(label | item, annotator) for each row of a table, (N, K).

        The class of an item is inferred from the fitted labels, not from those of `table`, so that held-out rows can
        be predicted. For new items the prior is used, and for unseen annotators the parameters of the population.
        """
        self._check_fitted()
        table = table.with_classes(self.classes_)
        item = naming.match_names(table.items, np.asarray(self.items_), "items")[table.item]
        annotator = naming.match_names(table.annotators, self.annotators_, "annotators")[table.annotator]
        posterior = self.posterior_[item]
        if self.dependence_:  # shared mistakes are repeated, so labels follow the untempered posterior
            posterior = self.tempering.untemper(posterior, self.item_total_[item])
        return self._label_probabilities(np.where((item >= 0)[:, None], posterior, self.prior_), item, annotator)

    # Confidence, frames and expectations

    @property
    def tempering(self) -> Tempering:
        """The tempering that turns the posterior of independent labels into `posterior_`."""
        interval = tuple(getattr(self, "dependence_interval_", (0.0, 0.0)))
        return Tempering(self.dependence_, interval, self.shift_, self.damping_, self._default_correlation)

    @tempering.setter
    def tempering(self, new: Tempering) -> None:
        self.dependence_, self.dependence_interval_, self._default_correlation = (
            new.dependence,
            list(new.interval),
            new.is_default,
        )
        self.shift_, self.damping_ = new.shift, new.damping

    def untempered_posterior(self) -> FloatArray:
        """Return the posterior (I, K) that independent labels would have."""
        if not self.dependence_:
            return self.posterior_
        return self.tempering.untemper(np.asarray(self.posterior_), np.asarray(self.item_total_))

    effective_labels_ = property(confidence.effective_labels)
    mean_effective_labels = confidence.mean_effective_labels
    reliability_interval = confidence.reliability_interval
    confusion_interval = confidence.confusion_interval

    @property
    def weights_(self) -> dict[str, float]:
        """The weight of each method in the answers."""
        self._check_fitted()
        return {methods.get_name(type(self)): 1.0}

    @property
    def chosen_(self) -> str:
        """A sentence that describes the model behind the answers."""
        return str(ChosenModel(methods=(type(self).__name__,), groups=0, effective=self.mean_effective_labels()))

    likelihoods = expectations.likelihoods
    to_frame = frames.to_frame
    item_frames = frames.item_frames
    _frame_columns = frames.frame_columns
    _repr_html_ = frames.to_html

    @property
    def item_columns(self) -> Callable[[Names, FloatArray, FloatArray | None], dict[str, Any]]:
        """A function that returns the item columns, given names, posterior and difficulty, without the model."""
        return partial(item_columns, self.classes_, self.tie_seed_)

    @classmethod
    def results(cls) -> dict[str, str]:
        """Return the declared axes and range of every result; `models.saving.RANGES` lists the ranges."""
        return {name: about for name, about in annotated_results(cls).items() if name not in cls.missing_results}

    # Defined by a method

    @abstractmethod
    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        """Estimate the parameters and set every result except the names."""

    def _check_gold(self, gold: Any, table: Any) -> Any:
        return check_gold(gold, table)

    def _reweight(self, table: Annotations, annotators: IntArray) -> Annotations:
        """Return the table with the method's label weights; `annotators` (A,) are fitted codes, −1 if unseen."""
        return table

    def _unseen_annotator_values(self) -> dict[str, Any]:
        """Return, for each result with one row per annotator, the row that an unseen annotator gets."""
        return {}

    def _partial_update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """Update the model with the rows of a new table and return the posterior (I, K) of its items.

        `item` and `annotator` map the table's items and annotators to codes of the model, and `old` marks items that
        were fitted before. Replace results with one row per annotator; do not write into their arrays.
        """
        raise NotImplementedError

    def _count_agreement(self, table: Annotations, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return each annotator's expected weight of correct labels under a posterior (I, K), and of all labels."""
        return table.count_correct_labels(posterior)

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        """Return the confusion matrices (n, K, K) [annotator, true, given]; −1 is the code of unseen annotators."""
        if not hasattr(self, "population_confusion_"):
            raise NotImplementedError  # labels depend on items, or the method is a vote
        everyone = np.concatenate([self.confusion_, self.population_confusion_[None]])  # type: ignore[attr-defined]
        return everyone[annotators]  # code −1 selects the last row, the population

    def confusion_support(self) -> FloatArray | None:
        """Return the number of labels behind each entry of `confusion_`, or None if labels are not counted by class."""
        return None

    _compute_posterior = expectations.compute_posterior
    _label_probabilities = expectations.label_probabilities
    _estimate_tempering = fitting.estimate_tempering
    _open_engine = fitting.open_engine
    _warn_unconverged = fitting.warn_unconverged

    def _set_reliability(self, hits: FloatArray, total: FloatArray) -> None:
        """Set the annotators' reliability, given the weight of their correct labels and of all labels, (A,)."""
        self.hits_, self.total_ = np.minimum(hits, total), total
        self.reliability_ = confidence.shrink_reliability(hits, total)

    def _per_item_results(self) -> list[str]:
        """Return the names of the results with one row per item, except `items_`."""
        names = (key for key, about in self.results().items() if about.removeprefix("optional ").startswith("I "))
        return [key for key in names if key in vars(self) and key != "items_"]

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_iter_"):
            raise ModelNotFitted(method=type(self).__name__)
