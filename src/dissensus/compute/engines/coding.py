"""Parquet larger than memory → files of codes sorted by item, once: what the disk engine maps into memory.

DuckDB sorts the rows by (item, annotator, label) within a given memory, spilling to the folder, and hands them over in
batches; the codes of annotators and classes are joined to them on the way. Items need no join: in sorted order, an item
is new where its name differs from the row before. The folder then holds

    annotator.i32 label.i8 (weight.f64)     (N,) codes, rows sorted as in `Annotations`
    item_ptr.i64                             (I+1,) where the rows of each item begin
    items.i64 or items.arrow                 (I,) names of the items, sorted
    annotators.npy classes.npy               names; text as UTF-8
    meta.json                                what it was made of; written last, so that a folder without it is no table

Names are integers or text, as in `names`; nothing here depends on the order of the files' rows.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dissensus.common.atomic import atomic
from dissensus.common.types import IntArray, Names
from dissensus.compute.engines.base import TableElsewhere
from dissensus.exceptions import BadParameter, DataError, MissingExtra, UnreadableFile
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.encoding import encode_labels
from dissensus.table.find_columns import Columns
from dissensus.table.io.files import reading

META, VERSION = "meta.json", 1
BATCH = 1_000_000  # rows that DuckDB hands over at a time
PARQUET = b"PAR1"  # how such a file begins


class TextNames:
    """Names in an Arrow file that is mapped into memory: as an array of text, read where it is looked into."""

    def __init__(self, path: Path):
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        self._column = reader.read_all()["name"]
        self.dtype = np.dtype(object)

    @property
    def size(self) -> int:
        """How many."""
        return len(self._column)

    @property
    def shape(self) -> tuple[int, ...]:
        """As an array's."""
        return (self.size,)

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

    def tolist(self) -> list[str]:
        """All of them, in memory."""
        return list(self._column.to_pylist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Names:
        return np.asarray(self[:], dtype)


class Coded(TableElsewhere):
    """A table on a disk, as `code` left it: the names and sizes of an `Annotations`, and its rows as files."""

    where, engine = "on a disk", "disk"

    def __init__(self, folder: Path):
        self.folder = folder
        self.meta = json.loads((folder / META).read_text())
        self.n_items, self.n_annotations = int(self.meta["items"]), int(self.meta["annotations"])
        self.annotators, self.classes = _load_names(folder / "annotators.npy"), _load_names(folder / "classes.npy")
        self.n_annotators, self.n_classes = self.annotators.size, self.classes.size
        self.per_annotator: IntArray = np.load(folder / "per_annotator.npy")
        self.weighted = (folder / "weight.f64").exists()

    @cached_property
    def items(self) -> Any:
        """(I,) names, mapped into memory."""
        if (self.folder / "items.arrow").exists():
            return TextNames(self.folder / "items.arrow")
        return np.memmap(self.folder / "items.i64", np.int64, "r")

    def file(self, name: str, dtype: Any, start: int, stop: int) -> Any:
        """Entries start … stop − 1 of a file, mapped into memory for as long as the array lives, read-only."""
        if stop <= start:
            return np.empty(0, dtype)
        size = np.dtype(dtype).itemsize
        mapped = np.memmap(self.folder / name, dtype, "r", start * size, (stop - start,))
        return np.asarray(mapped)

    def ranges(self, rows: int) -> list[tuple[int, int]]:
        """Ranges of items of about so many rows each (one item at least)."""
        ptr = np.memmap(self.folder / "item_ptr.i64", np.int64, "r")
        parts = max(1, -(-self.n_annotations // rows))
        inner = np.searchsorted(ptr, np.arange(1, parts) * rows)
        edges = np.unique([0, *inner.tolist(), self.n_items]).tolist()
        return list(pairwise(edges)) or [(0, 0)]


def code(
    source: str | Path,
    folder: str | Path,
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    classes: Iterable[Any] | int | None = None,
    memory_gb: float = 1.0,
    threads: int | None = None,
) -> Coded:
    """The table in a Parquet file (or all that a pattern such as `labels/*.parquet` names), as codes in `folder`.

    Columns are found by name as in `dissensus.read`. What is there already, of the same files, is used again; a sort
    that was interrupted begins anew.
    """
    files, folder = _files(source), Path(folder)
    with reading(Path(files[0])):
        there = pq.read_schema(files[0]).names
    columns = Columns(item, annotator, label, weight=weight).find(there)
    for role in ("proba", "question"):
        if role in columns:
            raise BadParameter(f"engine='disk' takes one label per row; there is a column of {role}: read it in parts.")
    declared = classes if classes is None or isinstance(classes, int) else list(classes)
    made_of = {
        "version": VERSION,
        "files": [[name, Path(name).stat().st_size, Path(name).stat().st_mtime_ns] for name in files],
        "columns": columns,
        "classes": declared if declared is None or isinstance(declared, int) else [str(name) for name in declared],
    }
    found = _existing(folder, made_of)
    if found is not None:
        return found
    with _sorting(source):
        return _sorted(files, columns, folder, declared, memory_gb, threads).finish(made_of)


def _sorted(
    files: list[str],
    columns: dict[str, Any],
    folder: Path,
    declared: list[Any] | int | None,
    memory_gb: float,
    threads: int | None,
) -> _Writer:
    """The files that the rows become."""
    rows = _open(files, columns, folder, memory_gb, threads)
    annotators, _ = naming.encode(naming.to_column(_distinct(rows, columns["annotator"]), "annotator"), "annotator")
    labels = naming.to_column(_distinct(rows, columns["label"]), "label")
    class_names, label_codes, _ = encode_labels(labels, declared, ())
    _register(rows, "annotators", annotators)
    rows.register("classes", pa.table({"name": pa.array(labels), "code": pa.array(label_codes, pa.int32())}))
    weighed = f', CAST(r."{columns["weight"]}" AS DOUBLE) AS w' if "weight" in columns else ""
    batches = rows.sql(
        f'SELECT r."{columns["item"]}" AS item, a.code AS a, c.code AS c{weighed} FROM rows r '
        f'JOIN annotators a ON r."{columns["annotator"]}" = a.name JOIN classes c ON r."{columns["label"]}" = c.name '
        f"ORDER BY item, a, c{', w' if weighed else ''}"
    ).to_arrow_reader(BATCH)
    with _Writer(folder, annotators, class_names, bool(weighed)) as writer:
        for batch in batches:
            writer.write(*(batch.column(n) for n in range(batch.num_columns)))
    rows.close()
    shutil.rmtree(folder / "spill", ignore_errors=True)
    return writer


@contextmanager
def _sorting(source: str | Path) -> Iterator[None]:
    """What DuckDB says as one of our errors, in one sentence."""
    try:
        yield
    except Exception as error:
        if type(error).__module__ not in ("duckdb", "_duckdb"):
            raise
        why = str(error).strip().partition("\n")[0].rstrip(". ")
        raise UnreadableFile(f"{source} cannot be sorted and coded: {why}.") from error


def code_table(table: Annotations, folder: str | Path) -> Coded:
    """A table in memory as codes in `folder`."""
    if table.proba is not None:
        raise BadParameter("engine='disk' takes one label per row; this table is probabilistic: fit it in memory.")
    names = pa.array(table.items) if table.items.dtype != object else pa.array(table.items.tolist(), pa.large_string())
    with _Writer(Path(folder), table.annotators, table.classes, table.weight is not None) as writer:
        writer.start(names.type)
        writer.rows(table.annotator, table.label, table.weight)
        writer.append_items(names, table.item_ptr[:-1])
    arrays = (table.item_ptr, table.annotator, table.label, table.weight)
    return writer.finish(
        {"version": VERSION, "table": [zlib.crc32(array.data) for array in arrays if array is not None]}
    )


class _Writer:
    """The files of a folder, appended to in the order of the rows."""

    def __init__(self, folder: Path, annotators: Names, classes: Names, weighted: bool):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / META).unlink(missing_ok=True)
        for old in (*folder.glob("items.*"), *folder.glob("weight.*")):
            old.unlink()
        self.codes = naming.smallest_int(classes.size)
        files = {"annotator": np.int32, "label": self.codes} | ({"weight": np.float64} if weighted else {})
        self.files = {name: (folder / _name(name, kind)).open("wb") for name, kind in files.items()}
        self.ptr = (folder / "item_ptr.i64").open("wb")
        self.per_annotator = np.zeros(annotators.size, np.int64)
        self.n_items = self.n_rows = 0
        self.last: Any = None
        self.text: Any = None
        self.integers: Any = None
        _save_names(folder / "annotators.npy", annotators)
        _save_names(folder / "classes.npy", classes)

    def write(self, item: Any, annotator: Any, label: Any, weight: Any = None) -> None:
        """A batch of sorted rows."""
        if len(item) == 0:
            return
        if self.text is None and self.integers is None:
            self.start(item.type)
        encoded = item.dictionary_encode()  # in sorted order an item's code is new where it differs from before
        codes = np.asarray(encoded.indices)
        new = np.flatnonzero(np.diff(codes, prepend=-1))
        if self.last is not None and item[0].as_py() == self.last:
            new = new[1:]
        self.last = item[-1].as_py()
        self.append_items(item.take(pa.array(new)), new + self.n_rows)
        self.rows(np.asarray(annotator), np.asarray(label), None if weight is None else np.asarray(weight))

    def start(self, kind: Any) -> None:
        """Open the file of the items' names."""
        if pa.types.is_integer(kind):
            self.integers = (self.folder / "items.i64").open("wb")
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            schema = pa.schema([("name", pa.large_string())])
            self.text = pa.ipc.new_file(str(self.folder / "items.arrow"), schema)
        else:
            raise DataError(f"column 'item' holds values of type {kind}; convert it to text or integers.")

    def append_items(self, names: Any, first_row: IntArray) -> None:
        """Items that begin at these rows."""
        if self.text is not None:
            names = names.cast(pa.large_string())
            self.text.write_batch(pa.record_batch([names], ["name"]))
        else:
            np.asarray(names, np.int64).tofile(self.integers)
        first_row.astype(np.int64).tofile(self.ptr)
        self.n_items += len(names)

    def rows(self, annotator: IntArray, label: IntArray, weight: Any) -> None:
        """Codes of more rows."""
        annotator.astype(np.int32, copy=False).tofile(self.files["annotator"])
        label.astype(self.codes, copy=False).tofile(self.files["label"])
        if weight is not None:
            bad = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
            if bad.size:
                raise DataError(f"weight: a row holds {weight[bad[0]]}; weights are 0 or more, and not missing.")
            weight.tofile(self.files["weight"])
        self.per_annotator += np.bincount(annotator, minlength=self.per_annotator.size)
        self.n_rows += annotator.size

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        np.array([self.n_rows], np.int64).tofile(self.ptr)
        for file in (*self.files.values(), self.ptr, self.text, self.integers):
            if file is not None:
                file.close()

    def finish(self, made_of: dict[str, Any]) -> Coded:
        """After all is closed: from now on it is a table."""
        if self.n_rows == 0:
            raise DataError("there is no row; a table needs at least one annotation.")
        np.save(self.folder / "per_annotator.npy", self.per_annotator)
        meta = {"made_of": made_of, "items": self.n_items, "annotations": self.n_rows}
        with atomic(self.folder / META) as file:
            file.write(json.dumps(meta, indent=1).encode())
        return Coded(self.folder)


def _open(files: list[str], columns: dict[str, Any], folder: Path, memory_gb: float, threads: int | None) -> Any:
    """A DuckDB connection with a view `rows` of the files."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("engine='disk' sorts with DuckDB; install dissensus[disk].") from None
    (folder / "spill").mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {
        "memory_limit": f"{round(memory_gb * 1000)}MB",
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": False,
    }
    rows: Any = duckdb.connect(config=options | ({} if threads is None else {"threads": threads}))
    named = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
    wanted = ", ".join(f'"{name}"' for name in dict.fromkeys(columns.values()))
    rows.execute(f"CREATE VIEW rows AS SELECT {wanted} FROM read_parquet([{named}])")
    text = {name for name, kind, *_ in rows.execute("DESCRIBE rows").fetchall() if kind == "VARCHAR"}
    roles = ("item", "annotator", "label")
    missing = [
        f'count(*) FILTER ("{columns[role]}" IS NULL'
        + (f" OR trim(\"{columns[role]}\") = '')" if columns[role] in text else ")")
        for role in roles
    ]
    *counts, total = rows.execute(f"SELECT {', '.join(missing)}, count(*) FROM rows").fetchall()[0]  # one scan
    for role, count in zip(roles, counts, strict=True):
        if count:
            raise DataError(
                f"column {columns[role]!r}: {count:,} of {total:,} rows are blank or missing; drop those rows first."
            )
    return rows


def _distinct(rows: Any, column: str) -> Any:
    return rows.sql(f'SELECT DISTINCT "{column}" AS name FROM rows').to_arrow_table()["name"].combine_chunks()


def _register(rows: Any, table: str, names: Names) -> None:
    column = pa.array(names.tolist())
    rows.register(table, pa.table({"name": column, "code": pa.array(np.arange(names.size, dtype=np.int32))}))


def _existing(folder: Path, made_of: dict[str, Any]) -> Coded | None:
    """What the folder holds, if it was made of the same."""
    try:
        found = Coded(folder)
    except (OSError, ValueError, KeyError):
        return None
    return found if found.meta["made_of"] == json.loads(json.dumps(made_of)) else None


def without_pattern(source: str | Path) -> tuple[Path, str]:
    """The folder of a path or pattern, as far as it has no wildcard, and the rest."""
    path = Path(source)
    folder = next((parent for parent in path.parents if not set("*?[") & set(str(parent))), Path())
    return folder, str(path.relative_to(folder))


def check_parquet(path: str | Path, engine: str) -> None:
    """An error where a file is there and is no Parquet; of what is not there, and of patterns, others speak."""
    path = Path(path)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(PARQUET)) != PARQUET:
                raise UnreadableFile(
                    f"{path} is no Parquet file, which {engine} needs; convert it, or let the engine 'local' read it."
                )


def _files(source: str | Path) -> list[str]:
    """What the path or pattern names; a file of just that name comes first."""
    folder, pattern = without_pattern(source)
    files = [str(source)] if Path(source).is_file() else sorted(map(str, folder.glob(pattern)))
    if not files:
        raise UnreadableFile(f"no such file: {source}; a pattern such as 'labels/*.parquet' names several.")
    return files


def _name(name: str, kind: Any) -> str:
    return f"{name}.{np.dtype(kind).kind}{8 * np.dtype(kind).itemsize}"


def _save_names(path: Path, names: Names) -> None:
    """Text as UTF-8 of one length each: no pickle."""
    array = names if names.dtype != object else np.char.encode(np.array(names.tolist(), np.str_), "utf-8")
    np.save(path, array)


def _load_names(path: Path) -> Names:
    array = np.load(path)
    if array.dtype.kind != "S":
        return np.asarray(array)
    names = np.empty(array.size, object)
    names[:] = np.char.decode(array, "utf-8").tolist()
    return names
