"""Test annotators for response biases if labels are not classes: numbers, comparisons, sets, spans, texts.

A *trait* of annotator j is a number t_j with a standard error e_j, measured on the items that other annotators have
labelled too. The traits of typical annotators are distributed as N(m, τ²). The traits of atypical annotators are
distributed as

    relation      N(0, e²) if answers do not depend on the item    N(−m, τ² + e²) if answers contradict it
    other traits  Cauchy, centred on m with the scale 5 √(τ² + e²)

EM estimates the shares of these groups, m and τ². It starts from the median and the median absolute deviation, and uses
a sceptical prior on the shares. P-values are computed for z_j = (t_j − m) / √(τ² + e_j²) with Student's t; the degrees
of freedom are the number of typical annotators minus one. The procedure of Benjamini & Hochberg (1995) over all
annotators and traits limits the expected share of typical annotators among the flagged ones to `FALSE_DISCOVERY_RATE`.
The condition P(typical) ≤ `FALSE_DISCOVERY_RATE` has the same error rate.

| label type | trait | measured as |
|---|---|---|
| numbers, graded | shift | normal scores of the labels minus the mean score of the other annotators on the item |
| | relation | Fisher's z of the correlation with this mean |
| pairs | position, ties, relation | h, κ and γ of Bradley & Terry's model, with the crowd's other parameters |
| sets, spans | marks | marked options or spans minus the mean of the other annotators on the item or document |
| sets, spans, objects | relation | similarity (Jaccard, 1 − distance) to labels of the item minus that to others |

The test of relation is one-sided: it finds annotators whose labels are less related to the labels of the others. They
are flagged as `unrelated` or `contrary`, whichever is more probable, if P(typical) ≤ `FALSE_DISCOVERY_RATE`. Otherwise,
they are flagged as `apart` if the test is significant. An annotator who gives the same label to all of n ≥ 20 items is
flagged as `unrelated` if g^n ≤ `FALSE_DISCOVERY_RATE` / A (Bonferroni), where g is the largest share of one label among
annotators who use more than one label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from scipy.special import gammaln, ndtri, stdtr

from dissensus.common import formatting
from dissensus.common.frames import columns_to_frame
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.evaluation.distances import pair_distances
from dissensus.messages import Message
from dissensus.models.exceptions import NoAnnotations
from dissensus.questions.findings import (
    FlagReason,
    LowCorrelation,
    LowSimilarity,
    RepeatsOneNumber,
    ShiftedNumbers,
    UnusualChoices,
    UnusualMarkCounts,
)
from dissensus.table.annotations import Annotations

Flag = Literal[
    "unrelated", "contrary", "copies", "apart", "higher", "lower", "left", "right", "more_ties", "fewer_ties", "more",
    "fewer",
]  # fmt: skip
FLAG_WORDS: dict[Flag, str] = {
    "unrelated": "unrelated to the items",
    "contrary": "contrary to the others",
    "copies": "same as another's",
    "apart": "less similar to the others than usual",
    "higher": "higher than the others'",
    "lower": "lower than the others'",
    "left": "in favour of the left side",
    "right": "in favour of the right side",
    "more_ties": "ties more often than others",
    "fewer_ties": "ties less often than others",
    "more": "with more marks than the others'",
    "fewer": "with fewer marks than the others'",
}
"""Maps each flag to a description of the answers of an annotator with this flag."""

FALSE_DISCOVERY_RATE = 0.01  # maximum expected share of typical annotators among the flagged ones
# Minimum number of labels on items that others labelled too; annotators with fewer are not flagged
MIN_LABELS_PER_ANNOTATOR = 10
MIN_TESTED_ANNOTATORS = 4  # minimum number of annotators with enough labels; with fewer, no annotator is tested
ATYPICAL_SCALE = 5.0  # scale of the traits of atypical annotators divided by the scale for typical annotators
PRIOR_GROUP_SHARES = {True: (0.93, 0.05, 0.02), False: (0.95, 0.05)}
"""Prior shares of typical annotators and of each atypical kind; the key is whether a trait is one-sided."""
N_PRIOR_ANNOTATORS = 20  # weight of this prior, as a number of annotators
MAX_ATYPICAL_SHARE = 0.3  # maximum share of atypical annotators
N_EM_STEPS = 100
N_NEWTON_STEPS = 8  # number of Newton steps from the γ of the crowd to the γ of an annotator
MAX_GAMMA = 5.0  # upper bound of γ, which would be infinite for an annotator without errors
MAX_COMPARED_LABELS = 8  # maximum number of other labels of the item with which a label is compared
N_UNRELATED_LABELS = 4  # number of labels of other items with which a label is compared
MIN_EQUAL_LABELS = 20  # minimum number of equal labels of an annotator for the test of equal labels
MAX_P_EQUAL_LABELS = 0.05  # maximum p-value of the relation at which equal labels alone lead to a flag
MIN_SAME_LABEL_SHARE = 0.9  # minimum share of one label for the reason to name this label
MIN_STANDARD_ERROR = 1e-9  # lower bound of standard errors, which must not be zero

ReasonFacts = tuple[type[FlagReason], dict[str, Any]]
"""The message class of a reason, and its facts except the p-value."""


class Trait(NamedTuple):
    """A number for each annotator, with its standard error."""

    name: Literal["relation", "shift", "position", "ties", "marks"]
    value: FloatArray  # (A,)
    error: FloatArray  # (A,)
    one_sided: bool  # True if only low values count as unusual
    describe: Callable[[int], ReasonFacts]  # returns the reason for a flag, given the code of the annotator
    p_always_equal: FloatArray | None = None  # (A,) probability that a typical annotator gives only equal labels


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorFlags(NotebookTable):
    """Flags and reasons of every annotator of a table."""

    flag_words: ClassVar[dict[Flag, str]] = FLAG_WORDS  # the possible flags
    annotators: Names  # (A,)
    labels: Any  # (A,) total weight of the labels on items that other annotators labelled too
    flag_messages: tuple[dict[Flag, Message], ...]  # (A,) maps the flags of each annotator to their reasons
    active_annotators: int  # number of annotators who gave labels
    too_few_labels: int  # number of active annotators whose labels are too few for a test

    @property
    def flags(self) -> tuple[tuple[Flag, ...], ...]:
        """Return the flags of each annotator (A,)."""
        return tuple(tuple(messages) for messages in self.flag_messages)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return one sentence per annotator (A,), which is empty if the annotator has no flag."""
        return tuple("; ".join(map(str, messages.values())) for messages in self.flag_messages)

    def annotators_with_flag(self, flag: Flag) -> list[Any]:
        """Return the annotators with a flag."""
        check_argument("flag", flag, Literal[tuple(self.flag_words)])
        return [name for name, flags in zip(self.annotators.tolist(), self.flags, strict=True) if flag in flags]

    def _measures(self) -> dict[str, Any]:
        """Return the measures (A,) on which the flags are based, by name."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """Return a frame (pandas if installed, else Arrow) with one row per annotator.

        The columns are annotator, flag ("" without a flag), evidence (the reasons for the flags) and the measures.
        """
        columns = {"flag": [", ".join(flags) for flags in self.flags], "evidence": list(self.reasons)}
        return columns_to_frame({"annotator": self.annotators} | columns | self._measures())


@dataclass(frozen=True, eq=False, repr=False)
class BiasDiagnosis(AnnotatorFlags):
    """Flags, reasons and traits of every annotator of a table, and the items whose labels differ most.

    >>> from dissensus import diagnose, simulate
    >>> found = diagnose(simulate.simulate_kind("numbers", 60, 8, seed=1).annotations)
    >>> isinstance(found, BiasDiagnosis), sum(map(len, found.flags)), len(found.reasons)
    (True, 0, 8)
    >>> found.annotators_with_flag("higher"), found.to_frame().shape, int(found.most_contested(1)[0][0])
    ([], (8, 8), 29)
    """

    traits: dict[str, FloatArray]  # name → (A,)
    p_values: dict[str, FloatArray]  # maps the name of each trait to p-values (A,), NaN with too few labels
    items: Names  # (I,)
    disagreement: FloatArray  # (I,) mean distance between the labels of each item; NaN with fewer than two labels
    groups: ClassVar[tuple[Any, ...]] = ()
    unsettled: ClassVar[str] = ""

    def __repr__(self) -> str:
        n = sum(map(bool, self.flag_messages))
        annotators = formatting.format_count(self.active_annotators, "annotator")
        return f"BiasDiagnosis of {annotators}: {n:,} {'answers' if n == 1 else 'answer'} unlike the others"

    def most_contested(self, n: int) -> list[tuple[Any, float]]:
        """Return the n items whose labels differ most, with the distance between their labels."""
        order = np.argsort(-np.nan_to_num(self.disagreement, nan=-1.0), kind="stable")[:n]
        pairs = [(self.items[i], float(self.disagreement[i])) for i in order.tolist()]
        return [(item, distance) for item, distance in pairs if distance > 0]

    def _measures(self) -> dict[str, Any]:
        """Return the number of labels, the traits and their p-values."""
        measures = {"labels": self.labels}
        for name, value in self.traits.items():
            measures |= {name: value, f"{name}_p": self.p_values[name]}
        return measures


def find_biases(table: Annotations) -> BiasDiagnosis:
    """Flag annotators whose answers differ from those of the others.

    >>> from dissensus.table.simulate import simulate_kind
    >>> data = simulate_kind("numbers", 300, 20, redundancy=8, seed=1)
    >>> found = find_biases(data.annotations)
    >>> sorted(found.annotators_with_flag("unrelated")) == sorted(np.flatnonzero(data.kind == "spammer").tolist())
    True
    """
    if table.n_annotations == 0:
        raise NoAnnotations
    labels, traits, disagreement = TRAIT_FUNCTIONS[table.kind](table)
    enough = labels >= MIN_LABELS_PER_ANNOTATOR
    distributions = [TraitDistribution.fit(trait, enough) for trait in traits]
    significant = apply_benjamini_hochberg(
        np.stack([one.p_value for one in distributions], axis=1), FALSE_DISCOVERY_RATE
    )  # (A, traits)
    messages: list[dict[Flag, Message]] = []
    for code in range(table.n_annotators):
        reasons: dict[Flag, Message] = {}
        for trait, distribution, is_unusual in zip(traits, distributions, significant[code], strict=True):
            if (flag := _choose_flag(trait, distribution, code, bool(is_unusual))) is not None:
                reason, facts = trait.describe(code)
                reasons[flag] = reason(chance=float(distribution.p_value[code]), **facts)
        messages.append(reasons)
    active = np.diff(table.annotator_ptr) > 0
    return BiasDiagnosis(
        table.annotators, labels, tuple(messages), int(active.sum()), int((active & ~enough).sum()),
        {trait.name: trait.value for trait in traits},
        {trait.name: one.p_value for trait, one in zip(traits, distributions, strict=True)}, *disagreement,
    )  # fmt: skip


class TraitDistribution(NamedTuple):
    """The distribution of a trait among typical annotators, and the distance of each annotator from its mean."""

    mean: float
    p_value: FloatArray  # (A,) probability that a typical annotator is as far from the mean; NaN with too few labels
    probability: FloatArray  # (A, 2 or 3) probabilities that the annotator is typical, or of each atypical kind

    @classmethod
    def fit(cls, trait: Trait, enough: Any) -> Self:
        """Fit the mixture (see the docstring of this module) by EM; the mask `enough` (A,) selects the annotators."""
        prior = np.array(PRIOR_GROUP_SHARES[bool(trait.one_sided)])
        p_value, probability = np.full(trait.value.size, np.nan), np.zeros((trait.value.size, prior.size))
        probability[:, 0] = 1
        tested = np.flatnonzero(enough & np.isfinite(trait.value) & np.isfinite(trait.error))
        if tested.size < MIN_TESTED_ANNOTATORS:
            return cls(float("nan"), p_value, probability)
        value, error = trait.value[tested], np.maximum(trait.error[tested], MIN_STANDARD_ERROR)
        mean = float(np.median(value))
        variance = (float(np.median(np.abs(value - mean))) / float(ndtri(0.75))) ** 2
        variance = max(variance - float(np.median(error**2)), 0.0)
        shares, freedom = prior, max(1.0, 0.4 * (tested.size - 1))
        for _ in range(N_EM_STEPS):
            total_variance = variance + error**2
            z = (value - mean) / np.sqrt(total_variance)
            densities = _mixture_densities(value, error, mean, total_variance, freedom, trait.one_sided)
            joint = np.maximum(np.stack(densities, axis=1) * shares, 1e-300)
            q = joint / joint.sum(axis=1, keepdims=True)
            shares = q.sum(axis=0) + N_PRIOR_ANNOTATORS * prior
            shares = shares / shares.sum()
            if (atypical := shares[1:].sum()) > MAX_ATYPICAL_SHARE:
                shares = np.append(1 - MAX_ATYPICAL_SHARE, shares[1:] * MAX_ATYPICAL_SHARE / atypical)
            weight = q[:, 0] / total_variance
            mean = float(weight @ value / weight.sum())
            variance = max(float(q[:, 0] @ ((value - mean) ** 2 - error**2) / q[:, 0].sum()), 0.0)
            freedom = max(1.0, float(q[:, 0].sum()) - 1)
        p_value[tested] = stdtr(freedom, z) if trait.one_sided else 2 * stdtr(freedom, -np.abs(z))
        probability[tested] = q
        return cls(mean, p_value, probability)


def _mixture_densities(
    value: FloatArray, error: FloatArray, mean: float, variance: FloatArray, freedom: float, one_sided: bool
) -> list[FloatArray]:
    """Return the density of each value among typical annotators and among each kind of atypical ones."""
    scale = np.sqrt(variance)
    z = (value - mean) / scale
    typical = _student_density(z, freedom) / scale
    if not one_sided:
        return [typical, _student_density(z / ATYPICAL_SCALE, 1.0) / (ATYPICAL_SCALE * scale)]
    unrelated = np.exp(-((value / error) ** 2) / 2) / np.sqrt(2 * np.pi) / error
    return [typical, unrelated, _student_density((value + abs(mean)) / scale, freedom) / scale]


def _student_density(z: FloatArray, freedom: float) -> FloatArray:
    scale = np.exp(gammaln((freedom + 1) / 2) - gammaln(freedom / 2)) / np.sqrt(freedom * np.pi)
    return np.asarray(scale * (1 + z**2 / freedom) ** (-(freedom + 1) / 2))


def apply_benjamini_hochberg(p: FloatArray, level: float) -> Any:
    """Return a mask of the p-values that are significant at the false discovery rate `level`; NaN is not tested."""
    flat = np.sort(p[~np.isnan(p)])
    below = np.flatnonzero(flat <= level * np.arange(1, flat.size + 1) / max(flat.size, 1))
    return p <= flat[below[-1]] if below.size else np.zeros(p.shape, np.bool_)


def _choose_flag(trait: Trait, distribution: TraitDistribution, code: int, significant: bool) -> Flag | None:
    """Return the flag of an annotator for one trait, or None."""
    p_value = distribution.p_value[code]
    if trait.name == "relation":
        typical, unrelated, contrary = distribution.probability[code]
        if typical <= FALSE_DISCOVERY_RATE and p_value <= FALSE_DISCOVERY_RATE:
            return "unrelated" if unrelated >= contrary else "contrary"
        equal = trait.p_always_equal
        if equal is not None and equal[code] * equal.size <= FALSE_DISCOVERY_RATE and p_value <= MAX_P_EQUAL_LABELS:
            return "unrelated"
        return "apart" if significant else None
    flags: dict[str, tuple[Flag, Flag]] = {  # maps each trait to the flags for a large and for a small value
        "shift": ("higher", "lower"), "position": ("left", "right"), "ties": ("more_ties", "fewer_ties"),
        "marks": ("more", "fewer"),
    }  # fmt: skip
    return flags[trait.name][int(trait.value[code] < distribution.mean)] if significant else None


def _average_by_code(values: FloatArray, code: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of the values with each code (n,), and its standard error (n,)."""
    count = np.bincount(code, minlength=n)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(code, values, n) / count
        variance = np.bincount(code, (values - mean[code]) ** 2, n) / (count - 1)
        return mean, np.sqrt(variance / count)


def _leave_one_out_mean(table: Annotations, values: FloatArray) -> tuple[FloatArray, Any]:
    """Return the mean value of the other annotators on the item of each row (N,), and whether there are any (N,)."""
    pair = table.item.astype(np.int64) * table.n_annotators + table.annotator
    _, own = np.unique(pair, return_inverse=True)
    n = np.bincount(table.item, minlength=table.n_items)[table.item] - np.bincount(own)[own]
    total = np.bincount(table.item, values, table.n_items)[table.item] - np.bincount(own, values)[own]
    return np.divide(total, n, out=np.zeros(len(table)), where=n > 0), n > 0


TraitResult = tuple[IntArray, list[Trait], tuple[Names, FloatArray]]
"""Number of testable labels of each annotator (A,), the traits, and the disagreement of each item or document."""


def _measure_number_traits(table: Annotations) -> TraitResult:
    A, raw = table.n_annotators, table.values[table.label]
    _, rank, count = np.unique(raw, return_inverse=True, return_counts=True)
    upper = np.cumsum(count)
    scores = ndtri((upper - count / 2) / len(table))[rank]  # normal scores
    others, shared = _leave_one_out_mean(table, scores)
    raw_others, _ = _leave_one_out_mean(table, raw)
    annotator, x, others, y = table.annotator[shared], scores[shared], others[shared], raw[shared]
    labels = np.bincount(annotator, minlength=A)
    shift, error = _average_by_code(x - others, annotator, A)
    raw_shift, _ = _average_by_code(y - raw_others[shared], annotator, A)
    r = _correlation_by_annotator(x, others, annotator, A)
    z, z_error = np.arctanh(np.clip(r, -0.999, 0.999)), 1 / np.sqrt(np.maximum(labels - 3, 1))
    typical_r = (
        np.median(r[labels >= MIN_LABELS_PER_ANNOTATOR]) if (labels >= MIN_LABELS_PER_ANNOTATOR).any() else np.nan
    )

    def describe_relation(code: int) -> ReasonFacts:
        values, times = np.unique(y[annotator == code], return_counts=True)
        n = int(labels[code])
        if times.max() >= MIN_SAME_LABEL_SHARE * n:
            return RepeatsOneNumber, {"value": float(values[times.argmax()]), "times": int(times.max()), "n": n}
        return LowCorrelation, {"r": float(r[code]), "usual": float(typical_r), "n": n}

    def describe_shift(code: int) -> ReasonFacts:
        return ShiftedNumbers, {"shift": float(raw_shift[code]), "n": int(labels[code])}

    p_equal = _probability_of_equal_labels(annotator, rank[shared], labels)
    spread = _average_by_code(raw, table.item, table.n_items)[1]
    spread = spread * np.sqrt(np.bincount(table.item, minlength=table.n_items))
    traits = [
        Trait("relation", z, z_error, True, describe_relation, p_equal),
        Trait("shift", shift, error, False, describe_shift),
    ]
    return labels, traits, (table.items, spread)


def _correlation_by_annotator(x: FloatArray, y: FloatArray, annotator: IntArray, A: int) -> FloatArray:
    """Return the correlation of x and y over the rows of each annotator (A,), or 0 if x or y is constant."""
    (mean_x, _), (mean_y, _) = _average_by_code(x, annotator, A), _average_by_code(y, annotator, A)
    dx, dy = x - mean_x[annotator], y - mean_y[annotator]
    with np.errstate(divide="ignore", invalid="ignore"):
        product = np.bincount(annotator, dx * dy, A)
        squares = np.bincount(annotator, dx**2, A) * np.bincount(annotator, dy**2, A)
        return np.asarray(np.divide(product, np.sqrt(squares), out=np.zeros(A), where=squares > 0))


def _probability_of_equal_labels(annotator: IntArray, rank: IntArray, labels: IntArray) -> FloatArray:
    """Return the probability that a typical annotator gives only equal labels (A,), or 1 if labels differ.

    `rank` (N,) holds codes of the labels, and `labels` (A,) the number of labels of each annotator.
    """
    # Number of times that each annotator gives their most frequent label
    most_frequent = np.zeros(labels.size, np.int64)
    pairs, times = np.unique(annotator.astype(np.int64) * (rank.max(initial=0) + 1) + rank, return_counts=True)
    np.maximum.at(most_frequent, pairs // (rank.max(initial=0) + 1), times)
    several = (labels >= MIN_LABELS_PER_ANNOTATOR) & (most_frequent < labels)
    largest_share = float(((most_frequent + 1) / (labels + 2))[several].max()) if several.any() else 1.0
    return np.where((labels >= MIN_EQUAL_LABELS) & (most_frequent == labels), largest_share**labels, 1.0)


def _measure_pair_traits(table: Annotations) -> TraitResult:
    from dissensus.models.methods.bradley_terry import BradleyTerry, expected_outcomes, score_derivatives

    model, A = BradleyTerry().fit(table), table.n_annotators
    comparisons, annotator = model.extract_comparisons(table), table.annotator
    parameters = np.tile(model.crowd_answering_, (A, 1))
    d = model.scores_[comparisons.left_codes] - model.scores_[comparisons.right_codes]

    def newton_step(score: FloatArray, information: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return one Newton step (A,) that starts at the parameters of the crowd, and its standard error (A,)."""
        sums = np.maximum(np.bincount(annotator, information, A), MIN_STANDARD_ERROR)
        return np.bincount(annotator, score, A) / sums, 1 / np.sqrt(sums)

    usual = expected_outcomes(comparisons, model.scores_, parameters, total=False)
    for _ in range(N_NEWTON_STEPS):
        slope, curve = score_derivatives(
            comparisons, expected_outcomes(comparisons, model.scores_, parameters, total=False)
        )
        step, gamma_error = newton_step(slope * d, curve * d**2)
        parameters[:, 0] += np.clip(step, -1, 1)
    gamma = np.clip(parameters[:, 0], -MAX_GAMMA, MAX_GAMMA)
    p = expected_outcomes(comparisons, model.scores_, parameters, total=False)
    slope, curve = score_derivatives(comparisons, p)
    choices = {  # maps each choice to whether each row makes it, and to its expected probability
        "left": (table.label == 0, (usual.decided + usual.difference) / 2),
        "right": (table.label == 1, (usual.decided - usual.difference) / 2),
        "tie": (table.label == 2, usual.tie),
        "better": (
            (table.label < 2) & ((table.label == 0) == (d > 0)),
            usual.decided / 2 + np.abs(usual.difference) / 2,
        ),
    }
    counts = {name: [np.bincount(annotator, values, A) for values in pair] for name, pair in choices.items()}

    def describe_choice(code: int, choice: str) -> ReasonFacts:
        times, expected = (float(count[code]) for count in counts[choice])
        return UnusualChoices, {"choice": choice, "times": times, "expected": expected, "n": int(n[code])}

    n = np.bincount(annotator, minlength=A)
    position, position_error = newton_step(slope, curve)
    side = np.where(position > 0, "left", "right").tolist()
    traits = [
        Trait("relation", gamma, gamma_error, True, lambda code: describe_choice(code, "better")),
        Trait("position", position, position_error, False, lambda code: describe_choice(code, side[code])),
    ]
    if 0 < comparisons.tied.sum() < comparisons.weight.sum():
        ties = newton_step(comparisons.tied - comparisons.weight * p.tie, comparisons.weight * p.tie * (1 - p.tie))
        traits.append(Trait("ties", *ties, False, lambda code: describe_choice(code, "tie")))
    votes = table.votes()
    total = votes.sum(axis=1)
    minority = np.where(total > 1, 1 - votes.max(axis=1, initial=0) / np.maximum(total, 1), np.nan)
    return n, traits, (table.items, minority)


Similarity = Callable[[IntArray, IntArray], FloatArray]
"""Returns the similarities (n,) of the labels in two lists of rows (n,)."""


def _mean_similarity(item: IntArray, annotator: IntArray, similarity: Similarity) -> tuple[FloatArray, FloatArray]:
    """Return the mean similarity of each row to other annotators' rows of its item, and to rows of other items.

    The first is NaN if no other annotator labelled the item.
    """
    rng, N = np.random.default_rng(0), item.size
    order = np.lexsort((rng.random(N), item))
    size = np.bincount(item)[item[order]]
    start = np.searchsorted(item[order], item[order])
    position = np.arange(N) - start

    def mean_over_pairs(pairs: Iterable[tuple[IntArray, IntArray, Any]]) -> FloatArray:
        """Return the mean similarity (N,) of each row over the valid pairs of rows by different annotators."""
        total, times = np.zeros(N), np.zeros(N)
        for row, other, valid in pairs:
            valid = valid & (annotator[row] != annotator[other])
            total += np.bincount(row[valid], similarity(row[valid], other[valid]), N)
            times += np.bincount(row[valid], minlength=N)
        return np.asarray(np.divide(total, times, out=np.full(N, np.nan), where=times > 0))

    shifts = range(1, MAX_COMPARED_LABELS + 1)  # offsets to the following rows of the item
    same_item = mean_over_pairs((order, order[start + (position + shift) % size], shift < size) for shift in shifts)
    strangers = (rng.permutation(N) for _ in range(N_UNRELATED_LABELS))
    other_items = mean_over_pairs((np.arange(N), other, item != item[other]) for other in strangers)
    mean = float(np.nanmean(other_items)) if (~np.isnan(other_items)).any() else 0.0
    return same_item, np.nan_to_num(other_items, nan=mean)


def _measure_similarity_traits(
    item: IntArray, annotator: IntArray, A: int, items: Names, similarity: Similarity, marks: Any, what: str
) -> TraitResult:
    """Return the traits that follow from similarities of labels; `marks` (N,) is the number of marks, or None."""
    to_item, by_chance = _mean_similarity(item, annotator, similarity)
    shared = ~np.isnan(to_item)
    labels = np.bincount(annotator[shared], minlength=A)
    relation, error = _average_by_code((to_item - by_chance)[shared], annotator[shared], A)
    mean, _ = _average_by_code(to_item[shared], annotator[shared], A)
    usual = (
        np.median(mean[labels >= MIN_LABELS_PER_ANNOTATOR]) if (labels >= MIN_LABELS_PER_ANNOTATOR).any() else np.nan
    )

    def describe_similarity(code: int) -> ReasonFacts:
        facts = {"unit": what, "similarity": float(mean[code]), "usual": float(usual), "n": int(labels[code])}
        return LowSimilarity, facts

    traits = [Trait("relation", relation, error, True, describe_similarity)]
    if marks is not None:
        n = np.bincount(item)[item] - 1
        others = np.divide(np.bincount(item, marks)[item] - marks, n, out=np.zeros(item.size), where=n > 0)
        excess, excess_error = _average_by_code((marks - others)[shared], annotator[shared], A)
        mean_marks, _ = _average_by_code(marks[shared], annotator[shared], A)

        def describe_marks(code: int) -> ReasonFacts:
            facts = {"mean": float(mean_marks[code]), "usual": float(mean_marks[code] - excess[code])}
            return UnusualMarkCounts, {"unit": what, "n": int(labels[code])} | facts

        traits.append(Trait("marks", excess, excess_error, False, describe_marks))
    distance = 1 - _average_by_code(to_item[shared], item[shared], items.size)[0]
    return labels, traits, (items, distance)


def _measure_set_traits(table: Annotations) -> TraitResult:
    selected = table.options.selected.astype(np.float64)

    def similarity(row: IntArray, other: IntArray) -> FloatArray:
        return _jaccard_similarity(selected[table.label[row]], selected[table.label[other]])

    marks = selected.sum(axis=1)[table.label]
    return _measure_similarity_traits(
        table.item, table.annotator, table.n_annotators, table.items, similarity, marks, "sets"
    )


def _jaccard_similarity(first: Any, second: Any) -> FloatArray:
    intersection = (first * second).sum(axis=1)
    union = first.sum(axis=1) + second.sum(axis=1) - intersection
    return np.asarray(np.divide(intersection, union, out=np.ones(intersection.shape), where=union > 0))


def _measure_object_traits(table: Annotations) -> TraitResult:
    from dissensus.models.methods.closest import Closest

    distance = Closest().distance

    def similarity(row: IntArray, other: IntArray) -> FloatArray:
        return 1 - pair_distances(table.classes, table.label[row], table.label[other], distance)

    return _measure_similarity_traits(
        table.item, table.annotator, table.n_annotators, table.items, similarity, None, "answers"
    )


def _measure_span_traits(table: Annotations) -> TraitResult:
    """Compare annotators on documents, with the marked positions of each document and annotator as one row."""
    from scipy.sparse import csr_array

    A, sequences = table.n_annotators, table.sequences
    readings, reading = np.unique(sequences.document[table.item] * np.int64(A) + table.annotator, return_inverse=True)
    tags = [str(name) for name in table.classes]
    # Without B- and I- tags, every tag counts as a mark, as for parts of speech
    bio = any(name[:2] in ("B-", "I-") for name in tags)
    span_types = [name[2:] if name[:2] in ("B-", "I-") else "" for name in tags] if bio else tags
    types, type_code = np.unique(span_types, return_inverse=True)
    inside = np.array([name != "" for name in span_types])[table.label]
    size = (sequences.end - sequences.start)[table.item].astype(np.float64)
    feature = table.item.astype(np.int64) * types.size + type_code[table.label]
    shape = (readings.size, table.n_items * types.size)
    ones, sizes = (
        csr_array((weight[inside], (reading[inside], feature[inside])), shape=shape)
        for weight in (np.ones(len(table)), size)
    )

    def similarity(row: IntArray, other: IntArray) -> FloatArray:
        intersection = np.asarray(sizes[row].multiply(ones[other]).sum(axis=1)).reshape(-1)
        union = np.asarray(sizes[row].sum(axis=1) + sizes[other].sum(axis=1)).reshape(-1) - intersection
        return np.asarray(np.divide(intersection, union, out=np.ones(intersection.shape), where=union > 0))

    begins = np.array([name[:2] == "B-" for name in tags])[table.label]
    marks = np.bincount(reading, begins, readings.size) if bio else None
    document, annotator = readings // A, readings % A
    return _measure_similarity_traits(document, annotator, A, sequences.documents, similarity, marks, "documents")


TRAIT_FUNCTIONS: dict[str, Callable[[Annotations], TraitResult]] = {
    "numbers": _measure_number_traits, "graded": _measure_number_traits, "pairs": _measure_pair_traits,
        "sets": _measure_set_traits,
    "objects": _measure_object_traits, "spans": _measure_span_traits,
}  # fmt: skip
