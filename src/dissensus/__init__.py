"""Labels you can trust, honest uncertainty and better models from disagreeing labels."""

from typing import Any

from dissensus import aggregation, clustering, simulate
from dissensus.annotations import Annotations
from dissensus.base import clusterings, methods
from dissensus.classifiers import classifier_accuracy
from dissensus.clustering import select_clusters
from dissensus.comparison import compare
from dissensus.datasets import list_datasets, load_dataset
from dissensus.diagnostics import diagnose
from dissensus.disagreement import explain
from dissensus.io import read
from dissensus.persistence import load, save
from dissensus.questions import Questions
from dissensus.redundancy import redundancy
from dissensus.report import Report

__version__ = "0.1.0"
__all__ = [
    "Annotations",
    "Questions",
    "Report",
    "aggregation",
    "classifier_accuracy",
    "clustering",
    "clusterings",
    "compare",
    "diagnose",
    "explain",
    "list_datasets",
    "load",
    "load_dataset",
    "methods",
    "read",
    "redundancy",
    "save",
    "select_clusters",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """`dissensus.learning` when it is first asked for: it brings torch, which the rest does without."""
    if name == "learning":
        from importlib import import_module

        return import_module("dissensus.learning")
    raise AttributeError(f"module 'dissensus' has no attribute '{name}'")
