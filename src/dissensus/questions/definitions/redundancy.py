"""The question `redundancy`: how many labels per item are enough, and what one more label would change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dissensus.common.formatting import format_interval, format_share
from dissensus.common.parameters import param
from dissensus.questions.base import Finding, Question, Table, questions

if TYPE_CHECKING:
    from dissensus.questions.redundancy import Redundancy

N_JSON_ITEMS = 10  # number of items listed in JSON


@questions.register("redundancy", summary="How many labels per item are enough?")
class RedundancyQuestion(Question):
    """Compare the results of a method with fewer labels per item.

    A method is fitted to at most 1, 2, 3, 5 … random labels of each item. Stability is the share of items with more
    labels that get the same class as with all labels. OUT contains one row per number of labels: annotations, items
    with more labels, stability and accuracy (with --gold) with 95 % intervals, mean confidence, seconds.

    Example: dissensus recommend labels.csv --enough

    Example: dissensus recommend labels.csv --enough --gold gold.csv -o levels.csv
    """

    row_noun = "levels"
    json_options = ("seeds", "seed")
    progress_text = "removing labels from"

    seeds: int = param(3, "number of random draws of the labels that are kept at each level", low=1)
    seed: int = param(0, "seed of the random draws", low=0)

    def compute(self, table: Any, *, method: Any, gold: Any, progress: Any) -> Redundancy:
        from dissensus.questions.redundancy import redundancy

        on_fit = lambda name, done, total: progress(f"fits of {name}", done, total)  # noqa: E731
        return redundancy(table, method, gold=gold, seeds=self.seeds, seed=self.seed, on_fit=on_fit)

    def to_json(self, facts: Redundancy) -> dict[str, Any]:
        after = facts.next_label
        return {
            "verdict": facts.verdict(),
            "labels_per_item": facts.labels_per_item,
            "effective_labels": facts.effective_labels,
            "levels": facts.rows(),
            "next_label": {
                "expected_changes": float(after.flips.sum()),
                "expected_right": after.expected_right,
                "expected_right_after": after.expected_right_after,
                "best_items": after.best(N_JSON_ITEMS),
            },
        }

    def findings(self, facts: Redundancy) -> Iterator[Finding]:
        rows = []
        for level in facts:
            same, last = level.stability, level is facts.levels[-1]
            cells = [
                f"{level.labels:,}",
                f"{level.annotations:,}",
                "" if last else f"{level.items:,}",
                format_share(same.value),
            ]
            cells.append("" if last else format_interval(same.low, same.high, format_share))
            rows.append(cells + ([] if level.accuracy is None else [format_share(level.accuracy.value)]))
        gold = ["accuracy"] if facts.levels[-1].accuracy is not None else []
        columns = ["labels, at most", "annotations", "items with more", "same as with all", "95 % interval", *gold]
        yield Table(columns, rows, numbers=columns)
        yield from facts.findings()
