"""doccano's lines, one per example, whose `label` is ours; further fields become the example's metadata."""

from __future__ import annotations

from collections.abc import Iterator

from dissensus.exceptions import BadParameter
from dissensus.table.io.doccano import sources
from dissensus.table.io.jsonl import Record
from dissensus.table.io.writers import Given, Labels, add

_OF_AN_ANNOTATOR = ("labels", "cats", "annotations", "username", "user")


def examples(labels: Labels) -> Iterator[Record]:
    """Yield one line per example: what the export says of it first, and our label in place of the annotators'."""
    if len(labels.questions) > 1:
        raise BadParameter(f"a doccano project has one question, not {len(labels.questions):,}; take each by itself.")
    ours = dict(labels.named_items())
    written = set()
    for _, record in sources(labels.source) if labels.source else ():
        item = labels.item_of(record, "id", "doc_id", "item")
        if item not in written:
            written.add(item)
            before = {key: value for key, value in record.items() if key not in _OF_AN_ANNOTATOR}
            yield before | _label(ours.pop(item, None), labels.agent)
    yield from ({"id": item, "text": str(item)} | _label(given, labels.agent) for item, given in ours.items())


def _label(given: dict[str | None, Given] | None, agent: str) -> Record:
    if given is None:  # nobody has labelled it
        return {"label": []}
    (one,) = given.values()
    return {"label": [one.label], "annotator": agent, "score": one.confidence}


add("doccano", "to-doccano.jsonl", examples, "doccano's examples, labelled", place=30)
