"""Folds, silver, the paper's bootstrap and Table 3, against plain loops; the tables' cells on a few real items."""

import dataclasses

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score

from reproductions import fornaciari2021, load_paper, make_page, render_markdown
from reproductions.fornaciari2021 import derived, folds, load, silver
from reproductions.pooled import bootstrap_p_values, pack, pooled_f1, score_leads, unpack

pytest.importorskip("torch", reason="needs the `learning` extra")

TABLES = load_paper("fornaciari2021").tables
# All soft labels over three classes have the same kurtosis.
VOTES = [[5, 0, 0, 0, 0], [3, 2, 0, 0, 0], [2, 2, 1, 0, 0], [0, 0, 0, 0, 0]]
QUICK_SETTINGS = {"items": 24, "folds": 2, "epochs": 1, "batch_size": 16, "lstm": 4}


def make_line(table, data, condition, seed, truth, predicted, pattern=None):
    """Return a stored line like that of a cell."""
    kept = {"off": pack((predicted - truth) % 5)}
    if pattern is not None:
        kept |= {"truth": pack(truth), "votes": VOTES, "pattern": pack(pattern, np.uint16)}
    return {
        "key": TABLES[table].cell(data, condition, (seed,)).key,
        "paper": "fornaciari2021", "table": table, "data": data, "condition": condition, "seeds": [seed],
        "keywords": {"task": "pos"}, "values": {"accuracy": [float((truth == predicted).mean())], "f1": [0.5]},
        "kept": kept, "seconds": 1.0, "made": {"date": "2021-01-01"},
    }  # fmt: skip


@pytest.fixture
def runs():
    """Two seeds of STL and of one MTL that is right more often, on 200 items of five classes."""
    rng = np.random.default_rng(0)
    truth, pattern = rng.integers(5, size=200), rng.integers(4, size=200)

    def predicted(share):
        return np.where(rng.random(200) < share, truth, rng.integers(5, size=200))

    stl, mtl = [predicted(0.4) for _ in range(2)], [predicted(0.7) for _ in range(2)]
    lines = [make_line("table1", "POS, 5 folds", "STL", 0, truth, stl[0], pattern)]
    lines.append(make_line("table1", "POS, 5 folds", "STL", 1, truth, stl[1]))
    lines += [make_line("table1", "POS, 5 folds", "MTL, cross entropy", s, truth, mtl[s]) for s in range(2)]
    return truth, pattern, stl, mtl, {str(n): line for n, line in enumerate(lines)}


def test_packed_numbers_come_back():
    codes = np.random.default_rng(0).integers(12, size=1000)
    assert (unpack(pack(codes)) == codes).all()
    assert (unpack(pack(codes + 700, np.uint16), np.uint16) == codes + 700).all()
    mostly_right = np.where(np.random.default_rng(1).random(14_439) < 0.9, 0, codes[np.arange(14_439) % 1000])
    assert len(pack(mostly_right)) < 5_000


def test_leads_are_those_of_sklearn():
    rng = np.random.default_rng(3)
    truth, stl, mtl = rng.integers(4, size=(3, 60))
    truth[truth == 3], mtl[mtl == 3] = 2, 1  # a class that only one predicts
    kinds, count = np.unique(np.stack([truth, stl, mtl]), axis=1, return_counts=True)
    accuracy, f1 = score_leads(kinds, count[None], 5)[:, 0]  # and one that never occurs
    assert accuracy == pytest.approx(accuracy_score(truth, mtl) - accuracy_score(truth, stl))
    assert f1 == pytest.approx(f1_score(truth, mtl, average="macro") - f1_score(truth, stl, average="macro"))


def test_the_bootstrap_is_the_papers():
    """Literally: samples of a third with replacement, how often the lead is more than twice that of all."""
    rng = np.random.default_rng(5)
    truth = rng.integers(3, size=300)
    stl = np.where(rng.random(300) < 0.70, truth, 0)
    mtl = np.where(rng.random(300) < 0.82, truth, 0)

    def lead(at):
        return (truth[at] == mtl[at]).mean() - (truth[at] == stl[at]).mean()

    whole, n = lead(np.arange(300)), 2000
    literal = np.mean([lead(rng.choice(300, 99)) > 2 * whole for _ in range(n)])
    p, _ = bootstrap_p_values(truth, stl, mtl, 3, 20_000)
    assert 0.05 < literal < 0.3  # The sample share matters in this range.
    assert p == pytest.approx(literal, abs=4 * np.sqrt(literal * (1 - literal) / n))
    worse, _ = bootstrap_p_values(truth, truth, mtl, 3, 500)
    assert worse > 0.99  # one-sided: what loses gets no stars
    assert bootstrap_p_values(truth, stl, stl, 3, 100) == (1, 1)  # nor what is the same


def test_stars_are_of_all_seeds_and_say_who_is_better(runs):
    *_, lines = runs
    found = next(line for line in derived(lines) if "p_accuracy" in line["values"])
    assert found["values"]["p_accuracy"][0] <= 0.01
    assert found["values"]["p_f1"][0] <= 0.01
    assert found["values"]["p_items"][0] <= 0.01
    table = TABLES["table1"]
    page = render_markdown(make_page(load_paper("fornaciari2021"), [table, TABLES["table3"]], lines))
    rows = [row for row in page.splitlines() if row.startswith("| MTL, cross entropy")]
    assert "** | 86.76** |" in rows[0]
    assert "6.015* |" in rows[-2]  # POS of Table 3
    earlier = next(row for row in page.splitlines() if row.startswith("| Jamison"))
    assert "| 78.90 |" in earlier
    assert "MiniLM" not in earlier  # Cells that are not run have no protocol notes.


def test_table_3_is_the_kurtosis_by_who_is_right(runs):
    truth, pattern, stl, mtl, lines = runs
    found = [line for line in derived(lines) if line["table"] == "table3"]
    soft = np.exp(np.array(VOTES, float))
    soft /= soft.sum(axis=1, keepdims=True)
    of_pattern = [*stats.kurtosis(soft[:3], axis=1), np.nan]  # no votes: none

    def mean(first, second, seed):
        at = [i for i in range(200) if (stl[seed][i] == truth[i]) == first and (mtl[seed][i] == truth[i]) == second]
        return np.nanmean([of_pattern[pattern[i]] for i in at])

    for seed in range(2):
        values = next(line["values"] for line in found if line["seeds"] == [seed] and "both" in line["values"])
        assert values["both"] == pytest.approx([mean(True, True, seed)])
        assert values["only_stl"] == pytest.approx([mean(True, False, seed)])
        assert values["only_mtl"] == pytest.approx([mean(False, True, seed)])
        assert values["neither"] == pytest.approx([mean(False, False, seed)])
    each = np.array(of_pattern)[pattern].round(9)
    only_mtl, only_stl = (
        np.concatenate([each[(a[s] == truth) & (b[s] != truth)] for s in range(2)]) for a, b in ((mtl, stl), (stl, mtl))
    )
    only_mtl, only_stl = only_mtl[~np.isnan(only_mtl)], only_stl[~np.isnan(only_stl)]
    p = next(line["values"]["p"] for line in found if "p" in line["values"])
    assert p == pytest.approx([stats.mannwhitneyu(only_mtl, only_stl).pvalue])


def test_tied_pairs_are_left_out_of_silver(runs):
    truth, _, stl, _, _ = runs
    pattern = np.arange(200) % 4
    lines = {"0": make_line("table2", "stemming, 10 folds", "STL", 0, truth, stl[0], pattern)}
    lines["1"] = make_line("stems", "silver", "released network, STL", 0, truth, stl[1])
    found = [line["values"]["untied"] for line in derived(lines) if "untied" in line["values"]]
    clear = np.array([VOTES[k][0] != VOTES[k][1] for k in pattern])
    assert 0 < clear.sum() < 200
    assert found == [[pytest.approx((one == truth)[clear].mean(), abs=1e-6)] for one in stl]


def test_lines_without_the_truth_make_nothing(runs):
    *_, lines = runs
    assert derived({key: line for key, line in lines.items() if "truth" not in line["kept"]}) == []


def test_published_figures_are_the_papers():
    first, second, third = (TABLES[name] for name in ("table1", "table2", "table3"))
    assert first.published_value("POS, separate test", "MTL, inverse KL", "accuracy") == (86.29, None)
    assert first.published_stars("POS, separate test", "MTL, inverse KL", "accuracy") == "*"
    assert first.published_stars("stemming, 10 folds", "MTL, KL", "f1") == ""
    assert second.published_value("stemming, 10 folds", "MTL, inverse KL", "accuracy") == (77.47, None)
    assert third.published_value("POS, 5 folds", "MTL, cross entropy", "neither") == (5.727, None)
    figures = sum(len(one) for table in (first, second) for of in table.published.values() for one in of.values())
    # accuracy and F1 of four networks on three tests, twice; three of earlier work; stems without ties
    assert figures == 2 * 3 * 4 * 2 + 3 + 4


def test_table_3_is_run_by_running_table_1():
    assert [table.name for table in load_paper("fornaciari2021").only(["table3"])] == ["table1", "table3"]
    assert not list(TABLES["table3"].cells())


@pytest.mark.realdata
@pytest.mark.parametrize(("table", "data"), [(t, d) for t in ("table1", "beyond") for d in TABLES[t].data])
def test_folds_part_the_items(table, data):
    how = TABLES[table].data[data]
    items = len(load(how["task"])[1])
    tested = 0
    for fold in folds(how, 1):
        assert not set(fold.train) & set(fold.dev)
        tested += len(fold.X)
        assert len(fold.X) == len(fold.truth) == len(fold.votes)
        assert (fold.truth >= 0).all()
        if "folds" in data:
            assert len({*fold.train, *fold.dev}) == items - len(fold.X)
    assert tested == {"folds": items, "separate": 3064, "given": 601}[how["split"]]


@pytest.mark.realdata
def test_folds_are_those_of_the_data():
    data, X = load("stemming")
    third = list(folds(TABLES["table1"].data["stemming, 10 folds"], 0))[3]
    number = data.items["fold10"].to_pylist()
    assert [x for x, fold in zip(X, number, strict=True) if int(fold) == 3] == third.X
    assert {int(number[i]) for i in third.dev} == {4}
    sizes = [(f.train.size, f.dev.size) for f in folds(TABLES["table1"].data["POS, separate test"], 0)]
    assert sizes == [(13_000, 1_439)]


@pytest.mark.realdata
def test_silver_is_the_majority_and_noun_where_nobody_was_asked():
    data, _ = load("pos")
    votes, found = data.annotations.votes(), silver("pos", 0)
    rows = np.arange(votes.shape[0])
    assert (votes[rows, found] == votes.max(axis=1)).all()
    nobody = votes.sum(axis=1) == 0
    assert nobody.sum() == 939
    assert set(data.annotations.classes[found[nobody]]) == {"NOUN"}
    tied = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) > 1
    assert (found != silver("pos", 1))[tied & ~nobody].any()
    assert (found == silver("pos", 1))[~tied].all()


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("table", "data", "condition"),
    [
        ("table1", "stemming, 10 folds", "STL"), ("table2", "POS, separate test", "STL"),
        ("beyond", "stemming, 10 folds, hidden layer, silver", "MTL, inverse KL"),
        ("beyond", "POS, 5 folds, learnt vectors", "MTL, KL"), ("stems", "silver", "released program, inverse KL"),
    ],
)  # fmt: skip
def test_cells_run(table, data, condition, monkeypatch, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("I 0.5 -0.5 1\nthe 1 0 0.25\n")
    monkeypatch.setattr(fornaciari2021, "words", lambda: str(words))
    cell = next(c for c in TABLES[table].cells() if (c.data, c.condition) == (data, condition))
    values, kept = getattr(fornaciari2021, table)(
        dataclasses.replace(cell, keywords=cell.keywords | QUICK_SETTINGS), "cpu"
    )
    n = 12 * (1 if "separate" in data else 2)
    assert unpack(kept["off"]).size == n
    assert values["accuracy"] == pytest.approx([(unpack(kept["off"]) == 0).mean()], abs=1e-6)
    assert 0 <= values["f1"][0] <= 1
    if condition == "STL":
        assert unpack(kept["truth"]).size == unpack(kept["pattern"], np.uint16).size == n


def test_claims_are_in_points_and_cross_entropy_is_not_counted_again():
    values = {"STL": 0.80, "MTL, KL": 0.82, "MTL, inverse KL": 0.81, "MTL, cross entropy": 0.5}

    def get(table, data, condition, metric):
        if data != "POS, 5 folds" or metric != "accuracy" or table not in ("table1", "table2"):
            return {}
        return {seed: values[condition] + seed / 1000 * (len(condition) % 3) for seed in range(3)}

    told = {claim.text: claim for claim in fornaciari2021.claims(get)}
    gold = told["Soft-label multi-task beats single-task, trained on gold (points)"]
    assert gold.verdict == "holds"
    assert set(gold.differences) == {f"POS, 5 folds, accuracy, {loss}" for loss in ("KL", "inverse KL")}
    assert gold.differences["POS, 5 folds, accuracy, inverse KL"].mean == pytest.approx(1.0, abs=0.2)
    best = told["Inverse KL is the best of the losses, gold and silver (points)"]
    assert len(best.differences) == 2
    assert best.verdict == "the opposite holds"


def test_pooled_f1_and_its_error_by_hand():
    truth, predicted = np.array([0, 1, 1]), np.array([[0, 1, 0], [1, 1, 1], [0, 1, 1]])
    value, error = pooled_f1(truth, predicted)
    by_hand = lambda hits, given: (2 * hits[0] / given[0] + 2 * hits[1] / given[1]) / 2  # noqa: E731
    assert value == pytest.approx(by_hand((2, 5), (3 + 3, 6 + 6)))
    without = [by_hand((1, 4), (2 + 1, 4 + 5)), by_hand((2, 3), (2 + 3, 4 + 3)), by_hand((1, 3), (2 + 2, 4 + 4))]
    assert error == pytest.approx(np.sqrt(2 / 3 * np.square(without - np.mean(without)).sum()))
