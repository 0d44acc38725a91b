"""How many labels `next` needs to be as accurate as all labels of a real set, against random assignment.

    python -m benchmarks.serve.replay_next [--sets bluebirds,rte] [--seeds 3]

from the repository's root, with DISSENSUS_DATA naming the data folder. People come in random order, each for a few
labels, and can only answer what they did answer in the set. Both arms are fitted to what they have by the same method;
gold only scores. An arm has arrived where its accuracy is within half a point of that of all labels, from then on at
the next look too. Settled items and full ones are not asked about, as in the service: an arm may end before it arrives.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from dissensus.serve.events import Event
from dissensus.serve.service import Service
from dissensus.serve.store import open_store

SETS = ("bluebirds", "rte")
VISIT = 5  # labels that a person gives on one visit, at most
LOOKS = 60  # at the accuracy, over all labels
NEAR = 0.005  # of the accuracy of all labels
EVERY = 25  # labels after which the service fits again; a fit takes longer than a label
IDLE = 300  # visits without a label after which nobody comes any more


def accuracy(table: Any, gold: dict[str, str], n_items: int) -> float:
    """Share of all items with a known label that are right; one without labels is a guess of no worth."""
    if not len(table):
        return 0.0
    model = dz.methods["consensus"]().fit(table)
    said = zip(model.items_.tolist(), model.predict().tolist(), strict=True)
    return sum(gold.get(item) == label for item, label in said) / n_items


def replay(rows: list[tuple[str, str, str]], gold: dict[str, str], smart: bool, seed: int) -> list[tuple[int, float]]:
    """(labels, accuracy) at every look."""
    rng = np.random.default_rng(seed)
    own: dict[str, dict[str, str]] = {}
    for item, who, label in rows:
        own.setdefault(who, {})[item] = label
    people, weight = list(own), np.array([len(one) for one in own.values()], float)
    step, found, n = max(1, len(rows) // LOOKS), [], 0
    with tempfile.TemporaryDirectory() as folder, Service(open_store(str(Path(folder, "x.db"))), fits=False) as service:
        project = service.create("p")
        names = sorted({item for item, _, _ in rows})
        service.append("p", [Event("item", item, item, data={}) for item in names])
        idle = 0
        while n < len(rows) and idle < IDLE:
            who = people[rng.choice(len(people), p=weight / weight.sum())]
            given = 0
            for _ in range(VISIT):
                item = pick(project, who, own[who], smart, rng)
                if item is None:
                    break
                service.append("p", [Event("annotation", f"{item}\x1f{who}", item, who, own[who].pop(item))])
                n, given = n + 1, given + 1
                if n % step == 0:
                    project.refit()
                    found.append((n, accuracy(project.table(), gold, len(gold))))
            idle = 0 if given else idle + 1
            if project.n_changed >= EVERY:
                project.refit()
        found.append((n, accuracy(project.table(), gold, len(gold))))
    return found


def pick(project: Any, who: str, own: dict[str, str], smart: bool, rng: Any) -> str | None:
    """The next item of somebody, among those they can answer."""
    if not own:
        return None
    if not smart:
        return str(rng.choice(list(own)))
    codes = project.names[0].codes
    others = set(range(len(codes))) - {codes[item] for item in own}
    chosen = project.assigner._choose(who, project.names[1].codes.get(who, -1), 0.0, 1, others)
    return project.names[0].texts[chosen[0]] if chosen else None


def arrival(looks: list[tuple[int, float]], goal: float) -> int | None:
    """The labels at the first look from which on two in a row are good enough."""
    good = [value >= goal for _, value in looks]
    for at, (n, _) in enumerate(looks):
        if good[at] and (at + 1 == len(looks) or good[at + 1]):
            return n
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.sets.split(","):
        data = dz.load_dataset(name)
        table = data.annotations.to_arrow()
        rows = list(zip(*(map(str, table[key].to_pylist()) for key in ("item", "annotator", "label")), strict=True))
        known = zip(data.annotations.items.tolist(), data.gold.tolist(), strict=True)
        gold = {str(item): str(data.annotations.classes[code]) for item, code in known if code >= 0}
        full = accuracy(dz.Annotations.from_arrays(*map(list, zip(*rows, strict=True))), gold, len(gold))
        for seed in range(options.seeds):
            looks = {arm: replay(rows, gold, arm == "next", seed) for arm in ("random", "next")}
            need = {arm: arrival(found, full - NEAR) for arm, found in looks.items()}
            share = need["next"] / need["random"] if need["next"] and need["random"] else float("nan")
            end = looks["next"][-1]
            print(
                f"{name} seed {seed}: all {len(rows):,} labels {full:.4f}; random needs {need['random']}, next "
                f"{need['next']} ({share:.0%}); next ends after {end[0]:,} labels at {end[1]:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
