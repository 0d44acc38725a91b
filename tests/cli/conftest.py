"""A small table as a file, and the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from cli.tables import rows, write_csv
from dissensus.cli import app, errors


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; no data folder, whatever the caller has set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISSENSUS_DATA", raising=False)
    return tmp_path


@pytest.fixture
def labels(here: Path) -> Path:
    """labels.csv: 40 items, 7 annotators, 3 classes; gold.csv beside it."""
    annotations, truth = rows()
    write_csv(here / "gold.csv", ["item", "label"], truth)
    return write_csv(here / "labels.csv", ["item", "annotator", "label"], annotations)


@pytest.fixture
def questions(here: Path) -> Path:
    """questions.csv: two questions whose names are no file names, one of them in two spellings."""
    asked = [
        (question, *row)
        for number, question in enumerate(["is it/good?", "is it good", "Tone"])
        for row in rows(20, 5, seed=number)[0]
    ]
    return write_csv(here / "questions.csv", ["question", "item", "annotator", "label"], asked)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command line here: `cli("describe", path)` → exit_code, stdout, stderr, error (or None), warnings."""

    def run(*args: object) -> Any:
        raised: list[BaseException] = []
        shown: list[Any] = []

        def exit_with(message: str, code: int, error: BaseException) -> NoReturn:
            raised.append(error.with_traceback(None))  # frames would keep locks of a run
            end(message, code, error)

        def show_warning(message: Any, *_: object, **__: object) -> None:
            shown.append(message)
            warn(message)

        end, warn = errors.exit_with, errors.show_warning
        with monkeypatch.context() as patch:
            patch.setattr(errors, "exit_with", exit_with)
            patch.setattr(errors, "show_warning", show_warning)
            result: Any = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="dissensus")
        result.error, result.warnings = raised[0] if raised else None, shown
        return result

    return run
