"""Vectors that cells begin with, kept in files: a machine that has no MiniLM needs only the folder.

`DISSENSUS_PREPARED` names the folder; else it is `papers` in the folder of the features' cache. `dissensus reproduce
--prepare` makes all that a paper needs, without running anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._types import FloatArray
from dissensus.features.cache import cache_folder
from dissensus.io.atomic import atomic

VARIABLE = "DISSENSUS_PREPARED"


def prepared_folder() -> Path:
    """Where the files are."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    cache = cache_folder()
    assert cache is not None
    return cache / "papers"


def prepared(name: str, make: Callable[[], Any]) -> FloatArray:
    """The array of that name, made and kept where it is not there yet."""
    path = prepared_folder() / f"{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            np.save(file, np.asarray(make()))
    return np.asarray(np.load(path))


def prepared_text(name: str, make: Callable[[], str]) -> Path:
    """The path of a text file of that name."""
    path = prepared_folder() / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            file.write(make().encode("utf-8"))
    return path
