"""Learning from annotations: any encoder with any objective, one trainer. Needs the `learning` extra (torch).

An example of each:

>>> import numpy as np
>>> from dissensus import learning
>>> from dissensus.table.simulate import simulate
>>> crowd = simulate(80, 8, 2, seed=1)
>>> table, X = crowd.annotations, np.eye(2)[crowd.truth]
>>> model = learning.CrowdClassifier(objective="soft", epochs=3, device="cpu", seed=0).fit(table, X, validation=0.3)
>>> model.predict(X[:3]).shape, model.predict_proba(X[:3]).shape, model.posterior_.shape
((3,), (3, 2), (80, 2))
>>> sets = model.predict_sets(X[:3])
>>> type(sets).__name__, len(sets.to_lists())
('LabelSets', 3)
>>> found = learning.out_of_fold(model, table, X, folds=2)
>>> type(found).__name__, learning.OutOfFold.from_frame(found.to_frame(), model).proba.shape
('OutOfFold', (80, 2))
>>> type(learning.crowdlab(table, found.proba)).__name__
'Crowdlab'
>>> y = learning.ByItem(table)
>>> learning.soft_cross_entropy(model, X, y) < 0, learning.annotation_likelihood(model, X, y) < 0
(True, True)
>>> model = model.fit_distributions(X, table.soft_labels())
"""

from dissensus.exceptions import MissingExtra

try:
    from dissensus.learning import devices, storage  # noqa: F401  # storage needs safetensors

    devices.fabric_module()
except ImportError as error:
    raise MissingExtra(
        f"dissensus.learning needs {error.name}, which is not installed: pip install 'dissensus[learning]'."
    ) from error

from dissensus.learning import encoders, objectives
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.conformal import LabelSets
from dissensus.learning.crowdlab import Crowdlab, crowdlab
from dissensus.learning.folds import OutOfFold, out_of_fold
from dissensus.learning.lia import LIA
from dissensus.learning.sklearn_loop import ByItem, annotation_likelihood, soft_cross_entropy

__all__ = [
    "LIA",
    "ByItem",
    "CrowdClassifier",
    "Crowdlab",
    "LabelSets",
    "OutOfFold",
    "annotation_likelihood",
    "crowdlab",
    "encoders",
    "objectives",
    "out_of_fold",
    "soft_cross_entropy",
]
