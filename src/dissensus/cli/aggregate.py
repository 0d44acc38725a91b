"""`dissensus aggregate`: one label per item, how sure it is, and how good each annotator is."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import folder, options, show
from dissensus.cli.options import Gold, Source, SourceOfTables, option
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.exceptions import BadParameter, UnknownClass

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

MAX_ANNOTATIONS_FLAGGED = 2_000_000  # beyond, looking for copies takes longer than most methods


def aggregate(
    *,
    output: Path | None = options.OUTPUT_FOLDER,
    format_: folder.TableFormat | None = option(
        None, "Of the result tables.", "--format", show_default="csv; parquet with --engine disk or spark"
    ),
    method: str | None = options.METHOD,
    setting: list[str] | None = options.SETTINGS,
    max_iter: int | None = option(None, "Passes over the data at most."),
    seed: int | None = options.SEED,
    threads: int | None = option(None, "Where the method uses several; all cores where left out.", min=1),
    engine: options.Engine | None = option(
        None,
        "Where passes run: in memory, over Parquet on a disk, on a GPU, in Spark; see --set engine.KEY=VALUE.",
        show_default="local",
    ),
    model: Path | None = option(
        None, "Score FILE with the model of an earlier run's folder instead of fitting one.", metavar="FOLDER"
    ),
    update: bool = option(
        False, "Add FILE's annotations to the --model, and write it and the results of all its items.", "--update"
    ),
    flags: bool | None = option(
        None,
        "Look for answers that are unrelated to the items, contrary or copied; left out, with up to "
        f"{MAX_ANNOTATIONS_FLAGGED:,} annotations.",
        "--flags/--no-flags",
    ),
    to: str | None = options.TO,
    known: Path | None = options.KNOWN,
    gold: Gold,
    source: SourceOfTables,
) -> None:
    """FOLDER gets items.csv (item, label, confidence, votes, number of labels, status with its reason, p_CLASS …),
    annotators.csv (annotator, annotations, reliability, its interval, flags with reasons), confusions.csv
    where the method models them, spans.csv (document, start, end, label, probability) of spans, model.npz for --model,
    and summary.json, or all of these in one sub-folder per question. Nothing is written unless everything is; the
    result tables of an earlier run are replaced.

    Example: dissensus aggregate labels.csv --method dawid-skene --gold gold.csv -o results

    Example: dissensus aggregate new.csv --model results -o new-results

    Example: dissensus aggregate today.csv --model yesterday --update -o today

    Example: dissensus aggregate export.json --to label-studio -o results

    Example: dissensus aggregate "labels/*.parquet" --engine disk --set engine.memory_gb=2 -o results
    """
    from dissensus.cli import engine as engines
    from dissensus.cli import results
    from dissensus.models.answers import AnswerModel
    from dissensus.table.kinds import CLASS_KINDS, KINDS

    if to is not None:
        from dissensus.table.io.writers import writers

        writers.entry(to)  # a wrong name should not wait for the file
        if source.ticks == "questions":
            raise BadParameter(f"--to {to}: questions that --ticks made are none of the tool's; leave --ticks out.")
        if output is None:
            raise BadParameter(f"--to {to} writes a file; say where with -o FOLDER.")
    folder.check(output, (*results.FILES, Path(results.MODEL)))
    shortcuts = {"max_iter": max_iter, "seed": seed}
    settings = [*(setting or []), *(f"{key}={value}" for key, value in shortcuts.items() if value is not None)]
    if update and model is None:
        raise BadParameter("--update needs the model to update: --model FOLDER.")
    engine_options = None
    if model is None:
        engine_options, settings = engines.choose(engine, settings, method or DEFAULT_METHOD)
        make: Callable[..., Aggregator] = partial(options.new_model, method, settings)
        make(source.kind or "classes")  # a wrong name or keyword should not wait for the file
    else:
        fitting = [("--engine", engine), ("--method", method), ("--set, --max-iter and --seed", settings)]
        for name, given in (*fitting, ("--known", known), ("--flags", flags)):
            if given:
                raise BadParameter(f"--model scores with what was learnt before; leave out {name}.")
        make = partial(results.load_model, model)

    def model_for(table: Annotations | None = None, question: str | None = None) -> Aggregator:
        one = make(question) if model is not None else make("classes" if table is None else table.kind)
        if engine_options is not None:
            one.set_params(engine=engine_options)
        if threads is not None and "threads" in one.get_params():
            one.set_params(threads=threads)
        return one

    def answer(table: Annotations, question: str | None) -> results.Result:
        one = model_for(table, question)
        what = source.title(question)
        if isinstance(one, AnswerModel):
            for name, given in (("--flags", flags), ("--to", to if question is None else None), ("--update", update)):
                if given:
                    raise BadParameter(
                        f"{name} is for classes, and these labels are {KINDS[one.kinds[0]]}; leave it out."
                    )
            table = gold.include(table, known)
            table = table if model is None else table.as_kind(one.kinds[0])
        elif model is not None:
            table = _in_classes_of(one, table, f"{source.file}: the model in {model}")
        if model is None:
            codes, sure = gold.read(table), gold.read_file(known, table)
            few = table.n_annotations <= MAX_ANNOTATIONS_FLAGGED and table.kind in CLASS_KINDS  # who has habits there
            look = few if flags is None else flags
            return results.fit(one, table, codes, f"fitting {what}", known=sure, flags=look)
        if not update:
            return results.score(one, table, gold.read(table), f"scoring {what}")
        if not one.items_.size:
            raise BadParameter(
                f"the model in {model} was written without its items, as --engine disk and spark do; fit all "
                "annotations again."
            )
        from dissensus.models.incremental import merge

        all_items = results.table_of_items(merge(one.items_, table.items, "items")[0], one)
        return results.update(one, table, gold.read(all_items), f"updating with {source.file}")

    began = time.perf_counter()
    if engine in engines.ELSEWHERE:  # the table is never in memory here
        in_memory = {"--known": known, "--flags": flags, "--format": (format_ or "parquet") != "parquet", "--to": to}
        for name, given in in_memory.items():
            if given:
                raise BadParameter(f"{name} is for a table in memory; leave it out, or --engine {engine}.")
        table = engines.read_elsewhere(source, engine_options)
        summary = _head(source, time.perf_counter() - began, model, gold)
        known_labels = None if gold.gold is None else gold.columns(gold.gold)
        result = engines.fit_and_write(model_for(), table, f"fitting {source.file}", known_labels, output, summary)
        answers: dict[str | None, results.Result] = {None: result}
    else:
        tables = source.read(gold=gold.gold, known=known)
        summary = _head(source, time.perf_counter() - began, model, gold)
        answers = options.answer_each(tables, answer, every=True)
        folders = {} if None in tables else results.safe_names(map(str, tables))
        named = {question: {"folder": name} | answers[question].summary for question, name in folders.items()}
        summary |= {"questions": named} if named else answers[None].summary
        if output is not None:
            with folder.results(output, results.stale_files(output), summary) as part:
                for question, result in answers.items():
                    results.write(result, part / folders.get(question, ""), format_ or "csv")
                if to is not None:
                    results.write_for_tool(answers, to, source, part)
    if source.json:
        show.json(summary, folder=output)
        return
    for question, result in answers.items():
        results.print_result(result, source.title(question), preview=output is None)
    show.written(output, "Results are", "FOLDER to keep the results")
    if to is not None and output is not None:
        show.line(f"The labels for {to} are in {show.clean(output / writers[to].file)}")


def _in_classes_of(model: Aggregator, table: Annotations, what: str) -> Annotations:
    try:
        return table.to_classes(model.classes_)
    except UnknownClass as error:
        new = sorted(set(map(str, table.classes)) - set(map(str, model.classes_)))
        raise UnknownClass(
            f"{what} does not know {len(new):,} of the labels, such as {new[0]!r}; fit a model that does, or "
            "declare them with --abstain."
        ) from error


def _head(source: Source, seconds: float, model: Path | None, gold: Gold) -> dict[str, Any]:
    from dissensus import __version__

    files = show.paths(input=source.file, model=model, gold_file=gold.gold)
    return {"version": __version__} | files | {"reading": source.account, "seconds_reading": seconds}
