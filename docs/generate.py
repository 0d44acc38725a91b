"""Rewrite the generated parts of the documents, which lie between `<!-- name -->` and `<!-- end name -->`.

The generated part of a method's page is made from its registry entry, the docstring of its module (model, equations,
symbols) and its declared parameters. Text below it is written by hand and kept. A method without a page gets one.

`python docs/generate.py` rewrites the documents; `--check` exits 1 if one is out of date, which a test runs.
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
from dissensus.common.parameters import ReferenceRow, reference_rows
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.table.io.readers import readers

sys.path.append(str(Path(__file__).parent))  # A test loads this file from another folder.
from picture import draw

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "assets" / "picture.svg"
PUBLISHED_PAPER = "platanios2020"  # Its Table 2 has published figures of our methods.
NEAR_BEST = 1.0  # Points of accuracy: a smaller gap counts as close to the best method.
SHARED_PARAMETERS = "engine", "max_iter", "tol", "accelerate", "restarts", "dependence", "threads", "seed"


def methods_table(page: Path) -> str:
    """Return one row per registered method, with a link to its page."""
    depth = "../" * (len(page.parts) - 1)
    rows = ["| method | in one line |", "|---|---|"]
    for name in methods:
        entry = methods.entry(name)
        rows.append(f"| [`{name}`]({depth}docs/methods/{name}.md) | {entry.summary} |")
    return "\n".join(rows)


def engine_methods(page: Path) -> str:
    """Return the methods that run on every engine."""
    return ", ".join(f"`{name}`" for name in methods if "engine" in methods[name].declared())


def formats_list(page: Path) -> str:
    """Return a list of the file formats, one entry per group of formats with the same suffixes."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, reader in readers.items():
        groups.setdefault(reader.suffixes, []).append(f"`{name}`" + (" (also written)" if reader.write else ""))
    return "\n".join(
        f"- {', '.join(f'`{suffix}`' for suffix in suffixes)}: {', '.join(names)}" for suffixes, names in groups.items()
    )


def published_table(page: Path) -> str:
    """Return published accuracies of a method next to ours, from the stored results of the papers' tables."""
    sys.path.insert(0, str(ROOT))
    from reproductions.experiment import load_paper
    from reproductions.record import read_store
    from reproductions.render import current_lines, values_of

    paper = load_paper(PUBLISHED_PAPER)
    table = paper.tables["table2"]
    lines = current_lines(paper, read_store(ROOT / "reproductions" / "results" / f"{PUBLISHED_PAPER}.jsonl"))
    ours = [
        name
        for name, condition in table.conditions.items()
        if condition.get("method") == page.stem and condition["kind"] == "aggregate"
    ]
    metric = {data: "paper_gold" if data.startswith("medical") else "accuracy" for data in table.data}
    rows = [
        f"| accuracy (%), labels per item | published | {' | '.join(ours)} |",
        "|---|" + "---|" * (len(ours) + 1),
    ]
    for data in table.data:
        published, cells = table.published[data][ours[0]][metric[data]], []
        for name in ours:
            values = list(values_of(table, lines, data, name, metric[data]).values())
            cells.append(f"{np.mean(values):.1f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.1f}")
        figure = published[0] if isinstance(published, list | tuple) else published
        rows.append(f"| {data} | {figure} | {' | '.join(cells)} |")
    return "\n".join(rows)


def read_accuracies(level: str) -> dict[str, dict[str, float]]:
    """Return data set → method of ours → accuracy by the experts' gold, from the stored accuracy benchmark."""
    lines = (ROOT / "benchmarks" / "accuracy" / "results" / "accuracy.jsonl").read_text(encoding="utf-8").splitlines()
    by_data = {}
    for row in json.loads(lines[-1])["sets"]:
        if row["gold"] is None and level in row["levels"]:
            scores = row["levels"][level]["methods"]
            by_data[row["set"]] = {
                name: scores[name]["accuracy"] for name in methods if "accuracy" in scores.get(name, {})
            }
    return by_data


def accuracy_table(page: Path) -> str:
    """Return on how many data sets each method is within a point of the best one, and where it is furthest behind."""
    rows = [
        "| method | all labels: within a point | largest gap | two labels per item: within a point | largest gap |",
        "|---|---|---|---|---|",
    ]
    levels = [read_accuracies("0"), read_accuracies("2")]
    for name in methods:
        cells = []
        for by_data in levels:
            gaps = [(100 * (max(s.values()) - s[name]), data) for data, s in by_data.items() if name in s]
            if gaps:
                near = sum(gap <= NEAR_BEST for gap, _ in gaps)
                cells += [f"{near} of {len(gaps)}", f"{max(gaps)[0]:.1f} ({max(gaps)[1]})"]
        if cells:
            rows.append(f"| [`{name}`]({name}.md) | {' | '.join(cells)} |")
    return "\n".join(rows)


def default_accuracy(page: Path) -> str:
    """Return how far the default method is from the best one, from the benchmark of trust."""
    readme = (ROOT / "benchmarks" / "trust" / "README.md").read_text(encoding="utf-8")
    near, tables, mean, most = re.findall(
        rf"\| {DEFAULT_METHOD} \| [\d.]+ % \| (\d+) of (\d+) .*?\| ([\d.]+) \| ([\d.]+) \|", readme
    )[0]
    return (
        f"It is within a point of our best method on {near} of {tables} tables with gold. It is {mean} points behind "
        f"on average, and {most} at most ([benchmark](../../benchmarks/trust/README.md#accuracy))."
    )


def method_page(name: str) -> str:
    """Return what the code states of a method: docstring of its module, label type, parameters."""
    entry = methods.entry(name)
    summary, *text = as_markdown(sys.modules[entry.value.__module__].__doc__ or "").split("\n\n")
    label_types = entry.value.kinds
    shared = [f"`{row.name}`" for row in reference_rows(entry.value) if is_shared(row)]
    parts = [f"# `{name}`", f"*{summary}*"]
    parts += ["It takes two classes."] if entry.facts.get("binary") else []
    parts += [] if "classes" in label_types else [f"It takes labels of the type `{label_types[0]}`."]
    own = [row for row in reference_rows(entry.value) if not is_shared(row)]
    parameters = parameter_list(own) + f"- [Shared parameters](README.md#shared-parameters): {', '.join(shared)}."
    return "\n\n".join([*parts, *text, "**Parameters.**", parameters])


def is_shared(row: ReferenceRow) -> bool:
    """Return whether a parameter is the one that `dawid-skene` and most other methods have."""
    return row.name in SHARED_PARAMETERS and row in reference_rows(methods["dawid-skene"])


def parameter_list(rows: list[ReferenceRow]) -> str:
    """Return one line per parameter: its name, default, allowed values and meaning."""
    return "".join(f"- `{row.name}` = `{row.default}` ({plain_range(row.range)}): {row.text}.\n" for row in rows)


def plain_range(allowed: str) -> str:
    """Return a range in words without limits that only guard against overflow."""
    for limits, words in (
        (r"from 1e-\d+ to 1e\+\d+", "above 0"), (r"from 0 to 1e\+\d+", "0 or more"), (r"at least 1e-\d+", "above 0"),
        (r"a whole number, at least", "at least"), (r"a whole number from", "from"),
    ):  # fmt: skip
        allowed = re.sub(limits, words, allowed)
    return allowed


def keywords_table(declared: type) -> str:
    """Return one row per parameter that a class declares."""
    lines = ["| parameter | default | allowed | meaning |", "|---|---|---|---|"]
    for row in reference_rows(declared):
        cells = (f"`{row.name}`", f"`{row.default}`", row.range, row.text)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines)


def shared_parameters(page: Path) -> str:
    """Return the list of the parameters that most methods share."""
    return parameter_list([row for row in reference_rows(methods["dawid-skene"]) if is_shared(row)]).rstrip()


def as_markdown(docstring: str) -> str:
    """Return a docstring as Markdown: paragraphs with indented lines are equations, and keep their lines."""
    paragraphs = docstring.rstrip().split("\n\n")
    return "\n\n".join(
        f"```text\n{dedent(paragraph)}\n```" if re.search(r"^ {4}", paragraph, flags=re.MULTILINE) else paragraph
        for paragraph in paragraphs
    )


BLOCKS: dict[str, Callable[[Path], str]] = {
    "methods": methods_table,
    "formats": formats_list,
    "engine methods": engine_methods,
    "published": published_table,
    "accuracy": accuracy_table,
    "consensus accuracy": default_accuracy,
    "shared parameters": shared_parameters,
    "method": lambda page: method_page(page.stem),
}


def fill_generated_parts(text: str, page: Path) -> str:
    """Return the text of a page with every generated part made again."""
    for name, make in BLOCKS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)"
        if f"<!-- {name} -->" not in text:  # other blocks would import modules that this page does not need
            continue
        text = re.sub(pattern, lambda found, make=make: f"{found[1]}{make(page)}\n{found[2]}", text, flags=re.DOTALL)
    return text


def main() -> int:
    """Rewrite or check README.md, its picture, the pages of docs/ and one page per method."""
    stale = []
    pages = {ROOT / "docs" / "methods" / f"{name}.md" for name in methods} | set((ROOT / "docs").rglob("*.md"))
    for path in [ROOT / "README.md", PICTURE, *sorted(pages)]:
        page = path.relative_to(ROOT)
        before = path.read_text(encoding="utf-8") if path.exists() else "<!-- method -->\n<!-- end method -->\n"
        after = draw() if path == PICTURE else fill_generated_parts(before, page)
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
