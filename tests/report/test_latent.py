"""The section on the latent space, and its picture as a file: numbers are the map's, whatever the table."""

from functools import cache

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.exceptions import BadParameter, DataError
from dissensus.report import charts, maps
from dissensus.report.blocks import Chart, Numbers, Table, Text
from dissensus.report.sections import latent as section
from report.reports import Page, blocks, check_section, crowd, features, findings, report, things, trained
from report.test_sections import SMALL
from reproductions.figures import plot_latent

pytest.importorskip("torch", reason="needs the `learning` extra")


@cache
def of_crowd():
    return trained(validation=0.3)


def inputs():
    return features(crowd().annotations, crowd().truth)


def about(model, table=None, X=None, **options):
    return report(table, model=model, X=X, only=["latent"], **options).facts["sections"]["latent"]


@pytest.mark.parametrize("table", SMALL.values(), ids=SMALL)
def test_there_is_something_to_say_of_every_table(table):
    made = report(table, model=trained(table, epochs=1), X=features(table), only=["latent"])
    check_section("latent", made.facts["sections"]["latent"])
    Page(made.html())


def test_numbers_are_the_map_s():
    from dissensus.learning.latent_map import item_map

    model, table, X = of_crowd(), crowd().annotations, inputs()
    facts = about(model, X=X, items=things(table), seed=2)
    found = item_map(model, X, table=table, seed=2)
    assert [[one["x"], one["y"]] for one in facts["points"]] == [pytest.approx(row, rel=1e-3) for row in found.place]
    assert [one["item"] for one in facts["points"]] == [str(name) for name in table.items[found.item]]
    assert [one["class"] for one in facts["points"]] == [str(table.classes[k]) for k in found.code]
    assert facts["points"][3]["text"].startswith("This is the text about item number")
    apart = found.separation
    assert (facts["same"], facts["chance"]) == pytest.approx((apart.mean, apart.mean_chance), rel=1e-3)
    assert facts["kept"] == pytest.approx(found.kept, rel=1e-3)
    by_class = {one["class"]: one for one in facts["by_class"]}
    for k, name in enumerate(map(str, table.classes)):
        assert by_class[name]["items"] == apart.count[k]
        assert by_class[name]["same"] == pytest.approx(apart.by_class[k], rel=1e-3)
        assert by_class[name]["chance"] == pytest.approx(apart.chance[k], rel=1e-3)
    taught = (model.teaches_ & ~model.held_out_)[found.item]
    assert (facts["seen"]["items"], facts["unseen"]["items"]) == (70, 30)
    assert facts["seen"]["same"] == pytest.approx(apart.same[taught].mean(), rel=1e-3)
    assert facts["unseen"]["same"] == pytest.approx(apart.same[~taught].mean(), rel=1e-3)


def test_it_is_of_models_and_says_where_inputs_are_missing():
    assert "latent" not in report(only=["latent"]).facts["sections"]
    facts = about(of_crowd())
    assert facts == {"points": []}
    (said,) = blocks("latent", facts)
    assert isinstance(said, Text)
    assert "--inputs FILE" in said.text
    assert findings("latent", facts) == []
    with pytest.raises(BadParameter, match="X is what a model takes; give the model too"):
        report(X=inputs())
    with pytest.raises(DataError, match="X has 3 rows for 100 items"):
        about(of_crowd(), X=inputs()[:3])


def test_what_is_shown_says_what_a_map_can_tell(monkeypatch):
    facts = about(of_crowd(), X=inputs())
    (chart,) = blocks("latent", facts, Chart)
    assert "how far groups are from each other, and how wide they are, means nothing" in chart.caption
    assert "t-SNE" in chart.alt
    numbers = blocks("latent", facts, Numbers)[0].numbers
    assert [one.name for one in numbers[3:]] == ["on items it was trained on", "on items it was not trained on"]
    assert [column.title for column in blocks("latent", facts, Table)[0].columns][2:] == [
        "neighbours alike", "by chance", "above chance",
    ]  # fmt: skip
    few = facts | {"points": facts["points"][:40]}
    assert "40 of 100 items are here" in blocks("latent", few, Chart)[0].caption
    monkeypatch.setattr(section, "MIN_ITEMS", 40)
    assert len(blocks("latent", about(of_crowd(), X=inputs()), Numbers)[0].numbers) == 4  # of 30 items nothing is said
    pca = facts | {"how": "PCA"}
    assert "too few different items for t-SNE" in blocks("latent", pca, Chart)[0].caption


def test_a_class_that_is_not_told_apart_is_found():
    facts = about(of_crowd(), X=inputs())
    for one in facts["by_class"]:
        one |= {"items": 30, "same": 0.9, "chance": 0.3}
    assert findings("latent", facts) == []
    facts["by_class"][1] |= {"class": "lost", "same": 0.32}
    (found,) = findings("latent", facts)
    assert "items of lost look like any others" in found.text
    assert found.table == "latent-classes"
    facts["by_class"][1]["items"] = 19
    assert findings("latent", facts) == []


def test_items_that_the_model_does_not_know_were_not_trained_on():
    table = crowd().annotations
    strangers = Annotations.from_codes(
        table.item, table.annotator, table.label, table.items + 1000, table.annotators, table.classes
    )
    assert about(of_crowd(), strangers, inputs())["seen"]["items"] == 0
    named = Annotations.from_codes(
        table.item,
        table.annotator,
        table.label,
        np.array([f"i{i:03d}" for i in range(100)], object),
        table.annotators,
        table.classes,
    )
    assert about(of_crowd(), named, inputs())["unseen"]["items"] == 100


# Marks ----------------------------------------------------------------------------------------------------------------


def marks(n):
    """What tells classes apart, of n: (colour, shape)."""
    classes = [f"class {k:02d}" for k in range(n)]
    rows = [{"item": f"{i}", "x": i, "y": 0, "class": classes[i % n]} for i in range(3 * n)]
    rows += [rows[0]]  # the first is the most frequent
    spec = maps.item_chart(rows, classes).to_dict()
    domain, shapes = spec["encoding"]["shape"]["scale"]["domain"], spec["encoding"]["shape"]["scale"]["range"]
    assert spec["encoding"]["color"]["scale"] == {"domain": domain}  # the page's eight colours, over and over
    return domain, [(k % 8, shape) for k, shape in enumerate(shapes)], spec


@pytest.mark.parametrize("n", [2, 12, 24])
def test_every_class_has_a_mark_of_its_own(n):
    domain, found, _ = marks(n)
    assert len(domain) == len(set(found)) == n
    assert len({shape for _, shape in found}) == min(n, 6)  # colour is not the only cue


def test_of_too_many_classes_rare_ones_share_a_mark():
    domain, found, spec = marks(30)
    assert len(set(found)) == len(domain) == 24
    assert domain[-1] == charts.OTHER
    assert sum(row["class"] == charts.OTHER for row in spec["data"]["values"]) == 3 * 7


def test_items_without_labels_are_marked_last():
    rows = [{"item": "1", "x": 0, "y": 0, "class": maps.NO_LABELS}, {"item": "2", "x": 1, "y": 0, "class": "a"}]
    assert maps.item_chart(rows, ["a", "b"]).to_dict()["encoding"]["shape"]["scale"]["domain"] == [
        "a", maps.NO_LABELS,
    ]  # fmt: skip


def test_the_picture_is_a_file(tmp_path):
    table, model, X = crowd().annotations, of_crowd(), inputs()
    svg = plot_latent(model, X, tmp_path / "map.svg", table=table).read_text(encoding="utf-8")
    assert "100 items as the network sees them (t-SNE)" in svg
    assert "neighbours share the class" in svg
    assert all(f">{name}</text>" in svg for name in table.classes)
    few = plot_latent(model, X[:9], tmp_path / "few.svg", codes=np.full(9, 1)).read_text(encoding="utf-8")
    assert "9 items as the network sees them (PCA)" in few
    assert "100% of 8 neighbours share the class, 100% by chance" in few
    assert [f">{name}</text>" in few for name in table.classes] == [False, True, False]
