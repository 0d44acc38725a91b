"""The only training loop. lightning-fabric brings devices, precision and processes.

    trace = Trainer(epochs=50, batch_size=64).fit(model, data, rows, groups)

- `model(*data.take(rows))` returns the sum of the losses of these rows. Optional methods of the model or its layers:
  `begin_epoch(epoch, epochs, walk)` before every epoch, `after_step()` after every step.
- `data` is a `shards.Data`; `rows` are the places of the items that teach.
- `groups` are torch's parameter groups; parameters marked `row_sparse` go to `rows.RowAdam`.

A *step* sees `batch_size` items, whatever it is made of: `accumulate` parts one after another, or parts on several
processes. The sum of the losses over a step is divided by the step's items once, so parts change nothing but rounding.
Rows are drawn by a generator keyed on seed and epoch, everything else (dropout, mixup) by torch's own generator, which
is seeded for the run and given back afterwards as it was. A last batch of one item joins the batch before it, because
there are no statistics over one item.
"""

from __future__ import annotations

import copy
import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dissensus.common.parameters import Parameters, param
from dissensus.common.types import IntArray, OnStep
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning import optimizers
from dissensus.learning.checkpoint import Checkpoint, State, Trace
from dissensus.learning.devices import DEVICE, gpus, make_fabric, place
from dissensus.learning.rows import clip_gradients, drop_zero_rows
from dissensus.learning.sam import SAM, SHARPNESS, sam_options
from dissensus.learning.shards import Data, Shard

Metric = Literal["accuracy", "macro-f1", "cross-entropy"]
BATCHES_AT_ONCE = 4  # asked together without gradients, where a batch needs less memory than in training


class Training(Parameters):
    """The keywords of a training."""

    epochs: int = param(50, "passes over the items that teach", low=0)
    batch_size: int = param(64, "items per step", low=1)
    accumulate: int = param(1, "parts that a step is computed in, one after another, which takes less memory", low=1)
    optimizer: optimizers.Wanted = optimizers.OPTIMIZER
    weight_decay: float = param(0.0, "weight decay as torch's optimisers have it", low=0)
    schedule: optimizers.Schedule = optimizers.SCHEDULE
    warmup: float = param(0.0, "share of all steps in which the learning rates grow to their size", low=0, high=1)
    sam: float | Mapping[str, Any] | None = SHARPNESS
    clip: float | None = param(None, "largest norm of a step's gradient; None: any", above=0)
    patience: int | None = param(None, "epochs without a better `monitor` on the validation items, then stop", low=1)
    monitor: Metric | None = param(None, "metric on the validation items; None: what suits the objective")
    device: str = DEVICE
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = param(
        "auto", "number format, as in lightning-fabric; auto: bf16-mixed on a GPU that has it, else 32-true"
    )
    processes: int = param(1, "processes that train together, each with its share of the items (`shards.py`)", low=1)
    compile: bool = param(False, "train through torch.compile: a slow start, faster steps, other random numbers")
    checkpoint: str | Path | None = param(None, "folder that a run which was killed goes on from, to the same result")
    checkpoint_every: float = param(30.0, "seconds between checkpoints", low=0)
    seed: int | None = param(
        0, "the same seed gives the same bits on the CPU", low=0, must="must be 0 or more, or None"
    )

    def check(self) -> None:
        """Raise BadParameter where a keyword is out of its range; `fit` begins with it."""
        self.check_parameters()
        if self.place().index is not None and self.processes > 1:
            raise BadParameter(f"device {self.device!r} is one; for {self.processes} processes say 'cuda'.")

    def place(self) -> torch.device:
        """The device asked for, or the best that there is."""
        return place(self.device)


class Trainer(Training):
    """The training loop with its keywords."""

    seed: int = param(0, "seed of the order of rows and of what is drawn", low=0)
    monitor: Metric = param("cross-entropy", "metric of `evaluate` that the best epoch is chosen by")

    def fit(
        self,
        model: nn.Module,
        data: Data,
        rows: IntArray,
        groups: list[dict[str, Any]],
        *,
        evaluate: Callable[[nn.Module], dict[str, float]] | None = None,
        on_step: OnStep | None = None,
        key: str = "",
    ) -> Trace:
        """Train `model` in place; see the module for model, data, rows and groups.

        `evaluate(model)` gives metrics by name after every epoch; `monitor` is one of them. `on_step(epoch, mean loss)`
        is called after every epoch. A checkpoint of another `key` is refused.
        """
        self.check()
        if len(rows) == 0:
            raise DataError("no item has anything to learn from: none has annotations (or gold) left to train on.")
        if self.patience is not None and evaluate is None:
            raise BadParameter("patience needs validation: give `validation` to fit, or set patience=None.")
        if self.processes > len(rows):
            raise BadParameter(f"{self.processes} processes are to share {len(rows)} items that teach; take fewer.")
        fabric = make_fabric(self.device, self.precision, self.processes)
        optimizer = str(optimizers.stored_optimizer(self.optimizer))
        key = hashlib.blake2b(
            repr((key, self.epochs, self.batch_size, optimizer, self.weight_decay, self.schedule, self.warmup,
                  self.sam, self.clip, self.patience, self.monitor, self.seed, len(rows))).encode(), digest_size=16,
        ).hexdigest()  # fmt: skip
        places = [[id(p) for p in group["params"]] for group in groups]
        order = {id(p): i for i, p in enumerate(model.parameters())}
        where = [{**group, "params": [order[i] for i in ids]} for group, ids in zip(groups, places, strict=True)]
        if self.processes == 1:
            return _train(fabric, self, model, data, rows, where, evaluate, on_step, key)
        with tempfile.TemporaryDirectory() as folder:  # a pipe between processes holds but a few kilobytes
            file = Path(folder) / "weights"
            trace: Trace = fabric.launch(_Process(file, self, model, data, rows, where, evaluate, None, key))
            model.load_state_dict(load_file(file))
        return trace

    def batches(self, rows: IntArray, epoch: int) -> list[Tensor]:
        """The steps of an epoch: all rows once, in an order that only seed and epoch decide."""
        draw = torch.Generator().manual_seed(mixed(self.seed, epoch))
        order = torch.as_tensor(rows)[torch.randperm(len(rows), generator=draw)]
        steps = list(torch.split(order, self.batch_size))
        if len(steps) > 1 and len(steps[-1]) == 1:
            steps[-2:] = [torch.cat(steps[-2:])]
        return steps


class _Process:
    """The work of a process that fabric starts; the first process writes the weights into a file."""

    def __init__(self, file: Path, how: Trainer, model: nn.Module, *rest: Any):
        self.file, self.how, self.model, self.rest = file, how, model, rest

    def __call__(self, fabric: Any) -> Trace:
        model = copy.deepcopy(self.model)  # what came with the call lies in memory that all processes share
        trace = _train(fabric, self.how, model, *self.rest)
        if fabric.global_rank == 0:
            save_file({name: value.cpu().clone() for name, value in model.state_dict().items()}, self.file)
        fabric.barrier()
        torch.distributed.destroy_process_group()  # else gloo's threads may abort a process that ends while they run
        return trace


def _train(
    fabric: Any,
    how: Trainer,
    model: nn.Module,
    data: Data,
    rows: IntArray,
    groups: list[dict[str, Any]],
    evaluate: Callable[[nn.Module], dict[str, float]] | None,
    on_step: OnStep | None,
    key: str,
) -> Trace:
    """One process's part of a run."""
    world = fabric.world_size
    parameters = list(model.parameters())
    if how.compile:
        model.compile()
    wrapped = fabric.setup_module(model)
    groups = [{**group, "params": [parameters[i] for i in group["params"]]} for group in groups]
    base = optimizers.make_optimizer(how.optimizer, groups, how.weight_decay)
    sam = None if how.sam is None else SAM(base, model=model, **sam_options(how.sam))
    optimizer = fabric.setup_optimizers(base)
    rates = [group["lr"] for group in base.param_groups]
    constrained: list[Any] = [part for part in model.modules() if hasattr(part, "after_step")]
    begin_epoch = getattr(model, "begin_epoch", None)
    shard = Shard(fabric, data, rows)
    own = shard.own()
    steps_in_all = how.epochs * len(how.batches(rows, 0))
    checkpoint = Checkpoint(how.checkpoint, how.checkpoint_every, key, fabric, model, base)

    def passed(rows: Tensor) -> Tensor:
        """Gradients of the step's mean loss; the sum of this process's losses."""
        optimizer.zero_grad()
        mine = shard.own(rows)
        nothing = len(mine) == 0
        if nothing:  # all processes have to take part: gradients of zero, of items that it has
            mine = own[:2]
        parts = mine.tensor_split(min(how.accumulate, max(len(mine) // 2, 1)))  # statistics over one item are none
        summed = torch.zeros((), device=fabric.device)
        for i, part in enumerate(parts):
            batch = shard.batch(part)
            with fabric.no_backward_sync(wrapped, enabled=i + 1 < len(parts)):
                loss = wrapped(*batch)
                # processes are averaged over: undo that
                fabric.backward(loss * (0.0 if nothing else world / len(rows)))
            summed += 0 if nothing else loss.detach()
        if shard.somebody_has_none(rows):
            drop_zero_rows(parameters)  # what it looked at was not touched
        return summed

    with torch.random.fork_rng(gpus(fabric.device)):
        torch.manual_seed(mixed(how.seed, -1 - fabric.global_rank))
        at = checkpoint.read()
        trace = at.trace
        model.train()
        while at.epoch < how.epochs and not trace.stopped:
            batches = how.batches(rows, at.epoch)
            if world > 1:  # each draws for itself; a checkpoint, written by the first at an epoch's end, need not know
                torch.manual_seed(mixed(how.seed, at.epoch + 1 + fabric.global_rank * 2**20))
            began = time.monotonic()
            if begin_epoch is not None and at.place == 0:  # in the middle of an epoch, what it did is in the checkpoint
                begin_epoch(at.epoch, how.epochs, partial(shard.walk, BATCHES_AT_ONCE * how.batch_size))
            sums: list[Tensor] = []
            while at.place < len(batches):
                factor = optimizers.rate_factor(how.schedule, how.warmup, at.step, steps_in_all, at.epoch)
                for group, rate in zip(base.param_groups, rates, strict=True):
                    group["lr"] = rate * factor
                closure = partial(passed, batches[at.place])
                sums.append(closure() if sam is None else sam.around(closure))
                if how.clip is not None:
                    fabric.strategy.precision.unscale_gradients(base)
                    clip_gradients(parameters, how.clip)  # not fabric's, which knows nothing of row-sparse gradients
                optimizer.step()
                for part in constrained:
                    part.after_step()
                at.place, at.step = at.place + 1, at.step + 1
                if how.checkpoint is not None and world == 1 and at.place < len(batches) and checkpoint.due():
                    at.total, sums = at.total + _added(sums), []
                    checkpoint.write(at)
            at.total += _added(sums)
            if world > 1:
                at.total = float(fabric.all_reduce(torch.tensor(at.total, dtype=torch.float32), reduce_op="sum"))
            loss = at.total / len(rows)
            if not math.isfinite(loss):
                raise DataError(
                    f"the loss became {loss} in epoch {at.epoch + 1}; lower the learning rate, or clip gradients "
                    "(clip=1)."
                )
            entry = {"epoch": float(at.epoch + 1), "loss": loss, "seconds": time.monotonic() - began}
            if evaluate is not None:
                model.eval()
                # all are to agree when to stop
                entry |= fabric.broadcast(evaluate(model) if fabric.global_rank == 0 else None)
                model.train()
                _judge(how, at, entry, model)
            trace.epochs.append(entry)
            at.epoch, at.place, at.total = at.epoch + 1, 0, 0.0
            if on_step is not None:
                on_step(at.epoch, loss)
            if checkpoint.due() or at.epoch == how.epochs or trace.stopped:
                checkpoint.write(at)
    if at.best is not None:
        model.load_state_dict(at.best)
    model.eval()
    return trace


def _judge(how: Trainer, at: State, entry: dict[str, float], model: nn.Module) -> None:
    """Keep the weights if an epoch's metrics are the best so far; else stop where patience is over."""
    sign, trace = -1 if how.monitor == "cross-entropy" else 1, at.trace
    before = -math.inf if trace.best is None else sign * trace.epochs[trace.best - 1][how.monitor]
    if sign * entry[how.monitor] > before:
        trace.best = int(entry["epoch"])
        at.best = {name: value.detach().clone() for name, value in model.state_dict().items()}
    elif how.patience is not None and entry["epoch"] - (trace.best or 0) >= how.patience:
        trace.stopped = True


def _added(sums: list[Tensor]) -> float:
    """One wait for the device per epoch, not per step."""
    return float(torch.stack(sums).cpu().double().sum()) if sums else 0.0


def mixed(seed: int, place: int) -> int:
    """A seed for one place of a run: neighbours have nothing in common."""
    return int(np.random.SeedSequence((seed, place + 2**31)).generate_state(1, np.uint32)[0])
