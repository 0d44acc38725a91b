"""Print and write the changes between two tables for `dissensus check --against`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import folder, show
from dissensus.cli.errors import print_to_stderr
from dissensus.cli.question import print_findings
from dissensus.common.formatting import Count
from dissensus.questions.findings import ItemsAndAnnotatorsChanged, SnapshotsInWrongOrder, TooFewForDrift

if TYPE_CHECKING:
    from dissensus.cli.source import Tables
    from dissensus.questions.diff import Diff, FrameKind

TABLES: tuple[FrameKind, ...] = ("items", "labels", "annotators")
CHANGE_FILES = [Path(f"{name}.csv") for name in TABLES]
FLIPS_SHOWN = 10


def warn_of_order(old_tables: Tables, new_tables: Tables, old: str, new: str) -> None:
    """Warn if the last label of the new table is older than that of the old table."""
    reports = [next(iter(tables.values())).import_report for tables in (old_tables, new_tables)]
    old_end, new_end = (report.period[1] if report is not None and report.period else None for report in reports)
    if old_end and new_end and new_end < old_end:
        print_to_stderr(f"warning: {SnapshotsInWrongOrder(new=new, new_end=new_end, old=old, old_end=old_end)}")


def write_changes(output: Path, diff: Diff, *, old: str, new: Path) -> None:
    """Write all changes into a folder: one table each of items, labels and annotators, and the summary."""
    summary = {
        "old": show.format_path(Path(old)),
        "new": show.format_path(new),
        "method": diff.method,
        "level": diff.level,
    }
    with folder.write_results(output, CHANGE_FILES, summary | change_facts(diff)) as part:
        for kind in TABLES:
            folder.write_file(diff.to_frame(kind, "pyarrow"), part / f"{kind}.csv")


def change_facts(diff: Diff) -> dict[str, Any]:
    """Return the changes as plain values."""
    annotators = diff.to_frame("annotators", "pyarrow").drop_columns("drifts")
    return {
        "verdict": diff.verdict(),
        "level": diff.level,
        "labels": {"old": diff.old_labels, "new": diff.new_labels, **diff.counts()},
        "items": {"only_new": diff.new_items, "only_old": diff.lost_items},
        "annotators": {"only_new": diff.new_annotators, "only_old": diff.lost_annotators},
        "flipped": diff.to_frame("items", "pyarrow").to_pylist(),
        "tested_annotators": diff.drift.tested,
        "drifting": annotators.filter(diff.drift.drifts).to_pylist(),
    }


def print_changes(title: str, diff: Diff) -> None:
    """Print the numbers of changes, items with another answer, and drifting annotators."""
    show.print_line(f"{show.escape(title)}: {diff.verdict()}")
    changed = {name: getattr(diff, name) for name in ("new_items", "lost_items", "new_annotators", "lost_annotators")}
    print_findings("", [ItemsAndAnnotatorsChanged(**changed)] if any(changed.values()) else [])
    flips = change_facts(diff)["flipped"]
    rows = [
        (
            show.shorten(row["item"]),
            *(
                f"{show.shorten(row[side])} ({show.format_percent(row[f'{side}_confidence'])})"
                for side in ("old", "new")
            ),
            show.escape(row["reason"]),
        )
        for row in flips[:FLIPS_SHOWN]
    ]
    if len(flips) > FLIPS_SHOWN:
        rows.append((f"… {len(flips) - FLIPS_SHOWN:,} more", "", "", "with -o and --json"))
    if rows:
        show.print_table("Items with another answer", ("item", "before", "now", "because"), rows)
    print_findings("", diff.drift.findings(diff.annotators))
    untested = diff.annotators.size - diff.drift.tested
    if untested and diff.drift.tested and diff.changes.item.size:
        from dissensus.questions.diff import MIN_LABELS_PER_SNAPSHOT

        print_findings(
            "", [TooFewForDrift(n=Count(untested), annotators=diff.annotators.size, min_labels=MIN_LABELS_PER_SNAPSHOT)]
        )
