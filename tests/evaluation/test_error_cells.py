import numpy as np
import pytest
from scipy.stats import kurtosis as scipy_kurtosis
from scipy.stats import mannwhitneyu

import dissensus as dz
from dissensus.evaluation.error_cells import error_cells, kurtosis
from dissensus.evaluation.exceptions import CellsOfUnequalLength, KurtosisOfTwoClasses, MixedNamesAndCodes


def test_kurtosis_is_scipy_s_default():
    soft = np.random.default_rng(0).dirichlet(np.ones(7), size=50)
    np.testing.assert_allclose(kurtosis(soft), scipy_kurtosis(soft, axis=1))
    assert np.isnan(kurtosis(np.full((1, 4), 0.25))).all()
    assert kurtosis(np.eye(12)) == pytest.approx(np.full(12, 78 / 11))


def test_labels_alike_but_for_the_order_of_classes_are_tied():
    rng = np.random.default_rng(0)
    votes = np.array([rng.permutation([5.0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]) for _ in range(50)])
    assert np.unique(kurtosis(np.exp(votes) / np.exp(votes).sum(axis=1, keepdims=True))).size == 1
    share = rng.random(200)
    assert set(kurtosis(np.stack([share, 1 - share], axis=1))) == {-2.0}


def test_error_cells_are_the_literal_loop():
    rng = np.random.default_rng(1)
    truth, stl, mtl = rng.integers(0, 3, (3, 200))
    truth[:20] = -1
    soft = rng.dirichlet(np.ones(5), size=200)
    soft[30] = 0.2  # an even split has no kurtosis
    found = error_cells(stl, mtl, truth, soft)
    cells = {(a, b): [] for a in (0, 1) for b in (0, 1)}
    count = dict.fromkeys(cells, 0)
    for i in range(20, 200):
        cell = int(stl[i] != truth[i]), int(mtl[i] != truth[i])
        count[cell] += 1
        if i != 30:
            cells[cell].append(scipy_kurtosis(soft[i]))
    for cell, values in cells.items():
        assert found.count[cell] == count[cell]
        assert found.kurtosis[cell] == pytest.approx(np.mean(values))
    expected = mannwhitneyu(cells[1, 0], cells[0, 1])
    assert found.test.pvalue == pytest.approx(expected.pvalue)
    assert found.test.statistic == expected.statistic
    rows = found.to_frame().to_pylist()
    assert rows[2] == {"stl": "wrong", "mtl": "right", "items": count[1, 0], "kurtosis": found.kurtosis[1, 0]}
    assert found.to_dict()["mann_whitney"]["p_value"] == found.test.pvalue


def test_names_are_compared_too_and_an_empty_cell_has_no_test():
    soft = np.array([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]])
    found = error_cells(["a", "c"], ["a", "b"], ["a", "c"], soft)
    assert found.count.tolist() == [[1, 1], [0, 0]]
    assert found.test is None
    assert found.to_dict()["mann_whitney"] is None
    with pytest.raises(MixedNamesAndCodes):
        error_cells([0, 1], [0, 1], ["a", "b"], soft)
    with pytest.raises(CellsOfUnequalLength) as caught:
        error_cells([0, 1], [0, 1], [0, 1], soft[:1])
    assert caught.value.soft == (1, 3)


def test_two_classes_have_no_kurtosis_to_speak_of():
    with pytest.warns(KurtosisOfTwoClasses):
        found = error_cells([0, 0], [0, 0], [0, 0], [[0.9, 0.1], [0.4, 0.6]])
    assert found.kurtosis[0, 0] == pytest.approx(-2)


@pytest.mark.realdata
def test_the_kurtosis_of_the_paper_s_labels_lies_where_the_paper_has_it(data_folder):
    table = dz.load_dataset("gimpel_pos", folder=data_folder).annotations
    assert np.nanmean(kurtosis(table.soft_labels("softmax"))) == pytest.approx(
        6.43, abs=0.01
    )  # Table 3: 5.727 to 6.614
