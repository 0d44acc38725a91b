from __future__ import annotations

import json

import numpy as np
import pytest

import dissensus as dz
from cli.tables import write_csv
from dissensus.common.formatting import Count
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.exceptions import UnknownName
from dissensus.questions import findings as f
from dissensus.table.io import read_frame
from found import error_of, shown


def test_kinds_are_shown_with_what_they_mean(cli, labels):
    result = cli("explain", labels)
    assert (result.exit_code, result.stderr) == (0, "")
    table = dz.read(labels)
    counts = dz.explain(table, dz.methods[DEFAULT_METHOD]().fit(table)).counts()
    assert sum(count > 0 for count in counts.values()) >= 2
    for kind, count in counts.items():
        assert (f"  {kind} " in result.stdout) == (count > 0)
    assert shown(f.ItemsExplained(items=Count(40))) in result.stdout
    assert "Nothing was written" in result.stdout


@pytest.mark.parametrize("method", [None, "one-coin"])
def test_file_and_json_have_what_the_library_says(cli, labels, method):
    options = [] if method is None else ["--method", method, "--set", "dependence=0"]
    parsed = json.loads(cli("explain", labels, "-o", "why.csv", "--json", *options).stdout)
    table = dz.read(labels)
    keywords = {} if method is None else {"dependence": 0}
    found = dz.explain(table, dz.methods[method or DEFAULT_METHOD](**keywords).fit(table))
    assert (parsed["method"], parsed["items"], parsed["kinds"]) == (method or DEFAULT_METHOD, 40, found.counts())
    assert parsed["most_disagreement"]["cannot tell"] == found.items_of_kind("cannot tell", differing=True)[:5]
    written = read_frame("why.csv")
    assert written.column_names == found.to_frame().columns.tolist()
    assert written["kind"].to_pylist() == found.to_frame()["kind"].tolist()


def test_groups_of_annotators_are_compared(cli, labels):
    people = write_csv(labels.parent / "people.csv", ["annotator", "team"], [(f"w{j}", "ab"[j % 2]) for j in range(7)])
    (group,) = json.loads(cli("explain", labels, "--annotators", people, "--json").stdout)["groups"]
    assert (group["column"], group["groups"], group["significant"]) == ("team", ["a", "b"], False)
    said = f.GroupsDiffer(column="team", items=Count(0), significant=False, p_value=group["p_value"])
    assert shown(said) in cli("explain", labels, "--annotators", people).stdout


def test_groups_that_differ_on_no_item_that_can_be_named_are_told_so(cli, here):
    rng = np.random.default_rng(0)
    votes = [
        (f"i{i:03}", f"w{j}", "yn"[(i + (i < 30 and j % 2) + (rng.random() < 0.1)) % 2])
        for i in range(100)  # team b sees the first 30 the other way; four labels of an item do not show it
        for j in rng.permutation(16)[:4].tolist()
    ]
    file = write_csv(here / "few.csv", ["item", "annotator", "label"], votes)
    people = write_csv(here / "people.csv", ["annotator", "team"], [(f"w{j}", "ab"[j % 2]) for j in range(16)])
    (group,) = json.loads(cli("explain", file, "--annotators", people, "--json").stdout)["groups"]
    assert (group["significant"], group["items"]) == (True, 0)
    said = f.GroupsDiffer(column="team", items=Count(0), significant=True, p_value=group["p_value"])
    assert said.missing_items_clause
    assert shown(said) in cli("explain", file, "--annotators", people).stdout


def test_questions_are_answered_each_and_wrong_names_are_said_first(cli, questions, here):
    assert len(json.loads(cli("explain", questions, "--json").stdout)["questions"]) == 3
    refused = cli("explain", here / "missing.csv", "--method", "dawid-skeen")
    assert (refused.exit_code, isinstance(error_of(refused), UnknownName)) == (2, True)
    assert cli("explain", questions, "-o", "why.csv").error.facts == {"option": "output"}
