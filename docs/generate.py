"""Rewrite what the documents generate from the code: all between `<!-- name -->` and `<!-- end name -->`.

The page of a method begins with such a part, made from its registry entry, the docstring of its module (equations,
symbols, text) and its declared keywords; what is written by hand follows it and stays. A method without a page gets
one.

`python docs/generate.py` rewrites; with `--check` it exits 1 where a document is out of date (a test runs this).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import numpy as np

from dissensus import methods
from dissensus.common.parameters import reference_rows
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.table.io.readers import readers

sys.path.append(str(Path(__file__).parent))  # where this file is loaded by a test
from picture import draw

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "assets" / "picture.svg"
PUBLISHED = "platanios2020"  # whose Table 2 has other people's figures for our methods
NEAR = 1.0  # points of accuracy below the best
CONTRACT = (
    "`fit(table, gold=codes)` fixes the class of known items. `posterior_` (I, K), `reliability_` (A,), `trace_` and "
    "what else every method\nhas are described in `dissensus.models.base`."
)


OTHER_CONTRACTS = {
    "numbers": 'It is for numbers (`kind="numbers"`). `values_` (I,), `interval_` (I, 2), 95 %, `bias_`, '
    "`stretch_`, `precision_` and `reliability_` (A,).",
    "graded": 'It is for classes in an order (`kind="graded"`). ' + CONTRACT,
    "pairs": 'It is for comparisons of two things (`kind="pairs"`). `scores_` (T,), `score_interval_`, `rank_`, '
    '`rank_interval_` and `to_frame("things")` are about the\nthings; `posterior_` (I, 3) says what an annotator like '
    "the crowd would say of an item.",
    "sets": 'It is for sets of options (`kind="sets"`). `fit(table, gold=codes)` fixes the sets of known items. '
    "What else every method has is\ndescribed in `dissensus.models.base`.",
    "objects": 'It is for objects with a distance (`kind="objects"`): `predict()`, `confidence_`, '
    "`expected_distance_` (I,), `error_` and `reliability_` (A,).",
    "spans": 'It is for tags of tokens or characters (`kind="spans"`). `fit(table, gold=codes)` fixes the tags of '
    "known items. `spans()` lists the spans; `tags_`,\n`span_probability_` and what else such a method has are "
    "described in `dissensus.models.base`.",
}
"""Kind of labels → what is said instead of `CONTRACT`."""


def methods_table(page: Path) -> str:
    """One row per registered method, with a link to its page."""
    depth = "../" * (len(page.parts) - 1)
    rows = ["| method | in one line | source |", "|---|---|---|"]
    for name in methods:
        entry = methods.entry(name)
        rows.append(f"| [`{name}`]({depth}docs/methods/{name}.md) | {entry.summary} | {entry.cite} |")
    return "\n".join(rows)


def engine_methods(page: Path) -> str:
    """The methods that run on every engine."""
    return ", ".join(f"`{name}`" for name in methods if "engine" in methods[name].declared())


def formats_table(page: Path) -> str:
    """One row per file format."""
    rows = ["| format | files | written too |", "|---|---|---|"]
    for name, form in readers.items():
        suffixes = ", ".join(f"`{suffix}`" for suffix in form.suffixes)
        rows.append(f"| `{name}` | {suffixes} | {'yes' if form.write else ''} |")
    return "\n".join(rows)


def encoders_table(page: Path) -> str:
    """One row per encoder."""
    from dissensus.learning.encoders import encoders

    rows = ["| encoder | X | in one line | source |", "|---|---|---|---|"]
    for name, entry in encoders.entries():
        rows.append(f"| `{name}` | {entry.value.takes} | {entry.summary} | {entry.cite or '—'} |")
    return "\n".join(rows)


def objectives_table(page: Path) -> str:
    """One row per objective."""
    from dissensus.learning.objectives import objectives

    rows = ["| objective | in one line | source |", "|---|---|---|"]
    rows += [f"| `{name}` | {entry.summary} | {entry.cite or '—'} |" for name, entry in objectives.entries()]
    return "\n".join(rows)


def published_table(page: Path) -> str:
    """Published accuracies of a method and its variants beside ours, from the store of the papers' tables."""
    sys.path.insert(0, str(ROOT))
    from reproductions.experiment import load_paper
    from reproductions.record import read_store
    from reproductions.render import current_lines, values_of

    paper = load_paper(PUBLISHED)
    table = paper.tables["table2"]
    lines = current_lines(paper, read_store(ROOT / "reproductions" / "results" / f"{PUBLISHED}.jsonl"))
    own = [
        name for name, how in table.conditions.items() if how.get("method") == page.stem and how["kind"] == "aggregate"
    ]
    metric = {data: "paper_gold" if data.startswith("medical") else "accuracy" for data in table.data}
    rows = [
        f"| accuracy (%), labels per item | theirs | {' | '.join([*own, 'MAJ'])} |",
        "|---|" + "---|" * (len(own) + 2),
    ]
    for data in table.data:
        told, cells = table.published[data][own[0]][metric[data]], []
        for name in [*own, "MAJ"]:
            found = list(values_of(table, lines, data, name, metric[data]).values())
            cells.append(f"{np.mean(found):.1f} ± {np.std(found, ddof=1) / len(found) ** 0.5:.1f}")
        rows.append(f"| {data} | {told[0] if isinstance(told, list | tuple) else told} | {' | '.join(cells)} |")
    return "\n".join(rows)


def accuracies(level: str) -> dict[str, dict[str, float]]:
    """Set → method of ours → accuracy by the experts' gold, from the store of the accuracy benchmark."""
    lines = (ROOT / "benchmarks" / "accuracy" / "results" / "accuracy.jsonl").read_text(encoding="utf-8").splitlines()
    found = {}
    for one in json.loads(lines[-1])["sets"]:
        if one["gold"] is None and level in one["levels"]:
            scores = one["levels"][level]["methods"]
            found[one["set"]] = {
                name: scores[name]["accuracy"] for name in methods if "accuracy" in scores.get(name, {})
            }
    return found


def measured_sentence(page: Path) -> str:
    """On how many sets a method is within a point of the best of ours, and where it is furthest behind."""
    if page.stem == DEFAULT_METHOD:  # another benchmark has it
        readme = (ROOT / "benchmarks" / "trust" / "README.md").read_text(encoding="utf-8")
        near, tables, mean, most = re.findall(
            rf"\| {page.stem} \| [\d.]+ % \| (\d+) of (\d+) .*?\| ([\d.]+) \| ([\d.]+) \|", readme
        )[0]
        return (
            f"**Measured.** Within a point of our best method on {near} of {tables} tables with gold, {mean} points "
            f"behind on average, {most} at most ([benchmark](../../benchmarks/trust/README.md#accuracy))."
        )
    told = []
    for level, words in (("0", "With all labels"), ("2", "With 2 labels an item")):
        gaps = []
        for data, scores in accuracies(level).items():
            if page.stem in scores:
                best = max(scores, key=lambda name: scores[name])
                gaps.append((100 * (scores[best] - scores[page.stem]), data, best))
        near, far = ([data for gap, data, _ in gaps if (gap <= NEAR) is close] for close in (True, False))
        which = ", ".join(near) if len(near) < len(far) else f"all but {', '.join(far)}" if far else "all"
        gap, data, best = max(gaps)
        told.append(
            f"{words}, within a point of our best method on {len(near)} of {len(gaps)} sets ({which}); furthest behind "
            f"on {data}, {gap:.1f} points below `{best}`."
        )
    return "**Measured.** " + " ".join(told)


def method_page(name: str) -> str:
    """What the code knows of a method: entry, docstring of its module, keywords."""
    entry = methods.entry(name)
    source = f" ({entry.cite})" if entry.cite.strip("—") else ""
    module = sys.modules[entry.value.__module__]
    parts = [f"# `{name}`", f"*{entry.summary[0].upper()}{entry.summary[1:]}{source}.*"]
    parts += ["It takes two classes."] if entry.facts.get("binary") else []
    contract = CONTRACT if "classes" in entry.value.kinds else OTHER_CONTRACTS[entry.value.kinds[0]]
    return "\n\n".join(
        [*parts, as_markdown(module.__doc__ or ""), "**Keywords.**", keywords_table(entry.value), contract]
    )


def keywords_table(declared: type) -> str:
    """One row per keyword that a class declares."""
    rows = ["| keyword | type | default | allowed | what it is |", "|---|---|---|---|---|"]
    for row in reference_rows(declared):
        cells = (f"`{row.name}`", f"`{row.type}`", f"`{row.default}`", row.range, row.text)
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(rows)


def as_markdown(docstring: str) -> str:
    """A docstring of ours: paragraphs that hold equations, in indented lines or after "E step  ", keep their lines."""
    paragraphs = docstring.rstrip().split("\n\n")
    return "\n\n".join(
        f"```text\n{dedent(paragraph)}\n```"
        if re.search(r"^( {4}|[EM] step  )", paragraph, flags=re.MULTILINE)
        else paragraph
        for paragraph in paragraphs
    )


BLOCKS: dict[str, Callable[[Path], str]] = {
    "methods": methods_table,
    "formats": formats_table,
    "encoders": encoders_table,
    "objectives": objectives_table,
    "engine methods": engine_methods,
    "published": published_table,
    "measured": measured_sentence,
    "method": lambda page: method_page(page.stem),
}


def fill(text: str, page: Path) -> str:
    """The text of a page with every generated block made anew."""
    for name, make in BLOCKS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)"
        if f"<!-- {name} -->" not in text:  # what is not asked for need not be imported
            continue
        text = re.sub(pattern, lambda found, make=make: f"{found[1]}{make(page)}\n{found[2]}", text, flags=re.DOTALL)
    return text


def main() -> int:
    """Rewrite, or check, README.md, its picture, every page of docs/ and the page of every method."""
    stale = []
    pages = {ROOT / "docs" / "methods" / f"{name}.md" for name in methods} | set((ROOT / "docs").rglob("*.md"))
    for path in [ROOT / "README.md", PICTURE, *sorted(pages)]:
        page = path.relative_to(ROOT)
        before = path.read_text(encoding="utf-8") if path.exists() else "<!-- method -->\n<!-- end method -->\n"
        after = draw() if path == PICTURE else fill(before, page)
        if before != after:
            stale.append(page.as_posix())
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print("out of date, run `make docs`: " + ", ".join(stale))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
