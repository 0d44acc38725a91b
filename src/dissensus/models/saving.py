"""A fitted aggregator on disk: one file, `model.npz`, of arrays and a JSON header. Never pickle.

Everything that `fit` left in attributes ending in `_` is kept: arrays of numbers as they are, arrays of text as UTF-8
bytes and offsets, plain values in the header with the method's name and keywords. One file, because two could be of
two runs.
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

from dissensus.common.atomic import atomic
from dissensus.common.types import Names
from dissensus.compute.engines.options import name_of
from dissensus.exceptions import BadParameter, UnreadableFile
from dissensus.models.base import Aggregator, clusterings, methods

FILE = "model.npz"
DAMAGE = (
    ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, RuntimeError, NotImplementedError,
    zipfile.BadZipFile, zlib.error, MemoryError, RecursionError, IndexError, OverflowError,
)  # fmt: skip
"""What NumPy, zipfile and json raise for a file that is not as it was written."""
FORMAT = 1  # raised when an older reader could not make sense of the file

SCHEMA = {  # attribute → its axes, and what it may hold: a key of RANGES
    "classes_": "K names", "items_": "I names", "annotators_": "A names",
    "posterior_": "I K simplex", "prior_": "K simplex", "reliability_": "A share?", "hits_": "A count",
    "total_": "A count", "n_annotations_": "A count", "trace_": "T any", "n_iter_": "whole", "converged_": "flag",
    "tie_seed_": "whole", "dependence_": "number", "shift_": "K real", "dependence_interval_": "2 count",
    "held_": "K real", "item_total_": "I count", "class_counts_": "K count",
    "class_pseudo_": "K count", "label_totals_": "A 1 K count", "labels_": "A 1|K 1|K count", "pseudo_": "K K count",
    "fixed_prior_": "K simplex", "confusion_": "A K K simplex", "population_confusion_": "K K simplex",
    "copy_group_": "A code",
    "counts_": "A K K count", "community_concentration_": "C K K count", "community_share_": "C simplex",
    "community_confusion_": "C K K simplex", "community_posterior_": "A C simplex", "community_": "A code",
    "ability_": "A real", "pull_": "A real", "curvature_": "A real", "difficulty_": "I real",
    "concentration_": "A K K count", "population_": "K K count",
    "weight_": "A real", "population_weight_": "number", "scale_": "number", "population_accuracy_": "number",
    "skill_": "A real", "population_skill_": "number", "coin_": "A 2 share", "population_coin_": "1 2 share",
    "copied_share_": "A K share", "given_": "A K real", "competence_counts_": "A 2 count",
    "strategy_counts_": "A K count", "competence_": "A share", "strategy_": "A K share",
    "population_competence_": "number", "population_strategy_": "K share",
    "evidence_": "A K real", "item_penalty_": "number", "annotator_effect_": "A K K real", "crowd_effect_": "K K real",
    "item_effect_cell_": "E cell", "item_effect_": "E K real", "propensity_": "A real",
    "loading_": "K real", "theta_": "A K K real", "population_theta_": "K K real",
    "options_": "O names", "hit_": "A O share", "false_tick_": "A O share", "population_hit_": "O share",
    "population_false_tick_": "O share", "chance_": "O 2 share", "order_": "O code", "parent_": "O code",
    "answer_": "I O flag", "confidence_": "I share", "error_": "A real", "population_error_": "number",
    "answer_names_": "I names", "expected_distance_": "I real",
    "psi_": "P simplex", "omega_": "L simplex", "labels_of_clusters_": "P L K simplex", "item_clusters_": "I P share",
    "annotator_clusters_": "A L share", "item_cluster_": "I code", "annotator_cluster_": "A code",
    "labelled_": "I flag", "labels_per_item_": "number",
    "tags_": "I code", "span_probability_": "I share?", "cell_": "U cell", "cell_counts_": "U S count",
    "transition_counts_": "S S count", "start_counts_": "S count",
    "values_": "I real", "interval_": "I 2 real", "bias_": "A real", "stretch_": "A real", "precision_": "A real",
    "knots_": "Q 2 share", "knot_labels_": "Q real", "center_": "2 real", "theta_prior_": "2 real",
    "spread_": "A 5 real",
    "typical_spread_": "3 real", "grading_": "A 4 real", "precision_center_": "1 real", "label_shares_": "K simplex",
    "things_": "Y names", "scores_": "Y real", "score_interval_": "Y 2 real", "rank_": "Y count",
    "rank_interval_": "Y 2 count", "score_variance_": "Y Y real", "comparisons_": "Y count",
    "answering_": "A 3 real", "crowd_answering_": "3 real",
}  # fmt: skip
OTHERWISE = {  # method → what it means by names that others have too
    "set-tree": {"posterior_": "I O share", "prior_": "O share"},
    "closest": {"posterior_": "I 1 share"}, "rover": {"posterior_": "I 1 share"},
}  # fmt: skip
ALWAYS = (
    "classes_", "items_", "annotators_", "posterior_", "prior_", "reliability_", "hits_", "total_", "n_annotations_",
    "trace_", "n_iter_", "converged_", "tie_seed_", "dependence_", "dependence_interval_", "shift_", "held_",
)  # fmt: skip
LACKING = {  # method → what of ALWAYS it does not have: its truth is a number, or an object
    "gaussian": ("posterior_", "prior_", "tie_seed_", "shift_", "held_"), "closest": ("prior_",), "rover": ("prior_",),
}  # fmt: skip
OPTIONAL = ("fixed_prior_", "shift_", "held_")  # None, or not there
_COUNTED = ("label_totals_", "class_pseudo_", "item_total_", "class_counts_", "labels_")
_COINS = (*_COUNTED, "fixed_prior_", "coin_", "population_coin_")
_CONFUSIONS = (*_COUNTED, "pseudo_", "confusion_", "population_confusion_")
_CLUSTERS = (
    "psi_", "omega_", "labels_of_clusters_", "item_clusters_", "annotator_clusters_", "item_cluster_",
    "annotator_cluster_", "labelled_", "labels_per_item_",
)  # fmt: skip
_OBJECTS = ("error_", "population_error_", "answer_names_", "confidence_", "expected_distance_", "item_total_")
STORED = {  # method → what it has beyond ALWAYS; a method that is not here may have anything
    "consensus": (*_CONFUSIONS, "copy_group_"), "dawid-skene": _CONFUSIONS,
    "community-bcc": (
        *_COUNTED, "counts_", "community_concentration_", "community_share_", "community_confusion_",
        "community_posterior_", "community_",
    ),
    "hierarchical-dawid-skene": (*_COUNTED, "concentration_", "population_"),
    "glad": ("item_total_", "class_counts_", "ability_", "pull_", "curvature_", "difficulty_"),
    "kos": ("weight_", "population_weight_", "scale_", "population_accuracy_"),
    "m-msr": ("item_total_", "skill_", "coin_", "population_coin_"),
    "mace": (
        *_COUNTED, "fixed_prior_", "copied_share_", "given_", "competence_counts_", "strategy_counts_", "competence_",
        "strategy_", "population_competence_", "population_strategy_",
    ),
    "majority-vote": ("item_total_",),
    "metal": ("item_total_", "evidence_", "confusion_", "population_confusion_"),
    "mmce": (
        "item_total_", "item_penalty_", "annotator_effect_", "confusion_", "crowd_effect_", "population_confusion_",
        "item_effect_cell_", "item_effect_", "difficulty_",
    ),
    "closest": _OBJECTS, "rover": _OBJECTS,
    "set-tree": (
        "options_", "hit_", "false_tick_", "population_hit_", "population_false_tick_", "chance_", "order_", "parent_",
        "answer_", "confidence_", "item_total_",
    ),
    "item-effect": ("pseudo_", "class_pseudo_", "loading_", "theta_", "population_theta_", "item_total_"),
    "one-coin": _COINS, "snorkel": (*_COINS, "propensity_"),
    "wawa": ("item_total_", "skill_", "population_skill_"),
    "zero-based-skill": ("item_total_", "skill_", "population_skill_"),
    "bayesian-sequence": (
        "item_total_", "tags_", "span_probability_", "cell_", "cell_counts_", "transition_counts_", "start_counts_",
        "confusion_", "population_confusion_",
    ),
    "gaussian": (
        "values_", "interval_", "bias_", "stretch_", "precision_", "knots_", "knot_labels_", "center_", "theta_prior_",
        "spread_", "typical_spread_", "item_total_",
    ),
    "graded-response": (*_COUNTED, "fixed_prior_", "grading_", "precision_center_", "label_shares_"),
    "bradley-terry": (
        "things_", "scores_", "score_interval_", "rank_", "rank_interval_", "score_variance_", "comparisons_",
        "answering_", "crowd_answering_",
    ),
    "fmm": _CLUSTERS, "pgm-annealing": _CLUSTERS, "pgm-bp": _CLUSTERS,
}  # fmt: skip
ROUNDING = 1e-6  # by how much a sum of probabilities may differ from one
SINGLE_ROUNDING = 1e-3  # the same, computed in single precision


def _is_simplex(x: Any, rounding: float = ROUNDING) -> bool:
    return bool((x >= 0).all() and (np.abs(x.sum(axis=-1) - 1) <= rounding).all())


RANGES: dict[str, tuple[str, Callable[[Any], bool]]] = {  # name → kinds of NumPy's types, and what must hold
    "names": ("Oiufb", lambda x: x.dtype.kind != "f" or bool(np.isfinite(x).all())),
    "simplex": ("f", _is_simplex),
    "nearly-simplex": ("f", lambda x: _is_simplex(x, SINGLE_ROUNDING)),
    "share": ("f", lambda x: bool(((x >= 0) & (x <= 1 + ROUNDING)).all())),
    "share?": ("f", lambda x: bool((np.isnan(x) | ((x >= 0) & (x <= 1 + ROUNDING))).all())),
    "count": ("iuf", lambda x: bool((np.isfinite(x) & (x >= 0)).all())),
    "real": ("f", lambda x: bool(np.isfinite(x).all())),
    "any": ("f", lambda x: True),
    "code": ("iu", lambda x: bool((x >= -1).all())),
    "cell": ("iu", lambda x: bool((x >= 0).all() and (np.diff(x) > 0).all())),
    "flag": ("b", lambda x: True),
    "whole": ("iu", lambda x: bool((x >= 0).all())),
    "number": ("iuf", lambda x: bool(np.isfinite(x).all())),
}
CODE_LIMITS = {  # attribute → axes whose product its codes stay below
    "copy_group_": "A", "community_": "C", "item_cluster_": "P", "tags_": "K",
    "order_": "O", "parent_": "O", "annotator_cluster_": "L", "item_effect_cell_": "I K",
}  # fmt: skip


def always(method: str) -> list[str]:
    """What every fitted model has, as far as it makes sense for the method's kind of labels."""
    return [name for name in ALWAYS if name not in LACKING.get(method, ())]


def _check(method: str, found: Mapping[str, Any]) -> None:
    """Raise ValueError where what a file holds of a fitted method has other names, types, axes or ranges."""
    known = (*always(method), *STORED.get(method, SCHEMA))
    for name in (*always(method), *STORED.get(method, ())):
        if name not in found and name not in OPTIONAL:
            raise ValueError(f"there is no {name}")
    for name in found:
        if name not in known and (method in STORED or name.startswith("_") or not name.endswith("_")):
            raise ValueError(f"{method} has no {name}")
    schema = {name: SCHEMA[name] for name in (*always(method), *STORED.get(method, ()))} | OTHERWISE.get(method, {})
    check_arrays({name: value for name, value in found.items() if not (value is None and name in OPTIONAL)}, schema)


def check_arrays(found: Mapping[str, Any], schema: Mapping[str, str] = SCHEMA) -> None:
    """Raise ValueError where a stored value has another type, other axes or another range than the schema says."""
    axes: dict[str, int] = {str(number): number for number in range(1, 6)}
    for name, value in found.items():
        if name not in schema:
            continue
        *shape, kind = schema[name].split()
        array = np.asarray(value)
        kinds, holds = RANGES[kind]
        if array.dtype.kind not in kinds or not array.dtype.isnative or array.ndim != len(shape):
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        for axis, size in zip(shape, array.shape, strict=True):
            allowed = {axes.setdefault(one, size) for one in axis.split("|")}
            if size not in allowed:
                raise ValueError(f"{name} is of shape {array.shape}, where {axis} is {sorted(allowed)}")
        if not holds(array):
            raise ValueError(f"{name} holds a value that cannot be")
    for name, axis in CODE_LIMITS.items():
        if name in found and found[name].size and found[name].max() >= math.prod(axes[one] for one in axis.split()):
            raise ValueError(f"{name} holds {found[name].max()}, beyond the number of {axis}")
    if "classes_" in found and len(set(found["classes_"].tolist())) != axes["K"]:
        raise ValueError("two classes have one name")


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
        if not items and (key in model._per_item or SCHEMA.get(key, "").startswith(("I ", "E "))):
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
        with path.open("rb") as file:
            _check_archive(file)
            with np.load(file, allow_pickle=False) as arrays:
                stored = {key: arrays[key] for key in arrays.files}
        header = json.loads(stored.pop("header").tobytes())
        if header["format"] != FORMAT:
            raise UnreadableFile(
                f"{path} is of format {header['format']!r:.20}, this version of dissensus reads format {FORMAT}; fit "
                "again."
            )
        registry = methods if header["method"] in methods else clusterings
        model = registry[header["method"]](**header["parameters"])
        model.check_parameters()
        found: dict[str, Any] = dict(header["values"])
        for key, array in stored.items():
            name, _, part = key.partition(":")
            if part != "offsets":
                found[name] = unpack_text(array, stored[f"{name}:offsets"]) if part == "bytes" else array
        _check(header["method"], found)
        for name, value in found.items():
            setattr(model, name, np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value)
        model._check_fitted()
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableFile(f"no fitted model in {folder}: there is no {FILE}.") from None
    except UnreadableFile:
        raise
    except DAMAGE as error:
        why = " ".join(str(error).split())[:200].rstrip(".")
        raise UnreadableFile(f"{path} is damaged ({why}); fit again.") from error
    return model


def _check_archive(file: IO[bytes]) -> None:
    """Raise ValueError where a file would unpack to more than it is: what `save` writes is not packed."""
    with zipfile.ZipFile(file) as archive:
        packed = sum(one.file_size for one in archive.infolist())
        if packed > file.seek(0, 2) or any(one.compress_type != zipfile.ZIP_STORED for one in archive.infolist()):
            raise ValueError("its arrays are packed")
    file.seek(0)


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
    lengths = np.diff(offsets)
    if (
        offsets.dtype != np.int64
        or offsets.ndim != 1
        or offsets[0] != 0
        or offsets[-1] != len(blob)
        or (lengths < 0).any()
    ):
        raise ValueError("names do not fill their bytes")
    names = np.empty(offsets.size - 1, object)
    names[:] = [blob[a:b].decode() for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    return names
