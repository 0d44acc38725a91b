"""Rewrite what the documents generate from the code: tables between `<!-- name -->` and `<!-- end name -->`.

`python docs/generate.py` rewrites; with `--check` it exits 1 where a document is out of date (a test runs this).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from dissensus import methods
from dissensus.table.io.formats import FORMATS

ROOT = Path(__file__).parent.parent


def methods_table(depth: str) -> str:
    """One row per registered method, with a link to its page."""
    rows = ["| method | in one line | source |", "|---|---|---|"]
    for name in methods:
        entry = methods.entry(name)
        rows.append(f"| [`{name}`]({depth}docs/methods/{name}.md) | {entry.summary} | {entry.cite} |")
    return "\n".join(rows)


def formats_table(depth: str) -> str:
    """One row per file format."""
    rows = ["| format | files | written too |", "|---|---|---|"]
    for name, form in FORMATS.items():
        suffixes = ", ".join(f"`{suffix}`" for suffix in form.suffixes)
        rows.append(f"| `{name}` | {suffixes} | {'yes' if form.write else ''} |")
    return "\n".join(rows)


def encoders_table(depth: str) -> str:
    """One row per encoder."""
    from dissensus.learning.encoders import encoders

    rows = ["| encoder | X | in one line | source |", "|---|---|---|---|"]
    for name, entry in encoders.entries():
        rows.append(f"| `{name}` | {entry.value.takes} | {entry.summary} | {entry.cite or '—'} |")
    return "\n".join(rows)


def objectives_table(depth: str) -> str:
    """One row per objective."""
    from dissensus.learning.objectives import objectives

    rows = ["| objective | in one line | source |", "|---|---|---|"]
    rows += [f"| `{name}` | {entry.summary} | {entry.cite or '—'} |" for name, entry in objectives.entries()]
    return "\n".join(rows)


BLOCKS: dict[str, Callable[[str], str]] = {
    "methods": methods_table,
    "formats": formats_table,
    "encoders": encoders_table,
    "objectives": objectives_table,
}


def fill(text: str, depth: str) -> str:
    """`text` with every generated block made anew."""
    for name, make in BLOCKS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)"
        if f"<!-- {name} -->" not in text:  # what is not asked for need not be imported
            continue
        text = re.sub(pattern, lambda found, make=make: f"{found[1]}{make(depth)}\n{found[2]}", text, flags=re.DOTALL)
    return text


def main() -> int:
    """Rewrite, or check, README.md and every page of docs/."""
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        depth = "../" * (len(path.relative_to(ROOT).parts) - 1)
        before = path.read_text(encoding="utf-8")
        after = fill(before, depth)
        if before != after:
            stale.append(path.relative_to(ROOT).as_posix())
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print("out of date, run `make docs`: " + ", ".join(stale))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
