"""Who answers what: P(j gives a label for i), learnt from which pairs of item and annotator are in the table.

The decision function of Platanios et al. 2020, section 1, as a factor model: items have a vector v_i and a bias a_i,
linear in what an encoder makes of their features (or of a vector of their own), annotators have e_j and b_j:

    logit P(j answers i) = s_ij = v_i · e_j + a_i + b_j

Nearly all pairs are unobserved, so they are sampled: `draws` annotators per item in every epoch, uniformly and with
replacement, and those who answered the item are left out. An unobserved pair is then met ρ = draws / A times an epoch
on average, an observed one once, so what is met is an answer with the odds P / (ρ (1 − P)), and

    loss = −Σ_observed log σ(s_ij − log ρ) − Σ_drawn log σ(−s_ij + log ρ) + λ/2 Σ_both |v_i|² + |e_j|²

has σ(s_ij) for the probability itself, whatever ρ is. Items that nobody answered do not teach: whether they were ever
offered to anyone is not known. No array has a cell for every item and annotator.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.parameters import Parameters, param
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.exceptions import DataError, NotFitted
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import AnnotatorFeatures, Whom, find
from dissensus.learning.batches import Bag, Batch, Columns
from dissensus.learning.devices import own_draws, place
from dissensus.learning.encoders import MLP, Encoder, ItemEmbedding, encoders
from dissensus.learning.network import Lessons
from dissensus.learning.objectives.base import AnnotatorRows
from dissensus.learning.rows import RowEmbedding
from dissensus.learning.run import new_part, torch_seed
from dissensus.learning.storage import (
    file_in,
    loaded_part,
    of_this_version,
    read_tree,
    stored_part,
    with_learnt,
    write_tree,
)
from dissensus.learning.trainer import Trainer
from dissensus.table.annotations import Annotations
from reproductions.saved_inputs import loaded_columns, stored_columns

FIRST_SPREAD = 0.1  # standard deviation of annotators' vectors at the start
FILE = "decision.safetensors"
PAIRS_AT_ONCE = 2**18  # whose scores are computed together


def with_draws(answered: Batch, n_items: int, n_annotators: int, draws: int) -> Batch:
    """Add draws to who answered the items of a batch: pairs `row` (the item's place), `annotator`, `answer`, `counts`.

    A draw of somebody who did answer counts 0.
    """
    row, annotator = answered["row"], answered["annotator"]  # sorted
    drawn = torch.randint(n_annotators, (n_items, draws)).to(row.device).flatten()
    place = torch.arange(n_items, device=row.device).repeat_interleave(draws)
    observed, key = row * n_annotators + annotator, place * n_annotators + drawn
    at = torch.searchsorted(observed, key).clamp(max=len(observed) - 1)
    free = (observed[at] != key).float()
    ones = torch.ones(len(row), device=row.device)
    return {
        "row": torch.cat([row, place]),
        "annotator": torch.cat([annotator, drawn]),
        "answer": torch.cat([ones, torch.zeros_like(free)]),
        "counts": torch.cat([ones, free]),
    }


class PairNetwork(AnnotatorRows):
    """An encoder with vectors of items and annotators; `forward` is the loss."""

    def __init__(
        self, encoder: Encoder, n_annotators: int, size: int, rate: float, penalty: float, features: FloatArray | None
    ):
        super().__init__()
        self.encoder, self.rate, self.penalty = encoder.module(), rate, penalty
        self.item = nn.Linear(encoder.width, size + 1)
        rows = torch.randn(n_annotators, size + 1) * FIRST_SPREAD
        rows[:, -1] = 0
        self.table = RowEmbedding(rows)
        self.describe(features, size + 1)

    def forward(self, inputs: Batch, answered: Batch, mix: None = None) -> Tensor:
        """Draw pairs, and sum the losses of the batch's; `Lessons` without mixup have no `mix`."""
        n_items, n_annotators = len(next(iter(inputs.values()))), self.table.num_embeddings
        return self.loss(inputs, with_draws(answered, n_items, n_annotators, round(self.rate * n_annotators)))

    def loss(self, inputs: Batch, pairs: Batch) -> Tensor:
        """Sum the losses of pairs."""
        v = self.item(self.encoder(**inputs)).index_select(0, pairs["row"])  # (n, size + 1)
        u, explained = self.table(pairs["annotator"]), self.explained(pairs["annotator"])
        e = u if explained is None else u + explained
        logit = self.score(v, e) - math.log(self.rate)
        loss: Tensor = functional.binary_cross_entropy_with_logits(
            logit, pairs["answer"], pairs["counts"], reduction="sum"
        )
        squares: Tensor = (v[:, :-1].square() + u[:, :-1].square()).sum(dim=1)
        return loss + self.penalty / 2 * (pairs["counts"] * squares).sum()

    def score(self, v: Tensor, e: Tensor) -> Tensor:
        """Return s (n,) of rows of items and annotators (n, size + 1), whose last columns are the biases."""
        inner: Tensor = (v[..., :-1] * e[..., :-1]).sum(dim=-1)
        return inner + v[..., -1] + e[..., -1]

    def annotators(self, codes: IntArray, features: FloatArray | None) -> Tensor:
        """Return rows (n, size + 1) of annotators; −1 has the mean, and its features where they are given."""
        some = torch.as_tensor(codes.astype(np.int64)).to(self.device)
        known = None if features is None else torch.as_tensor(features.astype(np.float32)).to(self.device)
        return self.rows_of(some, torch.ones_like(self.table.weight[:, 0]), known)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.item.weight.device


class DecisionFunction(Parameters):
    """P(annotator j answers item i)."""

    encoder: Encoder | None = param(
        None, "encoder of features; None for one hidden layer (`MLP`) or, without features, for a vector per item"
    )
    size: int = param(16, "numbers of the vectors of items and annotators", low=1)
    draws: int | None = param(
        None, "annotators drawn per item and epoch; None for four times the answers that an item has on average", low=1
    )
    penalty: float = param(0.01, "λ, the penalty on vectors", low=0)
    epochs: int = param(60, "passes over the items", low=1)
    batch_size: int = param(256, "items per step", low=1)
    learning_rate: float = param(
        0.01, "learning rate of layers; chosen with `epochs` and `penalty` by held-out pairs of `medical_causes`", low=0
    )
    vector_learning_rate: float = param(
        0.1, "learning rate of the vectors of annotators, and of items without features", low=0
    )
    device: str = param("cpu", "where the network is trained and asked")
    seed: int | None = param(0, "seed of first weights, draws and the order of items; None draws one", low=0)

    items_: Names
    annotators_: Names
    annotator_features_: AnnotatorFeatures | None = None
    trace_: FloatArray
    network_: PairNetwork

    def fit(self, table: Annotations, X: Any = None, *, annotators: Any = None, on_step: OnStep | None = None) -> Self:
        """Learn from who answered what; X (I, D) one row per `table.items`, `annotators` a frame as `LIA` has it."""
        self.check_parameters()
        given.check_table(table)
        if X is not None:
            X = given.aligned(X, table)
        taught = np.flatnonzero(np.diff(table.item_ptr))
        if not taught.size:
            raise DataError("the decision function is learnt from who answered what, and there are no annotations.")
        self.items_, self.annotators_ = table.items, table.annotators
        A = table.n_annotators
        keys = np.unique(table.item.astype(np.int64) * A + table.annotator)  # who answered twice has answered
        counts = np.bincount(keys // A, minlength=table.n_items)
        draws = math.ceil(4 * len(keys) / taught.size) if self.draws is None else self.draws
        seed = torch_seed(self.seed)
        inputs = table.items if X is None else X
        self.encoder_ = self._encoder(X is not None)
        self.encoder_.fit(inputs if taught.size == table.n_items else given.take(inputs, taught))
        self._columns = self.encoder_.prepare(inputs)
        self.annotator_features_ = features = None
        if annotators is not None:
            self.annotator_features_ = AnnotatorFeatures.fit(annotators, table.annotators)
            features = self.annotator_features_.of(annotators, table.annotators)
        share = min(len(keys) / (taught.size * A), 1 - 1 / (2 * len(keys)))
        with own_draws(seed):
            network = PairNetwork(self.encoder_, A, self.size, draws / A, self.penalty, features)
        with torch.no_grad():
            network.item.bias[-1] = math.log(share / (1 - share))
        ptr = torch.as_tensor(np.concatenate([[0], np.cumsum(counts)]))
        answered = Bag({"annotator": torch.as_tensor(keys % A)}, ptr)
        trainer = Trainer(
            epochs=self.epochs, batch_size=self.batch_size, schedule="cosine", device=self.device,
            precision="32-true", seed=seed,
        )  # fmt: skip
        groups = [
            {"params": [p for p in network.parameters() if getattr(p, "row_sparse", False) is sparse], "lr": rate}
            for sparse, rate in ((False, self.learning_rate), (True, self.vector_learning_rate))
        ]
        trace = trainer.fit(
            network, Lessons(self._columns, Columns(answered=answered)), taught, groups, on_step=on_step
        )
        self.trace_ = np.array([entry["loss"] for entry in trace.epochs])
        self.network_ = network
        return self

    # Answers ----------------------------------------------------------------------------------------------------------

    def predict_proba(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """Return (items, annotators) P(the annotator answers the item).

        Give names of items of the table and of annotators, None for all; one who was not there is an average one, or,
        where `annotators` is a frame with the columns that `fit` had, one of its features.
        """
        items, (codes, features) = self._found(items, annotators)
        found = np.empty((items.size, codes.size))
        step = max(PAIRS_AT_ONCE // max(codes.size, 1), 1)
        with torch.inference_mode():
            e = self.network_.annotators(codes, features)
            for start in range(0, items.size, step):
                v = self._items(items[start : start + step])
                found[start : start + step] = self.network_.score(v[:, None], e[None]).sigmoid().cpu().double().numpy()
        return found

    def predict_pairs(self, items: Any, annotators: Any) -> FloatArray:
        """Return the same for n pairs, (n,): the first item with the first annotator, and so on."""
        rows, (codes, features) = self._found(items, annotators)
        if rows.size != codes.size:
            raise DataError(f"{rows.size:,} items and {codes.size:,} annotators are no pairs; give equally many.")
        found = np.empty(rows.size)
        with torch.inference_mode():
            for start in range(0, rows.size, PAIRS_AT_ONCE):
                at = slice(start, start + PAIRS_AT_ONCE)
                distinct, place = np.unique(rows[at], return_inverse=True)
                e = self.network_.annotators(codes[at], None if features is None else features[at])
                v = self._items(distinct)[torch.as_tensor(place).to(e.device)]
                found[at] = self.network_.score(v, e).sigmoid().cpu().double().numpy()
        return found

    # On disk ----------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into `folder` (made if need be): one file, safetensors with a JSON header."""
        self._check_fitted()
        return write_tree(Path(folder) / FILE, self._tree(), type(self).__name__)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Load the model that `save` wrote into `folder`; all its answers are the same."""
        path = file_in(folder, FILE)
        tree = read_tree(path, cls.__name__)
        with of_this_version(path), own_draws():
            model: Self = with_learnt(cls(**{**tree["parameters"], "device": device}), tree["results"])
            model._restore(tree, place(device))
        return model

    def _tree(self) -> dict[str, Any]:
        network, described = self.network_, self.annotator_features_
        return {
            "parameters": {**self.get_params(deep=False), "encoder": None},
            "own encoder": self.encoder is not None,
            "encoder": stored_part(self.encoder_, encoders),
            "inputs": stored_columns(self._columns),
            "annotators": None if described is None else asdict(described),
            "features": None if described is None else network.features.cpu().numpy(),
            "network": {"size": network.item.out_features - 1, "rate": network.rate, "penalty": network.penalty},
            "results": {"items_": self.items_, "annotators_": self.annotators_, "trace_": self.trace_},
            "weights": dict(network.state_dict()),
        }

    def _restore(self, tree: dict[str, Any], on: torch.device) -> None:
        self.encoder_, self._columns = loaded_part(tree["encoder"], encoders), loaded_columns(tree["inputs"])
        if tree["own encoder"]:
            self.encoder = new_part(self.encoder_, encoders, Encoder)
        described = tree["annotators"]
        self.annotator_features_ = None if described is None else AnnotatorFeatures(**described)
        network = PairNetwork(self.encoder_, self.annotators_.size, **tree["network"], features=tree["features"])
        network.load_state_dict(tree["weights"])
        self.network_ = network.to(on)

    # Inside -----------------------------------------------------------------------------------------------------------

    def _found(self, items: Any, annotators: Any) -> tuple[IntArray, Whom]:
        """Codes of items, and codes of annotators with features where a frame has them; None for all."""
        self._check_fitted()
        return given.item_codes(items, self.items_), find(annotators, self.annotators_, self.annotator_features_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "trace_"):
            raise NotFitted("this DecisionFunction is not fitted yet; call fit(table, X) first.")

    def _items(self, codes: IntArray) -> Tensor:
        """Return rows (n, size + 1) of items."""
        network = self.network_.eval()
        batch = self._columns.take(torch.as_tensor(codes.astype(np.int64)))
        rows: Tensor = network.item(network.encoder(**{k: x.to(network.device) for k, x in batch.items()}))
        return rows

    def _encoder(self, features: bool) -> Encoder:
        if self.encoder is not None:
            own: Encoder = new_part(self.encoder, encoders, Encoder)
            return own
        return MLP(hidden=(64,), dropout=0.0) if features else ItemEmbedding(size=self.size, hidden=())
