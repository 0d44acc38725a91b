"""The command line: one file per command and one line in `COMMANDS`.

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

from dissensus.cli.errors import BAD_DATA, INTERRUPTED, TERMINATED, reported, say
from dissensus.cli.show import OWN_PROCESS

COMMANDS = {
    "describe": "Describe a table: counts, classes, agreement, and doubtful data.",
    "aggregate": "Aggregate many labels per item into one with its confidence, and measure how good each annotator is.",
    "compare": "Rank methods by how well they predict held-out annotations; no gold labels are needed.",
    "diagnose": "Flag annotators whose labels are unrelated to the items, contrary or copied, with reasons.",
    "calibrate": "Correct rates, systems, items and LLM judges by a sample of human labels, with valid intervals.",
    "explain": "Explain why labels of an item disagree: mistakes, an ambiguous item, or groups that differ.",
    "redundancy": "Estimate how many labels per item are enough, and what one more would change.",
    "recommend": "Recommend the labels to collect next, by expected information gain per cost.",
    "report": "Write a page about the labels, their confidence, the annotators, hard items, and what to do next.",
    "agreement": "Measure how far annotators agree beyond chance, with 95 % intervals.",
    "diff": "Compare two snapshots: labels, changed answers with reasons, annotators that drift.",
    "check": "Check a table against thresholds, alone and against an earlier one, with an exit status for cron and CI.",
    "adjudicate": "Decide the disputed items of a file by keyboard, on a page of this machine.",
    "serve": "Serve the consensus live next to a labelling tool: an HTTP service that stores annotations and answers.",
    "cluster": "Cluster items by their labels and annotators by how they label, jointly.",
    "train": "Train a model that predicts new items, from labels that disagree and what the items are.",
    "predict": "Predict the labels of items with a trained model, which remembers the columns of its inputs.",
    "decision": "Estimate which annotators label which items, from the pairs in a table.",
    "evaluate": "Evaluate predictions against annotations or gold: hard, soft, perspectivist and calibration scores.",
    "methods": "List the aggregation methods with their sources and parameters.",
    "datasets": "List the data sets: the bundled one, and those of the data folder that DISSENSUS_DATA names.",
}
"""Command → the first sentence of its help; the docstring of its function holds the rest."""


class LazyGroup(TyperGroup):
    """A group that lists commands by `COMMANDS` and imports one when it is chosen; plug-ins add questions."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command of ours, or the command of a question that another package declares."""
        found: list[Any] = [super().get_command(ctx, cmd_name)]
        if found[0] is None and _is_plugin(cmd_name):
            reported(lambda: found.insert(0, load_command(cmd_name)))()  # a broken plug-in is one sentence
        return found[0]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command with its options, and the remaining arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(str(name)), rest


def _is_plugin(name: str) -> bool:
    from dissensus.questions.base import questions

    return bool(questions.plugins(name))


def load_command(name: str) -> Any:
    """Return a command with its options: of a module here, or of a declared question."""
    from dissensus.cli.command import with_options

    module, sentence = None, COMMANDS.get(name)
    if find_spec(f"dissensus.cli.{name}") is not None:
        module = import_module(f"dissensus.cli.{name}")
        function = getattr(module, name)
    else:
        from dissensus.cli.question import question_command
        from dissensus.questions.base import questions

        function = question_command(name)
        sentence = sentence or questions.entry(name).summary
    paragraphs = [sentence, *cleandoc(function.__doc__ or "").split("\n\n")]
    wrapper = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    wrapper.command(
        name,
        help="\n\n".join(text.replace("\n", " ") for text in paragraphs if text),  # typer would keep line breaks
        cls=getattr(module, "COMMAND_CLASS", None),
    )(reported(with_options(function, name), getattr(module, "BAD_DATA", BAD_DATA)))
    return typer.main.get_command(wrapper)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # tracebacks are for developers
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command_name, sentence in COMMANDS.items():
    app.command(command_name, help=sentence)(lambda: None)  # see `LazyGroup`


def _print_version(requested: bool) -> None:
    if requested:
        from dissensus import __version__

        typer.echo(f"dissensus {__version__}")
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Labels you can trust from the disagreeing labels of many people or models.

    Start with `dissensus describe FILE`, then `dissensus aggregate FILE -o FOLDER`. FILE is a table of who gave which
    label to what, one row per annotation: CSV, Parquet, JSON lines or the export of an annotation tool.
    """


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
                say("interrupted.")
            code = INTERRUPTED if interrupted else TERMINATED
    # a thread of Arrow that closes a Python file while the interpreter shuts down aborts one run in 150
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    os._exit(code or 0)
