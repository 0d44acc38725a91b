"""Table 3's conditions on real items, as plainly as they can be had."""

import dataclasses

import numpy as np
import pytest

from dissensus.evaluation import kl_divergence, same_winner
from dissensus.papers import load_paper, weerasooriya2021

pytest.importorskip("torch", reason="needs the `learning` extra")


@pytest.fixture
def without_minilm(monkeypatch):
    """Any vectors do."""
    monkeypatch.setattr(weerasooriya2021, "vectors", lambda: np.random.default_rng(0).normal(size=(2000, 8)))
    weerasooriya2021.parts.cache_clear()
    yield
    weerasooriya2021.parts.cache_clear()


def cell(condition, **keywords):
    found = next(
        c for c in load_paper("weerasooriya2021").tables["table3"].cells(quick=True) if c.condition == condition
    )
    return dataclasses.replace(found, keywords=found.keywords | keywords)


@pytest.mark.realdata
def test_the_mean_of_votes_is_that(without_minilm):
    split = weerasooriya2021.parts("jobs_q1")
    y = split["test"].votes
    h = np.tile(split["train"].votes.mean(axis=0), (500, 1))
    found = weerasooriya2021.table3(cell("mean of all training votes"), "cpu")
    assert found["kl"] == pytest.approx([kl_divergence(y, h).mean()], abs=1e-6)
    assert found["accuracy"] == pytest.approx([same_winner(y, h).mean()], abs=1e-6)


@pytest.mark.realdata
@pytest.mark.parametrize(
    "condition",
    ["MiniLM, linear", "FMM → MiniLM, linear", "FMM by own votes", "LDL-NM", "LDL-NM, Algorithm 4 by own votes"],
)
def test_conditions_run(without_minilm, condition):
    found = weerasooriya2021.table3(cell(condition, epochs=1), "cpu")
    assert all(len(values) == 1 and np.isfinite(values[0]) for values in found.values())
    if condition == "FMM by own votes":
        assert found["accuracy"][0] > 0.9  # it reads the answer


def test_published_figures_are_the_papers():
    table = load_paper("weerasooriya2021").tables["table3"]
    assert table.told("jobs_q3", "LDL-NM", "accuracy") == (0.923, 0.0015)
    assert table.told("jobs_q2", "PGM-SA → CNN, hard", "inverse_kl") == (0.884, 0.004)
    assert load_paper("weerasooriya2021").tables["table2"].told("jobs_q3", "FMM", "K") == (35, None)
