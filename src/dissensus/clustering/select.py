"""Search for the numbers of item and annotator clusters (Weerasooriya et al. 2021).

Every point of the grid is fitted to the training items and scored on the development items:

- `kl` is KL(votes ‖ snapped), and `inverse_kl` is KL(snapped ‖ votes smoothed by ε). In the paper, the votes that
  assign a development item to a cluster are the same votes that the cluster is then compared with.
- `held_out` avoids this leak: an item is assigned to a cluster by the labels of some of its annotators, and scored on
  the labels of the others, which are hidden. `log_likelihood` is then the mean log P(label | item, annotator) of the
  hidden labels.

A store has one JSON line per finished point, so that a killed search can resume with the remaining points.
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
from dissensus.clustering.exceptions import NoClusterCounts, NoLabelledDevelopmentItems
from dissensus.common.frames import columns_to_frame
from dissensus.common.json_lines import JsonLinesStore, hash_settings
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.compute.engines.local import thread_count
from dissensus.evaluation.perspectivist import hide_annotators
from dissensus.evaluation.soft import SMOOTHING_EPSILON, inverse_kl_divergence, kl_divergence
from dissensus.exceptions import ConvergenceWarning
from dissensus.table.annotations import Annotations

SelectionCriterion = Literal["kl", "likelihood"]
GridMeasure = Literal["kl", "inverse_kl", "log_likelihood", "objective", "seconds", "iterations"]
OnGridPoint = Callable[["GridPoint", int, int], None]
"""Called after every point with (point, number of finished points, number of all points)."""


@dataclass(frozen=True)
class GridPoint:
    """The scores of one pair (K, L) of numbers of item and annotator clusters.

    >>> from dissensus.table.simulate import simulate
    >>> best = select_clusters(simulate(80, 8, 3, seed=1).annotations, "fmm", K=[2, 3], seed=0).best
    >>> isinstance(best, GridPoint), best.K, round(best.kl, 2)
    (True, 3, 0.46)
    """

    K: int
    L: int
    kl: float  # mean over items of KL(votes ‖ snapped)
    inverse_kl: float  # mean over items of KL(snapped ‖ smoothed votes)
    log_likelihood: float | None  # mean over hidden labels; None if no label is hidden
    objective: float  # last value of the objective of the fit
    converged: bool
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Selection(NotebookTable):
    """The result of a search, with its points in the order of K and L."""

    method: str
    criterion: SelectionCriterion
    points: tuple[GridPoint, ...]
    keywords: dict[str, Any]

    @property
    def best(self) -> GridPoint:
        """Return the point with the lowest KL or the highest likelihood; ties go to the fewest clusters."""
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
        """Return the numbers of item clusters, which are the rows of `matrix`."""
        return sorted({point.K for point in self.points})

    @property
    def L(self) -> list[int]:  # noqa: N802
        """Return the numbers of annotator clusters, which are the columns of `matrix`."""
        return sorted({point.L for point in self.points})

    def matrix(self, measure: GridMeasure = "kl") -> FloatArray:
        """Return one measure over the grid, with one row per K and one column per L."""
        check_argument("measure", measure, GridMeasure)
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
    criterion: SelectionCriterion = "likelihood",
    held_out: float | None = None,
    sizes: int | None = None,
    epsilon: float = SMOOTHING_EPSILON,
    store: str | Path | None = None,
    on_point: OnGridPoint | None = None,
    jobs: int | None = None,
    seed: int = 0,
    **keywords: Any,
) -> Selection:
    """Find the numbers of clusters that best describe held-out development items.

    Parameters
    ----------
    table : Annotations
        Training items. If `dev` is a share, development items are split off first.
    method : str
        Name of a clustering in `clusterings`; `fmm` ignores L.
    K, L : iterables of int
        Numbers of item and annotator clusters to try. A `range` is cut to the numbers of labelled training items and
        annotators.
    dev : Annotations or float
        Development items, or the share of the table's items to use as such.
    criterion : "likelihood" or "kl"
        "likelihood" is that of hidden labels. "kl" compares a cluster with the votes that assigned the item to it, as
        in the paper.
    held_out : float, optional
        Share of a development item's annotators whose labels are hidden and used for scoring. The default is 0.5 for
        `criterion="likelihood"`; for "kl", no labels are hidden, as in the paper.
    sizes : int, optional
        Try only `sizes` numbers of a `range`, in a geometric series; by default, all.
    epsilon : float
        Smoothing of the votes in `inverse_kl`.
    store : path, optional
        File of JSON lines; finished points of the same data and settings are read from it.
    on_point : callable, optional
        Called after every point, including stored ones, with (point, number of finished points, number of all points).
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
    check_argument("criterion", criterion, SelectionCriterion)
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
    dev = dev.with_classes(table.classes)  # This raises if a class of the development items was not fitted.
    dev = dev.select(items=np.diff(dev.item_ptr) > 0)
    if dev.n_items == 0:
        raise NoLabelledDevelopmentItems
    return table, dev


def _make_grid(
    table: Annotations, method: str, K: Iterable[int], L: Iterable[int], sizes: int | None
) -> list[tuple[int, int]]:
    """Return the pairs (K, L) to fit; L is 1 for methods without annotator clusters."""
    joint = clusterings.entry(method).facts["annotators"]
    items, annotators = (int(np.count_nonzero(np.diff(ptr))) for ptr in (table.item_ptr, table.annotator_ptr))
    grid = list(product(_candidate_counts(K, items, sizes), _candidate_counts(L, annotators, sizes) if joint else [1]))
    if not grid:
        raise NoClusterCounts
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
    """Fit one pair (K, L), assign development items by their `given` labels, and score them on `hidden` labels."""
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
    on_point: OnGridPoint,
    jobs: int | None,
) -> tuple[GridPoint, ...]:
    """Fit the points of the grid that are not in the log, in threads; return all points in the order of the grid."""
    names = {field.name for field in fields(GridPoint)}  # Lines with other fields were written by another version.
    stored = [GridPoint(**row) for row in log.rows if row.keys() == names]
    done = {(point.K, point.L): point for point in stored if (point.K, point.L) in grid}
    for count, numbers in enumerate(sorted(done), 1):
        on_point(done[numbers], count, len(grid))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # Each point records whether it converged.
        with ThreadPoolExecutor(thread_count(jobs, 10**9)) as pool:
            # The points with the most clusters take longest, so they are fitted first.
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
    """Return the numbers of clusters to try; a range is limited to the available nodes and to `sizes` numbers."""
    if isinstance(numbers, range) and numbers:
        first, last = (max(min(end, available), 1) for end in (min(numbers), max(numbers)))
        numbers = [number for number in numbers if first <= number <= last] or [last]
        if sizes is not None and len(numbers) > sizes:
            steps = sizes - 1
            numbers = [round(first * (last / first) ** (step / steps)) for step in range(sizes)]
    return sorted({int(number) for number in numbers})
