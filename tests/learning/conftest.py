"""The tests of learning need torch."""

import pytest

pytest.importorskip("torch", reason="needs the `learning` extra")
