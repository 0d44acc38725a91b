"""The section on LIA, and its pictures as files: numbers are the model's, whatever the table."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.evaluation import entropy
from dissensus.exceptions import DataError, NotFitted
from dissensus.report import charts, maps
from dissensus.report.blocks import Chart, Table, Text
from dissensus.report.figures import plot_annotator_embeddings, plot_difficulty
from dissensus.report.sections import competence as section
from dissensus.table.simulate import simulate
from report.reports import Page, blocks, check_section, crowd, features, findings, report, things, trained
from report.test_sections import SMALL

pytest.importorskip("torch", reason="needs the `learning` extra")


def lia(table=None, truth=None, **keywords):
    """A small LIA of the crowd, or of another table."""
    from dissensus.learning.objectives import LIAObjective

    return trained(table, truth, objective=LIAObjective(**{"rounds": 2} | keywords), epochs=6)


@cache
def of_crowd():
    return lia()


def about(model, table=None, **options):
    return report(table, model=model, only=["competence"], **options).facts["sections"]["competence"]


@pytest.mark.parametrize("table", SMALL.values(), ids=SMALL)
def test_there_is_something_to_say_of_every_table(table):
    model = lia(table)
    for gold in (np.zeros(table.n_items, np.int32), None):
        made = report(table, model=model, only=["competence"], gold=gold)
        check_section("competence", made.facts["sections"]["competence"])
        Page(made.html())


def test_it_is_of_lia_alone():
    def shown(model):
        return list(report(model=model, only=["model", "competence"]).facts["sections"])

    assert shown(None) == []
    assert shown(trained(epochs=1)) == ["model"]
    assert shown(of_crowd()) == ["model", "competence"]


def test_numbers_are_the_model_s():
    model, table = of_crowd(), crowd().annotations
    facts = about(model, gold=crowd().truth, items=things(table), names=True)
    assert facts["mean_competence"] == pytest.approx(model.competence_.mean(axis=0), rel=1e-3)
    assert facts["difficulty"] == pytest.approx(model.difficulty_.mean(), rel=1e-3)
    assert [one["annotator"] for one in facts["people"]] == [str(name) for name in table.annotators]
    for j, person in enumerate(facts["people"]):
        assert list(person["competence"].values()) == pytest.approx(model.competence_[j], rel=1e-2)
        own = table.annotator == j
        wrong = 1 - model.posterior_[table.item[own], table.label[own]]
        few = own.sum() < 10
        assert person["error"] == (None if few else pytest.approx(wrong.mean(), rel=1e-2))
        assert (person["cluster"] == maps.TOO_FEW) == few
        assert person["labels"] == own.sum()
    order = np.argsort(-model.difficulty_, kind="stable")
    assert [one["item"] for one in facts["hardest"]] == [str(table.items[i]) for i in order]
    first = facts["hardest"][0]
    assert first["gold"] == str(table.classes[crowd().truth[order[0]]])
    assert first["texts"][0].startswith("This is the text")
    votes = table.votes()
    spread = entropy(votes / votes.sum(axis=1, keepdims=True))
    assert [one["entropy"] for one in facts["dots"]] == pytest.approx(spread.tolist(), rel=1e-3, abs=1e-9)
    right = model.posterior_.argmax(axis=1) == crowd().truth
    assert [one["model"] == "right" for one in facts["dots"]] == right.tolist()
    from scipy.stats import spearmanr

    assert facts["correlation"] == pytest.approx(spearmanr(model.difficulty_, spread).statistic, rel=1e-2)
    assert (facts["sample"], facts["taught"], facts["how"]) == (100, 100, "PCA")


def test_what_is_shown_says_what_it_rests_on(monkeypatch):
    facts = about(of_crowd())
    said = blocks("competence", facts, Text)[0].text
    assert "means are over all 100 items that taught the model" in said
    titles = [chart.title for chart in blocks("competence", facts, Chart)]
    assert titles == ["Clusters of mistakes", "Error rate", "Class that is over-used", "Difficulty and disagreement"]
    assert "PCA of their embeddings" in blocks("competence", facts, Chart)[0].caption
    assert "what most annotators say" in blocks("competence", facts, Chart)[3].caption
    sampled = facts | {"sample": 50, "of": 20, "clusters_by": "confusions"}
    said = blocks("competence", sampled, Text)[0].text
    assert "over 50 of the 100 items, taken evenly in their order of difficulty" in said
    assert "14 of 20 annotators are here" in said
    assert "as not all share enough items" in said
    monkeypatch.setattr(section, "MAX_ITEMS", 10)
    monkeypatch.setattr(maps, "MAX_DOTS", 30)
    few = about(of_crowd())
    assert (len(few["hardest"]), len(few["dots"])) == (10, 30)
    assert "10 of 100 are here" in blocks("competence", few, Table)[1].caption
    assert "30 of 100 items" in blocks("competence", few, Chart)[3].caption


def test_findings_name_the_best_the_worst_and_the_turned():
    facts = about(of_crowd(), names=True)
    for person in facts["people"]:
        person["competence"] = {"all": 0.6, "easiest": 0.7, "hardest": 0.5}
        person["labels"] = 10
    facts["people"][3]["competence"] = {"all": 0.9, "easiest": 0.9, "hardest": 0.9}
    facts["people"][5]["competence"] = {"all": 0.2, "easiest": 0.1, "hardest": 0.4}
    facts["people"][7] |= {"labels": 9, "competence": {"all": 0.95, "easiest": 0.9, "hardest": 1.0}}  # too few
    facts["over_half"] = 4
    found = [one.text for one in findings("competence", facts)]
    best, worst = facts["people"][3]["annotator"], facts["people"][5]["annotator"]
    assert found[0] == f"By LIA, annotators are right with a probability of 20 % ({worst}) to 90 % ({best})."
    assert found[1].startswith("1 of 13 annotators are right more often on what is hard")
    assert found[1].endswith(f"easy: {worst}.")
    assert found[2].startswith("On 4 of 100 items an average annotator is more often wrong than right")


def test_two_classes_have_false_positives_and_negatives():
    two = simulate(60, 8, 2, redundancy=6, seed=1)
    facts = about(lia(two.annotations, two.truth), two.annotations)
    titles = [chart.title for chart in blocks("competence", facts, Chart)]
    assert titles[:3] == ["Clusters of mistakes", "False positive rate", "False negative rate"]
    columns = [column.title for column in blocks("competence", facts, Table)[0].columns]
    assert columns[6:8] == ["false positives", "false negatives"]


def test_names_are_text_and_not_markup():
    evil = "<script>alert(1)</script>"
    table = Annotations.from_arrays(
        [f"{evil}{i}" for i in np.repeat(np.arange(12), 3)],
        [f"{evil}{a}" for a in np.tile(np.arange(3), 12)],
        [evil, "b", "b"] * 12,
    )
    html = report(table, model=lia(table), only=["competence"], names=True).html()
    assert evil not in html
    assert all("alert(1)" not in text for attributes, text in Page(html).scripts if "type" not in attributes)


@pytest.mark.parametrize("keywords", [{"annotator_size": None}, {"difficulty": False}, {"latent": 2}])
def test_every_form_of_lia_is_shown(keywords):
    facts = about(lia(**keywords))
    assert all(np.isfinite([person["x"], person["y"]]).all() for person in facts["people"])


def test_annotators_without_labels_are_left_out_and_strangers_too():
    table = crowd().annotations
    silent = Annotations.from_codes(
        table.item, table.annotator, table.label, table.items, np.arange(20), table.classes
    )  # fmt: skip
    facts = about(lia(silent, crowd().truth), silent)
    assert len(facts["people"]) == 14
    strangers = Annotations.from_codes(
        table.item, table.annotator, table.label, table.items, table.annotators + 1000, table.classes
    )
    assert "competence" not in report(strangers, model=of_crowd(), only=["competence"]).facts["sections"]
    named = Annotations.from_codes(
        table.item,
        table.annotator,
        table.label,
        table.items,
        np.array([f"w{j:02d}" for j in range(14)], object),
        table.classes,
    )
    assert "competence" not in report(named, model=of_crowd(), only=["competence"]).facts["sections"]


def test_a_lia_and_a_folder_are_models_too(tmp_path):
    from dissensus.learning import LIA

    table = crowd().annotations
    plain = LIA(steps=20, hidden=(4,)).fit(table, features(table, crowd().truth))
    facts = about(plain)
    said = sorted(person["competence"]["all"] for person in facts["people"])
    assert said == pytest.approx(sorted(plain.competence_[:, 0]), abs=1e-3)
    plain.classifier_.save(tmp_path)
    assert about(tmp_path) == facts
    with pytest.raises(NotFitted, match="this LIA is not fitted yet"):
        about(LIA())


# As files -------------------------------------------------------------------------------------------------------------


def test_figures_are_files(tmp_path):
    table, model = crowd().annotations, of_crowd()
    svg = plot_annotator_embeddings(model, table, tmp_path / "map.svg").read_text(encoding="utf-8")
    for words in ("Clusters of mistakes", "Error rate", "Class that is over-used", "14 annotators", "(PCA)"):
        assert words in svg
    truth = np.where(np.arange(100) < 90, crowd().truth, -1)
    svg = plot_difficulty(model, table, tmp_path / "difficulty.svg", truth).read_text(encoding="utf-8")
    assert all(f">{word}</text>" in svg for word in ("right", "wrong", "without gold", "difficulty"))
    svg = plot_difficulty(model, table, tmp_path / "majority.svg").read_text(encoding="utf-8")
    assert all(f">{name}</text>" in svg for name in table.classes)
    assert ">right</text>" not in svg
    assert plot_annotator_embeddings(model, table, tmp_path / "m.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(DataError, match="knows no difficulty"):
        plot_difficulty(trained(epochs=1), table, tmp_path / "none.svg")


def test_many_classes_share_a_colour_and_those_without_rates_are_grey():
    rows = [{"annotator": f"w{n}", "x": n, "y": 0, "labels": 20, "cluster": "1", "error": 0.1} for n in range(12)]
    for n, row in enumerate(rows):
        row["overused"] = f"class {n % 10}"
    rows[0] |= {"error": None, "cluster": maps.TOO_FEW, "overused": maps.TOO_FEW}
    made = maps.annotator_charts(rows, ["a", "b", "c"])
    domain = made[2][2].to_dict()["encoding"]["color"]["scale"]["domain"]
    assert len(domain) == 8
    assert domain[-2:] == [charts.OTHER, maps.TOO_FEW]
    assert [len(layer["data"]["values"]) for layer in _layers(made[1][2])] == [1, 11]


def _layers(chart):
    spec = chart.to_dict()
    assert "layer" in spec
    return spec["layer"]


def test_an_item_whose_labels_weigh_nothing_has_no_votes_to_compare_with():
    table = dataclasses.replace(crowd().annotations, weight=np.where(crowd().annotations.item == 0, 0.0, 1.0))
    assert about(lia(table), table)["items"] == table.n_items - 1
