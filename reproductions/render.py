"""Write pages: our figure, the published one, their difference with its interval, and differences in protocol."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproductions.claims_picture import draw_claims
from reproductions.experiment import Metric, Paper, Table
from reproductions.record import Results, commit_text
from reproductions.record import markdown_table as markdown_table
from reproductions.runner import Failure
from reproductions.verdict import Claim, ValuesBySeed, estimate_mean

PROGRAM = "python -m reproductions"
MISSING = "not run yet."
STARS = ((0.01, "**"), (0.05, "*"))
QUICK = "A quick run: few seeds, short trainings. The figures only show that everything runs."
INTERVALS = (
    "Intervals (95 %) are over seeds, with the same items: they predict another run on this data set, not another data "
    "set. A claim holds if all of its intervals are above 0. If only some are, differences count that are significant "
    "after Holm's correction (p ≤ 0.05 over all differences of the claim)."
)
DRAWN = "Claims: every difference with its interval; differences to the right of the line agree with the paper"
OLDER = (
    "Results of an older commit count if their configuration is the same; the last column is the command that made them"
)


# Rows of a table ------------------------------------------------------------------------------------------------------


def current_lines(paper: Paper, results: Results, *, quick: bool = False) -> Results:
    """Keep the lines whose key is that of a cell as the tables have it now, with any number of seeds."""

    def counts(line: dict[str, Any]) -> bool:
        table = paper.tables.get(line.get("table", ""))
        if table is None:
            return False
        cell = table.cell(line["data"], line["condition"], tuple(line["seeds"]), quick=quick)
        return cell is not None and cell.key == line["key"]

    return {key: line for key, line in results.items() if counts(line)}


def values_of(table: Table, results: Results, data: str, condition: str, metric: str) -> dict[int, float]:
    """Seed → value, in the order of the seeds. A seed that is in two lines (--seeds) counts once, by the longer one."""
    names, found = (table.paper, table.name, data, condition), dict[int, float]()
    for line in sorted(results.values(), key=lambda line: len(line["seeds"])):
        if (line["paper"], line["table"], line["data"], line["condition"]) == names and metric in line["values"]:
            found.update(zip(line["seeds"], line["values"][metric], strict=True))
    return dict(sorted(found.items()))


def table_rows(table: Table, results: Results, failures: Sequence[Failure], data: str) -> list[list[str]]:
    """One row per condition: for each metric ours, published, the difference."""
    failed: dict[str, list[str]] = {}
    for one in failures:
        if (one.cell.table, one.cell.data) == (table.name, data):
            failed.setdefault(one.cell.condition, []).append(one.error)
    rows, metrics = [], metrics_of(table, results, data)
    for condition in table.conditions_of(data):
        row, notes = [condition], []
        why = table.why_not(data, condition)
        for metric in metrics:
            mine = values_of(table, results, data, condition, metric.name)
            told = table.published_value(data, condition, metric.name)
            p = values_of(table, results, data, condition, metric.p) if metric.p else {}
            row.append(_our_text(mine, metric) + (significance_stars(next(iter(p.values()))) if mine and p else ""))
            if is_published(table, data, metric):
                stars = table.published_stars(data, condition, metric.name)
                row += [_published_text(told, metric) + stars, _difference(mine, told, metric)]
        seeds = max((len(values_of(table, results, data, condition, m.name)) for m in table.metrics), default=0)
        errors = failed.get(condition, [])
        if why is not None:
            notes.append(f"not run: {why}")
        elif not seeds:
            notes.append(errors[0] if errors else MISSING)
        elif errors:
            notes.append(f"{len(errors)} more failed: {errors[0]}")
        if why is None and (differs := table.why_differs(data, condition)) is not None:
            notes.append(differs)
        rows.append([*row, str(seeds or ""), " ".join(notes)])
    return rows


def table_header(table: Table, results: Results, data: str) -> list[str]:
    """Return the header of `rows_of`."""
    head = [data]
    for metric in metrics_of(table, results, data):
        head += [metric.label, *(["published", "difference"] if is_published(table, data, metric) else [])]
    return [*head, "seeds", ""]


def metrics_of(table: Table, results: Results, data: str) -> list[Metric]:
    """Return the metrics that this data set has, ours or published; all of them if it has none yet."""
    has = [
        metric
        for metric in table.metrics
        if is_published(table, data, metric)
        or any(values_of(table, results, data, condition, metric.name) for condition in table.conditions)
    ]
    return has or list(table.metrics)


def is_published(table: Table, data: str, metric: Metric) -> bool:
    """Return True if the paper has a figure of this metric on this data set."""
    return any(metric.name in one for one in table.published.get(data, {}).values())


def significance_stars(p: float) -> str:
    """Return the stars of a p-value: ** for p ≤ 0.01, * for p ≤ 0.05."""
    return next((stars for most, stars in STARS if p <= most), "")


def _our_text(values: dict[int, float], metric: Metric) -> str:
    if not values:
        return ""
    scaled = metric.scale * np.array(list(values.values()))
    error = f" ± {scaled.std(ddof=1) / math.sqrt(scaled.size):.{metric.digits}f}" if scaled.size > 1 else ""
    smallest = 10.0**-metric.digits
    if not error and 0 < scaled[0] < smallest / 2:  # A p-value is not 0, so "0.000" would be wrong.
        return f"< {smallest:.{metric.digits}f}"
    return f"{scaled.mean():.{metric.digits}f}{error}"


def _published_text(told: tuple[float, float | None] | None, metric: Metric) -> str:
    if told is None:
        return ""
    error = "" if told[1] is None else f" ± {told[1]:.{metric.digits}f}"
    return f"{told[0]:.{metric.digits}f}{error}"


def _difference(values: dict[int, float], told: tuple[float, float | None] | None, metric: Metric) -> str:
    """Return our figure minus the published one, with an interval over our seeds (and the published error)."""
    if not values or told is None:
        return ""
    found = estimate_mean([metric.scale * value - told[0] for value in values.values()])
    if found.n < 2:
        return f"{found.mean:+.{metric.digits}f}"
    half = math.hypot(found.high - found.mean, 1.96 * (told[1] or 0))
    mean, low, high = (f"{x:+.{metric.digits}f}" for x in (found.mean, found.mean - half, found.mean + half))
    return f"{mean} ({low} to {high})"


# A page ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """Content of the Markdown and HTML pages; made once, because tests over all seeds take long."""

    paper: Paper
    tables: Sequence[Table]
    lines: Results  # Lines of the store that count.
    shown: Results  # These lines and the results derived from them.
    claims: list[Claim]
    stale: int  # Number of lines of the store that do not count.
    failures: Sequence[Failure] = ()
    quick: bool = False

    @property
    def claims_file(self) -> str:
        """Return the file name of the picture of the claims."""
        return f"{self.paper.name}{'-quick' if self.quick else ''}-claims.svg"

    @property
    def command(self) -> str:
        """Return the command that makes the page."""
        return f"{PROGRAM} {self.paper.name}{' --quick' if self.quick else ''}"


def make_page(
    paper: Paper, tables: Sequence[Table], results: Results, failures: Sequence[Failure] = (), *, quick: bool = False
) -> Page:
    """Make the page from all lines of a store."""
    lines = current_lines(paper, results, quick=quick)
    derive, judge = (getattr(paper.module, name, None) for name in ("derived", "claims"))
    shown = dict(lines)
    if derive is not None and lines:  # Derived results: tables made from others, and tests over all seeds.
        shown |= {f"derived {number}": line for number, line in enumerate(derive(lines))}

    def get(table: str, data: str, condition: str, metric: str) -> ValuesBySeed:
        return values_of(paper.tables[table], shown, data, condition, metric)

    claims: list[Claim] = [] if judge is None else judge(get)
    return Page(paper, tables, lines, shown, claims, len(results) - len(lines), failures, quick)


def difference_texts(claim: Claim) -> list[str]:
    """Return one text per difference."""
    nothing = ["no result for this claim."]
    return [f"{name} {difference}" for name, difference in claim.differences.items()] or nothing


def summary_of(page: Page) -> str:
    """Return the number of cells, their days, commits, devices, versions and hours, and the number not shown."""
    lines = list(page.lines.values())
    of = f"{page.stale:,} of {len(lines) + page.stale:,} lines of the store"
    hidden = f" Not shown: {of}, made with other settings than the tables have now." if page.stale else ""
    if not lines:
        return f"Nothing has been run.{hidden}"
    made = [line["made"] for line in lines]

    def distinct(key: str) -> str:
        return ", ".join(sorted({str(one.get(key)) for one in made if one.get(key)}))

    days = ", ".join(sorted({_date_of(one) for one in made}))
    versions = sorted({f"{name} {number}" for one in made for name, number in one.get("versions", {}).items()})
    without = sum(not one.get("versions") for one in made)
    unknown = f" (those of {without:,} cells were not kept)" if without else ""
    hours = sum(line["seconds"] for line in lines) / 3600
    return (
        f"{len(lines):,} cells, {hours:.1f} hours of computing; {days}; commit {distinct('commit')}; "
        f"{distinct('device')}; {', '.join(versions)}{unknown}.{hidden}"
    )


def provenance_rows(page: Page) -> list[list[str]]:
    """Return one row per table, day and commit: the number of cells, and the command that made them."""
    count = Counter(
        (line["table"], _date_of(made), commit_text(made), made.get("by") or "?")
        for line in page.lines.values()
        for made in [line["made"]]
    )
    order = {name: number for number, name in enumerate(page.paper.tables)}
    rows = sorted(count.items(), key=lambda entry: (order[entry[0][0]], entry[0][1:]))
    return [
        [
            table, f"{cells:,}", day, commit,
            f"`{by}`" + ("" if by.startswith(PROGRAM) else " of that commit"),
        ]
        for (table, day, commit, by), cells in rows
    ]  # fmt: skip


def _date_of(made: dict[str, Any]) -> str:
    return str(made.get("date", "?"))[:10]


ORIGINS_HEAD = ["table", "cells", "date", "commit", "made by"]
CLAIMS_HEAD = ["claim", "verdict"]


def render_markdown(page: Page) -> str:
    """Return the page as Markdown."""
    paper, parts = page.paper, [f"# {page.paper.title}", page.paper.cite]
    if page.quick:
        parts.append(f"**{QUICK.replace(':', '**:', 1)}")
    parts += [paper.note] if paper.note else []
    if page.claims:
        parts.append(f"## Claims\n\n{INTERVALS}")
        parts.append(markdown_table(CLAIMS_HEAD, [[c.text, c.verdict] for c in page.claims], None))
        parts.append(f"![{DRAWN}]({page.claims_file})")
        folded = [f"**{c.text}**\n\n" + "\n".join(f"- {text}" for text in difference_texts(c)) for c in page.claims]
        parts += ["<details><summary>Every difference, with its interval</summary>", *folded, "</details>"]
    for table in page.tables:
        parts.append(f"## {table.name}: {table.title}")
        parts += [table.note] if table.note else []
        for data in table.data:
            rows = table_rows(table, page.shown, page.failures, data)
            parts.append(markdown_table(table_header(table, page.shown, data), rows, None))
        parts += [f"![{figure['text']}]({figure['file']})" for figure in table.figures]
    if paper.protocol:
        parts.append("## Differences from the paper's protocol\n\n" + "\n".join(f"- {text}" for text in paper.protocol))
    parts.append(f"## How it was made\n\n    {page.command}")
    if page.lines:
        parts += [f"{OLDER}:", markdown_table(ORIGINS_HEAD, provenance_rows(page), None)]
    parts.append(summary_of(page))
    return "\n\n".join(parts) + "\n"


def render_html(page: Page) -> str:
    """Return the page as HTML."""
    return PAGE.format(title=html.escape(page.paper.title), body="\n".join(_html_parts(page)))


def _html_parts(page: Page) -> Iterator[str]:
    paper = page.paper
    yield f"<h1>{html.escape(paper.title)}</h1>"
    yield from _paragraphs(paper.cite, QUICK if page.quick else "", *paper.note.split("\n\n"))
    if page.claims:
        yield f"<h2>Claims</h2><p>{INTERVALS}</p>"
        yield html_table(CLAIMS_HEAD, [[c.text, c.verdict] for c in page.claims])
        yield f"<figure>{draw_claims(page.claims)}</figure>"
        rows = [[c.text, "\n".join(difference_texts(c))] for c in page.claims]
        yield f"<details><summary>Every difference</summary>{html_table(['claim', 'figures'], rows)}</details>"
    for table in page.tables:
        yield f"<h2>{html.escape(table.name)}: {html.escape(table.title)}</h2>"
        yield from _paragraphs(table.note)
        for data in table.data:
            yield html_table(table_header(table, page.shown, data), table_rows(table, page.shown, page.failures, data))
        for figure in table.figures:
            text, file = html.escape(figure["text"]), html.escape(figure["file"])
            yield f"<figure><img src='{file}' alt='{text}'><figcaption>{text}</figcaption></figure>"
    if paper.protocol:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in paper.protocol)
        yield f"<h2>Differences from the paper's protocol</h2><ul>{items}</ul>"
    yield f"<h2>How it was made</h2><pre>{html.escape(page.command)}</pre>"
    if page.lines:
        yield from _paragraphs(f"{OLDER}:")
        yield html_table(ORIGINS_HEAD, provenance_rows(page))
    yield from _paragraphs(summary_of(page))


def _paragraphs(*texts: str) -> Iterator[str]:
    return (f"<p>{html.escape(text)}</p>" for text in texts if text)


def html_table(head: list[str], rows: list[list[str]]) -> str:
    """Return an HTML table of escaped texts."""
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='wide'><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }}
.wide {{ overflow-x: auto; margin: 1rem 0; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
figure {{ margin: 1rem 0; }} img {{ max-width: 100%; }}
td {{ white-space: pre-line; }}
th, td {{ text-align: left; padding: .25rem .7rem; border-bottom: 1px solid #8884; vertical-align: top; }}
</style></head><body>
{body}
</body></html>
"""
