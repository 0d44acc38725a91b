from __future__ import annotations

import json

import pytest

import dissensus as dz
from cli.tables import write_csv
from dissensus import ask
from dissensus.cli.source import answer_each
from dissensus.exceptions import DataError, MissingColumn
from dissensus.messages import Message
from dissensus.questions import findings as f
from dissensus.questions.definitions.agreement import Agreement
from found import error_of, find, kinds, shown


def statements(table):
    """The messages of `agreement`."""
    return [one for one in Agreement().findings(ask("agreement", table, resamples=200)) if isinstance(one, Message)]


def rows(*labels: str) -> list[tuple[str, str, str]]:
    """One item per argument, one annotator per letter; a dot is no label."""
    return [(f"i{i}", f"w{a}", y) for i, item in enumerate(labels) for a, y in enumerate(item) if y != "."]


def table(here, *labels, name="t.csv"):
    return write_csv(here / name, ["item", "annotator", "label"], rows(*labels))


def test_coefficients_intervals_and_a_sentence_are_shown(cli, labels):
    import dissensus as dz
    from dissensus.evaluation import agreement

    result = cli("describe", labels, "--measures")
    assert (result.exit_code, result.stderr) == (0, "")
    found = agreement(dz.read(labels))
    for name in ("krippendorff_alpha", "fleiss_kappa", "gwet_ac1"):
        assert f"{found[name].value:.3f}" in result.stdout
        assert f"{found[name].low:.3f} to {found[name].high:.3f}" in result.stdout
    for words in ("Krippendorff's α", "Fleiss' κ", "Gwet's AC1"):
        assert words in result.stdout
    assert "Who agrees" not in result.stdout


def test_json_has_the_library_s_numbers(cli, labels):
    import dissensus as dz
    from dissensus.evaluation import agreement, cohen_kappas

    parsed = json.loads(
        cli("describe", labels, "--measures", "--json", "--pairs", "--resamples", "99", "--seed", "3").stdout
    )
    found = agreement(dz.read(labels), resamples=99, seed=3)
    assert parsed["agreement"]["coefficients"] == {
        name: {"value": one.value, "low": one.low, "high": one.high} for name, one in found.items()
    }
    settings = [parsed["agreement"][name] for name in ("resamples", "seed", "items_with_two_ratings")]
    assert (*settings, parsed["items"]) == (99, 3, 40, 40)
    pairs = cohen_kappas(dz.read(labels))
    assert len(parsed["agreement"]["pairs"]) == len(pairs) == 21
    assert [pair["kappa"] for pair in parsed["agreement"]["pairs"]] == sorted(pairs.kappa.tolist(), reverse=True)


def test_best_and_worst_pairs_are_shown(cli, labels):
    text = cli("describe", labels, "--measures", "--pairs").stdout
    table = text[text.index("Agreement of pairs of annotators") :]
    assert "… 11 more" in table
    kappas = [float(line.split()[-4]) for line in table.splitlines() if line.strip().startswith("w")]
    assert len(kappas) == 10
    assert kappas == sorted(kappas, reverse=True)
    few = cli("describe", labels, "--measures", "--pairs", "--least", "41").stdout
    assert shown(f.NoComparablePair(min_items=41)) in few


def test_few_pairs_are_shown_once_each(cli, here):
    path = table(here, *["aab", "bba", "abb"] * 5)
    text = cli("describe", path, "--measures", "--pairs", "--least", "2").stdout
    assert "…" not in text
    assert text.count("w0  ") == 2


def test_numbers_on_an_ordinal_scale_are_taken_in_their_order(cli, here):
    write_csv(here / "n.csv", ["item", "annotator", "label"], [
        (f"i{i}", f"w{a}", y) for i, item in enumerate([("2", "10"), ("9", "10"), ("2", "2"), ("10", "10")])
        for a, y in enumerate(item)
    ])  # fmt: skip
    assert (
        shown(f.ClassOrder(classes=("2", "9", "10")))
        in cli("describe", "n.csv", "--measures", "--scale", "ordinal").stdout
    )
    declared = cli("describe", "n.csv", "--measures", "--scale", "ordinal", "--classes", "9,10,2")
    assert shown(f.ClassOrder(classes=("9", "10", "2"))) in declared.stdout
    import dissensus as dz
    from dissensus.evaluation import krippendorff_alpha

    for scale, order in (("ordinal", [2.0, 0.0, 1.0]), ("interval", [10.0, 2.0, 9.0])):
        parsed = json.loads(cli("describe", "n.csv", "--measures", "--scale", scale, "--json").stdout)
        expected = krippendorff_alpha(dz.read("n.csv"), scale=scale, values=order).value
        assert parsed["agreement"]["coefficients"]["krippendorff_alpha"]["value"] == pytest.approx(expected)
    parsed = json.loads(
        cli("describe", "n.csv", "--measures", "--scale", "ordinal", "--classes", "9,10,2", "--json").stdout
    )
    assert parsed["agreement"]["classes"] == ["9", "10", "2"]
    options = ("--scale", "interval", "--pairs", "--least", "2", "--json")
    pairs = json.loads(cli("describe", "n.csv", "--measures", *options).stdout)["agreement"]["pairs"]
    assert (
        pairs
        == json.loads(cli("describe", "n.csv", "--measures", *options, "--classes", "9,10,2").stdout)["agreement"][
            "pairs"
        ]
    )


@pytest.mark.parametrize(
    ("labels", "verdict"),
    [
        (["ab", "ba", "ab"] * 40, "below chance"),
        (["aa", "ab", "bb", "ba"] * 20, "chance"),
        (["aa", "bb", "aa", "bb", "aa", "bb", "aa", "bb", "aa", "ab"] * 40, "fair"),
        (["aa", "bb", "aa", "bb", "aa", "ab"] * 6, "undecided"),
        (["aa", "bb", "ab"] * 60, "poor"),
        (["aa", "aa"], None),
        (["aa", "b."], None),
    ],
)
def test_verdicts_follow_the_interval(here, labels, verdict):
    said = statements(dz.read(table(here, *labels)))
    if verdict is None:
        assert kinds(said) == [f.AgreementUndefined]
    else:
        assert find(f.AgreementBeyondChance, said).verdict == verdict


def test_spelling_and_a_handful_of_items_are_nobody_s_fault(here):
    rows = [f"{i},{who},{label}" for i in range(20) for who, label in (("Ann", "yn"[i % 2]), ("Bob", "YN"[i % 2]))]
    (here / "caps.csv").write_text("item,annotator,label\n" + "\n".join(rows))
    assert f.SeveralSpellings in kinds(statements(dz.read("caps.csv")))
    few, *said = Agreement(resamples=50).findings(ask("agreement", dz.read(table(here, "ab", "a.")), resamples=50))
    assert [(type(one), one.n) for one in said] == [(f.TooFewSharedItems, 1)]
    assert {row[2] for row in few.rows} == {"–"}  # no interval


def test_items_that_are_not_used_and_a_common_class_are_mentioned(here):
    path = table(here, *["aa"] * 90, *["ab"] * 5, *["ba"] * 5, "a.", ".b")
    said = statements(dz.read(path))
    assert find(f.ItemsLabelledOnce, said).facts == {"n": 2, "items": 102}
    assert f.SkewedClasses in kinds(said)


def test_weights_are_warned_about_once(cli, here):
    path = write_csv(here / "w.csv", ["item", "annotator", "label", "weight"], [
        (*row, 1 + number % 2) for number, row in enumerate(rows(*["aab", "bba", "abb"] * 8))
    ])  # fmt: skip
    result = cli("describe", path, "--measures", "--pairs")
    assert result.exit_code == 0
    assert result.stderr.count("weights are ignored") == 1


def test_questions_are_answered_one_by_one(cli, questions):
    text = cli("describe", questions, "--measures").stdout
    assert text.index("question Tone") < text.index("question is it good") < text.index("question is it/good?")
    parsed = json.loads(cli("describe", questions, "--measures", "--json").stdout)
    assert set(parsed["questions"]) == {"Tone", "is it good", "is it/good?"}
    assert all("krippendorff_alpha" in one["agreement"]["coefficients"] for one in parsed["questions"].values())


def test_a_question_without_an_answer_does_not_stop_the_others(cli, questions):
    questions.write_text(questions.read_text() + "lonely,i0,a0,x\n")
    result = cli("describe", questions, "--measures", "--json")
    assert result.exit_code == 0
    assert set(json.loads(result.stdout)["questions"]) == {"Tone", "is it good", "is it/good?"}
    assert "warning: question 'lonely'" in result.stderr
    alone = cli("describe", questions, "--measures", "--label", "lonely")
    assert alone.exit_code == 1


def test_where_every_question_must_have_an_answer_the_first_without_one_ends_the_command():
    asked = []

    def answer(table, question):
        asked.append(question)
        raise DataError(f"no {table}")

    with pytest.raises(DataError) as caught:
        answer_each({"a": 1, "b": 2}, answer, every=True)
    assert caught.value.subjects == ("question 'a'",)
    assert asked == ["a"]


@pytest.mark.parametrize(
    ("options", "error"),
    [((), DataError), (("--scale", "interval"), DataError), (("--item", "nothing"), MissingColumn)],
)
def test_bad_data_are_one_sentence(cli, here, options, error):
    result = cli("describe", table(here, "a.", ".b"), "--measures", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert isinstance(error_of(result), error)
    assert result.stderr.count("\n") == 1


def test_bad_usage_is_code_2(cli, labels):
    for options in (("--scale", "ratio"), ("--resamples", "-1"), ("--least", "0"), ("--seed", "-1")):
        assert cli("describe", labels, "--measures", *options).exit_code == 2


def test_no_resamples_no_intervals(cli, labels):
    result = cli("describe", labels, "--measures", "--resamples", "0")
    assert result.exit_code == 0
    assert " to " not in result.stdout[: result.stdout.index("two annotators of an item agree")]
