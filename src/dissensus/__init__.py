"""Labels you can trust, honest uncertainty and better models from disagreeing labels."""

from dissensus import aggregation, clustering, simulate
from dissensus.annotations import Annotations
from dissensus.base import clusterings, methods
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
