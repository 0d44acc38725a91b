"""How long a training takes is said before it starts, and close enough."""

import numpy as np
import pytest

from dissensus.cli import how_long
from dissensus.common import progress
from dissensus.table.simulate import simulate


def test_few_items_are_not_timed():
    table = simulate(100, 5, 2, redundancy=2, seed=0).annotations
    assert how_long.training_seconds(None, table, None) == 0


def test_a_training_is_guessed_from_small_ones(monkeypatch):
    pytest.importorskip("torch", reason="needs the extra learning")
    from dissensus.learning import CrowdClassifier

    clock = [0.0]
    monkeypatch.setattr(how_long.time, "perf_counter", lambda: clock[0])

    class Slow(CrowdClassifier):
        def fit(self, table, X, **_):  # 10 ms, 0.1 ms per item, 0.02 ms per item and epoch
            assert len(X) == table.n_items
            clock[0] += 0.01 + 1e-4 * table.n_items + 2e-5 * table.n_items * self.epochs
            return self

    table = simulate(700, 5, 2, redundancy=2, seed=0).annotations
    X = np.zeros((700, 2))
    guess = how_long.training_seconds(Slow(epochs=500, objective="soft"), table, X, fits=2)
    assert guess == pytest.approx(2 * (0.01 + 0.07 + 7))
    before = clock[0]
    assert how_long.training_seconds(Slow(epochs=500), table, X) == 0.0  # a pool over features: nothing to time
    assert clock[0] == before
    monkeypatch.setattr(how_long, "MAX_SECONDS_TIMED", 0.01)
    assert how_long.training_seconds(Slow(epochs=500, objective="soft"), table, X) == 0.0
    assert clock[0] < before + 0.04  # one fit, and no more


def test_only_what_is_long_is_announced_and_nothing_when_quiet(capsys):
    how_long.announce(3, "a fit")
    with progress.output(quiet=True, lines=False):
        how_long.announce(300, "a fit")
    assert capsys.readouterr().err == ""
    how_long.announce(300, "a fit", "; fewer epochs take less")
    assert capsys.readouterr().err == "dissensus: a fit will take about 5 minutes; fewer epochs take less.\n"
