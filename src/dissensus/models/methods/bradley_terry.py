"""Bradley-Terry: scores of alternatives that are compared in pairs, with ties and annotator effects.

Use it for comparisons of two alternatives, such as the answers of two systems, by several annotators.

Every alternative has a score s. The log odds η of an answer of annotator j depend on the scores of the left and the
right alternative:

    η = γ_j (s_left − s_right) + h_j        P(left) ∝ e^{η/2}      P(right) ∝ e^{−η/2}      P(tie) ∝ e^{κ_j}

This is the model of Bradley & Terry (1952) with the ties of Davidson (1970), where κ = log ν. γ_j is annotator j's
sensitivity to the scores (0: answers do not depend on them, negative: they are reversed), h_j its preference for the
left position, and κ_j its tendency to call a tie. All have normal priors, s ~ N(0, σ²), γ_j ~ N(1, ·), h_j ~ N(h, ·)
and κ_j ~ N(κ, ·), with means and variances learnt from all annotators. The median annotator has γ = 1, so a difference
of scores is its log odds, ties aside, of preferring the better alternative. Newton steps alternate between all scores
and the three numbers of every annotator.

- `scores_` (T,) and `score_interval_` (T, 2): s with mean 0, and 95 % intervals
- `rank_` (T,) and `rank_interval_` (T, 2): ranks, of which 1 is the best
- `answering_` (A, 3): γ, h and κ
- `posterior_` (I, 3): probabilities of left, right and tie for an average annotator

Answers on one item are not independent given the scores. Intervals therefore use the sandwich variance H⁻¹ (Σ_i g_i
g_iᵀ) H⁻¹, or H⁻¹ if that is larger (Liang & Zeger 1986): H is minus the second derivative of the objective, and g_i the
gradient of all answers on item i. Intervals of ranks use draws from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.linalg import solve

from dissensus.common.parameters import is_number, param
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names, OnStep
from dissensus.messages import quote_name
from dissensus.models.answers import AnswerModel
from dissensus.models.base import methods
from dissensus.models.exceptions import (
    AllWeightsZero,
    NotCompared,
    NoWinsBothWays,
    OutcomesNotUsed,
    ScoresOfNewPairs,
    UnseenAlternative,
)
from dissensus.models.fitting import check_label_type
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

TIE_CODE = 2  # code of the outcome "tie"
MAX_SCORE_STEP = 3.0  # largest change of a score per Newton step, in log odds
MIN_MEDIAN_SLOPE = 0.1  # least median γ that scales the scores
FLAT_PRECISION, FIXING_PRECISION = 1e-6, 1e12  # precision of a prior without effect, and of one that fixes the value
MIN_PRIOR_VARIANCE = 1e-4  # least variance of the scores, and of annotators' numbers
INITIAL_VARIANCES = (0.1, 0.1, 0.5)  # initial variances of γ, h and κ
NO_TIES_KAPPA = -700.0  # κ without ties: e^κ is nearly 0, but positive
ELO_PER_LOG_ODDS = 400 / np.log(10)  # Elo points per unit of log odds


@dataclass(frozen=True, eq=False)
class Comparisons:
    """The rows of a table of pairs, as codes."""

    left: IntArray
    right: IntArray
    annotator: IntArray
    item: IntArray
    won: FloatArray  # (N,) 1 if left is better, −1 if right is, times the row's weight
    tied: FloatArray  # (N,) 1 for a tie, times the row's weight
    weight: FloatArray  # (N,)
    n_alternatives: int

    @classmethod
    def without_answers(cls, left: IntArray, right: IntArray, n_things: int) -> Comparisons:
        """Return comparisons without answers."""
        codes, weights = np.empty(0, np.int64), np.empty(0)
        return cls(left, right, codes, codes, weights, weights, weights, n_things)


class OutcomeProbabilities(NamedTuple):
    """Expectations of rows, each (N,): P(left) − P(right), P(left) + P(right), P(tie); and their log likelihood."""

    difference: FloatArray
    decided: FloatArray
    tie: FloatArray
    log_likelihood: float


@methods.register(
    "bradley-terry",
    summary="pairs: a score per thing with ties, annotators' reliability and position effect",
    cite="Bradley & Terry 1952; Davidson 1970",
    place=1,
)
class BradleyTerry(AnswerModel):
    """Scores of things that were compared in pairs, with intervals on scores and ranks.

    >>> from dissensus import Annotations
    >>> table = Annotations.from_pairs(["a", "a", "b", "c"], ["b", "c", "c", "a"], ["left", "left", "tie", "right"])
    >>> BradleyTerry().fit(table).ranking()["thing"].tolist()[0]
    'a'
    """

    ties: Literal["davidson", "half"] = param("davidson", "model ties, or count half a win of each")
    annotators: bool = param(True, "learn the slope, position effect and ties of each annotator")
    position: bool = param(True, "learn the effect of the left position")
    prior: Any = param(
        "auto", "variance of the scores: learnt, a number, or None for none",
        check=lambda value: value in ("auto", None) or (is_number(value) and value > 0),
        must="must be 'auto', None, or a number above 0",
    )  # fmt: skip
    draws: int = param(1000, "draws for intervals of ranks", low=1)
    max_iter: int = param(50, "rounds at most", low=1)
    tol: float = param(0.01, "change of every score, in standard errors, that ends them", above=0)

    kinds: ClassVar = ("pairs",)
    frames: ClassVar = ("items", "annotators", "things")
    things_: Annotated[Names, "Y names"]
    scores_: Annotated[FloatArray, "Y real"]  # mean 0; a difference is the log odds of winning, ties aside
    score_interval_: Annotated[FloatArray, "Y 2 real"]  # 95 %
    rank_: Annotated[IntArray, "Y count"]  # the best is 1
    rank_interval_: Annotated[IntArray, "Y 2 count"]  # 95 %
    score_variance_: Annotated[FloatArray, "Y Y real"]
    comparisons_: Annotated[FloatArray, "Y count"]  # weight of the answers about each thing
    answering_: Annotated[FloatArray, "A 3 real"]  # γ, h, κ
    crowd_answering_: Annotated[FloatArray, "3 real"]  # γ, h, κ of an unseen annotator

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        if gold is not None:
            raise OutcomesNotUsed(method=type(self).__name__)
        games = self.comparisons_of(table)
        self.things_ = table.alternatives.names
        check_connected(self.things_, games, self.prior is None)
        hessian = self._optimise(games, table.n_annotators, on_step)
        self._set_intervals(games, np.linalg.inv(hessian), table.n_items)
        self.posterior_ = self.outcome_probabilities(
            Comparisons.without_answers(*table.alternatives[1:], self.things_.size), np.full(table.n_items, -1)
        )
        self.prior_ = np.bincount(table.label, games.weight, 3) / games.weight.sum()
        differences = self.scores_[games.left] - self.scores_[games.right]
        typical = float(np.sqrt((games.weight * differences**2).sum() / games.weight.sum()))
        share = 1 / (1 + np.exp(-self.answering_[:, 0] * typical))  # P(the better alternative of a typical pair)
        total = np.bincount(games.annotator, games.weight, table.n_annotators).astype(np.float64)
        self.reliability_, self.hits_, self.total_ = share, share * total, total

    def comparisons_of(self, table: Annotations) -> Comparisons:
        """Return the comparisons of a table."""
        sides = table.alternatives
        weight = table.row_weights
        if not weight.sum() > 0:
            raise AllWeightsZero
        won = weight * np.array([1.0, -1.0, 0.0])[table.label]
        tied = weight * (table.label == TIE_CODE) if self.ties == "davidson" else np.zeros(len(table))
        left, right = sides.left[table.item], sides.right[table.item]
        return Comparisons(left, right, table.annotator, table.item, won, tied, weight, sides.names.size)

    def _optimise(self, games: Comparisons, A: int, on_step: OnStep) -> FloatArray:
        """Set scores and annotators' numbers by alternating Newton steps; return minus the second derivatives."""
        T = games.n_alternatives
        ties = float(games.tied.sum() / games.weight.sum())
        free = np.array([self.annotators, self.position, 0 < ties < 1])
        center = np.array([1.0, 0.0, np.log(2 * ties / (1 - ties)) if free[2] else NO_TIES_KAPPA])
        own = np.tile(center, (A, 1))
        spread = np.array(INITIAL_VARIANCES)
        variance = 1.0 if self.prior == "auto" else np.inf if self.prior is None else float(self.prior)
        scores, trace = np.zeros(T), []
        for step in range(1, self.max_iter + 1):
            before, p = scores, expected_outcomes(games, scores, own)
            slope, curve = score_derivatives(games, p)
            gamma = own[games.annotator, 0]
            pull = np.bincount(games.left, gamma * slope, T) - np.bincount(games.right, gamma * slope, T)
            hessian = weighted_laplacian(games, gamma**2 * curve)
            hessian[np.diag_indices(T)] += 1 / variance
            if self.prior is None:  # only differences count
                hessian += np.trace(hessian) / T**2
            move = solve(hessian, pull - scores / variance, assume_a="pos")
            error = 1 / np.sqrt(np.diag(hessian))
            scores = scores + np.clip(move, -MAX_SCORE_STEP, MAX_SCORE_STEP)
            scores -= scores.mean()
            if free.any():
                own, center, spread = self._learn_annotators(games, scores, own, center, spread, free)
            if self.annotators:
                unit = max(float(np.median(own[:, 0])), MIN_MEDIAN_SLOPE)  # scores and γ have one scale in common
                own[:, 0] /= unit
                scores = scores * unit
            if self.prior == "auto":
                variance = max(float((scores**2 + error**2).mean()), MIN_PRIOR_VARIANCE)
            trace.append(p.log_likelihood)
            on_step(step, trace[-1])
            if (np.abs(scores - before) < self.tol * error).all():
                break
        self.scores_, self.answering_, self.crowd_answering_ = scores, own, center
        self.trace_, self.n_iter_, self.converged_ = np.array(trace), len(trace), len(trace) < self.max_iter
        return hessian

    def _learn_annotators(
        self,
        games: Comparisons,
        scores: FloatArray,
        own: FloatArray,
        center: FloatArray,
        spread: FloatArray,
        free: BoolArray,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return (γ, h, κ) after one Newton step of every annotator, or of the crowd as one, with means and variances.

        A prior without width fixes the values that are not free.
        """
        who, A = (games.annotator, len(own)) if self.annotators else (np.zeros_like(games.annotator), 1)
        p = expected_outcomes(games, scores, own, total=False)
        slope, curve = score_derivatives(games, p)
        d = scores[games.left] - scores[games.right]
        cross = -0.5 * games.weight * p.difference * p.tie

        def add(values: FloatArray) -> FloatArray:
            return np.bincount(who, values, A).astype(np.float64)

        g = np.stack([add(slope * d), add(slope), add(games.tied - games.weight * p.tie)], axis=1)
        H = np.empty((A, 3, 3))
        H[:, 0, 0], H[:, 1, 1] = add(curve * d**2), add(curve)
        H[:, 2, 2] = add(games.weight * p.tie * (1 - p.tie))
        H[:, 0, 1] = H[:, 1, 0] = add(curve * d)
        H[:, 0, 2] = H[:, 2, 0] = add(cross * d)
        H[:, 1, 2] = H[:, 2, 1] = add(cross)
        middle = np.where(free, center, 0.0)
        tight = np.where(free, 1 / spread if self.annotators else FLAT_PRECISION, FIXING_PRECISION)
        at = np.where(free, own[:A], 0.0)
        H += np.diag(tight)
        at = at + np.clip(np.linalg.solve(H, (g - tight * (at - middle))[:, :, None])[:, :, 0], -1, 1)
        learnt = free & [False, True, True]  # the median of γ is 1
        center = np.where(learnt, at.mean(axis=0), center)
        if self.annotators:
            doubt = np.diagonal(np.linalg.inv(H), axis1=1, axis2=2)
            spread = np.maximum(((at - np.where(free, center, at)) ** 2 + doubt).mean(axis=0), MIN_PRIOR_VARIANCE)
        return np.where(free, at, center) * np.ones((len(own), 1)), center, spread

    def _set_intervals(self, games: Comparisons, inverse: FloatArray, n_items: int) -> None:
        """Set variances of the scores by the sandwich over items, and the intervals of scores and ranks."""
        T = games.n_alternatives
        slope, _ = score_derivatives(games, expected_outcomes(games, self.scores_, self.answering_))
        q = np.asarray(np.bincount(games.item, self.answering_[games.annotator, 0] * slope, n_items), np.float64)
        first = np.unique(games.item, return_index=True)[1]
        of_item = Comparisons.without_answers(games.left[first], games.right[first], T)
        meat: Any = weighted_laplacian(of_item, q[games.item[first]] ** 2)
        sandwich = inverse @ meat @ inverse
        plain, robust = centre_variance(inverse), centre_variance(sandwich)
        factor = np.sqrt(np.maximum(np.diag(robust) / np.maximum(np.diag(plain), 1e-300), 1.0))
        self.score_variance_ = plain * np.outer(factor, factor)
        half = 1.96 * np.sqrt(np.maximum(np.diag(self.score_variance_), 0))
        self.score_interval_ = np.stack([self.scores_ - half, self.scores_ + half], axis=1)
        played = [np.bincount(side, games.weight, T) for side in (games.left, games.right)]
        self.comparisons_ = np.asarray(played[0] + played[1], np.float64)
        self.rank_ = rank_scores(self.scores_)
        root = np.linalg.cholesky(self.score_variance_ + np.eye(T) * (1e-9 + 1e-9 * np.diag(plain).max()))
        drawn = self.scores_ + np.random.default_rng(self.seed).standard_normal((self.draws, T)) @ root.T
        low, high = np.quantile(rank_scores(drawn), [0.025, 0.975], axis=0, method="nearest")
        self.rank_interval_ = np.stack([np.minimum(low, self.rank_), np.maximum(high, self.rank_)], axis=1)

    def outcome_probabilities(self, games: Comparisons, annotator: IntArray) -> FloatArray:
        """Return P(left, right, tie) of comparisons (N, 3) by annotators (N,), codes into `annotators_`, −1 unseen."""
        own = np.vstack([self.answering_, self.crowd_answering_])
        p = expected_outcomes(replace(games, annotator=annotator), self.scores_, own)
        return np.stack([(p.decided + p.difference) / 2, (p.decided - p.difference) / 2, p.tie], axis=1)

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """(I, 3) P(left, right, tie) of each item, for an annotator like the crowd."""
        self._check_fitted()
        if table is None:
            return self.posterior_
        return self.outcome_probabilities(self._known_sides(table), np.full(table.n_items, -1))

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """(N, 3) P(left, right, tie) of every row, for its annotator."""
        self._check_fitted()
        annotators = naming.match_names(table.annotators, self.annotators_, "annotators")[table.annotator]
        items = self._known_sides(table)
        return self.outcome_probabilities(
            Comparisons.without_answers(items.left[table.item], items.right[table.item], items.n_alternatives),
            annotators,
        )

    def _known_sides(self, table: Annotations) -> Comparisons:
        check_label_type(self, table)
        things, left, right = table.alternatives
        at = naming.match_names(things, self.things_, "things")
        if (at < 0).any():
            raise UnseenAlternative(alternative=quote_name(things[at < 0][0]), fitted=self.things_.size)
        return Comparisons.without_answers(at[left], at[right], self.things_.size)

    def predict_answers(self, table: Annotations) -> dict[str, Any]:
        raise ScoresOfNewPairs

    def summarise_answers(self, gold: Any = None) -> dict[str, Any]:
        """Return the ranking, and the crowd's position effect and ties."""
        _, left, tie = self.crowd_answering_.tolist()
        found = {"things": self.things_.size, "favours_left": left, "calls_ties": tie if tie > NO_TIES_KAPPA else None}
        return found | {"ranking": self.ranking("pyarrow").to_pylist()}

    def ranking(self, backend: Any = None) -> Any:
        """Return the things, best first, with score, rank, their 95 % intervals, Elo points and comparisons."""
        return self.to_frame("things", backend)  # type: ignore[arg-type]

    def _frame_columns(self, kind: str) -> dict[str, Any]:
        if kind == "things":
            order = np.argsort(self.rank_)
            columns = {
                "thing": self.things_, "score": self.scores_, "low": self.score_interval_[:, 0],
                "high": self.score_interval_[:, 1], "rank": self.rank_, "rank_low": self.rank_interval_[:, 0],
                "rank_high": self.rank_interval_[:, 1], "elo": 1000 + ELO_PER_LOG_ODDS * self.scores_,
                "comparisons": self.comparisons_,
            }  # fmt: skip
            return {name: values[order] for name, values in columns.items()}
        if kind != "annotators":
            return super()._frame_columns(kind)
        columns = {"annotator": self.annotators_, "annotations": self.n_annotations_, "reliability": self.reliability_}
        columns |= dict(zip(("follows_scores", "favours_left", "calls_ties"), self.answering_.T, strict=True))
        if (columns["calls_ties"] <= NO_TIES_KAPPA).all():  # there are no ties
            del columns["calls_ties"]
        return columns


def expected_outcomes(
    games: Comparisons, scores: FloatArray, own: FloatArray, total: bool = True
) -> OutcomeProbabilities:
    """Return the expectations of every row; `own` (A, 3) are γ, h, κ. With `total` also the log likelihood."""
    gamma, h, nu = own[:, 0] / 2, own[:, 1] / 2, np.exp(own[:, 2])
    half = gamma[games.annotator] * (scores[games.left] - scores[games.right])
    half += h[games.annotator]
    size = np.abs(half)
    less = np.exp(-size)  # all three odds, divided by the larger of those of left and right
    tie, loser = nu[games.annotator] * less, less**2
    share = 1 / (1 + loser + tie)
    found = 0.0
    if games.won.size and total:
        ties = np.bincount(games.annotator, games.tied, len(own)) @ own[:, 2]
        found = float(games.won @ half + ties - games.weight @ (size - np.log(share)))
    return OutcomeProbabilities(np.copysign(1 - loser, half) * share, (1 + loser) * share, tie * share, found)


def score_derivatives(games: Comparisons, p: OutcomeProbabilities) -> tuple[FloatArray, FloatArray]:
    """(N,) first and minus the second derivative of the log likelihood of each row in η."""
    return (games.won - games.weight * p.difference) / 2, games.weight * (p.decided - p.difference**2) / 4


def rank_scores(scores: FloatArray) -> IntArray:
    """Return ranks of scores along the last axis, 1 for the largest."""
    return np.argsort(np.argsort(-scores, axis=-1, kind="stable"), axis=-1) + 1


def centre_variance(variance: FloatArray) -> FloatArray:
    """(T, T) the variance of scores less their mean."""
    across = variance.mean(axis=0)
    return np.asarray(variance - across - across[:, None] + across.mean())


def weighted_laplacian(games: Comparisons, weight: FloatArray) -> FloatArray:
    """(T, T) Σ weight (e_left − e_right)(e_left − e_right)ᵀ."""
    T = games.n_alternatives
    between = np.bincount(games.left.astype(np.int64) * T + games.right, weight, T * T).reshape(T, T)
    between = between + between.T
    return np.diag(between.sum(axis=1)) - between


def check_connected(things: Names, games: Comparisons, strongly: bool) -> None:
    """Raise an error if things cannot be ranked together, because comparisons do not connect them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    T = games.n_alternatives
    halves = (games.weight + games.won - games.tied) / 2, (games.weight - games.won - games.tied) / 2
    beats = [(games.left, games.right, halves[0]), (games.right, games.left, halves[1])]
    links = [(games.left, games.right, games.weight)] if not strongly else beats
    start, end, weight = (np.concatenate(part) for part in zip(*links, strict=True))
    graph = coo_array((weight, (start, end)), shape=(T, T)).tocsr()
    graph.eliminate_zeros()
    n, group = connected_components(graph, directed=True, connection="strong" if strongly else "weak")
    if n > 1:
        first, second = things[group == group[0]][0], things[group != group[0]][0]
        fault = NoWinsBothWays if strongly else NotCompared
        raise fault(things=T, groups=n, first=quote_name(first), second=quote_name(second))
