"""What questions find, in words: messages with facts, one class per statement (`dissensus.messages`)."""

from __future__ import annotations

from typing import Any

from dissensus.common.formatting import Count, Share, format_count, join_words, list_first_names, shorten_name
from dissensus.messages import Message, quote_name

MAX_RARE_CLASSES_SHOWN = 5

# describe: what is in a table -----------------------------------------------------------------------------------------


class NumberRange(Message):
    template = (
        "Numbers: {low:,.6g} to {high:,.6g}, half of them between {quarter:,.6g} and {three_quarters:,.6g}, median "
        "{median:,.6g}."
    )
    low: float
    quarter: float
    median: float
    three_quarters: float
    high: float


class NumberSpread(Message):
    template = (
        "Spread: standard deviation {overall:,.4g} over all labels, {within_items:,.4g} among labels of one item."
    )
    overall: float
    within_items: float


class SelectedOptions(Message):
    template = "Selected options: {mean:.2f} of {n_options:,} at a time, on average."
    mean: float
    n_options: int


class PairwiseAgreement(Message):
    template = "Agreement: two annotators of one item agree {share} of the time."
    share: Share


class UnanimousItems(Message):
    template = "Unanimous: {share} of the items with two annotators or more."
    share: Share


class NothingDoubtful(Message):
    template = "Nothing looks doubtful."


class AgreementAtChance(Message):
    template = "Labels agree about as often as by chance, or less ({chance}){remedy}."
    chance: Share
    several_spellings: bool
    remedy = property(lambda self: "" if self.several_spellings else NO_REMEDY)


NO_REMEDY = "; no method can correct that unless a few annotators cause it (`dissensus diagnose`)"


class ItemsDifferAsLabelsDo(Message):
    template = f"Labels of one item differ as much as those of different items{NO_REMEDY}."


class FewLabelsEach(Message):
    template = "{n:,} of {annotators:annotator} gave fewer than 5 labels; little is learnt about each."
    n: int
    annotators: Count


class NoCountedLabel(Message):
    template = "{n:,} of {annotators:annotator} gave no label that counts."
    n: int
    annotators: Count


class ItemsWithoutLabel(Message):
    template = "{n:,} of {items:,} items have no annotation; each will get {result}."
    n: int
    items: int
    numbers: bool
    result = property(lambda self: "the mean of all items" if self.numbers else "the shares of the classes")


class RepeatedLabels(Message):
    template = (
        "{n:annotation} {n:repeats|repeat} an item and annotator: they share one vote in `consensus` and count "
        "separately in other methods."
    )
    n: Count


class SeveralSpellings(Message):
    template = "Some classes differ by capitals or spaces only{effect}; {param[normalize=True]} merges them."
    effect: str = ", which counts as disagreement"
    example = {"effect": ", which counts as disagreement"}


class MissingAnswers(Message):
    template = "Classes may be missing answers: {names}; {param[abstain]} leaves a label out."
    classes: tuple[str, ...]
    names = property(lambda self: list_first_names(self.classes, len(self.classes)))


class RareClasses(Message):
    template = "Classes with few labels may be typing errors: {names}; {param[map=<OLD=NEW>]} renames."
    labels: dict[str, int]

    @property
    def names(self) -> str:
        return list_first_names([f"{name} ({n})" for name, n in self.labels.items()], MAX_RARE_CLASSES_SHOWN, str)


class ClassesAreNumbers(Message):
    template = (
        "Classes are numbers; {param[kind='numbers']} reads them as scores, {param[kind='graded']} as grades in this "
        "order."
    )


class OneClass(Message):
    template = "There is one class only; there is nothing to decide."


class OneAnnotator(Message):
    template = "There is one annotator only; nothing shows whether the labels are right."


class NoItemShared(Message):
    template = "No item has labels by two annotators; no labels can be checked against others."


class MostItemsUnchecked(Message):
    template = "Most items have labels by one annotator only, which no other has checked."


# agreement ------------------------------------------------------------------------------------------------------------


class SpanAgreementExplained(Message):
    template = (
        "F1: of two annotators of a document, the share of the spans of one that the other has. α and uα are of tokens "
        "or characters; by chance tokens meet in α, whole spans in uα."
    )


class AgreementUndefined(Message):
    template = "Only one class was given to items with two annotators: coefficients without a value are undefined."


class ClassOrder(Message):
    template = "Order of the classes: {order}."
    classes: tuple[str, ...]
    order = property(lambda self: " < ".join(list_first_names([name], 1) for name in self.classes))


class TooFewSharedItems(Message):
    template = "Only {n:item} {n:was|were} labelled by two annotators: too few to say more."
    n: Count


AGREEMENT_VERDICTS = {
    "below chance": "worse than chance: labels of one item differ more often than labels of different items",
    "chance": "no better than chance, as far as these labels can tell",
    "good": "good: 0.8 is what Krippendorff asks of data to rely on",
    "fair": "fair: above 0.667, from which Krippendorff allows tentative conclusions, not surely above 0.8",
    "undecided": "undecided: 0.667, where Krippendorff allows tentative conclusions, lies inside the interval",
    "poor": "better than chance, but below the 0.667 from which Krippendorff allows tentative conclusions",
}


class AgreementBeyondChance(Message):
    template = "{observed}eyond chance (α) {subject} is {words}."
    percent: Share | None
    verdict: str
    example = {"percent": Share(0.9), "verdict": "fair"}

    @property
    def observed(self) -> str:
        return "B" if self.percent is None else f"Two annotators of an item agree {self.percent} of the time. B"

    subject = property(lambda self: "agreement" if self.percent is None else "that")
    words = property(lambda self: AGREEMENT_VERDICTS[self.verdict])


class CommonClasses(Message):
    template = "AC1 is far above κ: where a few classes are common, κ attributes more of the agreement to chance."


class UncheckedItems(Message):
    template = "{n:,} of {items:,} items were labelled by fewer than two annotators and are not used."
    n: int
    items: int


class NoComparablePair(Message):
    template = "No two annotators share {least:,} items on which κ is defined; lower {param[least]}."
    least: int


# diagnose: annotators whose labels are unlike the others' -------------------------------------------------------------


class Reason(Message):
    """Why an annotator is flagged: what was seen, and how often a typical annotator would look like that."""

    chance: float
    rarity = property(lambda self: "fewer than 1 in 1,000" if self.chance < 0.001 else f"{100 * self.chance:.1f} % of")


class UntypicalLabels(Reason):
    """What was seen of an annotator of classes."""

    typical: float  # probability of being a typical annotator
    odds = property(lambda self: "below 0.1 %" if self.typical < 0.001 else f"{100 * self.typical:.1f} %")


class SameLabel(UntypicalLabels):
    template = (
        "answers {name} {times:,} times of {n:,}; {rarity} honest people here would give it as often (probability of "
        "being one of them: {odds})"
    )
    label: Any
    times: int
    n: int
    name = property(lambda self: quote_name(self.label))


class RareAgreement(UntypicalLabels):
    template = (
        "the labels {relation} what others say of the items: {agree:,} of {n:,} agree; {rarity} honest people here "
        "would agree so rarely (probability of being one of them: {odds})"
    )
    contrary: bool
    agree: int
    n: int
    relation = property(lambda self: "go against" if self.contrary else "have no relation to")


class CopiedLabels(Message):
    template = (
        "gives the same answer as {who} on {agreed:,} of {shared:,} items; {expected:.0f} would be expected of people "
        "who work by themselves"
    )
    others: tuple[Any, ...]
    agreed: int
    shared: int
    expected: float

    @property
    def who(self) -> str:
        first, *more = map(quote_name, self.others)
        return f"the other {len(self.others)} of a group around {first}" if more else first


AS_FAR = "; {rarity} people here would be as far off"


class SameNumber(Reason):
    template = "answers {value:g} {times:,} times of {n:,}" + AS_FAR
    value: float
    times: int
    n: int


class LowCorrelation(Reason):
    template = (
        "answers with a correlation of {r:z.2f} with the others' over {n:,} labels, where {usual:.2f} is usual" + AS_FAR
    )
    r: float
    usual: float
    n: int


class ShiftedNumbers(Reason):
    template = "gives {distance:.3g} {direction} than others to the same items, over {n:,} labels" + AS_FAR
    shift: float
    n: int
    distance = property(lambda self: abs(self.shift))
    direction = property(lambda self: "more" if self.shift > 0 else "less")


CHOICES = {
    "better": "names the better one",
    "left": "prefers what stands left",
    "right": "prefers what stands right",
    "tie": "calls a tie",
}


class UnusualChoices(Reason):
    template = "{action} in {times:,.0f} of {n:,} answers, where {expected:,.0f} would be usual" + AS_FAR
    choice: str
    times: float
    expected: float
    n: int
    example = {"choice": "left"}
    action = property(lambda self: CHOICES[self.choice])


class LowSimilarity(Reason):
    template = (
        "its {what} have a similarity of {similarity:.2f} to the others' (1: the same) over {n:,} of them, where "
        "{usual:.2f} is usual" + AS_FAR
    )
    what: str
    similarity: float
    usual: float
    n: int
    example = {"what": "answers"}


class MarksUnlikeOthers(Reason):
    template = "marks {own:.2f} on average in {n:,} {what}, where others mark {usual:.2f}" + AS_FAR
    what: str
    own: float
    usual: float
    n: int
    example = {"what": "documents"}


class FlaggedAnnotators(Message):
    template = "of {annotators:annotator} {some}."
    annotators: Count
    flagged: int
    unsettled: bool

    @property
    def some(self) -> str:
        if self.flagged:
            return f"{self.flagged:,} {'stands' if self.flagged == 1 else 'stand'} out"
        return "none is flagged yet" if self.unsettled else "none stands out"


class SpellingFirst(Message):
    template = (
        "No annotator is flagged before the spelling of the classes is settled: give {param[normalize=True]}, or "
        "{param[map=<OLD=NEW>]}, and run this again."
    )


class TooFewLabels(Message):
    template = "{n} of {annotators:annotator} {n:has|have} too few labels on items that others labelled too."
    n: Count
    annotators: Count


# compare: which method predicts hidden labels best --------------------------------------------------------------------


class OnlyMethod(Message):
    template = "{method} was the only method; there is nothing to compare it with."
    method: str


class TooFewHidden(Message):
    template = (
        "Too little to compare methods: only {hidden:annotation} could be hidden and predicted; {needed} are needed."
    )
    hidden: Count
    needed: int


class BestMethod(Message):
    """The method that predicts hidden annotations best, by the difference of another one to it."""

    best: str
    other: str
    behind: float
    low: float
    high: float
    unit: str
    tied: bool  # the difference may be chance
    simple = property(lambda self: "majority vote" if self.other == "majority-vote" else self.other)
    capital = property(lambda self: self.simple[0].upper() + self.simple[1:])
    perhaps = property(lambda self: ", which chance may explain" * self.tied)


class BaselineAhead(BestMethod):
    template = (
        "{best} predicts hidden annotations best of the methods that can be fitted; {other}, which is only a baseline, "
        "is {behind:.3g} {unit} ahead ({low:.3g} to {high:.3g}){perhaps}."
    )


class SimpleSuffices(BestMethod):
    template = "{capital} is as good here: {best} predicts hidden annotations best, {how}."

    @property
    def how(self) -> str:
        negligible = f"by {self.behind:.4f} {self.unit}, which is next to nothing"
        return "but not by more than chance would" if self.tied else negligible


class BestIsAhead(BestMethod):
    template = (
        "{best} predicts hidden annotations best{ties}; {simple}{role} is {behind:.3f} {unit} behind ({low:.3f} to "
        "{high:.3f}){perhaps}."
    )
    ties_with: tuple[str, ...]
    baseline: bool

    @property
    def ties(self) -> str:
        return f", and cannot be told apart from {join_words(self.ties_with)}" if self.ties_with else ""

    role = property(lambda self: ", a baseline," * self.baseline)


class BestOfThese(Message):
    template = "{best} predicts hidden annotations best{ties}."
    best: str
    ties_with: tuple[str, ...]

    @property
    def ties(self) -> str:
        return f", and cannot be told apart from {join_words(self.ties_with)}" if self.ties_with else ""


class OnlyBaselines(Message):
    template = (
        "{name} predicts hidden annotations best, but it is a baseline as all others are; compare it with a method."
    )
    best: str
    name = property(lambda self: self.best[0].upper() + self.best[1:])


class SimpleIsBest(Message):
    template = "{name} predicts hidden annotations best: nothing more elaborate is needed here."
    method: str

    @property
    def name(self) -> str:
        return "Majority vote" if self.method == "majority-vote" else self.method[0].upper() + self.method[1:]


class DefaultIsBehind(Message):
    template = "{method}, which all commands use, is {by} {unit} behind{caveat}."
    method: str
    behind: float
    unit: str
    probabilities: bool
    by = property(lambda self: f"{self.behind:.3f}" if self.behind >= 0.0005 else "less than 0.001")
    caveat = property(lambda self: "; who predicts labels best is not always most often right" * self.probabilities)


class ComparedOnPart(Message):
    template = "Compared on {items:item}, drawn at random, with all their labels."
    items: Count


class CostlyMethodsSkipped(Message):
    template = "{tried:method} were tried; `dissensus evaluate --methods all` also tries {names}, which take longer."
    tried: Count
    methods: tuple[str, ...]
    names = property(lambda self: join_words(self.methods))


class MethodSkipped(Message):
    template = "{method} is left out: {reason}"
    method: str
    reason: str


class ComparisonExplained(Message):
    template = (
        "{quantity} {hidden:hidden annotation} ({splits:split}, {share} each); closer to 0 is better. ±: 95 %, over "
        "items, of each method alone. ≈: not to be told apart from the best, once it is counted how many methods are "
        "tried. It judges how well labels are predicted, not how often the truth is found.{ties}"
    )
    quantity: str
    hidden: Count
    splits: Count
    share: Share
    accuracy: bool
    example = {"quantity": "Mean log probability of"}

    @property
    def ties(self) -> str:
        return " Accuracy counts t tied classes as 1/t each; `aggregate` draws one of them." * self.accuracy


# explain: why labels of an item disagree ------------------------------------------------------------------------------


class ItemsExplained(Message):
    template = "{items:item}."
    items: Count


class FewLabelsPerItem(Message):
    template = (
        "A kind is found by comparing several labels of an item with what its annotators say elsewhere. `dissensus "
        "recommend FILE --budget N` says whether more labels would change an item."
    )


class GroupsDiffer(Message):
    template = "Groups by {column} {differ} (p = {p_value:.2g}){unknown}."
    column: str
    items: Count
    significant: bool
    p_value: float

    @property
    def differ(self) -> str:
        where = f" on {self.items:item}" if self.items else ""
        return f"differ{where}" if self.significant else "show no difference beyond chance"

    @property
    def unknown(self) -> str:
        unknown = self.significant and not self.items
        return "; which items they differ on cannot be told from so few labels" * unknown


# redundancy: how many labels are enough -------------------------------------------------------------------------------


class NothingCanChange(Message):
    template = "There is only one class; no label can change anything."


class NoSecondAnnotator(Message):
    template = (
        "No item has labels by two annotators, so nothing says how far they agree or what more labels would change. "
        "Have some items labelled by a second annotator{advice}."
    )
    budget: int | None  # None: there is no label to ask for

    @property
    def advice(self) -> str:
        return "" if self.budget is None else f": `dissensus recommend --budget {self.budget}` says which"


class StabilityOfFewerLabels(Message):
    template = "With {most} per item {adverb} {share} of {which} get the class that {every}."
    labels: Count
    share: Share
    stable: bool
    items: Count | None  # items with more labels; None: all items
    equal_labels: int | None  # labels of every item, if all have the same number
    most = property(lambda self: f"{'' if self.equal_labels else 'at most '}{self.labels:label}")
    adverb = property(lambda self: "already" if self.stable else "only")

    @property
    def which(self) -> str:
        return "the items" if self.items is None else f"the {self.items:item} with {self.labels + 1} labels or more"

    every = property(lambda self: f"all {self.equal_labels} give" if self.equal_labels else "all their labels give")


class EffectOfNextLabel(Message):
    template = (
        "By the model's own reckoning one more label each, by the same people, would change the class of {flips} of "
        "the items and put {gain} more of them right{tested}."
    )
    flips: Share
    gain: Share
    expected: Share | None  # flips expected and observed when one label was taken away and given back
    observed: Share | None

    @property
    def tested(self) -> str:
        if self.expected is None:
            return ""
        took = "when one label was taken away from each and given back, it expected"
        return f"; {took} {self.expected} to change, and {self.observed} did"


class LessStableThanExpected(Message):
    template = "So labels here are less stable than the forecast says: expect more of them to change."


class AccuracyAgainstBelief(Message):
    template = "Of the items with a known label {value} are right{interval}, where the model believes {expected}."
    value: Share
    low: Share | None
    high: Share | None
    expected: Share
    interval = property(lambda self: "" if self.low is None else f" ({self.low} to {self.high})")


class MeasuredOnPart(Message):
    template = "What was measured was measured on {items:,} items, drawn at random."
    items: int


# recommend: whom to ask about what ------------------------------------------------------------------------------------


class LabelsToAsk(Message):
    template = "Ask for {labels:label} about {items:item}{most}, at a cost of {cost:g}."
    labels: Count
    items: Count
    per_item: int  # most labels on one item
    cost: float
    most = property(lambda self: f", up to {self.per_item} for one item" if self.per_item > 1 else "")


class ExpectedChanges(Message):
    template = "About {n} items are expected to change their label{each}."
    changes: float
    cost: float
    n = property(lambda self: f"{self.changes:,.0f}" if self.changes >= 10 else f"{self.changes:.1f}")

    @property
    def each(self) -> str:
        if self.changes < 0.1:
            return ""
        return f", at a cost of {self.cost / self.changes:.3g} for each that does"


class NoExpectedChange(Message):
    template = "No item is expected to change its label."


class ChangesUnknown(Message):
    template = "No item has labels by two annotators, so nothing says how many labels will change."


class MoreLabelsNeeded(Message):
    template = "{items:item} may change by more labels than these."
    items: Count


class AskedUnchecked(Message):
    template = (
        "{items} of these items {items:is|are} asked about only because at most one annotator has labelled "
        "{items:it|them} so far."
    )
    items: Count


class NothingLeft(Message):
    """Why no label, or no further label, is asked for."""

    left: float | None  # of the budget; None: no label is asked for

    @property
    def start(self) -> str:
        return "Nothing is left to buy here" if self.left is None else f"{self.left:g} of the budget is left"

    then = property(lambda self: "" if self.left is None else "then ")
    no_label = property(lambda self: "no label" if self.left is None else "no other label")


class EverythingLabelled(NothingLeft):
    template = "{start}: {then}every annotator has labelled every item; only a new annotator could add information."


class BudgetTooSmall(NothingLeft):
    template = "{start}: the budget does not pay for a label."


class NoUsefulLabel(NothingLeft):
    template = "{start}: {no_label} that may be asked for is expected to change the label of an item."


class LimitsReached(NothingLeft):
    template = "{start}: within the limits there is nothing more to ask for."


class ItemsSettled(NothingLeft):
    template = "{start}: {settled:item} of {items:,} {settled:is|are} settled{rule}{full}."
    settled: Count
    items: int
    confidence: Share | None
    annotators: int
    full_items: int

    @property
    def rule(self) -> str:
        if self.confidence is None:
            return ""
        return f" (at least {self.confidence:0} sure, by {self.annotators} annotators or more)"

    @property
    def full(self) -> str:
        return f", and {self.full_items:,} have as many labels as an item may have" if self.full_items else ""


class NextStep(Message):
    template = "Next: {advice}"
    budget: int | None  # of the labels that are asked for; None: none are
    verdict: str
    example = {"budget": 100, "verdict": "Ask for 100 labels."}

    @property
    def advice(self) -> str:
        verdict = self.verdict[0].lower() + self.verdict[1:]
        if self.budget is None:
            return verdict
        command = f"dissensus recommend --budget {self.budget}"
        return f"with a budget of {self.budget}, {verdict} `{command}` says which."


class CapacityLimit(Message):
    template = "No annotator gets more than twice its share of the labels so far, or 5 ({param[capacity]})."


class LabelsPerItemLimit(Message):
    template = "Items that {labels:,} annotators have labelled get no more labels ({param[per_item]})."
    labels: int


class SettledLimit(Message):
    template = (
        "{settled:,} of {items:,} items are settled, at least {percent:g} % sure, and left alone ({param[settled]})."
    )
    settled: int
    items: int
    percent: float


class NothingToAskNext(Message):
    template = "Nothing is left to ask here: one more answer about any of {candidates:,} {what} adds no information."
    candidates: int
    what: str
    example = {"what": "items"}


class ComparisonsToAsk(Message):
    template = "Ask for {n:,} more comparisons, of {pairs:,} of {candidates:,} pairs of things."
    n: int
    pairs: int
    candidates: int


class AnswersToAsk(Message):
    template = (
        "Ask once more about {n:,} of {candidates:,} {what}, by any annotator: they hold {share:0} of the {gain} to be "
        "had."
    )
    n: int
    candidates: int
    what: str
    share: Share
    gain: str
    example = {"what": "items", "gain": "information"}


# item_status: what to do about an item --------------------------------------------------------------------------------


class AnswerDecided(Message):
    template = "decided: its answer was given"


class NoLabel(Message):
    template = "no label"


class OneLabel(Message):
    template = "only 1 label"


class OneReader(Message):
    template = "only 1 reader"


class OnlyLabelDoubted(Message):
    template = "the only label, {name}, is doubted"
    label: Any
    name = property(lambda self: quote_name(self.label))


class LabelsByOneAnnotator(Message):
    template = "{labels} labels, all by one annotator"
    labels: int


class ItemVotes(Message):
    """How the labels of an item agree; a settled item is so by the weights of its annotators."""

    labels: int
    settled: bool
    weighed = property(lambda self: ", weighed by who gave them" * self.settled)


class LabelsDiffer(ItemVotes):
    template = "{labels} labels differ{weighed}"


class LessAgreementThanUsual(Message):
    template = "{agree} of {labels} labels agree where {expected} usually would"
    agree: int
    labels: int
    expected: int


class LabelsTied(ItemVotes):
    template = "{answers} are tied, {agree} labels each{weighed}"
    classes: tuple[Any, ...]
    agree: int

    @property
    def answers(self) -> str:
        several = f"{len(self.classes)} answers"
        return join_words([quote_name(name) for name in self.classes]) if len(self.classes) <= 3 else several


class MajorityOverruled(ItemVotes):
    template = "{most} labels ({agree} of {labels}) say {name}{weighed}"
    label: Any
    agree: int
    most = property(lambda self: "most" if 2 * self.agree > self.labels else "more")
    name = property(lambda self: quote_name(self.label))


class AllLabelsAgree(Message):
    template = "{which} labels agree{doubt}"
    labels: int
    below: float | None  # confidence that is asked for and not reached
    which = property(lambda self: "both" if self.labels == 2 else f"all {self.labels}")
    doubt = property(lambda self: "" if self.below is None else f", yet below {100 * self.below:g} % sure")


class SomeLabelsAgree(Message):
    template = "{agree} of {labels} labels agree"
    agree: int
    labels: int


class ValueBetween(Message):
    template = "between {low:.4g} and {high:.4g} (95 %)"
    low: float
    high: float


class FewLabelsNear(Message):
    template = "{near} of {labels} labels lie close to the value where {expected} usually would"
    near: int
    labels: int
    expected: int


class SpansRight(Message):
    template = "exactly these spans are right with {percent:.0f} %"
    percent: float


class StatusCounts(Message):
    template = (
        "{settled} {settled:item is|items are} settled ({least:g} % {confident}, by {annotators} annotators or more), "
        "{look} {look:needs|need} a look, {split} {split:is|are} truly split."
    )
    settled: Count
    look: Count
    split: Count
    least: float
    reliability: bool
    annotators: int
    confident = property(lambda self: "reliable" if self.reliability else "sure")


# panel, calibrate -----------------------------------------------------------------------------------------------------


class PanelWorth(Message):
    template = "{judges} judges are worth {effective:.1f} independent ones ({low:.1f} to {high:.1f}){basis}"
    judges: int
    effective: float
    low: float
    high: float
    correlation: float | None  # of errors by gold; None without gold

    @property
    def basis(self) -> str:
        if self.correlation is None:  # the panel's own posterior holds an assumption about just this
            return ", if they err alike as panels and crowds with gold do; their votes alone do not show it."
        return f": by gold, their errors correlate by {self.correlation:.2f} on average."


class GoldNotRandom(Message):
    """Judges label gold items differently from the rest, by more than a random draw would explain."""

    template = (
        "{difference} than others (p = {p_value:.1g}), as if gold was not drawn at random; then no interval here "
        "holds: draw it at random, or give the probability with which each item was drawn."
    )
    feature: str  # score, agreement or label
    label: Any
    more: bool
    p_value: float
    example = {"feature": "agreement"}

    @property
    def difference(self) -> str:
        if self.feature == "score":
            return f"judges score gold items {'higher' if self.more else 'lower'}"
        if self.feature == "agreement":
            return f"judges agree {'more' if self.more else 'less'} on gold items"
        return f"judges call gold items {quote_name(self.label)} {'more' if self.more else 'less'} often"


class OtherScale(Message):
    template = (
        "human scores go from {low:g} to {high:g}, those of the judges {judges_low:g} to {judges_high:g}: corrected "
        "means are on the human scale."
    )
    low: float
    high: float
    judges_low: float
    judges_high: float


class FewGoldLabels(Message):
    template = "few gold labels of {classes}: intervals of classes with fewer than {least} are rough."
    labels: dict[str, int]
    least: int

    @property
    def classes(self) -> str:
        some = [f"{quote_name(name)} {n}" for name, n in self.labels.items()]
        return f"{', '.join(some[:3])} and {len(some) - 3:,} more" if len(some) > 3 else ", ".join(some)


class TooFewForSystem(Message):
    template = "{system}: {known} of {items:,} items have gold; {least} are the least."
    system: str
    known: int
    items: int
    least: int


class WidthOutOfReach(Message):
    template = "No number of gold labels makes an interval {width:g} wide with these items; add items."
    width: float


class WidthReached(Message):
    template = "The gold labels are enough for intervals {width:g} wide."
    width: float


class MoreGoldNeeded(Message):
    template = (
        "Intervals {width:g} wide take {more:,} more gold labels, {needed:,} in all; have these labelled, they are "
        "drawn at random."
    )
    width: float
    more: int
    needed: int


class GoldOfTable(Message):
    template = "{known:,} of {items:,} items have human labels."
    known: int
    items: int


class RatesExplained(Message):
    template = "{rogan_gladen}Saved: human labels that the judges stand for."
    with_rogan_gladen: bool

    @property
    def rogan_gladen(self) -> str:
        return "R–G: by sensitivity and specificity (Rogan–Gladen). " * self.with_rogan_gladen


class SystemsExplained(Message):
    template = "Two systems differ where the corrected interval leaves out 0."


class ItemAccuracy(Message):
    template = (
        "Items: {share} of the gold items get the right label from fits that have not seen them; log loss "
        "{log_loss:.3f}."
    )
    share: Share
    log_loss: float


class JudgesKept(Message):
    template = "95 % of the panel's answer is kept by {n} of {judges} judges{price}: {names}."
    kept: tuple[str, ...]
    judges: int
    cost: float | None
    all_cost: float | None
    n = property(lambda self: len(self.kept))
    names = property(lambda self: list_first_names(self.kept, self.n))

    @property
    def price(self) -> str:
        return "" if self.cost is None else f", for {self.cost:g} an item instead of {self.all_cost:g}"


class ErrorsAlike(Message):
    template = "Errors alike beyond chance (correlation): {names}."
    pairs: tuple[tuple[str, str, float], ...]
    example = {"pairs": (("gpt-4o", "gpt-4o-mini", 0.41),)}
    names = property(
        lambda self: "; ".join(f"{shorten_name(one)} and {shorten_name(other)} {r:.2f}" for one, other, r in self.pairs)
    )


class JudgeEffect(Message):
    template = "Beyond the truth, {name} ({what}) changes the verdict by {excess:+.3f} ({low:z.3f} to {high:z.3f})."
    column: str
    value: str
    judge: str
    excess: float
    low: float
    high: float
    name = property(lambda self: shorten_name(self.column))

    @property
    def what(self) -> str:
        return (
            f"{shorten_name(self.judge)}, its own family" if self.judge else shorten_name(self.value) or "one SD more"
        )


class ItemsToLabel(Message):
    template = "They are {names}; {param[next=<FILE>]} keeps them."
    items: tuple[Any, ...]
    names = property(lambda self: list_first_names(self.items, 5))


class HumanLabelsHelp(Message):
    template = "Human labels of 50 items, drawn at random, correct what the panel says: {param[gold=<FILE>]}."


# diff: what changed ---------------------------------------------------------------------------------------------------


class NoLabelChanged(Message):
    template = "No label changed."


class LabelsChanged(Message):
    template = (
        "{added:label} {added:was|were} added, {changed:,} changed and {removed:,} removed; {flipped:item} "
        "{flipped:has|have} another answer."
    )
    added: Count
    changed: int
    removed: int
    flipped: Count


class DriftUntested(Message):
    template = "No annotator can be compared with the others both before and since."


class DriftingAnnotators(Message):
    template = (
        "{some} of {tested:annotator} with enough labels {agree} with the others clearly more or less often than "
        "before."
    )
    drifting: int
    tested: Count
    some = property(lambda self: f"{self.drifting or 'None'}")
    agree = property(lambda self: "agrees" if self.drifting <= 1 else "agree")


class AnnotatorDrifts(Message):
    template = (
        "{annotator} agrees with the others on {agreement_since:0} of {labels_since:,} labels now, "
        "{agreement_before:0} of {labels_before:,} before; everyone else: {others_before:0} before, {others_since:0} "
        "now. Ask what changed for them: the guideline, the kind of item, or the tool."
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
    template = "{changes}"
    decisive: bool
    labels: tuple[LabelChange, ...]
    n_changes: int

    @property
    def changes(self) -> str:
        some = "; ".join(map(str, self.labels))
        if self.decisive:
            return some if len(self.labels) == 1 else f"any one of: {some}"
        return f"together: {some}{'; …' * (self.n_changes > len(self.labels))}"


class FlippedByOthers(Message):
    template = "what was learnt about its annotators from other items{own}"
    own_changes: int

    @property
    def own(self) -> str:
        return f", and its {self.own_changes} own changes do not explain it" if self.own_changes else ""


class ItemsAndAnnotatorsChanged(Message):
    template = "Besides: {changes}."
    new_items: int
    lost_items: int
    new_annotators: int
    lost_annotators: int

    @property
    def changes(self) -> str:
        some = (
            (self.new_items, "new item", ""), (self.lost_items, "item", " without labels now"),
            (self.new_annotators, "new annotator", ""), (self.lost_annotators, "annotator", " without labels now"),
        )  # fmt: skip
        return ", ".join(f"{format_count(n, noun)}{rest}" for n, noun, rest in some if n)


class TooFewForDrift(Message):
    template = (
        "{n} of {annotators:,} annotators {n:has|have} fewer than {least} labels, before or since, on items that "
        "others labelled too; they are not tested."
    )
    n: Count
    annotators: int
    least: int


class SnapshotsInWrongOrder(Message):
    template = "{new} ends on {new_end}, before {old} does ({old_end}); are the two in the right order?"
    new: str
    new_end: str
    old: str
    old_end: str


# evaluate -------------------------------------------------------------------------------------------------------------


class NotPredicted(Message):
    template = (
        "{predictions} does not predict {missing:,} of {n:,} {what}, such as of item {name}; they are left out for all."
    )
    predictions: str
    missing: int
    n: int
    what: str
    item: Any
    example = {"what": "items"}
    name = property(lambda self: quote_name(self.item))


class TiedLabels(Message):
    template = "{items:item} {items:has|have} several most frequent labels; hard scores leave such items out."
    items: Count


# check: whether a table meets thresholds ------------------------------------------------------------------------------

NAMES_SHOWN = 3


class FewestAnnotators(Message):
    template = "the item with the fewest annotators has {least:,}"
    least: int


class SomeItems(Message):
    """Something about items, or annotators or classes, of which the first are named."""

    items: tuple[Any, ...]
    names = property(lambda self: list_first_names(self.items, NAMES_SHOWN, quote_name))


class LabelAgain(SomeItems):
    template = "Send out again the {n:item} with fewer than {enough:,}, such as {names}; {annotators_left}."
    n: Count
    enough: int
    annotators: Count

    @property
    def annotators_left(self) -> str:
        if self.annotators < self.enough:
            return f"it takes new annotators, as the table has {self.annotators:annotator}"
        return "`dissensus recommend` says to whom"


class SettledShare(Message):
    template = "{share} of the items are settled"
    share: Share


class SettleItems(Message):
    template = "Decide the others (`dissensus adjudicate`), or buy labels for them (`dissensus recommend`)."


class NoAgreement(Message):
    template = "{reason}"
    weighted: bool

    @property
    def reason(self) -> str:
        return "labels have weights or probabilities" if self.weighted else "no item has labels by two annotators"


class AgreementNow(Message):
    template = "two annotators of one item agree {share} of the time"
    share: Share


class LookAtDisagreement(Message):
    template = "Look at what people disagree about (`dissensus explain`), then at the guideline."


class SpellingUnsettled(Message):
    template = "classes differ by capitals or spaces only, so no annotator can be tested"


class NoneWithEnoughLabels(Message):
    template = "no annotator has enough labels on items that others labelled too"


class AnnotatorsFlagged(Message):
    template = "{n:annotator} to look at"
    n: Count


class LookAtLabelsOf(Message):
    template = "Look at the labels of {names}; `dissensus diagnose` says why."
    annotators: tuple[Any, ...]
    names = property(lambda self: list_first_names(self.annotators, NAMES_SHOWN, quote_name))


class AgreementUnknown(Message):
    template = "the agreement is not known of both snapshots"


class AgreementFell(Message):
    template = "two annotators of one item agree {now} of the time, {before} before: a fall of {fall}"
    now: Share
    before: Share
    fall: Share


class CompareBoth(Message):
    template = "`dissensus check NEW --against OLD` names who and what changed."


class NoItemInBoth(Message):
    template = "no item has labels now and had some before"


class AnswersFlipped(Message):
    template = "the answer of {share} of {items:item} changed"
    share: Share
    items: Count


class ExplainFlips(SomeItems):
    template = "`dissensus check NEW --against OLD` gives the reasons for {names} and the others."


class LabelsLost(Message):
    template = "{n:,} of {items:item} that had labels lost them"
    n: int
    items: Count


class ExportAll(SomeItems):
    template = "Was all of it exported? {names} should be there."


class NoUnchangedItem(Message):
    template = "no item has the labels that it had before"


class NoDriftTested(Message):
    template = "no annotator has enough labels before and now"


class NewClasses(Message):
    template = "{n} {n:class|classes} that {unknown}"
    n: Count
    allowed: int | None  # None: compared with an earlier snapshot

    @property
    def unknown(self) -> str:
        if self.allowed is None:
            return f"{self.n:was|were} not there before"
        return f"{self.n:is|are} not among the {self.allowed:,} that are allowed"


class RenameClasses(Message):
    template = "Rename {names} ({param[map=<OLD=NEW>]}), or add to the classes ({param[classes]})."
    classes: tuple[Any, ...]
    names = property(lambda self: list_first_names(self.classes, NAMES_SHOWN, quote_name))
