from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dissensus.table.datasets import load_dataset


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits-crowd")


def test_images_and_gold_are_those_of_scikit_learn(data):
    digits = load_digits()
    np.testing.assert_array_equal(data.images, digits.images)
    np.testing.assert_array_equal(data.features, digits.data)
    assert data.annotations.classes[data.gold].tolist() == [str(digit) for digit in digits.target]
    assert data.annotations.n_items == len(digits.target)


def test_difficulty_and_look_alike_come_from_the_nearest_images(data):
    x = data.features.astype(float)
    difficulty, looks_like = data.items["difficulty"].to_pylist(), data.items["looks_like"].to_pylist()
    for i in range(0, len(x), 199):
        distance = np.sqrt(((x - x[i]) ** 2).sum(axis=1))
        own = sorted(distance[(data.gold == data.gold[i]) & (np.arange(len(x)) != i)])[2]
        others = np.where(data.gold == data.gold[i], np.inf, distance)
        assert looks_like[i] == str(data.gold[others.argmin()])
        share = min(max((own / others.min() - 0.45) / 0.65, 0), 1)
        assert difficulty[i] == pytest.approx(0.5 * share**2, abs=1e-5)


def test_hard_images_are_confused_more_and_with_their_look_alike(data):
    table, difficulty = data.annotations, np.array(data.items["difficulty"])
    kind = np.array(data.annotators["kind"].to_pylist())
    by_expert = kind[table.annotator] == "expert"
    right, hard = table.label == data.gold[table.item], difficulty[table.item] > 0.25
    assert right[by_expert & ~hard].mean() - right[by_expert & hard].mean() > 0.15
    look_alike = np.array(data.items["looks_like"].to_pylist(), int)[table.item]
    wrong = by_expert & hard & ~right
    assert (table.label == look_alike)[wrong].mean() > 0.6


@pytest.mark.parametrize("seed", range(5))
def test_the_crowd_is_as_described(seed):
    data = load_dataset("digits-crowd", seed=seed)
    table = data.annotations
    assert 4.8 < table.n_annotations / table.n_items < 5.2
    assert np.diff(table.item_ptr).min() >= 4
    assert table.describe()["repeated_pairs"] == 0
    kind, n = np.array(data.annotators["kind"].to_pylist()), np.diff(table.annotator_ptr)
    assert len(set(kind.tolist())) == 7
    suspects = ~np.isin(kind, ["expert", "ordinary", "specialist"])
    assert n[suspects].min() >= 100
    assert 4 <= (n <= 20).sum() <= 6  # casual annotators, of whom little can be known
    accuracy = np.array(data.annotators["accuracy"])
    found = np.bincount(table.annotator, table.label == data.gold[table.item], minlength=len(n)) / np.maximum(n, 1)
    np.testing.assert_allclose(found[n > 100], accuracy[n > 100], atol=0.12)
    copies = np.array(data.annotators["copies"].to_pylist(), object)
    assert ((copies != None) == (kind == "clique")).all()  # noqa: E711 - element by element
    clique = np.flatnonzero(kind == "clique")
    assert set(copies[clique]) == {str(table.annotators[clique[0]])}
    row = [np.flatnonzero(table.annotator == member) for member in clique]
    labels = [dict(zip(table.item[at].tolist(), table.label[at].tolist(), strict=True)) for at in row]
    for one, other in itertools.combinations(labels, 2):
        both = one.keys() & other.keys()
        assert len(both) >= 15
        assert np.mean([one[item] == other[item] for item in both]) > 0.7


@pytest.mark.parametrize("seed", range(3))
def test_majority_vote_is_fair_and_weighing_by_the_true_confusions_is_better(seed):
    data = load_dataset("digits-crowd", seed=seed)
    votes = data.annotations.votes()
    top = votes == votes.max(axis=1, keepdims=True)
    majority = (top / top.sum(axis=1, keepdims=True))[np.arange(len(votes)), data.gold].mean()
    assert 0.79 < majority < 0.88
    table = data.annotations
    accuracy = np.clip(np.array(data.annotators["accuracy"])[table.annotator], 0.01, 0.99)
    weight = np.log(accuracy * 9 / (1 - accuracy))  # log odds against a random digit
    score = np.zeros_like(votes)
    np.add.at(score, (table.item, table.label), weight)
    assert (score.argmax(axis=1) == data.gold).mean() > majority + 0.02


def test_the_seed_draws_the_crowd_and_leaves_the_images(data):
    same, other = load_dataset("digits-crowd", seed=0), load_dataset("digits-crowd", seed=1)
    np.testing.assert_array_equal(same.annotations.label, data.annotations.label)
    assert not np.array_equal(other.annotations.label[:1000], data.annotations.label[:1000])
    assert other.items.equals(data.items)
    assert not other.annotators.equals(data.annotators)


def test_it_has_every_part_and_can_be_written(data, tmp_path):
    assert data.missing_parts == "digits-crowd has every part."
    data.write(tmp_path / "digits", features=True)
    again = load_dataset("digits", folder=tmp_path)
    np.testing.assert_array_equal(again.annotations.label, data.annotations.label)
    np.testing.assert_array_equal(again.gold, data.gold)
    np.testing.assert_array_equal(again.images, data.images)
    assert again.annotators["kind"].to_pylist() == data.annotators["kind"].to_pylist()
    assert {name: len(part.gold) for name, part in again.splits.items()} == {"train": 1437, "test": 360}
