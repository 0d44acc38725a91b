"""The site: no broken link, every page in its navigation; the reference is complete."""

import doctest
import inspect
import logging
import re
import sys
from collections import defaultdict
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OBVIOUS = 3  # as many parameters may be told by their names and types alone


@pytest.fixture(scope="module")
def site():
    """docs/site.py as a module."""
    for extra in ("torch", "fastapi"):
        pytest.importorskip(extra, reason="the reference is about what this extra brings too")
    spec = spec_from_file_location("site_hook", ROOT / "docs" / "site.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_no_broken_link_and_every_page_is_in_its_navigation(site, tmp_path, caplog, monkeypatch):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: the site was not built")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("EXAMPLES", "false")
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
    llms = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    assert [page for page in pages - {"404.html", "example-report.html"} if f"({page}):" not in llms] == []
    assert "](guides/agreement.html): This page shows how to measure how far your annotators agree" in llms
    method = (tmp_path / "methods" / "dawid-skene.html").read_text(encoding="utf-8")
    assert "confusion (A K K) is learnt" in method
    assert "within a point" in (tmp_path / "methods" / "index.html").read_text(encoding="utf-8")
    assert "<strong>Set by set.</strong>" in method


SEARCHES = {
    "kappa": "guides/agreement.md",
    "inter-annotator agreement": "guides/agreement.md",
    "mturk": "guides/faq.md",
    "semicolon": "guides/faq.md",
    "guidelines": "guides/disagreement.md",
    "spammer": "guides/annotators.md",
    "majority vote": "guides/choosing.md",
    "weak supervision": "methods/snorkel.md",
}


@pytest.mark.parametrize("words", SEARCHES)
def test_the_search_of_the_site_knows_the_words_that_people_search_for(site, words):
    from types import SimpleNamespace

    uri = SEARCHES[words]
    page = SimpleNamespace(file=SimpleNamespace(src_uri=uri, name=Path(uri).stem), meta={})
    text = (ROOT / "docs" / uri).read_text(encoding="utf-8")
    site.on_page_markdown(text, page, None, SimpleNamespace(get_file_from_path=lambda path: path))
    assert words in page.meta["tags"]


def test_search_terms_belong_to_pages_that_exist(site):
    assert [uri for uri in site.SEARCH_TERMS if not (ROOT / "docs" / uri).exists()] == []


def members(name, value, inner):
    """A public name and the public methods and properties that its class defines: name, object, the class."""
    yield name, value, None
    for key, found in vars(value).items() if inspect.isclass(value) else ():
        found = getattr(found, "__func__", getattr(found, "fget", getattr(found, "func", found)))
        if not key.startswith("_") and key not in inner and inspect.isfunction(found):
            yield f"{name}.{key}", found, value


def code(*sources):
    """The code of the doctests in docstrings."""
    parse = doctest.DocTestParser().get_examples
    return "".join(one.source for source in sources for one in parse(inspect.getdoc(source) or ""))


def has_example(name, value, owner, makers):
    """True if a doctest calls it: its own, that of its class, or that of a function that returns the class."""
    short = re.escape(name.rpartition(".")[2])
    if owner is not None:
        return re.search(rf"\.{short}\b", code(value, owner, *makers[owner])) is not None
    return re.search(rf"\b{short}\b", code(value)) is not None or bool(code(*makers[value]))


def faults(makers, name, value, owner):
    """What the reference lacks of one public name."""
    told = inspect.getdoc(value) or ""
    first = told.split("\n\n")[0].strip()
    if len(first.split()) < 2 or not first.endswith((".", ":")):
        yield "a sentence"
    if not callable(value):  # a registry: the page of its package begins with the example, its entries have pages
        home, short = name.rsplit(".", 1)
        pages = (import_module(home), import_module(home.rpartition(".")[0]))
        yield from () if re.search(rf"\b{short}\b", code(*pages)) else ("an example",)
    elif not has_example(name, value, owner, makers):
        yield "an example"
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
        if any(one.annotation is one.empty for one in parameters) or signature.return_annotation is signature.empty:
            yield "types"
        undescribed = [one.name for one in parameters if not re.search(rf"\b{one.name.rstrip('_')}\b", told)]
        if len(undescribed) > OBVIOUS:
            yield f"what {', '.join(undescribed)} are"


def test_every_public_name_has_a_sentence_types_and_an_example_of_its_own(site):
    public = [one for page in site.list_public_names().values() for one in page]
    makers = defaultdict(list)
    for _, value in public:
        for result in site.returned_classes(value):
            makers[result].append(value)
    names = [member for one in public for member in members(*one, site.INTERNAL_METHODS)]
    assert len(names) > 200
    assert f"!^({'|'.join(site.INTERNAL_METHODS)})$" in (ROOT / "mkdocs.yml").read_text(
        encoding="utf-8"
    )  # left out there too
    lacking = {name: lacks for name, *more in names if (lacks := list(faults(makers, name, *more)))}
    assert lacking == {}
