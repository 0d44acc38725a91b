"""The question `explain`: why the labels of items disagree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dissensus.common.formatting import Count, format_share, list_first_names
from dissensus.common.parameters import param
from dissensus.questions.base import Finding, Question, Table, questions
from dissensus.questions.findings import FewLabelsPerItem, GroupsDiffer, ItemsExplained

if TYPE_CHECKING:
    from dissensus.questions.explain import Explanation

N_SHOWN_ITEMS = 5  # number of listed items of each kind
GROUP_FACTS = ("column", "groups", "effect", "p_value", "significant")


@questions.register("explain", summary="Why do the labels of items disagree?")
class Explain(Question):
    """Distinguish mistakes, ambiguous items and differences between groups of annotators.

    A method is fitted to FILE, and the labels of each item are compared with the labels to expect from the usual errors
    of its annotators. OUT contains one row per item: kind, label, confidence, disagreement (share of pairs of labels
    that differ), expected disagreement, surprise, evidence, ambiguity and group.

    Example: dissensus explain labels.csv -o disagreement.csv

    Example: dissensus explain labels.csv --annotators people.csv
    """

    row_noun = "items"

    seed: int = param(0, "seed of the permutations of annotators among groups", low=0)

    def compute(self, table: Any, *, annotators: Any, model: Any) -> Explanation:
        from dissensus.questions.explain import explain

        return explain(table, model, annotators=annotators, seed=self.seed)

    def to_json(self, facts: Explanation) -> dict[str, Any]:
        from dissensus.questions.explain import KIND_MEANINGS

        groups = [
            {key: getattr(group, key) for key in GROUP_FACTS} | {"items": group.items.size} for group in facts.groups
        ]
        kinds = [kind for kind in KIND_MEANINGS if kind != "agreed"]
        return {
            "items": int(facts.items.size),
            "kinds": facts.counts(),
            "share_ambiguous": facts.share_ambiguous,
            "most_disagreement": {kind: facts.items_of_kind(kind, differing=True)[:N_SHOWN_ITEMS] for kind in kinds},
            "groups": groups,
        }

    def findings(self, facts: Explanation) -> Iterator[Finding]:
        from dissensus.questions.explain import KIND_MEANINGS

        counts, n = facts.counts(), int(facts.items.size)
        yield ItemsExplained(items=Count(n))
        rows = [
            (kind, f"{counts[kind]:,}", format_share(counts[kind] / n), meaning,
             list_first_names(facts.items_of_kind(kind, differing=True), N_SHOWN_ITEMS))
            for kind, meaning in KIND_MEANINGS.items()
            if counts[kind]
        ]  # fmt: skip
        columns = ("kind", "items", "share", "means", "labels differ most on")
        yield Table(columns, rows, numbers=("items", "share"), unbroken=("kind",))
        if counts["cannot tell"]:
            yield FewLabelsPerItem()
        for group in facts.groups:
            significant = bool(group.significant)
            yield GroupsDiffer(
                column=group.column, items=Count(group.items.size), significant=significant, p_value=group.p_value
            )
