"""Who answers unlike the others, where labels are no classes: honest crowds are left alone, others are found."""

import numpy as np
import pytest
from scipy.stats import t as student

import dissensus as dz
from dissensus import Annotations
from dissensus.questions import bias_tests
from dissensus.table.simulate import simulate_kind, simulate_spans, simulate_texts
from tables import drawn


@pytest.mark.parametrize("kind", ["numbers", "graded", "pairs"])
def test_nobody_of_an_honest_crowd_is_named(kind):
    named = 0
    for seed in range(8):
        sim = simulate_kind(kind, 200, 20, redundancy=8, spammers=0, adversaries=0, seed=seed)
        named += sum(map(bool, bias_tests.find_biases(sim.annotations).flags))
    assert named <= 1  # of 160


@pytest.mark.parametrize(("kind", "least"), [("numbers", 0.8), ("graded", 0.8), ("pairs", 0.0)])
def test_who_does_not_look_and_who_turns_the_scale_are_named(kind, least):
    hits = {"spammer": [], "adversary": []}
    for seed in range(3):
        sim = simulate_kind(kind, 400, 25, redundancy=8, seed=seed)
        flags = bias_tests.find_biases(sim.annotations).flags
        for who, flag in (("spammer", "unrelated"), ("adversary", "contrary")):
            hits[who] += [flag in flags[a] for a in np.flatnonzero(sim.kind == who)]
    assert np.mean(hits["spammer"]) >= least
    assert np.mean(hits["adversary"]) == 1


def changed(kind, who, change):
    """A table in which one annotator's rows say something else."""
    sim = simulate_kind(kind, 300, 15, redundancy=8, spammers=0, adversaries=0, bias=0.1, seed=2)
    table, mine = sim.annotations, sim.annotations.annotator == who
    return Annotations.from_codes(
        table.item, table.annotator, np.where(mine, change(table), table.label), table.items, table.annotators,
        table.classes, kind=table.kind,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change", "flag", "facts"),
    [
        ("graded", lambda t: np.minimum(t.label + 2, t.n_classes - 1), "higher", {"direction": "higher"}),
        ("graded", lambda t: np.zeros(len(t), int), "unrelated", {"value": 0}),
        ("pairs", lambda t: np.zeros(len(t), int), "left", {"choice": "left"}),
        ("pairs", lambda t: np.full(len(t), 2), "more_ties", {"choice": "tie"}),
    ],
)
def test_a_habit_is_found_and_said_in_numbers(kind, change, flag, facts):
    found = bias_tests.find_biases(changed(kind, 4, change))
    assert flag in found.flags[4]
    reason = found.flag_messages[4][flag]
    assert {name: getattr(reason, name) for name in facts} == facts
    assert reason.chance <= 0.01
    assert str(reason) in found.reasons[4]
    assert sum(map(bool, found.flags)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_who_rates_all_the_same_is_named_where_others_vary(seed):
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(46), 4)
    annotator = np.concatenate([rng.permutation(8)[:4] for _ in range(46)])
    honest = (rng.normal(50, 15, 46)[item] + rng.normal(0, 12, 184)).round(1)
    rare = np.where(np.arange(184) % 60 == 0, 1.0, 0.0)  # nearly everyone says 0 of nearly everything

    def flags(ratings):
        return bias_tests.find_biases(Annotations.from_arrays(item, annotator, ratings, kind="numbers")).flags

    found = flags(np.where(annotator == 0, 50.0, honest))
    assert (np.bincount(annotator)[0] >= 20) == (found[0] == ("unrelated",))
    assert not any(found[1:])
    assert not any(flags(honest))
    assert not any(flags(rare))
    alone = Annotations.from_arrays([0], [0], [1.5], kind="numbers")
    assert repr(bias_tests.find_biases(alone)) == "BiasDiagnosis of 1 annotator: 0 answer unlike the others"


def test_grades_have_shifts_beside_the_tests_of_classes():
    table = changed("graded", 4, lambda t: np.minimum(t.label + 2, t.n_classes - 1))
    found = dz.diagnose(table)
    assert found.annotators_with_flag("higher") == [table.annotators[4]]
    assert "higher" in found.to_frame().iloc[4]["flag"]


def test_texts_and_spans_far_from_all_others_are_named():
    texts = simulate_texts(120, 12, spammers=2, seed=1).annotations
    assert len(bias_tests.find_biases(texts).annotators_with_flag("unrelated")) == 2
    sim = simulate_spans(300, 24, 3, seed=1)
    found = bias_tests.find_biases(sim.annotations)
    named = {str(sim.kind[code]) for code, flags in enumerate(found.flags) if flags}
    assert named <= {"spammer", "adversary"}
    assert named


def test_shift_and_relation_are_those_of_a_loop():
    table = drawn("numbers")
    labels, (relation, shift), (_, spread) = bias_tests._measure_number_traits(table)
    raw = table.values[table.label]
    order = np.sort(raw)
    middle = [(np.searchsorted(order, x) + np.searchsorted(order, x, "right")) / 2 / len(table) for x in raw]
    x = bias_tests.ndtri(np.array(middle))
    for a in range(table.n_annotators):
        mine, others = [], []
        for row in np.flatnonzero(table.annotator == a):
            rest = [r for r in np.flatnonzero(table.item == table.item[row]) if table.annotator[r] != a]
            if rest:
                mine.append(x[row])
                others.append(np.mean(x[rest]))
        d = np.array(mine) - np.array(others)
        assert labels[a] == d.size
        assert shift.value[a] == pytest.approx(d.mean())
        assert shift.error[a] == pytest.approx(d.std(ddof=1) / np.sqrt(d.size))
        assert relation.value[a] == pytest.approx(np.arctanh(np.corrcoef(mine, others)[0, 1]))
    assert spread[3] == pytest.approx(raw[table.item == 3].std(ddof=1))


def test_discoveries_are_the_outside_library_s():
    from statsmodels.stats.multitest import multipletests

    p = np.random.default_rng(0).random((30, 2)) ** 6
    p[3, 1] = np.nan
    known = ~np.isnan(p)
    found = bias_tests.apply_benjamini_hochberg(p, 0.05)
    np.testing.assert_array_equal(found[known], multipletests(p[known], 0.05, "fdr_bh")[0])
    assert not found[~known].any()


def test_a_crowd_of_one_mind_has_students_p_values():
    value = np.array([0.0, 0.1, -0.1, 0.2, -0.2, 0.15, -0.15, 0.05, -0.05, 5.0])
    trait = bias_tests.Trait("shift", value, np.full(10, 0.2), 0, lambda code: "")
    crowd = bias_tests.TraitDistribution.fit(trait, np.ones(10, bool))
    like = crowd.probability[:, 0]
    assert like[9] < 0.5 < like[:9].min()
    assert crowd.mean == pytest.approx(0, abs=0.02)
    assert crowd.p_value[9] == pytest.approx(2 * student.sf((5 - crowd.mean) / 0.2, like.sum() - 1), rel=1e-6)
    few = bias_tests.TraitDistribution.fit(trait, np.arange(10) < 3)
    assert np.isnan(few.p_value).all()
