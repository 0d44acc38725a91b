"""Make the page: blocks in one HTML file that needs no network.

Text from the data never becomes markup: Jinja escapes it, and the scripts read it from a block of JSON and set it as
text. A content security policy allows no connections and no scripts except those of the page, by their hashes.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from dissensus.common.registry import skip_failing_plugin
from dissensus.report.blocks import ChartBlock, PageBlock, TableBlock
from dissensus.report.exceptions import DuplicateTableName
from dissensus.report.section import sections
from dissensus.table.io.jsonl import dumps

MAX_CHARTS_IN_ROW = 3
VEGA_ENTRY = "window.drawChart = vegaEmbed;"


def render_page(facts: dict[str, Any]) -> str:
    """Return the page of facts from `collect`."""
    import jinja2

    drawn = []
    data: dict[str, Any] = {"charts": {}, "tables": {}}
    for name, about in facts["sections"].items():
        entry = sections.entry(name)
        with skip_failing_plugin(entry):
            blocks = list(entry.value().draw(about))
            placed = [_template_block(block, name, number, data) for number, block in enumerate(blocks)]
            head = {"name": name, "title": entry.facts["title"], "summary": entry.summary}
            drawn.append(head | {"rows": _arrange_rows(placed)})
    scripts = [_bundle_vega(), _read_asset("common.js") + _read_asset("page.js")]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dissensus", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_join_percent_signs,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return str(
        environment.get_template("page.html").render(
            facts=facts,
            sections=drawn,
            style=_read_asset("page.css"),
            scripts=scripts,
            policy=_make_content_policy(scripts),
            data=_escape_for_script(data),
        )
    )


def _template_block(block: PageBlock, section: str, number: int, data: dict[str, Any]) -> dict[str, Any]:
    """Return a block as the template expects it, and add what the scripts need of it to `data`."""
    result = {"kind": block.kind, "id": f"{section}-{number}", **vars(block)}
    if isinstance(block, ChartBlock):
        data["charts"][result["id"]] = block.spec | {"description": block.alt}
    if isinstance(block, TableBlock):
        if block.name in data["tables"]:
            raise DuplicateTableName(name=block.name)
        data["tables"][block.name] = {
            "columns": [dataclasses.asdict(column) for column in block.columns],
            "rows": block.rows,
            "details": block.details,
            "page": block.page,
        }
    return result


def _arrange_rows(blocks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Arrange blocks in rows: up to three narrow charts in a row, every other block in a row of its own."""
    rows: list[list[dict[str, Any]]] = []
    open_ = False
    for block in blocks:
        narrow = block["kind"] == "ChartBlock" and not block["wide"]
        if narrow and open_ and len(rows[-1]) < MAX_CHARTS_IN_ROW:
            rows[-1].append(block)
        else:
            rows.append([block])
        open_ = narrow
    return rows


def _join_percent_signs(value: Any) -> Any:
    """Replace the space before % by one that does not break, so that a number and its % stay on one line."""
    plain = isinstance(value, str) and not hasattr(value, "__html__")
    return value.replace(" %", "\u00a0%") if plain else value


def _escape_for_script(value: Any) -> Any:
    """Return a value as JSON without the characters that could end a <script> block."""
    text = dumps(value)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    from markupsafe import Markup

    return Markup(text)


def _make_content_policy(scripts: list[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    # The policy forbids eval, so page.js tells Vega to interpret its expressions (option `ast`).
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"


@cache
def _bundle_vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed bundled as one script."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(VEGA_ENTRY)
    return bundle.replace("</script", "<\\/script")


@cache
def _read_asset(name: str) -> str:
    return resources.files("dissensus.report").joinpath(name).read_text(encoding="utf-8")
