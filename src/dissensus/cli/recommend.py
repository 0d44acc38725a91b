"""`dissensus recommend`: choose which labels to collect next, and from which annotators."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dissensus.cli import exceptions as faults
from dissensus.cli import folder, options, show
from dissensus.cli.errors import prefix_errors
from dissensus.cli.options import option
from dissensus.cli.question import answer_question, new_question, print_findings, question_option
from dissensus.cli.settings import MethodOptions
from dissensus.cli.source import Gold, Source
from dissensus.messages import Message, ParameterName
from dissensus.questions.definitions.redundancy import RedundancyQuestion
from dissensus.questions.exceptions import (
    BadLimit,
    ModelAndMethod,
    NoAnnotatorNamed,
    NoModelFile,
    OnlyForClasses,
    SeveralModelFiles,
)
from dissensus.questions.findings import CapacityLimit, LabelsPerItemLimit, SettledLimit

if TYPE_CHECKING:
    from dissensus.common.types import Names
    from dissensus.questions.recommend import Recommendation
    from dissensus.table.annotations import Annotations

LABELS_SHOWN = 5  # recommended labels that are printed
ANNOTATORS_SHOWN = 5  # annotators with the most recommended labels
SETTLED_CONFIDENCE = "0.95"  # `questions.item_status.SETTLED_CONFIDENCE`, which takes long to import
CLASS_OPTIONS = ("annotators", "model", "cost", "capacity", "per_item", "settled")  # options of --budget for classes
ENOUGH_PANEL = "With --enough"  # panel of the help
MODEL_WRITERS = {"model.npz": "`aggregate`", "model.safetensors": "`train`", "lia.safetensors": "LIA.save"}
"""File of a model → the command or method that writes it."""


@dataclass(frozen=True)
class EnoughOptions(Gold):
    """Options of --enough: its draws, and gold labels that measure the accuracy at each number of labels."""

    gold: Path | None = option(
        None, "Labels known to be right, to measure accuracy.", metavar="FILE", panel=ENOUGH_PANEL
    )
    gold_item: str | None = option(None, "Column of the items in --gold.", metavar="COLUMN", panel=ENOUGH_PANEL)
    gold_label: str | None = option(None, "Column of the labels in --gold.", metavar="COLUMN", panel=ENOUGH_PANEL)
    seeds: int = question_option(RedundancyQuestion, "seeds", panel=ENOUGH_PANEL)
    seed: int | None = option(None, "Seed of the draws; 0 by default.", min=0, panel=ENOUGH_PANEL)


@dataclass(frozen=True)
class LabelLimits:
    """The annotators to choose from, the cost of their labels, and limits on the labels that are recommended."""

    annotators: str | None = option(None, "Only these annotators; by default all of FILE.", metavar="A,B,…")
    cost: str = option("1", "Cost of a label; FILE has columns annotator and cost.", metavar="NUMBER|FILE")
    capacity: str = option(
        "auto",
        "Maximum number of labels per annotator; auto: twice their share of the labels so far, at least 5; none: any.",
        metavar="NUMBER|auto|none",
    )
    per_item: str = option(
        "auto",
        "Maximum number of labels per item; auto: up to 3 more in all than the median item has; none: any.",
        metavar="NUMBER|auto|none",
    )
    settled: str = option(
        SETTLED_CONFIDENCE,
        "Skip items that two annotators labelled and that have at least this confidence; none: skip no item.",
        metavar="NUMBER|none",
    )

    def read_annotators(self, table: Annotations) -> Any:
        """Return the names of --annotators, or None for all annotators of the table."""
        from dissensus.cli.inputs import parse_names

        if self.annotators is None:
            return None
        names = parse_names(self.annotators, table.annotators)
        if not names.size:
            raise NoAnnotatorNamed(value=self.annotators)
        return names

    def read_cost(self, annotators: Names) -> float | dict[Any, float]:
        """Return the cost of a label: one number, or a number for each annotator from a file."""
        from dissensus.cli.inputs import read_prices

        cost = _parse_number(self.cost)
        return read_prices(Path(self.cost), annotators) if cost is None else cost

    def parse(self) -> dict[str, Any]:
        """Return the limits as keywords of `recommend`."""
        return {
            "capacity": _parse_limit("capacity", self.capacity, 0),
            "per_item": _parse_limit("per_item", self.per_item, 1),
            "settled": _parse_share(self.settled),
        }


def recommend(
    *,
    budget: float | None = option(None, "Total cost of the labels to collect; a label costs 1 without --cost."),
    enough: bool = option(
        False, "Estimate instead how many labels per item are enough, and what one more would change.", "--enough"
    ),
    output: Path | None = options.OUTPUT_FILE,
    fit: MethodOptions,
    model: Path | None = option(
        None, "Use a model that `aggregate` or `train` wrote, or a saved LIA, instead of fitting one.", metavar="FOLDER"
    ),
    limits: LabelLimits,
    simulation: EnoughOptions,
    source: Source,
) -> None:
    """Recommend labels to collect, or estimate how many per item are enough.

    A method is fitted to FILE, and every pair of an item and an annotator without a label is scored by its expected
    information gain about the class of the item and the quality of the annotator. OUT gets rank, item, annotator, gain
    (in nats, given the labels above it), about_item (the part of the gain that is about the item), cost, gain_per_cost
    and p_change (the probability that the recommended labels of the item change its label). For numbers, comparisons,
    sets, spans and texts, OUT gets rank, item (or document, or left and right), gain and the number of labels so far.

    With --enough, the method is fitted to at most 1, 2, 3, 5 … labels of each item, drawn at random. For the items that
    have more labels, it prints how many keep the label that all labels give. OUT gets one row per number of labels:
    annotations, items with more labels, stability and accuracy (with --gold) with 95 % intervals, mean confidence,
    seconds.

    Example: dissensus recommend labels.csv --budget 500 -o next.csv

    Example: dissensus recommend labels.csv --budget 200 --annotators ann,bob --cost prices.csv --per-item 2

    Example: dissensus recommend labels.csv --budget 200 --model trained

    Example: dissensus recommend labels.csv --enough --gold gold.csv -o levels.csv
    """
    if enough:
        options.refuse_together("--enough", "budget", *CLASS_OPTIONS)
        question = new_question(RedundancyQuestion, seeds=simulation.seeds, seed=simulation.seed)
        answer_question(question, source, fit=fit, gold=simulation, output=output, command="recommend --enough")
        return
    options.refuse_without("--enough", "seeds", "seed", "gold", "gold_item", "gold_label")
    if budget is None:
        raise faults.NoBudget()
    from dissensus.questions.recommend import recommend as find
    from dissensus.questions.recommend_items import recommend_items
    from dissensus.table.kinds import CLASS_KINDS, KIND_DESCRIPTIONS

    parsed = limits.parse()
    folder.check_output_file(output, "recommendations")
    if model is not None and (fit.method or fit.setting):
        raise ModelAndMethod()
    table = source.read_single_table()
    classes = table.kind in CLASS_KINDS
    if not classes and (names := options.select_set_by_user(CLASS_OPTIONS)):
        raise OnlyForClasses(name=ParameterName(names[0]), kind=KIND_DESCRIPTIONS[table.kind])
    began = time.perf_counter()
    fitted, table = _fit_or_load(source, fit, model, table)
    candidates = limits.read_annotators(table)
    cost = limits.read_cost(table.annotators if candidates is None else candidates)
    recommendation: Any
    with show.show_progress("scoring every pair" if classes else f"looking at {source.file}"):
        if classes:
            recommendation = find(fitted, table, budget=budget, annotators=candidates, cost=cost, **parsed)
        else:
            recommendation = recommend_items(fitted, table, budget=budget)
    frame = recommendation.to_frame("pyarrow")
    folder.write_file(frame, output)
    if source.json:
        head: dict[str, Any] = {"budget": budget, "seconds": time.perf_counter() - began}
        head |= {"method": fit.method_name({None: table})} if model is None else {"model": show.format_path(model)}
        rows = {"recommended": frame.to_pylist()} if output is None else {}
        source.print_json(head | _recommendation_facts(recommendation, classes) | rows, output=output)
        return
    show.print_line(f"{show.escape(source.file)}: {recommendation.verdict()}")
    if classes:
        print_findings("", _list_limits(recommendation, parsed))
    if len(recommendation):
        _print_recommended_labels(recommendation, frame, classes, output)


def _print_recommended_labels(found: Any, frame: Any, classes: bool, output: Path | None) -> None:
    """Print the first labels unless all were written, the annotators with most of them, and where all of them are."""
    if output is None:
        _print_first_labels(frame, classes)
    if classes:
        _print_busiest_annotators(found)
    show.print_written(output, "All of these labels are", "FILE to keep all of these labels")


def _print_busiest_annotators(found: Recommendation) -> None:
    """Print the annotators who get the most labels."""
    busiest = Counter(found.annotators.tolist()).most_common(ANNOTATORS_SHOWN)
    named = ", ".join(f"{show.shorten(name)} ({count:,})" for name, count in busiest)
    show.print_line(f"Annotators with the most of these labels: {named}.")


def _fit_or_load(source: Source, fit: MethodOptions, model: Path | None, table: Annotations) -> tuple[Any, Annotations]:
    """Return a model fitted to the table, or a stored model, and the table with the classes of that model."""
    if model is None:
        with show.show_progress(f"fitting {source.file}"):
            return fit.new_model(table.kind).fit(table), table
    with show.show_progress(f"reading {model}"):
        fitted = _load_model(model)
    with prefix_errors(f"the model in {model}"):
        return fitted, table.with_classes(fitted.classes_)


def _parse_limit(name: str, text: str, least: int) -> int | Literal["auto"] | None:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    if text.isdecimal() and int(text) >= least:
        return int(text)
    raise BadLimit(name=ParameterName(name), allowed=f"a whole number, at least {least}, or auto", value=text)


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parse_share(text: str) -> float | None:
    share = _parse_number(text)
    if text != "none" and not 0 < (share or 0) <= 1:
        raise BadLimit(name=ParameterName("settled"), allowed="a number above 0 and at most 1", value=text)
    return share


def _list_limits(found: Recommendation, limits: dict[str, Any]) -> Iterator[Message]:
    """Yield a message about each default limit that restricts the recommendation."""
    active = found.limits
    if active is None or not len(found):
        return
    if limits["capacity"] == "auto":
        yield CapacityLimit()
    if active.labels_per_item is not None:
        yield LabelsPerItemLimit(labels=active.labels_per_item)
    if active.settled_items:
        yield SettledLimit(
            n_settled=active.settled_items, items=active.n_items, percent=100 * (active.settled_confidence or 0)
        )


def _load_model(path: Path) -> Any:
    """Return the fitted model in a folder or file: an aggregator, a `LIA` or a `CrowdClassifier`."""
    names = [name for name in MODEL_WRITERS if path.name == name or (path / name).is_file()]
    if not names:
        first, *others = (f"{name}, which {writer} writes" for name, writer in MODEL_WRITERS.items())
        raise NoModelFile(path=path, first_file=first, other_files=", nor ".join(others))
    if len(names) > 1:
        raise SeveralModelFiles(path=path, files=tuple(names))
    if names[0] == "model.npz":
        from dissensus.models.saving import load

        return load(path)
    from dissensus.learning import LIA, CrowdClassifier

    kind: Any = LIA if names[0] == "lia.safetensors" else CrowdClassifier
    return kind.load(path, device="cpu")


def _recommendation_facts(found: Any, classes: bool) -> dict[str, Any]:
    """Return the facts of --json about a recommendation; those about cost and change need labels that are classes."""
    facts = {"labels": len(found), "candidates": found.candidates, "verdict": found.verdict()}
    facts |= {"gain": found.gain.sum()}
    if not classes:
        return facts
    return facts | {
        "cost": found.cost.sum(),
        "expected_changes": found.expected_changes,
        "cost_per_change": found.cost.sum() / found.expected_changes if found.expected_changes else None,
        "limits": found.limits,
        "about_items": found.about_item.sum(),
        "items": len(set(found.items.tolist())),
        "annotators": len(set(found.annotators.tolist())),
    }


def _print_first_labels(frame: Any, classes: bool) -> None:
    """Print the first labels to collect, with the annotator of each if the labels are classes."""
    chosen = ["item", "annotator", "p_change", "cost"] if classes else frame.column_names[1:]
    write: dict[str, Any] = {"p_change": show.format_percent, "cost": "{:g}".format}
    write |= dict.fromkeys(("gain", "labels"), "{:.3g}".format)
    first = frame.slice(0, LABELS_SHOWN).to_pylist()
    rows = [tuple(write.get(name, show.shorten)(row[name]) for name in chosen) for row in first]
    columns = [name.replace("p_change", "label may change") for name in chosen]
    show.print_table(f"The {len(rows)} most useful labels", columns, rows, numbers=("label may change", *write))
