"""The question `diagnose`: which annotators should be reviewed, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dissensus.common.formatting import Count, format_number, shorten_name
from dissensus.questions.base import Finding, Question, Table, questions
from dissensus.questions.findings import FlaggedAnnotators, SpellingFirst, TooFewLabels

if TYPE_CHECKING:
    from dissensus.questions.bias_tests import AnnotatorFlags

MAX_SHOWN_ANNOTATORS = 20  # annotators
N_SHOWN_ITEMS, N_JSON_ITEMS = 5, 20  # numbers of listed items whose labels differ most


@questions.register("diagnose", summary="Which annotators answer unlike the others?")
class Diagnose(Question):
    """Test whether each annotator answers like a typical member of the crowd.

    An annotator is flagged if at most 1 % of typical annotators with the same items would answer like this. Flags mark
    answers that do not depend on the item, contradict the others' or are copied. For grades and numbers, they also mark
    answers that are higher or lower; for comparisons, answers in favour of one side; for sets and spans, answers with
    more or fewer marks. OUT contains one row per annotator: number of labels, probabilities of being typical, unrelated
    and contrary, share of copied labels (for label types other than classes: every trait and its p-value), flags and
    reasons.

    Example: dissensus diagnose labels.csv -o annotators.csv
    """

    kinds = ("classes", "graded", "numbers", "pairs", "sets", "objects", "spans")
    row_noun = "annotators"
    progress_text = "looking at the annotators of"

    def compute(self, table: Any) -> AnnotatorFlags:
        from dissensus.questions.diagnose import diagnose

        return diagnose(table)

    def to_json(self, facts: Any) -> dict[str, Any]:
        named = zip(facts.annotators, facts.flags, facts.reasons, strict=True)
        fields = {
            "active_annotators": facts.active_annotators,
            "annotators": {str(name): {"flags": list(flags), "reasons": why} for name, flags, why in named if flags},
            "too_few_labels": facts.too_few_labels,
            "copying_groups": [[str(name) for name in group] for group in facts.groups],
            "unsettled": facts.unsettled,
        }
        if hasattr(facts, "most_contested"):
            items = facts.most_contested(N_JSON_ITEMS)
            fields["contested_items"] = [{"item": str(item), "distance": distance} for item, distance in items]
        return fields

    def findings(self, facts: Any) -> Iterator[Finding]:
        yield FlaggedAnnotators(
            annotators=Count(facts.active_annotators),
            flagged=sum(map(bool, facts.flags)),
            unsettled=bool(facts.unsettled),
        )
        yield from flag_findings(facts)
        if hasattr(facts, "most_contested") and (items := facts.most_contested(N_SHOWN_ITEMS)):
            rows = [(shorten_name(item), format_number(apart)) for item, apart in items]
            yield Table(("item", "distance"), rows, "Items whose labels differ most", numbers=("distance",))


def flag_findings(facts: Any) -> Iterator[Finding]:
    """Yield the flagged annotators with reasons, and the number of annotators with too few labels."""
    from dissensus.questions.bias_tests import FLAG_WORDS

    named = zip(facts.annotators, facts.flags, facts.reasons, strict=True)
    rows = [
        (shorten_name(name), ", ".join(FLAG_WORDS[flag] for flag in flags), why) for name, flags, why in named if flags
    ]
    if (more := len(rows) - MAX_SHOWN_ANNOTATORS) > 0:
        rows[MAX_SHOWN_ANNOTATORS:] = [(f"… {more:,} more", "", "with -o and --json")]
    if rows:
        yield Table(("annotator", "answers", "why"), rows, "Annotators to look at")
    if facts.unsettled:
        yield SpellingFirst()
    if facts.too_few_labels:
        yield TooFewLabels(n=Count(facts.too_few_labels), annotators=Count(facts.active_annotators))
