"""What only embeddings need, loaded on use, so that importing `dissensus.features` costs next to nothing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dissensus.exceptions import MissingExtra


def need(module: str) -> Any:
    """A module of the `text` extra, which also brings what images need."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"embeddings need {error.name or module}, which is not installed: pip install 'dissensus[text]'."
        ) from error


def device_of(device: str) -> Any:
    """The torch device of that name; "auto" for the fastest there is."""
    torch = need("torch")
    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
