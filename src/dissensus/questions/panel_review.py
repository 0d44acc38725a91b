"""What a panel of LLM judges is worth: which judges err alike, and how many independent ones they amount to.

Judges j and k err on the same items more often than by chance. With e_ij = [y_ij ≠ z_i] the correlation of their
errors is r_jk, its mean over pairs r, and A judges are worth

    A / (1 + (A − 1) r)        (Kish 1965)

independent ones. With gold z is known. Without gold z_i ~ q_i, the posterior: if q is calibrated (see
`models.tempering`), so are expected products of errors. The interval is by bootstrap over items with gold, else the
interval of ρ. Errors of scores are deviations from the mean of the class, or from the line through known scores.

The value of a judge is the share of the panel's answer that is lost without it: with x_ij(c) its label for class c and
q the panel's posterior, 1 − R² of the best linear combination of the others, less that of all. Judges are bought one by
one, the one first that adds most for the cost of its call.
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
from dissensus.models.tempering import MIN_GOLD
from dissensus.questions.exceptions import AnnotatorWithoutValue, CostNotPositive
from dissensus.questions.findings import EffectiveJudgeCount
from dissensus.table.annotations import Annotations

FAMILIES = (
    "llama", "mixtral", "mistral", "ministral", "qwen", "gemma", "gemini", "phi", "deepseek", "gpt", "claude", "haiku",
    "sonnet", "opus", "command", "grok", "olmo", "falcon", "glm", "kimi", "nemotron", "granite", "yi",
)  # fmt: skip
"""Words in names of language models that identify the maker, the more specific ones first."""
RESAMPLES = 200
MAX_ITEMS = 2_000  # items for correlations with an interval, spread evenly
RIDGE = 1e-6  # share of the mean diagonal, so that equal judges have a solution


@dataclass(frozen=True, eq=False)
class PanelReview:
    """Common errors and value of the judges of a panel; arrays are in the order of `judges`."""

    judges: Names  # (J,)
    families: tuple[str, ...]  # (J,)
    uses_gold: bool  # errors are by gold, not by the posterior
    effective_judges: Estimate  # effective number of independent judges
    mean_correlation: float  # r
    correlation: FloatArray = field(repr=False)  # (J, J) of errors
    tree: tuple[tuple[float, ...], ...] = field(repr=False)  # merges of scipy's `linkage`, average of 1 − r_jk
    tree_order: IntArray = field(repr=False)  # (J,) judges along the tree
    value: FloatArray = field(repr=False)  # (J,) share of the panel's answer that is lost without the judge
    selection: tuple[tuple[str, float], ...] = field(repr=False)  # judge, share of the panel's answer kept
    is_significant: BoolArray = field(repr=False)  # (J, J) errors are more alike than independent ones, by gold
    cost: FloatArray | None = field(default=None, repr=False)  # (J,) cost of a call; None: all cost the same

    def __str__(self) -> str:
        return str(self.finding())

    def finding(self) -> Message:
        """Return how many independent judges the panel is worth."""
        one = self.effective_judges
        return EffectiveJudgeCount(
            judges=self.judges.size, effective=one.value, low=one.low, high=one.high,
            correlation=self.mean_correlation if self.uses_gold else None,
        )  # fmt: skip

    def significant_pairs(self, n: int = 3) -> list[tuple[str, str, float]]:
        """Return those of the n most similar pairs whose errors are alike `beyond_chance`."""
        at = {str(name): j for j, name in enumerate(self.judges)}
        return [pair for pair in self.most_similar_pairs(n) if self.is_significant[at[pair[0]], at[pair[1]]]]

    def most_similar_pairs(self, n: int = 5) -> list[tuple[str, str, float]]:
        """Return the n pairs of judges whose errors are most similar."""
        first, second = np.triu_indices(self.judges.size, 1)
        r = self.correlation[first, second]
        best = np.argsort(-np.nan_to_num(r, nan=-2.0), kind="stable")[:n]
        return [(str(self.judges[first[at]]), str(self.judges[second[at]]), float(r[at])) for at in best]


def gold_items(gold: Any) -> IntArray:
    """Return the items of known class (codes, −1 if unknown) or score (NaN if unknown)."""
    return np.flatnonzero(~np.isnan(gold) if gold.dtype.kind == "f" else gold >= 0)


def model_family(name: Any) -> str:
    """Return the maker's word in the name of a model, or the first word of another name.

    >>> model_family("Meta-Llama-3-8B-Instruct"), model_family("openai/gpt-4o"), model_family("anna b")
    ('llama', 'gpt', 'anna')
    """
    words = re.findall(r"[a-z]+", str(name).lower())
    return next((one for one in FAMILIES if any(word.startswith(one) for word in words)), words[0] if words else "")


def review_panel(
    table: Annotations,
    *,
    gold: Any = None,
    model: Aggregator | None = None,
    posterior: FloatArray | None = None,
    cost: Mapping[Any, float] | None = None,
    seed: int = 0,
) -> PanelReview | None:
    """Review a panel, few annotators who label nearly every item; return None if the table is no panel.

    Also None if all labels are equal, and for scores without gold: nothing shows their errors.

    Parameters
    ----------
    gold : (I,) int, −1 where unknown; or (I,) float, NaN where unknown
        With `MIN_GOLD` known items or more, on which judges err, errors are by gold.
    model : Aggregator, optional
        Fitted to votes without gold; default: the default method.
    posterior : (I, K), optional
        The panel's answer for votes; default: the posterior of the model.
    cost : judge → cost of a call, optional
        Default: all cost the same.

    >>> from dissensus import review_panel
    >>> from dissensus.table.simulate import simulate
    >>> drawn = simulate(300, 5, 2, redundancy=5, seed=1)
    >>> str(review_panel(drawn.annotations)).partition(",")[0]
    '5 judges carry the evidence of 2.9 independent ones (2.7 to 3.6)'
    >>> [pair[:2] for pair in review_panel(drawn.annotations).most_similar_pairs(1)]
    [('3', '4')]
    >>> review = review_panel(drawn.annotations, gold=drawn.truth)
    >>> review.significant_pairs(), review.finding().judges  # by gold they err independently
    ([], 5)
    """
    judges = panel_judges(table)
    if judges.size == 0 or table.n_classes < 2:
        return None
    if model is None and table.kind != "numbers":
        model = methods[DEFAULT_METHOD]().fit(table)
    known = np.empty(0, np.int64) if gold is None else gold_items(gold)
    known = known[:: max(-(-known.size // MAX_ITEMS), 1)]
    errors = _errors(table, judges, known, gold) if known.size >= MIN_GOLD else np.empty((0, judges.size))
    correlation = _correlations(errors)
    beyond = np.zeros(correlation.shape, np.bool_)
    by_gold = bool(np.isfinite(correlation[~np.eye(judges.size, dtype=np.bool_)]).any())  # else no judge erred there
    if by_gold:
        drawn = np.random.default_rng(seed).integers(0, known.size, (RESAMPLES, known.size))
        tried = np.array([_kish(_correlations(errors[rows])) for rows in drawn])
        worth = percentile_interval(_kish(correlation), tried)
        beyond = _beyond_chance(correlation, errors, gold[known], seed)
    elif model is not None:
        labels, votes = np.asarray(model.item_total_), _Votes(table, judges)
        correlation = votes.expected(np.asarray(model.posterior_))
        bounds = [model.dependence_, *model.dependence_interval_]
        blind = model.untempered_posterior()
        free = [replace(model.tempering, dependence=rho).temper(blind, labels) for rho in bounds]
        bounds = [_kish(votes.expected(one)) for one in free]
        worth = Estimate(_kish(correlation), min(bounds), max(bounds))
    else:
        return None
    if posterior is None and model is not None:
        posterior = np.asarray(model.posterior_)
    value, kept = np.full(judges.size, np.nan), list[tuple[int, float]]()
    price, names = None, table.annotators[judges]
    if cost is not None:
        for name in names.tolist():
            if name not in cost:
                raise AnnotatorWithoutValue(name=ParameterName("cost"), annotator=name)
            if not cost[name] > 0:
                raise CostNotPositive(cost=float(cost[name]), annotator=name)
        price = np.array([cost[name] for name in names.tolist()])
    if posterior is not None and table.kind != "numbers":
        value, kept = _Votes(table, judges).values(posterior, price)
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    far = 1 - np.nan_to_num(correlation)
    np.fill_diagonal(far, 0)
    tree = linkage(squareform(np.maximum((far + far.T) / 2, 0), checks=False), "average", optimal_ordering=True)
    return PanelReview(
        names, tuple(model_family(one) for one in names), by_gold, worth, _mean_off_diagonal(correlation), correlation,
        tuple(tuple(float(x) for x in row) for row in tree), leaves_list(tree), value,
        tuple((str(names[at]), share) for at, share in kept), beyond, price,
    )  # fmt: skip


def _errors(table: Annotations, judges: IntArray, known: IntArray, gold: Any) -> FloatArray:
    """Return errors on known items (n, J), NaN without a label: 0 or 1 for votes, deviations for scores."""
    place, column = np.full(table.n_items, -1), np.full(table.n_annotators, -1)
    place[known], column[judges] = np.arange(known.size), np.arange(judges.size)
    rows = np.flatnonzero((place[table.item] >= 0) & (column[table.annotator] >= 0))
    cell = place[table.item[rows]] * judges.size + column[table.annotator[rows]]
    scores = table.kind == "numbers"
    wrong = table.values[table.label[rows]] if scores else table.label[rows] != gold[table.item[rows]]
    times = np.bincount(cell, minlength=known.size * judges.size)
    with np.errstate(invalid="ignore"):
        errors = (np.bincount(cell, wrong, times.size) / times).reshape(known.size, -1)
    if not scores:
        return np.asarray(errors)
    truth = gold[known]
    for j in range(judges.size):
        there = ~np.isnan(errors[:, j])
        x, y = errors[there, j], truth[there]
        if y.dtype.kind == "f":
            slope = np.cov(x, y)[0, 1] / (y.var(ddof=1) or 1.0) if y.size > 1 else 0.0
            errors[there, j] = x - slope * y
        else:
            errors[there, j] = x - (np.bincount(y, x) / np.maximum(np.bincount(y), 1))[y]
    return errors


def _correlations(errors: FloatArray) -> FloatArray:
    """Return correlations over the items that both labelled (J, J); NaN if one never or always errs."""
    there = ~np.isnan(errors)
    e, w = np.where(there, errors, 0), there.astype(np.float64)
    return _correlation(e.T @ e, e.T @ w, (e * e).T @ w, w.T @ w)


def _correlation(product: FloatArray, total: FloatArray, square: FloatArray, n: FloatArray) -> FloatArray:
    """Return correlations from sums over pairs' common items: Σ e_j e_k, Σ e_j, Σ e_j² and their number."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / n
        variance = square / n - mean**2
        variance = np.where(variance > 1e-12, variance, np.nan)
        return np.asarray((product / n - mean * mean.T) / np.sqrt(variance * variance.T))


def _beyond_chance(correlation: FloatArray, errors: FloatArray, truth: Any, seed: int) -> BoolArray:
    """Return which correlations exceed those of judges who err independently in each class of items (J, J).

    A test at 5 % for all pairs together: errors are permuted among the items of a class, and compared with the largest
    excess of any pair, in its standard deviations.
    """
    rng, J = np.random.default_rng(seed), errors.shape[1]
    if truth.dtype.kind == "f":  # errors are residuals of known scores already
        truth = np.zeros(len(truth), np.int64)
    groups = [np.flatnonzero(truth == c) for c in np.unique(truth)]
    shuffled, tried = errors.copy(), np.empty((RESAMPLES, J, J))
    for one in tried:
        for rows in groups:
            shuffled[rows] = rng.permuted(errors[rows], axis=0)
        one[:] = np.nan_to_num(_correlations(shuffled))
    centre, spread = tried.mean(axis=0), np.maximum(tried.std(axis=0), 1e-9)
    pairs = np.triu_indices(J, 1)
    largest = ((tried - centre) / spread)[:, *pairs].max(axis=1)
    return np.asarray((correlation - centre) / spread > np.quantile(largest, 0.95))


def _mean_off_diagonal(correlation: FloatArray) -> float:
    some = correlation[~np.eye(len(correlation), dtype=np.bool_)]
    return float(some[~np.isnan(some)].mean()) if (~np.isnan(some)).any() else 0.0


def _kish(correlation: FloatArray) -> float:
    J = len(correlation)
    return J / max(1 + (J - 1) * _mean_off_diagonal(correlation), 1.0)


class _Votes:
    """Sparse shares of each judge's labels of an item that are class c (I, J), for every c."""

    def __init__(self, table: Annotations, judges: IntArray):
        from scipy.sparse import csr_array

        column = np.full(table.n_annotators, -1)
        column[judges] = np.arange(judges.size)
        rows = np.flatnonzero(column[table.annotator] >= 0)
        at, shape = (table.item[rows], column[table.annotator[rows]]), (table.n_items, judges.size)
        times = csr_array((np.ones(rows.size), at), shape=shape)
        once = 1 / np.asarray(times[at]).reshape(-1)
        self.there = (times > 0).astype(np.float64)
        self.of = [csr_array((once * (table.label[rows] == c), at), shape=shape) for c in range(table.n_classes)]

    def expected(self, posterior: FloatArray) -> FloatArray:
        """Return expected correlations of errors (J, J) if the truth is drawn from a posterior (I, K)."""
        from scipy.sparse import diags_array

        J = self.there.shape[1]
        product, total, square = np.zeros((J, J)), np.zeros((J, J)), np.zeros((J, J))
        for c, said in enumerate(self.of):
            wrong = self.there - said
            drawn = (diags_array(posterior[:, c]) @ wrong).T
            product += (drawn @ wrong).toarray()
            total += (drawn @ self.there).toarray()
            square += (drawn.multiply(wrong.T) @ self.there).toarray()
        return _correlation(product, total, square, (self.there.T @ self.there).toarray())

    def values(self, posterior: FloatArray, price: FloatArray | None) -> tuple[FloatArray, list[tuple[int, float]]]:
        """Return the value of each judge (J,), and the judges in the order to buy them with the share kept."""
        J, K = self.there.shape[1], len(self.of)
        gram, right, total = np.zeros((J, J)), np.zeros(J), 0.0
        for c, said in enumerate(self.of):
            x = said - self.there * (1 / K)
            centre, answer = np.asarray(x.mean(axis=0)).reshape(-1), posterior[:, c] - posterior[:, c].mean()
            gram += (x.T @ x).toarray() - len(posterior) * np.outer(centre, centre)
            right += x.T @ answer
            total += float(answer @ answer)
        gram[np.diag_indices(J)] += RIDGE * max(np.trace(gram) / J, 1e-12)

        def explained(some: list[int]) -> float:
            at = np.ix_(some, some)
            return float(right[some] @ np.linalg.solve(gram[at], right[some])) if some else 0.0

        left = list(range(J))
        whole = max(explained(left), 1e-12)
        value = np.array([(whole - explained([k for k in left if k != j])) / whole for j in left])
        kept: list[tuple[int, float]] = []
        while left:
            bought = [k for k, _ in kept]
            so_far, added = explained(bought), {j: explained([*bought, j]) for j in left}
            best = max(left, key=lambda j: (added[j] - so_far) / (1.0 if price is None else price[j]))
            left.remove(best)
            kept.append((best, added[best] / whole))
        return np.maximum(value, 0), kept
