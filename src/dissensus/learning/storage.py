"""Storage of a tree of tensors, arrays and plain values in one safetensors file with a JSON header.

Nothing is pickled. A single file is used because two files could come from two runs. The header contains the tree, with
a placeholder for every tensor, the format, and a digest of all bytes that detects truncated and changed files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from dissensus.common.atomic import open_atomically
from dissensus.common.exceptions import CannotWrite
from dissensus.common.parameters import Parameters
from dissensus.common.registry import Registry
from dissensus.exceptions import DissensusError, UnreadableFile
from dissensus.learning import exceptions as faults
from dissensus.models.base import Aggregator, methods
from dissensus.models.saving import check_arrays, pack_text, unpack_text

FORMAT_NUMBER = 2  # version of the file format; it is increased if older versions cannot read new files
COMPONENT_ARRAYS = {
    "center_": "F real",
    "spread_": "F real",
    "n_classes_": "whole",
}  # results of encoders and objectives that are checked when they are loaded
DAMAGE_ERRORS = (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OSError, RuntimeError)


def resolve_file(folder: str | Path, name: str) -> Path:
    """Return the path of the file `name` in `folder`, or `folder` itself if it is the path of such a file."""
    folder = Path(folder)
    return folder if folder.name == name else folder / name


@contextmanager
def report_other_version(path: Path) -> Iterator[None]:
    """Turn errors about missing or wrong values in a tree into `FileVersionDiffers`."""
    try:
        yield
    except UnreadableFile:
        raise
    except (LookupError, TypeError, AttributeError, RuntimeError, ValueError, ArithmeticError, DissensusError) as error:
        why = " ".join(str(error).split())[:200].rstrip(".")
        raise faults.FileVersionDiffers(path=path, reason=why) from error


def write_tree(path: str | Path, tree: Any, kind: str) -> Path:
    """Write a tree of dicts, lists, plain values, arrays and tensors with its `kind`, and return the path."""
    path = Path(path)
    make_folder(path.parent)
    tensors: dict[str, Tensor] = {}
    packed = _pack(tree, tensors)
    header = {"format": FORMAT_NUMBER, "kind": kind, "digest": _compute_digest(packed, tensors), "tree": packed}
    with open_atomically(path) as file:
        file.write(to_bytes(tensors, {"header": json.dumps(header)}))
    return path


def read_tree(path: str | Path, kind: str) -> Any:
    """Read a tree from a file of `write_tree`; raise an error if the kind or format is wrong or the file is damaged."""
    path = Path(path)
    if not path.is_file():
        raise faults.ModelFileMissing(kind=kind, path=path)
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["header"])
            if header["format"] != FORMAT_NUMBER or header["kind"] != kind:
                raise faults.FileFormatDiffers(
                    path=path,
                    kind=header["kind"],
                    format=header["format"],
                    expected_kind=kind,
                    expected_format=FORMAT_NUMBER,
                )
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if _compute_digest(header["tree"], tensors) != header["digest"]:
            raise faults.DamagedModelFile(path=path, kind=kind, reason="its checksum is wrong")
        return _unpack(header["tree"], tensors)
    except UnreadableFile:
        raise
    except DAMAGE_ERRORS as error:
        raise faults.DamagedModelFile(path=path, kind=kind, reason=str(error)) from error


def _pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        key = str(len(tensors))
        tensors[key] = value.detach().cpu().contiguous().clone()  # Safetensors cannot store tensors that share memory.
        return {"tensor": key}
    if isinstance(value, np.ndarray) and value.dtype == object:
        text = pack_text(value)  # The header is limited to 100 MB, so names are stored as tensors.
        return {"names": [_pack(text["bytes"], tensors), _pack(text["offsets"][1:], tensors)]}
    if isinstance(value, np.ndarray):
        key = str(len(tensors))
        tensors[key] = torch.from_numpy(np.array(value, order="C"))
        return {"array": key}
    if isinstance(value, dict):
        pairs = [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]  # Keys may be integers.
        return {"dict": pairs}
    if isinstance(value, tuple):
        return {"tuple": [_pack(item, tensors) for item in value]}
    if isinstance(value, list):
        return [_pack(item, tensors) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise faults.NotStorable(kind=type(value).__name__, value=repr(value))


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "array":
        return tensors[inside].numpy()
    if kind == "names":
        text, ends = (_unpack(part, tensors) for part in inside)
        return unpack_text(text, np.append(0, ends))
    if kind == "tuple":
        return tuple(_unpack(item, tensors) for item in inside)
    return {_unpack(key, tensors): _unpack(item, tensors) for key, item in inside}


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, or raise CannotWrite."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(path=folder, reason=error.strerror or str(error)) from error


def _compute_digest(tree: Any, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(json.dumps(tree).encode(), digest_size=16)
    for key in sorted(tensors):
        digest.update(key.encode())
        if tensors[key].numel():  # Torch cannot view an empty tensor as bytes.
            digest.update(tensors[key].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# Trees of models ------------------------------------------------------------------------------------------------------


def fitted_attributes(part: Parameters) -> dict[str, Any]:
    """Return the attributes that `fit` sets, whose names end in an underscore."""
    return {name: value for name, value in vars(part).items() if name.endswith("_")}


def set_attributes(part: Any, values: dict[str, Any]) -> Any:
    """Set attributes of an object, and return the object."""
    for name, value in values.items():
        setattr(part, name, value)
    return part


def pack_component(part: Parameters, registry: Registry[Any]) -> dict[str, Any]:
    """Return an encoder or objective as plain values and arrays."""
    keywords = {
        name: {"method": methods.get_name(type(value)), "keywords": value.get_params(deep=False)}
        if isinstance(value, Aggregator)
        else value
        for name, value in part.get_params(deep=False).items()
    }
    return {"name": registry.get_name(type(part)), "parameters": keywords, "learnt": fitted_attributes(part)}


def unpack_component(stored: dict[str, Any], registry: Registry[Any]) -> Any:
    """Make an encoder or objective from the result of `pack_component`; raise an error if a value is out of range."""
    keywords = {
        name: methods[value["method"]](**value["keywords"]) if isinstance(value, dict) and "method" in value else value
        for name, value in stored["parameters"].items()
    }
    part = registry[stored["name"]](**keywords)
    part.check_parameters()
    check_arrays(stored["learnt"], COMPONENT_ARRAYS)
    return set_attributes(part, stored["learnt"])
