"""Render findings and the headline of the report for a reader who manages annotators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dissensus.common.formatting import Count, Share
from dissensus.common.options import render_option
from dissensus.evaluation.pairs import wilson_interval_of_mean
from dissensus.messages import Face, Message
from dissensus.models.confidence import advise_gold_labels
from dissensus.models.exceptions import GoldLabelsAdvice
from dissensus.questions.item_status import SETTLED_CONFIDENCE
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.report.section import Finding
    from dissensus.report.study import Study

COLLECT_GOLD_ADVICE = "Have an expert label {items} random items: confidence can then be calibrated to your annotators."
REPORT_FACE = Face(render_option, {GoldLabelsAdvice: COLLECT_GOLD_ADVICE})
"""Words of the report: its text names neither options nor parameters."""


def render_finding(section: str, found: Finding) -> dict[str, Any]:
    """Return the text, advice, tone and link of a finding as the page shows them."""
    words = {"text": found.render(REPORT_FACE), "advice": found.render_advice(REPORT_FACE)}
    return {"section": section, **words, "tone": found.tone, "table": found.table}


class TableSizeSummary(Message):
    template = "{annotators:annotator} gave {labels:label} to {units}."
    labels: Count
    items: Count
    annotators: Count
    kind: str
    groups: Count  # number of compared alternatives, or of documents

    @property
    def units(self) -> str:
        if self.kind == "pairs":
            return f"{self.items:pair} of {self.groups:alternative}"
        return f"{self.groups:document} ({self.items:position})" if self.kind == "spans" else f"{self.items:item}"


class NoSettledItemsSummary(Message):
    template = f"No item has a label with a confidence of {Share(SETTLED_CONFIDENCE):0} or more yet."


class SettledItemsSummary(Message):
    template = (
        "{n_settled:item} ({share:0}) {n_settled:is|are} settled (confidence of {limit:0} or more); about {expected:0} "
        "of these labels are expected to be right."
    )
    n_settled: Count
    share: Share
    expected: Share
    limit = Share(SETTLED_CONFIDENCE)


class SettledItemsByGoldSummary(SettledItemsSummary):
    template = (
        "{n_settled:item} ({share:0}) {n_settled:is|are} settled (confidence of {limit:0} or more); {right} ({low} to "
        "{high}) of {subset} agree with gold."
    )
    n_gold: int
    right: Share
    low: Share
    high: Share

    @property
    def subset(self) -> str:
        return "these labels" if self.n_gold == self.n_settled else f"the {self.n_gold:,} of these with a gold label"


class CorrectSpellingFirst(Message):
    template = "Next: correct the spelling of the classes, then make the report again. {spelling}"
    spelling: str


class NextLabels(Message):
    template = "Next: collect {amount}{effect}."
    labels: Count
    items: Count
    changes: float  # expected number of items whose label changes

    @property
    def amount(self) -> str:
        if self.labels == self.items == 1:
            return "one more label on 1 item"
        if self.labels == self.items:
            return f"one more label on each of {self.items:item}"
        return f"{self.labels} more labels on {self.items:item}"

    @property
    def effect(self) -> str:
        return f"; the labels of about {self.changes:.0f} of them should then change" if self.changes >= 1 else ""


class MethodUsed(Message):
    template = "The {subject} were inferred by the method {method}."
    subject: str
    method: str
    example = {"subject": "labels", "method": "consensus"}


def make_headline(study: Study, sections: Mapping[str, Any]) -> list[str]:
    """Return the size of the table, the result and its confidence, the next step, and the method."""
    table, classes = study.table, study.table.kind in CLASS_KINDS
    groups = {"pairs": lambda: table.alternatives.names.size, "spans": lambda: table.sequences.documents.size}
    words = [
        TableSizeSummary(
            labels=Count(table.n_annotations),
            items=Count(table.n_items),
            annotators=Count(table.n_annotators),
            kind=table.kind,
            groups=Count(groups.get(table.kind, lambda: 0)()),
        ).render(REPORT_FACE)
    ]
    if classes:
        words += [summarize_settled_items(study).render(REPORT_FACE), *_next_steps(study, sections)]
    elif "answers" in sections:
        from dissensus.report.sections.answers import make_headline_sentences

        words += make_headline_sentences(sections["answers"])
    return [*words, MethodUsed(subject="labels" if classes else "answers", method=study.method).render(REPORT_FACE)]


def summarize_settled_items(study: Study) -> Message:
    """Summarise how many items are settled, with their accuracy by gold or their expected accuracy."""
    settled = study.is_settled
    if not (n := int(settled.sum())):
        return NoSettledItemsSummary()
    facts: Any = {
        "n_settled": Count(n),
        "share": Share(n / settled.size),
        "expected": Share(study.confidence[settled].mean()),
    }
    if study.gold is None or not (has_gold := settled & (study.gold >= 0)).any():
        return SettledItemsSummary(**facts)
    right = (study.label == study.gold)[has_gold].mean()
    low, high = wilson_interval_of_mean(right, right * (1 - right), has_gold.sum())
    facts |= {"n_gold": int(has_gold.sum()), "right": Share(right), "low": Share(low), "high": Share(high)}
    return SettledItemsByGoldSummary(**facts)


def describe_next_step(redundancy: Mapping[str, Any]) -> str:
    """Return which labels to collect next, or why no label is worth collecting."""
    if (chosen := redundancy["next_labels"]) is None:
        return str(redundancy["advice"])
    labels, items = Count(chosen["labels"]), Count(chosen["items"])
    return NextLabels(labels=labels, items=items, changes=chosen["changes"] or 0.0).render(REPORT_FACE)


def _next_steps(study: Study, sections: Mapping[str, Any]) -> Iterator[str]:
    if study.diagnosis.unsettled:
        yield CorrectSpellingFirst(spelling=str(study.diagnosis.unsettled)).render(REPORT_FACE)
    elif "redundancy" in sections:
        yield describe_next_step(sections["redundancy"])
    effective = study.fitted.mean_effective_labels()
    if "panel" not in sections and effective is not None:  # The panel section reports common mistakes of each judge.
        yield str(effective)
        if (advice := advise_gold_labels(study.fitted)) is not None:
            yield advice.render(REPORT_FACE)
