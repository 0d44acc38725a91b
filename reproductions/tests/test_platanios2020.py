"""Cells of Tables 2 and 3 and Figure 2 on real items, as plainly as they can be had."""

import dataclasses
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dissensus as dz
from reproductions import experiment, load_paper, make_page, platanios2020, render_html, render_markdown, reproduce
from reproductions.record import read_store
from reproductions.runner import draw_figures

STORE = Path(__file__).parents[1] / "results" / "platanios2020.jsonl"


def cell(table, data, condition, seeds=(0,), **keywords):
    cells = load_paper("platanios2020").tables[table].cells(quick=True)
    found = next(c for c in cells if (c.data, c.condition) == (data, condition))
    return dataclasses.replace(found, seeds=seeds, keywords=found.keywords | keywords)


def test_published_figures_are_the_papers():
    tables = load_paper("platanios2020").tables
    told = tables["table2"].published_value
    assert told("bluebirds, 39", "LIA", "accuracy") == (93.0, 0.6)
    assert told("wordsim, 10", "LIA", "accuracy") == (96.3, 0.1)
    assert told("rte, 10", "MMCE*", "accuracy") == (87.1, 0.1)
    assert told("medical_treats, 10", "MeTaL", "paper_gold") == (3.1, 0.1)
    assert told("medical_causes, 5", "LIA-ML", "paper_gold") == (36.4, 0.2)
    assert told("wordsim, 2", "MeTaL", "accuracy") == (76.0, None)  # its error cannot be read
    assert tables["table3"].published_value("rte, 10", "LIA, no fine-tuning", "accuracy") == (69.6, 0.1)
    assert sum(len(of) for of in tables["table2"].published.values()) == 11 * 10 + 6 * 11


def test_every_cell_is_run_or_says_why_not():
    tables = load_paper("platanios2020").tables
    assert list(tables["table2"].data) == list(tables["table3"].data) == platanios2020.CELLS
    whole = [c for name in ("table2", "table3", "votes") for c in tables[name].cells()]
    assert len(whole) == 370
    assert {c.seeds for c in whole} == {tuple(range(50))}
    assert tables["table2"].why_not("rte, 5", "LIA-ML") == "it is of many questions, and this set has one."
    assert tables["table2"].why_not("medical_treats, 5", "LIA-ML") is None
    assert "ResNet" in tables["table2"].why_differs("bluebirds, 20", "LIA")
    assert tables["table2"].why_differs("bluebirds, 20", "LIA-E") is None


def test_yes_is_said_as_often_as_mmce_says_it(monkeypatch):
    posterior = np.array([[[0.9, 0.1], [0.7, 0.3], [0.8, 0.2]]])
    others = np.array([[[0.4, 0.6], [0.1, 0.9], [0.8, 0.2]]])
    monkeypatch.setattr(platanios2020, "posteriors", lambda *_: others)
    how = {"set": "rte", "redundancy": 2}
    assert platanios2020.predicted_classes(posterior, how, (0,)).tolist() == [[0, 0, 0]]
    assert platanios2020.predicted_classes(posterior, how | {"as_often": True}, (0,)).tolist() == [[0, 1, 1]]
    assert platanios2020.predicted_classes(posterior, how | {"as_often": 0.33}, (0,)).sum() == 1


@pytest.mark.realdata
def test_gold_and_all_labels_do_not_reach_the_published_figure_on_wordsim():
    found = platanios2020.labels(cell("labels", "wordsim, 10", "labels, by gold"), "cpu")
    assert found == {"accuracy": [pytest.approx(100 * 28 / 30, abs=1e-3)]}


@pytest.mark.realdata
def test_some_items_keep_their_gold_and_their_features():
    table, golds = platanios2020.load("medical_causes", 100)
    whole = dz.load_dataset("medical_causes")
    at = np.searchsorted(whole.annotations.items, table.items)
    assert table.n_items == 100
    assert np.array_equal(golds["accuracy"], whole.gold[at])
    assert (golds["paper_gold"] >= 0).any()
    at = np.searchsorted(dz.load_dataset("bluebirds").annotations.items, platanios2020.load("bluebirds", 7)[0].items)
    assert np.array_equal(platanios2020.features("bluebirds", 7), dz.load_dataset("bluebirds").features[at])
    assert platanios2020.evenly_spaced_mask(5, 9).all()


@pytest.mark.realdata
def test_wordsims_answers_are_probabilities():
    table, _ = platanios2020.load("wordsim")
    votes, _ = platanios2020.load("wordsim-votes")
    assert np.array_equal(table.items, votes.items)
    assert np.array_equal((table.proba[:, 1] >= 0.5).astype(int), votes.label)  # cut at 5
    assert 0.1 < np.minimum(*table.proba.T).mean() < 0.4


@pytest.mark.realdata
def test_aggregation_is_of_the_seeds_own_draw():
    data = dz.load_dataset("rte")
    found = platanios2020.table2(cell("table2", "rte, 5", "MAJ", seeds=(3, 1), items=None), "cpu")["accuracy"]
    for seed, value in zip((3, 1), found, strict=True):
        less = data.annotations.subsample(5, seed=seed)
        names = dz.methods["majority-vote"](seed=seed).fit(less).predict()
        right = [name == less.classes[gold] for name, gold in zip(names, data.gold, strict=True)]
        assert value == pytest.approx(100 * np.mean(right), abs=1e-3)


@pytest.mark.realdata
def test_lia_is_what_it_is_alone():
    pytest.importorskip("torch", reason="needs the `learning` extra")
    from dissensus.learning import LIA

    one = cell("table2", "bluebirds, 5", "LIA", seeds=(0, 2), items=40)
    found = platanios2020.network("bluebirds", 5, (0, 2), one.keywords, "cpu")
    table, golds = platanios2020.load("bluebirds", 40)
    for row, seed in zip(found, (0, 2), strict=True):
        alone = LIA(hidden=(16,) * 4, dropout=0.0, steps=10, seed=seed)
        alone.fit(table.subsample(5, seed=seed), platanios2020.features("bluebirds", 40))
        assert np.array_equal(row, alone.posterior_.argmax(axis=1))
    assert platanios2020.table2(one, "cpu") == platanios2020.scores(found, golds)


@pytest.mark.realdata
def test_two_stages_ask_networks_that_have_not_seen_the_item():
    pytest.importorskip("torch", reason="needs the `learning` extra")
    from dissensus.learning import LIA
    from dissensus.learning.objectives import Hard

    table, golds = platanios2020.load("bluebirds", 40)
    labels, x = golds["accuracy"][None].astype(np.int32), platanios2020.features("bluebirds", 40)
    other = labels.copy()
    other[0, 7] = 1 - other[0, 7]

    def classes_of(labels):
        model = LIA(hidden=(16,), dropout=0.0, steps=40).classifier(table, features=True)
        model.objective = Hard(labels="gold")
        return platanios2020.two_stages([model], [table], x, labels, 5), platanios2020.train_and_predict(
            [model], [table], x, labels
        )

    (apart, seen), (apart_then, seen_then) = classes_of(labels), classes_of(other)
    assert apart[0, 7] == apart_then[0, 7]
    assert seen[0, 7] != seen_then[0, 7]


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("table", "data", "condition"),
    [
        ("table2", "wordsim, 5", "LIA-E"), ("table2", "wordsim, 5", "MAJ*"), ("votes", "wordsim-votes, 2", "LIA"),
        ("table3", "wordsim, 5", "LIA, no fine-tuning"), ("table3", "wordsim, 5", "LIA, as released"),
    ],
)  # fmt: skip
def test_conditions_run(table, data, condition):
    pytest.importorskip("torch", reason="needs the `learning` extra")
    found = platanios2020.table2(cell(table, data, condition, seeds=(0, 1)), "cpu")
    assert list(found) == ["accuracy"]
    assert all(0 <= value <= 100 for value in found["accuracy"])


@pytest.mark.realdata
def test_many_questions_answer_for_both_sets(monkeypatch):
    pytest.importorskip("torch", reason="needs the `learning` extra")
    monkeypatch.setattr(platanios2020, "features", lambda name, items: np.random.default_rng(0).normal(size=(items, 4)))
    for data in ("medical_causes, 2", "medical_treats, 2"):
        found = platanios2020.table2(cell("table2", data, "LIA-ML", items=60), "cpu")
        assert list(found) == ["accuracy", "paper_gold"]
    assert platanios2020.many_questions.cache_info().hits == 1  # one training
    platanios2020.many_questions.cache_clear()


@pytest.mark.realdata
def test_figure2_is_judged_by_gold():
    pytest.importorskip("torch", reason="needs the `learning` extra")
    found = platanios2020.figure2(cell("figure2", "wordsim", "LIA()"), "cpu")
    assert list(found) == [metric.name for metric in load_paper("platanios2020").tables["figure2"].metrics]
    data, model = dz.load_dataset("wordsim"), platanios2020.fitted("wordsim", 0, 20, "cpu")
    assert found["right"] == [pytest.approx(np.mean(model.predict() == model.classes_[data.gold]), abs=1e-6)]
    table = data.annotations
    right = np.bincount(table.annotator, table.label == data.gold[table.item]) / np.bincount(table.annotator)
    able = stats.spearmanr(model.competence_[:, 0], right).statistic
    assert found["competence"] == [pytest.approx(able, abs=1e-6)]
    wrong = [np.mean(table.label[table.item == i] != data.gold[i]) for i in range(table.n_items)]
    assert found["wrong_votes"] == [pytest.approx(stats.spearmanr(model.difficulty_, wrong).statistic, abs=1e-6)]


def test_neighbours_by_a_loop():
    rng = np.random.default_rng(0)
    rows, cluster = rng.normal(size=(12, 3)), rng.integers(3, size=12)
    near, same = [], []
    for i in range(12):
        others = [j for j in range(12) if j != i]
        nearest = min(others, key=lambda j: float(((rows[i] - rows[j]) ** 2).sum()))
        near.append(cluster[nearest] == cluster[i])
        same.append(np.mean([cluster[j] == cluster[i] for j in others]))
    assert platanios2020.neighbours(rows, cluster) == pytest.approx((np.mean(near), np.mean(same)))


def test_r2_is_scikit_learns():
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 2))
    y = X @ [1.0, -2.0] + rng.normal(size=20) + 3
    assert platanios2020.r2(y, X) == pytest.approx(linear.LinearRegression().fit(X, y).score(X, y))


def test_claims_are_judged_over_the_same_draws():
    values = {
        ("table2", "LIA", "accuracy"): [80.0, 82.0, 81.0], ("table2", "MAJ", "accuracy"): [70.0, 71.5, 71.0],
        ("table3", "LIA, no fine-tuning", "accuracy"): [83.0, 84.5, 84.0],
    }  # fmt: skip
    told = {c.text: c for c in platanios2020.claims(lambda t, d, c, m: dict(enumerate(values.get((t, c, m), ()))))}
    assert told["LIA beats majority vote at every redundancy"].verdict == "holds"
    lead = told["LIA beats majority vote at every redundancy"].differences["rte, 2"]
    assert lead.mean == pytest.approx(10.167, abs=1e-3)
    assert told["Fine-tuning helps"].verdict == "the opposite holds"
    assert told["LIA beats MMCE at every redundancy"].verdict == "undecided"


def test_the_stored_results_are_of_these_cells():
    keys = {json.loads(line)["key"] for line in STORE.read_text(encoding="utf-8").splitlines()}
    assert keys == {c.key for table in load_paper("platanios2020").tables.values() for c in table.cells()}


@pytest.mark.realdata
def test_processes_side_by_side_find_the_same(tmp_path):
    table = load_paper("platanios2020").tables["votes"]
    few = {name: table.conditions[name] for name in ("MAJ", "Dawid-Skene", "MMCE")}
    table = dataclasses.replace(table, data={"wordsim-votes, 2": table.data["wordsim-votes, 2"]}, conditions=few)
    found = [reproduce([table], tmp_path / f"{jobs}.jsonl", seeds=2, jobs=jobs)[0] for jobs in (1, 2)]
    assert {key: line["values"] for key, line in found[0].items()} == {
        k: line["values"] for k, line in found[1].items()
    }
    assert len(found[1]) == len(read_store(tmp_path / "2.jsonl")) == 3


FILE = """
title = "A paper"
cite = "Somebody 2020"
[figure1]
title = "A picture"
seeds = 1
data.one = {}
data.two = {}
conditions.plain = {}
conditions.rare = {}
metrics.first = { label = "1st" }
metrics.second = { label = "2nd" }
published.two.plain = { second = 3 }
[[figure1.figures]]
file = "a.svg"
text = "A <map>"
[[figure1.figures]]
file = "b.svg"
text = "Another"
[[figure1.without]]
data = ["one", "three"]
condition = ["rare"]
why = "none."
"""


def test_figures_are_drawn_once_and_shown(monkeypatch, tmp_path):
    paper, drawn = experiment.parse("toy", tomllib.loads(FILE)), []

    class Module:
        @staticmethod
        def draw(path, device):
            drawn.append(path.name)
            if path.name == "b.svg":
                raise ValueError("no ink")
            path.write_text("<svg/>")

    monkeypatch.setattr(experiment.Paper, "module", Module)
    tables = list(paper.tables.values())
    assert draw_figures(paper, tables, tmp_path / "new", "cpu") == {"b.svg": "ValueError: no ink"}
    draw_figures(paper, tables, tmp_path / "new", "cpu")
    assert drawn == ["a.svg", "b.svg", "b.svg"]  # Existing files are not drawn again.
    assert draw_figures(paper, tables, tmp_path / "quick", "cpu", quick=True) == {}
    assert drawn[3:] == ["a.svg"]  # the first of its table
    assert "![A <map>](a.svg)" in render_markdown(make_page(paper, tables, {}))
    assert "<img src='a.svg' alt='A &lt;map&gt;'>" in render_html(make_page(paper, tables, {}))


def test_a_data_set_shows_the_metrics_that_it_has(monkeypatch):
    monkeypatch.setattr(experiment.Paper, "module", None)
    paper = experiment.parse("toy", tomllib.loads(FILE))
    line = {"paper": "toy", "table": "figure1", "condition": "plain", "seeds": [0], "seconds": 0, "made": {}}
    key = paper.tables["figure1"].cell("one", "plain", (0,)).key
    results = {key: {**line, "key": key, "data": "one", "values": {"first": [1.0]}}}
    page = render_markdown(make_page(paper, list(paper.tables.values()), results))
    assert "| one | 1st | seeds |  |" in page
    assert page.endswith("(those of 1 cells were not kept).\n")
    assert "| two | 2nd | published | difference | seeds |  |" in page
    assert "| rare |  |  | not run: none. |" in page  # rules may name several
    assert [c.data for c in paper.tables["figure1"].cells()] == ["one", "two", "two"]
