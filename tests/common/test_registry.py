"""Registries load the modules of their package by themselves, one where one will do."""

import sys

import pytest

from dissensus.common.exceptions import NotRegistered, RegisteredTwice, UnknownEntry
from dissensus.common.registry import Registry

PACKAGE = """
from dissensus.common.registry import Registry
animals = Registry("animal", "animals", __name__)
"""
ENTRY = """
from {package} import animals

@animals.register({name!r}, summary={summary!r}, cite="me, 2020", {facts})
class Animal:
    pass
"""


@pytest.fixture
def animals(tmp_path, monkeypatch):
    """A registry of its own package: a cat, a house mouse that is first in place, and a file with two entries."""
    package = tmp_path / "zoo_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    entry = {"package": package.name, "summary": "it lives", "facts": ""}
    (package / "cat.py").write_text(ENTRY.format(name="cat", **entry))
    (package / "house_mouse.py").write_text(ENTRY.format(name="house-mouse", **entry | {"facts": "place=-1"}))
    two = ENTRY.format(name="wolf", **entry) + ENTRY.format(name="fox", **entry | {"facts": "tame=False"})
    (package / "wild.py").write_text(two)
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__(package.name).animals
    for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
        del sys.modules[name]


def loaded(registry):
    return {name.rpartition(".")[2] for name in sys.modules if name.startswith(f"{registry.package}.")}


def test_a_name_imports_its_own_module_alone(animals):
    assert loaded(animals) == set()
    assert animals["house-mouse"].__name__ == "Animal"
    assert loaded(animals) == {"house_mouse"}
    assert "cat" in animals
    assert loaded(animals) == {"cat", "house_mouse"}


def test_a_name_in_a_file_of_another_name_is_found(animals):
    assert animals.entry("fox").facts == {"tame": False}
    assert loaded(animals) == {"cat", "house_mouse", "wild"}


def test_listing_imports_all_and_sorts_by_place_then_name(animals):
    assert list(animals) == ["house-mouse", "cat", "fox", "wolf"]
    assert len(animals) == 4
    assert [name for name, _ in animals.entries()] == list(animals)
    assert dict(animals)["cat"] is animals["cat"]


def test_an_entry_says_what_was_registered(animals):
    entry = animals.entry("cat")
    assert (entry.name, entry.summary, entry.cite, entry.facts) == ("cat", "it lives", "me, 2020", {})
    assert entry.value is animals["cat"]
    assert animals.get_name(entry.value) == "cat"


def test_a_wrong_name_is_answered_with_the_nearest(animals):
    with pytest.raises(UnknownEntry) as caught:
        animals["caat"]
    assert caught.value.facts["entries"] == tuple(animals)
    assert "cat" in caught.value.guess
    assert str(len(animals)) in caught.value.listing
    with pytest.raises(UnknownEntry) as caught:
        animals.entry("zzz")
    assert caught.value.guess == ""
    assert "zzz" not in animals
    assert 3 not in animals
    assert "no identifier!" not in animals


def test_without_a_command_the_error_lists_the_names(animals):
    animals.command = ""
    with pytest.raises(UnknownEntry) as caught:
        animals["zzz"]
    assert all(name in caught.value.listing for name in animals)


def test_a_name_is_registered_once(animals):
    assert "cat" in animals
    with pytest.raises(RegisteredTwice):
        animals.register("cat", summary="")(object)


def test_what_was_never_registered_has_no_name(animals):
    with pytest.raises(NotRegistered):
        animals.get_name(dict)


def test_a_module_that_cannot_be_imported_is_an_error_of_its_own(animals, tmp_path):
    (tmp_path / "zoo_of_a_test" / "dodo.py").write_text("import a_package_that_is_not_there")
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        animals["dodo"]


def test_a_registry_may_be_filled_by_hand():
    registry = Registry("thing", "things", "email.mime")  # any package without entries
    registry.register("one", summary="")(1)
    assert dict(registry) == {"one": 1}
    assert registry.entry("one").cite == ""
