"""Choosing a method without gold: hide some of the annotations, predict them from the rest, see who does it best.

    score(m) = mean over hidden rows of log P_m(label | item, annotator; the other rows)

(of numbers, texts and other labels with a distance, minus the distance to what was expected; `questions.scoring`).

A method that knows the items and the annotators better is less surprised by what it has not seen. Nobody can cheat by
being too sure: what a method has never thought possible costs it dearly. Two methods are told apart by the paired
bootstrap over items (Efron & Tibshirani 1993) of the difference of their scores, each method against the best, with
Holm's correction (1979) for asking many times.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dissensus.common.formatting import count, word_list
from dissensus.common.notebook import Shown
from dissensus.common.parameters import check_argument
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation import Estimate, bootstrap, expected_calibration_error, paired_bootstrap
from dissensus.evaluation.intervals import holm
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError
from dissensus.models.answers import check_values
from dissensus.models.base import Aggregator, check_gold, default_method, methods
from dissensus.questions.scoring import LOG, SCORING, Measure, Method, log_likelihood
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

MAJORITY = "majority-vote"
SIGNIFICANT = 0.05
MAX_ANNOTATIONS = 40_000  # of larger tables a part is compared, whole items at a time
MIN_HIDDEN = 30  # annotations, below which nothing is said of methods
NEGLIGIBLE = 0.01  # nats per annotation: on real sets, what a vote is behind where it is as often right

OnFit = Callable[[str, int, int], None]
"""Called before every fit with (method, fits done, fits in all)."""


@dataclass(frozen=True, eq=False)
class Contestant:
    """Scores of one method."""

    method: str
    score: Estimate  # mean over hidden annotations, interval by bootstrap over items; `Comparison.measure` says of what
    calibration: float | None  # expected calibration error of predicted labels against the hidden ones, of classes
    accuracy: Estimate | None  # by gold, of a fit to all annotations; of other kinds, what `measure.gold` says
    seconds: float  # of a fit, on average
    behind: Estimate  # how far its score is below the best's
    p_value: float  # of that difference, corrected for the number of methods
    tied: bool  # not to be told apart from the best
    model: Any = field(repr=False, default=None)  # the fit to all annotations, where there was one


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Methods ranked by how well they predict hidden annotations, the best first."""

    contestants: tuple[Contestant, ...]
    hidden: int  # annotations that were predicted, over all splits
    splits: int
    share: float
    failed: dict[str, str]  # method → why it could not be fitted
    measure: Measure = LOG
    least: str = MAJORITY  # the simplest of the methods
    used: str = DEFAULT_METHOD  # what all commands fit to such labels
    yardsticks: frozenset[str] = frozenset()  # simple ways that only show what a method is worth: nothing fits them
    items: IntArray | None = None  # codes of the items that were compared; None: all
    costly: tuple[str, ...] = ()  # methods that would take the table and were not tried, as they take long

    def __repr__(self) -> str:
        return f"Comparison of {count(len(self), 'method')}: {self.verdict()}"

    @property
    def best(self) -> str:
        """The method that predicts hidden annotations best; a yardstick only where there is nothing else."""
        return next((one.method for one in self if one.method not in self.yardsticks), self.contestants[0].method)

    @property
    def tied(self) -> list[str]:
        """The methods that cannot be told apart from the first, itself and yardsticks included."""
        return [one.method for one in self.contestants if one.tied]

    def __getitem__(self, method: str) -> Contestant:
        return {one.method: one for one in self}[method]

    def __iter__(self) -> Iterator[Contestant]:
        return iter(self.contestants)

    def __len__(self) -> int:
        return len(self.contestants)

    @property
    def _vote(self) -> Contestant | None:
        return next((one for one in self if one.method == self.least), None)

    @property
    def majority_will_do(self) -> bool:
        """True if the simplest method is best, cannot be told apart from the best, or is negligibly behind."""
        vote = self._vote
        negligible = NEGLIGIBLE if self.measure.sign > 0 else 0.0
        return vote is not None and (vote.tied or vote.behind.high < negligible)

    def verdict(self) -> str:
        """Say in a few sentences which method to use, and what was tried."""
        said = [self._verdict()]
        if self.items is not None:
            said.append(f"Compared on {count(self.items.size, 'item')}, drawn at random, with all their labels.")
        if self.costly:
            others = f"`dissensus compare --methods all` also tries {word_list(self.costly)}, which take longer"
            said.append(f"{count(len(self), 'method')} were tried; {others}.")
        return " ".join(said)

    def _verdict(self) -> str:
        vote, unit = self._vote, self.measure.unit
        others = [name for name in self.tied if name != self.best and name not in self.yardsticks]
        simple = "majority vote" if self.least == MAJORITY else self.least
        best = f"{self.best} predicts hidden annotations best"
        if len(self) == 1:
            return f"{self.best} was the only method; there is nothing to compare it with."
        if self.hidden < MIN_HIDDEN:
            return (
                f"Nothing can be told: only {count(self.hidden, 'annotation')} could be hidden and predicted, and it "
                f"takes {MIN_HIDDEN} or more."
            )
        if self.best in self.yardsticks:
            return f"{_capital(best)}, but it is a yardstick as all others are; compare it with a method."
        if (first := self.contestants[0]).method in self.yardsticks:
            behind = self[self.best].behind
            best = f"{best} of the methods that can be fitted; {first.method}, which is only a yardstick, is "
            best += f"{behind.value:.3g} {unit} ahead ({behind.low:.3g} to {behind.high:.3g})"
            return f"{best}{', which chance may explain' * self[self.best].tied}."
        used = next((one for one in self if one.method == self.used), None)
        behind_used = ""
        if used is not None and not used.tied and used.method != self.best:
            by = f"{used.behind.value:.3f}" if used.behind.value >= 0.0005 else "less than 0.001"
            behind_used = f" {self.used}, which all commands use, is {by} {unit} behind"
            behind_used += "; who predicts labels best is not always most often right." if self.measure is LOG else "."
        if self.best == self.least:
            enough = f"{_capital(simple)} predicts hidden annotations best: nothing more elaborate is needed here."
            return enough + behind_used
        if vote is not None and self.majority_will_do and self.least not in self.yardsticks:
            how = f"by {vote.behind.value:.4f} {unit}, which is next to nothing"
            how = "but not by more than chance would" if vote.tied else how
            return f"{_capital(simple)} is as good here: {best}, {how}.{behind_used}"
        if others:
            best += f", and cannot be told apart from {word_list(others)}"
        if vote is not None:
            behind = vote.behind
            best += (
                f"; {simple}{', a yardstick,' * (self.least in self.yardsticks)} is {behind.value:.3f} {unit} behind "
            )
            best += f"({behind.low:.3f} to {behind.high:.3f}){', which chance may explain' * vote.tied}"
        return f"{best}.{behind_used}"

    def shown(self, score: Estimate) -> Estimate:
        """A score as people know it: an error or a distance without the minus."""
        return score if self.measure.sign > 0 else Estimate(-score.value, -score.high, -score.low)

    def rows(self) -> list[dict[str, Any]]:
        """One row per method, the best first, as plain values."""
        return [
            {"method": one.method, "yardstick": one.method in self.yardsticks}
            | flat(self.measure.name, self.shown(one.score))
            | ({} if one.calibration is None else {"calibration_error": one.calibration})
            | flat("behind", one.behind)
            | {"p_value": one.p_value, "tied": one.tied, "seconds": one.seconds}
            | flat(self.measure.gold, one.accuracy)
            for one in self
        ]


def compare(
    table: Annotations,
    names: Iterable[str | Aggregator] | Literal["all"] | None = None,
    *,
    gold: Any = None,
    share: float = 0.2,
    splits: int = 3,
    resamples: int = 1000,
    limit: int = MAX_ANNOTATIONS,
    seed: int = 0,
    on_fit: OnFit | None = None,
    on_result: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Rank methods by the log-likelihood of annotations that were hidden from them.

    Parameters
    ----------
    names : method names, or models not yet fitted, or "all"; optional
        Left out: every registered method that can take the table and is not costly, and the simple ones of
        `questions.scoring`; the report tries the same.
    gold : (I,) int, optional
        Known classes, −1 where unknown (of numbers, floats and NaN): accuracy is reported beside. It decides nothing.
    share, splits : float, int
        Share of the annotations that is hidden in each of so many random splits, all of one annotator about an item
        together; every item keeps an annotator.
    limit : int
        Of a table with more annotations, about so many are compared: a random set of items (of spans, of documents).
    resamples, seed
        Of the bootstrap over items; the seed also draws items and what is hidden, the same for every method.
    on_fit, on_result : callable, optional
        Called before every fit, with (method, fits done, fits in all), and with (method, log-likelihood) after its
        last.

    >>> from dissensus.table.simulate import simulate
    >>> found = compare(simulate(300, 12, 3, seed=1).annotations, ["majority-vote", "dawid-skene"])
    >>> print(found.best, found.tied, found.majority_will_do, found.to_frame().shape)
    dawid-skene ['dawid-skene'] False (2, 12)
    >>> print(found.verdict())
    dawid-skene predicts hidden annotations best; majority vote is 0.080 nats per annotation behind (0.035 to 0.121).
    """
    if table.kind == "pairs" and gold is not None:
        raise BadParameter("comparisons of two things have no known labels; leave gold out.")
    gold = check_values(gold, table) if table.kind == "numbers" else check_gold(gold, table)
    models = _models(names, table)
    costly = () if names is not None else tuple(name for name in candidates(table, True) if name not in models)
    check_argument("splits", splits, int, low=1, must="must be at least 1")
    check_argument("limit", limit, int, low=1)
    check_argument("share", share, float, above=0, below=1)
    if (chosen := _part(table, limit, seed)) is not None:
        table, gold = table.select(items=table.items[chosen]), None if gold is None else gold[chosen]
    hide = SCORING[table.kind].hide
    hidden = [hide(table, share, np.random.default_rng([seed, number])) for number in range(splits)]
    fits = splits + (gold is not None)
    step = on_fit or (lambda method, done, of: None)
    found: dict[str, _Found] = {}
    failed: dict[str, str] = {}
    for number, (name, model) in enumerate(models.items()):

        def begin(more: int, name: str = name, done: int = number * fits) -> None:
            step(name, done + more, fits * len(models))

        try:
            found[name] = _try_out(model, table, hidden, gold, begin)
            if not np.isfinite(found[name].by_item).all():
                raise DataError("its predictions are no numbers.")
        except DataError as error:  # such as a table that this method cannot take
            failed[name] = str(error)
            continue
        if on_result is not None:
            on_result(name, found[name].mean())
    if not found:
        raise DataError(f"no method could be fitted; {next(iter(failed))} says: {next(iter(failed.values()))}")
    contestants, hidden_weight = _rank(found, {"resamples": resamples, "seed": seed})
    scoring = SCORING[table.kind]
    return Comparison(
        contestants, round(hidden_weight), splits, share, failed, scoring.measure, scoring.least,
        default_method(table.kind), frozenset(scoring.simple), chosen, costly,
    )  # fmt: skip


def candidates(table: Annotations, costly: bool = False) -> list[str]:
    """The methods that can take a table; those whose fits take long only where asked for."""
    return [
        name
        for name, entry in methods.entries()
        if table.kind in entry.value.kinds
        and not entry.facts.get("needs_features")
        and not (entry.facts.get("binary") and table.n_classes > 2)
        and (costly or not entry.facts.get("costly"))
    ]


def _part(table: Annotations, limit: int, seed: int) -> IntArray | None:
    """Codes of items with about `limit` annotations, drawn at random; None for all of them."""
    if table.kind == "pairs" or len(table) <= limit:  # things that are compared stay connected
        return None
    group = table.sequences.document if table.kind == "spans" else np.arange(table.n_items)
    n = int(group.max()) + 1
    drawn = np.random.default_rng(seed).permutation(n)[: max(2, round(limit / len(table) * n))]
    return np.flatnonzero(np.isin(group, drawn))


@dataclass
class _Found:
    """Scores of one method over all splits."""

    model: Any
    by_item: FloatArray  # (I,) scores of the hidden rows of each item
    weight: FloatArray  # (I,) of those rows
    calibration: float | None
    right: FloatArray | None  # (gold items, 2) scores and what they are shares of
    seconds: float

    def mean(self) -> float:
        return float(self.by_item.sum() / self.weight.sum())


def _models(names: Iterable[str | Aggregator] | None, table: Annotations) -> dict[str, Method]:
    if isinstance(names, str) and names != "all":
        raise BadParameter(f"names must be a list of methods, got the text {names!r}.")
    if names is None or names == "all":
        names = [*candidates(table, names == "all"), *SCORING[table.kind].simple]
    models: dict[str, Method] = {}
    for one in names:
        simple = SCORING[table.kind].simple.get(one) if isinstance(one, str) else None
        name, model = named_model(one) if simple is None else (str(one), simple())
        if isinstance(model, Aggregator):
            check_kind(table.kind, model.kinds, name)
        if name in models:
            name = repr(model)
        if name in models:
            raise BadParameter(f"{name} is given twice.")
        models[name] = model
    if not models:
        raise BadParameter("no method is given; name at least one, or leave them out for all.")
    return models


def named_model(model: str | Aggregator) -> tuple[str, Aggregator]:
    """Name of a method, and a model of it that is not fitted."""
    return (model, methods[model]()) if isinstance(model, str) else (methods.name_of(type(model)), model)


def fresh(model: Any) -> Any:
    """A copy with the same keywords, not fitted."""
    return type(model)(**model.get_params())


def timed_fit(model: Any, table: Annotations) -> tuple[Any, float]:
    """Fit a copy of a model; also return the seconds. A fit that does not converge shows in its score: no warning."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fresh(model).fit(table), time.perf_counter() - began


def _try_out(
    model: Method, table: Annotations, hidden: list[BoolArray], gold: Any, step: Callable[[int], None]
) -> _Found:
    by_item, weight = np.zeros(table.n_items), np.zeros(table.n_items)
    seconds, errors, scoring = [], [], SCORING[table.kind]
    for number, mask in enumerate(hidden):
        step(number)
        rest = table.select(rows=mask)
        fitted, took = timed_fit(model, table.select(rows=~mask))
        if table.kind in CLASS_KINDS:
            expected = fitted.predict_annotations(rest)
            scores = log_likelihood(rest, expected)[0]
            errors.append(expected_calibration_error(rest.label.astype(np.int64), expected))
        else:
            scores = scoring.rows(fitted, rest)
        by_item += np.bincount(rest.item, scores * rest.row_weights, rest.n_items)
        weight += np.bincount(rest.item, rest.row_weights, rest.n_items)
        seconds.append(took)
    whole = right = None
    if gold is not None:
        step(len(hidden))
        whole, _ = timed_fit(model, table)
        right = None if scoring.gold is None else scoring.gold(whole, table, gold)
    return _Found(whole, by_item, weight, float(np.mean(errors)) if errors else None, right, float(np.mean(seconds)))


def _rank(found: dict[str, _Found], draws: Any) -> tuple[tuple[Contestant, ...], float]:
    """The methods, the best first, and the weight of the hidden annotations."""
    order = sorted(found, key=lambda name: -found[name].mean())
    best = found[order[0]]
    some = best.weight > 0
    n, weight = int(some.sum()), float(best.weight.sum())
    if weight == 0:
        raise DataError("the hidden annotations have no weight; there is nothing to compare by.")
    scores = {name: found[name].by_item[some] * n / weight for name in order}  # their mean is that over annotations
    differences = {name: paired_bootstrap(scores[order[0]], scores[name], **draws) for name in order}
    corrected = holm({name: differences[name].p_value for name in order[1:]}) | {order[0]: 1.0}
    ranked = (
        Contestant(
            name,
            bootstrap(np.stack([one.by_item, one.weight], axis=1)[some], lambda s: s[:, 0] / s[:, 1], **draws),
            one.calibration,
            None if one.right is None else _share_right(one.right, draws),
            one.seconds,
            differences[name].mean,
            corrected[name],
            corrected[name] >= SIGNIFICANT,
            one.model,
        )
        for name, one in ((name, found[name]) for name in order)
    )
    return tuple(ranked), weight


def _share_right(right: Any, draws: Any) -> Estimate:
    """How good answers are by gold: `right` (n, 2) are how much of each is right, and out of how much."""
    if (right[:, 1] == 1).all():  # shares have an interval also where all are right
        return bootstrap(right[:, 0], **draws)
    return bootstrap(right, lambda s: s[:, 0] / s[:, 1], **draws)


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def flat(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Columns of a row that hold an estimate and its interval; none where there is no estimate."""
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
