"""The documents are true: generated parts, what the README prints, links, examples of what can be added."""

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dissensus import Report, methods, read
from dissensus.cli import COMMANDS, app, load_command
from dissensus.clustering import clusterings
from dissensus.exceptions import DataError
from dissensus.table.io import write_frame
from dissensus.table.io.readers import readers
from dissensus.table.simulate import simulate
from dissensus.testing.clusterings import check_clustering
from dissensus.testing.sections import check_section
from tables import drawn

ROOT = Path(__file__).parent.parent
FOLDERS = ("docs", "benchmarks", "reproductions")
PAGES = [*sorted(ROOT.glob("*.md")), *(page for name in FOLDERS for page in sorted((ROOT / name).rglob("*.md")))]


def test_generated_tables_are_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


STORIES = sorted((ROOT / "docs" / "start").glob("*.md"))
PASTED = [*(ROOT / "docs" / name for name in ("index.md", "quickstart.md")), ROOT / "README.md", *STORIES]
PASTED += sorted((ROOT / "docs" / "guides").glob("*.md"))
EXTRAS = {
    "ml-engineer": "torch",
    "features": "transformers",
    "learning": "torch",
    "learning-annotators": "torch",
    "papers": "torch",
    "quickstart": "torch",
    "scale": "duckdb",
}
WHOLE = ("annotation-lead", "annotators", "check", "choosing", "disagreement", "evaluation", "recommend")
"""Pages that show the output of commands on the whole bundled set."""
ITEMS_OF_FILES = 150  # items of the bundled set when a command writes it as files, so that commands take no seconds
ITEMS_OF_CODE = 400  # items of the bundled set in code whose output is not shown
SHELL = {*(story.stem for story in STORIES), "faq"}  # pages whose other shell commands are run too


def blocks(page):
    """The code of a page in its order: kind, text, and what stands in a comment before it, such as what it needs."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"(?:<!-- needs (.+?) -->\n)?^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        yield found[2], found[3], found[1]


@pytest.fixture
def small_files(tmp_path, monkeypatch):
    """An empty folder. What costs seconds is cut: files of the bundled set have few items, no page is drawn, and no
    report compares all methods; other tests do."""
    from dissensus.table import datasets

    load = datasets.load_dataset

    def load_few(name, items=ITEMS_OF_FILES):
        data = load(name)
        return data.select_items(np.arange(data.annotations.n_items) < items)

    def no_contest(*_, **__):
        raise DataError("left out")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dissensus.report.sections.methods.compare", no_contest)
    monkeypatch.setattr(Report, "save", lambda self, path: [Path(path), Path(path).with_suffix(".json")])
    return load_few


def run_python(code, names, where):
    """Run a block in the namespace of its page; what it says it prints must be so."""
    if ">>>" not in code:
        exec(compile(code, where, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(code, {}, where, where, 0)
    test.globs = names
    runner = doctest.DocTestRunner(verbose=False)
    said = []
    runner.run(test, out=said.append, clear_globs=False)
    assert runner.failures == 0, "".join(said)


def run_command(line, shown=""):
    """Run a line of a shell block that begins with dissensus, in this process; it says what is shown, in this order."""
    words = shlex.split(line, comments=True)
    if words[0] == "dissensus":
        done = CliRunner().invoke(app, words[1:], prog_name="dissensus")
        assert done.exit_code == 0, f"{line}\n{done.output}"
        said = " ".join(done.stdout.split())
        for sentence in filter(None, (" ".join(one.split()) for one in shown.splitlines())):
            _, found, said = said.partition(sentence)
            assert found, f"{line} does not say: {sentence}\n{done.output}"


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DissensusWarning")
@pytest.mark.parametrize("page", PASTED, ids=lambda page: page.stem)
def test_a_page_runs_as_pasted(page, small_files, monkeypatch):
    if page.stem in EXTRAS:
        pytest.importorskip(EXTRAS[page.stem], reason="needs the extra that the page is about")
    names = {"__name__": "pasted"}
    for number, (kind, code, needs) in enumerate(blocks(page)):
        if needs is not None:
            continue
        if kind == "python":
            with monkeypatch.context() as patched:
                if ">>>" not in code:
                    patched.setattr("dissensus.load_dataset", partial(small_files, items=ITEMS_OF_CODE))
                run_python(code, names, f"{page.name}, block {number}")
        for line, shown in re.findall(r"^\$ (.+)\n((?:[^$].*\n)*)", code, flags=re.MULTILINE) * (kind == "console"):
            with monkeypatch.context() as patched:
                if page.stem not in WHOLE:
                    patched.setattr("dissensus.table.datasets.load_dataset", small_files)
                if page.stem in SHELL and not line.startswith("dissensus "):
                    subprocess.run(line, shell=True, check=True)
                run_command(line, shown)


def test_every_guide_shows_a_command():
    for guide in (ROOT / "docs" / "guides").glob("*.md"):
        shown = re.findall(r"dissensus ([a-z]+)", guide.read_text(encoding="utf-8"))
        assert guide.stem in shown if guide.stem in COMMANDS else COMMANDS.keys() & set(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_documents_lead_somewhere(page):
    for target in re.findall(r"\]\(([\w./-]+\.\w+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_imports_and_commands_in_documents_exist(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if "of that commit" not in line)  # which had other commands
    for module, names in re.findall(r"^(?:>>> )?from (dissensus[\w.]*) import ([\w, ]+)", text, flags=re.MULTILINE):
        path = ROOT / "src" / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), module
        found = pytest.importorskip(module, reason="needs the extra that the page is about")
        for name in names.split(", "):
            assert hasattr(found, name.partition(" as ")[0]), f"{module}.{name}"
    for line in re.findall(r"^(?:\$ |    )dissensus (.*)$", text, flags=re.MULTILINE):
        name, *words = shlex.split(line.replace("…", ""), comments=True)
        known = {option for one in load_command(name).params for option in (*one.opts, *one.secondary_opts)}
        assert {word.partition("=")[0] for word in words if re.match("-+[a-z]", word)} <= known, line
    for module in re.findall(r"python -m ((?:benchmarks|reproductions)[\w.]*)", text):
        assert find_spec(module) is not None, module
    for path in re.findall(r"`((?:src|tests|docs|benchmarks|reproductions)/[\w./]+)`", text):
        assert (ROOT / path).exists() or "class-accuracy" in path, path


def test_every_method_has_its_page_and_its_row_in_the_list():
    readme = (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    for name in methods:
        assert f"[`{name}`]" in readme
        assert (ROOT / "docs" / "methods" / f"{name}.md").exists(), name


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", list(methods))
def test_a_method_has_the_results_that_its_page_names(name):
    n_classes = 2 if methods.entry(name).facts.get("binary") else 3
    kind = methods[name].kinds[0]
    table = simulate(60, 10, n_classes, redundancy=5, seed=1).annotations
    if kind != "classes":
        table = drawn(kind)
    model = methods[name]().fit(table)
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    for result in set(re.findall(r"`(\w+_)`", page)):
        assert hasattr(model, result), result


def generate():
    """docs/generate.py as a module."""
    spec = spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def example(kind):
    """The code of docs/contributing/<kind>.md."""
    text = (ROOT / "docs" / "contributing" / f"{kind}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return code


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A function that imports the example of a page; what it entered in a registry is taken out again."""

    def add(kind, registry, name):
        len(registry)  # all are loaded: what is loaded from here on is forgotten again
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        (tmp_path / f"{name}.py").write_text(example(kind), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return import_module(name)

    return add


@pytest.mark.parametrize("kind", ["clustering", "method", "encoder", "objective", "reader", "section"])
def test_a_page_about_adding_something_is_short(kind):
    page = (ROOT / "docs" / "contributing" / f"{kind}.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 48
    assert f"contributing/{kind}.md" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_added_method_keeps_the_contract_on_every_engine_here(tmp_path):
    (tmp_path / "class_accuracy.py").write_text(example("method"), encoding="utf-8")
    tests = ["tests/models/contract/test_contract.py", "tests/models/test_confusion.py"]
    tests += ["tests/compute/engines/test_engines.py"]
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "class_accuracy", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", "class-accuracy", *tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 45


def test_the_added_method_passes_ruff_as_it_stands():
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed here")
    name, code = ["--stdin-filename", "src/dissensus/models/methods/class_accuracy.py", "-"], example("method")
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *command, *name], cwd=ROOT, input=code, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_added_method_is_in_the_command_line_and_has_its_page(added, tmp_path):
    module = added("method", methods, "class_accuracy")
    sim = simulate(200, 12, 3, redundancy=5, kinds={"expert": 1, "ordinary": 3, "uniform-spammer": 1}, seed=1)
    write_frame(sim.annotations.to_arrow(), tmp_path / "labels.csv")
    command = ["aggregate", str(tmp_path / "labels.csv"), "--method", "class-accuracy", "--set", "smoothing=3"]
    done = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out")], prog_name="dissensus")
    assert done.exit_code == 0, done.output
    model = module.ClassAccuracy(smoothing=3).fit(sim.annotations)
    counts = model.label_counts_[0]
    right = (counts.diagonal() + 3) / (counts.sum(axis=1) + 6)
    np.testing.assert_allclose(model.hit_[0, :, 0], right, atol=1e-4)  # the M step of the page, at the end of EM
    vote = methods["majority-vote"]().fit(sim.annotations)
    assert (model.posterior_.argmax(axis=1) == sim.truth).mean() > (vote.posterior_.argmax(axis=1) == sim.truth).mean()
    assert module.ClassAccuracy.__doc__.startswith("An accuracy per annotator and class, learnt with the truth by EM.")
    page = generate().method_page("class-accuracy")
    assert "y_ij = c with probability h_j[c]" in page
    assert "- `smoothing` = `1.0` (above 0): pseudo-count of right and of wrong labels." in page


def test_the_added_clustering_keeps_the_contract_and_is_in_the_command_line(added, tmp_path):
    added("clustering", clusterings, "hard_mixture")
    check_clustering("hard-mixture")
    sim = simulate(100, 10, 3, redundancy=5, seed=1)
    write_frame(sim.annotations.to_arrow(), tmp_path / "labels.csv")
    command = ["cluster", str(tmp_path / "labels.csv"), "--method", "hard-mixture", "--item-clusters", "3"]
    done = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out")], prog_name="dissensus")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["method"] == "hard-mixture"


def test_the_added_encoder_teaches_a_classifier(added, tmp_path):
    pytest.importorskip("torch", reason="needs the extra that the page is about")
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import encoders

    letters = added("encoder", encoders, "letters")
    table, truth = (sim := simulate(60, 6, 2, redundancy=4, seed=0)).annotations, sim.truth
    texts = [("aab" if c else "zzy") * (1 + i % 3) for i, c in enumerate(truth)]
    model = CrowdClassifier(encoder="letters", epochs=40, learning_rate=0.05, seed=0).fit(table, texts)
    assert (model.predict(texts) == table.classes[truth]).mean() == 1
    model.save(tmp_path / "model")
    new = ["aaaa", "zyzy", ""]
    np.testing.assert_array_equal(CrowdClassifier.load(tmp_path / "model").predict_proba(new), model.predict_proba(new))
    from dissensus.testing.encoders import check_encoder

    check_encoder(letters.Letters(width=4), texts[:6])


def test_the_added_objective_teaches_a_classifier(added):
    pytest.importorskip("torch", reason="needs the extra that the page is about")
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.objectives import objectives
    from dissensus.testing.objectives import check_objective

    module = added("objective", objectives, "smoothed_majority")
    check_objective(module.SmoothedMajority())
    sim = simulate(60, 6, 2, redundancy=4, seed=0)
    X = np.eye(2)[sim.truth] + np.random.default_rng(0).normal(0, 0.1, (60, 2))
    model = CrowdClassifier(encoder="identity", objective="smoothed-majority", epochs=60, device="cpu", seed=0)
    model.fit(sim.annotations, X)
    assert (model.predict(X) == sim.annotations.classes[sim.truth]).mean() > 0.95
    gold = np.where(np.arange(60) < 3, sim.truth, -1)
    few = sim.annotations.select(rows=np.zeros(sim.annotations.n_annotations, bool))
    assert module.SmoothedMajority().fit(few, gold, 0).train_mask_.tolist() == [True] * 3 + [False] * 57


def test_the_added_reader_reads(added, tmp_path):
    added("reader", readers, "votes")
    (tmp_path / "some.votes").write_text("i1 ann yes\ni1 bob no\ni2 ann no\n")
    table = read(tmp_path / "some.votes")
    assert table.items.tolist() == ["i1", "i2"]
    assert table.annotators.tolist() == ["ann", "bob"]
    assert table.classes[table.label].tolist() == ["yes", "no", "no"]


def test_the_added_section_is_on_the_page(added):
    from dissensus.report.section import sections

    module = added("section", sections, "length")
    check_section("length")
    table = simulate(40, 8, 2, redundancy=5, seed=0).annotations
    items = {"item": table.items, "text": ["This is the text of an item. " * (1 + i % 7) for i in range(40)]}
    report = Report(table, methods["majority-vote"]().fit(table), items=items, only=["length"])
    mean = np.mean([len(t.strip()) for t in items["text"]])
    assert report.facts["sections"]["length"]["mean"] == pytest.approx(mean, rel=1e-4)  # five digits are kept
    assert "characters per text" in report.html()
    facts = report.facts["sections"]["length"] | {"correlation": -0.5}
    [found] = sections["length"]().findings(facts)
    assert (type(found), found.correlation) == (module.LongTextsAreUncertain, -0.5)


def test_the_added_question_is_answered_in_python_by_the_service_and_on_the_page(added):
    from dissensus import ask
    from dissensus.questions.base import questions
    from dissensus.report.section import sections
    from dissensus.testing.questions import check_question

    module = added("question", questions, "overlap")
    check_question(module.Overlap)
    table = simulate(40, 4, 2, redundancy=3, seed=0).annotations
    facts = ask("overlap", table, least=15)
    assert facts.possible == 6
    votes = np.array([[set(table.item[table.annotator == a])] for a in range(4)])[:, 0]
    assert facts.pairs[0]["items"] == max(len(votes[a] & votes[b]) for a in range(4) for b in range(a))
    assert all(pair["items"] >= 15 for pair in facts.pairs)
    assert module.Overlap.fact_texts()["possible"] == "pairs of annotators"
    sys.modules.pop("dissensus.report.sections.questions", None)
    added_to = dict(sections._entries)
    try:
        import_module("dissensus.report.sections.questions")
        report = Report(table, methods["majority-vote"]().fit(table), only=["overlap"])
        assert report.facts["sections"]["overlap"]["facts"]["possible"] == 6
        assert "Most shared items" in report.html()
    finally:
        sections._entries = added_to
