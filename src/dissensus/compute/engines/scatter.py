"""A frame in Spark → parts of coded rows, one for each partition: what the spark engine walks.

Spark sorts the rows by (item, annotator, label) into ranges of items and joins the codes of annotators and classes to
them; a Python worker turns each range into the arrays of one `Part`. The parts are kept by Spark, in the memory of the
executors or on their disks: they stay between passes, and those of a lost executor are made again, the same, because a
range does not depend on the order in which its rows arrive. The names of the items are kept on the disks beside them.

Names of annotators and classes come to the driver, names of items do not. A part has codes of its own annotators
(`Part.annotators` are theirs in the whole table), so that a worker needs no more than their parameters.
"""

from __future__ import annotations

import os
import pickle
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.compute.engines.base import Rows, TableElsewhere, hard_rows
from dissensus.compute.engines.coding import check_parquet
from dissensus.compute.engines.local import balanced
from dissensus.compute.engines.options import Spark
from dissensus.exceptions import BadParameter, DataError, MissingExtra, UnreadableFile
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.encoding import encode_labels
from dissensus.table.find_columns import Columns

INTEGERS = ("tinyint", "smallint", "int", "bigint")  # as Spark calls them
PATIENCE = 5.0  # seconds until a master answers; Spark itself would go on asking for a minute


@dataclass(frozen=True)
class Part:
    """The rows of a range of items; `annotator` counts through `annotators` (a,), their codes in the whole table."""

    annotators: IntArray
    item_ptr: IntArray
    annotator: IntArray
    label: IntArray
    weight: FloatArray | None

    @property
    def n_items(self) -> int:
        """How many items."""
        return int(self.item_ptr.size) - 1

    def rows(self) -> Rows:
        """As the kernels take them, read-only as a table in memory is, so that the same code is compiled."""
        for array in (self.item_ptr, self.annotator, self.label, self.weight):
            if array is not None:
                array.flags.writeable = False
        return Rows(self.item_ptr, self.annotator, self.label, self.weight)


def part_of(item_ptr: IntArray, annotator: IntArray, label: IntArray, weight: FloatArray | None) -> Part:
    """A part of rows with codes of the whole table; `item_ptr` may begin anywhere."""
    seen = np.zeros(int(annotator.max(initial=-1)) + 1, np.bool_)
    seen[annotator] = True
    own = (np.cumsum(seen, dtype=np.int32) - 1).astype(np.int32)[annotator]
    return Part(np.flatnonzero(seen).astype(np.int32), item_ptr - item_ptr[0], own, label, weight)


class Spread:
    """An array over all items whose parts are in the cluster; `np.asarray` brings all of it to the driver."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, parts: Any = None):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.table: Any = None  # the `Scattered` that it is a result of
        self.parts = parts  # an RDD of arrays, in the order of the items; of a result, set by the pass that makes it

    @property
    def size(self) -> int:
        """Entries in all."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def item_frame(self, difficulty: FloatArray | None, columns: Callable[..., dict[str, Any]]) -> Any:
        """The frame of all items as a DataFrame of PySpark; `columns` makes it of names, posterior and difficulty."""
        from dissensus.compute.engines.spark import item_frame

        return item_frame(self.table, self, difficulty, columns)

    def item_parts(self, difficulty: FloatArray | None, columns: Callable[..., dict[str, Any]]) -> Iterator[Any]:
        """The same as Arrow tables on the driver, one of the cluster's parts after the other."""
        from dissensus.compute.engines.spark import item_parts

        return item_parts(self.table, self, difficulty, columns)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.concatenate([np.empty((0, *self.shape[1:]), self.dtype), *self.parts.collect()]).astype(
            dtype or self.dtype, copy=False
        )

    def __getitem__(self, at: Any) -> Any:
        return np.asarray(self)[at]

    def __repr__(self) -> str:
        return f"Spread(shape={self.shape}, dtype={self.dtype})"


@dataclass(frozen=True, eq=False)
class Scattered(TableElsewhere):
    """A table in a Spark cluster: the names and sizes of an `Annotations`, and its rows as an RDD of parts."""

    where, engine = "in Spark", "spark"

    parts: Any  # RDD of `Part`, one for each partition that has any items
    names: Any  # RDD of Arrow arrays beside it; None where the driver has the table too
    kept: tuple[Any, ...]  # RDDs that Spark keeps for it
    counts: list[tuple[int, int, int]]  # (partition, items, rows) of every part
    items: Any
    annotators: Names
    classes: Names
    per_annotator: IntArray
    weighted: bool

    @property
    def n_items(self) -> int:
        """How many items."""
        return sum(items for _, items, _ in self.counts)

    @property
    def n_annotations(self) -> int:
        """How many rows."""
        return sum(rows for _, _, rows in self.counts)

    @property
    def n_annotators(self) -> int:
        """How many annotators."""
        return int(self.annotators.size)

    @property
    def n_classes(self) -> int:
        """How many classes."""
        return int(self.classes.size)

    def offsets(self) -> dict[int, int]:
        """Partition → the first item of its part."""
        first = np.cumsum([0, *(items for _, items, _ in self.counts)]).tolist()
        return {partition: start for (partition, _, _), start in zip(self.counts, first, strict=False)}

    def release(self) -> None:
        """Take the parts off the cluster; a later fit, or a frame of results, makes them again."""
        for rdd in self.kept:
            rdd.unpersist()


def scatter(
    source: Any,
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    classes: Iterable[Any] | int | None = None,
    options: Spark | None = None,
) -> Scattered:
    """The table in a PySpark DataFrame, in a table of Spark's catalogue or in Parquet files, coded in the cluster.

    Text of letters, digits, `_` and dots names a table, any other text (or a `Path`) names Parquet files. Columns are
    found by name as in `dissensus.read`. The frame must give the same rows whenever it is asked for them.
    """
    options = options or Spark()
    frame = _frame(source, options.master)
    columns = Columns(item, annotator, label, weight=weight).find(frame.columns)
    for role in ("proba", "question"):
        if role in columns:
            raise BadParameter(
                f"engine='spark' takes one label per row; there is a column of {role}: fit its parts by themselves."
            )
    rows = frame.select(*(frame[f"`{column}`"].alias(role) for role, column in columns.items()))
    total, weighted = _check(rows, columns), "weight" in columns
    who, count = _distinct(rows, "annotator", columns)
    annotators, who_codes = naming.encode(who, "annotator")
    labels, _ = _distinct(rows, "label", columns)
    class_names, label_codes, _ = encode_labels(labels, classes, ())
    rows = _with_codes(_with_codes(rows, "annotator", who, who_codes), "label", labels, label_codes)
    keys = ["item", "annotator", "label", *(["weight"] if weighted else [])]
    partitions = _partitions(frame.sparkSession, total, options)
    ranges = rows.select(*keys).repartitionByRange(partitions, "item").sortWithinPartitions(*keys)
    build = partial(_build, label_type=naming.smallest_int(class_names.size))
    made = ranges.mapInArrow(build, "part binary, names binary").rdd.persist(_level("DISK_ONLY"))
    parts = made.map(_part).persist(_level("MEMORY_AND_DISK"))
    counts = parts.mapPartitionsWithIndex(_count).collect()
    found = sum(rows for _, _, rows in counts)
    if found != total:
        raise DataError(
            f"the frame gave {total:,} rows, and {found:,} when asked again; write it to Parquet and fit that."
        )
    names, n_items = made.map(_names), sum(items for _, items, _ in counts)
    kind = object if dict(rows.dtypes)["item"] == "string" else np.int64
    items = Spread((n_items,), kind, names.map(naming.to_names))
    per_annotator = np.zeros(annotators.size, np.int64)
    per_annotator[who_codes] = count
    return Scattered(parts, names, (made, parts), counts, items, annotators, class_names, per_annotator, weighted)


def spread_table(table: Annotations, options: Spark) -> Scattered:
    """A table in memory, cut into parts for the cluster; its results come back to the driver."""
    spark, rows = session(options.master), hard_rows(table)
    parts = []
    for start, stop in balanced(rows.item_ptr, _partitions(spark, rows.annotator.size, options)):
        at = rows.item_ptr[start : stop + 1]
        cut = slice(int(at[0]), int(at[-1]))
        weight = None if rows.weight is None else rows.weight[cut]
        if stop > start:
            parts.append(part_of(at, rows.annotator[cut], rows.label[cut], weight))
    counts = [(number, part.n_items, int(part.annotator.size)) for number, part in enumerate(parts)]
    sent = spark.sparkContext.parallelize(parts, len(parts)).persist(_level("MEMORY_AND_DISK"))
    return Scattered(
        sent,
        None,
        (sent,),
        counts,
        table.items,
        table.annotators,
        table.classes,
        np.bincount(rows.annotator, minlength=table.n_annotators),
        rows.weight is not None,
    )


def session(master: str | None = None) -> Any:
    """The Spark session that is there, or a new one: at this master, or as the environment has it."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise MissingExtra("engine='spark' needs PySpark (and Java); install dissensus[spark].") from None
    found, builder = SparkSession.getActiveSession(), SparkSession.builder
    if found is None and master is not None:
        _check_listens(master)
        builder = builder.master(master)
    try:
        found = found or builder.getOrCreate()
        if "PYSPARK_PYTHON" not in os.environ and found.sparkContext.master.startswith("local"):
            found.sparkContext.pythonExec = sys.executable  # not whatever `python3` is: that may know nothing of us
        return found
    except PySparkException as error:
        raise MissingExtra(
            f"Spark does not start ({cause(error)}); engine='spark' needs Java 17 or later, where JAVA_HOME or "
            "PATH says."
        ) from None
    except Py4JError as error:
        if master is None:
            raise MissingExtra(
                f"Spark does not start ({cause(error)}); see its own settings, or give a master."
            ) from None
        raise BadParameter(
            f"Spark does not start at master {master!r} ({cause(error)}); mend the address, or leave master out to run "
            "as Spark's own settings say, or on this machine."
        ) from None


def _check_listens(master: str) -> None:
    """An error where nobody listens at spark://host:port, or at any of several."""
    why: Exception | None = None
    for place in master.removeprefix("spark://").split(",") if master.startswith("spark://") else ():
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
        except (OSError, OverflowError) as error:
            why = error
        else:
            return
    if why is not None:
        raise BadParameter(
            f"no Spark cluster listens at master {master!r} ({getattr(why, 'strerror', None) or why}); start one "
            "there, mend the address, or leave master out to run on this machine."
        )


def is_frame(source: Any) -> bool:
    """Whether it is a DataFrame of PySpark."""
    return type(source).__module__.startswith("pyspark.sql.")


def _frame(source: Any, master: str | None) -> Any:
    if is_frame(source):
        return source
    named = isinstance(source, str) and re.fullmatch(r"\w+(\.\w+)*", source) and not source.endswith(".parquet")
    if Path(str(source)).suffix or not named:  # a table may be called as a file without a suffix is
        check_parquet(str(source), "engine='spark'")
    spark = session(master)
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        return spark.table(source) if named else spark.read.parquet(str(source))
    except AnalysisException:
        what = "no table of that name" if named else "no such Parquet files"
        raise UnreadableFile(f"{source}: Spark finds {what}; give a table, or files that all executors see.") from None
    except (PySparkException, Py4JError) as error:
        raise UnreadableFile(f"{source}: Spark cannot read it ({cause(error)}); give a table, or Parquet.") from None


def cause(error: Exception) -> str:
    """The last cause that an error of Spark's names, out of pages of them."""
    causes = re.findall(r"^(?:Caused by: |: )?([\w.]*(?:Error|Exception): .+)$", str(error), re.MULTILINE)
    return str((causes or [str(error).strip().partition("\n")[0]])[-1].rstrip(". "))


def _check(rows: Any, columns: dict[str, str]) -> int:
    """The number of rows; what no table holds is an error."""
    from pyspark.sql import functions as of

    kinds = dict(rows.dtypes)
    if kinds["item"] != "string" and kinds["item"] not in INTEGERS:
        raise DataError(
            f"column {columns['item']!r} holds values of type {kinds['item']}; convert it to text or integers."
        )
    missing = of.col("item").isNull()
    if kinds["item"] == "string":
        missing = missing | (of.trim("item") == "")
    weight = of.lit(False)
    if "weight" in columns:
        given = of.col("weight").cast("double")
        weight = given.isNull() | of.isnan(given) | (given < 0) | (given == float("inf"))
    counted = rows.select(of.count(of.lit(1)), of.count_if(missing), of.count_if(weight)).first()
    total, blank, bad = counted
    if total == 0:
        raise DataError("there is no row; a table needs at least one annotation.")
    if blank:
        raise _blank(columns["item"], blank, total)
    if bad:
        raise DataError(f"weight: {bad:,} of {total:,} rows are negative or missing; weights are 0 or more.")
    return int(total)


def _blank(column: str, count: int, total: int) -> DataError:
    return DataError(f"column {column!r}: {count:,} of {total:,} rows are blank or missing; drop those rows first.")


def _distinct(rows: Any, role: str, columns: dict[str, str]) -> tuple[Any, IntArray]:
    """The distinct names of a column, and how many rows have each."""
    found = rows.groupBy(role).count().toArrow()
    column, count = naming.to_column(found[role], role), found["count"].to_numpy()
    missing = naming.missing_rows(column)
    if missing.any():
        raise _blank(columns[role], int(count[missing].sum()), int(count.sum()))
    return column, count


def _with_codes(rows: Any, role: str, names: Any, codes: IntArray) -> Any:
    """The rows with a column of codes in place of one of names."""
    coded = pa.table({role: pa.array(names), "code": pa.array(codes, pa.int32())})
    joined = rows.join(rows.sparkSession.createDataFrame(coded), role)
    return joined.drop(role).withColumnRenamed("code", role)


def _partitions(spark: Any, rows: int, options: Spark) -> int:
    """One for each core, or more where they would be too long."""
    return options.partitions or max(1, spark.sparkContext.defaultParallelism, -(-rows // options.partition_rows))


def _level(name: str) -> Any:
    from pyspark import StorageLevel

    return getattr(StorageLevel, name)


# In the workers -------------------------------------------------------------------------------------------------------


def _build(batches: Iterator[Any], label_type: Any) -> Iterator[Any]:
    """The sorted rows of a range of items → its part and its names, as bytes."""
    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    rows = pa.Table.from_batches(found)
    item = rows["item"]
    new = np.flatnonzero(np.asarray(pc.not_equal(item[1:], item[:-1]))) + 1
    ptr = np.concatenate([[0], new, [len(rows)]])
    weight = rows["weight"].to_numpy().astype(np.float64) if "weight" in rows.column_names else None
    part = part_of(ptr, rows["annotator"].to_numpy(), rows["label"].to_numpy().astype(label_type), weight)
    names = item.take(pa.array(ptr[:-1]))
    yield pa.record_batch({"part": [pickle.dumps(part, 5)], "names": [pickle.dumps(names, 5)]})


def _part(made: Any) -> Part:
    return pickle.loads(made["part"])  # type: ignore[no-any-return]


def _names(made: Any) -> Any:
    return pickle.loads(made["names"])


def _count(partition: int, parts: Iterator[Part]) -> Iterator[tuple[int, int, int]]:
    for part in parts:
        yield partition, part.n_items, int(part.annotator.size)
