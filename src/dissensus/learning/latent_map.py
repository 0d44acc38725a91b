"""Maps of items in two dimensions: t-SNE of a trained network's vectors (van der Maaten & Hinton 2008).

Figure 4 of Weerasooriya et al. 2021 is such a map, coloured by class. The vector of an item is the input of the
network's last layer (`Objective.item_vectors`).

t-SNE preserves neighbourhoods, but not the distances between groups or their widths. The separation of classes is
therefore computed from the vectors. It is the share of an item's nearest neighbours that have the item's class, which
is compared with the share expected by chance. The share of these neighbours that are also neighbours on the map is
reported too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.features.exceptions import NoFeatureInputs
from dissensus.learning import exceptions as faults
from dissensus.learning import inputs as input_data
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.validation import shuffle_by_name
from dissensus.models.base import arg_max
from dissensus.table.annotations import Annotations

MAX_ITEMS = 1500  # default maximum number of items on a map
MIN_TSNE_VECTORS = 10  # minimum number of different vectors for t-SNE; below it, PCA is used
PERPLEXITY = 30.0  # scikit-learn's default
N_NEIGHBOURS = 10
VECTOR_DIGITS = 6  # decimal digits to which vectors are rounded, so that equal items have one position


@dataclass(frozen=True, eq=False)
class ClassSeparation:
    """Shares of an item's nearest neighbours that have the item's class."""

    n_neighbours: int  # number of neighbours per item
    same_class_share: FloatArray  # (n,) NaN for an item without a class
    class_counts: IntArray  # (K,) number of items

    @property
    def mean(self) -> float:
        """Mean of `same_class_share` over all items that have a class."""
        return float(np.nanmean(self.same_class_share)) if np.isfinite(self.same_class_share).any() else float("nan")

    @property
    def chance(self) -> float:
        """Mean expected by chance, which is the share of other items that have an item's class."""
        others, total = max(self.same_class_share.size - 1, 1), self.class_counts.sum()
        return float((self.class_counts * (self.class_counts - 1)).sum() / (total * others)) if total else float("nan")


@dataclass(frozen=True, eq=False)
class ItemMap:
    """Positions and classes of items on a map."""

    item: IntArray  # (n,) rows of X
    position: FloatArray  # (n, 2)
    class_code: IntArray  # (n,) class, −1 if unknown
    projection: str  # "t-SNE" or "PCA"
    vector_length: int
    separation: ClassSeparation  # separation of the classes of the n items, computed from vectors
    kept_neighbours: float  # share of neighbours by vectors that are also neighbours on the map
    n_rows: int  # number of rows of X


def item_map(
    model: Any,
    X: Any,
    *,
    table: Annotations | None = None,
    codes: Any = None,
    max_items: int = MAX_ITEMS,
    seed: int = 0,
) -> ItemMap:
    """Map items in two dimensions by the vectors of a fitted CrowdClassifier or LIA.

    Parameters
    ----------
    model : CrowdClassifier or LIA
        A fitted model.
    X : array, list or frame
        Inputs of fitted or new items. If `table` is given, X has one row per item, in the order of `table.items`.
    table : Annotations, optional
        A table whose majority labels are the classes.
    codes : (rows,) int, optional
        Classes as codes into the classes of the table or the model, and −1 for none. Without `codes` and `table`, the
        most probable classes under the model are used.
    max_items : int
        Maximum number of items on the map. The choice of items depends on `seed` and their names, or on their row
        numbers if there is no table.
    seed : int
        Seed of the choice of items and of t-SNE.
    """
    check_argument("max_items", max_items, int, low=1)
    check_argument("seed", seed, int, low=0)
    found, n = get_classifier(model), input_data.count_rows(X)
    if table is not None:
        input_data.check_row_count(X, table.n_items, "items", "item_map")
    if not n:
        raise NoFeatureInputs(argument="X")
    rows = np.sort(shuffle_by_name(np.arange(n) if table is None else table.items, seed)[:max_items])
    some = input_data.take_rows(X, rows)
    vectors = item_vectors(found, some)
    largest = float(np.abs(vectors).max(initial=0))
    vectors = np.round(vectors / (largest or 1.0), VECTOR_DIGITS)
    place, how = project_items(vectors, seed=seed)
    near, on_map = find_neighbours(vectors), find_neighbours(place)
    kept = (near[:, :, None] == on_map[:, None, :]).any(axis=2).mean() if near.size else np.nan
    classes = found.classes_ if table is None else table.classes
    if table is None and codes is None:
        code = found.predict_proba(some).argmax(axis=1)
    else:
        code = _read_class_codes(classes, table, codes, n)[rows]
    apart = measure_separation(near, code, classes.size)
    return ItemMap(rows, place, code, how, vectors.shape[1], apart, float(kept), n)


def item_vectors(model: Any, X: Any) -> FloatArray:
    """Return the input of the network's last layer (rows, D)."""
    found = get_classifier(model)

    def compute_vectors(batch: Any) -> Any:
        return found.objective_.item_vectors(found.network_.head, found.network_.encoder(**batch))

    vectors = found._apply_network(compute_vectors, found.encoder_.prepare(X))
    return vectors.reshape(len(vectors), -1)


def project_items(vectors: FloatArray, *, seed: int = 0) -> tuple[FloatArray, str]:
    """Project vectors (n, D) to two dimensions, and return the positions (n, 2) and the name of the method."""
    different, which = np.unique(vectors, axis=0, return_inverse=True)
    if len(different) < MIN_TSNE_VECTORS:
        return project_on_principal_components(different)[which], "PCA"
    perplexity = min(PERPLEXITY, (len(different) - 1) / 3)  # t-SNE uses 3 × perplexity neighbours.
    fitted = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
    with threadpool_limits(1):  # With several threads, the result would depend on their number.
        return np.asarray(fitted.fit_transform(different), np.float64)[which], "t-SNE"


def project_on_principal_components(rows: FloatArray) -> FloatArray:
    """Project rows (n, E) on their first two principal components (n, 2)."""
    rows = np.asarray(rows, np.float64)
    left, size, right = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    sign = np.sign(
        right[np.arange(len(right)), np.abs(right).argmax(axis=1)]
    )  # The signs do not depend on the machine.
    place = (left * size * sign)[:, :2]
    return np.pad(place, ((0, 0), (0, 2 - place.shape[1])))


def find_neighbours(vectors: FloatArray, neighbours: int = N_NEIGHBOURS) -> IntArray:
    """Return the indices (n, k) of the rows that are nearest to each row; k is at most `neighbours`."""
    if (k := min(neighbours, len(vectors) - 1)) < 1:
        return np.empty((len(vectors), 0), np.int64)
    return np.asarray(NearestNeighbors(n_neighbors=k).fit(vectors).kneighbors(return_distance=False), np.int64)


def measure_separation(near: IntArray, code: IntArray, n_classes: int) -> ClassSeparation:
    """Return the separation of classes `code` (n,), −1 for none, given the neighbours `near` (n, k) of each row."""
    has_class = code >= 0
    count = np.bincount(code[has_class], minlength=n_classes)
    same = np.full(len(code), np.nan)
    if near.size:
        same[has_class] = (code[near] == code[:, None]).mean(axis=1)[has_class]
    return ClassSeparation(near.shape[1], same, count)


def get_classifier(model: Any) -> CrowdClassifier:
    """Return the fitted CrowdClassifier that `model` is or contains."""
    found = getattr(model, "classifier_", model)
    if not isinstance(found, CrowdClassifier):
        found_type = type(model).__name__
        raise faults.WrongModel(caller="item_map", expected="a fitted CrowdClassifier or LIA", actual=found_type)
    found._check_fitted()
    return found


def _read_class_codes(classes: Names, table: Annotations | None, codes: Any, n: int) -> IntArray:
    """Return `codes` (n,) after checking them, or the majority labels of the table if there are no codes."""
    if codes is None:
        assert table is not None
        votes = table.votes()
        return np.where(votes.sum(axis=1) > 0, arg_max(votes, table.items, classes, 0), -1)
    found = np.asarray(codes)
    if found.shape != (n,) or found.dtype.kind not in "iu":
        kind = str(found.dtype)
        raise faults.WrongShape(argument="codes", kind="integers", expected=(n,), type_name=kind, shape=found.shape)
    input_data.check_codes(found, classes.size, "codes")
    return found
