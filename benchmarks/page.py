"""Write docs/benchmarks.md: speed, memory and accuracy compared with every peer, from stored results.

    python -m benchmarks.page

Every figure is of the last run that `benchmarks/speed/results` and `benchmarks/accuracy/results` hold, with its date
and commit.
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
ALL = "0"  # The level with all labels.
MB, GB = 1e6, 1e9  # bytes


def stored(part: str, name: str) -> dict[str, Any]:
    """The last whole run."""
    return record.read_store(FOLDER / part / "results" / f"{name}.jsonl")[name]


def when(run: dict[str, Any]) -> str:
    """Date, commit and machine of a run, and of what it kept from the run before."""
    made = run["made"]
    text = f"{made['date']}, commit {record.commit_text(made)}, {made['cpu']}, {made['cores']} cores"
    if made.get("others", 0) > record.MAX_BUSY_SHARE:
        text += ", busy with other work: **its times are preliminary**"
    if "rest" in made:
        text += f"; methods that did not change since are of {made['rest']['date']}, commit {made['rest']['commit']}"
    return text


def three(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def speed() -> list[str]:
    """Dawid-Skene at three sizes, then every method that a peer has too."""
    run, methods = stored("speed", "speed"), stored("speed", "methods")
    rows = []
    for size in run["sizes"]:
        cases = [case for case in size["cases"] if case["converged"]]
        ours = next(case["converged"] for case in cases if case["library"] == "dissensus" and case["threads"] == 2)
        for case in cases:
            one = case["converged"]
            rows.append([
                size["size"]["title"], case["library"], str(case["threads"]), three(one["seconds"]),
                f"{one['peak_bytes'] / GB:.2f}", f"{100 * one['score']:.2f}",
                "–" if case["library"] == "dissensus" else f"{one['seconds'] / ours['seconds']:.0f}×",
            ])  # fmt: skip
    head = ["annotations", "library", "threads", "s to converge", "peak GB", "right, %", "time, by ours on 2 threads"]
    out = [f"Dawid-Skene, to convergence ({when(run)}):", record.markdown_table(head, rows, 2)]
    rows = []
    for name, found in methods["methods"].items():
        if not (theirs := found.get("theirs")):
            continue
        ours, peer = found["ours"]["2"]["converged"], theirs["converged"]
        about = "≈ " if theirs["at"] != 1 or theirs["note"] else ""
        ours_there = theirs.get("our_score", ours["score"])
        rows.append([
            name, three(ours["seconds"]), f"{about}{three(peer['seconds'])}",
            f"{about}{three(peer['seconds'] / ours['seconds'])}×", f"{ours['peak_bytes'] / MB:.0f}",
            "–" if theirs["at"] != 1 else f"{peer['peak_bytes'] / MB:.0f}",
            f"{100 * ours_there:.2f}", f"{100 * peer['score']:.2f}{' ▼' if peer['score'] > ours_there + 5e-5 else ''}",
        ])  # fmt: skip
    head = ["method", "ours, s", "crowd-kit, s", "ratio", "ours, peak MB", "crowd-kit", "ours, right %", "crowd-kit"]
    out += [
        f"Every method that crowd-kit has, 1M annotations, ours on two threads ({when(methods)}); ≈: timed on a "
        "smaller table, or on one of ten equal restarts, and multiplied, and both scores are those on that table:",
        record.markdown_table(head, rows, 1),
    ]
    return out


def accuracy() -> list[str]:
    """Return the comparison of each peer's method with ours, then every cell where ours is significantly worse."""
    run = stored("accuracy", "accuracy")
    pairs: dict[tuple[str, str], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    lost: dict[str, list[list[str]]] = defaultdict(list)
    for row in run["sets"]:
        title = row["set"] + (f" ({row['gold']})" if row["gold"] else "")
        for level, found in row["levels"].items():
            seen = set()
            for test in found["tests"]:
                pair = test["ours"], test["rival"]
                if not test["rival"].startswith(LIBRARIES):
                    continue
                ours, theirs = (found["methods"][one] for one in pair)
                into = pairs[pair]
                if pair not in seen:
                    seen.add(pair)
                    into["accuracy"].append((ours["accuracy"], theirs["accuracy"]))
                    into["time"].append(theirs["seconds"] / ours["seconds"])
                    if None not in (ours["log_likelihood"], theirs["log_likelihood"]):
                        into["loss"].append((-ours["log_likelihood"], -theirs["log_likelihood"]))
                if test["p"] < MAX_P:
                    into[f"{test['score']} {'better' if test['difference'] > 0 else 'worse'}"].append(title)
                    if test["difference"] < 0:
                        labels = "all" if level == ALL else level
                        lost[test["score"]].append(
                            [title, labels, *pair, f"{abs(test['difference']):.4f}", f"{test['p']:.4f}"]
                        )
    rows = []
    for (name, rival), found in sorted(pairs.items()):
        right = [100 * mean(column) for column in zip(*found["accuracy"], strict=True)]
        loss = [mean(column) for column in zip(*found["loss"], strict=True)] if found["loss"] else None
        counts = [
            f"{len(found[f'{score} {how}'])}" for score in ("accuracy", "log_likelihood") for how in ("better", "worse")
        ]
        hard = [f"{right[0]:.2f}", f"{right[1]:.2f}{' ▼' if right[1] > right[0] + 5e-3 else ''}"]
        soft = ["–", "–", "–"]
        if loss is not None:
            soft = [f"{loss[0]:.3f}", f"{loss[1]:.3f}{' ▼' if loss[1] < loss[0] - 5e-4 else ''}"]
            soft.append(f"{counts[2]} / {counts[3]}")
        cells = [name, rival, str(len(found["accuracy"])), *hard, f"{counts[0]} / {counts[1]}", *soft]
        rows.append([*cells, f"{three(median(found['time']))}×"])
    head = [
        "ours", "theirs", "tables", "ours, right %", "theirs", "ours better / worse", "ours, log loss", "theirs",
        "better / worse", "their time, by ours",
    ]  # fmt: skip
    failed = defaultdict(set)
    for row in run["sets"]:
        for found in row["levels"].values():
            for name, one in found["methods"].items():
                if name.startswith(LIBRARIES) and one.get("error"):
                    failed[name].add(row["set"])
    out = [
        f"{len(run['sets'])} tables of gold on {len({row['set'] for row in run['sets']})} sets, with 2, 5, 10 and all "
        f"labels an item ({when(run)}). Means over the tables that both finished; *better / worse* counts those where "
        f"the difference is significant (paired bootstrap over items, p < {MAX_P:g}); ▼: theirs is ahead in the mean. "
        "Time is the median ratio, ours on all cores, theirs on one.",
        record.markdown_table(head, rows, 2),
        "Not finished in the time allowed, or failed, on some tables of so many sets: "
        + ", ".join(f"{name} {len(sets)}" for name, sets in sorted(failed.items()))
        + ".",
    ]
    for score, words in (("accuracy", "less often right"), ("log_likelihood", "a larger log loss")):
        out += [
            f"### Where we lose: {words}",
            record.markdown_table(["set", "labels an item", "ours", "below", "by", "p"], sorted(lost[score]), 4),
        ]
    return out


def main() -> None:
    """Write the parts of the page."""
    for name, made in {"speed": speed, "accuracy": accuracy}.items():
        record.replace_between_marks(PAGE, name, "\n\n".join(made()))
    versions = stored("accuracy", "accuracy")["versions"]
    peers = ", ".join(f"{name} {versions[name][name]}" for name in LIBRARIES)
    record.replace_between_marks(
        PAGE, "peers", f"Peers: {peers}, each in an environment of its own (`benchmarks/peers/`)."
    )


if __name__ == "__main__":
    main()
