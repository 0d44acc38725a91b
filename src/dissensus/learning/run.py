"""A training, ready to be done: what keywords, annotations and inputs are before the first step.

Items that are validated against have no part in what is taught. The encoder's vocabulary or scales are those of the
items that teach. First weights are drawn from torch's generator, seeded for them alone and given back as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from dissensus.common.registry import Registry
from dissensus.common.types import BoolArray, IntArray
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import AnnotatorFeatures
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.network import Lessons, Network
from dissensus.learning.objectives import Objective, objectives
from dissensus.learning.saving import run_key
from dissensus.learning.trainer import AT_ONCE, Trainer
from dissensus.learning.validation import Validation, hold_out
from dissensus.models.base import check_gold
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

HEAD_RATE = 1e-3  # the last layers and the annotators start from nothing: they learn at least so fast


@dataclass(frozen=True)
class Run:
    """A training, ready to be done."""

    table: Annotations
    gold: IntArray | None
    described: AnnotatorFeatures | None  # what is known of annotators
    encoder: Encoder
    objective: Objective
    network: Network
    lessons: Lessons
    taught: IntArray  # the items that teach
    held_out: BoolArray  # (I,) those that would, but are validated against
    groups: list[dict[str, Any]]
    trainer: Trainer
    evaluate: Validation | None
    key: str  # what it is about, for its checkpoint


def begin(
    model: CrowdClassifier,
    table: Annotations,
    X: Any,
    gold: Any,
    validation: Any = None,
    annotators: Any = None,
    like: Run | None = None,
) -> Run:
    """All that a training needs, without training; inputs that `like` has prepared are not prepared again."""
    given.check_table(table)
    given.check_rows(X, table)
    model.check()
    gold = check_gold(gold, table)
    seed = int(np.random.SeedSequence(model.seed).generate_state(1, np.uint32)[0])
    encoder, trainer = part(model.encoder, encoders, Encoder), model._trainer(seed)
    objective = part(model.objective, objectives, Objective).fit(table, gold, seed)
    described = _describe(objective, annotators, table)
    teaches = objective.teaches_
    held_out, validating = hold_out(validation, table, gold, teaches, seed)
    taught = np.flatnonzero(teaches & ~held_out)
    if not taught.size:
        raise DataError(f"all {teaches.sum():,} items with annotations are held out; hold out a smaller share.")
    if held_out.any():
        # what is validated against has no part in what is taught, not even through a method's labels
        known = None if gold is None else np.where(held_out, np.int32(-1), gold)
        objective.fit(table.select(rows=~held_out[table.item]), known, seed)
    if like is not None and np.array_equal(like.taught, taught):
        encoder, columns = like.encoder, like.lessons.inputs
    else:
        try:
            encoder.fit(X if taught.size == table.n_items else given.take(X, taught))
        except DataError:
            part(model.encoder, encoders, Encoder).fit(X)  # says the same, with the row's number in X
            raise
        columns = encoder.prepare(X)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network.fresh(encoder, objective)
    evaluate = None
    if validating is not None:
        inside = validating.X is None
        at = np.flatnonzero(held_out) if inside else np.arange(len(validating.truth))
        prepared = columns if inside else encoder.prepare(validating.X)
        evaluate = Validation(prepared, at, validating.truth, AT_ONCE * model.batch_size)
    key = ""
    if model.checkpoint is not None:
        key = run_key(model.get_params(deep=False), table, columns, gold, evaluate, objective)
    return Run(
        table, gold, described, encoder, objective, network, Lessons(columns, objective.targets(), model.mixup),
        taught, held_out, parameter_groups(model, network, encoder), trainer, evaluate, key,
    )  # fmt: skip


def parameter_groups(model: CrowdClassifier, network: Network, encoder: Encoder) -> list[dict[str, Any]]:
    """The parameters that learn, with their learning rates: the encoder's, the head's, then the rows of both."""
    rate = encoder.learning_rate if model.learning_rate is None else model.learning_rate
    head = max(rate, HEAD_RATE) if model.head_learning_rate is None else model.head_learning_rate
    rows = HEAD_RATE if model.head_learning_rate is None else model.head_learning_rate

    def group(module: nn.Module, sparse: bool, lr: float) -> list[dict[str, Any]]:
        found = [p for p in module.parameters() if p.requires_grad and getattr(p, "row_sparse", False) is sparse]
        return [{"params": found, "lr": lr}] if found else []

    return [
        *group(network.encoder, False, rate), *group(network.head, False, head),
        *group(network.encoder, True, rows), *group(network.head, True, rows),
    ]  # fmt: skip


def part(wanted: Any, registry: Registry[Any], kind: type) -> Any:
    """A copy of an encoder or objective, or a fresh one by its name."""
    if isinstance(wanted, str):
        return registry[wanted]()
    if isinstance(wanted, kind):
        return type(wanted)(**wanted.get_params(deep=False))  # type: ignore[attr-defined]
    raise BadParameter(
        f"{registry.what} must be a name, such as '{next(iter(registry))}', or a {kind.__name__}, got {wanted!r}."
    )


def _describe(objective: Objective, annotators: Any, table: Annotations) -> AnnotatorFeatures | None:
    """Tell the objective what is known of the annotators."""
    if annotators is None:
        return None
    if not objective.describes_annotators:
        able = [name for name in objectives if objectives[name].describes_annotators]
        raise BadParameter(
            f"objective '{objectives.name_of(type(objective))}' has no use for features of annotators; leave "
            f"annotators out, or take {' or '.join(map(repr, able))}."
        )
    described = AnnotatorFeatures.fit(annotators, table.annotators)
    objective.annotator_features_ = described.of(annotators, table.annotators)
    return described
