"""The section on a trained model: its numbers are the library's, and it says what they rest on."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from dissensus import Annotations, evaluation, methods
from dissensus.exceptions import UnreadableFile
from dissensus.report.blocks import ChartBlock, TableBlock, TextBlock
from dissensus.report.exceptions import TrainedOnOtherClasses, TrainedOnOtherItems
from dissensus.report.section import sections
from dissensus.report.sections import model as section
from dissensus.report.sections.model import ModelAndCrowdDiffer, ModelQuality
from dissensus.table.io import write_frame
from dissensus.testing.sections import check_facts
from refused import refused
from report.reports import Page, blocks, crowd, features, found, report, things, trained
from report.test_sections import SMALL

pytest.importorskip("torch", reason="needs the `learning` extra")


def about(model, table=None, **options):
    made = report(table, model=model, only=["model"], **options)
    assert list(made.facts["sections"]) == ["model"]
    return made.facts["sections"]["model"]


@pytest.mark.parametrize("table", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("gold", [True, False])
def test_there_is_something_to_say_of_every_table(table, gold):
    facts = about(trained(table, epochs=1), table, gold=np.zeros(table.n_items, np.int32) if gold else None)
    check_facts(sections["model"](), facts)
    Page(report(table, model=trained(table, epochs=1), only=["model"]).html())


def test_without_a_model_there_is_no_section_and_no_torch():
    assert "model" not in report().facts["sections"]
    code = "import sys, dissensus.report; print('torch' in sys.modules, 'dissensus.learning' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False False"


def test_numbers_are_those_of_the_evaluation_on_items_held_out():
    model, truth = trained(validation=0.3), crowd().truth
    facts = about(model, gold=truth)
    hidden = model.held_out_
    assert (facts["basis"], facts["reference"], facts["judged"]) == ("not seen", "gold", 30)
    said = model.proba_.argmax(axis=1)
    assert facts["accuracy"]["value"] == pytest.approx((said == truth)[hidden].mean(), rel=1e-4)
    crowd_says = methods["dawid-skene"]().fit(crowd().annotations).posterior_.argmax(axis=1)
    assert facts["crowd_accuracy"]["value"] == pytest.approx((crowd_says == truth)[hidden].mean(), rel=1e-4)
    assert facts["ahead"]["value"] == pytest.approx(facts["accuracy"]["value"] - facts["crowd_accuracy"]["value"])
    expected = evaluation.expected_calibration_error(truth[hidden], model.proba_[hidden], bins=10)
    assert facts["calibration_error"] == pytest.approx(expected, rel=1e-4)
    assert facts["confusion"]["counts"] == evaluation.confusion_matrix(truth[hidden], said[hidden], 3).tolist()
    assert sum(one["items"] for one in facts["bins"]) == 30
    assert [entry["loss"] for entry in facts["history"]] == pytest.approx(model.trace_.tolist(), rel=1e-4)
    assert (facts["best_epoch"], facts["taught"], facts["held_out"]) == (model.best_epoch_, 70, 30)
    assert facts["chosen_by"]
    assert blocks("model", facts, TextBlock)
    titles = [chart.title for chart in blocks("model", facts, ChartBlock)]
    curves = ["Training", "Validation", "Validation scores"]
    assert titles == [*curves, "Model against gold", "Is the confidence calibrated?"]


def test_without_gold_the_crowd_s_posterior_is_what_it_is_held_against():
    model = trained(validation=0.3)
    facts = about(model)
    fitted = methods["dawid-skene"]().fit(crowd().annotations)
    hidden = model.held_out_
    agree = model.proba_.argmax(axis=1) == fitted.posterior_.argmax(axis=1)
    assert facts["reference"] == "crowd"
    assert facts["accuracy"]["value"] == pytest.approx(agree[hidden].mean(), rel=1e-4)
    assert facts["crowd_accuracy"] is None
    expected = evaluation.expected_calibration_error(fitted.posterior_[hidden], model.proba_[hidden], bins=10)
    assert facts["calibration_error"] == pytest.approx(expected, rel=1e-4)


def test_a_model_judged_on_what_it_was_trained_on_is_said_to_be_flattered():
    facts = about(trained(), gold=crowd().truth)
    assert facts["basis"] == "trained on"
    assert facts["judged"] == 100
    quality = found("model", facts, ModelQuality)
    assert (quality.basis, quality.reference) == ("trained on", "gold")
    assert quality.advice
    assert {one["seen"] for one in facts["items_apart"]} == {"trained on"}
    few = about(trained(validation=0.1), gold=crowd().truth)  # too few held out to judge by
    assert (few["basis"], few["judged"]) == ("trained on", 90)


def test_out_of_fold_predictions_are_preferred_and_a_folder_s_are_found(tmp_path):
    from dissensus.learning import out_of_fold

    table, model = crowd().annotations, trained()
    X = features(table, crowd().truth)
    folds = out_of_fold(model, table, X, folds=2)
    facts = about(model, gold=crowd().truth, out_of_fold=folds)
    assert (facts["basis"], facts["judged"]) == ("out of fold", 100)
    assert facts["accuracy"]["value"] == pytest.approx((folds.proba.argmax(axis=1) == crowd().truth).mean(), rel=1e-4)
    assert {one["seen"] for one in facts["items_apart"]} == {"out of fold"}
    assert found("model", facts, ModelQuality).advice == ""
    model.save(tmp_path)
    assert about(str(tmp_path), gold=crowd().truth)["basis"] == "trained on"
    write_frame(folds.to_frame(), tmp_path / "out_of_fold.csv")
    assert about(tmp_path, gold=crowd().truth) == facts
    with pytest.raises(UnreadableFile):
        about(tmp_path / "nowhere")


def test_items_are_sorted_by_how_far_apart_model_and_crowd_are():
    table, model = crowd().annotations, trained()
    facts = about(model, gold=crowd().truth, items=things(table))
    posterior = methods["dawid-skene"]().fit(table).posterior_
    distance = evaluation.jensen_shannon(posterior, model.proba_) / np.log(2)
    order = np.argsort(-distance, kind="stable")
    assert [one["item"] for one in facts["items_apart"]] == [str(table.items[i]) for i in order]
    assert [one["distance"] for one in facts["items_apart"]] == pytest.approx(distance[order], rel=1e-2)
    first, i = facts["items_apart"][0], order[0]
    assert first["model"][0][0] == str(table.classes[model.proba_[i].argmax()])
    assert first["model"][0][1] == pytest.approx(model.proba_[i].max(), rel=1e-2)
    assert first["crowd"][0][0] == str(table.classes[posterior[i].argmax()])
    assert first["texts"][0].startswith("This is the text")
    assert first["gold"] == str(table.classes[crowd().truth[i]])
    differ = int((model.proba_.argmax(axis=1) != posterior.argmax(axis=1)).sum())
    assert facts["apart"] == differ
    apart = found("model", facts, ModelAndCrowdDiffer)
    assert (apart.apart, apart.compared) == (differ, 100)
    assert len(blocks("model", facts, TableBlock)[0].rows) == 100


def test_a_model_of_more_items_or_in_another_order_of_classes_is_aligned_by_name():
    table = crowd().annotations
    turned = table.with_classes(table.classes[::-1].copy())
    model = trained(turned, 2 - crowd().truth)
    part = table.select(items=table.items[:60])
    facts = about(model, part)
    assert (facts["items"], facts["of"]) == (60, 60)
    one = facts["items_apart"][0]
    i = [str(name) for name in table.items].index(one["item"])
    assert one["model"][0][0] == str(model.classes_[model.proba_[i].argmax()])
    fewer = about(trained(part, crowd().truth[:60]), table)
    assert (fewer["items"], fewer["compared"]) == (60, 60)
    assert fewer["of"] == 100


def test_a_model_of_something_else_is_an_error():
    table = crowd().annotations
    other = dataclasses.replace(table, items=table.items + 1000)
    with refused(TrainedOnOtherItems, item="0"):
        about(trained(), other)
    wider = Annotations.from_codes(
        table.item, table.annotator, table.label, table.items, table.annotators, np.array([0, 1, 7])
    )
    with refused(TrainedOnOtherClasses, name="7", classes=3):
        about(trained(wider))


def test_many_classes_and_items_are_cut_and_said_to_be(monkeypatch):
    monkeypatch.setattr(section, "MAX_LISTED_ITEMS", 10)
    monkeypatch.setattr(section, "MAX_CONFUSION_CLASSES", 2)
    facts = about(trained())
    assert len(facts["items_apart"]) == 10
    assert len(blocks("model", facts, TableBlock)[0].rows) == 10
    assert np.shape(facts["confusion"]["counts"]) == (2, 2)
    assert facts["confusion"]["of"] == 3
