"""A map of annotators: their embeddings in two dimensions, and how they err (Platanios et al. 2020, Figure 2).

Near each other are annotators of whom LIA learnt the same. Distances are those of the competence that an embedding
stands for (`coordinates`), projected by UMAP (McInnes et al. 2018) or, where it is not installed or there
are too few annotators for it, on their principal components. Annotators without labels have nothing but their random
start, and no place.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dissensus.common.extras import need
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.exceptions import DataError, MissingExtra
from dissensus.learning.competence import embedding
from dissensus.learning.latent_map import principal
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from reproductions.mistakes import CLUSTERS, MIN_LABELS, Mistakes, mistakes

MAX_ANNOTATORS = 1500  # on a map, those with the most labels
UMAP_NEIGHBOURS = 15  # UMAP's own default: of fewer annotators everyone is everyone's neighbour

How = Literal["auto", "umap", "pca"]


@dataclass(frozen=True, eq=False)
class AnnotatorMap:
    """Where annotators stand, and how they err."""

    annotator: IntArray  # (n,) codes into the table's annotators
    place: FloatArray  # (n, 2)
    how: str  # "UMAP" or "PCA"
    mistakes: Mistakes  # of these n
    of: int  # annotators with labels


def annotator_map(
    model: Any,
    table: Annotations,
    *,
    how: How = "auto",
    clusters: int = CLUSTERS,
    least: int = MIN_LABELS,
    most: int = MAX_ANNOTATORS,
    seed: int = 0,
) -> AnnotatorMap:
    """Map the annotators of a fitted LIA, or of a CrowdClassifier with objective "lia".

    `table` is what it was fitted to, or part of it. `how="auto"`
    takes UMAP, with this `seed`, where it is installed and there are more than 15 annotators. At most `most` annotators
    are on the map, those with the most labels; `clusters` and `least` are those of `mistakes`.
    """
    check_argument("how", how, How)
    posterior = posterior_of(model, table)
    table = table.select(rows=known_rows(model, table))
    labels = np.diff(table.annotator_ptr)
    there = np.flatnonzero(labels)
    if not there.size:
        raise DataError("no annotator of the model labelled any of its items in this table; give the one it is of.")
    who = np.sort(there[np.argsort(-labels[there], kind="stable")[:most]])
    chosen = np.isin(np.arange(labels.size), who)
    code = naming.match(table.annotators[who], model.annotators_, "annotators")
    place, used = project(coordinates(classifier_of(model))[code], how=how, seed=seed)
    found = mistakes(table.select(annotators=chosen), posterior, clusters=clusters, least=least)
    return AnnotatorMap(who, place, used, found, there.size)


def project(rows: FloatArray, *, how: How = "auto", seed: int = 0) -> tuple[FloatArray, str]:
    """Project (n, E) to (n, 2); also return the method used."""
    if how == "umap" and len(rows) < 4:
        raise DataError(f"UMAP needs at least 4 annotators, got {len(rows)}; take how='pca'.")
    if how == "umap" or (how == "auto" and len(rows) > UMAP_NEIGHBOURS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no TensorFlow; about spectral starts of small graphs
            try:
                umap = need("umap", "how='umap' needs", "umap")
                neighbours = min(UMAP_NEIGHBOURS, len(rows) - 1)
                fitted = umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(rows)
                return np.asarray(fitted, np.float64), "UMAP"
            except MissingExtra:
                if how == "umap":
                    raise
    return principal(rows), "PCA"


def known_rows(model: Any, table: Annotations) -> BoolArray:
    """Mark (N,) the labels of items and by annotators that the model knows."""
    items = naming.match(table.items, model.items_, "items") >= 0
    annotators = naming.match(table.annotators, model.annotators_, "annotators") >= 0
    return np.asarray(items[table.item] & annotators[table.annotator])


def posterior_of(model: Any, table: Annotations) -> FloatArray:
    """Return the model's posterior (I, K) for the table's items and classes; zeros for items that it does not know."""
    classifier_of(model)  # says what is wrong
    at = naming.match(table.items, model.items_, "items")
    columns = naming.match(model.classes_, table.classes, "classes")
    if (at < 0).all() or (columns < 0).any():
        odd = naming.shown(model.items_[0] if (at < 0).all() else model.classes_[columns < 0][0])
        raise DataError(f"the model is of another table: {odd} is not in this one; give the one it was fitted to.")
    posterior = np.zeros((table.n_items, table.n_classes))
    there = np.flatnonzero(at >= 0)
    posterior[there[:, None], columns[None, :]] = model.posterior_[at[there]]
    return posterior


def difficulty_of(model: Any, table: Annotations) -> FloatArray:
    """Return the model's difficulty (I,) of the table's items; NaN for items that it does not know."""
    classifier_of(model)
    at = naming.match(table.items, model.items_, "items")
    return np.where(at >= 0, model.difficulty_[at], np.nan)


def classifier_of(model: Any) -> Any:
    """Return the CrowdClassifier with objective "lia" that it is, or has."""
    found = getattr(model, "classifier_", model)
    if getattr(found, "difficulty_", None) is None:
        raise DataError(
            f"{type(model).__name__} knows no difficulty and competence; give a fitted LIA, or a CrowdClassifier that "
            "was fitted with objective 'lia'."
        )
    return found


def coordinates(model: Any) -> FloatArray:
    """Turn and stretch e_j (A, E) so that distances are those of what competence is made of, V e_j.

    A direction that V does not look at has only its random start. V = QR, and |V e| = |R e|.
    """
    linear, rows = model.network_.head.competence.linear, embedding(model)
    if linear is None:
        return rows
    return np.asarray(rows @ np.linalg.qr(linear.weight.detach().cpu().numpy()).R.T)
