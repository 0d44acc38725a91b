"""Choose one model, or pool two, for items with many labels.

If items have many labels, unrestricted confusion matrices overfit: a class that no annotator uses may describe hard
items. Then the posterior of `hierarchical-dawid-skene`, whose matrices are shrunk to the crowd's, is pooled with that
of `item-effect`, in which an item may be easy or hard for all annotators:

    q_i(c) ∝ h_i(c)^w e_i(c)^(1 − w)        w = d_e / (d_h + d_e)        d_h = n^γ        d_e = n^ε

h and e are the two posteriors, n is the mean number of labels per item, and ε = `ITEM_EFFECT_POWER` describes the
dependence of labels given the item's class and easiness. The pool's design effect is the harmonic mean of d_h and d_e,
so the pool is the geometric mean of the two tempered posteriors. On held-out data sets the pool is better than either
model (`benchmarks/trust`).

Items have many labels if their mean number is at least `MIN_LABELS_FOR_POOL`, or if it is at least
`MIN_LABELS_FOR_EFFECT` and the item effect is visible (mean |λ| ≥ `MIN_VISIBLE_LOADING`; λ is 0 if annotators err
independently). Groups of annotators with
the same errors look like easy and hard items to `item-effect`. Therefore it is excluded if the two models disagree on
more than `MAX_DISAGREEMENT` of the items. It is also excluded if it would take too long (`MAX_EFFECT_COST`) or if there
are few items. No pool is used if all confusion matrices have more than `MAX_MATRIX_ENTRIES` entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.models.methods.hierarchical_dawid_skene import HierarchicalDawidSkene
from dissensus.models.methods.item_effect import ItemEffect
from dissensus.table.annotations import Annotations

MIN_LABELS_FOR_POOL = 8  # minimum mean number of annotators per item for a pool
MIN_LABELS_FOR_EFFECT = 4.5  # minimum mean number of annotators per item for a visible item effect
MIN_VISIBLE_LOADING = 0.3  # minimum visible mean |λ|; twelve data sets have 0.0 to 0.2 or 0.6 to 1.6
MAX_DISAGREEMENT = 0.15  # maximum share of items; real panels reach 0.15, simulated groups 0.2 to 0.3
MAX_SAMPLE_ROWS = 50_000  # maximum number of labels in the sample that is searched for an effect first
MIN_ITEMS_FOR_EFFECT = 100  # minimum number of labelled items to estimate an effect
MATRIX_ENTRY_COST = 20  # cost of a confusion matrix entry, relative to the cost of a row and class
MAX_MATRIX_ENTRIES = 2**20  # maximum number of entries of all confusion matrices; a pass then takes 0.4 s
MAX_EFFECT_COST = 2**25  # maximum cost of the item effect, in rows × classes × points; about 1 s
DESIGN_EFFECT_POWER = 0.77  # γ; log loss over 12 data sets is flat from 0.74 to 0.8
ITEM_EFFECT_POWER = 0.57  # ε; log loss over six data sets is flat from 0.5 to 0.6
MIN_PROBABILITY = 1e-300  # lower limit of probabilities, so that logarithms are finite

KEPT_RESULTS: dict[type[Any], tuple[str, ...]] = {
    HierarchicalDawidSkene: ("concentration_", "population_"),
    ItemEffect: ("theta_", "loading_", "population_theta_"),
}
"""The results of each model of the pool that are needed to score new tables."""


@dataclass(frozen=True)
class ModelPool:
    """The fitted models of the pool with their weights; empty if items have too few labels."""

    n: float  # mean number of labels per item
    members: list[Any] = field(default_factory=list)

    @property
    def weights(self) -> FloatArray:
        """The weights w and 1 − w, (2,)."""
        crowd, effect = self.n**DESIGN_EFFECT_POWER, self.n**ITEM_EFFECT_POWER
        return np.array([effect / (crowd + effect), crowd / (crowd + effect)] if len(self.members) == 2 else [1.0, 0.0])

    @property
    def design_effect(self) -> float:
        """The design effect for the mean number of labels."""
        crowd, effect = self.n**DESIGN_EFFECT_POWER, self.n**ITEM_EFFECT_POWER
        return float(2 * crowd * effect / (crowd + effect) if len(self.members) == 2 else crowd)


def fit_pool(
    table: Annotations, gold: IntArray | None, total: FloatArray, keywords: dict[str, Any], on_step: OnStep
) -> ModelPool:
    """Fit the models of the pool; `total` (I,) is the weight of the labels of each item of the table."""
    labelled, annotators = np.count_nonzero(total), mean_annotators_per_item(table, total)
    n = float(total.sum() / max(labelled, 1))
    if table.n_classes == 1 or table.n_annotators * table.n_classes**2 > MAX_MATRIX_ENTRIES:
        return ModelPool(n)
    many, effect = annotators >= MIN_LABELS_FOR_POOL, None
    if annotators >= MIN_LABELS_FOR_EFFECT and labelled >= MIN_ITEMS_FOR_EFFECT:
        effect = fit_visible_effect(table, gold, many, keywords, on_step)
    if effect is None and not many:
        return ModelPool(n)
    passes = 0 if effect is None else effect.n_iter_
    crowd = make_pool_member(HierarchicalDawidSkene, keywords)
    crowd.fit(table, gold=gold, on_step=lambda step, value: on_step(passes + step, value))
    if effect is not None:
        differs = effect.posterior_.argmax(axis=1) != crowd.posterior_.argmax(axis=1)
        if np.count_nonzero(differs[: total.size]) <= MAX_DISAGREEMENT * labelled:
            return ModelPool(n, [crowd, effect])
    return ModelPool(n, [crowd] if many else [])


def fit_visible_effect(
    table: Annotations, gold: IntArray | None, many: bool, keywords: dict[str, Any], on_step: OnStep
) -> Any:
    """Return a fitted `item-effect`, or None if it is too expensive or no effect is visible."""
    effect = make_pool_member(ItemEffect, keywords)
    cost = (len(table) + MATRIX_ENTRY_COST * table.n_annotators * table.n_classes) * table.n_classes * effect.points
    if cost > MAX_EFFECT_COST:
        return None
    if not many and len(table) > MAX_SAMPLE_ROWS:  # most large tables have no effect, so a sample is tested first
        sample = np.arange(table.n_items) % (-(-len(table) // MAX_SAMPLE_ROWS)) == 0
        effect.fit(table.select(items=sample), gold=None if gold is None else gold[sample])
        if not is_effect_visible(effect):
            return None
    effect.fit(table, gold=gold, on_step=on_step)
    return effect if many or is_effect_visible(effect) else None


def make_pool_member(kind: type[Any], keywords: dict[str, Any]) -> Any:
    """Return an unfitted model for the pool, with those of the keywords that it takes."""
    return kind(**{name: keywords[name] for name in kind.parameter_names() if name in keywords} | {"dependence": None})


def is_effect_visible(effect: Any) -> bool:
    """Return whether the loading is larger than in crowds whose annotators err independently."""
    return bool(np.abs(effect.loading_) @ effect.prior_ >= MIN_VISIBLE_LOADING)


def mean_annotators_per_item(table: Annotations, total: FloatArray) -> float:
    """Return the mean number of annotators per item; copying annotators count once, repeated labels do not count."""
    # Sorting by annotator makes repeated labels adjacent.
    item, annotator = table.item[table.by_annotator], table.annotator[table.by_annotator]
    pairs = len(table) - np.count_nonzero((np.diff(item) == 0) & (np.diff(annotator) == 0))
    return min(float(pairs), float(total.sum())) / max(int(np.count_nonzero(total)), 1)


def pool_posteriors(posteriors: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Return the weighted geometric mean (I, K) of posteriors."""
    logs: Any = 0.0
    for posterior, weight in zip(posteriors, weights, strict=True):
        logs = logs + weight * np.log(np.maximum(posterior, MIN_PROBABILITY))
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
