"""A watched folder: projects say what the files say, however often these are written."""

import json
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from dissensus.serve.events import Event
from dissensus.serve.exceptions import NoFolderToWatch
from dissensus.serve.service import Service
from dissensus.serve.store import open_store
from dissensus.serve.watch import WatchedFolder, table_to_events
from dissensus.table.annotations import Annotations
from dissensus.table.io import read

CSV = "item,annotator,label\n1,ann,cat\n1,bob,dog\n2,ann,dog\n2,bob,dog\n"


@pytest.fixture
def service(tmp_path):
    with Service(open_store(str(tmp_path / "s.db")), fits=False) as one:
        yield one


@pytest.fixture
def folder(tmp_path, service):
    (tmp_path / "in").mkdir()
    return WatchedFolder(service, tmp_path / "in")


def rows(table):
    names = (table.items[table.item], table.annotators[table.annotator], table.classes[table.label])
    return sorted(zip(*(map(str, some.tolist()) for some in names), strict=True))


def test_a_file_is_read_when_it_has_stopped_growing_and_again_when_it_changes(folder, service):
    path = folder.path / "pets.csv"
    path.write_text(CSV)
    assert folder.read_changed_files() == []  # it may still grow
    assert folder.read_changed_files() == ["pets.csv"]
    assert folder.read_changed_files() == []
    assert rows(service.project("pets.csv").table()) == rows(read(path))
    seq = service.seq
    path.write_text(CSV.replace("1,bob,dog\n", "").replace("2,ann,dog", "2,ann,cat") + "3,cy,cat\n")
    folder.read_changed_files()
    assert folder.read_changed_files() == ["pets.csv"]
    assert rows(service.project("pets.csv").table()) == rows(read(path))
    assert service.seq == seq + 3  # a row less, one changed, one more
    path.write_text(CSV)
    again = WatchedFolder(service, folder.path)  # after a restart
    again.read_changed_files()
    again.read_changed_files()
    assert rows(service.project("pets.csv").table()) == rows(read(path))


def test_no_file_replaces_another(folder, service):
    names = ["export.2026-01.csv", "export.2026-02.csv", "labels.csv", "labels.json", "метки.csv", "оценки.csv"]
    for at, name in enumerate(names):
        rows = [{"item": "1", "annotator": who, "label": f"x{at}"} for who in "ab"]
        lines = ["item,annotator,label", *(",".join(row.values()) for row in rows)]
        text = json.dumps(rows) if name.endswith("json") else "\n".join(lines)
        (folder.path / name).write_text(text, encoding="utf-8")
    folder.read_changed_files()
    assert folder.read_changed_files() == names
    for at, name in enumerate(names):
        assert service.project(name).table().classes.tolist() == [f"x{at}"]


@pytest.mark.parametrize("labels", [("1.5", "2.5", "n/a"), ("cat|dog", "cat", "owl"), ("cat", "dog", "cat|owl")])
def test_a_file_may_change_its_kind_with_its_rows(folder, service, labels):
    path = folder.path / "pets.csv"
    for some in (labels[:2], labels, labels[:2]):
        rows_ = [f"{i},{who},{label}\n" for i, label in enumerate(some) for who in "ab"]
        path.write_text("item,annotator,label\n" + "".join(rows_))
        folder.read_changed_files()
        assert folder.read_changed_files() == ["pets.csv"]
        now, said = service.project("pets.csv").table(), read(path)
        assert (now.kind, rows(now)) == (said.kind, rows(said))


def test_what_is_no_table_is_said_and_holds_nothing_up(folder, service, caplog):
    (folder.path / "a.csv").write_text("no table")
    (folder.path / "b.csv").write_text(CSV)
    (folder.path / ".hidden.csv").write_text(CSV)
    folder.read_changed_files()
    assert folder.read_changed_files() == ["b.csv"]
    assert next(one.message for one in caplog.records if one.levelname == "WARNING").startswith("a.csv: ")
    assert service.project_names() == ["b.csv"]


def test_a_folder_that_is_not_there_is_named(service, tmp_path):
    with pytest.raises(NoFolderToWatch) as caught:
        WatchedFolder(service, tmp_path / "nowhere")
    assert caught.value.path == tmp_path / "nowhere"


def test_spans_come_back_as_spans():
    ann, bob = ("ann", 0, 3, "person"), ("bob", 0, 3, "person")
    spans = [("d", *ann), ("d", "ann", 7, 9, "place"), ("d", *bob), ("e", "bob", 1, 2, "place")]
    table = Annotations.from_spans(*zip(*spans, strict=True), readings=[("e", "ann")])
    found = {(event.item, event.annotator): event.label for event in table_to_events(table)}
    assert found == {
        ("d", "ann"): '[{"start": 0, "end": 3, "label": "person"}, {"start": 7, "end": 9, "label": "place"}]',
        ("d", "bob"): '[{"start": 0, "end": 3, "label": "person"}]',
        ("e", "ann"): "[]",
        ("e", "bob"): '[{"start": 1, "end": 2, "label": "place"}]',
    }


def test_two_labels_by_one_annotator_of_one_item_are_two_rows():
    table = Annotations.from_arrays(np.array([1, 1]), np.array(["ann", "ann"], object), np.array(["x", "x"], object))
    assert len({event.id for event in table_to_events(table)}) == 2


def test_the_times_of_a_file_are_those_of_its_labels(folder, service):
    (folder.path / "pets.csv").write_text(
        "item,annotator,label,created_at\n1,ann,cat,2026-01-02T03:04:05Z\n1,bob,dog,2026-01-01\n2,ann,dog,\n"
    )
    task = {"id": 7, "data": {"text": "a"}, "annotations": []}
    for who, when in (("ann", "2026-01-03T00:00:00.5Z"), ("bob", None)):
        result = [{"from_name": "q", "to_name": "text", "type": "choices", "value": {"choices": ["x"]}}]
        task["annotations"].append({"id": who, "completed_by": {"email": who}, "result": result, "updated_at": when})
    (folder.path / "studio.json").write_text(json.dumps([task]))
    folder.read_changed_files()
    assert folder.read_changed_files() == ["pets.csv", "studio.json"]
    pets = service.project("pets.csv")
    found = {(one["annotator"], i): one["at"] for i in "12" for one in pets.item(i)["annotations"]}
    assert found["ann", "1"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    assert found["bob", "1"] == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert found["ann", "2"] > time.time() - 60  # the file does not say
    first, second = service.project("studio.json").item("7")["annotations"]
    assert (first["at"], second["at"] > time.time() - 60) == (datetime(2026, 1, 3, tzinfo=UTC).timestamp() + 0.5, True)


def test_known_labels_of_a_file_that_is_written_again_decide_nothing_anew(folder, service):
    def write(gold, n):
        rows = [{"id": 1, "result": choice("cat")}]
        rows += [{"id": 2, "result": choice(gold), "ground_truth": True}] if gold else []
        tasks = [{"id": 1, "data": {"text": "a"}, "annotations": [one | {"completed_by": one["id"]} for one in rows]}]
        more = {"id": 9, "completed_by": 1, "result": choice("cat")}
        tasks += [{"id": 9, "data": {"text": "b"}, "annotations": [more]}] * n
        (folder.path / "pets.json").write_text(json.dumps(tasks))
        folder.read_changed_files()
        folder.read_changed_files()
        return service.project("pets.json").item("1")["decision"]

    def choice(label):
        return [{"from_name": "k", "to_name": "t", "type": "choices", "value": {"choices": [label]}}]

    assert (write("dog", 0)["label"], write("dog", 1)["by"]) == ("dog", "file")
    service.append("pets.json", [Event("decision", "1", "1", "judge", "cat")])
    assert write("dog", 0)["by"] == "judge"
    folder._read.clear()  # as after a restart
    assert write("dog", 0)["by"] == "judge"
    assert (write("owl", 0)["by"], write("owl", 1)["label"]) == ("file", "owl")
    assert write(None, 0)["by"] == "judge"  # what the file does not know any more is withdrawn, and that alone
    service.append("pets.json", [Event("withdrawal", "1", "1")])
    assert write(None, 1) is None
    assert write("owl", 0)["by"] == "file"
