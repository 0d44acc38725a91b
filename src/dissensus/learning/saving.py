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
from dissensus.models.base import Aggregator, annotated_results, methods
from dissensus.models.saving import OPTIONAL, check_arrays
from dissensus.table.annotations import Annotations

LEARNT = {"center_": "F real", "spread_": "F real", "n_classes_": "whole"}  # of a part


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
    """The part that `stored_part` stored; what is out of its range raises ValueError or BadParameter."""
    keywords = {
        name: methods[value["method"]](**value["keywords"]) if isinstance(value, dict) and "method" in value else value
        for name, value in stored["parameters"].items()
    }
    part = registry[stored["name"]](**keywords)
    part.check_parameters()
    check_arrays(stored["learnt"], LEARNT)
    return with_learnt(part, stored["learnt"])


def with_results(model: Any, values: dict[str, Any]) -> None:
    """Set the results of a fitted classifier; ValueError where one is missing, of another shape or out of range."""
    schema: dict[str, str] = annotated_results(model.__class__)
    if missing := [name for name, about in schema.items() if name not in values and not about.startswith(OPTIONAL)]:
        raise ValueError(f"there is no {missing[0]}")
    check_arrays(values, schema)
    with_learnt(model, values)
