"""Bradley-Terry: scores of alternatives that are compared in pairs, with ties and annotator effects.

Use it for comparisons of two alternatives, such as the answers of two systems, by several annotators.

Every alternative has a score s. The log odds η of an answer of annotator j depend on the scores of the left and the
right alternative:

    η = γ_j (s_left − s_right) + h_j        P(left) ∝ e^{η/2}      P(right) ∝ e^{−η/2}      P(tie) ∝ e^{κ_j}

This is the model of Bradley & Terry (1952) with the ties of Davidson (1970), where κ = log ν. γ_j is annotator j's
sensitivity to the scores (0: answers do not depend on them, negative: they are reversed), h_j its preference for the
left position, and κ_j its tendency to call a tie. All have normal priors, s ~ N(0, σ²), γ_j ~ N(1, ·), h_j ~ N(h, ·)
and κ_j ~ N(κ, ·), with means and variances learnt from all annotators. The median annotator has γ = 1. For this
annotator, a difference of scores is the log odds of preferring the better alternative, if ties are ignored. Newton
steps alternate between all scores and the three numbers of every annotator.

- `scores_` (T,) and `score_interval_` (T, 2): s with mean 0, and 95 % intervals
- `rank_` (T,) and `rank_interval_` (T, 2): ranks (1 is the best), and their 95 % intervals
- `answering_` (A, 3): γ, h and κ
- `posterior_` (I, 3): probabilities of left, right and tie for an average annotator

Answers on one item are not independent given the scores. Intervals therefore use the sandwich variance H⁻¹ (Σ_i g_i
g_iᵀ) H⁻¹, or H⁻¹ if that is larger (Liang & Zeger 1986): H is minus the second derivative of the objective, and g_i the
gradient of all answers on item i. Intervals of ranks use random draws of scores with this variance.
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
    AlternativesNotConnected,
    NewPairsNotScorable,
    OneGroupAlwaysWins,
    OutcomesNotUsed,
    UnseenAlternative,
)
from dissensus.models.fitting import check_label_type
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

TIE_CODE = 2  # class code of a tie; 0 means left and 1 means right
MAX_SCORE_STEP = 3.0  # maximum change of a score per Newton step, in log odds
MIN_MEDIAN_SLOPE = 0.1  # lower limit of the median γ, by which the scores are scaled
FLAT_PRECISION, FIXING_PRECISION = 1e-6, 1e12  # precisions of a prior without effect, and of one that fixes the value
MIN_PRIOR_VARIANCE = 1e-4  # lower limit of the variance of the scores and of annotator effects
INITIAL_VARIANCES = (0.1, 0.1, 0.5)  # initial variances of γ, h and κ
NO_TIES_KAPPA = -700.0  # value of κ without ties, so that e^κ is nearly 0 but positive
ELO_PER_LOG_ODDS = 400 / np.log(10)  # Elo points per unit of log odds


@dataclass(frozen=True, eq=False)
class Comparisons:
    """The rows of a table of pairs, with codes of alternatives, annotators and items."""

    left_codes: IntArray
    right_codes: IntArray
    annotator: IntArray
    item: IntArray
    won: FloatArray  # (N,) weight of the row; negative if right is better, 0 for a tie
    tied: FloatArray  # (N,) weight of the row if it is a tie, else 0
    weight: FloatArray  # (N,)
    n_alternatives: int

    @classmethod
    def without_answers(cls, left: IntArray, right: IntArray, n_alternatives: int) -> Comparisons:
        """Return comparisons of these alternatives without answers."""
        codes, weights = np.empty(0, np.int64), np.empty(0)
        return cls(left, right, codes, codes, weights, weights, weights, n_alternatives)


class OutcomeProbabilities(NamedTuple):
    """Expected outcomes of rows, each (N,): P(left) − P(right), P(left) + P(right), P(tie); and the log likelihood."""

    difference: FloatArray
    decided: FloatArray
    tie: FloatArray
    log_likelihood: float


@methods.register(
    "bradley-terry",
    summary="pairs: a score per alternative with ties, annotators' reliability and position effect",
    cite="Bradley & Terry 1952; Davidson 1970",
    place=1,
)
class BradleyTerry(AnswerModel):
    """Estimate the scores of alternatives that were compared in pairs, with intervals of scores and ranks.

    >>> from dissensus import Annotations
    >>> table = Annotations.from_pairs(["a", "a", "b", "c"], ["b", "c", "c", "a"], ["left", "left", "tie", "right"])
    >>> BradleyTerry().fit(table).ranking()["thing"].tolist()[0]
    'a'
    """

    ties: Literal["davidson", "half"] = param(
        "davidson", "whether ties are modelled or count as half a win of both alternatives"
    )
    annotators: bool = param(True, "whether each annotator's sensitivity, position effect and ties are learnt")
    position: bool = param(True, "whether the preference for the left position is learnt")
    prior: Any = param(
        "auto", "prior variance of the scores; learnt if 'auto', no prior if None",
        check=lambda value: value in ("auto", None) or (is_number(value) and value > 0),
        must="must be 'auto', None, or a number above 0",
    )  # fmt: skip
    draws: int = param(1000, "number of random draws for the intervals of ranks", low=1)
    max_iter: int = param(50, "maximum number of rounds", low=1)
    tol: float = param(0.01, "stop when no score changes by more than this many standard errors", above=0)

    kinds: ClassVar = ("pairs",)
    frame_kinds: ClassVar = ("items", "annotators", "things")
    things_: Annotated[Names, "Y names"]
    scores_: Annotated[FloatArray, "Y real"]  # scores with mean 0; a difference is the log odds of winning
    score_interval_: Annotated[FloatArray, "Y 2 real"]  # 95 % interval
    rank_: Annotated[IntArray, "Y count"]  # 1 is the best
    rank_interval_: Annotated[IntArray, "Y 2 count"]  # 95 % interval
    score_variance_: Annotated[FloatArray, "Y Y real"]
    comparisons_: Annotated[FloatArray, "Y count"]  # total weight of the answers on each alternative
    answering_: Annotated[FloatArray, "A 3 real"]  # γ, h and κ of each annotator
    crowd_answering_: Annotated[FloatArray, "3 real"]  # γ, h and κ of an unseen annotator

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        if gold is not None:
            raise OutcomesNotUsed(method=type(self).__name__)
        pairs = self.extract_comparisons(table)
        self.things_ = table.alternatives.names
        check_connected(self.things_, pairs, self.prior is None)
        hessian = self._optimise(pairs, table.n_annotators, on_step)
        self._set_intervals(pairs, np.linalg.inv(hessian), table.n_items)
        self.posterior_ = self.outcome_probabilities(
            Comparisons.without_answers(*table.alternatives[1:], self.things_.size), np.full(table.n_items, -1)
        )
        self.prior_ = np.bincount(table.label, pairs.weight, 3) / pairs.weight.sum()
        differences = self.scores_[pairs.left_codes] - self.scores_[pairs.right_codes]
        typical = float(np.sqrt((pairs.weight * differences**2).sum() / pairs.weight.sum()))
        # The share is P(annotator prefers the better alternative of a typical pair).
        share = 1 / (1 + np.exp(-self.answering_[:, 0] * typical))
        total = np.bincount(pairs.annotator, pairs.weight, table.n_annotators).astype(np.float64)
        self.reliability_, self.hits_, self.total_ = share, share * total, total

    def extract_comparisons(self, table: Annotations) -> Comparisons:
        """Return the comparisons of a table."""
        sides = table.alternatives
        weight = table.row_weights
        if not weight.sum() > 0:
            raise AllWeightsZero
        won = weight * np.array([1.0, -1.0, 0.0])[table.label]
        tied = weight * (table.label == TIE_CODE) if self.ties == "davidson" else np.zeros(len(table))
        left, right = sides.left_codes[table.item], sides.right_codes[table.item]
        return Comparisons(left, right, table.annotator, table.item, won, tied, weight, sides.names.size)

    def _optimise(self, pairs: Comparisons, A: int, on_step: OnStep) -> FloatArray:
        """Fit scores and annotator effects by alternating Newton steps; return minus the second derivatives (T, T)."""
        T = pairs.n_alternatives
        ties = float(pairs.tied.sum() / pairs.weight.sum())
        free = np.array([self.annotators, self.position, 0 < ties < 1])
        center = np.array([1.0, 0.0, np.log(2 * ties / (1 - ties)) if free[2] else NO_TIES_KAPPA])
        effects = np.tile(center, (A, 1))
        spread = np.array(INITIAL_VARIANCES)
        variance = 1.0 if self.prior == "auto" else np.inf if self.prior is None else float(self.prior)
        scores, trace = np.zeros(T), []
        for step in range(1, self.max_iter + 1):
            before, p = scores, expected_outcomes(pairs, scores, effects)
            slope, curve = score_derivatives(pairs, p)
            gamma = effects[pairs.annotator, 0]
            pull = np.bincount(pairs.left_codes, gamma * slope, T) - np.bincount(pairs.right_codes, gamma * slope, T)
            hessian = weighted_laplacian(pairs, gamma**2 * curve)
            hessian[np.diag_indices(T)] += 1 / variance
            if self.prior is None:  # The likelihood depends on differences of scores only.
                hessian += np.trace(hessian) / T**2
            move = solve(hessian, pull - scores / variance, assume_a="pos")
            error = 1 / np.sqrt(np.diag(hessian))
            scores = scores + np.clip(move, -MAX_SCORE_STEP, MAX_SCORE_STEP)
            scores -= scores.mean()
            if free.any():
                effects, center, spread = self._update_annotators(pairs, scores, effects, center, spread, free)
            if self.annotators:
                # The likelihood does not determine the common scale of scores and γ.
                unit = max(float(np.median(effects[:, 0])), MIN_MEDIAN_SLOPE)
                effects[:, 0] /= unit
                scores = scores * unit
            if self.prior == "auto":
                variance = max(float((scores**2 + error**2).mean()), MIN_PRIOR_VARIANCE)
            trace.append(p.log_likelihood)
            on_step(step, trace[-1])
            if (np.abs(scores - before) < self.tol * error).all():
                break
        self.scores_, self.answering_, self.crowd_answering_ = scores, effects, center
        self.trace_, self.n_iter_, self.converged_ = np.array(trace), len(trace), len(trace) < self.max_iter
        return hessian

    def _update_annotators(
        self,
        pairs: Comparisons,
        scores: FloatArray,
        effects: FloatArray,
        center: FloatArray,
        spread: FloatArray,
        free: BoolArray,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return (γ, h, κ) after one Newton step of every annotator, with their prior means and variances.

        Without annotator effects there is one step for the whole crowd. Values that are not free get a prior that fixes
        them.
        """
        group, A = (pairs.annotator, len(effects)) if self.annotators else (np.zeros_like(pairs.annotator), 1)
        p = expected_outcomes(pairs, scores, effects, total=False)
        slope, curve = score_derivatives(pairs, p)
        d = scores[pairs.left_codes] - scores[pairs.right_codes]
        cross = -0.5 * pairs.weight * p.difference * p.tie

        def sum_by_annotator(values: FloatArray) -> FloatArray:
            return np.bincount(group, values, A).astype(np.float64)

        g = np.stack(
            [sum_by_annotator(slope * d), sum_by_annotator(slope), sum_by_annotator(pairs.tied - pairs.weight * p.tie)],
            axis=1,
        )
        H = np.empty((A, 3, 3))
        H[:, 0, 0], H[:, 1, 1] = sum_by_annotator(curve * d**2), sum_by_annotator(curve)
        H[:, 2, 2] = sum_by_annotator(pairs.weight * p.tie * (1 - p.tie))
        H[:, 0, 1] = H[:, 1, 0] = sum_by_annotator(curve * d)
        H[:, 0, 2] = H[:, 2, 0] = sum_by_annotator(cross * d)
        H[:, 1, 2] = H[:, 2, 1] = sum_by_annotator(cross)
        prior_mean = np.where(free, center, 0.0)
        precision = np.where(free, 1 / spread if self.annotators else FLAT_PRECISION, FIXING_PRECISION)
        values = np.where(free, effects[:A], 0.0)
        H += np.diag(precision)
        values = values + np.clip(
            np.linalg.solve(H, (g - precision * (values - prior_mean))[:, :, None])[:, :, 0], -1, 1
        )
        learnt = free & [False, True, True]  # the median of γ is fixed to 1
        center = np.where(learnt, values.mean(axis=0), center)
        if self.annotators:
            variance = np.diagonal(np.linalg.inv(H), axis1=1, axis2=2)
            spread = np.maximum(
                ((values - np.where(free, center, values)) ** 2 + variance).mean(axis=0), MIN_PRIOR_VARIANCE
            )
        return np.where(free, values, center) * np.ones((len(effects), 1)), center, spread

    def _set_intervals(self, pairs: Comparisons, inverse: FloatArray, n_items: int) -> None:
        """Set the sandwich variance of the scores over items, and the intervals of scores and ranks."""
        T = pairs.n_alternatives
        slope, _ = score_derivatives(pairs, expected_outcomes(pairs, self.scores_, self.answering_))
        q = np.asarray(np.bincount(pairs.item, self.answering_[pairs.annotator, 0] * slope, n_items), np.float64)
        first = np.unique(pairs.item, return_index=True)[1]
        item_pairs = Comparisons.without_answers(pairs.left_codes[first], pairs.right_codes[first], T)
        meat: Any = weighted_laplacian(item_pairs, q[pairs.item[first]] ** 2)
        sandwich = inverse @ meat @ inverse
        plain, robust = centre_variance(inverse), centre_variance(sandwich)
        factor = np.sqrt(np.maximum(np.diag(robust) / np.maximum(np.diag(plain), 1e-300), 1.0))
        self.score_variance_ = plain * np.outer(factor, factor)
        half = 1.96 * np.sqrt(np.maximum(np.diag(self.score_variance_), 0))
        self.score_interval_ = np.stack([self.scores_ - half, self.scores_ + half], axis=1)
        played = [np.bincount(side, pairs.weight, T) for side in (pairs.left_codes, pairs.right_codes)]
        self.comparisons_ = np.asarray(played[0] + played[1], np.float64)
        self.rank_ = rank_scores(self.scores_)
        root = np.linalg.cholesky(self.score_variance_ + np.eye(T) * (1e-9 + 1e-9 * np.diag(plain).max()))
        drawn = self.scores_ + np.random.default_rng(self.seed).standard_normal((self.draws, T)) @ root.T
        low, high = np.quantile(rank_scores(drawn), [0.025, 0.975], axis=0, method="nearest")
        self.rank_interval_ = np.stack([np.minimum(low, self.rank_), np.maximum(high, self.rank_)], axis=1)

    def outcome_probabilities(self, pairs: Comparisons, annotator: IntArray) -> FloatArray:
        """Return P(left), P(right) and P(tie), (N, 3), for annotators given by code (N,); −1 is an unseen annotator."""
        effects = np.vstack([self.answering_, self.crowd_answering_])
        p = expected_outcomes(replace(pairs, annotator=annotator), self.scores_, effects)
        return np.stack([(p.decided + p.difference) / 2, (p.decided - p.difference) / 2, p.tie], axis=1)

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """Return P(left), P(right) and P(tie) of each item (I, 3), for an average annotator."""
        self._check_fitted()
        if table is None:
            return self.posterior_
        return self.outcome_probabilities(self._match_alternatives(table), np.full(table.n_items, -1))

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """Return P(left), P(right) and P(tie) of every row (N, 3), for the annotator of the row."""
        self._check_fitted()
        annotators = naming.match_names(table.annotators, self.annotators_, "annotators")[table.annotator]
        items = self._match_alternatives(table)
        return self.outcome_probabilities(
            Comparisons.without_answers(
                items.left_codes[table.item], items.right_codes[table.item], items.n_alternatives
            ),
            annotators,
        )

    def _match_alternatives(self, table: Annotations) -> Comparisons:
        check_label_type(self, table)
        alternatives, left, right = table.alternatives
        codes = naming.match_names(alternatives, self.things_, "things")
        if (codes < 0).any():
            raise UnseenAlternative(alternative=quote_name(alternatives[codes < 0][0]), fitted=self.things_.size)
        return Comparisons.without_answers(codes[left], codes[right], self.things_.size)

    def predict_answers(self, table: Annotations) -> dict[str, Any]:
        raise NewPairsNotScorable

    def summarise_answers(self, gold: Any = None) -> dict[str, Any]:
        """Return the ranking, and the position effect and the frequency of ties for the whole crowd."""
        _, left, tie = self.crowd_answering_.tolist()
        about = {"things": self.things_.size, "favours_left": left, "calls_ties": tie if tie > NO_TIES_KAPPA else None}
        return about | {"ranking": self.ranking("pyarrow").to_pylist()}

    def ranking(self, backend: Any = None) -> Any:
        """Return the alternatives, best first: score and rank with 95 % intervals, Elo and number of comparisons."""
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
        if (columns["calls_ties"] <= NO_TIES_KAPPA).all():  # the table has no ties
            del columns["calls_ties"]
        return columns


def expected_outcomes(
    pairs: Comparisons, scores: FloatArray, effects: FloatArray, total: bool = True
) -> OutcomeProbabilities:
    """Return the expected outcome of every row for annotator effects γ, h, κ (A, 3); `total` adds the likelihood."""
    gamma, h, nu = effects[:, 0] / 2, effects[:, 1] / 2, np.exp(effects[:, 2])
    half = gamma[pairs.annotator] * (scores[pairs.left_codes] - scores[pairs.right_codes])
    half += h[pairs.annotator]
    size = np.abs(half)
    scaled = np.exp(-size)  # All three odds are divided by the larger of those of left and right, to avoid overflow.
    tie, loser = nu[pairs.annotator] * scaled, scaled**2
    share = 1 / (1 + loser + tie)
    found = 0.0
    if pairs.won.size and total:
        ties = np.bincount(pairs.annotator, pairs.tied, len(effects)) @ effects[:, 2]
        found = float(pairs.won @ half + ties - pairs.weight @ (size - np.log(share)))
    return OutcomeProbabilities(np.copysign(1 - loser, half) * share, (1 + loser) * share, tie * share, found)


def score_derivatives(pairs: Comparisons, p: OutcomeProbabilities) -> tuple[FloatArray, FloatArray]:
    """Return, for each row (N,), the first and minus the second derivative of its log likelihood with respect to η."""
    return (pairs.won - pairs.weight * p.difference) / 2, pairs.weight * (p.decided - p.difference**2) / 4


def rank_scores(scores: FloatArray) -> IntArray:
    """Return the ranks of scores along the last axis; the largest has rank 1."""
    return np.argsort(np.argsort(-scores, axis=-1, kind="stable"), axis=-1) + 1


def centre_variance(variance: FloatArray) -> FloatArray:
    """Return the covariance (T, T) of the scores after their mean has been subtracted."""
    across = variance.mean(axis=0)
    return np.asarray(variance - across - across[:, None] + across.mean())


def weighted_laplacian(pairs: Comparisons, weight: FloatArray) -> FloatArray:
    """Return Σ weight (e_left − e_right)(e_left − e_right)ᵀ over rows (T, T)."""
    T = pairs.n_alternatives
    between = np.bincount(pairs.left_codes.astype(np.int64) * T + pairs.right_codes, weight, T * T).reshape(T, T)
    between = between + between.T
    return np.diag(between.sum(axis=1)) - between


def check_connected(alternatives: Names, pairs: Comparisons, strongly: bool) -> None:
    """Raise an error if comparisons do not connect all alternatives, because they have no common scale then."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    T = pairs.n_alternatives
    halves = ((pairs.weight + pairs.won - pairs.tied) / 2, (pairs.weight - pairs.won - pairs.tied) / 2)
    beats = [(pairs.left_codes, pairs.right_codes, halves[0]), (pairs.right_codes, pairs.left_codes, halves[1])]
    links = [(pairs.left_codes, pairs.right_codes, pairs.weight)] if not strongly else beats
    start, end, weight = (np.concatenate(part) for part in zip(*links, strict=True))
    graph = coo_array((weight, (start, end)), shape=(T, T)).tocsr()
    graph.eliminate_zeros()
    n, group = connected_components(graph, directed=True, connection="strong" if strongly else "weak")
    if n > 1:
        first, second = alternatives[group == group[0]][0], alternatives[group != group[0]][0]
        fault = OneGroupAlwaysWins if strongly else AlternativesNotConnected
        raise fault(things=T, groups=n, first_name=quote_name(first), second_name=quote_name(second))
