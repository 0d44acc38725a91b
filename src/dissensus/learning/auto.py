"""Train with `objective="auto"`: held-out items choose models, penalty, epochs, weights and temperature.

Vectors in memory get a pool (`objectives.auto`), because their models train in seconds. Each fold of the items is held
out once. The linear model is then solved again on all items; the networks stay as their folds stopped them, so the
pool has one network of each kind per fold, whose mean predicts better than any of them. Any other encoder is trained
once, and a tenth of the items chooses the epoch and the temperature. Every choice minimises the cross entropy to the
votes (or gold) of held-out items; `note_` reports it.

The candidates are those that helped on eight sets (`python -m benchmarks.learning.defaults`). Of all soft labels the
shares of the votes were best on every set. A network trained on a softened posterior alone predicts votes worse, but
improves the pool. A crowd layer predicts classes, and with more confidence than votes show: held-out items estimate the
temperature and the distribution of labels given the class (`logistic.channel`). With both, it has a third of the
weight or more.
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
from dissensus.learning import inputs as given
from dissensus.learning import logistic
from dissensus.learning.batches import Bag, Columns, Mapped
from dissensus.learning.checkpoint import Trace
from dissensus.learning.devices import one_thread
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.encoders.mlp import MLP
from dissensus.learning.exceptions import NetworkChosen, NoItemsHeldOut, PoolChosen
from dissensus.learning.network import Network
from dissensus.learning.objectives import Objective, objectives
from dissensus.learning.objectives.auto import Auto, Pool, PoolMember
from dissensus.learning.objectives.base import annotation_rows
from dissensus.learning.objectives.crowd_layer import CrowdLayerObjective
from dissensus.learning.objectives.soft import Soft
from dissensus.learning.run import Run, begin, describe, fit_without, fitted_encoder, new_part, ready, torch_seed
from dissensus.learning.storage import with_learnt
from dissensus.learning.trainer import BATCHES_AT_ONCE
from dissensus.learning.training_log import tell
from dissensus.learning.validation import (
    Validation,
    hold_out,
    known_truth,
    stratified_folds,
    validation_items,
)
from dissensus.messages import Message
from dissensus.models.base import check_gold
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

PATIENCE = 8  # epochs without a better score, unless the user sets `patience`
HIDDEN = (128, 128)  # widths of the layers of the pool's networks
DROPOUT = 0.5  # dropout of the pool's networks
HELD_OUT = 0.1  # share of the items that is held out if training is slow
MIN_ITEMS_SPLIT_ONCE = 20_000  # training items; with more, training is slow and there is one split
MIN_ITEMS = 10  # training items; with fewer, no items are held out
PENALTY_WITHOUT_CHOICE = 1.0  # λ of the linear model if no items are held out
WORSE_BEFORE_END = 2  # worse penalties in a row that end the search
PRIOR_ITEMS = 10.0  # weight, in items, of the prior on equal weights and temperature 1
MIN_LABELS = 3.0  # mean labels per annotator, for candidates that model annotators
MAX_NUMBERS_ONE_THREAD = 2**23  # items × features; smaller steps are not faster on several threads
MAX_MATRIX_CELLS = 2**23  # annotators × K × K of a crowd layer


CANDIDATES: dict[str, Objective] = {
    "networks on votes": Soft(),
    "networks on Dawid-Skene's posteriors": Soft(labels="dawid-skene"),
    "networks under a crowd layer": CrowdLayerObjective(volume="classes", volume_weight=0.3),
}
"""Candidate networks of the pool. All but the first need to know which annotator gave a label. Under a crowd layer,
p(x) is the distribution of the class, not of the votes: a channel maps one to the other."""


class Split(NamedTuple):
    """Validation items, as rows of the table or of separate inputs."""

    held: BoolArray  # (I,) items whose labels are not trained on
    rows: IntArray  # (V,)
    truth: FloatArray  # (V, K)


class Member(NamedTuple):
    """A member of the pool, as the splits score it."""

    name: str
    logits: FloatArray  # (V of all splits, K) for validation items
    score: float  # cross entropy on validation items
    networks: Sequence[nn.Module] = ()  # one per split
    channel: logistic.Channel | None = None  # labels given the class, if the networks predict classes


def pools(model: CrowdClassifier, X: Any) -> bool:
    """Return True if the objective is auto and the inputs are vectors in memory, which get a pool."""
    encoder: Encoder = new_part(model.encoder, encoders, Encoder)
    auto = isinstance(new_part(model.objective, objectives, Objective), Auto)
    return auto and model.processes == 1 and bool(encoder.fixed()) and not isinstance(given.plain(X), Mapped)


def train_auto(model: CrowdClassifier, on_step: OnStep | None, *data: Any) -> tuple[Run, Trace]:
    """Train a pool of models of vectors, or any other encoder once; `data` is the data of `run.begin`."""
    if not pools(model, data[1]):
        return _train_once(model, on_step, *data)
    with show_progress("training") if on_step is None else nullcontext(on_step) as after_epoch:
        return _Choice(model, after_epoch, *data).train()


def _train_once(
    model: CrowdClassifier, on_step: OnStep | None, table: Annotations, X: Any, gold: Any, validation: Any, about: Any
) -> tuple[Run, Trace]:
    """Train one network; held-out items choose the epoch and the temperature."""
    if validation is None and np.count_nonzero(np.diff(table.item_ptr)) >= MIN_ITEMS:
        validation = HELD_OUT
    run = begin(model, table, X, gold, validation, about)
    judge = run.evaluate
    if judge is None:
        return replace(run, note=str(NoItemsHeldOut(penalty=None))), run.train(on_step)
    run.trainer.set_params(patience=model.patience or PATIENCE)
    trace = run.train(on_step)
    logits = run.network.ask(run.network.logits, judge.columns, rows=judge.rows, at_once=judge.at_once)
    (scale,) = logistic.pool(logits[None], judge.truth, PRIOR_ITEMS).tolist()
    with torch.no_grad():
        for parameter in run.network.head[-1].parameters():
            parameter.mul_(scale)
    score = _score(judge.truth, scale * logits)
    note = NetworkChosen(
        epoch=trace.best or 0, n_epochs=len(trace.epochs), temperature=1 / scale, n_items=len(judge.rows), score=score,
        baseline=_score_of_mean(known_truth(table, run.gold)[run.taught], judge.truth),
    )  # fmt: skip
    rows = [_candidate("network", 1, score, scale)]
    return replace(run, note=str(note), candidates=rows, judged=(softmax(scale * logits, axis=1), judge.truth)), trace


class _Choice:
    """The choice among models of vectors: its data and its steps."""

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
        self.encoder: Encoder = new_part(model.encoder, encoders, Encoder)
        self.gold, self.seed = check_gold(gold, table), torch_seed(model.seed)
        self.objective: Auto = new_part(model.objective, objectives, Objective).fit(table, self.gold, self.seed)
        describe(self.objective, about, table)
        self.truth = known_truth(table, self.gold)
        self.beside: Any = None  # inputs of the validation items, if they are not in the table
        self.held_out = np.zeros(table.n_items, np.bool_)
        self.splits = self._splits(validation)
        self.taught = self._taught(self.held_out)
        self.judged = np.concatenate([self.truth[:0], *(split.truth for split in self.splits)])
        self.trace = Trace(stopped=True)

    def _splits(self, validation: Any) -> list[Split]:
        """Return folds; or one split, if the caller gives validation data or there are many items."""
        teaches, held = self.objective.teaches_, []
        if validation is not None and not is_number(validation):
            self.beside, truth = validation_items(validation, self.table.classes)
            return [Split(self.held_out, np.arange(len(truth)), truth)]
        if validation is not None or teaches.sum() >= MIN_ITEMS_SPLIT_ONCE:
            self.held_out = hold_out(HELD_OUT if validation is None else validation, self.table, teaches, self.seed)
            held = [self.held_out]
        elif teaches.sum() >= MIN_ITEMS:
            fold = stratified_folds(self.table, self.truth, teaches, self.objective.folds, self.seed)
            held = [fold == number for number in range(self.objective.folds)]
        return [Split(one, np.flatnonzero(one), self.truth[one]) for one in held]

    def _taught(self, held: BoolArray) -> IntArray:
        return np.flatnonzero(self.objective.teaches_ & ~held)

    def train(self) -> tuple[Run, Trace]:
        """Train all candidates and pool them."""
        inputs = list(self._inputs())
        small = _vectors(inputs[0][1]).size <= MAX_NUMBERS_ONE_THREAD
        with one_thread() if small else nullcontext():
            found = [(*self._linear(*columns), *columns) for columns in inputs]
            linear, penalty, encoder, columns, judging = min(found, key=lambda one: one[0].score)
            trained = [self._networks(kind, name, columns, judging) for kind, name in enumerate(self._candidates())]
        weights: FloatArray = np.ones(1)
        members, score, judged = [linear, *trained], linear.score, None
        if self.splits:
            logits = np.stack([member.logits for member in members])
            weights = logistic.pool(logits, self.judged, PRIOR_ITEMS)
            pooled = np.tensordot(weights, logits, 1)
            score, judged = _score(self.judged, pooled), (softmax(pooled, axis=1), self.judged)
        kept = list(zip(members, weights.tolist(), strict=True))
        rows = [_candidate(one.name, len(one.networks), one.score, weight) for one, weight in kept]
        run = self._run(kept, penalty, encoder, columns)
        note: Message = NoItemsHeldOut(penalty=penalty)
        if self.splits:
            note = PoolChosen(
                weights={member.name: weight for member, weight in kept}, penalty=penalty, n_splits=len(self.splits),
                n_items=len(self.judged), score=score, linear=linear.score,
                baseline=_score_of_mean(self.truth[self.taught], self.judged),
            )  # fmt: skip
        return replace(run, note=str(note), candidates=rows, judged=judged), self.trace

    def _inputs(self) -> Iterator[tuple[Encoder, Columns, Columns]]:
        """Yield candidate encoders, with the inputs of the table and of the validation items."""
        for one in self.encoder.fixed()[: None if self.splits else 1]:
            encoder = fitted_encoder(one, self.X, self.taught, self.table.n_items)
            columns = encoder.prepare(self.X)
            yield encoder, columns, columns if self.beside is None else encoder.prepare(self.beside)

    def _linear(self, encoder: Encoder, columns: Columns, judging: Columns) -> tuple[Member, float]:
        """Fit the linear model along the path of penalties, and stop when scores get worse."""
        x, other = _vectors(columns), _vectors(judging)
        penalty, best, behind = PENALTY_WITHOUT_CHOICE, Member("linear model", self.judged, np.inf), 0
        solutions: list[FloatArray | None] = [None] * len(self.splits)
        for point in logistic.PENALTIES if self.splits else ():
            parts = []
            for number, split in enumerate(self.splits):
                at = self._taught(split.held)
                solutions[number] = found = logistic.solve(x[at], self.truth[at], point, solutions[number])
                parts.append(logistic.logits(other[split.rows], found))
            logits = np.concatenate(parts)
            score = _score(self.judged, logits)
            self.on_step(len(self.trace.epochs), score)
            behind += 1
            if score < best.score:
                penalty, best, behind = point, Member("linear model", logits, score), 0
            if behind == WORSE_BEFORE_END:
                break
        return best, penalty

    def _candidates(self) -> Iterator[str]:
        """Yield the kinds of networks that this table and encoder allow."""
        table = self.table
        if not self.splits or self.encoder.linear:
            return
        named = table.n_annotators > 1 and table.n_annotations >= MIN_LABELS * table.n_annotators
        fits = table.n_annotators * table.n_classes**2 <= MAX_MATRIX_CELLS
        fits &= all(not split.held[table.item].all() for split in self.splits)  # gold alone trains no annotator
        for place, (name, objective) in enumerate(CANDIDATES.items()):
            if (named or place == 0) and (fits or not objective.models_annotators):
                yield name

    def _networks(self, kind: int, name: str, columns: Columns, judging: Columns) -> Member:
        """Train one network per split, until its score on validation items stops improving."""
        model, table, of_classes = self.model, self.table, CANDIDATES[name].models_annotators
        size = _vectors(columns).shape[1]
        learnt = {"center_": np.zeros(size), "spread_": np.ones(size)}
        layers = with_learnt(MLP(hidden=self.hidden, dropout=DROPOUT), learnt)
        parts, networks, channel = [], [], None
        for number, split in enumerate(self.splits):
            objective = new_part(CANDIDATES[name], objectives, Objective)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a candidate may be imperfect
                fit_without(objective, split.held, table, self.gold, self.seed)
            network = Network.fresh(layers, objective, (self.seed + number) % 2**32)
            judge = Validation(judging, split.rows, split.truth, BATCHES_AT_ONCE * model.batch_size)
            if of_classes:
                judge = self._by_labels(judge)
            taught = self._taught(split.held)
            run = ready(model, table, layers, network, columns, taught, gold=self.gold, evaluate=judge)
            run.trainer.set_params(patience=model.patience or PATIENCE, monitor=model.monitor or "cross-entropy")
            if model.checkpoint is not None:
                run.trainer.set_params(checkpoint=Path(model.checkpoint) / f"{kind}-{number}")
            before = len(self.trace.epochs)
            trace = run.train(lambda epoch, loss, entry, before=before: tell(self.on_step, before + epoch, loss, entry))
            self.trace.epochs += [{**entry, "epoch": before + entry["epoch"]} for entry in trace.epochs]
            parts.append(network.ask(network.logits, judging, rows=split.rows))
            main = getattr(network.head, "main", network.head)
            networks.append(nn.Sequential(network.encoder, main[-1]))
        logits = np.concatenate(parts)
        if of_classes:
            channel = logistic.channel(logits, self.judged)
            logits = channel(logits)
        return Member(name, logits, _score(self.judged, logits), networks, channel)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Return the layer widths of the networks: the encoder's, if the user set them."""
        own, default = (tuple(getattr(of, "hidden", ())) for of in (self.encoder, type(self.encoder)))
        return HIDDEN if own == default else own

    def _by_labels(self, judge: Validation) -> Validation:
        """Score a crowd layer by the held-out labels, each through its annotator's matrix, or the average one."""
        if self.beside is None:
            rows = annotation_rows(self.table)
        else:
            nobody = torch.full((len(judge.truth),), -1)
            proba = torch.as_tensor(judge.truth, dtype=torch.float32)
            rows = Bag({"annotator": nobody, "proba": proba}, torch.arange(1 + len(nobody)))
        return replace(judge, labels=Columns(annotations=rows))

    def _run(self, kept: list[tuple[Member, float]], penalty: float, encoder: Encoder, columns: Columns) -> Run:
        """Build the pool as one network: the linear model on all training items, and the networks of all splits."""
        used = [(member, weight) for member, weight in kept[1:] if weight > 0]
        self.objective.members_ = [
            {"hidden": list(self.hidden), "networks": len(member.networks), "of_classes": member.channel is not None}
            for member, _ in used
        ]
        network = Network.fresh(encoder, self.objective, self.seed)
        pool: Pool = network.head
        solution = logistic.solve(_vectors(columns)[self.taught], self.truth[self.taught], penalty)
        with torch.no_grad():
            pool.linear.weight.copy_(torch.as_tensor(solution[:-1].T))
            pool.linear.bias.copy_(torch.as_tensor(solution[-1]))
            pool.weights.copy_(torch.tensor([kept[0][1], *(weight for _, weight in used)]))
            for place, (member, _) in zip(pool.members, used, strict=True):
                assert isinstance(place, PoolMember)
                place.fill(member.networks, member.channel)
        network.eval()
        return ready(
            self.model, self.table, encoder, network, columns, self.taught, gold=self.gold, held_out=self.held_out
        )


def _vectors(columns: Columns) -> FloatArray:
    """Return the only column (I, D) float32 as an array."""
    column = columns.columns["x"]
    assert isinstance(column, torch.Tensor)
    return np.asarray(column.numpy())


def _candidate(name: str, networks: int, score: float, weight: float) -> dict[str, Any]:
    return {"name": name, "networks": networks, "cross_entropy": score, "weight": weight}


def _score(truth: FloatArray, logits: FloatArray) -> float:
    return float(cross_entropy(truth, softmax(logits, axis=1)).mean())


def _score_of_mean(taught: FloatArray, truth: FloatArray) -> float:
    return float(cross_entropy(truth, np.tile(taught.mean(axis=0), (len(truth), 1))).mean())
