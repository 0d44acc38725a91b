"""Measure what a label is worth, and write docs/study/what-is-a-label-worth.md and its figure.

    DISSENSUS_DATA=<data folder> python -m benchmarks.study.worth          # takes a minute on one core

It uses every data set of classes with names of annotators. n labels of an item are worth, as independent labels:

- *default*: what `consensus` estimates without gold, with its 95 % interval;
- *by gold*: n/(1 + (n − 1) ρ), with the ρ of least log loss on all gold items (`benchmarks.trust.posterior`);
- *by votes*: the number of labels, drawn independently from the crowd's confusion matrix by gold, whose majority is
  right as often as that of the real labels. This needs no model of annotators.

Before is `dawid-skene` with independent labels, after is the default of every command.
"""

from __future__ import annotations

import argparse
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust.posterior import Case, best_by_gold, scores
from dissensus.exceptions import DissensusError
from reproductions import record

FOLDER = Path(__file__).parent.parent.parent / "docs" / "study"
PAGE, FIGURE = FOLDER / "what-is-a-label-worth.md", FOLDER / "what-is-a-label-worth.svg"
JUDGES = {"judges_civilcomments"}  # data sets labelled by models
DRAWN_ITEMS = 40_000  # simulated items per number of independent labels
MIN_BIN_ITEMS = 25
BINS = 8  # bins of equal numbers of items, per data set
COLOURS = {"people": "#3b6fb6", "models": "#d9730d"}


@dataclass
class Row:
    """Results of one data set; those that need gold are None without it."""

    name: str
    annotator_type: str
    items: int
    annotators: int
    classes: int
    labels: float  # per item
    counted: tuple[float, float, float]  # Estimate of the default method, and its interval.
    by_gold: float | None = None
    by_votes: float | None = None
    before: Any = None  # Scores in the order of benchmarks.trust.posterior.SCORES.
    after: Any = None
    curves: Any = None  # (confidence, accuracy) of bins: before, after


def vote_hits(votes: Any, gold: Any) -> Any:
    """Return 1 per item (I,) whose class has the most votes, or 1/n if n classes are tied."""
    best = votes == votes.max(axis=1, keepdims=True)
    return best[np.arange(gold.size), gold] / best.sum(axis=1)


def worth_by_votes(table: Any, gold: Any, known: Any) -> float | None:
    """Return the number of independent labels whose majority is right as often as that of the real ones, or None.

    Independent labels are drawn from the confusion matrix and the class shares of the gold items.
    """
    K = table.n_classes
    votes = np.asarray(table.votes())[known]
    target = vote_hits(votes, gold[known]).mean()
    rows = np.isin(table.item, known)
    confusion = np.zeros((K, K))
    np.add.at(confusion, (gold[table.item[rows]], table.label[rows]), 1)
    truth = np.random.default_rng(0).choice(gold[known], DRAWN_ITEMS)
    confusion /= np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    edges = np.cumsum(confusion, axis=1)[:, :-1]
    rng = np.random.default_rng(1)
    counts, right = np.zeros((DRAWN_ITEMS, K)), [0.0]
    most = int(np.ceil(votes.sum(axis=1).mean())) + 2
    for _ in range(most):
        label = (rng.random((DRAWN_ITEMS, 1)) > edges[truth]).sum(axis=1)
        counts[np.arange(DRAWN_ITEMS), label] += 1
        right.append(float(vote_hits(counts, truth).mean()))
    odd = [1, *range(3, most + 1, 2)]  # an even number of labels is right as often as the odd one before it
    reached = np.maximum.accumulate([right[n] for n in odd])
    return float(np.interp(target, reached, odd)) if target <= reached[-1] else None


def curve(posterior: Any, gold: Any) -> Any:
    """Return mean confidence and accuracy (bins, 2) of bins with equal numbers of items."""
    confidence, right = posterior.max(axis=1), posterior.argmax(axis=1) == gold
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(order, max(1, min(BINS, gold.size // MIN_BIN_ITEMS)))
    return np.array([(confidence[part].mean(), right[part].mean()) for part in parts])


def measure(name: str, data: Any) -> Row:
    """Fit both methods to a data set and compare them."""
    table, gold = data.annotations, data.gold
    n_labels = np.diff(table.item_ptr)
    after = dz.methods["consensus"](threads=1).fit(table)
    counted = after.mean_effective_labels()
    row = Row(
        name, "models" if name in JUDGES else "people", int((n_labels > 0).sum()), table.n_annotators, table.n_classes,
        counted.labels, (counted.value, counted.low, counted.high),
    )  # fmt: skip
    if gold is None:
        return row
    before = dz.methods["dawid-skene"](threads=1, dependence=None).fit(table)
    known = np.flatnonzero((gold >= 0) & (n_labels > 0))
    case = Case(
        name,
        None,
        after.untempered_posterior()[known],
        after.item_total_[known],
        gold[known],
        after.dependence_,
        after.damping_,
    )
    rho = best_by_gold(case)
    n = case.n_labels
    row.by_gold = float((n / (1 + np.maximum(n - 1, 0) * min(rho, 1.0))).mean())
    row.by_votes = worth_by_votes(table, gold, known)
    row.before, row.after = (scores(one.posterior_[known], gold[known]) for one in (before, after))
    row.curves = tuple(curve(one.posterior_[known], gold[known]) for one in (before, after))
    return row


def sets() -> dict[str, Any]:
    """Return all data sets of classes with names of annotators in the data folder."""
    found = {}
    for about in dz.list_datasets():
        if about.source == "bundled" or not about.labelled:
            continue
        try:
            data: Any = dz.load_dataset(about.name)
        except DissensusError:
            continue
        table = data.annotations
        named = isinstance(table, dz.Annotations) and table.n_annotators > 1  # counts have one annotator
        if named and table.kind in ("classes", "graded"):
            found[about.name] = data
    return found


def figure(rows: list[Row]) -> str:
    """Return the figure of confidence against accuracy, before and after, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "worth", "font.family": "sans-serif", "font.size": 10}
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True, layout="constrained")
    titles = ("Before: labels taken as independent", "After: the default of dissensus")
    for number, (axis, title) in enumerate(zip(axes, titles, strict=True)):
        axis.plot([0.3, 1], [0.3, 1], color="#999", lw=1, ls="--")
        for row in rows:
            if row.curves is None:
                continue
            x, y = row.curves[number].T
            axis.plot(
                x,
                y,
                "-o",
                color=COLOURS[row.annotator_type],
                ms=3,
                lw=1,
                alpha=0.9 if row.annotator_type == "models" else 0.45,
            )
        gaps = [(row.before, row.after)[number][2] for row in rows if row.curves is not None]
        axis.set(title=title, xlabel="confidence", xlim=(0.3, 1.01), ylim=(0.3, 1.02))
        axis.text(0.33, 0.95, f"mean confidence − accuracy: {100 * np.mean(gaps):+.1f} points", fontsize=9)
    axes[0].set_ylabel("accuracy")
    axes[0].text(0.62, 0.36, "each line is a data set;\nbelow the diagonal:\noverconfident", fontsize=9, color="#555")
    handles = [plt.Line2D([], [], color=colour, marker="o", ms=3, label=who) for who, colour in COLOURS.items()]
    axes[1].legend(handles=handles, loc="lower right", frameon=False)
    text = io.StringIO()
    picture.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(picture)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def mark_worse(mark: bool) -> str:
    """Return the mark of a figure that is worse than before."""
    return " ▼" if mark else ""


def tables(rows: list[Row]) -> list[str]:
    """Return the tables of effective numbers of labels, and of accuracy and confidence."""
    out = [
        "| data set | labelled by | labels per item | worth: default | by gold | by votes |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        value, low, high = row.counted
        gold = "–" if row.by_gold is None else f"{row.by_gold:.1f}"
        votes = "–" if row.by_votes is None else f"{row.by_votes:.1f}"
        out.append(
            f"| {row.name} | {row.annotators:,} {row.annotator_type} | {row.labels:.1f} | "
            f"{value:.1f} ({low:.1f} to {high:.1f}) | {gold} | {votes} |"
        )
    known = [row for row in rows if row.before is not None]
    out += [
        "",
        "| data set | accuracy, %: before | after | confidence − accuracy, points: before | after | log loss: before | "
        "after |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in [*known, None]:
        if row is None:
            name = f"mean of {len(known)}"
            before, after = (
                np.mean([getattr(one, which)[:3] for one in known], axis=0) for which in ("before", "after")
            )
        else:
            name, before, after = row.name, row.before, row.after
        out.append(
            f"| {name} | {100 * before[1]:.1f} | {100 * after[1]:.1f}{mark_worse(after[1] < before[1] - 5e-4)} | "
            f"{100 * before[2]:+.1f} | {100 * after[2]:+.1f}{mark_worse(abs(after[2]) > abs(before[2]))} | "
            f"{before[0]:.3f} | {after[0]:.3f}{mark_worse(after[0] > before[0])} |"
        )
    return out


def summary(rows: list[Row]) -> list[str]:
    """Return the summary above the tables."""
    known = [row for row in rows if row.before is not None]
    labels, gold = (np.array([getattr(row, one) for row in known]) for one in ("labels", "by_gold"))
    counted = np.array([row.counted[0] for row in known])
    over = sum(row.before[2] > 0.05 for row in known), sum(row.after[2] > 0.05 for row in known)
    under = sum(row.before[2] < -0.05 for row in known), sum(row.after[2] < -0.05 for row in known)
    held = sum(row.counted[1] <= row.by_gold <= row.counted[2] for row in known)
    most = max(known, key=lambda row: row.labels)
    return [
        f"**{len(rows)} data sets, {len(known)} of them with gold.** The sets with gold have {np.mean(labels):.1f} "
        f"labels per item on average. According to gold, they carry the evidence of {gold.mean():.1f} independent "
        f"labels. The default, without gold, estimates {counted.mean():.1f}, and its interval contains the value by "
        f"gold on {held} of {len(known)}. The {most.labels:.0f} labels of *{most.name}* carry the evidence of "
        f"{most.by_gold:.1f}.",
        "",
        f"If labels are treated as independent, confidence exceeds accuracy by more than 5 points on {over[0]} of "
        f"{len(known)} sets, and with the default on {over[1]}. It is more than 5 points too low on {under[0]} and "
        f"{under[1]} sets.",
    ]


def main() -> None:
    """Measure all data sets, and write the page and its figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="sets; prints, and writes nothing")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    made = record.provenance()
    rows = []
    for name, data in sets().items():
        if asked.only and name not in asked.only:
            continue
        rows.append(measure(name, data))
        print(rows[-1], flush=True)
    text = "\n".join([*summary(rows), "", *tables(rows)])
    print(text)
    if not asked.only:
        record.replace_between_marks(PAGE, "worth", f"{text}\n\n{record.describe_provenance(made)}")
        FIGURE.write_text(figure(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
