"""A fitted aggregator on disk: one file, `model.npz`, of arrays and a JSON header. Never pickle.

Everything that `fit` left in attributes ending in `_` is kept: arrays of numbers as they are, arrays of text as UTF-8
bytes and offsets, plain values in the header with the method's name and keywords. One file, because two could be of
two runs.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.common.atomic import atomic
from dissensus.common.types import Names
from dissensus.compute.engines.options import name_of
from dissensus.exceptions import BadParameter, UnreadableFile
from dissensus.models.base import Aggregator, clusterings, methods

FILE = "model.npz"
DAMAGE = (
    ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, RuntimeError, NotImplementedError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What NumPy, zipfile and json raise for a file that is not as it was written."""
FORMAT = 1  # raised when an older reader could not make sense of the file


def save(model: Aggregator, folder: str | Path, *, items: bool = True) -> Path:
    """Write a fitted model into `folder` (made if need be) as model.npz; returns the file's path.

    Without `items` all that there is one of per item is left out: such a model scores new tables, and knows none of the
    items that it was fitted to.
    """
    if not isinstance(model, Aggregator):
        raise BadParameter(
            f"save writes fitted methods, and {type(model).__name__} writes itself; say model.save(folder)."
            if hasattr(model, "save")
            else f"save writes fitted methods, got {type(model).__name__}."
        )
    model._check_fitted()
    path = Path(folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for key, value in vars(model).items():
        if not key.endswith("_") or key.startswith("_") or key == "items_path_":  # that is a folder of this machine
            continue
        if not items and key in ("items_", *model._per_item):
            value = np.empty((0, *value.shape[1:]), value.dtype)
        if hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic):  # kept by another engine
            value = np.asarray(value)
        if isinstance(value, np.ndarray) and value.dtype == object:
            arrays |= {f"{key}:{part}": array for part, array in pack_text(value).items()}
        elif isinstance(value, np.ndarray):
            arrays[key] = value
        else:
            values[key] = value
    registry = methods if methods.entry_of(type(model)) is not None else clusterings
    # where it was fitted, without the options: they name folders and devices of this machine
    engine = {"engine": name_of(model.engine)} if "engine" in model.parameter_names() else {}  # type: ignore[attr-defined]
    header = {
        "format": FORMAT,
        "method": registry.name_of(type(model)),
        "parameters": model.get_params(deep=False) | engine,
        "values": values,
    }
    arrays["header"] = np.frombuffer(json.dumps(header, default=lambda number: number.item()).encode(), np.uint8)
    with atomic(path) as file:
        np.savez(file, **arrays)
    return path


def load(folder: str | Path) -> Aggregator:
    """The model that `save` wrote into `folder`, ready to score new tables."""
    path = Path(folder) if Path(folder).name == FILE else Path(folder) / FILE
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            stored = {key: arrays[key] for key in arrays.files}
        header = json.loads(stored.pop("header").tobytes())
        if header["format"] != FORMAT:
            raise UnreadableFile(
                f"{path} is of format {header['format']}, this version of dissensus reads format {FORMAT}; fit again."
            )
        registry = methods if header["method"] in methods else clusterings
        model = registry[header["method"]](**header["parameters"])
        for key, value in header["values"].items():
            setattr(model, key, value)
        for key, array in stored.items():
            name, _, part = key.partition(":")
            if part != "offsets":
                setattr(model, name, unpack_text(array, stored[f"{name}:offsets"]) if part == "bytes" else array)
        model._check_fitted()
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableFile(f"no fitted model in {folder}: there is no {FILE}.") from None
    except UnreadableFile:
        raise
    except DAMAGE as error:
        raise UnreadableFile(f"{path} is damaged ({error}); fit again.") from error
    return model


def pack_text(names: Names) -> dict[str, Any]:
    """Turn names into UTF-8 bytes, and where each of them starts."""
    encoded = [str(name).encode() for name in names.tolist()]
    return {
        "bytes": np.frombuffer(b"".join(encoded), np.uint8),
        "offsets": np.cumsum([0, *map(len, encoded)], dtype=np.int64),
    }


def unpack_text(data: Any, offsets: Any) -> Names:
    """Return the names that `pack_text` packed."""
    blob = data.tobytes()
    names = np.empty(offsets.size - 1, object)
    names[:] = [blob[a:b].decode() for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    return names
