"""LIA (Platanios et al. 2020): classes, difficulty of items and competence of annotators, estimated together.

    h(x_i)  classes        D_i = d(x_i)  difficulty, K × K × L        C_j = c(j)  competence, K × K × L
    Q_ij[k, l] = softmax_l log Σ_m exp(D_i[k, l, m] + C_j[k, l, m])          P(j's label of i is l | its class is k)

h and d are layers on the same encoder. c(j) = V e_j + b is linear in an embedding of the annotator (`annotator_size`).
With `annotator_size=None`, c(j) has K·K·L parameters per annotator (the one-hot form, V = 1). Eq. 1 is an inner
product, and its rows are normalised to distributions according to a footnote. Eqs. 4, 7 and 9 divide by Σ_k Q[k, y],
which is the sum of a *column*. We consider this division a misprint and omit it; it would cancel in the E step, but
change the M step.

    E step   q_i(k) ∝ h_k(x_i) Π_j Q_ij[k, y_ij]                            (Eq. 4; in the first, q is the votes, Eq. 8)
    M step   raises Σ_i Σ_k q_i(k) [log h_k(x_i) + Σ_j log Q_ij[k, y_ij]] − penalty                              (Eq. 7)
    finetune raises Σ_i log Σ_k h_k(x_i) Π_j Q_ij[k, y_ij] − penalty                       (Eq. 2, summed over classes)
         or  raises Σ_ij log Σ_k h_k(x_i) Q_ij[k, y_ij] − penalty                          (Eq. 9, one label at a time)
    penalty  (γ / annotations per item) Σ_ij 4/K² Σ_kl (log Q_ij[k, l])²
             + α/2 (Σ_j |V u_j|² + n0 |b − b0|²) + δ/2 Σ_i |D_i|²

For a probabilistic annotation, log Q is averaged under its distribution. log Q is multiplied by the annotation's
weight. q is one-hot for a gold class. The first term of the penalty is that of the authors' program, which has two
classes and γ = 0.25; 4/K² scales it for more classes. It shrinks every row of Q towards 1/K, equally for annotators
with many and with few labels. The other terms are those of `mmce`, where u_j is the residual of annotator j in C_j = V
u_j + b. An annotator with few labels is shrunk towards the crowd (b), the crowd towards n0 unknown annotators (b0), and
an item with few labels towards no difficulty. α = 1 and n0 = 5 are the values of `mmce`. γ and δ = 10 / √(labels per
item) maximise the accuracy on bluebirds, wordsim, rte, both medical sets and labelme. With δ = 1, the items of rte are
memorised, and the accuracy with two labels per item is 65 % instead of 80 %.

With features, h of a fitted item is estimated from the *other* items (`leave_one_out`, `lia_leave_one_out.py`) in
the E step, in the marginal likelihood and in the posterior, because the network's h would repeat the item's labels. The
network's h is trained on q and predicts new items. d may memorise items, because it describes errors and not the class.

With features r_j of annotators, the embedding e_j = u_j + W r_j is the sum of the residual u_j and the effect of the
features. β shrinks W if there are few annotators. α and β = 3 were chosen by the likelihood of the labels of held-out
annotators of `popquorn_offensiveness` and of two simulated groups. The penalties are on the effects of u_j and W in
C = V e + b, because V could undo a penalty on the scale of u and W:

    penalty  … + β/2 |V W|²                     (divided among the items, as the penalty on u_j among j's annotations)

For an unknown annotator, the embedding is the mean residual plus W r_j.

The last epochs, whose share is `finetune_share`, raise the marginal likelihood; with `rounds=0`, all epochs do. The
other epochs are divided equally among the rounds (an E step, then M steps from the last parameters). The authors'
program differs from their equations, and corresponds to `penalty=0.25`, `residual_penalty=0`, `difficulty_penalty=0`,
`entropy=0.01`, `truth_counts="annotations"`, `truth_in_posterior=False` and `leave_one_out=False`.

| symbol | name | shape |
|---|---|---|
| q | `LIAHead.q` | (I, K) |
| log h | log_h | (B, K) |
| log Q | log_q | (n, K, K) [annotation, true, given] |
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.parameters import Parameters, param
from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.exceptions import NoTrainingStage
from dissensus.learning.losses import log_softmax
from dissensus.learning.objectives.base import (
    AnnotatorObjective,
    AnnotatorVectors,
    BatchIterator,
    Branch,
    as_tensor,
    objectives,
)
from dissensus.learning.objectives.lia_leave_one_out import LeaveOneOutClasses
from dissensus.learning.rows import RowEmbedding
from dissensus.models.methods.mmce import unknown_annotator_effect
from dissensus.table.annotations import Annotations

CLASS_PSEUDO_VOTES = 400.0  # pseudo-votes in the initial class shares, distributed equally over the classes
MIN_LEAVE_ONE_OUT_ITEMS = 10  # minimum number of training items for leave-one-out estimates of classes
INITIAL_SPREAD = 0.1  # initial standard deviation of an annotator's parameters
MIN_SHARE = 1e-30  # minimum share of votes, so that its logarithm is finite


class CompetenceLayer(AnnotatorVectors):
    """Layer that maps annotators to competence C (…, K, K, L); `labels` (A,) are the annotators' numbers of labels."""

    share: Tensor
    unknown: Tensor

    def __init__(
        self, labels: Tensor, n_classes: int, latent: int, size: int | None, features: FloatArray | None = None
    ):
        super().__init__()
        self.shape = (n_classes, n_classes, latent)
        first = as_tensor(unknown_annotator_effect(n_classes), torch.float32)[..., None].expand(self.shape).reshape(-1)
        width = math.prod(self.shape) if size is None else size
        self.table = RowEmbedding(torch.randn(len(labels), width) * INITIAL_SPREAD)
        self.register_buffer("share", torch.where(labels > 0, 1 / labels, 0), persistent=False)
        self.crowd = nn.Parameter(first.clone())  # b
        self.register_buffer("unknown", first.clone(), persistent=False)  # b0
        self.linear: nn.Linear | None = None  # V
        if size is not None:
            self.linear = nn.Linear(size, math.prod(self.shape), bias=False)
        self.add_features(features, width)

    def forward(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        """Return C (n, K, K, L) for codes (n,), and the penalty ½ |V u_j|² / (number of j's labels) (n,)."""
        own = self._project(self.table(annotator))
        pull = own.square().sum(dim=1) / 2 * self.share.index_select(0, annotator)
        if (feature_effect := self.feature_effect(annotator)) is not None:
            own = own + self._project(feature_effect)
        return (own + self.crowd).reshape(-1, *self.shape), pull

    def _project(self, rows: Tensor) -> Any:
        return rows if self.linear is None else self.linear(rows)

    def from_embeddings(self, rows: Tensor) -> Tensor:
        """Return C (n, K, K, L) for embeddings (n, E)."""
        return torch.as_tensor(self._project(rows) + self.crowd).reshape(-1, *self.shape)

    def embeddings(self) -> Tensor:
        """Return the embeddings e_j (A, E) of all annotators."""
        return (
            self.table.weight if self.feature_layer is None else self.table.weight + self.feature_layer(self.features)
        )

    def crowd_penalty(self) -> Tensor:
        """Return ½ |b − b0|²."""
        return (self.crowd - self.unknown).square().sum() / 2

    def feature_penalty(self) -> Tensor:
        """Return ½ |V W|²."""
        assert self.feature_layer is not None
        effect = self.feature_layer.weight if self.linear is None else self.linear.weight @ self.feature_layer.weight
        return effect.square().sum() / 2


class LIAHead(nn.Module):
    """Head with the layers h, d and c, and the posterior q of the last E step."""

    q: Tensor
    leave_one_out_log_h: Tensor
    prior: Tensor
    difficulty_penalty: Tensor
    per_item: Tensor

    def __init__(
        self,
        truth: nn.Module,
        difficulty: nn.Module | None,
        competence: CompetenceLayer,
        n_items: int,
        per_item: float,
        prior: Tensor,
        difficulty_penalty: float,
    ):
        super().__init__()
        self.truth, self.difficulty, self.competence = truth, difficulty, competence
        self.register_buffer("q", torch.zeros(n_items, len(prior)))
        self.register_buffer("prior", prior)  # π
        self.register_buffer("leave_one_out_log_h", torch.zeros(n_items, len(prior)))  # log h, leave-one-out
        self.register_buffer("per_item", torch.tensor(per_item))  # mean number of annotations per item
        self.register_buffer("difficulty_penalty", torch.tensor(float(difficulty_penalty)))  # δ
        self.is_finetuning = False  # True after the rounds of EM, while the marginal likelihood is raised

    @property
    def main(self) -> nn.Module:
        return self.truth

    def forward(self, z: Tensor) -> Any:
        return self.truth(z)

    def item_difficulty(self, z: Tensor) -> Tensor | None:
        """Return the difficulty D (B, K, K, L) of the items."""
        return None if self.difficulty is None else self.difficulty(z).reshape(-1, *self.competence.shape)

    def log_q(self, hard: Tensor | None, able: Tensor, row: Tensor) -> Tensor:
        """Return log Q (n, K, K), given D (n, K, K, L) of items and C of annotators."""
        return log_confusion(hard, able)

    def get_extra_state(self) -> Tensor:
        """Return `is_finetuning` for the state dict; it is not a buffer, because reading from a device is slow."""
        return torch.tensor(self.is_finetuning)

    def set_extra_state(self, state: Tensor) -> None:
        self.is_finetuning = bool(state)


def log_confusion(difficulty: Tensor | None, competence: Tensor) -> Tensor:
    """Return log Q (…, K, K), given D and C (…, K, K, L)."""
    both = competence if difficulty is None else difficulty + competence
    both = both if both.dtype == torch.float64 else both.float()
    return log_softmax(both[..., 0] if both.shape[-1] == 1 else torch.logsumexp(both, dim=-1))


class LIAKeywords(Parameters):
    """Keywords of LIA, shared by the objectives and the models."""

    rounds: int = param(10, "rounds of EM; 0: raise the marginal likelihood from the start", low=0)
    finetune: Literal["joint", "per-annotation"] | None = param(
        "joint",
        "marginal likelihood that is raised after the rounds: of an item's labels together, or of each label alone",
    )
    finetune_share: float = param(
        0.5, "share of the epochs that raise the marginal likelihood, after the rounds", low=0, high=1
    )
    penalty: float = param(0.01, "γ, the penalty on (log Q)²; the authors use 0.25", low=0)
    entropy: float = param(0.0, "weight of a bonus on the entropy of h(x_i)", low=0)
    latent: int = param(1, "L, the number of latent dimensions; values above 1 overfit small data", low=1)
    annotator_size: int | None = param(16, "size of an annotator's embedding; None: a matrix per annotator", low=1)
    difficulty: bool = param(
        True, "let labels depend on the item's difficulty; False: on the annotator and the class only"
    )
    truth_counts: Literal["items", "annotations"] = param(
        "items", "how often log h_k(x_i) is counted in the M step: once, or once for each of the item's annotations"
    )
    truth_in_posterior: bool = param(True, "use h in the E step")
    leave_one_out: bool = param(
        True, "estimate an item's class from the other items' labels; False: by h, which is trained on the item"
    )
    residual_penalty: float = param(1.0, "α, the penalty on the residuals of annotators", low=0)
    difficulty_penalty: float | None = param(
        None, "δ, the penalty on the difficulty of items; None: 10 / √(labels per item), at least 1", low=0
    )
    crowd_weight: float = param(
        5.0, "n0, number of unknown annotators whose prior is added to the crowd's competence", low=0
    )
    feature_penalty: float = param(3.0, "β, the penalty on the effect of annotators' features", low=0)

    def check_parameters(self) -> None:
        """Check the keywords, and that at least one of rounds and fine-tuning is set."""
        super().check_parameters()
        if self.rounds == 0 and self.finetune is None:
            raise NoTrainingStage()


@objectives.register(
    "lia", summary="classes, difficulty of items and competence of annotators, by EM", cite="Platanios et al. 2020"
)
class LIAObjective(LIAKeywords, AnnotatorObjective):
    """Objective that trains LIA end to end."""

    has_posterior = True
    uses_annotator_features = True
    monitor = "accuracy"  # h should predict classes, not noisy votes, as in a crowd layer.
    _leave_one_out: LeaveOneOutClasses | None = None  # estimates that replace h for the items of `fit`

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        weight = self.count_labels(table, gold, "lia")
        self.n_items_ = table.n_items
        self.per_item_ = float(weight[weight > 0].mean())
        self.n_train_items_ = int(np.count_nonzero(self.train_mask_))
        by_labels = max(10 / math.sqrt(self.per_item_), 1.0)
        self.difficulty_penalty_ = by_labels if self.difficulty_penalty is None else self.difficulty_penalty
        counts = table.soft_labels()[weight > 0].sum(axis=0) + CLASS_PSEUDO_VOTES / table.n_classes
        self.shares_ = counts / counts.sum()  # (K,) π
        return self

    def set_inputs(self, inputs: BatchColumns, train_items: IntArray, reuse: Self | None = None) -> None:
        """Prepare leave-one-out estimates of classes if the inputs are features, or take those of `reuse`."""
        x = inputs.columns.get("x")
        if not (self.leave_one_out and self.truth_in_posterior and isinstance(x, Tensor) and x.ndim == 2):
            return
        if train_items.size >= MIN_LEAVE_ONE_OUT_ITEMS:
            self._leave_one_out = reuse._leave_one_out if reuse is not None else LeaveOneOutClasses(x, train_items)

    def targets(self) -> BatchColumns:
        """Return the rows of the table, `item` (I,), vote shares `votes` (I, K), and `gold` (I,) if there is any."""
        votes = as_tensor(self._table.soft_labels(), torch.float32)
        return BatchColumns(**super().targets().columns, item=torch.arange(len(votes)), votes=votes)

    def head(self, branch: Branch, width: int) -> LIAHead:
        """Return the layers of classes, difficulty and annotators, initialised in this order.

        Initially, h is near the vote shares. Otherwise items that fit no class would be assigned to a class without
        votes.
        """
        K, L = self.n_classes_, self.latent
        truth, last = branch(), nn.Linear(width, K)
        with torch.no_grad():
            last.bias.copy_(as_tensor(np.log(self.shares_), torch.float32))
        truth = nn.Sequential(truth, last)
        hard = nn.Sequential(branch(), nn.Linear(width, K * K * L)) if self.difficulty else None
        labels = as_tensor(self.label_totals_)
        competence = CompetenceLayer(labels, K, L, self.annotator_size, self.annotator_features_)
        prior = as_tensor(self.shares_, torch.float32)
        return LIAHead(truth, hard, competence, self.n_items_, self.per_item_, prior, self.difficulty_penalty_)

    # Rounds -----------------------------------------------------------------------------------------------------------

    def stage(self, epoch: int, epochs: int) -> int:
        """Return the round of an epoch, counted from 0; the value `rounds` stands for fine-tuning."""
        if self.rounds == 0:
            return 0
        em = epochs - round(self.finetune_share * epochs) if self.finetune is not None else epochs
        return self.rounds if epoch >= em else epoch * self.rounds // em

    def needs_begin_epoch(self, epoch: int, epochs: int) -> bool:
        return epoch == 0 or self.stage(epoch, epochs) != self.stage(epoch - 1, epochs)

    def begin_epoch(self, head: LIAHead, epoch: int, epochs: int, iterate_batches: BatchIterator) -> None:
        head.is_finetuning = self.stage(epoch, epochs) == self.rounds
        if head.is_finetuning and self._leave_one_out is None:
            return
        for z, targets in iterate_batches():
            if epoch == 0:
                q = self._mask_gold(
                    targets["votes"].clamp(min=MIN_SHARE).log(), targets
                )  # Eq. 8, Platanios et al. 2020
            elif self._leave_one_out is None:
                q = self.log_posterior(head, z, targets)
            else:
                _, votes, _, _ = self._loss_terms(head, z, targets)
                q = self._mask_gold(self._sum_by_item(votes, targets), targets)
            head.q[targets["item"]] = q.softmax(dim=1)
        if self._leave_one_out is not None:
            head.leave_one_out_log_h.copy_(self._leave_one_out.to(head.q.device).log_classes(head.q, head.prior))
            if epoch > 0:
                head.q.copy_((head.q.clamp(min=MIN_SHARE).log() + head.leave_one_out_log_h).softmax(dim=1))

    def log_posterior(self, head: LIAHead, z: Tensor, targets: Batch) -> Tensor:
        """Return unnormalised log q (B, K) of Eq. 4, which is log h for an item without labels."""
        logits, votes, _, _ = self._loss_terms(head, z, targets)
        if self._leave_one_out is not None:
            train_mask = self._leave_one_out.to(logits.device).train_mask[
                targets["item"]
            ]  # other items are treated as new items
            logits = torch.where(train_mask[:, None], head.leave_one_out_log_h[targets["item"]], logits)
        if not self.truth_in_posterior:
            weight = _weight(targets, logits.new_ones(len(votes)))[:, 0]
            voted = logits.new_zeros(len(logits)).index_add(0, targets["row"], weight)
            logits = torch.where(voted[:, None] > 0, 0, logits)
        return self._mask_gold(logits + self._sum_by_item(votes, targets), targets)

    # Losses -----------------------------------------------------------------------------------------------------------

    def loss(self, head: LIAHead, z: Tensor, targets: Batch) -> Tensor:
        logits, votes, log_q, pulls = self._loss_terms(head, z, targets)
        log_h = log_softmax(logits)
        summed = self._sum_by_item(votes, targets)  # (B, K)
        if not head.is_finetuning:
            log_p = log_h
            if self.truth_counts == "annotations":
                log_p = log_h * self._sum_by_item(torch.ones_like(votes) * _weight(targets, votes), targets)
            loss = -(self._target(head, targets) * (log_p + summed)).sum()  # Eq. 7, Platanios et al. 2020, no division
        elif self._leave_one_out is None:
            loss = self._marginal_loss(log_h, votes, summed, targets)
        else:  # h is trained on q, which for an item does not use h of that item
            loss = self._marginal_loss(head.leave_one_out_log_h[targets["item"]], votes, summed, targets)
            loss = loss - (self._target(head, targets) * log_h).sum()
        loss = loss + pulls
        if self.penalty > 0:
            each = _weight(targets, votes)[..., None] * log_q.square()
            loss = loss + self.penalty / head.per_item * (4 / self.n_classes_**2) * each.sum()
        if self.entropy > 0:
            loss = loss + self.entropy * (log_h.exp() * log_h).sum()
        if self.crowd_weight > 0:
            shared = self.residual_penalty * self.crowd_weight * head.competence.crowd_penalty()
            loss = loss + shared * len(z) / self.n_train_items_
        if self.annotator_features_ is not None:
            loss = loss + self.feature_penalty * len(z) / self.n_train_items_ * head.competence.feature_penalty()
        return loss

    def _target(self, head: LIAHead, targets: Batch) -> Tensor:
        """Return q (B, K) of the last E step."""
        return head.q[targets["item"]]

    def _marginal_loss(self, log_h: Tensor, votes: Tensor, summed: Tensor, targets: Batch) -> Tensor:
        """Return minus the log likelihood of the labels, summed over the classes, or for the gold class if known."""
        if self.finetune == "joint":
            return -torch.logsumexp(self._mask_gold(log_h + summed, targets), dim=1).sum()
        weight = _weight(targets, votes)  # Eq. 9, Platanios et al. 2020, without the division
        plain = torch.where(weight > 0, votes / weight.clamp(min=torch.finfo(votes.dtype).tiny), 0)
        each = weight[:, 0] * torch.logsumexp(log_h.index_select(0, targets["row"]) + plain, dim=1)
        if "gold" not in targets:
            return -each.sum()
        known = targets["gold"] >= 0
        joint = (log_h + summed).gather(1, targets["gold"].clamp(min=0)[:, None])[:, 0]
        return -torch.where(known[targets["row"]], 0, each).sum() - torch.where(known, joint, 0).sum()

    def _loss_terms(self, head: LIAHead, z: Tensor, targets: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return logits of h (B, K), v · log Q[·, y] (n, K) of the annotations, log Q (n, K, K) and the penalties."""
        log_q, pulls = self._log_q(head, z, targets)
        if "proba" in targets:
            votes = (log_q * targets["proba"][:, None, :]).sum(dim=2)
        else:
            at = targets["label"][:, None, None].expand(-1, self.n_classes_, 1)
            votes = log_q.gather(2, at)[..., 0]
        return head(z), votes * _weight(targets, votes), log_q, pulls

    def _log_q(self, head: LIAHead, z: Tensor, targets: Batch) -> tuple[Tensor, Tensor]:
        """Return log Q of the annotations (n, K, K), and the penalties on annotators and items."""
        row, hard = targets["row"], head.item_difficulty(z)
        able, pull = head.competence(targets["annotator"])
        log_q = head.log_q(None if hard is None else hard.index_select(0, row), able, row)
        pulls = self.residual_penalty * (_weight(targets, pull)[:, 0] * pull).sum()  # α/2 Σ_j |V u_j|²
        return log_q, pulls if hard is None else pulls + head.difficulty_penalty / 2 * hard.square().sum()

    def _sum_by_item(self, values: Tensor, targets: Batch) -> Tensor:
        """Return the sums (B, K) of values (n, K) of annotations by item."""
        return values.new_zeros(len(targets["item"]), self.n_classes_).index_add(0, targets["row"], values)

    def _mask_gold(self, logs: Tensor, targets: Batch) -> Tensor:
        """Set log probabilities (B, K) to −∞ for all classes except the gold class."""
        if "gold" not in targets:
            return logs
        gold = targets["gold"][:, None]
        other = (gold >= 0) & (torch.arange(self.n_classes_, device=logs.device) != gold)
        return torch.where(other, -math.inf, logs)

    # Annotators -------------------------------------------------------------------------------------------------------

    def all_pair_confusions(
        self, head: LIAHead, z: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return Q (B, J, K, K) of all pairs; code −1 is the average annotator, or has `features`."""
        hard, able = head.item_difficulty(z), self._annotator_competence(head, annotators, features)
        return log_confusion(None if hard is None else hard[:, None], able[None]).exp().expand(len(z), -1, -1, -1)

    def pair_confusions(
        self, head: LIAHead, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return Q (n, K, K) of n pairs; `row` (n,) is the item's row in z, and code −1 is the average annotator."""
        hard, able = head.item_difficulty(z), self._annotator_competence(head, annotators, features)
        return log_confusion(None if hard is None else hard.index_select(0, row), able).exp()

    def pair_label_proba(
        self, head: LIAHead, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        h = log_softmax(head(z)).exp().index_select(0, row)
        return (h[:, :, None] * self.pair_confusions(head, z, row, annotators, features)).sum(dim=1)

    def _annotator_competence(self, head: LIAHead, annotators: Tensor, features: Tensor | None) -> Tensor:
        """Return C (n, K, K, L) for codes (n,) of annotators."""
        return head.competence.from_embeddings(
            head.competence.rows_or_average(annotators, self.label_totals(annotators.device), features)
        )


def _weight(targets: Batch, like: Tensor) -> Tensor:
    """Return the weight of the annotations (n, 1)."""
    weight = targets.get("weight")
    return like.new_ones(len(like), 1) if weight is None else weight.to(like.dtype)[:, None]
