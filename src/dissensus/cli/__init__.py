"""The command line: one file per command, and a line in `COMMANDS`.

A command imports what it needs inside its function, so that `--help` does not wait for the numerical libraries. Exit
codes: 0 good, 1 bad data, 2 bad usage, 130 interrupted, 143 terminated, 141 the reader of the output went away.
"""

from __future__ import annotations

import signal
import sys
from inspect import cleandoc
from typing import Annotated, NoReturn

import typer

from dissensus.cli import (
    aggregate,
    agreement,
    cluster,
    compare,
    datasets,
    describe,
    methods,
    predict,
    recommend,
    report,
    train,
)
from dissensus.cli.errors import reported, say

COMMANDS = (
    describe.describe,
    aggregate.aggregate,
    compare.compare,
    recommend.recommend,
    report.report,
    agreement.agreement,
    cluster.cluster,
    train.train,
    predict.predict,
    methods.methods,
    datasets.datasets,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # what is no error of the user's is ours, and its traceback should be plain
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in COMMANDS:
    # paragraphs without line ends, which typer would keep
    app.command(help="\n\n".join(part.replace("\n", " ") for part in cleandoc(command.__doc__ or "").split("\n\n")))(
        reported(command)
    )


def _version(asked: bool) -> None:
    if asked:
        from dissensus import __version__

        typer.echo(f"dissensus {__version__}")
        raise typer.Exit


@app.callback()
def options(
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
    stopped: list[int] = []

    def stop(number: int, _: object) -> NoReturn:
        stopped.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(143)  # an exception, so that nothing is left half-written

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a character it cannot show
    try:
        app(prog_name="dissensus")
    except BaseException as error:
        if not stopped:
            raise
        # compiled code, or whatever was under way, may have made another error of it
        code = 130 if stopped[0] == signal.SIGINT else 143
        if code == 130 and not (isinstance(error, SystemExit) and error.code == code):
            say("interrupted.")
        sys.exit(code)
    sys.exit(0)
