"""Add generated pages, pages of other folders, search terms, diagrams and llms.txt to the site that mkdocs builds.

Generated pages exist only in a build: the command line from its options, the HTTP API from OpenAPI, the Python
reference from docstrings, encoders, objectives and label types from their registries. `README.md` files of benchmarks/
and reproductions/ are pages too. Links between files of the repository are rewritten for the site.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, get_args, get_type_hints

from dissensus import Report, load_dataset, methods

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "docs"))
import notebooks  # noqa: E402
from diagrams import draw_plates  # noqa: E402
from generate import keywords_table  # noqa: E402

ELSEWHERE = (
    "AGENTS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/*/README.md",
    "benchmarks/*/*.svg",
    "reproductions/**/*.md",
    "reproductions/**/*.svg",
)
TITLED_BY_FILE = ("methods/*", "api/*")  # pages whose title in the navigation is the name of the file
MAX_LINKS = 3  # links from a name of the reference to pages that use it
SEARCH_TERMS: dict[str, tuple[str, ...]] = {
    "guides/agreement.md": (
        "kappa",
        "Krippendorff alpha",
        "inter-annotator agreement",
        "inter-rater reliability",
        "IAA",
    ),
    "guides/annotators.md": ("spammer", "spam", "bad annotators", "worker quality", "collusion", "cheating"),
    "guides/adjudicate.md": ("expert review", "guidelines", "tie break"),
    "guides/check.md": ("diff", "drift", "monitoring", "CI", "regression"),
    "guides/choosing.md": ("compare", "majority vote", "model selection", "best method"),
    "guides/confidence.md": ("calibration", "overconfidence", "probability", "settled"),
    "guides/disagreement.md": ("guidelines", "ambiguous", "subjective", "perspectivism", "human label variation"),
    "guides/evaluation.md": ("accuracy", "F1", "metrics", "score predictions", "soft labels"),
    "guides/faq.md": ("mturk", "toloka", "semicolon", "delimiter", "Excel", "weak supervision", "guidelines", "help"),
    "guides/judging-with-models.md": ("LLM-as-a-judge", "win rate", "prediction-powered inference", "PPI", "eval"),
    "guides/kinds.md": ("ratings", "Likert", "ranking", "multi-label", "regression", "bounding boxes", "transcription"),
    "guides/recommend.md": ("active learning", "redundancy", "how many annotators", "budget", "task assignment"),
    "guides/spans.md": ("NER", "named entities", "sequence labelling", "BIO tags"),
    "guides/tables.md": ("CSV", "Excel", "semicolon", "import", "pandas", "mturk", "columns"),
    "methods/majority-vote.md": ("majority vote", "plurality", "voting"),
    "methods/snorkel.md": ("weak supervision", "labelling functions", "programmatic labelling"),
}
"""Page → terms that people search for and the page does not emphasise; the site's search ranks them like titles."""
REPOSITORY = "https://github.com/dissensus/dissensus/blob/main/"
PACKAGES: dict[str, tuple[str, ...]] = {
    "dissensus": (),
    "dissensus.models.base": ("Aggregator", "default_method", "methods_for"),
    "dissensus.evaluation": (),
    "dissensus.learning": (),
    "dissensus.learning.encoders": ("encoders",),
    "dissensus.learning.objectives": ("objectives",),
    "dissensus.features": (),
    "dissensus.clustering": (
        *("Clustering", "PGMBP", "FMM", "Clusters", "Selection", "GridPoint", "Projector"),
        *("DistributionClassifier", "select_clusters", "snap"),
    ),
    "dissensus.table.simulate": ("Crowd", "Simulation", "annotate", "make_crowd", "simulate", "simulate_kind"),
    "dissensus.table.datasets": ("Dataset", "DatasetInfo"),
    "dissensus.compute.engines": ("Disk", "Spark", "Torch"),
}
"""Public package → its public names; without any, those of its `__all__`. Modules among these are packages here."""
INTERNAL_METHODS = (
    "all_confusions",
    "annotator_confusions",
    "confusion_support",
    "expected_labels",
    "findings",
    "item_columns",
    "likelihoods",
    "load",
    "open_engine",
    "params_",
    "row_weights",
    "rows",
    "select_table",
    "snap_items",
    "store_results",
    "to_display_sign",
    "trainer",
)
"""Methods for other layers of the package, not for users; mkdocs.yml filters them too."""


def list_public_names() -> dict[str, list[tuple[str, Any]]]:
    """Return the full name and object of every public name, by page of the reference; each name is on one page."""
    pages: dict[str, list[tuple[str, Any]]] = {}
    listed: set[str] = set()
    for package, names in PACKAGES.items():
        module = import_module(package)
        for name in names or module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or isinstance(value, dict):  # label types have a page of their own
                continue
            home = getattr(value, "__module__", "") if callable(value) else defining_module(module, name)
            page = ".".join(home.split(".")[:2]) if package == "dissensus" else package
            results = [(f"{result.__module__}.{result.__name__}", result) for result in returned_classes(value)]
            for full, documented in [(f"{home}.{name}", value), *results]:
                if full not in listed:
                    listed.add(full)
                    pages.setdefault(page.removesuffix(".base"), []).append((full, documented))
    return pages


def returned_classes(value: Any) -> list[type]:
    """Return our classes among the types that a function returns; they are as public as the function."""
    returned = get_type_hints(value).get("return") if inspect.isfunction(value) else None
    types = [returned, *get_args(returned)]
    return [type_ for type_ in types if inspect.isclass(type_) and type_.__module__.startswith("dissensus.")]


def defining_module(module: Any, name: str) -> str:
    """Return the module that defines a public value other than a class or function, such as a registry."""
    homes = getattr(module, "_HOME", {})
    return str(homes.get(name, f"{module.__name__}.base"))


def api_page(page: str, names: list[tuple[str, Any]]) -> str:
    """Return a page of the reference with directives that mkdocstrings replaces."""
    introduction = re.sub(
        r"((?:^(?:>>>|\.\.\.) .*\n(?:^[^>\n].*\n?)*)+)",
        r"```python\n\1```\n",
        f"{inspect.getdoc(import_module(page))}\n",
        flags=re.M,
    )
    parts = [f"# `{page}`", introduction]
    for full, _ in names:
        links = [
            f"[{uri.partition('/')[2].removesuffix('.md')}](../{uri})"
            for uri in pages_that_use(full.rpartition(".")[2])
        ]
        parts += [f"::: {full}", f"*Used in* {', '.join(links[:MAX_LINKS])}." if links else ""]
    return "\n\n".join(parts) + "\n"


@cache
def python_code_of_pages() -> dict[str, str]:
    """Return the Python code of every page that a test executes, by path on the site."""
    pages = [
        page for folder in ("start", "guides", "contributing") for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ]
    return {
        page.relative_to(ROOT / "docs").as_posix(): "\n".join(
            re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        )
        for page in pages
    }


def pages_that_use(name: str) -> list[str]:
    """Return the pages whose code uses a public name."""
    return [uri for uri, code in python_code_of_pages().items() if re.search(rf"\b{name}\b", code)]


def markdown_row(*cells: object) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


def command_line() -> str:
    """Return the page of every command with its arguments and options."""
    from dissensus.cli import COMMANDS, load_command

    parts = ["# Command line", "`dissensus COMMAND --help` prints the same on a terminal."]
    for name in COMMANDS:
        command = load_command(name)
        words = [param.metavar or param.name.upper() for param in command.params if not param.opts[0].startswith("-")]
        usage = f"```text\ndissensus {' '.join([name, *words])} [OPTIONS]\n```"
        parts += [f"## {name}", (command.help or "").strip(), usage]
        rows = ["| option | what it is | default |", "|---|---|---|"]
        for param in command.params:
            if getattr(param, "hidden", False) or not param.opts[0].startswith("-"):
                continue
            shown = param.show_default if isinstance(param.show_default, str) else param.default
            default = (
                "" if shown is None or shown is False or callable(shown) else f"`{getattr(shown, 'value', shown)}`"
            )
            options = ", ".join(f"`{text}`" for text in (*param.opts, *param.secondary_opts))
            rows.append(
                markdown_row(options + (f" {param.metavar}" if param.metavar else ""), param.help or "", default)
            )
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def http_api() -> str:
    """Return the page of every address of `dissensus serve`."""
    from dissensus.serve.app import create_app
    from dissensus.serve.service import Service
    from dissensus.serve.store import open_store

    with (
        tempfile.TemporaryDirectory() as folder,
        Service(open_store(str(Path(folder) / "labels.db")), fits=False) as service,
    ):
        routes = create_app(service, page=False).openapi()["paths"]
    parts = [
        "# HTTP API",
        '`dissensus serve` answers JSON; an error is `{"error": "one sentence"}`. A running service has this list at '
        "`/docs` and, for programs, at `/openapi.json`. See [the guide](../guides/serve.md).",
        "| method | address | what it does |\n|---|---|---|",
    ]
    rows = [
        markdown_row(f"`{verb.upper()}`", f"`{path}`", route.get("description") or route.get("summary", ""))
        for path, verbs in routes.items()
        for verb, route in verbs.items()
    ]
    return "\n\n".join(parts) + "\n" + "\n".join(rows) + "\n"


def registry_page(title: str, introduction: str, registry: Any) -> str:
    """Return the page of every entry of a registry of learning, with its keywords."""
    parts = [f"# {title}", introduction]
    for name, entry in registry.entries():
        parts += [
            f"## `{name}`",
            f"*{entry.summary[0].upper()}{entry.summary[1:]}{f' ({entry.cite})' if entry.cite else ''}.*",
        ]
        details = (inspect.getdoc(entry.value) or "").split("\n\nParameters\n")[0].split("\n\n", 1)[1:]
        parts += [*details, keywords_table(entry.value)]
    return "\n\n".join(parts) + "\n"


def kinds_page() -> str:
    """Return the page of every label type with its methods; the first method is the default."""
    from dissensus.models.base import default_method, methods_for
    from dissensus.table import kinds

    rows = ["| type | labels are | default | other methods |", "|---|---|---|---|"]
    for kind, description in kinds.KIND_DESCRIPTIONS.items():
        first = default_method(kind)
        others = [f"[`{name}`](../methods/{name}.md)" for name in methods_for(kind) if name != first]
        rows.append(markdown_row(f"`{kind}`", description, f"[`{first}`](../methods/{first}.md)", ", ".join(others)))
    introduction = inspect.getdoc(kinds) or ""
    return "\n\n".join(["# Label types", introduction, "\n".join(rows), "See [the guide](../guides/kinds.md)."]) + "\n"


def example_report() -> str:
    """Return the report on the bundled set."""
    data = load_dataset("digits-crowd")
    model = methods["consensus"](seed=0).fit(data.annotations)
    return Report(data.annotations, model, gold=data.gold, items=data.items, title="Handwritten digits").html()


def generated_pages(execute: bool = True) -> Iterator[tuple[str, str]]:
    """Yield path and text of every generated page; `execute` runs the notebooks and shows their output."""
    from dissensus.learning.encoders import encoders
    from dissensus.learning.objectives import objectives

    yield "reference/cli.md", command_line()
    yield "reference/http.md", http_api()
    yield "parts/kinds.md", kinds_page()
    yield (
        "parts/encoders.md",
        registry_page("Encoders", 'How an input becomes a vector: `CrowdClassifier(encoder="NAME")`.', encoders),
    )
    yield (
        "parts/objectives.md",
        registry_page("Objectives", 'How labels train an encoder: `CrowdClassifier(objective="NAME")`.', objectives),
    )
    for book in notebooks.BOOKS:
        yield f"tutorials/{book.stem}.md", notebooks.notebook_to_markdown(book, execute=execute)
    for page, names in list_public_names().items():
        yield f"api/{page}.md", api_page(page, names)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, and replace `*` in the navigation by the pages that match."""
    from mkdocs.structure.files import File

    for pattern in ELSEWHERE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for uri, text in generated_pages(execute=bool(config.extra.get("examples"))):
        files.append(File.generated(config, uri, content=text))
    report = example_report() if config.extra.get("examples") else ""
    files.append(File.generated(config, "example-report.html", content=report))
    pages = [file.src_uri for file in files.documentation_pages()]
    config.nav = expand_navigation(config.nav, pages)
    return files


def expand_navigation(nav: list[Any], pages: list[str]) -> list[Any]:
    """Return the navigation with every `*` replaced by the pages that match it and are listed nowhere else."""
    unlisted = set(pages) - set(re.findall(r"[\w/.-]+\.(?:md|ipynb)", str(nav)))

    def expand(entry: Any) -> list[Any]:
        if isinstance(entry, str) and "*" in entry:
            matches = sorted(page for page in unlisted if fnmatch(page, entry))
            unlisted.difference_update(matches)
            return [{PurePosixPath(page).stem: page} if entry in TITLED_BY_FILE else page for page in matches]
        if isinstance(entry, dict):
            sections = {key: expand_all(value) if isinstance(value, list) else value for key, value in entry.items()}
            return [{key: value} for key, value in sections.items() if value]
        return [entry]

    def expand_all(entries: list[Any]) -> list[Any]:
        return [expanded_entry for entry in entries for expanded_entry in expand(entry)]

    return expand_all(nav)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links for the site, add search terms, and draw the diagram of a method under its summary."""
    uri = page.file.src_uri
    if uri in SEARCH_TERMS:
        page.meta["tags"] = list(SEARCH_TERMS[uri])  # the search plugin indexes tags with a high weight
    page_path = uri if (ROOT / uri).exists() or uri.startswith(("api/", "parts/", "reference/")) else f"docs/{uri}"

    def rewrite_link(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        if target.startswith(("http", "mailto")):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page_path), target))
        path = "index.md" if path == "README.md" else path.removeprefix("docs/").replace(".ipynb", ".md")
        if files.get_file_from_path(path) is None:
            return f"]({REPOSITORY}{path}{anchor})" if (ROOT / path).exists() else link[0]
        return f"]({posixpath.relpath(path, posixpath.dirname(uri) or '.')}{anchor})"

    markdown = re.sub(r"\]\(([\w./:-]+\.\w+)(#[\w-]*)?\)", rewrite_link, markdown)
    # Python-Markdown shows the backslash of `\|` in code, which GitHub needs in tables.
    markdown = re.sub(r"`[^`\n]*`", lambda code: code[0].replace(r"\|", "|"), markdown)
    if uri.startswith("methods/") and page.file.name in methods:
        summary, picture = r"^(\*.*\*)$", draw_plates(page.file.name)
        markdown = re.sub(summary, lambda line: f"{line[1]}\n\n{picture}", markdown, count=1, flags=re.MULTILINE)
        markdown += results_table(page.file.name)
    return markdown


def results_table(method: str) -> str:
    """Return a table of accuracy and log loss on every set of the accuracy benchmark, compared with majority vote."""
    lines = (ROOT / "benchmarks" / "accuracy" / "results" / "accuracy.jsonl").read_text(encoding="utf-8").splitlines()
    rows = []
    for dataset in json.loads(lines[-1])["sets"]:
        scores = dataset["levels"]["0"]["methods"]  # level 0 has all labels of every item
        if "accuracy" in scores.get(method, {}) and dataset["gold"] is None:
            cells = [
                f"{scores[name]['accuracy']:.1%} | {-scores[name]['log_likelihood']:.3f}"
                for name in (method, "majority-vote")
            ]
            rows.append(
                f"| {dataset['set']} | {dataset['items']:,} | {dataset['annotations'] / dataset['items']:.1f} | "
                f"{' | '.join(cells)} |"
            )
    if not rows:
        return ""
    header = (
        f"| set | items | labels per item | accuracy | log loss | accuracy of majority vote | its log loss |\n"
        f"{'|---' * 7}|"
    )
    introduction = (
        "All labels of each set are used. [The benchmark](../benchmarks/accuracy/README.md) also uses fewer labels and "
        "compares with other libraries."
    )
    return "\n\n".join(["\n\n**Set by set.** " + introduction, "\n".join([header, *rows]), ""])


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Remember the navigation, which llms.txt lists when all pages are built."""
    config.extra["nav"] = nav
    return nav


def on_post_build(config: Any) -> None:
    """Write llms.txt: every page with its first sentence, for language models (https://llmstxt.org)."""
    lines = [f"# {config.site_name}", f"> {config.site_description}", *_list_pages(config.extra["nav"].items)]
    (Path(config.site_dir) / "llms.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def _list_pages(entries: list[Any], title: str = "") -> Iterator[str]:
    """Yield the lists of llms.txt: one per section of the navigation, under its heading."""
    pages = [entry for entry in entries if entry.is_page]
    if pages:
        links = "\n".join(f"- [{page.title}]({page.url}): {first_sentence(page.markdown)}" for page in pages)
        yield f"## {title}\n\n{links}" if title else links
    for entry in entries:
        if entry.is_section:
            yield from _list_pages(entry.children, f"{title}: {entry.title}" if title else entry.title)


def first_sentence(markdown: str) -> str:
    """Return the first sentence of a page as plain text, without links and emphasis."""
    paragraphs = [part for part in re.split(r"\n\s*\n|\n", markdown) if re.match(r"[A-Z`*_\[]", part)]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraphs[0] if paragraphs else "")
    text = re.sub(r"[*`]|\b_|_\b", "", text)
    return re.split(r"(?<=[.?])(?<!al\.)(?<!\b[A-Z]\.)\s", text)[0]
