"""Tutorials as pages of the site: every cell is run, and what it shows stands below it."""

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


def page(book: Path, *, execute: bool = True) -> str:
    """A notebook as Markdown; without `execute`, the outputs are left out."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    for cell in json.loads(book.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if execute:
            printed, value = run(source, names, f"{book.name}, {cell['id']}")
            parts += [f"```text\n{printed.rstrip()}\n```"] if printed else []
            parts += [] if value is None else [shown(value)]
    return "\n\n".join(parts) + "\n"


def run(code: str, names: dict[str, Any], where: str) -> tuple[str, Any]:
    """Run a cell as Jupyter does: what it prints, and what it ends with."""
    tree = ast.parse(code, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, where, "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)
    return printed.getvalue(), value


def shown(value: Any) -> str:
    """What a notebook shows of a value: its picture, its table or its text."""
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_()
        picture = base64.b64encode(bundle["image/svg+xml"].encode()).decode()
        return f'<img alt="{escape(bundle["text/plain"])}" src="data:image/svg+xml;base64,{picture}">'
    if hasattr(value, "_repr_html_"):
        return f'<div class="output">{value._repr_html_()}</div>'
    return f"```text\n{value!r}\n```"
