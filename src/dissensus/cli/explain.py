"""`dissensus explain`: why the labels of items disagree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import folder, options, show
from dissensus.cli.options import Fit, Source

if TYPE_CHECKING:
    from dissensus.questions.explain import Explanation
    from dissensus.table.annotations import Annotations

ITEMS_SHOWN = 5  # of each kind


def explain(
    *,
    output: Path | None = options.OUTPUT_FILE,
    annotators: Path | None = options.PEOPLE,
    fit: Fit,
    seed: int | None = options.SEED,
    source: Source,
) -> None:
    """A method is fitted to FILE, and each item's labels are compared with what its annotators' usual errors would
    give. OUT gets one row per item: kind, label, confidence, disagreement (share of pairs of labels that differ), what
    it is expected to be, surprise, ambiguity and group.

    Example: dissensus explain labels.csv -o disagreement.csv

    Example: dissensus explain labels.csv --annotators people.csv
    """
    folder.check_file(output, "explanations")
    tables = source.read(output=output)
    people = None
    if annotators is not None:
        from dissensus.cli.inputs import read_table

        people = read_table(annotators)

    def answer(table: Annotations, question: str | None) -> Explanation:
        from dissensus.questions.explain import explain

        with show.waiting(f"fitting {source.title(question)}"):
            model = fit.model(table.kind).fit(table)
        with show.waiting("looking at the items"):
            return explain(table, model, annotators=people, seed=seed or 0)

    answers, kept = options.answer_each(tables, answer), ("All items are", "FILE to keep all items")
    source.print_each(answers, _show, _facts, output=output, kept=kept, method=fit.name(tables))


def _facts(found: Explanation) -> dict[str, Any]:
    from dissensus.questions.explain import MEANINGS

    return {
        "items": int(found.items.size),
        "kinds": found.counts(),
        "share_ambiguous": found.share_ambiguous,
        "most_disagreement": {
            kind: found.of_kind(kind, differing=True)[:ITEMS_SHOWN] for kind in MEANINGS if kind != "agreed"
        },
        "groups": [
            {key: getattr(one, key) for key in ("column", "groups", "effect", "p_value", "significant")}
            | {"items": one.items.size}
            for one in found.groups
        ],
    }


def _show(title: str, found: Explanation) -> None:
    from dissensus.questions.explain import MEANINGS

    counts, n = found.counts(), found.items.size
    show.line(f"{show.clean(title)}: {show.count(n, 'item')}.")
    rows = []
    for kind, meaning in MEANINGS.items():
        if counts[kind]:
            differing = found.of_kind(kind, differing=True)
            named = ", ".join(map(show.name, differing[:ITEMS_SHOWN])) + ", …" * (len(differing) > ITEMS_SHOWN)
            rows.append((kind, f"{counts[kind]:,}", show.percent(counts[kind] / n), meaning, named))
    columns = ("kind", "items", "share", "means", "labels differ most on")
    show.table(None, columns, rows, numbers=("items", "share"), unbroken=("kind",))
    if counts["cannot tell"]:
        show.text(
            "A kind is found by comparing several labels of an item with what its annotators say elsewhere. `dissensus "
            "recommend FILE --budget N` says whether more labels would change an item."
        )
    for one in found.groups:
        where = f" on {show.count(one.items.size, 'item')}" if one.items.size else ""
        differ = f"differ{where}" if one.significant else "show no difference beyond chance"
        unknown = one.significant and not one.items.size
        which = "; which items they differ on cannot be told from so few labels" if unknown else ""
        show.text(f"Groups by {show.name(one.column)} {differ} (p = {one.p_value:.2g}){which}.")
