"""The kernels in torch against those in numba, where a whole fit would not show a difference."""

import numpy as np
import pytest

from dissensus.compute.kernels.glad import maximise_easiness

torch = pytest.importorskip("torch", reason="needs the `learning` extra")


def test_every_item_climbs_as_it_would_alone():
    rng = np.random.default_rng(0)
    slope, square, start = rng.normal(0, 30, 500), rng.gamma(0.5, 40, 500), rng.normal(0, 3, 500)  # many overshoot
    found = maximise_easiness(*(torch.tensor(numbers) for numbers in (slope, square)), 0.7, torch.tensor(start))
    np.testing.assert_allclose(found.numpy(), maximise_easiness(slope, square, 0.7, start), atol=1e-12)
