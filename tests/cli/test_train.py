"""`dissensus train` and `dissensus predict`: what they write, remember, go on with, and refuse."""

import csv
import importlib
import json
import sys

import numpy as np
import pytest

from cli.tables import CLASSES, SCORE, rows, write_csv
from dissensus.cli import exceptions as faults
from dissensus.cli import show
from dissensus.cli.exceptions import NotNumber, NotOurFile, OtherFormat
from dissensus.cli.inputs import Inputs
from dissensus.cli.train import new_classifier
from dissensus.common.exceptions import OutOfRange, OverwritesInput, UnknownEntry
from dissensus.exceptions import BadParameter, DataError, UnreadableFile
from dissensus.questions.exceptions import NoGoldToScore
from dissensus.table.exceptions import MissingFile
from dissensus.table.io import read_frame

torch = pytest.importorskip("torch", reason="needs the `learning` extra")

QUICK = ("--set", "encoder.hidden=8", "--epochs", "4", "--device", "cpu", "--set", "checkpoint_every=0")
SMALL = (*QUICK, "--objective", "crowd-layer")


def frame(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def summary(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


@pytest.fixture
def features(labels):
    """features.npz of the items of labels.csv and five more, in no order; the truth shows in them."""
    truth = dict(rows()[1]) | {f"i{i:03}": CLASSES[i % 3] for i in range(40, 45)}
    rng = np.random.default_rng(0)
    names = rng.permutation(sorted(truth))
    x = np.array([3.0 * np.eye(3)[CLASSES.index(truth[name])] for name in names]) + rng.standard_normal((45, 3))
    np.savez(labels.parent / "features.npz", item=names, x=x.astype(np.float32))
    return labels.parent / "features.npz"


@pytest.fixture
def texts(labels):
    """items.csv with a column of texts, one of them empty, targets and positions."""
    truth = dict(rows()[1])
    lines = [(name, "" if name == "i007" else f"this one is a {kind} here", kind, 4) for name, kind in truth.items()]
    return write_csv(labels.parent / "items.csv", ["item", "text", "target", "place"], lines)


def test_everything_is_written_and_is_what_the_library_says(cli, labels, features):
    result = cli("train", labels, "--features", features, *SMALL, "-o", "model", "--gold", "gold.csv", *SCORE)
    assert (result.exit_code, result.stderr) == (0, "")
    out = labels.parent / "model"
    names = {"model.safetensors", "items.csv", "annotators.csv", "history.csv", "summary.json"}
    assert {path.name for path in out.iterdir()} == names

    from dissensus import read
    from dissensus.learning import CrowdClassifier

    model = CrowdClassifier.load(out)
    items, about = frame(out / "items.csv"), summary(out)
    assert [row["item"] for row in items] == model.items_.tolist() == [f"i{i:03}" for i in range(45)]
    assert [row["taught"] for row in items] == ["true"] * 40 + ["false"] * 5
    assert list(items[0]) == ["item", "label", "confidence", "model", "taught", "p_cat", "p_dog", "p_owl"]
    with np.load(features) as stored:
        x = stored["x"][np.argsort(stored["item"])]
    again = new_classifier("features", None, "crowd-layer", ["encoder.hidden=8", "epochs=4", "device=cpu"])
    again.fit(read(labels), x[:40])
    np.testing.assert_allclose(again.predict_proba(x), model.predict_proba(x), atol=1e-6)
    assert float(items[3]["p_dog"]) == model.posterior_[3, 1]
    assert len(frame(out / "annotators.csv")) == 7
    assert [row["epoch"] for row in frame(out / "history.csv")] == ["1", "2", "3", "4"]
    assert (about["encoder"], about["objective"], about["taught"], about["without_labels"]) == (
        "mlp",
        "crowd-layer",
        40,
        5,
    )
    assert about["inputs"] == {"kind": "features", "columns": []}
    assert about["gold"]["model"]["trained on"]["items"] == 40
    assert about["gold"]["labels"]["accuracy"] == pytest.approx(
        np.mean([row["label"] == kind for row, (_, kind) in zip(items, rows()[1], strict=False)])
    )
    assert (about["annotations_taught"], about["taught"]) == (280, 40)


def test_as_it_comes_held_out_items_choose_and_a_sentence_says_what(cli, labels, features):
    result = cli("train", labels, "--features", features, *QUICK, "-o", "model")
    assert result.exit_code == 0
    about = summary(labels.parent / "model")
    assert about["objective"] == "auto"
    assert about["note"].startswith("auto chose the weights")
    assert [row["name"] for row in about["candidates"]][:2] == ["linear model", "networks on votes"]
    networks = sum(row["networks"] for row in about["candidates"])
    assert networks == 15
    assert len(frame(labels.parent / "model" / "history.csv")) == about["epochs"] > 0
    assert not (labels.parent / "model" / "checkpoint").exists()


def test_predict_needs_no_options_and_says_what_the_model_says(cli, labels, features):
    cli("train", labels, "--features", features, *SMALL, "-o", "model")
    result = cli("predict", "model", features, "-o", "out.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    from dissensus.learning import CrowdClassifier

    model = CrowdClassifier.load("model")
    with np.load(features) as stored:
        names, proba = stored["item"].tolist(), model.predict_proba(stored["x"])
    found = frame(labels.parent / "out.csv")
    assert list(found[0]) == ["item", "label", "confidence", "p_cat", "p_dog", "p_owl"]
    assert [row["item"] for row in found] == names
    assert [row["label"] for row in found] == model.classes_[proba.argmax(axis=1)].tolist()
    assert [float(row["p_owl"]) for row in found] == proba[:, 2].tolist()
    cli("predict", "model", features, "-o", "out.parquet")
    assert read_frame("out.parquet")["label"].to_pylist() == [row["label"] for row in found]
    shown = cli("predict", "model", features)
    assert names[0] in shown.stdout
    said = json.loads(cli("predict", "model", features, "--json").stdout)
    assert sum(said["labels"].values()) == said["items"] == 45


def test_what_each_annotator_would_say(cli, labels, features):
    cli("train", labels, "--features", features, *SMALL, "-o", "model")
    result = cli("predict", "model", features, "--annotators", "w6,nobody", "-o", "out.csv")
    assert [warning.facts for warning in result.warnings] == [{"annotators": ("nobody",)}]
    from dissensus.learning import CrowdClassifier

    with np.load(features) as stored:
        expected = CrowdClassifier.load("model").predict_annotator_proba(stored["x"], ["w6", "nobody"])
    found = frame(labels.parent / "out.csv")
    assert [row["annotator"] for row in found[:4]] == ["w6", "nobody", "w6", "nobody"]
    np.testing.assert_allclose([float(row["p_cat"]) for row in found], expected[:, :, 0].reshape(-1))


def test_features_may_be_a_table_and_names_numbers(cli, here):
    from dissensus.learning.exceptions import DifferentInputs

    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=30)
    write_csv(here / "f.csv", ["id", "a", "b"], [(i, 4 * truth[i] + rng.normal(), i % 7) for i in range(30)])
    labels = write_csv(
        here / "l.csv", ["item", "annotator", "label"], [(i, a, truth[i]) for i in range(25) for a in range(3)]
    )
    result = cli("train", labels, "--features", "f.csv", *SMALL, "--objective", "soft", "-o", "model")
    assert (result.exit_code, result.stderr) == (0, "")
    assert summary(here / "model")["inputs"] == {"kind": "features", "columns": ["a", "b"]}
    write_csv(here / "new.csv", ["b", "id", "a"], [(1, "x", 4), (1, "y", 0)])
    assert cli("predict", "model", "new.csv", "-o", "out.csv").exit_code == 0
    assert [row["item"] for row in frame(here / "out.csv")] == ["x", "y"]
    write_csv(here / "bad.csv", ["id", "a", "b"], [(1, "four", 2)])
    error = cli("predict", "model", "bad.csv").error
    assert (error.column, error.row, error.value, error.kind) == ("a", 0, "four", "number")
    write_csv(here / "bad.csv", ["id", "a"], [(1, 2)])
    error = cli("predict", "model", "bad.csv").error
    assert (error.column, error.role, error.columns) == ("b", "inputs", "'id', 'a'")
    write_csv(here / "bad.csv", ["id", "a", "b"], [(1, 2, 3), (1, 2, 4)])
    assert type(cli("predict", "model", "bad.csv").error) is DifferentInputs
    write_csv(here / "bad.csv", ["id", "a", "b"], [(1, "", 3)])
    error = cli("predict", "model", "bad.csv").error
    assert (error.item, error.column, error.number) == ("1", "'a'", 1)
    names, x = [f"i{i:03}" for i in range(40)][::-1], np.ones((40, 2))
    x[3, 1] = np.inf
    np.savez(here / "bad.npz", item=np.array(names), x=x)  # in another order than the table's
    result = cli("train", labels, "--features", "bad.npz", "-o", "other")
    assert (result.error.item, result.error.value, result.error.column) == ("i036", np.inf, "1")


def test_texts_are_found_and_remembered(cli, labels, texts):
    plain = ("--encoder", "text-cnn", "--set", "encoder.vectors=none", "--epochs", "1", "--device", "cpu")
    result = cli("train", labels, "--items", texts, *plain, "-o", "model")
    assert (result.exit_code, result.stderr) == (0, "")
    assert summary(labels.parent / "model")["inputs"] == {"kind": "texts", "columns": ["text"]}
    write_csv(labels.parent / "new.csv", ["text", "task"], [("a dog", "n1"), ("", "n2")])
    assert cli("predict", "model", "new.csv", "-o", "out.csv").exit_code == 0
    assert [row["item"] for row in frame(labels.parent / "out.csv")] == ["n1", "n2"]


def test_an_export_brings_its_texts(cli, labels):
    tasks = [
        {
            "id": i,
            "data": {"text": f"a {('cat', 'dog')[i % 2]} here"},
            "annotations": [
                {
                    "completed_by": who,
                    "result": [{"type": "choices", "from_name": "k", "value": {"choices": [("cat", "dog")[i % 2]]}}],
                }
                for who in (1, 2)
            ],
        }
        for i in range(12)
    ]
    (labels.parent / "export.json").write_text(json.dumps(tasks), encoding="utf-8")
    plain = ("--encoder", "text-cnn", "--set", "encoder.vectors=none", "--epochs", "1", "--device", "cpu")
    result = cli("train", "export.json", *plain, "--objective", "soft", "-o", "model")
    assert (result.exit_code, result.stderr) == (0, "")
    about = summary(labels.parent / "model")
    assert (about["inputs"], about["items"]) == ({"kind": "texts", "columns": ["text"]}, 12)
    assert result.stdout.count("Read as") == 1


def test_pairs_and_positions_are_read(texts):
    from dissensus.cli.inputs import Inputs
    from dissensus.cli.options import InputFiles

    path, pairs = Inputs.choose(InputFiles(texts, None, "target", None, None, None))
    assert (path, pairs) == (texts, Inputs("pairs", ("text", "target")))
    names, X = pairs.read(path)
    assert X[0] == (f"this one is a {X[0][1]} here", dict(rows()[1])[names[0]])
    places = Inputs.choose(InputFiles(texts, "text", None, "place", None, None))[1]
    assert places.read(texts)[1][7] == ("", 4)
    write_csv(texts, ["item", "text", "place"], [("a", "b c", "x")])
    with pytest.raises(NotNumber) as caught:
        places.read(texts)
    assert (caught.value.column, caught.value.value) == ("place", "x")


def test_images_are_read_and_remembered(cli, labels):
    names = np.array([f"i{i:03}" for i in range(40)])
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(labels.parent / "images.npz", item=names, x=pixels)
    small = ("--set", "encoder.depth=10", "--set", "encoder.widen=1", "--epochs", "1", "--device", "cpu")
    result = cli("train", labels, "--images", "images.npz", *small, "-o", "model")
    assert (result.exit_code, result.stderr) == (0, "")
    assert cli("predict", "model", "images.npz", "-o", "out.csv").exit_code == 0
    assert len(frame(labels.parent / "out.csv")) == 40
    assert type(cli("predict", "model", "labels.csv").error) is OtherFormat


def test_a_model_of_npz_features_is_not_asked_about_a_table(cli, labels, features):
    assert (
        cli("train", labels, "--features", features, "--epochs", "1", "--device", "cpu", "-o", "model").exit_code == 0
    )
    result = cli("predict", "model", labels)
    assert (result.exit_code, result.error.content) == (2, "features")


def test_what_encodes_each_kind_of_input_by_default():
    def made(kind, *settings):
        return new_classifier(kind, None, "crowd-layer", list(settings)).encoder

    assert [type(made(kind)).__name__ for kind in ("texts", "pairs", "positions", "features", "images")] == [
        "Transformer",
        "Transformer",
        "Tagger",
        "MLP",
        "WideResNet",
    ]
    assert made("texts").tune is False
    assert made("texts", "encoder.tune=true").tune is True
    assert new_classifier("texts", "transformer", "hard", []).encoder.tune is True
    assert new_classifier("features", None, "crowd-layer", ["monitor=macro-f1"]).monitor == "macro-f1"


@pytest.mark.parametrize("column", ["item", "doc"])
def test_texts_are_read_from_the_file_of_the_labels(cli, labels, texts, column):
    """`--text` without `--items` gives the model that the texts in a file of their own give."""
    text = {row["item"]: row for row in frame(texts)}
    given = [(row["item"], row["annotator"], row["label"], text[row["item"]]["text"]) for row in frame(labels)]
    write_csv(labels.parent / "all.csv", [column, "annotator", "label", "words"], given)
    plain = ("--encoder", "text-cnn", "--set", "encoder.vectors=none", "--epochs", "1", "--device", "cpu")
    named = () if column == "item" else ("--item", column)
    assert cli("train", "labels.csv", "--items", "items.csv", *plain, "-o", "two").exit_code == 0
    result = cli("train", "all.csv", "--text", "words", *named, *plain, "-o", "one")
    assert (result.exit_code, result.stderr) == (0, "")
    assert summary(labels.parent / "one")["inputs"] == {"kind": "texts", "columns": ["words"]}
    assert (labels.parent / "one" / "items.csv").read_text() == (labels.parent / "two" / "items.csv").read_text()


def test_an_item_with_two_texts_in_the_file_of_the_labels_is_an_error(cli, here):
    from dissensus.learning.exceptions import DifferentInputs

    write_csv(here / "all.csv", ["item", "annotator", "label", "text"], [("a", 1, "x", "one"), ("a", 2, "y", "two")])
    result = cli("train", "all.csv", "--text", "text", "-o", "model")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    with pytest.raises(DifferentInputs) as caught:
        Inputs("texts", ("text",)).read(here / "all.csv")
    assert (caught.value.item, caught.value.n_rows) == ("'a'", 2)
    assert not (here / "model").exists()


def test_items_without_inputs_are_left_out_and_counted(cli, labels, features):
    with np.load(features) as stored:
        keep = stored["item"] != "i003"
        np.savez(features, item=stored["item"][keep], x=stored["x"][keep])
    result = cli("train", labels, "--features", features, *SMALL, "-o", "model")
    assert result.exit_code == 0
    (warning,) = result.warnings
    assert (warning.number, warning.items, warning.item) == (1, 40, "i003")
    assert summary(labels.parent / "model")["taught"] == 39


def interrupted(monkeypatch, epoch):
    """The next run is interrupted after so many epochs."""
    from contextlib import contextmanager

    @contextmanager
    def waiting(text, total=None):
        def on_step(step, objective):
            if step == epoch and "training" in text:
                raise KeyboardInterrupt

        yield on_step

    monkeypatch.setattr(show, "show_progress", waiting)


@pytest.mark.parametrize("epoch", [3, 6])  # while learning, and in the first fold
def test_a_run_that_was_stopped_is_resumed_and_reported(cli, labels, features, monkeypatch, epoch):
    command = ("train", labels, "--features", features, *SMALL, "--folds", "2", "--set", "mixup=0.4")
    assert cli(*command, "-o", "whole").exit_code == 0
    with monkeypatch.context() as patch:
        interrupted(patch, epoch)
        assert cli(*command, "-o", "part").exit_code == 130
    part, whole = labels.parent / "part", labels.parent / "whole"
    assert [path.name for path in part.iterdir()] == ["checkpoint"]
    result = cli(*command, "-o", "part")
    assert result.exit_code == 0
    assert "part/checkpoint" in result.stderr
    for name in ("items.csv", "out_of_fold.csv", "annotators.csv"):
        assert (part / name).read_bytes() == (whole / name).read_bytes()
    assert not (part / "checkpoint").exists()


def test_a_checkpoint_of_another_run_is_refused_unless_started_anew(cli, labels, features, monkeypatch):
    command = ("train", labels, "--features", features, *SMALL, "-o", "model")
    with monkeypatch.context() as patch:
        interrupted(patch, 2)
        cli(*command)
    result = cli(*command, "--seed", "5")
    assert (result.exit_code, type(result.error)) == (1, faults.OtherCheckpoint)
    assert not (labels.parent / "model" / "summary.json").exists()
    assert cli(*command, "--seed", "5", "--fresh").exit_code == 0


def test_a_run_that_ended_in_an_error_leaves_nothing_in_the_way_of_what_it_advises(cli, labels, features):
    command = ("train", labels, "--features", features, *QUICK, "--objective", "soft", "-o", "model")
    assert "lower the learning rate" in cli(*command, "--learning-rate", "1e30").stderr
    result = cli(*command, "--learning-rate", "0.01")
    assert (result.exit_code, result.stderr) == (0, "")


def test_folds_are_written_and_the_report_rests_on_them(cli, labels, features):
    command = (
        "train",
        labels,
        "--features",
        features,
        *SMALL,
        "--gold",
        "gold.csv",
        *SCORE,
        "-o",
        "model",
    )
    about = json.loads(cli(*command, "--folds", "2", "--json").stdout)
    assert about["folds"] == 2
    assert about["gold"]["model"]["out of fold"]["items"] == 40
    found = frame(labels.parent / "model" / "out_of_fold.csv")
    assert sorted({row["fold"] for row in found}) == ["-1", "0", "1"]
    report = (
        "report",
        labels,
        "--method",
        "dawid-skene",
        "--model",
        "model",
        "--gold",
        "gold.csv",
        *SCORE,
    )
    result = cli(*report)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = json.loads((labels.parent / "report.json").read_text(encoding="utf-8"))["sections"]["model"]
    assert (shown["basis"], shown["judged"]) == ("out of fold", 40)
    cli(*command)  # without folds: their file of the earlier run is gone
    assert not (labels.parent / "model" / "out_of_fold.csv").exists()
    cli(*report)
    shown = json.loads((labels.parent / "report.json").read_text(encoding="utf-8"))["sections"]["model"]
    assert shown["basis"] == "trained on"


def test_lia_s_difficulty_and_competence_are_written(cli, labels, features):
    cli("train", labels, "--features", features, *SMALL, "--objective", "lia", "-o", "model")
    items, people = (frame(labels.parent / "model" / f"{kind}.csv") for kind in ("items", "annotators"))
    assert all(0 <= float(row["difficulty"]) <= 1 for row in items)
    assert all(0 <= float(row[f"competence_{where}"]) <= 1 for row in people for where in ("all", "easiest", "hardest"))


def test_known_labels_teach_and_are_not_measured_by(cli, labels, features):
    known = write_csv(labels.parent / "known.csv", ["item", "label"], [*rows()[1][:10], ("i044", "owl")])
    about = json.loads(
        cli(
            "train", labels, "--features", features, *SMALL, "--gold", known, "--score-gold", "gold.csv", "-o", "model",
            "--objective", "hard", "--set", "objective.labels=gold", "--json",
        ).stdout
    )  # fmt: skip
    assert (about["taught"], about["without_labels"]) == (11, 34)
    assert about["gold"]["model"] == {"without labels": about["gold"]["model"]["without labels"]}
    assert about["gold"]["model"]["without labels"]["items"] == 30


def test_where_all_that_is_known_was_taught_no_empty_table_is_shown(cli, labels, features):
    known = ("--gold", "gold.csv", "--score-gold", "gold.csv", "-o", "model")
    result = cli("train", labels, "--features", features, *SMALL, *known)
    assert list(map(type, result.warnings)) == [NoGoldToScore]
    assert "By gold" not in result.stdout


def test_help_lists_every_encoder_and_objective(cli):
    from dissensus.learning.encoders import encoders
    from dissensus.learning.objectives import objectives

    text = " ".join(cli("train", "--help").stdout.split())
    for registry in (encoders, objectives):
        for name, entry in registry.entries():
            assert f"{name} ({entry.summary})" in text


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ([], 2, faults.NoInputs),
        (["--features", "features.npz", "--items", "items.csv"], 2, faults.OptionsConflict),
        (["--features", "features.npz", "--text", "text"], 2, faults.OptionNeeds),
        (["--items", "items.csv", "--pair", "a", "--position", "b"], 2, faults.OptionsConflict),
        (["--items", "gold.csv"], 1, faults.ColumnMissing),
        (["--items", "items.csv", "--text", "txt", "--encoder", "text-cnn"], 1, faults.ColumnMissing),
        (["--features", "missing.npz"], 1, UnreadableFile),
        (["--features", "features.npz", "--encoder", "mpl"], 2, UnknownEntry),
        (["--features", "features.npz", "--objective", "crowd"], 2, UnknownEntry),
        (["--features", "features.npz", "--set", "encoder.droput=1"], 2, faults.UnknownSetting),
        (["--features", "features.npz", "--set", "objective.labels"], 2, faults.BadSetting),
        (["--features", "features.npz", "--set", "decoder.x=1"], 2, faults.UnknownSetting),
        (["--features", "features.npz", "--set", "encoder.hidden=a,b"], 2, faults.BadSetting),
        (["--features", "features.npz", "--set", "checkpoint=x"], 2, faults.SettingHasOption),
        (["--features", "features.npz", "--epochs", "-1"], 2, OutOfRange),
        (["--features", "features.npz", "--objective", "soft", "--patience", "3"], 2, BadParameter),
        (["--features", "features.npz", "--validation", "2"], 2, OutOfRange),
        (["--features", "features.npz", "--folds", "41"], 2, BadParameter),
        (["--features", "other.npz"], 1, faults.NoCommonItems),
        (["--images", "items.csv"], 2, faults.OtherFormat),
    ],
)
def test_bad_usage_is_one_sentence_and_leaves_nothing(cli, labels, features, texts, arguments, code, error):
    np.savez(labels.parent / "other.npz", item=np.array(["x", "y"]), x=np.ones((2, 3)))
    more = ("--epochs", "1", "--device", "cpu") if "--epochs" not in arguments else ()
    result = cli("train", "labels.csv", *more, *arguments, "-o", "model")
    assert isinstance(result.error, error), result.error
    assert (result.exit_code, result.stderr.count("\n")) == (code, 1)
    folder = labels.parent / "model"
    assert not folder.exists() or not list(folder.iterdir())


def test_questions_are_taken_one_by_one(cli, questions, here):
    np.savez(here / "x.npz", item=np.array([f"i{i:03}" for i in range(20)]), x=np.ones((20, 2)))
    result = cli("train", questions, "--features", "x.npz", "-o", "model")
    assert (result.exit_code, result.error.count) == (2, 3)


def test_what_no_earlier_run_wrote_is_not_overwritten(cli, labels, features):
    (labels.parent / "model").mkdir()
    (labels.parent / "model" / "items.csv").write_text("mine", encoding="utf-8")
    result = cli("train", labels, "--features", features, *SMALL, "-o", "model")
    assert (result.exit_code, type(result.error)) == (2, NotOurFile)
    assert (labels.parent / "model" / "items.csv").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["nowhere", "features.npz"], 1, MissingFile),
        (["empty", "features.npz"], 1, faults.NotWrittenBy),
        (["stopped", "features.npz"], 1, faults.TrainingStopped),
        (["model", "missing.npz"], 1, UnreadableFile),
        (["model", "gold.csv", "-o", "out.pdf"], 2, faults.UnknownSuffix),
        (["model", "features.npz", "-o", "no/out.csv"], 2, faults.FolderMissing),
        (["model", "gold.csv", "-o", "gold.csv"], 2, OverwritesInput),
        (["model", "narrow.npz"], 1, DataError),
    ],
)
def test_bad_usage_of_predict_is_one_sentence(cli, labels, features, arguments, code, error):
    cli("train", labels, "--features", features, *SMALL, "-o", "model")
    for name in ("empty", "stopped/checkpoint"):
        (labels.parent / name).mkdir(parents=True)
    np.savez(labels.parent / "narrow.npz", item=np.array(["x"]), x=np.ones((1, 2)))
    result = cli("predict", *arguments)
    assert isinstance(result.error, error), result.error
    assert (result.exit_code, result.stderr.count("\n")) == (code, 1)


@pytest.mark.parametrize("command", ["train", "predict"])
def test_without_torch_the_extra_is_named(cli, labels, features, monkeypatch, command):
    arguments = {
        "train": ("train", labels, "--features", features, *SMALL, "-o", "other"),
        "predict": ("predict", "model", features),
    }
    cli("train", labels, "--features", features, *SMALL, "-o", "model")
    loaded = [name for name in sys.modules if name.startswith("dissensus.learning")]
    for name in set(loaded) - {"dissensus.learning.exceptions"}:  # a second class of an error would stay for ever
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError):
        importlib.import_module("dissensus.learning")
    result = cli(*arguments[command])
    assert (result.exit_code, "dissensus[learning]" in result.stderr) == (1, True)


@pytest.fixture
def splits(labels, features):
    """items.csv with features as columns and what each item is for; teach.csv and dev.csv have the labels of two."""
    with np.load(features) as arrays:
        names, x = arrays["item"].tolist(), arrays["x"]
    words = ["train", "Training", "", "dev", "test"]
    told = {name: words[i % 5] for i, name in enumerate(names)}
    header = ["item", "split", "a", "b", "c"]
    lines = [(name, told[name], *row) for name, row in zip(names, x.tolist(), strict=True)]
    write_csv(labels.parent / "items.csv", header, lines)
    write_csv(labels.parent / "plain.csv", ["item", "a", "b", "c"], [(name, *rest) for name, _, *rest in lines])
    given = frame(labels)
    for file, kinds in (("teach.csv", ("train", "Training")), ("dev.csv", ("dev",))):
        kept = [row.values() for row in given if told[row["item"]] in kinds]
        write_csv(labels.parent / file, ["item", "annotator", "label"], kept)
    right = [(item, label) for item, label in rows()[1] if told[item] == "dev"]
    write_csv(labels.parent / "dev_gold.csv", ["item", "label"], right)
    return labels


def test_items_of_another_file_or_a_column_judge_and_do_not_teach(cli, splits):
    from dissensus import read
    from dissensus.evaluation import cross_entropy
    from dissensus.learning import CrowdClassifier

    here, common = splits.parent, (*QUICK, "--objective", "soft", "--features")
    assert cli("train", "teach.csv", *common, "plain.csv", "--validation", "dev.csv", "-o", "by_file").stderr == ""
    assert cli("train", splits, *common, "items.csv", "--split", "split", "-o", "by_column").stderr == ""
    by_file, by_column = ([{**row, "seconds": ""} for row in frame(here / name / "history.csv")]
                          for name in ("by_file", "by_column"))  # fmt: skip
    assert by_file == by_column
    assert summary(here / "by_file")["inputs"] == summary(here / "by_column")["inputs"]
    model, dev = CrowdClassifier.load(here / "by_column"), read("dev.csv")
    at = np.searchsorted(model.items_, dev.items)
    loss = cross_entropy(dev.soft_labels(), model.proba_[at]).mean()
    assert loss == pytest.approx(model.history_[model.best_epoch_ - 1]["cross-entropy"], abs=1e-6)
    assert summary(here / "by_column")["held_out"] == dev.n_items
    assert not model.labelled_[at].any()

    scored = (
        "--features",
        "items.csv",
        "--split",
        "split",
        "--gold",
        "gold.csv",
        *SCORE,
        "-o",
        "scored",
        "--json",
    )
    about = json.loads(cli("train", splits, *QUICK, *scored).stdout)
    counts = {basis: one["items"] for basis, one in about["gold"]["model"].items()}
    assert counts == {"held out": 9, "without labels": 14, "trained on": 17}  # what judged is no test
    assert (about["taught"], about["held_out"], about["without_labels"]) == (17, 9, 19)  # 5 of 45 have no labels
    cli("report", splits, "--method", "dawid-skene", "--model", "scored", "--gold", "gold.csv", *SCORE)
    shown = json.loads((here / "report.json").read_text(encoding="utf-8"))["sections"]["model"]
    assert (shown["basis"], shown["chosen_by"]) == ("not seen", True)

    gold = ("--validation", "dev_gold.csv", "--gold", "gold.csv", "-o", "by_gold")
    result = cli("train", splits, *common, "plain.csv", *gold)
    assert [warning.number for warning in result.warnings] == [dev.n_items]
    taught = {row["item"] for row in frame(here / "by_gold" / "items.csv") if row["taught"] == "true"}
    assert len(taught) == 40 - dev.n_items
    assert taught.isdisjoint(dev.items)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--validation", "none.csv"), faults.BadValidation),
        (("--validation", "other.csv"), faults.NoCommonItems),
        (("--validation", "0.1", "--split", "split"), faults.OptionsConflict),
        (("--split", "when"), faults.ColumnMissing),
        (("--split", "b"), faults.BadSplit),
        (("--split", "late"), faults.NothingToTrain),
    ],
)
def test_a_split_that_cannot_be_is_an_error(cli, splits, options, error):
    lines = [[*row.values(), "test"] for row in frame(splits.parent / "plain.csv")]
    write_csv(splits.parent / "late.csv", ["item", "a", "b", "c", "late"], lines)
    write_csv(splits.parent / "other.csv", ["item", "annotator", "label"], [("z", "x", "cat")])
    inputs = "late.csv" if "late" in options else "plain.csv"
    result = cli("train", splits, *QUICK, "--features", inputs, *options, "-o", "out")
    assert result.exit_code != 0
    assert isinstance(result.error, error)
