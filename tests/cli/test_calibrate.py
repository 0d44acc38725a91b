"""`dissensus calibrate`: rates, systems, scores, and a panel without gold."""

import json

import numpy as np
import pytest

from cli.tables import write_csv

N = 200
ANSWERS = ("no", "yes")


@pytest.fixture
def panel(here):
    """verdicts.csv and scores.csv of 200 answers by four judges, human.csv of 60 of them, answers.csv about all."""
    rng = np.random.default_rng(0)
    truth = rng.random(N) < 0.5
    names = [f"a{i:03}" for i in range(N)]
    said = np.where(rng.random((N, 4)) < 0.8, truth[:, None], ~truth[:, None])
    score = np.round(said * 3 + rng.normal(3, 1, said.shape), 2)
    cells = [(i, j) for i in range(N) for j in range(4)]
    write_csv(
        here / "verdicts.csv",
        ["item", "judge", "verdict"],
        [(names[i], f"m{j}", ANSWERS[int(said[i, j])]) for i, j in cells],
    )
    write_csv(here / "scores.csv", ["item", "judge", "score"], [(names[i], f"m{j}", score[i, j]) for i, j in cells])
    known = rng.permutation(N // 2)[:30]
    both = sorted([*(2 * known), *(2 * known + 1)])
    write_csv(here / "human.csv", ["item", "label"], [(names[i], ANSWERS[int(truth[i])]) for i in both])
    about = [(names[i], ["new", "old"][i % 2], f"p{i // 2}", ["first", "last"][i % 3 > 0]) for i in range(N)]
    write_csv(here / "answers.csv", ["item", "system", "prompt", "position"], about)
    return here


def test_rates_systems_and_items(panel, cli):
    asked = ["verdicts.csv", "--annotator", "judge", "--label", "verdict", "--gold", "human.csv", "--width", 0.2]
    asked += ["--items", "answers.csv", "--system", "system", "--prompt", "prompt"]
    result = cli("calibrate", *asked, "-o", "items.csv")
    assert result.exit_code == 0, result.output
    for words in ("60 of 200 items have human labels", "new − old: yes", "judges are worth", "says yes where true"):
        assert words in result.stdout
    assert (panel / "items.csv").read_text().startswith("item,label,confidence,p_no,p_yes\n")
    found = json.loads(cli("calibrate", *asked, "--json").stdout)
    assert [(one["rate"], one["system"]) for one in found["rates"]][:3] == [("no", None), ("yes", None), ("no", "new")]
    assert found["differences"][0]["pairs"] == 30
    assert {one["column"] for one in found["effects"]} == {"system", "position"}
    assert found["plan"]["needed"] >= 60
    assert found["panel"]["effective_judges"]["value"] > 1


def test_scores_with_human_verdicts(panel, cli):
    asked = ["scores.csv", "--annotator", "judge", "--label", "score", "--gold", "human.csv", "--json"]
    found = json.loads(cli("calibrate", *asked).stdout)
    assert found["classes"] == ["no", "yes"]
    assert "rogan_gladen" not in found["rates"][0]
    assert found["accuracy"] > 0.8


def test_human_scores_give_the_mean(panel, cli):
    rng = np.random.default_rng(0)
    write_csv(panel / "known.csv", ["item", "label"], [(f"a{i:03}", round(rng.normal(4), 2)) for i in range(40)])
    asked = ["scores.csv", "--annotator", "judge", "--label", "score", "--gold", "known.csv", "--json"]
    found = json.loads(cli("calibrate", *asked).stdout)
    (rate,) = found["rates"]
    assert (rate["rate"], rate["gold"]) == ("mean score", 40)
    assert 3.5 < rate["corrected"] < 4.5


def test_without_gold_it_says_what_the_panel_is_worth(panel, cli):
    columns = ["--annotator", "judge", "--label", "verdict"]
    result = cli("calibrate", "verdicts.csv", *columns)
    assert result.exit_code == 0, result.output
    assert "4 judges are worth" in result.stdout
    assert "by the panel's own posterior" in result.stdout
    assert "panel" in json.loads(cli("calibrate", "verdicts.csv", *columns, "--json").stdout)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["-o", "items.csv"], "-o keeps items that learnt from human labels"),
        (["--gold", "human.csv", "--system", "maker"], "no column 'maker'"),
        (["--gold", "human.csv", "--width", "0"], "width must be above 0"),
    ],
)
def test_what_cannot_be_is_one_sentence(panel, cli, more, words):
    result = cli("calibrate", "verdicts.csv", "--annotator", "judge", "--label", "verdict", *more)
    assert result.exit_code in (1, 2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_kind_that_has_no_rates_is_refused_first(cli, tmp_path):
    path = tmp_path / "arena.csv"
    path.write_text("model_a,model_b,judge,winner\nx,y,j,x\nx,z,j,z\ny,z,k,y\n")
    for more in ((), ("--method", "bradley-terry")):
        result = cli("calibrate", path, *more)
        assert result.exit_code == 1
        assert "dissensus calibrate is for classes" in result.stderr
