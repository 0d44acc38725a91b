"""`dissensus diff`: what changed between two snapshots of a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli import folder, options, show
from dissensus.cli.errors import say
from dissensus.cli.options import option
from dissensus.cli.question import print_findings
from dissensus.cli.settings import Fit
from dissensus.cli.source import Source, answer_each
from dissensus.common.formatting import Count
from dissensus.questions.findings import ItemsAndAnnotatorsChanged, SnapshotsInWrongOrder, TooFewForDrift

if TYPE_CHECKING:
    from dissensus.questions.diff import Diff, FrameKind
    from dissensus.table.annotations import Annotations

TABLES: tuple[FrameKind, ...] = ("items", "labels", "annotators")
FILES = [Path(f"{name}.csv") for name in TABLES]
FLIPS_SHOWN = 10


@dataclass(frozen=True)
class NewSnapshot(Source):
    """The later one of two files."""

    named: str = typer.Argument(..., metavar="NEW", show_default=False, help="The same table later.")


def diff(
    *,
    old: str = typer.Argument(..., metavar="OLD", show_default=False, help="One row per annotation, as for describe."),
    output: Path | None = options.OUTPUT_FOLDER,
    fit: Fit,
    level: float = option(0.05, "Share of the annotators named for drift that may be named by chance."),
    source: NewSnapshot,
) -> None:
    """Labels that were added, changed or removed; items whose answer flipped, and the labels that caused it; annotators
    who agree with the others more or less often than before. FOLDER gets items.csv (flipped items with the reason),
    labels.csv (one row per changed label), annotators.csv (agreement before and since, p-values) and summary.json.

    Example: dissensus diff last-week.csv this-week.csv

    Example: dissensus diff last-week.csv this-week.csv -o changes
    """
    folder.check(output, FILES)
    before, after = source.read_both(old, output=output)
    periods = [next(iter(tables.values())).import_report.period for tables in (before, after)]  # type: ignore[union-attr]
    ends = [period and period[1] for period in periods]
    if ends[0] and ends[1] and ends[1] < ends[0]:
        say(f"warning: {SnapshotsInWrongOrder(new=source.named, new_end=ends[1], old=old, old_end=ends[0])}")

    def answer(table: Annotations, question: str | None) -> Diff:
        from dissensus.questions.diff import diff

        with show.show_progress(f"comparing {old} with {source.title(question)}"):
            return diff(before[question], table, method=fit.model(table.kind), level=level)

    answers = answer_each(after, answer, every=True)
    head: dict[str, Any] = {"old": show.path(Path(old)), "method": fit.name(after), "level": level}
    if output is not None:
        found = answers[None]
        with folder.results(output, FILES, {"new": show.path(source.file), **head, **_facts(found)}) as part:
            for kind in TABLES:
                folder.write_file(found.to_frame(kind, "pyarrow"), part / f"{kind}.csv")
    source.print_each(answers, _show, _facts, **head | show.paths(folder=output))
    if not source.json:
        show.written(output, "All changes are", "FOLDER to keep all changes")


def _facts(found: Diff) -> dict[str, Any]:
    people = found.to_frame("annotators", "pyarrow").drop_columns("drifts")
    return {
        "verdict": found.verdict(),
        "labels": {"old": found.old_labels, "new": found.new_labels, **found.counts()},
        "items": {"only_new": found.new_items, "only_old": found.lost_items},
        "annotators": {"only_new": found.new_annotators, "only_old": found.lost_annotators},
        "flipped": found.to_frame("items", "pyarrow").to_pylist(),
        "tested_annotators": found.drift.tested,
        "drifting": people.filter(found.drift.drifts).to_pylist(),
    }


def _show(title: str, found: Diff) -> None:
    show.line(f"{show.escape(title)}: {found.verdict()}")
    changed = {name: getattr(found, name) for name in ("new_items", "lost_items", "new_annotators", "lost_annotators")}
    print_findings("", [ItemsAndAnnotatorsChanged(**changed)] if any(changed.values()) else [])
    flips = _facts(found)["flipped"]
    rows = [
        (
            show.name(one["item"]),
            *(f"{show.name(one[at])} ({show.percent(one[f'{at}_confidence'])})" for at in ("old", "new")),
            show.escape(one["reason"]),
        )
        for one in flips[:FLIPS_SHOWN]
    ]
    if len(flips) > FLIPS_SHOWN:
        rows.append((f"… {len(flips) - FLIPS_SHOWN:,} more", "", "", "with -o and --json"))
    if rows:
        show.table("Items with another answer", ("item", "was", "is", "because"), rows)
    print_findings("", found.drift.findings(found.annotators))
    few = found.annotators.size - found.drift.tested
    if few and found.drift.tested and found.changes.item.size:
        from dissensus.questions.diff import MIN_LABELS

        print_findings("", [TooFewForDrift(n=Count(few), annotators=found.annotators.size, least=MIN_LABELS)])
