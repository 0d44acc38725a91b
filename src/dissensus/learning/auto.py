"""Train with `objective="auto"`, which chooses models, penalty, epochs, weights and temperature by held-out items.

If inputs are vectors in memory, a pool of models predicts the labels (`objectives.auto`), because such models train in
seconds. Each fold of the items is held out once. At the end, the linear model is fitted again to all items. Networks
are not trained again, so the pool has one network of each kind per fold, and their mean predicts better than each of
them. With any other input, one network is trained, and a tenth of the items is held out to choose the epoch and the
temperature. Every choice minimises the cross entropy to the votes (or gold) of held-out items; `note_` reports it.

The candidates are the models that improved the score on eight data sets (`python -m benchmarks.learning.defaults`).
Among all soft labels, vote shares were best on every set. A network that is trained on a tempered posterior predicts
votes worse by itself, but improves the pool. A crowd layer predicts classes, and is more confident than the votes.
Therefore a temperature and the distribution of labels given the class are also estimated from held-out items
(`logistic.fit_vote_channel`). With these corrections the crowd layer has at least a third of the weight.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from dissensus.common.parameters import is_number
from dissensus.common.progress import show_progress
from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.evaluation import cross_entropy
from dissensus.exceptions import ConvergenceWarning
from dissensus.learning import inputs as input_data
from dissensus.learning import logistic
from dissensus.learning.batches import BatchColumns, MappedRows, RaggedColumn
from dissensus.learning.checkpoint import Trace
from dissensus.learning.devices import single_thread
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.encoders.mlp import MLP
from dissensus.learning.exceptions import NetworkChosen, NoItemsHeldOut, PoolChosen
from dissensus.learning.network import Network
from dissensus.learning.objectives import Objective, objectives
from dissensus.learning.objectives.auto import Auto, PoolHead, PoolMember
from dissensus.learning.objectives.base import make_annotation_column
from dissensus.learning.objectives.crowd_layer import CrowdLayerObjective
from dissensus.learning.objectives.soft import Soft
from dissensus.learning.run import (
    TrainingRun,
    copy_component,
    fit_encoder,
    fit_objective_without,
    make_run,
    make_torch_seed,
    prepare_run,
    set_annotator_features,
)
from dissensus.learning.storage import set_attributes
from dissensus.learning.trainer import PREDICTION_BATCHES
from dissensus.learning.training_log import call_on_step
from dissensus.learning.validation import (
    Validation,
    assign_stratified_folds,
    hold_out,
    read_validation,
    target_distributions,
)
from dissensus.messages import Message
from dissensus.models.base import check_gold
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

DEFAULT_PATIENCE = 8  # default number of epochs without a better score after which training ends
POOL_HIDDEN_WIDTHS = (128, 128)  # widths of the layers of the pool's networks
POOL_DROPOUT = 0.5  # dropout of the pool's networks
HELD_OUT_SHARE = 0.1  # share of the items that is held out if training is slow
MIN_ITEMS_SINGLE_SPLIT = 20_000  # number of training items above which there is one split, because training is slow
MIN_ITEMS_HELD_OUT = 10  # minimum number of training items for items to be held out
DEFAULT_PENALTY = 1.0  # λ of the linear model if no items are held out
MAX_WORSE_PENALTIES = 2  # number of consecutive worse penalties after which the search ends
PRIOR_ITEMS = 10.0  # weight, in items, of the prior on equal weights and temperature 1
MIN_LABELS_PER_ANNOTATOR = 3.0  # minimum mean number for candidates that model annotators
MAX_VALUES_SINGLE_THREAD = 2**23  # items × features up to which one thread is as fast as several
MAX_MATRIX_CELLS = 2**23  # maximum annotators × K × K of a crowd layer


POOL_CANDIDATES: dict[str, Objective] = {
    "networks on votes": Soft(),
    "networks on Dawid-Skene's posteriors": Soft(labels="dawid-skene"),
    "networks under a crowd layer": CrowdLayerObjective(volume="classes", volume_weight=0.3),
}
"""Candidate networks of the pool.

All candidates but the first use the annotator of each label. Under a crowd layer, p(x) is the distribution of the class
instead of the vote, and a `VoteChannel` converts it."""


class HeldOutSplit(NamedTuple):
    """Validation items, which are items of the table or have inputs of their own."""

    held_out: BoolArray  # (I,) True for items whose labels are not used for training
    rows: IntArray  # (V,) indices of the validation items in the table or in their own inputs
    truth: FloatArray  # (V, K) one-hot gold labels, or vote shares


class ScoredMember(NamedTuple):
    """A member of the pool with its score on the validation items of all splits."""

    name: str
    logits: FloatArray  # (V, K) for the validation items of all splits
    score: float  # cross entropy on validation items
    networks: Sequence[nn.Module] = ()  # one per split
    channel: logistic.VoteChannel | None = None  # set if the networks predict classes


def uses_pool(model: CrowdClassifier, X: Any) -> bool:
    """Return True if the objective is "auto" and the inputs are vectors in memory, which a pool predicts."""
    encoder: Encoder = copy_component(model.encoder, encoders, Encoder)
    auto = isinstance(copy_component(model.objective, objectives, Objective), Auto)
    return (
        auto
        and model.processes == 1
        and bool(encoder.make_pool_encoders())
        and not isinstance(input_data.strip_row_names(X), MappedRows)
    )


def train_auto(model: CrowdClassifier, on_step: OnStep | None, *data: Any) -> tuple[TrainingRun, Trace]:
    """Train a pool of models for vectors, or one network for other inputs; `data` is passed to `prepare_run`."""
    if not uses_pool(model, data[1]):
        return _train_once(model, on_step, *data)
    with show_progress("training") if on_step is None else nullcontext(on_step) as after_epoch:
        return _ModelSelection(model, after_epoch, *data).train()


def _train_once(
    model: CrowdClassifier, on_step: OnStep | None, table: Annotations, X: Any, gold: Any, validation: Any, about: Any
) -> tuple[TrainingRun, Trace]:
    """Train one network, with epoch and temperature chosen by held-out items."""
    if validation is None and np.count_nonzero(np.diff(table.item_ptr)) >= MIN_ITEMS_HELD_OUT:
        validation = HELD_OUT_SHARE
    run = prepare_run(model, table, X, gold, validation, about)
    judge = run.evaluate
    if judge is None:
        return replace(run, note=str(NoItemsHeldOut(penalty=None))), run.train(on_step)
    run.trainer.set_params(patience=model.patience or DEFAULT_PATIENCE)
    trace = run.train(on_step)
    logits = run.network.apply_in_batches(run.network.logits, judge.columns, rows=judge.rows, at_once=judge.at_once)
    (scale,) = logistic.fit_pool_weights(logits[None], judge.truth, PRIOR_ITEMS).tolist()
    with torch.no_grad():
        for parameter in run.network.head[-1].parameters():
            parameter.mul_(scale)
    score = _mean_cross_entropy(judge.truth, scale * logits)
    note = NetworkChosen(
        epoch=trace.best_epoch or 0, n_epochs=len(trace.epochs), temperature=1 / scale, n_items=len(judge.rows),
        score=score,
        baseline=_baseline_cross_entropy(target_distributions(table, run.gold)[run.train_items], judge.truth),
    )  # fmt: skip
    rows = [_describe_candidate("network", 1, score, scale)]
    return replace(
        run, note=str(note), candidates=rows, held_out_predictions=(softmax(scale * logits, axis=1), judge.truth)
    ), trace


class _ModelSelection:
    """Data and steps of the selection of models for vectors."""

    def __init__(
        self,
        model: CrowdClassifier,
        on_step: OnStep,
        table: Annotations,
        X: Any,
        gold: Any,
        validation: Any,
        about: Any,
    ):
        self.model, self.table, self.X, self.on_step = model, table, X, on_step
        self.encoder: Encoder = copy_component(model.encoder, encoders, Encoder)
        self.gold, self.seed = check_gold(gold, table), make_torch_seed(model.seed)
        self.objective: Auto = copy_component(model.objective, objectives, Objective).fit(table, self.gold, self.seed)
        set_annotator_features(self.objective, about, table)
        self.truth = target_distributions(table, self.gold)
        self.validation_inputs: Any = None  # inputs of validation items that are not in the table
        self.held_out = np.zeros(table.n_items, np.bool_)
        self.splits = self._make_splits(validation)
        self.train_items = self._find_train_items(self.held_out)
        self.validation_truth = np.concatenate([self.truth[:0], *(split.truth for split in self.splits)])
        self.trace = Trace(stopped=True)

    def _make_splits(self, validation: Any) -> list[HeldOutSplit]:
        """Return one split per fold, or a single split if there are validation data or many items."""
        train_mask, held_out = self.objective.train_mask_, []
        if validation is not None and not is_number(validation):
            self.validation_inputs, truth = read_validation(validation, self.table.classes)
            return [HeldOutSplit(self.held_out, np.arange(len(truth)), truth)]
        if validation is not None or train_mask.sum() >= MIN_ITEMS_SINGLE_SPLIT:
            self.held_out = hold_out(
                HELD_OUT_SHARE if validation is None else validation, self.table, train_mask, self.seed
            )
            held_out = [self.held_out]
        elif train_mask.sum() >= MIN_ITEMS_HELD_OUT:
            fold = assign_stratified_folds(self.table, self.truth, train_mask, self.objective.folds, self.seed)
            held_out = [fold == number for number in range(self.objective.folds)]
        return [HeldOutSplit(one, np.flatnonzero(one), self.truth[one]) for one in held_out]

    def _find_train_items(self, held_out: BoolArray) -> IntArray:
        return np.flatnonzero(self.objective.train_mask_ & ~held_out)

    def train(self) -> tuple[TrainingRun, Trace]:
        """Train all candidates, and return the pool as a trained run."""
        inputs = list(self._prepare_inputs())
        small = _feature_array(inputs[0][1]).size <= MAX_VALUES_SINGLE_THREAD
        with single_thread() if small else nullcontext():
            found = [(*self._fit_linear(*columns), *columns) for columns in inputs]
            linear, penalty, encoder, columns, judging = min(found, key=lambda one: one[0].score)
            trained = [
                self._train_networks(kind, name, columns, judging) for kind, name in enumerate(self._list_candidates())
            ]
        weights: FloatArray = np.ones(1)
        members, score, held_out_predictions = [linear, *trained], linear.score, None
        if self.splits:
            logits = np.stack([member.logits for member in members])
            weights = logistic.fit_pool_weights(logits, self.validation_truth, PRIOR_ITEMS)
            pooled = np.tensordot(weights, logits, 1)
            score, held_out_predictions = (
                _mean_cross_entropy(self.validation_truth, pooled),
                (softmax(pooled, axis=1), self.validation_truth),
            )
        kept = list(zip(members, weights.tolist(), strict=True))
        rows = [_describe_candidate(one.name, len(one.networks), one.score, weight) for one, weight in kept]
        run = self._build_run(kept, penalty, encoder, columns)
        note: Message = NoItemsHeldOut(penalty=penalty)
        if self.splits:
            note = PoolChosen(
                weights={member.name: weight for member, weight in kept}, penalty=penalty, n_splits=len(self.splits),
                n_items=len(self.validation_truth), score=score, linear=linear.score,
                baseline=_baseline_cross_entropy(self.truth[self.train_items], self.validation_truth),
            )  # fmt: skip
        return replace(run, note=str(note), candidates=rows, held_out_predictions=held_out_predictions), self.trace

    def _prepare_inputs(self) -> Iterator[tuple[Encoder, BatchColumns, BatchColumns]]:
        """Yield candidate encoders with the prepared inputs of the table and of the validation items."""
        for one in self.encoder.make_pool_encoders()[: None if self.splits else 1]:
            encoder = fit_encoder(one, self.X, self.train_items, self.table.n_items)
            columns = encoder.prepare(self.X)
            yield (
                encoder,
                columns,
                columns if self.validation_inputs is None else encoder.prepare(self.validation_inputs),
            )

    def _fit_linear(self, encoder: Encoder, columns: BatchColumns, judging: BatchColumns) -> tuple[ScoredMember, float]:
        """Fit the linear model with decreasing penalties, and return the best model with its penalty."""
        x, other = _feature_array(columns), _feature_array(judging)
        penalty, best, behind = DEFAULT_PENALTY, ScoredMember("linear model", self.validation_truth, np.inf), 0
        solutions: list[FloatArray | None] = [None] * len(self.splits)
        for point in logistic.PENALTIES if self.splits else ():
            parts = []
            for number, split in enumerate(self.splits):
                at = self._find_train_items(split.held_out)
                solutions[number] = found = logistic.fit_logistic(x[at], self.truth[at], point, solutions[number])
                parts.append(logistic.compute_logits(other[split.rows], found))
            logits = np.concatenate(parts)
            score = _mean_cross_entropy(self.validation_truth, logits)
            self.on_step(len(self.trace.epochs), score)
            behind += 1
            if score < best.score:
                penalty, best, behind = point, ScoredMember("linear model", logits, score), 0
            if behind == MAX_WORSE_PENALTIES:
                break
        return best, penalty

    def _list_candidates(self) -> Iterator[str]:
        """Yield the names of the candidate networks that are possible with this table and encoder."""
        table = self.table
        if not self.splits or self.encoder.is_linear:
            return
        named = table.n_annotators > 1 and table.n_annotations >= MIN_LABELS_PER_ANNOTATOR * table.n_annotators
        fits = table.n_annotators * table.n_classes**2 <= MAX_MATRIX_CELLS
        fits &= all(
            not split.held_out[table.item].all() for split in self.splits
        )  # Gold labels do not train the annotators' parameters.
        for place, (name, objective) in enumerate(POOL_CANDIDATES.items()):
            if (named or place == 0) and (fits or not objective.models_annotators):
                yield name

    def _train_networks(self, kind: int, name: str, columns: BatchColumns, judging: BatchColumns) -> ScoredMember:
        """Train one network per split until its score on the validation items stops improving."""
        model, table, predicts_classes = self.model, self.table, POOL_CANDIDATES[name].models_annotators
        size = _feature_array(columns).shape[1]
        learnt = {"center_": np.zeros(size), "spread_": np.ones(size)}
        layers = set_attributes(MLP(hidden=self.hidden_widths, dropout=POOL_DROPOUT), learnt)
        parts, networks, channel = [], [], None
        for number, split in enumerate(self.splits):
            objective = copy_component(POOL_CANDIDATES[name], objectives, Objective)
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", ConvergenceWarning
                )  # A candidate that has not converged is scored like others.
                fit_objective_without(objective, split.held_out, table, self.gold, self.seed)
            network = Network.initialise(layers, objective, (self.seed + number) % 2**32)
            judge = Validation(judging, split.rows, split.truth, PREDICTION_BATCHES * model.batch_size)
            if predicts_classes:
                judge = self._score_by_labels(judge)
            train_items = self._find_train_items(split.held_out)
            run = make_run(model, table, layers, network, columns, train_items, gold=self.gold, evaluate=judge)
            run.trainer.set_params(
                patience=model.patience or DEFAULT_PATIENCE, monitor=model.monitor or "cross-entropy"
            )
            if model.checkpoint is not None:
                run.trainer.set_params(checkpoint=Path(model.checkpoint) / f"{kind}-{number}")
            before = len(self.trace.epochs)
            trace = run.train(
                lambda epoch, loss, entry, before=before: call_on_step(self.on_step, before + epoch, loss, entry)
            )
            self.trace.epochs += [{**entry, "epoch": before + entry["epoch"]} for entry in trace.epochs]
            parts.append(network.apply_in_batches(network.logits, judging, rows=split.rows))
            main = getattr(network.head, "main", network.head)
            networks.append(nn.Sequential(network.encoder, main[-1]))
        logits = np.concatenate(parts)
        if predicts_classes:
            channel = logistic.fit_vote_channel(logits, self.validation_truth)
            logits = channel(logits)
        return ScoredMember(name, logits, _mean_cross_entropy(self.validation_truth, logits), networks, channel)

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        """Return the layer widths of the networks: those of the encoder if the user set them, else the default."""
        own, default = (tuple(getattr(of, "hidden", ())) for of in (self.encoder, type(self.encoder)))
        return POOL_HIDDEN_WIDTHS if own == default else own

    def _score_by_labels(self, judge: Validation) -> Validation:
        """Return a validation that scores a crowd layer by held-out labels, each predicted for its annotator."""
        if self.validation_inputs is None:
            rows = make_annotation_column(self.table)
        else:
            unknown = torch.full((len(judge.truth),), -1)
            proba = torch.as_tensor(judge.truth, dtype=torch.float32)
            rows = RaggedColumn({"annotator": unknown, "proba": proba}, torch.arange(1 + len(unknown)))
        return replace(judge, labels=BatchColumns(annotations=rows))

    def _build_run(
        self, kept: list[tuple[ScoredMember, float]], penalty: float, encoder: Encoder, columns: BatchColumns
    ) -> TrainingRun:
        """Return the pool as one network: the linear model of all training items, and the networks of all splits."""
        used = [(member, weight) for member, weight in kept[1:] if weight > 0]
        self.objective.members_ = [
            {
                "hidden": list(self.hidden_widths),
                "networks": len(member.networks),
                "predicts_classes": member.channel is not None,
            }
            for member, _ in used
        ]
        network = Network.initialise(encoder, self.objective, self.seed)
        pool: PoolHead = network.head
        solution = logistic.fit_logistic(
            _feature_array(columns)[self.train_items], self.truth[self.train_items], penalty
        )
        with torch.no_grad():
            pool.linear.weight.copy_(torch.as_tensor(solution[:-1].T))
            pool.linear.bias.copy_(torch.as_tensor(solution[-1]))
            pool.weights.copy_(torch.tensor([kept[0][1], *(weight for _, weight in used)]))
            for place, (member, _) in zip(pool.members, used, strict=True):
                assert isinstance(place, PoolMember)
                place.copy_weights(member.networks, member.channel)
        network.eval()
        return make_run(
            self.model, self.table, encoder, network, columns, self.train_items, gold=self.gold, held_out=self.held_out
        )


def _feature_array(columns: BatchColumns) -> FloatArray:
    """Return the only column as a float32 array (I, D)."""
    column = columns.columns["x"]
    assert isinstance(column, torch.Tensor)
    return np.asarray(column.numpy())


def _describe_candidate(name: str, networks: int, score: float, weight: float) -> dict[str, Any]:
    return {"name": name, "networks": networks, "cross_entropy": score, "weight": weight}


def _mean_cross_entropy(truth: FloatArray, logits: FloatArray) -> float:
    return float(cross_entropy(truth, softmax(logits, axis=1)).mean())


def _baseline_cross_entropy(train_items: FloatArray, truth: FloatArray) -> float:
    return float(cross_entropy(truth, np.tile(train_items.mean(axis=0), (len(truth), 1))).mean())
