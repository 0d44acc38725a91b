"""Clusters of items and annotators in label space, one method per file."""

from dissensus.clustering.base import Clustering, Clusters
from dissensus.clustering.belief_propagation import PGMBP
from dissensus.clustering.fmm import FMM
from dissensus.clustering.select import Point, Selection, select_clusters
from dissensus.clustering.snap import Distributions, Projector, snap

__all__ = [
    "FMM", "PGMBP", "Clustering", "Clusters", "Distributions", "Point", "Projector",
    "Selection", "select_clusters", "snap",
]  # fmt: skip
