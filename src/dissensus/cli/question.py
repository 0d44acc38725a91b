"""Create commands from declared questions: `questions.base.Question` declares their options, JSON, frame and text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dissensus.cli import folder, options, show
from dissensus.cli.errors import print_to_stderr, render_for_command_line
from dissensus.cli.options import option
from dissensus.cli.settings import MethodOptions
from dissensus.cli.source import Gold, Source, answer_each
from dissensus.common.parameters import hint_alternatives
from dissensus.messages import Message
from dissensus.questions.base import Finding, MessageList, Question, ShareBars, Table

CLASS_KINDS = {"classes", "graded"}  # `table.kinds.CLASS_KINDS`, which takes long to import


def question_command(kind: type[Question]) -> Callable[..., None]:
    """Return the function of a command, with the options that the question declares."""
    needed = kind.inputs()

    def run(*, source: Source, fit: MethodOptions | None = None, gold: Gold | None = None, output: Path | None = None,
            annotators: Path | None = None, **values: Any) -> None:  # fmt: skip
        answer_question(new_question(kind, **values), source, fit=fit, gold=gold, output=output, annotators=annotators)

    parameters = [_make_parameter("output", Path | None, options.OUTPUT_FILE)] if kind.row_noun else []
    parameters += [_make_option_parameter(kind, name) for name in kind.declared()]
    parameters += [_make_parameter("annotators", Path | None, options.ANNOTATORS)] if "annotators" in needed else []
    parameters += [_make_parameter("fit", MethodOptions)] if {"model", "method"} & set(needed) else []
    parameters += [_make_parameter("gold", Gold)] if "gold" in needed else []
    parameters.append(_make_parameter("source", Source))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    facts = [f"{key}: {text}" for key, text in kind.fact_texts().items()]
    paragraphs = [inspect.cleandoc(kind.__doc__ or "").partition("\n\nParameters\n---")[0]]
    run.__doc__ = "\n\n".join([*paragraphs, *([f"Fields of --json: {'; '.join(facts)}."] if facts else [])])
    return run


def new_question(kind: type[Question], **values: Any) -> Question:
    """Return a question with checked options; without --seed, the seed is 0."""
    question = kind(**(values | {"seed": values["seed"] or 0} if "seed" in values else values))
    question.check_parameters()
    return question


def answer_question(
    question: Question,
    source: Source,
    *,
    fit: MethodOptions | None = None,
    gold: Gold | None = None,
    output: Path | None = None,
    annotators: Path | None = None,
    command: str = "",
) -> None:
    """Read FILE, answer the question about each of its tables, and print and write the answers.

    `command` names the command in the error about a label type, if a part of the command answers the question.
    """
    kind = type(question)
    needed = kind.inputs()
    folder.check_output_file(output, kind.row_noun)
    gold_file = None if gold is None else gold.gold
    any_kind = not {*kind.kinds} <= CLASS_KINDS
    tables = source.read_tables(output=output, gold=gold_file, any_kind=any_kind, command=command)
    groups = None
    if annotators is not None:
        from dissensus.cli.inputs import read_table

        groups = read_table(annotators)

    def answer(table: Any, title: str | None) -> Any:
        model = None if fit is None else fit.new_model(table.kind)
        gold_codes = None
        if gold is not None:
            table = gold.include_gold_classes(table)
            gold_codes = gold.read_scoring(table)
        if "model" in needed:
            with show.show_progress(f"fitting {source.make_title(title)}"):
                model = model.fit(table)  # type: ignore[union-attr]
        with show.show_progress(f"{kind.progress_text} {source.make_title(title)}") as bar:
            facts = question.ask(table, model=model, gold=gold_codes, annotators=groups, progress=bar.set_text)
        for message in question.warnings(facts):
            print_to_stderr(f"warning: {render_for_command_line(message)}")
        return facts

    def show_one(title: str, facts: Any) -> None:
        print_findings(title, question.findings(facts))
        show.print_text()

    settings = {key: getattr(question, key) for key in kind.json_options}
    settings |= {} if fit is None else {"method": fit.method_name(tables)}
    written = (f"All {kind.row_noun} are", f"FILE to keep all {kind.row_noun}") if kind.row_noun else None
    source.print_answers(
        answer_each(tables, answer), show_one, question.to_json, output=output, kept=written,
        frame=lambda facts: _to_frame(question.to_frame(facts)), **settings,
    )  # fmt: skip


def _to_frame(frame: Any) -> Any:
    from dissensus.common.frames import columns_to_frame

    return columns_to_frame(frame, "pyarrow") if isinstance(frame, list) else frame


def _make_parameter(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _make_option_parameter(kind: type[Question], name: str) -> inspect.Parameter:
    hint = int | None if name == "seed" else kind.parameter_hint(name)
    return _make_parameter(name, hint, options.SEED if name == "seed" else question_option(kind, name))


def question_option(kind: type[Question], name: str, *, panel: str | None = None) -> Any:
    """Return the option for a parameter of a question; typer checks the part of its range that it can express."""
    declared = kind.declared()[name]
    names = kind.option_names.get(name, (f"--{name.replace('_', '-')}",))
    number = {int, float} & set(hint_alternatives(kind.parameter_hint(name)))
    limits: dict[str, Any] = {"min": declared.low, "max": declared.high} if number else {}
    text = f"{declared.text[:1].upper()}{declared.text[1:]}."
    return option(declared.default, text, *names, panel=panel, **limits)


def print_findings(title: str, findings: Iterable[Finding]) -> None:
    """Print findings, with the title in front of the first."""
    for number, one in enumerate(findings):
        about = "" if number else show.escape(title)
        if isinstance(one, Table):
            show.print_table(
                one.title or about or None, one.columns, [[show.escape(cell) for cell in row] for row in one.rows],
                numbers=one.numbers, unbroken=one.unbroken, header=one.header,
            )  # fmt: skip
        elif isinstance(one, ShareBars):
            show.print_bars(one.columns, one.shares, 1, shares=True)
        elif isinstance(one, MessageList):
            show.print_line(one.heading)
            for message in one.messages:
                show.print_line(f"  • {show.escape(render_for_command_line(message))}")
        else:
            print_message(one, about)


def print_message(message: Message, about: str = "") -> None:
    """Print a message after its title."""
    sentence = show.escape(render_for_command_line(message))
    show.print_text(f"{about}: {sentence}" if about else sentence)
