"""Check `explain` on real sets with gold: `python -m benchmarks.trust.disagreement [SET …]`.

On sets about views "likely error" should hardly ever be said. On sets with gold: of the items called likely errors, on
how many the label that was kept is right, so that the labels against it are mistakes; of the single labels on them that
differ from it, how many differ from gold; and how often the label is right on ambiguous items and where labels cannot
tell. A minute or two.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

import dissensus as dz
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.questions.explain import DISAGREEMENT_KINDS

SUBJECTIVE = ("popquorn_offensiveness", "jobs_q1", "jobs_q2", "jobs_q3")
OBJECTIVE = (
    "rte", "sentiment_polarity", "medical_treats", "labelme", "cifar10h", "bluebirds", "medical_causes",
    "gimpel_pos", "plank_pos", "ner_mturk", "wordsim", "judges_civilcomments", "digits-crowd",
)  # fmt: skip


def share(part: Any, of: Any) -> str:
    """Return the share of `part` among `of`, in per cent; "–" if `of` is empty."""
    n = int(of.sum())
    return f"{100 * (part & of).sum() / n:.1f} % of {n:,}" if n else "–"


def measure(name: str, method: str) -> str:
    """One line of the table."""
    data: Any = dz.load_dataset(name)
    table = data.annotations
    model = dz.methods[method]().fit(table)
    found = dz.explain(table, model, annotators=data.annotators)
    kinds = {kind: found.kind == code for code, kind in enumerate(DISAGREEMENT_KINDS)}
    counts = [f"{100 * kinds[kind].mean():.1f}" for kind in DISAGREEMENT_KINDS[1:]]
    if data.gold is None:
        return " | ".join([name, *counts, "", "", "", ""])
    known, contested = data.gold >= 0, found.disagreement > 0
    order = {label: code for code, label in enumerate(table.classes.tolist())}
    kept = np.array([order[label] for label in found.label.tolist()])
    right = kept == data.gold
    called = kinds["likely error"] & known
    against = called[table.item] & (table.label != kept[table.item])
    mistaken = table.label != data.gold[table.item]
    unsure = [share(right, kinds[kind] & known & contested) for kind in ("ambiguous", "cannot tell")]
    return " | ".join([name, *counts, share(right, called), share(mistaken, against), *unsure])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=[*SUBJECTIVE, *OBJECTIVE])
    parser.add_argument("--method", default=DEFAULT_METHOD)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    right = [f"label right: {kind}" for kind in ("likely error", "ambiguous", "cannot tell")]
    right.insert(1, "labels called mistakes that are")
    print(" | ".join(["", "set", *(f"{kind}, %" for kind in DISAGREEMENT_KINDS[1:]), *right, ""]).strip())
    print("|" + "---|" * (1 + len(DISAGREEMENT_KINDS[1:]) + len(right)))
    for name in given.sets:
        print(f"| {measure(name, given.method)} |", flush=True)


if __name__ == "__main__":
    main()
