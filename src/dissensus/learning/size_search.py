"""Search for the sizes of LDL-NM's embeddings, with networks that are trained in one stack.

For every pair of sizes and every seed, a network is trained on the training items. After some of the epochs, its
predictions from features for the development items are scored. All networks have room for the largest sizes, so they
have one shape and can be trained in one stack (`stacked.Stack`), which takes little longer than one training on a GPU.

A store has one line per size, seed and epoch. A stopped search continues from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dissensus.common.exceptions import OutOfRange
from dissensus.common.json_lines import JsonLinesStore, hash_settings
from dissensus.common.parameters import check_argument, is_number, is_whole_number
from dissensus.common.types import FloatArray
from dissensus.evaluation.hard import find_tied_classes
from dissensus.evaluation.soft import SMOOTHING_EPSILON, inverse_kl_divergence, kl_divergence
from dissensus.learning import inputs as input_data
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.encoders import Identity
from dissensus.learning.exceptions import (
    SizesNotSearchable,
    UnlabelledDevelopmentItems,
)
from dissensus.learning.objectives.labels import vote_weight
from dissensus.learning.objectives.ldl_nm import LDLNMObjective
from dissensus.learning.stacked import stack_trainings
from dissensus.learning.trainer import Trainer
from dissensus.messages import ParameterName
from dissensus.table.annotations import Annotations

TRAININGS_PER_STACK = {"cpu": 32, "cuda": 1080}
"""Number of training runs in one stack. On a CPU, larger stacks are not faster; a GPU needs about 5 MB per run."""
MEASURE_NAMES = ("kl", "inverse_kl", "accuracy")
OnTrained = Callable[[int, int], None]
"""Function that is called after every stack with the numbers of finished and of all trainings."""


@dataclass(frozen=True)
class SizePoint:
    """Mean scores over the development items, for one pair of sizes, seed and epoch."""

    item_size: int
    annotator_size: int
    epoch: int
    seed: int
    kl: float  # KL(votes ‖ predicted)
    inverse_kl: float  # KL(predicted ‖ votes smoothed by ε)
    accuracy: float


@dataclass(frozen=True)
class SizeSearch:
    """Points of a search, and the model without sizes."""

    points: tuple[SizePoint, ...]
    model: CrowdClassifier

    @property
    def item_sizes(self) -> list[int]:
        """Item sizes, which are the rows of `matrix`."""
        return sorted({point.item_size for point in self.points})

    @property
    def annotator_sizes(self) -> list[int]:
        """Annotator sizes, which are the columns of `matrix`."""
        return sorted({point.annotator_size for point in self.points})

    @property
    def epochs(self) -> list[int]:
        """Epochs after which the networks were scored."""
        return sorted({point.epoch for point in self.points})

    @property
    def best(self) -> tuple[int, int, int]:
        """Item size, annotator size and epochs with the lowest mean KL over seeds; ties go to the smallest."""
        means = {(e, i, j): value for e in self.epochs for (i, j), value in self._mean_by_size("kl", e).items()}
        epoch, item, annotator = min(means, key=lambda at: (means[at], at[1] + at[2], at))
        return item, annotator, epoch

    def matrix(self, measure: str = "kl", epoch: int | None = None) -> FloatArray:
        """Return a measure's mean over seeds (item sizes, annotator sizes) after `epoch`, by default the best one."""
        if measure not in MEASURE_NAMES:
            raise OutOfRange(
                name=ParameterName("measure"), allowed=f"be one of {', '.join(MEASURE_NAMES)}", value=measure
            )
        means = self._mean_by_size(measure, self.best[2] if epoch is None else epoch)
        return np.array([[means[i, j] for j in self.annotator_sizes] for i in self.item_sizes])

    def estimator(self, seed: int = 0) -> CrowdClassifier:
        """Return an unfitted model of the best size."""
        item, annotator, epochs = self.best
        sizes = {"item_size": item, "annotator_size": annotator}
        model = CrowdClassifier(**self.model.get_params(deep=False))
        return model.set_params(
            objective=LDLNMObjective(**_read_objective_keywords(self.model) | sizes), epochs=epochs, seed=seed
        )

    def to_frame(self) -> Any:
        """Return an Arrow table with one row per point."""
        import pyarrow as pa

        return pa.Table.from_pylist([asdict(point) for point in self.points])

    def _mean_by_size(self, measure: str, epoch: int) -> dict[tuple[int, int], float]:
        values: dict[tuple[int, int], list[float]] = {}
        for point in self.points:
            if point.epoch == epoch:
                values.setdefault((point.item_size, point.annotator_size), []).append(getattr(point, measure))
        if not values:
            allowed = f"be one of {', '.join(map(str, self.epochs))}"
            raise OutOfRange(name=ParameterName("epoch"), allowed=allowed, value=epoch)
        return {at: float(np.mean(value)) for at, value in values.items()}


def make_ldl_nm(**keywords: Any) -> CrowdClassifier:
    """Return LDL-NM with the paper's settings: unscaled features, Adam, and 200 epochs with 25 items per step."""
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
    epsilon: float = SMOOTHING_EPSILON,
    store: str | Path | None = None,
    stack_size: int | None = None,
    on_trained: OnTrained | None = None,
) -> SizeSearch:
    """Search for the sizes and epochs of LDL-NM that best predict the votes of development items.

    Parameters
    ----------
    table, X : Annotations, inputs
        The training items. If `dev` is a share, they are split first.
    dev : (Annotations, inputs), or float
        The development items, or the share of the table's items that is used for development.
    item_sizes, annotator_sizes : list of int
        Sizes to try.
    epochs : list of int
        Epochs after which the networks are scored; training ends after the last.
    seeds : list of int
        Seeds over which scores are averaged.
    model : CrowdClassifier, optional
        The model with all other settings. Its objective must be "ldl-nm" with combine="concatenate", and its encoder
        must have columns of one size. The default is `make_ldl_nm()`.
    epsilon : float
        Smoothing of the votes for inverse KL.
    store : path, optional
        A file of JSON lines to which trainings are written. Finished trainings with the same data and settings are
        read from the file instead of repeated.
    stack_size : int, optional
        Number of trainings in one stack. With dropout, results depend on the other trainings of the stack.
    on_trained : callable, optional
        Called after every stack with (number of finished trainings, number of all trainings).

    Returns
    -------
    SizeSearch
        All points, and the best size.
    """
    model = make_ldl_nm() if model is None else model
    keywords = _read_objective_keywords(model)
    input_data.check_table(table, "search_sizes")
    input_data.check_row_count(X, table.n_items, "items", "X")
    check_argument("stack_size", stack_size, int | None, low=1)
    checked_sizes = (("item_sizes", item_sizes), ("annotator_sizes", annotator_sizes))
    sizes = list(product(*(_check_whole_numbers(name, values) for name, values in checked_sizes)))
    at, drawn = _check_whole_numbers("epochs", epochs), _check_whole_numbers("seeds", seeds, 0)
    if not isinstance(dev, tuple):
        table, X, dev = _split_items(table, X, dev)
    judged, X_dev = dev[0].with_classes(table.classes), dev[1]
    voted = np.flatnonzero(vote_weight(judged) > 0)
    input_data.check_row_count(X_dev, judged.n_items, "items", "dev")
    if not voted.size:
        raise UnlabelledDevelopmentItems(n_items=judged.n_items)
    votes, X_dev = judged.soft_labels()[voted], input_data.take_rows(X_dev, voted)
    room = (max(i for i, _ in sizes), max(j for _, j in sizes))
    settings = {
        "model": {k: v for k, v in model.get_params(deep=False).items() if k not in ("seed", "device", "epochs")},
        "objective": {k: v for k, v in keywords.items() if k not in ("item_size", "annotator_size")},
        "epsilon": epsilon, "epochs": at,
    }  # fmt: skip
    log = JsonLinesStore(store, hash_settings(settings, (table, judged), (_to_array(X), _to_array(X_dev))))
    grid = [(i, j, seed) for seed in drawn for i, j in sizes]
    device_type = Trainer(device=model.device).torch_device().type
    stack_size = stack_size or TRAININGS_PER_STACK.get(device_type, TRAININGS_PER_STACK["cpu"])

    def train_stack(cells: list[tuple[int, int, int]]) -> list[SizePoint]:
        models = [_make_model(model, keywords, room, cell, at[-1]) for cell in cells]
        return _train_stack(models, cells, at, (table, X), (votes, X_dev), epsilon)

    points = _train_missing(grid, _complete_trainings(log.rows, at), stack_size, train_stack, log, on_trained)
    return SizeSearch(tuple(points), model)


def _train_missing(
    grid: list[tuple[int, int, int]],
    points: list[SizePoint],
    stack_size: int,
    train_stack: Callable[[list[tuple[int, int, int]]], list[SizePoint]],
    log: JsonLinesStore,
    on_trained: OnTrained | None,
) -> list[SizePoint]:
    """Train the cells (item size, annotator size, seed) that have no points, and return the points of all cells."""
    finished = {(p.item_size, p.annotator_size, p.seed) for p in points}
    rest = [cell for cell in grid if cell not in finished]
    report = on_trained or (lambda done, total: None)
    report(len(grid) - len(rest), len(grid))
    for begin in range(0, len(rest), stack_size):
        cells = rest[begin : begin + stack_size]
        trained = train_stack(cells)
        log.add(*(asdict(point) for point in trained))
        points += trained
        report(len(grid) - len(rest) + begin + len(cells), len(grid))
    wanted = set(grid)
    return [point for point in points if (point.item_size, point.annotator_size, point.seed) in wanted]


def _make_model(
    model: CrowdClassifier, keywords: dict[str, Any], room: tuple[int, int], place: tuple[int, int, int], epochs: int
) -> CrowdClassifier:
    """Return the model of one size and seed, with room for all sizes."""
    item, annotator, seed = place
    objective = LDLNMObjective(**keywords | {"item_size": item, "annotator_size": annotator, "room": room})
    return CrowdClassifier(**model.get_params(deep=False)).set_params(objective=objective, epochs=epochs, seed=seed)


def _train_stack(
    models: list[CrowdClassifier],
    places: list[tuple[int, int, int]],
    epochs: list[int],
    train: tuple[Annotations, Any],
    dev: tuple[FloatArray, Any],
    epsilon: float,
) -> list[SizePoint]:
    """Train one stack, and return its scores on the development items after each of `epochs`."""
    (votes, X_dev), stack, points = dev, stack_trainings(models, *train), list[SizePoint]()

    def score_epoch(epoch: int) -> None:
        if epoch not in epochs:
            return
        for (item, annotator, seed), proba in zip(places, stack.predict_proba(X_dev), strict=True):
            kl, inverse = kl_divergence(votes, proba), inverse_kl_divergence(votes, proba, epsilon=epsilon)
            accuracy = winner_agreement(votes, proba)
            scores = (float(score.mean()) for score in (kl, inverse, accuracy))
            points.append(SizePoint(item, annotator, epoch, seed, *scores))

    stack.train(after=score_epoch)
    return points


def winner_agreement(y: FloatArray, h: FloatArray) -> FloatArray:
    """Return the probability (I,) that the most probable classes of y and h (I, K) are equal, with random tie-breaking.

    >>> winner_agreement(np.array([[1, 0], [0.5, 0.5]]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    array([1. , 0.5])
    """
    first, second = find_tied_classes(y), find_tied_classes(h)
    return np.asarray((first & second).sum(axis=1) / (first.sum(axis=1) * second.sum(axis=1)))


def _read_objective_keywords(model: CrowdClassifier) -> dict[str, Any]:
    """Return the keywords of the objective, or raise SizesNotSearchable if its sizes cannot be searched."""
    objective = LDLNMObjective() if model.objective == "ldl-nm" else model.objective
    if not isinstance(objective, LDLNMObjective) or objective.combine == "sum" or objective.pair_size is not None:
        raise SizesNotSearchable(objective=repr(objective))
    names = (name for name in LDLNMObjective.parameter_names() if name not in ("room", "search"))
    return {name: getattr(objective, name) for name in names}


def _complete_trainings(rows: Iterable[dict[str, Any]], epochs: list[int]) -> list[SizePoint]:
    """Return the points of all trainings in a store that have one point per epoch."""
    points_by_training: dict[tuple[int, int, int], dict[int, SizePoint]] = {}
    for row in rows:
        try:
            point = SizePoint(**row)
        except TypeError:  # The line was written by another version.
            continue
        points_by_training.setdefault((point.item_size, point.annotator_size, point.seed), {})[point.epoch] = point
    return [
        point for points in points_by_training.values() if points.keys() == set(epochs) for point in points.values()
    ]


def _check_whole_numbers(name: str, values: Iterable[int], least: int = 1) -> list[int]:
    numbers = list(values) if isinstance(values, Iterable) else values
    if not (
        isinstance(numbers, list) and numbers and all(is_whole_number(value) and value >= least for value in numbers)
    ):
        allowed = f"be a list of whole numbers, each at least {least}"
        raise OutOfRange(name=ParameterName(name), allowed=allowed, value=numbers)
    return sorted({int(value) for value in numbers})


def _split_items(table: Annotations, X: Any, share: float) -> tuple[Annotations, Any, tuple[Annotations, Any]]:
    if not (is_number(share) and 0 < share < 1):
        raise OutOfRange(name=ParameterName("dev"), allowed="be (table, X), or a share between 0 and 1", value=share)
    train, dev = table.split(1 - share, by="item", seed=0)
    at = [np.flatnonzero(np.isin(table.items, part.items)) for part in (train, dev)]
    return train, input_data.take_rows(X, at[0]), (dev, input_data.take_rows(X, at[1]))


def _to_array(X: Any) -> Any:
    return X.astype(np.float32).toarray() if sparse.issparse(X) else np.asarray(X)
