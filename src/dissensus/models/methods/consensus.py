"""Consensus: the default method, Dawid-Skene with corrections for copied labels, dependent labels and uneven classes.

Use it first. Choose another method only if the page of that method gives a reason that applies to your labels.

The labels pass through four stages:

1. *Collapse copies* (`models.collapse`). Labels of a group of copying annotators count once per item, and so do
   repeated labels of one annotator.
2. *Choose or pool models* (`models.pooling`). The model is `dawid-skene`; for items with many labels it is
   `hierarchical-dawid-skene`, alone or pooled with `item-effect`.
3. *Temper* (`models.tempering`). Labels of one item are not independent given its class. Without gold, n labels per
   item carry the evidence of n^(1 − γ) independent labels with γ = 0.77, which gives the intra-item correlation ρ =
   (n^γ − 1) / (n − 1): 0.71 with two labels, 0.61 with five, 0.54 with ten. A pool has its own correlation.
4. *Class shares* (`models.class_shares`). Classes are assumed to be equally frequent unless the labels clearly
   support other shares, because with few labels per item a rare class looks like a class that annotators seldom name.

Tables of up to 2²⁵ labels (33.6 million) are fitted in memory, whatever the engine. Longer tables pass through stages 3
and 4 only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice, open_in_memory
from dissensus.compute.rows import expand_rows
from dissensus.models.base import Aggregator, default_method, methods
from dissensus.models.class_shares import UniformPriorDawidSkene
from dissensus.models.collapse import collapse, copy_groups
from dissensus.models.confusion import expected_label_counts
from dissensus.models.em import Accelerate
from dissensus.models.exceptions import ChosenModel
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.pooling import DESIGN_EFFECT_POWER, KEPT_RESULTS, ModelPool, fit_pool, pool_posteriors
from dissensus.models.tempering import CORRELATION_INTERVAL, DependenceChoice, Tempering, labels_per_item
from dissensus.table.annotations import Annotations

MAX_PIPELINE_ROWS = 2**25  # maximum number of rows for all stages; 0.25 GB
INHERITED_PARAMETERS: dict[str, Any] = dict(DawidSkene.declared())


@methods.register(
    "consensus", summary="the default: Dawid-Skene in which copies count once; with many labels, a pool of two models",
    cite="Dawid & Skene 1979", place=-1,
)  # fmt: skip
class Consensus(Aggregator):
    """Aggregate labels by Dawid-Skene with copies counted once, or by a pool of two models."""

    max_iter: int = INHERITED_PARAMETERS["max_iter"]
    tol: float = INHERITED_PARAMETERS["tol"]
    accelerate: Accelerate = INHERITED_PARAMETERS["accelerate"]
    restarts: int = INHERITED_PARAMETERS["restarts"]
    dependence: DependenceChoice = INHERITED_PARAMETERS["dependence"]
    threads: int | None = INHERITED_PARAMETERS["threads"]
    engine: EngineChoice = INHERITED_PARAMETERS["engine"]
    crowd_labels: float = INHERITED_PARAMETERS["crowd_labels"]
    smoothing: float = INHERITED_PARAMETERS["smoothing"]
    least_labels: float = INHERITED_PARAMETERS["least_labels"]
    class_count: float = INHERITED_PARAMETERS["class_count"]
    vote_count: float = INHERITED_PARAMETERS["vote_count"]

    confusion_: FloatArray
    copy_group_: Annotated[IntArray, "A code:A"]  # group of copying annotators, −1 without a group
    member_weights_: Annotated[FloatArray | None, "optional 2 simplex"] = None  # weights of the pool; None without one
    concentration_: Annotated[FloatArray | None, "optional A K K count"] = None  # γ of `hierarchical-dawid-skene`
    population_: Annotated[FloatArray | None, "optional K K count"] = None
    theta_: Annotated[FloatArray | None, "optional A K K real"] = None  # θ of `item-effect`
    loading_: Annotated[FloatArray | None, "optional K real"] = None
    population_theta_: Annotated[FloatArray | None, "optional K K real"] = None

    max_rows_in_memory = MAX_PIPELINE_ROWS

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        self.copy_group_ = np.full(self.annotators_.size, -1)
        n_items = self.items_.size  # the table's further items represent earlier counts
        pool = ModelPool(table.n_annotations / table.n_items)
        if isinstance(table, Annotations) and len(table) <= MAX_PIPELINE_ROWS:
            new = table if table.n_items == n_items else table.select(rows=table.item < n_items)
            self.copy_group_ = copy_groups(new)
            table = self._reweight(table, np.arange(table.n_annotators))
            rows = expand_rows(table)
            total = labels_per_item(rows.item_ptr, rows.weight)[:n_items]
            pool = fit_pool(table, gold, total, self.get_params(), on_step)
        self._temper_by_labels(pool)
        self._keep_pool_results(pool)
        model = self._as_dawid_skene(pool.n)
        if pool.members:
            self._set_pool_results(pool, model, table, gold)
        else:
            model._fit(table, gold, on_step)
            self._copy_results(model)

    def _temper_by_labels(self, pool: ModelPool) -> None:
        """Set ρ, which depends on the mean number of labels per item, unless it is given or learnt from gold."""
        if self._default_correlation:
            rho = (pool.design_effect - 1) / (pool.n - 1) if pool.n > 1 else DESIGN_EFFECT_POWER
            low, high = CORRELATION_INTERVAL
            self.tempering = Tempering(rho, (min(low, rho), high), is_default=True)

    def _keep_pool_results(self, pool: ModelPool) -> None:
        """Keep the results of the pooled models with which new tables are scored; without a pool they are None."""
        self.member_weights_ = pool.weights if pool.members else None
        for kind, names in KEPT_RESULTS.items():
            member = next((one for one in pool.members if isinstance(one, kind)), None)
            for name in names:
                setattr(self, name, None if member is None else getattr(member, name))

    def _set_pool_results(
        self, pool: ModelPool, model: UniformPriorDawidSkene, table: Annotations, gold: IntArray | None
    ) -> None:
        """Set the results of the pool; its confusion matrices follow from its posterior."""
        with open_in_memory(table, gold, self.threads) as engine:
            model._prepare(engine)
        last, members = pool.members[-1], pool.members
        self.trace_, self.n_iter_, self.converged_ = last.trace_, last.n_iter_, all(m.converged_ for m in members)
        self.prior_ = np.mean([member.prior_ for member in members], axis=0)
        self.posterior_ = self._compute_posterior(table, np.arange(table.n_annotators))
        if gold is not None:
            self.posterior_[gold >= 0] = np.eye(self.prior_.size)[gold[gold >= 0]]
        model.label_counts_, model.class_counts_ = (
            expected_label_counts(table, self.posterior_),
            self.posterior_.sum(axis=0),
        )
        free = replace(model.initial_params(self.prior_), uniformity=np.zeros(1))
        model._set_params(model.m_step(model.label_counts_, model.label_totals_, free))
        model.set_derived_results()
        self._copy_results(model)

    def _as_dawid_skene(self, n: float | None = None) -> UniformPriorDawidSkene:
        """Return a `UniformPriorDawidSkene` with the parameters and results of this model."""
        model = UniformPriorDawidSkene(labels_per_item=n, **self.get_params())
        vars(model).update({name: value for name, value in vars(self).items() if name.endswith("_")})
        model.shares_are_free, model._default_correlation = self.member_weights_ is not None, self._default_correlation
        return model

    def _copy_results(self, model: UniformPriorDawidSkene) -> None:
        """Copy the results of a Dawid-Skene model to this one."""
        vars(self).update({name: value for name, value in vars(model).items() if name.endswith("_")})

    @classmethod
    def results(cls) -> dict[str, str]:
        """Return the axes and range of every result, including those of Dawid-Skene."""
        return UniformPriorDawidSkene.results() | super().results()

    def _reweight(self, table: Annotations, annotators: IntArray) -> Annotations:
        # Code −1, an unseen annotator, takes the last entry.
        return collapse(table, np.append(self.copy_group_, -1)[annotators])

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        if self.member_weights_ is None:
            return self._as_dawid_skene()._compute_posterior(table, annotators)
        posteriors, weights = [], []
        for (kind, names), weight in zip(KEPT_RESULTS.items(), self.member_weights_, strict=True):
            if weight:
                member = kind()
                for name in ("prior_", *names):
                    setattr(member, name, getattr(self, name))
                posteriors.append(member._compute_posterior(table, annotators))
                weights.append(weight)
        return pool_posteriors(posteriors, np.array(weights))

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        return self._as_dawid_skene().annotator_confusions(annotators)

    def confusion_support(self) -> FloatArray | None:
        return self._as_dawid_skene().confusion_support()

    def _unseen_annotator_values(self) -> dict[str, Any]:
        pool = {"concentration_": self.population_, "theta_": self.population_theta_, "copy_group_": -1}
        own = {name: value for name, value in pool.items() if value is not None}
        return self._as_dawid_skene()._unseen_annotator_values() | own

    def _partial_update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        model = self._as_dawid_skene()
        posterior = model._partial_update(table, item, annotator, old, gold)
        self._copy_results(model)
        return posterior

    @property
    def weights_(self) -> dict[str, float]:
        """Return the methods from whose models the answers are computed, with the weight of each."""
        self._check_fitted()
        if self.member_weights_ is None:
            return {"dawid-skene": 1.0}
        weights = zip(KEPT_RESULTS, self.member_weights_.tolist(), strict=True)
        return {methods.get_name(kind): weight for kind, weight in weights if weight}

    @property
    def chosen_(self) -> str:
        """Describe the models from which the answers are computed."""
        groups = int(np.unique(self.copy_group_[self.copy_group_ >= 0]).size)
        return str(ChosenModel(methods=tuple(self.weights_), groups=groups, effective=self.mean_effective_labels()))


def consensus(table: Annotations, *, gold: IntArray | None = None, seed: int | None = 0) -> Aggregator:
    """Fit the default method, which estimates labels with calibrated confidence and the reliability of annotators.

    Parameters
    ----------
    table : Annotations
        The labels, of any label type.
    gold : (I,) int, optional
        Known classes of items as codes into `table.classes`, −1 where unknown.
    seed : int, optional
        Seed of all random draws; None draws a seed.

    Returns
    -------
    Aggregator
        The fitted default model of the table's label type: `consensus` for classes.

    Examples
    --------
    >>> from dissensus import consensus
    >>> from dissensus.table.simulate import simulate
    >>> best = consensus(simulate(200, 12, 3, seed=1).annotations)
    >>> best.predict()[:3].tolist(), best.weights_
    ([0, 2, 2], {'dawid-skene': 1.0})
    """
    kind = table.kind if isinstance(table, Annotations) else "classes"  # `fit` raises an error for other types
    return methods[default_method(kind)](seed=seed).fit(table, gold=gold)
