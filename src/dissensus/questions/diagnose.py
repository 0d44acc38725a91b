"""Flag annotators for review, with reasons that can be shown to the annotators.

A flag is the result of a statistical test. An annotator is flagged as `unrelated` (labels do not depend on the item) or
`contrary` (labels systematically contradict the others') if two conditions hold: P(typical | labels) is at most
`MAX_TYPICAL_PROBABILITY` (see `spam_tests`), and at most this share of typical annotators with the same items would
look as extreme. The reason states the observation and how often it would occur. The flag `copies` marks a group whose
members agree more often than the labels of all other annotators predict (see `models.copies`).

Annotators with too few labels are only counted. Labels that are not classes have different tests (see `bias_tests`);
for grades, both kinds of tests are used. An annotator is not flagged as unrelated or contrary if its grades rise with
the others' grades. The same holds if at least three classes are numbers, because these may be undeclared grades.
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
from dissensus.questions.bias_tests import (
    MIN_LABELS_PER_ANNOTATOR,
    MIN_SAME_LABEL_SHARE,
    AnnotatorFlags,
    BiasDiagnosis,
    Flag,
    find_biases,
)
from dissensus.questions.findings import AgreesRarely, CopiesLabels, RepeatsOneLabel
from dissensus.questions.spam_tests import SpamTest, detect_spam, leave_one_out_posterior
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, parse_numbers

FLAG_WORDS: dict[Flag, str] = {flag: ALL_WORDS[flag] for flag in ("unrelated", "contrary", "copies", "higher", "lower")}
MAX_TREND_P_VALUE = 0.05  # significance level of the test that an annotator's grades rise with the others'
# Minimum Spearman correlation; it was at most 0.15 for 24 random annotators with 180 to 340 labels each
MIN_TREND_CORRELATION = 0.2
# Minimum number of classes that are numbers; with fewer, classes are not treated as possible grades
MIN_NUMERIC_CLASSES = 3
# Maximum P(typical) of a flagged annotator, so that at most one of a hundred flagged annotators is typical
MAX_TYPICAL_PROBABILITY = 0.01


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(AnnotatorFlags):
    """Flags, reasons and measures of every annotator of a table."""

    flag_words = FLAG_WORDS
    p_typical: FloatArray  # (A,) P(annotator is typical | labels); NaN without labels
    p_unrelated: FloatArray  # (A,) P(labels do not depend on the item)
    p_contrary: FloatArray  # (A,) P(labels contradict the others')
    share_copied: FloatArray  # (A,) share of the annotator's labels that are copied; 0 outside groups
    probability: FloatArray  # (A,) P(labels are unrelated, contrary or copied | labels); NaN without labels
    groups: tuple[
        tuple[Any, ...], ...
    ]  # groups of annotators that copy from each other, starting with the largest group
    unsettled: str = ""  # why no annotator is flagged; "" unless class names differ only in capitals or spaces

    def __repr__(self) -> str:
        n_flagged = {words: len(self.annotators_with_flag(flag)) for flag, words in self.flag_words.items()}
        counts = ", ".join(f"{n} {words}" for k, (words, n) in enumerate(n_flagged.items()) if n or k < 3)
        return (
            f"Diagnosis of {format_count(self.active_annotators, 'annotator')}, whose answers are: {counts}; "
            f"{self.too_few_labels:,} with too few labels"
        )

    def _measures(self) -> dict[str, Any]:
        """Return the measures (A,) on which the flags are based, by name."""
        names = ("probability", "labels", "p_typical", "p_unrelated", "p_contrary", "share_copied")
        return {name: getattr(self, name) for name in names}


def diagnose(table: Annotations, *, threads: int | None = None) -> Diagnosis | BiasDiagnosis:
    """Flag annotators whose labels do not depend on the item, contradict the others' or are copied.

    Labels that are not classes are tested by `dissensus.questions.bias_tests`. No annotator is flagged if class names
    differ only in capitals or spaces, because different spellings look like disagreement.

    Parameters
    ----------
    table : Annotations
        A table of any label type.
    threads : int, optional
        Number of threads; None for all cores.

    Returns
    -------
    Diagnosis or BiasDiagnosis
        Flags, reasons and measures of every annotator.

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
    """Flag suspicious annotators if the labels are classes or grades."""
    if table.n_annotations == 0:
        raise NoAnnotations
    A = table.n_annotators
    copies = find_copies(table)
    others = leave_one_out_posterior(table, copies.unit, threads)
    test = detect_spam(others)
    labels = np.bincount(others.annotator, np.where(others.has_no_others, 0.0, others.weight), A).astype(np.float64)
    reasons: list[dict[Flag, Message]] = []
    group_of = {code: group for group in copies.groups for code in group}
    unsettled = str(naming.find_spelling_variants(table.classes) or "")
    biases = find_biases(table).flag_messages if table.kind == "graded" and table.proba is None else [{}] * A
    grades = _class_positions(table)
    for code in range(A):
        messages: dict[Flag, Message] = {}
        if (
            not unsettled
            and labels[code] >= MIN_LABELS_PER_ANNOTATOR
            and test.probability[code, 0] <= MAX_TYPICAL_PROBABILITY
        ):
            messages |= {} if _has_rising_grades(grades, test, code) else _flag_if_rare(table, test, code)
        if code in group_of and not unsettled:
            messages["copies"] = CopiesLabels(
                sources=tuple(table.annotators[member] for member in group_of[code] if member != code),
                agreed=int(copies.n_agreed[code]),
                shared=int(copies.n_shared[code]), expected=float(copies.n_expected[code]),
            )  # fmt: skip
        messages |= {flag: reason for flag, reason in biases[code].items() if flag in ("higher", "lower")}
        reasons.append(messages)
    active = np.diff(table.annotator_ptr) > 0
    p_typical, unrelated, contrary = np.where(labels > 0, test.probability.T, np.nan)
    return Diagnosis(
        table.annotators,
        labels,
        tuple(reasons),
        int(active.sum()),
        int((active & (labels < MIN_LABELS_PER_ANNOTATOR)).sum()),
        p_typical,
        unrelated,
        contrary,
        copies.copied_share,
        np.maximum(1 - p_typical, copies.probability),
        () if unsettled else tuple(tuple(table.annotators[list(group)].tolist()) for group in copies.groups),
        unsettled,
    )


def _class_positions(table: Annotations) -> FloatArray | None:
    """Return the position of each class on the scale of grades (K,), or None if classes have no order."""
    if table.kind == "graded":
        return np.arange(table.n_classes, dtype=np.float64)
    return parse_numbers(table.classes) if table.n_classes >= MIN_NUMERIC_CLASSES else None


def _has_rising_grades(grades: FloatArray | None, test: SpamTest, code: int) -> bool:
    """Return whether an annotator's grades rise with the others' grades, as for strict or mild annotators.

    This is a one-sided Spearman test at the level `MAX_TREND_P_VALUE`. The correlation must also reach
    `MIN_TREND_CORRELATION`, because an annotator's labels affect the posterior of the others, so that even random
    labels have a small positive correlation with it.
    """
    if grades is None:
        return False
    from scipy.stats import spearmanr  # slow to import

    others, rows = test.leave_one_out, test.evidence_rows(code)
    own, expected = grades[others.label[rows]], others.posterior[rows] @ grades
    if np.ptp(own) == 0 or np.ptp(expected) == 0:
        return False
    spearman = spearmanr(own, expected, alternative="greater")
    return bool(spearman.pvalue <= MAX_TREND_P_VALUE and spearman.statistic >= MIN_TREND_CORRELATION)


def _flag_if_rare(table: Annotations, test: SpamTest, code: int) -> dict[Flag, Message]:
    """Return flag and reason of an atypical annotator, or {} if typical annotators often look like this."""
    others, rows = test.leave_one_out, test.evidence_rows(code)
    count = np.bincount(others.label[rows], minlength=table.n_classes)
    top, n = int(count.argmax()), int(rows.size)
    typical, unrelated, contrary = test.probability[code].tolist()
    flag: Flag = "unrelated" if unrelated >= contrary else "contrary"
    same_label = flag == "unrelated" and count[top] >= MIN_SAME_LABEL_SHARE * n
    times, chance = test.p_value(code, top if same_label else None)
    if chance > MAX_TYPICAL_PROBABILITY:
        return {}
    facts: dict[str, Any] = {"n": n, "chance": chance, "p_typical": typical}
    if same_label:
        return {flag: RepeatsOneLabel(label=table.classes[top], times=round(times), **facts)}
    return {flag: AgreesRarely(agree=round(times), **facts)}
