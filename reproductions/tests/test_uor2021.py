"""Few votes and simulated annotators from counts, scores as they are defined, and small trainings of every set."""

import dataclasses
import tomllib
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from dissensus.table.annotations import Annotations
from reproductions import experiment, load_paper, uor2021
from reproductions.render import table_rows
from reproductions.verdict import assess_equality, estimate_mean

TABLE = load_paper("uor2021").tables["table3"]


def counted(counts):
    """Return a table with (I, K) counts of votes."""
    item, label = np.nonzero(counts)
    return Annotations.from_counts(item, label, counts[item, label], classes=counts.shape[1])


def cell(data, condition, **keywords):
    found = next(c for c in TABLE.cells(quick=True) if (c.data, c.condition) == (data, condition))
    return dataclasses.replace(found, keywords=found.keywords | keywords)


# Cells to run ---------------------------------------------------------------------------------------------------------


def test_a_data_set_may_have_conditions_and_seeds_of_its_own():
    told = tomllib.loads("""
        title = "t"
        cite = "c"
        [table1]
        title = "t"
        seeds = 3
        data.one = {}
        data.two = {}
        conditions.plain = {}
        conditions.other = {}
        metrics.x = { label = "x" }
        only.two = { conditions = ["other"], seeds = 2 }
        """)
    table = experiment.parse("toy", told).tables["table1"]
    found = [(c.data, c.condition, c.seeds) for c in table.cells() if c.data == "two"]
    assert found == [("two", "other", (0,)), ("two", "other", (1,))]
    assert len(list(table.cells())) == 3 * 2 + 2
    assert len([c for c in table.cells(seeds=5) if c.data == "two"]) == 5  # The argument overrides the file.
    assert [row[0] for row in table_rows(table, {}, [], "two")] == ["other"]


def test_every_set_has_its_conditions_and_pdis_is_not_run():
    for data, only in TABLE.only.items():
        assert set(only["conditions"]) <= set(TABLE.conditions), data
    seeds = Counter(c.data for c in TABLE.cells() if c.condition == "majority")
    assert seeds == {data: TABLE.seeds_of(data, "majority", 10) for data in TABLE.data if data != "PDIS"}
    assert {c.data for c in TABLE.cells(quick=True)} == set(TABLE.data) - {"PDIS"}
    assert "not available" in TABLE.why_not("PDIS", "majority")


def test_published_figures_are_the_papers():
    crowd = "crowd layer, matrix, softmax"
    assert TABLE.published_value("LabelMe", crowd, "f1") == (0.7839, None)
    assert TABLE.published_value("CIFAR-10H, all votes", "majority + SAM", "cross_entropy") == (0.8274, None)
    assert TABLE.published_value("PDIS", crowd, "cross_entropy") == (0.8295, None)
    first = "Gimpel-POS, MiniLM, 1 epoch"
    for metric in ("f1", "cross_entropy"):
        assert TABLE.published_value(first, "majority", metric) == TABLE.published_value(first, crowd, metric)


# Votes ----------------------------------------------------------------------------------------------------------------


def test_few_votes_are_some_of_an_items_own():
    counts = np.array([[3, 1, 0], [0, 5, 2], [1, 0, 0], [9, 9, 9]])
    table, totals = counted(counts), np.zeros((4, 3))
    for seed in range(300):
        few = uor2021.draw_votes(table, 2, seed)
        for i in range(4):
            got = np.bincount(few.label[few.item == i], minlength=3)
            assert got.sum() == min(2, counts[i].sum())
            assert (got <= counts[i]).all()
            totals[i] += got
    shares = totals / totals.sum(axis=1, keepdims=True)
    assert shares == pytest.approx(counts / counts.sum(axis=1, keepdims=True), abs=0.08)  # 4 s.e. of 600 votes


def test_votes_are_dealt_out_to_different_annotators_and_stay_what_they_are():
    rng = np.random.default_rng(1)
    table = counted(rng.multinomial(9, [0.7, 0.2, 0.1], size=50))
    known = counted_by(np.zeros((6, 13), int))
    dealt = uor2021.simulate_annotators(table, known, seed=0)
    for i in range(50):
        mine = dealt.item == i
        assert len(set(dealt.annotator[mine])) == mine.sum() == 9
        assert sorted(dealt.label[mine]) == sorted(table.label[table.item == i])
    assert np.bincount(dealt.annotator) == pytest.approx(450 / 13, abs=16)  # 5 s.d.
    other = uor2021.simulate_annotators(table, known, seed=1)
    assert (other.annotator != dealt.annotator).any() or (other.label != dealt.label).any()


def counted_by(labels):
    """Return a table in which annotator a gives item i labels[i, a], of three classes."""
    item, annotator = np.indices(labels.shape).reshape(2, -1)
    names = [np.array([f"{x:02}" for x in range(n)], object) for n in labels.shape]
    return Annotations.from_codes(item, annotator, labels.ravel(), *names, np.arange(3).astype(object))


def test_who_erred_where_it_is_known_errs_here():
    labels = np.zeros((100, 20), int)
    labels[:, 15:] = np.where(np.arange(100)[:, None] < 80, 1, 0)  # five are wrong on 80 of 100 items
    known = counted_by(labels)
    table = counted(np.tile([8, 1, 1], (2000, 1)))
    dealt = uor2021.simulate_annotators(table, known, seed=0)
    wrong = np.bincount(dealt.annotator, dealt.label != 0, 20)
    given = np.bincount(dealt.annotator, minlength=20)
    # A literal loop: ten of twenty annotators, with two of them drawn by their rates.
    rng, expected = np.random.default_rng(3), np.zeros(20)
    rate = [rng.beta(uor2021.ERRORS[0] + n, uor2021.ERRORS[1] + 100 - n) for n in [0] * 15 + [80] * 5]
    for _ in range(2000):
        ten = rng.choice(20, 10, replace=False)
        weight = np.array([rate[a] for a in ten])
        expected[rng.choice(ten, 2, replace=False, p=weight / weight.sum())] += 1
    assert wrong[15:].sum() / wrong.sum() == pytest.approx(expected[15:].sum() / expected.sum(), abs=0.05)
    assert (wrong <= given).all()
    assert wrong[15:].min() > wrong[:15].max()


# Scores ---------------------------------------------------------------------------------------------------------------


def test_scores_are_of_gold_and_of_votes_where_there_are_any():
    rng = np.random.default_rng(0)
    truth = np.array([0, 1, 2, 3, -1, 1, 0, -1, 2])
    proba = rng.dirichlet(np.ones(4), size=9)
    shares = rng.dirichlet(np.ones(4), size=9)
    shares[[1, 6]] = 0
    proba[0] = [0, 0.5, 0.5, 0]
    found = uor2021.measured(truth, shares, proba, 1e-12)
    known, best = truth >= 0, proba.argmax(axis=1)
    assert found["f1"] == pytest.approx(f1_score(truth[known], best[known], average="macro"))
    assert found["accuracy"] == pytest.approx(accuracy_score(truth[known], best[known]))
    total, n = 0.0, 0
    for i in range(9):
        if i not in (1, 6):
            total -= sum(shares[i, k] * np.log(max(proba[i, k], 1e-12)) for k in range(4))
            n += 1
    assert found["cross_entropy"] == pytest.approx(total / n)


def test_the_same_is_within_the_margin():
    near, far, open_ = (
        estimate_mean([0.001, 0.002, 0.0]),
        estimate_mean([-0.1, -0.11, -0.09]),
        estimate_mean([0.1, -0.1]),
    )
    for differences, verdict in (
        ([near], "holds"),
        ([near, far], "does not hold"),
        ([open_], "undecided"),
        ([], "undecided"),
    ):
        assert assess_equality("", {str(n): d for n, d in enumerate(differences)}, 0.02).verdict.startswith(verdict)


def test_claims_are_judged_the_right_way_round():
    values = {"majority": [0.70, 0.71, 0.72], "majority + SAM": [0.75, 0.755, 0.77], uor2021.CROWD: [0.80, 0.80, 0.83]}
    by_seed = {condition: dict(enumerate(each)) for condition, each in values.items()}
    verdicts = {
        c.text: c.verdict for c in uor2021.claims(lambda table, data, condition, metric: by_seed.get(condition))
    }
    assert verdicts["A crowd layer beats majority labels on LabelMe, F1"] == "holds"
    assert verdicts["… and by cross entropy"] == "the opposite holds"  # lower is better
    assert verdicts["SAM helps on noisy majority labels, CIFAR-10H, F1"] == "holds"
    assert verdicts["SAM on majority labels beats a crowd layer on CIFAR-10H, F1"] == "the opposite holds"


# Trainings ------------------------------------------------------------------------------------------------------------


@pytest.mark.realdata
def test_labelme_leaves_out_another_tenth_with_every_seed():
    how = TABLE.data["LabelMe"]
    tasks = [uor2021.labelme(seed, how) for seed in range(10)]
    left_out = set()
    for task in tasks:
        assert task.table.n_items == 900
        assert (task.truth >= 0).sum() == 1188
        assert (task.shares.sum(axis=1) > 0).sum() == 100
        assert not ((task.truth >= 0) & (task.shares.sum(axis=1) > 0)).any()
        left_out |= set(uor2021.split("labelme")["train"].item_names) - set(task.table.items)
    assert len(left_out) == 1000


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("data", "condition"),
    [
        ("LabelMe", "crowd layer, matrix, softmax + SAM"), ("LabelMe, stopped early", "Dawid-Skene + mixup"),
        ("LabelMe", "gold (no crowd)"), ("Gimpel-POS, tagger, 12 epochs", "soft-task (majority)"),
    ],
)  # fmt: skip
def test_conditions_run(data, condition):
    pytest.importorskip("torch", reason="needs the `learning` extra")
    found = uor2021.table3(cell(data, condition, items=30), "cpu")
    assert set(found) == {"f1", "cross_entropy", "accuracy", "posterior", "epochs"}
    assert all(len(values) == 1 and np.isfinite(values[0]) for values in found.values())
    if condition.startswith("gold"):
        assert found["posterior"] == [1.0]


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("data", "condition"),
    [("CIFAR-10H, all votes", "crowd layer, matrix, normalize"), ("CIFAR-10H, 1 vote", "majority + SAM")],
)
def test_conditions_run_on_images(data, condition):
    pytest.importorskip("torch", reason="needs the `learning` extra")
    one = cell(data, condition, items=12)
    found = uor2021.table3(one, "cpu")
    assert all(np.isfinite(values).all() for values in found.values())
    task = uor2021.cifar10h(0, one.keywords)
    assert task.table.n_annotations == 12 if "1 vote" in data else task.table.n_annotators == 2571


def test_a_schedule_of_epochs_has_numbers():
    how = TABLE.data["CIFAR-10H, all votes"]
    assert uor2021.training(how | {"objective": "hard"})["schedule"] == {60: 0.2, 65: 0.2, 75: 0.2}
    assert uor2021.training(how | {"objective": "crowd-layer"}) == how["crowd"]


def test_minilm_goes_along_in_half_precision(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="needs the `learning` extra")
    pytest.importorskip("transformers", reason="needs the `text` extra")
    from safetensors.torch import load_file

    from dissensus.features import hub
    from features.tiny import tiny_bert

    source = tiny_bert(tmp_path / "bundled")
    monkeypatch.setenv("DISSENSUS_PREPARED", str(tmp_path / "prepared"))
    monkeypatch.setattr(hub, "find_model_folder", lambda model: source)
    assert uor2021.minilm() is None
    uor2021.prepare()
    made = hub.load_pretrained(tmp_path / "prepared" / "minilm")
    assert uor2021.minilm() == str(tmp_path / "prepared" / "minilm")
    kept = load_file(tmp_path / "prepared" / "minilm" / "model.safetensors")
    assert {value.dtype for value in kept.values()} == {torch.float16}
    for name, value in hub.load_pretrained(source).state_dict().items():
        assert made.state_dict()[name].dtype == torch.float32
        torch.testing.assert_close(made.state_dict()[name], value, rtol=1e-3, atol=1e-6)
