"""Tables of a paper, as declared in its TOML file.

    title, cite, note                         of the paper
    protocol                                  a list of texts: differences from the paper's protocol
    [TABLE]  title, note, seeds, block        seeds of the full run; those that one call trains (0: all of them)
    [TABLE]  made_from                        another table: nothing is run for this one, `derived` makes it of that
    [TABLE.data.NAME]                         keywords, to every condition on that data
    [TABLE.conditions.NAME]                   keywords
    [TABLE.only.DATA]  conditions, seeds      where it has not all of them; seeds: a number, or { others, CONDITION }
    [TABLE.metrics.NAME]  label, digits, scale, p            p: the value that is shown as stars behind this one
    [TABLE.published.DATA.CONDITION]          metric = value, or [value, standard error], or [value, "stars"]
    [TABLE.quick]  seeds, data, conditions    what is left of it with --quick; any other key goes to all as a keyword
    [[TABLE.without]]  data, condition, why   cells that are not run; data or condition: one, a list, left out any
    [[TABLE.differs]]  data, condition, why   where the protocol had to differ
    [[TABLE.figures]]  file, text             pictures below it; the module's draw(path, device) makes them

A cell is one data set, one condition and some seeds. Its key is the hash of its configuration, so that a line of
a store counts for it as long as nothing about it has changed.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dissensus.exceptions import BadParameter
from reproductions.record import hash_configuration

PAPERS_FOLDER = Path(__file__).parent
PARTS = ("note", "seeds", "block", "made_from", "only", "published", "quick")
Values = dict[str, list[float]]
"""Metric → one value per seed."""


class SeedValues:
    """Collects the values of seed after seed."""

    def __init__(self) -> None:
        self.values: Values = {}

    def add(self, **metrics: Any) -> None:
        """Add one seed."""
        for name, value in metrics.items():
            self.values.setdefault(name, []).append(round(float(value), 6))


ExtraResults = dict[str, Any]
"""Small texts and lists that a line keeps besides its values; `derived` reads them."""
Run = Callable[["Cell", str], Values | tuple[Values, ExtraResults]]
"""Cell and device → values, or values and what to keep besides."""


@dataclass(frozen=True)
class Cell:
    """Some seeds of one condition on one data set."""

    paper: str
    table: str
    data: str
    condition: str
    keywords: dict[str, Any]
    seeds: tuple[int, ...]

    @property
    def key(self) -> str:
        """Return the hash of the cell's configuration."""
        return hash_configuration([self.paper, self.table, self.data, self.condition, self.keywords, list(self.seeds)])

    def command(self, *, quick: bool = False) -> str:
        """Return the command that runs this cell."""
        return f"python -m reproductions {self.paper} {self.table}{' --quick' if quick else ''}"


@dataclass(frozen=True)
class Metric:
    """Format of a metric in the tables."""

    name: str
    label: str
    digits: int = 3
    scale: float = 1.0
    p: str = ""


@dataclass(frozen=True)
class Table:
    """One table of a paper."""

    paper: str
    name: str
    title: str
    metrics: tuple[Metric, ...]
    data: dict[str, dict[str, Any]]
    conditions: dict[str, dict[str, Any]]
    seeds: int
    block: int = 1
    made_from: str = ""
    note: str = ""
    only: dict[str, dict[str, Any]] = field(default_factory=dict)
    published: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    without: tuple[dict[str, Any], ...] = ()
    differs: tuple[dict[str, Any], ...] = ()
    figures: tuple[dict[str, str], ...] = ()

    def cells(self, *, quick: bool = False, seeds: int | None = None) -> Iterator[Cell]:
        """Yield all cells, seed by seed, so that a run that is stopped has every condition."""
        less = self.quick if quick else {}
        n = less.get("seeds", self.seeds) if seeds is None else seeds
        block = self.block or n
        for begin in range(0, n, block):
            for where in less.get("data", self.data):
                for condition in less.get("conditions", self.conditions):
                    most = n if seeds is not None else min(n, self.seeds_of(where, condition, n))
                    drawn = tuple(range(begin, min(begin + block, most)))
                    if drawn and (cell := self.cell(where, condition, drawn, quick=quick)) is not None:
                        yield cell

    def seeds_of(self, data: str, condition: str, n: int) -> int:
        """Return the number of seeds of a condition on this data set; n if the file has no limit."""
        limit: int | dict[str, int] = self.only.get(data, {}).get("seeds", n)
        return limit if isinstance(limit, int) else limit.get(condition, limit["others"])

    def cell(self, data: str, condition: str, seeds: tuple[int, ...], *, quick: bool = False) -> Cell | None:
        """Return the cell of these names, with any seeds; None if nothing is to be run."""
        less = dict(self.quick) if quick else {}
        less.pop("seeds", None)
        there = data in less.pop("data", self.data) and condition in less.pop("conditions", self.conditions)
        if self.made_from or not there or condition not in self.conditions_of(data):
            return None
        if self.why_not(data, condition) is not None:
            return None
        return Cell(self.paper, self.name, data, condition, self.data[data] | self.conditions[condition] | less, seeds)

    def conditions_of(self, data: str) -> list[str]:
        """Return the conditions that are run on this data set."""
        conditions: list[str] = self.only.get(data, {}).get("conditions", list(self.conditions))
        return conditions

    def why_not(self, data: str, condition: str) -> str | None:
        """Return why a cell is not run, or None if it is run."""
        return _reason_of(self.without, data, condition)

    def why_differs(self, data: str, condition: str) -> str | None:
        """Return how the protocol of a cell differs from the paper's, or None if it does not."""
        return _reason_of(self.differs, data, condition)

    def published_value(self, data: str, condition: str, metric: str) -> tuple[float, float | None] | None:
        """Return the published value and its standard error, each None if not published."""
        value = self.published.get(data, {}).get(condition, {}).get(metric)
        if value is None:
            return None
        first, error = value if isinstance(value, list) else (value, None)
        return float(first), None if error is None or isinstance(error, str) else float(error)

    def published_stars(self, data: str, condition: str, metric: str) -> str:
        """Return the stars behind a published value."""
        value = self.published.get(data, {}).get(condition, {}).get(metric)
        return value[1] if isinstance(value, list) and isinstance(value[1], str) else ""


def _reason_of(rules: Sequence[dict[str, Any]], data: str, condition: str) -> str | None:
    def about(named: str | list[str], one: str) -> bool:
        return one in named if isinstance(named, list) else named == one

    for rule in rules:
        if about(rule.get("data", data), data) and about(rule.get("condition", condition), condition):
            why: str = rule["why"]
            return why
    return None


@dataclass(frozen=True)
class Paper:
    """A paper: the content of its TOML file, and its module."""

    name: str
    title: str
    cite: str
    note: str
    tables: dict[str, Table]
    protocol: tuple[str, ...] = ()

    @property
    def module(self) -> Any:
        """Import and return the paper's module, which may need torch."""
        return importlib.import_module(f"reproductions.{self.name}")

    def run(self, table: str) -> Run:
        """Return the function that runs a cell of a table."""
        function: Run = getattr(self.module, table)
        return function

    def only(self, names: Sequence[str]) -> list[Table]:
        """Select tables by name, and the tables that these are made from; all if none is named."""
        for name in names:
            if name not in self.tables:
                raise BadParameter(f"{self.name} has no '{name}'; it has {', '.join(self.tables)}.")
        wanted = {*names, *(self.tables[name].made_from for name in names)} or set(self.tables)
        return [table for name, table in self.tables.items() if name in wanted]


def paper_names() -> list[str]:
    """Names of all papers."""
    return sorted(path.stem for path in PAPERS_FOLDER.glob("*.toml"))


def load_paper(name: str) -> Paper:
    """Load a paper by its name, such as "platanios2020"."""
    path = PAPERS_FOLDER / f"{name}.toml"
    if not path.exists():
        raise BadParameter(f"there is no paper '{name}'; there are {', '.join(paper_names())}.")
    return parse(name, tomllib.loads(path.read_text(encoding="utf-8")))


def parse(name: str, content: dict[str, Any]) -> Paper:
    """Read the content of a TOML file."""
    tables = {}
    for key, one in content.items():
        if not isinstance(one, dict):
            continue
        metrics = tuple(Metric(metric, **how) for metric, how in one["metrics"].items())
        rest = {part: one[part] for part in PARTS if part in one}
        lists = {part: tuple(one[part]) for part in ("without", "differs", "figures") if part in one}
        tables[key] = Table(name, key, one["title"], metrics, one["data"], one["conditions"], **rest | lists)
    return Paper(
        name, content["title"], content["cite"], content.get("note", ""), tables, tuple(content.get("protocol", ()))
    )
