"""Annotators to look at, with reasons that could be said to their face.

A flag is a tested hypothesis. `unrelated` (labels do not depend on the item) and `contrary` (labels go systematically
against the others') are flagged where P(typical | labels) ≤ `MAX_TYPICAL`, see `honesty`, and where at most a share
`MAX_TYPICAL` of typical annotators with the same items would look as extreme; the reason reports what was seen, and
how often. `copies`: a group agrees on labels that no other annotator leads us to expect, see `models.copies`.
Annotators with too few labels are only counted. Labels that are no classes have tests of their own, see `habits`;
grades have both. No annotator is called unrelated or contrary whose grades rise with the others', nor whose labels do
where at least three classes are numbers: these may be grades that were not declared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.formatting import format_count
from dissensus.common.types import FloatArray
from dissensus.messages import Message
from dissensus.models.copies import find_copies
from dissensus.models.exceptions import NoAnnotations
from dissensus.questions.bias_tests import FLAG_WORDS as ALL_WORDS
from dissensus.questions.bias_tests import MIN_LABELS, SAME_LABEL, AnnotatorFlags, BiasDiagnosis, Flag, find_biases
from dissensus.questions.findings import CopiedLabels, RareAgreement, RepeatsOneLabel
from dissensus.questions.spam_tests import SpamTest, detect_spam, leave_one_out_posterior
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, parse_numbers

FLAG_WORDS: dict[Flag, str] = {flag: ALL_WORDS[flag] for flag in ("unrelated", "contrary", "copies", "higher", "lower")}
MAX_RISE = 0.05  # error rate of the test that an annotator's grades rise with the others'
MIN_RISE = 0.2  # Spearman's correlation; it was at most 0.15 of 24 annotators at random with 180 to 340 labels each
MIN_GRADES = 3  # classes that are numbers, from which on they may be grades
MAX_TYPICAL = 0.01  # P(typical) at which an annotator is flagged: of a hundred flagged ones, at most one is typical


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(AnnotatorFlags):
    """Flags, reasons and measures of every annotator of a table."""

    flag_words = FLAG_WORDS
    p_typical: FloatArray  # (A,) P(typical | its labels); NaN without labels
    p_unrelated: FloatArray  # (A,) P(labels do not depend on the item)
    p_contrary: FloatArray  # (A,) P(labels go against the others')
    share_copied: FloatArray  # (A,) share of the labels that are copied; 0 in no group
    probability: FloatArray  # (A,) P(unrelated, contrary or copied | labels); NaN without labels
    groups: tuple[tuple[Any, ...], ...]  # annotators who copy from each other, the largest group first
    unsettled: str = ""  # why no annotator is flagged before the spelling of the classes is settled

    def __repr__(self) -> str:
        found = {words: len(self.annotators_with_flag(flag)) for flag, words in self.flag_words.items()}
        counts = ", ".join(f"{n} {words}" for place, (words, n) in enumerate(found.items()) if n or place < 3)
        return (
            f"Diagnosis of {format_count(self.active_annotators, 'annotator')}, whose answers are: {counts}; "
            f"{self.too_few_labels:,} with too few labels to say"
        )

    def _measures(self) -> dict[str, Any]:
        """Return name → measure (A,) that the flags rest on."""
        names = ("probability", "labels", "p_typical", "p_unrelated", "p_contrary", "share_copied")
        return {name: getattr(self, name) for name in names}


def diagnose(table: Annotations, *, threads: int | None = None) -> Diagnosis | BiasDiagnosis:
    """Flag annotators whose labels do not depend on the item, go against the others' or are copied.

    Labels that are no classes have the flags and tests of `dissensus.questions.bias_tests`.

    No annotator is flagged if classes differ by capitals or spaces only, as another spelling looks like disagreement.

    >>> from dissensus.table.datasets import load_dataset
    >>> found = diagnose(load_dataset("digits-crowd").annotations)
    >>> found.annotators_with_flag("contrary"), len(found.annotators_with_flag("unrelated"))
    (['a20'], 5)
    >>> [len(group) for group in found.groups], found.to_frame().shape
    ([5], (42, 9))
    """
    if table.kind not in CLASS_KINDS:
        return find_biases(table)
    return diagnose_classes(table, threads=threads)


def diagnose_classes(table: Annotations, *, threads: int | None = None) -> Diagnosis:
    """Flag annotators of classes or grades."""
    if table.n_annotations == 0:
        raise NoAnnotations
    A = table.n_annotators
    copies = find_copies(table)
    others = leave_one_out_posterior(table, copies.unit, threads)
    found = detect_spam(others)
    labels = np.bincount(others.annotator, np.where(others.has_no_others, 0.0, others.weight), A).astype(np.float64)
    reasons: list[dict[Flag, Message]] = []
    group_of = {code: group for group in copies.groups for code in group}
    unsettled = str(naming.find_spelling_variants(table.classes) or "")
    habits = find_biases(table).flag_messages if table.kind == "graded" and table.proba is None else [{}] * A
    place = _places(table)
    for code in range(A):
        own: dict[Flag, Message] = {}
        if not unsettled and labels[code] >= MIN_LABELS and found.probability[code, 0] <= MAX_TYPICAL:
            own |= {} if _grades_rise(place, found, code) else _explain(table, found, code)
        if code in group_of and not unsettled:
            own["copies"] = CopiedLabels(
                others=tuple(table.annotators[one] for one in group_of[code] if one != code),
                agreed=int(copies.n_agreed[code]),
                shared=int(copies.n_shared[code]), expected=float(copies.n_expected[code]),
            )  # fmt: skip
        own |= {flag: why for flag, why in habits[code].items() if flag in ("higher", "lower")}
        reasons.append(own)
    active = np.diff(table.annotator_ptr) > 0
    honest, unrelated, contrary = np.where(labels > 0, found.probability.T, np.nan)
    return Diagnosis(
        table.annotators,
        labels,
        tuple(reasons),
        int(active.sum()),
        int((active & (labels < MIN_LABELS)).sum()),
        honest,
        unrelated,
        contrary,
        copies.copied_share,
        np.maximum(1 - honest, copies.probability),
        () if unsettled else tuple(tuple(table.annotators[list(group)].tolist()) for group in copies.groups),
        unsettled,
    )


def _places(table: Annotations) -> FloatArray | None:
    """Return the position of each class among grades (K,), or None if classes have no order."""
    if table.kind == "graded":
        return np.arange(table.n_classes, dtype=np.float64)
    return parse_numbers(table.classes) if table.n_classes >= MIN_GRADES else None


def _grades_rise(place: FloatArray | None, found: SpamTest, code: int) -> bool:
    """Return whether grades rise with the others', as those of annotators who only rate more strictly or mildly do.

    Spearman's test, one-sided at `MAX_RISE`. The correlation must reach `MIN_RISE` too: an annotator's own labels were
    used for the others' posterior, so that labels at random rise a little.
    """
    if place is None:
        return False
    from scipy.stats import spearmanr  # takes longer to import than most tables to diagnose

    others = found.leave_one_out
    rows = found.row_order[others.annotator[found.row_order] == code]
    own, expected = place[others.label[rows]], others.posterior[rows] @ place
    if np.ptp(own) == 0 or np.ptp(expected) == 0:
        return False
    test = spearmanr(own, expected, alternative="greater")
    return bool(test.pvalue <= MAX_RISE and test.statistic >= MIN_RISE)


def _explain(table: Annotations, found: SpamTest, code: int) -> dict[Flag, Message]:
    """Return flag and reason of an annotator who is hardly typical, or nothing if typical ones often look like that."""
    others = found.leave_one_out
    rows = found.row_order[others.annotator[found.row_order] == code]
    given = np.bincount(others.label[rows], minlength=table.n_classes)
    top, n = int(given.argmax()), int(rows.size)
    typical, unrelated, contrary = found.probability[code].tolist()
    flag: Flag = "unrelated" if unrelated >= contrary else "contrary"
    same_label = flag == "unrelated" and given[top] >= SAME_LABEL * n
    times, chance = found.p_value(code, top if same_label else None)
    if chance > MAX_TYPICAL:
        return {}
    facts: dict[str, Any] = {"n": n, "chance": chance, "p_typical": typical}
    if same_label:
        return {flag: RepeatsOneLabel(label=table.classes[top], times=round(times), **facts)}
    return {flag: RareAgreement(agree=round(times), **facts)}
