"""Choose one model, or pool two, for items with many labels.

Where items have many labels, confusion matrices that are free to be anything explain too much: a class that no label
names may become the name of hard items. Then the answers are those of `hierarchical-dawid-skene`, whose matrices are
like those of the crowd, pooled with those of `item-effect`, in which an item may be easy or hard for every annotator:

    q_i(c) ∝ h_i(c)^w e_i(c)^(1 − w)        w = d_e / (d_h + d_e)        d_h = n^γ        d_e = n^ε

h and e are their posteriors, n the mean number of labels per item, and ε = `EFFECT_POWER` describes what labels share
beyond the item's class and ease. The pool's design effect is the harmonic mean of d_h and d_e, so it is the geometric
mean of the two models, each tempered by its own. Neither alone is as good on sets that it was not chosen on
(`benchmarks/trust`).

Items have many labels if they have `PANEL_LABELS` on average, or `MIN_LABELS` and the item effect is visible (mean |λ|
≥ `MIN_LOADING`; in crowds that err independently it is 0). `item-effect` mistakes annotators who err in groups for easy
and hard items: it is left out if the two disagree on more than `MAX_DISAGREEMENT` of the labels, if it would take too
long (`MAX_COST`), or if there are few items. Beyond `MAX_CELLS` there is no pool.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.models.methods.hierarchical_dawid_skene import HierarchicalDawidSkene
from dissensus.models.methods.item_effect import ItemEffect
from dissensus.table.annotations import Annotations

PANEL_LABELS = 8  # mean annotators per item from which two models are pooled
MIN_LABELS = 4.5  # mean annotators per item with which an item effect may be visible; "five" with a few missing
MIN_LOADING = 0.3  # mean |λ| from which it is; 0.0 to 0.2 and 0.6 to 1.6 on twelve sets with five labels
MAX_DISAGREEMENT = 0.15  # share of the labels; at most 0.15 on real panels, 0.2 to 0.3 in simulated ones of families
MAX_SAMPLE_ROWS = 50_000  # labels, of some items, in which an effect is looked for first
MIN_ITEMS = 100  # labelled items needed to learn an effect
CELL_COST = 20  # cost of a cell of a confusion matrix, in rows × classes
MAX_CELLS = 2**20  # cells of all confusion matrices; `hierarchical-dawid-skene` takes 0.4 s a pass over that many
MAX_COST = 2**25  # rows × classes × points, cells at their cost: about a second
POWER = 0.77  # γ; log loss over 12 sets is level from 0.74 to 0.8
EFFECT_POWER = 0.57  # ε; log loss over six sets is level from 0.5 to 0.6, leaving out any
MIN_PROBABILITY = 1e-300  # least probability whose logarithm is taken

KEPT_RESULTS: dict[type[Any], tuple[str, ...]] = {
    HierarchicalDawidSkene: ("concentration_", "population_"),
    ItemEffect: ("theta_", "loading_", "population_theta_"),
}
"""The models of the pool, and the results that are kept to score new tables."""


@dataclass(frozen=True)
class ModelPool:
    """The fitted models, with weights; empty if items have too few labels."""

    n: float  # mean number of labels per item
    members: list[Any] = field(default_factory=list)

    @property
    def weights(self) -> FloatArray:
        """(2,) w and 1 − w."""
        crowd, effect = self.n**POWER, self.n**EFFECT_POWER
        return np.array([effect / (crowd + effect), crowd / (crowd + effect)] if len(self.members) == 2 else [1.0, 0.0])

    @property
    def design_effect(self) -> float:
        """The design effect of n labels."""
        crowd, effect = self.n**POWER, self.n**EFFECT_POWER
        return float(2 * crowd * effect / (crowd + effect) if len(self.members) == 2 else crowd)


def fit_pool(
    table: Annotations, gold: IntArray | None, total: FloatArray, keywords: dict[str, Any], on_step: OnStep
) -> ModelPool:
    """Return the models of the pool, fitted with these keywords; `total` (I,) are the labels of the new items."""
    labelled, annotators = np.count_nonzero(total), mean_annotators(table, total)
    n = float(total.sum() / max(labelled, 1))
    if table.n_classes == 1 or table.n_annotators * table.n_classes**2 > MAX_CELLS:
        return ModelPool(n)
    many, effect = annotators >= PANEL_LABELS, None
    if annotators >= MIN_LABELS and labelled >= MIN_ITEMS:
        effect = fit_visible_effect(table, gold, many, keywords, on_step)
    if effect is None and not many:
        return ModelPool(n)
    passes = 0 if effect is None else effect.n_iter_
    crowd = pool_member(HierarchicalDawidSkene, keywords)
    crowd.fit(table, gold=gold, on_step=lambda step, value: on_step(passes + step, value))
    if effect is not None:
        differs = effect.posterior_.argmax(axis=1) != crowd.posterior_.argmax(axis=1)
        if np.count_nonzero(differs[: total.size]) <= MAX_DISAGREEMENT * labelled:
            return ModelPool(n, [crowd, effect])
    return ModelPool(n, [crowd] if many else [])


def fit_visible_effect(
    table: Annotations, gold: IntArray | None, many: bool, keywords: dict[str, Any], on_step: OnStep
) -> Any:
    """Return `item-effect` fitted to the table; None if it costs too much, or no effect is visible."""
    effect = pool_member(ItemEffect, keywords)
    cost = (len(table) + CELL_COST * table.n_annotators * table.n_classes) * table.n_classes * effect.points
    if cost > MAX_COST:
        return None
    if not many and len(table) > MAX_SAMPLE_ROWS:  # most large tables show none: look at a sample of the items first
        sample = np.arange(table.n_items) % (-(-len(table) // MAX_SAMPLE_ROWS)) == 0
        effect.fit(table.select(items=sample), gold=None if gold is None else gold[sample])
        if not is_visible(effect):
            return None
    effect.fit(table, gold=gold, on_step=on_step)
    return effect if many or is_visible(effect) else None


def pool_member(kind: type[Any], keywords: dict[str, Any]) -> Any:
    """Return a model of the pool, not fitted, with the keywords that it takes."""
    return kind(**{name: keywords[name] for name in kind.parameter_names() if name in keywords} | {"dependence": None})


def is_visible(effect: Any) -> bool:
    """Return whether the loading is more than chance makes it in crowds that err independently."""
    return bool(np.abs(effect.loading_) @ effect.prior_ >= MIN_LOADING)


def mean_annotators(table: Annotations, total: FloatArray) -> float:
    """Return the mean number of annotators per item; copies count once, and repeated labels not at all."""
    item, annotator = table.item[table.by_annotator], table.annotator[table.by_annotator]  # repeats are adjacent
    pairs = len(table) - np.count_nonzero((np.diff(item) == 0) & (np.diff(annotator) == 0))
    return min(float(pairs), float(total.sum())) / max(int(np.count_nonzero(total)), 1)


def pooled_posterior(posteriors: list[FloatArray], weights: FloatArray) -> FloatArray:
    """(I, K) the geometric mean of posteriors."""
    logs: Any = 0.0
    for posterior, weight in zip(posteriors, weights, strict=True):
        logs = logs + weight * np.log(np.maximum(posterior, MIN_PROBABILITY))
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
