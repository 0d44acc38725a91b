"""`dissensus methods`: the registry of methods as a table."""

from __future__ import annotations

from dissensus.cli import options, show


def methods(json: bool = options.JSON) -> None:
    """Other commands take every parameter of a method: --set KEY=VALUE.

    Example: dissensus methods
    """
    from dissensus.models.base import methods as registry

    entries = [entry for _, entry in registry.entries()]
    if json:
        described = [
            {key: getattr(entry, key) for key in ("name", "summary", "cite", "facts")}
            | {"parameters": entry.value().get_params()}
            for entry in entries
        ]
        show.json({"methods": described})
        return
    rows = []
    for entry in entries:
        facts = "; ".join(
            key.replace("_", " ") + ("" if fact is True else f": {fact}") for key, fact in entry.facts.items() if fact
        )
        what = f"{entry.summary} ({facts})" if facts else entry.summary
        rows.append((entry.name, what, entry.cite, ", ".join(entry.value().get_params())))
    columns = ("method", "summary", "source", "parameters (--set)")
    show.table(None, columns, rows, unbroken=("method",))
    show.text("Use one: dissensus aggregate FILE --method NAME -o FOLDER")
