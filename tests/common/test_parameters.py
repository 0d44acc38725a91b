"""Declared keywords: what a class makes of them, and the sentence for every value that is not allowed."""

import inspect
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from dissensus.common.exceptions import NoNestedParameters, OutOfRange, UnknownParameter
from dissensus.common.parameters import (
    Param,
    Parameters,
    check_argument,
    is_number,
    is_whole_number,
    param,
    reference_rows,
)


class Inner(Parameters):
    width: int = param(8, "units of a layer", low=1)


class Model(Parameters):
    tol: "float" = param(1e-6, "smallest step", above=0)
    max_iter: int = param(100, "most passes", low=1)
    norm: Literal["l2", "max"] | None = param("l2", "how the step is measured")
    part: Any = param(None, "something inside")
    learnt_: float  # an annotation alone declares nothing


class Child(Model):
    max_iter: int = param(5, "most passes", low=2)
    norm: ClassVar = "l2"
    seed: int | None = param(0, "the seed", low=0)


class Grandchild(Child):
    """A child's child.

    It has a second paragraph.
    """


class Written(Parameters):
    def __init__(self, *, alpha=1.0, beta=None):
        self.alpha, self.beta = alpha, beta


class Nothing(Parameters):
    pass


@pytest.mark.parametrize(
    ("hint", "limits", "right", "wrong", "sentence"),
    [
        (float, {}, [0, -1.5, np.float32(2)], ["1", None, True, np.nan, np.inf, [1]], "be a number"),
        (float, {"low": 0}, [0, 3], [-1e-9], "be 0 or more"),
        (float, {"low": 2}, [2], [1.9], "be at least 2"),
        (float, {"above": 0}, [1e-9], [0], "be above 0"),
        (float, {"high": 3}, [3], [3.1], "be at most 3"),
        (float, {"below": 3}, [2.9], [3], "be below 3"),
        (float, {"above": 0, "below": 1}, [0.5], [0, 1], "be between 0 and 1"),
        (float, {"low": 0, "high": 1}, [0, 1], [-0.1, 1.1], "lie from 0 to 1"),
        (float, {"low": 0, "below": 1}, [0], [1], "be at least 0 and below 1"),
        (float, {"above": 0, "high": 1}, [1], [0], "be above 0 and at most 1"),
        (float | None, {"above": 0}, [None, 1], [0, False], "be above 0, or None"),
        (int, {}, [0, np.int8(3)], [0.5, 1.0, True, "1", None], "be a whole number"),
        (int, {"low": 1}, [1], [0, 1.5], "be a whole number, at least 1"),
        (int, {"low": 1, "high": 3}, [1, 3], [0, 4], "be a whole number from 1 to 3"),
        (int, {"above": 0, "below": 3}, [1], [0, 3], "be a whole number, between 0 and 3"),
        (int | None, {"low": 0}, [None, 0], [-1], "be a whole number, at least 0, or None"),
        (int | float, {"low": 0}, [0, 0.5], [-1], "be 0 or more"),
        (float | Literal["auto"], {"above": 0}, ["auto", 1], ["aut", 0], "be above 0, or 'auto'"),
        (float | Literal["auto"] | None, {"above": 0}, [None, "auto"], [0], "be above 0, 'auto' or None"),
        (bool, {}, [True, False], [1, 0, None, "yes"], "be True or False"),
        (bool | None, {}, [True, None], [1], "be True or False, or None"),
        (str, {}, ["any"], [1, None, True], "be text"),
        (Literal["a", "b", "c"], {}, ["a", "c"], ["d", None, 1], "be 'a', 'b' or 'c'"),
        (Literal["a"], {}, ["a"], ["b"], "be 'a'"),
        (Literal["a", "b"] | None, {}, [None, "a"], ["c"], "be None, 'a' or 'b'"),
        (Literal["a", None], {}, [None, "a"], ["c"], "be None or 'a'"),
        (Literal[1, 2], {}, [1, 2], [3, True, "1"], "be 1 or 2"),
        (Sequence[int] | None, {}, [None, [1], (1, 2)], ["ab"], "be of type Sequence, or None"),
        (Path | str, {}, ["a", Path("a")], [True], "be of type Path"),
        (Callable[..., int] | int, {"low": 1}, [len, 1], [0, 0.5], "be a whole number, at least 1"),
        (Any, {}, [None, 1, "x", [1]], [], "be anything"),
        (None, {}, [None], [1], "be None"),
    ],
)
def test_a_type_and_limits_decide_and_say_what_is_allowed(hint, limits, right, wrong, sentence):
    declared = Param(None, "", **limits)
    assert declared.describe_allowed_values(hint) == sentence
    for value in right:
        declared.check_value("x", value, hint)
    for value in wrong:
        with pytest.raises(OutOfRange) as caught:
            declared.check_value("x", value, hint)
        assert caught.value.facts == {"name": "x", "allowed": sentence, "value": value} or value is np.nan


def test_a_check_decides_for_all_but_none_and_the_words():
    even = Param(2, "", check=lambda value: value % 2 == 0, must="must be even")
    hint = int | Literal["any"] | None
    for value in (4, None, "any"):
        even.check_value("n", value, hint)
    with pytest.raises(OutOfRange) as caught:
        even.check_value("n", 3, hint)
    assert caught.value.facts == {"name": "n", "allowed": "be even", "value": 3}
    with pytest.raises(OutOfRange):
        Param(2, "", check=lambda value: value is not None, must="must be even").check_value("n", None, Any)


def test_must_replaces_the_sentence_of_a_range():
    with pytest.raises(OutOfRange) as caught:
        check_argument("share", 2, float, low=0, high=1, must="must be a share of the steps")
    assert caught.value.allowed == "be a share of the steps"


def test_numbers_are_finite_and_no_bools():
    assert [is_number(value) for value in (1, np.float32(0.5), True, np.inf, "1")] == [True, True, False, False, False]
    assert [is_whole_number(value) for value in (np.int64(3), 3.0, False, "3")] == [True, False, False, False]


def test_keywords_are_stored_unchanged_and_the_others_get_their_defaults():
    given = [1]
    model = Model(part=given, tol=0.5)
    assert model.part is given
    assert (model.tol, model.max_iter, model.norm) == (0.5, 100, "l2")
    assert Model.tol == 1e-6  # the class shows defaults, not declarations


def test_a_wrong_keyword_is_an_error_as_of_any_function():
    with pytest.raises(TypeError):
        Model(tolerance=1)
    with pytest.raises(TypeError):
        Child(norm="max")


def test_check_parameters_names_the_keyword_and_its_value():
    Model().check_parameters()
    for keywords in ({"max_iter": 0}, {"norm": "l1"}):
        with pytest.raises(OutOfRange) as caught:
            Model(**keywords).check_parameters()
        assert {caught.value.name: caught.value.value} == keywords


def test_a_subclass_inherits_replaces_and_drops_declarations():
    assert list(Child.declared()) == ["max_iter", "seed", "tol", "part"]
    assert Child.parameter_names() == ["max_iter", "part", "seed", "tol"]
    assert Child().max_iter == 5
    with pytest.raises(OutOfRange):
        Child(max_iter=1).check_parameters()
    assert Model().max_iter == 100
    assert Child().norm == "l2"
    assert list(Model.declared()) == ["tol", "max_iter", "norm", "part"]


def test_what_a_class_drops_stays_dropped_in_its_subclasses():
    assert list(Grandchild.declared()) == list(Child.declared())


def test_of_two_bases_the_first_decides():
    class Both(Inner, Model):
        pass

    class Wide(Parameters):
        width: int = param(99, "units", low=50)

    class Narrow(Inner, Wide):
        pass

    assert set(Both.declared()) == {"width", *Model.declared()}
    assert Narrow().width == 8


def test_the_signature_has_defaults_and_evaluated_types():
    found = inspect.signature(Model).parameters
    assert {name: one.default for name, one in found.items()} == Model().get_params()
    assert found["tol"].annotation is float
    assert all(one.kind is one.KEYWORD_ONLY for one in found.values())
    assert list(inspect.signature(Written).parameters) == ["alpha", "beta"]


def test_keywords_of_a_written_init_serve_where_none_is_declared():
    model = Written(beta=2)
    assert model.get_params() == {"alpha": 1.0, "beta": 2}
    assert repr(model.set_params(alpha=3)) == "Written(alpha=3, beta=2)"
    model.check_parameters()


def test_a_class_may_have_no_keyword():
    assert Nothing.parameter_names() == []
    assert repr(Nothing()) == "Nothing()"
    with pytest.raises(TypeError):
        Nothing(a=1)


def test_get_params_reaches_into_parts():
    model = Model(part=Inner(width=4))
    assert model.get_params(deep=False).keys() == {"max_iter", "norm", "part", "tol"}
    assert model.get_params()["part__width"] == 4
    assert "part__C" in Model(part=LogisticRegression()).get_params()
    assert "part__width" not in Model(part=Inner).get_params()  # a class is no part


def test_set_params_changes_keywords_and_those_of_parts():
    model = Model()
    assert model.set_params(part__width=3, part=Inner(), tol=0.1) is model  # the part first
    assert (model.part.width, model.tol) == (3, 0.1)
    with pytest.raises(UnknownParameter) as caught:
        model.set_params(tolerance=1)
    assert caught.value.facts == {
        "owner": "Model",
        "name": "tolerance",
        "parameters": ("max_iter", "norm", "part", "tol"),
    }
    with pytest.raises(NoNestedParameters) as caught:
        model.set_params(tol__x=1)
    assert caught.value.facts == {"name": "tol", "value": 0.1, "nested": "x"}


def test_repr_shows_what_differs_from_the_defaults():
    assert repr(Model()) == "Model()"
    assert repr(Model(tol=0.1, part=Inner())) == "Model(part=Inner(), tol=0.1)"
    assert repr(Model(part=np.array([1, 2]))) == "Model(part=array([1, 2]))"


def test_pickles_and_scikit_learns_clones_have_the_same_keywords():
    model = Child(tol=0.1, part=Inner(width=3))
    for other in (pickle.loads(pickle.dumps(model)), clone(model)):
        assert repr(other) == repr(model)
        assert other.part is not model.part


def test_reference_rows_say_name_type_default_range_and_text():
    assert [tuple(row) for row in reference_rows(Model)] == [
        ("tol", "float", "1e-06", "above 0", "smallest step"),
        ("max_iter", "int", "100", "a whole number, at least 1", "most passes"),
        ("norm", "Optional[Literal['l2', 'max']]", "'l2'", "None, 'l2' or 'max'", "how the step is measured"),
        ("part", "Any", "None", "anything", "something inside"),
    ]


def test_help_lists_the_keywords_after_the_docstring():
    assert (
        inspect.getdoc(Grandchild)
        == """A child's child.

It has a second paragraph.

Parameters
----------
max_iter : int, default 5
    most passes (a whole number, at least 2)
seed : int | None, default 0
    the seed (a whole number, at least 0, or None)
tol : float, default 1e-06
    smallest step (above 0)
part : Any, default None
    something inside (anything)"""
    )
    assert Grandchild().__doc__ == Grandchild.__doc__


def test_help_of_a_class_without_a_docstring_has_its_own_keywords():
    class Undocumented(Grandchild):
        more: int = param(1, "one keyword more")

    assert Undocumented.__doc__.startswith("A child's child.")
    assert "more : int, default 1" in Undocumented.__doc__
    assert "more" not in Grandchild.__doc__


def test_help_of_written_keywords_is_the_docstring_alone():
    class Explained(Written):
        """As it is."""

    assert Explained.__doc__ == "As it is."
