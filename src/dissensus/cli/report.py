"""`dissensus report`: one HTML file that says what is in the labels, who is good, what is hard, what to do next."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import options, show
from dissensus.cli.errors import for_command_line
from dissensus.cli.folder import SUMMARY
from dissensus.cli.options import Fit, Gold, Source, option
from dissensus.common.atomic import check_no_input
from dissensus.common.extras import need
from dissensus.exceptions import BadParameter, UnreadableFile

if TYPE_CHECKING:
    from dissensus.table.annotations import Annotations


def report(
    *,
    output: Path = option(
        Path("report.html"), "The page; report.json and the key go beside it.", "--output", "-o", metavar="PAGE"
    ),
    known: Path | None = options.KNOWN,
    gold: Gold,
    items: Path | None = options.ITEMS,
    annotators: Path | None = options.PEOPLE,
    show_column: list[str] | None = option(
        None,
        "A column of PEOPLE to print beside each annotator, none where left out; repeatable.",
        "--show",
        metavar="COLUMN",
    ),
    fit: Fit,
    clusters: Path | None = option(
        None, "What `dissensus cluster FILE -o FOLDER` wrote; a section more.", metavar="FOLDER"
    ),
    model: Path | None = option(None, "What `dissensus train FILE -o FOLDER` wrote; a section more.", metavar="FOLDER"),
    title: str | None = option(None, "Left out, the file's name."),
    pseudonyms: bool = option(True, "How annotators are called; the key is a file of its own.", "--pseudonyms/--names"),
    salt: str = option("", "A secret for the pseudonyms: else who guesses a name can check the guess."),
    seed: int | None = options.SEED,
    source: Source,
) -> None:
    """The page is one file that needs no network. Of numbers it shows values with intervals, of comparisons a ranking,
    of spans the texts with the spans in them. Beside it go the same numbers as JSON and, as annotators are people,
    the key to their pseudonyms. A file of several questions becomes one page each.

    Example: dissensus report labels.csv --gold gold.csv --items items.csv -o report.html

    Example: dissensus report labels.csv --annotators people.csv --names
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise BadParameter(f"-o {output}: a report is an HTML file; call it {output.with_suffix('.html').name}.")
    if not output.absolute().parent.is_dir():
        raise BadParameter(f"-o {output}: there is no folder {output.parent}; make it first.")
    if show_column and annotators is None:
        raise BadParameter("--show names columns of a table about the annotators; give it with --annotators.")
    if fit.method is None and fit.setting:
        raise BadParameter("--set is for a method; name it with --method.")
    for module in ("jinja2", "altair", "vl_convert"):  # one that is missing should not wait for the file
        need(module, "the report needs", "report")
    from dissensus.report import files_of

    check_no_input(*files_of(output, names=not pseudonyms))
    tables = source.read(gold=gold.gold, known=known, model=model)
    from dissensus.cli.inputs import read_table
    from dissensus.cli.results import safe_names

    parts: dict[str, Any] = {
        name: read_table(file) for name, file in (("items", items), ("annotators", annotators)) if file is not None
    }
    if items is None and source.holds_texts:
        parts["items"] = read_table(source.file)
    if clusters is not None:
        parts |= _read_clusters(clusters)
    if model is not None:
        from dissensus.learning.folds import load_trained

        with show.waiting(f"reading {model}"):
            parts["model"], parts["out_of_fold"] = load_trained(model)
    called = title or source.file.name
    pages: dict[str | None, Path] = {None: output}
    if None not in tables:
        found = safe_names(map(str, tables)).items()
        pages = {question: output.with_name(f"{output.stem}-{name}{output.suffix}") for question, name in found}
    check_no_input(*(file for page in pages.values() for file in files_of(page, names=not pseudonyms)))

    def write(table: Annotations, question: str | None) -> dict[str, Any]:
        from dissensus.report import Report

        name = called if question is None else f"{called}: {question}"
        table = gold.include(table, known)
        codes, sure = gold.read(table), gold.read_file(known, table)
        began = time.perf_counter()
        with show.waiting(f"reporting on {name}") as bar:
            chosen = fit.name({question: table})
            bar.tell(f"fitting {chosen}")
            fitted = fit.model(table.kind).fit(table, gold=sure)
            about = parts | {"items": None} if table.kind == "pairs" and items is None else parts  # its items are pairs
            made = Report(
                table, fitted, gold=codes, known=sure, title=name, names=not pseudonyms, salt=salt,
                show=show_column or (), seed=seed or 0, on_step=bar.tell, **about,
            )  # fmt: skip
            files = made.save(pages[question])
        return {
            "files": [show.path(file) for file in files],
            "method": chosen,
            "seconds": time.perf_counter() - began,
            "headline": made.facts["headline"],
            "findings": made.facts["findings"],
        }

    source.print_each(options.answer_each(tables, write), _show)


def _read_clusters(folder: Path) -> dict[str, Any]:
    """The clustering of an earlier run, and its search where there was one."""
    from pyarrow.csv import read_csv

    from dissensus.clustering import Clustering
    from dissensus.models.saving import load

    model = load(folder)
    if not isinstance(model, Clustering):
        raise BadParameter(f"--clusters {folder}: it holds a {type(model).__name__}, which has no clusters.")
    summary, table = folder / SUMMARY, folder / "search.csv"
    if not (summary.is_file() and table.is_file()):
        return {"clustering": model}
    try:
        criterion = json.loads(summary.read_bytes())["search"]["criterion"]
    except (ValueError, LookupError, TypeError) as error:
        said = f"{summary} does not say how clusters were searched; run `dissensus cluster` again"
        raise UnreadableFile(f"{said}, or take search.csv away.") from error
    return {"clustering": model, "search": {"criterion": criterion, "points": read_csv(table).to_pylist()}}


def _show(file: str, facts: dict[str, Any]) -> None:
    show.text(f"{show.clean(file)}: {show.clean(for_command_line(' '.join(facts['headline'])))}")
    marks = {"bad": "!", "note": "•", "good": "✓"}
    for finding in facts["findings"]:
        advice = f" {finding['advice']}" if finding["advice"] else ""
        show.line(f" {marks[finding['tone']]} {show.clean(finding['text'] + advice)}")
    page, numbers, *key = facts["files"]
    show.line(f"Open {page} in a browser; the numbers are in {numbers}.")
    if key:
        show.line(f"Annotators are named by pseudonyms, here too. Who is who is in {key[0]}: keep it to yourself.")
