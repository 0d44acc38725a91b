"""The tests of learning need torch; they run side by side and their networks are tiny."""

import pytest

torch = pytest.importorskip("torch", reason="needs the `learning` extra")
torch.set_num_threads(1)
