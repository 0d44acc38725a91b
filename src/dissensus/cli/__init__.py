"""The command line: each command has its own file and a summary in `PANELS`.

The module of a command is imported when the command is chosen, and a command imports its libraries inside its function,
so that neither `--help` nor a wrong option waits for them. Exit codes: 0 success, 1 bad data, 2 bad usage, 130
interrupted, 141 output pipe closed, 143 terminated.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dissensus.cli.errors import BAD_DATA, INTERRUPTED, TERMINATED, print_to_stderr, report_errors
from dissensus.cli.show import OWN_PROCESS

PANELS = {
    "Start": {
        "demo": "Try dissensus on a bundled table of 8,971 labels; no file is needed.",
        "describe": "Describe a table of labels: counts, classes, agreement (κ, α), and problems to mend first.",
        "aggregate": "Turn several labels per item into one label with its confidence, and rate the annotators.",
        "report": "Write an HTML page about the labels, the annotators and what to do next.",
    },
    "Annotators": {
        "diagnose": "Find annotators whose labels are random, contrary or copied, with the evidence.",
        "calibrate": "Correct the rates and scores of LLM judges with a sample of human labels.",
        "cluster": "Group items with similar labels, and annotators with similar answers.",
    },
    "Next labels": {
        "explain": "Explain why annotators disagree on an item: mistakes, ambiguity or different groups.",
        "recommend": "Choose the labels to collect next, or estimate how many per item are enough.",
        "adjudicate": "Decide disputed items yourself, by keyboard, on a page in your browser.",
    },
    "Every week": {
        "check": "Check a table against thresholds and against last week's, with an exit status for cron and CI.",
    },
    "Live": {
        "serve": "Run a web service that stores labels as they arrive and returns up-to-date answers.",
    },
    "Models": {
        "train": "Train a model that labels new items, from items with disagreeing labels.",
        "predict": "Label new items with a model that `dissensus train` wrote.",
        "evaluate": "Score a model's predictions; without predictions, rank the methods on held-out labels.",
        "list": "List methods, data sets, encoders and everything else that an option can name.",
    },
}
"""Panel of the help → its commands with the summary of each; the details are in the docstring of its function."""
COMMANDS = {name: summary for commands in PANELS.values() for name, summary in commands.items()}


class LazyGroup(TyperGroup):
    """List the commands of `PANELS`, and import a command when it is chosen; other packages can add questions."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command of `PANELS`, or of a question that another package declares."""
        candidates: list[Any] = [super().get_command(ctx, cmd_name)]
        if candidates[0] is None and _is_plugin_question(cmd_name):
            report_errors(lambda: candidates.insert(0, load_command(cmd_name)))()  # a broken plug-in is one sentence
        return candidates[0]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command with its options, and the remaining arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(str(name)), rest


def _is_plugin_question(name: str) -> bool:
    from dissensus.questions.base import questions

    return bool(questions.plugins(name))


def load_command(name: str) -> Any:
    """Return a command with its options, built from its module or from a declared question."""
    from dissensus.cli.command import expand_option_groups

    module, summary = None, COMMANDS.get(name)
    if find_spec(f"dissensus.cli.{name}") is not None:
        module = import_module(f"dissensus.cli.{name}")
        function = getattr(module, name, None) or getattr(module, f"{name}_")  # list_ does not hide the builtin
        details = cleandoc(function.__doc__).split("\n\n")[1:]  # the summary in `PANELS` replaces that of the function
    else:
        from dissensus.cli.question import question_command
        from dissensus.questions.base import questions

        function = question_command(questions[name])
        summary = summary or questions.entry(name).summary
        details = cleandoc(function.__doc__ or "").split("\n\n")
    wrapper = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    wrapper.command(
        name,
        # typer would keep the line breaks of a paragraph
        help="\n\n".join(text.replace("\n", " ") for text in [summary, *details] if text),
        cls=getattr(module, "COMMAND_CLASS", None),
    )(report_errors(expand_option_groups(function, name), getattr(module, "BAD_DATA", BAD_DATA)))
    return typer.main.get_command(wrapper)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # tracebacks are for developers
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, commands in PANELS.items():
    for command_name, command_summary in commands.items():
        app.command(command_name, help=command_summary, rich_help_panel=panel)(lambda: None)  # see `LazyGroup`


def _print_version(requested: bool) -> None:
    if requested:
        from dissensus import __version__

        typer.echo(f"dissensus {__version__}")
        raise typer.Exit


@app.callback(
    help="Get labels you can trust when annotators or models disagree.\n\n"
    "Try `dissensus demo`. Then run `dissensus describe FILE` and `dissensus aggregate FILE -o FOLDER` on your own "
    "labels. FILE has one row per label, with the item, the annotator and the label: CSV, Excel, Parquet, JSON lines "
    "or the export of an annotation tool."
)
def common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Declare the options that are given before the name of a command."""


def main() -> NoReturn:
    """Run the console script `dissensus`."""
    received: list[int] = []

    def stop(number: int, _: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(TERMINATED)  # results are removed on errors

    def report_dropped(dropped: sys.UnraisableHookArgs) -> None:
        if not received:  # an interruption that Python drops, as in callbacks of the compiler, is reported at the end
            sys.__unraisablehook__(dropped)

    sys.unraisablehook = report_dropped
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # characters it cannot encode
    code: Any = 0
    try:
        app(prog_name="dissensus", obj=OWN_PROCESS)
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if not received and not isinstance(error, SystemExit):
            raise
        if received:  # compiled code may have turned the interruption into another error
            interrupted = received[0] == signal.SIGINT
            if interrupted and code != INTERRUPTED:
                print_to_stderr("interrupted.")
            code = INTERRUPTED if interrupted else TERMINATED
    # a thread of Arrow that closes a Python file while the interpreter shuts down aborts one run in 150
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    os._exit(code or 0)
