"""Convert a Spark frame to parts of coded rows, one part per partition, for the spark engine.

Spark sorts the rows by (item, annotator, label) into ranges of items and joins the codes of annotators and classes.
A Python worker converts each range to the arrays of one `TablePart`. Spark caches the parts in the memory or on the
disks of the executors. If an executor is lost, its parts are computed again. The content is the same, because it does
not depend on the order in which rows arrive. The names of items are cached on the disks.

The names of annotators and classes are sent to the driver, but the names of items are not. A part has its own annotator
codes (`TablePart.annotators` maps them to codes of the whole table), so a worker needs only the parameters of its
annotators.
"""

from __future__ import annotations

import os
import pickle
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.extras import import_extra
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.compute.engines import Spark
from dissensus.compute.engines.base import RemoteTable
from dissensus.compute.engines.coding import check_parquet, check_row_counts, find_label_columns
from dissensus.compute.engines.local import balanced_ranges
from dissensus.compute.exceptions import (
    ClusterNotStarted,
    FrameNotStable,
    ItemsLost,
    NoCluster,
    NoJava,
    SparkCannotFind,
    SparkCannotRead,
    SparkNotStarted,
)
from dissensus.compute.rows import Rows, expand_rows, join_rows
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.exceptions import UnsupportedType
from dissensus.table.names import encode_labels

INTEGER_TYPES = ("tinyint", "smallint", "int", "bigint")  # Spark's names of integer types
ItemColumns = Callable[[Names, FloatArray, FloatArray | None], dict[str, Any]]
"""A function from names, posterior and difficulty of items to the columns of their frame."""
MASTER_TIMEOUT = 5.0  # seconds; Spark's own timeout is a minute


@dataclass(frozen=True)
class TablePart(Rows):
    """The rows of a range of items; `annotator` is an index into `annotators` (a,), codes of the whole table."""

    annotators: IntArray

    def with_table_codes(self) -> Rows:
        """Return the rows with annotator codes of the whole table."""
        return Rows(self.item_ptr, self.annotators[self.annotator], self.label, self.weight)


def make_part(rows: Rows) -> TablePart:
    """Make a part from rows with annotator codes of the whole table."""
    seen = np.zeros(int(rows.annotator.max(initial=-1)) + 1, np.bool_)
    seen[rows.annotator] = True
    own = (np.cumsum(seen, dtype=np.int32) - 1).astype(np.int32)[rows.annotator]
    return TablePart(rows.item_ptr, own, rows.label, rows.weight, np.flatnonzero(seen).astype(np.int32))


class ClusterArray:
    """An array over all items whose parts are in the cluster; `np.asarray` loads it into the driver."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, parts: Any = None, cached_rdd: Any = None):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.cached_rdd = cached_rdd  # the RDD that Spark caches for the array
        self.table: Any = None  # the fitted `ClusterTable`, if the array is a result
        self.parts = parts  # an RDD of arrays in the order of items, set by the pass that computes a result

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def item_frame(self, difficulty: FloatArray | None, columns: ItemColumns) -> Any:
        """Return the frame of items as a PySpark DataFrame; the function `columns` computes the columns."""
        from pyspark.sql.pandas.types import from_arrow_schema

        parts, schema = self._make_arrow_parts(difficulty, columns)
        frame = get_session().createDataFrame(parts, "part binary")
        return frame.mapInArrow(_from_arrow, from_arrow_schema(schema))

    def item_parts(self, difficulty: FloatArray | None, columns: ItemColumns) -> Iterator[Any]:
        """Yield the frame of items as Arrow tables on the driver, part by part."""
        parts, _ = self._make_arrow_parts(difficulty, columns)
        for (part,) in parts.toLocalIterator():
            yield pa.ipc.open_stream(part).read_all()

    def _make_arrow_parts(self, difficulty: FloatArray | None, columns: ItemColumns) -> tuple[Any, Any]:
        """Return an RDD of the frame's parts, as bytes of Arrow streams, and their schema."""
        table = self.table
        hard = None if difficulty is None else table.parts.context.broadcast(difficulty)
        none = np.empty(0, table.items.dtype), np.empty((0, *self.shape[1:])), None if hard is None else np.empty(0)
        schema = pa.schema(
            # The type of an empty column of text cannot be inferred.
            (name, pa.string() if values.dtype.kind == "O" else pa.array(values).type)
            for name, values in columns(*none).items()
        )
        write = partial(_to_arrow, columns, table.offsets, hard, schema)
        return table.names.zip(self.parts).mapPartitionsWithIndex(write), schema

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        parts = self.parts.collect()
        if sum(map(len, parts)) != len(self) and self.cached_rdd is not None:
            self.cached_rdd.unpersist()  # the cache may be incomplete with speculation, so compute it again
            parts = self.parts.collect()
        if (found := sum(map(len, parts))) != len(self):
            raise ItemsLost(n_found=found, n_expected=len(self))
        return np.concatenate([np.empty((0, *self.shape[1:]), self.dtype), *parts]).astype(
            dtype or self.dtype, copy=False
        )

    def __getitem__(self, at: Any) -> Any:
        return np.asarray(self)[at]

    def __repr__(self) -> str:
        return f"ClusterArray(shape={self.shape}, dtype={self.dtype})"


@dataclass(frozen=True, eq=False)
class ClusterTable(RemoteTable):
    """A table whose rows are in a Spark cluster, with the names and sizes of an `Annotations`."""

    location, engine = "in Spark", "spark"

    parts: Any  # RDD of `TablePart`, one for each partition with items
    names: Any  # RDD of the item names of each partition; None if the driver has the table
    cached_rdds: tuple[Any, ...]  # RDDs that Spark caches for the table
    offsets: dict[int, int]  # first item of each partition
    n_annotations: int
    items: Any
    annotators: Names
    classes: Names
    annotations_per_annotator: IntArray
    weighted: bool
    columns: dict[str, str] = field(default_factory=dict)  # column name of each role

    def load_all_rows(self) -> Rows:
        """Load all rows into the driver."""
        return join_rows([part.with_table_codes() for part in self.parts.collect()])

    def distribute(self, values: Any) -> ClusterArray:
        """Split an array over all items into parts and send them to the cluster."""
        sent = self.parts.context.broadcast(values)
        result = ClusterArray(
            values.shape, values.dtype, self.parts.mapPartitionsWithIndex(partial(_slice_by_part, sent, self.offsets))
        )
        result.table = self
        return result

    def release(self) -> None:
        """Remove the parts from the cluster's cache; Spark computes them again if they are needed."""
        for rdd in self.cached_rdds:
            rdd.unpersist()


def distribute_frame(
    source: Any,
    *,
    classes: Iterable[Any] | int | None = None,
    options: Spark | None = None,
    **columns: str | None,
) -> ClusterTable:
    """Convert a PySpark DataFrame, a table of Spark's catalogue or Parquet files to codes in the cluster.

    A string of letters, digits, `_` and dots names a table; any other string or a `Path` names Parquet files. `columns`
    names the columns as in `coding.code_parquet`. The frame must return the same rows every time.
    """
    options = options or Spark()
    frame = _open_frame(source, options.master)
    found = find_label_columns(columns, frame.columns, "spark")
    rows = frame.select(*(frame["`" + column.replace("`", "``") + "`"].alias(role) for role, column in found.items()))
    total, weighted = _check_rows(rows, found), "weight" in found
    annotator_names, count = _count_names(rows, "annotator")
    annotators, annotator_codes = naming.encode_column(annotator_names, "annotator")
    labels, _ = _count_names(rows, "label")
    class_names, label_codes, _ = encode_labels(labels, classes, ())
    rows = _replace_names_by_codes(
        _replace_names_by_codes(rows, "annotator", annotator_names, annotator_codes), "label", labels, label_codes
    )
    keys = ["item", "annotator", "label", *(["weight"] if weighted else [])]
    partitions = _choose_partition_count(frame.sparkSession, total, options)
    ranges = rows.select(*keys).repartitionByRange(partitions, "item").sortWithinPartitions(*keys)
    build = partial(_build_parts, label_type=naming.smallest_int_type(class_names.size))
    made = ranges.mapInArrow(build, "part binary, names binary").rdd.persist(_storage_level("DISK_ONLY"))
    parts = made.map(lambda row: pickle.loads(row["part"])).persist(_storage_level("MEMORY_AND_DISK"))
    counts = parts.mapPartitionsWithIndex(_count_part_rows).collect()
    counted = sum(n for _, _, n in counts)
    if counted != total:
        raise FrameNotStable(n_first=total, n_second=counted)
    *first, n_items = np.cumsum([0, *(n for _, n, _ in counts)]).tolist()
    offsets = {partition: start for (partition, _, _), start in zip(counts, first, strict=True)}
    names = made.map(lambda row: pickle.loads(row["names"]))
    kind = object if dict(rows.dtypes)["item"] == "string" else np.int64
    items = ClusterArray((n_items,), kind, names.map(naming.to_names), made)
    annotations_per_annotator = np.zeros(annotators.size, np.int64)
    annotations_per_annotator[annotator_codes] = count
    return ClusterTable(
        parts,
        names,
        (made, parts),
        offsets,
        total,
        items,
        annotators,
        class_names,
        annotations_per_annotator,
        weighted,
        found,
    )


def distribute_table(table: Annotations, options: Spark) -> ClusterTable:
    """Split a table in memory into parts and send them to the cluster; the results are returned to the driver."""
    spark, rows = get_session(options.master), expand_rows(table)
    ranges = balanced_ranges(rows.item_ptr, _choose_partition_count(spark, rows.annotator.size, options))
    ranges = [(start, stop) for start, stop in ranges if stop > start]
    parts = [make_part(rows.slice_items(start, stop)) for start, stop in ranges]
    sent = spark.sparkContext.parallelize(parts, len(parts)).persist(_storage_level("MEMORY_AND_DISK"))
    return ClusterTable(
        parts=sent,
        names=None,
        cached_rdds=(sent,),
        offsets={number: start for number, (start, _) in enumerate(ranges)},
        n_annotations=rows.annotator.size,
        items=table.items,
        annotators=table.annotators,
        classes=table.classes,
        annotations_per_annotator=np.bincount(rows.annotator, minlength=table.n_annotators),
        weighted=rows.weight is not None,
    )


def _is_local(master: str | None) -> bool:
    """Return whether `master`, or else the environment, makes Spark run on this machine only."""
    settings = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "MASTER")
    return master.startswith("local") if master else not any(os.environ.get(name) for name in settings)


def get_session(master: str | None = None) -> Any:
    """Return the active Spark session, or create one at `master` or as the environment configures it."""
    PySparkException = import_extra("pyspark.errors", "engine='spark' needs Java and", "spark").PySparkException
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    found, builder = SparkSession.getActiveSession(), SparkSession.builder
    if found is None and master is not None:
        _check_cluster_listens(master)
        builder = builder.master(master)
    if found is None and _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # other machines must not reach Spark's ports
    try:
        found = found or builder.getOrCreate()
        if "PYSPARK_PYTHON" not in os.environ and found.sparkContext.master.startswith("local"):
            found.sparkContext.pythonExec = sys.executable  # the default, `python3`, may be another installation
        return found
    except PySparkException as error:
        raise NoJava(reason=extract_cause(error)) from None
    except Py4JError as error:
        if master is None:
            raise SparkNotStarted(reason=extract_cause(error)) from None
        raise ClusterNotStarted(master=master, reason=extract_cause(error)) from None


def _check_cluster_listens(master: str) -> None:
    """Raise an error unless a cluster listens at one of the addresses in `spark://host:port,host:port`."""
    reason: Exception | None = None
    for place in master.removeprefix("spark://").split(",") if master.startswith("spark://") else ():
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_TIMEOUT).close()
        except (OSError, OverflowError) as error:
            reason = error
        else:
            return
    if reason is not None:
        raise NoCluster(master=master, reason=str(getattr(reason, "strerror", None) or reason))


def is_frame(source: Any) -> bool:
    """Return whether an object is a PySpark DataFrame."""
    return type(source).__module__.startswith("pyspark.sql.")


def _open_frame(source: Any, master: str | None) -> Any:
    if is_frame(source):
        return source
    named = isinstance(source, str) and re.fullmatch(r"\w+(\.\w+)*", source) and not source.endswith(".parquet")
    if Path(str(source)).suffix or not named:  # a name without a suffix may name a table
        check_parquet(str(source), "spark")
    spark = get_session(master)
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        return spark.table(source) if named else spark.read.parquet(str(source))
    except AnalysisException:
        raise SparkCannotFind(source=str(source), wanted="table" if named else "Parquet files") from None
    except (PySparkException, Py4JError) as error:
        raise SparkCannotRead(source=str(source), reason=extract_cause(error)) from None


def extract_cause(error: Exception) -> str:
    """Return the last cause that the message of a Spark error names."""
    causes = re.findall(r"^(?:Caused by: |: )?([\w.]*(?:Error|Exception): .+)$", str(error), re.MULTILINE)
    return str((causes or [str(error).strip().partition("\n")[0]])[-1].rstrip(". "))


def _check_rows(rows: Any, columns: dict[str, str]) -> int:
    """Return the number of rows; raise an error if names are blank or weights are invalid."""
    from pyspark.sql import functions as of

    kinds = dict(rows.dtypes)
    if kinds["item"] != "string" and kinds["item"] not in INTEGER_TYPES:
        raise UnsupportedType(column=columns["item"], type=kinds["item"])
    bad = {}
    for role in ("item", "annotator", "label"):
        bad[role] = of.col(role).isNull()
        if kinds[role] == "string":
            bad[role] = bad[role] | (of.trim(role) == "")
    if "weight" in columns:
        given = of.col("weight").cast("double")
        bad["weight"] = given.isNull() | of.isnan(given) | (given < 0) | (given == float("inf"))
    total, *counts = rows.select(of.count(of.lit(1)), *map(of.count_if, bad.values())).first()
    blank = dict(zip(bad, counts, strict=True))
    weights = blank.pop("weight", 0)
    check_row_counts(columns, total, blank, weights)
    return int(total)


def _count_names(rows: Any, role: str) -> tuple[Any, IntArray]:
    """Return the distinct names of a column, and the number of rows of each."""
    found = rows.groupBy(role).count().toArrow()
    return naming.to_column(found[role], role), found["count"].to_numpy()


def _replace_names_by_codes(rows: Any, role: str, names: Any, codes: IntArray) -> Any:
    """Replace a column of names by its codes."""
    coded = pa.table({role: pa.array(names), "code": codes})
    joined = rows.join(rows.sparkSession.createDataFrame(coded), role)
    return joined.drop(role).withColumnRenamed("code", role)


def _choose_partition_count(spark: Any, rows: int, options: Spark) -> int:
    """Return the number of partitions, which is the number of cores, or more if partitions would be too long."""
    return options.partitions or max(1, spark.sparkContext.defaultParallelism, -(-rows // options.partition_rows))


def _storage_level(name: str) -> Any:
    from pyspark import StorageLevel

    return getattr(StorageLevel, name)


# Code that runs in workers
# ------------------------------------------------------------------------------------------------


def _build_parts(batches: Iterator[Any], label_type: Any) -> Iterator[Any]:
    """Convert a range of sorted rows to a part; yield the part and its item names as bytes."""
    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    rows = pa.Table.from_batches(found)
    item = rows["item"]
    new = np.flatnonzero(np.asarray(pc.not_equal(item[1:], item[:-1]))) + 1
    ptr = np.concatenate([[0], new, [len(rows)]])
    weight = rows["weight"].to_numpy().astype(np.float64) if "weight" in rows.column_names else None
    part = make_part(Rows(ptr, rows["annotator"].to_numpy(), rows["label"].to_numpy().astype(label_type), weight))
    names = item.take(pa.array(ptr[:-1]))
    yield pa.record_batch({"part": [pickle.dumps(part, 5)], "names": [pickle.dumps(names, 5)]})


def _slice_by_part(values: Any, offsets: dict[int, int], partition: int, parts: Iterator[TablePart]) -> Iterator[Any]:
    for part in parts:
        yield values.value[offsets[partition] : offsets[partition] + part.n_items]


def _count_part_rows(partition: int, parts: Iterator[TablePart]) -> Iterator[tuple[int, int, int]]:
    for part in parts:
        yield partition, part.n_items, int(part.annotator.size)


def _to_arrow(
    columns: Any, offsets: dict[int, int], hard: Any, schema: Any, partition: int, parts: Iterator[Any]
) -> Iterator[tuple[bytes]]:
    for names, posterior in parts:
        first = offsets[partition]
        difficulty = None if hard is None else hard.value[first : first + len(names)]
        frame = pa.table(columns(naming.to_names(names), posterior, difficulty), schema=schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_table(frame, max_chunksize=100_000)
        yield (sink.getvalue().to_pybytes(),)


def _from_arrow(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for part in batch.column(0):
            yield from pa.ipc.open_stream(part.as_buffer())
