"""Embed images with any network for images; the vectors are cached on disk.

Images are (height, width) or (height, width, channels). Integers from 0 to 255 are divided by 255; floats do not
change. The model gets batches (B, C, H, W) of images of equal size. For a Hugging Face model, all images are resized to
one size and their colours are normalised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.features import exceptions as faults
from dissensus.features import hub
from dissensus.features.cache import Cache, OnRows, embed_with_cache, hash_parts
from dissensus.features.hub import import_text_extra, torch_device
from dissensus.features.text import Pooling

BICUBIC_CODE = 3  # code of bicubic resampling in PIL and in preprocessor_config.json


def embed_images(
    images: Sequence[Any],
    model: str | Path | Callable[[Any], Any],
    *,
    pooling: Pooling = "mean",
    name: str | None = None,
    batch_size: int = 64,
    device: str = "auto",
    cache: Cache = True,
    on_rows: OnRows | None = None,
) -> FloatArray:
    """Embed images with a network; each distinct image is computed only once.

    Parameters
    ----------
    images : (I, H, W) or (I, H, W, C) array, or sequence of such images of any sizes
    model : str, Path, Module or callable
        A Hugging Face folder or name of a vision model, or a callable that maps a float tensor (B, C, H, W) to (B, …),
        which is then flattened. A module is run in evaluation mode; its mode and device are restored afterwards.
    pooling : "mean" or "cls"
        The mean over the tokens of a Hugging Face model, or the first token.
    name : str, optional
        The name of the model in the cache. A module is identified by its weights and layers; a function is cached only
        with a name. Change the name if the function changes.
    batch_size, device, cache, on_rows
        The same as in `embed_texts`.

    Returns
    -------
    (I, D) float32 array

    >>> embed_images(np.zeros((2, 8, 8), np.float32), lambda pixels: pixels.mean(dim=(2, 3)), cache=False).shape
    (2, 1)
    """
    check_argument("pooling", pooling, Pooling)
    check_argument("batch_size", batch_size, int, low=1)
    pixels = [_check_pixels(image, row) for row, image in enumerate(images)]
    known, run = _image_network(model, pooling)
    known = known if name is None else hash_parts(name.encode()).hex()
    shapes = {shape: number for number, shape in enumerate(sorted({image.shape for image in pixels}))}

    def compute(places: list[int]) -> FloatArray:
        torch, where, rows = import_text_extra("torch"), torch_device(device), []
        if not places:
            raise faults.NoFeatureInputs(argument="images")
        with run(where) as network, torch.inference_mode():
            for batch in _split_into_batches([pixels[i] for i in places], batch_size):
                stack = torch.from_numpy(np.stack(batch)).to(where)  # (B, H, W, C)
                x = stack.permute(0, 3, 1, 2).to(torch.float32)
                vectors = network(x if stack.is_floating_point() else x / 255)
                if not isinstance(vectors, torch.Tensor) or vectors.ndim < 2 or len(vectors) != len(batch):
                    found = tuple(getattr(vectors, "shape", ())) or type(vectors).__name__
                    raise faults.WrongNumberOfVectors(got=str(found), n_images=len(batch))
                rows.append(vectors.flatten(1).float().cpu().numpy())
        return np.concatenate(rows)

    size = np.array([shapes[image.shape] for image in pixels], np.int64)
    keys = [hash_parts(image.dtype.str.encode(), repr(image.shape).encode(), image.tobytes()) for image in pixels]
    return embed_with_cache(keys, compute, f"image-{known}", cache if known else False, size=size, on_rows=on_rows)


def _check_pixels(image: Any, row: int) -> Any:
    """Return checked pixels (H, W, C) as uint8 or float32."""
    pixels = np.asarray(image)
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    if pixels.ndim != 3 or not pixels.size or pixels.dtype.kind not in "iuf":
        raise faults.NotAnImage(argument="images", row=row, got=f"of shape {np.shape(image)}, {pixels.dtype}")
    if pixels.dtype.kind == "f":
        if n_values := int((~np.isfinite(pixels)).sum()):
            raise faults.PixelsNotFinite(row=row, n_values=n_values)
        return np.ascontiguousarray(pixels, np.float32)
    if pixels.min() < 0 or pixels.max() > 255:
        raise faults.PixelsOutOfRange(argument="images", row=row, low=float(pixels.min()), high=float(pixels.max()))
    return np.ascontiguousarray(pixels, np.uint8)


def _split_into_batches(images: list[Any], batch_size: int) -> Iterator[list[Any]]:
    """Split images into batches of consecutive images with the same size and type."""
    for _, group in groupby(images, key=lambda image: (image.shape, image.dtype)):
        alike = list(group)
        for start in range(0, len(alike), batch_size):
            yield alike[start : start + batch_size]


def _image_network(model: Any, pooling: Pooling) -> tuple[str, Callable[[Any], Any]]:
    """Return the model's name in the cache ("" for none), and a function that opens the network on a device."""
    if isinstance(model, str | Path):
        folder = hub.find_model_folder(model)
        return f"{pooling}-{hub.hash_model_files(folder)}", lambda device: _load_vision_model(folder, pooling, device)
    if not callable(model):
        raise faults.ModelOfWrongType(alternatives="a module or a function", got=type(model).__name__)
    if not isinstance(model, import_text_extra("torch").nn.Module):
        return "", lambda device: nullcontext(model)
    digest = hashlib.sha256(f"{type(model).__module__}.{type(model).__qualname__} {model!r}".encode())
    for key, value in model.state_dict().items():
        digest.update(key.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32], lambda device: _evaluation_mode(model, device)


@contextmanager
def _evaluation_mode(model: Any, device: Any) -> Iterator[Any]:
    """Yield a module in evaluation mode on a device; restore its mode and device afterwards."""
    modes = [(part, part.training) for part in model.modules()]
    before = next((tensor.device for tensor in model.state_dict().values()), None)
    try:
        yield model.eval().to(device)
    finally:
        for part, training in modes:
            part.training = training
        if before is not None:
            model.to(before)


@contextmanager
def _load_vision_model(folder: Path, pooling: Pooling, device: Any) -> Iterator[Any]:
    """Yield a Hugging Face vision model that resizes and normalises images as its folder specifies."""
    torch = import_text_extra("torch")
    wants = hub.read_json(folder / "preprocessor_config.json", {})
    network = hub.load_pretrained(folder)
    network = getattr(network, "vision_model", network).to(device)  # CLIP and similar models also have a text encoder.
    size = wants.get("size") or network.config.image_size
    mode = "bicubic" if wants.get("resample") == BICUBIC_CODE else "bilinear"
    mean, spread = (
        torch.tensor(wants.get(k) or [v], device=device) for k, v in (("image_mean", 0.0), ("image_std", 1.0))
    )
    if not wants.get("do_normalize", True):
        mean, spread = torch.zeros_like(mean), torch.ones_like(spread)

    def run(x: Any) -> Any:
        if x.shape[1] == 1 and network.config.num_channels == 3:
            x = x.expand(-1, 3, -1, -1)
        if x.shape[1] != network.config.num_channels:
            raise faults.UnequalChannels(channels=x.shape[1], expected=network.config.num_channels)
        x, crop = _resize(x, size, mode), wants.get("crop_size")
        if wants.get("do_center_crop") and crop is not None:
            height, width = (crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"])
            top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
            x = x[:, :, top : top + height, left : left + width]
        hidden = network((x - mean[:, None, None]) / spread[:, None, None]).last_hidden_state
        if hidden.ndim == 4:  # (B, C, H, W) of a convolutional network
            return hidden.mean((2, 3))
        return hidden[:, 0] if pooling == "cls" else hidden.mean(1)

    yield run


def _resize(x: Any, size: Any, mode: str) -> Any:
    """Resize images to (height, width), or such that the shorter side has a given length."""
    size = {"height": size, "width": size} if isinstance(size, int) else size
    if isinstance(size, dict) and "shortest_edge" in size:
        factor = size["shortest_edge"] / min(x.shape[2:])
        wanted = [round(side * factor) for side in x.shape[2:]]
    else:
        wanted = [size["height"], size["width"]] if isinstance(size, dict) else list(size)
    if wanted == list(x.shape[2:]):
        return x
    return import_text_extra("torch").nn.functional.interpolate(x, size=wanted, mode=mode, antialias=True).clamp(0, 1)
