"""`dissensus calibrate`: rates, systems, scores, and a panel without gold."""

import json

import numpy as np
import pytest

import dissensus as dz
from cli.tables import write_csv
from dissensus.exceptions import BadParameter, DataError
from dissensus.questions import exceptions as e
from dissensus.questions import findings as f
from found import error_of, shown

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
    for words in (shown(f.GoldCount(n_gold=60, items=200)), "new − old: yes", "says yes where true"):
        assert words in result.stdout
    assert "(correlation)" not in result.stdout  # they are drawn independently
    assert (panel / "items.csv").read_text().startswith("item,label,confidence,p_no,p_yes\n")
    found = json.loads(cli("calibrate", *asked, "--json").stdout)
    assert [(one["rate"], one["system"]) for one in found["rates"]][:3] == [("no", None), ("yes", None), ("no", "new")]
    assert found["differences"][0]["n_pairs"] == 30
    assert {one["column"] for one in found["judge_biases"]} == {"system", "position"}
    assert found["plan"]["n_gold_needed"] >= 60
    assert found["panel"]["effective_judges"]["value"] > 1


def test_scores_with_human_verdicts(panel, cli):
    asked = ["scores.csv", "--annotator", "judge", "--label", "score", "--gold", "human.csv", "--json"]
    found = json.loads(cli("calibrate", *asked).stdout)
    assert found["classes"] == ["no", "yes"]
    assert "rogan_gladen" not in found["rates"][0]
    assert found["accuracy"] > 0.8


def test_human_verdicts_may_stand_beside_the_scores(panel, cli):
    lines = [line.split(",") for line in (panel / "scores.csv").read_text(encoding="utf-8").splitlines()[1:]]
    human = dict(line.split(",") for line in (panel / "human.csv").read_text(encoding="utf-8").splitlines()[1:])
    rows = [(item, judge, score, human.get(item, "")) for item, judge, score in lines]
    write_csv(panel / "both.csv", ["item", "judge", "score", "gold"], rows)
    apart = cli("calibrate", "scores.csv", "--label", "score", "--gold", "human.csv", "--json")
    beside = cli("calibrate", "both.csv", "--label", "score", "--json")
    assert (beside.exit_code, beside.stderr) == (0, "")
    assert json.loads(beside.stdout)["rates"] == json.loads(apart.stdout)["rates"]


def test_human_scores_give_the_mean(panel, cli):
    rng = np.random.default_rng(0)
    write_csv(panel / "known.csv", ["item", "label"], [(f"a{i:03}", round(rng.normal(4), 2)) for i in range(40)])
    asked = ["scores.csv", "--annotator", "judge", "--label", "score", "--gold", "known.csv", "--json"]
    found = json.loads(cli("calibrate", *asked).stdout)
    (rate,) = found["rates"]
    assert (rate["rate"], rate["gold"]) == ("mean score", 40)
    known = (panel / "known.csv").read_text(encoding="utf-8")
    (panel / "values.csv").write_text(known.replace("label", "value", 1), encoding="utf-8")  # as `aggregate` takes them
    asked[-2] = "values.csv"
    assert json.loads(cli("calibrate", *asked).stdout)["rates"] == [rate]
    assert 3.5 < rate["corrected"] < 4.5


def test_without_gold_it_says_what_the_panel_is_worth(panel, cli):
    columns = ["--annotator", "judge", "--label", "verdict"]
    result = cli("calibrate", "verdicts.csv", *columns)
    assert result.exit_code == 0, result.output
    assert "(correlation)" not in result.stdout
    review = dz.review_panel(dz.read("verdicts.csv", annotator="judge", label="verdict"))
    assert (review.finding().judges, review.finding().correlation) == (4, None)
    assert shown(review.finding()) in result.stdout
    assert "panel" in json.loads(cli("calibrate", "verdicts.csv", *columns, "--json").stdout)


def test_items_to_label_next_and_prices(panel, cli):
    write_csv(panel / "prices.csv", ["judge", "cost"], [(f"m{j}", 1 + j) for j in range(4)])
    asked = ["verdicts.csv", "--annotator", "judge", "--label", "verdict", "--cost", "prices.csv"]
    more = [*asked, "--gold", "human.csv", "--width", 0.17, "--next", "next.csv"]
    found = json.loads(cli("calibrate", *more, "--json").stdout)
    items = (panel / "next.csv").read_text().split()
    assert items == ["item", *found["plan"]["next_items"]]
    assert [one["cost"] for one in found["panel"]["judges"]] == [1, 2, 3, 4]
    said = cli("calibrate", *more).stdout
    assert "They are in next.csv." in said
    assert "Nothing was written" not in said
    assert "per item instead of 10" in cli("calibrate", *asked).stdout


def test_gold_with_probabilities(panel, cli):
    rows = [line.split(",") for line in (panel / "human.csv").read_text().split()[1:]]
    write_csv(panel / "chosen.csv", ["item", "label", "chance"], [(*row, 0.3) for row in rows])
    asked = ["verdicts.csv", "--annotator", "judge", "--label", "verdict", "--json"]
    even = json.loads(cli("calibrate", *asked, "--gold", "human.csv").stdout)["rates"][0]
    same = json.loads(cli("calibrate", *asked, "--gold", "chosen.csv", "--gold-probability", "chance").stdout)
    assert same["rates"][0]["corrected"] == pytest.approx(even["corrected"], abs=0.02)
    assert "rogan_gladen" not in same["rates"][0]


def test_columns_of_file_are_looked_at_row_by_row(panel, cli):
    lines = (panel / "verdicts.csv").read_text().split()
    rng = np.random.default_rng(3)
    rows = [(*line.split(","), ["first", "last"][int(rng.integers(2))]) for line in lines[1:]]
    rng.shuffle(rows)
    write_csv(panel / "swapped.csv", ["item", "judge", "verdict", "position"], rows)
    asked = ["swapped.csv", "--annotator", "judge", "--label", "verdict", "--gold", "human.csv", "--json"]
    (effect,) = json.loads(cli("calibrate", *asked).stdout)["judge_biases"]
    assert (effect["column"], effect["value"]) == ("position", "last")
    known = dict(line.split(",") for line in (panel / "human.csv").read_text().split()[1:])
    some = [row for row in rows if row[0] in known]
    rate = {
        (judge, truth): np.mean([row[2] == "yes" for row in some if (row[1], known[row[0]]) == (judge, truth)])
        for judge in ("m0", "m1", "m2", "m3") for truth in ANSWERS
    }  # fmt: skip
    excess = {
        side: np.mean([(row[2] == "yes") - rate[row[1], known[row[0]]] for row in some if row[3] == side])
        for side in ("first", "last")
    }
    assert effect["excess"]["value"] == pytest.approx(excess["last"] - excess["first"])


def test_a_log_of_promptfoo_has_systems_and_gold(here, cli):
    rng = np.random.default_rng(0)

    def grade(passed, **assertion):
        return {"pass": bool(passed), "score": float(passed), "assertion": assertion}

    results = []
    for test in range(60):
        for system, share in (("new", 0.8), ("old", 0.4)):
            good = rng.random() < share
            judged = [good ^ (rng.random() < 0.2) for _ in range(3)]
            grades = [grade(one, type="llm-rubric", value="?", provider=f"j{n}") for n, one in enumerate(judged)]
            grades += [grade(good, type="human")] if test < 25 else []
            one = {"testIdx": test, "promptIdx": 0, "provider": {"id": system}, "vars": {"q": f"q{test}"}}
            results.append(one | {"gradingResult": {"componentResults": grades}})
    (here / "out.json").write_text(json.dumps({"evalId": "e", "results": {"results": results}}))
    found = json.loads(cli("calibrate", "out.json", "--system", "provider", "--prompt", "test", "--json").stdout)
    one = next(one for one in found["differences"] if one["name"] == "yes")
    assert (one["systems"], one["n_pairs"], one["significant"]) == (["new", "old"], 25, True)


@pytest.mark.parametrize(
    ("more", "error", "facts"),
    [
        (["-o", "items.csv"], e.NothingToWrite, {}),
        (["--gold", "human.csv", "--system", "maker"], e.NoSuchColumn, {"column": "maker"}),
        (["--gold", "human.csv", "--width", "0"], BadParameter, {}),
        (["--gold", "human.csv", "--next", "next.csv"], e.WidthNeeded, {}),
        (["--gold-probability", "chance"], e.GoldColumnWithoutFile, {}),
        (
            ["--gold", "human.csv", "--gold-probability", "chance"],
            e.NoSuchColumn,
            {"column": "chance", "columns": ("item", "label")},
        ),
    ],
)
def test_what_cannot_be_corrected_is_one_sentence(panel, cli, more, error, facts):
    result = cli("calibrate", "verdicts.csv", "--annotator", "judge", "--label", "verdict", *more)
    assert result.exit_code in (1, 2)
    assert isinstance(found := error_of(result), error)
    assert facts.items() <= found.facts.items()
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_handful_of_items_does_not_say_what_judges_are_worth(cli, here):
    write_csv(here / "few.csv", ["item", "judge", "verdict"], [(i, j, (i + j) % 2) for i in range(4) for j in range(3)])
    result = cli("calibrate", "few.csv", "--annotator", "judge", "--label", "verdict")
    assert result.exit_code == 1
    assert error_of(result).facts == {"items": 4, "needed": 50}


def test_a_kind_that_has_no_rates_is_refused_first(cli, tmp_path):
    path = tmp_path / "arena.csv"
    path.write_text("model_a,model_b,judge,winner\nx,y,j,x\nx,z,j,z\ny,z,k,y\n")
    for more in ((), ("--method", "bradley-terry")):
        result = cli("calibrate", path, *more)
        assert result.exit_code == 1
        assert isinstance(error_of(result), DataError)


def test_scores_from_0_to_10_with_gold_on_another_scale(here, cli):
    rng = np.random.default_rng(2)
    quality = rng.random(120)
    scores = np.clip(np.round(10 * quality[:, None] + rng.normal(0, 1, (120, 3))), 0, 10)
    rows = [(f"p{i}", f"m{j}", "NaN" if i == j else f"{scores[i, j]:g}") for i in range(120) for j in range(3)]
    write_csv(here / "ten.csv", ["prompt_id", "judge_model", "score"], rows)
    write_csv(here / "known.csv", ["prompt_id", "label"], [(f"p{i}", round(quality[i], 3)) for i in range(40)])
    assert shown(f.ClassesAreNumbers()) in cli("describe", "ten.csv").stdout
    asked = ("ten.csv", "--kind", "numbers", "--abstain", "NaN")
    assert shown(f.ClassesAreNumbers()) not in cli("describe", *asked).stdout
    found = json.loads(cli("calibrate", *asked, "--gold", "known.csv", "--json").stdout)
    (rate,) = found["rates"]
    assert rate["corrected_low"] < quality.mean() < rate["corrected_high"]
    known = [round(one, 3) for one in quality[:40]]
    scale = {"low": min(known), "high": max(known), "judges_low": scores.min(), "judges_high": scores.max()}
    assert found["notes"][-1] == str(f.DifferentScales(None, **scale))
    assert "R–G:" not in cli("calibrate", *asked, "--gold", "known.csv").stdout
