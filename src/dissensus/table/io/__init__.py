"""Read and write tables. Each format has a module in this package, which registers a reader in `readers.readers`."""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dissensus.common.atomic import open_atomically
from dissensus.common.exceptions import OutOfRange
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.messages import ParameterName
from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import (
    ColumnNames,
    column_names,
    columns_to_read,
    guess_column,
    missing_column_error,
    to_arrow,
)
from dissensus.table.io.build import BuildOptions, ImportedColumns, import_frame
from dissensus.table.io.files import PACKED_SUFFIXES, as_local_path, name_file_in_errors
from dissensus.table.io.jsonl import dumps
from dissensus.table.io.readers import Reader, detect_format, readers, suffix_without_gz, unpacked_suffix
from dissensus.table.kinds import CLASS_KINDS, check_kind
from dissensus.table.notes import FilesReadAsOne, Note
from dissensus.table.questions import Questions

MAX_FILES_PER_FOLDER = 10_000  # number of files in a folder that can be read as one table


def read(
    source: Any,
    *,
    format: str | None = None,  # noqa: A002 - the word that users know
    item: str | Sequence[str] | None = None,
    annotator: str | Sequence[str] | None = None,
    label: str | None = None,
    question: str | None = None,
    weight: str | None = None,
    proba: Mapping[Any, str] | Sequence[str] | None = None,
    classes: Iterable[Any] | int | None = None,
    abstain: Any = (),
    wide: bool | None = None,
    ticks: Literal["votes", "questions"] | None = None,
    normalize: bool = False,
    map: Mapping[Any, Any] | None = None,  # noqa: A002
    many_classes: bool = False,
    kind: str | None = None,
) -> Annotations | Questions:
    """Read a table from a file, a folder, a frame or a Hugging Face dataset.

    The attribute `import_report` of the table describes how its columns were read and which rows are excluded.

    Parameters
    ----------
    source : path, frame or dataset
        A file in one of the formats of `table.io.readers.readers`, which may be compressed (gzip, bzip2, xz, Zstandard,
        or a zip of one file); "-" for standard input; a folder of files with the same columns; a frame of pandas,
        polars or DuckDB; an Arrow table; or a `datasets.Dataset`.
    format : str, optional
        The format of the file; by default, it is recognised by suffix and content.
    item, annotator, label, question, weight : str, optional
        Column names. By default, columns are found by these names or usual synonyms (`task`, `worker`, `answer`, …), or
        by content. Several columns (a list, or "doc,turn") can name an item together. For exports of annotation tools,
        `item` and `annotator` are fields of a record, and `label` is the question to read.
    proba : list of columns `p_<class>`, or class → column, optional
        A distribution over the classes instead of one label.
    classes, abstain
        As in `Annotations.from_arrays`. In CSV files, classes and abstentions are text. Both None and "" in `abstain`
        stand for an empty label.
    wide : bool, optional
        True for a table with one column per annotator; `annotator` may name these columns. By default, this is guessed
        from the content.
    ticks : "votes" or "questions", optional
        How to split answers that select several labels: into a vote per label, or into a yes/no question per label. By
        default, such answers are sets of options.
    normalize : bool
        Merge labels that differ only by capitals or spaces; the most frequent spelling is used.
    map : dict, optional
        Old label → new label, or None for no answer. It is applied before `normalize`.
    many_classes : bool
        Accept labels that do not look like classes, because there are nearly as many different labels as rows.
    kind : "classes", "graded", "numbers", "pairs" or "spans", optional
        The label type, see `table.kinds`. By default, it is guessed. Fractions, and more than 30 distinct whole
        numbers, are read as numbers. Two alternatives with the better one are read as pairs. Tags (B-x, I-x, O) of
        positions in documents, and columns with the start and end of spans, are read as spans. All other labels are
        classes.

    Returns
    -------
    Annotations, or Questions (question → Annotations) if there are several questions.

    >>> import pyarrow as pa
    >>> table = read(pa.table({"task": [7, 7, 8], "worker": ["ann", "bob", "ann"], "label": ["cat", "dog", "cat"]}))
    >>> table
    Annotations: 3 annotations of 2 items by 2 annotators, 2 classes (cat, dog), 1.5 per item
    >>> print(table.import_report)
    Read as frame: item 'task', annotator 'worker', label 'label'; all 3 rows used. Change: item=, annotator=, label=.
    """
    check_argument("ticks", ticks, Literal["votes", "questions"] | None)
    columns = ColumnNames(item, annotator, label, question, weight, proba)
    options = BuildOptions(classes, abstain, ticks, normalize, map, many_classes, kind)
    _check_options(columns, options, format, wide)
    if isinstance(source, str | PathLike):
        return _read_path(source, columns, options, format, wide)
    return _read_object(source, columns, options, wide)


def _check_options(columns: ColumnNames, options: BuildOptions, format_name: str | None, wide: bool | None) -> None:
    """Raise if an option of `read` has the wrong type."""
    for name, value in (vars(columns) | {"format": format_name}).items():
        several = name in ("item", "annotator") and isinstance(value, list | tuple) and value
        if name != "proba" and not all(isinstance(text, str | None) for text in (value if several else [value])):
            raise OutOfRange(name=ParameterName(name), allowed="be text", value=value)
    for name, types, expected, value in (
        ("proba", (Mapping, Sequence), "a list of columns, or class → column", columns.proba),
        ("classes", (int, Iterable), "a list of classes, or their number", options.classes),
        ("map", (Mapping,), "old label → new label", options.map),
        ("abstain", (str, int, float, Iterable), "a label or a list of labels", options.abstain),
        ("wide", (bool,), "True or False", wide),
    ):
        if not (value is None or isinstance(value, types)):
            raise OutOfRange(name=ParameterName(name), allowed=f"be {expected}", value=value)
    if options.kind is not None:
        check_kind(options.kind)


def _read_object(
    source: Any, columns: ColumnNames, options: BuildOptions, wide: bool | None
) -> Annotations | Questions:
    """Read a table from a frame or a Hugging Face dataset."""
    name = "frame"
    if type(source).__module__.partition(".")[0] == "datasets":
        name, (source, names) = "dataset", _read_dataset(source, columns)
        options = replace(options, classes=names if options.classes is None else options.classes)
    return import_frame(lambda _: source, columns, wide, name, options.kind).build_table(options)


def _read_path(
    source: str | PathLike[str], columns: ColumnNames, options: BuildOptions, format_name: str | None, wide: bool | None
) -> Annotations | Questions:
    """Read a table from a file, a folder or standard input."""
    if not str(source):
        raise errors.NoFileName
    with as_local_path(source) as path, name_file_in_errors(path):  # type: ignore[arg-type]
        files, folder_note = _list_folder(path) if path.is_dir() else ([path], None)
        name = format_name or _detect_common_format(path, files)
        reader, notes = readers[name], list[Note]()
        imported: ImportedColumns
        if reader.collect is not None:
            fixed_roles = [role for role in ("question", "weight", "proba") if getattr(columns, role) is not None]
            if fixed_roles or wide:
                parameter = ParameterName(f"{fixed_roles[0] if fixed_roles else 'wide'}=")
                raise errors.ParameterFixedByFormat(parameter=parameter, format=name)
            for role in ("item", "annotator"):
                if not isinstance(getattr(columns, role), str | None):
                    raise errors.SeveralFieldsNamed(parameter=ParameterName(f"{role}="), format=name)
            imported = reader.collect(files, columns, options.ticks, options.kind)
            imported.report.format = name
        else:
            imported = import_frame(partial(_read_files, reader, files, notes=notes), columns, wide, name, options.kind)
        imported.report.file = str(source)
        for note in (*notes, *([folder_note] if folder_note else [])):
            imported.report.add_note(note)
        return imported.build_table(options)


def _read_dataset(dataset: Any, columns: ColumnNames) -> tuple[pa.Table, list[str] | None]:
    """Return the required columns of a Hugging Face dataset, and the class names if its label is a ClassLabel.

    Integers of a ClassLabel become names; −1, which marks hidden labels on the hub, becomes a missing value.
    """
    if not hasattr(dataset, "select_columns") or not isinstance(getattr(dataset, "column_names", None), list):
        raise errors.SeveralSplits(type=type(dataset).__name__)
    if not hasattr(dataset, "__len__"):
        raise errors.StreamedDataset(type=type(dataset).__name__)
    required = columns_to_read(columns, dataset.column_names)
    table = dataset.select_columns(required).with_format("arrow")[:]
    declared = {name: dataset.features[name].names for name in required if hasattr(dataset.features[name], "names")}
    for name, names in declared.items():
        codes = table[name].fill_null(-1).to_numpy()
        known = np.array([*names, None], object)
        text = pa.array(known[np.where(codes >= 0, codes, -1)], pa.string())
        table = table.set_column(table.column_names.index(name), name, text)
    return table, declared.get(columns.resolve(required).get("label", ""))


def read_frame(path: str | Path) -> pa.Table:
    """Read all columns of a file in any format that `read` knows; columns of CSV files are text.

    For the export of an annotation tool, the table has one row per item, with its name, its texts and its gold label.
    """
    with as_local_path(path) as local_path, name_file_in_errors(local_path):
        files = _list_folder(local_path)[0] if local_path.is_dir() else [local_path]
        return _read_files(readers[_detect_common_format(local_path, files)], files, None, [])


def _list_folder(path: Path) -> tuple[list[Path], Note]:
    """Return the paths of the tables in a folder, and a note on the number of files."""
    files: list[Path] = []
    for folder, inside, names in os.walk(path):
        inside[:] = sorted(name for name in inside if not name.startswith((".", "_")))
        files += sorted(Path(folder) / name for name in names if not name.startswith((".", "_")))
        if len(files) > MAX_FILES_PER_FOLDER:
            raise errors.UnusableFolder(path=path, problem=f"of more than {MAX_FILES_PER_FOLDER:,} files")
    suffixes = {suffix for reader in readers.values() for suffix in reader.suffixes}
    packed = PACKED_SUFFIXES
    known = [f for f in files if (unpacked_suffix(f) if f.suffix.lower() in packed else f.suffix.lower()) in suffixes]
    names = [file.name for file in known]
    others = {name for reader in readers.values() if reader.find_companions for name in reader.find_companions(names)}
    known = [file for file in known if file.name not in others]
    if not known:
        raise errors.UnusableFolder(path=path, problem="without a table")
    return known, FilesReadAsOne(n=len(known), n_others=len(files) - len(known))


def _detect_common_format(path: Path, files: Sequence[Path]) -> str:
    """Return the format of a file, or the common format of all files in a folder."""
    formats = sorted({detect_format(file) for file in files})
    if len(formats) > 1:
        raise errors.UnusableFolder(path=path, problem=f"with files of several formats ({', '.join(formats)})")
    return formats[0]


def _read_files(reader: Reader, files: Sequence[Path], columns: ColumnNames | None, notes: list[Note]) -> pa.Table:
    """Return the rows of all files, which must have the same columns unless they are exports; extend `notes`."""
    parts: list[pa.Table] = []
    for file in files:
        with name_file_in_errors(file):
            content = reader.read(file, columns)
        table, *about = content if isinstance(content, tuple) else (content,)
        notes += about
        parts.append(table)
        if reader.collect is None and table.column_names != parts[0].column_names:
            raise errors.DifferentColumns(
                path=file.parent, file=files[0].name, columns=tuple(parts[0].column_names),
                other_file=file.name, other_columns=tuple(table.column_names),
            )  # fmt: skip
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="permissive")


def read_gold(path: str | Path, table: Annotations, item: str | None = None, label: str | None = None) -> IntArray:
    """Return the class code of each item's gold label in a file (I,), or −1 for items without a gold label.

    By default, the columns are found by name (`item` or its synonyms; `gold`, `label`, `truth`). Text is converted to
    integers if the names in the table are integers.
    """
    columns = read_gold_columns(path, item, label)
    with name_file_in_errors(Path(path)):
        return gold_codes(table, *columns)


def read_gold_columns(
    path: str | Path, item: str | None = None, label: str | None = None, usual: Sequence[str] = ()
) -> tuple[Any, Any]:
    """Return the columns of items and labels in a file of gold labels; names in `usual` take precedence."""
    frame = read_frame(path)
    with name_file_in_errors(Path(path)):
        item = item or guess_column("item", frame.column_names)
        label = label or next((name for name in usual if name in frame.column_names), None)
        label = label or guess_column("gold", frame.column_names)
        for role, column in (("item", item), ("label", label)):
            if column not in frame.column_names:
                raise missing_column_error(role, frame.column_names, column)
        return frame[item], frame[label]


def gold_codes(table: Annotations, item: Any, label: Any) -> IntArray:
    """Return each item's gold class code (I,) from the columns of `read_gold_columns`, or −1 without a gold label.

    A label that differs from a single class only by capitals and spaces is read as that class.
    """
    label = _cast_integers_like(label, table.classes)
    if table.kind in CLASS_KINDS and table.classes.dtype.kind == "O":
        label = _respell_like_classes(label, table.classes)
    return table.gold_codes(_cast_integers_like(item, table.items), label)


def gold_values(table: Annotations, item: Any, value: Any) -> FloatArray:
    """Return each item's gold number (I,) from the columns of `read_gold_columns`, or NaN without one."""
    return table.gold_values(_cast_integers_like(item, table.items), value)


def check_gold_items(item: Any, table: Annotations) -> None:
    """Warn about items with a gold label that are not in the table; raise if no item is in the table."""
    names, _ = naming.encode_column(naming.to_column(_cast_integers_like(item, table.items), "item"), "item")
    missing = names[naming.translate_codes(np.arange(names.size), names, table.items, "items of the gold labels") < 0]
    if missing.size == names.size and names.size:
        raise errors.NoGoldItemInTable(n=names.size, item=missing[0], table_item=table.items[0])
    if missing.size:
        warnings.warn(errors.GoldItemsExcluded(n_missing=missing.size, n=names.size, item=missing[0]), stacklevel=2)


def write_frame(
    columns: Any,
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    mode: int | None = None,
) -> None:
    """Write columns (name → array), an Arrow table or a frame as CSV, Parquet or JSON lines.

    The file is written completely or not at all, and floats are written without loss.

    Parameters
    ----------
    columns : mapping, Arrow table or data frame
    path : path
    format : str, optional
        By default, the suffix decides (.csv, .parquet, .jsonl; CSV and JSON lines also with .gz).
    mode : int, optional
        Permissions of the file.
    """
    path = Path(path)
    suffix = suffix_without_gz(path)
    writable = {name: reader for name, reader in readers.items() if reader.write}
    name = format or next((name for name, reader in writable.items() if suffix in reader.suffixes), "")
    if name not in writable or (write := writable[name].write) is None:
        asked = format or suffix or "a file without suffix"
        raise errors.FormatNotWritable(path=path, format=asked, reason=f"the formats are {', '.join(writable)}")
    packed = path.suffix.lower() == ".gz"
    try:
        table = columns
        if not isinstance(columns, pa.Table):
            table = pa.table(columns if isinstance(columns, Mapping) else to_arrow(columns, column_names(columns)))
        with (
            open_atomically(path, mode) as file,
            gzip.GzipFile("", "wb", 6, file, mtime=0) if packed else nullcontext(file) as target,
        ):
            write(table, target)
    except pa.ArrowException as error:
        raise errors.FormatNotWritable(path=path, format=name, reason=str(error)) from error


def write_json(value: Any, path: str | Path) -> None:
    """Write a value as indented JSON, completely or not at all; NaN and infinity become null."""
    with open_atomically(path) as file:
        file.write((dumps(value, indent=2) + "\n").encode())


def _respell_like_classes(labels: Any, classes: Names) -> Any:
    """Return the labels, each spelt like the class that differs only by capitals and spaces, if there is only one."""
    respelling = {fold: names[0] for fold, names in naming.group_spellings(classes).items() if len(names) == 1}
    respelling |= {name: name for name in classes}
    original = labels.to_pylist() if hasattr(labels, "to_pylist") else list(labels)
    respelt = [respelling.get(label, respelling.get(naming.fold_spelling(label), label)) for label in original]
    return labels if respelt == original else respelt


def _cast_integers_like(column: Any, like: Names) -> Any:
    """Convert text to integers if `like` holds integers and all texts are integers."""
    if like.dtype.kind in "iu" and pa.types.is_string(getattr(column, "type", None)):
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return column
