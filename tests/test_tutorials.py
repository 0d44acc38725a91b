"""Every cell of the tutorials runs, and what a cell ends with can be shown; no output is kept in git."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
BOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(book, kind):
    read = json.loads(book.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in read if cell["cell_type"] == kind]


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_tutorial_runs_and_its_results_show_themselves(book, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    from notebooks import notebook_to_markdown

    shown = notebook_to_markdown(book)
    assert "<td>" in shown
    assert shown.count("data:image/svg+xml") == sum(
        "dz.chart(" in "".join(cell["source"]) for cell in cells(book, "code")
    )


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_tutorial_has_no_output_and_its_links_lead_somewhere(book):
    for cell in cells(book, "code"):
        assert (cell["execution_count"], cell["outputs"]) == (None, []), cell["id"]
    links = re.findall(r"\]\(([\w./-]+)\)", "".join("".join(cell["source"]) for cell in cells(book, "markdown")))
    assert links
    assert all((FOLDER / link).exists() for link in links), links
    assert book.name in (FOLDER / "README.md").read_text(encoding="utf-8")
