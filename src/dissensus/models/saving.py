"""Save and load fitted aggregators as one file, `model.npz`, of arrays and a JSON header, without pickle.

All attributes that end in `_` are stored. Arrays of text are stored as UTF-8 bytes and offsets. Plain values are stored
in the header, with the method's name and keywords. There is only one file, because two files could come from two runs.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from dissensus.common.atomic import open_atomically
from dissensus.common.registry import Registry
from dissensus.common.types import Names
from dissensus.compute.engines import engine_name
from dissensus.models.base import Aggregator, methods
from dissensus.models.exceptions import (
    CompressedArrays,
    DamagedModel,
    MissingResult,
    NoModel,
    NotSaveable,
    UnknownResult,
    ValueOutOfRange,
    WrongFormat,
    WrongSavedArray,
)

MODEL_FILE = "model.npz"
DAMAGE_ERRORS = (
    ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, RuntimeError, NotImplementedError,
    zipfile.BadZipFile, zlib.error, MemoryError, RecursionError, IndexError, OverflowError,
)  # fmt: skip
"""The errors that NumPy, zipfile and json raise for a damaged file."""
FORMAT_NUMBER = 3  # increased when older versions cannot read the file; 3 has new names of results and keywords

OPTIONAL_PREFIX = "optional "  # prefix of results that may be None or missing
SUM_TOLERANCE = 1e-6  # maximum |sum of probabilities − 1|, in double precision
SINGLE_PRECISION_SUM_TOLERANCE = 1e-3  # maximum |sum of probabilities − 1|, in single precision


def _is_simplex(x: Any, rounding: float = SUM_TOLERANCE) -> bool:
    return bool((x >= 0).all() and (np.abs(x.sum(axis=-1) - 1) <= rounding).all())


# A method annotates its results with their axes (letters or sizes) and one of these ranges, such as "A K share". A
# range of codes may name the axes whose product is the limit of the codes, such as "A code:C".
RANGES: dict[str, tuple[str, Callable[[Any], bool]]] = {  # maps a range to its NumPy type codes and condition
    "names": ("Oiufb", lambda x: x.dtype.kind != "f" or bool(np.isfinite(x).all())),
    "simplex": ("f", _is_simplex),
    "nearly-simplex": ("f", lambda x: _is_simplex(x, SINGLE_PRECISION_SUM_TOLERANCE)),
    "share": ("f", lambda x: bool(((x >= 0) & (x <= 1 + SUM_TOLERANCE)).all())),
    "share?": ("f", lambda x: bool((np.isnan(x) | ((x >= 0) & (x <= 1 + SUM_TOLERANCE))).all())),
    "count": ("iuf", lambda x: bool((np.isfinite(x) & (x >= 0)).all())),
    "real": ("f", lambda x: bool(np.isfinite(x).all())),
    "any": ("f", lambda x: True),
    "code": ("iu", lambda x: bool((x >= -1).all())),
    "cell": ("iu", lambda x: bool((x >= 0).all() and (np.diff(x) > 0).all())),
    "flag": ("b", lambda x: True),
    "whole": ("iu", lambda x: bool((x >= 0).all())),
    "number": ("iuf", lambda x: bool(np.isfinite(x).all())),
}


def _check_results(kind: type[Aggregator], found: Mapping[str, Any]) -> None:
    """Raise an error if names, types, axes or ranges of the results in a file differ from the method's declaration."""
    schema = kind.results()
    for name, about in schema.items():
        if name not in found and not about.startswith(OPTIONAL_PREFIX):
            raise MissingResult(name=name)
    for name in found:
        if name not in schema and (not name.endswith("_") or name.startswith("_") or hasattr(kind, name)):
            raise UnknownResult(method=methods.get_name(kind), name=name)
    check_arrays(found, schema)


def check_arrays(found: Mapping[str, Any], schema: Mapping[str, str]) -> None:
    """Raise an error if the type, axes or range of a stored value differ from the schema."""
    axes: dict[str, int] = {str(number): number for number in range(1, 6)}
    limits: list[tuple[str, str]] = []
    for name, value in found.items():
        about = schema.get(name, OPTIONAL_PREFIX)
        if name not in schema or (value is None and about.startswith(OPTIONAL_PREFIX)):
            continue
        *shape, kind = about.removeprefix(OPTIONAL_PREFIX).split()
        kind, _, limit = kind.partition(":")
        array = np.asarray(value)
        kinds, in_range = RANGES[kind]
        if (
            array.dtype.kind not in kinds
            or not array.dtype.isnative
            or array.ndim != len(shape)
            or any(
                size not in {axes.setdefault(letter, size) for letter in axis.split("|")}
                for axis, size in zip(shape, array.shape, strict=True)
            )
        ):
            raise WrongSavedArray(name=name, dtype=str(array.dtype), shape=array.shape, expected=about)
        if not in_range(array):
            raise ValueOutOfRange(name=name, range=kind)
        if limit and array.size:
            limits.append((name, limit))
    for name, limit in limits:
        if found[name].max() >= math.prod(axes[letter] for letter in limit.split("*")):
            raise ValueOutOfRange(name=name, range=f"code:{limit}")
    if "classes_" in found and len(set(found["classes_"].tolist())) != axes["K"]:
        raise ValueOutOfRange(name="classes_", range="distinct names")


def save(model: Aggregator, folder: str | Path, *, items: bool = True) -> Path:
    """Save a fitted model as the file model.npz in a folder.

    Parameters
    ----------
    model : Aggregator
        A fitted model.
    folder : path
        The folder to write to; it is created if it does not exist.
    items : bool, optional
        Whether to store the results with one row per item. A model saved without them can only score new tables.

    Returns
    -------
    Path
        The path of the file.

    >>> import tempfile
    >>> from dissensus.table.simulate import simulate
    >>> model = methods["one-coin"]().fit(simulate(20, 5, 2, seed=1).annotations)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder).name, load(folder).n_iter_ == model.n_iter_
    ('model.npz', True)
    """
    if not isinstance(model, Aggregator):
        raise NotSaveable(type=type(model).__name__, has_save=hasattr(model, "save"))
    model._check_fitted()
    path = Path(folder) / MODEL_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    schema = model.results()
    for key, value in vars(model).items():
        # `items_path_` exists only on this machine.
        if not key.endswith("_") or key.startswith("_") or key == "items_path_":
            continue
        if not items and schema.get(key, "").removeprefix(OPTIONAL_PREFIX).startswith(("I ", "E ")):
            value = np.empty((0, *value.shape[1:]), value.dtype)
        # Load an array that an engine stores outside this process.
        if hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic):
            value = np.asarray(value)
        if isinstance(value, np.ndarray) and value.dtype == object:
            arrays |= {f"{key}:{part}": array for part, array in pack_text(value).items()}
        elif isinstance(value, np.ndarray):
            arrays[key] = value
        else:
            values[key] = value
    registry = _select_registry(methods.find_entry(type(model)) is not None)
    # Options of the engine are not stored, because they name folders and devices of this machine.
    engine = {"engine": engine_name(model.engine)} if "engine" in model.parameter_names() else {}  # type: ignore[attr-defined]
    header = {
        "format": FORMAT_NUMBER,
        "method": registry.get_name(type(model)),
        "parameters": model.get_params(deep=False) | engine,
        "values": values,
    }
    arrays["header"] = np.frombuffer(json.dumps(header, default=lambda number: number.item()).encode(), np.uint8)
    with open_atomically(path) as file:
        np.savez(file, **arrays)
    return path


def load(folder: str | Path) -> Aggregator:
    """Load a model that `save` wrote.

    Parameters
    ----------
    folder : path
        The folder of the model, or its file model.npz.

    Returns
    -------
    Aggregator
        The fitted model, which can score new tables.

    >>> import tempfile
    >>> from dissensus.table.simulate import simulate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save(methods["one-coin"]().fit(simulate(20, 5, 2, seed=1).annotations), folder)
    ...     load(folder).predict()[:3].tolist()
    [0, 1, 1]
    """
    path = Path(folder) if Path(folder).name == MODEL_FILE else Path(folder) / MODEL_FILE
    try:
        with path.open("rb") as file:
            _check_archive(file)
            with np.load(file, allow_pickle=False) as arrays:
                stored = {key: arrays[key] for key in arrays.files}
        header = json.loads(stored.pop("header").tobytes())
        if header["format"] != FORMAT_NUMBER:
            raise WrongFormat(path=path, actual=f"{header['format']!r:.20}", expected=FORMAT_NUMBER)
        model: Aggregator = _select_registry(header["method"] in methods)[header["method"]](**header["parameters"])
        model.check_parameters()
        values: dict[str, Any] = dict(header["values"])
        for key, array in stored.items():
            name, _, part = key.partition(":")
            if part != "offsets":
                values[name] = unpack_text(array, stored[f"{name}:offsets"]) if part == "bytes" else array
        _check_results(type(model), values)
        for name, value in values.items():
            setattr(model, name, np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value)
        model._check_fitted()
    except (FileNotFoundError, NotADirectoryError):
        raise NoModel(folder=Path(folder), file=MODEL_FILE) from None
    except WrongFormat:
        raise
    except DAMAGE_ERRORS as error:
        raise DamagedModel(path=path, reason=" ".join(str(error).split())[:200].rstrip(".")) from error
    return model


def _select_registry(of_methods: bool) -> Registry[Any]:
    """Return the registry of methods or of clusterings; the latter is imported only when it is needed."""
    if of_methods:
        return methods
    from dissensus import clusterings

    return clusterings


def _check_archive(file: IO[bytes]) -> None:
    """Raise an error if the file contains compressed arrays, which `save` never writes."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > file.seek(0, 2) or any(
            entry.compress_type != zipfile.ZIP_STORED for entry in entries
        ):
            raise CompressedArrays
    file.seek(0)


def pack_text(names: Names) -> dict[str, Any]:
    """Encode names as UTF-8 bytes and offsets."""
    encoded = [str(name).encode() for name in names.tolist()]
    return {
        "bytes": np.frombuffer(b"".join(encoded), np.uint8),
        "offsets": np.cumsum([0, *map(len, encoded)], dtype=np.int64),
    }


def unpack_text(data: Any, offsets: Any) -> Names:
    """Decode names that `pack_text` encoded."""
    blob = data.tobytes()
    lengths = np.diff(offsets)
    if (
        offsets.dtype != np.int64
        or offsets.ndim != 1
        or offsets[0] != 0
        or offsets[-1] != len(blob)
        or (lengths < 0).any()
    ):
        raise ValueOutOfRange(name="offsets", range="the bytes of the names")
    names = np.empty(offsets.size - 1, object)
    names[:] = [blob[a:b].decode() for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    return names
