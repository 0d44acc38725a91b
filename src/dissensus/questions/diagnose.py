"""Annotators to look at, with reasons that would stand in front of the person concerned.

A flag is a tested hypothesis. `unrelated` (labels do not depend on the item) and `contrary` (labels go systematically
against the others') are flagged where P(honest | labels) ≤ `MAX_HONEST`, see `honesty`, and where at most `MAX_HONEST`
of honest annotators with the same items would look as extreme; the reason says what was seen, and how many would.
`copies`: a group agrees on labels that nobody else leads us to expect, see `models.copies`. Who has too few labels is
never named: there is only their number. Labels that are no classes have tests of their own, see `habits`; grades have
both. Nobody whose grades rise with the others' is called unrelated or contrary, nor whose labels do where three classes
or more are numbers: they may be grades of which nobody has said so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.formatting import count
from dissensus.common.types import FloatArray
from dissensus.exceptions import DataError
from dissensus.models.copies import find_copies
from dissensus.questions.habits import FLAG_WORDS as ALL_WORDS
from dissensus.questions.habits import MIN_LABELS, SAME_LABEL, Flag, Flagged, Habits, find_habits, how_many
from dissensus.questions.honesty import Honesty, ask_others, judge
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, numbers_of

FLAG_WORDS: dict[Flag, str] = {flag: ALL_WORDS[flag] for flag in ("unrelated", "contrary", "copies", "higher", "lower")}
MAX_RISE = 0.05  # of people whose grades are unrelated to the others', who pass for people whose grades rise with them
MIN_RISE = 0.2  # Spearman's correlation; of 24 people who label at random, 180 to 340 labels each, it was at most 0.15
MIN_GRADES = 3  # classes that are numbers, from which on they may be grades
MAX_HONEST = 0.01  # P(honest) at which somebody is flagged: of a hundred flagged, at most one is honest


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Flagged):
    """Flags, reasons and measures of every annotator of a table."""

    words = FLAG_WORDS
    honest: FloatArray  # (A,) P(honest | its labels); NaN without labels
    unrelated: FloatArray  # (A,) P(labels do not depend on the item)
    contrary: FloatArray  # (A,) P(labels go against the others')
    copied: FloatArray  # (A,) share of the labels that are copied; 0 in no group
    probability: FloatArray  # (A,) P(unrelated, contrary or copied | labels); NaN without labels
    groups: tuple[tuple[Any, ...], ...]  # annotators who copy from each other, the largest group first
    unsettled: str = ""  # why nobody is named before the classes' spelling is settled

    def __repr__(self) -> str:
        found = {words: len(self.flagged(flag)) for flag, words in self.words.items()}
        counts = ", ".join(f"{n} {words}" for place, (words, n) in enumerate(found.items()) if n or place < 3)
        return (
            f"Diagnosis of {count(self.active_annotators, 'annotator')}, whose answers are: {counts}; "
            f"{self.too_few_labels:,} with too few labels to say"
        )

    def _measures(self) -> dict[str, Any]:
        """Name → (A,) what the flags rest on."""
        names = ("probability", "labels", "honest", "unrelated", "contrary", "copied")
        return {name: getattr(self, name) for name in names}


def too_few_sentence(few: int, active: int) -> str:
    """Say how many of the active annotators have too few labels."""
    who = f"{few:,} of {count(active, 'annotator')} {'has' if few == 1 else 'have'}"
    return f"{who} too few labels on items that others labelled too."


def diagnose(table: Annotations, *, threads: int | None = None) -> Diagnosis | Habits:
    """Flag annotators whose labels do not depend on the item, go against the others', are copied, or lie elsewhere.

    Of labels that are no classes, the flags and their tests are those of `dissensus.questions.habits`.

    Nobody is flagged where classes differ by capitals or spaces only: whoever spells otherwise seems to contradict.

    >>> from dissensus.table.datasets import load_dataset
    >>> found = diagnose(load_dataset("digits-crowd").annotations)
    >>> found.flagged("contrary"), len(found.flagged("unrelated")), [len(group) for group in found.groups]
    (['a20'], 5, [5])
    >>> found.to_frame().shape
    (42, 9)
    """
    if table.kind not in CLASS_KINDS:
        return find_habits(table)
    return diagnose_classes(table, threads=threads)


def diagnose_classes(table: Annotations, *, threads: int | None = None) -> Diagnosis:
    """The same of a table of classes or grades."""
    if table.n_annotations == 0:
        raise DataError("the table has no annotations; there is nobody to judge.")
    A = table.n_annotators
    copies = find_copies(table)
    others = ask_others(table, copies.unit, threads)
    found = judge(others)
    labels = np.bincount(others.annotator, np.where(others.alone, 0.0, others.weight), A).astype(np.float64)
    reasons: list[dict[Flag, str]] = []
    group_of = {code: group for group in copies.groups for code in group}
    unsettled = str(naming.unsettled_spellings(table.classes) or "")
    habits = find_habits(table).said if table.kind == "graded" and table.proba is None else [{}] * A
    place = _places(table)
    for code in range(A):
        said: dict[Flag, str] = {}
        if not unsettled and labels[code] >= MIN_LABELS and found.probability[code, 0] <= MAX_HONEST:
            said |= {} if _grades_rise(place, found, code) else _explain(table, found, code)
        if code in group_of and not unsettled:
            rest = [naming.shown(table.annotators[one]) for one in group_of[code] if one != code]
            who = rest[0] if len(rest) == 1 else f"the other {len(rest)} of a group around {rest[0]}"
            said["copies"] = (
                f"gives the same answer as {who} on {copies.agreed[code]:,} of {copies.shared[code]:,} items; "
                f"{copies.expected[code]:.0f} would be expected of people who work by themselves"
            )
        said |= {flag: why for flag, why in habits[code].items() if flag in ("higher", "lower")}
        reasons.append(said)
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
        copies.copied,
        np.maximum(1 - honest, copies.probability),
        () if unsettled else tuple(tuple(table.annotators[list(group)].tolist()) for group in copies.groups),
        unsettled,
    )


def _places(table: Annotations) -> FloatArray | None:
    """(K,) where each class stands among grades; None where classes have no order."""
    if table.kind == "graded":
        return np.arange(table.n_classes, dtype=np.float64)
    return numbers_of(table.classes) if table.n_classes >= MIN_GRADES else None


def _grades_rise(place: FloatArray | None, found: Honesty, code: int) -> bool:
    """True of grades that are higher where the others' are: who only rates stricter or milder is not named.

    Spearman's test, one-sided at `MAX_RISE`: of people whose grades are unrelated to the others', 5 % pass it. The
    correlation must reach `MIN_RISE` too: one's own labels have taught the model what the others' are worth, so that
    labels at random rise a little.
    """
    if place is None:
        return False
    from scipy.stats import spearmanr  # takes longer to import than most tables to diagnose

    others = found.others
    rows = found.used[others.annotator[found.used] == code]
    own, expected = place[others.label[rows]], others.q[rows] @ place
    if np.ptp(own) == 0 or np.ptp(expected) == 0:
        return False
    test = spearmanr(own, expected, alternative="greater")
    return bool(test.pvalue <= MAX_RISE and test.statistic >= MIN_RISE)


def _explain(table: Annotations, found: Honesty, code: int) -> dict[Flag, str]:
    """Flag and reason of somebody who is hardly honest; nothing where honest ones with its items look like that."""
    others = found.others
    rows = found.used[others.annotator[found.used] == code]
    given = np.bincount(others.label[rows], minlength=table.n_classes)
    top, n = int(given.argmax()), rows.size
    flag: Flag = "unrelated" if found.probability[code, 1] >= found.probability[code, 2] else "contrary"
    if flag == "unrelated" and given[top] >= SAME_LABEL * n:
        seen, chance = found.chances(code, top)
        fact = f"answers {naming.shown(table.classes[top])} {seen:,.0f} times of {n:,}"
        as_much = "give it as often"
    else:
        seen, chance = found.chances(code, None)
        against = "go against" if flag == "contrary" else "have no relation to"
        fact = f"the labels {against} what others say of the items: {seen:,.0f} of {n:,} agree"
        as_much = "agree so rarely"
    if chance > MAX_HONEST:
        return {}
    honest = found.probability[code, 0]
    odds = "below 0.1 %" if honest < 0.001 else f"{100 * honest:.1f} %"
    would = f"{how_many(chance)} honest people here would {as_much}"
    return {flag: f"{fact}; {would} (probability of being one of them: {odds})"}
