"""The class of labelled data sets, which are tables of annotations with data about items and annotators."""

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

from dissensus.common.atomic import open_atomically
from dissensus.common.types import BoolArray, IntArray, Names
from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from dissensus.table.annotations import ANONYMOUS_ANNOTATOR, Annotations
from dissensus.table.io import write_frame
from dissensus.table.notes import MissingDatasetParts
from dissensus.table.questions import Questions

StoredRows = tuple[Names, Callable[[], Any]]
"""The names of n items, and a function that reads their rows (n, …)."""


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Annotations with further data about items and annotators, aligned with them.

    A part that the data set does not have is None; `missing_parts` lists these parts. `load_dataset` returns the
    annotated items; `splits` and `with_unlabelled_items` also contain items without annotations.

    >>> from dissensus import load_dataset
    >>> data = load_dataset("digits-crowd")
    >>> type(data).__name__, data.missing_parts
    ('Dataset', 'digits-crowd has every part.')
    >>> len(data.item_names), len(data.annotator_names), bool(data.has_features.all() and data.has_image.all())
    (1797, 42, True)
    >>> some = data.select_items(data.gold < 5)
    >>> some.annotations.n_items, some.with_unlabelled_items is some
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
    description: str  # a title line and a short text
    annotations: Annotations | Questions
    gold: IntArray | None = None  # (I,) class codes; −1 if unknown
    items: Any = None  # Arrow table of I rows: item, text, split, …
    annotators: Any = None  # Arrow table of A rows: annotator, …
    responses: Any = None  # Arrow table of raw responses from which the labels were derived
    golds: tuple[str, ...] = ()  # valid values of `load_dataset(…, gold=…)`
    stored: Mapping[str, StoredRows] = dataclasses.field(default_factory=dict)  # keys are "features" and "images"
    unlabelled_version: Dataset | None = None  # see `with_unlabelled_items`

    @property
    def _table(self) -> Annotations:
        """Return the table of the first question; all questions have the same items and annotators."""
        return next(iter(self.annotations.values())) if isinstance(self.annotations, Questions) else self.annotations

    @property
    def item_names(self) -> Names:
        """Return the names of the items (I,), in the order of all arrays over items."""
        return self._table.items

    @property
    def annotator_names(self) -> Names:
        """Return the names of the annotators (A,)."""
        return self._table.annotators

    @property
    def with_unlabelled_items(self) -> Dataset:
        """Return the data set including items without annotations."""
        return self.unlabelled_version or self

    @cached_property
    def splits(self) -> Mapping[str, Dataset]:
        """Return split → part of the data set, such as train, dev and test, from the item column `split`.

        Each part includes items without annotations. The mapping is empty if there is no such column.
        """
        there = self.items is not None and "split" in self.items.column_names
        return self.split_by("split") if there else MappingProxyType({})

    def split_by(self, column: str) -> Mapping[str, Dataset]:
        """Return value → part of the data set, for each value of an item column such as `fold10`.

        Items with a blank value are not in any part.
        """
        frame = self.with_unlabelled_items.items
        columns = [] if frame is None else frame.column_names
        if column not in columns:
            raise errors.UnknownColumn(name=column, role="items", columns=tuple(columns)).add_subject(self.name)
        values = np.array(frame[column].to_pylist(), object)
        return MappingProxyType(
            {
                str(v): self.with_unlabelled_items.select_items(values == v)
                for v in sort_classes({v for v in values if v not in (None, "")})
            }
        )

    def select_items(self, mask: BoolArray) -> Dataset:
        """Return a data set with the items selected by a mask (I,), and all annotators and classes."""
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
            unlabelled_version=None,
        )

    def _stored_row_numbers(self, stem: str) -> IntArray:
        """Return the stored row number of each item (I,), or −1 for items without a stored row."""
        stored = self.stored[stem][0] if stem in self.stored else self.item_names[:0]
        return naming.match_names(self.item_names, stored, stem)

    def _align_stored(self, stem: str, dtype: Any, empty: float) -> Any:
        """Return the stored row of each item (I, …); items without a stored row have the value `empty`."""
        at = self._stored_row_numbers(stem)
        rows = np.asarray(self.stored[stem][1](), dtype)[at]
        rows[at < 0] = empty
        return rows

    @cached_property
    def features(self) -> Any:
        """Return the features (I, D) as float32, with NaN for items without features, or None if there are none."""
        return self._align_stored("features", np.float32, np.nan) if "features" in self.stored else None

    @cached_property
    def images(self) -> Any:
        """Return the images (I, height, width[, channel]), 0 for items without an image, or None if there are none."""
        return self._align_stored("images", None, 0) if self.has_image.any() else None

    @property
    def has_features(self) -> BoolArray:
        """Return the mask (I,) of items with features."""
        x = np.full((self.item_names.size, 1), np.nan) if self.features is None else self.features
        return np.asarray(~np.isnan(x).any(axis=1))

    @property
    def has_image(self) -> BoolArray:
        """Return the mask (I,) of items with an image."""
        return self._stored_row_numbers("images") >= 0

    def write(self, folder: str | Path, *, features: bool = False) -> list[Path]:
        """Write the data set with all its items in the layout of a data folder; return the paths of the files.

        `load_dataset(folder.name, folder=folder.parent)` reads it again, with all columns as text. Features and images
        are written only if `features` is True.
        """
        folder, data = Path(folder), self.with_unlabelled_items
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / "README.md"]
        for stem, frame in data._frames_to_write().items():
            if frame is not None:
                written.append(folder / f"{stem}.csv")
                write_frame(frame, written[-1])
        for stem, known in {"features": data.has_features, "images": data.has_image}.items() if features else ():
            if known.any():
                written.append(folder / f"{stem}.npz")
                with open_atomically(written[-1]) as stream:
                    np.savez_compressed(stream, item=data.item_names[known].astype(str), x=getattr(data, stem)[known])
        with open_atomically(folder / "README.md") as stream:
            stream.write(f"# {data.description}\n".encode())
        return sorted(written)

    def _frames_to_write(self) -> dict[str, Any]:
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
        if self.annotator_names.tolist() != [ANONYMOUS_ANNOTATOR]:
            return frames | {"annotations": table.to_arrow()}
        votes = table.votes().astype(np.int64)
        item, label = np.nonzero(votes)
        counts = {"item": table.items[item], "label": table.classes[label], "count": votes[item, label]}
        return frames | {"counts": pa.table(counts)}

    @property
    def missing_parts(self) -> str:
        """Return one sentence that lists the parts that the data set does not have."""
        absent = {
            "annotator ids (votes only)": self.annotator_names.tolist() == [ANONYMOUS_ANNOTATOR],
            "gold": self.gold is None,
            "item columns": self.items is None,
            "features": self.features is None,
            "annotator metadata": self.annotators is None,
            "splits": not self.with_unlabelled_items.splits,
        }
        known = {
            "gold": None if self.gold is None else self.gold >= 0,
            "features": None if self.features is None else self.has_features,
            "images": self.has_image if "images" in self.stored else None,
        }
        partial = {part: int(mask.sum()) for part, mask in known.items() if mask is not None and not mask.all()}
        lacking = tuple(part for part, is_absent in absent.items() if is_absent)
        return str(MissingDatasetParts(name=self.name, lacking=lacking, partial=partial, n_items=self.item_names.size))

    def __repr__(self) -> str:
        lines = [f"Dataset {self.name}: {self.description.splitlines()[0]}", f"  {self.annotations!r}"]
        if self.items is not None:
            lines.append(f"  items: {', '.join(self.items.column_names)}")
        if self.features is not None:
            lines.append(f"  features: {self.features.shape[1]} columns")
        if self.annotators is not None:
            lines.append(f"  annotators: {', '.join(self.annotators.column_names)}")
        if self.with_unlabelled_items.splits:
            sizes = (f"{name} {part.item_names.size:,}" for name, part in self.with_unlabelled_items.splits.items())
            lines.append(f"  splits: {', '.join(sizes)}")
        return "\n".join([*lines, f"  {self.missing_parts}"])


def sort_classes(names: Iterable[str]) -> list[str]:
    """Return the names sorted, as numbers if all are whole numbers, so that "10" comes after "9"."""
    names = list(names)
    if all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
        return sorted(names, key=int)
    return sorted(names)
