"""`dissensus report`: write an HTML page about the labels, the annotators, hard items and next steps."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import exceptions as faults
from dissensus.cli import options, show
from dissensus.cli.errors import render_for_command_line
from dissensus.cli.folder import SUMMARY
from dissensus.cli.options import option
from dissensus.cli.settings import MethodOptions
from dissensus.cli.source import Source, TrainingGold, answer_each
from dissensus.common.atomic import check_not_an_input
from dissensus.messages import ParameterName

if TYPE_CHECKING:
    from dissensus.table.annotations import Annotations


@dataclass(frozen=True)
class ReportInputs:
    """Files and folders that the report uses in addition to the labels."""

    items: Path | None = options.ITEMS
    annotators: Path | None = options.ANNOTATORS
    show_column: list[str] | None = option(
        None, "A column of --annotators to print with each annotator; repeatable.", "--show", metavar="COLUMN"
    )
    clusters: Path | None = option(None, "The folder of `dissensus cluster`; adds a section.", metavar="FOLDER")
    model: Path | None = option(None, "The folder of `dissensus train`; adds a section.", metavar="FOLDER")

    def read(self, source: Source) -> dict[str, Any]:
        """Return tables, clusters and a trained model as keywords of `Report`; texts may be in FILE itself."""
        from dissensus.cli.inputs import read_table

        items = source.file if self.items is None and source.holds_texts else self.items
        tables = {"items": items, "annotators": self.annotators}
        inputs: dict[str, Any] = {name: read_table(file) for name, file in tables.items() if file is not None}
        if self.clusters is not None:
            inputs |= _read_clusters(self.clusters)
        if self.model is not None:
            from dissensus.learning.folds import load_trained

            with show.show_progress(f"reading {self.model}"):
                inputs["model"], inputs["out_of_fold"] = load_trained(self.model)
        return inputs


def report(
    *,
    output: Path = option(
        Path("report.html"),
        "The page; a .json file with its numbers and the key are written next to it.",
        "--output",
        "-o",
        metavar="PAGE",
    ),
    gold: TrainingGold,
    inputs: ReportInputs,
    fit: MethodOptions,
    title: str | None = option(None, "Title of the page; by default the name of FILE."),
    pseudonyms: bool = option(
        True,
        "Show pseudonyms instead of the names of annotators; the key is written to a separate file.",
        "--pseudonyms/--names",
    ),
    salt: str = option("", "A secret that the pseudonyms depend on; without it, a guessed name can be verified."),
    seed: int | None = options.SEED,
    source: Source,
) -> None:
    """Write the report on each question of FILE.

    The page is one file that needs no network. Numbers are shown as values with intervals, comparisons as a ranking,
    and spans in their texts. The same numbers are written next to it as JSON, with the key to the pseudonyms of
    annotators. A file of several questions becomes one page each.

    Example: dissensus report labels.csv --gold gold.csv --items items.csv -o report.html

    Example: dissensus report labels.csv --annotators people.csv --names
    """
    _check_page(output)
    if inputs.show_column and inputs.annotators is None:
        raise faults.OptionNeeds(option=ParameterName("show"), needed="--annotators FILE")
    if fit.method is None and fit.setting:
        raise faults.OptionNeeds(option=ParameterName("setting"), needed="--method NAME")
    from dissensus.report import list_report_files

    check_not_an_input(*list_report_files(output, names=not pseudonyms))
    tables = source.read_tables(gold=gold.gold, score_gold=gold.score_gold, model=inputs.model)
    from dissensus.cli.results import make_folder_names

    content = inputs.read(source)
    called = title or source.file.name
    pages: dict[str | None, Path] = {None: output}
    if None not in tables:
        found = make_folder_names(map(str, tables)).items()
        pages = {question: output.with_name(f"{output.stem}-{name}{output.suffix}") for question, name in found}
    check_not_an_input(*(file for page in pages.values() for file in list_report_files(page, names=not pseudonyms)))

    def write(table: Annotations, question: str | None) -> dict[str, Any]:
        from dissensus.report import Report

        name = called if question is None else f"{called}: {question}"
        table = gold.include_gold_classes(table)
        scoring, training = gold.read_scoring(table), gold.read_training(table)
        began = time.perf_counter()
        with show.show_progress(f"reporting on {name}") as bar:
            chosen = fit.method_name({question: table})
            bar.set_text(f"fitting {chosen}")
            fitted = fit.new_model(table.kind).fit(table, gold=training)
            # the items of a table of pairs are comparisons, and FILE has no texts of comparisons
            texts = {"items": None} if table.kind == "pairs" and inputs.items is None else {}
            drawn = Report(
                table, fitted, gold=scoring, training_gold=training, title=name, names=not pseudonyms, salt=salt,
                show=inputs.show_column or (), seed=seed or 0, on_step=bar.set_text, **content | texts,
            )  # fmt: skip
            files = drawn.save(pages[question])
        return {
            "files": [show.format_path(file) for file in files],
            "method": chosen,
            "seconds": time.perf_counter() - began,
            "headline": drawn.facts["headline"],
            "findings": drawn.facts["findings"],
        }

    source.print_answers(answer_each(tables, write), _print_report)


def _check_page(output: Path) -> None:
    """Raise an error, before FILE is read, if the page cannot be written."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise faults.UnknownSuffix(option="-o", path=output, content="reports", suffixes=(".html", ".htm"))
    if not output.absolute().parent.is_dir():
        raise faults.FolderMissing(option="-o", path=output)


def _read_clusters(folder: Path) -> dict[str, Any]:
    """Return the clustering of an earlier run, with the search for its size if there was one."""
    from pyarrow.csv import read_csv

    from dissensus.clustering import Clustering
    from dissensus.models.saving import load

    model = load(folder)
    if not isinstance(model, Clustering):
        raise faults.NotWrittenBy(path=folder, command="cluster")
    summary, table = folder / SUMMARY, folder / "search.csv"
    if not (summary.is_file() and table.is_file()):
        return {"clustering": model}
    try:
        criterion = json.loads(summary.read_bytes())["search"]["criterion"]
    except (ValueError, LookupError, TypeError) as error:
        raise faults.NotWrittenBy(path=summary, command="cluster") from error
    return {"clustering": model, "search": {"criterion": criterion, "points": read_csv(table).to_pylist()}}


def _print_report(file: str, facts: dict[str, Any]) -> None:
    show.print_text(f"{show.escape(file)}: {show.escape(render_for_command_line(' '.join(facts['headline'])))}")
    marks = {"bad": "!", "note": "•", "good": "✓"}
    for finding in facts["findings"]:
        advice = f" {finding['advice']}" if finding["advice"] else ""
        show.print_line(f" {marks[finding['tone']]} {show.escape(finding['text'] + advice)}")
    page, numbers, *key = facts["files"]
    show.print_line(f"Open {page} in a browser; the numbers are in {numbers}.")
    if key:
        show.print_line(f"Annotators have pseudonyms, here too. The key to them is {key[0]}: keep it private.")
