"""A labelled set: its table of annotations, and whatever else is known about items and annotators, aligned with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.common.atomic import atomic
from dissensus.common.formatting import word_list
from dissensus.common.types import BoolArray, IntArray, Names
from dissensus.exceptions import MissingColumn
from dissensus.table import names as naming
from dissensus.table.annotations import ANONYMOUS, Annotations
from dissensus.table.io import write_frame
from dissensus.table.questions import Questions

StoredRows = tuple[Names, Callable[[], Any]]
"""Names of items, and what reads their rows (n, …)."""


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Annotations with what is known beside them; a part that the set does not have is None, and `missing` says so.

    `load_dataset` gives the items that have annotations; `splits` and `whole` also hold those without.

    >>> from dissensus import load_dataset
    >>> data = load_dataset("digits-crowd")
    >>> type(data).__name__, data.missing
    ('Dataset', 'digits-crowd has every part.')
    >>> len(data.item_names), len(data.annotator_names), bool(data.has_features.all() and data.has_image.all())
    (1797, 42, True)
    >>> some = data.only(data.gold < 5)
    >>> some.annotations.n_items, some.whole is some
    (901, True)
    >>> list(data.split_by("split"))
    ['test', 'train']
    >>> data.features.shape, data.images.shape, list(data.splits)
    ((1797, 64), (1797, 8, 8), ['test', 'train'])
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(path.name for path in some.write(folder))[:2]
    ['README.md', 'annotations.csv']
    """

    name: str
    description: str  # a title, and a line or two
    annotations: Annotations | Questions
    gold: IntArray | None = None  # (I,) class codes, −1 unknown
    items: Any = None  # Arrow table of I rows: item, text, split, …
    annotators: Any = None  # Arrow table of A rows: annotator, …
    responses: Any = None  # Arrow table: raw responses behind the labels, as they were given
    golds: tuple[str, ...] = ()  # what `load_dataset(…, gold=…)` accepts
    stored: Mapping[str, StoredRows] = dataclasses.field(default_factory=dict)  # "features", "images"
    unlabelled_too: Dataset | None = None  # see `whole`

    @property
    def _table(self) -> Annotations:
        """Any of the tables: all questions share items and annotators."""
        return next(iter(self.annotations.values())) if isinstance(self.annotations, Questions) else self.annotations

    @property
    def item_names(self) -> Names:
        """(I,) the names of the items, in the order of every aligned array."""
        return self._table.items

    @property
    def annotator_names(self) -> Names:
        """(A,) the names of the annotators."""
        return self._table.annotators

    @property
    def whole(self) -> Dataset:
        """The same set with the items that nobody labelled."""
        return self.unlabelled_too or self

    @cached_property
    def splits(self) -> Mapping[str, Dataset]:
        """The parts by the `split` column of the items, such as train, dev, test; none where there is no such column.

        A part holds all its items, also those without annotations.
        """
        there = self.items is not None and "split" in self.items.column_names
        return self.split_by("split") if there else MappingProxyType({})

    def split_by(self, column: str) -> Mapping[str, Dataset]:
        """Split by the values of another column of the items, such as `fold10`; blank values are in no part."""
        frame = self.whole.items
        columns = [] if frame is None else frame.column_names
        if column not in columns:
            raise MissingColumn(f"{self.name}: no item column '{column}'; there are {', '.join(columns) or 'none'}.")
        values = np.array(frame[column].to_pylist(), object)
        return MappingProxyType(
            {str(v): self.whole.only(values == v) for v in class_order({v for v in values if v not in (None, "")})}
        )

    def only(self, mask: BoolArray) -> Dataset:
        """The part with the items of a mask over `item_names`; annotators and classes all stay."""
        annotations: Annotations | Questions
        if isinstance(self.annotations, Questions):
            annotations = Questions({q: table.select(items=mask) for q, table in self.annotations.items()})
        else:
            annotations = self.annotations.select(items=mask)
        return dataclasses.replace(
            self,
            annotations=annotations,
            gold=None if self.gold is None else self.gold[mask],
            items=None if self.items is None else self.items.filter(mask),
            unlabelled_too=None,
        )

    def _rows(self, stem: str) -> IntArray:
        """(I,) where the row of each item is stored, −1 for none."""
        stored = self.stored[stem][0] if stem in self.stored else self.item_names[:0]
        return naming.match(self.item_names, stored, stem)

    def _aligned(self, stem: str, dtype: Any, empty: float) -> Any:
        """(I, …) the stored rows of these items, `empty` where an item has none."""
        at = self._rows(stem)
        rows = np.asarray(self.stored[stem][1](), dtype)[at]
        rows[at < 0] = empty
        return rows

    @cached_property
    def features(self) -> Any:
        """(I, D) float32, NaN in the rows of items without; None where the set has none."""
        return self._aligned("features", np.float32, np.nan) if "features" in self.stored else None

    @cached_property
    def images(self) -> Any:
        """(I, height, width[, channel]) pixels, zero where not `has_image`; None where no item has an image."""
        return self._aligned("images", None, 0) if self.has_image.any() else None

    @property
    def has_features(self) -> BoolArray:
        """(I,) True where an item has features."""
        x = np.full((self.item_names.size, 1), np.nan) if self.features is None else self.features
        return np.asarray(~np.isnan(x).any(axis=1))

    @property
    def has_image(self) -> BoolArray:
        """(I,) True where the pixels of an item are stored."""
        return self._rows("images") >= 0

    def write(self, folder: str | Path, *, features: bool = False) -> list[Path]:
        """Write the set, all its items, in the layout of a data folder; returns the paths of the files.

        `load_dataset(folder.name, folder=folder.parent)` reads it again, with all columns as text. Features and images
        go along only where asked for.
        """
        folder, data = Path(folder), self.whole
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / "README.md"]
        for stem, frame in data._frames().items():
            if frame is not None:
                written.append(folder / f"{stem}.csv")
                write_frame(frame, written[-1])
        for stem, known in {"features": data.has_features, "images": data.has_image}.items() if features else ():
            if known.any():
                written.append(folder / f"{stem}.npz")
                with atomic(written[-1]) as stream:
                    np.savez_compressed(stream, item=data.item_names[known].astype(str), x=getattr(data, stem)[known])
        with atomic(folder / "README.md") as stream:
            stream.write(f"# {data.description}\n".encode())
        return sorted(written)

    def _frames(self) -> dict[str, Any]:
        frames = {"items": self.items, "annotators": self.annotators, "responses": self.responses}
        table = self.annotations
        if isinstance(table, Questions):
            asked = [
                t.to_arrow().append_column("question", pa.array([question] * len(t))) for question, t in table.items()
            ]
            return frames | {"annotations": pa.concat_tables(asked)}
        if self.gold is not None:
            known = self.gold >= 0
            frames["gold"] = pa.table({"item": table.items[known], "label": table.classes[self.gold[known]]})
        if self.annotator_names.tolist() != [ANONYMOUS]:
            return frames | {"annotations": table.to_arrow()}
        votes = table.votes().astype(np.int64)
        item, label = np.nonzero(votes)
        counts = {"item": table.items[item], "label": table.classes[label], "count": votes[item, label]}
        return frames | {"counts": pa.table(counts)}

    @property
    def missing(self) -> str:
        """Say in one sentence what this set does not have."""
        absent = {
            "annotator ids (votes only)": self.annotator_names.tolist() == [ANONYMOUS],
            "gold": self.gold is None,
            "item columns": self.items is None,
            "features": self.features is None,
            "annotator metadata": self.annotators is None,
            "splits": not self.whole.splits,
        }
        lacks = [f"no {what}" for what, gone in absent.items() if gone]
        text = f"{self.name} has {word_list(lacks) if lacks else 'every part'}"
        partly = {
            "gold": None if self.gold is None else self.gold >= 0,
            "features": None if self.features is None else self.has_features,
            "images": self.has_image if "images" in self.stored else None,
        }
        for what, known in partly.items():
            if known is not None and not known.all():
                text += f"; {what} for {known.sum():,} of its {known.size:,} items"
        return text + "."

    def __repr__(self) -> str:
        lines = [f"Dataset {self.name}: {self.description.splitlines()[0]}", f"  {self.annotations!r}"]
        if self.items is not None:
            lines.append(f"  items: {', '.join(self.items.column_names)}")
        if self.features is not None:
            lines.append(f"  features: {self.features.shape[1]} columns")
        if self.annotators is not None:
            lines.append(f"  annotators: {', '.join(self.annotators.column_names)}")
        if self.whole.splits:
            sizes = (f"{name} {part.item_names.size:,}" for name, part in self.whole.splits.items())
            lines.append(f"  splits: {', '.join(sizes)}")
        return "\n".join([*lines, f"  {self.missing}"])


def class_order(names: Iterable[str]) -> list[str]:
    """Sort names; by value where all are whole numbers, so that "10" comes after "9"."""
    names = list(names)
    if all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
        return sorted(names, key=int)
    return sorted(names)
