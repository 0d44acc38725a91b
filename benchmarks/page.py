"""Write docs/benchmarks.md, which compares speed, memory and accuracy with other libraries, from stored results.

    python -m benchmarks.page

Figures are those of the last run in `benchmarks/speed/results` and `benchmarks/accuracy/results`, with its date and
commit. No benchmark is run.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from reproductions import record

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
MAX_P = 0.05
LIBRARIES = ("crowd-kit", "peerannot", "cleanlab", "snorkel")
ALL_LABELS = "0"  # The level with all labels.
MB, GB = 1e6, 1e9  # bytes


def stored(part: str, name: str) -> dict[str, Any]:
    """Return the last complete run of a benchmark."""
    return record.read_store(FOLDER / part / "results" / f"{name}.jsonl")[name]


def describe_run(run: dict[str, Any]) -> str:
    """Return date, commit and machine of a run, and of results that it kept from an earlier run."""
    made = run["made"]
    text = f"{made['date']}, commit {record.commit_text(made)}, {made['cpu']}, {made['cores']} cores"
    if made.get("others", 0) > record.MAX_BUSY_SHARE:
        text += ", busy with other work: **its times are preliminary**"
    if "rest" in made:
        text += f"; methods that did not change since are of {made['rest']['date']}, commit {made['rest']['commit']}"
    return text


def three_digits(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def speed_section() -> list[str]:
    """Return the tables of speed: Dawid-Skene at three sizes, and every method that a peer has too."""
    run, methods = stored("speed", "speed"), stored("speed", "methods")
    rows = []
    for size in run["sizes"]:
        cases = [case for case in size["cases"] if case["converged"]]
        ours = next(case["converged"] for case in cases if case["library"] == "dissensus" and case["threads"] == 2)
        for case in cases:
            result = case["converged"]
            rows.append([
                size["size"]["title"], case["library"], str(case["threads"]), three_digits(result["seconds"]),
                f"{result['peak_bytes'] / GB:.2f}", f"{100 * result['score']:.2f}",
                "–" if case["library"] == "dissensus" else f"{result['seconds'] / ours['seconds']:.0f}×",
            ])  # fmt: skip
    header = ["annotations", "library", "threads", "seconds", "peak GB", "right, %", "times ours (2 threads)"]
    section = [f"Dawid-Skene to convergence ({describe_run(run)}):", record.markdown_table(header, rows, 2)]
    rows = []
    for name, result in methods["methods"].items():
        if not (theirs := result.get("theirs")):
            continue
        ours, peer = result["ours"]["2"]["converged"], theirs["converged"]
        scaled = "≈ " if theirs["at"] != 1 or theirs["note"] else ""
        our_score = theirs.get("our_score", ours["score"])
        rows.append([
            name, three_digits(ours["seconds"]), f"{scaled}{three_digits(peer['seconds'])}",
            f"{scaled}{three_digits(peer['seconds'] / ours['seconds'])}×", f"{ours['peak_bytes'] / MB:.0f}",
            "–" if theirs["at"] != 1 else f"{peer['peak_bytes'] / MB:.0f}",
            f"{100 * our_score:.2f}", f"{100 * peer['score']:.2f}{' ▼' if peer['score'] > our_score + 5e-5 else ''}",
        ])  # fmt: skip
    header = ["method", "seconds", "crowd-kit", "ratio", "peak MB", "crowd-kit", "right, %", "crowd-kit"]
    section += [
        f"Methods that crowd-kit also has, with 1M annotations; dissensus uses two threads ({describe_run(methods)}). "
        "≈ marks times that were extrapolated from a smaller table or from one of ten restarts:",
        record.markdown_table(header, rows, 1),
    ]
    return section


def compare_pairs(run: dict[str, Any]) -> dict[tuple[str, str], dict[str, list[Any]]]:
    """Return scores, time ratios and significant differences of each pair of our method and a peer's."""
    pairs: dict[tuple[str, str], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in run["sets"]:
        title = row["set"] + (f" {row['gold']}" if row["gold"] else "")
        for level, results in row["levels"].items():
            seen = set()
            for test in results["tests"]:
                pair = test["ours"], test["rival"]
                if not test["rival"].startswith(LIBRARIES):
                    continue
                ours, theirs = (results["methods"][name] for name in pair)
                if pair not in seen:
                    seen.add(pair)
                    pairs[pair]["accuracy"].append((ours["accuracy"], theirs["accuracy"]))
                    pairs[pair]["time"].append(theirs["seconds"] / ours["seconds"])
                    if None not in (ours["log_likelihood"], theirs["log_likelihood"]):
                        pairs[pair]["loss"].append((-ours["log_likelihood"], -theirs["log_likelihood"]))
                if test["p"] < MAX_P:
                    outcome = "better" if test["difference"] > 0 else "worse"
                    labels = "all" if level == ALL_LABELS else level
                    case = title, labels, abs(test["difference"])
                    pairs[pair][f"{test['score']} {outcome}"].append(case)
    return pairs


def accuracy_section() -> list[str]:
    """Return the tables of accuracy: each method next to a peer's, and every significant loss of ours."""
    run = stored("accuracy", "accuracy")
    pairs = compare_pairs(run)
    rows = []
    for (name, rival), result in sorted(pairs.items()):
        right = [100 * mean(column) for column in zip(*result["accuracy"], strict=True)]
        loss = [mean(column) for column in zip(*result["loss"], strict=True)] if result["loss"] else None
        counts = [
            f"{len(result[f'{score} {outcome}'])}"
            for score in ("accuracy", "log_likelihood")
            for outcome in ("better", "worse")
        ]
        cells = [name, rival, str(len(result["accuracy"]))]
        cells += [f"{right[0]:.2f}", f"{right[1]:.2f}{' ▼' if right[1] > right[0] + 5e-3 else ''}"]
        cells.append(f"{counts[0]}/{counts[1]}")
        if loss is None:
            cells += ["–", "–", "–"]
        else:
            cells += [f"{loss[0]:.3f}", f"{loss[1]:.3f}{' ▼' if loss[1] < loss[0] - 5e-4 else ''}"]
            cells.append(f"{counts[2]}/{counts[3]}")
        rows.append([*cells, f"{three_digits(median(result['time']))}×"])
    header = [
        "ours", "peer", "tables", "right, %", "peer", "better/worse", "log loss", "peer", "better/worse",
        "time of the peer",
    ]  # fmt: skip
    section = [
        f"There are {len(run['sets'])} tables of gold for {len({row['set'] for row in run['sets']})} data sets, with "
        f"2, 5, 10 and all labels per item ({describe_run(run)}). Figures are means over tables that both finished. "
        f"*Better/worse* counts significant differences (paired bootstrap over items, p < {MAX_P:g}), and ▼ marks "
        "means in which the peer is ahead. Times are median ratios, ours on all cores and the peer's on one.",
        record.markdown_table(header, rows, 2),
        f"Tables that a peer did not finish in the time allowed, or on which it failed: {count_failures(run)}.",
    ]
    for score, title, header, scale in (
        ("accuracy", "Where a peer is significantly more often right", "by, points", 100),
        ("log_likelihood", "Where a peer has a significantly lower log loss", "by", 1),
    ):
        rows = [
            [name, rival, list_cases(worse), spread([scale * gap for *_, gap in worse], score)]
            for (name, rival), result in sorted(pairs.items())
            if (worse := sorted(result[f"{score} worse"]))
        ]
        section += [
            f"### {title}",
            record.markdown_table(["ours", "peer", "data set (labels per item)", header], rows, 3),
        ]
    return section


def list_cases(cases: list[tuple[str, str, float]]) -> str:
    """Return the data sets of some cases, each with its numbers of labels per item."""
    by_title = defaultdict(list)
    for title, labels, _ in cases:
        by_title[title].append(labels)
    return ", ".join(f"{title} ({', '.join(labels)})" for title, labels in by_title.items())


def spread(gaps: list[float], score: str) -> str:
    """Return the smallest and the largest gap in words."""
    digits = 1 if score == "accuracy" else 3
    low, high = f"{min(gaps):.{digits}f}", f"{max(gaps):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def count_failures(run: dict[str, Any]) -> str:
    """Return how many tables each method of a peer did not finish."""
    failed = defaultdict(set)
    for row in run["sets"]:
        for results in row["levels"].values():
            for name, result in results["methods"].items():
                if name.startswith(LIBRARIES) and result.get("error"):
                    failed[name].add(row["set"])
    return ", ".join(f"{name} {len(sets)}" for name, sets in sorted(failed.items()))


def main() -> None:
    """Write the generated parts of the page."""
    for name, made in {"speed": speed_section, "accuracy": accuracy_section}.items():
        record.replace_between_marks(PAGE, name, "\n\n".join(made()))
    versions = stored("accuracy", "accuracy")["versions"]
    peers = ", ".join(f"{name} {versions[name][name]}" for name in LIBRARIES)
    record.replace_between_marks(
        PAGE, "peers", f"Peers: {peers}, each in an environment of its own (`benchmarks/peers/`)."
    )


if __name__ == "__main__":
    main()
