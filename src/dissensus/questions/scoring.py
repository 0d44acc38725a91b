"""Score predictions of held-out labels for each label type, and define baselines for the comparison of methods.

| kind | held out | score of a label, the higher the better | baselines in addition to the registered methods |
|---|---|---|---|
| classes, graded | all labels of one annotator on an item | log P(label) | none; majority-vote is a registered method |
| pairs | comparisons, as long as all alternatives stay connected | log P(outcome) | win-rate |
| sets | all labels of one annotator on an item | Σ over options, log P(selected or not) | votes |
| spans | all labels of one annotator in a document | log P(tag) | majority-vote and dawid-skene, by token |
| numbers | all labels of one annotator on an item | −abs(label − expected label) | mean, median |
| objects | all labels of one annotator on an item | −distance to the method's answer | medoid |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dissensus.common.arrays import random_ranks_within_groups
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation.distances import pair_distances
from dissensus.evaluation.hard import probability_correct
from dissensus.models.base import Aggregator, methods
from dissensus.models.methods.bradley_terry import BradleyTerry, check_connected
from dissensus.models.methods.closest import Closest
from dissensus.questions.exceptions import EveryComparisonNeeded, NoHideableLabel, NoSharedDocument, NoSharedItem
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import name_set
from dissensus.table.spans import extract_spans

MIN_PROBABILITY = 1e-300  # lower bound of probabilities; methods predict no zeros, but a product may be rounded to 0
# Number of pseudo-labels, distributed as the labels of all items, that a baseline adds to each item
N_PRIOR_LABELS = 1.0


def exclude_training_gold(gold: Any, training_gold: Any) -> Any:
    """Return `gold` (I,) without the items whose gold was used for training.

    `training_gold` (I,) is −1 or NaN for items whose gold was not used for training.
    """
    if gold is None or training_gold is None:
        return gold
    used, missing = (~np.isnan(training_gold), np.nan) if training_gold.dtype.kind == "f" else (training_gold >= 0, -1)
    return np.where(used, missing, gold)


class Baseline:
    """Base class for baselines, which have no parameters and predict the rows of a table."""

    def get_params(self) -> dict[str, Any]:
        """Return {}, because baselines have no parameters."""
        return {}

    def fit(self, table: Annotations) -> Any:
        """Fit the baseline to a table; return this object or another fitted model."""
        self.table = table
        return self

    def values_for_items(self, table: Annotations, values: Any, otherwise: Any) -> Any:
        """Return the values (I,) or (I, L) of the items of another table, with `otherwise` for new items."""
        code = naming.match_names(table.items, self.table.items, "items")
        is_old = (code >= 0).reshape(-1, *[1] * (values.ndim - 1))
        return np.where(is_old, values[code], otherwise)


class MeanNumber(Baseline):
    """Predict the mean of an item's numbers."""

    def values(self) -> FloatArray:
        """Return the answers (I,), NaN for items without labels."""
        table = self.table
        sums = np.bincount(table.item, table.row_weights * table.values[table.label], table.n_items)
        n = np.bincount(table.item, table.row_weights, table.n_items)
        return np.asarray(np.divide(sums, n, out=np.full(table.n_items, np.nan), where=n > 0))

    def predict(self) -> FloatArray:
        """Return the answers (I,); items without labels get the median of all answers."""
        values = self.values()
        return np.where(np.isnan(values), np.nanmedian(values), values)

    def expected_labels(self, table: Annotations) -> FloatArray:
        """Return the expected label of each row (N,)."""
        values = self.predict()
        return np.asarray(self.values_for_items(table, values, np.median(values))[table.item])


class MedianNumber(MeanNumber):
    """Predict the median of an item's numbers."""

    def values(self) -> FloatArray:
        """Return the answers (I,), NaN for items without labels."""
        table = self.table
        order = np.lexsort((table.values[table.label], table.item))
        values, n = table.values[table.label][order], np.diff(table.item_ptr)
        middle = (values[np.minimum(table.item_ptr[:-1] + k, len(table) - 1)] for k in ((n - 1) // 2, n // 2))
        return np.where(n > 0, sum(middle) / 2, np.nan)


class OptionShares(Baseline):
    """Predict each option with the share of the item's annotators who selected it, after adding an average label."""

    def fit(self, table: Annotations) -> Self:
        """Fit the baseline to a table."""
        self.table, ticked = table, table.options.selected.astype(np.float64)
        self.options_ = table.options.names
        n = np.bincount(table.item, minlength=table.n_items)[:, None]
        votes = np.zeros((table.n_items, self.options_.size))
        for c in range(self.options_.size):
            votes[:, c] = np.bincount(table.item, ticked[table.label, c], table.n_items)
        self.prior_ = (votes.sum(axis=0) + 0.5) / (len(table) + 1)
        self.posterior_ = (votes + N_PRIOR_LABELS * self.prior_) / (n + N_PRIOR_LABELS)
        return self

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """Return P(option is selected) of each row (N, L)."""
        return np.asarray(self.values_for_items(table, self.posterior_, self.prior_)[table.item])

    def predict(self) -> Any:
        """Return, for each item, the set of options that more than half of the annotators selected (I,)."""
        return np.array([name_set(self.options_[row > 0.5]) for row in self.posterior_], object)


class WinRate(Baseline):
    """Score alternatives with the log odds of their share of won comparisons; ties have a fixed frequency."""

    def fit(self, table: Annotations) -> Self:
        """Fit the baseline to a table."""
        self.table, sides, w = table, table.alternatives, table.row_weights
        left, right, label = sides.left_codes[table.item], sides.right_codes[table.item], table.label
        wins, games = np.ones(sides.names.size), np.full(sides.names.size, 2.0)  # a prior of one win and one loss
        for side, won in ((left, label == 0), (right, label == 1)):
            wins += np.bincount(side, w * (won + 0.5 * (label == 2)), wins.size)
            games += np.bincount(side, w, wins.size)
        self.score = np.log(wins) - np.log(games - wins)
        self.ties = float((w * (label == 2)).sum() + 1) / (float(w.sum()) + 3)
        return self

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """Return P(left, right, tie) (N, 3)."""
        score = self.score[naming.match_names(table.alternatives.names, self.table.alternatives.names, "things")]
        difference = (score[table.alternatives.left_codes] - score[table.alternatives.right_codes])[table.item]
        left = 1 / (1 + np.exp(-difference))
        return np.stack([(1 - self.ties) * left, (1 - self.ties) * (1 - left), np.full(left.size, self.ties)], axis=1)


class TokenMajorityVote(Baseline):
    """Majority vote on single tokens, which may produce invalid sequences of tags."""

    method: ClassVar = "majority-vote"

    def fit(self, table: Annotations) -> Any:
        """Fit the method to the tags as if they were classes."""
        return methods[self.method]().fit(replace(table, kind="classes"))


class TokenDawidSkene(TokenMajorityVote):
    """Dawid-Skene on single tokens."""

    method = "dawid-skene"


class Medoid(Baseline):
    """Predict the label of the item with the smallest mean distance to its other labels."""

    def fit(self, table: Annotations) -> Any:
        """Fit a model whose prior is so strong that all σ_j are equal."""
        return Closest(crowd_labels=1e12).fit(table)


def select_held_out_rows(table: Annotations, share: float, rng: np.random.Generator) -> BoolArray:
    """Return a mask of the rows to hold out (N,): all rows of a random share of ratings, except one rating per item."""
    rated = table.item[np.diff(table.rating_codes, prepend=-1) > 0]
    return _draw_share(random_ranks_within_groups(rated, rng) > 0, share, rng, NoSharedItem)[table.rating_codes]


def _draw_share(free: BoolArray, share: float, rng: np.random.Generator, error: type[NoHideableLabel]) -> BoolArray:
    """Return a mask of random free entries whose number is a share of all entries; raise `error` if none is free."""
    candidates, mask = np.flatnonzero(free), np.zeros(free.size, np.bool_)
    if candidates.size == 0:
        raise error()
    mask[rng.choice(candidates, min(candidates.size, max(1, round(share * free.size))), replace=False)] = True
    return mask


def select_held_out_comparisons(table: Annotations, share: float, rng: np.random.Generator) -> BoolArray:
    """Return a mask of the comparisons to hold out (N,); the others still connect all alternatives."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    sides = table.alternatives
    check_connected(sides.names, BradleyTerry().extract_comparisons(table), strongly=False)
    ends = np.sort(np.stack([sides.left_codes[table.item], sides.right_codes[table.item]]), axis=0).astype(np.int64)
    T = sides.names.size
    order = rng.permutation(len(table))
    edge, first = np.unique((ends[0] * T + ends[1])[order], return_index=True)
    row = order[first]  # a random row of each pair of alternatives
    cost = coo_array((1.0 + rng.permutation(edge.size), (edge // T, edge % T)), shape=(T, T))
    tree = minimum_spanning_tree(cost.tocsr()).tocoo()
    free = np.ones(len(table), np.bool_)
    free[row[np.searchsorted(edge, tree.row.astype(np.int64) * T + tree.col)]] = False
    return _draw_share(free, share, rng, EveryComparisonNeeded)


def select_held_out_readings(table: Annotations, share: float, rng: np.random.Generator) -> BoolArray:
    """Return a mask of the rows of spans to hold out (N,); all labels of an annotator in a document stay together."""
    reading = table.sequences.document[table.item] * np.int64(table.n_annotators) + table.annotator
    readings, row = np.unique(reading, return_inverse=True)
    is_free = random_ranks_within_groups(readings // table.n_annotators, rng) > 0
    return np.asarray(_draw_share(is_free, share, rng, NoSharedDocument)[row])


def log_likelihood(table: Annotations, expected: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log P(label) of each row (N,) and the weights of the rows (N,).

    For a probabilistic row, this is the mean of log P over its label distribution.
    """
    logs = np.log(np.maximum(expected, MIN_PROBABILITY))
    found = logs[np.arange(len(table)), table.label] if table.proba is None else (table.proba * logs).sum(axis=1)
    return found, table.row_weights


def _score_classes(fitted: Any, table: Annotations) -> FloatArray:
    return log_likelihood(table, fitted.predict_annotations(table))[0]


def _score_selections(fitted: Any, table: Annotations) -> FloatArray:
    p = np.maximum(fitted.predict_annotations(table), MIN_PROBABILITY)
    names = table.options.names
    ticked = np.zeros((table.n_classes, p.shape[1]), np.bool_)
    ticked[:, naming.match_names(names, fitted.options_, "options")] = table.options.selected
    return np.asarray(np.log(np.where(ticked[table.label], p, np.maximum(1 - p, MIN_PROBABILITY))).sum(axis=1))


def _score_distances(fitted: Any, table: Annotations) -> FloatArray:
    answer = fitted.predict()[naming.match_names(table.items, fitted.items_, "items")]
    both = np.concatenate([answer, table.classes.astype(object)])
    return -pair_distances(both, table.item, answer.size + table.label, fitted.distance)


# Scores of answers on gold items: numerators and denominators (n, 2) --------------------------------------------------


def _count_correct_classes(fitted: Any, table: Annotations, gold: IntArray) -> FloatArray:
    return _mean_parts(probability_correct(gold, fitted.posterior_))


def _compute_absolute_errors(fitted: Any, table: Annotations, gold: FloatArray) -> FloatArray:
    known = ~np.isnan(gold)
    return _mean_parts(np.abs(fitted.predict() - gold)[known])


def _compute_jaccard_indices(fitted: Any, table: Annotations, gold: IntArray) -> FloatArray:
    known = gold >= 0
    right = table.options.selected[gold[known]]
    names = {name: k for k, name in enumerate(table.options.names.tolist())}
    answer = np.zeros_like(right)
    for row, text in zip(answer, fitted.predict()[known], strict=True):
        row[[names[one] for one in text.split("|") if one in names]] = True
    either = (answer | right).sum(axis=1)
    return _mean_parts(np.where(either > 0, (answer & right).sum(axis=1) / np.maximum(either, 1), 1.0))


def _compute_answer_distances(fitted: Any, table: Annotations, gold: IntArray) -> FloatArray:
    known = np.flatnonzero(gold >= 0)
    both = np.concatenate([fitted.predict()[known], table.classes[gold[known]].astype(object)])
    return _mean_parts(pair_distances(both, np.arange(known.size), known.size + np.arange(known.size), fitted.distance))


def _compute_span_f1(fitted: Any, table: Annotations, gold: IntArray) -> FloatArray:
    """Return, for each document, twice the number of correct spans, and the number of predicted plus gold spans."""
    known = gold >= 0
    tags = naming.match_names(fitted.predict(), table.classes, "tags")
    found = [extract_spans(table.items[known], table.classes, one[known]) for one in (tags, gold)]
    ours, right = (set(zip(*(column.tolist() for column in columns.values()), strict=True)) for columns in found)
    sums: dict[Any, list[float]] = {name: [0.0, 0.0] for name in table.sequences.documents.tolist()}
    for spans, part, size in ((ours & right, 0, 2.0), (ours, 1, 1.0), (right, 1, 1.0)):
        for span in spans:
            sums[span[0]][part] += size
    return np.array(list(sums.values()))


def _mean_parts(values: Any) -> FloatArray:
    return np.stack([np.asarray(values, np.float64), np.ones(len(values))], axis=1)


class ScoreNames(NamedTuple):
    """Names of a score and phrases for messages about it."""

    name: str  # key in JSON and frames
    title: str  # title of a column
    unit: str  # phrase for a worse score, such as "a lower log-likelihood per label"
    quantity: str  # phrase that precedes "held-out labels"
    gold_name: str  # name of the score on gold items
    sign: int = 1  # −1 if lower is better; these scores are shown without the minus sign


LOG_LIKELIHOOD_NAMES = ScoreNames(
    "log_likelihood", "log-likelihood", "a lower log-likelihood per label", "Mean log probability of", "accuracy"
)


class Scoring(NamedTuple):
    """Functions and names for scoring the methods of a label type."""

    measure: ScoreNames
    score_rows: Callable[[Any, Annotations], FloatArray]  # (N,) scores of held-out rows by a fitted method
    score_gold: Callable[[Any, Annotations, Any], FloatArray] | None = _count_correct_classes
    choose_hidden_rows: Callable[[Annotations, float, np.random.Generator], BoolArray] = select_held_out_rows
    baselines: Mapping[str, type[Baseline]] = MappingProxyType({})
    simplest: str = "majority-vote"  # the simplest method


CLASS_SCORING = Scoring(LOG_LIKELIHOOD_NAMES, _score_classes)
SCORING_BY_LABEL_TYPE: dict[str, Scoring] = {
    "classes": CLASS_SCORING,
    "graded": CLASS_SCORING,
    "pairs": Scoring(
            LOG_LIKELIHOOD_NAMES, _score_classes, None, select_held_out_comparisons, {"win-rate": WinRate}, "win-rate"
        ),
    "sets": Scoring(
        LOG_LIKELIHOOD_NAMES._replace(gold_name="jaccard"), _score_selections, _compute_jaccard_indices,
                baselines={"votes": OptionShares},
        simplest="votes",
    ),
    "spans": Scoring(
        LOG_LIKELIHOOD_NAMES._replace(gold_name="f1"), _score_classes, _compute_span_f1, select_held_out_readings,
        {"majority-vote": TokenMajorityVote, "dawid-skene": TokenDawidSkene},
    ),
    "numbers": Scoring(
        ScoreNames(
            "mean_absolute_error", "error", "a larger mean absolute error", "Mean absolute error of", "gold_error", -1
        ),
        lambda fitted, table: -np.abs(fitted.expected_labels(table) - table.values[table.label]),
        _compute_absolute_errors, baselines={"mean": MeanNumber, "median": MedianNumber}, simplest="mean",
    ),
    "objects": Scoring(
        ScoreNames(
            "distance", "distance", "a larger mean distance", "Mean distance of the answer to", "gold_distance", -1
        ),
        _score_distances, _compute_answer_distances, baselines={"medoid": Medoid}, simplest="medoid",
    ),
}  # fmt: skip
"""Maps each label type to the scoring of its methods."""

MethodOrBaseline = Aggregator | Baseline
