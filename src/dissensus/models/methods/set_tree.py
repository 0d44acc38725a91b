"""Set tree: which options each annotator ticks, and which options go together.

Use it when several options may be ticked at once and some of them go together.

t_ic is 1 if option c is true for item i. Given the truth, an annotator's ticks are independent. The true options are
not: they form a tree, in which an option depends on its parent:

    P(t_i) = Π_c P(t_ic | t_i,parent(c))      P(j ticks c | t_ic = 1) = s_jc      P(j ticks c | t_ic = 0) = f_jc

So a tick for one option also makes others more or less likely. Belief propagation is exact on a tree, and the tree with
the most mutual information is the most likely one (Chow & Liu 1968). A few passes, which start from the share of
the ticks, determine the tree and the priors. Then EM repeats these steps, with y_ijc = 1 if j ticked c on item i and
S = `crowd_labels`:

    E step  u_ic = Σ_{j∈M_i} log P(y_ijc | t_ic = 1) / P(y_ijc | t_ic = 0)      q_ic = P(t_ic = 1 | u_i)
    M step  s_jc = (S m_jc + Σ_i q_ic y_ijc) / (S + Σ_i q_ic)      f_jc likewise with 1 − q_ic
            θ_cx from the expected counts of options and their parents
    prior   m_jc = logistic(logit m_c + h_j),  h_j ~ N(0, ½²): annotator j ticks more or less readily than others

- `posterior_` (I, L): q, the probability of each option in the order of `options_`; rows do not sum to 1
- `hit_` and `false_tick_` (A, L): s and f
- `chance_` (L, 2): θ_c0 and θ_c1, P(option is true) if its parent is not true, and if it is
- `parent_` (L,): code of the parent option, −1 for the root

`posterior_` is tempered (`models.tempering`): with the design effect d_i, it follows from the log odds u_i / d_i and
from the tree's log odds divided by √d_i. If these were also divided by d_i, rare options would be far too likely. The
answer is the set of options with an untempered probability above ½, and `confidence_` the probability of exactly this
set. `reliability_` is the mean Jaccard index of an annotator's sets and the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.special import expit

from dissensus.common.arrays import sum_ranges
from dissensus.common.parameters import param
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names, OnStep
from dissensus.compute.kernels import sets as kernels
from dissensus.messages import quote_name
from dissensus.models.answers import AnswerModel, summarise_confidence
from dissensus.models.base import methods
from dissensus.models.em import EMAggregator
from dissensus.models.exceptions import NoOptionSelected, UnseenOption
from dissensus.models.fitting import check_label_type
from dissensus.models.gold_tempering import fit_correlation
from dissensus.models.params import SHARE, Params, em_parameter
from dissensus.models.tempering import MIN_GOLD_ITEMS, Tempering, design_effect, labels_per_item
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import name_set

PASSES_BEFORE_TREE = 4  # number of passes before the tree is fixed; 4, 9 and 16 worked equally well
TENDENCY_SD = 0.5  # prior SD of h, in log odds
TENDENCY_STEPS = 8  # number of Newton steps that estimate h
TREE_PSEUDO_ITEMS = 1.0  # number of pseudo-items with independent options, per edge of the tree
MIN_PROBABILITY = 1e-9  # lower limit of probabilities, so that logarithms are finite
GOLD_LOG_ODDS = 50.0  # absolute log odds of options of items with gold
TREE_POWER = 0.5  # log odds of the tree are divided by d to this power; those of labels by d
ANSWER_PROBABILITY = 0.5  # probability above which an option belongs to the answer


@dataclass(frozen=True)
class SetTreeParams(Params):
    """Parameters of the EM: P(tick) of true and of other options, and the probabilities of the tree."""

    hit: FloatArray = em_parameter(SHARE, "A O")
    false_tick: FloatArray = em_parameter(SHARE, "A O")
    chance: FloatArray = em_parameter(SHARE)


@dataclass(frozen=True, eq=False)
class TreePrior:
    """Values that are fixed before EM: the tree, and the prior means of annotators (A, L) and options (L,)."""

    order: IntArray  # (L,) options, parents before their children
    parent: IntArray
    hit: FloatArray
    false_tick: FloatArray
    share: FloatArray


@methods.register(
    "set-tree", summary="sets of options: what each annotator ticks, and which options go together; EM",
    cite="Chow & Liu 1968",
)  # fmt: skip
class SetTree(AnswerModel, EMAggregator[SetTreeParams]):
    """Estimate the set of true options of each item by EM over a tree of options, in memory."""

    crowd_labels: float = param(
        2.0, "number of labels of the crowd that are added to each annotator's, per option", above=0
    )

    kinds: ClassVar = ("sets",)
    frame_kinds: ClassVar = ("items", "annotators", "confusions")

    options_: Annotated[Names, "O names"]
    hit_: Annotated[FloatArray, "A O share"]
    false_tick_: Annotated[FloatArray, "A O share"]
    population_hit_: Annotated[FloatArray, "O share"]
    population_false_tick_: Annotated[FloatArray, "O share"]
    chance_: Annotated[FloatArray, "O 2 share"]
    order_: Annotated[IntArray, "O code:O"]
    parent_: Annotated[IntArray, "O code:O"]
    answer_: Annotated[BoolArray, "I O flag"]  # True for options of the answer
    confidence_: Annotated[FloatArray, "I share"]  # probability of exactly this answer
    posterior_: Annotated[FloatArray, "I O share"]
    prior_: Annotated[FloatArray, "O share"]

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        self.options_ = table.options.names
        if not self.options_.size:
            raise NoOptionSelected
        known = np.zeros((table.n_items, 0))  # with gold: log odds of options (I, L), NaN if unknown
        if gold is not None:
            known = np.where(
                (gold >= 0)[:, None], np.where(table.options.selected[gold], GOLD_LOG_ODDS, -GOLD_LOG_ODDS), np.nan
            )
        self.item_total_ = labels_per_item(table.item_ptr, table.weight)
        used = self.item_total_ > 0
        total, ticks = _count_ticks(table, np.ones((table.n_items, self.options_.size)))
        prior: Any = None

        def posterior_of_table(params: SetTreeParams) -> tuple[FloatArray, FloatArray, FloatArray]:
            odds = _option_log_odds(table, params.hit, params.false_tick, known)[used]
            q = np.zeros((table.n_items, self.options_.size))
            q[used], joint, log_total = option_marginals(odds, prior.order, prior.parent, params.chance)
            return q, joint, log_total

        def m_step(q: FloatArray, joint: FloatArray) -> SetTreeParams:
            true, hits = _count_ticks(table, q)
            hit = (hits + self.crowd_labels * prior.hit) / (true + self.crowd_labels)
            false_tick = (ticks - hits + self.crowd_labels * prior.false_tick) / (total - true + self.crowd_labels)
            return SetTreeParams(
                _clip_probability(hit), _clip_probability(false_tick), _tree_probabilities(joint, q[used], prior)
            )

        def start(rng: np.random.Generator | None) -> SetTreeParams:
            nonlocal prior
            ticked = sum_ranges(table.options.selected[table.label] * table.row_weights[:, None], table.item_ptr)
            q = (ticked + 0.1) / (self.item_total_ + 0.5)[:, None]
            q = q if rng is None else rng.beta(0.5 + 4 * q, 4.5 - 4 * q)
            if known.size:
                q = np.where(np.isnan(known), q, known > 0)
            for _ in range(PASSES_BEFORE_TREE):
                if rng is None:  # random starts share tree and priors, so that objectives are comparable
                    true, hits = _count_ticks(table, q)
                    tendencies = _tick_tendencies(hits, true), _tick_tendencies(ticks - hits, total - true)
                    prior = TreePrior(*most_likely_tree(q[used]), *tendencies, q[used].mean(axis=0))
                with_parent = (q * q[:, prior.parent])[used].sum(axis=0)
                params = m_step(q, np.stack([q[used].sum(axis=0) - with_parent, with_parent], axis=1))
                q = posterior_of_table(params)[0]
            return params

        def em_step(params: SetTreeParams) -> tuple[float, SetTreeParams]:
            q, joint, log_total = posterior_of_table(params)
            blank = np.log1p(-_clip_probability(params.false_tick))
            nothing_true = (ticks * (np.log(_clip_probability(params.false_tick)) - blank) + total * blank).sum()
            objective = float(log_total.sum() + nothing_true) + self._log_prior(params, prior)
            return objective, m_step(q, joint)

        params = self.run_restarts(em_step, start, on_step)
        self.hit_, self.false_tick_, self.chance_ = params.hit, params.false_tick, params.chance
        self.order_, self.parent_ = prior.order, prior.parent
        q = posterior_of_table(params)[0]
        true, hits = (count.sum(axis=0) for count in _count_ticks(table, q))
        self.population_hit_ = (hits + 0.5) / (true + 1)
        self.population_false_tick_ = (ticks.sum(axis=0) - hits + 0.5) / (total.sum(axis=0) - true + 1)
        self.prior_ = q[used].mean(axis=0)
        self.posterior_, self.answer_, self.confidence_ = self._decode(table, self.hit_, self.false_tick_, known)
        self._set_reliability(*self._count_agreement(table, self.posterior_))

    def _estimate_tempering(self, data: Annotations, gold: IntArray | None, earlier: Any) -> Tempering:
        """Return the tempering, with ρ as set by the user or, with gold sets, the most probable ρ."""
        if self.dependence != "auto" or gold is None or np.count_nonzero(gold >= 0) < MIN_GOLD_ITEMS:
            return super()._estimate_tempering(data, None, earlier)
        without_gold = type(self)(**self.get_params() | {"dependence": None}).fit(data)
        known = gold >= 0
        odds = _option_log_odds(data, without_gold.hit_, without_gold.false_tick_, np.zeros((data.n_items, 0)))[known]
        n, sets = without_gold.item_total_[known], data.options.selected[gold[known]]

        def log_likelihood(rho: float) -> float:
            tree = without_gold.order_, without_gold.parent_, without_gold.chance_
            return float(_temper_options(odds, design_effect(n, rho), sets, *tree)[1].sum())

        return fit_correlation(log_likelihood)

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """Return P(option is true | labels of the item), (I, L) in the order of `options_`."""
        self._check_fitted()
        return self.posterior_ if table is None else self._compute_posterior(table, self._match_new_table(table))

    def predict(self, table: Annotations | None = None) -> Names:
        """Return the name of each item's answer, a set of options (I,)."""
        self._check_fitted()
        answer = self.answer_ if table is None else self._decode_new(table, self._match_new_table(table))[1]
        found, place = np.unique(answer, axis=0, return_inverse=True)
        return np.array([name_set(self.options_[options]) for options in found], object)[place.reshape(-1)]

    def predict_answers(self, table: Annotations) -> dict[str, Any]:
        found = self._decode_new(table, self._match_new_table(table))
        return dict(zip(("posterior_", "answer_", "confidence_"), found, strict=True))

    def summarise_answers(self, gold: IntArray | None = None) -> dict[str, Any]:
        """Return the confidence of the answers, their accuracy on gold sets, and the frequency of each option."""
        options = dict(zip(map(str, self.options_), self.answer_.sum(axis=0).tolist(), strict=True))
        return {"options": options} | summarise_confidence(self, gold)

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """Return P(the annotator of a row ticks the option), (N, L)."""
        annotators = self._match_new_table(table)
        item = naming.match_names(table.items, self.items_, "items")[table.item]
        q = np.where((item >= 0)[:, None], self.posterior_[item], self.prior_)
        hit, false_tick = (rates[table.annotator] for rates in self._tick_rates(annotators))
        return np.asarray(q * hit + (1 - q) * false_tick)

    def _frame_columns(self, kind: str) -> dict[str, Any]:
        if kind == "items":
            columns = {"item": self.items_, "label": self.predict(), "confidence": self.confidence_}
            return columns | {f"p_{name}": self.posterior_[:, c] for c, name in enumerate(self.options_)}
        if kind != "confusions":
            return super()._frame_columns(kind)
        pairs = {"annotator": np.repeat(self.annotators_, self.options_.size)}
        pairs["option"] = np.tile(self.options_, self.annotators_.size)
        return pairs | {"hit": self.hit_.reshape(-1), "false_tick": self.false_tick_.reshape(-1)}

    def _match_new_table(self, table: Annotations) -> IntArray:
        """Return the codes of a new table's annotators (A,); raise an error for unseen options."""
        self._check_fitted()
        check_label_type(self, table)
        new = naming.match_names(table.options.names, self.options_, "options") < 0
        if new.any():
            raise UnseenOption(option=quote_name(table.options.names[new][0]))
        return naming.match_names(table.annotators, self.annotators_, "annotators")

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        return self._decode_new(table, annotators)[0]

    def _decode_new(self, table: Annotations, annotators: IntArray) -> tuple[FloatArray, BoolArray, FloatArray]:
        ticked = np.zeros((table.n_classes, self.options_.size), np.bool_)
        ticked[:, naming.match_names(table.options.names, self.options_, "options")] = table.options.selected
        return self._decode(table, *self._tick_rates(annotators), np.zeros((table.n_items, 0)), ticked)

    def _tick_rates(self, annotators: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return s and f (A, L) of annotators, given by code; −1 is an unseen annotator."""
        unseen = (annotators < 0)[:, None]
        return (
            np.where(unseen, self.population_hit_, self.hit_[annotators]),
            np.where(unseen, self.population_false_tick_, self.false_tick_[annotators]),
        )

    def _decode(
        self, table: Annotations, hit: FloatArray, false_tick: FloatArray, known: FloatArray, ticked: Any = None
    ) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Return the posterior (I, L), the options of the answer (I, L) and the probability of the answer (I,)."""
        odds = _option_log_odds(table, hit, false_tick, known, ticked)
        answer = option_marginals(odds, self.order_, self.parent_, self.chance_)[0] > ANSWER_PROBABILITY
        d = design_effect(labels_per_item(table.item_ptr, table.weight), self.dependence_)
        q, log_set = _temper_options(odds, d, answer, self.order_, self.parent_, self.chance_)
        return q, answer, np.exp(np.minimum(log_set, 0))

    def _log_prior(self, params: SetTreeParams, prior: TreePrior) -> float:
        edges = params.chance.copy()
        edges[prior.order[0], 1] = 0.5  # both entries of the root are equal and must count once
        means = np.where(edges == 0.5, 0.5, prior.share[:, None])
        found = 0.0
        for size, mean, value in (
            (self.crowd_labels, prior.hit, params.hit),
            (self.crowd_labels, prior.false_tick, params.false_tick),
            (TREE_PSEUDO_ITEMS, means, edges),
        ):
            value = _clip_probability(value)
            found += size * float((mean * np.log(value) + (1 - mean) * np.log1p(-value)).sum())
        return found

    def _count_agreement(self, table: Annotations, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums (A,) of weight · Jaccard index (1 for two empty sets) of row and answer, and of weights."""
        ticked, answer, weight = table.options.selected[table.label], self.answer_[table.item], table.row_weights
        both, either = (ticked & answer).sum(axis=1), (ticked | answer).sum(axis=1)
        index = weight * np.divide(both, either, out=np.ones(both.size), where=either > 0)
        return tuple(np.bincount(table.annotator, value, table.n_annotators) for value in (index, weight))  # type: ignore[return-value]


def most_likely_tree(q: FloatArray) -> tuple[IntArray, IntArray]:
    """Return order and parents of the tree with the most mutual information between options, given q (I, L).

    The root is the most frequent option.
    """
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    n, both = len(q) + 1, q.T @ q + 0.25
    share = (q.sum(axis=0) + 0.5) / n
    both, apart = both / n, np.multiply.outer
    cells = (
        (both, apart(share, share)),
        (share[:, None] - both, apart(share, 1 - share)),
        (share[None, :] - both, apart(1 - share, share)),
        (1 - share[:, None] - share[None, :] + both, apart(1 - share, 1 - share)),
    )
    information = sum(
        np.maximum(p, MIN_PROBABILITY) * np.log(np.maximum(p, MIN_PROBABILITY) / alone) for p, alone in cells
    )
    cost = -(np.maximum(information, 0) + MIN_PROBABILITY)  # a cost of 0 would remove the edge
    np.fill_diagonal(cost, 0)
    tree = minimum_spanning_tree(cost)
    order, parent = breadth_first_order(tree + tree.T, int(share.argmax()), directed=False)
    return np.asarray(order, np.int64), np.where(parent < 0, -1, parent).astype(np.int64)


def _temper_options(
    odds: FloatArray, d: FloatArray, sets: BoolArray, order: IntArray, parent: IntArray, chance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the posterior (I, L) and the log probability of exactly these sets (I,), both tempered by d (I,)."""
    q, log_set = np.empty_like(odds), np.empty(len(odds))
    log_odds = np.log(_clip_probability(chance)) - np.log1p(-_clip_probability(chance))
    for effect in np.unique(d):
        at = np.flatnonzero(d == effect)
        tempered, tree = odds[at] / effect, 1 / (1 + np.exp(-log_odds / effect**TREE_POWER))
        q[at], _, log_total = option_marginals(tempered, order, parent, tree)
        log_set[at] = _log_set_weight(sets[at], tempered, parent, tree) - log_total
    return q, log_set


def _log_set_weight(sets: BoolArray, odds: FloatArray, parent: IntArray, chance: FloatArray) -> FloatArray:
    """Return the unnormalised log probability (I,) of one set of options (I, L) per item."""
    above = np.where(parent >= 0, sets[:, parent], False).astype(np.int8)
    chance = _clip_probability(chance)[np.arange(parent.size), above]
    return np.asarray(np.where(sets, np.log(chance) + odds, np.log1p(-chance)).sum(axis=1))


def _tick_tendencies(ticks: FloatArray, met: FloatArray) -> FloatArray:
    """Return the prior P(tick) (A, L), which follows from the option's share and the annotator's tendency to tick."""
    share = (ticks.sum(axis=0) + 0.5) / (met.sum(axis=0) + 1)
    log_odds = np.log(share) - np.log1p(-share)
    habit, precision = np.zeros((len(ticks), 1)), TENDENCY_SD**-2
    for _ in range(TENDENCY_STEPS):
        expected = 1 / (1 + np.exp(-log_odds - habit))
        pull = (ticks - met * expected).sum(axis=1, keepdims=True) - precision * habit
        habit += np.clip(pull / ((met * expected * (1 - expected)).sum(axis=1, keepdims=True) + precision), -1, 1)
    return np.asarray(1 / (1 + np.exp(-log_odds - habit)))


def _tree_probabilities(joint: FloatArray, q: FloatArray, prior: TreePrior) -> FloatArray:
    """Return θ (L, 2), given the numbers of items (L, 2) whose option is true and whose parent is false or true."""
    above = np.where(prior.parent >= 0, q.sum(axis=0)[prior.parent], 0)
    items = np.stack([len(q) - above, above], axis=1)
    joint, root = joint.copy(), prior.order[0]
    joint[root], items[root] = joint[root].sum(), len(q)
    return _clip_probability((joint + TREE_PSEUDO_ITEMS * prior.share[:, None]) / (items + TREE_PSEUDO_ITEMS))


def _clip_probability(chance: FloatArray) -> FloatArray:
    return np.asarray(np.clip(chance, MIN_PROBABILITY, 1 - MIN_PROBABILITY))


def _option_log_odds(
    table: Annotations, hit: FloatArray, false_tick: FloatArray, known: FloatArray, ticked: Any = None
) -> FloatArray:
    """Return the log odds of every option (I, L) that follow from the labels or from gold."""
    hit, false_tick = _clip_probability(hit), _clip_probability(false_tick)
    ticked = table.options.selected if ticked is None else ticked
    odds = np.zeros((table.n_items, hit.shape[1]))
    tick, blank = np.log(hit) - np.log(false_tick), np.log1p(-hit) - np.log1p(-false_tick)
    kernels.add_log_odds(table.item_ptr, table.annotator, table.label, table.weight, ticked, tick, blank, odds)
    return np.where(np.isnan(known), odds, known) if known.size else odds


def _count_ticks(table: Annotations, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return how often options were true on each annotator's items (A, L), and how often these were ticked (A, L)."""
    true, hits = np.zeros((2, table.n_annotators, q.shape[1]))
    kernels.add_counts(
        table.item_ptr, table.annotator, table.label, table.weight, table.options.selected, q, true, hits
    )
    return true, hits


def option_marginals(
    odds: FloatArray, order: IntArray, parent: IntArray, chance: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return P(option is true | labels) (I, L) from log odds (I, L), by two passes over the tree.

    Also return the sums over items of P(option is true, parent is not) and P(both are true) (L, 2), and the log of the
    sum over all sets (I,). `order` has parents first; the two probabilities of the root are equal.
    """
    chance = _clip_probability(chance)
    log_in, log_out = np.log(chance), np.log1p(-chance)
    up, total = odds.T.copy(), np.zeros(len(odds))  # (L, I) log odds from the subtree of each option
    for c in order[::-1]:
        absent, present = (np.logaddexp(log_out[c, x], log_in[c, x] + up[c]) for x in (0, 1))
        total += absent
        if parent[c] >= 0:
            up[parent[c]] += present - absent
    q, joint = np.zeros_like(up), np.zeros(chance.shape)
    for c in order:
        above = q[parent[c]] if parent[c] >= 0 else total * 0
        absent, present = (p * expit(log_in[c, x] - log_out[c, x] + up[c]) for x, p in enumerate((1 - above, above)))
        q[c], joint[c] = absent + present, (absent.sum(), present.sum())
    return np.ascontiguousarray(q.T), joint, total
