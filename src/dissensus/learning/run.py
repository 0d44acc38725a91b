"""Prepare a training run from keywords, annotations and inputs.

Validation items have no influence on training. The vocabulary or the scales of the encoder are computed from training
items alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dissensus.common.exceptions import OutOfRange
from dissensus.common.json_lines import hash_settings
from dissensus.common.parameters import is_number
from dissensus.common.progress import show_progress
from dissensus.common.registry import Registry
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.exceptions import DataError
from dissensus.learning import exceptions as faults
from dissensus.learning import inputs as input_data
from dissensus.learning.annotator_features import AnnotatorFeatures
from dissensus.learning.batches import BatchColumns
from dissensus.learning.checkpoint import Trace
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.network import Network, TrainingData
from dissensus.learning.objectives import Objective, objectives
from dissensus.learning.optimizers import split_sparse_groups
from dissensus.learning.trainer import PREDICTION_BATCHES, Trainer
from dissensus.learning.validation import Validation, hold_out, read_validation, target_distributions
from dissensus.messages import ParameterName
from dissensus.models.base import check_gold
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

MIN_HEAD_LEARNING_RATE = 1e-3  # minimum learning rate of the last layers, which are never pretrained


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A prepared training run; `train` starts it."""

    table: Annotations
    encoder: Encoder
    objective: Objective
    network: Network
    data: TrainingData
    train_items: IntArray  # indices of the training items
    groups: list[dict[str, Any]]
    trainer: Trainer
    gold: IntArray | None = None
    annotator_features: AnnotatorFeatures | None = None  # encoding of the annotators' features
    held_out: BoolArray | None = None  # (I,) True for validation items of the table
    evaluate: Validation | None = None
    key: str = ""  # hash of data and keywords, for the checkpoint
    note: str = ""  # sentence that reports the choice of objective "auto"
    candidates: list[dict[str, Any]] = field(default_factory=list)  # candidates of objective "auto"
    held_out_predictions: tuple[FloatArray, FloatArray] | None = (
        None  # (V, K) each: predictions for held-out items, and their gold labels or vote shares
    )

    def train(self, on_step: Callable[..., None] | None = None) -> Trace:
        """Train, and return the trace; a progress bar is shown if `on_step` is None."""
        with show_progress("training", self.trainer.epochs) if on_step is None else nullcontext(on_step) as after_epoch:
            return self.trainer.fit(
                self.network, self.data, self.train_items, self.groups,
                evaluate=self.evaluate, on_step=after_epoch, key=self.key,
            )  # fmt: skip


def prepare_run(
    model: CrowdClassifier,
    table: Annotations,
    X: Any,
    gold: Any,
    validation: Any = None,
    annotators: Any = None,
    reuse: TrainingRun | None = None,
) -> TrainingRun:
    """Prepare a run from the keywords of a classifier and its data.

    The prepared inputs of the run `reuse` are used if its training items are the same.
    """
    input_data.check_table(table)
    X = input_data.align_rows(X, table)
    model.check()
    gold = check_gold(gold, table)
    encoder, seed = copy_component(model.encoder, encoders, Encoder), make_torch_seed(model.seed)
    objective = copy_component(model.objective, objectives, Objective).fit(table, gold, seed)
    encoding = set_annotator_features(objective, annotators, table)
    train_mask, inside = objective.train_mask_, is_number(validation)
    held_out = hold_out(validation, table, train_mask, seed) if inside else np.zeros(table.n_items, np.bool_)
    train_items = np.flatnonzero(train_mask & ~held_out)
    if not train_items.size:
        raise faults.NoTrainingItemsLeft(n_items=int(train_mask.sum()))
    if (chosen := objective.tune_keywords(model, table, X, train_items)) is not objective:
        model = type(model)(**model.get_params(deep=False) | {"objective": chosen})
        return prepare_run(model, table, X, gold, validation, annotators, reuse)
    if held_out.any():
        fit_objective_without(objective, held_out, table, gold, seed)
    if reuse is not None and np.array_equal(reuse.train_items, train_items):
        encoder, columns = reuse.encoder, reuse.data.inputs
        objective.set_inputs(columns, train_items, reuse.objective)
    else:
        encoder = fit_encoder(encoder, X, train_items, table.n_items)
        columns = encoder.prepare(X)
        objective.set_inputs(columns, train_items)
    if model.processes > 1 and getattr(objective, "_leave_one_out", None) is not None:
        raise faults.OneProcessNeeded()
    evaluate, at_once = None, PREDICTION_BATCHES * model.batch_size
    if inside:
        evaluate = Validation(columns, np.flatnonzero(held_out), target_distributions(table, gold)[held_out], at_once)
    elif validation is not None:
        X_other, truth = read_validation(validation, table.classes)
        evaluate = Validation(encoder.prepare(X_other), np.arange(len(truth)), truth, at_once)
    network = Network.initialise(encoder, objective, seed)
    run = make_run(
        model, table, encoder, network, columns, train_items,
        gold=gold, annotator_features=encoding, held_out=held_out, evaluate=evaluate,
    )  # fmt: skip
    return cast(TrainingRun, objective.adapt_run(run))


def make_run(
    model: CrowdClassifier,
    table: Annotations,
    encoder: Encoder,
    network: Network,
    columns: BatchColumns,
    train_items: IntArray,
    **more: Any,
) -> TrainingRun:
    """Return a run that trains a network on prepared inputs with the keywords of a classifier."""
    run = TrainingRun(
        table=table, encoder=encoder, objective=network.objective, network=network,
        data=TrainingData(columns, network.objective.targets(), model.mixup), train_items=train_items,
        groups=parameter_groups(model, network, encoder), trainer=model.trainer(), **more,
    )  # fmt: skip
    return run if model.checkpoint is None else replace(run, key=_hash_run(run, model))


def _hash_run(run: TrainingRun, model: CrowdClassifier) -> str:
    """Return a hash of keywords, annotations, names, gold, inputs, validation data and annotators' features."""
    arrays, inputs, judge = [run.gold, run.objective.annotator_features_], [run.data.inputs], run.evaluate
    if judge is not None:
        arrays += [judge.rows, judge.truth]
        inputs += [] if judge.columns is inputs[0] else [judge.columns]
    settings = {**model.result_keywords(), "arrays": [array is not None for array in arrays], "inputs": len(inputs)}
    given_arrays = (array for array in arrays if array is not None)
    return hash_settings(
        settings, [run.table], chain(given_arrays, (x.numpy() for part in inputs for x in part.iterate_tensors()))
    )


def fit_objective_without(
    objective: Objective, held_out: BoolArray, table: Annotations, gold: IntArray | None, seed: int
) -> None:
    """Fit an objective without the held-out labels, which could influence the targets through a method's posterior."""
    train_gold = None if gold is None else np.where(held_out, np.int32(-1), gold)
    objective.fit(table.select(rows=~held_out[table.item]), train_gold, seed)


def fit_encoder(encoder: Encoder, X: Any, train_items: IntArray, n_items: int) -> Encoder:
    """Fit an encoder to the inputs of the training items."""
    try:
        return encoder.fit(X if train_items.size == n_items else input_data.take_rows(X, train_items))
    except DataError:
        copy_component(encoder, encoders, Encoder).fit(X)  # The same error is raised with the row number in X.
        raise


def parameter_groups(model: CrowdClassifier, network: Network, encoder: Encoder) -> list[dict[str, Any]]:
    """Return torch's parameter groups with learning rates, in the order encoder, head, row-sparse parameters."""
    rate = encoder.learning_rate if model.learning_rate is None else model.learning_rate
    head = max(rate, MIN_HEAD_LEARNING_RATE) if model.head_learning_rate is None else model.head_learning_rate
    rows = network.objective.row_learning_rate if model.head_learning_rate is None else model.head_learning_rate
    dense, sparse = split_sparse_groups([
        {"params": [p for p in part.parameters() if p.requires_grad], "lr": lr}
        for part, lr in ((network.encoder, rate), (network.head, head))
    ])  # fmt: skip
    return [*dense, *({**group, "lr": rows} for group in sparse)]


def copy_component(wanted: Any, registry: Registry[Any], kind: type) -> Any:
    """Return a copy of an encoder or objective, or a new one if a name is given."""
    if isinstance(wanted, str):
        return registry[wanted]()
    if isinstance(wanted, kind):
        return type(wanted)(**wanted.get_params(deep=False))  # type: ignore[attr-defined]
    part, name = ParameterName(registry.entry_type), next(iter(registry))
    allowed = f"be a name, such as {name!r}, or an instance of {kind.__name__}"
    raise OutOfRange(name=part, allowed=allowed, value=wanted)


def make_torch_seed(seed: int | None) -> int:
    """Return the seed of a run's initial weights and random draws."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint32)[0])


def make_tie_seed(seed: int | None) -> int:
    """Return the seed of the random draw that breaks ties between classes."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


def set_annotator_features(objective: Objective, annotators: Any, table: Annotations) -> AnnotatorFeatures | None:
    """Set the features of the annotators in an objective, and return their encoding."""
    if annotators is None:
        return None
    if not objective.uses_annotator_features:
        able = tuple(name for name in objectives if objectives[name].uses_annotator_features)
        raise faults.UnusedAnnotatorFeatures(objective=objectives.get_name(type(objective)), able=able)
    encoding = AnnotatorFeatures.fit(annotators, table.annotators)
    objective.annotator_features_ = encoding.compute_features(annotators, table.annotators)
    return encoding
