"""The page: one file, no network, and nothing from the data is ever markup."""

import base64
import dataclasses
import hashlib
import html
import json
import re

import numpy as np
import pytest

from dissensus import Annotations, Report, methods
from dissensus.report.exceptions import NotAPage
from dissensus.report.page import render_page
from refused import refused
from report.reports import FEW_METHODS, Page, crowd, people, report, things, trained

EVIL = (
    "<evil-tag onclick=hack()>",
    "</script><script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "'--></style><svg/onload=window.hacked=1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.hacked=1",
    "\u2028<!--<script>",
    "${window.hacked = 1}&lt;evil-tag&gt;",
)
"""What somebody might call an item, an annotator, a class, or write into a text."""


def evil_report(number: int = 0, learnt: bool = False, **options) -> Report:
    """A report in which everything that can hold text holds something evil."""
    rng = np.random.default_rng(number)
    n = 12
    items = np.array([f"{EVIL[i % 8]} {i}" for i in range(n)], object)
    annotators = np.array([f"{EVIL[a % 8]} a{a}" for a in range(6)], object)
    classes = [f"{EVIL[k]} k" for k in range(3)]
    table = Annotations.from_arrays(
        np.repeat(items, 6), np.tile(annotators, n), rng.integers(0, 3, 6 * n), classes=classes
    )
    text = np.array([EVIL[i % 8] * 3 for i in range(n)], object)
    return Report(
        table,
        methods["dawid-skene"]().fit(table),
        gold=np.zeros(n, np.int32),
        items={"item": items, EVIL[0]: text, EVIL[1]: np.array([e[:20] for e in text], object), "image": text},
        annotators={"annotator": annotators, EVIL[2]: np.array([EVIL[3], EVIL[4]] * 3, object)},
        title=EVIL[1] + EVIL[0],
        methods=FEW_METHODS,
        model=trained(table) if learnt else None,
        **options,
    )


@pytest.mark.parametrize("names", [True, False])
def test_nothing_from_the_data_becomes_markup(names):
    page = Page(evil_report(names=names, learnt=True).html())
    harmless = Page(report(items=things(crowd().annotations), annotators=people(crowd().annotations)).html())
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in harmless.elements} | {"p"}
    assert "evil-tag" not in {tag for tag, _ in page.elements}
    assert not [(tag, name) for tag, attributes in page.elements for name in attributes if name.startswith("on")]
    assert len(page.scripts) == len(harmless.scripts) == 3


def test_what_was_meant_as_text_arrives_as_text():
    page = Page(evil_report(names=True).html())
    data = json.loads(next(text for attributes, text in page.scripts if attributes.get("id") == "data"))
    shown = [row[0] for row in data["tables"]["items"]["rows"]]
    assert any(name.startswith(EVIL[1]) for name in shown)
    assert any(name.startswith(EVIL[2]) for name in shown)


def test_only_the_page_s_own_scripts_may_run_and_nothing_may_be_loaded():
    page = Page(report().html())
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    run = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    assert allowed == [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "unsafe-eval" not in policy
    assert "ast: true" in run[1]  # Vega interprets expressions and compiles none
    assert "connect-src" not in policy  # what default-src 'none' forbids
    for tag, attributes in page.elements:
        assert "src" not in attributes
        if "href" in attributes:
            assert attributes["href"].startswith(("#", "data:,")), (tag, attributes)


def test_every_chart_says_in_words_what_it_shows():
    page = Page(report(gold=crowd().truth).html())
    drawings = [attributes for _, attributes in page.elements if attributes.get("class") == "drawing"]
    assert len(drawings) >= 10
    assert all(attributes["role"] == "img" and len(attributes["aria-label"]) > 30 for attributes in drawings)


def test_a_page_is_drawn_from_the_numbers_alone():
    made = report(gold=crowd().truth)
    again = json.loads(json.dumps(made.facts))
    assert render_page(again) == made.html()


def test_save_writes_page_numbers_and_key(tmp_path):
    made = report()
    paths = made.save(tmp_path / "labels.html")
    assert [path.name for path in paths] == ["labels.html", "labels.json", "labels-key.csv"]
    assert paths[0].read_text(encoding="utf-8") == made.html()
    assert json.loads(paths[1].read_text(encoding="utf-8")) == made.facts
    key = [line.split(",") for line in paths[2].read_text(encoding="utf-8").splitlines()]
    assert key[0] == ["pseudonym", "annotator"]
    assert dict(key[1:]) == dict(zip(made.annotator_names, map(str, crowd().annotations.annotators), strict=True))
    assert paths[2].stat().st_mode & 0o077 == 0  # nobody else may read it
    assert not list(tmp_path.glob(".*"))


def test_with_names_there_is_no_key(tmp_path):
    assert [path.name for path in report(names=True).save(tmp_path / "a.html")] == ["a.html", "a.json"]


def test_a_report_is_an_html_file(tmp_path):
    with refused(NotAPage, name="a.pdf", page="a.html"):
        report().save(tmp_path / "a.pdf")


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    made = evil_report()
    page = Page(made._repr_html_())
    ((tag, attributes),) = page.elements
    assert tag == "iframe"
    assert attributes["srcdoc"] == made.html()
    assert html.unescape(attributes["title"]) == attributes["title"] or "evil" in attributes["title"]


def test_a_million_annotations_stay_below_five_megabytes_by_what_is_left_out():
    """The parts that grow with the table are cut; here with the longest names and texts and the most classes."""
    from dissensus.table.simulate import simulate

    crowded = simulate(4000, 1600, 12, redundancy=10, seed=1)
    table = dataclasses.replace(
        crowded.annotations,
        items=np.array([f"{i:05d}" + "i" * 100 for i in range(4000)], object),
        annotators=np.array([f"{a:05d}" + "a" * 100 for a in range(1600)], object),
        classes=np.array([f"{k:02d}" + "k" * 60 for k in range(12)], object),
    )
    texts = ["word " * 400] * table.n_items
    made = report(table, items={"item": table.items, "text": texts}, gold=crowded.truth, names=True)
    assert len(made.html().encode()) < 5_000_000
