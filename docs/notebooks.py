"""Convert tutorials to pages of the site: run every cell, and show its output below it."""

from __future__ import annotations

import ast
import base64
import io
import json
from contextlib import redirect_stdout
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "tutorials"
BOOKS = sorted(FOLDER.glob("*.ipynb"))


def notebook_to_markdown(book: Path, *, execute: bool = True) -> str:
    """Return a notebook as Markdown, with outputs if `execute` is true."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    for cell in json.loads(book.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if execute:
            printed, value = run_cell(source, names, f"{book.name}, {cell['id']}")
            parts += [f"```text\n{printed.rstrip()}\n```"] if printed else []
            parts += [] if value is None else [value_to_markdown(value)]
    return "\n\n".join(parts) + "\n"


def run_cell(code: str, names: dict[str, Any], where: str) -> tuple[str, Any]:
    """Run a cell as Jupyter does; return what it prints, and the value of its last expression."""
    tree = ast.parse(code, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, where, "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)
    return printed.getvalue(), value


def value_to_markdown(value: Any) -> str:
    """Return a value as a notebook shows it: its picture, its table or its text."""
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_()
        picture = base64.b64encode(bundle["image/svg+xml"].encode()).decode()
        return f'<img alt="{escape(bundle["text/plain"])}" src="data:image/svg+xml;base64,{picture}">'
    if hasattr(value, "_repr_html_"):
        return f'<div class="output">{value._repr_html_()}</div>'
    return f"```text\n{value!r}\n```"
