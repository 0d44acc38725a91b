"""Turn the parts of a classifier into plain values for a file, and name a run for its checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from dissensus.common.registry import Registry
from dissensus.common.types import IntArray
from dissensus.learning.batches import Bag, Columns, Mapped, Padded
from dissensus.learning.encoders import Encoder
from dissensus.learning.objectives import Objective
from dissensus.learning.optimizers import stored_optimizer
from dissensus.learning.validation import Validation
from dissensus.models.base import Aggregator, methods
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

RUNNING = ("checkpoint", "checkpoint_every", "device", "precision", "processes", "compile", "accumulate")
"""Keywords that say where and how a run is computed, not what it computes."""


def run_key(
    keywords: dict[str, Any],
    table: Annotations,
    columns: Columns,
    gold: IntArray | None,
    validation: Validation | None,
    objective: Objective,
) -> str:
    """A digest of keywords, annotations, names, gold, inputs, validation and features of annotators."""
    digest = hashlib.blake2b(digest_size=16)
    keywords = {name: value for name, value in keywords.items() if name not in RUNNING}
    keywords["optimizer"] = stored_optimizer(keywords["optimizer"])
    digest.update(repr(sorted(keywords.items())).encode())
    arrays = [table.item_ptr, table.annotator, table.label, table.weight, table.proba, gold]
    arrays += [naming.hashes(names) for names in (table.items, table.annotators, table.classes)]
    arrays += [] if objective.annotator_features_ is None else [objective.annotator_features_]
    inputs = [columns]
    if validation is not None:
        arrays += [validation.rows, validation.truth]
        inputs += [] if validation.columns is columns else [validation.columns]
    for array in arrays:
        digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
    for part in inputs:
        for name, column in part.columns.items():
            digest.update(name.encode())
            for tensor in _tensors(column):
                digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


def _tensors(column: Tensor | Mapped | Padded | Bag) -> Iterable[Tensor]:
    """The tensors of a column; a file some rows at a time, which make the same bytes as all at once."""
    if isinstance(column, Tensor):
        return [column]
    if isinstance(column, Mapped):
        return column.blocks()
    return [column.ptr, *([column.values] if isinstance(column, Padded) else column.columns.values())]


def stored_columns(columns: Columns) -> dict[str, Any]:
    """Prepared inputs as plain values and tensors; those of a file are read, since the file may be gone."""
    stored: dict[str, Any] = {}
    for name, column in columns.columns.items():
        if isinstance(column, Padded | Bag):
            stored[name] = {"kind": type(column).__name__, **vars(column)}
        else:
            stored[name] = column.to("cpu") if isinstance(column, Mapped) else column
    return stored


def loaded_columns(stored: dict[str, Any]) -> Columns:
    """The columns that `stored_columns` stored."""
    kinds = {"Padded": Padded, "Bag": Bag}

    def loaded(column: Any) -> Any:
        if not isinstance(column, dict):
            return column
        return kinds[column["kind"]](**{key: value for key, value in column.items() if key != "kind"})

    return Columns(**{name: loaded(column) for name, column in stored.items()})


def learnt(part: Encoder | Objective) -> dict[str, Any]:
    """What `fit` learnt: the attributes whose names end in an underscore."""
    return {name: value for name, value in vars(part).items() if name.endswith("_")}


def with_learnt(part: Any, values: dict[str, Any]) -> Any:
    """The part, with these attributes set."""
    for name, value in values.items():
        setattr(part, name, value)
    return part


def stored_part(part: Encoder | Objective, registry: Registry[Any]) -> dict[str, Any]:
    """An encoder or objective as plain values and arrays."""
    keywords = {
        name: {"method": methods.name_of(type(value)), "keywords": value.get_params(deep=False)}
        if isinstance(value, Aggregator)
        else value
        for name, value in part.get_params(deep=False).items()
    }
    return {"name": registry.name_of(type(part)), "parameters": keywords, "learnt": learnt(part)}


def loaded_part(stored: dict[str, Any], registry: Registry[Any]) -> Any:
    """The part that `stored_part` stored."""
    keywords = {
        name: methods[value["method"]](**value["keywords"]) if isinstance(value, dict) and "method" in value else value
        for name, value in stored["parameters"].items()
    }
    return with_learnt(registry[stored["name"]](**keywords), stored["learnt"])
