import json
from inspect import signature

import numpy as np
import pytest

import dissensus
from benchmarks.clustering.drawn import draw
from clustering.graphs import clustered
from dissensus import Annotations, select_clusters
from dissensus.cli.cluster import SizeOptions
from dissensus.clustering import FMM, PGMBP
from dissensus.clustering.exceptions import NoClusterCounts, NoLabelledDevelopmentItems, TooManyClusters
from dissensus.clustering.select import _candidate_counts
from dissensus.evaluation import hide_annotators, inverse_kl_divergence, kl_divergence
from dissensus.exceptions import BadParameter, UnknownClass, UnknownName, UnwritableFile
from refused import refused
from tables import KINDS

GRID = {"K": (2, 3), "L": (1, 2)}


def test_a_point_is_the_fit_of_those_numbers():
    train, dev = clustered().split(0.7, by="item", seed=4)
    found = select_clusters(train, "pgm-bp", K=[3, 2], L=[2, 1], dev=dev, criterion="kl")
    assert [(point.K, point.L) for point in found.points] == [(2, 1), (2, 2), (3, 1), (3, 2)]
    for point in found.points:
        model = PGMBP(item_clusters=point.K, annotator_clusters=point.L, restarts=1).fit(train)
        votes, snapped = dev.soft_labels(), model.predict_proba(dev)
        np.testing.assert_allclose(point.kl, kl_divergence(votes, snapped).mean())
        np.testing.assert_allclose(point.inverse_kl, inverse_kl_divergence(votes, snapped).mean())
        np.testing.assert_allclose(point.objective, model.trace_[-1])
        assert point.log_likelihood is None
    assert found.best == min(found.points, key=lambda point: point.kl)
    np.testing.assert_array_equal(
        found.matrix("kl"), [[p.kl for p in found.points[:2]], [p.kl for p in found.points[2:]]]
    )
    assert found.K == [2, 3]
    assert found.L == [1, 2]
    assert len(found.to_frame()) == len(found.rows()) == 4
    best = found.estimator()
    assert (best.item_clusters, best.annotator_clusters) == (found.best.K, found.best.L)
    with refused(BadParameter, name="measure"):
        found.matrix("accuracy")


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_labels_are_judged_by_what_was_given(kind):
    train, dev = clustered(kind).split(0.7, by="item", seed=4)
    found = select_clusters(train, "pgm-bp", K=[3], L=[2], dev=dev, criterion="likelihood", seed=5)
    given, hidden = hide_annotators(dev, 0.5, 5)
    model = PGMBP(item_clusters=3, annotator_clusters=2, restarts=1, seed=5).fit(train)
    w = model.predict_clusters(given)
    total = weights = 0.0
    for row in range(len(hidden)):
        z = model.annotator_clusters_[np.flatnonzero(model.annotators_ == hidden.annotators[hidden.annotator[row]])[0]]
        chance = np.einsum("k,l,klp->p", w[hidden.item[row]], z, model.labels_of_clusters_)
        chance = chance[hidden.label[row]] if hidden.proba is None else chance @ hidden.proba[row]
        weight = 1.0 if hidden.weight is None else hidden.weight[row]
        total, weights = total + weight * np.log(chance), weights + weight
    np.testing.assert_allclose(found.best.log_likelihood, total / weights)
    np.testing.assert_allclose(found.best.kl, kl_divergence(hidden.soft_labels(), model.predict_proba(given)).mean())


def test_the_true_numbers_are_found():
    drawn = draw(600, 60, 8, item_clusters=3, annotator_clusters=2, redundancy=12, concentration=0.2, seed=1)
    found = select_clusters(drawn.annotations, K=range(1, 6), L=range(1, 4), criterion="likelihood", restarts=3)
    assert found.best.K >= 3
    assert found.best.L >= 2
    likelihood = found.matrix("log_likelihood")
    at_truth = likelihood[2, 1]
    assert at_truth > likelihood[:2].max() + 0.1  # fewer item clusters are worse
    assert at_truth > likelihood[:, 0].max() + 0.1  # fewer annotator clusters too
    assert found.best.log_likelihood < at_truth + 0.02  # more are hardly better


def test_the_function_and_the_command_judge_by_the_same():
    function, command = (signature(one).parameters["criterion"].default for one in (select_clusters, SizeOptions))
    assert function == command.default
    assert select_clusters(clustered(), "fmm", K=[2], dev=0.3).best.log_likelihood is not None


def test_fmm_has_one_column():
    found = select_clusters(clustered(), "fmm", K=[2, 3], dev=0.3)
    assert found.L == [1]
    assert found.matrix().shape == (2, 1)
    assert isinstance(found.estimator(), FMM)


def test_jobs_change_nothing():
    table = clustered()
    one, two = (select_clusters(table, "pgm-bp", **GRID, jobs=jobs) for jobs in (1, 2))
    for a, b in zip(one.points, two.points, strict=True):
        assert (a.K, a.L, a.kl, a.objective) == (b.K, b.L, b.kl, b.objective)


def test_a_search_that_was_killed_goes_on(tmp_path):
    table, store = clustered(), tmp_path / "points.jsonl"

    class Killed(Exception):
        pass

    def kill(point, done, total):
        if done == 2:
            raise Killed

    with pytest.raises(Killed):
        select_clusters(table, **GRID, store=store, on_point=kill, jobs=1)
    lines = store.read_text().splitlines()
    assert len(lines) == 2
    kept = [json.loads(line) for line in lines]
    store.write_text("\n".join(lines) + '\n{"key": "torn', encoding="utf-8")  # and it died while writing a third

    fits = []
    original = PGMBP.fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PGMBP, "fit", lambda self, *a, **k: fits.append(1) or original(self, *a, **k))
        seen = []
        found = select_clusters(table, **GRID, store=store, on_point=lambda p, done, total: seen.append((done, total)))
        assert len(fits) == 2
        assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
        again = select_clusters(table, **GRID, store=store)
        assert len(fits) == 2
        select_clusters(table, **GRID, store=store, alpha=3.0)  # other settings are other points
        assert len(fits) == 6
        select_clusters(clustered(seed=7), **GRID, store=store)  # and so are other data
        assert len(fits) == 10
    assert again.points == found.points
    by_place = {(point.K, point.L): point for point in found.points}
    for row in kept:
        assert by_place[row["K"], row["L"]].kl == row["kl"]
    fresh = select_clusters(table, **GRID)
    assert [point.kl for point in fresh.points] == [point.kl for point in found.points]


def test_bad_input_is_one_clear_error(tmp_path):
    table = clustered()
    with refused(UnknownName, name="pgm-pb"):
        select_clusters(table, "pgm-pb")
    with refused(BadParameter, name="criterion"):
        select_clusters(table, criterion="accuracy")
    with refused(BadParameter, name="held_out"):
        select_clusters(table, held_out=1.0)
    with refused(BadParameter, name="dev"):
        select_clusters(table, dev=1.5)
    with refused(BadParameter, name="jobs"):
        select_clusters(table, jobs=0)
    with refused(NoClusterCounts):
        select_clusters(table, K=[])
    with refused(TooManyClusters, name="item_clusters", clusters=500, available=90, nodes="items"):
        select_clusters(table, K=[500], L=[2])
    with pytest.raises(UnknownClass):
        select_clusters(table, **GRID, dev=Annotations.from_arrays([1], [1], [9]))
    empty = Annotations.from_arrays([1], [1], [0], classes=4, items=[1, 2]).select(items=[2])
    with refused(NoLabelledDevelopmentItems):
        select_clusters(table, **GRID, dev=empty)
    with pytest.raises(UnwritableFile):
        select_clusters(table, **GRID, store=tmp_path)
    with pytest.raises(UnwritableFile):
        select_clusters(table, K=[2], L=[1], store=tmp_path / "nowhere" / "points.jsonl")


@pytest.mark.realdata
def test_annotator_clusters_predict_hidden_labels_of_jobs_q3_better(data_folder):
    data = dissensus.load_dataset("jobs_q3")
    train, dev = (data.splits[name].annotations for name in ("train", "dev"))
    items_only = select_clusters(train, "fmm", K=[8], dev=dev, criterion="likelihood").best
    both = select_clusters(train, "pgm-bp", K=[8], L=[8], dev=dev, criterion="likelihood").best
    assert both.log_likelihood > items_only.log_likelihood + 0.08


@pytest.mark.parametrize(
    ("numbers", "there", "sizes", "tried"),
    [
        (range(3, 21), 100, 4, [3, 6, 11, 20]),
        (range(3, 21), 100, None, list(range(3, 21))),
        (range(3, 21), 10, 4, [3, 4, 7, 10]),
        (range(3, 21), 2, 4, [2]),
        (range(2, 6), 100, 4, [2, 3, 4, 5]),
        (range(5, 1, -1), 4, None, [2, 3, 4]),
        (range(1, 1001), 1000, 4, [1, 10, 100, 1000]),
        ([3, 5, 8, 9, 11], 4, 4, [3, 5, 8, 9, 11]),
    ],
)
def test_of_a_range_the_numbers_that_fit_are_tried_or_some_of_them(numbers, there, sizes, tried):
    assert _candidate_counts(numbers, there, sizes) == tried


def test_the_default_ranges_fit_few_annotators():
    table = draw(12, 4, 3, item_clusters=2, annotator_clusters=2, redundancy=3, seed=1).annotations
    found = select_clusters(table)
    assert found.K == [3, 4, 5, 6, 7, 8, 9]
    assert found.L == [3, 4]
    with refused(NoLabelledDevelopmentItems):
        select_clusters(table.select(items=table.items == table.items[0]))
