"""Simulated annotations with known truth.

Item i has a true class t_i, a similar class (its "decoy") and a difficulty d_i in [0, 0.5]. An annotator perceives the
item as its decoy with probability d_i, and as t_i otherwise. Annotator a gives label l to an item perceived as class p
with probability `answers[a, p, l]`. A member of a clique copies: with probability `copying`, it gives its leader's
answer, even if that answer is not in the table. Therefore annotators err more often on difficult items, except when
they copy.

Items are drawn in chunks of `ITEMS_PER_CHUNK`, each with its own child of the seed. The shared answers of a clique come
from a hash of the seed, the item and the leader. Therefore a simulation that is drawn in parts is identical to one that
is drawn at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from dissensus.common.exceptions import OutOfRange
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.messages import ParameterName
from dissensus.table import exceptions as errors
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.simulate_kinds import apportion_kinds
from dissensus.table.simulate_kinds import simulate_kind as simulate_kind
from dissensus.table.simulate_kinds import simulate_sets as simulate_sets
from dissensus.table.simulate_kinds import simulate_spans as simulate_spans
from dissensus.table.simulate_kinds import simulate_texts as simulate_texts

ITEMS_PER_CHUNK = 2**13
"""Items per chunk. Each chunk has its own seed, and its arrays fit into the processor's cache."""

DEFAULT_KIND_SHARES: dict[str, float] = {
    "expert": 0.15,
    "ordinary": 0.55,
    "specialist": 0.15,
    "uniform-spammer": 0.04,
    "constant-spammer": 0.03,
    "adversary": 0.02,
    "clique": 0.06,
}
"""Kind of annotator → its share in a default crowd."""

CLIQUE_SIZE = 5
MAX_DIFFICULTY = 0.5  # Above 0.5, an item would be perceived as its decoy more often than as its true class.

_CROWD_SEED_KEY, _ITEMS_SEED_KEY, _LABELS_SEED_KEY, _SHARED_SEED_KEY = range(4)  # keys of the children of the seed


@dataclass(frozen=True, eq=False)
class Crowd:
    """The annotators of a simulation, with their error models, activity and copying."""

    answers: FloatArray  # (A, K, K) [annotator, perceived class, label]
    kind: Names  # (A,) one of `DEFAULT_KIND_SHARES`, or any other name
    activity: FloatArray  # (A,) relative number of labels
    leader: IntArray  # (A,) code of the copied annotator; its own code for a leader, −1 outside of cliques
    copying: FloatArray  # (A,) share of copied answers; 1 for a leader

    def confusion(self, taken_for: FloatArray) -> FloatArray:
        """Return the confusion matrices (A, K, K) [annotator, true class, label].

        `taken_for[t, p]` is the rate at which items of class t are perceived as class p.
        """
        copying = np.where(self.leader >= 0, self.copying, 0.0)[:, None, None]
        given = (1 - copying) * self.answers + copying * self.answers[self.leader]  # A leader of −1 is multiplied by 0.
        return np.asarray(taken_for @ given)


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated table of annotations with its true parameters."""

    annotations: Annotations
    truth: IntArray  # (I,) class codes
    difficulty: FloatArray  # (I,) probability that an annotator perceives the item as its decoy
    decoy: IntArray  # (I,) class that the item may be mistaken for
    confusion: FloatArray  # (A, K, K) [annotator, true class, label], over all items
    crowd: Crowd

    @property
    def kind(self) -> Names:
        """Return the kind of each annotator (A,)."""
        return self.crowd.kind


def simulate(
    n_items: int,
    n_annotators: int,
    n_classes: int,
    *,
    redundancy: int | tuple[int, int] = 5,
    kinds: Mapping[str, float] | None = None,
    hardness: float = 0.1,
    skew: float = 1.0,
    prior: FloatArray | None = None,
    part: tuple[int, int] | None = None,
    seed: int = 0,
) -> Simulation:
    """Draw a crowd, items and annotations; the names of items, annotators and classes are their codes.

    Parameters
    ----------
    redundancy : int or (low, high)
        Number of annotations per item, each by a different annotator; a pair is the range of a uniform draw.
    kinds : kind → share, optional
        See `make_crowd`.
    hardness : float
        Mean difficulty, from 0 (items are never mistaken for their decoy) to 0.5.
    skew : float
        Standard deviation of log activity; 0 means that all annotators give equally many labels.
    prior : (K,), optional
        Share of each class; equal by default.
    part : (first, end), optional
        Draw only the items from `first` to `end` (exclusive). The items are the same as in the whole simulation, so a
        simulation larger than memory can be written part by part. Parts should start at multiples of
        `ITEMS_PER_CHUNK`.
    seed : int

    Returns
    -------
    Simulation

    >>> sim = simulate(1000, 20, 4, seed=1)
    >>> sim.annotations
    Annotations: 5,000 annotations of 1,000 items by 20 annotators, 4 classes (0, 1, 2, 3), 5.0 per item
    >>> [str(kind) for kind in sim.kind[:3]], sim.confusion.shape
    (['ordinary', 'expert', 'ordinary'], (20, 4, 4))
    """
    first, end = (0, n_items) if part is None else part
    if not 0 <= first <= end <= n_items:
        raise OutOfRange(name=ParameterName("part"), allowed=f"be within 0 … {n_items:,}", value=part)
    check_argument("hardness", hardness, float, low=0, high=MAX_DIFFICULTY)
    crowd = make_crowd(n_annotators, n_classes, kinds=kinds, skew=skew, seed=seed)
    shares = np.full(n_classes, 1 / n_classes) if prior is None else np.asarray(prior, np.float64)
    if shares.shape != (n_classes,) or (shares < 0).any() or not np.isclose(shares.sum(), 1):
        expected = f"{n_classes} shares that sum to one"
        raise OutOfRange(name=ParameterName("prior"), allowed=f"be {expected}", value=shares.tolist())

    aligned = first // ITEMS_PER_CHUNK * ITEMS_PER_CHUNK  # Chunks are drawn completely and then cut.
    blocks = range(aligned // ITEMS_PER_CHUNK, max(-(-end // ITEMS_PER_CHUNK), aligned // ITEMS_PER_CHUNK + 1))
    drawn = zip(*(_draw_items(block, shares, hardness, seed) for block in blocks), strict=True)
    truth, difficulty, decoy = (np.concatenate(parts)[: end - aligned] for parts in drawn)
    names = (np.arange(aligned, end), np.arange(n_annotators), np.arange(n_classes))
    table = _draw_annotations(crowd, truth, difficulty, decoy, redundancy, seed, names, aligned)
    if first > aligned:
        table = table.select(items=table.items >= first)
    taken_for = np.full((n_classes, n_classes), hardness / (n_classes - 1))
    np.fill_diagonal(taken_for, 1 - hardness)
    here = slice(first - aligned, None)
    return Simulation(table, truth[here], difficulty[here], decoy[here], crowd.confusion(taken_for), crowd)


def annotate(
    crowd: Crowd,
    truth: IntArray,
    *,
    difficulty: FloatArray | None = None,
    decoy: IntArray | None = None,
    redundancy: int | tuple[int, int] = 5,
    items: Names | None = None,
    annotators: Names | None = None,
    classes: Names | None = None,
    seed: int = 0,
) -> Simulation:
    """Simulate the labels that a crowd gives to items with known classes.

    Parameters
    ----------
    truth : (I,)
        Class codes.
    difficulty, decoy : (I,), optional
        Probability that an item is perceived as another class, and this class. Pass both or neither; by default, items
        are perceived correctly.
    items, annotators, classes : names, optional
        Items and annotators must be sorted. By default, the names are codes.

    Returns
    -------
    Simulation

    >>> annotate(make_crowd(6, 3, seed=1), np.array([0, 1, 2, 2]), redundancy=3, seed=1).annotations.n_annotations
    12
    """
    n_annotators, n_classes = crowd.answers.shape[:2]
    truth = np.asarray(truth)
    if (difficulty is None) != (decoy is None):
        raise errors.DifficultyWithoutDecoy
    if truth.size and not (truth.min() >= 0 and truth.max() < n_classes):
        found = f"{truth.min()} … {truth.max()}"
        raise errors.WrongColumn(column="truth", expected=f"class codes from 0 to {n_classes - 1}", description=found)
    difficulty = np.zeros(truth.size, np.float32) if difficulty is None else np.asarray(difficulty)
    decoy = truth if decoy is None else np.asarray(decoy)
    taken_for = np.zeros((n_classes, n_classes))
    np.add.at(taken_for, (truth, truth), 1 - difficulty)
    np.add.at(taken_for, (truth, decoy), difficulty)
    taken_for = taken_for / np.maximum(taken_for.sum(axis=1, keepdims=True), 1e-300)
    given = ((items, truth.size), (annotators, n_annotators), (classes, n_classes))
    first, second, third = (np.arange(n) if known is None else known for known, n in given)
    names = first, second, third
    table = _draw_annotations(crowd, truth, difficulty, decoy, redundancy, seed, names)
    return Simulation(table, truth, difficulty, decoy, crowd.confusion(taken_for), crowd)


def make_crowd(
    n_annotators: int, n_classes: int, *, kinds: Mapping[str, float] | None = None, skew: float = 1.0, seed: int = 0
) -> Crowd:
    """Draw a crowd of annotators of several kinds, in random order.

    Parameters
    ----------
    kinds : kind → share, optional
        Shares of the kinds in `DEFAULT_KIND_SHARES`, in any unit. If an item is perceived correctly, an expert is
        correct with a probability near 0.95, an ordinary annotator 0.75, a specialist 0.95 on a third of the classes
        and 0.5 on the others, an adversary 0.05 (with systematic errors), and the leader of a clique 0.6. A clique has
        about five members, who copy their leader with probability 0.95. A clique of one becomes an ordinary annotator.
    skew : float
        Standard deviation of log activity.
    seed : int

    Returns
    -------
    Crowd

    >>> from dissensus.table import simulate
    >>> crowd = simulate.make_crowd(6, 3, kinds={"expert": 1, "clique": 1}, seed=1)
    >>> type(crowd).__name__, sorted(set(crowd.kind.tolist()))
    ('Crowd', ['clique', 'expert'])
    >>> crowd.confusion(np.eye(3)).shape
    (6, 3, 3)
    """
    if n_annotators < 1 or n_classes < 2:
        raise errors.CrowdTooSmall(n_annotators=n_annotators, n_classes=n_classes)
    rng = _make_generator(seed, _CROWD_SEED_KEY)
    kind = apportion_kinds(DEFAULT_KIND_SHARES if kinds is None else kinds, n_annotators, DEFAULT_KIND_SHARES)
    if (kind == "clique").sum() == 1:
        kind[kind == "clique"] = "ordinary"
    kind = rng.permutation(kind)

    right = np.full((n_annotators, n_classes), 0.75)  # mean accuracy of each annotator on each class
    right[kind == "expert"] = 0.95
    right[kind == "clique"] = 0.6
    right[kind == "adversary"] = 0.05
    knows = rng.random((n_annotators, n_classes)).argsort(axis=1) < max(1, round(n_classes / 3))
    right[kind == "specialist"] = np.where(knows[kind == "specialist"], 0.95, 0.5)
    right = rng.beta(20 * right, 20 * (1 - right))

    wrong = rng.standard_exponential(
        (n_annotators, n_classes, n_classes)
    )  # The wrong labels get shares from Dirichlet(1).
    favourite = (np.arange(n_classes) + rng.integers(1, n_classes, (n_annotators, n_classes))) % n_classes
    lies = kind == "adversary"
    wrong[lies] += 20 * (favourite[lies, :, None] == np.arange(n_classes))
    wrong *= 1 - np.eye(n_classes)
    answers = wrong * ((1 - right) / wrong.sum(axis=2))[:, :, None]
    answers[:, np.arange(n_classes), np.arange(n_classes)] = right

    answers[kind == "uniform-spammer"] = 1 / n_classes
    constant = kind == "constant-spammer"
    always = np.eye(n_classes)[rng.integers(n_classes, size=n_annotators)]  # (A, K)
    answers[constant] = (0.97 * always + 0.03 / n_classes)[constant, None, :]

    leader, copying = np.full(n_annotators, -1, np.int32), np.ones(n_annotators)
    members = np.flatnonzero(kind == "clique").astype(np.int32)
    for clique in np.array_split(members, max(1, members.size // CLIQUE_SIZE)) if members.size else ():
        leader[clique] = clique[0]
        copying[clique[1:]] = 0.95
    return Crowd(answers, kind, np.exp(skew * rng.standard_normal(n_annotators)), leader, copying)


def _draw_annotations(
    crowd: Crowd,
    truth: IntArray,
    difficulty: FloatArray,
    decoy: IntArray,
    redundancy: int | tuple[int, int],
    seed: int,
    names: tuple[Names, Names, Names],
    start: int = 0,
) -> Annotations:
    """Draw the annotations of these items, which have numbers from `start` on.

    `names` are the names of items, annotators and classes.
    """
    low, high = (int(redundancy),) * 2 if isinstance(redundancy, Integral) else redundancy  # type: ignore[misc]
    n_classes = crowd.answers.shape[1]
    active = int((crowd.activity > 0).sum())
    if not 1 <= low <= high <= active:
        expected = f"from 1 to the {active:,} active annotators"
        raise OutOfRange(name=ParameterName("redundancy"), allowed=f"be {expected}", value=redundancy)
    # Column l has the (A·K,) cumulative probabilities of labels up to l, in the order in which they are gathered below.
    chance = np.cumsum(crowd.answers, axis=2).reshape(-1, n_classes).T.astype(np.float32)[:-1].copy()
    tickets = _make_tickets(crowd.activity)
    annotator = np.empty(truth.size * high, np.int32)
    label = np.empty(truth.size * high, naming.smallest_int_type(n_classes))
    ptr = np.zeros(truth.size + 1, np.int64)
    for first_row in range(0, truth.size, ITEMS_PER_CHUNK):
        rng = _make_generator(seed, _LABELS_SEED_KEY, (start + first_row) // ITEMS_PER_CHUNK)
        n = min(ITEMS_PER_CHUNK, truth.size - first_row)
        # Each chunk is drawn completely and then cut, so that the last chunk of a part does not depend on its size.
        annotators = _draw_annotators(rng, ITEMS_PER_CHUNK, high, tickets)[:n]  # (n, high)
        count = rng.integers(low, high + 1, ITEMS_PER_CHUNK, dtype=np.int32)[:n]
        uniform = rng.random((3, ITEMS_PER_CHUNK, high), np.float32)[:, :n]
        selection: BoolArray | slice = slice(None)
        if low < high:  # Annotators are chosen at random, because they are sorted by code.
            selection = (rng.random((ITEMS_PER_CHUNK, high), np.float32)[:n].argsort(axis=1) < count[:, None]).ravel()
        ptr[first_row + 1 : first_row + n + 1] = ptr[first_row] + np.cumsum(count)
        rows = slice(ptr[first_row], ptr[first_row + n])
        annotator[rows] = annotators.ravel()[selection]
        item = np.repeat(np.arange(first_row, first_row + n, dtype=np.int32), count)
        looking, answering, copying = uniform.reshape(3, -1)[:, selection]
        who_answers = annotator[rows]
        if (crowd.leader >= 0).any():
            leader = crowd.leader[who_answers]
            copied = np.flatnonzero(leader >= 0)
            copied = copied[copying[copied] < crowd.copying[who_answers[copied]]]
            who_answers = who_answers.copy()
            who_answers[copied] = leader[copied]
            looking[copied], answering[copied] = _shared_draws(seed, item[copied] + start, leader[copied])
        taken_for = np.where(looking < difficulty[item], decoy[item], truth[item])
        cell = who_answers * np.int64(n_classes) + taken_for
        drawn_label = np.zeros(cell.size, label.dtype)
        for up_to in chance:  # This takes K − 1 gathers instead of an (n, K) array.
            drawn_label += answering >= up_to[cell]
        label[rows] = drawn_label
    return Annotations(annotator[: ptr[-1]], label[: ptr[-1]], ptr, *names)  # Rows are drawn in the order of the table.


def _draw_items(block: int, prior: FloatArray, hardness: float, seed: int) -> tuple[IntArray, FloatArray, IntArray]:
    """Draw the true class, difficulty and decoy of the items of one chunk."""
    rng, n_classes, code = (
        _make_generator(seed, _ITEMS_SEED_KEY, block),
        prior.size,
        naming.smallest_int_type(prior.size),
    )
    truth = np.searchsorted(np.cumsum(prior)[:-1], rng.random(ITEMS_PER_CHUNK), side="right").astype(code)
    # m·U^(m/h − 1) has mean h and maximum m, so most items are easy and few are difficult.
    power = MAX_DIFFICULTY / hardness - 1 if hardness else np.inf
    difficulty = np.float32(MAX_DIFFICULTY) * rng.random(ITEMS_PER_CHUNK, np.float32) ** np.float32(power)
    decoy = (truth.astype(np.int32) + rng.integers(1, n_classes, ITEMS_PER_CHUNK, dtype=np.int32)) % n_classes
    return truth, difficulty, decoy.astype(code)


def _draw_annotators(rng: np.random.Generator, n: int, size: int, tickets: IntArray) -> IntArray:
    """Draw `size` different annotators for each of n items, in proportion to their tickets; return sorted codes."""
    n_annotators = int(tickets[-1]) + 1
    if n_annotators <= 16 * size:
        # In a small crowd, take the smallest waiting times, whose rates are the tickets (Efraimidis & Spirakis 2006).
        waiting = rng.standard_exponential((n, n_annotators), np.float32)
        with np.errstate(divide="ignore"):  # An annotator without tickets waits forever.
            waiting /= np.bincount(tickets, minlength=n_annotators).astype(np.float32)
        return np.sort(np.argpartition(waiting, size - 1, axis=1)[:, :size].astype(np.int32), axis=1)
    annotators = np.sort(tickets[rng.integers(tickets.size, size=(n, size), dtype=np.int32)], axis=1)
    items_left = np.arange(n)
    while items_left.size:  # Annotators that were drawn twice are drawn again.
        twice = np.zeros((items_left.size, size), np.bool_)
        twice[:, 1:] = annotators[items_left, 1:] == annotators[items_left, :-1]
        items_left, twice = items_left[twice.any(axis=1)], twice[twice.any(axis=1)]
        redrawn = annotators[items_left]
        redrawn[twice] = tickets[rng.integers(tickets.size, size=int(twice.sum()), dtype=np.int32)]
        annotators[items_left] = np.sort(redrawn, axis=1)
    return annotators


def _shared_draws(seed: int, item: IntArray, leader: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return two uniform draws for each (item, leader) pair, which are the same in every row, chunk and part."""
    key = np.random.SeedSequence(seed, spawn_key=(_SHARED_SEED_KEY,)).generate_state(1, np.uint64)
    first = naming.scramble_integers(naming.scramble_integers(item.astype(np.uint64) ^ key) ^ leader.astype(np.uint64))
    second = naming.scramble_integers(first)
    scale = np.float32(2**-24)  # float32 has 24 significant bits.
    return (first >> np.uint64(40)).astype(np.float32) * scale, (second >> np.uint64(40)).astype(np.float32) * scale


def _make_tickets(activity: FloatArray) -> IntArray:
    """Return annotator codes, repeated in proportion to activity, so that a random entry is a random annotator."""
    per_annotator = max(16, 2**16 // activity.size)
    share = np.round(activity / activity.mean() * per_annotator).astype(np.int64)
    return np.repeat(np.arange(activity.size, dtype=np.int32), np.where(activity > 0, np.maximum(share, 1), 0))


def _make_generator(seed: int, *child: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=child))
