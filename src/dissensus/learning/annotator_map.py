"""A map of annotators: their embeddings in two dimensions, and their mistakes (Platanios et al. 2020, Figure 2).

Annotators with similar embeddings in LIA are near each other. The distance of two annotators is that of the competences
that follow from their embeddings (`competence_coordinates`). The map is a projection by UMAP (McInnes et al. 2018), or
on the first two principal components if UMAP is not installed or there are too few annotators. Annotators without
labels have random embeddings, and are not on the map.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dissensus.common.extras import import_extra
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.exceptions import MissingExtra
from dissensus.learning.competence import annotator_embeddings
from dissensus.learning.exceptions import ModelOfOtherTable, NoLabelsOfModel, TooFewForUMAP, WrongModel
from dissensus.learning.latent_map import project_on_principal_components
from dissensus.messages import quote_name
from dissensus.questions.annotator_errors import (
    DEFAULT_N_CLUSTERS,
    MIN_LABELS_PER_ANNOTATOR,
    AnnotatorErrors,
    annotator_errors,
)
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

MAX_ANNOTATORS = 1500  # default maximum number of annotators on a map
UMAP_NEIGHBOURS = 15  # UMAP's default number of neighbours
MIN_UMAP_ANNOTATORS = 4  # minimum number of annotators for UMAP

Projection = Literal["auto", "umap", "pca"]


@dataclass(frozen=True, eq=False)
class AnnotatorMap:
    """Positions and mistakes of annotators on a map."""

    annotator: IntArray  # (n,) codes into the table's annotators
    position: FloatArray  # (n, 2)
    projection: str  # "UMAP" or "PCA"
    mistakes: AnnotatorErrors  # mistakes of the n annotators on the map
    n_labelled: int  # number of annotators with labels


def annotator_map(
    model: Any,
    table: Annotations,
    *,
    projection: Projection = "auto",
    clusters: int = DEFAULT_N_CLUSTERS,
    min_labels: int = MIN_LABELS_PER_ANNOTATOR,
    max_annotators: int = MAX_ANNOTATORS,
    seed: int = 0,
) -> AnnotatorMap:
    """Map the annotators of a fitted LIA, or of a CrowdClassifier with objective "lia".

    Parameters
    ----------
    model : LIA or CrowdClassifier
        A fitted model.
    table : Annotations
        The table that the model was fitted to, or a part of it.
    projection : {"auto", "umap", "pca"}
        With "auto", UMAP is used if it is installed (`dissensus[umap]`) and there are more than 15 annotators.
    clusters, min_labels
        As in `annotator_errors`.
    max_annotators : int
        Maximum number of annotators on the map. Annotators with the most labels are chosen.
    seed : int
        Seed of UMAP.
    """
    check_argument("projection", projection, Projection)
    posterior = align_posterior(model, table)
    table = table.select(rows=find_fitted_rows(model, table))
    labels = np.diff(table.annotator_ptr)
    labelled = np.flatnonzero(labels)
    if not labelled.size:
        raise NoLabelsOfModel()
    annotators = np.sort(labelled[np.argsort(-labels[labelled], kind="stable")[:max_annotators]])
    chosen = np.isin(np.arange(labels.size), annotators)
    code = naming.match_names(table.annotators[annotators], model.annotators_, "annotators")
    place, used = project(competence_coordinates(get_lia_classifier(model))[code], projection=projection, seed=seed)
    errors = annotator_errors(table.select(annotators=chosen), posterior, clusters=clusters, least=min_labels)
    return AnnotatorMap(annotators, place, used, errors, labelled.size)


def project(rows: FloatArray, *, projection: Projection = "auto", seed: int = 0) -> tuple[FloatArray, str]:
    """Project rows (n, E) to two dimensions, and return the positions (n, 2) and the name of the method."""
    if projection == "umap" and len(rows) < MIN_UMAP_ANNOTATORS:
        raise TooFewForUMAP(n_annotators=len(rows), min_annotators=MIN_UMAP_ANNOTATORS)
    if projection == "umap" or (projection == "auto" and len(rows) > UMAP_NEIGHBOURS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # UMAP warns about TensorFlow and the spectral start of small graphs.
            try:
                umap = import_extra("umap", "projection='umap' needs", "umap")
                neighbours = min(UMAP_NEIGHBOURS, len(rows) - 1)
                fitted = umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(rows)
                return np.asarray(fitted, np.float64), "UMAP"
            except MissingExtra:
                if projection == "umap":
                    raise
    return project_on_principal_components(rows), "PCA"


def find_fitted_rows(model: Any, table: Annotations) -> BoolArray:
    """Return a mask (N,) of the labels whose item and annotator the model was fitted to."""
    items = naming.match_names(table.items, model.items_, "items") >= 0
    annotators = naming.match_names(table.annotators, model.annotators_, "annotators") >= 0
    return np.asarray(items[table.item] & annotators[table.annotator])


def align_posterior(model: Any, table: Annotations) -> FloatArray:
    """Return the model's posterior (I, K) for the table's items and classes, with zeros for unknown items."""
    get_lia_classifier(model)  # An error is raised for other models.
    at = naming.match_names(table.items, model.items_, "items")
    columns = naming.match_names(model.classes_, table.classes, "classes")
    if (at < 0).all() or (columns < 0).any():
        absent = model.items_[0] if (at < 0).all() else model.classes_[columns < 0][0]
        raise ModelOfOtherTable(name=quote_name(absent))
    posterior = np.zeros((table.n_items, table.n_classes))
    fitted = np.flatnonzero(at >= 0)
    posterior[fitted[:, None], columns[None, :]] = model.posterior_[at[fitted]]
    return posterior


def align_difficulty(model: Any, table: Annotations) -> FloatArray:
    """Return the difficulty (I,) of the table's items under the model, with NaN for unknown items."""
    get_lia_classifier(model)
    at = naming.match_names(table.items, model.items_, "items")
    return np.where(at >= 0, model.difficulty_[at], np.nan)


def get_lia_classifier(model: Any) -> Any:
    """Return the CrowdClassifier with objective "lia" that `model` is or contains."""
    classifier = getattr(model, "classifier_", model)
    if getattr(classifier, "difficulty_", None) is None:
        expected = "a fitted LIA, or a CrowdClassifier with objective 'lia'"
        raise WrongModel(caller="annotator_map", expected=expected, actual=type(model).__name__)
    return classifier


def competence_coordinates(model: Any) -> FloatArray:
    """Return the embeddings e_j (A, E), transformed so that their distances equal those of the competences V e_j.

    V = QR, so |V e| = |R e|. Without this transformation, distances would include directions that V ignores, in which
    embeddings keep their random initial values.
    """
    linear, rows = model.network_.head.competence.linear, annotator_embeddings(model)
    if linear is None:
        return rows
    return np.asarray(rows @ np.linalg.qr(linear.weight.detach().cpu().numpy()).R.T)
