"""What `mkdocs build` adds to the pages of docs/: pages made from the code, pages that lie elsewhere, links, pictures.

Pages here are made at every build and kept nowhere: the command line from its options, the HTTP API from OpenAPI, the
Python reference from docstrings, encoders, objectives and kinds of labels from their registries. `README.md` files of
benchmarks/ and reproductions/ are pages too. A link that is right in the repository is made right on the site.
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
from diagrams import plates  # noqa: E402
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
TITLED_BY_FILE = ("methods/*", "api/*")  # pages whose title is a name in code
MAX_LINKS = 3  # from a name of the reference to pages that use it
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
        *("Clustering", "PGMBP", "FMM", "Clusters", "Selection", "Point", "Projector", "Distributions"),
        *("select_clusters", "snap"),
    ),
    "dissensus.table.simulate": ("Crowd", "Simulation", "annotate", "make_crowd", "simulate", "simulate_kind"),
    "dissensus.table.datasets": ("Dataset", "DatasetInfo"),
    "dissensus.compute.engines": ("Disk", "Spark", "Torch"),
}
"""Public package → its public names; without any, those of its `__all__`. Modules among these are packages here."""
INNER = (
    *(
        "check",
        "columns",
        "confusion_support",
        "annotator_confusions",
        "deciding",
        "expected_labels",
        "from_tree",
        "in_order",
    ),
    *("item_columns", "likelihoods", "load", "open", "params_", "row_weights", "rows", "run", "shown", "snap_items"),
    *("store_results", "take", "temperatures", "to_tree", "trainer"),
)
"""Methods that other layers of the package call, not users; mkdocs.yml filters them too."""


def public_names() -> dict[str, list[tuple[str, Any]]]:
    """Page of the reference → full name and object of every public name, each on one page."""
    pages: dict[str, list[tuple[str, Any]]] = {}
    seen: set[str] = set()
    for package, names in PACKAGES.items():
        module = import_module(package)
        for name in names or module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or isinstance(value, dict):  # of kinds there is a page
                continue
            home = getattr(value, "__module__", "") if callable(value) else registry_home(module, name)
            page = ".".join(home.split(".")[:2]) if package == "dissensus" else package
            results = [(f"{one.__module__}.{one.__name__}", one) for one in results_of(value)]
            for full, found in [(f"{home}.{name}", value), *results]:
                if full not in seen:
                    seen.add(full)
                    pages.setdefault(page.removesuffix(".base"), []).append((full, found))
    return pages


def results_of(value: Any) -> list[type]:
    """Our classes among the types that a function returns: they are public where it is."""
    kind = get_type_hints(value).get("return") if inspect.isfunction(value) else None
    kinds = [kind, *get_args(kind)]
    return [one for one in kinds if inspect.isclass(one) and one.__module__.startswith("dissensus.")]


def registry_home(module: Any, name: str) -> str:
    """The module in which a public value that is no class or function, such as a registry, is defined."""
    homes = getattr(module, "_HOME", {})
    return str(homes.get(name, f"{module.__name__}.base"))


def api_page(page: str, names: list[tuple[str, Any]]) -> str:
    """A page of the reference, for mkdocstrings to fill."""
    told = re.sub(
        r"((?:^(?:>>>|\.\.\.) .*\n(?:^[^>\n].*\n?)*)+)",
        r"```python\n\1```\n",
        f"{inspect.getdoc(import_module(page))}\n",
        flags=re.M,
    )
    parts = [f"# `{page}`", told]
    for full, _ in names:
        links = [
            f"[{uri.partition('/')[2].removesuffix('.md')}](../{uri})"
            for uri in pages_that_show(full.rpartition(".")[2])
        ]
        parts += [f"::: {full}", f"*Used in* {', '.join(links[:MAX_LINKS])}." if links else ""]
    return "\n\n".join(parts) + "\n"


@cache
def code_of_pages() -> dict[str, str]:
    """Path on the site → the Python code on it, of every page that a test runs."""
    pages = [
        page for folder in ("start", "guides", "contributing") for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ]
    return {
        page.relative_to(ROOT / "docs").as_posix(): "\n".join(
            re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        )
        for page in pages
    }


def pages_that_show(name: str) -> list[str]:
    """The pages whose code has a public name, or a method, in it."""
    return [uri for uri, code in code_of_pages().items() if re.search(rf"\b{name}\b", code)]


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


def command_line() -> str:
    """Every command with its arguments and options."""
    from dissensus.cli import COMMANDS, load_command

    parts = ["# Command line", "`dissensus COMMAND --help` shows the same on a terminal."]
    for name in COMMANDS:
        command = load_command(name)
        words = [one.metavar or one.name.upper() for one in command.params if not one.opts[0].startswith("-")]
        usage = f"```text\ndissensus {' '.join([name, *words])} [OPTIONS]\n```"
        parts += [f"## {name}", (command.help or "").strip(), usage]
        rows = ["| option | what it is | default |", "|---|---|---|"]
        for one in command.params:
            if getattr(one, "hidden", False) or not one.opts[0].startswith("-"):
                continue
            shown = one.show_default if isinstance(one.show_default, str) else one.default
            default = (
                "" if shown is None or shown is False or callable(shown) else f"`{getattr(shown, 'value', shown)}`"
            )
            options = ", ".join(f"`{text}`" for text in (*one.opts, *one.secondary_opts))
            rows.append(row(options + (f" {one.metavar}" if one.metavar else ""), one.help or "", default))
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def http_api() -> str:
    """Every route of `dissensus serve`."""
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
        "`/docs` and, for programs, at `/openapi.json`. [The guide](../guides/serve.md) shows its use.",
        "| method | address | what it does |\n|---|---|---|",
    ]
    rows = [
        row(f"`{verb.upper()}`", f"`{path}`", about.get("description") or about.get("summary", ""))
        for path, verbs in routes.items()
        for verb, about in verbs.items()
    ]
    return "\n\n".join(parts) + "\n" + "\n".join(rows) + "\n"


def registry_page(title: str, about: str, registry: Any) -> str:
    """Every entry of a registry of learning: what it is, and its keywords."""
    parts = [f"# {title}", about]
    for name, entry in registry.entries():
        parts += [
            f"## `{name}`",
            f"*{entry.summary[0].upper()}{entry.summary[1:]}{f' ({entry.cite})' if entry.cite else ''}.*",
        ]
        told = (inspect.getdoc(entry.value) or "").split("\n\nParameters\n")[0].split("\n\n", 1)[1:]
        parts += [*told, keywords_table(entry.value)]
    return "\n\n".join(parts) + "\n"


def kinds_page() -> str:
    """Every kind of labels: what it is, its methods, the first of which is the default."""
    from dissensus.models.base import default_method, methods_for
    from dissensus.table import kinds

    rows = ["| kind | labels are | default | other methods |", "|---|---|---|---|"]
    for kind, told in kinds.KIND_DESCRIPTIONS.items():
        first = default_method(kind)
        others = [f"[`{name}`](../methods/{name}.md)" for name in methods_for(kind) if name != first]
        rows.append(row(f"`{kind}`", told, f"[`{first}`](../methods/{first}.md)", ", ".join(others)))
    told = inspect.getdoc(kinds) or ""
    return "\n\n".join(["# Kinds of labels", told, "\n".join(rows), "See [the guide](../guides/kinds.md)."]) + "\n"


def example_report() -> str:
    """The report on the bundled set."""
    data = load_dataset("digits-crowd")
    model = methods["consensus"](seed=0).fit(data.annotations)
    return Report(data.annotations, model, gold=data.gold, items=data.items, title="Handwritten digits").html()


def generated_pages(execute: bool = True) -> Iterator[tuple[str, str]]:
    """Path on the site and text of every page that is made from the code; tutorials are run where `execute` says so."""
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
        registry_page("Objectives", 'How labels teach an encoder: `CrowdClassifier(objective="NAME")`.', objectives),
    )
    for book in notebooks.BOOKS:
        yield f"tutorials/{book.stem}.md", notebooks.page(book, execute=execute)
    for page, names in public_names().items():
        yield f"api/{page}.md", api_page(page, names)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, and put what `*` in the navigation stands for in its place."""
    from mkdocs.structure.files import File

    for pattern in ELSEWHERE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for uri, text in generated_pages(execute=bool(config.extra.get("examples"))):
        files.append(File.generated(config, uri, content=text))
    report = example_report() if config.extra.get("examples") else ""
    files.append(File.generated(config, "example-report.html", content=report))
    pages = [one.src_uri for one in files.documentation_pages()]
    config.nav = expanded(config.nav, pages)
    return files


def expanded(nav: list[Any], pages: list[str]) -> list[Any]:
    """The navigation with every `*` replaced by the pages that match it and are named nowhere else."""
    left = set(pages) - set(re.findall(r"[\w/.-]+\.(?:md|ipynb)", str(nav)))

    def walk(entry: Any) -> list[Any]:
        if isinstance(entry, str) and "*" in entry:
            found = sorted(page for page in left if fnmatch(page, entry))
            left.difference_update(found)
            return [{PurePosixPath(page).stem: page} if entry in TITLED_BY_FILE else page for page in found]
        if isinstance(entry, dict):
            inside = {key: walk_all(value) if isinstance(value, list) else value for key, value in entry.items()}
            return [{key: value} for key, value in inside.items() if value]
        return [entry]

    def walk_all(entries: list[Any]) -> list[Any]:
        return [one for entry in entries for one in walk(entry)]

    return walk_all(nav)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as the site has them; a method's picture under its summary."""
    uri = page.file.src_uri
    here = uri if (ROOT / uri).exists() or uri.startswith(("api/", "parts/", "reference/")) else f"docs/{uri}"

    def on_site(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if target.startswith(("http", "mailto")):
            return found[0]
        at = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        at = "index.md" if at == "README.md" else at.removeprefix("docs/").replace(".ipynb", ".md")
        if files.get_file_from_path(at) is None:
            return f"]({REPOSITORY}{at}{anchor})" if (ROOT / at).exists() else found[0]
        return f"]({posixpath.relpath(at, posixpath.dirname(uri) or '.')}{anchor})"

    markdown = re.sub(r"\]\(([\w./:-]+\.\w+)(#[\w-]*)?\)", on_site, markdown)
    # Python-Markdown takes a pipe in code for text, and a backslash before it too
    markdown = re.sub(r"`[^`\n]*`", lambda found: found[0].replace(r"\|", "|"), markdown)
    if uri.startswith("methods/") and page.file.name in methods:
        summary, picture = r"^(\*.*\*)$", plates(page.file.name)
        markdown = re.sub(summary, lambda found: f"{found[1]}\n\n{picture}", markdown, count=1, flags=re.MULTILINE)
        markdown += measured(page.file.name)
    return markdown


def measured(method: str) -> str:
    """Accuracy and log loss of a method on every set of the accuracy benchmark, beside majority vote."""
    lines = (ROOT / "benchmarks" / "accuracy" / "results" / "accuracy.jsonl").read_text(encoding="utf-8").splitlines()
    rows = []
    for one in json.loads(lines[-1])["sets"]:
        scores = one["levels"]["0"]["methods"]  # 0: as many labels per item as there are
        if "accuracy" in scores.get(method, {}) and one["gold"] is None:
            cells = [
                f"{scores[name]['accuracy']:.1%} | {-scores[name]['log_likelihood']:.3f}"
                for name in (method, "majority-vote")
            ]
            rows.append(
                f"| {one['set']} | {one['items']:,} | {one['annotations'] / one['items']:.1f} | {' | '.join(cells)} |"
            )
    if not rows:
        return ""
    head = f"| set | items | labels per item | accuracy | log loss | accuracy of a vote | its log loss |\n{'|---' * 7}|"
    about = (
        "With all labels of each set; [the benchmark](../benchmarks/accuracy/README.md) has fewer, and other libraries."
    )
    return "\n\n".join(["\n\n**Set by set.** " + about, "\n".join([head, *rows]), ""])
