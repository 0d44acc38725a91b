from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import dissensus as dz
from cli.tables import SCORE, rows, write_csv
from dissensus import evaluation
from dissensus.cli.exceptions import (
    CountedTwice,
    GoldOnlyScores,
    NotOurFile,
    OptionNeeds,
)
from dissensus.common.exceptions import CannotWrite, OverwritesInput, UnknownEntry
from dissensus.exceptions import ConvergenceWarning
from dissensus.questions.exceptions import NoGoldToScore
from dissensus.table.io import read_frame


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def posterior(folder: Path, suffix: str = "csv") -> np.ndarray:
    frame = read_frame(folder / f"items.{suffix}")
    return np.column_stack([np.asarray(frame[c].to_pylist(), float) for c in frame.column_names if c[:2] == "p_"])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_hold_what_the_method_found(cli, labels, here):
    result = cli("aggregate", labels, "-o", "out")
    assert (result.exit_code, result.stderr) == (0, "")
    out = here / "out"
    assert sorted(contents(out)) == ["annotators.csv", "confusions.csv", "items.csv", "model.npz", "summary.json"]
    model = dz.methods["consensus"]().fit(dz.read(labels))
    items = read_csv(out / "items.csv")
    facts = ["votes", "labels", "status", "reason"]
    assert list(items[0]) == ["item", "label", "confidence", *facts, "p_cat", "p_dog", "p_owl"]
    assert [row["label"] for row in items] == model.predict().tolist()
    np.testing.assert_array_equal(posterior(out), model.posterior_)
    annotators = read_csv(out / "annotators.csv")
    assert list(annotators[0]) == ["annotator", "annotations", "reliability", "low", "high", "flags", "reasons"]
    assert [float(row["reliability"]) for row in annotators] == model.reliability_.tolist()
    assert len(read_csv(out / "confusions.csv")) == 7 * 3 * 3


def test_summary_file_says_what_was_done(cli, labels, here):
    printed = json.loads(cli("aggregate", labels, "--gold", "gold.csv", *SCORE, "-o", "out", "--json").stdout)
    assert printed.pop("command") == "aggregate"
    summary = json.loads((here / "out" / "summary.json").read_text())
    assert printed == summary | {"folder": "out"}
    model = dz.methods["consensus"]().fit(dz.read(labels))
    truth = [row["label"] for row in read_csv(here / "gold.csv")]
    assert summary["version"] == dz.__version__
    assert summary["input"] == str(labels)
    assert (summary["annotations"], summary["items"], summary["annotators"]) == (280, 40, 7)
    assert summary["parameters"] == model.get_params()
    assert (summary["passes"], summary["converged"]) == (model.n_iter_, True)
    assert summary["objective"] == model.trace_[-1]
    gold, right = summary["gold"], model.predict() == truth
    assert (gold["items"], gold["accuracy"]) == (40, right.mean())
    codes = np.searchsorted(["cat", "dog", "owl"], truth)
    assert gold["log_loss"] == pytest.approx(-np.log(model.posterior_[np.arange(40), codes]).mean())
    assert gold["calibration_error"] == evaluation.expected_calibration_error(codes, model.posterior_)
    bounds = evaluation.bootstrap(right)
    assert (gold["accuracy_low"], gold["accuracy_high"]) == (bounds.low, bounds.high)
    assert sum(summary["labels"].values()) == 40


def test_a_model_is_updated_with_the_annotations_of_another_day(cli, labels, here):
    all_rows, _ = rows()
    today = [row for row in all_rows if row[0] < "i030"]
    late = [row for row in all_rows if row[0] >= "i030"]
    write_csv(here / "today.csv", ["item", "annotator", "label"], today)
    write_csv(here / "late.csv", ["item", "annotator", "label"], late)
    cli("aggregate", "today.csv", "-o", "day1")
    result = cli(
        "aggregate",
        "late.csv",
        "--model",
        "day1",
        "--update",
        "--gold",
        "gold.csv",
        *SCORE,
        "-o",
        "day2",
    )
    assert (result.exit_code, result.stderr) == (0, "")
    model = dz.load(here / "day1").partial_fit(dz.read(here / "late.csv"))
    np.testing.assert_array_equal(posterior(here / "day2"), model.posterior_)
    assert len(read_csv(here / "day2" / "items.csv")) == 40
    summary = json.loads((here / "day2" / "summary.json").read_text())
    assert (summary["annotations"], summary["items"], summary["new_annotations"]) == (280, 40, 70)
    assert summary["gold"]["items"] == 40
    np.testing.assert_array_equal(dz.load(here / "day2").posterior_, model.posterior_)
    alone = cli("aggregate", "late.csv", "--update")
    assert (alone.exit_code, type(alone.error)) == (2, OptionNeeds)


def test_known_labels_are_fitted(cli, labels, here):
    write_csv(here / "sure.csv", ["item", "label"], [("i000", "owl"), ("i001", "owl")])
    cli("aggregate", labels, "--gold", "sure.csv", "-o", "out")
    assert [row["p_owl"] for row in read_csv(here / "out" / "items.csv")][:2] == ["1", "1"]
    table = dz.read(labels)
    model = dz.methods["consensus"]().fit(table, gold=table.gold_codes(["i000", "i001"], ["owl", "owl"]))
    np.testing.assert_array_equal(posterior(here / "out"), model.posterior_)
    refused = cli("aggregate", labels, "--gold", "sure.csv", "--model", "out")
    assert (refused.exit_code, type(refused.error), refused.error.option) == (2, GoldOnlyScores, "--model")
    both = cli("aggregate", labels, "--gold", "sure.csv", *SCORE, "--score-gold", "gold.csv")
    assert (both.exit_code, both.error.facts) == (2, {"option": "score_gold", "other_option": "--gold-use score"})


def test_items_with_known_labels_are_not_scored(cli, labels, here):
    write_csv(here / "sure.csv", ["item", "label"], rows()[1][:7])
    cli("aggregate", labels, "--gold", "sure.csv", "--score-gold", "gold.csv", "-o", "out")
    scores = json.loads((here / "out" / "summary.json").read_text())["gold"]
    model, truth = dz.load(here / "out"), np.array([label for _, label in rows()[1]])
    assert (scores["items"], scores["left_out"]) == (33, 7)
    assert scores["accuracy"] == pytest.approx((model.predict() == truth)[7:].mean())
    all_known = cli("aggregate", labels, "--gold", "gold.csv", "--score-gold", "gold.csv")
    assert list(map(type, all_known.warnings)) == [NoGoldToScore]


def test_annotators_to_look_at_are_named_with_reasons(cli, here):
    """digits-crowd: spammers, an adversary, a clique of five."""
    table = dz.load_dataset("digits-crowd").annotations
    rows = zip(*table.to_arrow().select(["item", "annotator", "label"]).to_pydict().values(), strict=True)
    path = write_csv(here / "digits.csv", ["item", "annotator", "label"], rows)
    found = dz.diagnose(table)
    result = cli("aggregate", path, "-o", "out")
    assert not re.search("spam|advers|copier", result.stdout)
    written = {row["annotator"]: row for row in read_csv(here / "out" / "annotators.csv")}
    for name, flags, reasons in zip(found.annotators, found.flags, found.reasons, strict=True):
        assert (written[name]["flags"], written[name]["reasons"]) == (", ".join(flags), reasons)
    summary = json.loads((here / "out" / "summary.json").read_text())["annotators_to_look_at"]
    assert summary["annotators"].keys() == {n for n in found.annotators if written[n]["flags"]}
    assert summary["copying_groups"] == [list(found.groups[0])]
    plain = cli("aggregate", path, "--no-flags", "-o", "plain")
    assert len(plain.stdout) < len(result.stdout)
    assert "flags" not in read_csv(here / "plain" / "annotators.csv")[0]


@pytest.mark.parametrize("label", ["cat", 1.5])
def test_annotators_are_not_ranked_if_none_can_be_compared(cli, here, label):
    single = [(i, f"a{i % 3}", label if i % 2 else "dog" if label == "cat" else 2.5) for i in range(30)]
    write_csv(here / "single.csv", ["item", "annotator", "label"], single)
    assert "Most to least reliable" not in cli("aggregate", "single.csv", "-o", "out").stdout
    assert len(read_csv(here / "out" / "annotators.csv")) == 3
    write_csv(here / "two.csv", ["item", "annotator", "label"], [*single, (0, "a1", label), (1, "a2", label)])
    assert "Most to least reliable" in cli("aggregate", "two.csv").stdout


def test_gold_is_never_fitted(cli, labels, here):
    """The gold says that everything is a cat; the posterior does not move."""
    lie = write_csv(here / "lie.csv", ["item", "gold"], [(f"i{i:03}", "cat") for i in range(10)])
    cli("aggregate", labels, "-o", "plain")
    result = cli("aggregate", labels, "--gold", lie, *SCORE, "-o", "out", "--json")
    assert json.loads(result.stdout)["gold"]["items"] == 10
    assert contents(here / "out")["items.csv"] == contents(here / "plain")["items.csv"]


def test_gold_columns_can_be_named_and_absent_gold_warns(cli, labels, here):
    write_csv(here / "g.csv", ["doc", "says"], [("i000", "cat"), ("nowhere", "cat")])
    summary = json.loads(
        cli(
            "aggregate",
            labels,
            "--gold",
            "g.csv",
            "--gold-use",
            "score",
            "--gold-item",
            "doc",
            "--gold-label",
            "says",
            "--json",
        ).stdout
    )
    assert summary["gold"]["items"] == 1
    assert "--gold-item COLUMN" in cli("aggregate", labels, "--gold", "g.csv", *SCORE).stderr
    write_csv(here / "other.csv", ["item", "label"], [("i000", "")])
    result = cli("aggregate", labels, "--gold", "other.csv", *SCORE, "--json")
    assert list(map(type, result.warnings)) == [NoGoldToScore]
    assert json.loads(result.stdout)["gold"] == {"items": 0, "accuracy": None}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
def test_every_format_reads_back_as_the_same_posterior(cli, labels, here, suffix):
    cli("aggregate", labels, "-o", "out", "--format", suffix)
    model = dz.methods["consensus"]().fit(dz.read(labels))
    np.testing.assert_array_equal(posterior(here / "out", suffix), model.posterior_)


def test_without_output_the_first_rows_are_shown_and_nothing_is_written(cli, labels, here):
    before = contents(here)
    text = cli("aggregate", labels).stdout
    assert "i002" in text
    assert "i003" not in text
    assert "-o" in text
    assert contents(here) == before


def test_summary_for_people_has_counts_doubt_and_annotators(cli, labels):
    text = cli("aggregate", labels, "-o", "out").stdout
    text = text[text.index("converged after") :]  # the lines after the path, which may hold "w0"
    assert text.index("w6") < text.index("…") < text.index("w0")


def test_the_summary_holds_the_effective_number_of_labels(cli, labels):
    def counted(*options):
        return json.loads(cli("aggregate", labels, *options, "--json").stdout).get("effective_labels")

    def advised(*options):
        return "--gold" in cli("aggregate", labels, *options).stdout

    found = counted("-o", "out")
    assert (found["labels"], *(round(found[key], 1) for key in ("value", "low", "high"))) == (7.0, 1.6, 1.0, 3.9)
    assert round(counted("--set", "dependence=0.6")["value"], 1) == 1.5
    assert round(counted("--set", f"dependence={1 / 6}")["value"], 1) == 3.5
    assert counted("--gold", "gold.csv")["labels"] == 7.0
    assert counted("--method", "majority-vote") is None
    assert (advised("-o", "out"), advised("--model", "out")) == (True, False)  # known labels are for a fit


def test_keywords_reach_the_method(cli, labels, here):
    options = (
        "--set",
        "smoothing=0.1",
        "--set",
        "accelerate=none",
        "--max-iter",
        "77",
        "--seed",
        "5",
        "--threads",
        "1",
    )
    cli("aggregate", labels, "-o", "out", *options)
    model = dz.methods["consensus"](smoothing=0.1, accelerate=None, max_iter=77, seed=5, threads=1).fit(dz.read(labels))
    assert json.loads((here / "out" / "summary.json").read_text())["parameters"] == model.get_params()
    np.testing.assert_array_equal(posterior(here / "out"), model.posterior_)


def test_another_method_writes_no_confusions(cli, labels, here):
    result = cli("aggregate", labels, "-m", "majority-vote", "--threads", "2", "-o", "out")
    assert result.exit_code == 0
    assert sorted(contents(here / "out")) == ["annotators.csv", "items.csv", "model.npz", "summary.json"]


def test_convergence_warning_is_one_line(cli, labels):
    result = cli("aggregate", labels, "--max-iter", "2", "--json")
    assert result.exit_code == 0
    assert [isinstance(warning, ConvergenceWarning) for warning in result.warnings] == [True]
    assert result.stderr.count("\n") == 1
    assert json.loads(result.stdout)["converged"] is False


# Scoring --------------------------------------------------------------------------------------------------------------


def test_fitted_model_scores_new_items_and_unseen_annotators(cli, labels, here):
    cli("aggregate", labels, "-o", "fit")
    new, truth = rows(12, 7, seed=9, start=900)
    new = [(item, "stranger" if annotator == "w3" else annotator, label) for item, annotator, label in new]
    write_csv(here / "new.csv", ["item", "annotator", "label"], new)
    write_csv(here / "new_gold.csv", ["item", "label"], truth)
    result = cli("aggregate", "new.csv", "--model", "fit", "--gold", "new_gold.csv", *SCORE, "-o", "out")
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(contents(here / "out")) == ["annotators.csv", "items.csv", "summary.json"]
    table = dz.read("new.csv")
    model = dz.load("fit")
    np.testing.assert_array_equal(posterior(here / "out"), model.predict_proba(table))
    assert [row["label"] for row in read_csv(here / "out" / "items.csv")] == model.predict(table).tolist()
    known = dict(zip(model.annotators_, model.reliability_, strict=True))
    for row in read_csv(here / "out" / "annotators.csv"):
        assert row["annotations"] == "12"
        if row["annotator"] == "stranger":
            assert row["reliability"] == ""
        else:
            assert float(row["reliability"]) == known[row["annotator"]]
    summary = json.loads((here / "out" / "summary.json").read_text())
    assert summary["model"] == "fit"
    assert summary["gold"]["items"] == 12


def test_scoring_a_file_with_fewer_classes_keeps_the_model_s(cli, labels, here):
    cli("aggregate", labels, "-o", "fit")
    write_csv(here / "new.csv", ["item", "annotator", "label"], [("a", "w6", "dog"), ("a", "w5", "dog")])
    write_csv(here / "g.csv", ["item", "label"], [("a", "owl")])
    summary = json.loads(cli("aggregate", "new.csv", "--model", "fit", "--gold", "g.csv", *SCORE, "--json").stdout)
    assert summary["classes"] == ["cat", "dog", "owl"]
    assert (summary["gold"]["items"], summary["gold"]["accuracy"]) == (1, 0.0)


def test_scoring_an_unknown_class_is_one_sentence(cli, labels, here):
    cli("aggregate", labels, "-o", "fit")
    write_csv(here / "new.csv", ["item", "annotator", "label"], [("a", "w6", "dog"), ("a", "w5", "yak")])
    result = cli("aggregate", "new.csv", "--model", "fit", "-o", "out")
    assert (result.exit_code, result.stdout) == (1, "")
    assert (result.error.model, result.error.classes) == (Path("fit"), ("yak",))
    assert not (here / "out").exists()


def test_scoring_takes_no_fitting_options_and_keeps_the_model_s_folder(cli, labels, here):
    cli("aggregate", labels, "-o", "fit")
    before = contents(here / "fit")
    for more in (
        ("--method", "majority-vote"),
        ("--seed", "1"),
        ("--set", "tol=1"),
        ("-o", "fit"),
        ("-o", "./x/../fit"),
    ):
        result = cli("aggregate", labels, "--model", "fit", *more)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert contents(here / "fit") == before


# The folder -----------------------------------------------------------------------------------------------------------


def test_second_run_replaces_the_first_and_leaves_what_is_not_ours(cli, labels, here):
    cli("aggregate", labels, "-o", "out", "--format", "parquet")
    (here / "out" / "notes.txt").write_text("mine")
    cli("aggregate", labels, "-o", "out", "-m", "majority-vote")
    assert sorted(contents(here / "out")) == ["annotators.csv", "items.csv", "model.npz", "notes.txt", "summary.json"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    "step", ["dissensus.table.io.write_json", "dissensus.cli.results.save", "dissensus.cli.results.write_frame"]
)
def test_failed_write_leaves_the_earlier_run_as_it_was(cli, labels, here, monkeypatch, step, error):
    cli("aggregate", labels, "-o", "out")
    before = contents(here)

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(step, fail)
    for folder in ("out", "new/deep/out"):
        result = cli("aggregate", labels, "-o", folder, "-m", "majority-vote")
        interrupted = isinstance(error, KeyboardInterrupt)
        assert result.exit_code == (130 if interrupted else 1)
        assert type(result.error) is (KeyboardInterrupt if interrupted else CannotWrite)
        assert result.stderr.count("\n") == 1
        assert contents(here) == before
    assert not (here / "new").exists()


def test_a_folder_in_the_way_of_a_file_is_an_error_before_anything_moves(cli, labels, here):
    cli("aggregate", labels, "-o", "out")
    (here / "out" / "items.jsonl").mkdir()
    before = contents(here)
    result = cli("aggregate", labels, "-o", "out", "--format", "jsonl")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert contents(here) == before


def test_output_may_be_a_link_to_a_folder(cli, labels, here):
    (here / "link").symlink_to("real")  # once to a folder that is not there yet, once to one that is
    for _ in range(2):
        assert cli("aggregate", labels, "-o", "link").exit_code == 0
        assert (here / "link").is_symlink()
        assert "summary.json" in contents(here / "real")


# Questions ------------------------------------------------------------------------------------------------------------


def test_questions_get_a_folder_each(cli, questions, here):
    result = cli("aggregate", questions, "-o", "out")
    assert result.exit_code == 0
    summary = json.loads((here / "out" / "summary.json").read_text())
    folders = {question: about["folder"] for question, about in summary["questions"].items()}
    assert folders == {"Tone": "Tone", "is it good": "is_it_good", "is it/good?": "is_it_good-2"}
    for question, table in dz.read(questions).items():
        model = dz.methods["consensus"]().fit(table)
        np.testing.assert_array_equal(posterior(here / "out" / folders[question]), model.posterior_)


def test_questions_are_scored_each_with_its_own_model(cli, questions, here):
    cli("aggregate", questions, "-o", "fit")
    kept = [line for line in questions.read_text().splitlines() if not line.startswith("is it good")]
    (here / "fewer.csv").write_text("\n".join(kept) + "\n")
    result = cli("aggregate", "fewer.csv", "--model", "fit", "-o", "out")
    assert result.exit_code == 0
    model = dz.load("fit/is_it_good-2")
    table = dz.read("fewer.csv")["is it/good?"]
    np.testing.assert_array_equal(posterior(here / "out" / "is_it_good"), model.predict_proba(table))
    one = cli("aggregate", "fewer.csv", "--model", "out")
    assert (one.exit_code, one.stderr.count("\n")) == (1, 1)


def test_one_question_after_several_removes_their_tables(cli, questions, labels, here):
    cli("aggregate", questions, "-o", "out")
    cli("aggregate", labels, "-o", "out")
    assert not list((here / "out").glob("*/items.csv"))
    assert (here / "out" / "items.csv").exists()


def test_errors_and_warnings_name_the_question(cli, questions, here):
    result = cli("aggregate", questions, "--max-iter", "2")
    assert [warning.subjects for warning in result.warnings].count(("question 'Tone'",)) == 1
    lines = [*questions.read_text().splitlines(), "void,i000,w0,?"]
    (here / "void.csv").write_text("\n".join(lines) + "\n")
    result = cli("aggregate", "void.csv", "--abstain", "?", "-o", "out")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.error.subjects == ("question 'void'",)
    assert not (here / "out").exists()


def test_gold_for_several_questions_is_refused(cli, questions, here):
    result = cli("aggregate", questions, "--gold", questions, *SCORE)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


@pytest.mark.realdata
def test_rte_is_aggregated_as_well_as_published(cli, data_folder, tmp_path):
    folder = data_folder / "rte"
    files = {stem: next(folder.glob(f"{stem}.csv*")) for stem in ("annotations", "gold")}
    result = cli(
        "aggregate",
        files["annotations"],
        "--gold",
        files["gold"],
        *SCORE,
        "-o",
        tmp_path / "out",
        "--json",
    )
    assert json.loads(result.stdout)["gold"]["accuracy"] > 0.92


def test_what_no_earlier_run_wrote_is_never_overwritten(cli, labels, here):
    Path("items.csv").write_bytes(Path(labels).read_bytes())
    before = contents(here)
    for arguments, error in (
        (("items.csv", "-o", "."), OverwritesInput),
        ((labels, "-o", ".", "--gold", "items.csv", *SCORE), OverwritesInput),
        ((labels, "-o", "."), NotOurFile),
    ):
        result = cli("aggregate", *arguments)
        assert (result.exit_code, type(result.error)) == (2, error)
        assert contents(here) == before


def test_labels_go_back_with_the_names_that_came_in(labels, here, cli):
    renamed = labels.read_text().replace("item,annotator,label", "task,worker,answer")
    (here / "renamed.csv").write_text(renamed)
    assert cli("aggregate", "renamed.csv", "--to", "csv", "-o", "out").exit_code == 0
    header, first, *_ = (here / "out" / "to-csv.csv").read_text().splitlines()
    assert header == "task,worker,answer,confidence"
    assert first.startswith("i000,dissensus consensus,")
    again = cli("aggregate", "renamed.csv", "-o", "out")  # into the same folder, without --to
    assert again.exit_code == 0
    assert not (here / "out" / "to-csv.csv").exists()


def test_questions_go_back_in_one_file(questions, here, cli):
    assert cli("aggregate", questions, "--to", "argilla", "-o", "out").exit_code == 0
    records = json.loads((here / "out" / "to-argilla.json").read_text())
    assert {tuple(record["suggestions"]) for record in records} == {("Tone", "is it good", "is it/good?")}


@pytest.mark.parametrize(
    ("options", "error"), [(["--to", "csv"], OptionNeeds), (["--to", "labelstudio", "-o", "out"], UnknownEntry)]
)
def test_a_wrong_to_is_an_error(labels, cli, options, error):
    result = cli("aggregate", labels, *options)
    assert (result.exit_code, type(result.error)) == (2, error)


def test_an_update_with_the_same_file_warns_and_a_tool_s_file_is_named(cli, labels, here):
    shown = cli("aggregate", labels, "-o", "out", "--to", "csv").stdout
    assert shown.splitlines()[-1].endswith("out/to-csv.csv")
    half = here / "new.csv"
    head, *rest = labels.read_text().splitlines()
    half.write_text("\n".join([head, *(row.replace(",w", ",x") for row in rest[:30])]))
    update = ("--model", "out", "--update", "-o", "again")
    warned = [list(map(type, cli("aggregate", file, *update).warnings)) for file in (labels, half)]
    assert warned == [[CountedTwice], [CountedTwice]]
    new = [row for row in rest if row.startswith("i3")]
    half.write_text("\n".join([head, *(f"new-{row}" for row in new)]))
    assert cli("aggregate", half, *update).warnings == []


def test_an_infinite_log_loss_is_explained_and_accuracy_is_that_of_compare(cli, labels, here):
    head, *rest = labels.read_text().splitlines()
    labels.write_text("\n".join([head, *(row for row in rest if not row.endswith("dog") or "i00" not in row)]))
    shown = cli("aggregate", labels, "--method", "majority-vote", "--gold", "gold.csv", *SCORE).stdout
    assert "log loss infinite" in " ".join(shown.split())
    asked = (
        ["aggregate", *SCORE, "--method", "majority-vote"],
        ["evaluate", "--methods", "majority-vote"],
    )
    one, other = (json.loads(cli(*command, labels, "--gold", "gold.csv", "--json").stdout) for command in asked)
    assert one["gold"]["accuracy"] == pytest.approx(other["methods"][0]["accuracy"])
