"""Search of Weerasooriya et al. (2021) over the numbers of item and annotator clusters.

Every point of the grid is fitted to the training items and scored on the development items:

- `kl`, KL(votes ‖ snapped), and `inverse_kl`, KL(snapped ‖ votes smoothed by ε), as in the paper: a development item is
  assigned to a cluster by the same votes that it is then compared with.
- With `held_out`, an item is assigned by some of its annotators and scored on the others, which avoids that leak. Then
  there is also `log_likelihood`, the mean log P(label | item, annotator) of the hidden labels.

A store has one JSON line per finished point, so that a killed search continues with the others.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dissensus.clustering.base import Clustering, cluster_count_keywords, clusterings
from dissensus.clustering.exceptions import NoLabelledDevelopmentItems, NoNumbersOfClusters
from dissensus.common.frames import columns_to_frame
from dissensus.common.json_lines import JsonLinesStore, hash_settings
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.compute.engines.local import thread_count
from dissensus.evaluation.perspectivist import hide_annotators
from dissensus.evaluation.soft import EPSILON, inverse_kl_divergence, kl_divergence
from dissensus.exceptions import ConvergenceWarning
from dissensus.table.annotations import Annotations

Criterion = Literal["kl", "likelihood"]
Measure = Literal["kl", "inverse_kl", "log_likelihood", "objective", "seconds", "iterations"]
OnPoint = Callable[["GridPoint", int, int], None]
"""Callback after every point with (point, finished points, all points)."""


@dataclass(frozen=True)
class GridPoint:
    """Scores of one number of item clusters and one number of annotator clusters.

    >>> from dissensus.table.simulate import simulate
    >>> best = select_clusters(simulate(80, 8, 3, seed=1).annotations, "fmm", K=[2, 3], seed=0).best
    >>> isinstance(best, GridPoint), best.K, round(best.kl, 2)
    (True, 3, 0.46)
    """

    K: int
    L: int
    kl: float  # mean over items of KL(votes ‖ snapped)
    inverse_kl: float  # mean of KL(snapped ‖ smoothed votes)
    log_likelihood: float | None  # mean over hidden labels; None if none is hidden
    objective: float  # last value of the fit
    converged: bool
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Selection(NotebookTable):
    """Result of a search: its points in the order of K and L."""

    method: str
    criterion: Criterion
    points: tuple[GridPoint, ...]
    keywords: dict[str, Any]

    @property
    def best(self) -> GridPoint:
        """Return the point with the lowest KL or the highest likelihood; of ties that with the fewest clusters."""
        if self.criterion == "kl":
            return min(self.points, key=lambda point: (point.kl, point.K * point.L))
        return max(self.points, key=lambda point: (point.log_likelihood or -np.inf, -point.K * point.L))

    def estimator(self) -> Clustering:
        """Return an unfitted clustering with the best numbers of clusters."""
        return clusterings[self.method](
            **cluster_count_keywords(self.method, self.best.K, self.best.L), **self.keywords
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the points as plain values."""
        return [asdict(point) for point in self.points]

    def to_frame(self) -> Any:
        """Return a pandas frame, or an Arrow table if pandas is not installed, with one row per point."""
        return columns_to_frame(self.rows())

    @property
    def K(self) -> list[int]:  # noqa: N802  the paper's name
        """Return the numbers of item clusters: the rows of `matrix`."""
        return sorted({point.K for point in self.points})

    @property
    def L(self) -> list[int]:  # noqa: N802
        """Return the numbers of annotator clusters: the columns of `matrix`."""
        return sorted({point.L for point in self.points})

    def matrix(self, measure: Measure = "kl") -> FloatArray:
        """Return one measure over the grid, with a row per number of item clusters and a column per L."""
        check_argument("measure", measure, Measure)
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
        Training items; split first if `dev` is a share.
    method : str
        Name in `clusterings`; L is ignored by `fmm`.
    K, L : iterables of int
        Numbers of item and of annotator clusters. A `range` is cut to the numbers of labelled training items and
        annotators.
    dev : Annotations or float
        Development items, or the share of the table's items to use.
    criterion : "likelihood" or "kl"
        Likelihood of hidden labels; or, as in the paper, KL to the votes by which the item was assigned.
    held_out : float, optional
        Share of a development item's annotators whose labels are hidden and used for scoring. None: a half; with
        `criterion="kl"` none, as in the paper.
    sizes : int, optional
        Try only `sizes` numbers of a `range`, in a geometric series; None: all.
    epsilon : float
        Smoothing of the votes in `inverse_kl`.
    store : path, optional
        File of JSON lines; finished points of the same data and settings are read from it.
    on_point : callable, optional
        Called after every point, including stored ones, with (point, finished points, all points).
    jobs : int, optional
        Number of parallel fits, in threads; None for all cores. Results do not depend on it.
    seed : int
        Seed of the split, of the hidden labels and of every fit.
    **keywords
        Keywords of the method; the default of `restarts` is 1.

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
    table, dev = _split_development_items(table, dev, seed)
    given, hidden = (dev, dev) if held_out is None else hide_annotators(dev, held_out, seed)
    keywords = {"restarts": 1, "seed": seed, "threads": 1} | keywords
    grid = _make_grid(table, method, K, L, sizes)
    settings = {"method": method, "held_out": held_out, "epsilon": epsilon, "keywords": keywords}
    log = JsonLinesStore(store, hash_settings(settings, (table, given, hidden)))
    fit = partial(_fit_point, table, given, hidden, method, keywords, epsilon, held_out is not None)
    points = _fit_grid(grid, fit, log, on_point or (lambda point, count, total: None), jobs)
    kept = {key: value for key, value in keywords.items() if key != "threads"}
    return Selection(method, criterion, points, kept)


def _split_development_items(
    table: Annotations, dev: Annotations | float, seed: int
) -> tuple[Annotations, Annotations]:
    """Return the training items and the labelled development items."""
    if not isinstance(dev, Annotations):
        check_argument("dev", dev, float, above=0, below=1, must="must be a table, or a share between 0 and 1")
        table, dev = table.split(1 - dev, by="item", seed=seed)
    dev = dev.with_classes(table.classes)  # Raises if a class of the development items was not fitted.
    dev = dev.select(items=np.diff(dev.item_ptr) > 0)
    if dev.n_items == 0:
        raise NoLabelledDevelopmentItems
    return table, dev


def _make_grid(
    table: Annotations, method: str, K: Iterable[int], L: Iterable[int], sizes: int | None
) -> list[tuple[int, int]]:
    """Return the pairs (K, L) to fit; L is 1 for a method without annotator clusters."""
    joint = clusterings.entry(method).facts["annotators"]
    items, annotators = (int(np.count_nonzero(np.diff(ptr))) for ptr in (table.item_ptr, table.annotator_ptr))
    grid = list(product(_candidate_counts(K, items, sizes), _candidate_counts(L, annotators, sizes) if joint else [1]))
    if not grid:
        raise NoNumbersOfClusters
    return grid


def _fit_point(
    table: Annotations,
    given: Annotations,
    hidden: Annotations,
    method: str,
    keywords: dict[str, Any],
    epsilon: float,
    with_likelihood: bool,
    numbers: tuple[int, int],
) -> GridPoint:
    """Fit one pair (K, L), assign the development items by the labels `given`, and score them on the `hidden` ones."""
    begin, votes = time.perf_counter(), hidden.soft_labels()
    model = clusterings[method](**cluster_count_keywords(method, *numbers), **keywords).fit(table)
    snapped, likelihood = model.predict_proba(given), None
    if with_likelihood:
        expected = model.expected_labels(model.predict_clusters(given)[hidden.item], hidden)
        probability = expected[np.arange(len(hidden)), hidden.label]
        if hidden.proba is not None:
            probability = (expected * hidden.proba).sum(axis=1)
        likelihood = float(np.average(np.log(probability), weights=hidden.weight))
    return GridPoint(
        *numbers,
        kl=float(kl_divergence(votes, snapped).mean()),
        inverse_kl=float(inverse_kl_divergence(votes, snapped, epsilon=epsilon).mean()),
        log_likelihood=likelihood,
        objective=float(model.trace_[-1]),
        converged=model.converged_,
        iterations=model.n_iter_,
        seconds=time.perf_counter() - begin,
    )


def _fit_grid(
    grid: list[tuple[int, int]],
    fit: Callable[[tuple[int, int]], GridPoint],
    log: JsonLinesStore,
    on_point: OnPoint,
    jobs: int | None,
) -> tuple[GridPoint, ...]:
    """Fit the points of the grid that the log does not hold, in threads; return all points in the order of the grid."""
    names = {field.name for field in fields(GridPoint)}  # Lines with other fields are of another version.
    stored = [GridPoint(**row) for row in log.rows if row.keys() == names]
    done = {(point.K, point.L): point for point in stored if (point.K, point.L) in grid}
    for count, numbers in enumerate(sorted(done), 1):
        on_point(done[numbers], count, len(grid))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # Each point states if it converged.
        with ThreadPoolExecutor(thread_count(jobs, 10**9)) as pool:
            # The largest points take longest, so they come first.
            rest = sorted((numbers for numbers in grid if numbers not in done), key=lambda pair: -pair[0] * pair[1])
            futures = {pool.submit(fit, numbers): numbers for numbers in rest}
            try:
                for future in as_completed(futures):
                    point = future.result()
                    done[futures[future]] = point
                    log.add(asdict(point))
                    on_point(point, len(done), len(grid))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return tuple(done[numbers] for numbers in grid)


def _candidate_counts(numbers: Iterable[int], available: int, sizes: int | None) -> list[int]:
    """Return the numbers of clusters to try; a range is cut to the available nodes and to `sizes` numbers."""
    if isinstance(numbers, range) and numbers:
        first, last = (max(min(end, available), 1) for end in (min(numbers), max(numbers)))
        numbers = [number for number in numbers if first <= number <= last] or [last]
        if sizes is not None and len(numbers) > sizes:
            steps = sizes - 1
            numbers = [round(first * (last / first) ** (step / steps)) for step in range(sizes)]
    return sorted({int(number) for number in numbers})
