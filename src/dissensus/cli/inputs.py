"""What a model learns from besides labels: texts, pairs, features or images, one per item, from files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import show
from dissensus.cli.errors import say
from dissensus.cli.folder import SUMMARY
from dissensus.exceptions import BadParameter, DataError, MissingColumn, UnreadableFile

if TYPE_CHECKING:
    from dissensus.common.types import Names
    from dissensus.table.annotations import Annotations

TEXTS = ("text", "sentence", "question", "prompt")
"""Columns that are taken for the text where none is named."""
SHOWN = 12  # columns in an error


@dataclass(frozen=True)
class Inputs:
    """Which columns of a file are the inputs; a model's folder remembers it, so that `predict` need not be told."""

    kind: str  # texts, pairs, positions, features or images
    columns: tuple[str, ...] = ()  # of a table; none for arrays

    @classmethod
    def choose(
        cls,
        items: Path | None,
        text: str | None,
        pair: str | None,
        position: str | None,
        features: Path | None,
        images: Path | None,
    ) -> tuple[Path, Inputs]:
        """The file of the inputs and what to take from it, by what was asked for."""
        given = [("--features", features), ("--images", images), ("--items", items)]
        there = [option for option, path in given if path is not None]
        if len(there) > 1:
            raise BadParameter(f"{there[0]} and {there[1]} are two kinds of input; a model takes one.")
        if not there:
            raise BadParameter(
                "a model needs something to learn from besides labels: --items FILE with texts, --features FILE or "
                "--images FILE."
            )
        if pair is not None and position is not None:
            raise BadParameter("--pair and --position both name the second part of an input; give one.")
        if items is None:
            for option, column in (("--text", text), ("--pair", pair), ("--position", position)):
                if column is not None:
                    raise BadParameter(f"{option} names a column of --items; give that file.")
            if features is not None:
                return features, cls("features", () if _is_arrays(features) else _numeric(features))
            assert images is not None
            return images, cls("images")
        columns = _columns(items)
        text = text or next((name for name in TEXTS if name in columns), None)
        if text is None:
            raise MissingColumn(
                f"{items}: no column {TEXTS[0]!r} (nor {', '.join(TEXTS[1:])}); the columns are {_listed(columns)}. "
                "Name it: --text COLUMN."
            )
        second = pair or position
        kind = "texts" if second is None else "pairs" if pair is not None else "positions"
        return items, cls(kind, (text,) if second is None else (text, second))

    @classmethod
    def of(cls, model: Path) -> Inputs:
        """What the model in a folder of `dissensus train` takes."""
        import json

        if not model.is_dir():
            raise UnreadableFile(f"there is no folder {model}; give the one that `dissensus train` wrote.")
        try:
            return cls.remembered(json.loads((model / SUMMARY).read_bytes())["inputs"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UnreadableFile(
                f"{model / SUMMARY} does not say what the model takes; give a folder that `dissensus train` wrote."
            ) from error

    @classmethod
    def remembered(cls, summary: Any) -> Inputs:
        """What `as_facts` gave; ValueError and the like where it is something else."""
        return cls(str(summary["kind"]), tuple(str(column) for column in summary["columns"]))

    def as_facts(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self) | {"columns": list(self.columns)}

    def read(self, path: Path, item: str | None = None) -> tuple[Names, Any]:
        """Names of items (n,) as text or integers, each once, and their inputs (n rows)."""
        with show.waiting(f"reading {path}"):
            names, X = self._arrays(path) if _is_arrays(path) else self._table(path, item)
        import numpy as np

        known, count = np.unique(names, return_counts=True)
        if (count > 1).any():
            raise DataError(f"{path}: item {show.name(known[count > 1][0])!r} has {count.max()} rows; keep one.")
        if not len(names):
            raise DataError(f"{path}: there is no row.")
        return names, X

    def _arrays(self, path: Path) -> tuple[Names, Any]:
        from dissensus.table.datasets.folder import read_array

        if self.kind not in ("features", "images"):
            raise BadParameter(f"{path} holds arrays; this model takes {self.kind}, from a table.")
        names, x = read_array(path, "item"), read_array(path, "x")
        if len(names) != len(x):
            raise DataError(f"{path}: {len(names):,} items and {len(x):,} rows of x; they must be equally many.")
        return names, x

    def _table(self, path: Path, item: str | None) -> tuple[Names, Any]:
        from dissensus.table import names as naming
        from dissensus.table.find_columns import guess_column
        from dissensus.table.io import read_frame

        if self.kind == "images":
            raise BadParameter(f"{path}: images are read from an .npz file with arrays `item` and `x`.")
        frame = read_frame(path)
        key = item or guess_column("item", frame.column_names)
        if not self.columns:
            raise BadParameter(
                f"{path}: the model was trained on features from an .npz file; give one with arrays `item` and `x`."
            )
        for column, role in ((key or "item", "item"), *((column, "inputs") for column in self.columns)):
            if column not in frame.column_names:
                raise MissingColumn(
                    f"{path}: no column {column!r} for {role}; the columns are {_listed(frame.column_names)}."
                )
        names = naming.to_names(frame[key].combine_chunks())
        columns = [frame[column].to_pylist() for column in self.columns]
        if self.kind == "features":
            return names, _numbers(path, self.columns, columns)
        texts = ["" if value is None else str(value) for value in columns[0]]
        if self.kind == "texts":
            return names, texts
        second = columns[1]
        if self.kind == "pairs":
            return names, list(zip(texts, ["" if value is None else str(value) for value in second], strict=True))
        return names, list(zip(texts, _whole(path, self.columns[1], second), strict=True))


def aligned(table: Annotations, names: Names, X: Any, labels: Path, file: Path) -> tuple[Annotations, Any]:
    """The table over all items that have inputs, labelled or not, and the inputs in its order."""
    import numpy as np

    from dissensus.learning import inputs
    from dissensus.table import names as naming
    from dissensus.table.annotations import Annotations

    names = like(names, table.items)
    at = naming.match(table.items, names, "items")
    if (at < 0).all():
        raise DataError(
            f"none of the {table.n_items:,} items of {labels} is in {file}, such as {show.name(table.items[0])!r} "
            f"(there, {show.name(names[0])!r}); is it the right file, and its column `item` the right one?"
        )
    if gone := int((at < 0).sum()):
        some = show.name(table.items[at < 0][0])
        say(f"warning: {gone:,} of {table.n_items:,} items are not in {file}, such as {some!r}; they are left out.")
        table = table.select(items=at >= 0)
        at = at[at >= 0]
    order = np.argsort(names, kind="stable")
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    whole = Annotations.from_codes(
        place[at][table.item].astype(np.int32), table.annotator, table.label, names[order], table.annotators,
        table.classes, weight=table.weight, proba=table.proba,
    )  # fmt: skip
    return whole, inputs.take(X, order)


def like(names: Names, other: Names) -> Names:
    """Names as text where others are text, as integers where others are."""
    import numpy as np

    if names.dtype.kind in "iu" and other.dtype.kind == "O":
        return np.array([str(name) for name in names.tolist()], object)
    if names.dtype.kind == "O" and other.dtype.kind in "iu":
        try:
            return np.array([int(name) for name in names.tolist()])
        except ValueError:
            return names
    return names


def _is_arrays(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def _columns(path: Path) -> list[str]:
    from dissensus.table.io import read_frame

    with show.waiting(f"reading {path}"):
        return list(read_frame(path).column_names)


def _numeric(path: Path) -> tuple[str, ...]:
    """The columns of a table besides the items' names."""
    from dissensus.table.find_columns import guess_column

    columns = _columns(path)
    found = tuple(name for name in columns if name != guess_column("item", columns))
    if not found:
        raise UnreadableFile(f"{path} has no columns but {_listed(columns)}; features are columns of numbers.")
    return found


def _numbers(path: Path, names: tuple[str, ...], columns: list[list[Any]]) -> Any:
    import numpy as np

    result = np.empty((len(columns[0]), len(columns)), np.float32)
    for d, (name, values) in enumerate(zip(names, columns, strict=True)):
        for i, value in enumerate(values):
            try:
                result[i, d] = float("nan") if value in (None, "") else float(value)
            except ValueError:
                raise DataError(f"{path}: column {name!r}, row {i} (from 0) is {value!r}, not a number.") from None
    return result


def _whole(path: Path, name: str, values: list[Any]) -> list[int]:
    for i, value in enumerate(values):
        if not (isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal())):
            raise DataError(f"{path}: column {name!r}, row {i} (from 0) is {value!r}, not a whole number.")
    return [int(value) for value in values]


def _listed(columns: list[str]) -> str:
    return ", ".join(map(repr, columns[:SHOWN])) + (", …" if len(columns) > SHOWN else "")
