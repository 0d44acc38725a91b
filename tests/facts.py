"""Check errors, warnings and notes by their class and their facts; `tests/messages.txt` holds their wording."""

from contextlib import contextmanager

import pytest


def has_facts(message, facts):
    return {name: getattr(message, name) for name in facts} == facts


@contextmanager
def raises(kind, /, **facts):
    """An error of exactly this class, with these facts."""
    with pytest.raises(kind) as caught:
        yield caught
    assert type(caught.value) is kind
    found = {name: getattr(caught.value, name) for name in facts}
    del caught  # it refers to this frame: a cycle would keep files open
    assert found == facts


@contextmanager
def warns(kind, /, **facts):
    """A warning of exactly this class, with these facts."""
    with pytest.warns(kind) as caught:
        yield caught
    found = [warning.message for warning in caught if type(warning.message) is kind]
    assert any(has_facts(message, facts) for message in found), found
