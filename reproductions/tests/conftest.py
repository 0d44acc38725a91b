"""An empty working folder, and the command line of the papers in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reproductions.__main__ import app


@pytest.fixture
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder, and unset the data folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISSENSUS_DATA", raising=False)
    return tmp_path


@pytest.fixture
def cli() -> Callable[..., Any]:
    """Run `python -m reproductions` in the working folder: `cli("toy", "--quick")` → exit_code, stdout, stderr."""
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args], prog_name="python -m reproductions")
