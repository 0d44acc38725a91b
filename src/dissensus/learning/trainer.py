"""The only training loop. lightning-fabric provides devices, precision and processes.

    trace = Trainer(epochs=50, batch_size=64).fit(model, data, rows, groups)

- `model(*data.take(rows))` returns the sum of the losses of these rows. A model may have `begin_epoch(epoch, epochs,
  walk)`, which is called before every epoch.
- `data` has batches to take, as `network.Lessons`; `rows` are the indices of the training items.
- `groups` are torch's parameter groups; parameters marked `row_sparse` go to `rows.RowAdam`.

A *step* uses `batch_size` items: in `accumulate` parts one after another, or in parts on several processes (fabric's
DDP), each of which has all data in shared memory. The sum of the losses over a step is divided by the step's items
once, so parts change nothing but rounding. Rows are drawn by a generator keyed on seed and epoch, everything else
(dropout, mixup) by torch's own generator, which is seeded for the run and restored afterwards. A last batch of one item
joins the batch before it, because batch normalisation needs two items.
"""

from __future__ import annotations

import copy
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.json_lines import hash_settings
from dissensus.common.parameters import Parameters, param
from dissensus.common.types import IntArray
from dissensus.learning import exceptions as faults
from dissensus.learning import optimizers
from dissensus.learning.checkpoint import Checkpoint, Trace
from dissensus.learning.devices import DEVICE, free_memory, gpus, make_fabric, own_draws, place
from dissensus.learning.network import Lessons
from dissensus.learning.rows import clip_gradients, use_row_sparse
from dissensus.learning.sam import SAM, SHARPNESS, sam_options
from dissensus.learning.storage import read_tree, write_tree
from dissensus.learning.training_log import Entry, reporter

Metric = Literal["accuracy", "macro-f1", "cross-entropy"]
RUNNING = ("checkpoint", "checkpoint_every", "log", "device", "precision", "processes", "compile", "accumulate")
"""Keywords that do not change the result of a run, only where and how it is computed."""
BATCHES_AT_ONCE = 4  # predicted together; without gradients a batch needs less memory than in training
MAX_MEMORY_SHARE = 0.5  # share of a GPU's free memory that inputs and targets may take
WEIGHTS = "weights"  # kind of the file in which a process returns them


class Training(Parameters):
    """Keywords of a training run."""

    epochs: int = param(50, "passes over the training items", low=0)
    batch_size: int = param(64, "items per step", low=1)
    accumulate: int = param(1, "parts of a step that are computed one after another, to save memory", low=1)
    optimizer: optimizers.Wanted = optimizers.OPTIMIZER
    weight_decay: float = param(0.0, "weight decay of torch's optimisers", low=0)
    schedule: optimizers.Schedule = optimizers.SCHEDULE
    warmup: float = param(0.0, "share of all steps in which the learning rates grow to their values", low=0, high=1)
    sam: float | Mapping[str, Any] | None = SHARPNESS
    clip: float | None = param(None, "largest norm of a step's gradient; None: any", above=0)
    patience: int | None = param(None, "number of epochs without a better `monitor` that ends training", low=1)
    monitor: Metric | None = param(None, "metric on the validation items; None: the objective's default")
    device: str = DEVICE
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = param(
        "auto", "number format, as in lightning-fabric; auto: bf16-mixed on a GPU that has it, else 32-true"
    )
    processes: int = param(1, "processes that train together, each on its share of every step", low=1)
    compile: bool = param(False, "train through torch.compile: a slow start, faster steps, other random numbers")
    checkpoint: str | Path | None = param(None, "folder from which a killed run continues, to the same result")
    checkpoint_every: float = param(30.0, "seconds between checkpoints", low=0)
    log: str | Path | None = param(None, "folder for log.csv and events for TensorBoard, one entry per epoch")
    seed: int | None = param(
        0, "the same seed gives the same bits on the CPU", low=0, must="must be 0 or more, or None"
    )

    def check(self) -> None:
        """Raise BadParameter for a keyword out of its range; `fit` calls it first."""
        self.check_parameters()
        if self.place().index is not None and self.processes > 1:
            raise faults.OneDeviceForProcesses(device=self.device, processes=self.processes)
        if self.seed is None and self.checkpoint is not None:
            raise faults.SeedNeeded()

    def deciding(self) -> dict[str, str]:
        """Return the keywords that determine the result, as text; a checkpoint belongs to one set of them."""
        keywords = self.get_params(deep=False) | {"optimizer": optimizers.stored_optimizer(self.optimizer)}
        return {name: repr(value) for name, value in keywords.items() if name not in RUNNING}

    def place(self) -> torch.device:
        """Return the device, or for "auto" the best one of this machine."""
        return place(self.device)


class Trainer(Training):
    """The training loop with its keywords."""

    seed: int = param(0, "seed of the order of rows and of all random numbers", low=0)
    monitor: Metric = param("cross-entropy", "metric of `evaluate` that chooses the best epoch")

    def fit(
        self,
        model: nn.Module,
        data: Lessons,
        rows: IntArray,
        groups: list[dict[str, Any]],
        *,
        evaluate: Callable[[nn.Module], dict[str, float]] | None = None,
        on_step: Callable[..., None] | None = None,
        key: str = "",
    ) -> Trace:
        """Train `model` in place; the module describes model, data, rows and groups.

        `evaluate(model)` returns metrics by name after every epoch; `monitor` is one of them. `on_step(epoch, mean
        loss)` is called after every epoch (see `training_log`). A checkpoint of another `key` is an error.
        """
        self.check()
        if len(rows) == 0:
            raise faults.NothingToLearn(n_items=len(rows))
        if self.patience is not None and evaluate is None:
            raise faults.ValidationNeeded()
        if self.processes > len(rows):
            raise faults.TooManyProcesses(processes=self.processes, n_items=len(rows))
        fabric = make_fabric(self.device, self.precision, self.processes)
        key = hash_settings({"key": key, "rows": len(rows), **self.deciding()}, [])
        loop = _Loop(self, model, data, rows, groups, key, evaluate)
        if self.processes == 1:
            loop.report = reporter(on_step, self.log)
            return loop.run(fabric)
        with tempfile.TemporaryDirectory() as folder:  # a pipe between processes takes only a few kilobytes
            trace: Trace = fabric.launch(loop.in_process, file := Path(folder) / "weights")
            model.load_state_dict(read_tree(file, WEIGHTS))
        report = reporter(on_step, self.log)
        for entry in trace.epochs:  # processes report nothing before the end
            report(entry)
        return trace

    def batches(self, rows: IntArray, epoch: int) -> list[Tensor]:
        """Return the steps of an epoch: all rows once, in an order that depends on seed and epoch alone."""
        draw = torch.Generator().manual_seed(mixed(self.seed, epoch))
        order = torch.as_tensor(rows)[torch.randperm(len(rows), generator=draw)]
        steps = list(torch.split(order, self.batch_size))
        if len(steps) > 1 and len(steps[-1]) == 1:
            steps[-2:] = [torch.cat(steps[-2:])]
        return steps


@dataclass
class _Loop:
    """The training of one process: epochs of steps of parts."""

    how: Trainer
    model: nn.Module
    data: Lessons
    rows: IntArray
    groups: list[dict[str, Any]]
    key: str
    evaluate: Callable[[nn.Module], dict[str, float]] | None = None
    report: Callable[[Entry], None] | None = None

    def in_process(self, fabric: Any, weights: Path) -> Trace:
        """Train in one of several processes; the first writes the weights."""
        self.model, self.groups = copy.deepcopy((self.model, self.groups))  # the arguments are in shared memory
        trace = self.run(fabric)
        if fabric.global_rank == 0:
            write_tree(weights, dict(self.model.state_dict()), WEIGHTS)
        fabric.barrier()
        del self.wrapped, self.optimizer  # DDP keeps the process group alive
        torch.distributed.destroy_process_group()  # else threads of gloo may abort a process that ends while they run
        return trace

    def run(self, fabric: Any) -> Trace:
        """Train from the beginning, or from the checkpoint."""
        how, model, self.fabric = self.how, self.model, fabric
        if how.compile:
            model.compile()
        use_row_sparse(model)  # before DDP reads the module
        self.wrapped = fabric.setup_module(model)
        self.base = optimizers.make_optimizer(how.optimizer, self.groups, how.weight_decay)
        self.sam = None if how.sam is None else SAM(self.base, model=model, **sam_options(how.sam))
        self.optimizer = fabric.setup_optimizers(self.base)
        self.rates = [group["lr"] for group in self.base.param_groups]
        self.home = torch.device("cpu")  # device of the data
        if fabric.device.type != "cpu" and self.data.nbytes < MAX_MEMORY_SHARE * free_memory(fabric.device):
            self.data, self.home = self.data.to(fabric.device), fabric.device
        self.steps_in_all = how.epochs * len(how.batches(self.rows, 0))
        self.checkpoint = Checkpoint(how, self.key, fabric, model, self.base)
        with own_draws(mixed(how.seed, -1 - fabric.global_rank), gpus(fabric.device)):
            self.at = self.checkpoint.read()
            model.train()
            while self.at.epoch < how.epochs and not self.at.trace.stopped:
                self.epoch()
        if self.at.best is not None:
            model.load_state_dict(self.at.best)
        use_row_sparse(model, False)
        model.eval()
        return self.at.trace

    def epoch(self) -> None:
        """Run the rest of an epoch, evaluate it, and add it to the trace."""
        at, how, fabric, began = self.at, self.how, self.fabric, time.monotonic()
        batches = how.batches(self.rows, at.epoch)
        several = fabric.world_size > 1
        if several:  # each draws its own numbers; the checkpoint, written at the end of an epoch, does not need them
            torch.manual_seed(mixed(how.seed, at.epoch + 1 + fabric.global_rank * 2**20))
        begin_epoch = getattr(self.model, "begin_epoch", None)
        if begin_epoch is not None and at.place == 0:  # later, its results are in the checkpoint
            begin_epoch(at.epoch, how.epochs, self.walk)
        sums: list[Tensor] = []
        while at.place < len(batches):
            sums.append(self.step(batches[at.place]))
            at.place, at.step = at.place + 1, at.step + 1
            if how.checkpoint is not None and not several and at.place < len(batches) and self.checkpoint.due():
                at.total, sums = at.total + _added(sums), []
                self.checkpoint.write(at)
        at.total += _added(sums)
        if several:
            at.total = float(fabric.all_reduce(torch.tensor(at.total, dtype=torch.float32), reduce_op="sum"))
        loss = at.total / len(self.rows)
        if not math.isfinite(loss):
            raise faults.LossNotFinite(loss=loss, epoch=at.epoch + 1)
        entry = {"epoch": float(at.epoch + 1), "loss": loss, "seconds": time.monotonic() - began}
        if self.evaluate is not None:
            self.model.eval()
            metrics = self.evaluate(self.model) if fabric.global_rank == 0 else None
            entry |= fabric.broadcast(metrics)  # all processes have to stop together
            self.model.train()
            self.judge(entry)
        at.trace.epochs.append(entry)
        at.epoch, at.place, at.total = at.epoch + 1, 0, 0.0
        if self.report is not None:
            rate = self.base.param_groups[0]["lr"]
            self.report({**entry, "step": float(at.step), "learning_rate": float(rate)})
        if self.checkpoint.due() or at.epoch == how.epochs or at.trace.stopped:
            self.checkpoint.write(at)

    def batch(self, rows: Tensor) -> Any:
        """Return what the model takes for these rows, on the device."""
        return self.fabric.to_device(self.data.take(rows.to(self.home)))

    def walk(self) -> Iterator[Any]:
        """Yield batches of all training rows, in their order."""
        for part in torch.split(torch.as_tensor(self.rows), BATCHES_AT_ONCE * self.how.batch_size):
            yield self.batch(part)

    def step(self, rows: Tensor) -> Tensor:
        """Update the weights by the mean loss of these rows; return the sum of this process's losses."""
        at, how = self.at, self.how
        factor = optimizers.rate_factor(how.schedule, how.warmup, at.step, self.steps_in_all, at.epoch)
        for group, rate in zip(self.base.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        closure = partial(self.gradients, rows)
        summed: Tensor = closure() if self.sam is None else self.sam.around(closure)
        if how.clip is not None:
            self.fabric.strategy.precision.unscale_gradients(self.base)
            clip_gradients(self.model.parameters(), how.clip)  # fabric does not clip row-sparse gradients
        self.optimizer.step()
        return summed

    def gradients(self, rows: Tensor) -> Tensor:
        """Set the gradients of the mean loss of these rows; return the sum of this process's losses."""
        fabric = self.fabric
        self.optimizer.zero_grad()
        own = rows[fabric.global_rank :: fabric.world_size]
        weight = fabric.world_size / len(rows) if len(own) else 0.0  # DDP averages over processes
        if not len(own):  # every process has to take part, here with gradients of zero
            own = rows[:2]
        parts = own.tensor_split(min(self.how.accumulate, max(len(own) // 2, 1)))  # batch norm needs two items
        summed = torch.zeros((), device=fabric.device)
        for i, part in enumerate(parts):
            with fabric.no_backward_sync(self.wrapped, enabled=i + 1 < len(parts)):
                loss = self.wrapped(*self.batch(part))
                fabric.backward(loss * weight)
            summed += loss.detach() if weight else 0
        return summed

    def judge(self, entry: dict[str, float]) -> None:
        """Keep the weights if the epoch has the best metrics so far; else stop if patience is exhausted."""
        how, trace = self.how, self.at.trace
        sign = -1 if how.monitor == "cross-entropy" else 1
        before = -math.inf if trace.best is None else sign * trace.epochs[trace.best - 1][how.monitor]
        if sign * entry[how.monitor] >= before:  # of equal epochs, the later one has learnt more
            trace.best = int(entry["epoch"])
            self.at.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        elif how.patience is not None and entry["epoch"] - (trace.best or 0) >= how.patience:
            trace.stopped = True


def _added(sums: list[Tensor]) -> float:
    """Add up losses on the CPU: one wait for the device per epoch, not per step."""
    return float(torch.stack(sums).cpu().double().sum()) if sums else 0.0


def mixed(seed: int, place: int) -> int:
    """Return a seed for one place of a run, independent of those of other places."""
    return int(np.random.SeedSequence((seed, place + 2**31)).generate_state(1, np.uint32)[0])
