"""The papers' figures are written to files and have captions."""

from functools import cache

import numpy as np
import pytest

from dissensus.learning.exceptions import WrongModel
from report.reports import crowd, features, trained
from reproductions import maps
from reproductions.figures import plot_annotator_embeddings, plot_difficulty, plot_latent

pytest.importorskip("torch", reason="needs the `learning` extra")


@cache
def lia():
    """Fit a small LIA to the crowd."""
    from dissensus.learning.objectives import LIAObjective

    return trained(objective=LIAObjective(rounds=2), epochs=6)


def test_figures_are_files(tmp_path):
    table, model = crowd().annotations, lia()
    svg = plot_annotator_embeddings(model, table, tmp_path / "map.svg").read_text(encoding="utf-8")
    for words in ("Clusters of mistakes", "Error rate", "Over-used class", "14 annotators", "(PCA)"):
        assert words in svg
    truth = np.where(np.arange(100) < 90, crowd().truth, -1)
    svg = plot_difficulty(model, table, tmp_path / "difficulty.svg", truth).read_text(encoding="utf-8")
    assert all(f">{word}</text>" in svg for word in ("right", "wrong", "without gold", "difficulty"))
    svg = plot_difficulty(model, table, tmp_path / "majority.svg").read_text(encoding="utf-8")
    assert all(f">{name}</text>" in svg for name in table.classes)
    assert ">right</text>" not in svg
    assert plot_annotator_embeddings(model, table, tmp_path / "m.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(WrongModel):
        plot_difficulty(trained(epochs=1), table, tmp_path / "none.svg")


def marks(n):
    """Return the (colour, shape) of each of n classes."""
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
    assert domain[-1] == maps.OTHERS_NAME
    assert sum(row["class"] == maps.OTHERS_NAME for row in spec["data"]["values"]) == 3 * 7


def test_items_without_labels_are_marked_last():
    rows = [{"item": "1", "x": 0, "y": 0, "class": maps.NO_LABELS}, {"item": "2", "x": 1, "y": 0, "class": "a"}]
    assert maps.item_chart(rows, ["a", "b"]).to_dict()["encoding"]["shape"]["scale"]["domain"] == [
        "a", maps.NO_LABELS,
    ]  # fmt: skip


def test_the_picture_is_a_file(tmp_path):
    table, model, X = crowd().annotations, trained(validation=0.3), features(crowd().annotations, crowd().truth)
    svg = plot_latent(model, X, tmp_path / "map.svg", table=table).read_text(encoding="utf-8")
    assert "100 items as the network sees them (t-SNE)" in svg
    assert "neighbours share the class" in svg
    assert all(f">{name}</text>" in svg for name in table.classes)
    few = plot_latent(model, X[:9], tmp_path / "few.svg", codes=np.full(9, 1)).read_text(encoding="utf-8")
    assert "9 items as the network sees them (PCA)" in few
    assert "100% of 8 neighbours share the class, 100% by chance" in few
    assert [f">{name}</text>" in few for name in table.classes] == [False, True, False]
