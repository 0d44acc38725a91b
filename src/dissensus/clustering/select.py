"""How many clusters: the search of Weerasooriya et al. (2021) over numbers of item and annotator clusters.

Every point of the grid is fitted to the training items and judged on the development items:

- `kl`, KL(votes ‖ snapped), and beside it `inverse_kl`, KL(snapped ‖ votes smoothed by ε): the paper's question. A
  development item is placed in a cluster by its own votes, the same that it is then compared with.
- With `held_out`, an item is placed by some of its annotators and judged by the others: the honest question. Then there
  is also `log_likelihood`, the mean log P(label | item, annotator) of the labels that were hidden.

A store keeps one JSON line per point, written when the point is finished; a search that was killed goes on from there.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dissensus.common.frames import as_frame
from dissensus.common.json_lines import Store, key_of
from dissensus.common.notebook import Shown
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.compute.engines.local import thread_count
from dissensus.evaluation.perspectivist import hide_annotators
from dissensus.evaluation.soft import EPSILON, inverse_kl_divergence, kl_divergence
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError
from dissensus.models.base import Aggregator, clusterings
from dissensus.table.annotations import Annotations

Criterion = Literal["kl", "likelihood"]
OnPoint = Callable[["Point", int, int], None]
"""Called after every point with (point, points done, points in all)."""

MEASURES = ("kl", "inverse_kl", "log_likelihood", "objective", "seconds", "iterations")


@dataclass(frozen=True)
class Point:
    """Scores of one number of item clusters and one number of annotator clusters.

    >>> from dissensus.table.simulate import simulate
    >>> best = select_clusters(simulate(80, 8, 3, seed=1).annotations, "fmm", K=[2, 3], seed=0).best
    >>> isinstance(best, Point), best.K, round(best.kl, 2)
    (True, 3, 0.46)
    """

    K: int
    L: int
    kl: float  # mean over items of KL(votes ‖ snapped)
    inverse_kl: float  # mean of KL(snapped ‖ smoothed votes)
    log_likelihood: float | None  # mean over hidden labels, where some are hidden
    objective: float  # of the fit
    converged: bool
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Selection(Shown):
    """All points of a search, in the order of K and L."""

    method: str
    criterion: Criterion
    points: tuple[Point, ...]
    keywords: dict[str, Any]

    @property
    def best(self) -> Point:
        """The point with the lowest KL, or the highest likelihood; of equals the one with the fewest clusters."""
        if self.criterion == "kl":
            return min(self.points, key=lambda point: (point.kl, point.K * point.L))
        return max(self.points, key=lambda point: (point.log_likelihood or -np.inf, -point.K * point.L))

    def estimator(self) -> Aggregator:
        """An unfitted clustering with the best numbers of clusters."""
        return clusterings[self.method](**_numbers(self.method, self.best.K, self.best.L), **self.keywords)

    def rows(self) -> list[dict[str, Any]]:
        """The points as plain values."""
        return [asdict(point) for point in self.points]

    def to_frame(self) -> Any:
        """One row per point; a pandas frame where pandas is installed, else an Arrow table."""
        return as_frame(self.rows())

    @property
    def K(self) -> list[int]:  # noqa: N802  the paper's name
        """Numbers of item clusters: the rows of `matrix`."""
        return sorted({point.K for point in self.points})

    @property
    def L(self) -> list[int]:  # noqa: N802
        """Numbers of annotator clusters: the columns of `matrix`."""
        return sorted({point.L for point in self.points})

    def matrix(self, measure: str = "kl") -> FloatArray:
        """One measure over the grid: a row per number of item clusters, a column per number of annotator clusters."""
        if measure not in MEASURES:
            raise BadParameter(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}.")
        found = np.full((len(self.K), len(self.L)), np.nan)
        for point in self.points:
            value = getattr(point, measure)
            found[self.K.index(point.K), self.L.index(point.L)] = np.nan if value is None else value
        return found


def select_clusters(
    table: Annotations,
    method: str = "pgm-bp",
    *,
    K: Iterable[int] = range(3, 21),
    L: Iterable[int] = range(3, 21),
    dev: Annotations | float = 0.25,
    criterion: Criterion = "likelihood",
    held_out: float | None = None,
    sizes: int | None = None,
    epsilon: float = EPSILON,
    store: str | Path | None = None,
    on_point: OnPoint | None = None,
    jobs: int | None = None,
    seed: int = 0,
    **keywords: Any,
) -> Selection:
    """Find the numbers of clusters that best describe items that were not fitted.

    Parameters
    ----------
    table : Annotations
        What is fitted; where `dev` is a share, it is split first.
    method : str
        A name in `clusterings`; `fmm` has no use for L.
    K, L : numbers of item and of annotator clusters
        A `range` is cut to the items and annotators with labels that are fitted.
    dev : Annotations, or float
        The development items, or the share of the table's items that are kept for it.
    criterion : "likelihood" or "kl"
        Likelihood of labels that were hidden; or, as in the paper, KL to votes by which the item was placed.
    held_out : float, optional
        Share of a development item's annotators whose labels are hidden when it is placed, and by which it is judged.
        None: a half; with `criterion="kl"` none, the paper's way.
    sizes : int, optional
        Try so many numbers of a `range`, each larger than the one before by the same factor; None: all.
    epsilon : float
        Smoothing of the votes in `inverse_kl`.
    store : path, optional
        A file of JSON lines; finished points of the same data and settings are read from it and not computed again.
    on_point : callable, optional
        Called after every point, also those from the store, with (point, points done, points in all).
    jobs : int, optional
        Fits at the same time, in threads; None for all cores. It changes nothing about the results.
    seed : int
        Of the split, of what is hidden, and of every fit.
    **keywords
        Of the method; `restarts` is 1 unless given.

    >>> from dissensus.table.simulate import simulate
    >>> found = select_clusters(simulate(80, 8, 3, seed=1).annotations, "fmm", K=[2, 3], seed=0)
    >>> found.best.K, found.K, found.L, found.matrix().shape, found.to_frame().shape
    (3, [2, 3], [1], (2, 1), (2, 9))
    >>> found.estimator().n_clusters
    3
    """
    clusterings.entry(method)
    check_argument("criterion", criterion, Criterion)
    if held_out is None and criterion == "likelihood":
        held_out = 0.5
    check_argument("held_out", held_out, float | None, above=0, below=1, must="must be between 0 and 1")
    check_argument("jobs", jobs, int | None, low=1)
    if not isinstance(dev, Annotations):
        check_argument("dev", dev, float, above=0, below=1, must="must be a table, or a share between 0 and 1")
        table, dev = table.split(1 - dev, by="item", seed=seed)
    dev = dev.to_classes(table.classes)  # raises where the development items have a class that was not fitted
    dev = dev.select(items=np.diff(dev.item_ptr) > 0)
    if dev.n_items == 0:
        raise DataError("no development item has annotations; give other ones as dev, or say how many clusters.")
    given, judged = (dev, dev) if held_out is None else hide_annotators(dev, held_out, seed)
    keywords = {"restarts": 1, "seed": seed, "threads": 1} | keywords
    joint = clusterings.entry(method).facts["annotators"]
    items, people = (int(np.count_nonzero(np.diff(ptr))) for ptr in (table.item_ptr, table.annotator_ptr))
    grid = list(product(_tried(K, items, sizes), _tried(L, people, sizes) if joint else [1]))
    if not grid:
        raise BadParameter("K and L must each hold at least one number.")

    settings = {"method": method, "held_out": held_out, "epsilon": epsilon, "keywords": keywords}
    log = Store(store, key_of(settings, (table, given, judged)))
    names = {field.name for field in fields(Point)}  # a line with others was written by another version
    there = [Point(**row) for row in log.rows if row.keys() == names]
    done = {(point.K, point.L): point for point in there if (point.K, point.L) in grid}
    say = on_point or (lambda point, count, total: None)
    for count, place in enumerate(sorted(done), 1):
        say(done[place], count, len(grid))

    def fit(place: tuple[int, int]) -> Point:
        """Fit one point, place the development items by `given`, judge by `judged`."""
        begin, votes = time.perf_counter(), judged.soft_labels()
        model: Any = clusterings[method](**_numbers(method, *place), **keywords).fit(table)
        snapped, likelihood = model.predict_proba(given), None
        if held_out is not None:
            expected = model.expected_labels(model.predict_clusters(given)[judged.item], judged)
            chance = expected[np.arange(len(judged)), judged.label]
            if judged.proba is not None:
                chance = (expected * judged.proba).sum(axis=1)
            likelihood = float(np.average(np.log(chance), weights=judged.weight))
        return Point(
            *place,
            kl=float(kl_divergence(votes, snapped).mean()),
            inverse_kl=float(inverse_kl_divergence(votes, snapped, epsilon=epsilon).mean()),
            log_likelihood=likelihood,
            objective=float(model.trace_[-1]),
            converged=model.converged_,
            iterations=model.n_iter_,
            seconds=time.perf_counter() - begin,
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # each point says whether it converged
        with ThreadPoolExecutor(thread_count(jobs, 10**9)) as pool:
            # the largest first: they take longest
            rest = sorted((place for place in grid if place not in done), key=lambda place: -place[0] * place[1])
            futures = {pool.submit(fit, place): place for place in rest}
            try:
                for future in as_completed(futures):
                    point = future.result()
                    done[futures[future]] = point
                    log.add(asdict(point))
                    say(point, len(done), len(grid))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    kept = {key: value for key, value in keywords.items() if key != "threads"}
    return Selection(method, criterion, tuple(done[place] for place in grid), kept)


def _tried(numbers: Iterable[int], there: int, sizes: int | None) -> list[int]:
    """The numbers of clusters to try; of a range those that fit what is there, and only so many of them."""
    if isinstance(numbers, range) and numbers:
        first, last = (max(min(end, there), 1) for end in (min(numbers), max(numbers)))
        numbers = [number for number in numbers if first <= number <= last] or [last]
        if sizes is not None and len(numbers) > sizes:
            steps = sizes - 1
            numbers = [round(first * (last / first) ** (step / steps)) for step in range(sizes)]
    return sorted({int(number) for number in numbers})


def _numbers(method: str, K: int, L: int) -> dict[str, int]:
    """The keywords that say how many clusters."""
    joint = clusterings.entry(method).facts["annotators"]
    return {"item_clusters": K, "annotator_clusters": L} if joint else {"n_clusters": K}
