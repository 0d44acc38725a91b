from __future__ import annotations

import json

from dissensus.exceptions import UnknownName
from dissensus.questions.exceptions import NoMethodNamed, NoSharedItem, RepeatedMethod
from found import error_of


def test_ranking_and_verdict_are_shown(cli, labels):
    result = cli("evaluate", labels, "--methods", "majority-vote,dawid-skene", "--resamples", 50)
    assert (result.exit_code, result.stderr) == (0, "")
    for words in ("log-likelihood", "majority-vote", "dawid-skene", "held-out label", "best"):
        assert words in result.stdout
    assert "accuracy" not in result.stdout
    assert "baseline" not in result.stdout


def test_baselines_are_marked(cli, here):
    from cli.tables import write_csv

    rows = [(f"i{i}", f"w{w}", i + w / 10) for i in range(12) for w in range(4)]
    table = write_csv(here / "numbers.csv", ["item", "annotator", "label"], rows)
    shown = cli("evaluate", table, "--splits", 1, "--resamples", 20).stdout
    assert "mean (baseline)" in shown
    assert "gaussian (baseline)" not in shown
    assert "(1 split, 20.0 %" in " ".join(shown.split())


def test_json_has_the_library_s_numbers(cli, labels):
    import dissensus as dz
    from dissensus.table.io import read_gold

    names = ["majority-vote", "dawid-skene", "mace"]
    options = ("--share", "0.3", "--splits", 2, "--resamples", 50, "--seed", 3)
    parsed = json.loads(cli("evaluate", labels, "-m", ",".join(names), "--gold", "gold.csv", *options, "--json").stdout)
    table = dz.read(labels)
    gold = read_gold("gold.csv", table)
    found = dz.compare(table, names, gold=gold, share=0.3, splits=2, resamples=50, seed=3)
    assert parsed["best"] == found.best
    assert parsed["tied_with_best"] == found.tied
    assert parsed["verdict"] == found.verdict()
    for row, one in zip(parsed["methods"], found.rows(), strict=True):
        del row["seconds"], one["seconds"]
        assert row == one
    assert {"accuracy", "accuracy_low", "accuracy_high"} <= parsed["methods"][0].keys()


def test_every_question_is_compared(cli, questions):
    parsed = json.loads(
        cli("evaluate", questions, "-m", "majority-vote", "-m", "wawa", "--resamples", 20, "--json").stdout
    )
    assert len(parsed["questions"]) == 3
    assert all(len(one["methods"]) == 2 for one in parsed["questions"].values())
    assert "question Tone" in cli("evaluate", questions, "-m", "majority-vote", "--resamples", 20).stdout
    refused = cli("evaluate", questions, "--gold", "gold.csv")
    assert refused.exit_code == 2
    assert refused.error.facts == {"option": "gold"}


def test_wrong_names_are_clear_before_the_file_is_read(cli, here):
    for methods, error in (("dawid-skeen", UnknownName), ("mace,mace", RepeatedMethod), (",", NoMethodNamed)):
        result = cli("evaluate", here / "missing.csv", "--methods", methods)
        assert (result.exit_code, isinstance(error_of(result), error)) == (2, True)


def test_what_cannot_be_compared_is_one_sentence(cli, here):
    from cli.tables import write_csv

    single = write_csv(here / "single.csv", ["item", "annotator", "label"], [("a", "x", "1"), ("b", "x", "2")])
    result = cli("evaluate", single)
    assert result.exit_code == 1
    assert type(error_of(result)) is NoSharedItem


def test_a_method_that_is_always_right_has_an_interval_too(cli, tmp_path):
    rows = [f"q{i},{who},{'yes' if i % 3 else 'no'}" for i in range(40) for who in "abc"]
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + "\n".join(rows))
    (tmp_path / "gold.csv").write_text(
        "item,label\n" + "\n".join(f"q{i},{'yes' if i % 3 else 'no'}" for i in range(40))
    )
    found = cli("evaluate", tmp_path / "labels.csv", "--methods", "majority-vote,wawa", "--gold", tmp_path / "gold.csv")
    assert "100.0 (from 91.2) %" in found.stdout  # Wilson's bound of 40 of 40
