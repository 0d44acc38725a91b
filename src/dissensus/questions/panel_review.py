"""Review a panel of LLM judges: which make the same mistakes, and how many independent judges they amount to.

Judges j and k err on the same items more often than by chance. With the errors e_ij = [y_ij ≠ z_i], r_jk the
correlation of the errors of j and k, and r its mean over pairs, A judges carry the evidence of

    A / (1 + (A − 1) r)        (Kish 1965)

independent ones. With gold, z is known. Without gold z_i ~ q_i, the posterior: if q is calibrated (see
`models.tempering`), so are expected products of errors. The interval is by bootstrap over items with gold; without
gold it is the interval of ρ. Errors of scores are deviations from the mean of the class, or from the line through gold
scores.

The value of a judge is the share of the panel's answer that is lost without it: the loss of R² if the panel's posterior
q is predicted by the best linear combination of the other judges' labels x_ij(c) instead of all judges' labels. Judges
are selected one by one: the next one adds most per cost of its call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dissensus.common.registry import DEFAULT_METHOD
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.evaluation import Estimate
from dissensus.evaluation.intervals import percentile_interval
from dissensus.messages import Message, ParameterName
from dissensus.models.base import Aggregator, methods
from dissensus.models.gold_weights import panel_judges
from dissensus.models.tempering import MIN_GOLD_ITEMS
from dissensus.questions.exceptions import AnnotatorWithoutValue, CostNotPositive
from dissensus.questions.findings import EffectiveJudgeCount
from dissensus.table.annotations import Annotations

FAMILIES = (
    "llama", "mixtral", "mistral", "ministral", "qwen", "gemma", "gemini", "phi", "deepseek", "gpt", "claude", "haiku",
    "sonnet", "opus", "command", "grok", "olmo", "falcon", "glm", "kimi", "nemotron", "granite", "yi",
)  # fmt: skip
"""Words in names of language models that identify the maker, the more specific ones first."""
RESAMPLES = 200  # bootstrap resamples and permutations
MAX_ITEMS = 2_000  # gold items for correlations with an interval, spread evenly
RIDGE = 1e-6  # share of the mean diagonal that is added, so that equal judges have a solution


@dataclass(frozen=True, eq=False)
class PanelReview:
    """Shared errors and value of the judges of a panel; arrays are in the order of `judges`."""

    judges: Names  # (J,)
    families: tuple[str, ...]  # (J,)
    uses_gold: bool  # True if errors are measured with gold instead of the posterior
    effective_judges: Estimate  # effective number of independent judges
    mean_correlation: float  # r
    correlation: FloatArray = field(repr=False)  # (J, J) of errors
    tree: tuple[tuple[float, ...], ...] = field(repr=False)  # merges of scipy's `linkage`, average of 1 − r_jk
    tree_order: IntArray = field(repr=False)  # (J,) judges along the tree
    value: FloatArray = field(repr=False)  # (J,) share of the panel's answer that is lost without the judge
    selection: tuple[tuple[str, float], ...] = field(repr=False)  # judge, share of the answer kept by those so far
    is_significant: BoolArray = field(repr=False)  # (J, J) errors are more similar than by chance, measured with gold
    cost: FloatArray | None = field(default=None, repr=False)  # (J,) cost of a call; None: all cost the same

    def __str__(self) -> str:
        return str(self.finding())

    def finding(self) -> Message:
        """Return the number of independent judges that the panel amounts to."""
        effective = self.effective_judges
        return EffectiveJudgeCount(
            judges=self.judges.size, effective=effective.value, low=effective.low, high=effective.high,
            correlation=self.mean_correlation if self.uses_gold else None,
        )  # fmt: skip

    def significant_pairs(self, n: int = 3) -> list[tuple[str, str, float]]:
        """Return those of the n most similar pairs whose errors are significantly similar."""
        code = {str(name): j for j, name in enumerate(self.judges)}
        return [pair for pair in self.most_similar_pairs(n) if self.is_significant[code[pair[0]], code[pair[1]]]]

    def most_similar_pairs(self, n: int = 5) -> list[tuple[str, str, float]]:
        """Return the n pairs of judges with the highest correlation of errors."""
        first, second = np.triu_indices(self.judges.size, 1)
        r = self.correlation[first, second]
        best = np.argsort(-np.nan_to_num(r, nan=-2.0), kind="stable")[:n]
        return [(str(self.judges[first[k]]), str(self.judges[second[k]]), float(r[k])) for k in best]


def gold_items(gold: Any) -> IntArray:
    """Return the items with a gold class (codes, −1 if unknown) or a gold score (NaN if unknown)."""
    return np.flatnonzero(~np.isnan(gold) if gold.dtype.kind == "f" else gold >= 0)


def model_family(name: Any) -> str:
    """Return the maker's word in the name of a model, or the first word of another name.

    >>> model_family("Meta-Llama-3-8B-Instruct"), model_family("openai/gpt-4o"), model_family("anna b")
    ('llama', 'gpt', 'anna')
    """
    words = re.findall(r"[a-z]+", str(name).lower())
    families = (family for family in FAMILIES if any(word.startswith(family) for word in words))
    return next(families, words[0] if words else "")


def review_panel(
    table: Annotations,
    *,
    gold: Any = None,
    model: Aggregator | None = None,
    posterior: FloatArray | None = None,
    cost: Mapping[Any, float] | None = None,
    seed: int = 0,
) -> PanelReview | None:
    """Review a panel, that is, few annotators who label nearly every item.

    Parameters
    ----------
    gold : (I,) int, −1 where unknown; or (I,) float, NaN where unknown
        With `MIN_GOLD_ITEMS` gold items or more, on which judges err, errors are measured with gold.
    model : Aggregator, optional
        A model fitted to votes without gold; by default the default method.
    posterior : (I, K), optional
        The panel's answer for votes; by default the posterior of the model.
    cost : judge → cost of a call, optional
        By default all judges cost the same.
    seed : int
        Seed of resamples and permutations.

    Returns
    -------
    PanelReview or None
        None if the table is not a panel, if all labels are equal, and for scores without gold, whose errors are
        unknown.

    >>> from dissensus import review_panel
    >>> from dissensus.table.simulate import simulate
    >>> data = simulate(300, 5, 2, redundancy=5, seed=1)
    >>> str(review_panel(data.annotations)).partition(",")[0]
    '5 judges carry the evidence of 2.9 independent ones (2.7 to 3.6)'
    >>> [pair[:2] for pair in review_panel(data.annotations).most_similar_pairs(1)]
    [('3', '4')]
    >>> review = review_panel(data.annotations, gold=data.truth)
    >>> review.significant_pairs(), review.finding().judges  # measured with gold, they err independently
    ([], 5)
    """
    judges = panel_judges(table)
    if judges.size == 0 or table.n_classes < 2:
        return None
    if model is None and table.kind != "numbers":
        model = methods[DEFAULT_METHOD]().fit(table)
    similarity = _similarity_with_gold(table, judges, gold, seed)
    uses_gold = similarity is not None
    if similarity is None and model is not None:
        similarity = _similarity_without_gold(table, judges, model)
    if similarity is None:
        return None
    effective, correlation, significant = similarity
    if posterior is None and model is not None:
        posterior = np.asarray(model.posterior_)
    names = table.annotators[judges]
    price = _check_cost(cost, names)
    value, selection = np.full(judges.size, np.nan), list[tuple[int, float]]()
    if posterior is not None and table.kind != "numbers":
        value, selection = _JudgeVotes(table, judges).rank_judges(posterior, price)
    tree, order = _cluster_judges(correlation)
    return PanelReview(
        names, tuple(model_family(name) for name in names), uses_gold, effective, _mean_off_diagonal(correlation),
        correlation, tree, order, value, tuple((str(names[j]), share) for j, share in selection), significant, price,
    )  # fmt: skip


def _similarity_with_gold(
    table: Annotations, judges: IntArray, gold: Any, seed: int
) -> tuple[Estimate, FloatArray, BoolArray] | None:
    """Return the effective number of judges, the correlations of errors and which are significant.

    Returns None with too few gold items, or if no judge errs on them.
    """
    known = np.empty(0, np.int64) if gold is None else gold_items(gold)
    known = known[:: max(-(-known.size // MAX_ITEMS), 1)]
    if known.size < MIN_GOLD_ITEMS:
        return None
    errors = _errors(table, judges, known, gold)
    correlation = _correlations(errors)
    if not np.isfinite(correlation[~np.eye(judges.size, dtype=np.bool_)]).any():
        return None
    resamples = np.random.default_rng(seed).integers(0, known.size, (RESAMPLES, known.size))
    resampled = np.array([_effective_number(_correlations(errors[rows])) for rows in resamples])
    effective = percentile_interval(_effective_number(correlation), resampled)
    return effective, correlation, _find_significant(correlation, errors, gold[known], seed)


def _similarity_without_gold(
    table: Annotations, judges: IntArray, model: Aggregator
) -> tuple[Estimate, FloatArray, BoolArray]:
    """Return the effective number of judges and the expected correlations of errors; none is significant."""
    labels, votes = np.asarray(model.item_total_), _JudgeVotes(table, judges)
    correlation = votes.expected_correlations(np.asarray(model.posterior_))
    untempered = model.untempered_posterior()
    posteriors = [
        replace(model.tempering, dependence=rho).temper(untempered, labels)
        for rho in (model.dependence_, *model.dependence_interval_)
    ]
    bounds = [_effective_number(votes.expected_correlations(posterior)) for posterior in posteriors]
    effective = Estimate(_effective_number(correlation), min(bounds), max(bounds))
    return effective, correlation, np.zeros(correlation.shape, np.bool_)


def _check_cost(cost: Mapping[Any, float] | None, names: Names) -> FloatArray | None:
    """Return the cost of each judge (J,), or None without costs."""
    if cost is None:
        return None
    for name in names.tolist():
        if name not in cost:
            raise AnnotatorWithoutValue(name=ParameterName("cost"), annotator=name)
        if not cost[name] > 0:
            raise CostNotPositive(cost=float(cost[name]), annotator=name)
    return np.array([cost[name] for name in names.tolist()])


def _cluster_judges(correlation: FloatArray) -> tuple[tuple[tuple[float, ...], ...], IntArray]:
    """Return the merges of average linkage by 1 − r_jk, and the judges along the tree."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    distance = 1 - np.nan_to_num(correlation)
    np.fill_diagonal(distance, 0)
    symmetric = np.maximum((distance + distance.T) / 2, 0)
    tree = linkage(squareform(symmetric, checks=False), "average", optimal_ordering=True)
    return tuple(tuple(float(x) for x in row) for row in tree), leaves_list(tree)


# Errors and their correlations ----------------------------------------------------------------------------------------


def _errors(table: Annotations, judges: IntArray, known: IntArray, gold: Any) -> FloatArray:
    """Return errors on gold items (n, J), NaN without a label: 0 or 1 for votes, deviations for scores."""
    position, column = np.full(table.n_items, -1), np.full(table.n_annotators, -1)
    position[known], column[judges] = np.arange(known.size), np.arange(judges.size)
    rows = np.flatnonzero((position[table.item] >= 0) & (column[table.annotator] >= 0))
    cell = position[table.item[rows]] * judges.size + column[table.annotator[rows]]
    scores = table.kind == "numbers"
    wrong = table.values[table.label[rows]] if scores else table.label[rows] != gold[table.item[rows]]
    count = np.bincount(cell, minlength=known.size * judges.size)
    with np.errstate(invalid="ignore"):
        errors = (np.bincount(cell, wrong, count.size) / count).reshape(known.size, -1)
    if not scores:
        return np.asarray(errors)
    truth = gold[known]
    for j in range(judges.size):
        scored = ~np.isnan(errors[:, j])
        x, y = errors[scored, j], truth[scored]
        if y.dtype.kind == "f":
            slope = np.cov(x, y)[0, 1] / (y.var(ddof=1) or 1.0) if y.size > 1 else 0.0
            errors[scored, j] = x - slope * y
        else:
            errors[scored, j] = x - (np.bincount(y, x) / np.maximum(np.bincount(y), 1))[y]
    return errors


def _correlations(errors: FloatArray) -> FloatArray:
    """Return correlations over the items that both judges labelled (J, J); NaN if one never or always errs."""
    labelled = ~np.isnan(errors)
    e, w = np.where(labelled, errors, 0), labelled.astype(np.float64)
    return _correlations_from_sums(e.T @ e, e.T @ w, (e * e).T @ w, w.T @ w)


def _correlations_from_sums(product: FloatArray, total: FloatArray, square: FloatArray, n: FloatArray) -> FloatArray:
    """Return correlations from sums over the common items of pairs: Σ e_j e_k, Σ e_j, Σ e_j² and their number."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / n
        variance = square / n - mean**2
        variance = np.where(variance > 1e-12, variance, np.nan)
        return np.asarray((product / n - mean * mean.T) / np.sqrt(variance * variance.T))


def _find_significant(correlation: FloatArray, errors: FloatArray, truth: Any, seed: int) -> BoolArray:
    """Return which correlations exceed those of judges who err independently in each class of items (J, J).

    The test at 5 % holds for all pairs together: errors are permuted among the items of a class, and compared with the
    largest excess of any pair, in standard deviations.
    """
    rng, J = np.random.default_rng(seed), errors.shape[1]
    if truth.dtype.kind == "f":  # errors are residuals of gold scores already
        truth = np.zeros(len(truth), np.int64)
    strata = [np.flatnonzero(truth == c) for c in np.unique(truth)]
    permuted, by_chance = errors.copy(), np.empty((RESAMPLES, J, J))
    for correlations in by_chance:
        for rows in strata:
            permuted[rows] = rng.permuted(errors[rows], axis=0)
        correlations[:] = np.nan_to_num(_correlations(permuted))
    mean, spread = by_chance.mean(axis=0), np.maximum(by_chance.std(axis=0), 1e-9)
    pairs = np.triu_indices(J, 1)
    largest = ((by_chance - mean) / spread)[:, *pairs].max(axis=1)
    return np.asarray((correlation - mean) / spread > np.quantile(largest, 0.95))


def _mean_off_diagonal(correlation: FloatArray) -> float:
    values = correlation[~np.eye(len(correlation), dtype=np.bool_)]
    return float(values[~np.isnan(values)].mean()) if (~np.isnan(values)).any() else 0.0


def _effective_number(correlation: FloatArray) -> float:
    """Return the effective number of independent judges (Kish 1965)."""
    J = len(correlation)
    return J / max(1 + (J - 1) * _mean_off_diagonal(correlation), 1.0)


class _JudgeVotes:
    """Sparse shares of each judge's labels of an item that are class c (I, J), for every c."""

    def __init__(self, table: Annotations, judges: IntArray):
        from scipy.sparse import csr_array

        column = np.full(table.n_annotators, -1)
        column[judges] = np.arange(judges.size)
        rows = np.flatnonzero(column[table.annotator] >= 0)
        cells, shape = (table.item[rows], column[table.annotator[rows]]), (table.n_items, judges.size)
        count = csr_array((np.ones(rows.size), cells), shape=shape)
        share = 1 / np.asarray(count[cells]).reshape(-1)
        self.labelled = (count > 0).astype(np.float64)
        self.by_class = [csr_array((share * (table.label[rows] == c), cells), shape=shape)
                         for c in range(table.n_classes)]  # fmt: skip

    def expected_correlations(self, posterior: FloatArray) -> FloatArray:
        """Return expected correlations of errors (J, J) if the truth is drawn from a posterior (I, K)."""
        from scipy.sparse import diags_array

        J = self.labelled.shape[1]
        product, total, square = np.zeros((J, J)), np.zeros((J, J)), np.zeros((J, J))
        for c, votes in enumerate(self.by_class):
            wrong = self.labelled - votes
            expected = (diags_array(posterior[:, c]) @ wrong).T
            product += (expected @ wrong).toarray()
            total += (expected @ self.labelled).toarray()
            square += (expected.multiply(wrong.T) @ self.labelled).toarray()
        return _correlations_from_sums(product, total, square, (self.labelled.T @ self.labelled).toarray())

    def rank_judges(
        self, posterior: FloatArray, price: FloatArray | None
    ) -> tuple[FloatArray, list[tuple[int, float]]]:
        """Return the value of each judge (J,), and the judges in the order of selection with the share kept."""
        J, K = self.labelled.shape[1], len(self.by_class)
        gram, moment = np.zeros((J, J)), np.zeros(J)
        for c, votes in enumerate(self.by_class):
            x = votes - self.labelled * (1 / K)
            mean, answer = np.asarray(x.mean(axis=0)).reshape(-1), posterior[:, c] - posterior[:, c].mean()
            gram += (x.T @ x).toarray() - len(posterior) * np.outer(mean, mean)
            moment += x.T @ answer
        gram[np.diag_indices(J)] += RIDGE * max(np.trace(gram) / J, 1e-12)

        def explained(judges: list[int]) -> float:
            """Return the sum of squares of the answer that these judges explain."""
            block = np.ix_(judges, judges)
            return float(moment[judges] @ np.linalg.solve(gram[block], moment[judges])) if judges else 0.0

        remaining = list(range(J))
        by_all = max(explained(remaining), 1e-12)
        value = np.array([(by_all - explained([k for k in remaining if k != j])) / by_all for j in remaining])
        selection: list[tuple[int, float]] = []
        while remaining:
            selected = [k for k, _ in selection]
            so_far, with_judge = explained(selected), {j: explained([*selected, j]) for j in remaining}
            best = max(remaining, key=lambda j: (with_judge[j] - so_far) / (1.0 if price is None else price[j]))
            remaining.remove(best)
            selection.append((best, with_judge[best] / by_all))
        return np.maximum(value, 0), selection
