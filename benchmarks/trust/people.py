"""Check statements about annotators against gold: `python -m benchmarks.trust.people [flags] [copiers] [intervals]`.

*flags*: honest annotators flagged, simulated crowds of every kind and real ones right more often than their crowd, and
spammers and adversaries found on `digits-crowd`, where each keeps 40 labels. *copiers*: found of those who copy leaders
who are right six times of ten, ten labels an item, simulated and among real annotators, and groups on all real sets.
*intervals*: fitted on half of the items and held to the gold of the others. An annotator with at least ten gold labels
there is covered where its number right lies in the middle 95 % of the beta-binomial that the interval's Beta implies;
"bare" has no allowance for its own luck: the share right lies within the interval, for those with 100 gold labels or
more. "independent" has the interval of now and the posterior of before. A few minutes; `--seeds` says how many
repetitions.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
from scipy.stats import betabinom

import dissensus as dz
from dissensus import Annotations
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.exceptions import DissensusError
from dissensus.models.confidence import CROWD_PSEUDO_LABELS, beta_interval, equivalent_gold_labels
from dissensus.models.copies import find_copies
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.questions.diagnose import Diagnosis
from dissensus.table.datasets.digits import make_digits_crowd
from dissensus.table.simulate import annotate, make_crowd

SUSPECT = ("uniform-spammer", "constant-spammer", "adversary")
MAX_ROWS = 150_000  # larger sets are left out
CROWD_SIZES, LABELS, PREVALENCES = (20, 100, 1000, 5000), (5, 12, 20, 40, 100, 500), (0.02, 0.05, 0.2, 0.5)
MAX_SIMULATED_ROWS = 60_000
REAL_CROWDS = ("rte", "medical_causes", "medical_treats", "bluebirds")  # Sets with ten labels per item or more.


def real_sets() -> dict[str, Any]:
    """Return all labelled sets in the data folder that are not too large."""
    found = {}
    for name in (about.name for about in dz.list_datasets()):
        try:
            data = dz.load_dataset(name)
        except DissensusError:
            continue
        if isinstance(data.annotations, Annotations) and len(data.annotations) <= MAX_ROWS:
            found[name] = data
    return found


def right_of(table: Annotations, gold: Any, rows: Any) -> tuple[Any, Any]:
    """Return (A,) correct labels by gold, and labels on gold items, among some rows."""
    rows = rows & (gold[table.item] >= 0)
    n = np.bincount(table.annotator[rows], minlength=table.n_annotators)
    return np.bincount(table.annotator[rows], (table.label == gold[table.item])[rows], table.n_annotators), n


# Flags ----------------------------------------------------------------------------------------------------------------


def honest_crowd(
    A: int, labels: int, per_item: int, K: int, prevalence: float, skill: str, hard: float, seed: int
) -> Annotations:
    """Simulate a crowd without spammers, with a number of labels per annotator and a prevalence of one class."""
    rng = np.random.default_rng(seed)
    I = A * labels // min(per_item, A)
    who = np.concatenate([rng.permutation(A) for _ in range(labels)])[: I * min(per_item, A)]
    item = np.repeat(np.arange(I), min(per_item, A))
    who = who[np.argsort(np.arange(who.size) // A + 1.5 * rng.random(who.size))]
    item, who = np.divmod(np.unique(item * A + who), A)
    shares = np.array([1 - prevalence, *[prevalence / (K - 1)] * (K - 1)])
    truth = rng.choice(K, I, p=shares)
    right = {
        "95/75": np.where(np.arange(K) == 0, 0.95, 0.75) * np.ones((A, 1)),
        "mixed": np.clip(rng.beta(6, 2, (A, 1)) + 0.1 * rng.standard_normal((A, K)), 0.55 if K == 2 else 0.35, 0.99),
        "poor": np.clip(rng.beta(12, 6, (A, 1)) + 0.05 * rng.standard_normal((A, K)), 0.52 if K == 2 else 0.25, 0.99),
        "good": np.clip(rng.beta(30, 2, (A, K)), 0.7, 0.999),
    }[skill]
    wrong = (rng.gamma(1.0, size=(K, K)) + 0.1) * rng.gamma(3.0, size=(A, K, K)) * (1 - np.eye(K))
    matrix = wrong / wrong.sum(axis=2, keepdims=True) * (1 - right)[:, :, None] + right[:, :, None] * np.eye(K)
    difficulty = 0.5 * rng.random(I) ** (0.5 / hard - 1) if hard else np.zeros(I)
    decoy = (truth + rng.integers(1, K, I)) % K
    seen = np.where(rng.random(item.size) < difficulty[item], decoy[item], truth[item])
    label = (rng.random((item.size, 1)) > np.cumsum(matrix[who, seen], axis=1)[:, :-1]).sum(axis=1)
    return Annotations.from_arrays(item, who, label, classes=np.arange(K))


def flagged(found: Diagnosis) -> Any:
    return np.array([not {"unrelated", "contrary"}.isdisjoint(flags) for flags in found.flags])


def flags(seeds: int, sets: dict[str, Any]) -> None:
    """Print false flags and recall."""
    rng, by = np.random.default_rng(0), defaultdict(lambda: np.zeros(2, int))
    cells = 0
    while cells < 8 * seeds:
        labels = LABELS[cells % len(LABELS)]
        A, prevalence = (rng.choice(one).item() for one in (CROWD_SIZES, PREVALENCES))
        K, per_item, hard = (rng.choice(one).item() for one in ((2, 2, 3, 5, 10), (3, 5, 10), (0.0, 0.1, 0.2)))
        skill = str(rng.choice(["95/75", "mixed", "poor", "good"]))
        if A * labels > MAX_SIMULATED_ROWS:
            continue
        cells += 1
        for _ in range(max(1, 100 // A)):
            table = honest_crowd(A, labels, per_item, K, prevalence, skill, hard, int(rng.integers(2**31)))
            count = np.array([flagged(dz.diagnose(table, threads=1)).sum(), A])
            for kind in (
                ("all", ""),
                ("labels", labels),
                ("prevalence", prevalence),
                ("classes", K),
                ("skill", skill),
                ("annotators", A),
            ):
                by[kind] += count
    print(f"honest annotators flagged, {cells} kinds of simulated crowds:")
    for (kind, value), (bad, of) in sorted(by.items(), key=str):
        print(f"  {kind} {value}: {bad} of {of:,} ({100 * bad / of:.2f} %)")
    total = np.zeros(2, int)
    for name, data in sets.items():
        if data.gold is None:
            continue
        table = data.annotations
        hits, n = right_of(table, data.gold, np.ones(len(table), bool))
        good = (n >= 5) & (hits / np.maximum(n, 1) > hits.sum() / n.sum())
        bad = flagged(dz.diagnose(table, threads=1))
        total += [(bad & good).sum(), good.sum()]
        print(f"  {name}: above the mean {(bad & good).sum()} of {good.sum()} flagged, of others {(bad & ~good).sum()}")
    print(f"  real sets, above their crowd's mean: {total[0]} of {total[1]:,} ({100 * total[0] / total[1]:.2f} %)")
    there, found, wrong = defaultdict(int), defaultdict(int), 0
    for seed in range(seeds):
        data = make_digits_crowd(seed)
        table, kind = data.annotations, np.array(data.annotators["kind"].to_pylist())
        order = np.lexsort((np.random.default_rng(seed).random(len(table)), table.annotator))
        rank = np.empty(len(table), np.int64)
        rank[order] = np.arange(len(table)) - table.annotator_ptr[table.annotator[order]]
        bad = flagged(dz.diagnose(table.select(rows=~np.isin(kind, SUSPECT)[table.annotator] | (rank < 40)), threads=1))
        for one in SUSPECT:
            there[one], found[one] = there[one] + (kind == one).sum(), found[one] + bad[kind == one].sum()
        wrong += bad[~np.isin(kind, SUSPECT)].sum()
    parts = ", ".join(f"{one} {found[one]}/{there[one]}" for one in SUSPECT)
    recall = sum(found.values()) / sum(there.values())
    print(
        f"digits-crowd, 40 labels each, {seeds} seeds: recall {recall:.3f} ({parts}); honest flagged {wrong}",
        flush=True,
    )


# Copiers --------------------------------------------------------------------------------------------------------------


def copying_crowd(A: int, I: int, K: int, share: float, leaders: int, seed: int) -> tuple[Annotations, Any, Any]:
    """Table, leader of each annotator, truth.

    Ten labels an item; a share of the crowd copies, 95 times of 100, leaders who are right six times of ten.
    """
    crowd = make_crowd(A, K, kinds={"ordinary": 0.7, "expert": 0.15, "specialist": 0.15}, seed=seed)
    rng = np.random.default_rng(seed + 1000)
    answers, leader, copying = crowd.answers.copy(), np.full(A, -1, np.int32), np.ones(A)
    for group in np.array_split(rng.permutation(A)[: round(share * A)], leaders):
        leader[group], copying[group[1:]] = group[0], 0.95
        right = np.clip(rng.beta(12, 8, K), 0.05, 0.95)
        wrong = rng.gamma(1.0, size=(K, K)) * (1 - np.eye(K))
        answers[group[0]] = wrong / wrong.sum(axis=1, keepdims=True) * (1 - right)[:, None] + np.diag(right)
    crowd = dataclasses.replace(crowd, answers=answers, leader=leader, copying=copying)
    truth, difficulty = rng.integers(0, K, I), 0.5 * rng.random(I) ** 4
    decoy = (truth + rng.integers(1, K, I)) % K
    return (
        annotate(crowd, truth, difficulty=difficulty, decoy=decoy, redundancy=10, seed=seed).annotations,
        leader,
        truth,
    )


def real_copying_crowd(data: Any, share: float, seed: int) -> tuple[Annotations, Any]:
    """Table and who copies: a real set at ten labels an item, in which a share of the annotators copies as above."""
    full, rng = data.annotations, np.random.default_rng(seed)
    table = full.subsample(10, [seed, 10]) if np.diff(full.item_ptr).mean() > 10 else full
    K, who = table.n_classes, rng.permutation(np.flatnonzero(np.diff(table.annotator_ptr)))
    copies = np.isin(np.arange(table.n_annotators), who[: round(share * who.size)])
    right = np.where(data.gold >= 0, data.gold, rng.integers(0, K, table.n_items))
    said = np.where(rng.random(table.n_items) < 0.6, right, (right + rng.integers(1, K, table.n_items)) % K)
    copied = copies[table.annotator] & (rng.random(len(table)) < 0.95)
    label = np.where(copied, said[table.item], table.label)
    return Annotations.from_arrays(table.item, table.annotator, label, classes=np.arange(K)), copies[np.sort(who)]


def copiers(seeds: int, sets: dict[str, Any]) -> None:
    """Print recall and false groups."""
    crowds: dict[str, Any] = {}
    for A, I, K in ((60, 500, 2), (110, 1000, 4), (164, 800, 2)):
        for share, leaders in ((0.2, 1), (0.4, 1), (0.4, 3)):
            crowds[f"{A} annotators, {I} items, {K} classes, {share:.0%} copy {leaders}"] = (
                lambda seed, drawn=(A, I, K, share, leaders): copying_crowd(*drawn, seed)[:2]
            )
    for name in REAL_CROWDS:
        for share in (0.2, 0.4) if name in sets else ():
            crowds[f"{name}, {share:.0%} copy 1"] = lambda seed, data=sets[name], share=share: real_copying_crowd(
                data, share, seed
            )
    for title, crowd in crowds.items():
        count = np.zeros((3, 2), int)  # copiers, copiers with ten labels, others: found, and all
        for seed in range(seeds):
            table, leader = crowd(seed)
            member = np.zeros(table.n_annotators, bool)
            member[[code for group in find_copies(table).groups for code in group]] = True
            copies = leader if leader.dtype == bool else leader >= 0
            for row, some in enumerate((copies, copies & (np.diff(table.annotator_ptr) >= 10), ~copies)):
                count[row] += [(member & some).sum(), some.sum()]
        (found, there), (busy_found, busy), (wrong, others) = count
        print(
            f"{title}: found {found / there:.1%}, of those with ten labels {busy_found / max(busy, 1):.1%}; "
            f"{wrong} others of {others:,}", flush=True,
        )  # fmt: skip
    for name, data in sets.items():
        began, table = time.perf_counter(), data.annotations
        groups = find_copies(table).groups
        said = ""
        if data.gold is not None and groups:
            said = "; same wrong label: " + ", ".join(same_mistakes(table, data.gold, group[:2]) for group in groups)
        print(
            f"{name}: groups {[len(group) for group in groups]}{said} ({time.perf_counter() - began:.1f} s)", flush=True
        )


def same_mistakes(table: Annotations, gold: Any, two: Any) -> str:
    """On how many of the items that two get wrong they give the same label."""
    rows = [np.flatnonzero(table.annotator == code) for code in two]
    _, first, second = np.intersect1d(table.item[rows[0]], table.item[rows[1]], return_indices=True)
    one, other = table.label[rows[0][first]], table.label[rows[1][second]]
    truth = gold[table.item[rows[0][first]]]
    wrong = (truth >= 0) & (one != truth) & (other != truth)
    return f"{(one == other)[wrong].sum()} of {wrong.sum()}"


# Intervals ------------------------------------------------------------------------------------------------------------


def coverage(mean: Any, size: Any, hits: Any, n: Any) -> tuple[float, float]:
    """Share of annotators covered, with and without their own luck."""
    some = (n >= 10) & (size > 0)
    a, b, k, m = (one[some] for one in (mean * size, (1 - mean) * size, hits, n))
    low, high = betabinom.cdf(k, m, a, b), betabinom.sf(k - 1, m, a, b)
    bounds, many = beta_interval(mean[some], size[some], 0.95), m >= 100
    bare = ((k / m >= bounds[:, 0]) & (k / m <= bounds[:, 1]))[many]
    return float(((low >= 0.025) & (high >= 0.025)).mean()), float(bare.mean()) if many.any() else np.nan


def intervals(seeds: int, sets: dict[str, Any]) -> None:
    """Print coverage by gold on held-out halves."""
    results = defaultdict(list)
    for name, data in sets.items():
        if data.gold is None or data.annotations.n_annotators < 2:
            continue
        table, row = data.annotations, defaultdict(list)
        for seed in range(min(seeds, 3)):
            half = np.random.default_rng(seed).random(table.n_items) < 0.5
            part = dataclasses.replace(table.select(items=half))
            before = DawidSkene(threads=1, dependence=None).fit(part)
            now = dz.methods[DEFAULT_METHOD](threads=1).fit(part)
            hits, n = right_of(table, data.gold, ~half[table.item])
            at = np.searchsorted(table.annotators, part.annotators)
            hits, n = hits[at], n[at]
            row["before"].append(coverage(before.reliability_, before.total_ + CROWD_PSEUDO_LABELS, hits, n))
            row["independent"].append(coverage(before.reliability_, equivalent_gold_labels(before.total_), hits, n))
            row["now"].append(coverage(now.reliability_, equivalent_gold_labels(now.total_), hits, n))
        said = []
        for kind, values in row.items():
            mean = np.nanmean(values, axis=0) if not np.isnan(values).all() else [np.nan] * 2
            results[kind].append(mean)
            said.append(f"{kind} {mean[0]:.1%} (bare {mean[1]:.0%})")
        print(f"{name}: {', '.join(said)}", flush=True)
    for kind, values in results.items():
        predictive, bare = np.array(values).T
        print(
            f"{kind}: coverage {predictive.mean():.1%}, worst set {predictive.min():.1%}; bare {np.nanmean(bare):.1%}, "
            f"worst set {np.nanmin(bare):.1%}"
        )


def main() -> None:
    """Print the parts that are asked for, or all."""
    parts = {"flags": flags, "copiers": copiers, "intervals": intervals}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; all unless given")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = real_sets()
    for name in asked.parts or parts:
        print(f"# {name}")
        parts[name](asked.seeds, sets)


if __name__ == "__main__":
    main()
