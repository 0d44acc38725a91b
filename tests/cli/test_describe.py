from __future__ import annotations

import gzip
import json

import pytest

import dissensus as dz
from cli.tables import write_csv
from dissensus.common.formatting import Count, Share
from dissensus.questions import findings as f
from dissensus.questions.base import MessageList
from dissensus.questions.definitions.describe import Describe
from found import find, kinds, shown


def doubts(table):
    """The doubts that `describe` lists."""
    return [m for one in Describe().findings(table.describe()) if isinstance(one, MessageList) for m in one.messages]


def test_counts_shares_and_agreement_are_shown(cli, labels):
    result = cli("describe", labels)
    assert (result.exit_code, result.stderr) == (0, "")
    for words in ("280", "40", "cat", "█", shown(f.NoDoubts())):
        assert words in result.stdout


def test_json_is_the_library_s_description_and_nothing_else(cli, labels):
    from dissensus.evaluation import krippendorff_alpha

    result = cli("describe", labels, "--json")
    table = dz.read(labels)
    head = {
        "command": "describe",
        "version": dz.__version__,
        "file": str(labels),
        "reading": table.import_report.to_dict(),
    }
    found = json.loads(result.stdout)
    agreement = found.pop("agreement")
    assert found == head | table.describe()
    assert agreement["coefficients"]["krippendorff_alpha"]["value"] == pytest.approx(krippendorff_alpha(table).value)


def test_doubtful_things_are_said_in_words(cli, here):
    rows = [("a", "x", "cat"), ("a", "x", "cat"), ("a", "y", "dog"), ("b", "y", "?"), ("b", "z", "?")]
    path = write_csv(here / "few.csv", ["item", "annotator", "label"], rows)
    text = cli("describe", path, "--abstain", "?").stdout
    three = Count(3)
    doubts = [f.AnnotatorsWithFewLabels(n=2, annotators=three), f.AnnotatorsWithoutLabels(n=1, annotators=three)]
    doubts += [f.ItemsWithoutLabel(n=1, items=2, numbers=False), f.RepeatedLabels(n=Count(1))]
    assert all(shown(doubt) in text for doubt in doubts)
    one = cli("describe", write_csv(here / "one.csv", ["item", "annotator", "label"], [("a", "x", "cat")])).stdout
    assert shown(f.OneClass()) in one
    nobody = cli("describe", write_csv(here / "none.csv", ["item", "annotator", "label"], rows[3:]), "--abstain", "?")
    assert shown(f.OneClass()) not in nobody.stdout
    assert shown(f.OneAnnotator()) in one


def test_votes_without_annotator_ids_are_not_one_person_s(cli, here):
    rows = [("A", "B", "left"), ("A", "B", "left"), ("A", "B", "right"), ("B", "C", "left")] * 3
    table = dz.read(write_csv(here / "wins.csv", ["left", "right", "winner"], rows))
    said = kinds(doubts(table))
    assert not {f.RepeatedLabels, f.OneAnnotator} & set(said)


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
    assert cli("aggregate", path).stdout.count(label) >= 3


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
    assert f.AgreementAtChance in kinds(doubts(dz.read("noise.csv")))


def test_names_of_classes_are_doubted(cli, here):
    labels = ["Yes", "yes", "no", "n/a", "no  way", "No way"]
    rows = [f"i{n // 6},a{n % 6},{labels[n % 6]}" for n in range(36)]
    (here / "names.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    said = doubts(dz.read("names.csv"))
    assert {f.SeveralSpellings, f.MissingAnswers} <= set(kinds(said))
    assert find(f.MissingAnswers, said).classes == ("n/a",)
    assert f.MissingAnswers not in kinds(doubts(dz.read("names.csv", abstain=["n/a"])))


def test_classes_that_differ_by_spelling_are_doubtful(cli, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(
        "item,annotator,label\n"
        + "\n".join(f"{i},{who},{'yes' if who == 'a' else 'Yes'}" for i in range(5) for who in "ab")
    )
    text = cli("describe", path).stdout
    assert shown(f.NoDoubts()) not in text
    assert shown(f.SeveralSpellings(effect="")) in text


def test_classes_with_one_or_two_labels_among_many_may_be_typing_errors(cli, tmp_path):
    path, rows = tmp_path / "labels.csv", [f"{i},{who},{'cat' if i % 2 else 'dog'}" for i in range(40) for who in "ab"]
    path.write_text("item,annotator,label\n" + "\n".join([*rows, "0,c,dgo", "1,c,cta", "2,c,cta"]))
    assert find(f.RareClasses, doubts(dz.read(path))).labels == {"cta": 2, "dgo": 1}
    path.write_text("item,annotator,label\n0,a,cat\n0,b,dog\n1,a,cat\n")
    at_chance = {f.AgreementAtChance, f.DisagreementAtChance}
    assert not at_chance & set(kinds(doubts(dz.read(path))))  # one pair of labels
    path.write_text("item,annotator,value\n0,a,3.5\n0,b,4.25\n")
    assert not at_chance & set(kinds(doubts(dz.read(path))))  # there is no other item
    rows = [
        f"{i},{who},{i % 2 if who in 'abc' else 0 if who == 'd' else 1 - i % 2}" for i in range(40) for who in "abcde"
    ]
    path.write_text("item,annotator,label\n" + "\n".join(rows))
    assert not find(f.AgreementAtChance, doubts(dz.read(path))).several_spellings  # though a method can correct it here


def test_items_with_one_label_are_doubtful_and_agree_with_nobody(cli, tmp_path):
    path = tmp_path / "labels.csv"
    rows = [f"{i},a,{'yes' if i % 2 else 'no'}" for i in range(9)] + ["0,b,yes", "1,b,yes"]
    path.write_text("item,annotator,label\n" + "\n".join(rows))
    text = cli("describe", path).stdout
    assert shown(f.MostItemsLabelledOnce()) in text
    assert shown(f.UnanimousItems(share=Share(0.5))) in text
