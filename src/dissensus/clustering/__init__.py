"""Clusterings of items and annotators by their labels: one file per clustering, which registers itself.

>>> sorted(clusterings)
['fmm', 'pgm-annealing', 'pgm-bp']
"""

from dissensus.clustering.annealing import PGMAnnealing
from dissensus.clustering.base import Clustering, Clusters, clusterings
from dissensus.clustering.belief_propagation import PGMBP
from dissensus.clustering.fmm import FMM
from dissensus.clustering.select import GridPoint, Selection, select_clusters
from dissensus.clustering.snap import DistributionClassifier, Projector, snap

__all__ = [
    "FMM",
    "PGMBP",
    "Clustering",
    "Clusters",
    "DistributionClassifier",
    "GridPoint",
    "PGMAnnealing",
    "Projector",
    "Selection",
    "clusterings",
    "select_clusters",
    "snap",
]  # fmt: skip
