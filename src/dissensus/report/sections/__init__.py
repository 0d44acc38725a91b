"""The sections of the report, one file each; importing them registers them."""

from dissensus.report.sections import (
    annotators,
    clusters,
    competence,
    items,
    labels,
    latent,
    methods,
    model,
    overview,
    redundancy,
)

__all__ = [
    "annotators",
    "clusters",
    "competence",
    "items",
    "labels",
    "latent",
    "methods",
    "model",
    "overview",
    "redundancy",
]
