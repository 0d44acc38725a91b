"""Pseudonyms: stable, all different, and no way back without the key."""

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.clustering import PGMBP
from dissensus.report import study
from dissensus.report.exceptions import MailAddressesShown, NoAnnotatorColumn
from dissensus.report.pseudonyms import PSEUDONYM_LENGTH, make_pseudonyms
from dissensus.table.io.jsonl import dumps
from refused import refused
from report.reports import crowd, people, report


def test_a_name_has_the_same_pseudonym_whoever_stands_beside_it():
    assert make_pseudonyms(["ann", "bob", "eve"])[1] == make_pseudonyms(["zoe", "bob"])[1]


def test_numbers_and_their_text_are_one_annotator_in_two_files():
    assert make_pseudonyms([7]) == make_pseudonyms(["7"])


def test_pseudonyms_are_all_different_however_many():
    made = make_pseudonyms(range(200_000))
    assert len(set(made)) == 200_000
    assert {len(one) for one in made} == {
        PSEUDONYM_LENGTH + 1,
        PSEUDONYM_LENGTH + 2,
        PSEUDONYM_LENGTH + 3,
    }  # a few are longer, as they met


def test_a_salt_gives_others():
    plain, salted = make_pseudonyms(["ann", "bob"]), make_pseudonyms(["ann", "bob"], "secret")
    assert not set(plain) & set(salted)
    assert salted == make_pseudonyms(["ann", "bob"], "secret")


def test_a_report_tells_nothing_of_the_order_of_the_real_names(monkeypatch):
    """The same people under other names, with the same pseudonyms: every list and number is the same."""
    table = crowd().annotations
    rng = np.random.default_rng(1)
    to = rng.permutation(table.n_annotators)  # to their code in the order of the other names
    others = Annotations.from_codes(
        table.item, to[table.annotator], table.label, table.items, table.annotators, table.classes
    )
    hidden = make_pseudonyms(range(table.n_annotators))

    def facts(rows, names):
        monkeypatch.setattr(study, "make_pseudonyms", lambda *_: list(names))
        clustering = PGMBP(item_clusters=3, annotator_clusters=2).fit(rows)
        found = report(
            rows, clustering=clustering, only=["overview", "labels", "annotators", "items", "clusters"]
        ).facts
        for cluster in found["sections"].pop("clusters")["annotator_clusters"]:  # its start is drawn
            assert cluster["members"] == sorted(cluster["members"])
        return dumps([found["sections"], found["findings"]], indent=1).splitlines()

    one = facts(table, hidden)
    assert '"voices": [' in "".join(one)
    assert one == facts(others, np.array(hidden)[np.argsort(to)].tolist())


def test_columns_about_annotators_are_printed_only_where_asked_for(tmp_path):
    table = crowd().annotations
    about = people(table) | {"mail": [f"{name}@example.org" for name in table.annotators.tolist()]}
    assert "example.org" not in dumps(report(annotators=about).facts)
    assert "country" not in dumps(report(annotators=about).facts["sections"]["annotators"])
    shown = report(annotators=about, show=["country"]).facts["sections"]["annotators"]["people"]
    assert {one["about"]["country"] for one in shown} == {"x", "y"}
    with pytest.warns(MailAddressesShown):
        report(annotators=about, show=["mail"])
    with refused(NoAnnotatorColumn, column="team"):
        report(annotators=about, show=["team"])
