"""`dissensus aggregate`: one label per item, how sure it is, and how good each annotator is."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import engine as engines
from dissensus.cli import folder, keywords, results, show
from dissensus.cli import gold as golds
from dissensus.cli.errors import about
from dissensus.cli.source import Source, takes_table
from dissensus.exceptions import BadParameter, UnknownClass

if TYPE_CHECKING:
    from dissensus.common.types import IntArray
    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

DEFAULT = "dawid-skene"
MANY = 2_000_000  # annotations beyond which looking for copiers takes longer than most methods


@takes_table()
def aggregate(
    source: Source,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Write the results here; left out, the first rows are shown."
        ),
    ] = None,
    format_: Annotated[
        results.Output | None,
        typer.Option("--format", show_default="csv; parquet with --engine disk or spark", help="Of the result tables."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", metavar="NAME", show_default=DEFAULT, help="`dissensus methods` lists them."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any keyword of the method, such as smoothing=0.5; repeatable."
        ),
    ] = None,
    max_iter: Annotated[int | None, typer.Option("--max-iter", help="Passes over the data at most.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Of everything random; 0 where left out.")] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Where the method uses several; all cores where left out.")
    ] = None,
    engine: engines.Option = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FOLDER",
            help="Score FILE with the model of an earlier run's folder instead of fitting one.",
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Add FILE's annotations to the --model, and write it and the results of all its items."
        ),
    ] = False,
    flags: Annotated[
        bool | None,
        typer.Option(
            "--flags/--no-flags",
            help=f"Look for spammers, adversaries and copiers; left out, with up to {MANY:,} annotations.",
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option("--known", metavar="GOLD", help="Known labels of some items, which the method may use."),
    ] = None,
    gold: golds.GoldFile = None,
    gold_item: golds.GoldItem = None,
    gold_label: golds.GoldLabel = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object instead.")] = False,
) -> None:
    """Turn many labels per item into one, with how sure it is and how good each annotator is.

    FOLDER gets items.csv (item, label, confidence, p_CLASS …), annotators.csv (annotator, annotations, reliability, its
    interval, flags with reasons), confusions.csv where the method models them, model.npz for --model, and summary.json,
    or all of these in one sub-folder per question. Nothing is written unless everything is; the result tables of an
    earlier run are replaced.

    Example: dissensus aggregate labels.csv --method dawid-skene --gold gold.csv -o results

    Example: dissensus aggregate new.csv --model results -o new-results

    Example: dissensus aggregate today.csv --model yesterday --update -o today

    Example: dissensus aggregate "labels/*.parquet" --engine disk --set engine.memory_gb=2 -o results
    """
    import dissensus.models.methods  # noqa: F401 - registers the methods
    from dissensus.compute.engines import Disk, Spark
    from dissensus.table.questions import Questions

    if output is not None:
        folder.check(output)
        folder.check_files(output, (*results.FILES, Path(results.MODEL)), [source.file, gold])
    shortcuts = {"max_iter": max_iter, "seed": seed}
    settings = [*(setting or []), *(f"{key}={value}" for key, value in shortcuts.items() if value is not None)]
    if update and model is None:
        raise BadParameter("--update needs the model to update: --model FOLDER.")
    placed = None
    if model is None:
        placed, settings = engines.choose(engine, settings, method or DEFAULT)
        make = partial(new_model, method or DEFAULT, settings)
        make()  # a wrong name or keyword should not wait for the file
        if isinstance(placed, Disk | Spark):  # the table is never in memory here
            refused: tuple[tuple[str, Any], ...] = (
                ("--known", known),
                ("--flags", flags),
                ("--format", (format_ or "parquet") != "parquet"),
            )
            for option, given in refused:
                if given:
                    raise BadParameter(f"{option} is for a table in memory; leave it out, or --engine {engine}.")
    else:
        no_fit = (
            ("--engine", engine),
            ("--method", method),
            ("--set, --max-iter and --seed", settings),
            ("--known", known),
            ("--flags", flags),
        )
        for name, unused in no_fit:
            if unused:
                raise BadParameter(f"--model scores with what was learnt before; leave out {name}.")
        if output is not None and output.resolve() == model.resolve():
            raise BadParameter(f"-o {output} is the model's own folder, whose results would be lost; name another.")
        make = partial(results.load_model, model)

    def gold_of(table: Annotations) -> IntArray | None:
        return None if gold is None else golds.read(gold, table, gold_item, gold_label)

    def ready(question: str | None = None) -> Aggregator:
        one = make(question)
        if placed is not None:
            one.set_params(engine=placed)
        if threads is not None and "threads" in one.get_params():
            one.set_params(threads=threads)
        return one

    def answer(table: Annotations, question: str | None = None) -> results.Result:
        one = ready(question)
        if model is not None:
            table = _in_classes_of(one, table, f"{source.file}: the model in {model}")
        if update:
            if not one.items_.size:
                raise BadParameter(
                    f"the model in {model} was written without its items, as --engine disk and spark do; fit all "
                    "annotations again."
                )
            return results.update(one, table, gold_of(everything(one, table)), f"updating with {source.file}")
        codes = gold_of(table)
        what = f"question {question}" if question else str(source.file)
        if model is None:
            sure = None if known is None else golds.read(known, table, gold_item, gold_label)
            look = table.n_annotations <= MANY if flags is None else flags
            return results.fit(one, table, codes, f"fitting {what}", known=sure, flags=look)
        return results.score(one, table, codes, f"scoring {what}")

    began = time.perf_counter()
    tables = engines.bring(source, placed) if isinstance(placed, Disk | Spark) else source.read()
    summary = _head(source, time.perf_counter() - began, model, gold)
    if isinstance(placed, Disk | Spark):
        known_labels = None if gold is None else golds.columns(gold, gold_item, gold_label)
        result = engines.answer(ready(), tables, f"fitting {source.file}", known_labels, output, summary)
        answers, summary = {"": result}, summary | result.summary
    elif isinstance(tables, Questions):
        if gold is not None or known is not None:
            raise BadParameter("--gold and --known are for a file of one question; take each question by itself.")
        answers = {}
        for question, table in tables.items():
            with about(f"question {show.name(question)!r}"):
                answers[question] = answer(table, question)
        folders = results.safe_names(answers)
        summary["questions"] = {q: {"folder": folders[q]} | result.summary for q, result in answers.items()}
    else:
        answers, folders = {"": answer(tables)}, {"": ""}
        summary |= answers[""].summary

    if output is not None and not isinstance(placed, Disk | Spark):
        from dissensus.table.io import write_json

        with show.waiting(f"writing {output}"), folder.whole(output, results.earlier(output)) as part:
            for question, result in answers.items():
                results.write(result, part / folders[question], (format_ or results.Output.csv).value)
            write_json(summary, part / folder.SUMMARY)
    if json:
        show.json(summary | ({} if output is None else {"folder": show.path(output)}))
        return
    for question, result in answers.items():
        title = f"{source.file}, question {question}" if question else str(source.file)
        results.print_result(result, title, preview=output is None)
    out = show.console()
    if output is None:
        out.print("Nothing was written; add -o FOLDER to keep the results.")
    else:
        out.print(f"Results are in {show.clean(output)}", soft_wrap=True)


def new_model(method: str, settings: list[str], question: str | None = None) -> Aggregator:
    """A method by name, with KEY=VALUE settings; a wrong name or keyword is an error."""
    import dissensus.models.methods  # noqa: F401 - registers the methods
    from dissensus.models.base import methods

    return methods[method](**keywords.parse(settings, methods[method], method))


def everything(model: Aggregator, table: Annotations) -> Annotations:
    """A table without rows that names the items of a model and of a table; golds are read by it."""
    import numpy as np

    from dissensus.models.incremental import merge

    items, _, _ = merge(model.items_, table.items, "items")
    nothing = np.empty(0, np.int32), np.empty(0, table.label.dtype), np.zeros(items.size + 1, np.int64)
    return type(table)(*nothing, items, model.annotators_, model.classes_)


def _in_classes_of(model: Aggregator, table: Annotations, what: str) -> Annotations:
    try:
        return table.to_classes(model.classes_)
    except UnknownClass as error:
        new = sorted(set(map(str, table.classes)) - set(map(str, model.classes_)))
        raise UnknownClass(
            f"{what} does not know {len(new):,} of the labels, such as {new[0]!r}; fit a model that does, or "
            "declare them with --abstain."
        ) from error


def _head(source: Source, seconds: float, model: Path | None, gold: Path | None) -> dict[str, Any]:
    """What a summary says about the run."""
    from dissensus import __version__

    files = {"input": source.file, "model": model, "gold_file": gold}
    given = {key: show.path(path) for key, path in files.items() if path is not None}
    return {"version": __version__} | given | {"seconds_reading": seconds}
