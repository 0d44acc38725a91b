"""`dissensus report`: the files it writes, what it says, what it refuses."""

import json

import pytest

from cli.tables import SCORE, write_csv, write_export
from dissensus.cli.exceptions import FolderMissing, OptionNeeds, UnknownSuffix
from dissensus.common.exceptions import UnknownEntry
from dissensus.exceptions import MissingColumn, UnreadableFile
from dissensus.report.pseudonyms import make_pseudonyms

FAST = ("--method", "dawid-skene")


def facts(path):
    return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def test_page_numbers_and_key_are_written_and_the_findings_said(cli, labels):
    out = cli("report", labels, "--gold", "gold.csv", *SCORE, "-o", "page.html")
    assert (out.exit_code, out.stderr) == (0, "")
    assert sorted(path.name for path in labels.parent.glob("page*")) == ["page-key.csv", "page.html", "page.json"]
    found = facts(labels.parent / "page.html")
    assert found["title"] == "labels.csv"
    assert found["sections"]["labels"]["gold"]["items"] == 40
    said = " ".join(out.stdout.split())
    for sentence in (*found["headline"], *(finding["text"] for finding in found["findings"])):
        assert sentence in said
    assert "Open page.html in a browser" in out.stdout
    assert "page-key.csv: keep it private" in out.stdout


def test_without_a_method_the_default_is_taken(cli, labels):
    cli("report", labels)
    found = facts(labels.parent / "report.html")
    assert found["method"] == "consensus"
    cli("report", labels, *FAST, "--set", "smoothing=2")
    found = facts(labels.parent / "report.html")
    assert found["method"] == "dawid-skene"
    assert found["parameters"]["smoothing"] == 2


def test_annotators_have_stable_pseudonyms_unless_names_are_asked_for(cli, labels):
    names = sorted({line.split(",")[1] for line in labels.read_text(encoding="utf-8").splitlines()[1:]})
    cli("report", labels, *FAST)
    page = (labels.parent / "report.html").read_text(encoding="utf-8")
    assert all(one in page for one in make_pseudonyms(names))
    key = (labels.parent / "report-key.csv").read_text(encoding="utf-8").splitlines()
    assert key[1:] == sorted(f"{one},{name}" for one, name in zip(make_pseudonyms(names), names, strict=True))
    cli("report", labels, *FAST, "--salt", "secret", "-o", "salted.html")
    assert not any(one in (labels.parent / "salted.html").read_text(encoding="utf-8") for one in make_pseudonyms(names))
    cli("report", labels, *FAST, "--names", "-o", "named.html")
    people = facts(labels.parent / "named.html")["sections"]["annotators"]["people"]
    assert sorted(one["annotator"] for one in people) == names
    assert not (labels.parent / "named-key.csv").exists()


def test_tables_about_items_and_annotators_are_used(cli, labels):
    rows = [line.split(",") for line in labels.read_text(encoding="utf-8").splitlines()[1:]]
    write_csv(
        labels.parent / "items.csv", ["item", "text"], [(i, f"all about {i}") for i in sorted({r[0] for r in rows})]
    )
    who = sorted({r[1] for r in rows})
    write_csv(labels.parent / "people.csv", ["annotator", "team"], [(a, n % 2) for n, a in enumerate(who)])
    cli("report", labels, *FAST, "--items", "items.csv", "--annotators", "people.csv", "--title", "Teams")
    found = facts(labels.parent / "report.html")
    assert found["title"] == "Teams"
    assert found["sections"]["items"]["table"][0]["texts"][0].startswith("all about ")
    assert [group["column"] for group in found["sections"]["items"]["groups"]] == ["team"]


def test_json_says_the_same_to_machines(cli, labels):
    said = json.loads(cli("report", labels, *FAST, "--json").stdout)
    assert said["files"] == ["report.html", "report.json", "report-key.csv"]
    assert said["method"] == "dawid-skene"
    assert said["findings"] == facts(labels.parent / "report.html")["findings"]


def test_several_questions_become_a_page_each(cli, questions):
    cli("report", questions, *FAST, "-o", "page.html")
    pages = sorted(path.name for path in questions.parent.glob("*.html"))
    assert pages == ["page-Tone.html", "page-is_it_good-2.html", "page-is_it_good.html"]


def test_comparisons_in_an_export_have_a_page_beside_its_texts(cli, here):
    out = cli("report", write_export(here / "export.json"), "-o", "page.html")
    assert out.exit_code == 0, out.stderr
    assert facts(here / "page-tone.html")["sections"]["items"]["table"][0]["texts"]
    best = "a is the best alternative: its 95 % interval of ranks contains only rank 1."
    assert best in facts(here / "page-better.html")["headline"]
    assert best in cli("aggregate", "export.json", "--label", "better").stdout


def test_a_table_with_one_label_per_item_has_its_report_too(cli, here):
    write_csv(here / "one.csv", ["item", "annotator", "label"], [(i, i % 3, i % 2) for i in range(12)])
    assert "No item was labelled by two annotators" in cli("report", "one.csv").stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["-o", "page.pdf"], UnknownSuffix),
        (["-o", "nowhere/page.html"], FolderMissing),
        (["--method", "dawid-skeen"], UnknownEntry),
        (["--set", "smoothing=1"], OptionNeeds),
        (["--items", "missing.csv"], UnreadableFile),
        (["--items", "gold.csv", "--annotators", "gold.csv"], MissingColumn),
    ],
)
def test_bad_usage_is_one_sentence_and_leaves_no_page(cli, labels, arguments, error):
    own = any(option in arguments for option in ("--set", "--method"))
    out = cli("report", labels, *(() if own else FAST), *arguments)
    assert out.exit_code in (1, 2)
    assert isinstance(out.error, error), out.error
    assert out.stderr.count("\n") == 1
    assert not list(labels.parent.glob("*.html"))
