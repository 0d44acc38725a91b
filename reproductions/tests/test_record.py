"""Stores and records, which the papers and the benchmarks share."""

import pytest

from dissensus.common.json_lines import JsonLinesStore
from reproductions import record

PROVENANCE = {
    "by": "python -m x", "date": "2026-01-02 03:04 UTC", "commit": "abc-dirty", "cpu": "A", "cores": 2, "memory_gb": 8,
}  # fmt: skip


def test_the_last_line_of_a_key_counts(tmp_path):
    path = record.store_path(tmp_path, "one")
    assert path == tmp_path / "results" / "one.jsonl"
    for value in (1, 2):
        record.add_line(JsonLinesStore(path), "a", PROVENANCE, {"value": value})
    record.add_line(JsonLinesStore(path), "b", PROVENANCE, {"value": 3})
    assert {key: line["value"] for key, line in record.read_store(path).items()} == {"a": 2, "b": 3}
    assert record.read_store(path)["a"]["made"] == PROVENANCE


def test_a_key_is_of_the_whole_configuration_in_any_order():
    assert record.hash_configuration({"a": 1, "b": [2]}) == record.hash_configuration({"b": [2], "a": 1})
    assert record.hash_configuration({"a": 1, "b": [2]}) != record.hash_configuration({"a": 1, "b": [3]})


def test_a_sentence_says_when_where_and_with_what():
    plain = "2026-01-02 03:04 UTC, commit abc with changes; A, 2 cores, 8 GB"
    assert record.describe_provenance(PROVENANCE) == f"{plain}."
    assert record.describe_provenance(PROVENANCE | {"versions": {"numpy": "2"}}) == f"{plain}. numpy 2."
    busy = record.describe_provenance(
        PROVENANCE | {"device": "CPU", "others": 0.5}, {"peer": {"x": "1"}, "other": {"y": "2"}}
    )
    used = "50% of the processor used by others before the run (**times are preliminary**)"
    assert busy == f"{plain}, CPU, {used}. peer: x 1; other: y 2."
    assert "preliminary" not in record.describe_provenance(PROVENANCE | {"others": record.MAX_BUSY_SHARE})


def test_a_run_is_published_as_a_line_and_between_marks(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- one: begin -->\nold\n<!-- one: end -->\nafter\n", encoding="utf-8")
    record.publish(readme, "one", PROVENANCE, {"value": 1}, [record.markdown_table(["a", "b"], [["x|y", "1"]])])
    assert record.read_store(tmp_path / "results" / "one.jsonl")["one"]["value"] == 1
    text = readme.read_text(encoding="utf-8")
    assert text == (
        f"before\n<!-- one: begin -->\n{record.describe_provenance(PROVENANCE)}\n\n"
        "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n<!-- one: end -->\nafter\n"
    )
    with pytest.raises(ValueError, match="unpack"):
        record.replace_between_marks(readme, "two", "")


def test_where_a_result_was_made():
    made = record.provenance(device="cpu")
    assert made["device"] == "CPU"
    assert made["by"].startswith("python ")
    assert "others" not in made
    assert made["versions"]["numpy"]


def test_the_command_of_a_record_has_no_path_of_this_machine(monkeypatch):
    monkeypatch.setattr("sys.argv", ["x.py", "rte", "--out", "/home/me/out", "--seeds", "3", "/data", "-o", "here"])
    assert record.command_line().split()[3:] == ["rte", "--seeds", "3", "-o", "here"]
