"""Other packages add entries to every registry; the package here is that of docs/contributing/plugin.md."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import dissensus as dz
from dissensus.cli import app, options
from dissensus.common.exceptions import PluginFailed, PluginSkipped
from dissensus.questions.base import questions
from dissensus.report.section import sections
from dissensus.table.io.readers import readers
from dissensus.testing.clusterings import check_clustering
from dissensus.testing.readers import check_reader
from dissensus.testing.sections import check_section

DOCS = Path(__file__).parent.parent / "docs" / "contributing"
PAGE = (DOCS / "plugin.md").read_text(encoding="utf-8")
QUESTION = (DOCS / "question.md").read_text(encoding="utf-8")
LABELS = "item|annotator|label\n" + "".join(
    f"i{i}|a{a}|{'yes' if i % 2 else 'no'}\n" for i in range(6) for a in range(3)
)


def install(folder, name, code, entry_points):
    """Lay a package into a folder as an installer would."""
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in some.items()) for group, some in entry_points.items()]
    (about / "entry_points.txt").write_text("".join(lines))


def forget_entries(registries, monkeypatch):
    """Load all entries; what a test adds is taken out again."""
    for registry in registries:
        len(registry)
        for name, value in (("_entries", dict(registry._entries)), ("_broken", {}), ("_complete", False)):
            monkeypatch.setattr(registry, name, value)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages; what they enter in the registries is taken out again."""
    forget_entries((dz.methods, dz.clusterings, readers, sections, questions), monkeypatch)
    (folder := tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == folder:
            del sys.modules[name]


@pytest.fixture
def drawable(monkeypatch):
    """Pages without Vega, which takes seconds to pack."""
    monkeypatch.setattr("dissensus.report.page._bundle_vega", lambda: "")


@pytest.fixture
def vendor(site):
    code, learning = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (project,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    install(site, "dissensus_vendor", code, tomllib.loads(project)["project"]["entry-points"])
    (site / "dissensus_vendor_learning.py").write_text(learning, encoding="utf-8")
    return site


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="dissensus")


def test_a_method_of_another_package_is_a_method(vendor, tmp_path):
    assert "dissensus_vendor" not in sys.modules
    assert "vendor-coin" in options.method_names()
    assert "dissensus_vendor" not in sys.modules  # completion imports nothing
    listed = json.loads(run("list", "methods", "--json").stdout)["methods"]
    (one,) = [method for method in listed if method["name"] == "vendor-coin"]
    assert (one["facts"], one["parameters"]["right"]) == ({"package": "dissensus-vendor"}, 19.0)
    (tmp_path / "labels.vendor").write_text(LABELS)
    done = run("aggregate", tmp_path / "labels.vendor", "--method", "vendor-coin", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["method"] == "vendor-coin"
    check_reader("vendor", tmp_path / "labels.vendor")
    table = dz.read(tmp_path / "labels.vendor")
    model = dz.methods["vendor-coin"]().fit(table)
    assert model.predict().tolist() == ["no", "yes"] * 3
    dz.save(model, tmp_path / "kept")
    assert type(dz.load(tmp_path / "kept")) is type(model)


def test_a_clustering_of_another_package_is_a_clustering(vendor, tmp_path):
    assert "vendor-teams" in dz.clusterings
    check_clustering("vendor-teams")
    (tmp_path / "labels.vendor").write_text(LABELS)
    command = ["cluster", tmp_path / "labels.vendor", "--method", "vendor-teams", "-o", tmp_path / "out"]
    done = run(*command, "--item-clusters", 2, "--annotator-clusters", 2)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["method"] == "vendor-teams"
    assert type(dz.load(tmp_path / "out")) is dz.clusterings["vendor-teams"]


def test_a_section_of_another_package_is_on_the_page(vendor, drawable):
    table = dz.Annotations.from_arrays([1, 1, 2], ["a", "b", "a"], ["x", "x", "y"])
    report = dz.Report(table, dz.methods["majority-vote"]().fit(table), only=["vendor-cost"])
    assert "These labels cost 0.12." in report.html()
    check_section("vendor-cost")


@pytest.fixture
def learning(monkeypatch):
    """The registries of encoders and objectives; what is entered in them is taken out again."""
    pytest.importorskip("torch", reason="needs the extra learning")
    from dissensus.learning.encoders import encoders
    from dissensus.learning.objectives import objectives

    forget_entries((encoders, objectives), monkeypatch)
    return encoders, objectives


def test_an_encoder_and_an_objective_of_another_package_train_a_model(learning, vendor, tmp_path):
    encoders, objectives = learning
    from dissensus.testing.encoders import check_encoder
    from dissensus.testing.objectives import check_objective

    assert "dissensus_vendor_learning" not in sys.modules
    assert encoders.entry("vendor-clipped").facts["package"] == "dissensus-vendor"
    assert "vendor-cheap" in list(objectives)
    check_encoder(encoders["vendor-clipped"](hidden=(4,)), np.random.default_rng(0).normal(size=(6, 2)) * 3)
    check_objective(objectives["vendor-cheap"]())
    (tmp_path / "labels.csv").write_text(LABELS.replace("|", ","))
    np.savez(tmp_path / "x.npz", item=[f"i{i}" for i in range(6)], x=np.arange(12.0).reshape(6, 2))
    parts = ("--encoder", "vendor-clipped", "--objective", "vendor-cheap", "--epochs", "1", "--device", "cpu")
    done = run("train", tmp_path / "labels.csv", "--features", tmp_path / "x.npz", *parts, "-o", tmp_path / "model")
    assert done.exit_code == 0, done.output
    about = json.loads((tmp_path / "model" / "summary.json").read_text())
    assert (about["encoder"], about["objective"]) == ("vendor-clipped", "vendor-cheap")
    assert "vendor-clipped (fully connected layers over features" in " ".join(run("train", "--help").stdout.split())


@pytest.fixture
def asked(site):
    """A package with the question of docs/contributing/question.md."""
    (code,) = re.findall(r"```python\n(.*?)```", QUESTION, flags=re.DOTALL)
    install(site, "overlap_package", code, {"dissensus.questions": {"overlap": "overlap_package"}})
    return site


def test_a_question_of_another_package_is_asked_in_python_and_at_the_command_line(asked, tmp_path):
    rows = [(f"i{i}", f"a{a}", "yn"[i % 2]) for i in range(6) for a in range(3) if a < 2 or i < 4]
    table = dz.Annotations.from_arrays(*zip(*rows, strict=True))
    facts = dz.ask("overlap", table, least=3)
    assert (facts.possible, [pair["items"] for pair in facts.pairs]) == (3, [6, 4, 4])
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + "".join(",".join(row) + "\n" for row in rows))
    done = run("overlap", tmp_path / "labels.csv", "--least", 5, "--json", "-o", tmp_path / "pairs.csv")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["command"], said["possible"], said["pairs"]) == ("overlap", 3, facts.pairs[:1])
    assert (tmp_path / "pairs.csv").read_text().splitlines()[1] == "a0,a1,6"
    shown = run("overlap", tmp_path / "labels.csv")
    assert "Most shared items" in shown.stdout
    options = " ".join(run("overlap", "--help").stdout.split())
    assert all(word in options for word in ("--least", "--output", "possible: pairs of annotators"))
    refused = run("overlap", tmp_path / "labels.csv", "--least", 0)
    assert refused.exit_code == 2
    assert run("overlaps", tmp_path / "labels.csv").exit_code == 2


def test_a_question_of_another_package_has_an_address(asked, tmp_path):
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from dissensus.serve.service import Service
    from dissensus.serve.store import open_store
    from served import client

    with Service(open_store(str(tmp_path / "labels.db"))) as service:
        service.create_project("cats")
        http = client(service)
        rows = [
            {"id": f"{i}-{a}", "item": f"i{i}", "annotator": f"a{a}", "label": "yn"[i % 2]}
            for i in range(6)
            for a in range(3)
        ]
        assert http.post("/projects/cats/annotations", json=rows).status_code == 200
        assert http.get("/projects/cats/items").status_code == 200  # waits for the first fit
        answer = http.get("/projects/cats/questions/overlap", params={"least": 6})
        assert answer.status_code == 200, answer.text
        assert [pair["items"] for pair in answer.json()["facts"]["pairs"]] == [6, 6, 6]
        assert len(answer.json()["findings"]) == 1
        assert "overlap" in http.get("/projects/cats/questions").json()
        assert http.get("/projects/cats/questions/describe").json()["facts"]["items"] == 6
        for wrong, status in (("overlap?most=2", 400), ("overlap?least=0", 400), ("nothing", 404)):
            assert http.get(f"/projects/cats/questions/{wrong}").status_code == status


def test_a_broken_question_is_one_sentence(site):
    install(site, "broken_question", "1 / 0", {"dissensus.questions": {"nowhere": "broken_question"}})
    done = run("nowhere", "labels.csv")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_one_name_imports_one_plugin(vendor):
    install(vendor, "other", "raise RuntimeError('not this one')", {"dissensus.methods": {"other": "other"}})
    assert dz.methods["vendor-coin"].__name__ == "VendorCoin"
    assert "majority-vote" in dz.methods


BROKEN = {
    "import a_package_that_is_not_there": "ModuleNotFoundError: No module named 'a_package_that_is_not_there'",
    "": "NotRegisteredByModule: broken_plugin registers no method of that name",
    "from dissensus.models.methods.one_coin import OneCoin, methods\n"
    "methods.register('majority-vote', summary='')(OneCoin)": "RegisteredTwice: method 'majority-vote' is registered "
    "twice",
}


@pytest.mark.parametrize(("code", "why"), BROKEN.items())
def test_a_plugin_that_cannot_be_loaded_is_one_sentence(vendor, code, why):
    install(vendor, "broken_plugin", code, {"dissensus.methods": {"broken": "broken_plugin"}})
    facts = {"plugin": "method 'broken'", "package": "broken-plugin", "reason": why}
    with pytest.raises(PluginFailed) as caught:
        dz.methods["broken"]
    assert caught.value.facts == facts
    with pytest.warns(PluginSkipped) as warned:
        assert {"vendor-coin", "majority-vote"} <= set(dz.methods)
    assert [one.message.facts for one in warned] == [facts]
    assert dz.methods["majority-vote"].__name__ == "MajorityVote"


def test_a_broken_plugin_leaves_the_command_line_working(vendor):
    install(vendor, "broken_plugin", "1 / 0", {"dissensus.methods": {"broken": "broken_plugin"}})
    done = run("list", "methods")
    assert (done.exit_code, "vendor-coin" in done.stdout) == (0, True)
    assert done.stderr.count("\n") == 1
    assert "broken-plugin" in done.stderr


FAILS = """
from dissensus.common.exceptions import PluginFailed, PluginSkipped
from dissensus.report.section import Section, sections
from dissensus.table.io.readers import Reader, readers

@sections.register("fails", title="", summary="", place=1)
class Fails(Section):
    def collect(self, study):
        if "collect" in study.title:
            raise RuntimeError("no numbers")
        return {}
    def draw(self, facts):
        raise RuntimeError("no picture")

readers.register("fails", summary="", place=0)(Reader(print, matches_record=lambda record: record["nothing"]))
"""


def test_a_plugin_that_fails_later_costs_only_its_own_part(vendor, drawable, tmp_path):
    install(vendor, "later", FAILS, {"dissensus.sections": {"fails": "later"}, "dissensus.readers": {"fails": "later"}})
    table = dz.Annotations.from_arrays([1, 1, 2], ["a", "b", "a"], ["x", "x", "y"])
    model = dz.methods["majority-vote"]().fit(table)
    with pytest.warns(PluginSkipped) as warned:
        assert list(dz.Report(table, model, title="collect", only=["fails", "vendor-cost"]).facts["sections"]) == [
            "vendor-cost"
        ]
    assert warned[0].message.facts == {"plugin": "'fails'", "package": "later", "reason": "RuntimeError: no numbers"}
    with pytest.warns(PluginSkipped):
        assert "labels cost" in dz.Report(table, model, only=["fails", "vendor-cost"]).html()
    (tmp_path / "labels.jsonl").write_text('{"item": 1, "annotator": "a", "label": "x"}\n')
    with pytest.warns(PluginSkipped):
        assert dz.read(tmp_path / "labels.jsonl").n_annotations == 1


def test_help_looks_for_no_plugin():
    command = [sys.executable, "-X", "importtime", "-m", "dissensus", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "typer" in done.stderr
    assert "importlib.metadata" not in done.stderr
