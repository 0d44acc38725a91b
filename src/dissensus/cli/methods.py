"""`dissensus methods`: the registry as a table."""

from __future__ import annotations

from typing import Annotated

import typer

from dissensus.cli import show


def methods(json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False) -> None:
    """List the aggregation methods, where they come from and their keywords.

    Example: dissensus methods
    """
    import dissensus.models.methods  # noqa: F401 - registers the methods
    from dissensus.models.base import methods as registry

    entries = [registry.entry(name) for name in registry]
    if json:
        described = [
            {
                "name": entry.name,
                "summary": entry.summary,
                "cite": entry.cite,
                "facts": entry.facts,
                "parameters": entry.value().get_params(),
            }
            for entry in entries
        ]
        show.json({"methods": described})
        return
    table = show.grid(None, "method", "what it does", "source", "keywords (--set)")
    for entry in entries:
        facts = "; ".join(
            key.replace("_", " ") + ("" if fact is True else f": {fact}") for key, fact in entry.facts.items() if fact
        )
        what = f"{entry.summary} ({facts})" if facts else entry.summary
        table.add_row(entry.name, what, entry.cite, ", ".join(entry.value().get_params()))
    table.columns[0].no_wrap = True
    out = show.console()
    out.print(table)
    out.print("Use one: dissensus aggregate FILE --method NAME -o FOLDER")
