"""The page in a real browser: it opens from disk, draws, sorts, searches, opens; light and dark, wide and narrow."""

from __future__ import annotations

import dataclasses
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.clustering import select_clusters
from report.reports import crowd, people, report, things, trained
from report.test_page import evil_report

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
PHONE = {"width": 390, "height": 844}

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the page was not tried in a browser"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser can be driven")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports on disk."""
    folder, table = tmp_path_factory.mktemp("pages"), crowd().annotations
    search = select_clusters(table, "pgm-bp", K=(2, 3), L=(1, 2), criterion="likelihood")
    clusters = {"clustering": search.estimator().fit(table), "search": search}
    made = {
        "crowd": report(
            gold=crowd().truth,
            items=things(table),
            annotators=people(table),
            title="A crowd",
            **clusters,
            model=trained(validation=0.3),
        ),
        "evil": evil_report(names=True, learnt=True),
        "long": report(long_names(), items=things(long_names())),
    }
    return {name: one.save(folder / f"{name}.html")[0] for name, one in made.items()}


def long_names() -> Annotations:
    """Items, annotators and classes with names that want to stick out."""
    table = crowd().annotations
    return dataclasses.replace(
        table,
        items=np.array([f"{i:03d}" + "4" * 30 for i in range(100)], object),
        classes=np.array(["a_name_that_has_many_parts_to_break", "anamethatcannotbebrokenanywhereatall", "c"], object),
    )


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]):
    """Opens a page; at the end nothing may have been loaded, logged or gone wrong."""
    wrong: list[str] = []
    contexts = []

    def open_page(name: str = "crowd", **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "request", lambda r: None if r.url.startswith(("file:", "data:")) else wrong.append(f"request: {r.url}")
        )
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        page.goto(pages[name].as_uri())
        page.wait_for_selector("html[data-drawn=yes]", timeout=30_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def rows(page: Any, table: str, column: int) -> list[str]:
    """What stands in a column of the rows that are seen."""
    cells = page.locator(
        f"figure[data-table={table}] > .scroll > table > tbody > tr:not(.detail) > td:nth-child({column})"
    )
    return [text.removeprefix("▸").strip() for text in cells.all_inner_texts()]


def test_every_chart_draws(opened):
    page = opened()
    drawings = page.locator(".drawing")
    assert drawings.count() >= 20
    for number in range(drawings.count()):
        one = drawings.nth(number)
        marks = one.locator("svg .role-mark path, svg .role-mark rect, svg .role-mark line").count()
        assert marks > 0, one.get_attribute("aria-label")
        assert one.locator("svg").bounding_box()["width"] > 150
    assert page.locator(".failed").count() == 0


def test_sections_have_headings_and_links_lead_to_them(opened):
    page = opened()
    for link in page.locator("nav a").all():
        target = link.get_attribute("href")
        assert page.locator(target).count() == 1
    page.click("nav a[href='#items']")
    for _ in range(100):  # `wait_for_function` would evaluate text in the page, which its policy forbids
        if page.evaluate("document.querySelector('#items').getBoundingClientRect().top < 200"):
            break
        page.wait_for_timeout(50)
    else:
        pytest.fail("the page did not move to the items")
    assert page.evaluate("document.querySelector('#items').getBoundingClientRect().top") > 0


def test_a_click_on_a_head_sorts(opened):
    page = opened()
    head = page.locator("figure[data-table=items] th", has_text="confidence")
    head.locator("button").click()
    down = [float(text.split()[0]) for text in rows(page, "items", 5)]
    assert down == sorted(down, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    up = [float(text.split()[0]) for text in rows(page, "items", 5)]
    assert up == sorted(up)
    assert up[0] < down[0]
    page.locator("figure[data-table=items] th button", has_text="item").first.click()
    names = [int(name) for name in rows(page, "items", 1)]
    assert names == sorted(names)  # numbers in names count as numbers


def test_a_search_finds_names_texts_and_reasons(opened):
    page = opened()
    search = page.locator("figure[data-table=items] input")
    search.fill("number 42,")
    assert rows(page, "items", 1) == ["42"]
    assert page.locator("figure[data-table=items] output").inner_text() == "1 of 100 rows"
    search.fill("no such thing")
    assert rows(page, "items", 1) == ["No rows match the search."]
    search.fill("")
    assert page.locator("figure[data-table=items] output").inner_text() == "100 rows"


def test_pages_turn(opened):
    page = opened()
    first = rows(page, "items", 1)
    page.locator("figure[data-table=items] .pages button", has_text="More").click()
    second = rows(page, "items", 1)
    assert len(first) == len(second) == 15
    assert not set(first) & set(second)
    page.locator("figure[data-table=items] .pages button", has_text="Back").click()
    assert rows(page, "items", 1) == first


def test_a_click_on_an_annotator_opens_the_confusion_matrix(opened):
    page = opened()
    figure = page.locator("figure[data-table=annotators]")
    name = rows(page, "annotators", 1)[0]
    figure.locator("tbody tr").first.click()
    detail = figure.locator("tr.detail")
    assert f"Labels by {name}" in detail.inner_text()
    cells = detail.locator("td.cell").all_inner_texts()
    assert len(cells) == 9
    for line in range(3):
        assert sum(int(cell) for cell in cells[3 * line : 3 * line + 3]) == pytest.approx(100, abs=2)
    assert figure.locator("button.name").first.get_attribute("aria-expanded") == "true"
    figure.locator("button.name").first.click()
    assert figure.locator("tr.detail").count() == 0


def test_an_annotator_opens_by_keyboard_too(opened):
    page = opened()
    page.locator("figure[data-table=annotators] button.name").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("figure[data-table=annotators] tr.detail").count() == 1
    page.keyboard.press("Enter")  # the focus is still there
    assert page.locator("figure[data-table=annotators] tr.detail").count() == 0


def test_a_click_on_a_mark_of_the_chart_opens_that_annotator(opened):
    page = opened()
    mark = page.locator("#annotators .drawing svg .mark-symbol.role-mark path").last
    name = mark.get_attribute("aria-label").split("annotator: ")[1].split(";")[0]
    mark.dispatch_event("click")
    page.wait_for_selector("figure[data-table=annotators] tr.detail")
    assert rows(page, "annotators", 1) == [name]


def test_an_item_opens_to_who_said_what(opened):
    page = opened()
    page.locator("figure[data-table=items-first] tbody tr").first.click()
    text = page.locator("figure[data-table=items-first] tr.detail").inner_text()
    assert "Labels of annotators" in text
    assert len(re.findall(r"\bA[0-9B-Z]{5}\b", text)) == 7


def test_what_opens_does_not_widen_the_table(opened):
    for options in ({}, {"viewport": PHONE}):
        page = opened(**options)
        scroll = "document.querySelector('figure[data-table=annotators] .scroll')"
        before = page.evaluate(f"{scroll}.scrollWidth")
        page.locator("figure[data-table=annotators] tbody tr").first.click()
        assert page.evaluate(f"{scroll}.scrollWidth") == before
        assert before <= page.evaluate(f"{scroll}.clientWidth")


def test_a_phone_sorts_by_a_list_both_ways(opened):
    page = opened(viewport=PHONE)
    sorter = page.locator("figure[data-table=annotators] select")
    sorter.select_option("reliability")
    up = [int(text.split()[0]) for text in rows(page, "annotators", 3)]
    sorter.select_option("reliability")
    down = [int(text.split()[0]) for text in rows(page, "annotators", 3)]
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)


def test_light_and_dark_follow_the_reader_and_the_button(opened):
    def ground(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = opened(color_scheme="light"), opened(color_scheme="dark")
    assert sum(map(int, ground(light)[4:-1].split(","))) > 3 * 230
    assert sum(map(int, ground(dark)[4:-1].split(","))) < 3 * 40
    before = ground(light)
    light.click("#theme")
    assert ground(light) == ground(dark)
    light.click("#theme")
    assert ground(light) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_told_from_its_ground(opened, scheme):
    page = opened(color_scheme=scheme)
    # WCAG 2.1, 1.4.3: contrast of at least 4.5
    ratio = """(selector) => {
      const part = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
      const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
      };
      const e = document.querySelector(selector);
      let [up, ground] = [e, "rgba(0, 0, 0, 0)"];
      while (up && ground === "rgba(0, 0, 0, 0)") {
        ground = getComputedStyle(up).backgroundColor;
        up = up.parentElement;
      }
      const [x, y] = [light(getComputedStyle(e).color), light(ground)];
      return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    }"""
    for selector in ("p.about", "figcaption", ".number .note", "td", ".findings a", "th small", "nav a", ".pages"):
        assert page.evaluate(ratio, selector) >= 4.5, selector


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE}, {"viewport": PHONE, "color_scheme": "dark"}])
def test_nothing_overlaps_or_sticks_out(opened, options):
    page = opened(**options)
    page.locator("figure[data-table=annotators] tbody tr").first.click()
    width = page.evaluate("document.documentElement.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('h1, h2, .number, .findings li, figure')].map((e) => {
          const b = e.getBoundingClientRect();
          return [b.left, b.top, b.right, b.bottom, e.tagName + ' ' + e.textContent.slice(0, 30)]; })"""
    )
    assert len(boxes) > 40
    for left, top, right, bottom, name in boxes:
        assert left >= 0, name
        assert right <= width + 1, name
        assert bottom > top, name
    for i, one in enumerate(boxes):
        for other in boxes[i + 1 :]:
            over = (
                min(one[2], other[2]) - max(one[0], other[0]) > 2 and min(one[3], other[3]) - max(one[1], other[1]) > 2
            )
            assert not over, (one[4], other[4])


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE}])
def test_long_names_stay_in_their_cells(opened, options):
    page = opened("long", **options)
    out = page.evaluate(
        """() => [...document.querySelectorAll('td, th')].filter((e) => e.scrollWidth > e.clientWidth + 1)
          .map((e) => e.textContent)"""
    )
    assert out == []
    width = page.evaluate("document.documentElement.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE}])
def test_charts_fit_their_place_and_their_labels_do_not_overlap(opened, options):
    page = opened(**options)
    for chart in page.locator(".drawing").all():
        name = chart.get_attribute("aria-label")[:60]
        place, drawn = chart.bounding_box(), chart.locator("svg").bounding_box()
        assert drawn["width"] <= place["width"] + 1, name
        assert place["x"] + place["width"] <= page.evaluate("document.documentElement.clientWidth"), name
        for axis in chart.locator("svg .role-axis-label").all():
            boxes = [
                (b["x"], b["y"], b["x"] + b["width"], b["y"] + b["height"])
                for text in axis.locator("text").all()
                if text.get_attribute("opacity") != "0"
                and (b := text.bounding_box())
                and not text.get_attribute("transform").count("rotate")
            ]
            boxes.sort()
            for one, other in pairwise(boxes):
                across = min(one[2], other[2]) - max(one[0], other[0])
                down = min(one[3], other[3]) - max(one[1], other[1])
                assert across <= 1 or down <= 3, (name, one, other)


def test_markup_in_the_data_does_nothing(opened):
    page = opened("evil")
    assert "<evil-tag" in page.locator("figure[data-table=model-crowd]").inner_text()
    for table in ("annotators", "items", "items-first"):
        figure = page.locator(f"figure[data-table={table}]")
        for number in range(figure.locator("button.name").count()):
            figure.locator("button.name").nth(number).click()
        assert figure.locator("tr.detail").count() > 0
    for mark in page.locator(".drawing svg .role-mark path[aria-label]").all()[:40]:
        mark.dispatch_event("mousemove")
        mark.dispatch_event("pointermove")
    page.locator("figure[data-table=items] input").fill("<evil-tag")
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.locator("evil-tag").count() == 0
    assert "<evil-tag onclick=hack()>" in page.locator("figure[data-table=items]").inner_text()
    assert page.title().startswith("</script><script>")


def test_items_on_which_model_and_crowd_disagree_are_sorted_and_found(opened):
    page = opened()
    apart = [float(text.split()[0]) for text in rows(page, "model-crowd", 8)]
    assert apart == sorted(apart, reverse=True)
    assert set(rows(page, "model-crowd", 9)) <= {"held out", "trained on"}
    page.locator("figure[data-table=model-crowd] input").fill("held out")
    assert page.locator("figure[data-table=model-crowd] output").inner_text() == "30 of 100 rows"


def test_a_tooltip_shows_names_as_text(opened):
    page = opened("evil")
    mark = page.locator("#annotators .drawing svg .mark-symbol.role-mark path").first
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "annotator" in tip.inner_text()
    assert tip.locator("evil-tag, img, script, svg").count() == 0


def test_print_is_light_and_without_controls(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("header").is_visible()
    assert not page.locator("figure[data-table=items] input").is_visible()
    fill = page.evaluate("getComputedStyle(document.querySelector('.drawing .role-axis-label text')).fill")
    assert sum(map(int, fill[4:-1].split(","))) < 3 * 120  # dark on white


def test_a_hundred_items_fill_every_section(opened):
    page = opened()
    for section in page.locator("main > section").all():
        assert len(section.inner_text()) > 100
        box = section.bounding_box()
        assert box["height"] > 100
    assert np.isfinite(page.evaluate("document.documentElement.scrollHeight"))
