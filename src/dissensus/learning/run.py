"""Prepare a training run from keywords, annotations and inputs.

Validation items have no influence on training. The encoder's vocabulary or scales are those of the training items.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dissensus.common.json_lines import hash_settings
from dissensus.common.parameters import is_number
from dissensus.common.progress import show_progress
from dissensus.common.registry import Registry
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.exceptions import DataError
from dissensus.learning import exceptions as faults
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import AnnotatorFeatures
from dissensus.learning.batches import Columns
from dissensus.learning.checkpoint import Trace
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.network import Lessons, Network
from dissensus.learning.objectives import Objective, objectives
from dissensus.learning.optimizers import split
from dissensus.learning.trainer import BATCHES_AT_ONCE, Trainer
from dissensus.learning.validation import Validation, hold_out, known_truth, validation_items
from dissensus.messages import ParameterName
from dissensus.models.base import check_gold
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

MIN_HEAD_RATE = 1e-3  # learning rate of the last layers, which are never pretrained


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run, ready to start."""

    table: Annotations
    encoder: Encoder
    objective: Objective
    network: Network
    lessons: Lessons
    taught: IntArray  # the training items
    groups: list[dict[str, Any]]
    trainer: Trainer
    gold: IntArray | None = None
    described: AnnotatorFeatures | None = None  # encoding of the annotators' features
    held_out: BoolArray | None = None  # (I,) items with labels that are validated against
    evaluate: Validation | None = None
    key: str = ""  # hash of data and keywords, for the checkpoint
    note: str = ""  # what objective "auto" chose
    candidates: list[dict[str, Any]] = field(default_factory=list)  # its candidates
    judged: tuple[FloatArray, FloatArray] | None = None  # (V, K) each: predictions for held-out items, and their truth

    def train(self, on_step: Callable[..., None] | None = None) -> Trace:
        """Train; without `on_step` a bar shows the progress."""
        with show_progress("training", self.trainer.epochs) if on_step is None else nullcontext(on_step) as after_epoch:
            return self.trainer.fit(
                self.network, self.lessons, self.taught, self.groups,
                evaluate=self.evaluate, on_step=after_epoch, key=self.key,
            )  # fmt: skip


def begin(
    model: CrowdClassifier,
    table: Annotations,
    X: Any,
    gold: Any,
    validation: Any = None,
    annotators: Any = None,
    like: Run | None = None,
) -> Run:
    """Prepare a run; inputs that the run `like` has prepared are used again."""
    given.check_table(table)
    X = given.aligned(X, table)
    model.check()
    gold = check_gold(gold, table)
    encoder, seed = new_part(model.encoder, encoders, Encoder), torch_seed(model.seed)
    objective = new_part(model.objective, objectives, Objective).fit(table, gold, seed)
    described = describe(objective, annotators, table)
    teaches, inside = objective.teaches_, is_number(validation)
    held_out = hold_out(validation, table, teaches, seed) if inside else np.zeros(table.n_items, np.bool_)
    taught = np.flatnonzero(teaches & ~held_out)
    if not taught.size:
        raise faults.NothingLeftToTrainOn(n_items=int(teaches.sum()))
    if (chosen := objective.choose(model, table, X, taught)) is not objective:
        model = type(model)(**model.get_params(deep=False) | {"objective": chosen})
        return begin(model, table, X, gold, validation, annotators, like)
    if held_out.any():
        fit_without(objective, held_out, table, gold, seed)
    if like is not None and np.array_equal(like.taught, taught):
        encoder, columns = like.encoder, like.lessons.inputs
        objective.see(columns, taught, like.objective)
    else:
        encoder = fitted_encoder(encoder, X, taught, table.n_items)
        columns = encoder.prepare(X)
        objective.see(columns, taught)
    if model.processes > 1 and getattr(objective, "_others", None) is not None:
        raise faults.OneProcessNeeded()
    evaluate, at_once = None, BATCHES_AT_ONCE * model.batch_size
    if inside:
        evaluate = Validation(columns, np.flatnonzero(held_out), known_truth(table, gold)[held_out], at_once)
    elif validation is not None:
        X_other, truth = validation_items(validation, table.classes)
        evaluate = Validation(encoder.prepare(X_other), np.arange(len(truth)), truth, at_once)
    network = Network.fresh(encoder, objective, seed)
    run = ready(
        model, table, encoder, network, columns, taught,
        gold=gold, described=described, held_out=held_out, evaluate=evaluate,
    )  # fmt: skip
    return cast(Run, objective.adapt(run))


def ready(
    model: CrowdClassifier,
    table: Annotations,
    encoder: Encoder,
    network: Network,
    columns: Columns,
    taught: IntArray,
    **more: Any,
) -> Run:
    """Make the run that trains a network on prepared inputs, with the keywords of a classifier."""
    run = Run(
        table=table, encoder=encoder, objective=network.objective, network=network,
        lessons=Lessons(columns, network.objective.targets(), model.mixup), taught=taught,
        groups=parameter_groups(model, network, encoder), trainer=model.trainer(), **more,
    )  # fmt: skip
    return run if model.checkpoint is None else replace(run, key=_key(run, model))


def _key(run: Run, model: CrowdClassifier) -> str:
    """Hash keywords, annotations, names, gold, inputs, validation and features of annotators."""
    arrays, inputs, judge = [run.gold, run.objective.annotator_features_], [run.lessons.inputs], run.evaluate
    if judge is not None:
        arrays += [judge.rows, judge.truth]
        inputs += [] if judge.columns is inputs[0] else [judge.columns]
    settings = {**model.deciding(), "arrays": [array is not None for array in arrays], "inputs": len(inputs)}
    there = (array for array in arrays if array is not None)
    return hash_settings(settings, [run.table], chain(there, (x.numpy() for part in inputs for x in part.tensors())))


def fit_without(
    objective: Objective, held_out: BoolArray, table: Annotations, gold: IntArray | None, seed: int
) -> None:
    """Fit to the other items, so that held-out labels have no influence, not even through a method's posterior."""
    known = None if gold is None else np.where(held_out, np.int32(-1), gold)
    objective.fit(table.select(rows=~held_out[table.item]), known, seed)


def fitted_encoder(encoder: Encoder, X: Any, taught: IntArray, n_items: int) -> Encoder:
    """Fit an encoder to the training items."""
    try:
        return encoder.fit(X if taught.size == n_items else given.take(X, taught))
    except DataError:
        new_part(encoder, encoders, Encoder).fit(X)  # raises the same error with the row's number in X
        raise


def parameter_groups(model: CrowdClassifier, network: Network, encoder: Encoder) -> list[dict[str, Any]]:
    """Return the trainable parameters with their learning rates: the encoder's, the head's, then the rows of both."""
    rate = encoder.learning_rate if model.learning_rate is None else model.learning_rate
    head = max(rate, MIN_HEAD_RATE) if model.head_learning_rate is None else model.head_learning_rate
    rows = network.objective.rows_rate if model.head_learning_rate is None else model.head_learning_rate
    dense, sparse = split([
        {"params": [p for p in part.parameters() if p.requires_grad], "lr": lr}
        for part, lr in ((network.encoder, rate), (network.head, head))
    ])  # fmt: skip
    return [*dense, *({**group, "lr": rows} for group in sparse)]


def new_part(wanted: Any, registry: Registry[Any], kind: type) -> Any:
    """Return a copy of an encoder or objective, or a new one by its name."""
    if isinstance(wanted, str):
        return registry[wanted]()
    if isinstance(wanted, kind):
        return type(wanted)(**wanted.get_params(deep=False))  # type: ignore[attr-defined]
    part, name = ParameterName(registry.what), next(iter(registry))
    raise faults.WrongPart(part=part, name=name, kind=kind.__name__, found=repr(wanted))


def torch_seed(seed: int | None) -> int:
    """Return the seed of a run's initial weights and draws."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint32)[0])


def tie_seed(seed: int | None) -> int:
    """Return the seed of the draw that breaks ties between classes."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


def describe(objective: Objective, annotators: Any, table: Annotations) -> AnnotatorFeatures | None:
    """Give the objective the features of the annotators."""
    if annotators is None:
        return None
    if not objective.describes_annotators:
        able = tuple(name for name in objectives if objectives[name].describes_annotators)
        raise faults.UnusedAnnotatorFeatures(objective=objectives.name_of(type(objective)), able=able)
    described = AnnotatorFeatures.fit(annotators, table.annotators)
    objective.annotator_features_ = described.of(annotators, table.annotators)
    return described
