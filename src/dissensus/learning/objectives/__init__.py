"""Objectives, which define how annotations supervise a network; each objective has its own file and registers itself.

>>> objectives["crowd-layer"].__name__
'CrowdLayerObjective'
"""

from typing import Any

from dissensus.learning.objectives.base import Objective, objectives
from dissensus.learning.objectives.crowd_layer import CrowdLayer

__all__ = ["CrowdLayer", "Objective", "objectives"]


def __getattr__(name: str) -> Any:
    """Return an objective by the name of its class."""
    for _, entry in objectives.entries():
        if entry.value.__name__ == name:
            return entry.value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
