"""Vectors that cells begin with, kept in files: a machine that has no MiniLM needs only the folder.

`DISSENSUS_PREPARED` names the folder; else it is `papers` in the folder of the features' cache. `python -m
reproductions --prepare` makes all that a paper needs, without running anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.common.atomic import open_atomically
from dissensus.common.types import FloatArray
from dissensus.features.cache import cache_folder

VARIABLE = "DISSENSUS_PREPARED"


def prepared_folder() -> Path:
    """Folder of the files."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    cache = cache_folder()
    assert cache is not None
    return cache / "papers"


def prepared(name: str, make: Callable[[], Any]) -> FloatArray:
    """Load the array of that name; make and keep it first if it is missing."""
    path = prepared_folder() / f"{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomically(path) as file:
            np.save(file, np.asarray(make()))
    return np.asarray(np.load(path))


def prepared_words(name: str, known: Callable[[], Sequence[str]], dimensions: int, digits: int) -> str:
    """Path of a file of word vectors: principal components of MiniLM's input embeddings of these words."""
    path = prepared_folder() / name
    if not path.exists():
        from dissensus.learning.encoders.words import read_transformer_vectors

        seen = known()
        found, _ = read_transformer_vectors(seen, 0)
        found = found - found.mean(axis=0)
        few = found @ np.linalg.svd(found, full_matrices=False)[2][:dimensions].T
        few /= few.std()
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomically(path) as file:
            for word, row in zip(seen, few.tolist(), strict=True):
                file.write((" ".join([word, *(f"{x:.{digits}f}" for x in row)]) + "\n").encode("utf-8"))
    return str(path)
