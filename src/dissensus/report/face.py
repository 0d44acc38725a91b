"""How the report words findings and the headline; parameters are options of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dissensus.common.formatting import Count, Share
from dissensus.common.options import option_words
from dissensus.evaluation.pairs import wilson_interval_of_mean
from dissensus.messages import Face, Message
from dissensus.models.confidence import advise_gold_labels
from dissensus.questions.item_status import SETTLED
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.report.section import Finding
    from dissensus.report.study import Study

REPORT = Face(option_words)


def render_finding(section: str, found: Finding) -> dict[str, Any]:
    """Return a finding as the page shows it."""
    words = {"text": found.render(REPORT), "advice": found.render_advice(REPORT)}
    return {"section": section, **words, "tone": found.tone, "table": found.table}


class TableSize(Message):
    template = "{labels:label} of {units} by {annotators:annotator}."
    labels: Count
    items: Count
    annotators: Count
    kind: str
    groups: Count  # compared things, or documents

    @property
    def units(self) -> str:
        if self.kind == "pairs":
            return f"{self.groups:thing}, compared in {self.items:item}"
        return f"{self.groups:document} ({self.items:place})" if self.kind == "spans" else f"{self.items:item}"


class NoSettledItemsSummary(Message):
    template = f"No item is settled at {Share(SETTLED):0}."


class SettledItemsSummary(Message):
    template = (
        "{settled:item} ({share:0}) {settled:is|are} settled at {limit:0}; about {expected:0} of these are expected to "
        "be right."
    )
    settled: Count
    share: Share
    expected: Share
    limit = Share(SETTLED)


class SettledItemsByGoldSummary(SettledItemsSummary):
    template = (
        "{settled:item} ({share:0}) {settled:is|are} settled at {limit:0}; of {these} {right} are right by gold ({low} "
        "to {high})."
    )
    known: int
    right: Share
    low: Share
    high: Share

    @property
    def these(self) -> str:
        return "these" if self.known == self.settled else f"the {self.known:,} with a known label"


class SpellingFirstSummary(Message):
    template = "Next: settle the spelling of the classes, then report again. {spelling}"
    spelling: str


class MethodUsed(Message):
    template = "{what} by {method}."
    what: str
    method: str
    example = {"what": "Labels", "method": "consensus"}


def headline(study: Study, sections: Mapping[str, Any]) -> list[str]:
    """Return the size of the table, the result and its confidence, the next step, and the method."""
    table, classes = study.table, study.table.kind in CLASS_KINDS
    groups = {"pairs": lambda: table.alternatives.names.size, "spans": lambda: table.sequences.documents.size}
    words = [
        TableSize(
            labels=Count(table.n_annotations),
            items=Count(table.n_items),
            annotators=Count(table.n_annotators),
            kind=table.kind,
            groups=Count(groups.get(table.kind, lambda: 0)()),
        ).render(REPORT)
    ]
    if classes:
        words += [summarize_settled_items(study).render(REPORT), *_next_steps(study, sections)]
    elif "answers" in sections:
        from dissensus.report.sections.answers import headline_sentences

        words += headline_sentences(sections["answers"])
    return [*words, MethodUsed(what="Labels" if classes else "Answers", method=study.method).render(REPORT)]


def summarize_settled_items(study: Study) -> Message:
    """Return the number of settled items, with their accuracy by gold or as expected."""
    settled = study.settled
    if not (n := int(settled.sum())):
        return NoSettledItemsSummary()
    facts: Any = {
        "settled": Count(n),
        "share": Share(n / settled.size),
        "expected": Share(study.confidence[settled].mean()),
    }
    if study.gold is None or not (known := settled & (study.gold >= 0)).any():
        return SettledItemsSummary(**facts)
    right = (study.label == study.gold)[known].mean()
    low, high = wilson_interval_of_mean(right, right * (1 - right), known.sum())
    facts |= {"known": int(known.sum()), "right": Share(right), "low": Share(low), "high": Share(high)}
    return SettledItemsByGoldSummary(**facts)


def _next_steps(study: Study, sections: Mapping[str, Any]) -> Iterator[str]:
    if study.diagnosis.unsettled:
        yield SpellingFirstSummary(spelling=str(study.diagnosis.unsettled)).render(REPORT)
    elif "redundancy" in sections:
        yield sections["redundancy"]["advice"]
    effective = study.fitted.mean_effective_labels()
    if "panel" not in sections and effective is not None:  # The panel section reports errors in common by judge.
        yield str(effective)
        if (advice := advise_gold_labels(study.fitted)) is not None:
            yield advice.render(REPORT)
