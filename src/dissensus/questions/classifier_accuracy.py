"""How often classifiers are right, without labels: what several of them say of the same items tells who errs.

    q_i(c)     P(class c of item i) by Dawid-Skene (1979) of all classifiers but j
    Θ_j        raises Σ_i log Σ_c q_i(c) Θ_j[c, y_ij], and log Dirichlet(1 + pseudo-counts) of its rows (EM; concave)
    a_j        mean_i r_i(y_ij),     r_i(c) ∝ q_i(c) Θ_j[c, y_ij]                                  the accuracy of j

Each classifier is judged by the others alone. In one model of all, a classifier has a say in what it is judged by, and
so have those that err as it does: they come out better than they are. (Eight classifiers on digits: 2.8 points off in
one model, 2.3 so; `benchmarks/learning` has more.) If errors are independent given the class, both are consistent.

The interval is that of a Beta distribution with the mean of Jeffreys' for n a_j of n and the variance of two doubts:

    of Beta(n a_j + ½, n (1 − a_j) + ½)             which items there were (Brown, Cai & DasGupta 2001)
    (m − 1)/m Σ_k (a_j^−k − mean_k a_j^−k)²         which classifiers: the jackknife (Tukey 1958) over the m others

What nobody sees from outputs alone is what all classifiers get wrong together. Trained on the same data, or on features
that do not show the class, they agree and are wrong: every estimate is then too high, and the interval too narrow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dissensus.common.frames import as_frame
from dissensus.common.notebook import Shown
from dissensus.common.parameters import check_argument
from dissensus.common.progress import waiting
from dissensus.common.types import BoolArray, FloatArray, Names, OnStep
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.base import arg_max
from dissensus.models.matrices import learn_matrices
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.reliability import beta_interval
from dissensus.table.annotations import Annotations

MIN_CLASSIFIERS = 3  # of two that disagree, nothing says which is right
MAX_PASSES, TOL = 1000, 1e-7  # of EM for one confusion matrix, and the largest change of an entry that ends it
MIN_BETA_SIZE = 1e-3  # of a Beta distribution, whose variance has an upper bound


@dataclass(frozen=True, eq=False, repr=False)
class ClassifierAccuracy(Shown):
    """Accuracy and confusion matrices of M classifiers on I items of K classes."""

    classifiers: Names  # (M,)
    accuracy: FloatArray  # (M,) NaN for one without outputs
    low: FloatArray  # (M,) of the interval
    high: FloatArray  # (M,)
    level: float
    confusion: FloatArray  # (M, K, K) [classifier, true, given], by the others
    items: Names  # (I,)
    classes: Names  # (K,)
    posterior: FloatArray  # (I, K) by all classifiers together
    tie_seed: int = 0

    def __repr__(self) -> str:
        best = f"{self.classifiers[np.nanargmax(self.accuracy)]} {np.nanmax(self.accuracy):.3f}"
        return f"ClassifierAccuracy of {self.classifiers.size} classifiers on {self.items.size:,} items: best {best}"

    @property
    def labels(self) -> Names:
        """(I,) the most probable class names."""
        return np.asarray(self.classes[arg_max(self.posterior, self.items, self.classes, self.tie_seed)])

    def to_frame(self) -> Any:
        """One row per classifier, the best first; a pandas frame where pandas is installed, else an Arrow table."""
        order = np.argsort(-self.accuracy, kind="stable")  # NaN comes last
        columns = {"accuracy": self.accuracy, "low": self.low, "high": self.high}
        return as_frame({"classifier": self.classifiers[order]} | {key: v[order] for key, v in columns.items()})


def classifier_accuracy(
    outputs: Any,
    *,
    classes: Sequence[Any] | None = None,
    level: float = 0.95,
    threads: int | None = None,
    on_step: OnStep | None = None,
) -> ClassifierAccuracy:
    """Estimate how often each of several classifiers is right, from their outputs on items whose classes nobody knows.

    Parameters
    ----------
    outputs : (I, M) labels, (I, M, K) probabilities, a mapping name → (I,) or (I, K), or Annotations
        What M classifiers say of I items. Of probabilities, the largest counts: accuracy is of the label. Classifiers
        that are silent on some items need a table, with classifiers as annotators.
    classes : names, optional
        Of the columns of probabilities, 0 to K − 1 where left out; of labels, those that there are.
    level : float
        Of the intervals.
    threads : int, optional
        Of Dawid-Skene; None for all cores. It is fitted once for every pair of classifiers.
    on_step : callable, optional
        Called after every fit with (fits, NaN).

    >>> from dissensus.table.simulate import simulate
    >>> crowd = simulate(500, 6, 3, redundancy=6, seed=1)
    >>> found = classifier_accuracy(crowd.annotations)
    >>> table = crowd.annotations
    >>> right = np.bincount(table.annotator, table.label == crowd.truth[table.item]) / 500
    >>> bool(np.abs(found.accuracy - right).max() < 0.03)
    True
    >>> found.labels[:3], found.to_frame().shape
    (array([0, 2, 2]), (6, 4))
    """
    check_argument("level", level, float, above=0, below=1)
    table = _table(outputs, classes)
    A, n = table.n_annotators, np.diff(table.annotator_ptr)
    active = np.flatnonzero(np.bincount(table.annotator, table.weight, A)).tolist()  # whose labels weigh anything
    if len(active) < MIN_CLASSIFIERS:
        raise DataError(
            f"outputs of {len(active)} classifiers: of two that disagree nothing says which is right; give three."
        )
    pairs = list(combinations(active, 2))
    accuracy, confusion = np.full(A, np.nan), np.full((A, table.n_classes, table.n_classes), np.nan)
    without = np.full((A, A), np.nan)  # [j, k] the accuracy of j by all but j and k
    fits = 1 + len(active) + len(pairs)
    with waiting("classifiers", fits) if on_step is None else nullcontext(on_step) as step:
        whole = DawidSkene(threads=threads).fit(table)
        step(1, np.nan)
        for done, j in enumerate(active, 2):
            accuracy[j], confusion[j] = _judge(table, _fit(table, [j], threads), j)
            step(done, np.nan)
        for done, (j, k) in enumerate(pairs, 2 + len(active)):
            others = _fit(table, [j, k], threads)
            without[j, k], without[k, j] = _judge(table, others, j)[0], _judge(table, others, k)[0]
            step(done, np.nan)
    by = without[np.ix_(active, active)]
    m = len(active) - 1
    spread = (m - 1) / m * np.nansum((by - np.nanmean(by, axis=1, keepdims=True)) ** 2, axis=1)
    ends = np.full((A, 2), np.nan)
    own, items = accuracy[active], n[active]
    mean = (items * own + 0.5) / (items + 1)
    sure = mean * (1 - mean)
    size = sure / (sure / (items + 2) + spread) - 1  # Beta(mean·size, (1 − mean)·size) has that variance
    bounds = beta_interval(mean, np.maximum(size, MIN_BETA_SIZE), level)
    ends[active] = np.stack([np.minimum(bounds[:, 0], own), np.maximum(bounds[:, 1], own)], axis=1)
    return ClassifierAccuracy(
        table.annotators, accuracy, ends[:, 0], ends[:, 1], level, confusion, table.items, table.classes,
        whole.posterior_, whole.tie_seed_,
    )  # fmt: skip


def _fit(table: Annotations, without: Sequence[int], threads: int | None) -> DawidSkene:
    rows: BoolArray = ~np.isin(table.annotator, without)
    return DawidSkene(threads=threads, dependence=None).fit(table.select(rows=rows))


def _judge(table: Annotations, others: DawidSkene, j: int) -> tuple[float, FloatArray]:
    """The accuracy of classifier j and its confusion matrix (K, K) [true, given], by the others."""
    rows = table.annotator == j
    own = table.select(rows=rows)
    learnt = learn_matrices(own, others.posterior_, others.pseudo_, max_passes=MAX_PASSES, tol=TOL)
    weight = np.ones(len(own)) if own.weight is None else own.weight
    right = learnt.posterior[own.item, own.label]
    return float(weight @ right / weight.sum()), learnt.confusion[own.annotator[0]]


def _table(outputs: Any, classes: Sequence[Any] | None) -> Annotations:
    """Convert outputs of any form to a table of hard labels, with classifiers as annotators."""
    if isinstance(outputs, Annotations):
        if classes is not None:
            raise BadParameter("classes are those of the table; leave them out.")
        return dataclasses.replace(outputs, proba=None)
    if isinstance(outputs, Mapping):
        names, columns = list(outputs), [np.asarray(one) for one in outputs.values()]
        shapes = {name: one.shape for name, one in zip(names, columns, strict=True)}
        if len(set(shapes.values())) > 1:
            raise DataError(f"outputs have different shapes ({shapes}); give each classifier the same items.")
        array: Any = np.stack(columns, axis=1) if columns else np.empty((0, 0))
    else:
        try:
            array = np.asarray(outputs)
        except ValueError:
            raise DataError(
                "outputs: rows are of different lengths; give each item a label of every classifier."
            ) from None
        names = list(range(array.shape[1] if array.ndim > 1 else 0))
    if array.ndim not in (2, 3):
        raise DataError(f"outputs must be labels (I, M) or probabilities (I, M, K), got shape {array.shape}.")
    if array.ndim == 3:
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise DataError("outputs: probabilities (I, M, K) must be finite numbers.")
        names_of = np.arange(array.shape[2]) if classes is None else np.asarray(list(classes))
        if names_of.size != array.shape[2]:
            raise DataError(f"{names_of.size} classes for probabilities of {array.shape[2]}; give one per column.")
        array, classes = names_of[array.argmax(axis=2)], names_of.tolist()
    item = np.repeat(np.arange(array.shape[0]), array.shape[1])
    who = np.array(names, object if any(isinstance(name, str) for name in names) else None)
    return Annotations.from_arrays(
        item, np.tile(who, array.shape[0]), array.reshape(-1), classes, items=np.arange(array.shape[0]), annotators=who
    )
