"""Compare methods without gold: hold out some of the labels and predict them from the other labels.

    score(m) = mean over held-out rows of log P_m(label | item, annotator; the other rows)

For numbers, texts and other labels with a distance, the score is the negative distance to the expected label
(`questions.scoring`).

The score is proper: it penalises overconfident methods, which give some held-out labels a probability near 0. Each
method is compared with the best one. The difference between their scores is tested with the paired bootstrap over items
(Efron & Tibshirani 1993) and Holm's correction (1979) for the number of methods.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dissensus.common.formatting import Count, format_count
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation import Estimate, bootstrap, expected_calibration_error, paired_bootstrap
from dissensus.evaluation.intervals import holm_correction
from dissensus.exceptions import ConvergenceWarning, DataError
from dissensus.messages import Message, ParameterName
from dissensus.models.answers import check_gold_values
from dissensus.models.base import Aggregator, check_gold, default_method, methods
from dissensus.questions import findings
from dissensus.questions.exceptions import (
    NamesAreText,
    NoGoldOfPairs,
    NoHiddenWeight,
    NoMethodFitted,
    NoMethodNamed,
    PredictionsNotFinite,
    RepeatedMethod,
)
from dissensus.questions.scoring import (
    LOG_LIKELIHOOD_NAMES,
    SCORING_BY_LABEL_TYPE,
    MethodOrBaseline,
    ScoreNames,
    log_likelihood,
)
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

MAJORITY_METHOD = "majority-vote"
SIGNIFICANCE_LEVEL = 0.05  # p-value below which the difference from the best method is significant
# Maximum number of annotations; for larger tables, a random sample of items with all their labels is used
MAX_COMPARED_ANNOTATIONS = 40_000
MIN_HELD_OUT_LABELS = 30  # minimum number of held-out labels for a comparison
# Nats per label; on real data sets, majority vote is equally accurate if its score is lower by less than this
NEGLIGIBLE_DIFFERENCE = 0.01

FitCallback = Callable[[str, int, int], None]
"""Called before every fit with the method, the number of fits done and the total number of fits."""


@dataclass(frozen=True, eq=False)
class ComparedMethod:
    """The scores of one compared method."""

    method: str
    score: (
        Estimate  # mean score of the held-out labels (see `Comparison.measure`), with a bootstrap interval over items
    )
    calibration: float | None  # expected calibration error of the predicted labels, if they are classes
    accuracy: Estimate | None  # score of a fit to all annotations on gold items; its name is `measure.gold_name`
    seconds: float  # mean duration of a fit
    behind: Estimate  # score of the best method minus score of this method
    p_value: float  # p-value of `behind`, corrected for the number of methods
    tied: bool  # True if the difference is not significant
    model: Any = field(repr=False, default=None)  # model fitted to all annotations, or None


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(NotebookTable):
    """Methods in the order of how well they predict held-out labels, with the best one first."""

    methods: tuple[ComparedMethod, ...]
    n_hidden: int  # number of held-out labels in all splits together
    splits: int
    share: float
    failed: dict[str, str]  # maps each method that could not be fitted to the reason
    measure: ScoreNames = LOG_LIKELIHOOD_NAMES
    simplest: str = MAJORITY_METHOD  # name of the simplest method
    default: str = DEFAULT_METHOD  # name of the default method for the label type
    baselines: frozenset[str] = frozenset()  # names of the baselines, which are only used for comparison
    sampled_items: IntArray | None = None  # codes of the compared items; None for all items
    skipped_slow_methods: tuple[str, ...] = ()  # names of suitable methods that were skipped because they are slow

    def __repr__(self) -> str:
        return f"Comparison of {format_count(len(self), 'method')}: {self.verdict()}"

    @property
    def best(self) -> str:
        """Return the method that predicts held-out labels best; a baseline only if no other method was compared."""
        return next((one.method for one in self if one.method not in self.baselines), self.methods[0].method)

    @property
    def tied(self) -> list[str]:
        """Return the methods and baselines that are tied with the first one, including the first one."""
        return [one.method for one in self.methods if one.tied]

    def __getitem__(self, method: str) -> ComparedMethod:
        return {one.method: one for one in self}[method]

    def __iter__(self) -> Iterator[ComparedMethod]:
        return iter(self.methods)

    def __len__(self) -> int:
        return len(self.methods)

    @property
    def _simplest(self) -> ComparedMethod | None:
        return next((one for one in self if one.method == self.simplest), None)

    @property
    def simplest_suffices(self) -> bool:
        """Return whether the simplest method is the best one, tied with it or negligibly worse."""
        vote = self._simplest
        negligible = NEGLIGIBLE_DIFFERENCE if self.measure.sign > 0 else 0.0
        return vote is not None and (vote.tied or vote.behind.high < negligible)

    def verdict(self) -> str:
        """Describe in a few sentences which method to use and which methods were compared."""
        return " ".join(map(str, self.findings()))

    def findings(self) -> Iterator[Message]:
        """Yield messages about which method to use and which methods were compared."""
        yield from self._describe_best()
        if self.sampled_items is not None:
            yield findings.ComparedOnSample(items=Count(self.sampled_items.size))
        if self.skipped_slow_methods:
            yield findings.SlowMethodsSkipped(tried=Count(len(self)), methods=self.skipped_slow_methods)

    def _describe_best(self) -> Iterator[Message]:
        best, vote, first = self.best, self._simplest, self.methods[0]
        if len(self) == 1:
            yield findings.SingleMethodCompared(method=best)
        elif self.n_hidden < MIN_HELD_OUT_LABELS:
            yield findings.TooFewHiddenLabels(n_hidden=Count(self.n_hidden), needed=MIN_HELD_OUT_LABELS)
        elif best in self.baselines:
            yield findings.OnlyBaselinesCompared(best=best)
        elif first.method in self.baselines:
            yield findings.BaselineAhead(**self._difference_facts(self[best]) | {"other_method": first.method})
        else:
            ties = tuple(name for name in self.tied if name != best and name not in self.baselines)
            if best == self.simplest:
                yield findings.SimplestMethodBest(method=best)
            elif vote is not None and self.simplest_suffices and self.simplest not in self.baselines:
                yield findings.SimplestMethodSuffices(**self._difference_facts(vote))
            elif vote is not None:
                baseline = self.simplest in self.baselines
                yield findings.BestMethodAhead(ties_with=ties, baseline=baseline, **self._difference_facts(vote))
            else:
                yield findings.BestMethodFound(best=best, ties_with=ties)
            used = next((one for one in self if one.method == self.default), None)
            if used is not None and not used.tied and used.method != best:
                yield findings.DefaultMethodBehind(
                    method=used.method,
                    behind=used.behind.value,
                    unit=self.measure.unit,
                    probabilities=self.measure is LOG_LIKELIHOOD_NAMES,
                )

    def _difference_facts(self, one: ComparedMethod) -> dict[str, Any]:
        ends = {"behind": one.behind.value, "low": one.behind.low, "high": one.behind.high}
        return {"best": self.best, "other_method": one.method, "unit": self.measure.unit, "tied": one.tied} | ends

    def to_display_sign(self, score: Estimate) -> Estimate:
        """Return a score with its usual sign, so that errors and distances are positive numbers."""
        return score if self.measure.sign > 0 else Estimate(-score.value, -score.high, -score.low)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row of plain values per method, with the best method first."""
        return [
            {"method": one.method, "baseline": one.method in self.baselines}
            | make_estimate_columns(self.measure.name, self.to_display_sign(one.score))
            | ({} if one.calibration is None else {"calibration_error": one.calibration})
            | make_estimate_columns("behind", one.behind)
            | {"p_value": one.p_value, "tied": one.tied, "seconds": one.seconds}
            | make_estimate_columns(self.measure.gold_name, one.accuracy)
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
    limit: int = MAX_COMPARED_ANNOTATIONS,
    seed: int = 0,
    on_fit: FitCallback | None = None,
    on_result: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Rank methods by how well they predict held-out labels.

    Parameters
    ----------
    names : list of method names or unfitted models, or "all"; optional
        Methods to compare. By default, all suitable fast methods and the baselines of `questions.scoring`.
    gold : (I,) int, optional
        Gold classes, −1 where unknown (for numbers: NaN). They are only used to report accuracy.
    share, splits : float, int
        Share of the labels that is held out in each random split, and number of splits. All labels of one annotator on
        an item are held out together, and at least one annotator of each item is not held out.
    limit : int
        Maximum number of annotations. Larger tables are compared on a random set of items (for spans, documents).
    resamples, seed
        Number of resamples of the bootstrap over items, and seed, also of the random items and held-out labels.
    on_fit, on_result : callable, optional
        `on_fit` is called before every fit with the method, the number of fits done and the total number of fits.
        `on_result` is called after the last fit of a method with the method and its score.

    >>> from dissensus.table.simulate import simulate
    >>> found = compare(simulate(300, 12, 3, seed=1).annotations, ["majority-vote", "dawid-skene"])
    >>> print(found.best, found.tied, found.simplest_suffices, found.to_frame().shape)
    dawid-skene ['dawid-skene'] False (2, 12)
    >>> print(found.verdict().partition(", by ")[0])
    dawid-skene predicts held-out labels best; majority vote has a lower log-likelihood per label
    >>> [one.other_method for one in found.findings()]
    ['majority-vote']
    """
    if table.kind == "pairs" and gold is not None:
        raise NoGoldOfPairs()
    gold = check_gold_values(gold, table) if table.kind == "numbers" else check_gold(gold, table)
    models = _make_models(names, table)
    costly = (
        () if names is not None else tuple(name for name in find_suitable_methods(table, True) if name not in models)
    )
    check_argument("splits", splits, int, low=1, must="must be at least 1")
    check_argument("limit", limit, int, low=1)
    check_argument("share", share, float, above=0, below=1)
    if (chosen := _sample_items(table, limit, seed)) is not None:
        table, gold = table.select(items=table.items[chosen]), None if gold is None else gold[chosen]
    scoring = SCORING_BY_LABEL_TYPE[table.kind]
    hide = scoring.choose_hidden_rows
    hidden = [hide(table, share, np.random.default_rng([seed, number])) for number in range(splits)]
    fits = splits + (gold is not None)
    report = on_fit or (lambda method, done, total: None)
    results, failed = dict[str, _MethodResult](), dict[str, str]()
    for number, (name, model) in enumerate(models.items()):

        def report_fit(more: int, name: str = name, done: int = number * fits) -> None:
            report(name, done + more, fits * len(models))

        try:
            results[name] = _evaluate_method(model, table, hidden, gold, report_fit)
            if not np.isfinite(results[name].by_item).all():
                raise PredictionsNotFinite()
        except DataError as error:  # for example, because the method does not support this table
            failed[name] = str(error)
            continue
        if on_result is not None:
            on_result(name, results[name].mean_score())
    if not results:
        raise NoMethodFitted(method=next(iter(failed)), reason=next(iter(failed.values())))
    contestants, hidden_weight = _rank_methods(results, {"resamples": resamples, "seed": seed})
    return Comparison(
        contestants, round(hidden_weight), splits, share, failed, scoring.measure, scoring.simplest,
        default_method(table.kind), frozenset(scoring.baselines), chosen, costly,
    )  # fmt: skip


def find_suitable_methods(table: Annotations, costly: bool = False) -> list[str]:
    """Return the methods that suit a table; slow methods are included only if `costly` is True."""
    return [
        name
        for name, entry in methods.entries()
        if table.kind in entry.value.kinds
        and not entry.facts.get("needs_features")
        and not (entry.facts.get("binary") and table.n_classes > 2)
        and (costly or not entry.facts.get("costly"))
    ]


def _sample_items(table: Annotations, limit: int, seed: int) -> IntArray | None:
    """Return the codes of random items that have about `limit` annotations in total, or None for all items."""
    if table.kind == "pairs" or len(table) <= limit:  # a sample of pairs might not connect all alternatives
        return None
    group = table.sequences.document if table.kind == "spans" else np.arange(table.n_items)
    n = int(group.max()) + 1
    drawn = np.random.default_rng(seed).permutation(n)[: max(2, round(limit / len(table) * n))]
    return np.flatnonzero(np.isin(group, drawn))


@dataclass
class _MethodResult:
    """The scores of one method in all splits."""

    model: Any
    by_item: FloatArray  # (I,) total score of the held-out rows of each item
    weight: FloatArray  # (I,) total weight of these rows
    calibration: float | None
    gold_scores: FloatArray | None  # (gold items, 2) numerators and denominators
    seconds: float

    def mean_score(self) -> float:
        return float(self.by_item.sum() / self.weight.sum())


def _make_models(names: Iterable[str | Aggregator] | None, table: Annotations) -> dict[str, MethodOrBaseline]:
    if isinstance(names, str) and names != "all":
        raise NamesAreText(name=ParameterName("names"), text=names)
    if names is None or names == "all":
        names = [*find_suitable_methods(table, names == "all"), *SCORING_BY_LABEL_TYPE[table.kind].baselines]
    models: dict[str, MethodOrBaseline] = {}
    for one in names:
        simple = SCORING_BY_LABEL_TYPE[table.kind].baselines.get(one) if isinstance(one, str) else None
        name, model = resolve_method(one) if simple is None else (str(one), simple())
        if isinstance(model, Aggregator):
            check_kind(table.kind, model.kinds, name)
        if name in models:
            name = repr(model)
        if name in models:
            raise RepeatedMethod(method=name)
        models[name] = model
    if not models:
        raise NoMethodNamed()
    return models


def resolve_method(model: str | Aggregator) -> tuple[str, Aggregator]:
    """Return the name of a method and an unfitted model of it."""
    return (model, methods[model]()) if isinstance(model, str) else (methods.get_name(type(model)), model)


def make_unfitted_copy(model: Any) -> Any:
    """Return an unfitted copy of a model with the same parameters."""
    return type(model)(**model.get_params())


def fit_and_time(model: Any, table: Annotations) -> tuple[Any, float]:
    """Fit a copy of a model; return the copy and the duration of the fit in seconds.

    Warnings about missing convergence are suppressed, because the scores show the quality of the fit.
    """
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_unfitted_copy(model).fit(table), time.perf_counter() - start


def _evaluate_method(
    model: MethodOrBaseline, table: Annotations, hidden: list[BoolArray], gold: Any, report: Callable[[int], None]
) -> _MethodResult:
    """Fit a method to the training rows of each split, and score its predictions of the held-out rows."""
    by_item, weight = np.zeros(table.n_items), np.zeros(table.n_items)
    seconds, errors, scoring = [], [], SCORING_BY_LABEL_TYPE[table.kind]
    for number, mask in enumerate(hidden):
        report(number)
        held_out = table.select(rows=mask)
        fitted, duration = fit_and_time(model, table.select(rows=~mask))
        if table.kind in CLASS_KINDS:
            expected = fitted.predict_annotations(held_out)
            scores = log_likelihood(held_out, expected)[0]
            errors.append(expected_calibration_error(held_out.label.astype(np.int64), expected))
        else:
            scores = scoring.score_rows(fitted, held_out)
        by_item += np.bincount(held_out.item, scores * held_out.row_weights, table.n_items)
        weight += np.bincount(held_out.item, held_out.row_weights, table.n_items)
        seconds.append(duration)
    fit_to_all = gold_scores = None
    if gold is not None:
        report(len(hidden))
        fit_to_all, _ = fit_and_time(model, table)
        gold_scores = None if scoring.score_gold is None else scoring.score_gold(fit_to_all, table, gold)
    calibration = float(np.mean(errors)) if errors else None
    return _MethodResult(fit_to_all, by_item, weight, calibration, gold_scores, float(np.mean(seconds)))


def _rank_methods(found: dict[str, _MethodResult], resampling: Any) -> tuple[tuple[ComparedMethod, ...], float]:
    """Return the methods in the order of their scores, and the total weight of the held-out labels."""
    order = sorted(found, key=lambda name: -found[name].mean_score())
    best = found[order[0]]
    scored = best.weight > 0
    n, weight = int(scored.sum()), float(best.weight.sum())
    if weight == 0:
        raise NoHiddenWeight()
    scores = {
        name: found[name].by_item[scored] * n / weight for name in order
    }  # (n,) scaled so that their mean is the mean score per label
    differences = {name: paired_bootstrap(scores[order[0]], scores[name], **resampling) for name in order}
    corrected = holm_correction({name: differences[name].p_value for name in order[1:]}) | {order[0]: 1.0}
    ranked = (
        ComparedMethod(
            name,
            bootstrap(np.stack([one.by_item, one.weight], axis=1)[scored], lambda s: s[:, 0] / s[:, 1], **resampling),
            one.calibration,
            None if one.gold_scores is None else _estimate_accuracy(one.gold_scores, resampling),
            one.seconds,
            differences[name].mean,
            corrected[name],
            corrected[name] >= SIGNIFICANCE_LEVEL,
            one.model,
        )
        for name, one in ((name, found[name]) for name in order)
    )
    return tuple(ranked), weight


def _estimate_accuracy(gold_scores: Any, resampling: Any) -> Estimate:
    """Return the accuracy on gold items, given a numerator and a denominator for each item (n, 2)."""
    if (
        gold_scores[:, 1] == 1
    ).all():  # the interval of a plain share has a positive width even if all items are correct
        return bootstrap(gold_scores[:, 0], **resampling)
    return bootstrap(gold_scores, lambda s: s[:, 0] / s[:, 1], **resampling)


def make_estimate_columns(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Return columns with an estimate and its interval, or {} without an estimate."""
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
