"""Methods × data sets × redundancy: accuracy, log loss, Brier score, seconds; ours and our peers' in one run.

    python -m benchmarks.accuracy.run [--only rte labelme …] [--methods wawa kos …] [--seeds 6] [--limit 10]

from the repository's root, with DISSENSUS_DATA naming the data folder. Writes `results/` and, where all sets were run
with the defaults, the tables of README.md. With `--methods` all else is kept from the run before.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control, t

import dissensus as dz
from benchmarks import peers
from dissensus.evaluation import paired_bootstrap
from dissensus.table.datasets import load_dataset
from reproductions import record

FOLDER = Path(__file__).parent
MIN_PROBABILITY = 1e-15  # Probabilities are clipped here in a log loss, for every library.
TIE_TOLERANCE = 1e-9  # probabilities this close to the largest are tied with it
FULL = 0  # the level of redundancy that is all there is
LEVELS = (2, 5, 10, FULL)
SEEDS = 6  # an even number: see `numbering`
PEER_FIT_SECONDS = 10.0  # Processor time of one fit of a peer.
OUR_FIT_SECONDS = 60.0  # our own methods are to have all their cells
CELL_SECONDS = 2.0  # Time for the seeds of one method at one level; later seeds are skipped.
MAX_P, RESAMPLES = 0.05, 2000


@dataclass(frozen=True)
class Method:
    """One row of the tables."""

    library: str  # A name in peers.PEERS.
    method: str
    title: str
    params: dict[str, Any] = field(default_factory=dict)
    levels: tuple[int, ...] = LEVELS
    counterpart: bool = True  # whether our method of that name is the same method, and compared with it

    @property
    def ours(self) -> bool:
        """True if it is our own method."""
        return self.library == "dissensus"


def theirs(library: str, **titles: str) -> list[Method]:
    """Return a peer's methods; `titles` maps our names, with _ for −, to its own. Majority vote, first, warms up."""
    return [Method(library, name.replace("_", "-"), f"{library} {title}") for name, title in titles.items()]


METHODS = [
    *(Method("dissensus", name, name) for name in dz.methods if not dz.methods.entry(name).facts.get("needs_features")),
    *theirs(
        "crowd-kit",
        majority_vote="MajorityVote",
        wawa="Wawa",
        zero_based_skill="ZeroBasedSkill",
        dawid_skene="DawidSkene",
        one_coin="OneCoinDawidSkene",
        kos="KOS",
        glad="GLAD",
        m_msr="MMSR",
    ),
    # its ten restarts all start from the same seed: one gives the same answer in a tenth of the time
    Method("crowd-kit", "mace", "crowd-kit MACE, one restart", {"n_restarts": 1}),
    Method("crowd-kit", "dawid-skene", "the same, tol=1e-9", {"n_iter": 10_000, "tol": 1e-9}, (FULL,)),
    *theirs(
        "peerannot",
        majority_vote="NaiveSoft",
        wawa="Wawa",
        dawid_skene="DawidSkene",
        glad="GLAD",
        community_bcc="DawidSkeneClust",
    ),
    # ties go to the rarer class, then to the annotators who agree more: more than a vote
    Method("cleanlab", "majority-vote", "cleanlab get_majority_vote_label", counterpart=False),
    *theirs("cleanlab", crowdlab="CROWDLAB on vote shares"),
    *theirs("snorkel", majority_vote="MajorityLabelVoter", metal="LabelModel"),
]
METHODS.sort(key=lambda m: (m.method == "crowdlab", m.method))  # stable: ours, then the peers of the same method


def libraries() -> list[str]:
    """Libraries of the methods that are run."""
    return [library for library in peers.PEERS if any(method.library == library for method in METHODS)]


TWO_GOLDS = (None, "test_partition")  # None for gold.csv.gz, the experts' own
SETS: dict[str, tuple[str | None, ...]] = {  # folder → its golds
    **dict.fromkeys(("rte", "bluebirds", "sentiment_polarity", "gimpel_pos", "labelme", "wordsim"), (None,)),
    **dict.fromkeys(("medical_causes", "medical_treats"), TWO_GOLDS),
    **dict.fromkeys(("cifar10h", "ner_mturk", "plank_pos"), (None,)),
}


# Scores of one fit ----------------------------------------------------------------------------------------------------


@dataclass
class Scored:
    """One fit against one gold, item by item."""

    credit: np.ndarray  # (n,) 1 where the most probable class is the gold one; one of n tied classes counts 1/n
    log_p: np.ndarray | None  # (n,) log P(gold), P no smaller than MIN_PROBABILITY; None: the method gives labels only
    brier: float | None  # mean over items of Σ_c (P(c) − [c is gold])²
    blank: int  # items of all without an answer: not a number, or all zero; scored as if every class were as likely


def score(answer: np.ndarray, scored: np.ndarray, gold: np.ndarray, n_classes: int) -> Scored:
    answer = answer[scored]
    if answer.ndim == 1:
        return Scored((answer == gold).astype(float), None, None, int((answer < 0).sum()))
    blank = ~np.isfinite(answer).all(axis=1) | (answer.sum(axis=1) <= 0)
    answer = np.where(blank[:, None], 1 / n_classes, answer)
    tied = answer >= answer.max(axis=1, keepdims=True) * (1 - TIE_TOLERANCE)
    row = np.arange(gold.size)
    return Scored(
        tied[row, gold] / tied.sum(axis=1),
        np.log(np.maximum(answer[row, gold], MIN_PROBABILITY)),
        float(((answer - np.eye(n_classes)[gold]) ** 2).sum(axis=1).mean()),
        int(blank.sum()),
    )


# One set --------------------------------------------------------------------------------------------------------------


@dataclass
class Cell:
    """The fits of one method at one level, by seed."""

    fits: dict[int, dict[str, Any]] = field(default_factory=dict)  # Reports of the worker.
    scores: dict[int, dict[str, Scored]] = field(default_factory=dict)  # Scores of the finished fits, by gold.

    def summary(self, level: int, gold: str) -> dict[str, Any]:
        """Summarise the fits for the results."""
        fits = [self.fits[seed] for seed in self.scores]
        if not fits:
            return {"error": next(iter(self.fits.values()))["error"] if self.fits else "two classes only"}
        scores = [self.scores[seed][gold] for seed in self.scores]
        each = [float(s.credit.mean()) for s in scores]
        spread = float(np.std(each, ddof=1) / math.sqrt(len(each))) if len(each) > 1 else None
        credit = np.mean([s.credit for s in scores], axis=0)
        soft = scores[0].log_p is not None
        failed = [fit["error"] for fit in self.fits.values() if fit["error"] not in (None, "budget")]
        return {
            "accuracy": float(np.mean(each)),
            # one draw of the annotations: what varies is which items there are (the bootstrap's limit in closed form)
            "error_of_accuracy": float(credit.std(ddof=1) / math.sqrt(credit.size)) if level == FULL else spread,
            "spread_over_seeds": spread,
            "log_likelihood": float(np.mean([s.log_p.mean() for s in scores])) if soft else None,
            "brier": float(np.mean([s.brier for s in scores])) if soft else None,
            "seconds": float(np.median([fit["seconds"] for fit in fits])),
            "iterations": float(np.median([fit["iterations"] for fit in fits])),
            "seeds": len(each),
            **({"blank": max(s.blank for s in scores)} if any(s.blank for s in scores) else {}),
            **({"stopped_by_a_fall": True} if (fits[0]["last_rise"] or 0) < 0 else {}),
            **({"failed": failed} if failed else {}),
        }


def binary(method: str) -> bool:
    """Return True if a method supports two classes only."""
    return method == "kos" or (method in dz.methods and bool(dz.methods.entry(method).facts.get("binary")))


@dataclass(frozen=True)
class Draw:
    """Rows of a set on disk, in some order, with its classes numbered in some way."""

    data: peers.Data
    numbers: np.ndarray  # (K,) what each class is called there
    level: int = FULL
    seed: int = 0

    @classmethod
    def write(cls, folder: Path, rows: Any, order: np.ndarray, numbers: np.ndarray, **where: int) -> Draw:
        """Write the rows of a table."""
        columns = rows.item[order], rows.annotator[order], numbers[rows.label[order]]
        return cls(peers.Data.write(folder, *columns, rows.n_items, rows.n_classes), numbers, **where)

    def to_original_classes(self, answer: np.ndarray) -> np.ndarray:
        """Translate a posterior (I, K), or labels (I,), back to the set's own classes."""
        if answer.ndim == 2:
            return answer[:, self.numbers]
        return np.where(answer < 0, -1, np.argsort(self.numbers)[answer])


def plan(library: str, draws: list[Draw], options: argparse.Namespace) -> list[tuple[Draw, str, dict[str, Any]]]:
    """List the fits of a library, draw by draw: the draw, the method's title, and the fit for the protocol."""
    fits = []
    for number, draw in enumerate(draws):
        for method in METHODS:
            if method.library != library or draw.level not in method.levels:
                continue
            if draw.data.n_classes > 2 and binary(method.method):
                continue
            fit = {"method": method.method, "params": method.params | {"seed": draw.seed}, "table": number}
            limit = OUR_FIT_SECONDS if method.ours else options.limit
            fit |= {"limit": limit, "group": f"{method.title} {draw.level}", "budget": CELL_SECONDS}
            fits.append((draw, method.title, fit))
    return fits


def run_set(
    name: str, golds: tuple[str | None, ...], options: argparse.Namespace, versions: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run every method on one set, at every redundancy that it has; return a result for each of its golds."""
    data = load_dataset(name)
    table = data.annotations
    annotated = np.diff(table.item_ptr) > 0
    redundancy = table.n_annotations / annotated.sum()
    levels = [level for level in LEVELS if level < redundancy]  # FULL among them
    levels.sort(
        key=lambda level: level or math.inf
    )  # Small levels first: they show which large ones would exceed their limits.
    known = {}
    for which in golds:
        codes = data.gold if which is None else load_dataset(name, gold=which).gold
        scored = np.flatnonzero((codes >= 0) & annotated)
        known[which or ""] = scored, codes[scored]

    cells: dict[tuple[int, str], Cell] = defaultdict(Cell)
    with tempfile.TemporaryDirectory(prefix="dissensus-set-") as folder:
        draws = []
        for level in levels:
            for seed in range(options.seeds):
                rows = table.subsample(level, seed=seed) if level else table
                order = np.random.default_rng(seed).permutation(rows.n_annotations)
                numbers = numbering(
                    seed, table.n_classes
                )  # Class order must not help a library, as it does for some peers.
                draws.append(Draw.write(Path(folder, f"{level}-{seed}"), rows, order, numbers, level=level, seed=seed))

        def run(library: str) -> None:
            begin = time.perf_counter()
            fits = plan(library, draws, options)

            def against_golds(number: int, answer: np.ndarray) -> dict[str, Scored]:
                answer = fits[number][0].to_original_classes(answer)
                return {which: score(answer, *items, table.n_classes) for which, items in known.items()}

            report, answers = peers.run(
                library,
                [draw.data for draw in draws],
                [fit for *_, fit in fits],
                threads=record.n_cores() if library == "dissensus" else 1,
                use=against_golds,
            )
            versions[library] = report["versions"]
            for (draw, title, _), fit, scores in zip(fits, report["fits"], answers, strict=True):
                cells[draw.level, title].fits[draw.seed] = fit
                if scores is not None:
                    cells[draw.level, title].scores[draw.seed] = scores
            print(f"  [{time.perf_counter() - begin:5.1f} s] {library}: {len(answers)} fits", flush=True)

        run("dissensus")
        with ThreadPoolExecutor(record.n_cores()) as pool:  # the peers work on one core each
            list(pool.map(run, [library for library in libraries() if library != "dissensus"]))
    return [
        {
            "set": name,
            "gold": which,
            "items": table.n_items,
            "annotators": table.n_annotators,
            "annotations": table.n_annotations,
            "classes": table.n_classes,
            "scored": int(known[which or ""][0].size),
            "levels": {
                level: {
                    "methods": {
                        method.title: cells[level, method.title].summary(level, which or "")
                        for method in METHODS
                        if level in method.levels
                    },
                    "tests": list(tests(level, which or "", cells)),
                }
                for level in levels
            },
        }
        for which in golds
    ]


def numbering(seed: int, n_classes: int) -> np.ndarray:
    """Return (K,) the number of each class; an odd seed has the numbers of the seed before in reverse order.

    So who gives a tie to the lowest number gives it to either class equally often.
    """
    numbers = np.random.default_rng(seed - seed % 2).permutation(n_classes)
    return n_classes - 1 - numbers if seed % 2 else numbers


def with_draws(differences: np.ndarray) -> float | None:
    """p-value of the mean of differences (S, n) by seed and item, both of which could have been others.

    Their variances are added, degrees of freedom by Welch and Satterthwaite. None for one seed.
    """
    seeds, items = differences.shape
    if seeds < 2 or items < 2:
        return None
    of_items = float(differences.mean(axis=0).var(ddof=1) / items)
    of_seeds = float(differences.mean(axis=1).var(ddof=1) / seeds)
    both = of_items + of_seeds
    if both == 0:
        return 1.0
    freedom = both**2 / (of_items**2 / (items - 1) + of_seeds**2 / (seeds - 1))
    return float(2 * t.sf(abs(differences.mean()) / math.sqrt(both), freedom))


def tests(level: int, gold: str, cells: dict[tuple[int, str], Cell]) -> Iterator[dict[str, Any]]:
    """Ours against each peer's same method and against our majority vote, on the same seeds and items.

    What an item is worth is averaged over the seeds that both have done; items are what is drawn again. `p_draws` has
    the seeds drawn again as well.
    """
    for ours in METHODS:
        if not ours.ours or level not in ours.levels:
            continue
        rivals = [m for m in METHODS if m.method == ours.method and not m.ours and m.counterpart and level in m.levels]
        rivals += [m for m in METHODS if m.ours and m.method == "majority-vote" and m != ours]
        for rival in rivals:
            first, second = (cells[level, method.title].scores for method in (ours, rival))
            seeds = sorted(set(first) & set(second))
            if not seeds:
                continue
            for key in ("credit", "log_p"):
                sides = [[getattr(side[seed][gold], key) for seed in seeds] for side in (first, second)]
                if any(values[0] is None for values in sides):
                    continue
                found = paired_bootstrap(*(np.mean(values, axis=0) for values in sides), resamples=RESAMPLES)
                yield {
                    "ours": ours.title,
                    "rival": rival.title,
                    "score": "accuracy" if key == "credit" else "log_likelihood",
                    "difference": found.mean.value,
                    "low": found.mean.low,
                    "high": found.mean.high,
                    "p": found.p_value,
                    "p_draws": with_draws(np.subtract(*(np.stack(values) for values in sides))),
                    "seeds": len(seeds),
                }


# Tables ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """One kind of table."""

    key: str
    title: str
    show: Callable[[float], str]
    sign: int  # +1: more is better
    levels: tuple[int, ...] = (FULL,)
    tested: str | None = None  # the score whose tests mark its cells
    error: str | None = None  # Key of its standard error.


FIGURES = [
    Figure(
        "accuracy",
        "Accuracy (%)",
        lambda x: f"{100 * x:.2f}",
        +1,
        (FULL, 10, 5, 2),
        "accuracy",
        "error_of_accuracy",
    ),
    Figure("log_likelihood", "Log loss", lambda x: f"{-x:.3f}", -1, (FULL, 10, 5, 2), "log_likelihood"),
    Figure("brier", "Brier score", lambda x: f"{x:.3f}", -1),
    Figure("seconds", "Milliseconds to fit", lambda x: f"{1e3 * x:.1f}", -1),
    Figure("iterations", "Iterations", lambda x: f"{x:.0f}", 0),
]


def titles(rows: list[dict[str, Any]]) -> list[str]:
    return [row["set"] + (f" ({row['gold']})" if row["gold"] else "") for row in rows]


def column(row: dict[str, Any], figure: Figure, level: int) -> list[str]:
    """Figures of one set, one per method, the best in bold; README.md explains the marks."""
    of_level = row["levels"][level]
    marks: dict[str, str] = defaultdict(str)
    for test in of_level["tests"]:
        if test["score"] == figure.tested and test["difference"] < 0 and test["p"] < MAX_P:
            mark = " ▽" if test["rival"] == "majority-vote" else " ▼"
            marks[test["ours"]] += mark if mark not in marks[test["ours"]] else ""
    shown: dict[str, str] = {}
    for method in METHODS:
        result = of_level["methods"].get(method.title, {})
        if result.get(figure.key) is not None:
            shown[method.title] = figure.show(result[figure.key])
    best = max((figure.sign * float(text) for text in shown.values()), default=0.0)
    out = []
    for method in METHODS:
        result = of_level["methods"].get(method.title)
        if method.title not in shown:
            out.append("–" if result is None else brief(result.get("error")))
            continue
        cell = text = shown[method.title]
        if figure.error and result[figure.error] is not None:
            cell += f" ± {figure.show(result[figure.error])}"
        if figure.sign and figure.sign * float(text) == best:
            cell = f"**{cell}**"
        if figure.error and result["seeds"] < SEEDS and level != FULL:
            cell += f" ({result['seeds']})"
        if figure.key == "iterations" and result.get("stopped_by_a_fall"):
            cell += " ↓"
        out.append(cell + marks[method.title])
    return out


def brief(error: str | None) -> str:
    """Say in few words why a cell is empty."""
    if error is None:
        return "–"  # labels only
    return error if error[0] in ">≈nt" and len(error) < 40 else error.split(":")[0]


def tables(rows: list[dict[str, Any]]) -> list[str]:
    """Return tables of all figures at all levels, the verdict, the failures, and the sizes of the sets."""
    text = []
    for figure in FIGURES:
        for level in figure.levels:
            there = [row for row in rows if level in row["levels"]]
            if not there:
                continue
            at = f" at redundancy {level}" if level else ""
            body = [
                [method.title if method.ours else f"· {method.title}"] for method in METHODS if level in method.levels
            ]
            kept = [level in method.levels for method in METHODS]
            for row in there:
                cells = [cell for cell, keep in zip(column(row, figure, level), kept, strict=True) if keep]
                for line, cell in zip(body, cells, strict=True):
                    line.append(cell)
            text.append(record.markdown_table([figure.title + at, *titles(there)], body))
    text += [verdict(rows), failures(rows)]
    head = ["Set", "items", "annotators", "annotations", "classes", "items scored"]
    columns = ("items", "annotators", "annotations", "classes", "scored")
    body = [[t, *(f"{row[c]:,}" for c in columns)] for t, row in zip(titles(rows), rows, strict=True)]
    text.append(record.markdown_table(head, body))
    return text


def verdict(rows: list[dict[str, Any]]) -> str:
    """Count how often ours is above and below a peer's same method; list every case where it is significantly below."""
    text = []
    for figure in FIGURES:
        if figure.tested is None:
            continue
        found = [
            (title, level, test)
            for title, row in zip(titles(rows), rows, strict=True)
            for level, of_level in row["levels"].items()
            for test in of_level["tests"]
            if test["score"] == figure.tested and test["rival"] != "majority-vote"
        ]
        if not found:
            continue
        corrected = false_discovery_control([test["p"] for _, _, test in found])
        left = [test for (_, _, test), q in zip(found, corrected, strict=True) if test["difference"] < 0 and q < MAX_P]
        drawn = [test for test in left if test.get("p_draws") is not None]
        certain = sum(test["p_draws"] < MAX_P for test in drawn)
        significant = [test for _, _, test in found if test["p"] < MAX_P]
        above = sum(test["difference"] > 0 for test in significant)
        below = len(significant) - above
        text.append(
            f"{figure.title}: of {len(found)} comparisons with the same method of a peer, ours is significantly better "
            f"in {above} and worse in {below} (p < {MAX_P:g}); were there no difference at all, about "
            f"{len(found) * MAX_P / 2:.0f} of either kind would be expected. Corrected for the number of tests "
            f"(Benjamini & Hochberg), {len(left)} of those where ours is worse remain; "
            f"{len(left) - len(drawn)} of them rest on one draw, and of the others {certain} are "
            "significant if draws, numberings and seeds could have been others too."
        )
        body = [
            [
                title,
                str(level) if level else "all",
                test["ours"],
                test["rival"],
                f"{test['difference']:.4f}",
                f"{test['low']:.4f} … {test['high']:.4f}",
                f"{test['p']:.4f}",
                f"{q:.3f}",
                "–" if test.get("p_draws") is None else f"{test['p_draws']:.4f}",
                str(test["seeds"]),
            ]
            for (title, level, test), q in zip(found, corrected, strict=True)
            if test["difference"] < 0 and test["p"] < MAX_P
        ]
        head = ["Set", "redundancy", "ours", "below", f"difference in {figure.tested.replace('_', ' ')}"]
        if body:
            head += [
                "95% interval",
                "p",
                "p, corrected for the number of tests",
                "p, draws could be others too",
                "seeds",
            ]
            text.append(record.markdown_table(head, body, 4))
    return "\n\n".join(text)


def failures(rows: list[dict[str, Any]]) -> str:
    """List what went wrong in a method, and on which sets; limits of size and time stand in the cells."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for title, row in zip(titles(rows), rows, strict=True):
        for level, of_level in row["levels"].items():
            at = f"{title} at {level}" if level else title
            for name, result in of_level["methods"].items():
                for error in dict.fromkeys(
                    [*result.get("failed", []), *([result["error"]] if "error" in result else [])]
                ):
                    if error[0] not in ">≈" and not error.startswith(("needs a dense", "two classes")):
                        places[name, error.splitlines()[0][:100]].append(at)
                if "blank" in result:
                    places[name, "items without an answer, scored as if all classes were as likely"].append(
                        f"{at} ({result['blank']} of {row['scored']})"
                    )
    if not places:
        return "No method failed."
    body = [[name, f"`{error}`" if ":" in error else error, "; ".join(at)] for (name, error), at in places.items()]
    return record.markdown_table(["Method", "what went wrong", "where"], body, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="SET", help="only these sets; the tables stay as they are")
    parser.add_argument(
        "--methods", nargs="+", choices=list(dz.methods), help="only these of ours, and the peers' same"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--limit", type=float, default=PEER_FIT_SECONDS, help="processor seconds that a fit of a peer may take"
    )
    parser.add_argument(
        "--readme", type=Path, help="write the tables of these options into this file, and the results next to it"
    )
    options = parser.parse_args()
    shown = list(METHODS)
    if options.methods:  # our majority vote is what all are tested against
        METHODS[:] = [m for m in METHODS if m.method in options.methods or (m.ours and m.method == "majority-vote")]
    for library in libraries():
        peers.environment(library)
    made, versions, rows = record.provenance(busy=True), {}, []
    begin = time.perf_counter()
    for name, golds in SETS.items():
        if options.only and name not in options.only:
            continue
        print(name, flush=True)
        rows += run_set(name, golds, options, versions)
        print("\n\n".join(tables(rows[-len(golds) :])), flush=True)
    print(f"{(time.perf_counter() - begin) / 60:.1f} minutes")
    whole = not options.only and options.seeds == SEEDS
    METHODS[:] = shown
    of_today: list[str] = []
    if whole and options.methods:
        earlier = record.read_store(record.store_path(FOLDER, "accuracy"))["accuracy"]
        asked = {method.title for method in METHODS if method.method in options.methods}
        keep_rest(rows, earlier["sets"], asked)
        versions = earlier["versions"] | versions
        there = {title for row in rows for of_level in row["levels"].values() for title in of_level["methods"]}
        METHODS[:] = [method for method in METHODS if method.title in there]  # others came after that run
        again, rest = ", ".join(options.methods), earlier["made"]
        made |= {"again": options.methods, "rest": {key: rest[key] for key in ("date", "commit")}}
        of_today = [f"This is of {again} and the peers' same; all else is of {rest['date']}, commit {rest['commit']}."]
    if whole or options.readme:
        content = {
            "versions": versions,
            "clip": MIN_PROBABILITY,
            "seeds": SEEDS,
            "limit": options.limit,
            "sets": rounded(rows),
        }
        readme = options.readme or FOLDER / "README.md"
        record.publish(readme, "accuracy", made, content, [*of_today, *tables(rows)], versions)


def keep_rest(rows: list[dict[str, Any]], earlier: list[dict[str, Any]], asked: set[str]) -> None:
    """Put into `rows` an earlier run's methods and tests, but for those that were asked for."""
    for row, before in zip(rows, earlier, strict=True):
        for level, of_level in row["levels"].items():
            old = before["levels"][str(level)]
            again = {title: found for title, found in of_level["methods"].items() if title in asked}
            of_level["methods"] = old["methods"] | again
            tests = [test for test in of_level["tests"] if test["ours"] in asked]
            of_level["tests"] = tests + [test for test in old["tests"] if test["ours"] not in asked]


def rounded(content: Any) -> Any:
    """Round every number to five digits."""
    if isinstance(content, float):
        return float(f"{content:.5g}")
    if isinstance(content, dict):
        return {key: rounded(value) for key, value in content.items()}
    return [rounded(value) for value in content] if isinstance(content, list) else content


if __name__ == "__main__":
    main()
