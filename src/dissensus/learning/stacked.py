"""Train many small networks of one shape at once, stacked along a leading axis.

    fit_together(models, tables, X)        equals [m.fit(t, X) for m, t in zip(models, tables)], in one batched module

Initial weights and the order of items depend on each training's seed, so the result is that of a separate training,
except for rounding.

For a small network, most of the time of a step is overhead. Here one step is a step of every training. Parameters are
stacked (`torch.func.stack_module_state`), and the loss is `vmap`ped over them and over each training's own batch and
annotations. The trainings share no parameters, so the gradient of the sum of their losses is the gradient of each. On a
GPU a step is captured once as a CUDA graph and replayed.

The annotations of an item are padded to the largest number per item (with weight 0), so that all batches have one
shape. Nearly rectangular tables, such as `table.subsample(redundancy, seed)`, need little padding.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from dissensus.common.progress import show_progress
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.learning.batches import Batch, BatchColumns, RaggedColumn
from dissensus.learning.checkpoint import Trace
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.devices import gpu_indices
from dissensus.learning.exceptions import (
    ArgumentLengthsDiffer,
    KeywordNotStackable,
    LossNotFinite,
    StackedModelsDiffer,
    StackedTablesDiffer,
    TrainingsNotStackable,
)
from dissensus.learning.network import Network
from dissensus.learning.objectives import Objective
from dissensus.learning.objectives.ldl_nm import LDLNMObjective
from dissensus.learning.optimizers import make_optimizer, split_sparse_groups
from dissensus.learning.rows import RowAdam, one_minus_power
from dissensus.learning.run import TrainingRun, prepare_run
from dissensus.learning.trainer import derive_seed
from dissensus.messages import ParameterName
from dissensus.table.annotations import Annotations

STEPS_BEFORE_CAPTURE = (
    3  # steps of a shape before it is captured, because libraries and optimisers allocate on their first
)
ROWS_AT_ONCE = 2**22  # maximum number of annotations of all trainings that an E step uses at once
MAX_VALUES_PER_CHUNK = 2**27  # maximum number of values that all networks together compute for a chunk of items
SECONDS_BETWEEN_REPORTS = 0.2  # seconds between two copies of the losses from the device

REQUIRED_KEYWORDS = {
    "accumulate": 1, "schedule": "constant", "warmup": 0.0, "sam": None, "clip": None, "patience": None,
    "processes": 1, "mixup": None, "checkpoint": None, "compile": False,
}  # fmt: skip
"""Values that keywords of `CrowdClassifier` must have in a stack."""


def fit_together(
    models: Sequence[CrowdClassifier],
    tables: Sequence[Annotations] | Annotations,
    X: Any,
    *,
    gold: IntArray | Sequence[IntArray] | None = None,
    annotators: Any = None,
    on_step: OnStep | None = None,
) -> list[CrowdClassifier]:
    """Fit every model to its table (or all models to one table), with the result of `model.fit(table, X)`.

    Parameters
    ----------
    models : sequence of CrowdClassifier
        Models with equal keywords, except for their seeds and, if `ldl-nm` has `room`, its sizes. Learning rates must
        be constant, and SAM, mixup, clipping and validation are not supported.
    tables : Annotations, or one per model
        Tables with equal items, annotators and classes, in which the same items have labels.
    X : array, list or frame
        Inputs of the items, as in `CrowdClassifier.fit`. The encoder must have columns of one size (mlp, identity,
        item-embedding).
    gold : (I,) int, or one per model, optional
        Gold classes as codes, and −1 for unknown.
    annotators : frame, optional
        Features of the annotators, as in `CrowdClassifier.fit`.
    on_step : callable, optional
        Called after every epoch with (epoch, mean loss of all models).

    Returns
    -------
    list of CrowdClassifier
        The fitted models.
    """
    models = list(models)
    if not models:
        return []
    stack = stack_trainings(models, tables, X, gold=gold, annotators=annotators)
    with show_progress("training", models[0].epochs) if on_step is None else nullcontext(on_step) as after_epoch:
        traces = stack.train(after_epoch)
    stack.unstack()
    return [model._store_results(run, trace) for model, run, trace in zip(models, stack.runs, traces, strict=True)]


def stack_trainings(
    models: Sequence[CrowdClassifier],
    tables: Sequence[Annotations] | Annotations,
    X: Any,
    *,
    gold: IntArray | Sequence[IntArray] | None = None,
    annotators: Any = None,
) -> Stack:
    """Return the prepared trainings of `fit_together`; callers that need only the classes of the items use them."""
    models = list(models)
    each = [tables] * len(models) if isinstance(tables, Annotations) else list(tables)
    golds = [gold] * len(models) if gold is None or isinstance(gold, np.ndarray) else list(gold)
    if not len(each) == len(golds) == len(models):
        lengths = {"models": len(models), "tables": len(each), "gold": len(golds)}
        raise ArgumentLengthsDiffer(argument="fit_together", lengths=lengths)
    _check_models(models, each)
    runs: list[TrainingRun] = []
    for model, table, known in zip(models, each, golds, strict=True):
        runs.append(prepare_run(model, table, X, known, annotators=annotators, reuse=runs[0] if runs else None))
        if runs[-1].table is runs[0].table and runs[-1].gold is runs[0].gold:
            runs[-1] = dataclasses.replace(runs[-1], data=runs[0].data)  # All runs share one copy.
    if any(not np.array_equal(run.train_items, runs[0].train_items) for run in runs):
        raise StackedTablesDiffer(axis="items with labels")
    if type(runs[0].network) is not Network:
        raise TrainingsNotStackable(reason="batches")
    return Stack(runs)


def _check_models(models: list[CrowdClassifier], tables: list[Annotations]) -> None:
    first = models[0]
    for name, wanted in REQUIRED_KEYWORDS.items():
        if (value := getattr(first, name)) != wanted:
            raise KeywordNotStackable(name=ParameterName(name), expected=repr(wanted), value=repr(value))
    kind = _describe_objective(first)
    for model in models:
        for name, value in first.get_params(deep=False).items():
            if name == "objective" and _describe_objective(model) == kind:
                continue
            if name != "seed" and repr(getattr(model, name)) != repr(value):
                raise StackedModelsDiffer(name=name, first_value=repr(value), second_value=repr(getattr(model, name)))
    for table in tables:
        for name in ("items", "annotators", "classes"):
            if not np.array_equal(getattr(table, name), getattr(tables[0], name)):
                raise StackedTablesDiffer(axis=name)


def _describe_objective(model: CrowdClassifier) -> str:
    """Return as text the keywords that must be equal for all objectives; sizes of LDL-NM with `room` may differ."""
    objective = model.objective
    if isinstance(objective, LDLNMObjective) and objective.room is not None:
        objective = LDLNMObjective(**{**objective.get_params(deep=False), "item_size": 1, "annotator_size": 1})
    return f"{type(objective).__name__} {objective!r}"


class Stack:
    """Stacked trainings of `runs`, on the device of the first run."""

    def __init__(self, runs: Sequence[TrainingRun]):
        self.runs = runs
        self.device = device = runs[0].trainer.torch_device()
        _check_shapes([run.network for run in runs])
        self.parameters, self.buffers = stack_module_state([_MethodModule(run.network) for run in runs])
        for name, value in self.parameters.items():
            self.parameters[name] = value.detach().to(device).requires_grad_(value.requires_grad)
        self.buffers = {name: value.to(device) for name, value in self.buffers.items()}
        self.template = _MethodModule(runs[0].network).to(device)
        self.inputs = runs[0].data.inputs.to(device)
        if not all(isinstance(column, Tensor) for column in self.inputs.columns.values()):
            raise TrainingsNotStackable(reason="inputs")
        self.targets = StackedColumns([run.data.targets for run in runs], device)
        self.optimizers = self._optimizers()
        self.sums = torch.zeros(len(runs), device=device)
        self.steps: dict[tuple[int, Any], _StackedStep] = {}

    @cached_property
    def training_batches(self) -> list[tuple[Batch, Batch]]:
        """Batches of all training items."""
        rows = torch.as_tensor(self.runs[0].train_items, device=self.device).expand(len(self.runs), -1)
        parts = torch.split(rows, max(ROWS_AT_ONCE // (len(self.runs) * self.targets.widest), 1), dim=1)
        return [(self._take_inputs(part), self.targets.take(part)) for part in parts]

    def train(self, on_step: OnStep | None = None, after: Callable[[int], None] | None = None) -> list[Trace]:
        """Run all epochs of all trainings, and return their traces.

        Torch's generator is seeded with the seed of the first run, and restored afterwards. `after(epoch)` is called
        after every epoch, counted from 1, and may use the networks for predictions.
        """
        with torch.random.fork_rng(gpu_indices(self.device)):
            torch.manual_seed(derive_seed(self.runs[0].trainer.seed, -1))
            return self._train(on_step, after)

    def _train(self, on_step: OnStep | None, after: Callable[[int], None] | None) -> list[Trace]:
        traces, epochs = [Trace() for _ in self.runs], self.runs[0].trainer.epochs
        train_items = self.runs[0].train_items
        sums, reported = torch.zeros(epochs, len(self.runs), device=self.device), time.monotonic()
        self.template.train()
        order = self._draw_batches(0)
        for epoch in range(epochs):
            if self.runs[0].objective.needs_begin_epoch(epoch, epochs):
                self._begin_epoch(epoch, epochs)
            if len(order) > 1:  # The order within a single batch does not matter.
                order = self._draw_batches(epoch)
            self.sums.zero_()
            for rows in order:
                self._run_step(rows)
            sums[epoch] = self.sums
            if (
                epoch + 1 == epochs or time.monotonic() - reported > SECONDS_BETWEEN_REPORTS
            ):  # A copy waits for the device.
                done = len(traces[0].epochs)
                losses = (sums[done : epoch + 1] / len(train_items)).tolist()  # (epochs, S)
                each = (time.monotonic() - reported) / len(losses)
                for at, by_model in enumerate(losses, done + 1):
                    _check_finite(by_model, at)
                    for trace, loss in zip(traces, by_model, strict=True):
                        trace.epochs.append({"epoch": float(at), "loss": loss, "seconds": each})
                reported = time.monotonic()
                if on_step is not None:
                    on_step(epoch + 1, float(np.mean(losses[-1])))
            if after is not None:
                after(epoch + 1)
        return traces

    def predict_proba(self, X: Any = None) -> FloatArray:
        """Predict P(class | x) (S, rows, K) by every network for new inputs, or for the training items."""
        columns = self.inputs if X is None else self.runs[0].encoder.prepare(X).to(self.device)
        rows = torch.as_tensor(self.runs[0].train_items) if X is None else torch.arange(len(columns))
        at_once = max(MAX_VALUES_PER_CHUNK // (len(self.runs) * _count_values_per_item(self.runs[0].objective)), 1)
        parts = torch.split(rows.to(self.device).expand(len(self.runs), -1), at_once, dim=1)
        return self._predict("logits", [(self._take_inputs(part, columns),) for part in parts])

    def predict_posterior(self) -> FloatArray:
        """Predict P(class | x, annotations) (S, rows, K) of training items, for an objective with `log_posterior`."""
        return self._predict("log_posterior", self.training_batches)

    def unstack(self) -> None:
        """Copy the stacked weights into the networks of the runs."""
        for s, run in enumerate(self.runs):
            network = _MethodModule(run.network)
            tensors = dict(network.named_parameters()) | dict(network.named_buffers())
            with torch.no_grad():
                for name, value in (self.parameters | self.buffers).items():
                    tensors[name].data = value[s].detach().clone()
            for module, shared in zip(network.modules(), self.template.modules(), strict=True):
                if hasattr(shared, "set_extra_state") and type(shared).get_extra_state is not nn.Module.get_extra_state:
                    module.set_extra_state(shared.get_extra_state())
            network.eval()

    # One step ---------------------------------------------------------------------------------------------------------

    def _draw_batches(self, epoch: int) -> tuple[Tensor, ...]:
        """Return the rows (S, B) of each batch of an epoch; the order of a training depends on its seed."""
        trainers = {run.trainer.seed: run.trainer for run in self.runs}
        batches = {seed: trainer.draw_batches(self.runs[0].train_items, epoch) for seed, trainer in trainers.items()}
        rows = torch.stack([torch.cat(batches[run.trainer.seed]) for run in self.runs]).to(self.device)
        return torch.split(rows, [len(batch) for batch in next(iter(batches.values()))], dim=1)

    def _run_step(self, rows: Tensor) -> None:
        """Run a step of every training on its rows, given as (S, B)."""
        key = (
            rows.shape[1],
            getattr(self.runs[0].network.head, "is_finetuning", None),
        )  # The loss of LIA is different in fine-tuning.
        if key not in self.steps:
            self.steps[key] = _StackedStep(self, rows.shape)
        self.steps[key](rows)

    def update_weights(self, rows: Tensor) -> None:
        """Run forward pass, backward pass and optimisers for rows (S, B) on the device."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        losses = self._call_networks("forward", self._take_inputs(rows), self.targets.take(rows))
        torch.autograd.backward(losses.sum() / rows.shape[1])
        for optimizer in self.optimizers:
            optimizer.step()
        self.sums += losses.detach()

    def _call_networks(self, what: str, *batches: Batch) -> Tensor:
        """Call a method of all networks, each with its own batches of inputs and, optionally, targets."""

        def call_network(parameters: Batch, buffers: Batch, *batches: Batch) -> Tensor:
            answer: Tensor = functional_call(self.template, (parameters, buffers), (what, *batches))
            return answer

        answers: Tensor = vmap(call_network, randomness="different")(self.parameters, self.buffers, *batches)
        return answers

    def _predict(self, what: str, parts: Sequence[tuple[Batch, ...]]) -> FloatArray:
        self.template.eval()
        with torch.no_grad():
            answers = [self._call_networks(what, *part).softmax(dim=-1).cpu().double() for part in parts]
        self.template.train()
        return np.asarray(torch.cat(answers, dim=1).numpy())

    def _take_inputs(self, rows: Tensor, columns: BatchColumns | None = None) -> Batch:
        columns = columns or self.inputs
        return {name: column[rows] for name, column in columns.columns.items() if isinstance(column, Tensor)}

    def _begin_epoch(self, epoch: int, epochs: int) -> None:
        """Run the objective's `begin_epoch` for all trainings at once, which writes into the stacked buffers."""

        def begin_network_epoch(
            parameters: Batch, buffers: Batch, training_batches: list[tuple[Batch, Batch]]
        ) -> Tensor:
            def iterate_batches() -> Any:
                return ((inputs, targets, None) for inputs, targets in training_batches)

            functional_call(self.template, (parameters, buffers), ("begin_epoch", epoch, epochs, iterate_batches))
            return torch.zeros(())

        with torch.no_grad():
            vmap(begin_network_epoch, randomness="different")(self.parameters, self.buffers, self.training_batches)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        """Return torch's optimiser for all dense parameters, as the trainer makes it, and one for row-sparse ones."""
        run = self.runs[0]
        names = {id(value): name for name, value in _MethodModule(run.network).named_parameters()}
        dense_groups, row_groups = (
            [{**group, "params": [self.parameters[names[id(p)]] for p in group["params"]]} for group in groups]
            for groups in split_sparse_groups(run.groups)
        )
        trainer = run.trainer
        dense = [make_optimizer(trainer.optimizer, dense_groups, trainer.weight_decay)] if dense_groups else []
        for optimizer in dense if self.device.type == "cuda" else []:
            for group in optimizer.param_groups:
                group["capturable"] = True  # The step counter is then on the device.
        return [*dense, *([StackedRowAdam(row_groups)] if row_groups else [])]


class _StackedStep:
    """Steps with batches of one shape; on a GPU they are captured after `STEPS_BEFORE_CAPTURE` steps and replayed."""

    def __init__(self, stack: Stack, shape: torch.Size):
        self.stack, self.done = stack, 0
        self.rows = torch.zeros(shape, dtype=torch.int64, device=stack.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, rows: Tensor) -> None:
        self.rows.copy_(rows, non_blocking=True)
        if self.stack.device.type != "cuda":
            self.stack.update_weights(self.rows)
        elif self.done < STEPS_BEFORE_CAPTURE:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.stack.update_weights(self.rows)
            torch.cuda.current_stream().wait_stream(side)
        else:
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                for optimizer in self.stack.optimizers:
                    optimizer.zero_grad(set_to_none=True)
                with torch.cuda.graph(self.graph):
                    self.stack.update_weights(self.rows)
            self.graph.replay()
        self.done += 1


class _MethodModule(nn.Module):
    """Wrapper whose `forward` calls any method of a network, because `functional_call` calls only `forward`."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, what: str, *args: Any) -> Any:
        """Call the method named `what`."""
        method: Callable[..., Any] = getattr(self.network, what)
        return method(*args)


def _check_finite(losses: list[float], epoch: int) -> None:
    for model, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise LossNotFinite(model=model, loss=loss, epoch=epoch)


def _check_shapes(networks: list[nn.Module]) -> None:
    first, *others = [{name: tuple(value.shape) for name, value in _iterate_tensors(network)} for network in networks]
    for other in others:
        for name, shape in first.items():
            if other[name] != shape:
                raise TrainingsNotStackable(reason="shapes")


def _iterate_tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(network.named_parameters(), network.named_buffers())


def _count_values_per_item(objective: Objective) -> int:
    """Return the approximate number of values that `logits` computes per item; LDL-NM computes them per annotator."""
    if not isinstance(objective, LDLNMObjective):
        return objective.n_classes_
    sizes = objective.room or (objective.item_size, objective.annotator_size)
    return int(np.count_nonzero(objective.label_totals_)) * (objective.pair_size or sum(sizes))


class StackedColumns:
    """Columns of several trainings, as tensors (S, I, …) or as ragged columns that are padded to (S, I, widest, …).

    S is 1 if all trainings share their columns.
    """

    def __init__(self, parts: Sequence[BatchColumns], device: torch.device):
        self.tensors: dict[str, Tensor] = {}
        self.bags: dict[str, Tensor] = {}
        self.widest = 1
        if all(part is parts[0] for part in parts):
            parts = parts[:1]
        self.shared = len(parts) == 1
        if any(part.columns.keys() != parts[0].columns.keys() for part in parts):
            raise TrainingsNotStackable(reason="gold")
        for name, first in parts[0].columns.items():
            columns: list[Any] = [part.columns[name] for part in parts]
            if isinstance(first, Tensor):
                self.tensors[name] = torch.stack(columns).to(device)
            elif isinstance(first, RaggedColumn):
                self._pad(columns, device)
            else:
                raise TrainingsNotStackable(reason="targets")

    def _pad(self, bags: list[RaggedColumn], device: torch.device) -> None:
        lengths = torch.stack([bag.ptr.diff() for bag in bags])  # (S, I)
        S, n_items = lengths.shape
        self.widest = widest = max(int(lengths.max()), 1)
        ragged = bool((lengths != widest).any())
        for key in bags[0].columns:
            like = bags[0].columns[key]
            padded = like.new_zeros(S, n_items, widest, *like.shape[1:])
            for s, bag in enumerate(bags):
                padded[s][torch.arange(widest) < lengths[s][:, None]] = bag.columns[key]
            self.bags[key] = padded.to(device)
        if ragged and "weight" not in self.bags:
            self.bags["weight"] = (torch.arange(widest) < lengths[..., None]).float().to(device)

    def take(self, rows: Tensor) -> Batch:
        """Return the batch of rows (S, B), with tensors (S, B, …), annotations (S, B · widest, …) and their `row`."""
        at = 0 if self.shared else torch.arange(len(rows), device=rows.device)[:, None]
        batch = {name: column[at, rows] for name, column in self.tensors.items()}
        if self.bags:
            batch |= {name: column[at, rows].flatten(1, 2) for name, column in self.bags.items()}
            row = torch.arange(rows.shape[1], device=rows.device)
            batch["row"] = row.repeat_interleave(self.widest).expand(len(rows), -1)
        return batch


class StackedRowAdam(RowAdam):
    """`RowAdam` for parameters (S, A, D) of several trainings, with dense gradients that are zero in unused rows."""

    def _update_rows(self, param: Tensor, lr: float, betas: tuple[float, float], eps: float) -> None:
        (beta1, beta2), state, grad = betas, self.state[param], param.grad
        assert grad is not None
        if not state:
            state["mean"], state["square"] = torch.zeros_like(param), torch.zeros_like(param)
            state["steps"] = param.new_zeros(*param.shape[:-1], 1)
        touched = (grad != 0).any(dim=-1, keepdim=True)  # (S, A, 1)
        steps = state["steps"].add_(touched)
        mean = state["mean"].lerp_(grad, (1 - beta1) * touched.to(grad.dtype))
        square = state["square"]
        square.copy_(torch.where(touched, beta2 * square + (1 - beta2) * grad * grad, square))
        at = steps.clamp(min=1)
        scale = (square / one_minus_power(beta2, at)).sqrt_().add_(eps)
        param.sub_(torch.where(touched, (mean / one_minus_power(beta1, at)).div_(scale), 0), alpha=lr)
