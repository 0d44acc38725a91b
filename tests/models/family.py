"""What the tests of the confusion family share: its methods, their objective in readable form, fits that are begun."""

import numpy as np

from dissensus import Annotations, methods
from dissensus.compute.chunk import FULL, LIKELIHOOD, Chunk
from dissensus.compute.rows import expand_rows
from dissensus.models.base import methods_for
from dissensus.models.class_shares import NONUNIFORM_COST_FACTOR, UniformClassPrior, UniformPriorDawidSkene
from dissensus.models.confusion import ConfusionModel, ConfusionPass, EStepParams, ExpectedCounts, RightWrongLikelihood
from tables import placed

UNIFORM = "uniform-prior-dawid-skene"  # the model of `consensus`, which is not registered
FAMILY = [name for name in methods_for("classes") if issubclass(methods[name], ConfusionModel)] + [UNIFORM]


def family_method(name: str) -> type[ConfusionModel]:
    return UniformPriorDawidSkene if name == UNIFORM else methods[name]


def begun(model: ConfusionModel, table: Annotations, gold=None) -> ConfusionModel:
    """A model that knows what is fixed before EM begins."""
    with placed(table, gold) as engine:
        model._prepare(engine)
    return model


def full(cells, n_classes: int) -> np.ndarray:
    return cells.to_matrices(n_classes) if isinstance(cells, RightWrongLikelihood) else cells


def readable_pass(table: Annotations, prior, confusion, gold=None) -> tuple[np.ndarray, ExpectedCounts]:
    """Posterior (I, K) and sums by likelihoods (A, K, K): the E step in its readable form."""
    chunk = Chunk(expand_rows(table).arrays, gold, table.n_annotators, table.n_classes)
    params = EStepParams(np.atleast_2d(prior), confusion)
    *sums, posterior = ConfusionPass(LIKELIHOOD, FULL).array_form(chunk, params)
    return posterior, ExpectedCounts(*sums)


def readable_objective(model: ConfusionModel, table: Annotations, params, gold=None) -> tuple[np.ndarray, float]:
    """Posterior (I, K) and objective at some parameters, by `readable_pass`."""
    posterior, sums = readable_pass(table, params.prior, full(model.label_likelihood(params), table.n_classes), gold)
    density = 0.0 if model.fixed_prior_ is not None else model.class_pseudo_counts_ @ np.log(params.prior)
    if isinstance(params, UniformClassPrior):
        votes = table.votes()
        named = (votes / np.maximum(votes.sum(axis=1, keepdims=True), 1e-300)).sum(axis=0) + 1 / table.n_classes
        priced = np.minimum(named / named.sum() * table.n_classes / 0.25, 1).sum() - 1
        uneven = (
            NONUNIFORM_COST_FACTOR
            * min(table.n_items / 50, 1)
            * priced
            * np.log(table.n_items)
            * (1 - params.uniformity[0])
        )
        density = model.class_pseudo_counts_ @ np.log(params.free_shares) - uneven
    return posterior, sums.log_evidence + model.log_prior(params) + density


def sums_by(model: ConfusionModel, table: Annotations, posterior: np.ndarray) -> ExpectedCounts:
    """The sums of a pass that found this posterior (I, K), by loops over rows; evidence 0."""
    labels = np.zeros((table.n_annotators, table.n_classes, table.n_classes))
    for row in range(len(table)):
        says = np.eye(table.n_classes)[table.label[row]] if table.proba is None else table.proba[row]
        weight = 1.0 if table.weight is None else table.weight[row]
        labels[table.annotator[row]] += weight * np.outer(posterior[table.item[row]], says)
    return ExpectedCounts(0.0, posterior.sum(axis=0), in_shape(labels, model.layout))


def in_shape(labels: np.ndarray, shape: int) -> np.ndarray:
    """Sums (A, K, K) as a shape has them: all, those on the diagonal (A, 1, K), or their sum (A, 1, 1)."""
    right = np.einsum("akk->ak", labels)[:, None, :]
    return [labels, right, right.sum(axis=2, keepdims=True)][shape]
