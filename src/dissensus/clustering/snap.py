"""Replace the labels of items by those of their clusters, before or after training.

Weerasooriya et al. (2021, Fig. 1) call this snapping:


y = snap(model)                                            # (I, P) labels of each item's cluster, Eq. 1
pipeline = make_pipeline(Distributions(CrowdClassifier(encoder="text-cnn", objective="soft")), Projector(model))
pipeline.fit(X, y).predict_proba(X_new)                    # (n, P) predicted and snapped (Eq. 2, then Eq. 1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import softmax

from dissensus.clustering import model
from dissensus.clustering.base import Clustering, SnapMode, clusterings
from dissensus.clustering.exceptions import (
    ClassesInFit,
    KeywordsForFittedClustering,
    NotAClassifier,
    NotAClustering,
    StepNotFitted,
    WrongClassNames,
)
from dissensus.common.parameters import Parameters, check_argument, param
from dissensus.common.types import FloatArray, Names
from dissensus.evaluation._check import check_distributions, check_lengths
from dissensus.evaluation.exceptions import NotOnePerClass
from dissensus.messages import ParameterName
from dissensus.models.base import Aggregator
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

SUM_TOLERANCE = 1e-6  # largest difference between the sum of a distribution and 1


def snap(
    source: Aggregator | Annotations, *, method: str = "pgm-bp", how: SnapMode = "hard", **keywords: Any
) -> FloatArray:
    """Return the label distribution (I, P) of each item's cluster (Eq. 1), for a fitted clustering or a table.

    A table is first clustered by `method` with the keywords. `how="soft"` averages over the clusters of an item.

    >>> from dissensus.table.simulate import simulate
    >>> snap(simulate(80, 8, 3, seed=1).annotations, method="fmm", n_clusters=2).shape
    (80, 3)
    """
    if isinstance(source, Annotations):
        source = clusterings[method](**keywords).fit(source)
    elif keywords:
        raise KeywordsForFittedClustering(names=tuple(sorted(keywords)))
    if not isinstance(source, Clustering):
        raise NotAClustering(got=type(source).__name__, or_table=True)
    check_argument("how", how, SnapMode)
    source._check_fitted()
    return source.snap_items(how)


class _PipelineStep(Parameters, ABC):
    """Base class for steps of scikit-learn pipelines, which import scikit-learn only when they are used."""

    n_features_in_: int
    classes_: Names

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the step to rows."""

    @abstractmethod
    def transform(self, X: Any) -> FloatArray:
        """Return one distribution per row (n, P)."""

    def fit_transform(self, X: Any, y: Any = None, **keywords: Any) -> FloatArray:
        """Fit the step, and transform the same rows."""
        return self.fit(X, y, **keywords).transform(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the same as `transform`."""
        return self.transform(X)

    def predict(self, X: Any) -> Names:
        """Return the most probable class of each transformed row (n,)."""
        found = self.transform(X).argmax(axis=1)
        return np.asarray(self.classes_[found])

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), transformer_tags=TransformerTags())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise StepNotFitted(step=type(self).__name__)


class Projector(_PipelineStep):
    """Replace predicted distributions by the label distributions of the most similar clusters.

    A predicted distribution is compared with the labels that all annotators give to each item cluster, which are what a
    classifier is trained to predict. Eq. 2 as printed compares it with the labels by a single annotator cluster
    instead, and then may not map the labels of a cluster to the same cluster (`reproductions/printed_clusters.py`).

    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(80, 8, 3, seed=1).annotations
    >>> step = Projector(clusterings["fmm"](n_clusters=3).fit(table)).fit()
    >>> step.predict_clusters(table.soft_labels()).shape, step.transform(table.soft_labels()).shape
    ((80, 3), (80, 3))
    """

    clustering: Clustering | None = param(None, "fitted clustering; `fit` does not change it, and a clone keeps it")
    how: SnapMode = param("hard", "'hard' for the most probable cluster (better in the paper), 'soft' for an average")
    size: float | None = param(
        None,
        "number of labels that a predicted distribution counts as in Eq. 2; None for the mean number per item",
        above=0,
    )

    def __init__(self, clustering: Clustering | None = None, **keywords: Any):
        super().__init__(clustering=clustering, **keywords)

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the keywords; `X` and `y` are not used."""
        if not isinstance(self.clustering, Clustering):
            raise NotAClustering(got=type(self.clustering).__name__, or_table=False)
        self.clustering._check_fitted()
        self.check_parameters()
        self.classes_, self.n_features_in_ = self.clustering.classes_, self.clustering.classes_.size
        return self

    def predict_clusters(self, X: Any) -> FloatArray:
        """Return P(w = k) (n, K) for each row of distributions h (n, P), by Eq. 2.

        The probability is ∝ ψ_k exp(s Σ_p h_p log Σ_l Ω_l Θ_klp), where s is `size`.
        """
        self._check_fitted()
        assert self.clustering is not None
        params = self.clustering.params_
        logs = _check_columns(X, self.n_features_in_) @ np.log(model.population_labels(params)).T
        return np.asarray(softmax(self._effective_size() * logs + np.log(params.psi), axis=1))

    def _effective_size(self) -> float:
        """Return s, the number of labels that a distribution counts as."""
        assert self.clustering is not None
        return self.clustering.labels_per_item_ if self.size is None else self.size

    def transform(self, X: Any) -> FloatArray:
        """Return the label distributions (n, P) of the clusters that are most similar to distributions `X` (n, P)."""
        found = self.predict_clusters(X)
        assert self.clustering is not None
        return self.clustering.snap_clusters(found, self.how)

    def __sklearn_clone__(self) -> Projector:
        return type(self)(**self.get_params(deep=False))


class DistributionClassifier(_PipelineStep):
    """Use a classifier that is trained on distributions as a step of a pipeline.

    A classifier with a method `fit_distributions(X, y)`, such as `dissensus.learning.CrowdClassifier`, gets X and y
    unchanged; X may be texts. Any other classifier must accept `sample_weight`: each row of X is repeated once per
    class, weighted by the probability of the class. X may be sparse.

    >>> from sklearn.linear_model import LogisticRegression
    >>> step = DistributionClassifier(LogisticRegression()).fit(np.eye(4), np.full((4, 2), 0.5))
    >>> step.transform(np.eye(4)[:2])
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """

    classifier: Any = param(None, "estimator with `predict_proba`")
    classes: Sequence[Any] | None = param(None, "names of the columns of y; None for numbers from 0")

    classifier_: Any

    def __init__(self, classifier: Any = None, **keywords: Any):
        super().__init__(classifier=classifier, **keywords)

    def fit(self, X: Any, y: Any = None, **keywords: Any) -> Self:
        """Fit the classifier to X (n, …) and distributions y (n, P); keywords are passed to its `fit`."""
        from sklearn.base import clone

        if self.classifier is None or not hasattr(self.classifier, "predict_proba"):
            raise NotAClassifier(got=repr(self.classifier))
        if "classes" in keywords:
            raise ClassesInFit
        y = check_distributions(y, "y", SUM_TOLERANCE)
        P = y.shape[1]
        classes = naming.check_declared_names(P if self.classes is None else self.classes, np.empty(0), "classes")
        if classes.size != P:
            raise WrongClassNames(names=classes.size, columns=P)
        takes = hasattr(self.classifier, "fit_distributions")
        X = X if takes else _indexable_rows(X)
        shape: tuple[int, ...] = getattr(X, "shape", None) or (len(X),)
        check_lengths(range(shape[0]), y, "X", "y")
        fresh = clone(self.classifier)
        if takes:
            self.classifier_ = fresh.fit_distributions(X, y, **keywords)
        else:
            row, label = np.nonzero(y)
            self.classifier_ = fresh.fit(X[row], label, sample_weight=y[row, label], **keywords)
        self.classes_ = classes
        self.n_features_in_ = shape[1] if len(shape) > 1 else 1
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the predicted distributions (n, P); a class without probability in the training data gets 0."""
        self._check_fitted()
        found = self.classifier_.predict_proba(
            X if hasattr(self.classifier_, "fit_distributions") else _indexable_rows(X)
        )
        out = np.zeros((len(found), self.classes_.size))
        out[:, self.classifier_.classes_] = found
        return out


def _indexable_rows(X: Any) -> Any:
    """Return the features in a form whose rows can be indexed."""
    return X.tocsr() if sparse.issparse(X) else np.asarray(X)


def _check_columns(X: Any, n_classes: int) -> FloatArray:
    """Return X as checked distributions over `n_classes` classes."""
    rows = check_distributions(X, "X", SUM_TOLERANCE)
    if rows.shape[1] != n_classes:
        raise NotOnePerClass(name=ParameterName("X"), values=rows.shape[1], n_classes=n_classes)
    return rows
