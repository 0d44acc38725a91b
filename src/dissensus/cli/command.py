"""Turn functions into commands: option groups become options, and files that are read are never overwritten."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any, get_type_hints

import typer

from dissensus.cli import show
from dissensus.cli.options import QUIET
from dissensus.common import progress
from dissensus.common.atomic import protect_inputs

OUTPUT_PARAMETERS = ("output", "next_file")  # parameters that name files to write


def expand_option_groups(command: Callable[..., None], name: str) -> Callable[..., None]:
    """Return the command with the signature that typer needs: option groups are replaced by their fields.

    Every command also gets --quiet, its name in the JSON output, and lines of progress if stderr is a pipe.
    """
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    ]
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if not dataclasses.is_dataclass(parameter.annotation):
            options.append(parameter)
            continue
        groups[parameter.name] = parameter.annotation
        hints = get_type_hints(parameter.annotation)
        options += [
            inspect.Parameter(field.name, parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
            for field in dataclasses.fields(parameter.annotation)
        ]
    options.append(inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=QUIET, annotation=bool))

    @functools.wraps(command)
    def run(context: typer.Context, *, quiet: bool, **given: Any) -> None:
        own_process = context.find_root().obj == show.OWN_PROCESS
        set_by_user = [key for key in given if getattr(context.get_parameter_source(key), "name", "") == "COMMANDLINE"]
        keys = [setting.partition("=")[0].strip() for setting in given.get("setting") or ()]
        settings = {key.rpartition(".")[2].replace("-", "_"): key for key in keys}
        show.current_invocation.set(show.Invocation(name, tuple(given), set_by_user, settings, own_process))
        inputs = list(_list_input_files(given))
        for parameter, group in groups.items():
            given[parameter] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        with progress.set_output(quiet=quiet, lines=own_process), protect_inputs(inputs):
            command(**given)

    # Depending on its version, typer reads the signature or the annotations.
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    del run.__dict__["__wrapped__"]  # otherwise typer reads the signature of the command itself
    return run


def _list_input_files(given: Mapping[str, Any]) -> Iterator[Path]:
    """Yield every input file: options name files, patterns or folders; options for output files are skipped."""
    for name, value in given.items():
        for text in value if isinstance(value, list) else [value]:
            if name in OUTPUT_PARAMETERS or not isinstance(text, str | Path):
                continue
            found = [Path(text)]
            if set("*?[") & set(str(text)):
                found += map(Path, glob(str(text), recursive=True))  # noqa: PTH207 - absolute patterns too
            for path in found:
                with suppress(OSError, ValueError):  # the value of an option may not be a path
                    if path.is_file():
                        yield path
                    elif path.is_dir() and (isinstance(text, Path) or name == "named"):
                        yield from _list_run_files(path)


def _list_run_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, and those in its sub-folders if an earlier run wrote it.

    HTML pages, and the .json and key files that belong to them, are skipped.
    """
    from dissensus.cli.folder import SUMMARY

    inside = [*folder.glob("*"), *(folder.glob("*/*") if (folder / SUMMARY).is_file() else ())]
    for path in inside:
        pages = (path.with_name(path.stem.removesuffix("-key") + suffix) for suffix in (".html", ".htm"))
        if path.is_file() and not any(page.exists() for page in pages):
            yield path
