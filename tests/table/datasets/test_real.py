"""The sets of the data folder against what their READMEs say; no figure of theirs is written down here."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest

from dissensus import Questions
from dissensus.table import exceptions as errors
from dissensus.table.datasets import list_datasets, load_dataset
from facts import raises

NUMBER = r"([\d,]+(?:\.\d+)?)"


def numbers(readme, pattern):
    """The figures of a README that stand where `pattern` has #."""
    found = re.search(re.escape(pattern).replace(r"\#", NUMBER).replace(r"\ ", " "), readme.read_text())
    assert found, f"{readme} does not say {pattern!r}"
    return [float(figure.replace(",", "")) for figure in found.groups()]


def load(readme, **options):
    return load_dataset(readme.parent.name, folder=readme.parent.parent, **options)


def majority_vote(data):
    """Percent right, and of how many items; a tie counts as its share."""
    right, known = 0.0, 0
    for votes, gold in zip(data.annotations.votes().tolist(), data.gold.tolist(), strict=True):
        if gold >= 0:
            winners = [k for k, n in enumerate(votes) if n == max(votes)]
            right, known = right + (gold in winners) / len(winners), known + 1
    return round(100 * right / known, 2), known


@pytest.mark.realdata(has="annotated items, ")
def test_counts_are_those_of_the_readme(readme):
    table = load(readme).annotations
    assert [table.n_items, table.n_annotators, table.n_annotations, table.n_classes] == numbers(
        readme, "- counts: # annotated items, # annotators, # judgements, # classes"
    )
    spread, repeated = table.describe()["annotations_per_item"], table.describe()["repeated_pairs"]
    assert [round(spread["mean"], 2), spread["min"], spread["max"], repeated] == numbers(
        readme, "mean redundancy # (min #, max #), repeated (item, annotator) pairs: #"
    )


@pytest.mark.realdata(has="majority vote vs gold (ties counted fractionally)")
def test_majority_vote_is_that_of_the_readme(readme):
    data = load(readme)
    assert list(majority_vote(data)) == numbers(
        readme, "majority vote vs gold (ties counted fractionally): #% on # items with gold and judgements"
    )
    table, gold = data.annotations, data.gold[data.annotations.item]
    right, known = (table.label == gold)[gold >= 0], table.annotator[gold >= 0]
    of_each = np.bincount(known, right)[np.unique(known)] / np.bincount(known)[np.unique(known)]
    assert [round(100 * of_each.mean(), 2), round(100 * right.mean(), 2)] == numbers(
        readme, "annotator accuracy: mean over annotators #%, mean over judgements #%"
    )


@pytest.mark.realdata(has="- counts: ")
def test_every_part_is_aligned_with_the_items(readme):
    if not any(readme.parent.glob("annotations.csv*")) and not any(readme.parent.glob("counts.csv*")):
        pytest.skip("not a labelled set")
    for path in readme.parent.glob("annotations.csv.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            if "label" not in file.readline().strip().split(","):
                pytest.skip("labels that are not classes: numbers, or one of two items")
    data = load(readme)
    assert data.missing_parts.startswith(f"{data.name} has ")
    for part in (data, data.with_unlabelled_items, *data.splits.values()):
        table, n = part.annotations, part.item_names.size
        assert table.n_items == n
        assert part.gold is None or (part.gold.shape == (n,) and part.gold.max() < table.n_classes)
        assert part.items is None or part.items["item"].to_pylist() == part.item_names.tolist()
        assert part.features is None or (len(part.features) == n and part.features.dtype == np.float32)
        assert part.annotators is None or part.annotators["annotator"].to_pylist() == table.annotators.tolist()
    assert (np.diff(data.annotations.item_ptr) > 0).all()
    assert sum(len(part.annotations) for part in data.splits.values()) <= len(data.annotations)
    for stem in ("gold", "items", "features", "annotators", "responses"):
        there = any(readme.parent.glob(f"{stem}.*"))
        assert (getattr(data, stem) is not None) == there


@pytest.mark.realdata(has="gold_test_partition.csv.gz")
def test_other_golds_are_read_by_name(readme):
    if "gold_paper" not in readme.read_text():
        pytest.skip("no second gold")
    data = load(readme)
    assert data.golds == ("paper", "test_partition")
    assert list(majority_vote(load(readme, gold="test_partition"))) == numbers(readme, "removed (MV #% on #)")
    assert list(majority_vote(load(readme, gold="paper"))) == numbers(readme, "and MV scores #% on #.")


@pytest.mark.realdata(has="votes per pair")
def test_stemming_has_votes_without_annotators(readme):
    data = load(readme)
    assert [data.annotations.n_items, data.annotations.n_annotations] == numbers(readme, "- counts: # pairs, # votes")
    assert majority_vote(data)[0] == numbers(readme, "majority vote vs gold (ties count one half): #%")[0]
    assert data.missing_parts == "stemming has no annotator ids (votes only), no features and no annotator metadata."
    sizes = {name: part.annotations.n_items for name, part in data.splits.items()}
    train, test, dev = numbers(readme, "splits {'train': #, 'test': #, 'dev': #}")
    assert sizes == {"train": train, "test": test, "dev": dev}
    folds = data.split_by("fold10")
    assert list(folds) == [str(fold) for fold in sorted(map(int, folds))]  # by value, not as text
    assert sum(part.annotations.n_items for part in folds.values()) == data.annotations.n_items


@pytest.mark.realdata(has="11 classes (0..10)")
def test_whole_numbers_are_classes_in_the_order_of_their_values(readme):
    data = load(readme)
    items, train, dev, test, ratings = numbers(readme, "- counts: # reviews (train #, dev #, test #), # ratings")
    assert [data.annotations.n_items, len(data.annotations)] == [items, ratings]
    assert [data.splits[name].annotations.n_items for name in ("train", "dev", "test")] == [train, dev, test]
    assert data.annotations.classes.tolist() == [str(rating) for rating in range(11)]


@pytest.mark.realdata(has="CIFAR-10H")
def test_counts_can_be_asked_for_and_images_are_read_late(readme):
    some, everything = load(readme), load(readme, votes="counts")
    figures = numbers(readme, "all # images, # judgements, # per image")
    assert [everything.annotations.n_items, len(everything.annotations)] == figures[:2]
    assert majority_vote(everything)[0] == numbers(readme, "; majority vote vs gold #%")[0]
    assert everything.stored["images"][1].cache_info().currsize == 0
    assert some.images is None
    stored = numbers(readme, "uint8 pixels (#, 32, 32, 3)")[0]
    assert everything.has_image.sum() == stored
    assert f"images for {int(stored):,} of its" in everything.missing_parts
    assert everything.images.shape == (everything.annotations.n_items, 32, 32, 3)
    assert everything.images[everything.has_image].any(axis=(1, 2, 3)).all()
    assert not everything.images[~everything.has_image].any()


@pytest.mark.realdata(has="worker-sentence judgements")
def test_ticked_relations_are_questions(readme):
    questions = load(readme).annotations
    assert isinstance(questions, Questions)
    judgements, ticks, sentences, workers = numbers(
        readme,
        "# worker-sentence judgements (every judgement ticks at least one option), # ticks, # sentences, # workers",
    )
    repeated = numbers(readme, "- # (item, annotator) pairs occur more than once")[0]
    said = dict(
        re.findall(r"([A-Z_]+) ([\d,]+)", readme.read_text().partition("ticks per relation: ")[2].partition("\n")[0])
    )
    assert set(questions) == set(said)
    for relation, table in questions.items():
        assert [table.n_items, table.n_annotators, len(table)] == [sentences, workers, judgements - repeated]
        assert table.label.sum() == pytest.approx(
            int(said[relation].replace(",", "")), rel=0.03
        )  # repeated ones merged
    assert sum(int(n.replace(",", "")) for n in said.values()) == ticks


@pytest.mark.realdata(has="LabelMe-IC")
def test_a_split_holds_its_items_without_annotations(readme):
    data = load(readme)
    train, dev, test = numbers(readme, "gold: all 2,688 images (train #, dev #, test #)".replace("2,688 ", "# "))[1:]
    assert {name: part.annotations.n_items for name, part in data.splits.items()} == {
        "train": train,
        "dev": dev,
        "test": test,
    }
    part = data.splits["test"]
    assert len(part.annotations) == 0
    assert (part.gold >= 0).all()
    assert len(part.features) == test
    assert not np.isnan(part.features).any()
    assert part.annotations.classes.tolist() == data.annotations.classes.tolist()
    assert data.annotations.n_items == train  # the set itself: what somebody labelled


@pytest.mark.realdata(has="split_naacl21")
def test_another_column_splits_too(readme):
    data = load(readme)
    train, test = numbers(readme, "split_naacl21 = the # / # token split")
    parts = data.split_by("split_naacl21")
    assert sorted(part.annotations.n_items for part in parts.values()) == sorted([train, test])


@pytest.mark.realdata(has="Not a labelled data set")
def test_a_folder_without_labels_says_so(readme):
    with raises(errors.NotALabelledSet, name="twitter_brown_clusters"):
        load(readme)


@pytest.mark.realdata
def test_the_listing_names_every_folder(data_folder):
    listed = {info.name: info for info in list_datasets(data_folder)}
    assert set(listed) == {"digits-crowd"} | {path.parent.name for path in data_folder.glob("*/README.md")}
    for name, info in listed.items():
        if name != "digits-crowd":
            assert set(info.files) == {path.name for path in (data_folder / name).iterdir()}
            assert info.labelled == any(file.startswith(("annotations", "counts")) for file in info.files)
