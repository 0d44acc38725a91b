"""Convert Parquet files that exceed memory to files of codes, sorted by item, for the disk engine.

DuckDB sorts the rows by (item, annotator, label) with limited memory and temporary files, joins the codes of
annotators and classes, and returns the rows in batches. Items need no join: in sorted order, a new item begins where
the name differs from the previous row. The result is a folder `codes-…`, named after a hash of its sources, which
contains

    annotator.i32 label.i8 (weight.f64)     (N,) codes, rows sorted as in `Annotations`
    item_ptr.i64                             (I+1,) first row of each item
    items.arrow                              (I,) names of the items, sorted
    annotators.parquet classes.parquet       names, and the number of rows of each annotator
    meta.json                                the sources

The folder is created atomically and never changes, because other processes may have mapped its files into memory. If
several runs code the same files, one run writes the codes and the others wait. Codes of earlier versions of the files
are removed when no process uses them.

Names are integers or text, as in `names`. The codes do not depend on the order of the files' rows.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dissensus.common.atomic import FolderLock, open_atomically, sync_to_disk
from dissensus.common.extras import import_extra
from dissensus.common.types import IntArray, Names
from dissensus.compute.engines.base import RemoteTable
from dissensus.compute.engines.local import range_starts
from dissensus.compute.exceptions import (
    BadItemOffsets,
    BadWeights,
    BlankNames,
    CannotSort,
    NoRows,
    NoSuchFile,
    NotParquet,
    OneLabelPerRow,
    WrongFileSize,
)
from dissensus.compute.rows import Rows
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.exceptions import UnsupportedType
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.files import report_read_errors
from dissensus.table.names import encode_labels

META_FILE, CODES_VERSION = "meta.json", 3
SORT_BATCH_ROWS = 1_000_000  # number of rows per batch that DuckDB returns
PARQUET_MAGIC = b"PAR1"  # first bytes of a Parquet file


class MappedNames:
    """An array of names in a memory-mapped Arrow file; only the names that are accessed are read."""

    def __init__(self, path: Path):
        self._column = pa.ipc.open_file(pa.memory_map(str(path))).read_all()["name"]
        self._column.validate(full=True)
        self.size = len(self._column)
        self.shape, self.dtype = (self.size,), np.dtype(object if naming.is_text_type(self._column.type) else np.int64)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            start, stop, step = at.indices(self.size)
            return naming.to_names(self._column.slice(start, max(stop - start, 0)))[::step]
        if np.ndim(at) == 0:
            return self._column[int(at)].as_py()
        at = np.asarray(at)
        return naming.to_names(self._column.take(pa.array(np.flatnonzero(at) if at.dtype == bool else at)))

    def tolist(self) -> list[Any]:
        """Load all names into a list."""
        return list(self._column.to_pylist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Names:
        return np.asarray(self[:], dtype)


class CodedTable(RemoteTable):
    """A table whose rows are in files on a disk, with the names and sizes of an `Annotations`."""

    location, engine = "on a disk", "disk"

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock = FolderLock(folder, shared=True)
        self.meta = json.loads((folder / META_FILE).read_text())
        self.n_annotations = int(self.meta["annotations"])
        annotators, classes = (pq.read_table(folder / f"{name}.parquet") for name in ("annotators", "classes"))
        self.annotators, self.classes = naming.to_names(annotators["name"]), naming.to_names(classes["name"])
        self.annotations_per_annotator = annotators["count"].to_numpy()
        self.items = MappedNames(folder / "items.arrow")
        self.weighted = bool(self.meta["weighted"])
        self._check_files()

    def _check_files(self) -> None:
        """Raise DataError if a file was changed, because kernels use codes as array indices without checks."""
        n, sizes = self.n_annotations, {"item_ptr": self.n_items + 1}
        files = _array_files(self.folder, self.n_classes, self.weighted)
        for name, (path, kind) in files.items():
            entries = sizes.get(name, n)
            if path.stat().st_size != entries * np.dtype(kind).itemsize:
                raise WrongFileSize(path=path, size=path.stat().st_size, entries=entries)
        starts = np.fromfile(*files["item_ptr"])
        if starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 0).any():
            raise BadItemOffsets(path=files["item_ptr"][0], rows=n, items=self.n_items)
        for name, limit in (("annotator", self.n_annotators), ("label", self.n_classes)):
            path, kind = files[name]
            for start in range(0, n, SORT_BATCH_ROWS):
                naming.check_codes(
                    np.fromfile(path, kind, SORT_BATCH_ROWS, offset=start * np.dtype(kind).itemsize), limit, name
                )

    def _map_all_rows(self) -> Rows:
        """Return all rows as memory-mapped arrays; the files stay mapped while the arrays exist."""
        files = _array_files(self.folder, self.n_classes, self.weighted)
        maps: dict[str, Any] = {name: np.memmap(path, kind, "r") for name, (path, kind) in files.items()}
        return Rows(**{"weight": None} | maps)

    def load_all_rows(self) -> Rows:
        """Load all rows into memory."""
        copies: Any = (None if array is None else np.array(array) for array in self._map_all_rows().arrays)
        return Rows(*copies)

    def map_item_rows(self, first: int, end: int) -> Rows:
        """Return the rows of items first … end − 1, with offsets relative to the first row."""
        return self._map_all_rows().slice_items(first, end)

    def item_ranges(self, rows: int) -> list[tuple[int, int]]:
        """Return ranges of items that have about `rows` rows each; each range has at least one item."""
        return list(pairwise(range_starts(self._map_all_rows().item_ptr, rows)))


def _array_files(folder: Path, n_classes: int, weighted: bool) -> dict[str, tuple[Path, Any]]:
    """Return the path and the type of each array's file; the file name contains the type."""
    kinds: dict[str, Any] = {"item_ptr": np.int64, "annotator": np.int32, "label": naming.smallest_int_type(n_classes)}
    if weighted:
        kinds["weight"] = np.float64
    return {
        name: (folder / f"{name}.{np.dtype(kind).kind}{8 * np.dtype(kind).itemsize}", kind)
        for name, kind in kinds.items()
    }


def code_parquet(
    source: str | Path,
    folder: str | Path,
    *,
    classes: Iterable[Any] | int | None = None,
    memory_gb: float = 1.0,
    **columns: str | None,
) -> CodedTable:
    """Convert a Parquet file, or all files that match a pattern such as `labels/*.parquet`, to codes in `folder`.

    `columns` names the columns item, annotator, label and weight; columns that are not named are found as in
    `dissensus.read`. Existing codes of the same files are reused. If sorting was interrupted, it starts again.
    """
    files, folder = _list_files(source), Path(folder)
    with report_read_errors(Path(files[0])):
        found = find_label_columns(columns, pq.read_schema(files[0]).names, "disk")
    classes = list(classes) if isinstance(classes, Iterable) else classes
    made_of = {
        "version": CODES_VERSION,
        "files": [[name, Path(name).stat().st_size, Path(name).stat().st_mtime_ns] for name in files],
        "columns": found,
        "classes": classes,
    }

    def write(part: Path) -> None:
        duckdb, memory = import_extra("duckdb", "engine='disk' sorts with", "disk"), f"{round(memory_gb * 1000)}MB"
        options = {"memory_limit": memory, "temp_directory": str(part / "spill"), "preserve_insertion_order": False}
        with _translate_duckdb_errors(source), duckdb.connect(config=options) as rows:
            _create_checked_view(rows, files, found)
            _sort_and_write(rows, found, part, classes).finish(made_of)
        shutil.rmtree(part / "spill", ignore_errors=True)

    return _write_once(folder, made_of, write)


def _write_once(folder: Path, made_of: dict[str, Any], write: Callable[[Path], None]) -> CodedTable:
    """Return the folder with the codes of these sources; if there is none, create it and call `write`."""
    text = json.dumps(made_of, default=str)
    target = folder / f"codes-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder, wait=True)  # held until the codes have been written
    with suppress(OSError, ValueError, KeyError, TypeError, pa.ArrowException):  # the codes are missing or damaged
        if (existing := CodedTable(target)).meta["made_of"] == json.loads(text):
            return existing
    part = folder / f".codes-{token_hex(4)}.part"
    try:
        part.mkdir()
        write(part)
        for path in (*part.iterdir(), part):
            sync_to_disk(path)
        if target.exists():
            shutil.rmtree(target)  # memory that other processes have mapped stays valid
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for other in (*folder.glob("codes-*"), *folder.glob(".codes-*.part")):
        if other != target and FolderLock(other).got:
            shutil.rmtree(other, ignore_errors=True)
    del lock
    return CodedTable(target)


def find_label_columns(columns: dict[str, Any], names: list[str], engine: str) -> dict[str, str]:
    """Return the column name of each role in a table with one label per row."""
    found = ColumnNames(**columns).resolve(names)
    for role in ("proba", "question"):
        if role in found:
            raise OneLabelPerRow(engine=engine, role=role)
    return found


def check_row_counts(columns: dict[str, str], total: int, blank: dict[str, int], bad_weights: int = 0) -> None:
    """Raise DataError if there are no rows, if names are blank (`blank` counts them by role) or weights invalid."""
    if total == 0:
        raise NoRows
    for role, count in blank.items():
        if count:
            raise BlankNames(column=columns[role], blank=count, total=total)
    if bad_weights:
        raise BadWeights(n_bad=bad_weights, total=total)


def _create_checked_view(rows: Any, files: list[str], columns: dict[str, str]) -> None:
    """Create the view `rows` of the files; raise an error if names are blank or weights are invalid."""
    named = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
    roles = ("item", "annotator", "label")
    quoted = {role: '"' + column.replace('"', '""') + '"' for role, column in columns.items()}
    wanted = [f"{quoted[role]} AS {role}" for role in roles]
    if "weight" in columns:
        wanted.append(f"CAST({quoted['weight']} AS DOUBLE) AS weight")
    rows.execute(f"CREATE VIEW rows AS SELECT {', '.join(wanted)} FROM read_parquet([{named}])")
    text = [role for role, kind, *_ in rows.execute("DESCRIBE rows").fetchall() if kind == "VARCHAR"]
    bad = [f"{role} IS NULL" + (f" OR trim({role}) = ''" if role in text else "") for role in roles]
    bad.append("NOT coalesce(weight >= 0 AND weight < 'infinity', FALSE)" if "weight" in columns else "FALSE")
    counts = ", ".join(f"count(*) FILTER ({condition})" for condition in bad)
    # All counts are computed in one scan.
    *blank, weights, total = rows.execute(f"SELECT {counts}, count(*) FROM rows").fetchall()[0]
    check_row_counts(columns, total, dict(zip(roles, blank, strict=True)), weights)


def _sort_and_write(rows: Any, columns: dict[str, str], folder: Path, classes: list[Any] | int | None) -> _CodesWriter:
    """Sort the rows of the view `rows`, replace names by codes, and write the rows."""
    annotator_names, labels = (
        naming.to_column(rows.sql(f"SELECT DISTINCT {role} AS name FROM rows").to_arrow_table()["name"], role)
        for role in ("annotator", "label")
    )
    annotators, annotator_codes = naming.encode_column(annotator_names, "annotator")
    class_names, label_codes, _ = encode_labels(labels, classes, ())
    rows.register("annotators", pa.table({"name": pa.array(annotator_names), "code": annotator_codes}))
    rows.register("labels", pa.table({"name": pa.array(labels), "code": label_codes}))
    weight = ", weight" if "weight" in columns else ""
    batches = rows.sql(
        f"SELECT item, a.code AS a, c.code AS c{weight} FROM rows "
        f"JOIN annotators a ON annotator = a.name JOIN labels c ON label = c.name ORDER BY item, a, c{weight}"
    ).to_arrow_reader(SORT_BATCH_ROWS)
    writer = _CodesWriter(folder, annotators, class_names, bool(weight))
    for batch in batches:
        writer.write(*batch.columns)
    return writer


@contextmanager
def _translate_duckdb_errors(source: str | Path) -> Iterator[None]:
    """Replace an error of DuckDB by `CannotSort`, which contains the first line of DuckDB's message."""
    try:
        yield
    except Exception as error:
        if type(error).__module__ not in ("duckdb", "_duckdb"):
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(". ")
        raise CannotSort(source=str(source), reason=reason) from error


def code_table(table: Annotations, folder: str | Path) -> CodedTable:
    """Write a table in memory as codes in `folder`."""
    if table.proba is not None:
        raise OneLabelPerRow(engine="disk", role="proba")
    check_row_counts({}, len(table), {})
    arrays = (table.item_ptr, table.annotator, table.label, table.weight)
    names = [repr(column.tolist()).encode() for column in (table.items, table.annotators, table.classes)]
    crcs = [zlib.crc32(array.data) for array in arrays if array is not None] + [zlib.crc32(text) for text in names]
    made_of = {"version": CODES_VERSION, "table": crcs}

    def write(part: Path) -> None:
        writer = _CodesWriter(part, table.annotators, table.classes, table.weight is not None)
        writer.add_rows(table.annotator, table.label, table.weight)
        kind = pa.large_string() if table.items.dtype == object else None
        writer.add_items(pa.array(table.items, kind), table.item_ptr[:-1])
        writer.finish(made_of)

    return _write_once(Path(folder), made_of, write)


class _CodesWriter:
    """A writer that appends sorted rows to the files of a folder."""

    def __init__(self, folder: Path, annotators: Names, classes: Names, weighted: bool):
        self.folder, self.annotators, self.classes = folder, annotators, classes
        self.weighted, self.files = weighted, _array_files(folder, classes.size, weighted)
        self.items: Any = None
        self.last: Any = None
        self.annotations_per_annotator = np.zeros(annotators.size, np.int64)

    def write(self, item: Any, annotator: Any, label: Any, weight: Any = None) -> None:
        """Append a batch of sorted rows."""
        if len(item) == 0:
            return
        if not (naming.is_text_type(item.type) or pa.types.is_integer(item.type)):
            raise UnsupportedType(column="item", type=str(item.type))
        # Rows are sorted, so a new item begins where the code changes.
        codes = np.asarray(item.dictionary_encode().indices)
        new = np.flatnonzero(np.diff(codes, prepend=-1))
        if self.last is not None and item[0].as_py() == self.last:
            new = new[1:]
        self.last = item[-1].as_py()
        self.add_items(item.take(pa.array(new)), new + self.annotations_per_annotator.sum())
        self.add_rows(np.asarray(annotator), np.asarray(label), weight)

    def add_items(self, names: Any, first_row: IntArray) -> None:
        """Append the names of items and the index of the first row of each."""
        kind = pa.large_string() if naming.is_text_type(names.type) else pa.int64()
        if pa.types.is_uint64(names.type) and len(names):
            naming.check_fits_int64(int(np.asarray(names).max()))
        schema = pa.schema([("name", kind)])
        self.items = self.items or pa.ipc.new_file(str(self.folder / "items.arrow"), schema)
        self.items.write_batch(pa.record_batch([names.cast(kind)], schema))
        self._append("item_ptr", first_row)

    def add_rows(self, annotator: IntArray, label: IntArray, weight: Any) -> None:
        """Append the codes and weights of rows."""
        self._append("annotator", annotator)
        self._append("label", label)
        if weight is not None:
            self._append("weight", weight)
        self.annotations_per_annotator += np.bincount(annotator, minlength=self.annotations_per_annotator.size)

    def _append(self, name: str, values: Any) -> None:
        path, kind = self.files[name]
        with path.open("ab") as file:
            np.asarray(values, kind).tofile(file)

    def finish(self, made_of: dict[str, Any]) -> None:
        """Write the names and the sources; called after the last row has been appended."""
        self._append("item_ptr", [self.annotations_per_annotator.sum()])
        self.items.close()
        names = pa.table({"name": self.annotators, "count": self.annotations_per_annotator})
        pq.write_table(names, self.folder / "annotators.parquet")
        pq.write_table(pa.table({"name": self.classes}), self.folder / "classes.parquet")
        meta = {"made_of": made_of, "annotations": int(self.annotations_per_annotator.sum()), "weighted": self.weighted}
        with open_atomically(self.folder / META_FILE) as file:
            file.write(json.dumps(meta, indent=1, default=str).encode())


def split_pattern(source: str | Path) -> tuple[Path, str]:
    """Split a path or pattern into its leading folder, which has no wildcards, and the rest."""
    path = Path(source)
    folder = next((parent for parent in path.parents if not set("*?[") & set(str(parent))), Path())
    return folder, str(path.relative_to(folder))


def check_parquet(path: str | Path, engine: str) -> None:
    """Raise an error if an existing file is not Parquet; patterns and missing files are checked later."""
    path = Path(path)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(PARQUET_MAGIC)) != PARQUET_MAGIC:
                raise NotParquet(path=path, engine=engine)


def _list_files(source: str | Path) -> list[str]:
    """Return the files that match a path or pattern; the name of an existing file is never read as a pattern."""
    folder, pattern = split_pattern(source)
    files = [str(source)] if Path(source).is_file() else sorted(map(str, folder.glob(pattern)))
    if not files:
        raise NoSuchFile(source=str(source))
    return files
