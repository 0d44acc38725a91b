"""Errors and warnings by their classes and facts, whatever their wording."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind, **facts):
    """Expect an error of a class with these facts."""
    with pytest.raises(kind) as caught:
        yield
    if "sentence" in caught.value.facts:  # an error that is not yet made from facts
        assert all(str(fact) in str(caught.value) for fact in facts.values())
        return
    assert {name: getattr(caught.value, name) for name in facts} == facts
