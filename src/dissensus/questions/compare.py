"""Choosing a method without gold: hide some of the annotations, predict them from the rest, see who does it best.

    score(m) = mean over hidden rows of log P_m(label | item, annotator; the other rows)

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
from typing import Any

import numpy as np

from dissensus.common.arrays import random_ranks
from dissensus.common.formatting import word_list
from dissensus.common.frames import as_frame
from dissensus.common.parameters import check_argument
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation import Estimate, bootstrap, expected_calibration_error, paired_bootstrap
from dissensus.evaluation.hard import hits
from dissensus.evaluation.significance import holm
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError
from dissensus.models.base import Aggregator, check_gold, methods
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

MAJORITY = "majority-vote"
MIN_PROBABILITY = 1e-300  # that a hidden label is given: no method says 0, but a product may round to it
SIGNIFICANT = 0.05
MIN_HIDDEN = 30  # annotations, below which nothing is said of methods
NEGLIGIBLE = 0.01  # nats per annotation: on real sets, what a vote is behind where it is as often right

OnFit = Callable[[str, int, int], None]
"""Called before every fit with (method, fits done, fits in all)."""


@dataclass(frozen=True, eq=False)
class Contestant:
    """Scores of one method."""

    method: str
    log_likelihood: Estimate  # mean over hidden annotations, interval by bootstrap over items
    calibration: float  # expected calibration error of the predicted labels against the hidden ones
    accuracy: Estimate | None  # of a fit to all annotations, where gold is known
    seconds: float  # of a fit, on average
    behind: Estimate  # how far its log-likelihood is below the best's
    p_value: float  # of that difference, corrected for the number of methods
    tied: bool  # not to be told apart from the best
    model: Aggregator | None = field(repr=False, default=None)  # the fit to all annotations, where there was one


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Methods ranked by how well they predict hidden annotations, the best first."""

    contestants: tuple[Contestant, ...]
    hidden: int  # annotations that were predicted, over all splits
    splits: int
    share: float
    failed: dict[str, str]  # method → why it could not be fitted

    def __repr__(self) -> str:
        return f"Comparison of {len(self)} methods: {self.verdict()}"

    @property
    def best(self) -> str:
        """The method with the highest log-likelihood of hidden annotations."""
        return self.contestants[0].method

    @property
    def tied(self) -> list[str]:
        """The methods that cannot be told apart from the best, itself first."""
        return [one.method for one in self.contestants if one.tied]

    def __getitem__(self, method: str) -> Contestant:
        return {one.method: one for one in self}[method]

    def __iter__(self) -> Iterator[Contestant]:
        return iter(self.contestants)

    def __len__(self) -> int:
        return len(self.contestants)

    @property
    def _vote(self) -> Contestant | None:
        return next((one for one in self if one.method == MAJORITY), None)

    @property
    def majority_will_do(self) -> bool:
        """True if majority vote is best, cannot be told apart from the best, or is negligibly behind."""
        vote = self._vote
        return vote is not None and (vote.tied or vote.behind.high < NEGLIGIBLE)

    def verdict(self) -> str:
        """Say in a sentence or two which method to use."""
        vote, others = self._vote, self.tied[1:]
        best = f"{self.best} predicts hidden annotations best"
        if len(self) == 1:
            return f"{self.best} was the only method; there is nothing to compare it with."
        if self.hidden < MIN_HIDDEN:
            return (
                f"Nothing can be told: only {self.hidden} annotations could be hidden and predicted, and it takes "
                f"{MIN_HIDDEN} or more."
            )
        if self.best == MAJORITY:
            return "Majority vote predicts hidden annotations best: nothing more elaborate is needed here."
        if vote is not None and self.majority_will_do:
            how = f"by {vote.behind.value:.4f} nats per annotation, which is next to nothing"
            how = "but not by more than chance would" if vote.tied else how
            return f"Majority vote is as good here: {best}, {how}."
        if others:
            best += f", and cannot be told apart from {word_list(others)}"
        if vote is not None:
            behind = vote.behind
            best += f"; majority vote is {behind.value:.3f} nats per annotation behind "
            best += f"({behind.low:.3f} to {behind.high:.3f})"
        used = next((one for one in self if one.method == DEFAULT_METHOD), None)
        if used is not None and not used.tied:
            best += f". {DEFAULT_METHOD}, which all commands use, is {used.behind.value:.3f} behind; whoever predicts "
            best += "copies well is not more often right"
        return f"{best}."

    def to_frame(self) -> Any:
        """One row per method, the best first; a pandas frame where pandas is installed, else an Arrow table."""
        return as_frame(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """The same as plain values."""
        return [
            {"method": one.method}
            | flat("log_likelihood", one.log_likelihood)
            | {"calibration_error": one.calibration}
            | flat("behind", one.behind)
            | {"p_value": one.p_value, "tied": one.tied, "seconds": one.seconds}
            | flat("accuracy", one.accuracy)
            for one in self
        ]


def compare(
    table: Annotations,
    names: Iterable[str | Aggregator] | None = None,
    *,
    gold: IntArray | None = None,
    share: float = 0.2,
    splits: int = 3,
    resamples: int = 1000,
    seed: int = 0,
    on_fit: OnFit | None = None,
    on_result: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Rank methods by the log-likelihood of annotations that were hidden from them.

    Parameters
    ----------
    names : method names, or models not yet fitted; optional
        Left out: every registered method that can take the table.
    gold : (I,) int, optional
        Known classes, −1 where unknown: accuracy is reported beside. It decides nothing.
    share, splits : float, int
        Share of the annotations that is hidden in each of so many random splits; every item keeps at least one.
    resamples, seed
        Of the bootstrap over items; the seed also draws what is hidden, the same for every method.
    on_fit, on_result : callable, optional
        Called before every fit, with (method, fits done, fits in all), and with (method, log-likelihood) after its
        last.

    >>> from dissensus.table.simulate import simulate
    >>> compare(simulate(300, 12, 3, seed=1).annotations, ["majority-vote", "dawid-skene"]).best
    'dawid-skene'
    """
    check_kind(table.kind, CLASS_KINDS, "compare")
    gold = check_gold(gold, table)
    models = _models(names, table)
    check_argument("splits", splits, int, low=1, must="must be at least 1")
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
        except DataError as error:  # such as a table that this method cannot take
            failed[name] = str(error)
            continue
        if on_result is not None:
            on_result(name, found[name].mean())
    if not found:
        raise DataError(f"no method could be fitted; {next(iter(failed))} says: {next(iter(failed.values()))}")
    return _rank(found, failed, share, splits, resamples, seed)


@dataclass
class _Found:
    """Scores of one method over all splits."""

    model: Aggregator | None
    by_item: FloatArray  # (I,) log-likelihood of the hidden rows of each item
    weight: FloatArray  # (I,) of those rows
    calibration: float
    right: FloatArray | None  # (gold items,) 1, 0 or the share of a tie
    seconds: float

    def mean(self) -> float:
        return float(self.by_item.sum() / self.weight.sum())


def _models(names: Iterable[str | Aggregator] | None, table: Annotations) -> dict[str, Aggregator]:
    if isinstance(names, str):
        raise BadParameter(f"names must be a list of methods, got the text {names!r}.")
    if names is None:
        names = [
            name
            for name, entry in methods.entries()
            if table.kind in entry.value.kinds
            and not entry.facts.get("needs_features")
            and not (entry.facts.get("binary") and table.n_classes > 2)
        ]
    models: dict[str, Aggregator] = {}
    for one in names:
        name, model = named_model(one)
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


def fresh(model: Aggregator) -> Aggregator:
    """A copy with the same keywords, not fitted."""
    return type(model)(**model.get_params())


def timed_fit(model: Aggregator, table: Annotations) -> tuple[Aggregator, float]:
    """Fit a copy of a model; also return the seconds. A fit that does not converge shows in its score: no warning."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fresh(model).fit(table), time.perf_counter() - began


def hide(table: Annotations, share: float, rng: np.random.Generator) -> BoolArray:
    """(N,) True for hidden rows: a random share of all rows; every item keeps one."""
    check_argument("share", share, float, above=0, below=1)
    free = np.flatnonzero(random_ranks(table.item, rng))  # all rows but one of each item
    if free.size == 0:
        raise DataError("no item has two annotations; none can be hidden and predicted from the others.")
    chosen = rng.choice(free, min(free.size, max(1, round(share * len(table)))), replace=False)
    return np.isin(np.arange(len(table)), chosen)


def _try_out(
    model: Aggregator,
    table: Annotations,
    hidden: list[BoolArray],
    gold: IntArray | None,
    step: Callable[[int], None],
) -> _Found:
    by_item, weight = np.zeros(table.n_items), np.zeros(table.n_items)
    seconds, errors = [], []
    for number, mask in enumerate(hidden):
        step(number)
        rest = table.select(rows=mask)
        fitted, took = timed_fit(model, table.select(rows=~mask))
        expected = fitted.predict_annotations(rest)
        logs, w = log_likelihood(rest, expected)
        by_item += np.bincount(rest.item, logs * w, rest.n_items)
        weight += np.bincount(rest.item, w, rest.n_items)
        errors.append(expected_calibration_error(rest.label.astype(np.int64), expected))
        seconds.append(took)
    whole = right = None
    if gold is not None:
        step(len(hidden))
        whole, _ = timed_fit(model, table)
        right = hits(gold, whole.posterior_)
    return _Found(whole, by_item, weight, float(np.mean(errors)), right, float(np.mean(seconds)))


def log_likelihood(table: Annotations, expected: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(N,) log P of each row's label (its mean under a probabilistic row), and the rows' weights."""
    logs = np.log(np.maximum(expected, MIN_PROBABILITY))
    found = logs[np.arange(len(table)), table.label] if table.proba is None else (table.proba * logs).sum(axis=1)
    return found, np.ones(len(table)) if table.weight is None else table.weight


def _rank(
    found: dict[str, _Found], failed: dict[str, str], share: float, splits: int, resamples: int, seed: int
) -> Comparison:
    order = sorted(found, key=lambda name: -found[name].mean())
    best = found[order[0]]
    some = best.weight > 0
    n, weight = int(some.sum()), float(best.weight.sum())
    if weight == 0:
        raise DataError("the hidden annotations have no weight; there is nothing to compare by.")
    scores = {name: found[name].by_item[some] * n / weight for name in order}  # their mean is that over annotations
    draws: Any = {"resamples": resamples, "seed": seed}
    differences = {name: paired_bootstrap(scores[order[0]], scores[name], **draws) for name in order}
    corrected = holm({name: differences[name].p_value for name in order[1:]}) | {order[0]: 1.0}
    contestants = tuple(
        Contestant(
            name,
            bootstrap(np.stack([one.by_item, one.weight], axis=1)[some], lambda s: s[:, 0] / s[:, 1], **draws),
            one.calibration,
            None if one.right is None else bootstrap(one.right, **draws),
            one.seconds,
            differences[name].mean,
            corrected[name],
            corrected[name] >= SIGNIFICANT,
            one.model,
        )
        for name, one in ((name, found[name]) for name in order)
    )
    return Comparison(contestants, round(weight), splits, share, failed)


def flat(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Columns of a row that hold an estimate and its interval; none where there is no estimate."""
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
