"""The site: no broken link, every page in its navigation; the reference is complete."""

import doctest
import inspect
import logging
import re
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OBVIOUS = 3  # as many parameters may be told by their names and types alone


@pytest.fixture(scope="module")
def site():
    """docs/site.py as a module."""
    for extra in ("torch", "fastapi", "altair"):
        pytest.importorskip(extra, reason="the reference is about what this extra brings too")
    spec = spec_from_file_location("site_hook", ROOT / "docs" / "site.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_no_broken_link_and_every_page_is_in_its_navigation(site, tmp_path, caplog, monkeypatch):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: the site was not built")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("EXAMPLE_REPORT", "false")
    monkeypatch.setattr("sys.path", list(sys.path))
    with caplog.at_level(logging.WARNING, logger="mkdocs"):  # the theme and docstrings take long: `make docs` has them
        config = load_config(
            str(ROOT / "mkdocs.yml"),
            site_dir=str(tmp_path),
            theme={"name": "mkdocs"},
            plugins=[],
            use_directory_urls=False,
        )
        build(config)
    assert [record.message for record in caplog.records] == []
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "reference/cli.html", "reference/http.html", "api/dissensus.models.html"} <= pages
    method = (tmp_path / "methods" / "dawid-skene.html").read_text(encoding="utf-8")
    assert "confusion (A K K) is learnt" in method
    assert "<strong>Measured.</strong>" in method


def members(name, value, inner):
    """A public name and the public methods and properties that its class defines: name, object, the class."""
    yield name, value, None
    for key, found in vars(value).items() if inspect.isclass(value) else ():
        found = getattr(found, "__func__", getattr(found, "fget", found))
        if not key.startswith("_") and key not in inner and inspect.isfunction(found):
            yield f"{name}.{key}", found, value


def examples(*sources):
    """All that doctests say in docstrings: code and what it gives."""
    parse = doctest.DocTestParser().get_examples
    return " ".join(one.source + one.want for source in sources for one in parse(inspect.getdoc(source) or ""))


def has_example(site, name, value, owner):
    """Whether an example that a test runs names it: a doctest of it, its class, module or package, or a page."""
    home = (owner or value).__module__.split(".")
    packages = [import_module(".".join(home[:depth])) for depth in range(2, len(home) + 1)]
    around = [one for one in vars(packages[-1]).values() if getattr(one, "__module__", "") == packages[-1].__name__]
    told = examples(value, *(vars(owner).values() if owner else ()), *packages, *around)
    short = name.rpartition(".")[2]
    return re.search(rf"\b{short}\b", told) is not None or bool(site.pages_that_show(short))


def faults(site, name, value, owner):
    """What the reference lacks of one public name."""
    told = inspect.getdoc(value) or ""
    first = told.split("\n\n")[0].strip()
    if not callable(value):  # a registry: its entries have pages
        return
    if len(first.split()) < 2 or not first.endswith((".", ":")):
        yield "a sentence"
    if not has_example(site, name, value, owner):
        yield "an example"
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
        if any(one.annotation is one.empty for one in parameters) or signature.return_annotation is signature.empty:
            yield "types"
        undescribed = [one.name for one in parameters if not re.search(rf"\b{one.name.rstrip('_')}\b", told)]
        if len(undescribed) > OBVIOUS:
            yield f"what {', '.join(undescribed)} are"


def test_every_public_name_has_a_sentence_types_and_an_example(site):
    names = [member for page in site.public_names().values() for one in page for member in members(*one, site.INNER)]
    assert len(names) > 200
    lacking = {name: lacks for name, *more in names if (lacks := list(faults(site, name, *more)))}
    assert lacking == {}
