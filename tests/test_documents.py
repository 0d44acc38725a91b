"""The documents are true: generated tables, what the README prints, links."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dissensus import methods

ROOT = Path(__file__).parent.parent
FOLDERS = ("docs", "benchmarks", "reproductions")
PAGES = [*sorted(ROOT.glob("*.md")), *(page for name in FOLDERS for page in sorted((ROOT / name).rglob("*.md")))]


def test_generated_tables_are_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_python_in_the_readme_prints_what_it_says():
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False, encoding="utf-8")
    assert tried >= 10
    assert failed == 0


@pytest.mark.parametrize(
    ("guide", "module", "lines"),
    [("features", "transformers", 10), ("learning", "torch", 10), ("recommend", "numpy", 5), ("scale", "duckdb", 5)],
)
def test_python_in_a_guide_prints_what_it_says(guide, module, lines):
    pytest.importorskip(module, reason="needs the extra that the guide is about")
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "guides" / f"{guide}.md"), module_relative=False, encoding="utf-8"
    )
    assert tried >= lines
    assert failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_documents_lead_somewhere(page):
    for target in re.findall(r"\]\(([\w./-]+\.\w+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_method_has_its_page_and_its_row_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in methods:
        assert f"[`{name}`]" in readme
        assert (ROOT / "docs" / "methods" / f"{name}.md").exists(), name
