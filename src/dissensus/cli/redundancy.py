"""`dissensus redundancy`: how many labels per item are enough, and what one more would change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import folder, options, show
from dissensus.cli.options import Fit, Gold, Source, option

if TYPE_CHECKING:
    from dissensus.questions.redundancy import Redundancy
    from dissensus.table.annotations import Annotations

BEST_ITEMS = 10  # in the JSON


def redundancy(
    *,
    output: Path | None = options.OUTPUT_FILE,
    fit: Fit,
    gold: Gold,
    seeds: int = option(3, "Draws of the labels that are kept at each level.", min=1),
    seed: int | None = options.SEED,
    source: Source,
) -> None:
    """A method is fitted to at most 1, 2, 3, 5 … labels of each item, drawn at random: how many items get the label
    that all labels give, of those with more labels. OUT gets one row per number of labels: annotations, items with more
    labels, stability and accuracy (with --gold) with 95 % intervals, mean confidence, seconds.

    Example: dissensus redundancy labels.csv

    Example: dissensus redundancy labels.csv --gold gold.csv -o levels.csv
    """
    folder.check_file(output, "levels")
    tables = source.read(output=output, gold=gold.gold)

    def answer(table: Annotations, question: str | None) -> Redundancy:
        from dissensus.questions.redundancy import redundancy

        known = gold.read(table)
        with show.waiting(f"taking labels away from {source.title(question)}") as bar:

            def on_fit(name: str, done: int, total: int) -> None:
                bar.tell(f"fits of {name}", done, total)

            return redundancy(
                table, fit.model(table.kind), gold=known, seeds=seeds, seed=seed or 0, on_fit=on_fit
            )  # fmt: skip

    answers, kept = options.answer_each(tables, answer), ("The levels are", "FILE to keep the levels")
    settings: dict[str, Any] = {"method": fit.name(tables), "seeds": seeds, "seed": seed or 0}
    source.print_each(answers, _show, _facts, output=output, kept=kept, **settings)


def _facts(found: Redundancy) -> dict[str, Any]:
    after = found.next_label
    return {
        "verdict": found.verdict(),
        "labels_per_item": found.labels_per_item,
        "counted_labels": found.worth,
        "levels": found.rows(),
        "next_label": {
            "expected_changes": float(after.flips.sum()),
            "expected_right": after.expected_right,
            "expected_right_after": after.expected_right_after,
            "best_items": after.best(BEST_ITEMS),
        },
    }


def _show(title: str, found: Redundancy) -> None:
    rows = []
    for one in found:
        same, last = one.stability, one is found.levels[-1]
        cells = [f"{one.labels:,}", f"{one.annotations:,}", "" if last else f"{one.items:,}", show.percent(same.value)]
        cells.append("" if last else show.interval(same.low, same.high, show.percent))
        rows.append(cells + ([] if one.accuracy is None else [show.percent(one.accuracy.value)]))
    gold = ["accuracy"] if found.levels[-1].accuracy is not None else []
    columns = ["labels, at most", "annotations", "items with more", "same as by all", "95 % interval", *gold]
    show.table(show.clean(title), columns, rows, numbers=columns)
    show.line(found.verdict())
