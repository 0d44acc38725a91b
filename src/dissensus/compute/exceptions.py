"""Errors about threads, engines, and tables on a disk or in Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from dissensus.exceptions import BadParameter, DataError, MissingExtra, UnreadableFile


class TooFewThreads(BadParameter):
    template = "{param[threads]} must be at least 1, got {threads}."
    threads: int


class UnknownEngine(BadParameter):
    template = (
        "{param[engine]} must be {names}, or an engine with its options, such as Disk(…), Torch(…) or Spark(…); got "
        "{engine!r}."
    )
    names: str
    engine: Any


class WrongEngine(BadParameter):
    template = "a table {location} can be fitted only by methods with {param[engine]}; set it to {engine!r}."
    location: str
    engine: str


class NoFolderForCodes(BadParameter):
    template = "the engine 'disk' stores a table in a folder; name the folder, such as Disk(folder='work')."


class OneLabelPerRow(BadParameter):
    template = "the engine {engine!r} needs one label per row, and this table has {row_content}; {advice}."
    engine: str
    role: Literal["proba", "question"]

    @property
    def row_content(self) -> str:
        """The labels that the table has instead."""
        return "class probabilities" if self.role == "proba" else "several questions"

    @property
    def advice(self) -> str:
        """The action that the user can take."""
        return "use the engine 'local'" if self.role == "proba" else "fit one question at a time"


class BadClusterAddress(BadParameter):
    template = (
        "{param[master]} must be an address such as 'spark://host:7077', 'local[4]', 'yarn' or 'k8s://https://host', "
        "got {master!r}; leave it out to use Spark's own settings or this machine."
    )
    master: str


class NoCluster(BadParameter):
    template = (
        "no Spark cluster listens at {param[master]} {master!r} ({reason}); start one there, correct the address, or "
        "leave it out to run on this machine."
    )
    master: str
    reason: str


class ClusterNotStarted(BadParameter):
    template = (
        "Spark does not start at {param[master]} {master!r} ({reason}); correct the address, or leave it out to use "
        "Spark's own settings or this machine."
    )
    master: str
    reason: str


class SparkNotStarted(MissingExtra):
    template = "Spark does not start ({reason}); correct Spark's settings, or name a cluster with {param[master]}."
    reason: str


class NoJava(MissingExtra):
    template = "Spark does not start ({reason}); {param[engine]} 'spark' needs Java 17 or later in JAVA_HOME or PATH."
    reason: str


class NoDevice(BadParameter):
    template = "this machine has no device {device!r}; use 'cpu', or leave the device out."
    device: str


class NoRows(DataError):
    template = "the table has no rows; it needs at least one annotation."


class BlankNames(DataError):
    template = "column {column!r}: {blank:,} of {total:,} rows are empty; remove these rows."
    column: str
    blank: int
    total: int


class BadWeights(DataError):
    template = "{n_bad:,} of {total:,} weights are negative or missing; weights must be 0 or more."
    n_bad: int
    total: int


class WrongFileSize(DataError):
    template = "{path} has {size:,} bytes, which does not fit its {entries:,} entries; delete its folder and fit again."
    path: Path
    size: int
    entries: int


class BadItemOffsets(DataError):
    template = "{path} does not divide {rows:,} rows into {items:,} items; delete its folder and fit again."
    path: Path
    rows: int
    items: int


class NotParquet(UnreadableFile):
    template = "{path} is not a Parquet file, which {param[engine]} {engine!r} needs; convert it, or use 'local'."
    path: Path
    engine: str


class NoSuchFile(UnreadableFile):
    template = "no such file: {source}; give a path, or a pattern such as 'labels/*.parquet'."
    source: str


class CannotSort(UnreadableFile):
    template = "{source} cannot be sorted: {reason}."
    source: str
    reason: str


class SparkCannotFind(UnreadableFile):
    template = "{source}: Spark finds no such {wanted}; give a table, or files that all executors can read."
    source: str
    wanted: Literal["table", "Parquet files"]


class SparkCannotRead(UnreadableFile):
    template = "Spark cannot read {source} ({reason}); give a table or Parquet files."
    source: str
    reason: str


class ItemsLost(DataError):
    template = "Spark returned {n_found:,} of {n_expected:,} items; turn off spark.speculation and fit again."
    n_found: int
    n_expected: int


class FrameNotStable(DataError):
    template = "the data frame returned {n_first:,} rows, then {n_second:,} rows; write it to Parquet and fit the file."
    n_first: int
    n_second: int
