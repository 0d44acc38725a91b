"""Explain why the labels of an item disagree: errors, ambiguity of the item, or different views of groups.

Each reason predicts the labels of the item. A reason is reported only if it predicts them much better than the others.
Annotator j errs with probability e_j. If the annotator errs, the label is drawn from the response bias ν_j, which does
not depend on the item; otherwise it is determined by the item. Row r has the label y_r, the weight w_r and the
annotator j; π are the class shares:

    error        P_i = Σ_c π_c Π_r p_r(1[y_r = c])^w_r        the item has one class, other labels are errors       (1)
    ambiguity    A_i = mean over φ of Π_r p_r(φ(y_r))^w_r     labels are drawn from the item's own distribution φ   (2)
    perspective  G_i = Π_g P_i,g                              each group of annotators has its own class            (3)
    where        p_r(x) = (1 − e_j) x + e_j ν_j(y_r)

φ has either two classes c ≠ d with shares 1 − λ and λ = 0.3, 0.5, 0.7, or one class mixed with all classes, (1 − λ) 1[k
= c] + λ π_k, where λ = 0.2, 0.4, 0.6, 0.8. EM fits e and ν under (1). They are shrunk to the values of the crowd with 5
pseudo-labels, and row r is excluded from the estimates that predict it. Labels alone cannot distinguish errors of all
annotators from ambiguity of all items. Therefore, the error rates are anchored: all 1 − e_j are multiplied by one
factor, so that the most careful annotators, who gave a tenth of the labels, err 5 times in 100. If careful annotators
contradict each other, the item is probably ambiguous.

`evidence` is log P_i − log A_i. `ambiguity` is α A_i / (α A_i + (1 − α) P_i), where α is the most probable share of
ambiguous items. A *likely error* has a clear class, P_i ≥ 3 A_i, and (1 − α) P_i ≥ 49 α A_i. An item is *ambiguous* if
A_i ≥ 20 P_i and if A_i > P_i also with the fitted e. The share of such items is limited to `share_ambiguous`; this is
the value of α if the larger P_i and the larger A_i of the fitted and the anchored e are used.

If all annotators err equally at random, no annotator is careful, and ambiguity cannot be distinguished from errors.
Therefore, ambiguous items are reported under one of two conditions. The first is that annotators clearly differ: the
labels are e^A times as probable with separate e and ν for each of the A annotators as with the same e and ν for all.
The second is that the table as a whole shows ambiguous items: all labels are 20 times as probable with ambiguous items
(fitted or anchored e) as under (1) alone (fitted, anchored or pooled e). Otherwise, `share_ambiguous` is 0.

*Surprise* measures how improbable the labels of an item are if the most probable class c is true and annotators err as
usual. It is the probability P(ℓ < ℓ_i) + P(ℓ = ℓ_i)/2 of ℓ_i = Σ_r w_r log p_r(1[y_r = c]) with the fitted e, expressed
in standard deviations of a normal distribution. The distribution of ℓ is computed exactly, except that ℓ is rounded to
a grid; with five labels, ℓ is far from normal.

*Groups*: Eq. 4 of `questions.group_effects` finds the columns of metadata that matter. An item that is explained by a
group is a group perspective if (3) also predicts it 20 times better than (1) and (2).

A probabilistic row counts as its most probable label. The rows of one annotator on an item have a total weight of 1.
Rows without weight are ignored; for groups, all other rows have equal weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import erfc, expit, logit, logsumexp, ndtri, softmax

from dissensus.common.arrays import sum_ranges
from dissensus.common.formatting import format_count
from dissensus.common.frames import columns_to_frame
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.compute.engines.local import Threads, balanced_ranges, thread_count
from dissensus.compute.kernels import disagreement as kernels
from dissensus.models.base import Aggregator, arg_max
from dissensus.models.exceptions import ModelNotFitted
from dissensus.questions.group_effects import ROWS_PER_CHUNK, GroupEffect, find_group_effects, read_metadata_groups
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

DisagreementKind = Literal["unlabelled", "agreed", "likely error", "ambiguous", "cannot tell", "group perspective"]
DISAGREEMENT_KINDS: tuple[DisagreementKind, ...] = get_args(DisagreementKind)
KIND_MEANINGS: dict[DisagreementKind, str] = {
    "agreed": "two or more annotators, who all give the same label",
    "likely error": "the class is clear, and an annotator erred",
    "ambiguous": "more than one class fits the item",
    "group perspective": "groups of annotators see the item differently",
    "cannot tell": "too few labels, or several reasons fit the labels",
    "unlabelled": "no annotator has labelled it",
}
"""Maps each kind to its meaning, in the order in which kinds are shown."""

MIN_CONFIDENCE = 0.9  # minimum P(class) for a clear class, with which labels that are errors can be identified
STRONG_EVIDENCE, POSITIVE_EVIDENCE = (
    math.log(20),
    math.log(3),
)  # log Bayes factors with the names of Kass & Raftery 1995
MIN_ONE_CLASS_PROBABILITY = 0.98  # minimum P(item is not ambiguous) for a likely error
N_PSEUDO_LABELS = 5.0  # number of pseudo-labels with which e and ν are shrunk to the values of the crowd
CAREFUL_SHARE = 0.1  # share of the labels that were given by the most careful annotators
CAREFUL_ERROR_RATE = 0.05  # anchored value of e for these annotators
MIN_ERROR_RATE = 0.005  # minimum of e and 1 − e, so that no label is impossible
SECOND_CLASS_SHARES = (0.3, 0.5, 0.7)  # values of λ for two classes; they include 1 − λ for every λ
OTHER_CLASSES_SHARES = (0.2, 0.4, 0.6, 0.8)  # values of λ for one class mixed with all classes
MAX_EM_STEPS = 50
ERROR_RATE_TOLERANCE = 1e-4  # change of the mean error rate below which EM stops
N_ALPHA_STEPS = 200  # number of EM steps for the single number α
# Number of prior items, half of them ambiguous, because a small table cannot show that no item is ambiguous
N_ALPHA_PRIOR_ITEMS = 10.0
GRID_POINTS_PER_SD = 8.0  # maximum number of grid points per standard deviation of one row's contribution to ℓ
MAX_GRID_POINTS = 4096  # maximum number of grid points
# Maximum number of labels of an item for the exact distribution; above it, ℓ is treated as normal
MAX_EXACT_LABELS = 100
SMALLEST_FLOAT = float(np.finfo(float).tiny)  # lower bound of divisors and probabilities


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(NotebookTable):
    """The reasons why the labels of items disagree."""

    items: Names  # (I,)
    kind: IntArray  # (I,) code into `DISAGREEMENT_KINDS`
    label: Names  # (I,) most probable class
    confidence: FloatArray  # (I,) probability of this class
    disagreement: FloatArray  # (I,) share of pairs of labels that differ; NaN with fewer than two labels
    expected_disagreement: FloatArray  # (I,) expected value if `label` is true and annotators err as usual
    surprise: FloatArray  # (I,) number of standard deviations by which the labels are less probable than expected
    evidence: FloatArray  # (I,) log Bayes factor of one class against ambiguity; NaN with fewer than two labels
    ambiguity: FloatArray  # (I,) P(the item is ambiguous)
    share_ambiguous: float  # share of ambiguous items among items with two or more labels
    p_mistake: FloatArray  # (N,) P(the item has one class, and the label of the row is another class)
    groups: tuple[GroupEffect, ...]  # one effect for each column of metadata, in ascending order of p-values
    group_index: IntArray  # (I,) index of the effect in `groups` that explains the item, or −1

    def __repr__(self) -> str:
        counts = ", ".join(f"{n:,} {kind}" for kind, n in self.counts().items() if n)
        columns = [effect.column for effect in self.groups if effect.significant]
        return f"Explanation of {format_count(self.items.size, 'item')}: {counts}" + (
            f"; groups differ by {', '.join(columns)}" if columns else ""
        )

    def counts(self) -> dict[DisagreementKind, int]:
        """Return the number of items of each kind."""
        return dict(
            zip(DISAGREEMENT_KINDS, np.bincount(self.kind, minlength=len(DISAGREEMENT_KINDS)).tolist(), strict=True)
        )

    def items_of_kind(self, kind: DisagreementKind, *, differing: bool = False) -> list[Any]:
        """Return the items of a kind in descending order of disagreement; `differing` skips unanimous items."""
        check_argument("kind", kind, DisagreementKind)
        chosen = np.flatnonzero(
            (self.kind == DISAGREEMENT_KINDS.index(kind)) & ((self.disagreement > 0) | (not differing))
        )
        order = np.argsort(-np.nan_to_num(self.disagreement[chosen]), kind="stable")
        return list(self.items[chosen[order]].tolist())

    def to_frame(self) -> Any:
        """Return a frame (pandas if installed, else Arrow) with one row per item."""
        import pyarrow as pa

        group = [self.groups[g].column if g >= 0 else None for g in self.group_index]
        measures = (
            "label", "confidence", "disagreement", "expected_disagreement", "surprise", "evidence", "ambiguity"
        )  # fmt: skip
        return columns_to_frame(
            {"item": self.items, "kind": [DISAGREEMENT_KINDS[code] for code in self.kind]}
            | {name: getattr(self, name) for name in measures}
            | {"group": pa.array(group, pa.string())}
        )


def explain(
    table: Annotations,
    fitted: Aggregator,
    *,
    annotators: Any = None,
    missing_as_group: bool = False,
    permutations: int = 500,
    seed: int = 0,
    threads: int | None = None,
) -> Explanation:
    """Attribute disagreement to likely errors, ambiguity and, if metadata is given, perspectives of groups.

    Parameters
    ----------
    fitted : Aggregator
        A model that is fitted to this table. Items that are unknown to the model are scored with it.
    annotators : mapping of columns, or frame, optional
        Metadata with a column `annotator` and other columns. Each text value defines a group; a column with more than
        12 different numbers is divided into quarters. Columns with a single group, or with nearly as many groups as
        annotators, are skipped. Annotators that are not in the table are ignored.
    missing_as_group : bool
        Whether annotators without a value in a column form a group. If False, they are ignored for this column.
    permutations, seed : int
        Number of permutations of annotators among groups, and seed. At least 100 permutations per column are used,
        because fewer cannot reach significance.
    threads : int, optional
        Number of threads; None for all cores.

    Returns
    -------
    Explanation
        The kind and the measures of every item, and the effects of the columns.

    >>> from dissensus.models.methods import DawidSkene
    >>> from dissensus.table.datasets import load_dataset
    >>> table = load_dataset("digits-crowd").annotations
    >>> found = explain(table, DawidSkene().fit(table))
    >>> found
    Explanation of 1,797 items: 143 agreed, 73 ambiguous, 1,581 cannot tell
    >>> found.counts()["agreed"], len(found.items_of_kind("ambiguous")), found.to_frame().shape
    (143, 73, (1797, 10))
    """
    check_kind(table.kind, CLASS_KINDS, "explain")
    if not hasattr(fitted, "posterior_"):
        raise ModelNotFitted(method=type(fitted).__name__)
    check_argument("permutations", permutations, int, low=1, must="must be at least 1")
    table, posterior = _align_posterior(table, fitted)
    best = arg_max(posterior, table.items, table.classes, fitted.tie_seed_)
    rows = dataclasses.replace(table, proba=None).positive_weight_rows.deduplicated
    votes = _Votes(rows, best)
    with Threads(thread_count(threads, len(rows))) as pool:
        fit = _fit_reasons(rows, posterior, pool)
        tails = _compute_surprise(fit.model, best, pool)
        columns = {} if annotators is None else read_metadata_groups(annotators, table, missing_as_group)
        effects, group_index = find_group_effects(rows, posterior, votes.disagree, columns, permutations, seed, pool)
    explained = group_index >= 0
    perspective = _find_perspectives(fit, effects, group_index, columns)
    ambiguity = np.zeros(best.size)
    ambiguity[votes.several] = _compute_ambiguity(fit.evidence[votes.several])
    share = _estimate_ambiguous_share(fit, votes.several, np.unique(rows.annotator).size)
    kind = _choose_kinds(fit, votes, posterior, ambiguity, share, explained, perspective)
    truth = np.where(votes.disagree[:, None], fit.p_class, posterior)
    p_right = truth[table.item, table.label]
    if table.proba is not None:
        p_right = np.einsum("nk,nk->n", table.proba, truth[table.item])
    p_one_class = np.where(perspective, 0.0, 1 - ambiguity)
    several = votes.several
    return Explanation(
        items=table.items, kind=kind.astype(np.int8), label=table.classes[best],
        confidence=posterior.max(axis=1, initial=0),
                disagreement=np.where(several, _compute_disagreement(rows), np.nan),
        expected_disagreement=np.where(several, tails[0], np.nan),
        surprise=np.where(several, _to_standard_deviations(tails[1], tails[2]), np.nan),
        evidence=np.where(several, fit.evidence, np.nan), ambiguity=ambiguity, share_ambiguous=share,
        p_mistake=p_one_class[table.item] * np.clip(1 - p_right, 0, 1),
        groups=tuple(dataclasses.replace(one, items=one.items[perspective[one.items]]) for one in effects),
        group_index=np.where(perspective, group_index, -1),
    )  # fmt: skip


def _align_posterior(table: Annotations, fitted: Aggregator) -> tuple[Annotations, FloatArray]:
    """Return the table with the classes of the model, and the posterior of its items (I, K)."""
    table = table.with_classes(fitted.classes_)
    code = naming.match_names(table.items, fitted.items_, "items")
    posterior = np.ascontiguousarray(fitted.posterior_[code])
    if (code < 0).any():
        posterior = np.where((code >= 0)[:, None], posterior, fitted.predict_proba(table))
    return table, posterior


# Reasons of items -----------------------------------------------------------------------------------------------------


class _Votes:
    """The number of labels of each item, and whether they agree with the most probable class."""

    def __init__(self, rows: Annotations, best: IntArray):
        given = rows.votes() > 0
        self.n = np.diff(rows.item_ptr)  # (I,) number of labels
        self.best = best
        self.several: BoolArray = self.n >= 2
        self.disagree: BoolArray = given.sum(axis=1) > 1
        self.has_best = given[np.arange(best.size), best]  # (I,) True if an annotator gave the most probable class
        self.by_two_annotators: BoolArray = rows.annotators_per_item >= 2


@dataclass(frozen=True, eq=False)
class _ReasonFits:
    """Log probabilities of the labels of each item (I,) under the reasons, with fitted and with anchored e."""

    model: _ErrorModel  # model with fitted e
    anchored: _ErrorModel
    p_class: FloatArray  # (I, K) P(class), if the item has one class
    anchored_one: FloatArray  # Eq. 1 with anchored e
    anchored_many: FloatArray  # Eq. 2 with anchored e
    fitted_one: FloatArray  # Eq. 1 with fitted e
    fitted_many: FloatArray
    pooled_one: FloatArray  # Eq. 1 with the same e and ν for all annotators

    @property
    def evidence(self) -> FloatArray:
        """Return the log Bayes factor of one class against ambiguity (I,)."""
        return self.anchored_one - self.anchored_many

    @property
    def cautious_evidence(self) -> FloatArray:
        """Return the log Bayes factor (I,), using the larger of both probabilities under each reason."""
        return np.asarray(
            np.maximum(self.anchored_one, self.fitted_one) - np.maximum(self.anchored_many, self.fitted_many)
        )


def _fit_reasons(rows: Annotations, posterior: FloatArray, pool: Threads) -> _ReasonFits:
    model = _fit_error_model(rows, posterior)
    anchored = model.with_anchored_rates()
    one, many = _compute_log_likelihoods(anchored, pool)
    fitted_one, fitted_many = _compute_log_likelihoods(model, pool)
    pooled_one = model.with_pooled_annotators().log_one_class(rows.item, rows.n_items)
    total = [logsumexp(logs, axis=1) for logs in (one, fitted_one, pooled_one)]
    return _ReasonFits(model, anchored, softmax(one, axis=1), total[0], many, total[1], fitted_many, total[2])


def _estimate_ambiguous_share(fit: _ReasonFits, several: BoolArray, n_annotators: int) -> float:
    """Return the share of ambiguous items among items with several labels, or 0 without evidence of ambiguous items."""
    if not several.any():
        return 0.0
    without = [logs[several].sum() for logs in (fit.fitted_one, fit.pooled_one, fit.anchored_one)]
    pairs = ((fit.anchored_one, fit.anchored_many), (fit.fitted_one, fit.fitted_many))
    with_ambiguous = [_log_with_ambiguity(one[several], many[several]) for one, many in pairs]
    if max(with_ambiguous) - max(without) < STRONG_EVIDENCE and without[0] - without[1] <= n_annotators:
        return 0.0
    return float(_compute_ambiguity(fit.cautious_evidence[several]).mean())


def _choose_kinds(
    fit: _ReasonFits, votes: _Votes, posterior: FloatArray, ambiguity: FloatArray, share: float, explained: BoolArray,
    perspective: BoolArray,
) -> IntArray:  # fmt: skip
    """Return the kind of every item (I,) as a code into `DISAGREEMENT_KINDS`.

    `explained` (I,) marks items that groups may see differently, for which no other reason is reported.
    """
    evidence, best = fit.evidence, votes.best
    ambiguous = votes.disagree & (evidence <= -STRONG_EVIDENCE) & (fit.cautious_evidence < 0)
    rank = np.searchsorted(np.sort(evidence), evidence, side="right") - 1
    ambiguous &= rank < share * votes.several.sum()
    erred = ~explained & (ambiguity <= 1 - MIN_ONE_CLASS_PROBABILITY) & (evidence >= POSITIVE_EVIDENCE)
    erred &= fit.p_class[np.arange(best.size), best] >= MIN_CONFIDENCE
    unopposed = ~votes.has_best & (posterior.max(axis=1, initial=0) >= MIN_CONFIDENCE)
    agreed = votes.by_two_annotators & ~votes.disagree & votes.has_best
    return np.select(
        [votes.n == 0, perspective, ~explained & ambiguous & votes.by_two_annotators,
         np.where(votes.disagree, erred, unopposed), agreed],
        [
                    DISAGREEMENT_KINDS.index(name)
                    for name in ("unlabelled", "group perspective", "ambiguous", "likely error", "agreed")
                ],
        DISAGREEMENT_KINDS.index("cannot tell"),
    )  # fmt: skip


def _find_perspectives(
    fit: _ReasonFits, effects: tuple[GroupEffect, ...], group_index: IntArray, columns: Mapping[str, Any]
) -> BoolArray:
    """Return a mask (I,) of the items that groups explain 20 times better than the other reasons."""
    perspective = group_index >= 0
    other = np.maximum(fit.anchored_one, fit.anchored_many)
    for number, effect in enumerate(effects):
        items = np.flatnonzero(group_index == number)
        by_group = _log_likelihood_by_group(fit.anchored, items, columns[effect.column][1])
        perspective[items] = by_group - other[items] >= STRONG_EVIDENCE
    return perspective


def _to_standard_deviations(above: FloatArray, below: FloatArray) -> FloatArray:
    """Convert tail probabilities to standard deviations of a normal distribution, using the smaller tail."""
    return np.asarray(
        np.where(above < 0.5, -ndtri(np.maximum(above, SMALLEST_FLOAT)), ndtri(np.clip(below, SMALLEST_FLOAT, 0.5)))
    )


# Annotators' errors ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ErrorModel:
    """Error rates and response biases of annotators; each row is excluded from the estimates that predict it."""

    rows: Annotations
    weight: FloatArray  # (N,)
    row_errors: FloatArray  # (N,) weighted P(the row is an error)
    label_errors: FloatArray  # (A, K) weighted number of errors by label
    crowd_bias: FloatArray  # (K,) ν of the crowd
    prior: FloatArray  # (K,) π
    error_rate: FloatArray  # (N,) e of the annotator of each row

    @cached_property
    def bias(self) -> FloatArray:
        """Return ν_j(y_r) of each row (N,)."""
        annotator, label = self.rows.annotator, self.rows.label
        counts = np.maximum(self.label_errors[annotator, label] - self.row_errors, 0)
        counts = counts + N_PSEUDO_LABELS * self.crowd_bias[label]
        return np.asarray(counts / (self.label_errors.sum(axis=1)[annotator] - self.row_errors + N_PSEUDO_LABELS))

    def biases(self, chosen: slice) -> FloatArray:
        """Return ν of the annotators of the chosen rows (n, K)."""
        counts, row_errors = self.label_errors[self.rows.annotator[chosen]], self.row_errors[chosen]
        counts[np.arange(row_errors.size), self.rows.label[chosen]] -= row_errors
        counts = np.maximum(counts, 0) + N_PSEUDO_LABELS * self.crowd_bias
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def log_p(self, share: Any, chosen: Any = slice(None)) -> FloatArray:
        """Return w log p_r(share) of the chosen rows (n,)."""
        e = self.error_rate[chosen]
        return np.asarray(self.weight[chosen] * np.log((1 - e) * share + e * self.bias[chosen]))

    def with_anchored_rates(self) -> _ErrorModel:
        """Return a model in which the error rate of the most careful annotators is at most `CAREFUL_ERROR_RATE`."""
        order = np.argsort(self.error_rate, kind="stable")
        cumulative = np.cumsum(self.weight[order])
        if not cumulative.size:
            return self
        careful = self.error_rate[order[np.searchsorted(cumulative, CAREFUL_SHARE * cumulative[-1])]]
        factor = max((1 - CAREFUL_ERROR_RATE) / (1 - careful), 1.0)
        return dataclasses.replace(self, error_rate=_clip_rate(1 - factor * (1 - self.error_rate)))

    def with_pooled_annotators(self) -> _ErrorModel:
        """Return a model with the same error rate and bias for all annotators."""
        mean = self.weight @ self.error_rate / max(self.weight.sum(), SMALLEST_FLOAT)
        return dataclasses.replace(
            self, row_errors=np.zeros_like(self.row_errors), label_errors=np.zeros_like(self.label_errors),
            error_rate=np.full_like(self.error_rate, mean),
        )  # fmt: skip

    def log_one_class(self, part: IntArray, n_parts: int, chosen: Any = slice(None)) -> FloatArray:
        """Return the log of the terms of Eq. 1 (n_parts, K), where row r belongs to part[r]."""
        K, if_error = self.prior.size, self.log_p(0.0, chosen)
        cell = part.astype(np.int64) * K + self.rows.label[chosen]
        gain = np.bincount(cell, self.log_p(1.0, chosen) - if_error, n_parts * K).reshape(n_parts, K)
        return np.asarray(gain + np.bincount(part, if_error, n_parts)[:, None] + np.log(self.prior))


def _clip_rate(rate: FloatArray) -> FloatArray:
    return np.asarray(np.clip(rate, MIN_ERROR_RATE, 1 - MIN_ERROR_RATE))


def _fit_error_model(rows: Annotations, posterior: FloatArray) -> _ErrorModel:
    """Fit e, ν and π by EM under Eq. 1, starting from the posterior of a model."""
    A, K, annotator = rows.n_annotators, rows.n_classes, rows.annotator
    weight = rows.row_weights
    labels, cell = np.bincount(annotator, weight, A), annotator.astype(np.int64) * K + rows.label
    q, p_correct, before = posterior, np.ones(len(rows)), np.inf  # p_correct: P(no error | the label is the class)
    for _ in range(MAX_EM_STEPS):
        row_errors = weight * (1 - q[rows.item, rows.label] * p_correct)
        label_errors = np.bincount(cell, row_errors, A * K).reshape(A, K).astype(np.float64)
        errors, mean = label_errors.sum(axis=1), row_errors.sum() / max(weight.sum(), SMALLEST_FLOAT)
        rate = _clip_rate(
            (errors[annotator] - row_errors + N_PSEUDO_LABELS * mean) / (labels[annotator] - weight + N_PSEUDO_LABELS)
        )
        crowd_bias = (label_errors.sum(axis=0) + 1) / (row_errors.sum() + K)
        prior = (q.sum(axis=0) + 1) / (len(q) + K)
        model = _ErrorModel(rows, weight, row_errors, label_errors, crowd_bias, prior, rate)
        if abs(mean - before) < ERROR_RATE_TOLERANCE:
            break
        before, p_correct = mean, (1 - rate) / (1 - rate + rate * model.bias)
        q = softmax(model.log_one_class(rows.item, rows.n_items), axis=1)
    return model


# Probabilities of the labels ------------------------------------------------------------------------------------------


def _compute_log_likelihoods(model: _ErrorModel, pool: Threads) -> tuple[FloatArray, FloatArray]:
    """Return the log of the terms of Eq. 1 (I, K), and the log of Eq. 2 (I,)."""
    rows, prior, K = model.rows, model.prior, model.prior.size
    log_prior, log_others = np.log(prior), np.log(np.maximum(1 - prior, 1e-12))

    def log_ambiguous(number: int, first: int, last: int) -> FloatArray:
        """Return the log of Eq. 2 for the items first … last − 1."""
        chosen, I = slice(rows.item_ptr[first], rows.item_ptr[last]), last - first
        item, label = rows.item[chosen] - first, rows.label[chosen]
        cell, if_error = item.astype(np.int64) * K + label, model.log_p(0.0, chosen)

        def log_gain(share: Any, baseline: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(cell, model.log_p(share, chosen) - baseline, I * K).reshape(I, K))

        two_classes, any_class = [], []
        gain = {share: log_gain(share, if_error) for share in SECOND_CLASS_SHARES}
        for share in SECOND_CLASS_SHARES:
            pairs = gain[share] + log_prior - log_others + _log_sum_of_others(gain[round(1 - share, 9)] + log_prior)
            two_classes.append(np.bincount(item, if_error, I) + logsumexp(pairs, axis=1))
        for share in OTHER_CLASSES_SHARES:
            baseline = model.log_p(share * prior[label], chosen)
            top = log_gain(1 - share + share * prior[label], baseline) + log_prior
            any_class.append(np.bincount(item, baseline, I) + logsumexp(top, axis=1))
        means = [logsumexp(logs, axis=0) - math.log(len(logs)) for logs in (two_classes, any_class)]
        return np.asarray(np.logaddexp(*means) - math.log(2))

    cuts = balanced_ranges(rows.item_ptr, max(pool.threads, len(rows) // ROWS_PER_CHUNK))
    many = np.concatenate(pool.map(log_ambiguous, cuts)) if K > 1 else np.full(rows.n_items, -np.inf)
    return model.log_one_class(rows.item, rows.n_items), many


def _log_sum_of_others(values: FloatArray) -> FloatArray:
    """Return, for each column, the log of the sum of exp over all other columns (I, K).

    Cumulative sums from both sides are added, because subtracting from the total would lose small terms.
    """
    sums = np.full(values.shape, -np.inf)
    sums[:, 1:] = np.logaddexp.accumulate(values, axis=1)[:, :-1]
    after = np.logaddexp.accumulate(values[:, ::-1], axis=1)[:, ::-1]
    sums[:, :-1] = np.logaddexp(sums[:, :-1], after[:, 1:])
    return sums


def _log_likelihood_by_group(model: _ErrorModel, items: IntArray, group: IntArray) -> FloatArray:
    """Return the log of Eq. 3 (items,); annotators without a group form a group of their own."""
    rows, position = model.rows, np.full(model.rows.n_items, -1)
    position[items] = np.arange(items.size)
    chosen, n_groups = position[rows.item] >= 0, int(group.max(initial=-1)) + 2
    pair = position[rows.item[chosen]] * n_groups + group[rows.annotator[chosen]] + 1
    pairs, part = np.unique(pair, return_inverse=True)
    logs = logsumexp(model.log_one_class(part, pairs.size, chosen), axis=1)
    return np.asarray(np.bincount(pairs // n_groups, logs, items.size))


def _compute_ambiguity(evidence: FloatArray) -> FloatArray:
    """Return P(ambiguous) of each item, computed from the log Bayes factors and the most probable share α."""
    alpha, gamma = 0.5, np.zeros(evidence.size)
    for _ in range(N_ALPHA_STEPS if evidence.size else 0):
        gamma = expit(logit(alpha) - evidence)
        alpha = float((gamma.sum() + N_ALPHA_PRIOR_ITEMS / 2) / (gamma.size + N_ALPHA_PRIOR_ITEMS))
    return gamma


def _log_with_ambiguity(one: FloatArray, many: FloatArray) -> float:
    """Return log P(labels of all items) for the most probable share of ambiguous items."""
    alpha = _compute_ambiguity(one - many).mean()
    log_clear, log_ambiguous = np.log(np.maximum([1 - alpha, alpha], SMALLEST_FLOAT))  # either share may be 0
    return float(np.logaddexp(log_clear + one, log_ambiguous + many).sum())


def _compute_surprise(model: _ErrorModel, best: IntArray, pool: Threads) -> FloatArray:
    """Return the expected disagreement and two tail probabilities of the labels if the class is best[i] (3, I).

    The rows are the expected share of differing pairs, P(labels are less probable) and P(labels are more probable). The
    probabilities are exact for items with up to `MAX_EXACT_LABELS` labels; for others, they are normal approximations.
    """
    rows = model.rows

    def tails_of_items(number: int, first: int, last: int) -> FloatArray:
        chosen, ptr = slice(rows.item_ptr[first], rows.item_ptr[last]), rows.item_ptr[first : last + 1]
        ptr, item, label, w = ptr - ptr[0], rows.item[chosen], rows.label[chosen], model.weight[chosen]
        row = np.arange(item.size)
        chance = model.error_rate[chosen, None] * model.biases(chosen)  # (n, K) probability of each label by an error
        chance[row, best[item]] += 1 - model.error_rate[chosen]
        cost = -w[:, None] * np.log(chance)
        mean = (chance * cost).sum(axis=1)
        row_variance = np.maximum((chance * cost**2).sum(axis=1) - mean**2, 0)
        columns = (w, w**2, w**2 * (chance**2).sum(axis=1), cost[row, label] - mean, row_variance, np.ptp(cost, axis=1))
        weight, squares, same_row, excess, variance, reach = sum_ranges(np.stack(columns, axis=1), ptr).T
        equal = (sum_ranges(w[:, None] * chance, ptr) ** 2).sum(axis=1) - same_row
        n, result = np.diff(ptr), np.full((ptr.size - 1, 3), 0.5)
        with np.errstate(divide="ignore", invalid="ignore"):  # items with fewer than two labels
            result[:, 0] = 1 - equal / (weight**2 - squares)
            z = excess / np.sqrt(2 * variance)
            grid = np.maximum(np.sqrt(variance / n) / GRID_POINTS_PER_SD, reach / MAX_GRID_POINTS)
        # Otherwise, all labels of the item are equally probable
        varies = (reach >= 1e-9) & (variance >= 1e-18) & (n > 1)
        result[varies, 1], result[varies, 2] = erfc(z[varies]) / 2, erfc(-z[varies]) / 2
        exact = varies & (n <= MAX_EXACT_LABELS)
        step = np.where(exact, grid, np.inf)[
            item - first
        ]  # an infinite step excludes items without an exact distribution
        shift = ((cost - cost.min(axis=1, keepdims=True)) / step[:, None] + 0.5).astype(np.int64)
        result[exact, 1:] = kernels.tail_probabilities(ptr, label, chance, shift, MAX_GRID_POINTS + MAX_EXACT_LABELS)[
            exact
        ]
        return result

    cuts = balanced_ranges(rows.item_ptr, max(pool.threads, len(rows) // ROWS_PER_CHUNK))
    return np.concatenate(pool.map(tails_of_items, cuts)).T


def _compute_disagreement(rows: Annotations) -> FloatArray:
    """Return the weighted share of pairs of labels that differ (I,), or 0 without pairs."""
    votes = rows.votes()
    total = votes.sum(axis=1)
    squares = total if rows.weight is None else np.bincount(rows.item, rows.weight**2, rows.n_items)
    pairs = total**2 - squares
    return np.asarray(
        np.divide(total**2 - (votes**2).sum(axis=1), pairs, out=np.zeros_like(total), where=pairs > 1e-12 * total**2)
    )
