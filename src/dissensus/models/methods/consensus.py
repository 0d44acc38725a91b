"""The default: Dawid-Skene in which copies count once; with many labels of an item, a pool of two models.

Dawid & Skene's model, see `dawid-skene`, with five corrections of what it takes for granted. Labels of one item are
not independent given its class: the posterior is softened, see `models.dependence`, and without gold n labels of an
item, on average, are worth n^(1 − γ) independent ones, γ = `POWER`,

    ρ = (n^γ − 1) / (n − 1)        0.71 with two labels, 0.61 with five, 0.54 with ten

Labels that are copies say nothing new: a group that copies (`models.copies` finds it, without gold) shares one label on
every item, as do all labels that one annotator gives it,

    log q_i(c) = log π_c + Σ_j w_ij log Θ_j[c, y_ij] + const.        w_ij = 1 / members of j's group with a label on i

Somebody's label is checked by the n − 1 others of the item alone. So `crowd_labels` and `vote_count` of `dawid-skene`
are multiplied by n / (n − 1): where items have two labels, the crowd counts twice in every matrix. Few items say little
of anybody, so they are also multiplied by 1 + `UNKNOWN_ITEMS` / I, and what the crowd is like is drawn to an annotator
of whom nothing is known, by `UNKNOWN_LABELS` of each class.

A few labels of each item cannot tell a class that is rare from one that annotators seldom name. So classes are taken
to be equally frequent, and what the labels say against it must be worth its price (`models.even_classes`),

    π_c = e u_c + (1 − e) s_c      log p(e, s) = Σ_c b_c log s_c − (1 − e) · `UNEVEN_PRICE`·(Σ_c w_c − 1) log I

which tables of fewer than `MIN_PRICED_ITEMS` items pay in proportion: they cannot tell who names a class too often.

And where items have many labels, matrices that are free to be anything explain too much: a class that nobody names may
become the name of hard items. There the answers are those of `hierarchical-dawid-skene`, whose matrices are like those
of the crowd, pooled with those of `item-effect`, in which an item may be easy or hard for all:

    q_i(c) ∝ h_i(c)^w e_i(c)^(1 − w)        w = d_e / (d_h + d_e)        d_h = n^γ        d_e = n^ε

h and e are their posteriors, and ε = `EFFECT_POWER` is of what labels share beyond the item's class and ease. The pool
is softened by the harmonic mean of d_h and d_e, so it is the geometric mean of the two models, each softened by its
own. Neither alone is as good on sets that it was not chosen on (`benchmarks/trust`).

Items have many labels where they have `PANEL_MEAN_LABELS` on average, or `MIN_MEAN_LABELS` and the effect is seen (mean
|λ| ≥ `MIN_LOADING`; in crowds that err independently it is 0). `item-effect` takes annotators who err in groups for
easy and hard items. Where the two disagree on more than `MAX_CHANGED` of the labels, and where `item-effect` would take
too long (`MAX_COST`) or has few items, it is left out. Beyond `MAX_CELLS` there is no pool.

A table of at most `MAX_ROWS` labels is fitted in memory, wherever it is. A longer one gets Dawid-Skene alone, on every
engine: so the engine changes nothing.

Stacking the posteriors of 2 to 13 methods by how well they predict hidden labels was tried on 13 sets at 2, 5, 10 and
all labels: softened alike, no stack had less log loss than Dawid-Skene, and the most accurate gained 0.1 points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import numpy as np

from dissensus.common.formatting import count
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute.engines import in_memory
from dissensus.compute.engines.base import hard_rows
from dissensus.models.base import Aggregator, default_method, methods
from dissensus.models.confusion import SIMPLEX, Counts, Engine, moved, soft_counts
from dissensus.models.copies import find_copies
from dissensus.models.dependence import RANGE, labels_per_item
from dissensus.models.even_classes import FIRST_EVEN, EvenClasses, even_weights, learn_evenly, uneven_cost
from dissensus.models.matrices import expected_pseudo
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.methods.hierarchical_dawid_skene import HierarchicalDawidSkene
from dissensus.models.methods.item_effect import ItemEffect
from dissensus.models.params import normalised
from dissensus.table.annotations import Annotations

M = TypeVar("M", bound=Aggregator)

PANEL_MEAN_LABELS = 8  # of an item, on average, from which two models are pooled
MIN_MEAN_LABELS = 4.5  # of an item, on average, with which the effect may be seen; "five" with a few missing
MIN_LOADING = 0.3  # mean |λ| from which it is; 0.0 to 0.2 and 0.6 to 1.6 on twelve sets with five labels
MAX_CHANGED = 0.15  # share of the labels; at most 0.15 on real panels, 0.2 to 0.3 in simulated ones of families
MAX_LOOK_ROWS = 50_000  # labels by which it is looked for, of some of the items
MIN_ITEMS = 100  # with which it is learnt
CELL_COST = 20  # of a cell of a confusion matrix, in rows × classes
MAX_CELLS = 2**20  # of all confusion matrices; `hierarchical-dawid-skene` takes 0.4 s for each pass over so many
MAX_COST = 2**25  # rows × classes × points, cells at their cost: about a second
POWER = 0.77  # γ; log loss over 12 sets is level from 0.74 to 0.8
EFFECT_POWER = 0.57  # ε; log loss over six sets is level from 0.5 to 0.6, leaving out any
MIN_CHECKED_LABELS = 1.25  # of an item, on average: with one label nobody is checked, and n / (n − 1) has no end
UNEVEN_PRICE = 0.35  # of (Σ w − 1) log I; less gains less, more loses where a class is rare (`benchmarks/trust`)
MIN_PRICED_ITEMS = 50  # that pay it in full
UNKNOWN_LABELS = 3  # of each class, by somebody of whom nothing is known, in the crowd's matrix
UNKNOWN_ITEMS = 5  # so many more of everybody's matrix, over the items, are the crowd's
MIN_PROBABILITY = 1e-300  # whose logarithm is taken
MAX_ROWS = 2**25  # labels that are compared with each other, in a quarter of a gigabyte


@dataclass(frozen=True)
class EvenConfusions(EvenClasses):
    """The parameters: those of π, and Θ (A, K, K) [annotator, true, given]."""

    confusion: FloatArray = moved(SIMPLEX, "A K K")


@methods.register(
    "consensus", summary="the default: Dawid-Skene in which copies count once; with many labels, a pool of two models",
    cite="Dawid & Skene 1979", place=-1,
)  # fmt: skip
class Consensus(DawidSkene):
    """Dawid-Skene where copies count once, or a pool of two models."""

    Params: Any = EvenConfusions
    uneven_cost_: Annotated[float, "number"]
    copy_group_: Annotated[IntArray, "A code:A"]  # of whom an annotator copies with; −1 where nobody
    member_weights_: Annotated[FloatArray | None, "optional 2 simplex"] = None  # w and 1 − w; None: Dawid-Skene
    concentration_: Annotated[FloatArray | None, "optional A K K count"] = None  # of `hierarchical-dawid-skene`
    population_: Annotated[FloatArray | None, "optional K K count"] = None
    theta_: Annotated[FloatArray | None, "optional A K K real"] = None  # of `item-effect`
    loading_: Annotated[FloatArray | None, "optional K real"] = None
    population_theta_: Annotated[FloatArray | None, "optional K K real"] = None

    max_rows_in_memory = MAX_ROWS
    _labels_per_item = 0.0  # on average; items that stand for what was known before are not among them

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        for name in ("member_weights_", *RESULTS_OF[HierarchicalDawidSkene], *RESULTS_OF[ItemEffect]):
            setattr(self, name, None)  # of another fit
        self.copy_group_ = np.full(self.annotators_.size, -1)
        own = self.items_.size  # items beyond stand for what was known before
        n, members = table.n_annotations / table.n_items, []  # n labels of an item
        if isinstance(table, Annotations) and len(table) <= MAX_ROWS:
            self.copy_group_ = copy_groups(table if table.n_items == own else table.select(rows=table.item < own))
            table = self._weigh(table, np.arange(table.n_annotators))
            rows = hard_rows(table)
            total = labels_per_item(rows.item_ptr, rows.weight)[:own]
            n = float(total.sum() / max(np.count_nonzero(total), 1))
            members = self._members(table, gold, total, on_step)
        self._labels_per_item = n
        weight, effect = pool(n) if len(members) == 2 else (1.0, n**POWER)
        if self._assumes:  # n labels of an item have this design effect
            self.dependence_ = (effect - 1) / (n - 1) if n > 1 else POWER
            self.dependence_interval_ = [min(RANGE[0], self.dependence_), RANGE[1]]
        if members:
            self._take(members, weight, table, gold)
        else:
            super()._fit(table, gold, on_step)

    def _members(self, table: Annotations, gold: IntArray | None, total: FloatArray, on_step: OnStep) -> list[Any]:
        """The models of the pool, fitted; none where items have too few labels, `total` (I,) of those that are new."""
        labelled, people = np.count_nonzero(total), mean_people(table, total)
        if table.n_classes == 1 or table.n_annotators * table.n_classes**2 > MAX_CELLS:
            return []
        many = people >= PANEL_MEAN_LABELS
        effect = None
        if people >= MIN_MEAN_LABELS and labelled >= MIN_ITEMS:
            effect = self._seen_effect(table, gold, many, on_step)
        if effect is None and not many:
            return []
        passes = 0 if effect is None else effect.n_iter_
        crowd = self._member(HierarchicalDawidSkene)
        crowd.fit(table, gold=gold, on_step=lambda step, value: on_step(passes + step, value))
        if effect is not None:
            changed = effect.posterior_.argmax(axis=1) != crowd.posterior_.argmax(axis=1)
            if np.count_nonzero(changed[: total.size]) <= MAX_CHANGED * labelled:
                return [crowd, effect]
        return [crowd] if many else []

    def _seen_effect(self, table: Annotations, gold: IntArray | None, many: bool, on_step: OnStep) -> ItemEffect | None:
        """`item-effect` fitted to the table; None where it costs too much, or no effect is seen."""
        effect = self._member(ItemEffect)
        cost = (len(table) + CELL_COST * table.n_annotators * table.n_classes) * table.n_classes * effect.points
        if cost > MAX_COST:
            return None
        if not many and len(table) > MAX_LOOK_ROWS:  # most large tables show none: look at some items first
            some = np.arange(table.n_items) % (-(-len(table) // MAX_LOOK_ROWS)) == 0
            effect.fit(table.select(items=some), gold=None if gold is None else gold[some])
            if not is_seen(effect):
                return None
        effect.fit(table, gold=gold, on_step=on_step)
        return effect if many or is_seen(effect) else None

    def _member(self, kind: type[M]) -> M:
        """A model of the pool, with the keywords that it shares."""
        own = {name: getattr(self, name) for name in kind.parameter_names() if hasattr(self, name)}
        return kind(**own | {"dependence": None})

    def _take(self, members: list[Any], weight: float, table: Annotations, gold: IntArray | None) -> None:
        """Set the results of the pool; confusion matrices are those that its posterior makes."""
        with in_memory(table, gold, self.threads) as engine:
            self._begin(engine)
        del self._walk  # no EM follows
        for member in members:
            for name in RESULTS_OF[type(member)]:
                setattr(self, name, getattr(member, name))
        self.member_weights_ = np.array([weight, 1 - weight])
        self.trace_, self.n_iter_ = members[-1].trace_, members[-1].n_iter_
        self.converged_ = all(member.converged_ for member in members)
        self.prior_ = np.mean([member.prior_ for member in members], axis=0)
        self.posterior_ = self._score(table, np.arange(table.n_annotators))
        if gold is not None:
            self.posterior_[gold >= 0] = np.eye(self.prior_.size)[gold[gold >= 0]]
        self.labels_ = soft_counts(table, self.posterior_)
        self.class_counts_ = self.posterior_.sum(axis=0)
        free = replace(self.first(self.prior_), even=np.zeros(1))
        self._set(self.maximise(self.labels_, self.label_totals_, free))
        self.describe()

    # Dawid-Skene, with even classes -----------------------------------------------------------------------------------

    def crowd_factor(self, votes: Counts) -> float:
        items = max(float(votes.classes.sum()), 1.0)
        n = self._labels_per_item or float(votes.labels.sum()) / items
        return crowd_factor(n) * (1 + UNKNOWN_ITEMS / items)

    def prepare(self, votes: Counts, engine: Engine) -> None:
        crowd = votes.labels.sum(axis=0, keepdims=True)
        given = crowd.sum(axis=2, keepdims=True)
        crowd += UNKNOWN_LABELS * normalised(expected_pseudo(votes.classes.size))
        super().prepare(replace(votes, labels=crowd * given / (given + UNKNOWN_LABELS)), engine)
        weights, items = even_weights(votes.classes), float(votes.classes.sum())
        self.level_ = normalised(weights)
        self.uneven_cost_ = UNEVEN_PRICE * min(items / MIN_PRICED_ITEMS, 1) * uneven_cost(weights, items)

    def first(self, prior: FloatArray) -> Any:
        return EvenConfusions(np.array([FIRST_EVEN]), prior, self.level_, np.empty((0, 0, 0)))

    def learn_classes(self, classes: FloatArray, params: Any) -> Any:
        if params is None:
            params = self.first(self._class_shares(classes))
        if self.member_weights_ is not None:  # they have learnt shares that are free
            return replace(params, shares=self._class_shares(classes))
        return learn_evenly(params, np.maximum(classes, 0), self.class_pseudo_, self.uneven_cost_)

    def log_class_density(self, params: Any) -> float:
        return float(self.class_pseudo_ @ np.log(params.shares) - self.uneven_cost_ * (1 - params.even[0]))

    def maximise(self, labels: FloatArray, totals: FloatArray, params: Any) -> Any:
        return replace(params, confusion=super().maximise(labels, totals, params).confusion)

    def _set(self, params: Any) -> None:
        super()._set(params)
        self.prior_ = params.prior

    # Dawid-Skene or the pool ------------------------------------------------------------------------------------------

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        if self.member_weights_ is None:
            return super()._score(table, known)
        logs: Any = 0.0
        for (kind, names), weight in zip(RESULTS_OF.items(), self.member_weights_, strict=True):
            if weight:
                member = kind()
                for name in ("prior_", *names):
                    setattr(member, name, getattr(self, name))
                logs = logs + weight * np.log(np.maximum(member._score(table, known), MIN_PROBABILITY))
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _weigh(self, table: Annotations, known: IntArray) -> Annotations:
        return counted_once(table, np.append(self.copy_group_, -1)[known])  # −1, unseen, takes the last

    def _newcomer(self) -> dict[str, Any]:
        own = {"concentration_": self.population_, "theta_": self.population_theta_, "copy_group_": -1}
        return super()._newcomer() | {name: value for name, value in own.items() if value is not None}

    @property
    def weights_(self) -> dict[str, float]:
        """The methods whose models it takes, with the weight of each."""
        self._check_fitted()
        if self.member_weights_ is None:
            return {"dawid-skene": 1.0}
        weights = zip(RESULTS_OF, self.member_weights_.tolist(), strict=True)
        return {methods.name_of(kind): weight for kind, weight in weights if weight}

    def _model_in_words(self) -> str:
        said = "Dawid-Skene: a confusion matrix per annotator"
        if self.theta_ is not None:
            pair = "Hierarchical Dawid-Skene and item effect, pooled"
            said = f"{pair}: a confusion matrix per annotator, and how easy an item is for all"
        elif self.member_weights_ is not None:
            said = "Hierarchical Dawid-Skene: a confusion matrix per annotator, drawn to the crowd's"
        groups = np.unique(self.copy_group_[self.copy_group_ >= 0]).size
        return said + (f"; {count(groups, 'group')} of copies counted once" if groups else "")


RESULTS_OF: dict[type[Any], tuple[str, ...]] = {
    HierarchicalDawidSkene: ("concentration_", "population_"),
    ItemEffect: ("theta_", "loading_", "population_theta_"),
}
"""The models of the pool, and what of their results is kept to judge new tables."""


def consensus(table: Annotations, *, gold: IntArray | None = None, seed: int | None = 0) -> Aggregator:
    """Fit what every command fits that is told no method: the labels, how sure they are, how good the annotators.

    Parameters
    ----------
    table : Annotations
        Labels of any kind.
    gold : (I,) int, optional
        Known classes of some items, as codes into `table.classes`; −1 where unknown.
    seed : int, optional
        Of all draws.

    >>> from dissensus import consensus
    >>> from dissensus.table.simulate import simulate
    >>> best = consensus(simulate(200, 12, 3, seed=1).annotations)
    >>> best.predict()[:3].tolist(), best.weights_
    ([0, 2, 2], {'dawid-skene': 1.0})
    """
    kind = table.kind if isinstance(table, Annotations) else "classes"  # whose `fit` says what it takes
    return methods[default_method(kind)](seed=seed).fit(table, gold=gold)


def copy_groups(table: Annotations) -> IntArray:
    """(A,) number of the group that an annotator copies in, −1 for none."""
    number = np.full(table.n_annotators, -1)
    for at, group in enumerate(find_copies(table).groups):
        number[list(group)] = at
    return number


def is_seen(effect: ItemEffect) -> bool:
    """True if the loading is more than what chance makes of crowds that err independently."""
    return bool(np.abs(effect.loading_) @ effect.prior_ >= MIN_LOADING)


def mean_people(table: Annotations, total: FloatArray) -> float:
    """People who label an item, on average; copies count once, and nobody more, whatever a label's weight."""
    item, who = table.item[table.by_annotator], table.annotator[table.by_annotator]  # repeats are side by side
    pairs = len(table) - np.count_nonzero((np.diff(item) == 0) & (np.diff(who) == 0))
    return min(float(pairs), float(total.sum())) / max(int(np.count_nonzero(total)), 1)


def pool(n: float) -> tuple[float, float]:
    """The weight w of `hierarchical-dawid-skene`, and d of the pool, where items have n labels on average."""
    crowd, effect = n**POWER, n**EFFECT_POWER
    return effect / (crowd + effect), 2 * crowd * effect / (crowd + effect)


def crowd_factor(n: float) -> float:
    """By how much more matrices are those of the crowd where items have n labels on average."""
    n = max(n, MIN_CHECKED_LABELS)
    return n / (n - 1)


def counted_once(table: Annotations, group: IntArray) -> Annotations:
    """The table in which what an annotator, or a group (A,), −1 for none, says of an item is one label."""
    table = table.once
    if (group < 0).all():
        return table
    rating, first = table.rating, np.flatnonzero(np.diff(table.rating, prepend=-1))
    own = group[table.annotator[first]]
    at = np.flatnonzero((own >= 0) & (np.bincount(rating, table.row_weights) > 0))
    key = table.item[first[at]].astype(np.int64) * (group.max() + 1) + own[at]
    _, place, size = np.unique(key, return_inverse=True, return_counts=True)
    members = np.ones(first.size)
    members[at] = size[place]
    return replace(table, weight=table.row_weights / members[rating])
