"""Turn the parts of a classifier into plain values for a file, and name a run for its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from torch import Tensor

from dissensus.common.json_lines import key_of
from dissensus.common.registry import Registry
from dissensus.common.types import IntArray
from dissensus.learning.batches import Bag, Columns, Mapped, Padded
from dissensus.learning.encoders import Encoder
from dissensus.learning.objectives import Objective
from dissensus.learning.trainer import Training
from dissensus.learning.validation import Validation
from dissensus.models.base import Aggregator, methods
from dissensus.table.annotations import Annotations


def run_key(
    model: Training,
    table: Annotations,
    columns: Columns,
    gold: IntArray | None,
    validation: Validation | None,
    objective: Objective,
) -> str:
    """Hash keywords, annotations, names, gold, inputs, validation and features of annotators."""
    arrays, inputs = [gold, objective.annotator_features_], [columns]
    if validation is not None:
        arrays += [validation.rows, validation.truth]
        inputs += [] if validation.columns is columns else [validation.columns]
    tensors = (x for part in inputs for column in part.columns.values() for x in _tensors(column))
    settings = {**model.deciding(), "arrays": [array is not None for array in arrays], "inputs": len(inputs)}
    there = (array for array in arrays if array is not None)
    return key_of(settings, [table], chain(there, (x.numpy() for x in tensors)))


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
    return Columns(
        **{
            name: kinds[column.pop("kind")](**column) if isinstance(column, dict) else column
            for name, column in stored.items()
        }
    )


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
