"""The training loop, with devices, precision and processes provided by lightning-fabric.

    trace = Trainer(epochs=50, batch_size=64).fit(model, data, rows, groups)

- `model(*data.take(rows))` returns the sum of the losses of these rows. A model may have a method `begin_epoch(epoch,
  epochs, iterate_batches)`, which is called before every epoch.
- `data` returns batches, as `network.TrainingData` does; `rows` are the indices of the training items.
- `groups` are torch's parameter groups; parameters that are marked `row_sparse` use `rows.RowAdam`.

A *step* uses `batch_size` items. They may be computed in `accumulate` parts, or in parts on several processes (fabric's
DDP), which have all data in shared memory. The sum of the losses of a step is divided once by the number of its items,
so that parts change the result by rounding only. The order of rows depends on seed and epoch. All other random numbers
(dropout, mixup) come from torch's own generator, which is seeded for the run and restored afterwards. If the last batch
has one item, the item is added to the batch before it, because batch normalisation needs two items.
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
from dissensus.learning.devices import (
    DEVICE_PARAM,
    gpu_indices,
    isolated_rng,
    make_fabric,
    measure_free_memory,
    resolve_device,
)
from dissensus.learning.network import TrainingData
from dissensus.learning.rows import clip_gradients, use_row_sparse
from dissensus.learning.sam import SAM, SAM_PARAM, read_sam_options
from dissensus.learning.storage import read_tree, write_tree
from dissensus.learning.training_log import Entry, make_reporter

Metric = Literal["accuracy", "macro-f1", "cross-entropy"]
RUN_ONLY_KEYWORDS = (
    "checkpoint",
    "checkpoint_every",
    "log",
    "device",
    "precision",
    "processes",
    "compile",
    "accumulate",
)
"""Keywords that change where and how a run is computed, but not its result."""
PREDICTION_BATCHES = 4  # number of batches that are predicted at once; prediction needs less memory than training
MAX_MEMORY_SHARE = 0.5  # maximum share of a GPU's free memory for inputs and targets
WEIGHTS_KIND = "weights"  # kind of the file in which a process returns its weights


class TrainingKeywords(Parameters):
    """Keywords of a training run."""

    epochs: int = param(50, "passes over the training items", low=0)
    batch_size: int = param(64, "items per step", low=1)
    accumulate: int = param(1, "number of parts of a step, computed one after another to save memory", low=1)
    optimizer: optimizers.OptimizerSpec = optimizers.OPTIMIZER_PARAM
    weight_decay: float = param(0.0, "weight decay of torch's optimisers", low=0)
    schedule: optimizers.Schedule = optimizers.SCHEDULE_PARAM
    warmup: float = param(0.0, "share of all steps in which the learning rates increase to their values", low=0, high=1)
    sam: float | Mapping[str, Any] | None = SAM_PARAM
    clip: float | None = param(None, "maximum norm of a step's gradient; None: no limit", above=0)
    patience: int | None = param(None, "number of epochs without a better `monitor` after which training ends", low=1)
    monitor: Metric | None = param(
        None, "metric on the validation items that chooses the best epoch; by default that of the objective"
    )
    device: str = DEVICE_PARAM
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = param(
        "auto", "number format, as in lightning-fabric; auto is bf16-mixed on a GPU that supports it, else 32-true"
    )
    processes: int = param(1, "number of processes that train together, each on its share of every step", low=1)
    compile: bool = param(False, "use torch.compile, which starts slowly, has faster steps and changes random numbers")
    checkpoint: str | Path | None = param(
        None, "folder of checkpoints, from which a killed run continues and gives the same result"
    )
    checkpoint_every: float = param(30.0, "seconds between checkpoints", low=0)
    log: str | Path | None = param(None, "folder for log.csv and events for TensorBoard, one entry per epoch")
    seed: int | None = param(
        0,
        "seed of all random numbers; the same seed gives exactly the same result on the CPU",
        low=0,
        must="must be 0 or more, or None",
    )

    def check(self) -> None:
        """Raise BadParameter if a keyword is out of range."""
        self.check_parameters()
        if self.torch_device().index is not None and self.processes > 1:
            raise faults.OneDeviceForProcesses(device=self.device, processes=self.processes)
        if self.seed is None and self.checkpoint is not None:
            raise faults.SeedNeeded()

    def result_keywords(self) -> dict[str, str]:
        """Return as text the keywords that determine the result; a checkpoint is only valid if they are equal."""
        keywords = self.get_params(deep=False) | {"optimizer": optimizers.pack_optimizer(self.optimizer)}
        return {name: repr(value) for name, value in keywords.items() if name not in RUN_ONLY_KEYWORDS}

    def torch_device(self) -> torch.device:
        """Return the device of the keyword `device`."""
        return resolve_device(self.device)


class Trainer(TrainingKeywords):
    """The training loop with its keywords."""

    seed: int = param(0, "seed of the order of rows and of all random numbers", low=0)
    monitor: Metric = param("cross-entropy", "metric of `evaluate` that chooses the best epoch")

    def fit(
        self,
        model: nn.Module,
        data: TrainingData,
        rows: IntArray,
        groups: list[dict[str, Any]],
        *,
        evaluate: Callable[[nn.Module], dict[str, float]] | None = None,
        on_step: Callable[..., None] | None = None,
        key: str = "",
    ) -> Trace:
        """Train `model` in place; the docstring of this module describes model, data, rows and groups.

        After every epoch, `evaluate(model)` returns a mapping from names to metrics, which includes `monitor`, and
        `on_step(epoch, mean loss)` is called (see `training_log`). A checkpoint with another `key` raises an error.
        """
        self.check()
        if len(rows) == 0:
            raise faults.NoLabelledItems(n_items=len(rows))
        if self.patience is not None and evaluate is None:
            raise faults.ValidationNeeded()
        if self.processes > len(rows):
            raise faults.TooManyProcesses(processes=self.processes, n_items=len(rows))
        fabric = make_fabric(self.device, self.precision, self.processes)
        key = hash_settings({"key": key, "rows": len(rows), **self.result_keywords()}, [])
        loop = _TrainingLoop(self, model, data, rows, groups, key, evaluate)
        if self.processes == 1:
            loop.report = make_reporter(on_step, self.log)
            return loop.run(fabric)
        with tempfile.TemporaryDirectory() as folder:  # A pipe between processes has only a few kilobytes.
            trace: Trace = fabric.launch(loop.run_in_process, file := Path(folder) / "weights")
            model.load_state_dict(read_tree(file, WEIGHTS_KIND))
        report = make_reporter(on_step, self.log)
        for entry in trace.epochs:  # Other processes cannot report to this process while they train.
            report(entry)
        return trace

    def draw_batches(self, rows: IntArray, epoch: int) -> list[Tensor]:
        """Return the batches of an epoch, which contain every row once; their order depends on seed and epoch alone."""
        draw = torch.Generator().manual_seed(derive_seed(self.seed, epoch))
        order = torch.as_tensor(rows)[torch.randperm(len(rows), generator=draw)]
        steps = list(torch.split(order, self.batch_size))
        if len(steps) > 1 and len(steps[-1]) == 1:
            steps[-2:] = [torch.cat(steps[-2:])]
        return steps


@dataclass
class _TrainingLoop:
    """Training in one process, with its epochs, steps and parts of steps."""

    trainer: Trainer
    model: nn.Module
    data: TrainingData
    rows: IntArray
    groups: list[dict[str, Any]]
    key: str
    evaluate: Callable[[nn.Module], dict[str, float]] | None = None
    report: Callable[[Entry], None] | None = None

    def run_in_process(self, fabric: Any, weights: Path) -> Trace:
        """Train in one of several processes; the first process writes the weights."""
        self.model, self.groups = copy.deepcopy((self.model, self.groups))  # The arguments are in shared memory.
        trace = self.run(fabric)
        if fabric.global_rank == 0:
            write_tree(weights, dict(self.model.state_dict()), WEIGHTS_KIND)
        fabric.barrier()
        # DDP keeps the process group alive, and its running gloo threads may abort a process that ends.
        del self.wrapped_model, self.optimizer
        torch.distributed.destroy_process_group()
        return trace

    def run(self, fabric: Any) -> Trace:
        """Train from the beginning or from the checkpoint, and return the trace."""
        trainer, model, self.fabric = self.trainer, self.model, fabric
        if trainer.compile:
            model.compile()
        use_row_sparse(model)  # DDP reads the module in the next line.
        self.wrapped_model = fabric.setup_module(model)
        self.base_optimizer = optimizers.make_optimizer(trainer.optimizer, self.groups, trainer.weight_decay)
        self.sam = (
            None if trainer.sam is None else SAM(self.base_optimizer, model=model, **read_sam_options(trainer.sam))
        )
        self.optimizer = fabric.setup_optimizers(self.base_optimizer)
        self.rates = [group["lr"] for group in self.base_optimizer.param_groups]
        self.data_device = torch.device("cpu")
        if fabric.device.type != "cpu" and self.data.nbytes < MAX_MEMORY_SHARE * measure_free_memory(fabric.device):
            self.data, self.data_device = self.data.to(fabric.device), fabric.device
        self.n_steps = trainer.epochs * len(trainer.draw_batches(self.rows, 0))
        self.checkpoint = Checkpoint(trainer, self.key, fabric, model, self.base_optimizer)
        with isolated_rng(derive_seed(trainer.seed, -1 - fabric.global_rank), gpu_indices(fabric.device)):
            self.state = self.checkpoint.read()
            model.train()
            while self.state.epoch < trainer.epochs and not self.state.trace.stopped:
                self.run_epoch()
        if self.state.best_weights is not None:
            model.load_state_dict(self.state.best_weights)
        use_row_sparse(model, False)
        model.eval()
        return self.state.trace

    def run_epoch(self) -> None:
        """Run the remaining steps of an epoch, evaluate it, and add it to the trace."""
        state, trainer, fabric, start = self.state, self.trainer, self.fabric, time.monotonic()
        batches = trainer.draw_batches(self.rows, state.epoch)
        distributed = fabric.world_size > 1
        if distributed:  # Each process has its own random numbers; no checkpoint is written within an epoch.
            torch.manual_seed(derive_seed(trainer.seed, state.epoch + 1 + fabric.global_rank * 2**20))
        begin_epoch = getattr(self.model, "begin_epoch", None)
        if begin_epoch is not None and state.step_in_epoch == 0:  # Within an epoch, its results are in the checkpoint.
            begin_epoch(state.epoch, trainer.epochs, self.iterate_batches)
        sums: list[Tensor] = []
        while state.step_in_epoch < len(batches):
            sums.append(self.run_step(batches[state.step_in_epoch]))
            state.step_in_epoch, state.step = state.step_in_epoch + 1, state.step + 1
            if (
                trainer.checkpoint is not None
                and not distributed
                and state.step_in_epoch < len(batches)
                and self.checkpoint.is_due()
            ):
                state.epoch_loss, sums = state.epoch_loss + _sum_losses(sums), []
                self.checkpoint.write(state)
        state.epoch_loss += _sum_losses(sums)
        if distributed:
            state.epoch_loss = float(
                fabric.all_reduce(torch.tensor(state.epoch_loss, dtype=torch.float32), reduce_op="sum")
            )
        loss = state.epoch_loss / len(self.rows)
        if not math.isfinite(loss):
            raise faults.LossNotFinite(model=None, loss=loss, epoch=state.epoch + 1)
        entry = {"epoch": float(state.epoch + 1), "loss": loss, "seconds": time.monotonic() - start}
        if self.evaluate is not None:
            self.model.eval()
            metrics = self.evaluate(self.model) if fabric.global_rank == 0 else None
            entry |= fabric.broadcast(metrics)  # All processes have to stop in the same epoch.
            self.model.train()
            self.update_best(entry)
        state.trace.epochs.append(entry)
        state.epoch, state.step_in_epoch, state.epoch_loss = state.epoch + 1, 0, 0.0
        if self.report is not None:
            rate = self.base_optimizer.param_groups[0]["lr"]
            self.report({**entry, "step": float(state.step), "learning_rate": float(rate)})
        if self.checkpoint.is_due() or state.epoch == trainer.epochs or state.trace.stopped:
            self.checkpoint.write(state)

    def take_batch(self, rows: Tensor) -> Any:
        """Return the model's arguments for these rows, on the device."""
        return self.fabric.to_device(self.data.take(rows.to(self.data_device)))

    def iterate_batches(self) -> Iterator[Any]:
        """Yield batches of all training rows, without shuffling."""
        for part in torch.split(torch.as_tensor(self.rows), PREDICTION_BATCHES * self.trainer.batch_size):
            yield self.take_batch(part)

    def run_step(self, rows: Tensor) -> Tensor:
        """Update the weights with the mean loss of these rows, and return the sum of this process's losses."""
        state, trainer = self.state, self.trainer
        factor = optimizers.rate_factor(trainer.schedule, trainer.warmup, state.step, self.n_steps, state.epoch)
        for group, rate in zip(self.base_optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        closure = partial(self.compute_gradients, rows)
        summed: Tensor = closure() if self.sam is None else self.sam.compute_gradients(closure)
        if trainer.clip is not None:
            self.fabric.strategy.precision.unscale_gradients(self.base_optimizer)
            clip_gradients(self.model.parameters(), trainer.clip)  # Fabric does not clip row-sparse gradients.
        self.optimizer.step()
        return summed

    def compute_gradients(self, rows: Tensor) -> Tensor:
        """Compute the gradients of the mean loss of these rows, and return the sum of this process's losses."""
        fabric = self.fabric
        self.optimizer.zero_grad()
        local_rows = rows[fabric.global_rank :: fabric.world_size]
        weight = fabric.world_size / len(rows) if len(local_rows) else 0.0  # DDP averages over processes.
        if not len(local_rows):  # Every process has to take part, so a process without rows contributes zero gradients.
            local_rows = rows[:2]
        n_parts = min(self.trainer.accumulate, max(len(local_rows) // 2, 1))  # Batch norm needs two items.
        parts = local_rows.tensor_split(n_parts)
        summed = torch.zeros((), device=fabric.device)
        for i, part in enumerate(parts):
            with fabric.no_backward_sync(self.wrapped_model, enabled=i + 1 < len(parts)):
                loss = self.wrapped_model(*self.take_batch(part))
                fabric.backward(loss * weight)
            summed += loss.detach() if weight else 0
        return summed

    def update_best(self, entry: dict[str, float]) -> None:
        """Store the weights if the epoch has the best metric so far, or set `stopped` if patience is exhausted."""
        trainer, trace = self.trainer, self.state.trace
        sign = -1 if trainer.monitor == "cross-entropy" else 1
        before = -math.inf if trace.best_epoch is None else sign * trace.epochs[trace.best_epoch - 1][trainer.monitor]
        if sign * entry[trainer.monitor] >= before:  # Of equally good epochs, the latest is trained longest.
            trace.best_epoch = int(entry["epoch"])
            self.state.best_weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        elif trainer.patience is not None and entry["epoch"] - (trace.best_epoch or 0) >= trainer.patience:
            trace.stopped = True


def _sum_losses(sums: list[Tensor]) -> float:
    """Sum losses on the CPU, which waits for the device once per epoch instead of once per step."""
    return float(torch.stack(sums).cpu().double().sum()) if sums else 0.0


def derive_seed(seed: int, place: int) -> int:
    """Return a seed for one position in a run, which is independent of the seeds of other positions."""
    return int(np.random.SeedSequence((seed, place + 2**31)).generate_state(1, np.uint32)[0])
