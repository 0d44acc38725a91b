"""`CrowdClassifier`, the scikit-learn interface: a classifier of new items that is trained on annotations.

Any encoder, which turns inputs into vectors, works with any objective, which defines how annotations supervise the
network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from dissensus.common.parameters import check_argument, param
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names, OnStep
from dissensus.evaluation.exceptions import NoGoldLabels
from dissensus.learning import exceptions as faults
from dissensus.learning import inputs as input_data
from dissensus.learning.annotator_features import AnnotatorFeatures, match_annotators
from dissensus.learning.auto import train_auto
from dissensus.learning.batches import Batch, BatchColumns, RaggedColumn
from dissensus.learning.checkpoint import Trace
from dissensus.learning.competence import DIFFICULTY_LEVELS, difficulty_and_competence
from dissensus.learning.conformal import LabelSets, make_label_sets
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.network import MAX_CONFUSION_ENTRIES, Network
from dissensus.learning.objectives import Objective, objectives
from dissensus.learning.objectives.auto import Auto
from dissensus.learning.objectives.base import as_tensor
from dissensus.learning.objectives.soft import Soft
from dissensus.learning.optimizers import pack_optimizer
from dissensus.learning.posterior import combine_posterior, estimate_confusions
from dissensus.learning.run import TrainingRun, copy_component, make_tie_seed, make_torch_seed, prepare_run
from dissensus.learning.sklearn_loop import ByItem, Learner, order_arguments
from dissensus.learning.storage import pack_component, set_attributes, unpack_component
from dissensus.learning.trainer import PREDICTION_BATCHES, Trainer, TrainingKeywords
from dissensus.learning.validation import encode_one_hot
from dissensus.models.base import Likelihoods, annotated_results, item_columns, put_given_label_first
from dissensus.models.confidence import shrink_reliability
from dissensus.models.saving import check_arrays
from dissensus.table import names as naming
from dissensus.table.annotations import ANONYMOUS_ANNOTATOR, Annotations


class CrowdClassifier(Learner, TrainingKeywords):
    """A classifier that is trained on the labels of many annotators who disagree.

    Items with neither annotations nor gold labels are predicted, but not used for training.

    >>> from dissensus.table.simulate import simulate
    >>> crowd = simulate(80, 8, 2, seed=1)
    >>> table, X = crowd.annotations, np.eye(2)[crowd.truth]
    >>> model = CrowdClassifier(objective="soft", epochs=3, device="cpu", seed=0).fit(table, X, validation=0.3)
    >>> model.predict(X).shape, model.predict_proba(X).shape, model.predict_sets(X[:3]).members.shape
    ((80,), (80, 2), (3, 2))
    >>> model.predict_annotator_proba(X, None).shape, model.predict_annotations(table, X).shape
    ((80, 8, 2), (400, 2))
    >>> model.score(X, crowd.truth) > 0.5, model.to_frame().num_rows
    (True, 80)
    >>> model.fit_distributions(X, table.soft_labels()).posterior_.shape
    (80, 2)
    """

    file_name: ClassVar[str] = "model.safetensors"
    stored_kind: ClassVar[str] = "trained model"

    encoder: str | Encoder = param("mlp", "encoder of the inputs: a name, or an `Encoder` with its keywords")
    objective: str | Objective = param(
        "auto",
        "objective, which defines how annotations supervise the network: a name, or an `Objective` with its keywords; "
        "auto chooses models by held-out items",
    )
    learning_rate: float | None = param(
        None, "learning rate of the encoder; by default that of the encoder's class", low=0
    )
    head_learning_rate: float | None = param(
        None,
        "learning rate of the last layers and of annotators' parameters; by default at least 0.001 for the last "
        "layers, and 0.001 for annotators",
        low=0,
    )
    mixup: float | None = param(None, "train on mixtures of two items, with weights from Beta(mixup, mixup)", above=0)

    # The annotated types define the axes and the range of each result, which are checked when a model is loaded.
    classes_: Annotated[Names, "K names"]
    items_: Annotated[Names, "I names"]
    annotators_: Annotated[Names, "A names"]
    posterior_: Annotated[FloatArray, "I K nearly-simplex"]  # P(class | features and annotations)
    proba_: Annotated[FloatArray, "I K nearly-simplex"]  # P(class | features)
    confusion_: Annotated[FloatArray, "A K K nearly-simplex"]  # [annotator, true class, given label]
    population_confusion_: Annotated[FloatArray, "K K nearly-simplex"]  # confusion of an unknown annotator
    power_: Annotated[int, "optional whole"] = 1  # exponent τ that turns the network's P(vote) into P(class)
    reliability_: Annotated[FloatArray, "A share?"]
    difficulty_: Annotated[FloatArray | None, "optional I real"]  # objective lia: P(an average annotator is wrong)
    competence_: Annotated[
        FloatArray | None, "optional A 3 share?"
    ]  # P(right) on all, on the easiest and on the hardest items
    hits_: Annotated[FloatArray, "A count"]
    total_: Annotated[FloatArray, "A count"]
    n_annotations_: Annotated[IntArray, "A count"]
    labelled_: Annotated[BoolArray, "I flag"]
    held_out_: Annotated[BoolArray, "I flag"]
    history_: list[dict[str, float]]  # metrics per epoch
    trace_: Annotated[FloatArray, "T any"]  # mean training loss per epoch
    n_iter_: Annotated[int, "whole"]
    tie_seed_: Annotated[int, "whole"]
    annotator_features_: AnnotatorFeatures | None  # encoding of the annotators' features
    best_epoch_: int | None  # epoch whose weights were kept; None without validation
    monitor_: str  # metric that chose the best epoch
    converged_: Annotated[bool, "flag"]
    note_: str  # sentence that reports the choice of objective "auto"
    candidates_: list[dict[str, Any]]  # candidates of "auto" with their held-out cross entropy and weight
    held_out_predictions_: (
        tuple[FloatArray, FloatArray] | None
    )  # (V, K) each: P(class) of held-out items, and their gold labels or vote shares

    def trainer(self) -> Trainer:
        """Return a trainer with the keywords of this classifier."""
        keywords = {name: getattr(self, name) for name in TrainingKeywords.parameter_names()}
        keywords["monitor"] = self.monitor or copy_component(self.objective, objectives, Objective).monitor
        return Trainer(**{**keywords, "seed": make_torch_seed(self.seed)})

    # Learning ---------------------------------------------------------------------------------------------------------

    def fit(
        self,
        table: Annotations,
        X: Any,
        *,
        items: Any = None,
        gold: IntArray | None = None,
        annotators: Any = None,
        validation: float | tuple[Any, Any] | None = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Fit the network to annotations and inputs.

        Parameters
        ----------
        table : Annotations
            The annotations to train on.
        X : frame, mapping, array or list
            Inputs of the encoder. A frame with a column or an index `item`, and a mapping from items to inputs, are
            joined to the table by name. Any other X has one row per item, in the order of `table.items`. Features in
            a file (`np.load("x.npy", mmap_mode="r")`) are read batch by batch.
        items : names, optional
            The item of each row of X, if X does not name its rows itself.
        gold : (I,) int, optional
            Gold classes of some items, as codes into `table.classes`, and −1 for unknown. Every objective uses them.
        annotators : frame, optional
            Features of the annotators: a column `annotator`, and columns of numbers or texts, which may have gaps.
            Objectives such as "lia" use them, and then predict an unknown annotator from the features.
        validation : float or (X, labels), optional
            Share of the training items to hold out; by default only objective "auto" holds items out. Or a pair of
            inputs and their labels: an Annotations table, or classes as names or codes (as names only if the classes
            are integers).
        on_step : callable, optional
            Called after every epoch with (epoch, mean loss), and with all metrics if it has a parameter `entry` (see
            `training_log`). By default, a progress bar is shown if training takes more than a second.

        Returns
        -------
        CrowdClassifier
            The fitted classifier itself.
        """
        table, X, gold = order_arguments(table, X, gold)
        input_data.check_table(table)
        X = input_data.align_rows(X, table, items)
        if isinstance(copy_component(self.objective, objectives, Objective), Auto):
            self.check()
            return self._store_results(*train_auto(self, on_step, table, X, gold, validation, annotators))
        run = prepare_run(self, table, X, gold, validation, annotators)
        return self._store_results(run, run.train(on_step))

    def fit_distributions(
        self,
        X: Any,
        y: Any,
        *,
        classes: Any = None,
        validation: float | tuple[Any, Any] | None = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Fit objective "soft" to one distribution per input, such as the label shares of the input's cluster.

        The result is that of `fit` with a table in which a single annotator labels every item with its distribution.

        Parameters
        ----------
        X : array, list or frame
            Inputs of the encoder.
        y : (rows, K) float
            The distribution of each row of X.
        classes : names, optional
            Names of the K classes; by default 0, 1, …, K − 1.
        validation, on_step
            As in `fit`. The labels of `validation` may be distributions too.

        Returns
        -------
        CrowdClassifier
            The fitted classifier itself.
        """
        objective = copy_component(self.objective, objectives, Objective)
        if not (isinstance(objective, Soft) and isinstance(objective.labels, str) and objective.labels == "normalized"):
            raise faults.SoftObjectiveNeeded(objective=repr(self.objective))
        table = _table_from_distributions(X, y, classes, "y")
        if isinstance(validation, tuple) and len(validation) == 2 and np.ndim(validation[1]) == 2:
            validation = validation[0], _table_from_distributions(*validation, table.classes, "validation")
        return self.fit(table, X, validation=validation, on_step=on_step)

    def _store_results(self, run: TrainingRun, trace: Trace) -> Self:
        """Store the trained network, and compute the results for the items and annotators of the table."""
        table, data, objective = run.table, run.data, run.objective
        self.classes_, self.items_, self.annotators_ = table.classes, table.items, table.annotators
        self.tie_seed_ = make_tie_seed(self.seed)
        self.encoder_, self.objective_, self.network_ = run.encoder, objective, run.network
        self.held_out_ = np.zeros(table.n_items, np.bool_) if run.held_out is None else run.held_out
        self.labelled_ = objective.train_mask_ | self.held_out_
        self.annotator_features_ = run.annotator_features
        self.history_, self.n_iter_ = trace.epochs, len(trace.epochs)
        self.trace_ = np.array([entry["loss"] for entry in trace.epochs])
        self.best_epoch_, self.monitor_ = trace.best_epoch, run.trainer.monitor
        self.note_, self.candidates_, self.held_out_predictions_ = run.note, run.candidates, run.held_out_predictions
        if self.held_out_predictions_ is None and (judge := run.evaluate) is not None:
            logits = self._apply_network(self.network_.logits, judge.columns, rows=judge.rows)
            self.held_out_predictions_ = softmax(logits, axis=1), judge.truth
        self.converged_ = trace.stopped or self.patience is None
        self.proba_, self.power_ = softmax(self._apply_network(self.network_.logits, data.inputs), axis=1), 1
        if objective.has_posterior:
            targets = data.targets
            if self.held_out_.any():  # The posterior uses all labels, including those of held-out items.
                whole = copy_component(self.objective, objectives, Objective).fit(table, run.gold, run.trainer.seed)
                targets = whole.targets()
            log_q = self._apply_network(self.network_.log_posterior, data.inputs, targets)
            combined = estimate_confusions(table, softmax(log_q, axis=1), run.gold)
        else:
            combined, self.power_ = combine_posterior(table, self.proba_, run.gold, objective.predicts_votes)
        self.posterior_, self.confusion_ = combined.posterior, combined.confusion
        self.population_confusion_ = combined.population
        self.n_annotations_ = np.diff(table.annotator_ptr)
        hits, total = table.count_correct_labels(self.posterior_)
        self.hits_, self.total_ = np.minimum(hits, total), total
        self.reliability_ = shrink_reliability(hits, total)
        self.difficulty_, self.competence_ = difficulty_and_competence(self, data.inputs)
        return self

    # Answers ----------------------------------------------------------------------------------------------------------

    def likelihoods(self) -> Likelihoods:
        """Return the posterior of the items, and the likelihood of every label given the class."""
        self._check_fitted()
        everyone = put_given_label_first(self.all_confusions())
        return Likelihoods(
            self.posterior_, lambda _, annotators: everyone[annotators][None], True
        )  # A code of −1 selects the last row.

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict P(class | x) (rows, K), with columns in the order of `classes_`."""
        self._check_fitted()
        return np.asarray(softmax(self._apply_network(self.network_.logits, self.encoder_.prepare(X)), axis=1))

    def predict(self, X: Any) -> Names:
        """Return the most probable class names (rows,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_sets(self, X: Any, coverage: float = 0.9) -> LabelSets:
        """Predict sets of classes that contain the right class with probability `coverage` (see `conformal`).

        The threshold comes from held-out items, so the model must be fitted with objective "auto" or `validation`.
        The right class of a held-out item is its gold class or, without one, the label of a random annotator.
        """
        self._check_fitted()
        if self.held_out_predictions_ is None:
            raise faults.HeldOutItemsNeeded()
        return make_label_sets(self.predict_proba(X), self.classes_, *self.held_out_predictions_, coverage)

    def predict_annotator_proba(self, X: Any, annotators: Any) -> FloatArray:
        """Predict P(label | x, annotator) (rows, annotators, K).

        An objective that models annotators predicts their labels itself. Others use the confusion matrices of the
        annotators, Σ_c P(c | x) M_j[c, y].

        Parameters
        ----------
        X : array, list or frame
            Inputs of the encoder.
        annotators : names, frame or None
            None stands for all fitted annotators. An unknown name is treated as the average annotator. A frame with
            the columns of `fit` describes annotators by their features.
        """
        self._check_fitted()
        codes, features = match_annotators(annotators, self.annotators_, self.annotator_features_)
        columns, network = self.encoder_.prepare(X), self.network_
        if not self.objective_.models_annotators or not codes.size:
            class_proba = softmax(self.power_ * self._apply_network(network.logits, columns), axis=1)
            return np.asarray(
                np.einsum("ic,acl->ial", class_proba, self.all_confusions()[codes])
            )  # A code of −1 selects the last row.
        placed = self.network_.to(self.torch_device()).to_device(codes, features)
        proba = self._apply_network(
            lambda batch: self.objective_.label_proba(network.head, network.encoder(**batch), *placed), columns
        )
        return np.asarray(proba / proba.sum(axis=2, keepdims=True))

    def predict_annotations(self, table: Annotations, X: Any, *, annotators: Any = None) -> FloatArray:
        """Predict P(label | x, annotator) (N, K) for the rows of a table, in their order.

        The probabilities equal those of `predict_annotator_proba`, but are computed for the pairs in the table only, so
        that memory grows with the number of rows.

        Parameters
        ----------
        table : Annotations
            Pairs of new or fitted items and annotators; their labels are not used.
        X : frame, mapping, array or list
            Inputs of the table's items, as in `fit`.
        annotators : frame, optional
            Features of the table's annotators, with the columns of `fit`; an annotator without a row has average
            features.
        """
        self._check_fitted()
        input_data.check_table(table, "predict_annotations")
        X, table = input_data.align_rows(X, table), table.with_classes(self.classes_)
        fitted_codes = naming.match_names(
            table.annotators, self.annotators_, "annotators"
        )  # (A,) −1 for unknown annotators
        features = None
        if annotators is not None:
            if self.annotator_features_ is None:
                raise faults.FittedWithoutFeatures()
            features = self.annotator_features_.compute_features(annotators, table.annotators)
        network, head, objective = self.network_, self.network_.head, self.objective_
        confusion = torch.as_tensor(self.all_confusions())

        def predict_by_objective(z: Tensor, row: Tensor, table_rows: IntArray) -> Tensor:
            codes = table.annotator[table_rows]
            placed = network.to_device(fitted_codes[codes], None if features is None else features[codes])
            return objective.pair_label_proba(head, z, row, *placed)

        def predict_by_confusion(z: Tensor, row: Tensor, table_rows: IntArray) -> Tensor:
            p = (self.power_ * objective.logits(head, z).cpu().double()).softmax(dim=1)[row.cpu()]
            codes = fitted_codes[table.annotator[table_rows]]
            return torch.einsum("nk,nkl->nl", p, confusion[codes])  # A code of −1 selects the last row.

        return self._predict_rows(
            self.encoder_.prepare(X),
            table,
            predict_by_objective if objective.models_annotators else predict_by_confusion,
        )

    def score(self, X: Any, labels: Any) -> float:
        """Return the accuracy of `predict(X)` for labels given as class names, or as codes with −1 for unknown."""
        self._check_fitted()
        truth = encode_one_hot(np.asarray(labels) if isinstance(labels, ByItem) else labels, self.classes_)
        input_data.check_row_count(X, len(truth), "labels", "score")
        known = truth.sum(axis=1) > 0
        if not known.any():
            raise NoGoldLabels(items=len(truth))
        return float((self.predict_proba(X).argmax(axis=1) == truth.argmax(axis=1))[known].mean())

    def to_frame(self, kind: str = "items") -> Any:
        """Return results as an Arrow table: one row per item, per annotator, or per epoch ("history")."""
        import pyarrow as pa

        self._check_fitted()
        check_argument("kind", kind, Literal["items", "annotators", "history"])
        if kind == "items":
            columns = item_columns(self.classes_, self.tie_seed_, self.items_, self.posterior_, self.difficulty_)
            columns |= {"model": self.classes_[self.proba_.argmax(axis=1)], "taught": self.labelled_ & ~self.held_out_}
            first = ("item", "label", "confidence", "model", "taught")
            columns = {name: columns[name] for name in (*first, *columns)}
        elif kind == "annotators":
            columns = {
                "annotator": self.annotators_, "annotations": self.n_annotations_, "reliability": self.reliability_,
            }  # fmt: skip
            if self.competence_ is not None:
                columns |= {
                    f"competence_{where}": self.competence_[:, at] for at, where in enumerate(DIFFICULTY_LEVELS)
                }
        else:
            columns = {key: [entry[key] for entry in self.history_] for key in (self.history_ or [{}])[0]}
        return pa.table(columns)

    # Storage ----------------------------------------------------------------------------------------------------------

    def _to_tree(self) -> dict[str, Any]:
        results = {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") and name not in ("encoder_", "objective_", "network_", "annotator_features_")
        }
        encoding = self.annotator_features_
        parameters = self.get_params(deep=False)
        parameters["optimizer"] = pack_optimizer(parameters["optimizer"])
        parameters["checkpoint"] = parameters["log"] = None  # These folders may not exist on another machine.
        return {
            "parameters": {k: v for k, v in parameters.items() if k not in ("encoder", "objective")},
            "encoder": pack_component(self.encoder_, encoders),
            "requested_encoder": pack_component(
                copy_component(self.encoder, encoders, Encoder), encoders
            ),  # Objective auto may fit another encoder.
            "objective": pack_component(self.objective_, objectives),
            "annotators": None if encoding is None else dataclasses.asdict(encoding),
            "results": results,
            "weights": dict(self.network_.state_dict()),
        }

    @classmethod
    def _from_tree(cls, tree: dict[str, Any], device: str) -> Self:
        encoder = unpack_component(tree["encoder"], encoders)
        objective = unpack_component(tree["objective"], objectives)
        model = cls(
            **{**tree["parameters"], "device": device},
            encoder=unpack_component(tree["requested_encoder"], encoders),
            objective=type(objective)(**objective.get_params(deep=False)),
        )
        model.check_parameters()
        results, schema = tree["results"], annotated_results(cls)
        check_arrays(dict.fromkeys(schema) | results, schema)  # A missing result is treated as None.
        set_attributes(model, results)
        model.encoder_, model.objective_ = encoder, objective
        encoding = tree["annotators"]
        model.annotator_features_ = None if encoding is None else AnnotatorFeatures(**encoding)
        model.network_ = Network.initialise(encoder, objective)
        model.network_.load_state_dict(tree["weights"])
        model.network_.eval()
        return model

    # Inside -----------------------------------------------------------------------------------------------------------

    def _apply_network(
        self, question: Callable[..., Tensor], *columns: BatchColumns, rows: IntArray | None = None
    ) -> FloatArray:
        """Apply a function to the network's inputs on the device; see `Network.apply_in_batches`."""
        network, at_once = self.network_.to(self.torch_device()), PREDICTION_BATCHES * self.batch_size
        return network.apply_in_batches(question, *columns, rows=rows, at_once=at_once)

    def _predict_rows(
        self, columns: BatchColumns, table: Annotations, predict: Callable[[Tensor, Tensor, IntArray], Tensor]
    ) -> FloatArray:
        """Predict a distribution (N, K) for each row of a table whose item i is row i of `columns`.

        Each item is encoded once, so time and memory grow with the rows of the table and not with items × annotators.
        `predict(z, position, rows)` returns the distributions (n, K) of n rows of the table. `z` (B, …) is the
        encoder's output for B items, `position` (n,) is the position of each row's item in z, and `rows` (n,) are row
        numbers.
        """
        K, items = self.objective_.n_classes_, np.flatnonzero(np.diff(table.item_ptr))
        if not items.size:
            return np.empty((0, K))

        def predict_batch(inputs: Batch, pairs: Batch) -> Tensor:
            z, at = self.network_.encoder(**inputs), pairs["at"].cpu().numpy()
            parts = torch.split(
                torch.arange(len(at)), max(MAX_CONFUSION_ENTRIES // K**2, 1)
            )  # one item may have many rows
            return torch.cat([predict(z, pairs["row"][part.to(z.device)], at[part.numpy()]).cpu() for part in parts])

        bag = BatchColumns(rows=RaggedColumn({"at": torch.arange(len(table))}, as_tensor(table.item_ptr, torch.int64)))
        found = self._apply_network(predict_batch, columns, bag, rows=items)
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def all_confusions(self) -> FloatArray:
        """Return the confusion matrices (A + 1, K, K); the last one is for an unknown annotator."""
        return np.concatenate([self.confusion_, self.population_confusion_[None]])


def _table_from_distributions(X: Any, y: Any, classes: Any, what: str) -> Annotations:
    """Make a table in which one annotator gives each row of X its distribution y (n, K)."""
    y = np.asarray(y, np.float64)
    if y.ndim != 2:
        raise faults.DistributionsNeeded(argument=what, expected="(rows, classes)", shape=y.shape)
    input_data.check_row_count(X, len(y), "distributions", what)
    items = np.arange(len(y))
    return Annotations.from_arrays(items, [ANONYMOUS_ANNOTATOR] * len(y), proba=y, classes=classes, items=items)
