"""Figures of the papers are files, and say what they show."""

from functools import cache

import numpy as np
import pytest

from dissensus.exceptions import DataError
from dissensus.report import charts
from report.reports import crowd, trained
from reproductions import maps
from reproductions.figures import plot_annotator_embeddings, plot_difficulty

pytest.importorskip("torch", reason="needs the `learning` extra")


@cache
def lia():
    """A small LIA of the crowd."""
    from dissensus.learning.objectives import LIAObjective

    return trained(objective=LIAObjective(rounds=2), epochs=6)


def test_figures_are_files(tmp_path):
    table, model = crowd().annotations, lia()
    svg = plot_annotator_embeddings(model, table, tmp_path / "map.svg").read_text(encoding="utf-8")
    for words in ("Clusters of mistakes", "Error rate", "Class that is over-used", "14 annotators", "(PCA)"):
        assert words in svg
    truth = np.where(np.arange(100) < 90, crowd().truth, -1)
    svg = plot_difficulty(model, table, tmp_path / "difficulty.svg", truth).read_text(encoding="utf-8")
    assert all(f">{word}</text>" in svg for word in ("right", "wrong", "without gold", "difficulty"))
    svg = plot_difficulty(model, table, tmp_path / "majority.svg").read_text(encoding="utf-8")
    assert all(f">{name}</text>" in svg for name in table.classes)
    assert ">right</text>" not in svg
    assert plot_annotator_embeddings(model, table, tmp_path / "m.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(DataError, match="knows no difficulty"):
        plot_difficulty(trained(epochs=1), table, tmp_path / "none.svg")


def test_many_classes_share_a_colour_and_those_without_rates_are_grey():
    rows = [{"annotator": f"w{n}", "x": n, "y": 0, "labels": 20, "cluster": "1", "error": 0.1} for n in range(12)]
    for n, row in enumerate(rows):
        row["overused"] = f"class {n % 10}"
    rows[0] |= {"error": None, "cluster": maps.TOO_FEW, "overused": maps.TOO_FEW}
    made = maps.annotator_charts(rows, ["a", "b", "c"])
    domain = made[2][2].to_dict()["encoding"]["color"]["scale"]["domain"]
    assert len(domain) == 8
    assert domain[-2:] == [charts.OTHER, maps.TOO_FEW]
    assert [len(layer["data"]["values"]) for layer in _layers(made[1][2])] == [1, 11]


def _layers(chart):
    spec = chart.to_dict()
    assert "layer" in spec
    return spec["layer"]
