"""LDL-NM on jobs_q1, jobs_q2 and jobs_q3: the search over sizes, the test items, the leak, and the time of one run.

    DISSENSUS_DATA=<data folder> python -m benchmarks.learning.ldl_nm search [--device cuda] [--seeds 10]
    DISSENSUS_DATA=<data folder> python -m benchmarks.learning.ldl_nm test [--device cuda]
    DISSENSUS_DATA=<data folder> python -m benchmarks.learning.ldl_nm time

- *search*: item and annotator sizes 3 to 20, ten seeds, the development items asked after 25, 50, 100 and 200 epochs by
  features alone. It resumes after a kill.
- *test*: the best size and number of epochs, and the best size after 200 epochs as in the paper, trained with ten other
  seeds; test items by features alone (mean and mode over annotators), and by Algorithm 4, which reads the very
  votes that it is judged by, with more and more steps. Beside it Algorithm 4 by half of an item's annotators, judged by
  the other half: what remains of it without the leak.
- *time*: 200 epochs on jobs_q3 on two cores.

MiniLM's vectors are those of `python -m reproductions weerasooriya2021 --prepare`, for a machine that has no MiniLM.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.parts import mean_and_error
from dissensus.evaluation import hide_annotators
from dissensus.learning.objectives.ldl_nm import LDLNMObjective
from dissensus.learning.size_search import SizeSearch, make_ldl_nm, search_sizes
from dissensus.learning.stacked import fit_together
from dissensus.learning.unknown_annotators import infer_annotators, leaking_proba
from reproductions import load_paper, record, weerasooriya2021
from reproductions.distribution_scores import compare_distributions, distribution_scores

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"
EPOCHS = (25, 50, 100, 200)
STEPS = (1, 3, 10, 100)  # Gradient steps of Algorithm 4.
FIRST_TEST_SEED = 100  # none that the sizes were chosen with
TABLE3 = load_paper("weerasooriya2021").tables["table3"]
SHOWN = ("features only, mean", "features only, mode", "Algorithm 4, 10 steps", "Algorithm 4, 100 steps",
         "half, features only, mean", "half, 10 steps", "half, 100 steps")  # fmt: skip


def search(name: str, options: argparse.Namespace) -> tuple[SizeSearch, float]:
    """Search, and return the seconds that this call took."""
    data = weerasooriya2021.parts(name)
    begun = time.perf_counter()

    def report_progress(done: int, total: int) -> None:
        print(f"{name}: {done} of {total} trainings, {time.perf_counter() - begun:.0f} s", flush=True)

    sizes = range(3, 21) if options.grid is None else options.grid
    train, dev = data["train"], data["dev"]
    found = search_sizes(
        train.table, train.X, dev=(dev.table, dev.X), item_sizes=sizes, annotator_sizes=sizes, epochs=options.epochs,
        seeds=range(options.seeds), model=make_ldl_nm(device=options.device), store=running(name),
        on_trained=report_progress, stack_size=options.at_once,
    )  # fmt: skip
    return found, time.perf_counter() - begun


def running(name: str) -> Path:
    """Return the store of a search, which can be resumed after a kill."""
    (FOLDER / "results" / "running").mkdir(parents=True, exist_ok=True)
    return FOLDER / "results" / "running" / f"ldl_nm-{name}.jsonl"


def chosen(found: SizeSearch, epoch: int | None = None) -> dict[str, Any]:
    """Best size, over all epochs or after one, and its scores on the development items."""
    if epoch is not None:
        points = tuple(point for point in found.points if point.epoch == epoch)
        found = SizeSearch(points, found.model)
    item, annotator, epochs = found.best
    at = (found.item_sizes.index(item), found.annotator_sizes.index(annotator))
    return {
        "item_size": item, "annotator_size": annotator, "epochs": epochs,
        "dev_kl": found.matrix("kl")[at], "dev_accuracy": found.matrix("accuracy")[at],
        "worst_dev_kl": float(found.matrix("kl").max()),
    }  # fmt: skip


def test(name: str, best: dict[str, Any], options: argparse.Namespace, **keywords: Any) -> list[dict[str, Any]]:
    """Train ten networks of one size, and score every protocol."""
    data = weerasooriya2021.parts(name)
    sizes = {key: best[key] for key in ("item_size", "annotator_size")} | keywords
    models = [
        make_ldl_nm(
            objective=LDLNMObjective(**sizes), epochs=best["epochs"], seed=FIRST_TEST_SEED + seed, device=options.device
        )
        for seed in range(options.seeds)
    ]
    test_table, X, rows = data["test"].table, data["test"].X, []
    given, judged = hide_annotators(test_table, 0.5, 0)
    X_half = X[np.isin(test_table.items, given.items)]
    fit_together(models, data["train"].table, data["train"].X)
    for seed, model in enumerate(models):

        def add(protocol: str, score: Any, seed: int = seed) -> None:
            rows.append({"set": name, "seed": seed, "protocol": protocol} | asdict(score))

        add("features only, mean", distribution_scores(model, X, test_table))
        model.objective_.average = "mode"
        add("features only, mode", distribution_scores(model, X, test_table))
        model.objective_.average = "mean"
        for steps in STEPS:
            score = distribution_scores(model, X, test_table, leak_test_labels=True, steps=steps)
            add(f"Algorithm 4, {steps} steps", score)
        for steps in (0, *STEPS):  # 0: nothing is read, z_A = 0
            h = leaking_proba(model, X_half, given.soft_labels(), steps=steps)
            add(f"half, {steps} steps", compare_distributions(judged.soft_labels(), h))
        add("half, features only, mean", compare_distributions(judged.soft_labels(), model.predict_proba(X_half)))
    return rows


def one_run(options: argparse.Namespace) -> dict[str, Any]:
    """Time 200 epochs on jobs_q3, and score them."""
    torch.set_num_threads(options.threads)
    data = weerasooriya2021.parts("jobs_q3")
    model, begun = make_ldl_nm(seed=0, device="cpu"), time.perf_counter()
    model.fit(data["train"].table, data["train"].X)
    seconds = time.perf_counter() - begun
    X, table = data["test"].X, data["test"].table
    begun = time.perf_counter()
    infer_annotators(model, X, table.soft_labels(), compared_output="item")
    return {
        "seconds": seconds, "threads": options.threads, "epochs": 200, "steps": 200 * 40,
        "algorithm_4_seconds": time.perf_counter() - begun,
    } | {f"test_{key}": value for key, value in asdict(distribution_scores(model, X, table)).items()}  # fmt: skip


def search_table(found: dict[str, Any]) -> str:
    head = ["set", "trainings", "chosen: J_I, J_A, epochs", "KL on dev", "accuracy on dev",
            "after 200 epochs: J_I, J_A", "KL on dev", "accuracy on dev", "worst size: KL", "seconds"]  # fmt: skip
    rows = []
    for name, one in found.items():
        best, last = one["best"], one["last"]
        rows.append([
            name, f"{one['trainings']:,}", f"{best['item_size']}, {best['annotator_size']}, {best['epochs']}",
            f"{best['dev_kl']:.3f}", f"{best['dev_accuracy']:.3f}", f"{last['item_size']}, {last['annotator_size']}",
            f"{last['dev_kl']:.3f}", f"{last['dev_accuracy']:.3f}", f"{best['worst_dev_kl']:.3f}",
            "" if one["seconds"] is None else f"{one['seconds']:.0f}",
        ])  # fmt: skip
    return record.markdown_table(head, rows)


def tested_table(rows: list[dict[str, Any]]) -> str:
    head = ["set", "training", "protocol", "leaks", "KL(votes ‖ predicted)", "KL(predicted ‖ votes)", "accuracy",
            "Manhattan"]  # fmt: skip
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        told = TABLE3.published[name]["LDL-NM"]
        theirs, accuracy = told["inverse_kl"][0], told["accuracy"][0]
        lines.append([name, "the paper's Table 3", "", "?", "", f"{theirs:.3f}", f"{accuracy:.3f}", ""])
        own = [row for row in rows if row["set"] == name]
        for training in dict.fromkeys(row["training"] for row in own):
            for protocol in SHOWN:
                of = [row for row in own if (row["training"], row["protocol"]) == (training, protocol)]
                leaks = "**yes**" if of[0]["leaked"] else ""
                kl = (
                    "" if protocol.endswith("mode") else mean_and_error([row["kl"] for row in of])
                )  # A class without votes has no logarithm.
                rest = [mean_and_error([row[key] for row in of]) for key in ("inverse_kl", "accuracy", "manhattan")]
                lines.append([name, training, protocol, leaks, kl, *rest])
    return record.markdown_table(head, lines, 4)


def searched(options: argparse.Namespace) -> dict[str, Any]:
    """Search on every set."""
    found = {}
    for name in options.sets:
        fresh = not running(name).exists()
        one, seconds = search(name, options)
        found[name] = {
            "trainings": len(one.points) // len(one.epochs), "seconds": seconds if fresh else None,
            "best": chosen(one), "last": chosen(one, max(one.epochs)),
            "kl": {str(epoch): one.matrix("kl", epoch).round(4).tolist() for epoch in one.epochs},
        }  # fmt: skip
    return {"found": found}


def tested(options: argparse.Namespace) -> dict[str, Any]:
    """Score the sizes that the search chose on the test items of every set."""
    found, rows = stored("search")["found"], []
    for name in options.sets:
        for training, keywords in (("best", {}), ("last", {}), ("sum", {"combine": "sum"})):
            best = dict(found[name]["last" if training == "last" else "best"])
            if training == "sum":
                best["item_size"] = best["annotator_size"] = max(best["item_size"], best["annotator_size"])
            label = f"{best['item_size']}, {best['annotator_size']}, {best['epochs']} epochs"
            label += ", summed" if training == "sum" else ""
            rows += [{"training": label} | row for row in test(name, best, options, **keywords)]
            print(name, label, flush=True)
    return {"rows": rows}


def time_table(row: dict[str, Any]) -> str:
    """One run."""
    return record.markdown_table(list(row), [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]])


WORK = {"search": searched, "test": tested, "time": lambda options: {"row": one_run(options)}}
TABLES = {
    "search": lambda line: search_table(line["found"]), "test": lambda line: tested_table(line["rows"]),
    "time": lambda line: time_table(line["row"]),
}  # fmt: skip


def stored(what: str) -> dict[str, Any]:
    """Read the last run."""
    name = f"ldl_nm-{what}"
    return record.read_store(record.store_path(FOLDER, name))[name]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=[*WORK, "render"])
    options.add_argument("--device", default="auto")
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--sets", nargs="+", default=weerasooriya2021.SETS)
    options.add_argument("--grid", type=int, nargs="+", help="sizes, both ways; left out: 3 to 20")
    options.add_argument("--epochs", type=int, nargs="+", default=EPOCHS)
    options.add_argument("--at-once", type=int)
    options.add_argument("--threads", type=int, default=2)
    given = options.parse_args()
    if given.what == "render":
        for what in WORK:
            line = stored(what)
            record.replace_between_marks(
                README, f"ldl_nm-{what}", f"{record.describe_provenance(line['made'])}\n\n{TABLES[what](line)}"
            )
    else:
        made = record.provenance(device="cpu" if given.what == "time" else given.device, busy=True)
        found = WORK[given.what](given)
        record.publish(README, f"ldl_nm-{given.what}", made, found, [TABLES[given.what](found)])


if __name__ == "__main__":
    main()
