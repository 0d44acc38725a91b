"""`dissensus decision`: the probabilities are the model's, with and without features."""

import json

import numpy as np
import pytest

import dissensus as dz
from cli.tables import write_csv
from dissensus.table.io import read_frame

pytest.importorskip("torch", reason="needs the `learning` extra")


@pytest.mark.parametrize("described", [False, True])
def test_pairs_are_the_most_probable_annotators_of_each_item(cli, labels, here, described):
    from dissensus.learning.decision import DecisionFunction

    table = dz.read(labels)
    write_csv(here / "items.csv", ["item", "x"], [(item, n % 5) for n, item in enumerate(table.items)])
    features = ["--features", "items.csv"] if described else []
    result = cli(
        "cluster", labels, "--decision", *features, "--top", 3, "--set", "epochs=2", "--seed", 4, "-o", "out", "--json"
    )
    assert result.exit_code == 0, result.output
    parsed = json.loads(result.stdout)
    assert (parsed["items"], parsed["annotators"]) == (table.n_items, table.n_annotators)
    pairs = read_frame(here / "out" / "pairs.csv").to_pydict()
    X = np.arange(table.n_items)[:, None] % 5 if described else None
    proba = DecisionFunction(epochs=2, seed=4).fit(table, X).predict_proba()
    np.testing.assert_allclose(
        np.array(pairs["probability"], float).reshape(-1, 3), -np.sort(-proba, axis=1)[:, :3], rtol=1e-5
    )
    known = {(table.items[i], table.annotators[j]) for i, j in zip(table.item, table.annotator, strict=True)}
    found = zip(pairs["item"], pairs["annotator"], pairs["labelled"], strict=True)
    assert all((str(labelled).lower() == "true") == ((item, annotator) in known) for item, annotator, labelled in found)
    np.testing.assert_array_equal(DecisionFunction.load(here / "out").predict_proba(), proba)


def test_the_summary_is_shown_and_a_wrong_keyword_is_an_error(cli, labels):
    result = cli("cluster", labels, "--decision", "--set", "epochs=1")
    assert result.exit_code == 0, result.output
    assert "40 items" in result.stdout
    assert cli("cluster", labels, "--decision", "--set", "speed=1").exit_code == 2
