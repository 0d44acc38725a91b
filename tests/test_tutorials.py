"""Every cell of the tutorials runs, and what a cell ends with can be shown; no output is kept in git."""

import ast
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
BOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(book, kind):
    read = json.loads(book.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in read if cell["cell_type"] == kind]


def run(code, names, where):
    """Run a cell as Jupyter does; what it ends with is returned."""
    tree = ast.parse(code, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_tutorial_runs(book, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    shown = 0
    for cell in cells(book, "code"):
        found = run("".join(cell["source"]), names, f"{book.name}, {cell['id']}")
        if hasattr(found, "_repr_html_"):
            assert "<td>" in found._repr_html_()
            shown += 1
        if hasattr(found, "_repr_mimebundle_"):
            assert found._repr_mimebundle_()["image/svg+xml"].startswith("<svg")
    assert shown


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_tutorial_has_no_output_and_its_links_lead_somewhere(book):
    for cell in cells(book, "code"):
        assert (cell["execution_count"], cell["outputs"]) == (None, []), cell["id"]
    links = re.findall(r"\]\(([\w./-]+)\)", "".join("".join(cell["source"]) for cell in cells(book, "markdown")))
    assert links
    assert all((FOLDER / link).exists() for link in links), links
    assert book.name in (FOLDER / "README.md").read_text(encoding="utf-8")
