"""Turn every error of a command into one sentence on stderr and an exit code, and every warning into one line."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from dissensus.cli.face import make_face
from dissensus.cli.show import current_invocation, escape
from dissensus.exceptions import BadParameter, DissensusError, DissensusWarning, RowsLeftOut, UnknownName
from dissensus.messages import Message

BAD_DATA, BAD_USAGE, INTERRUPTED, READER_GONE, TERMINATED = 1, 2, 130, 141, 143


def report_errors(command: Callable[..., None], bad_data: int = BAD_DATA) -> Callable[..., None]:
    """Return the command with error handling: an error ends it with one sentence and an exit code."""

    @functools.wraps(command)  # typer reads the options from the signature
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", DissensusWarning)
                warnings.simplefilter("ignore", RowsLeftOut)  # the line about reading FILE counts these rows
                warnings.showwarning = show_warning
                command(*args, **kwargs)
            sys.stdout.flush()
        except DissensusError as error:
            usage = isinstance(error, BadParameter | UnknownName)
            exit_with(render_for_command_line(error), BAD_USAGE if usage else bad_data, error)
        except KeyboardInterrupt as error:
            exit_with("interrupted.", INTERRUPTED, error)
        except BrokenPipeError as error:  # such as `dissensus list methods | head -1`
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - the flush at exit needs an open stream
            raise typer.Exit(READER_GONE) from error
        except OSError as error:
            about = "" if error.filename is None else f"{os.fspath(error.filename)}: "
            exit_with(f"{about}{error.strerror or error}.", bad_data, error)
        except UnicodeEncodeError as error:  # Arrow opens no file whose name is not UTF-8
            exit_with(f"{error.object[:200]}: the name is not UTF-8; rename the file or folder.", bad_data, error)
        except MemoryError as error:
            exit_with("there is not enough memory to run this command.", bad_data, error)

    return run


def render_for_command_line(message: object) -> str:
    """Render a message with the options of the running command in place of parameters."""
    face = getattr(message, "face", None) or make_face(current_invocation.get())
    return message.render(face) if isinstance(message, Message) else str(message)


def print_to_stderr(message: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"dissensus: {escape(message)}", err=True)


def show_warning(message: object, *_: object, **__: object) -> None:
    """Print one line about a warning."""
    print_to_stderr(f"warning: {render_for_command_line(message)}")


def exit_with(message: str, code: int, error: BaseException) -> NoReturn:
    """Print the sentence about an error and end the command."""
    print_to_stderr(message)
    raise typer.Exit(code) from error


@contextmanager
def prefix_errors(subject: str) -> Iterator[None]:
    """Put the subject in front of errors and warnings of this package that are raised inside the block."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DissensusWarning)
        try:
            yield
        except DissensusError as error:
            error.add_subject(subject)
            raise
    for warning in caught:
        message = warning.message
        message = message.add_subject(subject) if isinstance(message, Message) else f"{subject}: {message}"
        warnings.warn_explicit(message, warning.category, warning.filename, warning.lineno, registry={})
