import numpy as np
import pytest
from scipy.stats import gaussian_kde

from dissensus import Annotations
from dissensus.exceptions import BadParameter, DataError
from reproductions.label_figures import (
    class_distributions,
    label_density,
    plot_label_density,
)


def uneven() -> Annotations:
    counts = [1, 2, 2, 7, 20]
    annotator = np.repeat([f"w{a}" for a in range(5)], counts)
    rng = np.random.default_rng(0)
    return Annotations.from_arrays(
        rng.integers(0, 9, annotator.size), annotator, np.array(list("abc"))[rng.integers(0, 3, annotator.size)]
    )


def test_label_density_is_scipy_s():
    found = label_density(uneven())
    assert found.labels.tolist() == [20, 7, 2, 2, 1]
    np.testing.assert_allclose(found.density, gaussian_kde([1, 2, 2, 7, 20])(found.x))
    assert np.trapezoid(found.density, found.x) == pytest.approx(1, abs=0.01)
    one = Annotations.from_arrays(["i", "i"], ["a", "b"], ["x", "y"])
    with pytest.raises(DataError, match="here all gave 1"):
        label_density(one)


def test_class_distributions_are_shares():
    table = uneven()
    gold = np.full(table.n_items, -1)
    gold[:4] = [0, 1, 1, 1]
    found = class_distributions(table, gold)
    np.testing.assert_allclose(found["labels"], np.bincount(table.label, minlength=3) / 32)
    np.testing.assert_allclose(found["gold"], [0.25, 0.75, 0])
    assert found["class"].tolist() == ["a", "b", "c"]
    assert list(found) == ["class", "labels", "gold"]
    assert list(class_distributions(table)) == ["class", "labels"]


def test_figures_are_files(tmp_path):
    table = uneven()
    svg = plot_label_density(table, tmp_path / "density.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "labels given by an annotator" in svg
    assert plot_label_density(table, tmp_path / "density.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(BadParameter, match=r"\.svg, \.png or \.html"):
        plot_label_density(table, tmp_path / "density.pdf")
