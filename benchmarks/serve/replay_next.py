"""How many labels `next` needs to be as accurate as all labels of a real set, against random assignment.

    python -m benchmarks.serve.replay_next [--sets bluebirds,rte] [--seeds 12] [--processes 2]

from the repository's root, with DISSENSUS_DATA naming the data folder. Half of the people are there at a time; the busy
ones come more often, all give some labels and make room for others. They can only answer what they did answer in the
set, which is their cap; an item may have three labels more than the median item, the service's own cap. The same people
come in both arms (in another order, once an arm has told somebody to wait); `random` takes any item of theirs. `next`
is the project's own, fed event by event, without a store, fitted when the service would fit it. Both are judged
after every `STEP` of the labels by plain `dawid-skene`, so no rule of `consensus` decides; gold only scores, and an
item without a label is wrong. The curve is the mean over the seeds; an arm that ends before the other keeps its last
accuracy. *Needs*: the labels from which on the curve stays within `NEAR` of the accuracy of all labels. *First*: those
at which it first is. `next` is not followed beyond what random assignment needs. *Bound*: what is needed by who knows
the annotators from all labels and the answers too, and asks only about items without a label or with another answer
than that of all labels; nobody can do that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import dissensus as dz
from dissensus.models.base import put_given_label_first
from dissensus.serve.events import EVENT_KINDS, StoredEvent
from dissensus.serve.project import CHANGED_SHARE, Project
from dissensus.serve.store import ROW_COLUMNS

SETS = {  # name → items of it that are replayed, chosen at random
    "wordsim": 30, "bluebirds": 108, "rte": 800, "digits-crowd": 600, "sentiment_polarity": 2000, "labelme": 1000,
    "gimpel_pos": 500, "judges_civilcomments": 200, "medical_causes": 975, "medical_treats": 621, "ner_mturk": 800,
    "cifar10h": 100,
}  # fmt: skip
VISIT = 5.0  # labels that a person gives on one visit, in the mean
PRESENT_SHARE = 0.5  # Share of the annotators who are present at any time.
LEAVE_PROBABILITY = 0.2  # Probability that an annotator leaves after a visit, until all others have visited.
STEP = 0.02  # Share of all labels between two evaluations.
NEAR = 0.005  # Tolerance relative to the accuracy of all labels.
IDLE = 10  # Consecutive visits per annotator without a label after which the replay ends.
ANNOTATION = EVENT_KINDS.index("annotation")


class Replayed(NamedTuple):
    """A set: its names, its rows as codes, the code (I,) of the true label, the accuracy of all labels."""

    names: tuple[list[str], list[str], list[str]]
    item: Any
    annotator: Any
    label: Any
    gold: Any
    full: float


class NoStore:
    """Store that holds only names, and items without text."""

    def __init__(self, names: tuple[list[str], list[str], list[str]]):
        self._names = names

    def last_seq(self) -> int:
        """Return the answer of an empty store."""
        return 0

    def load_rows(self, number: int) -> Any:
        """Return the answer of an empty store."""
        return np.empty((0, len(ROW_COLUMNS)))

    def corrected_events(self, number: int) -> list[StoredEvent]:
        """Return the answer of an empty store."""
        return []

    def project_events(self, number: int, *, annotations: bool) -> list[StoredEvent]:
        """Return the answer of an empty store."""
        item = EVENT_KINDS.index("item")
        return [
            StoredEvent(0, 1, item, name, 0, code, -1, -1, "", 0.0, None) for code, name in enumerate(self._names[0])
        ]

    def load_names(self, number: int, what: int, start: int) -> list[str]:
        """Return the answer of an empty store."""
        return self._names[what][start:]

    def event_data(self, wanted: Any) -> dict[int, str]:
        """Return the answer of an empty store."""
        return {}


@cache
def load(name: str, n_items: int) -> Replayed:
    """Load at most `n_items` items with gold of a set."""
    data = dz.load_dataset(name)
    table = data.annotations
    known = np.flatnonzero(data.gold >= 0)
    if known.size > n_items:
        known = np.sort(np.random.default_rng(0).choice(known, n_items, replace=False))
    place = np.full(table.n_items, -1)
    place[known] = np.arange(known.size)
    item = place[table.item]
    keep = item >= 0
    item, label = item[keep], table.label[keep]
    people, annotator = np.unique(table.annotator[keep], return_inverse=True)
    names = [str(one) for one in table.items[known]], [str(table.annotators[at]) for at in people]
    classes = [str(one) for one in table.classes]
    found = Replayed((*names, classes), item, annotator, label, data.gold[known], 0.0)
    return found._replace(full=accuracy(found, np.arange(item.size)))


def fit(data: Replayed, rows: Any) -> Any:
    """Dawid-Skene, fitted to some rows."""
    made = dz.Annotations.from_arrays(*(
        np.array(names, object)[codes[rows]]
        for names, codes in zip(data.names, (data.item, data.annotator, data.label), strict=True)
    ), items=data.names[0], classes=data.names[2])  # fmt: skip
    return dz.methods["dawid-skene"](dependence=None).fit(made)


def accuracy(data: Replayed, rows: Any) -> float:
    """Share of all items that are right, by a fit to some rows; an item without labels is not."""
    model = fit(data, rows)
    code = {name: at for at, name in enumerate(data.names[0])}
    at = np.array([code[str(item)] for item in model.items_])
    said = np.array(data.names[2], object)[data.gold[at]]
    seen = np.bincount(data.item[rows], minlength=data.gold.size)[at] > 0
    return float(((model.predict() == said) & seen).sum() / data.gold.size)


def arrivals(data: Replayed, seed: int) -> Any:
    """Yield the next annotator and their number of labels, without end; annotators who leave are replaced."""
    rng = np.random.default_rng(seed)
    work = np.bincount(data.annotator, minlength=len(data.names[1])).astype(float)
    order = rng.permutation(work.size).tolist()
    here, away = order[: max(3, round(PRESENT_SHARE * work.size))], order[max(3, round(PRESENT_SHARE * work.size)) :]
    while True:
        chance = work[here] / work[here].sum()
        at = int(rng.choice(len(here), p=chance))
        yield here[at], int(rng.geometric(1 / VISIT))
        if away and rng.random() < LEAVE_PROBABILITY:
            away.append(here[at])
            here[at] = away.pop(0)


class Run(NamedTuple):
    """One replay: the accuracy at each look, how many labels there were in the end, and the accuracy then."""

    looks: list[float]
    labels: int
    end: float
    served: float  # Share of the requests.


def replay(data: Replayed, smart: bool, seed: int, until: float = np.inf) -> Run:
    """Replay labels until none are left, all annotators are told to stop, or the share `until` is reached."""
    rng = np.random.default_rng([seed, 1])
    own = [np.flatnonzero(data.annotator == who) for who in range(len(data.names[1]))]
    project = Project(NoStore(data.names), 1, "p", {"kind": "classes", "classes": data.names[2]})  # type: ignore[arg-type]
    rows: list[int] = []
    looks: list[float] = []
    idle = requests = 0
    for who, visit in arrivals(data, seed):
        given = 0
        while given < visit and own[who].size:
            requests += 1
            if smart:
                found = project.next_items(data.names[1][who], among=data.item[own[who]])["items"]
                if not found:
                    break
                item = project.names[0].codes[found[0]["item"]]
                place = int(np.flatnonzero(data.item[own[who]] == item)[0])
            else:
                place = int(rng.integers(own[who].size))
            row = int(own[who][place])
            own[who] = np.delete(own[who], place)
            rows.append(row)
            n, given = len(rows), given + 1
            if smart:
                codes = int(data.item[row]), int(data.annotator[row]), int(data.label[row])
                project.apply([StoredEvent(n, 1, ANNOTATION, str(row), n, *codes, "", float(n), None)])
                if project.should_wait_for_fit() or project.n_changed >= CHANGED_SHARE * n:
                    project.refit()
            if n % step(data) == 0:
                looks.append(accuracy(data, np.array(rows)))
        idle = 0 if given else idle + 1
        if idle >= IDLE * len(own) or len(rows) >= min(data.item.size, until):
            break
    return Run(looks, len(rows), accuracy(data, np.array(rows)), len(rows) / requests)


def step(data: Replayed) -> int:
    """Labels between two looks."""
    return max(1, round(STEP * data.item.size))


def needs(data: Replayed, runs: list[Run], first: bool = False) -> float | None:
    """Labels from which on the mean accuracy stays near that of all labels, or first is; None where it does not."""
    n = max(len(run.looks) for run in runs) + 1
    score = np.mean([run.looks + [run.end] * (n - len(run.looks)) for run in runs], axis=0)
    good = score >= data.full - NEAR - 1e-9
    if not (good.any() if first else good[-1]):
        return None
    at = int(np.argmax(good)) if first or good.all() else int(np.flatnonzero(~good)[-1]) + 1
    return float(np.mean([min((at + 1) * step(data), run.labels) for run in runs]))


def bound(data: Replayed, seed: int) -> int:
    """Labels needed by who knows the annotators from all labels, and the answers."""
    rng = np.random.default_rng([seed, 1])
    model = fit(data, np.arange(data.item.size))
    order = {name: at for at, name in enumerate(map(str, model.annotators_))}
    theta = np.log(
        put_given_label_first(model.annotator_confusions(np.array([order[name] for name in data.names[1]]))) + 1e-12
    )
    score = np.tile(np.log(model.prior_), (data.gold.size, 1))
    whole = score.copy()
    np.add.at(whole, data.item, theta[data.annotator, data.label])
    answer, now = whole.argmax(axis=1), np.full(data.gold.size, -1)
    own = [np.flatnonzero(data.annotator == who) for who in range(len(data.names[1]))]
    target, n = (answer == data.gold).mean() - NEAR, 0
    for who, visit in arrivals(data, seed):
        for _ in range(visit):
            item = data.item[own[who]]
            wanted = (
                np.flatnonzero(now[item] < 0) if (now[item] < 0).any() else np.flatnonzero(now[item] != answer[item])
            )
            if not wanted.size:
                break
            place = int(rng.choice(wanted))
            row = own[who][place]
            own[who] = np.delete(own[who], place)
            score[data.item[row]] += theta[data.annotator[row], data.label[row]]
            now[data.item[row]] = score[data.item[row]].argmax()
            n += 1
        if (now == data.gold).mean() >= target - 1e-9 and (now >= 0).all():
            return n
    raise AssertionError("arrivals have no end")


def run(what: str, name: str, seed: int, until: float = np.inf) -> Any:
    """One replay of a set, by `next` or at random, or its bound."""
    data = load(name, SETS[name])
    return bound(data, seed) if what == "bound" else replay(data, what == "next", seed, until)


def rows(names: list[str], n_seeds: int, pool: Executor) -> Iterator[str]:
    """Return the lines of sets."""
    asked = {(what, name): [pool.submit(run, what, name, seed) for seed in range(n_seeds)]
             for what in ("random", "bound") for name in names}  # fmt: skip
    most = {}
    for name in names:
        data = load(name, SETS[name])
        random = [one.result() for one in asked["random", name]]
        most[name] = needs(data, random) or data.item.size  # the last label of the set brings it there
        asked["next", name] = [pool.submit(run, "next", name, seed, most[name]) for seed in range(n_seeds)]
    for name in names:
        random, chosen, least = ([one.result() for one in asked[what, name]] for what in ("random", "next", "bound"))
        yield row(name, random, chosen, float(np.mean(least)), most[name])


def row(name: str, random: list[Run], chosen: list[Run], least: float, most: float) -> str:
    """Return the line of a set."""
    data, ratios = load(name, SETS[name]), []
    need = needs(data, chosen)
    for first in (False, True):
        ours, theirs = needs(data, chosen, first), needs(data, random, first) or data.item.size
        ratios.append("over 100 %" if ours is None else f"{100 * ours / theirs:.0f} %")
    half = [100 * (data.full - np.mean([at_half(data, run, most) for run in arm])) for arm in (random, chosen)]
    cells = [
        name, f"{data.gold.size:,}", f"{data.item.size / data.gold.size:.1f}", f"{data.full:.1%}", f"{most:,.0f}",
        "-" if need is None else f"{need:,.0f}", *ratios, f"{100 * least / most:.0f} %", f"{half[0]:.1f}",
        f"{half[1]:.1f}", f"{np.mean([run.served for run in chosen]):.0%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def at_half(data: Replayed, run: Run, most: float) -> float:
    """Return the accuracy of a replay with half of `most` labels."""
    at = round(most / 2 / step(data))
    return run.looks[at - 1] if at <= len(run.looks) else run.end


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    columns = (
        "set", "items", "labels of an item", "accuracy of all", "random needs", "next needs", "ratio", "ratio, first",
        "bound", "points below all, with half of what random needs: random", "next", "requests served",
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    names = options.sets.split(",")
    with ProcessPoolExecutor(options.processes) as pool:
        for line in rows(names, options.seeds, pool):
            print(line, flush=True)


if __name__ == "__main__":
    main()
