"""`dissensus aggregate`: infer one label per item with its confidence, and the quality of each annotator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import exceptions as faults
from dissensus.cli import folder, options, show
from dissensus.cli.options import option
from dissensus.cli.settings import new_model
from dissensus.cli.source import SourceOfTables, TrainingGold, answer_each
from dissensus.messages import ParameterName

if TYPE_CHECKING:
    from dissensus.cli.results import Result
    from dissensus.models.answers import AnswerModel
    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

    Answers = tuple[dict[str | None, Result], dict[str, Any]]  # question → result, and the summary of all

MAX_ANNOTATIONS_FLAGGED = 2_000_000  # searching larger tables for copying annotators takes longer than fitting


@dataclass(frozen=True)
class FitOptions:
    """Options for the method, the engine, the stored model and the output."""

    output: Path | None = options.OUTPUT_FOLDER
    format_: folder.TableFormat | None = option(
        None, "Format of the result tables.", "--format", show_default="csv; parquet with --engine disk or spark"
    )
    method: str | None = options.METHOD
    setting: list[str] | None = options.SETTINGS
    max_iter: int | None = option(None, "Maximum number of passes over the data.")
    seed: int | None = options.SEED
    threads: int | None = option(None, "Number of threads, if the method uses several; all cores by default.", min=1)
    engine: options.Engine | None = option(
        None,
        "Where the data is processed: in memory, on a disk, on a GPU or in Spark; --set engine.KEY=VALUE sets options.",
        show_default="local",
    )
    model: Path | None = option(
        None, "Score FILE with the model of an earlier run's folder instead of fitting one.", metavar="FOLDER"
    )
    update: bool = option(
        False, "Add FILE's annotations to the --model, and write it and the results of all its items.", "--update"
    )
    flags: bool | None = option(
        None,
        "Look for answers that are unrelated to the items, contrary or copied; by default with up to "
        f"{MAX_ANNOTATIONS_FLAGGED:,} annotations.",
        "--flags/--no-flags",
    )
    to: str | None = options.TOOL

    @property
    def settings(self) -> list[str]:
        """All settings of the method, including parameters with their own option."""
        own = {"max_iter": self.max_iter, "seed": self.seed}
        return [*(self.setting or []), *(f"{key}={value}" for key, value in own.items() if value is not None)]

    def set_threads(self, model: Aggregator) -> None:
        """Set the number of threads if the model can use several."""
        if self.threads is not None and "threads" in model.parameter_names():
            model.set_params(threads=self.threads)


def aggregate(*, task: FitOptions, gold: TrainingGold, source: SourceOfTables) -> None:
    """Fit or load a model, and print and write its answers about FILE.

    FOLDER gets items.csv (item, label, confidence, votes, number of labels, status with its reason, p_CLASS …),
    annotators.csv (annotator, annotations, reliability, its interval, flags with reasons), confusions.csv if the
    method models them, spans.csv (document, start, end, label, probability) for spans, model.npz for --model, and
    summary.json, or all of these in one sub-folder per question. Nothing is written unless everything is; the result
    tables of an earlier run are replaced.

    Example: dissensus aggregate labels.csv --gold gold.csv -o results

    Example: dissensus aggregate new.csv --model results -o new-results

    Example: dissensus aggregate today.csv --model yesterday --update -o today

    Example: dissensus aggregate export.json --to label-studio -o results

    Example: dissensus aggregate "labels/*.parquet" --engine disk --set engine.memory_gb=2 -o results
    """
    from dissensus.cli import results, tool_files
    from dissensus.cli.print_result import print_results

    if task.to is not None:
        tool_files.check_tool(task.to, source, task.output)
    folder.check_folder(task.output, (*results.RESULT_FILES, Path(results.MODEL_FILE)))
    if task.model is None:
        if task.update:
            raise faults.OptionNeeds(option=ParameterName("update"), needed="the model to update: --model FOLDER")
        if task.engine in (None, "local", "torch"):
            answers, summary = fit_in_memory(task, gold, source)
        else:
            from dissensus.cli.engine import fit_out_of_memory

            answers, summary = fit_out_of_memory(task, gold, source)
    else:
        from dissensus.cli import scoring

        options.refuse_together("--model", "engine", "method", "setting", "max_iter", "seed", "flags")
        gold.check_scoring_only("--model")
        answers, summary = (scoring.update_model if task.update else scoring.score_tables)(task, gold, source)
    if source.json:
        show.print_json(summary, folder=task.output)
        return
    print_results(answers, source, preview=task.output is None)
    show.print_written(task.output, "Results are", "FOLDER in which to save the results")
    if task.to is not None and task.output is not None:
        show.print_line(
            f"The labels for {task.to} are in {show.escape(task.output / tool_files.tool_file_name(task.to))}"
        )


def fit_in_memory(task: FitOptions, gold: TrainingGold, source: SourceOfTables) -> Answers:
    """Fit a model to each question of FILE."""
    from dissensus.cli import results
    from dissensus.models.answers import AnswerModel
    from dissensus.table.kinds import CLASS_KINDS

    settings, engine = task.settings, None
    if task.engine is not None or any(setting.startswith("engine.") for setting in settings):
        from dissensus.cli.engine import choose_engine

        engine, settings = choose_engine(task.engine, settings, task.method)
    new_model(task.method, settings, source.kind or "classes")  # reports a wrong name before FILE is read

    def answer(table: Annotations, question: str | None) -> Result:
        model = new_model(task.method, settings, table.kind)
        task.set_threads(model)
        if engine is not None:
            model.set_params(engine=engine)
        if isinstance(model, AnswerModel):
            check_label_type(model, flags=task.flags, to=None if question else task.to)
            table = gold.include_gold_classes(table)
        flags = task.flags
        if flags is None:
            flags = table.n_annotations <= MAX_ANNOTATIONS_FLAGGED and table.kind in CLASS_KINDS
        scoring, training = gold.read_scoring(table), gold.read_training(table)
        return results.fit_table(model, table, scoring, source.make_title(question), training=training, flags=flags)

    return answer_and_write(task, gold, source, answer)


def answer_and_write(
    task: FitOptions,
    gold: TrainingGold,
    source: SourceOfTables,
    answer: Callable[[Annotations, str | None], Result],
) -> Answers:
    """Answer each question of FILE, write the results if there is an output, and return them with their summary."""
    from dissensus.cli import results, tool_files

    began = time.perf_counter()
    tables = source.read_tables(gold=gold.gold, score_gold=gold.score_gold)
    summary = make_summary_header(task, gold, source, time.perf_counter() - began)
    answers = answer_each(tables, answer, every=True)
    folders = {} if None in tables else results.make_folder_names(map(str, tables))
    named = {question: {"folder": name} | answers[question].summary for question, name in folders.items()}
    summary |= {"questions": named} if named else answers[None].summary
    if task.output is not None:
        with folder.write_results(task.output, results.list_replaceable_files(task.output), summary) as part:
            for question, result in answers.items():
                results.write_result(result, part / folders.get(question, ""), task.format_ or "csv")
            if task.to is not None:
                tool_files.write_tool_file(answers, task.to, source, part)
    return answers, summary


def make_summary_header(task: FitOptions, gold: TrainingGold, source: SourceOfTables, seconds: float) -> dict[str, Any]:
    """Return the first entries of the summary: the version, the files and the import report."""
    from dissensus import __version__

    files = show.format_paths(input=source.file, model=task.model) | gold.file_facts()
    return {"version": __version__} | files | {"reading": source.import_report, "seconds_reading": seconds}


def check_label_type(model: AnswerModel, **given: Any) -> None:
    """Raise NotForLabels if an option for classes is given, and the labels are of another type."""
    from dissensus.table.kinds import KIND_DESCRIPTIONS

    for name, value in given.items():
        if value:
            raise faults.NotForLabels(option=ParameterName(name), kind=KIND_DESCRIPTIONS[model.kinds[0]])
