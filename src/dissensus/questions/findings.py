"""Findings of the questions: one class of message per statement, with its facts (see `dissensus.messages`)."""

from __future__ import annotations

from typing import Any

from dissensus.common.formatting import Count, Share, format_count, join_words, list_first_names, shorten_name
from dissensus.messages import Message, quote_name

MAX_RARE_CLASSES_SHOWN = 5

# describe: content and doubtful points of a table ---------------------------------------------------------------------


class NumberRange(Message):
    template = (
        "Values range from {low:,.6g} to {high:,.6g}; half of them lie between {quarter:,.6g} and "
        "{three_quarters:,.6g}, the median is {median:,.6g}."
    )
    low: float
    quarter: float
    median: float
    three_quarters: float
    high: float


class NumberSpread(Message):
    template = (
        "Standard deviation: {overall:,.4g} over all labels, {within_items:,.4g} between labels of the same item."
    )
    overall: float
    within_items: float


class SelectedOptions(Message):
    template = "Annotators select {mean:.2f} of {n_options:,} options per label on average."
    mean: float
    n_options: int


class PairwiseAgreement(Message):
    template = "Two annotators of the same item agree {share} of the time."
    share: Share


class UnanimousItems(Message):
    template = "All annotators agree on {share} of the items that have two annotators or more."
    share: Share


class NoDoubts(Message):
    template = "No problems found."


class AgreementAtChance(Message):
    template = "Annotators agree no more often than by chance ({chance}){remedy_clause}."
    chance: Share
    several_spellings: bool
    remedy_clause = property(lambda self: "" if self.several_spellings else NO_REMEDY_CLAUSE)


NO_REMEDY_CLAUSE = "; no method can correct this unless a few annotators cause it, which `diagnose` shows"


class DisagreementAtChance(Message):
    template = f"Labels of the same item differ as much as labels of different items{NO_REMEDY_CLAUSE}."


class AnnotatorsWithFewLabels(Message):
    template = "{n:,} of {annotators:annotator} gave fewer than 5 labels, too few to estimate their reliability."
    n: int
    annotators: Count


class AnnotatorsWithoutLabels(Message):
    template = "{n:,} of {annotators:annotator} gave no label with a weight above 0."
    n: int
    annotators: Count


class ItemsWithoutLabel(Message):
    template = "{n:,} of {items:,} items have no label; each will get {default_answer}."
    n: int
    items: int
    numbers: bool
    default_answer = property(
        lambda self: "the mean of all items" if self.numbers else "the frequencies of the classes"
    )


class RepeatedLabels(Message):
    template = (
        "{n:annotation} {n:repeats|repeat} an item and annotator; `consensus` counts them as one vote, other methods "
        "count each of them."
    )
    n: Count


class SeveralSpellings(Message):
    template = "Some class names differ only in capitals or spaces{effect}; {param[normalize=True]} merges them."
    effect: str = ", which counts as disagreement"
    example = {"effect": ", which counts as disagreement"}


class MissingAnswers(Message):
    template = "These classes may stand for a missing answer: {names}; exclude them with {param[abstain]}."
    classes: tuple[str, ...]
    names = property(lambda self: list_first_names(self.classes, len(self.classes)))


class RareClasses(Message):
    template = (
        "These classes have few labels and may be typing errors: {names}; rename them with {param[map=<OLD=NEW>]}."
    )
    labels: dict[str, int]

    @property
    def names(self) -> str:
        return list_first_names([f"{name} ({n})" for name, n in self.labels.items()], MAX_RARE_CLASSES_SHOWN, str)


class ClassesAreNumbers(Message):
    template = (
        "The classes are numbers; read them as scores with {param[kind='numbers']}, or as ordered grades with "
        "{param[kind='graded']}."
    )


class OneClass(Message):
    template = "The table has only one class, so there is nothing to decide."


class OneAnnotator(Message):
    template = "There is only one annotator, so nothing shows whether the labels are right."


class NoItemLabelledTwice(Message):
    template = "No item has labels by two annotators, so no label can be checked against another."


class MostItemsLabelledOnce(Message):
    template = "Most items have labels by only one annotator, so most labels cannot be checked against another."


# agreement ------------------------------------------------------------------------------------------------------------


class SpanAgreementExplained(Message):
    template = (
        "F1 is the share of one annotator's spans that another annotator of the document marked too. α corrects for "
        "chance agreement on tokens or characters, uα for chance agreement on whole spans."
    )


class AgreementUndefined(Message):
    template = "Items with two annotators have labels of only one class; coefficients without a value are undefined."


class ClassOrder(Message):
    template = "Order of the classes: {order}."
    classes: tuple[str, ...]
    order = property(lambda self: " < ".join(list_first_names([name], 1) for name in self.classes))


class TooFewSharedItems(Message):
    template = "Only {n:item} {n:has|have} labels by two annotators, too few to assess the agreement."
    n: Count


AGREEMENT_VERDICTS = {
    "below chance": "worse than chance: labels of the same item differ more often than labels of different items",
    "chance": "not distinguishable from chance",
    "good": "good: α is at least 0.8, which Krippendorff requires of reliable data",
    "fair": "fair: α is above 0.667, where Krippendorff allows tentative conclusions, but may be below 0.8",
    "undecided": "uncertain: 0.667, where Krippendorff allows tentative conclusions, lies inside the interval of α",
    "poor": "poor: better than chance, but α is below the 0.667 where Krippendorff allows tentative conclusions",
}


class AgreementBeyondChance(Message):
    template = "{agreement_sentence}Corrected for chance (α), agreement is {verdict_text}."
    percent: Share | None
    verdict: str
    example = {"percent": Share(0.9), "verdict": "fair"}

    @property
    def agreement_sentence(self) -> str:
        return "" if self.percent is None else f"Two annotators of the same item agree {self.percent} of the time. "

    verdict_text = property(lambda self: AGREEMENT_VERDICTS[self.verdict])


class SkewedClasses(Message):
    template = "AC1 is far above κ because a few classes are common: κ then attributes more agreement to chance."


class ItemsLabelledOnce(Message):
    template = "{n:,} of {items:,} items have labels by fewer than two annotators and are not used."
    n: int
    items: int


class NoComparablePair(Message):
    template = "No two annotators share {min_items:,} items for which κ is defined; lower {param[least]}."
    min_items: int


# diagnose: annotators whose labels differ from the others' ------------------------------------------------------------


class FlagReason(Message):
    """Why an annotator is flagged: the observation, and how often a typical annotator would look like this."""

    chance: float

    @property
    def frequency(self) -> str:
        return "less than once in 1,000" if self.chance < 0.001 else f"{100 * self.chance:.1f} % of the time"


class RepeatsOneLabel(FlagReason):
    template = "answers {name} {times:,} times out of {n:,}; a typical annotator would do so {frequency}"
    label: Any
    times: int
    n: int
    p_typical: float
    name = property(lambda self: quote_name(self.label))


class AgreesRarely(FlagReason):
    template = (
        "agrees with the other annotators on {agree:,} of {n:,} labels; a typical annotator would agree this rarely "
        "{frequency}"
    )
    agree: int
    n: int
    p_typical: float


class CopiesLabels(Message):
    template = (
        "gives the same answer as {source_names} on {agreed:,} of {shared:,} items; {expected:.0f} would be expected "
        "of annotators who work independently"
    )
    sources: tuple[Any, ...]
    agreed: int
    shared: int
    expected: float

    @property
    def source_names(self) -> str:
        first, *more = map(quote_name, self.sources)
        return f"{first} and {len(more)} other {'annotator' if len(more) == 1 else 'annotators'}" if more else first


UNUSUAL_CLAUSE = "; a typical annotator would be this unusual {frequency}"


class RepeatsOneNumber(FlagReason):
    template = "answers {value:g} {times:,} times out of {n:,}" + UNUSUAL_CLAUSE
    value: float
    times: int
    n: int


class LowCorrelation(FlagReason):
    template = (
        "has a correlation of {r:z.2f} with the other annotators over {n:,} labels, where {usual:.2f} is typical"
        + UNUSUAL_CLAUSE
    )
    r: float
    usual: float
    n: int


class ShiftedNumbers(FlagReason):
    template = (
        "answers {distance:.3g} {direction} than other annotators of the same items on average, over {n:,} labels"
        + UNUSUAL_CLAUSE
    )
    shift: float
    n: int
    distance = property(lambda self: abs(self.shift))
    direction = property(lambda self: "higher" if self.shift > 0 else "lower")


CHOICE_PHRASES = {
    "better": "prefers the better alternative",
    "left": "prefers the alternative on the left",
    "right": "prefers the alternative on the right",
    "tie": "answers with a tie",
}


class UnusualChoices(FlagReason):
    template = "{action} in {times:,.0f} of {n:,} answers, where {expected:,.0f} would be typical" + UNUSUAL_CLAUSE
    choice: str
    times: float
    expected: float
    n: int
    example = {"choice": "left"}
    action = property(lambda self: CHOICE_PHRASES[self.choice])


class LowSimilarity(FlagReason):
    template = (
        "has a similarity of {similarity:.2f} to other annotators over {n:,} {unit} (1 means identical), where "
        "{usual:.2f} is typical" + UNUSUAL_CLAUSE
    )
    unit: str
    similarity: float
    usual: float
    n: int
    example = {"unit": "answers"}


class UnusualMarkCounts(FlagReason):
    template = "marks {mean:.2f} on average in {n:,} {unit}, where other annotators mark {usual:.2f}" + UNUSUAL_CLAUSE
    unit: str
    mean: float
    usual: float
    n: int
    example = {"unit": "documents"}


class FlaggedAnnotators(Message):
    template = "{count_phrase} of {annotators:annotator} {verb} flagged{so_far_clause}."
    annotators: Count
    flagged: int
    unsettled: bool
    count_phrase = property(lambda self: f"{self.flagged or 'none'}")
    verb = property(lambda self: "is" if self.flagged <= 1 else "are")
    so_far_clause = property(lambda self: " so far" * (self.unsettled and not self.flagged))


class SpellingFirst(Message):
    template = (
        "No annotator is flagged as long as class names differ only in capitals or spaces: merge them with "
        "{param[normalize=True]}, or rename them with {param[map=<OLD=NEW>]}, and run this again."
    )


class TooFewLabels(Message):
    template = (
        "{n} of {annotators:annotator} {n:has|have} too few labels to be tested, on items that others labelled too."
    )
    n: Count
    annotators: Count


# compare: which method predicts held-out labels best ------------------------------------------------------------------


class SingleMethodCompared(Message):
    template = "{method} was the only method; add another one to compare it with."
    method: str


class TooFewHiddenLabels(Message):
    template = "Too few labels to compare methods: {n_hidden:label} could be held out, {needed} are needed."
    n_hidden: Count
    needed: int


class BestMethod(Message):
    """The method that predicts held-out labels best, and the difference of another method from it."""

    best: str
    other_method: str
    behind: float
    low: float
    high: float
    unit: str
    tied: bool  # the difference may be chance
    example = {"unit": "a lower log-likelihood per label"}
    simple = property(lambda self: "majority vote" if self.other_method == "majority-vote" else self.other_method)
    capital = property(lambda self: self.simple[0].upper() + self.simple[1:])
    chance_clause = property(lambda self: ", which chance may explain" * self.tied)


class BaselineAhead(BestMethod):
    template = (
        "{other_method}, only a baseline, predicts held-out labels best; {best}, the best method, has {unit}, by "
        "{behind:.3g} ({low:.3g} to {high:.3g}){chance_clause}."
    )


class SimplestMethodSuffices(BestMethod):
    template = "{capital} is good enough here: {best} predicts held-out labels best, but {margin_clause}."

    @property
    def margin_clause(self) -> str:
        return "not by more than chance explains" if self.tied else f"only by {self.behind:.4f} ({self.unit})"


class BestMethodAhead(BestMethod):
    template = (
        "{best} predicts held-out labels best{ties_clause}; {simple}{role_clause} has {unit}, by {behind:.3f} "
        "({low:.3f} to {high:.3f}){chance_clause}."
    )
    ties_with: tuple[str, ...]
    baseline: bool
    ties_clause = property(lambda self: name_ties(self.ties_with))
    role_clause = property(lambda self: ", a baseline," * self.baseline)


class BestMethodFound(Message):
    template = "{best} predicts held-out labels best{ties_clause}."
    best: str
    ties_with: tuple[str, ...]
    ties_clause = property(lambda self: name_ties(self.ties_with))


def name_ties(methods: tuple[str, ...]) -> str:
    """Return the clause that names methods tied with the best one, or "" without any."""
    return f", statistically tied with {join_words(methods)}" if methods else ""


class OnlyBaselinesCompared(Message):
    template = "{name} predicts held-out labels best, but only baselines were compared; add a method."
    best: str
    name = property(lambda self: self.best[0].upper() + self.best[1:])


class SimplestMethodBest(Message):
    template = "{name} predicts held-out labels best, so nothing more elaborate is needed here."
    method: str

    @property
    def name(self) -> str:
        return "Majority vote" if self.method == "majority-vote" else self.method[0].upper() + self.method[1:]


class DefaultMethodBehind(Message):
    template = "{method}, the default of all commands, has {unit}, by {by}{caveat_clause}."
    method: str
    behind: float
    unit: str
    probabilities: bool
    example = {"unit": "a lower log-likelihood per label"}
    by = property(lambda self: f"{self.behind:.3f}" if self.behind >= 0.0005 else "less than 0.001")
    caveat_clause = property(
        lambda self: "; the best predictor is not always the most accurate method" * self.probabilities
    )


class ComparedOnSample(Message):
    template = "Methods were compared on {items:item} drawn at random, with all their labels."
    items: Count


class SlowMethodsSkipped(Message):
    template = "{tried:method} were tried; {names} take longer and run only if they are named."
    tried: Count
    methods: tuple[str, ...]
    names = property(lambda self: join_words(self.methods))


class MethodSkipped(Message):
    template = "{method} was skipped: {reason}"
    method: str
    reason: str


class ComparisonExplained(Message):
    template = (
        "{quantity} {n_hidden:held-out label} ({splits:split}, {share} each); closer to 0 is better. ± is half of the "
        "95 % interval over items, for each method alone. ≈ marks methods that are statistically tied with the best, "
        "corrected for the number of methods. The score measures how well labels are predicted, not how often the "
        "truth is found.{ties_sentence}"
    )
    quantity: str
    n_hidden: Count
    splits: Count
    share: Share
    accuracy: bool
    example = {"quantity": "Mean log probability of"}

    @property
    def ties_sentence(self) -> str:
        return " Accuracy counts each of t tied classes as 1/t; `aggregate` draws one of them." * self.accuracy


# explain: why labels of an item disagree ------------------------------------------------------------------------------


class ItemsExplained(Message):
    template = "{items:item}."
    items: Count


class FewLabelsPerItem(Message):
    template = (
        "The kind of an item follows from several labels on it and from how its annotators label other items. "
        "`recommend` shows whether more labels would change an item."
    )


class GroupsDiffer(Message):
    template = "Groups of annotators by {column} {verb_phrase} (p = {p_value:.2g}){missing_items_clause}."
    column: str
    items: Count
    significant: bool
    p_value: float

    @property
    def verb_phrase(self) -> str:
        where = f" on {self.items:item}" if self.items else ""
        return f"differ{where}" if self.significant else "show no difference beyond chance"

    @property
    def missing_items_clause(self) -> str:
        unknown = self.significant and not self.items
        return "; there are too few labels to tell on which items" * unknown


# redundancy: how many labels are enough -------------------------------------------------------------------------------


class NoSecondAnnotator(Message):
    template = (
        "No item has labels by two annotators, so agreement and the effect of more labels are unknown. Have a second "
        "annotator label some items{advice}."
    )
    budget: int | None  # None: there is no label to collect
    advice = property(lambda self: "" if self.budget is None else "; `recommend` lists which")


class StabilityWithFewerLabels(Message):
    template = (
        "With {labels_phrase} per item, {adverb} {share} of {items_phrase} get the same class as with "
        "{all_labels_phrase}."
    )
    labels: Count
    share: Share
    stable: bool
    items: Count | None  # items with more labels; None: all items
    equal_labels: int | None  # labels of every item, if all have the same number
    labels_phrase = property(lambda self: f"{'' if self.equal_labels else 'at most '}{self.labels:label}")
    adverb = property(lambda self: "already" if self.stable else "only")

    @property
    def items_phrase(self) -> str:
        return "the items" if self.items is None else f"the {self.items:item} with {self.labels + 1} labels or more"

    all_labels_phrase = property(lambda self: f"all {self.equal_labels}" if self.equal_labels else "all their labels")


class EffectOfNextLabel(Message):
    template = (
        "The model expects one more label per item, by the same annotators, to change the class of {flips} of the "
        "items and to make {gain} more of them correct.{rehearsal_sentence}"
    )
    flips: Share
    gain: Share
    expected: Share | None  # changes expected and observed when one label was removed and added again
    observed: Share | None

    @property
    def rehearsal_sentence(self) -> str:
        if self.expected is None:
            return ""
        removed = " When one label of each item was removed and added again, the model expected"
        return f"{removed} {self.expected} of the classes to change, and {self.observed} did."


class LessStableThanExpected(Message):
    template = "Labels here are less stable than the model expects, so expect more of them to change."


class AccuracyOnGold(Message):
    template = "On items with gold, {value} are correct{interval_clause}; the model expected {expected}."
    value: Share
    low: Share | None
    high: Share | None
    expected: Share
    interval_clause = property(lambda self: "" if self.low is None else f" ({self.low} to {self.high})")


class MeasuredOnSample(Message):
    template = "These figures were measured on {items:,} items drawn at random."
    items: int


# recommend: which labels to collect next ------------------------------------------------------------------------------


class LabelsToCollect(Message):
    template = "Collect {labels:label} on {items:item}{limit_clause}{cost_clause}."
    labels: Count
    items: Count
    per_item: int  # largest number of labels on one item
    cost: float
    limit_clause = property(lambda self: f", up to {self.per_item} on one item" if self.per_item > 1 else "")
    cost_clause = property(lambda self: "" if self.cost == self.labels else f", at a total cost of {self.cost:g}")


class ExpectedChanges(Message):
    template = "They are expected to change the label of about {rounded_changes} items{rate_clause}."
    changes: float
    labels: int
    rounded_changes = property(lambda self: f"{self.changes:,.0f}" if self.changes >= 10 else f"{self.changes:.1f}")

    @property
    def rate_clause(self) -> str:
        if self.changes < 0.1:
            return ""
        ratio = self.labels / self.changes
        return f", one for every {ratio:,.0f} labels" if ratio >= 100 else f", one for every {ratio:.3g} labels"


class NoExpectedChange(Message):
    template = "They are not expected to change the label of any item."


class MoreLabelsNeeded(Message):
    template = "{items:item} may change, but only after more labels than these."
    items: Count


class UncheckedItemsIncluded(Message):
    template = (
        "{items} of these items {items:is|are} included only because fewer than two annotators have labelled "
        "{items:it|them}."
    )
    items: Count


class NothingToCollect(Message):
    """Why no label, or no further label, is recommended."""

    budget_left: float | None  # unspent part of the budget; None: no label is recommended

    @property
    def opening(self) -> str:
        return (
            "There is nothing to collect" if self.budget_left is None else f"{self.budget_left:g} of the budget is left"
        )

    then_word = property(lambda self: "" if self.budget_left is None else "then ")
    no_label = property(lambda self: "no label" if self.budget_left is None else "no other label")


class EverythingLabelled(NothingToCollect):
    template = "{opening}: every annotator has {then_word}labelled every item, so only a new annotator could help."


class BudgetTooSmall(NothingToCollect):
    template = "{opening}: the budget does not pay for a single label."


class NoUsefulLabel(NothingToCollect):
    template = "{opening}: {no_label} is expected to change the answer of an item."


class LimitsReached(NothingToCollect):
    template = "{opening}: the limits allow no further label."


class NoUnsettledItem(NothingToCollect):
    template = "{opening}: {n_settled:,} of {items:,} items are settled{rule_clause}{full_clause}."
    n_settled: int
    items: int
    confidence: Share | None
    annotators: int
    full_items: int

    @property
    def rule_clause(self) -> str:
        if self.confidence is None:
            return ""
        return f" (a confidence of at least {self.confidence:0}, and at least {self.annotators} annotators)"

    @property
    def full_clause(self) -> str:
        return f", and {self.full_items:,} have the maximum number of labels" if self.full_items else ""


class NextStep(Message):
    template = "Next: {advice}"
    budget: int | None  # None: no label is recommended
    verdict: str
    example = {"budget": 100, "verdict": "Collect 100 labels on 100 items."}

    @property
    def advice(self) -> str:
        verdict = self.verdict[0].lower() + self.verdict[1:]
        return verdict if self.budget is None else f"{verdict} `recommend` with a budget of {self.budget} lists them."


class CapacityLimit(Message):
    template = (
        "No annotator gets more than twice their share of the labels so far, or 5 labels if that is more "
        "({param[capacity]})."
    )


class LabelsPerItemLimit(Message):
    template = "Items with labels by {labels:,} annotators get no more labels ({param[per_item]})."
    labels: int


class SettledLimit(Message):
    template = (
        "{n_settled:,} of {items:,} items get no more labels, because their confidence is at least {percent:g} % "
        "({param[settled]})."
    )
    n_settled: int
    items: int
    percent: float


class NoInformativeItem(Message):
    template = "There is nothing to collect: one more answer adds no information on any of {candidates:,} {unit}."
    candidates: int
    unit: str
    example = {"unit": "items"}


class ComparisonsToCollect(Message):
    template = "Collect {n:,} more comparisons, of {pairs:,} of {candidates:,} pairs of alternatives."
    n: int
    pairs: int
    candidates: int


class AnswersToCollect(Message):
    template = (
        "Collect one more answer, by any annotator, on {n:,} of {candidates:,} {unit}; they account for {share:0} of "
        "the {gain}."
    )
    n: int
    candidates: int
    unit: str
    share: Share
    gain: str
    example = {"unit": "items", "gain": "expected information"}


# item_status: what to do with an item ---------------------------------------------------------------------------------


class AnswerDecided(Message):
    template = "decided: its answer is known"


class NoLabel(Message):
    template = "no label"


class OneLabel(Message):
    template = "only 1 label"


class OneReader(Message):
    template = "only 1 reader"


class OnlyLabelDoubtful(Message):
    template = "the only label, {name}, is doubtful"
    label: Any
    name = property(lambda self: quote_name(self.label))


class LabelsByOneAnnotator(Message):
    template = "{labels} labels, all by one annotator"
    labels: int


class VoteReason(Message):
    """A reason from the votes of an item; the reliability of its annotators decides a settled item."""

    labels: int
    is_settled: bool
    decision_clause = property(lambda self: ", decided by the annotators' reliability" * self.is_settled)


class LabelsDiffer(VoteReason):
    template = "{labels} labels differ{decision_clause}"


class LessAgreementThanUsual(Message):
    template = "{agree} of {labels} labels agree, where {expected} usually would"
    agree: int
    labels: int
    expected: int


class LabelsTied(VoteReason):
    template = "{class_names} are tied with {agree} labels each{decision_clause}"
    classes: tuple[Any, ...]
    agree: int

    @property
    def class_names(self) -> str:
        several = f"{len(self.classes)} answers"
        return join_words([quote_name(name) for name in self.classes]) if len(self.classes) <= 3 else several


class MajorityOverruled(VoteReason):
    template = "{quantifier} labels ({agree} of {labels}) are {name}{decision_clause}"
    label: Any
    agree: int
    quantifier = property(lambda self: "most" if 2 * self.agree > self.labels else "more")
    name = property(lambda self: quote_name(self.label))


class AllLabelsAgree(Message):
    template = "{labels_phrase} labels agree{doubt_clause}"
    labels: int
    threshold: float | None  # required confidence that is not reached
    labels_phrase = property(lambda self: "both" if self.labels == 2 else f"all {self.labels}")
    doubt_clause = property(
        lambda self: "" if self.threshold is None else f", but the confidence is below {100 * self.threshold:g} %"
    )


class SomeLabelsAgree(Message):
    template = "{agree} of {labels} labels agree"
    agree: int
    labels: int


class ValueInterval(Message):
    template = "between {low:.4g} and {high:.4g} with 95 % probability"
    low: float
    high: float


class FewLabelsNearValue(Message):
    template = "{near} of {labels} labels are close to the value, where {expected} usually are"
    near: int
    labels: int
    expected: int


class SpanConfidence(Message):
    template = "the set of spans is exactly right with {percent:.0f} % probability"
    percent: float


class StatusCounts(Message):
    template = (
        "{n_settled} {n_settled:item is|items are} settled (a {quantity_name} of at least {min_percent:g} %, and at "
        "least {annotators} annotators), {n_unsure} {n_unsure:needs|need} a look, {n_split} "
        "{n_split:is|are} truly split."
    )
    n_settled: Count
    n_unsure: Count
    n_split: Count
    min_percent: float
    reliability: bool
    annotators: int
    quantity_name = property(lambda self: "reliability" if self.reliability else "confidence")


# review_panel, calibrate ----------------------------------------------------------------------------------------------


class EffectiveJudgeCount(Message):
    template = (
        "{judges} judges carry the evidence of {effective:.1f} independent ones ({low:.1f} to {high:.1f}){basis_clause}"
    )
    judges: int
    effective: float
    low: float
    high: float
    correlation: float | None  # mean correlation of errors on gold items; None without gold

    @property
    def basis_clause(self) -> str:
        if self.correlation is None:  # the panel's own posterior assumes a value of this correlation
            return ", if they share mistakes as other panels do; only gold labels can show this."
        return f": on gold items, the mean correlation of their errors is {self.correlation:.2f}."


class GoldNotRandom(Message):
    """Judges label gold items differently from the rest, by more than a random draw would explain."""

    template = (
        "{difference_clause} than on other items (p = {p_value:.1g}), so gold does not look like a random sample and "
        "the intervals may not hold; draw gold at random, or give the probability with which each item was drawn."
    )
    feature: str  # score, agreement or label
    label: Any
    is_more: bool
    p_value: float
    example = {"feature": "agreement"}

    @property
    def difference_clause(self) -> str:
        if self.feature == "score":
            return f"judges' scores are {'higher' if self.is_more else 'lower'} on gold items"
        if self.feature == "agreement":
            return f"judges agree {'more' if self.is_more else 'less'} on gold items"
        return f"judges answer {quote_name(self.label)} {'more' if self.is_more else 'less'} often on gold items"


class DifferentScales(Message):
    template = (
        "human scores range from {low:g} to {high:g}, those of the judges from {judges_low:g} to {judges_high:g}; "
        "corrected means are on the human scale."
    )
    low: float
    high: float
    judges_low: float
    judges_high: float


class FewGoldLabels(Message):
    template = "few gold labels of {class_counts}; intervals of classes with fewer than {min_labels} are rough."
    labels: dict[str, int]
    min_labels: int

    @property
    def class_counts(self) -> str:
        some = [f"{quote_name(name)} ({n})" for name, n in self.labels.items()]
        return f"{', '.join(some[:3])} and {len(some) - 3:,} more" if len(some) > 3 else ", ".join(some)


class TooLittleGoldForSystem(Message):
    template = "{system}: {n_gold} of {items:,} items have gold; at least {min_gold} are needed."
    system: str
    n_gold: int
    items: int
    min_gold: int


class WidthOutOfReach(Message):
    template = "No number of gold labels on these items makes the intervals {width:g} wide; add items."
    width: float


class WidthReached(Message):
    template = "The gold labels are enough for intervals {width:g} wide."
    width: float


class MoreGoldNeeded(Message):
    template = (
        "Intervals {width:g} wide take {n_more:,} more gold labels ({needed:,} in all); the items to label next are "
        "drawn at random."
    )
    width: float
    n_more: int
    needed: int


class GoldCount(Message):
    template = "{n_gold:,} of {items:,} items have human labels."
    n_gold: int
    items: int


class RatesExplained(Message):
    template = "{rogan_gladen_sentence}Saved is the number of human labels that the judges replace."
    with_rogan_gladen: bool

    @property
    def rogan_gladen_sentence(self) -> str:
        return "R–G is the estimate from sensitivity and specificity (Rogan–Gladen). " * self.with_rogan_gladen


class SystemsExplained(Message):
    template = "Two systems differ significantly if the corrected interval excludes 0."


class ItemAccuracy(Message):
    template = "The labels of {share} of the gold items are right if their gold is held out (log loss {log_loss:.3f})."
    share: Share
    log_loss: float


class JudgesNeeded(Message):
    template = "{n} of {judges} judges are enough for 95 % of the panel's answer{price_clause}: {names}."
    selection: tuple[str, ...]
    judges: int
    cost: float | None
    all_cost: float | None
    n = property(lambda self: len(self.selection))
    names = property(lambda self: list_first_names(self.selection, self.n))

    @property
    def price_clause(self) -> str:
        return "" if self.cost is None else f", for {self.cost:g} per item instead of {self.all_cost:g}"


class SimilarJudges(Message):
    template = "These judges make the same mistakes more often than by chance (correlation of errors): {names}."
    pairs: tuple[tuple[str, str, float], ...]
    example = {"pairs": (("gpt-4o", "gpt-4o-mini", 0.41),)}

    @property
    def names(self) -> str:
        return "; ".join(f"{shorten_name(first)} and {shorten_name(second)} {r:.2f}" for first, second, r in self.pairs)


class JudgeBiasFound(Message):
    template = (
        "{name} ({cause}) shifts the verdict by {excess:+.3f} ({low:z.3f} to {high:z.3f}) on items with the same true "
        "label."
    )
    column: str
    value: str
    judge_name: str
    excess: float
    low: float
    high: float
    name = property(lambda self: shorten_name(self.column))

    @property
    def cause(self) -> str:
        return (
            f"{shorten_name(self.judge_name)}, its own family"
            if self.judge_name
            else shorten_name(self.value) or "one SD more"
        )


class ItemsToLabel(Message):
    template = "Label these next: {names}; {param[next=<FILE>]} writes all of them to a file."
    items: tuple[Any, ...]
    names = property(lambda self: list_first_names(self.items, 5))


class HumanLabelsHelp(Message):
    template = (
        "Have 50 random items labelled by humans and pass them with {param[gold=<FILE>]}: the panel's answers are then "
        "corrected."
    )


# diff: what changed ---------------------------------------------------------------------------------------------------


class NoLabelChanged(Message):
    template = "No label changed."


class LabelsChanged(Message):
    template = (
        "{added:label} {added:was|were} added, {changed:,} changed and {removed:,} removed; the answer of "
        "{flipped:item} changed."
    )
    added: Count
    changed: int
    removed: int
    flipped: Count


class NoDriftTested(Message):
    template = "No annotator has enough labels both before and now to be tested for drift."


class DriftingAnnotators(Message):
    template = (
        "{count_phrase} of {tested:annotator} with enough labels now {verb} with the others clearly more or less "
        "often than before."
    )
    drifting: int
    tested: Count
    count_phrase = property(lambda self: f"{self.drifting or 'None'}")
    verb = property(lambda self: "agrees" if self.drifting <= 1 else "agree")


class AnnotatorDrifts(Message):
    template = (
        "{annotator} now agrees with the others on {agreement_since:0} of {labels_since:,} labels, before on "
        "{agreement_before:0} of {labels_before:,}; everyone else: {others_before:0} before, {others_since:0} now. Ask "
        "whether the guideline, the kind of item or the tool changed for them."
    )
    annotator: Any
    agreement_since: Share
    labels_since: int
    agreement_before: Share
    labels_before: int
    others_since: Share
    others_before: Share


class LabelChange(Message):
    template = "{annotator} {action}"
    annotator: Any
    old: Any  # None: the label was added
    new: Any  # None: the label was removed

    @property
    def action(self) -> str:
        if self.old is None:
            return f"added {quote_name(self.new)}"
        old = quote_name(self.old)
        return f"removed {old}" if self.new is None else f"changed {old} to {quote_name(self.new)}"


class FlippedByOwnLabels(Message):
    template = "{change_list}"
    decisive: bool
    labels: tuple[LabelChange, ...]
    n_changes: int

    @property
    def change_list(self) -> str:
        some = "; ".join(map(str, self.labels))
        if self.decisive:
            return some if len(self.labels) == 1 else f"any one of: {some}"
        return f"together: {some}{'; …' * (self.n_changes > len(self.labels))}"


class FlippedByOtherItems(Message):
    template = "its annotators' reliability changed through their labels on other items{own_changes_clause}"
    own_changes: int

    @property
    def own_changes_clause(self) -> str:
        return f"; its {self.own_changes} own changes do not explain it" if self.own_changes else ""


class ItemsAndAnnotatorsChanged(Message):
    template = "In addition: {change_list}."
    new_items: int
    lost_items: int
    new_annotators: int
    lost_annotators: int

    @property
    def change_list(self) -> str:
        some = (
            (self.new_items, "new item", ""), (self.lost_items, "item", " without labels now"),
            (self.new_annotators, "new annotator", ""), (self.lost_annotators, "annotator", " without labels now"),
        )  # fmt: skip
        return ", ".join(f"{format_count(n, noun)}{rest}" for n, noun, rest in some if n)


class TooFewForDrift(Message):
    template = (
        "{n} of {annotators:,} annotators {n:is|are} not tested for drift: before or now, {n:it has|they have} fewer "
        "than {min_labels} labels on items that others labelled too."
    )
    n: Count
    annotators: int
    min_labels: int


class SnapshotsInWrongOrder(Message):
    template = "{new} ends on {new_end}, before {old} does ({old_end}); check the order of the two files."
    new: str
    new_end: str
    old: str
    old_end: str


# evaluate -------------------------------------------------------------------------------------------------------------


class MissingPredictions(Message):
    template = (
        "{predictions} has no prediction for {missing:,} of {n:,} {unit}, such as item {name}; they are skipped for "
        "all predictions."
    )
    predictions: str
    missing: int
    n: int
    unit: str
    item: Any
    example = {"unit": "items"}
    name = property(lambda self: quote_name(self.item))


class TiedLabels(Message):
    template = "{items:item} {items:has|have} several most frequent labels; hard scores skip {items:it|them}."
    items: Count


# check: whether a table meets thresholds ------------------------------------------------------------------------------

N_SHOWN_NAMES = 3


class FewestAnnotators(Message):
    template = "the item with the fewest annotators has {min_annotators:,}"
    min_annotators: int


class NamedItems(Message):
    """A message about items, of which the first are named."""

    items: tuple[Any, ...]
    names = property(lambda self: list_first_names(self.items, N_SHOWN_NAMES, quote_name))


class ItemsNeedLabels(NamedItems):
    template = (
        "Collect more labels on the {n:item} with fewer than {enough:,} annotators, such as {names}; "
        "{annotator_advice}."
    )
    n: Count
    enough: int
    annotators: Count

    @property
    def annotator_advice(self) -> str:
        if self.annotators < self.enough:
            return f"this takes new annotators, as the table has {self.annotators:annotator}"
        return "`recommend` chooses the annotators"


class SettledShare(Message):
    template = "{share} of the items are settled"
    share: Share


class DecideItems(Message):
    template = "Have an expert decide the other items (`adjudicate`), or collect more labels on them (`recommend`)."


class AgreementUnavailable(Message):
    template = "the agreement is undefined, because {reason}"
    weighted: bool

    @property
    def reason(self) -> str:
        return "labels have weights or probabilities" if self.weighted else "no item has labels by two annotators"


class ReviewDisagreement(Message):
    template = "Look at the items that annotators disagree about (`explain`), then at the guideline."


class SpellingUnsettled(Message):
    template = "class names differ only in capitals or spaces, so no annotator can be tested"


class ReviewAnnotators(Message):
    template = "Look at the labels of {names}; `diagnose` gives the reasons."
    annotators: tuple[Any, ...]
    names = property(lambda self: list_first_names(self.annotators, N_SHOWN_NAMES, quote_name))


class AgreementNotComparable(Message):
    template = "the agreement of one of the two snapshots is unknown"


class AgreementFell(Message):
    template = (
        "two annotators of the same item agree {agreement_now} of the time, before {agreement_before}: a fall of {fall}"
    )
    agreement_now: Share
    agreement_before: Share
    fall: Share


class CompareSnapshots(Message):
    template = "Look at which labels and annotators changed between the two tables."


class NoItemInBoth(Message):
    template = "no item has labels in both snapshots"


class AnswersChanged(Message):
    template = "the answer of {share} of {items:item} changed"
    share: Share
    items: Count


class CompareItems(NamedItems):
    template = "Compare the labels of {names} in the two tables."


class LabelsLost(Message):
    template = "{n:,} of {items:item} with labels before have none now"
    n: int
    items: Count


class CheckExport(NamedItems):
    template = "Check that the export is complete: {names} should have labels."


class NoUnchangedItem(Message):
    template = "no item has as many labels as before"


class UnexpectedClasses(Message):
    template = "{n} {n:class|classes} {verb_phrase}"
    n: Count
    allowed: int | None  # None: compared with an earlier snapshot

    @property
    def verb_phrase(self) -> str:
        if self.allowed is None:
            return f"{self.n:was|were} not in the earlier snapshot"
        return f"{self.n:is|are} not among the {self.allowed:,} allowed ones"


class RenameClasses(Message):
    template = "Rename {names} ({param[map=<OLD=NEW>]}), or allow them ({param[classes]})."
    classes: tuple[Any, ...]
    names = property(lambda self: list_first_names(self.classes, N_SHOWN_NAMES, quote_name))
