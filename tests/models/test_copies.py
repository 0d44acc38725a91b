"""Copiers: found where they are a large block that shifts the consensus, and nobody else accused."""

import dataclasses

import numpy as np
import pytest

from dissensus import Annotations, diagnose, methods
from dissensus.models import copies
from dissensus.models.copies import find_copies
from dissensus.table.simulate import annotate, make_crowd


def copying_crowd(share: float, leaders: int, seed: int, A: int = 60, I: int = 500, K: int = 3):
    """Ten labels an item; a share of the annotators copies leaders who are right six times of ten."""
    crowd = make_crowd(A, K, kinds={"ordinary": 0.7, "expert": 0.15, "specialist": 0.15}, skew=0.6, seed=seed)
    rng = np.random.default_rng(seed)
    answers, leader, copying = crowd.answers.copy(), np.full(A, -1, np.int32), np.ones(A)
    for group in np.array_split(rng.permutation(A)[: round(share * A)], leaders):
        if group.size:
            leader[group], copying[group[1:]] = group[0], 0.95
            answers[group[0]] = 0.6 * np.eye(K) + 0.4 / (K - 1) * (1 - np.eye(K))
    crowd = dataclasses.replace(crowd, answers=answers, leader=leader, copying=copying)
    truth = rng.integers(0, K, I)
    difficulty, decoy = 0.3 * rng.random(I) ** 2, (truth + rng.integers(1, K, I)) % K
    return annotate(crowd, truth, difficulty=difficulty, decoy=decoy, redundancy=10, seed=seed).annotations, leader


@pytest.mark.parametrize(("share", "leaders"), [(0.2, 1), (0.4, 1), (0.4, 3)])
def test_copiers_of_a_poor_leader_are_found(share, leaders):
    table, leader = copying_crowd(share, leaders, seed=1)
    found = find_copies(table)
    assert len(found.groups) == leaders
    for group in found.groups:
        assert len(set(leader[list(group)])) == 1  # nobody else, and no two groups in one
    member = np.flatnonzero(found.unit != np.arange(60)).size + leaders
    assert member >= 0.8 * (leader >= 0).sum()
    assert found.copied_share[found.copied_share > 0].mean() == pytest.approx(0.9, abs=0.1)


def test_a_table_is_searched_once(monkeypatch):
    table, searched = copying_crowd(0, 1, seed=0)[0], []
    run = copies._CopySearch.find_groups
    monkeypatch.setattr(copies._CopySearch, "find_groups", lambda self: searched.append(self) or run(self))
    model = methods["consensus"]().fit(table)
    assert diagnose(table).groups == ()
    assert len(searched) == 1
    assert find_copies(table) is not find_copies(dataclasses.replace(table))
    assert len(searched) == 2
    with pytest.raises(ValueError, match="read-only"):
        find_copies(table).copied_share[0] = 1
    assert (model.copy_group_ == -1).all()


def test_people_who_work_by_themselves_are_no_group():
    for seed in range(3):
        assert not find_copies(copying_crowd(0, 1, seed)[0]).groups


def test_experts_in_a_poor_crowd_are_no_group():
    rng, A, I = np.random.default_rng(0), 30, 400
    truth = rng.integers(0, 2, I)
    right = rng.random((I, A)) < np.where(np.arange(A) < 8, 0.95, 0.62)
    label = np.where(right, truth[:, None], 1 - truth[:, None])
    keep = rng.random((I, A)) < 0.4
    item, who = np.nonzero(keep)
    assert not find_copies(Annotations.from_arrays(item, who, label[keep])).groups


def test_who_always_says_the_same_copies_nobody():
    rng, A, I = np.random.default_rng(1), 40, 400
    truth = rng.integers(0, 2, I)
    right = rng.random((I, A)) < 0.8
    label = np.where(right, truth[:, None], 1 - truth[:, None])
    label[:, :5] = 0
    keep = rng.random((I, A)) < 0.25
    item, who = np.nonzero(keep)
    assert not find_copies(Annotations.from_arrays(item, who, label[keep])).groups


def test_evidence_is_that_of_a_literal_loop():
    rng = np.random.default_rng(0)
    p, hit, of = rng.uniform(0.1, 0.9, 12), rng.random(12) < 0.6, np.arange(12) % 3
    found = copies._compute_copying_evidence(p, hit, of, 3)
    for a in range(3):
        ratio = [
            np.prod([(rate / q + 1 - rate) if h else 1 - rate for q, h in zip(p[of == a], hit[of == a], strict=True)])
            for rate in (0.5, 0.8, 0.95)
        ]
        assert found[a] == pytest.approx(np.log(np.mean(ratio)))


def test_probabilities_are_raised_to_the_least_mean_and_never_lowered():
    rng = np.random.default_rng(0)
    p, of = rng.uniform(0.1, 0.9, 300), np.arange(300) % 3
    raised = copies._raise_mean(p, of, np.array([0.0, 0.7, 0.9]))
    np.testing.assert_allclose(raised[of == 0], p[of == 0])
    assert [raised[of == a].mean() for a in (1, 2)] == pytest.approx([0.7, 0.9], abs=1e-3)


def test_pairs_of_an_item_are_all_pairs():
    left, right = copies._sample_row_pairs(np.array([3, 0, 2, 1]))
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2), (3, 4)]


def test_two_who_agree_where_nobody_else_looked_copy_nobody():
    rng = np.random.default_rng(0)
    said = rng.integers(0, 2, 200)
    pair = Annotations.from_matrix(np.stack([said, said], axis=1))
    assert find_copies(pair).groups == ()
    beside = np.where(rng.random((200, 4)) < 0.6, rng.integers(0, 2, (200, 1)), rng.integers(0, 2, (200, 4)))
    seen = Annotations.from_matrix(np.column_stack([said, said, beside]))  # now others say what would be expected
    assert find_copies(seen).groups == ((0, 1),)
