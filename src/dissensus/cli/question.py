"""The command of a declared question: its options, JSON, frame and text follow from `questions.base.Question`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dissensus.cli import folder, options, show
from dissensus.cli.errors import for_command_line, say
from dissensus.cli.options import option
from dissensus.cli.settings import Fit
from dissensus.cli.source import Gold, Source, answer_each
from dissensus.common.parameters import Param, hint_alternatives
from dissensus.messages import Message
from dissensus.questions.base import Finding, Listing, Question, Shares, Table, questions

CLASS_KINDS = {"classes", "graded"}  # `table.kinds.CLASS_KINDS`, which takes long to import


def question_command(name: str) -> Callable[..., None]:
    """Return the function of a command, with the options that the question declares."""
    kind = questions[name]
    needed = kind.inputs()

    def run(*, source: Source, fit: Fit | None = None, gold: Gold | None = None, output: Path | None = None,
            annotators: Path | None = None, **given: Any) -> None:  # fmt: skip
        given |= {"seed": given["seed"] or 0} if "seed" in given else {}
        question = kind(**given)
        question.check_parameters()
        folder.check_file(output, kind.rows)
        tables = source.read(
            output=output, any_kind=not {*kind.kinds} <= CLASS_KINDS, gold=None if gold is None else gold.gold
        )
        about = None
        if annotators is not None:
            from dissensus.cli.inputs import read_table

            about = read_table(annotators)

        def answer(table: Any, title: str | None) -> Any:
            model = None if fit is None else fit.model(table.kind)
            known = None
            if gold is not None:
                table = gold.include(table, None)
                known = gold.read(table)
            if "model" in needed:
                with show.show_progress(f"fitting {source.title(title)}"):
                    model = model.fit(table)  # type: ignore[union-attr]
            with show.show_progress(f"{kind.working} {source.title(title)}") as bar:
                found = question.ask(table, model=model, gold=known, annotators=about, progress=bar.set_text)
            for message in question.warnings(found):
                say(f"warning: {for_command_line(message)}")
            return found

        def show_one(title: str, found: Any) -> None:
            print_findings(title, question.findings(found))
            show.text()

        head = {key: getattr(question, key) for key in kind.settings}
        head |= {} if fit is None else {"method": fit.name(tables)}
        kept = (f"All {kind.rows} are", f"FILE to keep all {kind.rows}") if kind.rows else None
        source.print_each(
            answer_each(tables, answer), show_one, question.plain, output=output, kept=kept,
            frame=lambda found: _as_frame(question.frame(found)), **head,
        )  # fmt: skip

    found = [_keyword("output", Path | None, options.OUTPUT_FILE)] if kind.rows else []
    found += [_parameter(kind, key, declared) for key, declared in kind.declared().items()]
    found += [_keyword("annotators", Path | None, options.PEOPLE)] if "annotators" in needed else []
    found += [_keyword("fit", Fit)] if {"model", "method"} & set(needed) else []
    found += [_keyword("gold", Gold)] if "gold" in needed else []
    found.append(_keyword("source", Source))
    run.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    facts = [f"{key}: {text}" for key, text in kind.fields().items()]
    paragraphs = [inspect.cleandoc(kind.__doc__ or "").partition("\n\nParameters\n---")[0]]
    run.__doc__ = "\n\n".join([*paragraphs, *([f"Fields of --json: {'; '.join(facts)}."] if facts else [])])
    return run


def _as_frame(frame: Any) -> Any:
    from dissensus.common.frames import columns_to_frame

    return columns_to_frame(frame, "pyarrow") if isinstance(frame, list) else frame


def _keyword(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _parameter(kind: type[Question], name: str, declared: Param) -> inspect.Parameter:
    """Return one option; typer checks its range, as far as it knows it."""
    hint = kind.parameter_hint(name)
    if name == "seed":
        return _keyword(name, int | None, options.SEED)
    names = kind.flags.get(name, (f"--{name.replace('_', '-')}",))
    number = {int, float} & set(hint_alternatives(hint))
    limits: dict[str, Any] = {"min": declared.low, "max": declared.high} if number else {}
    text = f"{declared.text[:1].upper()}{declared.text[1:]}."
    return _keyword(name, hint, option(declared.default, text, *names, **limits))


def print_findings(title: str, findings: Iterable[Finding]) -> None:
    """Print findings; the first is headed by what it is about."""
    for number, one in enumerate(findings):
        about = "" if number else show.escape(title)
        if isinstance(one, Table):
            show.table(
                one.title or about or None, one.columns, [[show.escape(cell) for cell in row] for row in one.rows],
                numbers=one.numbers, unbroken=one.unbroken, header=one.header,
            )  # fmt: skip
        elif isinstance(one, Shares):
            show.bars(one.columns, one.shares, 1, shares=True)
        elif isinstance(one, Listing):
            show.line(one.heading)
            for message in one.messages:
                show.line(f"  • {show.escape(for_command_line(message))}")
        else:
            print_message(one, about)


def print_message(message: Message, about: str = "") -> None:
    """Print a message as one line, behind what it is about; a terminal breaks it between words."""
    sentence = show.escape(for_command_line(message))
    if about or not show.make_console().is_terminal:
        show.line(f"{about}: {sentence}" if about else sentence)
    else:
        show.text(sentence)
