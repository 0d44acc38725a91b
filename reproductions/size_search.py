"""How large LDL-NM is to be: a search over the sizes of its embeddings, all trainings as one.

Every pair of sizes is trained with every seed on the training items, and asked about the development items after some
of the epochs: features alone, none of their labels. The networks have room for the largest sizes, so that they have one
shape and hundreds of them are one training (`stacked.Stack`), which on a GPU takes little longer than a few.

A store keeps one line per size and seed; a search that was killed goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dissensus.common.json_lines import Store, key_of
from dissensus.common.parameters import is_number, is_whole
from dissensus.common.types import FloatArray
from dissensus.evaluation.soft import EPSILON
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning import inputs as given
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.encoders import Identity
from dissensus.learning.objectives.labels import vote_weight
from dissensus.learning.trainer import Trainer
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from reproductions.distribution_scores import compare_distributions
from reproductions.ldl_nm import LDLNMObjective
from reproductions.room import RoomyLDLNM
from reproductions.stacked import stacked

AT_ONCE = {"cpu": 32, "cuda": 1080}
"""Trainings in one stack: on a CPU a larger one is no faster, on a GPU memory is the limit, some 5 MB each."""
MEASURES = ("kl", "inverse_kl", "accuracy")
OnTrained = Callable[[int, int], None]
"""Called after every stack with (trainings done, trainings in all)."""


@dataclass(frozen=True)
class SizePoint:
    """One training of one size, as it was after one epoch; means over the development items."""

    item_size: int
    annotator_size: int
    epoch: int
    seed: int
    kl: float  # KL(votes ‖ predicted)
    inverse_kl: float  # KL(predicted ‖ votes smoothed by ε)
    accuracy: float


@dataclass(frozen=True)
class SizeSearch:
    """All points of a search."""

    points: tuple[SizePoint, ...]
    model: CrowdClassifier  # what was trained, without sizes

    @property
    def item_sizes(self) -> list[int]:
        """The rows of `matrix`."""
        return sorted({point.item_size for point in self.points})

    @property
    def annotator_sizes(self) -> list[int]:
        """The columns of `matrix`."""
        return sorted({point.annotator_size for point in self.points})

    @property
    def epochs(self) -> list[int]:
        """After which the networks were asked."""
        return sorted({point.epoch for point in self.points})

    @property
    def best(self) -> tuple[int, int, int]:
        """Item size, annotator size and epochs of the lowest mean KL over seeds; of equals the smallest."""
        means = {(e, i, j): value for e in self.epochs for (i, j), value in self._means("kl", e).items()}
        epoch, item, annotator = min(means, key=lambda at: (means[at], at[1] + at[2], at))
        return item, annotator, epoch

    def matrix(self, measure: str = "kl", epoch: int | None = None) -> FloatArray:
        """(item sizes, annotator sizes) the mean of a measure over seeds, after `epoch`, or the best one."""
        if measure not in MEASURES:
            raise BadParameter(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}.")
        means = self._means(measure, self.best[2] if epoch is None else epoch)
        return np.array([[means[i, j] for j in self.annotator_sizes] for i in self.item_sizes])

    def estimator(self, seed: int = 0) -> CrowdClassifier:
        """An unfitted model of the best size."""
        item, annotator, epochs = self.best
        sizes = {"item_size": item, "annotator_size": annotator}
        model = CrowdClassifier(**self.model.get_params(deep=False))
        return model.set_params(objective=LDLNMObjective(**_keywords(self.model) | sizes), epochs=epochs, seed=seed)

    def to_frame(self) -> Any:
        """One row per point, as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_pylist([asdict(point) for point in self.points])

    def _means(self, measure: str, epoch: int) -> dict[tuple[int, int], float]:
        found: dict[tuple[int, int], list[float]] = {}
        for point in self.points:
            if point.epoch == epoch:
                found.setdefault((point.item_size, point.annotator_size), []).append(getattr(point, measure))
        if not found:
            raise BadParameter(f"epoch must be one of {', '.join(map(str, self.epochs))}, got {epoch}.")
        return {at: float(np.mean(values)) for at, values in found.items()}


def ldl_nm(**keywords: Any) -> CrowdClassifier:
    """LDL-NM as in the paper: on features as they are, 200 epochs of steps of 25 items (some 256 labels), Adam."""
    usual: dict[str, Any] = {"encoder": Identity(scale=False), "objective": "ldl-nm", "learning_rate": 1e-3}
    return CrowdClassifier(**usual | {"epochs": 200, "batch_size": 25} | keywords)


def search_sizes(
    table: Annotations,
    X: Any,
    *,
    dev: tuple[Annotations, Any] | float = 0.25,
    item_sizes: Iterable[int] = range(3, 21),
    annotator_sizes: Iterable[int] = range(3, 21),
    epochs: Iterable[int] = (25, 50, 100, 200),
    seeds: Iterable[int] = range(3),
    model: CrowdClassifier | None = None,
    epsilon: float = EPSILON,
    store: str | Path | None = None,
    at_once: int | None = None,
    on_trained: OnTrained | None = None,
) -> SizeSearch:
    """Search for the sizes of LDL-NM, and the epochs, that predict the votes of items best which were not trained on.

    Parameters
    ----------
    table, X : Annotations, inputs
        What is trained on; where `dev` is a share, it is split first.
    dev : (Annotations, inputs), or float
        The development items, or the share of the table's items that are kept for it.
    item_sizes, annotator_sizes : numbers
    epochs : numbers
        After which the networks are asked; the last is the length of training. One number: it is not searched.
    seeds : numbers
    model : CrowdClassifier, optional
        Everything else: an objective "ldl-nm" that concatenates, whose sizes are replaced, an encoder with columns of
        one size, rates, device. None: `ldl_nm()`.
    store : path, optional
        A file of JSON lines; finished trainings of the same data and settings are read from it.
    at_once : int, optional
        Trainings in one stack. With dropout, what is drawn depends on what else is in the stack.
    """
    model = ldl_nm() if model is None else model
    keywords = _keywords(model)
    given.check_table(table, "search_sizes")
    if given.rows(X) != table.n_items:
        raise DataError(f"X has {given.rows(X):,} rows for {table.n_items:,} items; give one per table.items.")
    if not (at_once is None or (is_whole(at_once) and at_once >= 1)):
        raise BadParameter(f"at_once must be at least 1, got {at_once!r}.")
    sizes = [(i, j) for i in _whole("item_sizes", item_sizes) for j in _whole("annotator_sizes", annotator_sizes)]
    at, drawn = _whole("epochs", epochs), _whole("seeds", seeds, 0)
    if not isinstance(dev, tuple):
        table, X, dev = _split(table, X, dev)
    judged, X_dev = dev[0].to_classes(table.classes), dev[1]
    voted = np.flatnonzero(vote_weight(judged) > 0)
    if not voted.size or given.rows(X_dev) != judged.n_items:
        raise DataError(
            f"dev has {given.rows(X_dev):,} rows of X for {judged.n_items:,} items, {voted.size:,} of them with labels."
        )
    votes, X_dev = judged.soft_labels()[voted], given.take(X_dev, voted)
    room = (max(i for i, _ in sizes), max(j for _, j in sizes))
    settings = {
        "model": {k: v for k, v in model.get_params(deep=False).items() if k not in ("seed", "device", "epochs")},
        "objective": {k: v for k, v in keywords.items() if k not in ("item_size", "annotator_size")},
        "epsilon": epsilon, "epochs": at,
    }  # fmt: skip
    log = Store(store, key_of(settings, (table, judged), (_numbers(X), _numbers(X_dev))))
    found = _whole_trainings(log.rows, at)
    grid = [(i, j, seed) for seed in drawn for i, j in sizes]
    there = {(p.item_size, p.annotator_size, p.seed) for p in found}
    rest = [place for place in grid if place not in there]
    stack_of = at_once or AT_ONCE.get(Trainer(device=model.device).place().type, AT_ONCE["cpu"])
    say = on_trained or (lambda done, total: None)
    say(len(grid) - len(rest), len(grid))
    for begin in range(0, len(rest), stack_of):
        part = rest[begin : begin + stack_of]
        rows = _train(model, keywords, room, part, at, table, X, votes, X_dev, epsilon)
        log.add(*(asdict(point) for point in rows))
        found += rows
        say(len(grid) - len(rest) + begin + len(part), len(grid))
    wanted = set(grid)
    kept = [point for point in found if (point.item_size, point.annotator_size, point.seed) in wanted]
    return SizeSearch(tuple(kept), model)


def _train(
    model: CrowdClassifier,
    keywords: dict[str, Any],
    room: tuple[int, int],
    part: list[tuple[int, int, int]],
    epochs: list[int],
    table: Annotations,
    X: Any,
    votes: FloatArray,
    X_dev: Any,
    epsilon: float,
) -> list[SizePoint]:
    """One stack: trained once, asked after each of `epochs`."""
    models = []
    for item, annotator, seed in part:
        objective = RoomyLDLNM(**keywords | {"item_size": item, "annotator_size": annotator, "room": room})
        own = CrowdClassifier(**model.get_params(deep=False))
        models.append(own.set_params(objective=objective, epochs=epochs[-1], seed=seed))
    stack, rows = stacked(models, table, X), []

    def after(epoch: int) -> None:
        if epoch not in epochs:
            return
        for place, h in zip(part, stack.proba(X_dev), strict=True):
            score = compare_distributions(votes, h, epsilon=epsilon)
            item, annotator, seed = place
            rows.append(SizePoint(item, annotator, epoch, seed, score.kl, score.inverse_kl, score.accuracy))

    stack.train(after=after)
    return rows


def _keywords(model: CrowdClassifier) -> dict[str, Any]:
    """Return the keywords of the objective, which must be one whose sizes can be searched."""
    objective = LDLNMObjective() if model.objective == "ldl-nm" else model.objective
    if not isinstance(objective, LDLNMObjective):
        raise BadParameter(f"search_sizes: the objective must be 'ldl-nm', got {objective!r}.")
    if objective.combine == "sum":
        raise BadParameter(
            "search_sizes: combine='sum' has one size for items and annotators, and no grid of two; take 'concatenate' "
            "or fit the sizes one by one."
        )
    if objective.pair_size is not None:
        raise BadParameter(
            "search_sizes: pair_size is the sum of the two sizes that are searched; leave it None, got "
            f"{objective.pair_size}."
        )
    return {name: getattr(objective, name) for name in LDLNMObjective.parameter_names()}


def _whole_trainings(rows: Iterable[dict[str, Any]], epochs: list[int]) -> list[SizePoint]:
    """The points of a store, one for each epoch, of trainings of which all were written."""
    found: dict[tuple[int, int, int], dict[int, SizePoint]] = {}
    for row in rows:
        try:
            point = SizePoint(**row)
        except TypeError:  # of another version
            continue
        found.setdefault((point.item_size, point.annotator_size, point.seed), {})[point.epoch] = point
    return [point for points in found.values() if points.keys() == set(epochs) for point in points.values()]


def _whole(name: str, values: Iterable[int], least: int = 1) -> list[int]:
    found = list(values) if isinstance(values, Iterable) else values
    if not (isinstance(found, list) and found and all(is_whole(value) and value >= least for value in found)):
        raise BadParameter(f"{name} must hold whole numbers from {least}, got {found!r}.")
    return sorted({int(value) for value in found})


def _split(table: Annotations, X: Any, share: float) -> tuple[Annotations, Any, tuple[Annotations, Any]]:
    if not (is_number(share) and 0 < share < 1):
        raise BadParameter(f"dev must be (table, X), or a share between 0 and 1, got {naming.shown(share)}.")
    train, dev = table.split(1 - share, by="item", seed=0)
    at = [np.flatnonzero(np.isin(table.items, part.items)) for part in (train, dev)]
    return train, given.take(X, at[0]), (dev, given.take(X, at[1]))


def _numbers(X: Any) -> Any:
    return X.astype(np.float32).toarray() if sparse.issparse(X) else np.asarray(X)
