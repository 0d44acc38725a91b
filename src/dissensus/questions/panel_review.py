"""Review a panel of LLM judges: which judges make the same mistakes, and the effective number of judges.

Judges often err on the same items. Let e_ij = [y_ij ≠ z_i] be the errors, r_jk the correlation of the errors of judges
j and k, and r the mean of r_jk over pairs. Then A judges carry the evidence of

    A / (1 + (A − 1) r)        (Kish 1965)

independent ones. With gold, z is known. Without gold, z_i is distributed as the posterior q_i; if q is calibrated (see
`models.tempering`), the expected products of errors are calibrated too. With gold, the interval is a bootstrap interval
over gold items; without gold, it follows from the interval of ρ. Errors of scores are deviations from the mean score of
the class, or from a regression line on gold scores.

The value of a judge is the share of the panel's answer that is lost without the judge: the decrease in R² if the
posterior q of the panel is predicted by the best linear combination of the labels x_ij(c) of the other judges instead
of all judges. Judges are selected one after another; the next judge is the one that adds most per cost of a call.
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

MODEL_FAMILIES = (
    "llama", "mixtral", "mistral", "ministral", "qwen", "gemma", "gemini", "phi", "deepseek", "gpt", "claude", "haiku",
    "sonnet", "opus", "command", "grok", "olmo", "falcon", "glm", "kimi", "nemotron", "granite", "yi",
)  # fmt: skip
"""Words in the names of language models that identify the maker; more specific words come first."""
N_RESAMPLES = 200  # number of bootstrap resamples and of permutations
MAX_GOLD_ITEMS = 2_000  # maximum number of gold items for the intervals of correlations; they are spread evenly
RELATIVE_RIDGE = 1e-6  # ridge relative to the mean diagonal, which makes the system solvable if judges are identical


@dataclass(frozen=True, eq=False)
class PanelReview:
    """Common errors and values of the judges of a panel; arrays are in the order of `judges`."""

    judges: Names  # (J,)
    families: tuple[str, ...]  # (J,)
    uses_gold: bool  # True if errors are measured with gold, False if with the posterior
    effective_judges: Estimate  # effective number of independent judges
    mean_correlation: float  # r
    correlation: FloatArray = field(repr=False)  # (J, J) correlation of the errors of two judges
    # Merges of average linkage by 1 − r_jk, as returned by SciPy's `linkage`
    tree: tuple[tuple[float, ...], ...] = field(repr=False)
    tree_order: IntArray = field(repr=False)  # (J,) judges in the order of the leaves of the tree
    value: FloatArray = field(repr=False)  # (J,) share of the panel's answer that is lost without the judge
    # Judges in the order of selection, each with the share of the answer kept so far
    selection: tuple[tuple[str, float], ...] = field(repr=False)
    # (J, J) True if errors are more similar than by chance; all False without gold
    is_significant: BoolArray = field(repr=False)
    cost: FloatArray | None = field(default=None, repr=False)  # (J,) cost of a call; None if all costs are equal

    def __str__(self) -> str:
        return str(self.finding())

    def finding(self) -> Message:
        """Return a message with the effective number of independent judges."""
        effective = self.effective_judges
        return EffectiveJudgeCount(
            judges=self.judges.size, effective=effective.value, low=effective.low, high=effective.high,
            correlation=self.mean_correlation if self.uses_gold else None,
        )  # fmt: skip

    def significant_pairs(self, n: int = 3) -> list[tuple[str, str, float]]:
        """Return the pairs with significantly similar errors among the n most similar pairs."""
        code = {str(name): j for j, name in enumerate(self.judges)}
        return [pair for pair in self.most_similar_pairs(n) if self.is_significant[code[pair[0]], code[pair[1]]]]

    def most_similar_pairs(self, n: int = 5) -> list[tuple[str, str, float]]:
        """Return the n pairs of judges with the highest correlation of errors."""
        first, second = np.triu_indices(self.judges.size, 1)
        r = self.correlation[first, second]
        best = np.argsort(-np.nan_to_num(r, nan=-2.0), kind="stable")[:n]
        return [(str(self.judges[first[k]]), str(self.judges[second[k]]), float(r[k])) for k in best]


def find_gold_items(gold: Any) -> IntArray:
    """Return the items with a gold class (codes, −1 if unknown) or a gold score (NaN if unknown)."""
    return np.flatnonzero(~np.isnan(gold) if gold.dtype.kind == "f" else gold >= 0)


def find_model_family(name: Any) -> str:
    """Return the word in the name of a model that identifies its maker, or else the first word of the name.

    >>> find_model_family("Meta-Llama-3-8B-Instruct"), find_model_family("openai/gpt-4o"), find_model_family("anna b")
    ('llama', 'gpt', 'anna')
    """
    words = re.findall(r"[a-z]+", str(name).lower())
    families = (family for family in MODEL_FAMILIES if any(word.startswith(family) for word in words))
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
    """Review a panel, that is, a small number of annotators who label nearly every item.

    Parameters
    ----------
    gold : (I,) int, −1 where unknown; or (I,) float, NaN where unknown
        Gold labels. Errors are measured with them if there are at least `MIN_GOLD_ITEMS` gold items and judges err on
        them.
    model : Aggregator, optional
        A model fitted to the votes without gold. By default, the default method is fitted.
    posterior : (I, K), optional
        The answer of the panel, for votes. By default, the posterior of the model.
    cost : judge → cost of a call, optional
        By default, all judges cost the same.
    seed : int
        Seed of the resamples and permutations.

    Returns
    -------
    PanelReview or None
        None if the table is not a panel, if all labels are equal, or for scores without gold, because their errors are
        unknown.

    >>> from dissensus import review_panel
    >>> from dissensus.table.simulate import simulate
    >>> data = simulate(300, 5, 2, redundancy=5, seed=1)
    >>> str(review_panel(data.annotations)).partition(",")[0]
    '5 judges carry the evidence of 2.9 independent ones (2.7 to 3.6)'
    >>> [pair[:2] for pair in review_panel(data.annotations).most_similar_pairs(1)]
    [('3', '4')]
    >>> review = review_panel(data.annotations, gold=data.truth)
    >>> review.significant_pairs(), review.finding().judges  # measured with gold, the judges err independently
    ([], 5)
    """
    judges = panel_judges(table)
    if judges.size == 0 or table.n_classes < 2:
        return None
    if model is None and table.kind != "numbers":
        model = methods[DEFAULT_METHOD]().fit(table)
    similarity = _measure_similarity_with_gold(table, judges, gold, seed)
    uses_gold = similarity is not None
    if similarity is None and model is not None:
        similarity = _estimate_similarity_without_gold(table, judges, model)
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
        names, tuple(find_model_family(name) for name in names), uses_gold, effective, _mean_off_diagonal(correlation),
        correlation, tree, order, value, tuple((str(names[j]), share) for j, share in selection), significant, price,
    )  # fmt: skip


def _measure_similarity_with_gold(
    table: Annotations, judges: IntArray, gold: Any, seed: int
) -> tuple[Estimate, FloatArray, BoolArray] | None:
    """Return the effective number of judges, the correlations of their errors and a mask of significant ones.

    Return None if there are too few gold items or no judge errs on them.
    """
    known = np.empty(0, np.int64) if gold is None else find_gold_items(gold)
    known = known[:: max(-(-known.size // MAX_GOLD_ITEMS), 1)]
    if known.size < MIN_GOLD_ITEMS:
        return None
    errors = _compute_errors(table, judges, known, gold)
    correlation = _compute_correlations(errors)
    if not np.isfinite(correlation[~np.eye(judges.size, dtype=np.bool_)]).any():
        return None
    resamples = np.random.default_rng(seed).integers(0, known.size, (N_RESAMPLES, known.size))
    resampled = np.array([_effective_number(_compute_correlations(errors[rows])) for rows in resamples])
    effective = percentile_interval(_effective_number(correlation), resampled)
    return effective, correlation, _find_significant_correlations(correlation, errors, gold[known], seed)


def _estimate_similarity_without_gold(
    table: Annotations, judges: IntArray, model: Aggregator
) -> tuple[Estimate, FloatArray, BoolArray]:
    """Return the effective number of judges, the expected correlations of errors and a mask that is all False."""
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
    """Check the costs and return the cost of each judge (J,), or None without costs."""
    if cost is None:
        return None
    for name in names.tolist():
        if name not in cost:
            raise AnnotatorWithoutValue(name=ParameterName("cost"), annotator=name)
        if not cost[name] > 0:
            raise CostNotPositive(cost=float(cost[name]), annotator=name)
    return np.array([cost[name] for name in names.tolist()])


def _cluster_judges(correlation: FloatArray) -> tuple[tuple[tuple[float, ...], ...], IntArray]:
    """Return the merges of average linkage by 1 − r_jk, and the judges in the order of the leaves."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    distance = 1 - np.nan_to_num(correlation)
    np.fill_diagonal(distance, 0)
    symmetric = np.maximum((distance + distance.T) / 2, 0)
    tree = linkage(squareform(symmetric, checks=False), "average", optimal_ordering=True)
    return tuple(tuple(float(x) for x in row) for row in tree), leaves_list(tree)


# Errors and their correlations ----------------------------------------------------------------------------------------


def _compute_errors(table: Annotations, judges: IntArray, known: IntArray, gold: Any) -> FloatArray:
    """Return the errors on gold items (n, J): 0 or 1 for votes, deviations for scores, NaN without a label."""
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


def _compute_correlations(errors: FloatArray) -> FloatArray:
    """Return the correlation of errors on common items for each pair of judges (J, J); NaN if errors are constant."""
    labelled = ~np.isnan(errors)
    e, w = np.where(labelled, errors, 0), labelled.astype(np.float64)
    return _correlations_from_sums(e.T @ e, e.T @ w, (e * e).T @ w, w.T @ w)


def _correlations_from_sums(product: FloatArray, total: FloatArray, square: FloatArray, n: FloatArray) -> FloatArray:
    """Return correlations, given sums over the common items of each pair: Σ e_j e_k, Σ e_j, Σ e_j² and Σ 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / n
        variance = square / n - mean**2
        variance = np.where(variance > 1e-12, variance, np.nan)
        return np.asarray((product / n - mean * mean.T) / np.sqrt(variance * variance.T))


def _find_significant_correlations(correlation: FloatArray, errors: FloatArray, truth: Any, seed: int) -> BoolArray:
    """Return a mask (J, J) of the correlations that are larger than those of judges with independent errors.

    Errors are permuted among the items of each class. A correlation is significant at 5 % if its excess in standard
    deviations is larger than the largest excess of any pair in the permutations, which corrects for the number of
    pairs.
    """
    rng, J = np.random.default_rng(seed), errors.shape[1]
    if truth.dtype.kind == "f":  # errors of scores are residuals already
        truth = np.zeros(len(truth), np.int64)
    strata = [np.flatnonzero(truth == c) for c in np.unique(truth)]
    permuted, by_chance = errors.copy(), np.empty((N_RESAMPLES, J, J))
    for correlations in by_chance:
        for rows in strata:
            permuted[rows] = rng.permuted(errors[rows], axis=0)
        correlations[:] = np.nan_to_num(_compute_correlations(permuted))
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
    """For each class c, the sparse matrix (I, J) of the shares of a judge's labels on an item that are c."""

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
        """Return the expected correlations of errors (J, J) if the truth is drawn from a posterior (I, K)."""
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
        """Return the value of each judge (J,), and the judges in the order of selection with the share kept so far."""
        J, K = self.labelled.shape[1], len(self.by_class)
        gram, moment = np.zeros((J, J)), np.zeros(J)
        for c, votes in enumerate(self.by_class):
            x = votes - self.labelled * (1 / K)
            mean, answer = np.asarray(x.mean(axis=0)).reshape(-1), posterior[:, c] - posterior[:, c].mean()
            gram += (x.T @ x).toarray() - len(posterior) * np.outer(mean, mean)
            moment += x.T @ answer
        gram[np.diag_indices(J)] += RELATIVE_RIDGE * max(np.trace(gram) / J, 1e-12)

        def explained(judges: list[int]) -> float:
            """Return the part of the answer's sum of squares that is explained by these judges."""
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
