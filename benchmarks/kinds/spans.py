"""Spans: F1 by gold, illegal tags, seconds, calibration, of ner_mturk (tags), ner_spans (spans) and simulated crowds.

    DISSENSUS_DATA=<data folder> python -m benchmarks.kinds.spans [--readers 2 3]

Readers: at most so many of each document, drawn at random. Every fit is timed once the code is compiled.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus import Annotations, methods
from dissensus.evaluation import span_agreement, span_scores
from dissensus.table.datasets.folder import find_data_folder
from dissensus.table.io import read_frame
from dissensus.table.simulate import simulate_spans
from dissensus.table.spans import extract_spans, name_positions, parse_tag_scheme

HEADER = f"{'':34} {'F1':>6} {'prec.':>6} {'recall':>6} {'illegal':>7} {'s':>5} {'mean p':>6} {'right':>6} {'ECE':>6}"


def columns(name: str, file: str) -> dict[str, list[Any]]:
    """Read the columns of a file of a data set."""
    frame: pa.Table = read_frame(find_data_folder() / name / f"{file}.csv.gz")
    return frame.to_pydict()


def ner_mturk() -> tuple[Annotations, set[Any]]:
    """Return tags of tokens, a sequence per sentence, and the gold spans of the annotated sentences."""
    items, rows, gold = (columns("ner_mturk", file) for file in ("items", "annotations", "gold"))
    sentences = [f"{d}/{int(s):03d}" for d, s in zip(items["document"], items["sentence"], strict=True)]
    place = dict(zip(items["item"], name_positions(sentences, map(int, items["position"])), strict=True))
    table = Annotations.from_arrays([place[i] for i in rows["item"]], rows["annotator"], rows["label"], kind="spans")
    known = table.gold_codes([place[i] for i in gold["item"]], gold["label"])
    return table, as_set(extract_spans(table.items, table.classes, known))


def ner_spans(tokens: bool) -> tuple[Annotations, set[Any]]:
    """Return `ner_mturk` as spans of documents, with positions at tokens or (not `tokens`) between span bounds."""
    spans, readings, gold = (columns("ner_spans", file) for file in ("spans", "readings", "gold_spans"))
    length = dict(zip(readings["document"], map(int, readings["tokens"]), strict=True))
    table = Annotations.from_spans(
        *(spans[key] for key in ("document", "annotator", "start", "end", "label")),
        readings=zip(readings["document"], readings["annotator"], strict=True), tokens=length if tokens else None,
    )  # fmt: skip
    known = zip(gold["document"], map(int, gold["start"]), map(int, gold["end"]), gold["label"], strict=True)
    return table, {span for span in known if span[0] in length}


def as_set(spans: dict[str, Any]) -> set[Any]:
    """Spans (document, start, end, label)."""
    return set(zip(*(spans[key].tolist() for key in ("document", "start", "end", "label")), strict=True))


def few_readers(table: Annotations, readers: int) -> Annotations:
    """Select at most `readers` annotators of each document (in ner_mturk: of the name before the stroke)."""
    where = table.sequences
    document = np.array([name.partition("/")[0] for name in where.documents.tolist()], object)
    pairs = document[where.document[table.item]] + "\t" + table.annotators[table.annotator]
    names, row = np.unique(pairs.astype(str), return_inverse=True)
    kept = np.zeros(names.size, bool)
    order = np.random.default_rng(0).permutation(names.size)
    n_readers: dict[str, int] = {}
    for at in order.tolist():
        own = names[at].partition("\t")[0]
        n_readers[own] = n_readers.get(own, 0) + 1
        kept[at] = n_readers[own] <= readers
    return table.select(rows=kept[row])


def illegal(table: Annotations, tags: Any) -> int:
    """Count tags that are illegal at their position."""
    where, scheme = table.sequences, parse_tag_scheme(table.classes)
    tag = np.asarray(tags)[where.order]
    bad = np.concatenate([[False], ~scheme.follows[tag[:-1], tag[1:]]])
    bad[where.ptr[:-1]] = ~scheme.starts[tag[where.ptr[:-1]]]
    return int(bad.sum())


def show(name: str, table: Annotations, known: set[Any], tags: Any, seconds: float, model: Any = None) -> None:
    """One row."""
    found = extract_spans(table.items, table.classes, tags, None if model is None else model.span_probability_)
    scores = span_scores(as_set(found), known)
    line = f"{name:34} " + " ".join(f"{100 * scores[key]:6.2f}" for key in ("f1", "precision", "recall"))
    line += f" {illegal(table, tags):7,} {seconds:5.2f}"
    if model is not None:
        p = found["probability"]
        right = np.array([span[:4] in known for span in zip(*(c.tolist() for c in found.values()), strict=True)])
        at = np.minimum((10 * p).astype(int), 9)
        off = np.abs(np.bincount(at, p - right, 10)).sum() / p.size
        line += f" {p.mean():6.3f} {right.mean():6.3f} {off:6.3f}"
    print(line, flush=True)


def run(title: str, table: Annotations, known: set[Any]) -> None:
    """Run all methods on one table."""
    print(f"\n{title}: {table}\n{HEADER}", flush=True)
    plain = Annotations(
        table.annotator, table.label, table.item_ptr, table.items, table.annotators, table.classes, table.weight
    )
    for name in ("majority-vote", "dawid-skene"):
        began = time.perf_counter()
        tags = methods[name]().fit(plain).posterior_.argmax(axis=1)
        show(f"{name}, token by token", table, known, tags, time.perf_counter() - began)
    for name, keywords in {
        "bayesian-sequence": {}, "bayesian-sequence, previous=False": {"previous": False},
        "bayesian-sequence, dependence=None": {"dependence": None},
    }.items():  # fmt: skip
        began = time.perf_counter()
        model: Any = methods["bayesian-sequence"](**keywords).fit(table)
        show(name, table, known, model.tags_, time.perf_counter() - began, model)


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--readers", type=int, nargs="*", default=[], help="annotators of each document, in addition to all"
    )
    asked = parser.parse_args()
    methods["bayesian-sequence"]().fit(simulate_spans(5, 5, 2).annotations)  # compiled
    table, known = ner_mturk()
    run("ner_mturk", table, known)
    for readers in asked.readers:
        run(f"ner_mturk, {readers} readers", few_readers(table, readers), known)
    for name, one in span_agreement(table).items():
        print(f"{name}: {one}")
    run("ner_spans, tokens", *ner_spans(tokens=True))
    run("ner_spans, between bounds", *ner_spans(tokens=False))
    bad = {"ordinary": 7, "spammer": 2, "adversary": 2, "sloppy": 1}
    for n_documents, seed in ((50, 1), (150, 3), (600, 4)):
        for kinds in (None, bad):
            sim = simulate_spans(n_documents, 12, 3, kinds=kinds, seed=seed)
            right = as_set(extract_spans(sim.annotations.items, sim.annotations.classes, sim.truth))
            crowd = "4 of 12 bad" if kinds else "default crowd"
            run(f"{n_documents} simulated documents, {crowd}", sim.annotations, right)


if __name__ == "__main__":
    main()
