"""Objectives: one file each, entered in the registry by importing it.

>>> objectives["crowd-layer"].__name__
'CrowdLayerObjective'
"""

from dissensus.learning.objectives.annotator_heads import AnnotatorHeads
from dissensus.learning.objectives.auto import Auto
from dissensus.learning.objectives.base import Objective, objectives
from dissensus.learning.objectives.crowd_layer import CrowdLayer, CrowdLayerObjective
from dissensus.learning.objectives.hard import Hard
from dissensus.learning.objectives.lia import LIAObjective
from dissensus.learning.objectives.soft import Soft
from dissensus.learning.objectives.soft_task import SoftTask

__all__ = [
    "AnnotatorHeads", "Auto", "CrowdLayer", "CrowdLayerObjective", "Hard",
    "LIAObjective", "Objective", "Soft", "SoftTask", "objectives",
]  # fmt: skip
