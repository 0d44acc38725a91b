"""Pictures of a paper: those that are not there yet are drawn by its module, beside the pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reproductions.experiment import Paper, Table


def draw_figures(paper: Paper, tables: Sequence[Table], folder: Path, device: str) -> dict[str, str]:
    """File → why it could not be drawn; the tables are worth having without."""
    failed = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in (figure["file"] for table in tables for figure in table.figures):
        if not (folder / name).exists():
            try:
                paper.module.draw(folder / name, device)
            except Exception as error:  # of drawing libraries, of data
                failed[name] = f"{type(error).__name__}: {error}"
    return failed
