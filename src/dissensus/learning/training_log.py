"""Reports of a training run, which are passed to `on_step`, a CSV file and TensorBoard.

Every epoch has one entry with the epoch, step, loss, learning_rate and seconds. If there are validation items, it also
has cross-entropy, accuracy and macro-f1. The entry is passed to `on_step(epoch, loss)` if it has a parameter `entry`.
"""

from __future__ import annotations

import csv
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path

from dissensus.common.exceptions import CannotWrite
from dissensus.learning.exceptions import TensorBoardMissing

LOG_FILE = "log.csv"
LOG_COLUMNS = ("run", "epoch", "step", "loss", "learning_rate", "seconds", "cross-entropy", "accuracy", "macro-f1")
Entry = dict[str, float]


def call_on_step(on_step: Callable[..., None] | None, epoch: int, loss: float, entry: Entry) -> None:
    """Call `on_step` with (epoch, loss), and with `entry` if it has such a parameter."""
    if on_step is not None:
        whole = "entry" in inspect.signature(on_step).parameters
        on_step(epoch, loss, **({"entry": entry} if whole else {}))


class TrainingLog:
    """A folder with `log.csv` and events for TensorBoard, to which every run is appended."""

    def __init__(self, folder: str | Path):
        self.file, self.events = Path(folder) / LOG_FILE, None
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            rows = list(csv.DictReader(self.file.read_text("utf-8").splitlines())) if self.file.exists() else []
            if not rows:
                self.file.write_text(",".join(LOG_COLUMNS) + "\n", encoding="utf-8")
        except OSError as error:
            raise CannotWrite(path=Path(folder), reason=error.strerror or str(error)) from error
        self.run = 1 + int(rows[-1]["run"]) if rows else 1
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            if self.run == 1:
                warnings.warn(TensorBoardMissing(folder=str(folder), file=LOG_FILE), stacklevel=4)
            return
        self.events = SummaryWriter(str(self.file.with_name(f"run-{self.run}")))

    def __call__(self, entry: Entry) -> None:
        """Write the entry of an epoch as one line in one write, so that concurrent readers see complete lines only."""
        with self.file.open("a", newline="", encoding="utf-8") as file:
            values = [({"run": self.run} | entry).get(key, "") for key in LOG_COLUMNS]
            csv.writer(file).writerow([int(v) if isinstance(v, float) and v.is_integer() else v for v in values])
        if self.events is not None:
            for key, value in entry.items():
                if key not in ("epoch", "step"):
                    self.events.add_scalar(key, value, int(entry["epoch"]))
            self.events.flush()


def make_reporter(on_step: Callable[..., None] | None, folder: str | Path | None) -> Callable[[Entry], None]:
    """Return a function that calls `on_step` and writes to the log in `folder`, unless these are None."""
    log = None if folder is None else TrainingLog(folder)

    def report(entry: Entry) -> None:
        if log is not None:
            log(entry)
        call_on_step(on_step, int(entry["epoch"]), entry["loss"], entry)

    return report
