from __future__ import annotations

import gzip
import json

import pytest

from cli.tables import write_csv


def test_counts_shares_and_agreement_are_shown(cli, labels):
    result = cli("describe", labels)
    assert (result.exit_code, result.stderr) == (0, "")
    for words in ("280", "40", "7 annotations each", "40 labels each", "cat", "█", "agree", "Nothing looks doubtful."):
        assert words in result.stdout


def test_json_is_the_library_s_description_and_nothing_else(cli, labels):
    import dissensus as dz

    result = cli("describe", labels, "--json")
    table = dz.read(labels)
    head = {"command": "describe", "version": dz.__version__, "file": str(labels), "reading": table.source.facts()}
    assert json.loads(result.stdout) == head | table.describe()


def test_doubtful_things_are_said_in_words(cli, here):
    rows = [("a", "x", "cat"), ("a", "x", "cat"), ("a", "y", "dog"), ("b", "y", "?"), ("b", "z", "?")]
    path = write_csv(here / "few.csv", ["item", "annotator", "label"], rows)
    text = cli("describe", path, "--abstain", "?").stdout
    assert "2 of 3 annotators gave fewer than 5 labels" in text
    assert "1 of 3 annotators gave no label that counts" in text
    assert "1 of 2 items have no annotation" in text
    assert "1 annotation repeats an item and annotator: they share one vote" in text
    one = cli("describe", write_csv(here / "one.csv", ["item", "annotator", "label"], [("a", "x", "cat")])).stdout
    assert "one class only" in one
    nobody = cli("describe", write_csv(here / "none.csv", ["item", "annotator", "label"], rows[3:]), "--abstain", "?")
    assert "one class only" not in nobody.stdout
    assert "one annotator only" in one


def test_votes_without_annotator_ids_are_not_one_person_s(cli, here):
    rows = [("A", "B", "left"), ("A", "B", "left"), ("A", "B", "right"), ("B", "C", "left")] * 3
    text = cli("describe", write_csv(here / "wins.csv", ["left", "right", "winner"], rows)).stdout
    assert "Agreement: two annotators of one item agree" in text
    assert "repeat an item and annotator" not in text
    assert "one annotator only" not in text


def test_questions_are_described_one_by_one(cli, questions):
    text = cli("describe", questions).stdout
    assert text.index("question Tone") < text.index("question is it good") < text.index("question is it/good?")
    parsed = json.loads(cli("describe", questions, "--json").stdout)
    assert {name: about["items"] for name, about in parsed["questions"].items()} == {
        "Tone": 20,
        "is it good": 20,
        "is it/good?": 20,
    }


@pytest.mark.parametrize("name_of_format", ["--format", "--input-format"])
def test_columns_classes_and_abstentions_are_options(cli, here, name_of_format):
    rows = [("a", "x", "1", "2"), ("a", "y", "0", "1"), ("b", "y", "", "3"), ("b", "x", "-", "1")]
    path = write_csv(here / "odd.data", ["thing", "who", "said", "much"], rows)
    named = ("--item", "thing", "--annotator", "who", "--label", "said", "--weight", "much")
    more = ("--classes", "1, 0", "--abstain", "", "--abstain", "-", name_of_format, "csv", "--json")
    about = json.loads(cli("describe", path, *named, *more).stdout)
    assert list(about["class_shares"]) == ["1", "0"]
    assert (about["annotations"], about["items"], about["weighted"]) == (2, 2, True)


def test_a_gzipped_file_is_read(cli, labels, here):
    (here / "packed.csv.gz").write_bytes(gzip.compress(labels.read_bytes()))
    assert "280" in cli("describe", "packed.csv.gz").stdout


@pytest.mark.parametrize("label", ["[red]", "[/]", ":smile:", "[link=x]y[/link]"])
def test_markup_in_labels_is_shown_as_it_is(cli, here, label):
    path = write_csv(here / "m.csv", ["item", "annotator", "label"], [(label, label, label)])
    assert label in cli("describe", path).stdout
    shown = cli("aggregate", path).stdout
    assert shown.count(label) >= 3


def test_control_characters_are_neutralised(cli, here):
    label = "a\x1b[31mb\u202ec\rd"
    path = write_csv(here / "m.csv", ["item", "annotator", "label"], [("i", "w", label)])
    text = cli("describe", path).stdout
    assert r"a\x1b[31mb\u202ec\rd" in text
    assert "\x1b" not in text


def test_many_classes_are_cut(cli, here):
    rows = [(f"i{k}", "w", f"class{k:02}") for k in range(50)]
    text = cli("describe", write_csv(here / "m.csv", ["item", "annotator", "label"], rows)).stdout
    assert "… 30 more" in text


def test_agreement_at_chance_is_doubted(cli, here):
    rows = "".join(f"i{n % 60},w{n % 7},{'abcd'[(n * 7919 >> 3) % 4]}\n" for n in range(420))
    (here / "noise.csv").write_text("item,annotator,label\n" + rows, encoding="utf-8")
    assert "about as often as by chance, or less (" in cli("describe", "noise.csv").stdout


def test_names_of_classes_are_doubted(cli, here):
    labels = ["Yes", "yes", "no", "n/a", "no  way", "No way"]
    rows = [f"i{n // 6},a{n % 6},{labels[n % 6]}" for n in range(36)]
    (here / "names.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    text = " ".join(cli("describe", "names.csv").stdout.split())
    assert "by capitals or spaces only, and count as different: No way, no way; Yes, yes; --normalize merges" in text
    assert "Classes may be missing answers: n/a; --abstain leaves a label out." in text
    text = " ".join(cli("describe", "names.csv", "--abstain", "n/a").stdout.split())
    assert "missing answers" not in text


def test_classes_that_differ_by_spelling_are_doubtful(cli, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(
        "item,annotator,label\n"
        + "\n".join(f"{i},{who},{'yes' if who == 'a' else 'Yes'}" for i in range(5) for who in "ab")
    )
    shown = cli("describe", path).stdout
    assert "Nothing looks doubtful" not in shown
    assert "Some classes differ by capitals or spaces only; --normalize merges them." in shown


def test_classes_with_one_or_two_labels_among_many_may_be_typing_errors(cli, tmp_path):
    path, rows = tmp_path / "labels.csv", [f"{i},{who},{'cat' if i % 2 else 'dog'}" for i in range(40) for who in "ab"]
    path.write_text("item,annotator,label\n" + "\n".join([*rows, "0,c,dgo", "1,c,cta", "2,c,cta"]))
    shown = " ".join(cli("describe", path).stdout.split())
    assert "Classes with so few labels may be typing errors: cta (2), dgo (1); --map OLD=NEW renames." in shown
    path.write_text("item,annotator,label\n0,a,cat\n0,b,dog\n1,a,cat\n")
    shown = cli("describe", path).stdout
    assert "no method can mend that" not in shown  # one pair of labels
    path.write_text("item,annotator,value\n0,a,3.5\n0,b,4.25\n")
    assert "no method can mend that" not in cli("describe", path).stdout  # there is no other item
    rows = [
        f"{i},{who},{i % 2 if who in 'abc' else 0 if who == 'd' else 1 - i % 2}" for i in range(40) for who in "abcde"
    ]
    path.write_text("item,annotator,label\n" + "\n".join(rows))
    shown = " ".join(cli("describe", path).stdout.split())  # here a method can, though agreement is as by chance
    assert "no method can mend that unless a few annotators cause it (`dissensus diagnose`)." in shown


def test_items_with_one_label_are_doubtful_and_agree_with_nobody(cli, tmp_path):
    path = tmp_path / "labels.csv"
    rows = [f"{i},a,{'yes' if i % 2 else 'no'}" for i in range(9)] + ["0,b,yes", "1,b,yes"]
    path.write_text("item,annotator,label\n" + "\n".join(rows))
    shown = cli("describe", path).stdout
    assert "Most items have labels by one annotator only, which nobody has checked." in shown
    assert "Unanimous: 50.0 % of the items with two annotators or more." in shown
