"""The only training loop. Device, precision and processes are lightning-fabric's, the order of things is ours.

A *step* sees `batch_size` items, whatever it is made of: `accumulate` parts one after another, or parts on several
processes. The model returns the sum of its items' losses and the sum over a step is divided by the step's items once,
so parts change nothing but rounding. Rows are drawn by a generator keyed on seed and epoch, everything else (dropout,
mixup) by torch's own generator, which is seeded for the run and given back afterwards as it was.

Of several processes each has a range of the items that teach, of equal numbers: it reads their inputs and targets, puts
them on its device, and nobody else's. A step is the same items whatever the number of processes, each process taking
those that are its own, so that the result is that of one process but for rounding and for what is drawn (dropout,
mixup) or looks at a whole part (batch normalisation). The price is that shares of a step are of unequal length, by
about the square root of their mean; a process with none looks at two of its items and counts them as nothing. What
is the same for all is held by all: the network (also what it has per item, such as LIA's q), the numbers of the items
that teach, 8 bytes each; and validation, which is done by the first. Before an epoch, an objective that asks to see all
items gets them from their owners, a part at a time.

A checkpoint holds weights, the optimiser's state, the generators, the place in the epoch and the best weights so far;
a run that is killed goes on from it to the same bits on the CPU. A last batch of one item joins the batch before it:
statistics over one item are none.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dissensus._types import IntArray, OnStep
from dissensus.exceptions import BadParameter, DataError, UnreadableFile
from dissensus.learning.rows import Joint, RowAdam, clip_gradients, drop_zero_rows
from dissensus.learning.sam import SAM
from dissensus.learning.storage import make_folder, read_tree, write_tree
from dissensus.parameters import is_number, is_whole

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
}
PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed")
HIGHER_IS_BETTER = {"accuracy": True, "macro-f1": True, "cross-entropy": False}
"""The metrics that a run may be stopped by."""
AT_ONCE = 4  # batches that are looked at together: without gradients they need less memory than one does in training
RESIDENT = 0.5  # share of a device's free memory that the data may take
CHECKPOINT = "checkpoint.safetensors"


def fabric_class() -> Any:
    """Of lightning-fabric, or of lightning, which holds the same under another name."""
    whole = find_spec("lightning_fabric") is None and find_spec("lightning") is not None
    return importlib.import_module("lightning.fabric" if whole else "lightning_fabric").Fabric


class Data(Protocol):
    """What batches are taken from: `take(rows)` gives what the model's forward takes."""

    @property
    def nbytes(self) -> int: ...  # noqa: D102

    def take(self, rows: Tensor) -> tuple[Any, ...]: ...  # noqa: D102

    def part(self, start: int, stop: int) -> Data: ...  # noqa: D102

    def to(self, device: Any) -> Data: ...  # noqa: D102


@dataclass
class Trace:
    """What happened: one entry per epoch, and which one was kept."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    best: int | None = None  # the epoch whose weights were kept, from 1; None: the last
    stopped: bool = False  # by patience, before the epochs ran out


@dataclass(frozen=True)
class Trainer:
    """How to train; see `CrowdClassifier` for what the keywords mean."""

    epochs: int = 50
    batch_size: int = 64
    accumulate: int = 1
    optimizer: str | Mapping[str, Any] | Callable[..., torch.optim.Optimizer] = "adam"
    weight_decay: float = 0.0
    schedule: str | Mapping[int, float] = "constant"
    warmup: float = 0.0
    sam: float | Mapping[str, Any] | None = None
    clip: float | None = None
    patience: int | None = None
    monitor: str = "cross-entropy"
    device: str = "auto"
    precision: str = "auto"
    processes: int = 1
    compile: bool = False
    checkpoint: str | Path | None = None
    checkpoint_every: float = 30.0
    seed: int = 0

    def check(self) -> None:
        """BadParameter where a keyword is out of range."""
        for name, least in (("epochs", 0), ("batch_size", 1), ("accumulate", 1), ("processes", 1), ("patience", 1)):
            value = getattr(self, name)
            if not (is_whole(value) and value >= least) and not (name == "patience" and value is None):
                raise BadParameter(f"{name} must be a whole number, at least {least}, got {value!r}.")
        for name, least in (("weight_decay", 0), ("checkpoint_every", 0), ("warmup", 0)):
            value = getattr(self, name)
            if not (is_number(value) and value >= least):
                raise BadParameter(f"{name} must be a number, at least {least}, got {value!r}.")
        if self.warmup > 1:
            raise BadParameter(f"warmup must be a share of the steps, 0 to 1, got {self.warmup}.")
        if self.clip is not None and not (is_number(self.clip) and self.clip > 0):
            raise BadParameter(f"clip must be a number above 0, or None, got {self.clip!r}.")
        named = isinstance(self.schedule, str) and self.schedule in ("constant", "linear", "cosine")
        factors = isinstance(self.schedule, Mapping) and all(
            is_whole(at) and is_number(factor) and factor >= 0 for at, factor in self.schedule.items()
        )
        if not (named or factors):
            raise BadParameter(
                f"schedule must be 'constant', 'linear', 'cosine' or {{epoch: factor}}, got {self.schedule!r}."
            )
        if self.precision not in PRECISIONS:
            raise BadParameter(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}.")
        if self.place().index is not None and self.processes > 1:
            raise BadParameter(f"device {self.device!r} is one; for {self.processes} processes say 'cuda'.")
        if self.monitor not in HIGHER_IS_BETTER:
            raise BadParameter(f"monitor must be one of {', '.join(HIGHER_IS_BETTER)}, got {self.monitor!r}.")
        if self.sam is not None:
            if not isinstance(self.sam, Mapping) and not is_number(self.sam):
                raise BadParameter(f"sam must be ρ, a mapping with rho and adaptive, or None, got {self.sam!r}.")
            SAM(torch.optim.SGD([torch.zeros(1)]), **_sam_options(self.sam))
        if not callable(self.optimizer) and self._named_optimizer()[0] not in OPTIMIZERS:
            raise BadParameter(
                f"optimizer must be one of {', '.join(OPTIMIZERS)}, a mapping with such a 'name', or a function of "
                f"parameter groups; got {self.optimizer!r}."
            )

    def place(self) -> torch.device:
        """The device asked for, or the best that there is."""
        kind, _, index = str(self.device).partition(":")
        if kind not in ("auto", "cpu", "cuda", "mps") or (index and not (kind == "cuda" and index.isdecimal())):
            raise BadParameter(f"device must be 'auto', 'cpu', 'cuda', 'cuda:1' … or 'mps', got {self.device!r}.")
        there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
        if kind == "auto":  # never mps, where nobody has tried it
            kind = "cuda" if there["cuda"] else "cpu"
        if not there[kind] or (index and int(index) >= torch.cuda.device_count()):
            raise BadParameter(f"this machine has no device {self.device!r}; take 'auto' or 'cpu'.")
        return torch.device(kind, int(index)) if index else torch.device(kind)

    def fabric(self) -> Any:
        """A fabric for the device, precision and processes asked for."""
        device, precision = self.place(), self.precision
        if precision == "auto":
            precision = "bf16-mixed" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
        make = fabric_class()
        with _quiet():
            try:
                return make(
                    accelerator=device.type,
                    devices=self.processes if device.index is None else [device.index],
                    precision=precision,
                    strategy="ddp_spawn" if self.processes > 1 else "auto",
                )
            except ValueError as error:
                raise BadParameter(f"device {self.device!r}, precision {self.precision!r}: {error}") from error

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
        """Train `model` in place.

        Parameters
        ----------
        model : Module
            `model(*data.take(rows))` is the sum of these rows' losses. `model.begin_epoch(epoch, epochs, walk)`, where
            there is one, is called before every epoch; `walk()` gives what forward takes, of all rows that teach.
        rows : (n,) int
            The rows that teach.
        groups : list of dict
            Parameter groups with `params` and `lr`, as torch has them; parameters with `row_sparse` go to `RowAdam`.
        evaluate : callable, optional
            Model → metrics by name, after every epoch; `monitor` is one of them.
        key : str
            What the run is about; a checkpoint of another key is refused.
        """
        self.check()
        if len(rows) == 0:
            raise DataError("no item has anything to learn from: none has annotations (or gold) left to train on.")
        if self.patience is not None and evaluate is None:
            raise BadParameter("patience needs validation: give `validation` to fit, or set patience=None.")
        if self.processes > len(rows):
            raise BadParameter(f"{self.processes} processes are to share {len(rows)} items that teach; take fewer.")
        fabric = self.fabric()
        key = hashlib.blake2b(
            repr((key, self.epochs, self.batch_size, str(self.optimizer), self.weight_decay, self.schedule, self.warmup,
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

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimiser of these groups; row-sparse parameters have their own inside it."""
        dense, sparse = [], []
        for group in groups:
            parts = [[p for p in group["params"] if getattr(p, "row_sparse", False) is kind] for kind in (False, True)]
            dense += [{**group, "params": parts[0]}] if parts[0] else []
            sparse += [{**group, "params": parts[1]}] if parts[1] else []
        made: torch.optim.Optimizer
        if callable(self.optimizer):
            made = self.optimizer(dense)
        else:
            name, options = self._named_optimizer()
            kind, defaults = OPTIMIZERS[name]
            # one pass over the weights instead of ten: a third of the time of a small network's step
            fused = all(p.device.type in ("cpu", "cuda") for group in dense for p in group["params"])
            try:
                made = kind(dense, **{"weight_decay": self.weight_decay, "fused": fused, **defaults, **options})
            except (TypeError, ValueError) as error:
                raise BadParameter(f"optimizer {self.optimizer!r}: {error}.") from error
        return Joint(made, RowAdam(sparse)) if sparse else made

    def factor(self, step: int, steps: int, epoch: int) -> float:
        """What the learning rates are multiplied by in this step of so many."""
        warm = max(round(self.warmup * steps), 0)
        if step < warm:
            return (step + 1) / (warm + 1)
        if isinstance(self.schedule, Mapping):
            return math.prod(f for at, f in self.schedule.items() if epoch >= at)
        done = (step - warm) / max(steps - warm, 1)
        return {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[self.schedule]

    def batches(self, rows: IntArray, epoch: int) -> list[Tensor]:
        """The steps of an epoch: all rows once, in an order that only seed and epoch decide."""
        draw = torch.Generator().manual_seed(mixed(self.seed, epoch))
        order = torch.as_tensor(rows)[torch.randperm(len(rows), generator=draw)]
        steps = list(torch.split(order, self.batch_size))
        if len(steps) > 1 and len(steps[-1]) == 1:
            steps[-2:] = [torch.cat(steps[-2:])]
        return steps

    def _named_optimizer(self) -> tuple[str, dict[str, Any]]:
        if isinstance(self.optimizer, Mapping):
            options = dict(self.optimizer)
            return options.pop("name", None), options
        return self.optimizer, {}  # type: ignore[return-value]


class _Process:
    """What a process that fabric starts is to do; the first leaves the weights in a file."""

    def __init__(self, file: Path, how: Trainer, model: nn.Module, *rest: Any):
        self.file, self.how, self.model, self.rest = file, how, model, rest

    def __call__(self, fabric: Any) -> Trace:
        model = copy.deepcopy(self.model)  # what came with the call lies in memory that all processes share
        trace = _train(fabric, self.how, model, *self.rest)
        if fabric.global_rank == 0:
            save_file({name: value.cpu().clone() for name, value in model.state_dict().items()}, self.file)
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
    device, rank, world = fabric.device, fabric.global_rank, fabric.world_size
    parameters = list(model.parameters())
    if how.compile:
        model.compile()
    wrapped = fabric.setup_module(model)
    groups = [{**group, "params": [parameters[i] for i in group["params"]]} for group in groups]
    base = how.make_optimizer(groups)
    sam = None if how.sam is None else SAM(base, model=model, **_sam_options(how.sam))
    optimizer = fabric.setup_optimizers(base)
    rates = [group["lr"] for group in base.param_groups]
    constrained: list[Any] = [part for part in model.modules() if hasattr(part, "after_step")]
    begin_epoch = getattr(model, "begin_epoch", None)
    edges = shares(rows, world)
    first, stop = edges[rank : rank + 2].tolist()
    if world > 1:
        data = data.part(first, stop)
    resident = device.type == "cpu"
    if not resident and data.nbytes < RESIDENT * _free(device):
        data, resident = data.to(device), True

    trace, best, epoch, place, total = Trace(), None, 0, 0, 0.0
    steps_in_all = how.epochs * len(how.batches(rows, 0))
    step = 0
    saved = time.monotonic()
    path = None if how.checkpoint is None else Path(how.checkpoint) / CHECKPOINT
    if path is not None:
        make_folder(path.parent)
    devices = gpus(device)
    with torch.random.fork_rng(devices):
        torch.manual_seed(mixed(how.seed, -1 - rank))
        if path is not None and path.exists():
            state = read_tree(path, "checkpoint")
            if state["key"] != key:
                raise UnreadableFile(
                    f"{path} is the checkpoint of another run (other data or keywords); remove it, or name another "
                    "folder."
                )
            model.load_state_dict(state["model"])
            base.load_state_dict(state["optimizer"])
            trace = Trace(state["trace"], state["best_epoch"], state["stopped"])
            best, epoch, place, step, total = (
                state["best"],
                state["epoch"],
                state["place"],
                state["step"],
                state["total"],
            )
            torch.set_rng_state(state["rng"])
            if devices and state["cuda_rng"] is not None:
                torch.cuda.set_rng_state(state["cuda_rng"], device)

        def store() -> None:
            if path is None or rank:
                return
            write_tree(
                path,
                {
                    "key": key, "model": dict(model.state_dict()), "optimizer": base.state_dict(), "best": best,
                    "trace": trace.epochs, "best_epoch": trace.best, "stopped": trace.stopped, "epoch": epoch,
                    "place": place, "step": step, "total": total, "rng": torch.get_rng_state(),
                    "cuda_rng": torch.cuda.get_rng_state(device) if devices else None,
                },
                "checkpoint",
            )  # fmt: skip

        def walk() -> Iterator[Any]:
            """All rows that teach, in their order; from those who have them."""
            for owner in range(world):
                for part in torch.split(_between(torch.as_tensor(rows), edges, owner), AT_ONCE * how.batch_size):
                    batch = data.take(part.to(device) if resident else part) if owner == rank else None
                    if world > 1:
                        batch = fabric.broadcast(_moved(batch, torch.device("cpu")), owner)
                    yield _moved(batch, device)

        def passed(rows: Tensor) -> Tensor:
            """Gradients of the step's mean loss; the sum of this process's losses."""
            optimizer.zero_grad()
            mine = _between(rows, edges, rank)
            nothing = len(mine) == 0
            if nothing:  # all processes have to take part: gradients of zero, of items that it has
                mine = own[:2]
            parts = mine.tensor_split(min(how.accumulate, max(len(mine) // 2, 1)))  # statistics over one item are none
            summed = torch.zeros((), device=device)
            for i, part in enumerate(parts):
                batch = data.take(part.to(device) if resident else part)
                batch = batch if resident else _moved(batch, device)
                with fabric.no_backward_sync(wrapped, enabled=i + 1 < len(parts)):
                    loss = wrapped(*batch)
                    # processes are averaged over: undo that
                    fabric.backward(loss * (0.0 if nothing else world / len(rows)))
                summed += 0 if nothing else loss.detach()
            if world > 1 and 0 in torch.bincount(torch.bucketize(rows, edges[1:], right=True), minlength=world):
                drop_zero_rows(parameters)  # somebody had nothing: what it looked at was not touched
            return summed

        own = _between(torch.as_tensor(rows), edges, rank)
        model.train()
        while epoch < how.epochs and not trace.stopped:
            batches = how.batches(rows, epoch)
            if (
                world > 1
            ):  # each draws for itself; a checkpoint, which the first writes at an epoch's end, need not know
                torch.manual_seed(mixed(how.seed, epoch + 1 + rank * 2**20))
            began = time.monotonic()
            if begin_epoch is not None and place == 0:  # in the middle of an epoch, what it did is in the checkpoint
                begin_epoch(epoch, how.epochs, walk)
            sums: list[Tensor] = []
            while place < len(batches):
                factor = how.factor(step, steps_in_all, epoch)
                for group, rate in zip(base.param_groups, rates, strict=True):
                    group["lr"] = rate * factor
                closure = partial(passed, batches[place])
                sums.append(closure() if sam is None else sam.around(closure))
                if how.clip is not None:
                    fabric.strategy.precision.unscale_gradients(base)
                    clip_gradients(parameters, how.clip)  # not fabric's, which knows nothing of row-sparse gradients
                optimizer.step()
                for part in constrained:
                    part.after_step()
                place, step = place + 1, step + 1
                late = time.monotonic() - saved > how.checkpoint_every
                if path is not None and world == 1 and place < len(batches) and late:
                    total, sums = total + _added(sums), []
                    store()
                    saved = time.monotonic()
            total += _added(sums)
            if world > 1:
                total = float(fabric.all_reduce(torch.tensor(total, dtype=torch.float32), reduce_op="sum"))
            loss = total / len(rows)
            if not math.isfinite(loss):
                raise DataError(
                    f"the loss became {loss} in epoch {epoch + 1}; lower the learning rate, or clip gradients (clip=1)."
                )
            entry = {"epoch": float(epoch + 1), "loss": loss, "seconds": time.monotonic() - began}
            if evaluate is not None:
                model.eval()
                entry |= fabric.broadcast(evaluate(model) if rank == 0 else None)  # all are to agree when to stop
                model.train()
                best = _judge(how, trace, entry, model, best)
            trace.epochs.append(entry)
            epoch, place, total = epoch + 1, 0, 0.0
            if on_step is not None:
                on_step(epoch, loss)
            if time.monotonic() - saved > how.checkpoint_every or epoch == how.epochs or trace.stopped:
                store()
                saved = time.monotonic()
    if best is not None:
        model.load_state_dict(best)
    model.eval()
    return trace


def shares(rows: IntArray, world: int) -> Tensor:
    """(world + 1,) where the ranges of the processes begin, and the last ends: as many of these rows in each."""
    order, n = np.sort(rows), len(rows)
    return torch.as_tensor([*(int(order[n * rank // world]) for rank in range(world)), int(order[-1]) + 1])


def _between(rows: Tensor, edges: Tensor, rank: int) -> Tensor:
    """Those of these rows that a process has, counted from the first that it has; of one process, all as they are."""
    if len(edges) == 2:
        return rows
    return rows[(rows >= edges[rank]) & (rows < edges[rank + 1])] - edges[rank]


def _judge(how: Trainer, trace: Trace, entry: dict[str, float], model: nn.Module, best: Any) -> Any:
    """The weights to keep, after an epoch's metrics; says in `trace` which they are and whether it is time to stop."""
    sign = 1 if HIGHER_IS_BETTER[how.monitor] else -1
    before = -math.inf if trace.best is None else sign * trace.epochs[trace.best - 1][how.monitor]
    if sign * entry[how.monitor] > before:
        trace.best = int(entry["epoch"])
        return {name: value.detach().clone() for name, value in model.state_dict().items()}
    if how.patience is not None and entry["epoch"] - (trace.best or 0) >= how.patience:
        trace.stopped = True
    return best


@contextmanager
def _quiet() -> Iterator[None]:
    """Without lightning's advice on devices and precision, which was asked for by nobody."""
    logs = [logging.getLogger(f"{name}.utilities.rank_zero") for name in ("lightning_fabric", "lightning.fabric")]
    levels = [log.level for log in logs]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(GPU|MPS) available but not used.*")
        for log in logs:
            log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)


def _sam_options(sam: float | Mapping[str, Any]) -> dict[str, Any]:
    options = dict(sam) if isinstance(sam, Mapping) else {"rho": sam}
    if extra := set(options) - {"rho", "adaptive"}:
        raise BadParameter(f"sam has keywords rho and adaptive, got {', '.join(sorted(extra))}.")
    return options


def _added(sums: list[Tensor]) -> float:
    """One wait for the device per epoch, not per step."""
    return float(torch.stack(sums).cpu().double().sum()) if sums else 0.0


def gpus(device: torch.device) -> list[int]:
    """Whose generators a run draws from beside the CPU's."""
    return [device.index or 0] if device.type == "cuda" else []


def mixed(seed: int, place: int) -> int:
    """A seed for one place of a run: neighbours have nothing in common."""
    return int(np.random.SeedSequence((seed, place + 2**31)).generate_state(1, np.uint32)[0])


def _free(device: torch.device) -> float:
    return float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else math.inf


def _moved(value: Any, device: torch.device) -> Any:
    """Tensors of a nested batch on the device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_moved(item, device) for item in value)
    return value
