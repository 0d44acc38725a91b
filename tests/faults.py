"""Checks of errors and warnings by their class and facts, not by their words."""

from contextlib import contextmanager

import pytest


def check_facts(message, facts):
    """The message has these facts; `keyword` is the parameter that an error is about."""
    for name, value in facts.items():
        if name == "keyword" and not hasattr(message, name):
            assert str(message).split()[0] == value
        else:
            assert getattr(message, name) == value, name


@contextmanager
def raised(kind, /, **facts):
    """The block raises an error of this class, with these facts."""
    with pytest.raises(kind) as caught:
        yield caught
    check_facts(caught.value, facts)


@contextmanager
def warned(kind, /, **facts):
    """The block warns once, with a warning of this class and these facts."""
    with pytest.warns(kind) as caught:
        yield caught
    (one,) = [each.message for each in caught if isinstance(each.message, kind)]
    check_facts(one, facts)
