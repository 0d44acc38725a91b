"""Devices and random generators of training runs, and lightning-fabric, which provides precision and processes."""

from __future__ import annotations

import importlib
import logging
import math
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from dissensus.common.exceptions import OutOfRange
from dissensus.common.parameters import param
from dissensus.learning.exceptions import MissingDevice, WrongPrecision
from dissensus.messages import ParameterName

_RNG_LOCK = threading.RLock()
ALLOWED_DEVICES = "be 'auto', 'cpu', 'cuda', 'cuda:1' … or 'mps'"


def resolve_device(device: str) -> torch.device:
    """Return torch's device with this name, or the best device of this machine if the name is "auto"."""
    kind, _, index = str(device).partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (index and not (kind == "cuda" and index.isdecimal())):
        raise OutOfRange(name=ParameterName("device"), allowed=ALLOWED_DEVICES, value=device)
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if kind == "auto":  # "mps" is not chosen, because it is untested.
        kind = "cuda" if available["cuda"] else "cpu"
    if not available[kind] or (index and int(index) >= torch.cuda.device_count()):
        raise MissingDevice(device=device)
    return torch.device(kind, int(index)) if index else torch.device(kind)


DEVICE_PARAM: Any = param(
    "auto",
    "device to compute on",
    check=lambda device: resolve_device(device) is not None,
    must=f"must {ALLOWED_DEVICES}",
)


def gpu_indices(device: torch.device) -> list[int]:
    """Return the indices of the GPUs whose random generators a run uses."""
    return [device.index or 0] if device.type == "cuda" else []


def measure_free_memory(device: torch.device) -> float:
    """Return the free bytes of a GPU, or infinity for other devices."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf


@contextmanager
def isolated_rng(seed: int | None = None, devices: Iterable[int] = ()) -> Iterator[None]:
    """Seed torch's random generators, and restore their state afterwards.

    A lock makes threads wait for each other, so that concurrent fits give the same results as fits one by one.
    """
    with _RNG_LOCK, torch.random.fork_rng(list(devices)):
        if seed is not None:
            torch.manual_seed(seed)
        yield


@contextmanager
def single_thread() -> Iterator[None]:
    """Use a single thread in torch and NumPy, and restore the number of threads afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def make_fabric(device: str, precision: str, processes: int) -> Any:
    """Return a fabric for a device, a precision and a number of processes."""
    where, exact = resolve_device(device), precision
    if exact == "auto":
        exact = "bf16-mixed" if where.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
    make, log = import_fabric(), logging.getLogger(f"{find_fabric_module()}.utilities.rank_zero")
    level = log.level
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(GPU|MPS) available but not used.*")
        log.setLevel(logging.ERROR)  # Lightning's advice on devices and precision does not apply to our parameters.
        try:
            return make(
                accelerator=where.type,
                devices=processes if where.index is None else [where.index],
                precision=exact,
                strategy="ddp_spawn" if processes > 1 else "auto",
            )
        except ValueError as error:
            raise WrongPrecision(device=device, precision=precision, reason=str(error)) from error
        finally:
            log.setLevel(level)


def find_fabric_module() -> str:
    """Return the name of the installed module that has `Fabric`: that of lightning-fabric or of lightning."""
    if find_spec("lightning_fabric") is not None:
        return "lightning_fabric"
    if find_spec("lightning") is None:
        raise ImportError(name="lightning_fabric")
    return "lightning.fabric"


def import_fabric() -> Any:
    """Import `Fabric`; this is called when training begins, because the import takes 3 s."""
    return importlib.import_module(find_fabric_module()).Fabric
