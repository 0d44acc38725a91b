"""Tables in and out: one file per format; `formats.FORMATS` knows them all."""

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

from dissensus.common.atomic import atomic
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.exceptions import BadParameter, DataError, DataWarning, UnreadableFile
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import Columns, column_names, guess_column, listed, needed, no_column, to_arrow
from dissensus.table.io.build import Build, Taken, long_table
from dissensus.table.io.files import PACKED_SUFFIXES, about, as_file
from dissensus.table.io.formats import FORMATS, Format, detect, suffix_of, unpacked_suffix
from dissensus.table.io.jsonl import dumps
from dissensus.table.kinds import CLASS_KINDS, check_kind
from dissensus.table.questions import Questions

MAX_FILES = 10_000  # in a folder that is read as one table


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
    """Read a table from a file, a folder, a frame or a Hugging Face dataset; `source` of the table says how.

    Parameters
    ----------
    source : path, frame or dataset
        A file of one of the formats in `table.io.formats.FORMATS`, plain or packed (gzip, bzip2, xz, Zstandard, a zip
        of one file); "-" for standard input; a folder of files with the same columns; a pandas, polars or DuckDB frame
        or Arrow table; a `datasets.Dataset`.
    format : str, optional
        The file's format; found by suffix and content where left out.
    item, annotator, label, question, weight : str, optional
        Column names; found by the usual names (`task`, `worker`, `answer`, …), else by content, where left out. Several
        columns (a list, or "doc,turn") name an item together. In the exports of annotation tools, `item` and
        `annotator` name fields of a record, `label` the question that is read.
    proba : list of columns `p_<class>`, or class → column, optional
        A distribution over the classes instead of one label.
    classes, abstain
        As in `Annotations.from_arrays`. CSV holds text: there, classes and abstentions are text. None and "" in
        `abstain` both stand for an empty label.
    wide : bool, optional
        True for a table with a column per annotator, which `annotator` may name. Left out, it is seen by the content.
    ticks : "votes" or "questions", optional
        How to take answers that tick several labels: each a vote of its own, or a yes/no question per label. Left out,
        such answers are an error.
    normalize : bool
        Take labels that differ by capitals or spaces only for one, in its most frequent spelling.
    map : dict, optional
        Old label → new one, None for no answer; applied first.
    many_classes : bool
        Accept labels that do not look like classes, because there are nearly as many as rows.
    kind : "classes", "graded", "numbers", "pairs" or "spans", optional
        What the labels are, see `table.kinds`. Left out, labels with fractions and more than 30 different whole numbers
        are numbers, a table of two things and which is better holds pairs, tags (B-x, I-x, O) of places in documents
        and spans (columns of documents, starts and ends) are spans, all else are classes.

    Returns
    -------
    Annotations, or Questions (question → Annotations) where there is a column `question`.

    >>> import pyarrow as pa
    >>> table = read(pa.table({"task": [7, 7, 8], "worker": ["ann", "bob", "ann"], "label": ["cat", "dog", "cat"]}))
    >>> table
    Annotations: 3 annotations of 2 items by 2 annotators, 2 classes (cat, dog), 1.5 per item
    >>> print(table.source)
    Read as frame: item 'task', annotator 'worker', label 'label'; all 3 rows used. Change: item=, annotator=, label=.
    """
    check_argument("ticks", ticks, Literal["votes", "questions"] | None)
    columns = Columns(item, annotator, label, question, weight, proba)
    for name, given in (vars(columns) | {"format": format}).items():
        several = name in ("item", "annotator") and isinstance(given, list | tuple) and given
        if name != "proba" and not all(one is None or isinstance(one, str) for one in (given if several else [given])):
            raise BadParameter(f"{name} must be text, got {given!r}.")
    for name, kinds, given in (
        ("proba", (Mapping, Sequence), proba), ("classes", (int, Iterable), classes), ("map", (Mapping,), map),
        ("abstain", (str, int, float, Iterable), abstain), ("wide", (bool,), wide),
    ):  # fmt: skip
        if not (given is None or isinstance(given, kinds)):
            raise BadParameter(f"{name} cannot be {given!r}; the guide to tables says what it is.")
    if kind is not None:
        check_kind(kind)
    build = Build(classes, abstain, ticks, normalize, map, many_classes, kind)
    if not isinstance(source, str | PathLike):
        name = "frame"
        if type(source).__module__.partition(".")[0] == "datasets":  # whoever has such an object has the package
            name, (source, names) = "dataset", _read_dataset(source, columns)
            build = replace(build, classes=names if classes is None else classes)
        return long_table(lambda _: source, columns, wide, name, kind).finish(build)
    if not str(source):
        raise UnreadableFile("the name of the file is empty; name one.")
    with as_file(source) as path, about(path):  # type: ignore[arg-type]
        files, note = _in_folder(path) if path.is_dir() else ([path], "")
        found = _one_format(path, files, format)
        if found.collect is not None:
            given = [role for role in ("question", "weight", "proba") if getattr(columns, role) is not None]
            if given or wide:
                what = given[0] if given else "wide"
                raise BadParameter(f"{what}= has no meaning for {found.name}, where it is fixed; leave it out.")
            for role, fields in (("item", item), ("annotator", annotator)):
                if not (fields is None or isinstance(fields, str)):
                    raise BadParameter(f"{role}= names several fields; in {found.name} it is one.")
            taken: Taken = found.collect(files, columns, ticks, kind)
        else:
            taken = long_table(partial(_read_files, found, files), columns, wide, found.name, kind)
        taken.reading.file = str(source)
        taken.reading.notes += [note] if note else []
        return taken.finish(build)


def _read_dataset(dataset: Any, columns: Columns) -> tuple[pa.Table, list[str] | None]:
    """Read the columns needed of a Hugging Face dataset, and the class names that its label declares (ClassLabel).

    Integers of a ClassLabel become their names; −1, by which the hub marks a label that is held back, becomes missing.
    """
    if not hasattr(dataset, "select_columns") or not isinstance(getattr(dataset, "column_names", None), list):
        raise DataError(f"a {type(dataset).__name__} holds several splits; name one: dataset['train'].")
    if not hasattr(dataset, "__len__"):
        raise DataError(f"a {type(dataset).__name__} is read piece by piece; load it whole, without streaming=True.")
    wanted = needed(columns, dataset.column_names)
    table = dataset.select_columns(wanted).with_format("arrow")[:]
    declared = {name: dataset.features[name].names for name in wanted if hasattr(dataset.features[name], "names")}
    for name, names in declared.items():
        codes = table[name].fill_null(-1).to_numpy()
        known = np.array([*names, None], object)
        text = pa.array(known[np.where(codes >= 0, codes, -1)], pa.string())
        table = table.set_column(table.column_names.index(name), name, text)
    return table, declared.get(columns.find(wanted).get("label", ""))


def read_frame(path: str | Path) -> pa.Table:
    """Read all columns of a file, of any format that `read` knows; CSV as text, the others with their types.

    Of an annotation tool's export, one row per item: its name, its texts and, where it is known, its label.
    """
    with as_file(path) as file, about(file):
        files = _in_folder(file)[0] if file.is_dir() else [file]
        return _read_files(_one_format(file, files, None), files, None)


def _in_folder(path: Path) -> tuple[list[Path], str]:
    """The tables in a folder, and a note on how many files are read as one."""
    files: list[Path] = []
    for folder, inside, names in os.walk(path):
        inside[:] = sorted(name for name in inside if not name.startswith((".", "_")))
        files += sorted(Path(folder) / name for name in names if not name.startswith((".", "_")))
        if len(files) > MAX_FILES:
            raise UnreadableFile(f"{path} is a folder of more than {MAX_FILES:,} files; name one file in it.")
    suffixes = {suffix for one in FORMATS.values() for suffix in one.suffixes}
    packed = PACKED_SUFFIXES
    known = [f for f in files if (unpacked_suffix(f) if f.suffix.lower() in packed else f.suffix.lower()) in suffixes]
    if any("samples_" in file.name for file in known):  # lm-evaluation-harness writes its means beside
        known = [file for file in known if not file.name.startswith("results_")]
    if not known:
        raise UnreadableFile(f"{path} is a folder without a table in it; name a file.")
    left = len(files) - len(known)
    return known, f"Files read as one: {len(known):,}" + (f"; files that are no table: {left:,}." if left else ".")


def _one_format(path: Path, files: Sequence[Path], format: str | None) -> Format:  # noqa: A002
    """The format of a file, or of all files of a folder."""
    formats = [format] if format else sorted({detect(file).name for file in files})
    if len(formats) > 1:
        raise UnreadableFile(f"{path} is a folder of several formats ({', '.join(formats)}); name one file in it.")
    return FORMATS[formats[0]]


def _read_files(found: Format, files: Sequence[Path], columns: Columns | None) -> pa.Table:
    """The rows of all files, which must have the same columns; of exports, whose items may have other fields, any."""
    parts: list[pa.Table] = []
    for file in files:
        with about(file):
            parts.append(found.read(file, columns))
        if found.collect is None and parts[-1].column_names != parts[0].column_names:
            one, other = (listed(part.column_names) for part in (parts[0], parts[-1]))
            raise UnreadableFile(
                f"{file.parent} is a folder whose files have other columns each ({files[0].name}: {one}; {file.name}: "
                f"{other}); name one file in it."
            )
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts, promote_options="permissive")


def read_gold(path: str | Path, table: Annotations, item: str | None = None, label: str | None = None) -> IntArray:
    """(I,) class codes of known labels, aligned with `table.items`; −1 where the file has no label for an item.

    The columns are found by name (`item` or its synonyms; `gold`, `label`, `truth`) where left out. Text, as CSV holds
    it, is taken for integers where the table's names are integers.
    """
    columns = gold_columns(path, item, label)
    with about(Path(path)):
        return gold_codes(table, *columns)


def gold_columns(
    path: str | Path, item: str | None = None, label: str | None = None, usual: Sequence[str] = ()
) -> tuple[Any, Any]:
    """Read the columns of items and labels of a file of known labels, as Arrow arrays; `usual` names come first."""
    frame = read_frame(path)
    with about(Path(path)):
        item = item or guess_column("item", frame.column_names)
        label = label or next((name for name in usual if name in frame.column_names), None)
        label = label or guess_column("gold", frame.column_names)
        for role, column in (("item", item), ("label", label)):
            if column not in frame.column_names:
                raise no_column(role, frame.column_names, column)
        return frame[item], frame[label]


def gold_codes(table: Annotations, item: Any, label: Any) -> IntArray:
    """(I,) class codes of known labels, from the columns that `gold_columns` returns; −1 where none is known.

    A label that differs from one class by capitals and spaces alone is that class.
    """
    label = _in_kind_of(label, table.classes)
    if table.kind in CLASS_KINDS and table.classes.dtype.kind == "O":
        label = _spelt_as(label, table.classes)
    return table.gold_codes(_in_kind_of(item, table.items), label)


def gold_values(table: Annotations, item: Any, value: Any) -> FloatArray:
    """(I,) known numbers, from the columns that `gold_columns` returns; NaN where none is known."""
    return table.gold_values(_in_kind_of(item, table.items), value)


def check_gold_items(item: Any, table: Annotations) -> None:
    """Warn of items with a known label that the table does not hold; raise DataError where it holds none of them."""
    names, _ = naming.encode(naming.to_column(_in_kind_of(item, table.items), "item"), "item")
    strange = names[naming.recode(np.arange(names.size), names, table.items, "items of the gold labels") < 0]
    if strange.size == names.size and names.size:
        raise DataError(
            f"none of the {names.size:,} items with a known label is in the table, such as {naming.shown(strange[0])}; "
            f"the table has {naming.shown(table.items[0])}. Name the column of items, or make the names alike."
        )
    if strange.size:
        warnings.warn(
            f"{strange.size:,} of {names.size:,} items with a known label are not in the table, such as "
            f"{naming.shown(strange[0])}; they are left out.",
            DataWarning,
            stacklevel=2,
        )


def write_frame(
    columns: Any,
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    mode: int | None = None,
) -> None:
    """Write columns (name → array), an Arrow table or a frame as CSV, Parquet or JSON lines.

    The format is taken from the suffix (.csv, .parquet, .jsonl; text also with .gz) where left out. The file appears
    whole or not at all, and floats read back as the same bits. `mode`: the permissions of the file.
    """
    path = Path(path)
    suffix = suffix_of(path)
    writers = [one for one in FORMATS.values() if one.write]
    writer = next((one for one in writers if (one.name == format if format else suffix in one.suffixes)), None)
    if writer is None or writer.write is None:
        there = ", ".join(one.name for one in writers)
        raise BadParameter(f"cannot write {path} as {format or suffix or 'a file without suffix'}; there are {there}.")
    packed = path.suffix.lower() == ".gz"
    try:
        table = columns
        if not isinstance(columns, pa.Table):
            table = pa.table(columns if isinstance(columns, Mapping) else to_arrow(columns, column_names(columns)))
        with (
            atomic(path, mode) as file,
            gzip.GzipFile("", "wb", 6, file, mtime=0) if packed else nullcontext(file) as target,
        ):
            writer.write(table, target)
    except pa.ArrowException as error:
        raise BadParameter(f"cannot write {path} as {writer.name}: {error}.") from error


def write_json(value: Any, path: str | Path) -> None:
    """Write a value as indented JSON, whole or not at all; NaN and infinity become null."""
    with atomic(path) as file:
        file.write((dumps(value, indent=2) + "\n").encode())


def _spelt_as(labels: Any, classes: Names) -> Any:
    """Labels with the spelling of the one class that they differ from by capitals and spaces alone."""
    meant = {fold: names[0] for fold, names in naming.spellings(classes).items() if len(names) == 1}
    meant |= {name: name for name in classes}
    said = labels.to_pylist() if hasattr(labels, "to_pylist") else list(labels)
    found = [meant.get(one, meant.get(naming.folded(one), one)) for one in said]
    return labels if found == said else found


def _in_kind_of(column: Any, like: Names) -> Any:
    """Turn text into integers where `like` holds integers and all of the text spells integers."""
    if like.dtype.kind in "iu" and pa.types.is_string(getattr(column, "type", None)):
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return column
