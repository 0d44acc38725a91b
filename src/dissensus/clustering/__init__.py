"""Clusters of items and annotators in label space, one method per file.

An example of each:

>>> import numpy as np
>>> from dissensus import clustering as cl
>>> from dissensus.table.simulate import simulate
>>> table = simulate(80, 8, 3, redundancy=4, seed=1).annotations
>>> model = cl.PGMBP(item_clusters=3, annotator_clusters=2, seed=0).fit(table)
>>> type(model.clusters_).__name__, isinstance(model, cl.Clustering), model.predict_clusters().shape
('Clusters', True, (80, 3))
>>> cl.snap(model).shape == model.snapped(model.item_clusters_).shape
True
>>> cl.FMM(seed=0).fit(table).posterior_.shape
(80, 3)
>>> found = cl.select_clusters(table, "fmm", K=[2, 3], seed=0)
>>> type(found).__name__, type(found.best).__name__, len(found.rows())
('Selection', 'Point', 2)
>>> cl.Projector(model).fit(table.soft_labels()).transform(table.soft_labels()).shape
(80, 3)
>>> from sklearn.linear_model import LogisticRegression
>>> step = cl.Distributions(LogisticRegression()).fit(np.eye(80, 4), table.soft_labels())
>>> step.transform(np.eye(4)).shape
(4, 3)
"""

from dissensus.clustering.base import Clustering, Clusters
from dissensus.clustering.belief_propagation import PGMBP
from dissensus.clustering.fmm import FMM
from dissensus.clustering.model import Params, Priors
from dissensus.clustering.select import Point, Selection, select_clusters
from dissensus.clustering.snap import Distributions, Projector, snap

__all__ = [
    "FMM", "PGMBP", "Clustering", "Clusters", "Distributions", "Params", "Point", "Priors", "Projector",
    "Selection", "select_clusters", "snap",
]  # fmt: skip
