"""The command line: one file per command, and a line in `COMMANDS`.

The module of a command is imported when the command is chosen, and a command imports what it needs inside its
function: neither `--help` nor a wrong option waits for the numerical libraries. Exit codes: 0 good, 1 bad data, 2 bad
usage, 130 interrupted, 143 terminated, 141 the reader of the output went away.
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

from dissensus.cli.errors import BAD_DATA, reported, say

COMMANDS = {
    "describe": "Say what is in a table: counts, classes, agreement, and what looks doubtful.",
    "aggregate": "Turn many labels per item into one, with how sure it is and how good each annotator is.",
    "compare": "Rank methods by how well they predict annotations that were hidden from them; no gold is needed.",
    "diagnose": "Name annotators whose answers ignore the item, contradict the others or are copied, and say why.",
    "calibrate": "Correct the rates, systems, items and judges of a panel by some human labels, with valid intervals.",
    "explain": "Say why the labels of items disagree: somebody erred, the item is ambiguous, or groups differ.",
    "redundancy": "Say how many labels per item are enough, and what one more would change.",
    "recommend": "Say whom to ask about what next: the labels that are expected to tell most for their price.",
    "report": "Write a page that says what is in the labels, how sure they are, who is good, what is hard, what to do "
    "next.",
    "agreement": "Say how far the annotators agree, beyond what chance would give, with 95 % intervals.",
    "diff": "Say what changed between two snapshots: labels, answers that flipped and why, annotators that drift.",
    "check": "Hold a table to limits, alone and against last week's: a line per check and an exit status, for cron and "
    "CI.",
    "adjudicate": "Decide by keyboard, on a page of this machine, the items on which the labels of a file differ.",
    "serve": "Keep the consensus live beside a labelling tool: an HTTP service that stores annotations and answers.",
    "cluster": "Cluster items by how they are labelled and annotators by how they label, together.",
    "train": "Train a model that predicts new items, from labels that disagree and what the items are.",
    "predict": "Predict the labels of items with a trained model; which columns to take is remembered from training.",
    "decision": "Estimate which annotators label which items, from the pairs in a table.",
    "evaluate": "Judge predictions by annotations or gold: hard, soft, perspectivist and calibration scores.",
    "methods": "List the aggregation methods, where they come from and their keywords.",
    "datasets": "List the labelled sets: the bundled one, and those of the data folder that DISSENSUS_DATA names.",
}
"""Command → the first sentence of its help. The rest of the help is the docstring of its function."""

RETRY_SECONDS = 0.05  # after which an interruption that was dropped is raised again


class LazyGroup(TyperGroup):
    """A group that lists commands by `COMMANDS` and imports one when it is chosen; plug-ins add questions."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command of ours, or the command of a question that another package declares."""
        found: list[Any] = [super().get_command(ctx, cmd_name)]
        if found[0] is None and _is_plugin(cmd_name):
            reported(lambda: found.insert(0, load_command(cmd_name)))()  # a broken plug-in is one sentence
        return found[0]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command with its options, and the arguments that are left."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(str(name)), rest


def _is_plugin(name: str) -> bool:
    from dissensus.questions.base import questions

    return bool(questions.plugins(name))


def load_command(name: str) -> Any:
    """Return a command with its options: of a module here, or of a declared question."""
    from dissensus.cli.options import with_options

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
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    one.command(
        name,
        help="\n\n".join(text.replace("\n", " ") for text in paragraphs if text),  # typer would keep line ends
        cls=getattr(module, "COMMAND_CLASS", None),
    )(reported(with_options(function, name), getattr(module, "BAD_DATA", BAD_DATA)))
    return typer.main.get_command(one)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # what is no error of the user's is ours, and its traceback should be plain
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command_name, sentence in COMMANDS.items():
    app.command(command_name, help=sentence)(lambda: None)  # see `LazyGroup`


def _version(asked: bool) -> None:
    if asked:
        from dissensus import __version__

        typer.echo(f"dissensus {__version__}")
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Labels you can trust from the disagreeing labels of many people or models.

    Start with `dissensus describe FILE`, then `dissensus aggregate FILE -o FOLDER`. FILE is a table of who gave which
    label to what, one row per annotation: CSV, Parquet, JSON lines or the export of an annotation tool.
    """


def main() -> NoReturn:
    """The console script `dissensus`."""
    from dissensus.cli import options

    options.own_process = True
    stopped: list[int] = []

    def stop(number: int, _: object) -> NoReturn:
        stopped.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(143)  # an exception, so that nothing is left half-written

    def again(lost: sys.UnraisableHookArgs) -> None:
        """Stop a moment later where Python had to drop the interruption, as in a callback of the compiler."""
        if not stopped:
            sys.__unraisablehook__(lost)
        elif hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, lambda *_: stop(stopped[0], None))
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)

    sys.unraisablehook = again
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a character it cannot show
    code: Any = 0
    try:
        app(prog_name="dissensus")
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if not stopped and not isinstance(error, SystemExit):
            raise
        if stopped:  # compiled code, or whatever was under way, may have made another error of it
            interrupted = stopped[0] == signal.SIGINT
            if interrupted and code != 130:
                say("interrupted.")
            code = 130 if interrupted else 143
    # a thread of Arrow that lets go of a Python file during the interpreter's last steps aborts one run in 150
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    os._exit(code or 0)
