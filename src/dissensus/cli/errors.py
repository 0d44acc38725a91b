"""Whatever goes wrong in a command becomes one sentence on stderr and an exit code; a warning becomes one line."""

from __future__ import annotations

import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from dissensus.cli.face import COMMAND_LINE
from dissensus.cli.show import clean
from dissensus.exceptions import BadParameter, DissensusError, DissensusWarning, RowsLeftOut, UnknownName
from dissensus.messages import Message

BAD_DATA, BAD_USAGE, INTERRUPTED, READER_GONE = 1, 2, 130, 141

LIBRARY_ADVICE: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"classes=\[…\]"), "--classes A,B,…"),
    (re.compile(r"\(other data or keywords\); remove it,"), "(other data or keywords); start anew with --fresh,"),
    (re.compile(r"\bkind=(?=[,.;: )]|$)"), "--kind"),
)
"""How the library's advice to a programmer is said to somebody at a command line."""


def reported(command: Callable[..., None], bad_data: int = BAD_DATA) -> Callable[..., None]:
    """The command, ending with a sentence and an exit code instead of a traceback."""

    @functools.wraps(command)  # the signature too, from which typer reads the options
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", DissensusWarning)
                warnings.simplefilter("ignore", RowsLeftOut)  # the line that says how FILE was read counts them
                warnings.showwarning = lambda message, *_, **__: say(f"warning: {for_command_line(message)}")
                command(*args, **kwargs)
            sys.stdout.flush()
        except DissensusError as error:
            usage = isinstance(error, BadParameter | UnknownName)
            _exit_with(for_command_line(error), BAD_USAGE if usage else bad_data, error)
        except KeyboardInterrupt as error:
            _exit_with("interrupted.", INTERRUPTED, error)
        except BrokenPipeError as error:  # such as `dissensus methods | head -1`
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - so that the flush at exit has somewhere to go
            raise typer.Exit(READER_GONE) from error
        except OSError as error:
            about = "" if error.filename is None else f"{os.fspath(error.filename)}: "
            _exit_with(f"{about}{error.strerror or error}.", bad_data, error)
        except UnicodeEncodeError as error:  # Arrow opens no file whose name is not UTF-8
            _exit_with(f"{error.object[:200]}: this name is not UTF-8; rename the file or folder.", bad_data, error)
        except MemoryError as error:
            _exit_with("there is not enough memory for this.", bad_data, error)

    return run


def for_command_line(error: object) -> str:
    """Render a message of the library with options instead of keywords."""
    message = error.render(COMMAND_LINE) if isinstance(error, Message) else str(error)
    for pattern, words in LIBRARY_ADVICE:
        message = pattern.sub(words, message)
    return message


def say(message: str) -> None:
    """One line on stderr."""
    typer.echo(f"dissensus: {clean(message)}", err=True)


@contextmanager
def prefix_errors(what: str) -> Iterator[None]:
    """Our errors and warnings from inside say what they are about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DissensusWarning)
        try:
            yield
        except DissensusError as error:
            error.within(what)
            raise
    for warning in caught:
        message = warning.message
        message = message.within(what) if isinstance(message, Message) else f"{what}: {message}"
        warnings.warn_explicit(message, warning.category, warning.filename, warning.lineno, registry={})


def _exit_with(message: str, code: int, error: BaseException) -> NoReturn:
    say(message)
    raise typer.Exit(code) from error
