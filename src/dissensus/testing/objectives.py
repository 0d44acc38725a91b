"""Conformance suite for objectives: `check_objective` raises AssertionError if one breaks the contract."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.types import IntArray
from dissensus.learning import CrowdClassifier
from dissensus.learning.batches import Batch
from dissensus.learning.encoders import encoders
from dissensus.learning.objectives import Objective, objectives
from dissensus.learning.run import copy_component
from dissensus.learning.storage import pack_component, read_tree, unpack_component, write_tree
from dissensus.table.annotations import Annotations
from dissensus.table.simulate import simulate

VECTOR_WIDTH = 5  # length of the random vectors that replace an encoder's output
LOSS_TOLERANCE = 1e-3  # maximum relative rounding error of a sum of losses in float32


def check_objective(objective: Objective) -> None:
    """Check an objective with its keywords on a simulated table, with and without gold."""
    entry = objectives.entry(objectives.get_name(type(objective)))
    assert entry.summary, "the registered summary is empty"
    crowd = simulate(40, 6, 3, redundancy=3, seed=0)
    table = crowd.annotations.select(rows=crowd.annotations.item >= 4)  # the first items have no labels
    some_gold = np.where(np.arange(table.n_items) % 5 == 1, crowd.truth, -1)
    for gold in (None, some_gold):
        fitted: Objective = copy_component(objective, objectives, Objective)
        assert fitted.fit(table, gold, 0) is fitted, "fit must return the objective"
        _check_fit(fitted, table, gold)
        head, z, targets = _prepare_objective(fitted, table)
        _check_loss(fitted, head, z, targets)
        _check_answers(fitted, head, z, targets)
        _check_storage(fitted, head, z)
    _check_training(objective, table)


def _prepare_objective(fitted: Objective, table: Annotations) -> tuple[Any, Tensor, Batch]:
    """Run the objective's first preparation; return a head, vectors (I, VECTOR_WIDTH) and targets of all items."""
    torch.manual_seed(0)
    head: Any = fitted.head(nn.Identity, VECTOR_WIDTH)
    z, targets = torch.randn(table.n_items, VECTOR_WIDTH), fitted.targets().take(torch.arange(table.n_items))

    def iterate_encoded() -> Iterator[tuple[Tensor, Batch]]:
        yield z, targets

    if fitted.needs_begin_epoch(0, 4):
        with torch.no_grad():
            fitted.begin_epoch(head, 0, 4, iterate_encoded)
    return head.eval(), z, targets  # `eval` turns dropout off, so that losses add up


def _check_fit(fitted: Objective, table: Annotations, gold: IntArray | None) -> None:
    assert fitted.n_classes_ == table.n_classes, "fit must set n_classes_"
    assert fitted.train_mask_.shape == (table.n_items,), "fit must set train_mask_ (I,)"
    assert fitted.train_mask_.dtype == np.bool_, "train_mask_ must be boolean"
    known = np.diff(table.item_ptr) > 0 if gold is None else (np.diff(table.item_ptr) > 0) | (gold >= 0)
    assert fitted.train_mask_.any(), "no item is trained on"
    assert not (fitted.train_mask_ & ~known).any(), "an item without labels and gold is trained on"
    assert len(fitted.targets()) == table.n_items, "targets must have one entry per item"
    sent = pickle.loads(pickle.dumps(fitted))
    assert not [name for name in vars(sent) if name.startswith("_")], "a process must not get the table"


def _check_loss(fitted: Objective, head: Any, z: Tensor, targets: Batch) -> None:
    vectors = z.clone().requires_grad_()
    loss = fitted.loss(head, vectors, targets)
    assert loss.shape == (), "the loss must be a number: the sum over the items of a batch"
    assert bool(torch.isfinite(loss)), "the loss must be finite"
    (slope,) = torch.autograd.grad(loss, vectors)
    assert bool(torch.isfinite(slope).all()), "gradients must be finite"
    assert bool((slope != 0).any()), "the loss must depend on the encoder's output"
    halves, columns = torch.split(torch.arange(len(z)), len(z) // 2), fitted.targets()
    parts = sum(fitted.loss(head, z[half], columns.take(half)).item() for half in halves)
    assert np.isclose(parts, loss.item(), rtol=LOSS_TOLERANCE), "the losses of parts of a batch must add up"


def _check_answers(fitted: Objective, head: Any, z: Tensor, targets: Batch) -> None:
    B, K = len(z), fitted.n_classes_
    with torch.no_grad():
        _check_shape("logits", fitted.logits(head, z), (B, K))
        assert fitted.item_vectors(head, z).shape[0] == B, "item_vectors must have one row per item"
        if fitted.has_posterior:
            _check_shape("log_posterior", fitted.log_posterior(head, z, targets), (B, K), finite=False)
        if fitted.models_annotators:
            annotators = torch.tensor([0, -1, 2])  # −1: an annotator that is not in the table
            proba = fitted.label_proba(head, z, annotators)
            _check_shape("label_proba", proba, (B, 3, K))
            assert torch.allclose(proba.sum(dim=2), torch.ones(B, 3), atol=LOSS_TOLERANCE), (
                "label_proba must sum to one"
            )
            rows = fitted.pair_label_proba(head, z, torch.tensor([1, 0]), torch.tensor([2, -1]))
            expected = proba[[1, 0], [2, 1]]
            assert torch.allclose(rows, expected, atol=LOSS_TOLERANCE), "pair_label_proba and label_proba must agree"


def _check_shape(name: str, value: Tensor, shape: tuple[int, ...], *, finite: bool = True) -> None:
    assert value.shape == shape, f"{name} must have shape {shape}, got {tuple(value.shape)}"
    assert not bool(torch.isnan(value).any()), f"{name} must not be NaN"
    assert not finite or bool(torch.isfinite(value).all()), f"{name} must be finite"


def _check_storage(fitted: Objective, head: Any, z: Tensor) -> None:
    """Check that `head` and the answers need only the attributes that end in an underscore."""
    with TemporaryDirectory() as folder:
        path = write_tree(Path(folder) / "objective", pack_component(fitted, objectives), "objective")
        loaded = unpack_component(read_tree(path, "objective"), objectives)
    again = loaded.head(nn.Identity, VECTOR_WIDTH)
    again.load_state_dict(head.state_dict())
    predict_logits: Callable[[Any, Any], Tensor] = lambda one, layers: one.logits(layers.eval(), z)  # noqa: E731
    assert torch.equal(predict_logits(loaded, again), predict_logits(fitted, head)), (
        "a loaded objective predicts otherwise"
    )


def _check_training(objective: Objective, table: Annotations) -> None:
    X = np.random.default_rng(0).normal(size=(table.n_items, VECTOR_WIDTH)).astype(np.float32)
    encoder = encoders["mlp"](hidden=(8,))
    models = [
        CrowdClassifier(encoder=encoder, objective=objective, epochs=2, batch_size=16, device="cpu", seed=0)
        for _ in range(2)
    ]
    first, second = (model.fit(table, X).predict_proba(X) for model in models)
    assert np.array_equal(first, second), "the same seed must give the same bits"
    assert np.allclose(first.sum(axis=1), 1), "predict_proba must return distributions"
    with TemporaryDirectory() as folder:
        models[0].save(folder)
        loaded = CrowdClassifier.load(folder, device="cpu")
    assert np.array_equal(loaded.predict_proba(X), first), "a loaded classifier predicts otherwise"
