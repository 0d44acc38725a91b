"""Base class for clusterings, which are aggregators that group items and annotators.

`posterior_` (I, P) is the snapped distribution of each item, which is the distribution of labels that a population of
annotators gives to the items of its cluster; it is not a belief about one true class. Further results are the soft
clusters `item_clusters_` (I, K) and `annotator_clusters_` (A, L), the hard clusters `item_cluster_` and
`annotator_cluster_`, and the parameters `psi_` (K,), `omega_` (L,) and `labels_of_clusters_` (K, L, P).

A new clustering is one file with one class, which `clusterings.register` adds: see docs/contributing/clustering.md.
"""

from __future__ import annotations

import threading
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dissensus.clustering import model
from dissensus.clustering.exceptions import ClusteringNotConverged, GoldForClusters, TooManyClusters
from dissensus.clustering.model import ClusterParams, ClusterPriors, LabelGraph
from dissensus.clustering.start import InitialState, VoteMixture, make_start
from dissensus.common.parameters import param
from dissensus.common.registry import Registry
from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines.local import Threads, thread_count
from dissensus.messages import ParameterName
from dissensus.models.base import Aggregator
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

ROWS_PER_CHUNK = 2**14  # rows whose labels are predicted at a time
MUST_EXCEED_ONE = "must be above 1, so that no cluster becomes empty"

SnapMode = Literal["hard", "soft"]


@dataclass(frozen=True, eq=False)
class Clusters:
    """Soft and hard clusters of items and annotators.

    >>> Clusters(np.array([[0.9, 0.1]]), np.ones((1, 1)), np.array([0]), np.array([0])).items.argmax(axis=1)
    array([0])
    """

    items: FloatArray  # (I, K) P(cluster | labels) of each item
    annotators: FloatArray  # (A, L)
    item: IntArray  # (I,) most probable cluster
    annotator: IntArray  # (A,)


@dataclass(frozen=True)
class ClusteringRun:
    """The result of one run from one start."""

    params: ClusterParams
    clusters: Clusters
    trace: list[float]  # objective after each pass
    converged: bool


class Clustering(Aggregator):
    """Base class for clusterings; the module docstring lists the results of `fit`.

    >>> from dissensus.table.simulate import simulate
    >>> model = clusterings["pgm-bp"](item_clusters=3, annotator_clusters=2).fit(simulate(80, 8, 3, seed=1).annotations)
    >>> isinstance(model, Clustering), model.clusters_.items.shape, model.predict_clusters().shape
    (True, (80, 3), (80, 3))
    >>> np.array_equal(model.snap_clusters(model.item_clusters_), model.posterior_)
    True
    """

    alpha: float = param(2.0, "Dirichlet parameter of the clusters' labels Θ", above=1, high=1e9, must=MUST_EXCEED_ONE)
    gamma: float = param(
        2.0, "Dirichlet parameter of the item clusters' shares ψ", above=1, high=1e9, must=MUST_EXCEED_ONE
    )
    restarts: int = param(4, "number of starts; the result with the best objective is kept", low=1)
    snap: SnapMode = param("hard", "'hard' for `posterior_` of the most probable cluster, 'soft' for an average")
    max_iter: int = param(500, "maximum number of passes over the data, per start", low=1)
    tol: float = param(1e-6, "stop if a pass changes the objective by at most this share", low=0)
    threads: int | None = param(None, "number of threads; None for all cores")
    seed: int | None = param(0, "seed of all draws; None for a different seed in every fit", low=0)

    item_clusters_: Annotated[FloatArray, "I P share"]
    annotator_clusters_: Annotated[FloatArray, "A L share"]
    item_cluster_: Annotated[IntArray, "I code:P"]
    annotator_cluster_: Annotated[IntArray, "A code:L"]
    psi_: Annotated[FloatArray, "P simplex"]
    omega_: Annotated[FloatArray, "L simplex"]
    labels_of_clusters_: Annotated[FloatArray, "P L K simplex"]
    labelled_: Annotated[BoolArray, "I flag"]  # items with labels
    labels_per_item_: Annotated[float, "number"]  # mean weight of the labels of an item with labels

    takes_earlier: ClassVar[bool] = False

    @property
    def clusters_(self) -> Clusters:
        """Return the soft and hard clusters of items and annotators."""
        self._check_fitted()
        return Clusters(self.item_clusters_, self.annotator_clusters_, self.item_cluster_, self.annotator_cluster_)

    @property
    def params_(self) -> ClusterParams:
        """Return ψ, Ω and Θ."""
        self._check_fitted()
        return ClusterParams(self.psi_, self.omega_, self.labels_of_clusters_)

    def predict_clusters(self, table: Annotations | None = None) -> FloatArray:
        """Return P(cluster | annotations) of each item (I, K), for the fitted table or a new one.

        Annotators of the fitted table keep their clusters; unseen annotators get the average of the population. If
        annotators are clustered too, passing the fitted table gives slightly different numbers from `item_clusters_`,
        because the clusters of annotators then depend on the item's own labels.
        """
        self._check_fitted()
        if table is None:
            return self.item_clusters_
        table = table.with_classes(self.classes_)
        return self._predict_item_clusters(table, naming.match_names(table.annotators, self.annotators_, "annotators"))

    def expected_labels(self, of_item: FloatArray, table: Annotations) -> FloatArray:
        """Return P(label) of each row of a table (N, P); `of_item` (N, K) holds the clusters of the row's item."""
        self._check_fitted()
        known = naming.match_names(table.annotators, self.annotators_, "annotators")
        return self._expected_label_probabilities(of_item, known[table.annotator])

    def snap_clusters(self, of_item: FloatArray, how: SnapMode = "hard", cluster: IntArray | None = None) -> FloatArray:
        """Return the label distribution (n, P) of each item from its clusters `of_item` (n, K), see Eq. 1.

        With "hard", it is that of `cluster` (n,), by default the most probable one; with "soft", the average.
        """
        labels = model.population_labels(ClusterParams(self.psi_, self.omega_, self.labels_of_clusters_))
        if how == "soft":
            return np.asarray(of_item @ labels)
        return np.asarray(labels[of_item.argmax(axis=1) if cluster is None else cluster])

    def _priors(self) -> ClusterPriors:
        return ClusterPriors(self.alpha, self.gamma)

    @abstractmethod
    def _check_size(self, edges: LabelGraph) -> None:
        """Raise BadParameter if the table is too small for the numbers of clusters."""

    @abstractmethod
    def _run(
        self,
        edges: LabelGraph,
        votes: VoteMixture,
        number: int,
        rng: np.random.Generator,
        pool: Threads,
        on_step: OnStep,
    ) -> ClusteringRun:
        """Fit the model from start `number`."""

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        if gold is not None:
            raise GoldForClusters(clustering=type(self).__name__)
        best = self._fit_best_start(table, on_step)
        found, params = best.clusters, best.params
        self.psi_, self.omega_, self.labels_of_clusters_ = params.psi, params.omega, params.theta
        self.item_clusters_, self.annotator_clusters_ = found.items, found.annotators
        self.item_cluster_, self.annotator_cluster_ = found.item, found.annotator
        self.trace_, self.converged_ = np.array(best.trace), best.converged
        self.prior_ = self.psi_ @ model.population_labels(params)
        self.labelled_ = np.diff(table.item_ptr) > 0
        self.posterior_ = self.snap_items(self.snap)
        votes = table.votes().sum(axis=1)
        self.labels_per_item_ = float(votes[votes > 0].mean()) if (votes > 0).any() else 1.0
        self._set_reliability(*self._count_agreement(table, self.posterior_))

    def _fit_best_start(self, table: Annotations, on_step: OnStep) -> ClusteringRun:
        """Run all starts, in parallel if the table is small; return the first run with the best objective."""
        edges = LabelGraph(table)
        self._check_size(edges)
        children = np.random.SeedSequence(self.seed).spawn(self.restarts)  # one child per start
        threads = thread_count(self.threads, edges.size)
        votes, passes, lock = VoteMixture(table.votes(), self._priors()), list[float](), threading.Lock()

        def step(_: int, objective: float) -> None:
            """Report the passes of all starts, numbered in the order in which they end."""
            with lock:
                passes.append(objective)
                on_step(len(passes), objective)

        outer = min(self.restarts, thread_count(self.threads, 10**9)) if threads == 1 else 1
        with Threads(threads) as inner, Threads(outer) as pool:
            runs = model.map_node_ranges(
                pool,
                range(self.restarts),
                lambda number: self._run(edges, votes, number, np.random.default_rng(children[number]), inner, step),
            )
        best = max(runs, key=lambda run: run.trace[-1])
        self.n_iter_ = len(passes)
        if not best.converged:
            name, count = type(self).__name__, len(best.trace)
            warning = ClusteringNotConverged(clustering=name, passes=count, tol=self.tol, objective=best.trace[-1])
            warnings.warn(warning, stacklevel=4)  # The warning points at the caller of fit.
        return best

    def snap_items(self, how: SnapMode) -> FloatArray:
        """Return the label distributions (I, P) of the fitted items' clusters; items without labels get the prior."""
        found = self.snap_clusters(self.item_clusters_, how, self.item_cluster_)
        return np.where(self.labelled_[:, None], found, self.prior_)

    def _predict_item_clusters(self, table: Annotations, known: IntArray) -> FloatArray:
        """Return the soft clusters (I, K) of a table's items; `known` holds codes into `annotators_`, −1 if unseen."""
        edges = LabelGraph(table)
        believed = np.vstack([self.annotator_clusters_, self.omega_])[known]  # −1 selects the population.
        K = self.psi_.size
        belief, outgoing, pair = np.full((table.n_items, K), 1 / K), np.empty((edges.size, K)), np.empty(edges.size)
        with Threads(thread_count(self.threads, edges.size)) as pool:
            factors = model.EdgeFactors(edges, edges.items, self.labels_of_clusters_)
            factors.run_round(self.psi_, believed[edges.annotator], outgoing, belief, pair, pool)
        return belief

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        found = self.snap_clusters(self._predict_item_clusters(table, annotators), self.snap)
        return np.where((np.diff(table.item_ptr) > 0)[:, None], found, self.prior_)

    def _label_probabilities(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        return self._expected_label_probabilities(
            np.where((item >= 0)[:, None], self.item_clusters_[item], self.psi_), annotator
        )

    def _expected_label_probabilities(self, of_item: FloatArray, annotator: IntArray) -> FloatArray:
        """Return Σ_kl w_nk z_jl Θ_klp (n, P); annotators j are codes into `annotators_`, −1 if unseen."""
        K, L, P = self.labels_of_clusters_.shape
        flat, expected = self.labels_of_clusters_.reshape(K, L * P), np.empty((annotator.size, P))
        believed = np.vstack([self.annotator_clusters_, self.omega_])
        for first in range(0, annotator.size, ROWS_PER_CHUNK):
            rows = slice(first, first + ROWS_PER_CHUNK)
            by_annotator = (of_item[rows] @ flat).reshape(-1, L, P)
            expected[rows] = np.einsum("nlp,nl->np", by_annotator, believed[annotator[rows]])
        return expected


class JointClustering(Clustering):
    """Base class for clusterings of items and annotators at once, with the joint model of `clustering.model`."""

    item_clusters: int | None = param(
        10,
        "number of item clusters; None for one per class, each started from the items with most votes for that class, "
        "so that only the annotators' clusters are free (as in `community-bcc`)",
        low=1,
        must="must be a whole number, at least 1",
    )
    annotator_clusters: int = param(5, "number of annotator clusters", low=1)
    tau: float = param(
        2.0, "Dirichlet parameter of the annotator clusters' shares Ω", above=1, high=1e9, must=MUST_EXCEED_ONE
    )

    def _priors(self) -> ClusterPriors:
        return ClusterPriors(self.alpha, self.gamma, self.tau)

    def _check_size(self, edges: LabelGraph) -> None:
        if self.item_clusters is not None:
            check_enough_nodes("item_clusters", self.item_clusters, edges.items.ptr, "items")
        check_enough_nodes("annotator_clusters", self.annotator_clusters, edges.annotators.ptr, "annotators")

    def _initial_state(
        self, edges: LabelGraph, votes: VoteMixture, number: int, rng: np.random.Generator
    ) -> InitialState:
        K, by_class = self.item_clusters or edges.n_classes, self.item_clusters is None
        return make_start(edges, votes, K, self.annotator_clusters, by_class, number, rng)


def check_enough_nodes(keyword: str, clusters: int, ptr: IntArray, nodes: Literal["items", "annotators"]) -> None:
    """Raise TooManyClusters if there are more clusters than nodes with edges."""
    available = int(np.count_nonzero(np.diff(ptr)))
    if clusters > available:
        raise TooManyClusters(name=ParameterName(keyword), clusters=clusters, available=available, nodes=nodes)


def has_converged(trace: list[float], tol: float) -> bool:
    """Return True if the last pass changed the objective by at most the share `tol`."""
    return len(trace) > 1 and abs(trace[-1] - trace[-2]) <= tol * abs(trace[-1])


clusterings: Registry[type[Clustering]] = Registry(
    "clustering", "list clusterings", "dissensus.clustering", "dissensus.clusterings"
)
"""Name → clustering. A clustering is fitted, scored and saved like a method, but its posterior is not about one true
class."""


def cluster_count_keywords(name: str, K: int, L: int) -> dict[str, Any]:
    """Return the keywords for K item clusters and, if the clustering groups annotators too, L annotator clusters."""
    joint = clusterings.entry(name).facts["annotators"]
    return {"item_clusters": K, "annotator_clusters": L} if joint else {"n_clusters": K}
