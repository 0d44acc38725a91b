import json

import numpy as np
import pytest

import dissensus as dz
from cli.tables import rows, write_csv, write_export
from dissensus.common.formatting import Count, Share
from dissensus.exceptions import UnreadableFile
from dissensus.questions import exceptions as e
from dissensus.questions import findings as f
from dissensus.questions.check import Snapshot, check, fit_snapshot
from dissensus.table.simulate import simulate
from found import error_of

HEADER = ["item", "annotator", "label"]
FAST = ("-m", "majority-vote")


@pytest.fixture
def weeks(here):
    """old.csv, the same later as new.csv, and in `last` what aggregate made of the first."""
    labels, _ = rows(60, 7)
    write_csv(here / "old.csv", HEADER, labels[:280])
    write_csv(here / "new.csv", HEADER, labels)
    return labels


def found(cli, *args):
    """Exit status, and the checks by name."""
    result = cli("check", *args, "--json")
    return result.exit_code, {one["name"]: one for one in json.loads(result.stdout)["checks"]} if result.stdout else {}


def test_limits_are_kept_or_not_and_the_exit_status_says_so(weeks, cli):
    for limit, code in ((0.05, 0), (1.0, 1)):
        result = cli("check", "new.csv", "--min-settled", limit, "--min-labels", 7, *FAST)
        assert result.exit_code == code, result.output
        assert ("failed       min-settled: " in result.stdout) == bool(code)
        assert f"passed       min-labels: {f.FewestAnnotators(min_annotators=7)} (at least 7)." in result.stdout
    assert str(f.DecideItems()) in result.stdout
    code, checks = found(cli, "new.csv", "--min-agreement", 0.99, "--max-flagged", 7, *FAST)
    assert (code, checks["max_flagged"]["passed"], checks["min_agreement"]["passed"]) == (1, True, False)


@pytest.mark.parametrize("against", ["old.csv", "last"])
def test_a_table_and_the_folder_of_aggregate_serve_alike(weeks, here, cli, against):
    cli("aggregate", "old.csv", "-o", "last", *FAST)
    code, checks = found(cli, "new.csv", "--against", against)
    assert code == 0
    assert {name: one["limit"] for name, one in checks.items()} == {
        "max_fall": 0.05, "max_flips": 0.05, "max_lost": 0, "max_drifting": 0, "max_new_classes": 0
    }  # fmt: skip
    assert all(one["passed"] and one["advice"] == "" for one in checks.values())
    assert not any(one["finding"].endswith(".") for one in checks.values())  # a line adds the threshold and a full stop
    # w6 says dog of every new item, i000 has another answer, i001 is gone, and there is a cow
    spoilt = [
        (i, w, "dog" if w == "w6" and i >= "i100" else "cow" if i == "i000" else label)
        for i, w, label in [*weeks[:280], *rows(300, 7, start=100)[0]]
        if i != "i001"
    ]
    write_csv(here / "new.csv", HEADER, spoilt)
    code, checks = found(cli, "new.csv", "--against", against, "--max-flips", 0, "--max-fall", 0.5)
    assert code == 1
    assert {name for name, one in checks.items() if not one["passed"]} == checks.keys() - {"max_fall"}
    assert checks["max_lost"]["value"] == checks["max_new_classes"]["value"] == checks["max_drifting"]["value"] == 1
    assert checks["max_flips"]["value"] == pytest.approx(1 / 39, abs=0.03)
    assert "w6" in checks["max_drifting"]["advice"]
    assert "'cow'" in checks["max_new_classes"]["advice"]


def test_a_fall_of_agreement_is_a_difference_of_shares(weeks, here, cli):
    write_csv(here / "new.csv", HEADER, [(i, w, "cat" if w < "w3" else label) for i, w, label in weeks[:280]])
    told = [json.loads(cli("describe", name, "--json").stdout) for name in ("old.csv", "new.csv")]
    agree = [one["pairwise_agreement"] for one in told]
    _, checks = found(cli, "new.csv", "--against", "old.csv", *FAST)
    assert checks["max_fall"]["value"] == pytest.approx(agree[0] - agree[1])
    assert abs(checks["max_fall"]["value"]) > 0.01
    fall = {
        "agreement_now": Share(agree[1]),
        "agreement_before": Share(agree[0]),
        "fall": Share(max(agree[0] - agree[1], 0)),
    }
    assert checks["max_fall"]["finding"] == str(f.AgreementFell(**fall))


def test_limits_may_stand_in_a_file_and_options_count_first(weeks, here, cli):
    (here / "check.toml").write_text("min-settled = 1.0\nmin_labels = 3\n")
    assert found(cli, "new.csv", "--config", "check.toml", *FAST)[0] == 1
    code, checks = found(cli, "new.csv", "--config", "check.toml", "--min-settled", 0, *FAST)
    assert (code, checks["min_settled"]["limit"], checks["min_labels"]["limit"]) == (0, 0, 3)


def test_allowed_classes_need_no_earlier_table(weeks, cli):
    assert found(cli, "new.csv", "--classes", "cat,dog,owl", *FAST)[0] == 0
    code, checks = found(cli, "new.csv", "--classes", "cat,dog", *FAST)
    assert (code, checks["max_new_classes"]["value"]) == (1, 1)
    assert checks["max_new_classes"]["finding"] == str(f.UnexpectedClasses(n=Count(1), allowed=2))


def test_all_items_below_the_limit_are_sent_out(weeks, here, cli):
    write_csv(here / "short.csv", HEADER, weeks[5:-2])  # the first item has 2 labels, the last 5
    _, checks = found(cli, "short.csv", "--min-labels", 6, *FAST)
    assert (checks["min_labels"]["value"], checks["min_labels"]["passed"]) == (2, False)
    sent = f.ItemsNeedLabels(n=Count(2), enough=6, items=("i000", "i059"), annotators=Count(7))
    assert checks["min_labels"]["advice"] == str(sent)
    write_csv(here / "solo.csv", HEADER, [("i", "Eva", "a")])
    _, checks = found(cli, "solo.csv", "--against", "solo.csv", "--min-labels", 2, *FAST)
    assert checks["max_lost"]["finding"] == str(f.LabelsLost(n=0, items=Count(1)))
    assert checks["max_flips"]["finding"] == str(f.AnswersChanged(share=Share(0), items=Count(1)))
    again = f.ItemsNeedLabels(n=Count(1), enough=2, items=("i",), annotators=Count(1))
    assert checks["min_labels"]["advice"] == str(again)
    assert "new annotators" in again.annotator_advice


def test_drift_without_enough_labels_is_not_checked(weeks, here, cli):
    write_csv(here / "old.csv", HEADER, weeks[:14])
    write_csv(here / "new.csv", HEADER, weeks[:21])
    result = cli("check", "new.csv", "--against", "old.csv", *FAST)
    assert result.exit_code == 0
    assert f"not checked  max-drifting: {f.NoDriftTested()}" in result.stdout
    result = cli("check", "new.csv", "--against", "old.csv", "--max-drifting", 0, *FAST)
    assert result.exit_code == 2
    assert "not checked  max-drifting" in result.stdout
    assert error_of(result).facts == {"name": "max_drifting", "reason": str(f.NoDriftTested()).rstrip(".")}


def test_what_nobody_can_tell_is_not_passed_and_the_other_limits_are_told(here, cli):
    write_csv(here / "solo.csv", HEADER, [(i, "Eva", "ab"[i % 2]) for i in range(50)])
    result = cli("check", "solo.csv", "--max-flagged", 0, "--min-agreement", 0.5, "--min-labels", 1, *FAST)
    assert result.exit_code == 2
    assert f"not checked  max-flagged: {f.TooFewLabels(n=Count(1), annotators=Count(1))}" in result.stdout
    assert f"not checked  min-agreement: {f.AgreementUnavailable(weighted=False)}." in result.stdout
    assert f"passed       min-labels: {f.FewestAnnotators(min_annotators=1)} (at least 1)." in result.stdout


def test_one_person_who_repeats_a_label_is_one_annotator(here, cli):
    told = [(i, who, "yn"[i % 2]) for i in range(20) for who in ("Eva", "Eva" if i < 5 else "Bob")]
    write_csv(here / "again.csv", HEADER, told)
    code, checks = found(cli, "again.csv", "--min-labels", 2, "--min-settled", 0.8, *FAST)
    assert (code, checks["min_labels"]["value"], checks["min_settled"]["value"]) == (1, 1, 0.75)


def test_nobody_is_judged_before_the_spelling_of_classes_is_settled(here, cli):
    told = [(i, who, label) for i in range(40) for who, label in (("Ann", "yn"[i % 2]), ("Bob", "YN"[i % 2]))]
    write_csv(here / "caps.csv", HEADER, told)
    said = cli("check", "caps.csv", "--max-flagged", 0, *FAST).stdout
    assert f"not checked  max-flagged: {f.SpellingUnsettled()}." in said


def test_who_copies_is_counted_also_where_nobody_has_enough_labels_that_others_have():
    rng = np.random.default_rng(4)
    item = np.append(np.tile(np.arange(120), 4), np.arange(28) % 4)
    annotator = np.append(np.repeat(range(4), 120), range(4, 32))
    label = np.append(np.tile(rng.integers(0, 4, 120), 4), rng.integers(0, 4, 28))
    table = dz.Annotations.from_arrays(item, annotator, label)
    found = dz.diagnose(table)
    assert (found.too_few_labels, len(found.annotators_with_flag("copies"))) == (32, 4)
    assert check(fit_snapshot(table, "majority-vote"), limits={"max_flagged": 3})[0].value == 4


def test_questions_are_checked_one_by_one(questions, cli):
    result = cli("check", questions, "--against", questions, "--json", *FAST)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["passed"]
    assert len(json.loads(result.stdout)["questions"]) == 3


@pytest.mark.parametrize("asked", [(), ("--label", "tone")])
def test_the_one_question_of_an_export_that_has_classes_is_found_in_the_folder_of_all(here, cli, asked):
    export = write_export(here / "export.json")
    assert cli("aggregate", export, "-o", "folder").exit_code == 0
    code, checks = found(cli, export, "--against", "folder", *asked)
    assert (code, checks["max_flips"]["value"]) == (0, 0)
    assert cli("aggregate", export, "--label", "tone", "-o", "one").exit_code == 0
    assert found(cli, export, "--against", "one", *asked)[0] == 0


@pytest.mark.parametrize(
    ("args", "error", "facts"),
    [
        ((), e.NothingToCheck, {}),
        (("--max-fall", 0.1), e.NoEarlierTable, {"name": "max_fall"}),
        (("--min-settled", 90), e.BadThreshold, {"name": "min_settled", "whole": False, "value": 90}),
        (("--min-labels", -1), e.BadThreshold, {"name": "min_labels", "whole": True, "value": -1}),
        (("--config", "bad.toml"), e.UnknownThreshold, {"name": "min_setled"}),
        (("--config", "none.toml"), None, {}),
        (("--config", "share.toml"), e.BadThreshold, {"name": "min_settled", "value": 80}),
        (("--config", "share.toml", "--min-settled", 90), e.BadThreshold, {"name": "min_settled", "value": 90}),
        (("--against", "nowhere.csv"), UnreadableFile, {}),
        (("--against", "empty"), UnreadableFile, {}),
        (("--against", "other.csv", "--max-flips", 0.5), e.CheckNotPossible, {"name": "max_flips"}),
    ],
)
def test_what_cannot_be_run_is_one_sentence_and_status_2(weeks, here, cli, args, error, facts):
    (here / "bad.toml").write_text("min_setled = 1.0\n")
    (here / "share.toml").write_text("min-settled = 80\n")
    (here / "empty").mkdir()
    (here / "empty" / "summary.json").write_text("{}")
    write_csv(here / "other.csv", HEADER, rows(9, 7, start=900)[0])
    result = cli("check", "new.csv", *args, *FAST)
    assert result.exit_code == 2
    assert (result.stdout == "") == (error is not e.CheckNotPossible)
    if error is not None:
        assert isinstance(found := error_of(result), error)
        assert facts.items() <= found.facts.items()


@pytest.mark.parametrize("damaged", ["{", "[]", ""])
def test_a_damaged_summary_is_one_sentence_and_status_2(weeks, here, cli, damaged):
    cli("aggregate", "old.csv", "-o", "last", *FAST)
    (here / "last" / "summary.json").write_text(damaged)
    result = cli("check", "new.csv", "--against", "last", "--max-fall", 0.5, *FAST)
    assert (result.exit_code, result.stdout) == (2, "")
    assert type(error_of(result)) is e.SavedWithoutAgreement


def test_the_method_of_the_folder_is_fitted(weeks, cli):
    cli("aggregate", "old.csv", "-o", "last", *FAST)
    asked = ("old.csv", "--min-settled", 0)
    told = [found(cli, *asked, *more)[1]["min_settled"]["value"] for more in (("--against", "last"), FAST, ())]
    assert told[0] == told[1] != told[2]


def test_a_kept_model_in_which_copies_count_once_knows_which_items_are_as_they_were():
    made = simulate(500, 20, 2, redundancy=7, kinds={"ordinary": 1}, seed=6).annotations
    own = np.flatnonzero(made.annotator == 0)
    rows = np.concatenate([np.arange(len(made)), *[own] * 5])
    who = np.concatenate([made.annotator, *[np.full(own.size, 20 + k) for k in range(5)]])
    label = made.label[rows]
    later = made.item[rows] >= 300
    label[(who == 3) & later] = 1 - label[(who == 3) & later]
    table = dz.Annotations.from_arrays(made.item[rows], who, label)
    before, now = fit_snapshot(table.select(rows=table.item < 300), "consensus"), fit_snapshot(table, "consensus")
    assert (before.model.copy_group_ >= 0).any()
    kept = Snapshot(before.model, before.agreement)
    texts = [check(now, one, limits={"max_drifting": 0})[0] for one in (before, kept)]
    assert str(texts[0].finding) == str(texts[1].finding)
    assert "24" in str(texts[0].finding)
