"""`dissensus check`: whether a table keeps to limits, for cron and continuous integration."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli import options, show
from dissensus.cli.errors import BAD_USAGE
from dissensus.cli.folder import SUMMARY
from dissensus.cli.options import Fit, Source, option
from dissensus.exceptions import BadParameter, UnreadableFile

if TYPE_CHECKING:
    from dissensus.questions.check import Check, Snapshot
    from dissensus.table.annotations import Annotations

BAD_DATA = BAD_USAGE  # 1 says that a check failed
FAILED = 1
WORDS = {True: "passed", False: "failed", None: "not checked"}


@dataclass(frozen=True)
class Limits:
    """What a table is held to; shares lie from 0 to 1."""

    min_labels: int | None = option(None, "Annotators who labelled each item, at least.", metavar="N")
    min_settled: float | None = option(None, "Share of the items that are settled.", metavar="SHARE")
    min_agreement: float | None = option(None, "How often two annotators of an item agree.", metavar="SHARE")
    max_flagged: int | None = option(None, "Annotators whom `diagnose` would name.", metavar="N")
    max_fall: float | None = option(None, "By how much agreement fell.", metavar="SHARE", show_default="0.05")
    max_flips: float | None = option(None, "Items with another answer.", metavar="SHARE", show_default="0.05")
    max_lost: int | None = option(None, "Items without labels that had some.", metavar="N", show_default="0")
    max_drifting: int | None = option(None, "Annotators who drift, as `diff` says.", metavar="N", show_default="0")
    max_new_classes: int | None = option(None, "Classes that were not there.", metavar="N", show_default="0")

    def given(self, config: Path | None) -> dict[str, float]:
        """Those that an option or a file names; options count first."""
        whole = {field.name: "int" in str(field.type) for field in dataclasses.fields(self)}
        found: dict[str, Any] = {} if config is None else _read(config)
        for name in found:
            if name not in whole:
                raise BadParameter(f"{config}: {name!r} is no limit; there are {', '.join(whole)}.")
        options = {name: value for name, value in asdict(self).items() if value is not None}
        found |= options
        for name, value in found.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and (0 <= value == int(value) if whole[name] else 0 <= value <= 1)):
                must = "a whole number, 0 or more" if whole[name] else "a share from 0 to 1"
                said = f"--{name.replace('_', '-')}" if name in options else f"{config}: {name}"
                raise BadParameter(f"{said} must be {must}, got {value!r}.")
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
    """One line per limit: passed or failed, what was found, the limit and what to do. Without --against only the limits
    that are given are checked; with it those with a default too. --classes names the classes that are allowed. The
    exit status is 0 where all is passed, 1 where a check failed, 2 where one that is asked for could not be run.

    Example: dissensus check labels.csv --min-settled 0.9 --min-labels 3

    Example: dissensus check labels.csv --against last-week --config check.toml
    """
    from dissensus.questions.check import SINCE

    asked = limits.given(config)
    earlier = {name for name in SINCE if name in asked}
    if against is None and source.classes:
        earlier.discard("max_new_classes")
        asked = {"max_new_classes": 0} | asked
    if against is None and earlier:
        raise BadParameter(f"--{min(earlier).replace('_', '-')} compares with an earlier table; add --against FILE.")
    if against is None and not asked:
        raise BadParameter("there is nothing to check; give a limit such as --min-settled 0.9, or --against FILE.")
    classes, source = source.class_names(), dataclasses.replace(source, classes=None)  # one too many is an answer here
    folder = None if against is None or not (Path(against) / SUMMARY).is_file() else Path(against)
    old, tables = ({}, source.read()) if against is None or folder is not None else source.read_both(against)

    def answer(table: Annotations, question: str | None) -> list[Check]:
        from dissensus.questions.check import check, snapshot

        model: Any = fit.model(table.kind)
        before = None
        with show.waiting(f"checking {source.title(question)}"):
            if folder is not None:
                before = _kept(folder, question, source.question_names)
                model = model if fit.method or fit.setting else before.model
            elif against is not None:
                before = snapshot(old[question], model)
            held = ({} if before is None else SINCE) | asked
            return check(snapshot(table, model), before, limits=held, classes=classes)

    answers = options.answer_each(tables, answer, every=True)
    passed = all(one.passed is not False for found in answers.values() for one in found)
    head: dict[str, Any] = {} if against is None else {"against": show.path(Path(against))}
    source.print_each(answers, _show, _facts, **head, passed=passed)
    for one in (one for found in answers.values() for one in found):
        if one.passed is None and one.name in asked:
            raise BadParameter(f"--{one.name.replace('_', '-')} cannot be checked: {one.found}.")
    if not passed:
        raise typer.Exit(FAILED)


def _read(path: Path) -> dict[str, Any]:
    try:
        return {name.replace("-", "_"): value for name, value in tomllib.loads(path.read_text("utf-8")).items()}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path} is no TOML: {error}.") from error


def _kept(folder: Path, question: str | None, left: list[str]) -> Snapshot:
    """What `aggregate` wrote about a table; about several, where FILE has one question `left` of them."""
    from dissensus.cli.results import question_folders
    from dissensus.cli.scoring import load_model
    from dissensus.questions.check import Snapshot

    question = question or next((one for one in left if one in question_folders(folder)), None)
    model = load_model(folder, question)
    if not model.items_.size or not hasattr(model, "item_total_"):
        raise UnreadableFile(f"{folder} was written without the labels of its items; give the table itself.")
    try:
        about = json.loads((folder / SUMMARY).read_bytes())
        return Snapshot(model, (about if question is None else about["questions"][question]).get("pairwise_agreement"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        said = f"{folder / SUMMARY} does not say how often two annotators agreed"
        raise UnreadableFile(f"{said}; run `dissensus aggregate` again, or give the table itself.") from error


def _facts(found: list[Check]) -> dict[str, Any]:
    return {"checks": [vars(one) | {"passed": one.passed} for one in found]}


def _show(title: str, found: list[Check]) -> None:
    failed = sum(one.passed is False for one in found)
    said = f"{failed or 'none'} of {len(found):,} checks failed"
    if len(found) == 1:
        said = {True: "the check passed", False: "the check failed", None: "nothing could be checked"}[found[0].passed]
    show.line(f"{show.clean(title)}: {said}.")
    for one in found:
        limit = f"{100 * one.limit:g} %" if isinstance(one.limit, float) else f"{one.limit:,}"
        bound = "" if one.passed is None else f" ({'at least' if one.name[:3] == 'min' else 'at most'} {limit})"
        advice = f" {one.advice}" if one.advice else ""
        name = one.name.replace("_", "-")
        show.line(show.clean(f"{WORDS[one.passed]:<11}  {name}: {one.found}{bound}.{advice}"))
