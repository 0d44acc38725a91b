import csv
import json

from cli.tables import rows, write_csv
from dissensus.cli.exceptions import OptionNeeds
from dissensus.exceptions import BadParameter
from dissensus.questions import findings as f
from found import error_of, shown


def snapshots(here):
    header, (all_rows, _) = ["item", "annotator", "label"], rows(60, 7)
    write_csv(here / "old.csv", header, all_rows[:280])
    changed = [(i, w, "cat" if (i, w) in {("i000", f"w{a}") for a in range(7)} else label) for i, w, label in all_rows]
    write_csv(here / "new.csv", header, changed)


def test_labels_flips_and_drift_are_shown_and_kept(here, cli):
    snapshots(here)
    result = cli("check", "new.csv", "--against", "old.csv", "-o", "out", "--exit-zero")
    assert result.exit_code == 0, result.output
    changed = {"new_items": 20, "lost_items": 0, "new_annotators": 0, "lost_annotators": 0}
    assert shown(f.ItemsAndAnnotatorsChanged(**changed)) in result.stdout
    assert "Items with another answer" in result.stdout
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "annotators.csv", "items.csv", "labels.csv", "summary.json"
    ]  # fmt: skip
    with (here / "out" / "labels.csv").open() as file:
        assert {row["change"] for row in csv.DictReader(file)} == {"added", "changed"}
    summary = json.loads((here / "out" / "summary.json").read_text())
    assert "i000" in [one["item"] for one in summary["flipped"]]


def test_json_says_the_same(here, cli):
    snapshots(here)
    facts = json.loads(cli("check", "new.csv", "--against", "old.csv", "--json").stdout)["changes"]
    assert facts["labels"]["added"] == 140
    assert facts["tested_annotators"] == 7
    assert {"item", "old", "new", "reason"} <= facts["flipped"][0].keys()


def test_questions_are_compared_one_by_one(questions, here, cli):
    (here / "later.csv").write_text(questions.read_text())
    facts = json.loads(cli("check", "later.csv", "--against", questions, "--json").stdout)
    assert {one["changes"]["verdict"] for one in facts["questions"].values()} == {str(f.NoLabelChanged())}
    assert len(facts["questions"]) == 3


def test_wrong_use_is_one_sentence(labels, questions, here, cli):
    result = cli("check", questions, "--against", labels)
    assert result.exit_code == 2
    assert isinstance(error_of(result), BadParameter)
    assert cli("check", labels).exit_code == 2
    assert cli("check", "nowhere.csv", "--against", labels).exit_code == 2
    for name in ("-o", "--level"):
        assert isinstance(error_of(cli("check", labels, "--min-labels", 1, name, "0.1")), OptionNeeds)


def test_a_failed_check_ends_with_0_on_request(here, cli):
    snapshots(here)
    command = ["check", "new.csv", "--against", "old.csv", "--max-flips", 0]
    assert [cli(*command, *more).exit_code for more in ((), ("--exit-zero",))] == [1, 0]


def test_times_are_said_and_tell_the_older_snapshot(here, cli):
    header, (some, _) = ["item", "annotator", "label", "created_at"], rows(20, 4)
    for name, day in (("old", 10), ("new", 20)):
        timed = [(*row, f"2026-03-{day + i % 5:02}T10:00:00") for i, row in enumerate(some)]
        write_csv(here / f"{name}.csv", header, timed)
    right, wrong = (
        cli("check", new, "--against", old, "--exit-zero")
        for old, new in (("old.csv", "new.csv"), ("new.csv", "old.csv"))
    )
    assert "time 'created_at' (2026-03-20T10:00:00 to 2026-03-24T10:00:00); all 80 rows" in right.stdout
    ends = {"new": "old.csv", "new_end": "2026-03-14T10:00:00", "old": "new.csv", "old_end": "2026-03-24T10:00:00"}
    assert right.stderr == ""
    assert shown(f.SnapshotsInWrongOrder(**ends)) in wrong.stderr
    assert json.loads(cli("describe", "old.csv", "--json").stdout)["reading"]["period"][0] == "2026-03-10T10:00:00"
    write_csv(here / "odd.csv", header, [(*row, "yesterday") for row in some])
    assert "created_at" not in cli("describe", "odd.csv").stdout
