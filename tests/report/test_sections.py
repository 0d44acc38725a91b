"""The numbers of the report are the library's, and every section has something to say of every table."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks.clustering.drawn import draw
from dissensus import Annotations, Report, compare, diagnose, evaluation, explain, methods, recommend, redundancy
from dissensus.clustering import clusterings, select_clusters
from dissensus.common.formatting import Count, Share
from dissensus.exceptions import UnknownName
from dissensus.models.base import methods_for
from dissensus.models.confidence import advise_gold_labels
from dissensus.questions.base import questions
from dissensus.questions.compare import MIN_HELD_OUT_LABELS
from dissensus.questions.exceptions import NoGoldToScore
from dissensus.report import Section, collect_sections
from dissensus.report.blocks import ChartBlock, TableBlock, TextBlock
from dissensus.report.face import (
    REPORT_FACE,
    MethodUsed,
    NoSettledItemsSummary,
    SettledItemsByGoldSummary,
    SettledItemsSummary,
    TableSizeSummary,
    describe_next_step,
    summarize_settled_items,
)
from dissensus.report.pseudonyms import make_pseudonyms
from dissensus.report.section import sections
from dissensus.report.sections.annotators import BelowAverageCard, FlaggedAnnotatorsCard, TooFewLabelsCard
from dissensus.report.sections.items import (
    GroupsDifferCard,
    GroupsDifferInReliabilityCard,
    MinorityTrusted,
    ReasonsOfDisagreement,
    VotesDoubted,
    _explain_review,
    _make_group_card,
    compute_review_priority,
)  # fmt: skip
from dissensus.report.sections.overview import AgreementAtChanceCard, OneClassCard, OneSharedClass
from dissensus.table.datasets import load_dataset
from dissensus.table.io.jsonl import dumps
from dissensus.testing.sections import check_facts, check_section
from refused import refused
from report.reports import FEW_METHODS, Page, blocks, crowd, findings, found, people, report, things
from tables import KINDS, random_table

SMALL = {
    "one item": Annotations.from_arrays(["i"], ["a"], ["yes"]),
    "one class": Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], ["yes"] * 4),
    "one annotator": Annotations.from_arrays([0, 1, 2], [0, 0, 0], [0, 1, 0]),
    "one label each": Annotations.from_arrays(range(9), [0, 1, 2] * 3, [0, 1, 0] * 3),
    "one label each, twice": Annotations.from_arrays([*range(9)] * 2, [0, 1, 2] * 6, [0, 1, 0] * 6),
    "one label that counts": Annotations.from_arrays([0, 0, 1, 1], [0, 1] * 2, [0, 1, 1, 1], weight=[1.0, 0.0] * 2),
    "all agree": Annotations.from_arrays([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 1, 1]),
    "nobody agrees": Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]),
    "unlabelled": Annotations.from_arrays([0, 0, 1], [0, 1, 0], [0, 1, 0], items=range(5), annotators=range(4)),
    "many classes": Annotations.from_arrays(
        np.repeat(np.arange(30), 3), np.tile(np.arange(3), 30), np.arange(90) % 40, [f"class {k}" for k in range(40)]
    ),
    "anonymous": Annotations.from_counts(["a", "a", "b"], ["x", "y", "x"], [3, 1, 2]),
} | {kind: random_table(5, **extra) for kind, extra in KINDS.items()}  # fmt: skip


@pytest.mark.parametrize("name", list(sections))
def test_every_section_keeps_the_contract(name):
    if name == "model":
        pytest.importorskip("torch", reason="needs the `learning` extra")
    check_section(name)


@pytest.mark.parametrize("table", SMALL.values(), ids=SMALL)
def test_no_section_is_empty_or_broken(table):
    made = report(table, gold=np.zeros(table.n_items, np.int32))
    facts = made.facts
    assert json.loads(dumps(facts)) == facts  # plain values, and no NaN
    expected = {"overview", "labels", "annotators", "items", "redundancy"}
    expected |= {name for name, entry in questions.entries() if "title" in entry.facts}
    assert set(facts["sections"]) == expected | ({"methods"} if np.diff(table.item_ptr).max() > 1 else set())
    for name, about in facts["sections"].items():
        check_facts(sections[name](), about)
    page = Page(made.html())
    assert len(page.ids()) == len(set(page.ids()))


@pytest.mark.parametrize("method", methods_for("classes"))
def test_every_method_can_be_reported_on(method):
    table = crowd().annotations
    if methods.entry(method).facts.get("binary"):
        table = random_table(3, n_classes=2)
    facts = report(table, method).facts
    assert facts["method"] == method
    assert {one["method"] for one in facts["sections"]["methods"]["methods"]} == {*FEW_METHODS, method}


def test_items_that_a_method_was_told_are_not_scored():
    table, truth = crowd().annotations, crowd().truth
    known = np.where(np.arange(table.n_items) < 9, truth, -1)
    fitted = methods["dawid-skene"]().fit(table, gold=known)
    about = collect_sections(Report(table, fitted, gold=truth, training_gold=known, methods=FEW_METHODS))["sections"][
        "labels"
    ]["gold"]
    right = fitted.posterior_.argmax(axis=1) == truth
    assert (about["items"], about["accuracy"]["value"]) == (truth.size - 9, pytest.approx(right[9:].mean(), abs=1e-5))


def test_where_a_method_was_told_all_that_gold_has_accuracy_is_left_out():
    table, truth = crowd().annotations, crowd().truth
    fitted = methods["dawid-skene"]().fit(table, gold=truth)
    with pytest.warns(NoGoldToScore):
        made = Report(table, fitted, gold=truth, training_gold=truth, methods=FEW_METHODS)
    assert collect_sections(made)["sections"]["labels"]["gold"] is None


def test_overview_has_the_counts_and_the_agreement():
    made = report()
    facts, table = made.facts["sections"]["overview"], crowd().annotations
    assert (facts["items"], facts["annotators"], facts["annotations"]) == (100, 14, 700)
    alpha = evaluation.agreement(table)["krippendorff_alpha"]
    found = facts["agreement"]["krippendorff_alpha"]
    assert [found[k] for k in ("value", "low", "high")] == pytest.approx([alpha.value, alpha.low, alpha.high], rel=1e-4)
    votes = np.bincount(table.label, minlength=3) / 700
    assert [one["votes"] for one in facts["classes"]] == pytest.approx(votes.tolist(), rel=1e-4)
    assert facts["labels_per_item"]["max"] == 7


def overview(table):
    return report(table, only=["overview"]).facts["sections"]["overview"]


@pytest.mark.parametrize(("n_items", "told"), [(29, False), (30, True)])
def test_agreement_is_held_against_chance_only_where_enough_items_have_two_annotators(n_items, told):
    table = Annotations.from_arrays(
        np.repeat(np.arange(n_items), 2), [0, 1] * n_items, np.resize([0, 1, 1, 0], 2 * n_items)
    )
    told_of = [one for one in findings("overview", overview(table)) if isinstance(one, AgreementAtChanceCard)]
    assert [one.alpha < 0 for one in told_of] == ([True] if told else [])
    spelt = report(dataclasses.replace(table, classes=np.array(["yes", "Yes"], object)), only=["overview"])
    assert spelt.facts["findings"] == []  # the spelling is to be settled first


@pytest.mark.parametrize(("second", "kind"), [("a", OneClassCard), ("b", OneSharedClass)])
def test_one_class_is_said_to_be_the_only_one_where_it_is(second, kind):
    table = Annotations.from_arrays([1, 1, 2], ["x", "y", "x"], ["a", "a", second])
    assert type(findings("overview", overview(table))[0]) is kind


def test_labels_count_what_is_settled_and_what_is_right():
    gold = crowd().truth
    made = report(gold=gold)
    facts, fitted = made.facts["sections"]["labels"], made.fitted
    sure = fitted.posterior_.max(axis=1)
    assert facts["settled"] == (sure >= 0.9).sum()
    assert facts["unsure"] == (sure < 0.7).sum()
    assert facts["settled"] + facts["likely"] + facts["unsure"] == 100
    assert sum(facts["histogram"]["counts"]) == 100
    assert facts["gold"]["accuracy"]["value"] == pytest.approx(
        evaluation.accuracy(gold, fitted.posterior_.argmax(axis=1))
    )
    assert facts["gold"]["calibration_error"] == pytest.approx(
        evaluation.expected_calibration_error(gold, fitted.posterior_, bins=10), rel=1e-4
    )
    assert sum(one["items"] for one in facts["gold"]["bins"]) == 100
    assert all(one["low"] <= one["accuracy"] <= one["high"] for one in facts["gold"]["bins"])


def test_what_one_person_repeats_is_not_settled():
    item = np.repeat(np.arange(20), 6)
    table = Annotations.from_arrays(item, np.where(item < 5, 0, np.arange(120) % 6), item % 2)
    fitted = methods["dawid-skene"](dependence=None).fit(table)
    assert (fitted.posterior_.max(axis=1) > 0.9).all()
    assert collect_sections(Report(table, fitted, methods=FEW_METHODS))["sections"]["labels"]["settled"] == 15


def test_where_most_labels_are_unsure_known_classes_are_asked_for_before_more_labels():
    section, facts = sections["labels"](), report(gold=crowd().truth).facts["sections"]["labels"]
    against = next(iter(section.findings(facts | {"gold": facts["gold"] | {"expected": 0.5}})))
    assert not against.is_calibrated
    assert against.advice
    honest = {"expected": facts["gold"]["accuracy"]["value"]}
    for items, tone in ((100, "good"), (29, "note")):
        told = next(iter(section.findings(facts | {"gold": facts["gold"] | honest | {"items": items}})))
        assert (told.tone, told.is_calibrated, told.items, told.advice) == (tone, True, items, "")
    asked = advise_gold_labels(report().fitted).render(REPORT_FACE)
    assert asked in report().facts["headline"]
    known = crowd().truth
    learnt = Report(
        crowd().annotations, methods["dawid-skene"]().fit(crowd().annotations, gold=known), training_gold=known
    )
    assert learnt.is_settled.all()
    assert asked not in learnt.facts["headline"]


def test_methods_are_ranked_as_compare_ranks_them():
    table = crowd().annotations
    made = report(methods=None, only=["methods"])
    facts, found = made.facts["sections"]["methods"], compare(table)
    assert [one["method"] for one in facts["methods"]] == [one.method for one in found]
    assert [one["behind"]["value"] for one in facts["methods"]] == pytest.approx(
        [one.behind.value for one in found], rel=1e-4
    )
    assert facts["verdict"] == found.verdict()
    assert findings("methods", facts)[0].best == found.best
    labels = np.stack([methods[one.method]().fit(table).predict() for one in found])
    assert facts["contested"] == (labels != labels[0]).any(axis=0).sum()
    assert len(facts["contested_items"]) == facts["contested"]


def test_a_large_table_is_compared_on_a_part_of_it(monkeypatch):
    monkeypatch.setattr(compare, "__kwdefaults__", compare.__kwdefaults__ | {"limit": 350})
    facts = report(gold=crowd().truth, only=["methods"]).facts["sections"]["methods"]
    assert facts["sampled_items"] == facts["items"] == 50


def test_annotators_have_the_model_s_reliability_and_the_diagnosis_flags():
    table = crowd().annotations
    made = report(names=True)
    facts, fitted, found = made.facts["sections"]["annotators"], made.fitted, diagnose(table)
    by_name = {one["annotator"]: one for one in facts["people"]}
    interval = fitted.reliability_interval()
    independent = type(fitted)(**fitted.get_params() | {"dependence": None}).fit(table).posterior_
    for code, name in enumerate(table.annotators.tolist()):
        one = by_name[str(name)]
        assert one["labels"] == fitted.n_annotations_[code]
        assert [one["reliability"], one["low"], one["high"]] == pytest.approx(
            [fitted.reliability_[code], *interval[code]], abs=6e-4
        )
        assert [flag for flag in one["flags"] if flag != "below"] == list(found.flags[code])
        below = interval[code, 1] < fitted.hits_.sum() / fitted.total_.sum()
        assert ("below" in one["flags"]) == (below and not found.flags[code])
        assert np.array(one["confusion"]["shares"]) == pytest.approx(fitted.confusion_[code], abs=0.006)
        items = independent[table.item[table.annotator == code]].sum(axis=0)
        assert one["confusion"]["items"] == pytest.approx(items, abs=0.06)
    assert facts["flags"]["unrelated"] == len(found.annotators_with_flag("unrelated"))


def test_the_matrix_of_agreement_has_the_shares_of_the_pairs():
    table = crowd().annotations
    facts = report(names=True).facts["sections"]["annotators"]["agreement"]
    labels = {
        (str(a), i): l for i, a, l in zip(table.item, table.annotators[table.annotator], table.label, strict=True)
    }
    for a, one in enumerate(facts["annotators"]):
        for b, other in enumerate(facts["annotators"]):
            both = [i for i in range(100) if (one, i) in labels and (other, i) in labels]
            if a == b or len(both) < 5:
                assert facts["share"][a][b] is None
            else:
                same = np.mean([labels[one, i] == labels[other, i] for i in both])
                assert facts["share"][a][b] == pytest.approx(same, rel=0.06)
                assert facts["shared"][a][b] == len(both)


@pytest.fixture(scope="module")
def digits():
    """The facts of a crowd in which some labels are unrelated, contrary or copied, whose names are in the reasons."""
    table = load_dataset("digits-crowd").annotations
    table = dataclasses.replace(table, annotators=np.array([f"person-{a:02d}" for a in range(42)], object))
    return table, report(table).facts


def test_annotators_have_pseudonyms_in_every_sentence_unless_names_are_asked_for(digits):
    table, facts = digits
    text = dumps(facts)
    assert "gives the same answer as" in text
    assert "person-" not in text
    assert all(name in text for name in make_pseudonyms(table.annotators.tolist()))
    assert "person-03" in dumps(report(table.select(items=table.items[:50]), names=True).facts)


def test_one_annotator_is_not_told_to_label_what_others_label():
    facts = report(SMALL["one annotator"], only=["annotators", "redundancy"]).facts["sections"]["annotators"]
    few = found("annotators", facts, TooFewLabelsCard)
    assert (few.too_few, few.active, few.advice) == (1, 1, "")


def test_those_to_look_at_come_first_and_the_summary_names_them(digits):
    table, facts = digits
    diagnosis = diagnose(table)
    bad = {
        name for name, flags in zip(make_pseudonyms(table.annotators.tolist()), diagnosis.flags, strict=True) if flags
    }
    people = facts["sections"]["annotators"]["people"]
    assert {one["annotator"] for one in people[: len(bad)]} == bad
    flagged = [
        one for one in findings("annotators", facts["sections"]["annotators"]) if isinstance(one, FlaggedAnnotatorsCard)
    ]
    assert set().union(*(one.annotators for one in flagged)) == bad
    assert any(one["section"] == "annotators" for one in facts["findings"] if one["tone"] == "bad")
    drawn = blocks("annotators", facts["sections"]["annotators"], TableBlock)[0]
    assert {row[0] for row in drawn.rows[: len(bad)]} == bad
    assert all(one["flags"] in (["below"], []) for one in people[len(bad) :])
    below = facts["sections"]["annotators"] | {"people": [people[0] | {"flags": ["below"]}]}
    assert found("annotators", below, BelowAverageCard).reliability == {
        people[0]["annotator"]: people[0]["reliability"]
    }


def test_items_have_the_explanation_and_who_said_what():
    table = crowd().annotations
    made = report(names=True, items=things(table), annotators=people(table), gold=crowd().truth)
    facts, fitted = made.facts["sections"]["items"], made.fitted
    assert not any(group["significant"] for group in facts["groups"])
    found = explain(table, fitted, annotators=people(table))
    assert facts["kinds"] == dict(found.counts())
    assert len(facts["table"]) == 100
    votes, at = table.votes(), {str(name): i for i, name in enumerate(table.items.tolist())}
    for one in facts["table"]:
        i = at[one["item"]]
        assert one["label"] == str(table.classes[fitted.posterior_[i].argmax()])
        assert one["confidence"] == pytest.approx(fitted.posterior_[i].max(), rel=1e-2)
        assert {k: s for k, s, _ in one["votes"]} == pytest.approx(
            {str(table.classes[k]): votes[i, k] / 7 for k in np.flatnonzero(votes[i])}, rel=1e-2
        )
        rows = slice(table.item_ptr[i], table.item_ptr[i + 1])
        said = [
            [str(table.annotators[a]), str(table.classes[l])]
            for a, l in zip(table.annotator[rows], table.label[rows], strict=True)
        ]
        assert [voice[:2] for voice in one["voices"]] == said
        assert one["gold"] == str(table.classes[crowd().truth[i]])
        assert one["texts"][0].startswith("This is the text")
        assert one["about"] == {"source": ["web", "book"][i % 2]}


def test_items_with_one_label_are_not_told_to_agree():
    item, annotator = [0, 0, 1, 1, *range(2, 10)], [0, 1] * 6
    facts = report(Annotations.from_arrays(item, annotator, [0, 0, 0, 1] + [0, 1] * 4)).facts
    reasons = found("items", facts["sections"]["items"], ReasonsOfDisagreement)
    assert (reasons.agreed, reasons.counts_by_reason) == (0.1, {"cannot tell": 9})


def test_who_is_trusted_has_said_it():
    item = {
        "votes": [["6", 0.6, 3], ["3", 0.2, 1], ["7", 0.2, 1]],
        "labels": 5,
        "confidence": 0.22,
        "kind": "cannot tell",
    }
    about = {"top": "6", "share": Share(0.6), "confidence": Share(0.22)}
    assert _explain_review(item | {"label": "7"}) == MinorityTrusted(**about, label="7").render(REPORT_FACE)
    assert _explain_review(item | {"label": "5"}) == VotesDoubted(**about, label="5").render(REPORT_FACE)


def test_the_first_items_are_those_with_the_most_reason_to_look():
    made = report()
    worth = compute_review_priority(made.explanation)
    order = np.argsort(-worth, kind="stable")
    first = [one["item"] for one in made.facts["sections"]["items"]["first"]]
    assert first == [made.item_names[i] for i in order[:10]]
    wrong = made.label != crowd().truth
    assert wrong[order[:20]].mean() > 2 * wrong.mean()


def test_of_many_items_those_in_need_and_some_others_are_shown(monkeypatch):
    import dissensus.report.sections.items as items

    monkeypatch.setattr(items, "MAX_LISTED_ITEMS", 30)
    monkeypatch.setattr(items, "MAX_RANDOM_ITEMS", 10)
    made = report()
    facts = made.facts["sections"]["items"]
    shown = [one["item"] for one in facts["table"]]
    worth = compute_review_priority(made.explanation)
    order = [made.item_names[i] for i in np.argsort(-worth, kind="stable")]
    assert shown[:20] == order[:20]
    assert len(set(shown)) == 30
    assert facts["others"] == 10
    assert len(blocks("items", facts)[-1].rows) == 30


def test_redundancy_is_the_library_s():
    table, gold = crowd().annotations, crowd().truth
    facts = report(gold=gold).facts["sections"]["redundancy"]
    found = redundancy(table, "dawid-skene", gold=gold)
    assert [level["labels"] for level in facts["levels"]] == [level.labels for level in found]
    assert [level["stability"]["value"] for level in facts["levels"]] == pytest.approx(
        [level.stability.value for level in found], rel=1e-4
    )
    assert facts["verdict"] == found.verdict()
    asked = recommend(methods["dawid-skene"]().fit(table), table, budget=100)
    assert [one["item"] for one in facts["ask"]] == [str(name) for name in asked.items]
    called = dict(zip(table.annotators.tolist(), make_pseudonyms(table.annotators.tolist(), ""), strict=True))
    assert [one["annotator"] for one in facts["ask"]] == [called[name] for name in asked.annotators.tolist()]
    assert facts["advice"] == found.advice.advice() == asked.advice()


def test_clusters_are_those_of_the_clustering():
    drawn = draw(80, 20, 4, item_clusters=3, annotator_clusters=2, redundancy=6, seed=1)
    table = drawn.annotations
    search = select_clusters(table, "pgm-bp", K=(2, 3), L=(2,), criterion="likelihood")
    model = clusterings["pgm-bp"](item_clusters=3, annotator_clusters=2).fit(table)
    made = report(table, clustering=model, search=search, only=["clusters"])
    assert list(made.facts["sections"]) == ["clusters"]
    facts = made.facts["sections"]["clusters"]
    assert [one["items"] for one in facts["item_clusters"]] == np.bincount(model.item_cluster_, minlength=3).tolist()
    assert [one["annotators"] for one in facts["annotator_clusters"]] == np.bincount(
        model.annotator_cluster_, minlength=2
    ).tolist()
    largest = facts["says"][0]
    assert largest["cluster"] == np.bincount(model.annotator_cluster_).argmax()
    order = [int(name) for name in facts["classes"]]
    assert np.array(largest["shares"]) == pytest.approx(
        model.labels_of_clusters_[:, largest["cluster"]][:, order], abs=6e-4
    )
    assert [(p["K"], p["L"]) for p in facts["search"]["points"]] == [(2, 2), (3, 2)]
    for k, one in enumerate(facts["item_clusters"]):
        assert {name: share for name, share, code in one["labels"] if code >= 0} == pytest.approx(
            {str(p): share for p, share in enumerate(model.snap_clusters(np.eye(3))[k])}, abs=0.01
        )
    assert len(blocks("clusters", facts, ChartBlock)) == 5
    assert "clusters" not in report(table).facts["sections"]
    with refused(UnknownName, name="cluster"):
        report(table, only=["cluster"])


def test_the_same_table_in_another_order_of_rows_gives_the_same_report():
    table = crowd().annotations
    order = np.random.default_rng(0).permutation(len(table))
    other = Annotations.from_codes(
        table.item[order], table.annotator[order], table.label[order], table.items, table.annotators, table.classes
    )

    def facts(one):
        result = report(one).facts
        result.pop("made")
        for method in result["sections"]["methods"]["methods"]:
            method.pop("seconds")
        return result

    assert facts(other) == facts(table)


def test_a_new_section_is_one_class_and_one_registration(monkeypatch):
    assert len(sections) > 1  # all are loaded: what is loaded from here on is forgotten again
    monkeypatch.setattr(sections, "_entries", dict(sections._entries))

    @sections.register("colours", title="Colours", summary="Are there any?", place=25)
    class Colours(Section):
        def collect(self, study):
            return {"n": study.table.n_items}

        def draw(self, facts):
            return [TextBlock(f"{facts['n']} colours")]

    made = report()
    assert list(made.facts["sections"])[:4] == ["overview", "labels", "colours", "methods"]
    assert "100 colours" in made.html()
    assert '<a href="#colours">Colours</a>' in made.html()


def test_the_headline_says_what_a_boss_asks():
    table, gold = crowd().annotations, crowd().truth
    size, _, following, worth, _, method = report().facts["headline"]
    about = {"labels": 700, "items": 100, "annotators": 14, "groups": 0}
    facts = {name: Count(n) for name, n in about.items()} | {"kind": "classes"}
    assert size == TableSizeSummary(**facts).render(REPORT_FACE)
    # Seven labels of one item are worth less than two
    assert isinstance(summarize_settled_items(report()), NoSettledItemsSummary)
    assert following == describe_next_step(report().facts["sections"]["redundancy"])
    assert worth == str(report().fitted.mean_effective_labels())
    assert method == MethodUsed(subject="labels", method="dawid-skene").render(REPORT_FACE)
    model = methods["dawid-skene"](dependence=None).fit(table)
    made = Report(table, model, gold=gold, methods=FEW_METHODS)
    sure = made.confidence >= 0.95
    right = (made.label == gold)[sure].mean()
    settled = summarize_settled_items(made)
    assert isinstance(settled, SettledItemsByGoldSummary)
    assert (settled.n_settled, settled.share, settled.n_gold) == (sure.sum(), sure.mean(), sure.sum())
    assert settled.low < settled.right == right < settled.high
    assert settled.render(REPORT_FACE) in made.facts["headline"]
    one = np.flatnonzero(sure & (made.label == gold))[0]
    some = np.where(np.arange(100) == one, gold, -1)
    few = summarize_settled_items(Report(table, model, gold=some, methods=FEW_METHODS))
    assert (few.n_gold, few.right) == (1, 1)
    assert type(summarize_settled_items(Report(table, model, methods=FEW_METHODS))) is SettledItemsSummary
    assert all(sentence.replace(" %", "\u00a0%") in made.html() for sentence in made.facts["headline"])


def test_at_most_five_findings_and_no_tick_without_a_test():
    for table in (crowd().annotations, *SMALL.values()):
        found = report(table).facts["findings"]
        assert len(found) <= 5
        assert {one["section"] for one in found if one["tone"] == "good"} <= {"redundancy"}
        tones = [one["tone"] for one in found]
        assert tones == sorted(tones, key=["bad", "note", "good"].index)


def test_progress_is_told():
    said = []
    report(on_step=said.append).html()
    assert "looking at the annotators" in said
    assert said[-1] == "drawing"
    assert any(text.startswith("comparing methods") for text in said)


def test_collect_makes_the_facts_of_a_study():
    made = report()
    facts = collect_sections(made, "Title")
    assert facts["title"] == "Title"
    assert facts["sections"]["items"] == made.facts["sections"]["items"]
    assert isinstance(made, Report)


def test_a_panel_has_a_section_of_its_own():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 120)
    said = np.where(rng.random((120, 4)) < 0.8, truth[:, None], 1 - truth[:, None])
    said[:, 1] = np.where(rng.random(120) < 0.9, said[:, 0], said[:, 1])  # two who err alike
    item, judge = np.nonzero(np.ones_like(said))
    table = Annotations.from_arrays(item, np.array([f"judge-{j}" for j in range(4)])[judge], said[item, judge])
    gold = np.where(np.arange(120) % 2, truth, -1)
    for options in ({"gold": gold, "names": True}, {}):
        facts = report(table, only=["panel"], **options).facts["sections"]["panel"]
        check_facts(sections["panel"](), facts)
        assert facts["by_gold"] == ("gold" in options)
        assert len(facts["rates"]) == (2 if "gold" in options else 0)
        assert ("judge-0" in dumps(facts)) == ("names" in options)  # else pseudonyms
        assert ("family" in facts["judges"][0]) == ("names" in options)
        highest = np.array(facts["matrix"], float) - 2 * np.eye(4)
        if "names" in options:
            pair = {facts["order"][at] for at in np.unravel_index(highest.argmax(), (4, 4))}
            assert pair == {"judge-0", "judge-1"}
    assert "panel" not in report().facts["sections"]


def test_grades_agree_by_their_order_and_few_hidden_labels_say_nothing_of_methods():
    from report.reports import report
    from tables import drawn

    graded = drawn("graded")
    said = report(graded, only=["overview"]).facts["sections"]["overview"]["agreement"]["krippendorff_alpha"]["value"]
    assert said == pytest.approx(evaluation.krippendorff_alpha(graded, scale="ordinal", resamples=0).value, abs=1e-4)
    tiny = Annotations.from_arrays([1, 1, 2, 2], ["x", "y", "x", "y"], ["a", "b", "a", "a"])
    facts = report(tiny, only=["methods"]).facts["sections"]["methods"]
    assert facts["n_hidden"] < MIN_HELD_OUT_LABELS
    assert facts["verdict"] == compare(tiny, FEW_METHODS).verdict()


def test_the_shares_of_classes_are_those_of_the_labels_not_of_a_softened_posterior():
    rng = np.random.default_rng(1)
    truth = rng.random(400) < 0.05
    said = np.where(rng.random((400, 5)) < 0.9, truth[:, None], ~truth[:, None]).astype(int)
    table = Annotations.from_matrix(said)
    found = methods["consensus"]().fit(table)
    facts = Report(table, found, methods=FEW_METHODS).facts["sections"]["overview"]
    assert facts["classes"][1]["labels"] == (found.predict() == 1).mean()
    assert found.posterior_[:, 1].mean() > facts["classes"][1]["labels"] + 0.02


def test_of_groups_it_is_said_how_far_the_model_believes_their_labels_where_labels_differ():
    groups = [{"group": "old", "reliability": 0.83}, {"group": "young", "reliability": 0.48}]
    found = _make_group_card({"column": "age", "effect": 0.4, "p_value": 0.001, "groups": groups})
    assert isinstance(found, GroupsDifferInReliabilityCard)
    assert (found.worst, found.low, found.best, found.high) == ("young", 0.48, "old", 0.83)
    alike = [one | {"reliability": 0.8} for one in groups]
    assert (
        type(_make_group_card({"column": "age", "effect": 0.4, "p_value": 0.001, "groups": alike})) is GroupsDifferCard
    )
