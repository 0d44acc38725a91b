"""Bayesian sequence combination: tags of tokens, whose true tags form a chain of legal tags.

Use it for spans tagged in texts, when results must be legal sequences with a probability for each span.

z_t is the true tag of token t, and y_jt the tag that annotator j gives it. The true tags form a Markov chain, and an
annotator's tag depends on the tag that it gave the previous token, because an annotator who misses the beginning of a
span also misses its end:

    z_1 ~ Cat(π)    z_t | z_(t−1) = b ~ Cat(T[b, :])    y_jt | z_t = c, y_j(t−1) = p ~ Cat(Θ_j[c, p, :])
    π, T[b, :] ~ Dirichlet(1) over legal tags, 0 elsewhere        Θ_j[c, p, :] ~ Dirichlet(α_c)

Variational Bayes learns distributions of π, T and Θ. q(z) is the posterior of whole sequences, and n_j, n_b are
expected counts under it:

    E step  q(z) ∝ Π_t exp(E log T[z_(t−1), z_t]) Π_j exp(E log Θ_j[z_t, y_j(t−1), y_jt])   (forward-backward)
    M step  Θ_j[c, p, :] ~ Dirichlet(α_c + n_j[c, p, :])      T[b, :] ~ Dirichlet(1 + n_b)      π likewise
    bound   log Σ_z (the product above) − KL(Θ) − KL(T) − KL(π)

α_c are the pseudo-counts of an annotator of unknown quality (`matrices.default_pseudo_counts`). EM starts from the
posterior of `dawid-skene` on single tokens. Only combinations of annotator, previous tag and tag that occur are stored.

- `tags_` (I,): most probable tags, as codes into `classes_`
- `span_probability_` (I,): probability of all tags of a span, and of no tag that would continue it
- `cell_counts_` (U, S): n_j per cell and state; `cell_` (U,) numbers the cells (annotator, previous tag, tag)
- `transition_counts_` (S, S) [before, after] and `start_counts_` (S,): counts n of T and π

The tag O is four states: away from spans, after one, before one, and between two. Annotators err at the ends of spans,
and with one state these errors were added to spans (F1 on ner_mturk 75.4 instead of 75.7).

`predict()` returns the most probable legal sequence (Viterbi) under the means of Θ. `posterior_` and
`span_probability_` are tempered (`models.tempering`): with the design effect d, the likelihood of a token's labels is
raised to 1/d and transitions to 1/√d. With 1/d for transitions, tokens outside spans were underconfident (ner_mturk:
confidence 80 %, accuracy 95 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from dissensus.common.parameters import param
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names, OnStep
from dissensus.compute.rows import expand_rows
from dissensus.models.answers import SpanModel
from dissensus.models.base import methods
from dissensus.models.confusion import draw_vote_shares
from dissensus.models.dirichlet import expected_log, kl_divergence
from dissensus.models.em import EMAggregator
from dissensus.models.fitting import check_label_type
from dissensus.models.matrices import default_pseudo_counts
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.params import COUNT, Params, em_parameter, normalise_last_axis
from dissensus.models.tempering import design_effect, labels_per_item
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.spans import OUTSIDE_TAG, Sequences, parse_tag_scheme

TRANSITION_POWER = 0.5  # exponent of 1/d for transitions; for likelihoods of labels it is 1
ILLEGAL_PSEUDO_COUNT = 1e-10  # pseudo-count of illegal transitions, whose probabilities are then set to 0


@dataclass(frozen=True)
class PathCounts(Params):
    """Expected counts under the posterior of tag sequences."""

    cells: FloatArray = em_parameter(COUNT)  # (U, K) [cell, true]
    transitions: FloatArray = em_parameter(COUNT)  # (K, K) [before, after]
    starts: FloatArray = em_parameter(COUNT)  # (K,)


class TagStates(NamedTuple):
    """States of the chain: the tags, and three more states for O (after a span, before a span, between two spans)."""

    means: IntArray  # (S,) tag of each state
    starts: BoolArray  # (S,) whether a sequence may begin with the state
    follows: BoolArray  # (S, S) [before, after] whether the transition is legal
    ends: FloatArray  # (S,) 1 if a sequence may end with the state, else 0

    @classmethod
    def from_classes(cls, classes: Names) -> TagStates:
        """Return the states for the tags of a table; the first state of O means that no span is next to the token."""
        scheme, outside = parse_tag_scheme(classes), [k for k, name in enumerate(classes) if name == OUTSIDE_TAG]
        means = np.arange(len(classes))
        if not outside or (scheme.inside < 0).all():
            return cls(means, scheme.starts, scheme.follows, np.ones(means.size))
        means = np.append(means, outside * 3)
        is_span, is_outside = (scheme.inside >= 0)[means], means == outside[0]
        # The states of O differ in whether a span comes directly before or after.
        after, before = (np.zeros(means.size, bool), np.zeros(means.size, bool))
        after[[-3, -1]] = before[[-2, -1]] = True
        follows = scheme.follows[np.ix_(means, means)]
        follows &= ~is_outside[None, :] | (is_span[:, None] == after[None, :])
        follows &= ~is_outside[:, None] | (is_span[None, :] == before[:, None])
        return cls(means, scheme.starts[means] & ~after, follows, np.where(before, 0.0, 1.0))

    def states_from_tags(self, q: FloatArray, where: Sequences) -> FloatArray:
        """Return the probabilities of states (I, S), given those of tags (I, K); neighbours decide the state of O."""
        if self.means.size == q.shape[1]:
            return q
        p = np.clip(1 - q[:, self.means[-1]], 0, 1)  # P(in any span); rounding errors may leave [0, 1]
        last, following = np.zeros(len(q)), np.zeros(len(q))
        last[where.order[1:]], following[where.order[:-1]] = p[where.order[:-1]], p[where.order[1:]]
        last[where.order[where.ptr[:-1]]] = following[where.order[where.ptr[1:] - 1]] = 0
        states = q[:, self.means]
        states[:, self.means[-1]] *= (1 - last) * (1 - following)
        states[:, -3:] *= np.stack([last * (1 - following), (1 - last) * following, last * following], axis=1)
        return states


@dataclass(frozen=True, eq=False)
class TaggedTable:
    """A table of spans in the form that kernels process."""

    sequences: Sequences
    item_ptr: IntArray
    weight: FloatArray  # (N,) weights of rows, or empty if all weights are 1
    cell: IntArray  # (N,) cell of each row
    keys: IntArray  # (U,) code of each cell: (annotator · (K + 1) + previous tag, or K if none) · K + tag
    gold: IntArray  # (I,) gold codes, or empty without gold
    states: TagStates
    inside: IntArray  # (K,) see `table.spans.Scheme`

    def forward_backward(
        self, logs: FloatArray, first: FloatArray, step: FloatArray, *, d: FloatArray | None = None,
        shift: FloatArray | None = None, tags: IntArray | None = None,
    ) -> tuple[float, FloatArray, PathCounts, FloatArray]:  # fmt: skip
        """Return log evidence, posterior (I, K), counts and span probabilities (I,), all tempered by d (I,)."""
        from dissensus.compute.kernels.sequence import forward_backward

        n_items, K, S = self.item_ptr.size - 1, self.inside.size, first.size
        distinct, power = (np.ones(1), np.zeros(n_items, np.int64)) if d is None else np.unique(d, return_inverse=True)
        exponent = 1 / distinct
        with np.errstate(divide="ignore"):
            soft = exponent**TRANSITION_POWER
            firsts = np.where(first > 0, first[None] ** soft[:, None], 0.0)
            steps = np.where(step > 0, step[None] ** soft[:, None, None], 0.0)
        counts = PathCounts(np.zeros((self.keys.size, S)), np.zeros((S, S)), np.zeros(S))
        posterior, probability = np.empty((n_items, K)), np.full(n_items, np.nan)
        evidence = forward_backward(
            self.sequences.order, self.sequences.ptr, self.item_ptr, self.cell, self.weight, logs, self.gold,
            self.states.means, power, exponent, firsts, steps, self.states.ends,
            np.zeros(K) if shift is None else shift, counts.cells, counts.starts, counts.transitions, posterior,
            self.inside, np.empty(0, np.int64) if tags is None else tags, probability,
        )  # fmt: skip
        return evidence, posterior, counts, probability

    def best_path(self, logs: FloatArray, first: FloatArray, step: FloatArray) -> IntArray:
        """Return the most probable legal sequence of tags (I,)."""
        from dissensus.compute.kernels.sequence import viterbi

        tags = np.zeros(self.item_ptr.size - 1, np.int64)
        with np.errstate(divide="ignore"):
            logarithms = np.log(first), np.log(step), np.log(self.states.ends)
        order, ptr, means = self.sequences.order, self.sequences.ptr, self.states.means
        viterbi(order, ptr, self.item_ptr, self.cell, self.weight, logs, self.gold, means, *logarithms, tags)
        return tags


@methods.register(
    "bayesian-sequence", summary="tags of tokens: labels depend on the previous label, true tags form a legal chain",
    cite="Simpson & Gurevych 2019",
)  # fmt: skip
class BayesianSequence(SpanModel, EMAggregator[PathCounts]):
    """Aggregate tags of tokens (`dissensus.table.spans`) by Bayesian sequence combination."""

    previous: bool = param(True, "whether an annotator's label depends on its label for the previous token")

    takes_earlier = False

    cell_: Annotated[IntArray, "U cell"]
    cell_counts_: Annotated[FloatArray, "U S count"]
    transition_counts_: Annotated[FloatArray, "S S count"]
    start_counts_: Annotated[FloatArray, "S count"]
    confusion_: Annotated[FloatArray, "A K K simplex"]
    population_confusion_: Annotated[FloatArray, "K K simplex"]

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        tagged = self._build_table(table, np.arange(table.n_annotators), gold)
        em_step = partial(self.em_step, tagged)
        params = self.run_restarts(em_step, partial(self._initial_counts, tagged, table), on_step)
        # The last entry is the objective of the returned parameters.
        self.trace_ = np.append(self.trace_, em_step(params)[0])
        self.cell_, self.cell_counts_ = tagged.keys, params.cells
        self.transition_counts_, self.start_counts_ = params.transitions, params.starts
        A, K = table.n_annotators, table.n_classes
        given = np.zeros((A * K, tagged.states.means.size))  # (annotator and label, state)
        np.add.at(given, self.cell_ // (K * (K + 1)) * K + self.cell_ % K, self.cell_counts_)
        counts = np.swapaxes((given @ np.eye(K)[tagged.states.means]).reshape(A, K, K), 1, 2)
        alpha = default_pseudo_counts(K)
        self.confusion_ = normalise_last_axis(counts + alpha)
        self.population_confusion_ = normalise_last_axis(counts.sum(axis=0) + alpha)
        self.item_total_ = labels_per_item(tagged.item_ptr, tagged.weight if tagged.weight.size else None)
        self.posterior_, self.tags_, self.span_probability_ = self._decode(tagged)
        self.prior_ = normalise_last_axis(self.posterior_.sum(axis=0) + 1)
        self._set_reliability(*table.count_correct_labels(self.posterior_))

    def em_step(self, tagged: TaggedTable, params: PathCounts) -> tuple[float, PathCounts]:
        """Return the bound for these counts, and the expected counts under the posterior that follows from them."""
        logs, loss = expected_log_likelihood(tagged.keys, params.cells, self._label_pseudo_counts)
        first, step, divergences = self._expected_transitions(params)
        evidence, _, counts, _ = tagged.forward_backward(logs, first, step)
        return evidence - loss - divergences, counts

    @property
    def _tag_states(self) -> TagStates:
        return TagStates.from_classes(self.classes_)

    @property
    def _label_pseudo_counts(self) -> FloatArray:
        """The pseudo-counts of labels, (S, K) [state, given]."""
        return default_pseudo_counts(self.classes_.size)[self._tag_states.means]

    def _build_table(self, table: Annotations, annotators: IntArray, gold: IntArray | None) -> TaggedTable:
        """Return the table with cells for the model's annotators; all unseen annotators (code −1) share their cells."""
        rows, sequences, K = expand_rows(table), table.sequences, table.n_classes
        before = np.full(len(rows.label), K, np.int64)
        if self.previous:
            position = np.empty(table.n_items, np.int64)
            position[sequences.order] = np.arange(table.n_items)
            key = position[table.item] * table.n_annotators + table.annotator
            order = np.argsort(key, kind="stable")
            match = np.minimum(np.searchsorted(key[order], key - table.n_annotators), order.size - 1)
            begins = np.zeros(table.n_items, bool)
            begins[sequences.order[sequences.ptr[:-1]]] = True
            has_previous = (key[order[match]] == key - table.n_annotators) & ~begins[table.item]
            before[has_previous] = rows.label[order[match]][has_previous]
        annotator = np.where(annotators < 0, self.annotators_.size, annotators)[table.annotator]
        keys, cell = np.unique((annotator * (K + 1) + before) * K + rows.label, return_inverse=True)
        return TaggedTable(
            sequences, rows.item_ptr, np.empty(0) if rows.weight is None else rows.weight, cell.astype(np.int64), keys,
            np.empty(0, np.int32) if gold is None else gold, self._tag_states, parse_tag_scheme(self.classes_).inside,
        )  # fmt: skip

    def _initial_counts(self, tagged: TaggedTable, table: Annotations, rng: np.random.Generator | None) -> PathCounts:
        """Return expected counts under Dawid-Skene's posterior of tokens or, with `rng`, under random vote shares."""
        gold = tagged.gold if tagged.gold.size else None
        if rng is None:
            tokens = Annotations(
                table.annotator, table.label, table.item_ptr, table.items, table.annotators, table.classes, table.weight
            )
            q = DawidSkene(dependence=None, threads=self.threads).fit(tokens, gold=gold).posterior_
        else:
            q = draw_vote_shares(table.votes(), gold, rng)
        q = tagged.states.states_from_tags(q, tagged.sequences)
        cells = np.zeros((tagged.keys.size, q.shape[1]))
        np.add.at(cells, tagged.cell, q[table.item] * (tagged.weight[:, None] if tagged.weight.size else 1))
        order, first = tagged.sequences.order, tagged.sequences.ptr[:-1]
        after = np.delete(np.arange(order.size), first)
        transitions = q[order[after - 1]].T @ q[order[after]]
        starts = q[order[first]].sum(axis=0)
        return PathCounts(
            cells, np.where(tagged.states.follows, transitions, 0.0), np.where(tagged.states.starts, starts, 0.0)
        )

    def _expected_transitions(self, params: PathCounts) -> tuple[FloatArray, FloatArray, float]:
        """Return exp(E log π) (S,), exp(E log T) (S, S), and their divergence from the prior."""
        loss, means = 0.0, []
        states = self._tag_states
        for counts, legal in ((params.starts, states.starts), (params.transitions, states.follows)):
            prior = np.where(legal, 1.0, ILLEGAL_PSEUDO_COUNT)
            logs = expected_log(prior + counts)
            loss += kl_divergence((prior + counts)[None], prior, logs[None])
            means.append(np.where(legal, np.exp(logs), 0.0))
        return means[0], means[1], loss

    def _mean_transitions(self) -> tuple[FloatArray, FloatArray]:
        """Return the posterior means of π (S,) and T (S, S)."""
        states = self._tag_states
        return (
            normalise_last_axis(np.where(states.starts, self.start_counts_ + 1, 0.0)),
            normalise_last_axis(np.where(states.follows, self.transition_counts_ + 1, 0.0)),
        )

    def _decode(self, tagged: TaggedTable) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return the posterior (I, K), the most probable tags (I,) and the probabilities of their spans (I,)."""
        logs, (first, step) = self._mean_log_likelihood(tagged.keys), self._mean_transitions()
        tags = tagged.best_path(logs, first, step)
        n = labels_per_item(tagged.item_ptr, tagged.weight if tagged.weight.size else None)
        _, posterior, _, probability = tagged.forward_backward(
            logs, first, step, d=design_effect(n, self.dependence_), shift=self.shift_, tags=tags
        )
        return posterior, tags, probability

    def _mean_log_likelihood(self, keys: IntArray) -> FloatArray:
        """Return log E Θ of cells (n keys, S); code A stands for unseen annotators, who behave like the whole crowd."""
        K = self.classes_.size
        alpha, everyone = self._label_pseudo_counts, self.annotators_.size * (K + 1) * K
        pooled, _, counts = sum_by_key(self.cell_ % ((K + 1) * K), self.cell_counts_)
        cells, counts = np.concatenate([self.cell_, everyone + pooled]), np.concatenate([self.cell_counts_, counts])
        index = np.minimum(np.searchsorted(cells, keys), cells.size - 1)
        cell_counts = np.where((cells[index] == keys)[:, None], counts[index], 0.0)
        groups, _, totals = sum_by_key(cells // K, counts)
        index = np.minimum(np.searchsorted(groups, keys // K), groups.size - 1)
        total = np.where((groups[index] == keys // K)[:, None], totals[index], 0.0)
        return np.asarray(np.log((cell_counts + alpha[:, keys % K].T) / (total + alpha.sum(axis=1))))

    def predict_tags(self, table: Annotations) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return posterior, tags and span probabilities of a new table; unseen annotators act like the whole crowd."""
        check_label_type(self, table)
        table = table.with_classes(self.classes_)
        known = naming.match_names(table.annotators, self.annotators_, "annotators")
        return self._decode(self._build_table(table, known, None))


def expected_log_likelihood(keys: IntArray, counts: FloatArray, alpha: FloatArray) -> tuple[FloatArray, float]:
    """Return E log Θ of cells (U, S) under Dirichlet(α_c + n), and the sum of KL divergences from Dirichlet(α_c)."""
    K = alpha.shape[1]
    _, group, totals = sum_by_key(keys // K, counts)
    prior, prior_total = alpha[:, keys % K].T, alpha.sum(axis=1)
    logs = psi(prior + counts) - psi(prior_total + totals)[group]
    gained = (gammaln(prior + counts) - gammaln(prior)).sum()
    gained -= (gammaln(prior_total + totals) - gammaln(prior_total)).sum()
    return np.asarray(logs), float((counts * logs).sum() - gained)


def sum_by_key(keys: IntArray, counts: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the distinct keys, the index of each key among them, and the sums of counts (n keys, S) by key."""
    distinct, index = np.unique(keys, return_inverse=True)
    sums = np.zeros((distinct.size, counts.shape[1]))
    np.add.at(sums, index, counts)
    return distinct, index, sums
