from __future__ import annotations

import json

import numpy as np
import pytest

import dissensus as dz
from cli.tables import write_csv
from dissensus.exceptions import BadParameter, DataError, MissingColumn, UnknownName
from dissensus.models.methods import OneCoin
from dissensus.questions import findings as f
from dissensus.questions import item_status
from dissensus.questions.exceptions import ItemUnknownToModel, NoAnnotatorNamed, NoModelFile, NotInTable
from dissensus.table.io import read_frame
from found import error_of, shown


@pytest.fixture
def some(labels):
    """some.csv: the labels of labels.csv without those of every third item by the last four annotators."""
    rows = [row.split(",") for row in labels.read_text().splitlines()[1:]]
    kept = [row for row in rows if int(row[0][1:]) % 3 or row[1] < "w3"]
    return write_csv(labels.parent / "some.csv", ["item", "annotator", "label"], kept)


def test_file_has_the_library_s_recommendation(cli, some):
    result = cli("recommend", some, "--budget", 12, "--per-item", 2, "--capacity", 5, "-o", "next.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Annotators with the most of these labels: " in result.stdout
    table = dz.read(some)
    found = dz.recommend(dz.methods["consensus"]().fit(table), table, budget=12, per_item=2, capacity=5)
    written = read_frame("next.csv")
    assert written.column_names == [
        "rank",
        "item",
        "annotator",
        "gain",
        "about_item",
        "cost",
        "gain_per_cost",
        "p_change",
    ]
    assert written["item"].to_pylist() == found.items.tolist()
    assert written["annotator"].to_pylist() == found.annotators.tolist()
    assert [float(gain) for gain in written["gain"].to_pylist()] == found.gain.tolist()
    assert shown(next(found.findings())) in result.stdout


def test_first_labels_are_shown_and_json_has_all(cli, some):
    shown = cli("recommend", some, "--budget", 20)
    assert "most useful labels" in shown.stdout
    assert "Nothing was written" in shown.stdout
    parsed = json.loads(cli("recommend", some, "--budget", 20, "--method", "one-coin", "--json").stdout)
    assert (parsed["labels"], parsed["candidates"], len(parsed["recommended"])) == (20, 56, 20)
    assert parsed["gain"] == pytest.approx(sum(row["gain"] for row in parsed["recommended"]))


def test_an_earlier_model_is_asked(cli, some):
    dz.save(OneCoin().fit(dz.read(some)), "results")
    asked = json.loads(cli("recommend", some, "--budget", 9, "--model", "results", "--json").stdout)
    fitted = json.loads(cli("recommend", some, "--budget", 9, "--method", "one-coin", "--json").stdout)
    assert asked["recommended"] == fitted["recommended"]
    refused = cli("recommend", some, "--budget", 9, "--model", "results", "--method", "mace")
    assert (refused.exit_code, isinstance(error_of(refused), BadParameter)) == (2, True)


def test_prices_come_from_a_number_or_a_file(cli, some, here):
    write_csv(here / "prices.csv", ["worker", "cost"], [("w3", 1), ("w4", 2), ("w5", 100)])
    parsed = json.loads(
        cli("recommend", some, "--budget", 10, "--annotators", "w3,w4,w5", "--cost", "prices.csv", "--json").stdout
    )
    assert {row["annotator"]: row["cost"] for row in parsed["recommended"]} == {"w3": 1, "w4": 2}
    assert parsed["cost"] <= 10
    same = json.loads(cli("recommend", some, "--budget", 10, "--cost", "2.5", "--json").stdout)
    assert same["labels"] == 4
    lacking = cli("recommend", some, "--budget", 10, "--cost", "prices.csv")
    assert (lacking.exit_code, isinstance(error_of(lacking), DataError)) == (1, True)
    write_csv(here / "bad.csv", ["worker", "cost"], [("w3", "much")])
    for name in ("bad.csv", "twice.csv"):
        write_csv(here / "twice.csv", ["worker", "cost"], [("w3", 1), ("w3", 1), ("w3", 5)])
        refused = cli("recommend", some, "--budget", 10, "--annotators", "w3", "--cost", name)
        assert isinstance(error_of(refused), DataError), name
    write_csv(here / "none.csv", ["worker", "price"], [("w3", "1")])
    assert isinstance(error_of(cli("recommend", some, "--budget", 10, "--cost", "none.csv")), MissingColumn)


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["--budget", "-1"], 2, BadParameter),
        (["--budget", "5", "--annotators", "w9"], 1, NotInTable),
        (["--budget", "5", "--annotators", ", "], 2, NoAnnotatorNamed),
        (["--budget", "5", "--method", "dawid-skeen"], 2, UnknownName),
        (["--budget", "5", "-o", "next.xls"], 2, BadParameter),
        (["--budget", "5", "-o", "some.csv"], 2, BadParameter),
        (["--budget", "5", "--cost", "nowhere.csv"], 1, DataError),
    ],
)
def test_what_is_wrong_is_one_sentence(cli, some, options, code, error):
    result = cli("recommend", some, *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert isinstance(error_of(result), error)
    assert result.stderr.count("\n") == 1


def test_a_file_of_questions_is_refused(cli, questions):
    refused = cli("recommend", questions, "--budget", 5)
    assert (refused.exit_code, isinstance(error_of(refused), BadParameter)) == (2, True)


def rows_of(result):
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["recommended"]


def same_rows(ours, theirs):
    assert [(row["item"], row["annotator"]) for row in ours] == list(
        zip(theirs.items.tolist(), theirs.annotators.tolist(), strict=True)
    )
    assert [row["gain"] for row in ours] == pytest.approx(theirs.gain.tolist(), rel=1e-6)


@pytest.mark.parametrize("features", [False, True])
def test_a_saved_lia_is_asked(cli, some, features):
    pytest.importorskip("torch", reason="needs the `learning` extra")
    from dissensus.learning import LIA

    table = dz.read(some)
    X = np.random.default_rng(0).normal(size=(table.n_items, 3)) if features else None
    model = LIA(steps=20, hidden=(4,)).fit(table, X)
    model.save("lia")
    expected = dz.recommend(model, table, budget=9, per_item=1)
    for named in ("lia", "lia/lia.safetensors"):
        same_rows(rows_of(cli("recommend", some, "--budget", 9, "--per-item", 1, "--model", named, "--json")), expected)


@pytest.mark.parametrize("objective", ["lia", "crowd-layer", "soft"])
def test_a_trained_model_is_asked(cli, some, here, objective):
    pytest.importorskip("torch", reason="needs the `learning` extra")
    from dissensus.learning import CrowdClassifier

    table = dz.read(some)
    np.savez(here / "features.npz", item=table.items.astype(str), x=np.eye(table.n_items, 5, dtype=np.float32))
    small = ("--set", "encoder.hidden=4", "--epochs", "2", "--device", "cpu", "--objective", objective)
    trained = cli("train", some, "--features", "features.npz", *small, "-o", "trained")
    assert trained.exit_code == 0, trained.stderr
    expected = dz.recommend(CrowdClassifier.load("trained", device="cpu"), table, budget=9)
    same_rows(rows_of(cli("recommend", some, "--budget", 9, "--model", "trained", "--json")), expected)
    more = write_csv(here / "more.csv", ["item", "annotator", "label"], [("new", "w0", str(table.classes[0]))])
    refused = cli("recommend", more, "--budget", 9, "--model", "trained")
    assert refused.exit_code == 1
    error = error_of(refused)
    assert (type(error), error.item, error.model) == (ItemUnknownToModel, "new", "CrowdClassifier")


def test_which_model_is_asked_is_never_a_guess(cli, some, here):
    dz.save(OneCoin().fit(dz.read(some)), "results")
    (here / "results" / "lia.safetensors").write_bytes(b"")
    refused = cli("recommend", some, "--budget", 9, "--model", "results")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert error_of(refused).files == ("model.npz", "lia.safetensors")
    assert cli("recommend", some, "--budget", 9, "--model", "results/model.npz").exit_code == 0
    (here / "empty").mkdir()
    missing = cli("recommend", some, "--budget", 9, "--model", "empty")
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)
    assert (type(error_of(missing)), str(error_of(missing).path)) == (NoModelFile, "empty")


def test_limits_are_said_and_can_be_changed(cli, some):
    usual = cli("recommend", some, "--budget", 30)
    assert shown(f.CapacityLimit()) in usual.stdout
    assert shown(f.LabelsPerItemLimit(labels=10)) in usual.stdout
    assert "nats" not in usual.stdout
    parsed = json.loads(cli("recommend", some, "--budget", 30, "--json").stdout)
    limits = parsed["limits"]
    assert (limits["labels_per_item"], limits["settled_confidence"]) == (10, item_status.SETTLED_CONFIDENCE)
    assert parsed["cost_per_change"] == pytest.approx(parsed["cost"] / parsed["expected_changes"])
    free = ("--capacity", "none", "--per-item", "none", "--settled", "none")
    table = dz.read(some)
    same_rows(
        rows_of(cli("recommend", some, "--budget", 30, "--method", "one-coin", *free, "--json")),
        dz.recommend(OneCoin().fit(table), table, budget=30, capacity=None, per_item=None, settled=None),
    )
    lifted = cli("recommend", some, "--budget", 30, *free).stdout
    assert not any(name in lifted for name in ("--capacity", "--per-item", "--settled"))
    less = json.loads(cli("recommend", some, "--budget", 30, "--settled", "0.5", "--json").stdout)
    assert less["limits"]["settled_items"] > parsed["limits"]["settled_items"]


def test_nothing_left_to_buy_is_said(cli, labels):
    result = cli("recommend", labels, "--budget", 500, "-o", "next.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    assert shown(f.EverythingLabelled(budget_left=None)) in result.stdout
    assert read_frame("next.csv").num_rows == 0


def test_a_budget_that_cannot_be_spent_is_said(cli, some):
    result = cli("recommend", some, "--budget", 500, "--capacity", "2")
    assert shown(f.LimitsReached(budget_left=0.0)).partition(": ")[2] in result.stdout


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("--capacity", "many", "--capacity must be a whole number, at least 0, or auto, or none; got 'many'"),
        ("--per-item", "0", "--per-item must be a whole number, at least 1, or auto, or none; got '0'"),
        ("--settled", "1.5", "--settled must be a number above 0 and at most 1, or none; got '1.5'"),
        ("--settled", "auto", "--settled must be a number above 0 and at most 1, or none; got 'auto'"),
    ],
)
def test_a_wrong_limit_is_one_sentence(cli, some, name, value, words):
    result = cli("recommend", some, "--budget", 5, name, value)
    assert (result.exit_code, result.stdout, words in result.stderr) == (2, "", True)
