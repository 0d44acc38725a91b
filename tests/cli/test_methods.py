from __future__ import annotations

import json

import dissensus as dz


def test_table_has_every_method_with_source_and_keywords(cli):
    text = cli("list", "methods").stdout
    for name in dz.methods:
        assert name in text
    assert "Dawid & Skene 1979" in text
    assert "smoothing" in text


def test_json_has_every_method_with_its_defaults(cli):
    entries = {entry["name"]: entry for entry in json.loads(cli("list", "methods", "--json").stdout)["methods"]}
    assert list(entries) == list(dz.methods)
    for name, entry in entries.items():
        assert entry["parameters"] == dz.methods[name]().get_params()
        assert entry["summary"] == dz.methods.entry(name).summary
