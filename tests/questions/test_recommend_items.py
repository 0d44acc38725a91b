"""What to ask about next, where labels are no classes: gains are those of a loop, and asking lowers what is unknown."""

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.models.base import default_method
from dissensus.questions.exceptions import BudgetBelowOne
from dissensus.questions.recommend_items import recommend_items
from tables import drawn


def fitted(kind):
    table = drawn(kind)
    return methods[default_method(kind)]().fit(table), table


@pytest.mark.parametrize("kind", ["numbers", "sets", "spans", "objects", "pairs"])
def test_the_most_telling_come_first(kind):
    model, table = fitted(kind)
    found = recommend_items(model, table, budget=5)
    assert len(found) == 5
    assert (np.diff(found.gain) <= 1e-12).all()
    frame = found.to_frame("pyarrow")
    assert frame["rank"].to_pylist() == [1, 2, 3, 4, 5]
    assert found.finding().n == 5
    assert "RecommendedItems" in repr(found)
    with pytest.raises(BudgetBelowOne) as caught:
        recommend_items(model, table, budget=0)
    assert caught.value.budget == 0


def test_gain_of_comparisons_is_that_of_determinants():
    model, table = fitted("pairs")
    found = recommend_items(model, table, budget=3)
    V, things = model.score_variance_, model.things_.tolist()
    for name, gain in zip(found.items, found.gain, strict=True):
        best, chosen = -1.0, None
        for i in range(len(things)):
            for k in range(i + 1, len(things)):
                e = np.zeros(len(things))
                e[i], e[k] = 1, -1
                d = model.scores_[i] - model.scores_[k] + model.crowd_answering_[1]
                odds = np.exp([d / 2, -d / 2, model.crowd_answering_[2]])
                left, right, _ = odds / odds.sum()
                c = (left + right - (left - right) ** 2) / 4
                now = 0.5 * np.log(np.linalg.det(np.eye(len(things)) + c * np.outer(e, e) @ V))
                if now > best + 1e-12:
                    best, chosen, after = (
                        now,
                        {things[i], things[k]},
                        V - c * V @ np.outer(e, e) @ V / (1 + c * e @ V @ e),
                    )
        assert gain == pytest.approx(best)
        assert set(name.split(" vs ")) == chosen
        V = after


def test_gain_of_sets_is_mutual_information():
    model, table = fitted("sets")
    found = recommend_items(model, table, budget=table.n_items)
    item = model.items_.tolist().index(found.items[0])
    total = 0.0
    for c in range(model.options_.size):
        q, hit, miss = model.posterior_[item, c], model.population_hit_[c], model.population_false_tick_[c]
        joint = np.array([[q * hit, q * (1 - hit)], [(1 - q) * miss, (1 - q) * (1 - miss)]])
        total += (joint * np.log(joint / np.outer(joint.sum(axis=1), joint.sum(axis=0)))).sum()
    assert found.gain[0] == pytest.approx(total)


def test_an_item_with_one_answer_comes_before_one_with_three():
    table = drawn("numbers")
    rows = np.flatnonzero(table.item == 5)
    fewer = table.select(rows=~np.isin(np.arange(len(table)), rows[1:]))
    gains = [
        dict(zip(one.items.tolist(), one.gain, strict=True))[table.items[5]]
        for one in (recommend_items(methods["gaussian"]().fit(t), t, budget=t.n_items) for t in (table, fewer))
    ]
    assert gains[1] > gains[0]
    texts = Annotations.from_arrays([1, 1, 1, 2], ["a", "b", "c", "a"], ["x y", "x y", "x z", "q"], kind="objects")
    assert recommend_items(methods["closest"]().fit(texts), texts, budget=1).items.tolist() == [2]
