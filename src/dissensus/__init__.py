"""Labels you can trust, honest uncertainty and better models from disagreeing labels."""

from dissensus import aggregation, simulate
from dissensus.annotations import Annotations
from dissensus.base import methods
from dissensus.comparison import compare
from dissensus.datasets import list_datasets, load_dataset
from dissensus.diagnostics import diagnose
from dissensus.io import read
from dissensus.persistence import load, save
from dissensus.questions import Questions

__version__ = "0.1.0"
__all__ = [
    "Annotations",
    "Questions",
    "aggregation",
    "compare",
    "diagnose",
    "list_datasets",
    "load",
    "load_dataset",
    "methods",
    "read",
    "save",
    "simulate",
]
