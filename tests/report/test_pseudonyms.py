"""Pseudonyms: stable, all different, and no way back without the key."""

from dissensus.report.pseudonyms import LENGTH, pseudonyms


def test_a_name_has_the_same_pseudonym_whoever_stands_beside_it():
    assert pseudonyms(["ann", "bob", "eve"])[1] == pseudonyms(["zoe", "bob"])[1]


def test_numbers_and_their_text_are_one_annotator_in_two_files():
    assert pseudonyms([7]) == pseudonyms(["7"])


def test_pseudonyms_are_all_different_however_many():
    made = pseudonyms(range(200_000))
    assert len(set(made)) == 200_000
    assert {len(one) for one in made} == {LENGTH + 1, LENGTH + 2, LENGTH + 3}  # a few are longer, as they met


def test_a_salt_gives_others():
    plain, salted = pseudonyms(["ann", "bob"]), pseudonyms(["ann", "bob"], "secret")
    assert not set(plain) & set(salted)
    assert salted == pseudonyms(["ann", "bob"], "secret")
