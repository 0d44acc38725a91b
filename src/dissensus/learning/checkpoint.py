"""State of a training run, and the checkpoint file from which a killed run continues.

On the CPU, a continued run gives exactly the result of an uninterrupted run. The file contains the weights, the states
of the optimiser and the random generators, the position in the epoch and the best weights so far. The first process
writes the file, and all processes read it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dissensus.learning.devices import gpu_indices
from dissensus.learning.exceptions import CheckpointOfAnotherRun
from dissensus.learning.storage import make_folder, read_tree, write_tree

CHECKPOINT_FILE = "checkpoint.safetensors"
CHECKPOINT_KIND = "checkpoint"


@dataclass
class Trace:
    """Metrics per epoch, and the best epoch."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int | None = None  # epoch whose weights were kept, counted from 1; None for the last epoch
    stopped: bool = False  # True if patience ended the run early


@dataclass
class TrainingState:
    """Position and results of a training run."""

    trace: Trace = field(default_factory=Trace)
    best_weights: dict[str, Tensor] | None = None  # weights of the best epoch so far
    epoch: int = 0  # number of finished epochs
    step_in_epoch: int = 0  # number of finished steps of this epoch
    step: int = 0  # number of finished steps of all epochs
    epoch_loss: float = 0.0  # sum of the losses of this epoch so far


class Checkpoint:
    """Checkpoint file of a run, which is written every `checkpoint_every` seconds if a folder is set."""

    def __init__(self, trainer: Any, key: str, fabric: Any, model: nn.Module, optimizer: torch.optim.Optimizer):
        self.path = None if trainer.checkpoint is None else Path(trainer.checkpoint) / CHECKPOINT_FILE
        if self.path is not None:
            make_folder(self.path.parent)
        self.every, self.key, self.model, self.optimizer = trainer.checkpoint_every, key, model, optimizer
        self.device, self.writes = fabric.device, fabric.global_rank == 0
        self.written = time.monotonic()

    def read(self) -> TrainingState:
        """Load weights, optimiser and generators, and return the training state, which is initial without a file."""
        if self.path is None or not self.path.exists():
            return TrainingState()
        found = read_tree(self.path, CHECKPOINT_KIND)
        if found["key"] != self.key:
            raise CheckpointOfAnotherRun(path=self.path)
        self.model.load_state_dict(found["model"])
        self.optimizer.load_state_dict(found["optimizer"])
        torch.set_rng_state(found["rng"])
        if gpu_indices(self.device) and found["cuda_rng"] is not None:
            torch.cuda.set_rng_state(found["cuda_rng"], self.device)
        return TrainingState(**found["state"] | {"trace": Trace(**found["state"]["trace"])})

    def is_due(self) -> bool:
        """Return True if the next checkpoint should be written now."""
        return bool(time.monotonic() - self.written > self.every)

    def write(self, state: TrainingState) -> None:
        """Write the state if this is the first process and a folder is set."""
        self.written = time.monotonic()
        if self.path is None or not self.writes:
            return
        tree: dict[str, Any] = {"key": self.key, "state": {**vars(state), "trace": vars(state.trace)}}
        tree |= {"model": dict(self.model.state_dict()), "optimizer": self.optimizer.state_dict()}
        tree["rng"] = torch.get_rng_state()
        tree["cuda_rng"] = torch.cuda.get_rng_state(self.device) if gpu_indices(self.device) else None
        write_tree(self.path, tree, CHECKPOINT_KIND)
