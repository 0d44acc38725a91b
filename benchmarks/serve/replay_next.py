"""How many labels `next` needs to be as accurate as all labels of a real set, against random assignment.

    python -m benchmarks.serve.replay_next [--sets bluebirds,rte] [--seeds 5]

from the repository's root, with DISSENSUS_DATA naming the data folder. Half of the people are there at a time; the busy
ones come more often, all give some labels and make room for others. They can only answer what they did answer in the
set. The same people come in both arms (in another order, once an arm has told somebody to stop); `random` takes any
item of theirs. `next` is the project's own, fed event by event, without a store, fitted whenever the labels grew by
`GROWTH` and at every look. Both are judged after every `STEP` of the labels by the same method; gold only scores. An
arm has arrived where its accuracy comes within `NEAR` of that of all labels and stays there for `STAYS` looks, or until
the arm ends. Where `next` tells everybody to stop before it arrives, all labels of the set are counted for it.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np

import dissensus as dz
from dissensus.serve.events import KINDS, Stored
from dissensus.serve.project import Project
from dissensus.serve.store import ROW_COLUMNS

SETS = {  # name → items of it that are replayed, chosen at random
    "wordsim": 30, "bluebirds": 108, "rte": 800, "digits-crowd": 600, "sentiment_polarity": 600, "labelme": 500,
    "medical_treats": 200, "cifar10h": 100, "judges_civilcomments": 200,
}  # fmt: skip
VISIT = 5.0  # labels that a person gives on one visit, in the mean
HERE = 0.5  # of the people, at any time
GO = 0.2  # chance that somebody goes after a visit, for as long as it takes until all others have come and gone
STEP = 0.02  # of all labels, between two looks and two fits
GROWTH = 0.1  # of the labels, after which the project is fitted at the latest
STAYS = 3  # looks in a row that must be good enough
NEAR = 0.005  # of the accuracy of all labels
IDLE = 10  # visits for each of the people, all in a row without a label, after which nobody comes any more
ANNOTATION = KINDS.index("annotation")


class Replayed(NamedTuple):
    """A set: its names, its rows as codes, the code (I,) of the true label, the accuracy of all labels."""

    names: tuple[list[str], list[str], list[str]]
    item: Any
    annotator: Any
    label: Any
    gold: Any
    full: float


class NoStore:
    """What a project reads of a store that holds nothing but names, and items without a text."""

    def __init__(self, names: tuple[list[str], list[str], list[str]]):
        self._names = names

    def last(self) -> int:
        """See `Store`."""
        return 0

    def rows(self, number: int) -> Any:
        """See `Store`."""
        return np.empty((0, len(ROW_COLUMNS)))

    def corrected(self, number: int) -> list[Stored]:
        """See `Store`."""
        return []

    def others(self, number: int) -> list[Stored]:
        """See `Store`."""
        item = KINDS.index("item")
        return [Stored(0, 1, item, name, 0, code, -1, -1, "", 0.0, None) for code, name in enumerate(self._names[0])]

    def names(self, number: int, what: int, start: int) -> list[str]:
        """See `Store`."""
        return self._names[what][start:]

    def data(self, wanted: Any) -> dict[int, str]:
        """See `Store`."""
        return {}


def load(name: str, n_items: int) -> Replayed:
    """Items of a set that have a known label, at most so many."""
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


def accuracy(data: Replayed, rows: Any) -> float:
    """Share of all items that are right, by a fit to some rows; an item without labels is not."""
    made = dz.Annotations.from_arrays(*(
        np.array(names, object)[codes[rows]]
        for names, codes in zip(data.names, (data.item, data.annotator, data.label), strict=True)
    ), items=data.names[0], classes=data.names[2])  # fmt: skip
    model = dz.methods["consensus"]().fit(made)
    code = {name: at for at, name in enumerate(data.names[0])}
    at = np.array([code[str(item)] for item in model.items_])
    said = np.array(data.names[2], object)[data.gold[at]]
    seen = np.bincount(data.item[rows], minlength=data.gold.size)[at] > 0
    return float(((model.predict() == said) & seen).sum() / data.gold.size)


def arrivals(data: Replayed, seed: int) -> Any:
    """Who comes next and for how many labels, without end: a part of the people, some of whom go and make room."""
    rng = np.random.default_rng(seed)
    work = np.bincount(data.annotator, minlength=len(data.names[1])).astype(float)
    order = rng.permutation(work.size).tolist()
    here, away = order[: max(3, round(HERE * work.size))], order[max(3, round(HERE * work.size)) :]
    while True:
        chance = work[here] / work[here].sum()
        at = int(rng.choice(len(here), p=chance))
        yield here[at], int(rng.geometric(1 / VISIT))
        if away and rng.random() < GO:
            away.append(here[at])
            here[at] = away.pop(0)


def replay(data: Replayed, smart: bool, seed: int) -> tuple[int, bool, int, float]:
    """Labels until the arm arrives, whether it did, labels at the end of the replay and the accuracy then."""
    rng = np.random.default_rng([seed, 1])
    own = [np.flatnonzero(data.annotator == who) for who in range(len(data.names[1]))]
    step = max(1, round(STEP * data.item.size))
    project = Project(NoStore(data.names), 1, "p", {"kind": "classes", "classes": data.names[2]})  # type: ignore[arg-type]
    rows: list[int] = []
    good, first, idle, score = 0, 0, 0, 0.0
    for who, visit in arrivals(data, seed):
        given = 0
        while given < visit and own[who].size:
            if smart:
                found = project.next(data.names[1][who], among=data.item[own[who]])["items"]
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
                project.apply([Stored(n, 1, ANNOTATION, str(row), n, *codes, "", float(n), None)])
                if project.fits_at_once() or project.n_changed >= GROWTH * n:
                    project.refit()
            if n % step == 0:
                if smart:
                    project.refit()
                    score = float((project.top == data.gold).mean())
                else:
                    score = accuracy(data, np.array(rows))
                good = good + 1 if score >= data.full - NEAR else 0
                first = n if good == 1 else first
                if good == STAYS:
                    return first, True, n, score
        idle = 0 if given else idle + 1
        if idle >= IDLE * len(own) or len(rows) == data.item.size:
            break
    score = accuracy(data, np.array(rows))
    if score >= data.full - NEAR:
        return (first if good else len(rows)), True, len(rows), score
    return data.item.size, False, len(rows), score


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--named", type=float, default=1.0, help="share of the items, the best, that people choose from"
    )
    options = parser.parse_args()
    print("| set | items | labels | accuracy of all | random needs | next needs | ratio | next stopped before |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.sets.split(","):
        data = load(name, SETS[name])
        random, chosen = ([replay(data, smart, seed) for seed in range(options.seeds)] for smart in (False, True))
        need = [float(np.mean([one[0] for one in arm])) for arm in (random, chosen)]
        ended = "-"
        if missed := [one for one in chosen if not one[1]]:
            labels, score = np.mean([one[2:] for one in missed], axis=0)
            ended = f"{len(missed)} of {options.seeds}, at {score:.1%} with {labels:,.0f}"
        print(
            f"| {name} | {data.gold.size:,} | {data.item.size:,} | {data.full:.1%} | {need[0]:,.0f} | {need[1]:,.0f} "
            f"| {need[1] / need[0]:.0%} | {ended} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
