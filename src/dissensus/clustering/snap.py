"""Snap labels to clusters before training, and predictions after it (Fig. 1, Weerasooriya et al. 2021).

y = snap(model)                                            # (I, P) the labels of each item's cluster, Eq. 1
pipeline = make_pipeline(Distributions(CrowdClassifier(encoder="text-cnn", objective="soft")), Projector(model))
pipeline.fit(X, y).predict_proba(X_new)                    # (n, P) predicted, and snapped again: Eq. 2, then Eq. 1
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import softmax

from dissensus.clustering import model
from dissensus.clustering.base import Clustering, Snap
from dissensus.common.parameters import Parameters, check_argument, param
from dissensus.common.types import FloatArray, Names
from dissensus.exceptions import BadParameter, DataError, NotFitted
from dissensus.models.base import Aggregator, clusterings
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

ROUNDING = 1e-6  # how far a distribution's sum may be from 1


def snap(
    source: Aggregator | Annotations, *, method: str = "pgm-bp", how: Snap = "hard", **keywords: Any
) -> FloatArray:
    """(I, P) the label distribution of each item's cluster (Eq. 1), for a fitted clustering or for a table.

    A table is clustered by `method` with these keywords first. `how="soft"` averages over an item's clusters.

    >>> from dissensus.table.simulate import simulate
    >>> snap(simulate(80, 8, 3, seed=1).annotations, method="fmm", n_clusters=2).shape
    (80, 3)
    """
    if isinstance(source, Annotations):
        source = clusterings[method](**keywords).fit(source)
    elif keywords:
        raise BadParameter(f"a fitted clustering takes no keywords, got {', '.join(sorted(keywords))}.")
    if not isinstance(source, Clustering):
        raise BadParameter(f"snap takes a fitted clustering or a table, got {type(source).__name__}.")
    check_argument("how", how, Snap)
    source._check_fitted()
    return source.snap_items(how)


class _Step(Parameters, ABC):
    """What scikit-learn asks of a step of a pipeline, without importing it before it is used."""

    n_features_in_: int
    classes_: Names

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from rows."""

    @abstractmethod
    def transform(self, X: Any) -> FloatArray:
        """(n, P) distributions."""

    def fit_transform(self, X: Any, y: Any = None, **keywords: Any) -> FloatArray:
        """Fit, then transform the same rows."""
        return self.fit(X, y, **keywords).transform(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """The same as `transform`."""
        return self.transform(X)

    def predict(self, X: Any) -> Names:
        """(n,) the most probable class of each transformed row."""
        found = self.transform(X).argmax(axis=1)
        return np.asarray(self.classes_[found])

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), transformer_tags=TransformerTags())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFitted(f"this {type(self).__name__} is not fitted yet; call fit first.")


class Projector(_Step):
    """Replace predicted distributions by the labels of the most similar clusters.

    Eq. 2 compares a distribution with what all annotators together say of an item cluster, which is what a classifier
    learns to predict. As printed it is compared with what a single annotator cluster says, which need not take the
    labels of a cluster to that cluster (`reproductions/printed_clusters.py`).

    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(80, 8, 3, seed=1).annotations
    >>> step = Projector(clusterings["fmm"](n_clusters=3).fit(table)).fit()
    >>> step.clusters(table.soft_labels()).shape, step.transform(table.soft_labels()).shape
    ((80, 3), (80, 3))
    """

    clustering: Clustering | None = param(None, "fitted clustering; `fit` does not change it, and a clone keeps it")
    how: Snap = param("hard", "labels of the most probable cluster, as the paper found better, or their average")
    size: float | None = param(
        None,
        "labels that a predicted distribution counts for in Eq. 2; None: as many as an item had on average",
        above=0,
    )

    def __init__(self, clustering: Clustering | None = None, **keywords: Any):
        super().__init__(clustering=clustering, **keywords)

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the keywords; X and y are not used."""
        if not isinstance(self.clustering, Clustering):
            raise BadParameter(f"clustering must be a fitted clustering, got {type(self.clustering).__name__}.")
        self.clustering._check_fitted()
        self.check_parameters()
        self.classes_, self.n_features_in_ = self.clustering.classes_, self.clustering.classes_.size
        return self

    def clusters(self, X: Any) -> FloatArray:
        """(n, K) P(w = k) ∝ ψ_k exp(s Σ_p h_p log Σ_l Ω_l Θ_klp) of distributions h (n, P): Eq. 2, s labels like h."""
        self._check_fitted()
        assert self.clustering is not None
        params = self.clustering.params_
        logs = _distributions(X, self.n_features_in_) @ np.log(model.of_clusters(params)).T
        return np.asarray(softmax(self._labels_counted() * logs + np.log(params.psi), axis=1))

    def _labels_counted(self) -> float:
        """s, the labels that a distribution counts for."""
        assert self.clustering is not None
        return self.clustering.labels_per_item_ if self.size is None else self.size

    def transform(self, X: Any) -> FloatArray:
        """(n, P) the labels of the clusters of distributions (n, P)."""
        found = self.clusters(X)
        assert self.clustering is not None
        return self.clustering.snapped(found, self.how)

    def __sklearn_clone__(self) -> Projector:
        return type(self)(**self.get_params(deep=False))


class Distributions(_Step):
    """A classifier that learns from distributions and predicts them, as a step of a pipeline.

    One with a method `fit_distributions(X, y)`, as `dissensus.learning.CrowdClassifier` has it, is given them as they
    are, and X as it is, which may be texts. Of scikit-learn's, one that takes `sample_weight` will do: every row of X
    counts once for each class, weighted by its probability. X may be sparse.

    >>> from sklearn.linear_model import LogisticRegression
    >>> step = Distributions(LogisticRegression()).fit(np.eye(4), np.full((4, 2), 0.5))
    >>> step.transform(np.eye(4)[:2])
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """

    classifier: Any = param(None, "estimator with `predict_proba`")
    classes: Sequence[Any] | None = param(None, "names of the columns of y; None: their numbers from 0")

    classifier_: Any

    def __init__(self, classifier: Any = None, **keywords: Any):
        super().__init__(classifier=classifier, **keywords)

    def fit(self, X: Any, y: Any = None, **keywords: Any) -> Self:
        """Learn from X (n, …) and distributions y (n, P); keywords are for the classifier's own fit."""
        from sklearn.base import clone

        if self.classifier is None or not hasattr(self.classifier, "predict_proba"):
            raise BadParameter(f"classifier must have predict_proba, got {self.classifier!r}.")
        if "classes" in keywords:
            raise BadParameter("fit takes no classes; say Distributions(classifier, classes=…).")
        y = np.asarray(y, np.float64)
        if y.ndim != 2:
            raise DataError(f"y must hold one distribution per row, got shape {y.shape}.")
        y = _distributions(y, y.shape[1])
        P = y.shape[1]
        classes = naming.declared(P if self.classes is None else self.classes, np.empty(0), "classes")
        if classes.size != P:
            raise BadParameter(f"classes names {classes.size} classes, and y has {P} columns; name each of them.")
        takes = hasattr(self.classifier, "fit_distributions")
        X = X if takes else _rows(X)
        shape: tuple[int, ...] = getattr(X, "shape", None) or (len(X),)
        if shape[0] != len(y):
            raise DataError(f"X has {shape[0]} rows and y {len(y)}; they must be equally many.")
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
        """(n, P) predicted distributions; a class that had no probability anywhere has none."""
        self._check_fitted()
        found = self.classifier_.predict_proba(X if hasattr(self.classifier_, "fit_distributions") else _rows(X))
        out = np.zeros((len(found), self.classes_.size))
        out[:, self.classifier_.classes_] = found
        return out


def _rows(X: Any) -> Any:
    """Convert features to a form whose rows can be repeated."""
    return X.tocsr() if sparse.issparse(X) else np.asarray(X)


def _distributions(X: Any, n_classes: int) -> FloatArray:
    """Check that every row is a distribution."""
    X = np.asarray(X, np.float64)
    if X.ndim != 2 or X.shape[1] != n_classes:
        raise DataError(f"expected distributions over {n_classes} classes, one per row, got shape {X.shape}.")
    bad = ~((X >= 0).all(axis=1) & (np.abs(X.sum(axis=1) - 1) <= ROUNDING))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{int(bad.sum())} of {len(X)} rows are no distributions; first at row {row}, which sums to "
            f"{naming.shown(float(X[row].sum()))}."
        )
    return np.asarray(X)
