"""Score one or several predictions against annotations or gold, with intervals.

    hard            the predicted class compared with gold or, without gold, with a unique most frequent label
    soft            the predicted distribution compared with the distribution of an item's votes
    perspectivist   the label predicted for each annotator compared with this annotator's label
    calibration     predicted probabilities compared with frequencies in gold or, without gold, in the votes

A prediction for an item applies to all its annotators; predictions for single annotators are averaged per item. The
scores are defined in `dissensus.evaluation`. All predictions are scored on the same items and the same resamples.
Therefore, the interval of the difference from the first predictions is a paired bootstrap interval. Calibration errors
are larger on resamples than on the original items, so their interval is shifted until the mean over the resamples
equals the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.formatting import Count, format_count
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.evaluation.calibration import confidence_gaps_by_bin, log_loss_per_item
from dissensus.evaluation.hard import count_class_outcomes, find_tied_classes, mean_f1, mean_recall
from dissensus.evaluation.intervals import Estimate, Statistic, bootstrap_sums, percentile_interval
from dissensus.evaluation.perspectivist import absolute_distance, error_rate
from dissensus.evaluation.soft import DISTRIBUTION_MEASURES, entropy, wasserstein
from dissensus.messages import Message
from dissensus.models.base import check_gold
from dissensus.questions.compare import make_estimate_columns
from dissensus.questions.exceptions import ClassesNotNumbers, NoPredictions, NothingToEvaluate
from dissensus.questions.findings import MissingPredictions, TiedLabels
from dissensus.questions.predictions import AlignedPredictions, Predictions, convert_names_to_text
from dissensus.questions.scoring import log_likelihood
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

Scale = Literal["nominal", "ordinal", "interval"]
HIGHER_IS_BETTER = {"accuracy", "balanced_accuracy", "macro_f1", "entropy_correlation", "log_likelihood"}
CALIBRATION_ERROR = "expected_calibration_error"
GOLD_REFERENCE, MAJORITY_REFERENCE = "gold", "the most frequent label"
UNKNOWN_ESTIMATE = Estimate(np.nan, np.nan, np.nan)
MIN_ENTROPY_VARIANCE = 1e-24  # variance of entropies below which the entropies count as constant


@dataclass(frozen=True)
class Score:
    """A score, with its value for each of the predictions to which it applies."""

    kind: str  # hard, soft, perspectivist or calibration
    name: str
    items: int
    values: dict[str, Estimate]  # maps names of predictions to scores
    differences: dict[str, Estimate]  # maps names of all other predictions to differences from the first ones

    @property
    def higher_is_better(self) -> bool:
        """Return whether higher is better, which is False for errors, losses and distances."""
        return self.name in HIGHER_IS_BETTER

    def verdict(self, predictions: str) -> str:
        """Return "better" or "worse" than the first predictions, or "" if the interval of the difference contains 0."""
        difference = self.differences.get(predictions)
        if difference is None or not (difference.low > 0 or difference.high < 0):
            return ""
        return "better" if (difference.low > 0) == self.higher_is_better else "worse"


@dataclass(frozen=True, eq=False)
class Evaluation(NotebookTable):
    """The scores of all predictions, in a fixed order."""

    scores: tuple[Score, ...]
    predictions: tuple[str, ...]  # names of the predictions
    reference: str  # "gold" or "the most frequent label"
    skipped: tuple[Message, ...] = ()  # messages about skipped items

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences about what was skipped and why."""
        return tuple(map(str, self.skipped))

    def __getitem__(self, name: str) -> Score:
        return {one.name: one for one in self.scores}[name]

    def __iter__(self) -> Iterator[Score]:
        return iter(self.scores)

    def __repr__(self) -> str:
        return f"Evaluation of {', '.join(self.predictions)}: {format_count(len(self.scores), 'score')}"

    def rows(self) -> list[dict[str, Any]]:
        """Return one row of plain values for each score and each of the predictions."""
        return [
            {"kind": one.kind, "score": one.name, "higher_is_better": one.higher_is_better, "items": one.items}
            | {"predictions": name}
            | make_estimate_columns("value", value)
            | make_estimate_columns("difference", one.differences.get(name, UNKNOWN_ESTIMATE))
            for one in self.scores
            for name, value in one.values.items()
        ]


def evaluate(
    predictions: Any,
    table: Annotations,
    *,
    gold: IntArray | None = None,
    scale: Scale = "nominal",
    resamples: int = 1000,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> Evaluation:
    """Score predictions against annotations, gold or both.

    Parameters
    ----------
    predictions : path, frame, array or `Predictions`, or a mapping from names to these
        Labels, class probabilities or both, for items or for pairs of item and annotator (`questions.predictions`). An
        array has one row for each of `table.items`.
    table : Annotations
        The annotations. If the table has no rows, only gold is used.
    gold : (I,) int, optional
        Gold classes, −1 where unknown.
    scale : "nominal", "ordinal" or "interval"
        On an ordinal scale, classes are equidistant in the order of `table.classes`; on an interval scale, their names
        are numbers. Both scales add the scores `wasserstein` and `absolute_distance`.
    resamples, seed, on_step
        See `dissensus.evaluation.bootstrap`. Without resamples (0), there are no intervals.

    Returns
    -------
    Evaluation
        The scores of all predictions and their differences from the first ones.

    >>> from dissensus.table.simulate import simulate
    >>> data = simulate(200, 10, 3, seed=1)
    >>> found = evaluate({"votes": data.annotations.soft_labels("smoothed")}, data.annotations, gold=data.truth)
    >>> round(found["accuracy"].values["votes"].value, 3)
    0.863
    >>> found.to_frame().shape, found.notes
    ((15, 11), ())
    """
    check_kind(table.kind, CLASS_KINDS, "evaluate")
    check_argument("scale", scale, Scale)
    gold = check_gold(gold, table)
    sources = predictions if isinstance(predictions, Mapping) else {"predictions": predictions}
    if not sources:
        raise NoPredictions()
    read = {str(name): Predictions.read(source, table) for name, source in sources.items()}
    table = convert_names_to_text(table, read.values())
    aligned = {name: AlignedPredictions.align(one, table) for name, one in read.items()}
    reference = _Reference(table, gold, aligned, _class_positions(table, scale))
    results: dict[tuple[str, str, int], dict[str, tuple[float, FloatArray]]] = {}
    for name, one in aligned.items():
        for part in reference.compute_scores(one):
            sums = bootstrap_sums(part.stats, resamples=resamples, seed=seed, on_step=on_step)
            for score, statistic in part.scores.items():
                value, resampled = float(statistic(sums.whole[None])[0]), statistic(sums.resampled)
                if score == CALIBRATION_ERROR and resampled.size:  # a resample has fewer distinct items in each bin
                    resampled = resampled - resampled.mean() + value
                results.setdefault((part.kind, score, part.stats.shape[0]), {})[name] = value, resampled
    first = next(iter(read))
    scores = [
        Score(
            kind, score, items,
            {name: _estimate(*one, items if score == "accuracy" else 0) for name, one in values.items()},
            {
                name: _estimate(one[0] - values[first][0], one[1] - values[first][1])
                for name, one in values.items()
                if name != first and first in values and np.isfinite(one[0] - values[first][0])
            },
        )
        for (kind, score, items), values in results.items()
    ]  # fmt: skip
    if not scores:
        raise NothingToEvaluate()
    order = ["hard", "soft", "perspectivist", "calibration"]
    scores.sort(key=lambda score: order.index(score.kind))
    return Evaluation(
        tuple(scores), tuple(read), MAJORITY_REFERENCE if gold is None else GOLD_REFERENCE, tuple(reference.skipped)
    )


class _ScoreGroup(NamedTuple):
    """Scores that are computed from the same sums over items."""

    kind: str
    stats: Any  # (n, S) sparse
    scores: dict[str, Statistic]


class _Reference:
    """The items and annotations that all predictions cover, with which the predictions are compared."""

    def __init__(
        self,
        table: Annotations,
        gold: IntArray | None,
        predictions: Mapping[str, AlignedPredictions],
        positions: FloatArray | None,
    ):
        self.skipped: list[Message] = []
        votes = table.votes()
        voted = votes.sum(axis=1) > 0
        items, rows = np.ones(table.n_items, np.bool_), np.ones(len(table), np.bool_)
        for name, one in predictions.items():
            expected = {
                "items": (voted if gold is None else voted | (gold >= 0), one.has_item, np.arange(table.n_items))
            }
            expected["annotations"] = (one.has_item[table.item], one.has_row, table.item)
            for what, (required, present, item) in expected.items():
                if (missing := required & ~present).any():
                    first = table.items[item[missing][0]]
                    facts = {"missing": int(missing.sum()), "n": int(required.sum()), "unit": what, "item": first}
                    self.skipped.append(MissingPredictions(predictions=name, **facts))
            items, rows = items & one.has_item, rows & one.has_row
        truth = gold
        if truth is None:
            best = find_tied_classes(votes)
            unclear = voted & (best.sum(axis=1) > 1)
            truth = np.where(voted & ~unclear, best.argmax(axis=1), -1)
            if tied_items := int((unclear & items).sum()):
                self.skipped.append(TiedLabels(items=Count(tied_items)))
        self.table = table.select(rows=rows)  # every predicted row belongs to a predicted item
        self.rows: BoolArray = rows  # (N,) True for the rows of the original table that are used
        self.y, self.voted = table.soft_labels(), voted & items  # (I, K) shares of the votes; (I,)
        self.gold, self.has_gold = np.where(items, truth, -1), gold is not None  # (I,) −1 where unknown
        self.positions = positions  # (K,) positions of ordered classes

    def compute_scores(self, one: AlignedPredictions) -> Iterator[_ScoreGroup]:
        """Yield the groups of scores that apply to these predictions."""
        known, voted, h = self.gold >= 0, self.voted, one.proba
        gold, n = self.gold[known], int(known.sum())
        if n:
            K = self.y.shape[1]
            accuracy: Statistic = lambda s: s[:, :K].sum(axis=1) / n  # noqa: E731
            hard = {"accuracy": accuracy, "balanced_accuracy": mean_recall, "macro_f1": mean_f1}
            yield _ScoreGroup("hard", count_class_outcomes(gold, one.answer_shares[known]), hard)
        if h is not None and voted.any():
            y, h = self.y[voted], h[voted]
            values = {name: measure(y, h) for name, measure in DISTRIBUTION_MEASURES.items()}
            if self.positions is not None:
                values["wasserstein"] = wasserstein(y, h, positions=self.positions)
            a, b = (one - one.mean() for one in (entropy(y), entropy(h)))
            moments = np.stack([a, b, a * a, b * b, a * b], axis=1)
            yield _make_mean_scores("soft", values, moments, "entropy_correlation", lambda s: _correlation(s / len(y)))
        if self.table.votes().any():
            yield self._score_by_annotator(one)
        if one.calibrated_proba is None:
            return
        used = known if self.has_gold else voted
        if used.any():
            error = confidence_gaps_by_bin(gold if self.has_gold else self.y[voted], one.calibrated_proba[used])
            yield _ScoreGroup(
                "calibration", error, {CALIBRATION_ERROR: lambda s: np.abs(s).sum(axis=1) / error.shape[0]}
            )
        if self.has_gold and n:
            yield _make_mean_scores("calibration", {"log_loss": log_loss_per_item(gold, one.calibrated_proba[known])})

    def _score_by_annotator(self, one: AlignedPredictions) -> _ScoreGroup:
        table, labels = self.table, one.row_answers[self.rows]
        proba = None if one.row_proba is None else one.row_proba[self.rows]
        values = {"error_rate": error_rate(table, labels)}
        if self.positions is not None and table.n_classes > 1:
            at = labels if proba is None else proba
            values["absolute_distance"] = absolute_distance(table, at, positions=self.positions)
        if proba is None:
            return _make_mean_scores("perspectivist", values)
        logs, weight = log_likelihood(table, proba)
        sums = np.stack([np.bincount(table.item, one, table.n_items) * 1.0 for one in (logs * weight, weight)], axis=1)
        return _make_mean_scores(
            "perspectivist", values, sums[sums[:, 1] > 0], "log_likelihood", lambda s: s[:, 0] / s[:, 1]
        )


def _make_mean_scores(
    kind: str, values: dict[str, FloatArray], more: Any = None, name: str = "", statistic: Statistic | None = None
) -> _ScoreGroup:
    """Return scores that are the means of `values` (n,) over items.

    If `statistic` is given, the score `name` is computed by it from the sums of the columns of `more` (n, S).
    """
    columns = np.stack(list(values.values()), axis=1)
    n, width = columns.shape
    scores: dict[str, Statistic] = {one: lambda s, k=k: s[:, k] / n for k, one in enumerate(values)}  # type: ignore[misc]
    if statistic is not None:
        scores[name] = lambda s: statistic(s[:, width:])
    return _ScoreGroup(kind, csr_array(columns if more is None else np.concatenate([columns, more], axis=1)), scores)


def _correlation(means: FloatArray) -> FloatArray:
    """Return Pearson's r, given the means of a, b, a², b² and ab, or NaN if a or b is constant."""
    a, b, aa, bb, ab = means.T
    scale = np.maximum(aa - a * a, 0) * np.maximum(bb - b * b, 0)
    known = scale > MIN_ENTROPY_VARIANCE
    return np.where(known, (ab - a * b) / np.sqrt(np.where(known, scale, 1)), np.nan)


def _estimate(value: float, resampled: FloatArray, share_of: int = 0) -> Estimate:
    if not np.isfinite(value):
        return Estimate(value, np.nan, np.nan)
    return percentile_interval(value, resampled, share_of=share_of)


def _class_positions(table: Annotations, scale: Scale) -> FloatArray | None:
    """Return the positions of the classes on the scale (K,), or None for a nominal scale."""
    if scale == "nominal":
        return None
    if scale == "ordinal":
        return np.arange(table.n_classes, dtype=np.float64)
    try:
        return np.array([float(name) for name in table.classes])
    except ValueError:
        raise ClassesNotNumbers(classes=tuple(table.classes.tolist())) from None
