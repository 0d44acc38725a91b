"""The decision function: the probability that annotator j labels item i, estimated from the pairs in the table.

This is the decision function of Platanios et al. 2020, section 1, as a factor model. An item has a vector v_i and a
bias a_i, which are linear in an encoding of its features or in its trained vector. An annotator has a vector e_j and a
bias b_j.

    logit P(j labels i) = s_ij = v_i · e_j + a_i + b_j

Nearly all pairs are unobserved, so unobserved pairs are sampled. In every epoch, `draws` annotators are drawn per item,
uniformly and with replacement, and the item's own annotators are dropped. An unobserved pair is drawn ρ = draws / A
times per epoch on average, and an observed pair is used once. A pair in the sample is therefore observed with odds
P / (ρ (1 − P)), and the loss

    loss = −Σ_observed log σ(s_ij − log ρ) − Σ_drawn log σ(−s_ij + log ρ) + λ/2 Σ_both |v_i|² + |e_j|²

makes σ(s_ij) the probability P for any ρ. Items without annotations are not used for training, because it is unknown
whether they were offered to an annotator. No array has an entry for every item and annotator.

On held-out pairs of `medical_causes` the area under the ROC curve is 0.96. A baseline that uses only the annotators'
numbers of labels has 0.84. For new items with texts the area is 0.80, which is below the baseline
(`benchmarks/learning/README.md`).
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.learning import inputs as input_data
from dissensus.learning.annotator_features import AnnotatorCodes, AnnotatorFeatures, match_annotators
from dissensus.learning.batches import Batch, BatchColumns, RaggedColumn
from dissensus.learning.devices import isolated_rng, resolve_device
from dissensus.learning.encoders import MLP, Encoder, ItemEmbedding, encoders
from dissensus.learning.exceptions import ArgumentLengthsDiffer
from dissensus.learning.network import TrainingData
from dissensus.learning.objectives.base import AnnotatorVectors
from dissensus.learning.rows import RowEmbedding
from dissensus.learning.run import copy_component, make_torch_seed
from dissensus.learning.saved_inputs import pack_columns, unpack_columns
from dissensus.learning.sklearn_loop import Learner
from dissensus.learning.storage import pack_component, set_attributes, unpack_component
from dissensus.learning.trainer import Trainer
from dissensus.models.exceptions import NoAnnotations
from dissensus.table.annotations import Annotations

INITIAL_SPREAD = 0.1  # initial standard deviation of annotators' vectors
PAIRS_AT_ONCE = 2**18  # maximum number of pairs whose scores are computed at once


def add_random_pairs(observed: Batch, n_items: int, n_annotators: int, draws: int) -> Batch:
    """Add random pairs to the observed pairs of a batch, and return `row`, `annotator`, `answer` and `counts`.

    `row` is the position of the pair's item in the batch. `answer` is 1 for an observed pair, and 0 for a drawn pair.
    `counts` is the weight of a pair, which is 0 for a drawn pair that is also observed.
    """
    row, annotator = observed["row"], observed["annotator"]  # sorted
    drawn = torch.randint(n_annotators, (n_items, draws)).to(row.device).flatten()
    item = torch.arange(n_items, device=row.device).repeat_interleave(draws)
    key, drawn_key = row * n_annotators + annotator, item * n_annotators + drawn
    at = torch.searchsorted(key, drawn_key).clamp(max=len(key) - 1)
    unobserved = (key[at] != drawn_key).float()
    ones = torch.ones(len(row), device=row.device)
    return {
        "row": torch.cat([row, item]),
        "annotator": torch.cat([annotator, drawn]),
        "answer": torch.cat([ones, torch.zeros_like(unobserved)]),
        "counts": torch.cat([ones, unobserved]),
    }


class PairNetwork(AnnotatorVectors):
    """Network of an encoder with vectors of items and annotators; `forward` returns the loss."""

    def __init__(
        self, encoder: Encoder, n_annotators: int, size: int, rate: float, penalty: float, features: FloatArray | None
    ):
        super().__init__()
        self.encoder, self.rate, self.penalty = encoder.module(), rate, penalty
        self.item = nn.Linear(encoder.width, size + 1)
        rows = torch.randn(n_annotators, size + 1) * INITIAL_SPREAD
        rows[:, -1] = 0
        self.table = RowEmbedding(rows)
        self.add_features(features, size + 1)

    def forward(self, inputs: Batch, observed: Batch, mix: None = None) -> Tensor:
        """Draw pairs, and return the sum of the losses of the batch's pairs; `mix` is not used."""
        n_items, n_annotators = len(next(iter(inputs.values()))), self.table.num_embeddings
        return self.loss(inputs, add_random_pairs(observed, n_items, n_annotators, round(self.rate * n_annotators)))

    def loss(self, inputs: Batch, pairs: Batch) -> Tensor:
        """Return the sum of the losses of pairs."""
        v = self.item(self.encoder(**inputs)).index_select(0, pairs["row"])  # (n, size + 1)
        u, feature_effect = self.table(pairs["annotator"]), self.feature_effect(pairs["annotator"])
        logit = self.score_pairs(v, u if feature_effect is None else u + feature_effect) - math.log(self.rate)
        counts = pairs["counts"]
        loss: Tensor = functional.binary_cross_entropy_with_logits(logit, pairs["answer"], counts, reduction="sum")
        squares: Tensor = (v[:, :-1].square() + u[:, :-1].square()).sum(dim=1)
        return loss + self.penalty / 2 * (counts * squares).sum()

    def score_pairs(self, v: Tensor, e: Tensor) -> Tensor:
        """Return s (n,) for rows of items and annotators (n, size + 1), whose last columns are the biases."""
        inner: Tensor = (v[..., :-1] * e[..., :-1]).sum(dim=-1)
        return inner + v[..., -1] + e[..., -1]

    def get_annotator_vectors(self, codes: IntArray, features: FloatArray | None) -> Tensor:
        """Return vectors and biases (n, size + 1); those of code −1 are the mean, plus the effect of its features."""
        on_device = torch.as_tensor(codes.astype(np.int64)).to(self.device)
        encoding = None if features is None else torch.as_tensor(features.astype(np.float32)).to(self.device)
        return self.rows_or_average(on_device, torch.ones_like(self.table.weight[:, 0]), encoding)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.item.weight.device


class DecisionFunction(Learner):
    """Model of P(annotator j labels item i).

    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(80, 8, 2, seed=1).annotations
    >>> DecisionFunction(epochs=2).fit(table).predict_proba(table.items[:3], [99]).shape
    (3, 1)
    """

    file_name: ClassVar[str] = "decision.safetensors"
    stored_kind: ClassVar[str] = "DecisionFunction"

    encoder: Encoder | None = param(
        None, "encoder of features; by default one hidden layer (`MLP`) or, without features, a trained vector per item"
    )
    size: int = param(16, "length of the vectors of items and annotators", low=1)
    draws: int | None = param(
        None, "annotators drawn per item and epoch; by default four times the mean number of annotators per item", low=1
    )
    penalty: float = param(0.01, "λ, the penalty on vectors", low=0)
    epochs: int = param(60, "passes over the items", low=1)
    batch_size: int = param(256, "items per step", low=1)
    learning_rate: float = param(0.01, "learning rate of the layers", low=0)
    vector_learning_rate: float = param(
        0.1, "learning rate of the vectors of annotators, and of items without features", low=0
    )
    device: str = param("cpu", "device of the network")
    seed: int | None = param(0, "seed of initial weights, drawn pairs and the order of items; None: random", low=0)

    items_: Names
    annotators_: Names
    annotator_features_: AnnotatorFeatures | None = None
    trace_: FloatArray
    network_: PairNetwork

    def fit(self, table: Annotations, X: Any = None, *, annotators: Any = None, on_step: OnStep | None = None) -> Self:
        """Fit the model to the (item, annotator) pairs of a table.

        Parameters
        ----------
        table : Annotations
            The pairs; the labels are not used.
        X : (I, D) features, optional
            One row per item, in the order of `table.items`.
        annotators : frame, optional
            Features of the annotators, as in `LIA.fit`.
        on_step : callable, optional
            Called after every epoch, as in `CrowdClassifier.fit`.

        Returns
        -------
        DecisionFunction
            The fitted model itself.
        """
        self.check_parameters()
        input_data.check_table(table)
        if X is not None:
            X = input_data.align_rows(X, table)
        train_items = np.flatnonzero(np.diff(table.item_ptr))
        if not train_items.size:
            raise NoAnnotations()
        self.items_, self.annotators_ = table.items, table.annotators
        A = table.n_annotators
        keys = np.unique(table.item.astype(np.int64) * A + table.annotator)  # Repeated labels are a single pair.
        counts = np.bincount(keys // A, minlength=table.n_items)
        draws = math.ceil(4 * len(keys) / train_items.size) if self.draws is None else self.draws
        seed = make_torch_seed(self.seed)
        inputs = table.items if X is None else X
        self.encoder_ = self._new_encoder(features=X is not None)
        self.encoder_.fit(inputs if train_items.size == table.n_items else input_data.take_rows(inputs, train_items))
        self._columns = self.encoder_.prepare(inputs)
        self.annotator_features_ = features = None
        if annotators is not None:
            self.annotator_features_ = AnnotatorFeatures.fit(annotators, table.annotators)
            features = self.annotator_features_.compute_features(annotators, table.annotators)
        share = min(len(keys) / (train_items.size * A), 1 - 1 / (2 * len(keys)))
        with isolated_rng(seed):
            network = PairNetwork(self.encoder_, A, self.size, draws / A, self.penalty, features)
        with torch.no_grad():
            network.item.bias[-1] = math.log(share / (1 - share))
        observed = RaggedColumn(
            {"annotator": torch.as_tensor(keys % A)}, torch.as_tensor(np.append(0, np.cumsum(counts)))
        )
        trainer = Trainer(
            epochs=self.epochs, batch_size=self.batch_size, schedule="cosine", device=self.device,
            precision="32-true", seed=seed,
        )  # fmt: skip
        groups = [
            {"params": [p for p in network.parameters() if getattr(p, "row_sparse", False) is sparse], "lr": rate}
            for sparse, rate in ((False, self.learning_rate), (True, self.vector_learning_rate))
        ]
        data = TrainingData(self._columns, BatchColumns(observed=observed))
        trace = trainer.fit(network, data, train_items, groups, on_step=on_step)
        self.trace_ = np.array([entry["loss"] for entry in trace.epochs])
        self.network_ = network
        return self

    def predict_proba(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """Predict P(the annotator labels the item) (items, annotators).

        Parameters
        ----------
        items : names, optional
            Fitted items; None stands for all.
        annotators : names or frame, optional
            Annotators; None stands for all. An unknown name is treated as the average annotator. A frame with the
            columns of `fit` describes annotators by their features.
        """
        rows, (codes, features) = self._match_codes(items, annotators)
        proba = np.empty((rows.size, codes.size))
        step = max(PAIRS_AT_ONCE // max(codes.size, 1), 1)
        with torch.inference_mode():
            e = self.network_.get_annotator_vectors(codes, features)
            for start in range(0, rows.size, step):
                v = self._encode_items(rows[start : start + step])
                proba[start : start + step] = (
                    self.network_.score_pairs(v[:, None], e[None]).sigmoid().cpu().double().numpy()
                )
        return proba

    def predict_pairs(self, items: Any, annotators: Any) -> FloatArray:
        """Predict P(the annotator labels the item) (n,) for pairs, given as lists of n items and n annotators."""
        rows, (codes, features) = self._match_codes(items, annotators)
        if rows.size != codes.size:
            raise ArgumentLengthsDiffer(
                argument="predict_pairs", lengths={"items": rows.size, "annotators": codes.size}
            )
        proba = np.empty(rows.size)
        with torch.inference_mode():
            for start in range(0, rows.size, PAIRS_AT_ONCE):
                at = slice(start, start + PAIRS_AT_ONCE)
                unique_rows, place = np.unique(rows[at], return_inverse=True)
                e = self.network_.get_annotator_vectors(codes[at], None if features is None else features[at])
                v = self._encode_items(unique_rows)[torch.as_tensor(place).to(e.device)]
                proba[at] = self.network_.score_pairs(v, e).sigmoid().cpu().double().numpy()
        return proba

    def _to_tree(self) -> dict[str, Any]:
        network, encoding = self.network_, self.annotator_features_
        return {
            "parameters": {**self.get_params(deep=False), "encoder": None},
            "has_encoder": self.encoder is not None,
            "encoder": pack_component(self.encoder_, encoders),
            "inputs": pack_columns(self._columns),
            "annotators": None if encoding is None else asdict(encoding),
            "features": None if encoding is None else network.features.cpu().numpy(),
            "network": {"size": network.item.out_features - 1, "rate": network.rate, "penalty": network.penalty},
            "results": {"items_": self.items_, "annotators_": self.annotators_, "trace_": self.trace_},
            "weights": dict(network.state_dict()),
        }

    @classmethod
    def _from_tree(cls, tree: dict[str, Any], device: str) -> Self:
        model: Self = set_attributes(cls(**{**tree["parameters"], "device": device}), tree["results"])
        model.encoder_, model._columns = unpack_component(tree["encoder"], encoders), unpack_columns(tree["inputs"])
        if tree["has_encoder"]:
            model.encoder = copy_component(model.encoder_, encoders, Encoder)
        encoding = tree["annotators"]
        model.annotator_features_ = None if encoding is None else AnnotatorFeatures(**encoding)
        network = PairNetwork(model.encoder_, model.annotators_.size, **tree["network"], features=tree["features"])
        network.load_state_dict(tree["weights"])
        model.network_ = network.to(resolve_device(device))
        return model

    def _match_codes(self, items: Any, annotators: Any) -> tuple[IntArray, AnnotatorCodes]:
        """Return the codes of items, and the codes of annotators with the features of a frame; None stands for all."""
        self._check_fitted()
        return input_data.match_items(items, self.items_), match_annotators(
            annotators, self.annotators_, self.annotator_features_
        )

    def _encode_items(self, codes: IntArray) -> Tensor:
        """Return the vectors and biases (n, size + 1) of items."""
        network = self.network_.eval()
        batch = self._columns.take(torch.as_tensor(codes.astype(np.int64)))
        rows: Tensor = network.item(network.encoder(**{k: x.to(network.device) for k, x in batch.items()}))
        return rows

    def _new_encoder(self, *, features: bool) -> Encoder:
        encoder: Encoder = MLP(hidden=(64,), dropout=0.0) if features else ItemEmbedding(size=self.size, hidden=())
        if self.encoder is not None:
            encoder = copy_component(self.encoder, encoders, Encoder)
        return encoder
