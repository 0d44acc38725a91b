"""`dissensus check`: check a table against thresholds, for cron and continuous integration."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli import show
from dissensus.cli.errors import BAD_USAGE
from dissensus.cli.folder import SUMMARY
from dissensus.cli.options import option
from dissensus.cli.settings import Fit
from dissensus.cli.source import Source, answer_each
from dissensus.messages import ParameterName
from dissensus.questions.exceptions import (
    BadThreshold,
    NoEarlierTable,
    NothingToCheck,
    NotToml,
    SavedWithoutAgreement,
    SavedWithoutLabels,
    Uncheckable,
    UnknownThreshold,
)

if TYPE_CHECKING:
    from dissensus.questions.check import Check, Snapshot
    from dissensus.table.annotations import Annotations

BAD_DATA = BAD_USAGE  # 1 says that a check failed
FAILED = 1
WORDS = {True: "passed", False: "failed", None: "not checked"}


@dataclass(frozen=True)
class Limits:
    """Thresholds of a table; shares lie from 0 to 1."""

    min_labels: int | None = option(None, "Annotators who labelled each item, at least.", metavar="N")
    min_settled: float | None = option(None, "Share of the items that are settled.", metavar="SHARE")
    min_agreement: float | None = option(None, "How often two annotators of an item agree.", metavar="SHARE")
    max_flagged: int | None = option(None, "Annotators whom `diagnose` flags.", metavar="N")
    max_fall: float | None = option(None, "Fall of the agreement.", metavar="SHARE", show_default="0.05")
    max_flips: float | None = option(None, "Items with another answer.", metavar="SHARE", show_default="0.05")
    max_lost: int | None = option(None, "Items without labels that had some.", metavar="N", show_default="0")
    max_drifting: int | None = option(None, "Annotators who drift, as in `diff`.", metavar="N", show_default="0")
    max_new_classes: int | None = option(None, "Classes that are new.", metavar="N", show_default="0")

    def given(self, config: Path | None) -> dict[str, float]:
        """Return the thresholds that an option or a file names; options override the file."""
        whole = {field.name: "int" in str(field.type) for field in dataclasses.fields(self)}
        found: dict[str, Any] = {} if config is None else _read(config)
        for name in found:
            if name not in whole:
                raise UnknownThreshold(name=name, known=tuple(whole)).add_subject(str(config))
        options = {name: value for name, value in asdict(self).items() if value is not None}
        found |= options
        for name, value in found.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and (0 <= value == int(value) if whole[name] else 0 <= value <= 1)):
                if name in options:
                    raise BadThreshold(name=ParameterName(name), whole=whole[name], value=value)
                raise BadThreshold(name=name, whole=whole[name], value=value).add_subject(str(config))
        return found


def check(
    *,
    against: str | None = option(
        None, "The same table earlier, or the FOLDER that `aggregate` made of it.", metavar="FILE"
    ),
    config: Path | None = option(None, "Limits in TOML, such as min_settled = 0.9.", metavar="FILE"),
    limits: Limits,
    fit: Fit,
    source: Source,
) -> None:
    """One line per threshold: passed or failed, the value, the threshold and what to do. Without --against only the
    given thresholds are checked; with it also those with a default. --classes names the classes that are allowed. The
    exit status is 0 if all checks passed, 1 if one failed, 2 if a given one could not be run.

    Example: dissensus check labels.csv --min-settled 0.9 --min-labels 3

    Example: dissensus check labels.csv --against last-week --config check.toml
    """
    from dissensus.questions.check import SINCE

    given = limits.given(config)
    earlier = {name for name in SINCE if name in given}
    if against is None and source.classes:
        earlier.discard("max_new_classes")
        given = {"max_new_classes": 0} | given
    if against is None and earlier:
        raise NoEarlierTable(name=ParameterName(min(earlier)))
    if against is None and not given:
        raise NothingToCheck()
    classes, source = source.class_names(), dataclasses.replace(source, classes=None)  # a new class is no error here
    folder = None if against is None or not (Path(against) / SUMMARY).is_file() else Path(against)
    old, tables = ({}, source.read()) if against is None or folder is not None else source.read_both(against)

    def answer(table: Annotations, question: str | None) -> list[Check]:
        from dissensus.questions.check import check, snapshot

        model: Any = fit.model(table.kind)
        before = None
        with show.show_progress(f"checking {source.title(question)}"):
            if folder is not None:
                before = _kept(folder, question, source.question_names)
                model = model if fit.method or fit.setting else before.model
            elif against is not None:
                before = snapshot(old[question], model)
            thresholds = ({} if before is None else SINCE) | given
            return check(snapshot(table, model), before, limits=thresholds, classes=classes)

    answers = answer_each(tables, answer, every=True)
    passed = all(one.passed is not False for found in answers.values() for one in found)
    head: dict[str, Any] = {} if against is None else {"against": show.path(Path(against))}
    source.print_each(answers, _show, _facts, **head, passed=passed)
    for one in (one for found in answers.values() for one in found):
        if one.passed is None and one.name in given:
            raise Uncheckable(name=ParameterName(one.name), reason=one.found)
    if not passed:
        raise typer.Exit(FAILED)


def _read(path: Path) -> dict[str, Any]:
    try:
        return {name.replace("-", "_"): value for name, value in tomllib.loads(path.read_text("utf-8")).items()}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NotToml(path=path, error=str(error)) from error


def _kept(folder: Path, question: str | None, left: list[str]) -> Snapshot:
    """Return the snapshot that `aggregate` saved; of several questions, the one that `question_names` of FILE has."""
    from dissensus.cli.results import question_folders
    from dissensus.cli.scoring import load_model
    from dissensus.questions.check import Snapshot

    question = question or next((one for one in left if one in question_folders(folder)), None)
    model = load_model(folder, question)
    if not model.items_.size or not hasattr(model, "item_total_"):
        raise SavedWithoutLabels(folder=folder)
    try:
        about = json.loads((folder / SUMMARY).read_bytes())
        return Snapshot(model, (about if question is None else about["questions"][question]).get("pairwise_agreement"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SavedWithoutAgreement(file=folder / SUMMARY) from error


def _facts(found: list[Check]) -> dict[str, Any]:
    return {"checks": [vars(one) | {"passed": one.passed} for one in found]}


def _show(title: str, found: list[Check]) -> None:
    failed = sum(one.passed is False for one in found)
    summary = f"{failed or 'none'} of {len(found):,} checks failed"
    if len(found) == 1:
        summary = {True: "the check passed", False: "the check failed", None: "nothing could be checked"}[
            found[0].passed
        ]
    show.line(f"{show.escape(title)}: {summary}.")
    for one in found:
        limit = f"{100 * one.limit:g} %" if isinstance(one.limit, float) else f"{one.limit:,}"
        bound = "" if one.passed is None else f" ({'at least' if one.name[:3] == 'min' else 'at most'} {limit})"
        advice = f" {one.advice}" if one.advice else ""
        name = one.name.replace("_", "-")
        show.line(show.escape(f"{WORDS[one.passed]:<11}  {name}: {one.found}{bound}.{advice}"))
