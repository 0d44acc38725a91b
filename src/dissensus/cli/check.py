"""`dissensus check`: check a table against thresholds, for cron and continuous integration."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli import changes, folder, options, show
from dissensus.cli.errors import BAD_USAGE, render_for_command_line
from dissensus.cli.folder import SUMMARY
from dissensus.cli.options import option
from dissensus.cli.settings import MethodOptions
from dissensus.cli.source import Source, answer_each
from dissensus.messages import Message, ParameterName
from dissensus.questions.exceptions import (
    BadThreshold,
    CheckNotPossible,
    InvalidToml,
    NoEarlierTable,
    NothingToCheck,
    SavedWithoutAgreement,
    SavedWithoutLabels,
    UnknownThreshold,
)

if TYPE_CHECKING:
    from dissensus.questions.check import Check, Snapshot
    from dissensus.questions.diff import Diff
    from dissensus.table.annotations import Annotations

BAD_DATA = BAD_USAGE  # exit status 1 is reserved for failed checks
EXIT_FAILED = 1
OUTCOME_WORDS = {True: "passed", False: "failed", None: "not checked"}


@dataclass(frozen=True)
class Thresholds:
    """Thresholds that a table must meet; a share is a number from 0 to 1."""

    min_labels: int | None = option(None, "Annotators who labelled each item, at least.", metavar="N")
    min_settled: float | None = option(None, "Share of the items that are settled.", metavar="SHARE")
    min_agreement: float | None = option(None, "How often two annotators of an item agree.", metavar="SHARE")
    max_flagged: int | None = option(None, "Annotators whom `diagnose` flags.", metavar="N")
    max_fall: float | None = option(None, "Fall of the agreement.", metavar="SHARE", show_default="0.05")
    max_flips: float | None = option(None, "Items with another answer.", metavar="SHARE", show_default="0.05")
    max_lost: int | None = option(
        None, "Items that had labels before and now have none.", metavar="N", show_default="0"
    )
    max_drifting: int | None = option(
        None, "Annotators who agree less, or more, often than before.", metavar="N", show_default="0"
    )
    max_new_classes: int | None = option(None, "Classes that are new.", metavar="N", show_default="0")

    def collect(self, config: Path | None) -> dict[str, float]:
        """Return the thresholds that an option or a file names; options override the file."""
        whole = {field.name: "int" in str(field.type) for field in dataclasses.fields(self)}
        thresholds: dict[str, Any] = {} if config is None else _read_toml(config)
        for name in thresholds:
            if name not in whole:
                raise UnknownThreshold(name=name, allowed=tuple(whole)).add_subject(str(config))
        options = {name: value for name, value in asdict(self).items() if value is not None}
        thresholds |= options
        for name, value in thresholds.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and (0 <= value == int(value) if whole[name] else 0 <= value <= 1)):
                if name in options:
                    raise BadThreshold(name=ParameterName(name), whole=whole[name], value=value)
                raise BadThreshold(name=name, whole=whole[name], value=value).add_subject(str(config))
        return thresholds


@dataclass(frozen=True)
class EarlierTable:
    """The earlier table to compare with, and what to write about the changes."""

    against: str | None = option(
        None, "The same table earlier, or the FOLDER that `aggregate` made of it.", metavar="OLD"
    )
    output: Path | None = option(
        None, "With --against a table: write all changes here.", "--output", "-o", metavar="FOLDER"
    )
    level: float = option(0.05, "Share of the annotators named for drift that may be named by chance.")


def check(
    *,
    earlier: EarlierTable,
    config: Path | None = option(None, "Thresholds in TOML, such as min_settled = 0.9.", metavar="FILE"),
    limits: Thresholds,
    exit_zero: bool = option(False, "Exit with 0 even if a check fails.", "--exit-zero"),
    fit: MethodOptions,
    source: Source,
) -> None:
    """Check the tables of FILE, print the outcomes, and exit with the status.

    One line per threshold: passed or failed, the value, the threshold and what to do. Without --against only the
    given thresholds are checked; with it also those with a default. --classes names the classes that are allowed. The
    exit status is 0 if all checks passed, 1 if one failed, 2 if a given one could not be run.

    With --against a table, the changes are printed first: labels that were added, changed or removed; items whose
    answer is another one, and the labels that caused it; annotators who agree with the others more or less often than
    before. FOLDER gets items.csv (items with another answer, with the reason), labels.csv (one row per changed label),
    annotators.csv (agreement before and since, p-values) and summary.json.

    Example: dissensus check labels.csv --min-settled 0.9 --min-labels 3

    Example: dissensus check this-week.csv --against last-week.csv -o changes

    Example: dissensus check labels.csv --against last-week --config check.toml
    """
    from dissensus.questions.check import DEFAULT_CHANGE_LIMITS

    given = limits.collect(config)
    against, output = earlier.against, earlier.output
    if against is None:
        given = _limits_without_earlier_table(given, declared=bool(source.classes))
    # A check reports new classes, so reading FILE must not treat them as an error.
    classes, source = source.class_names(), dataclasses.replace(source, classes=None)
    saved_run = None if against is None or not (Path(against) / SUMMARY).is_file() else Path(against)
    if against is None or saved_run is not None:
        options.refuse_without("--against with a table of labels", "output", "level")
        old, tables = dict[str | None, Any](), source.read_tables()
    else:
        folder.check_folder(output, changes.CHANGE_FILES)
        old, tables = source.read_two_files(against, output=output)
        changes.warn_of_order(old, tables, against, source.named)

    def answer(table: Annotations, question: str | None) -> tuple[Diff | None, list[Check]]:
        from dissensus.questions.check import check, fit_snapshot
        from dissensus.questions.diff import diff_with_models

        model: Any = fit.new_model(table.kind)
        before = diff = None
        with show.show_progress(f"checking {source.make_title(question)}"):
            if saved_run is not None:
                before = _saved_snapshot(saved_run, question, source.question_names)
                model = model if fit.method or fit.setting else before.model
            elif against is not None:
                before = fit_snapshot(old[question], model)
            now = fit_snapshot(table, model)
            if before is not None and before.table is not None:
                diff = diff_with_models(before.table, table, [before.model, now.model], level=earlier.level)
            thresholds = ({} if before is None else DEFAULT_CHANGE_LIMITS) | given
            return diff, check(now, before, limits=thresholds, classes=classes)

    answers = answer_each(tables, answer, every=True)
    checks = [check for _, checks in answers.values() for check in checks]
    passed = all(check.passed is not False for check in checks)
    if output is not None and (diff := answers[None][0]) is not None:
        changes.write_changes(output, diff, old=str(against), new=source.file)
    facts: dict[str, Any] = {} if against is None else {"against": show.format_path(Path(against))}
    facts |= {"method": fit.method_name(tables)} if old else {}
    source.print_answers(
        answers, _print_checks, _check_facts, **facts | show.format_paths(folder=output), passed=passed
    )
    if not source.json and output is not None:
        show.print_written(output, "All changes are", "FOLDER")
    for check in checks:
        if check.passed is None and check.name in given:
            raise CheckNotPossible(name=ParameterName(check.name), reason=_render(check.finding))
    if not (passed or exit_zero):
        raise typer.Exit(EXIT_FAILED)


def _limits_without_earlier_table(limits: dict[str, float], *, declared: bool) -> dict[str, float]:
    """Return the limits that need no earlier table.

    New classes can be checked only if --classes declares the allowed ones (`declared`).
    """
    from dissensus.questions.check import DEFAULT_CHANGE_LIMITS

    needing_earlier = {name for name in DEFAULT_CHANGE_LIMITS if name in limits}
    if declared:
        needing_earlier.discard("max_new_classes")
        limits = {"max_new_classes": 0} | limits
    if needing_earlier:
        raise NoEarlierTable(name=ParameterName(min(needing_earlier)))
    if not limits:
        raise NothingToCheck()
    return limits


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return {name.replace("-", "_"): value for name, value in tomllib.loads(path.read_text("utf-8")).items()}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidToml(path=path, error=str(error)) from error


def _saved_snapshot(folder: Path, question: str | None, question_names: list[str]) -> Snapshot:
    """Return the snapshot that `aggregate` saved for a question, or for the question named in `question_names`."""
    from dissensus.cli.results import read_question_folders
    from dissensus.cli.scoring import load_model
    from dissensus.questions.check import Snapshot

    question = question or next((name for name in question_names if name in read_question_folders(folder)), None)
    model = load_model(folder, question)
    if not model.items_.size or not hasattr(model, "item_total_"):
        raise SavedWithoutLabels(folder=folder)
    try:
        about = json.loads((folder / SUMMARY).read_bytes())
        return Snapshot(model, (about if question is None else about["questions"][question]).get("pairwise_agreement"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SavedWithoutAgreement(file=folder / SUMMARY) from error


def _check_facts(answer: tuple[Diff | None, list[Check]]) -> dict[str, Any]:
    diff, checks = answer
    found = {} if diff is None else {"changes": changes.change_facts(diff)}
    return found | {
        "checks": [
            vars(check) | {"finding": _render(check.finding), "advice": _join_advice(check), "passed": check.passed}
            for check in checks
        ]
    }


def _render(finding: Message) -> str:
    """Return a finding without its full stop, so that the threshold can follow."""
    return render_for_command_line(finding).rstrip(".")


def _join_advice(check: Check) -> str:
    return " ".join(map(render_for_command_line, check.advice))


def _print_checks(title: str, answer: tuple[Diff | None, list[Check]]) -> None:
    diff, checks = answer
    if diff is not None:
        changes.print_changes(title, diff)
    failed = sum(check.passed is False for check in checks)
    summary = f"{failed or 'none'} of {len(checks):,} checks failed"
    if len(checks) == 1:
        summary = {True: "the check passed", False: "the check failed", None: "nothing could be checked"}[
            checks[0].passed
        ]
    show.print_line(f"{show.escape(title)}: {summary}.")
    for check in checks:
        limit = f"{100 * check.limit:g} %" if isinstance(check.limit, float) else f"{check.limit:,}"
        bound = "" if check.passed is None else f" ({'at least' if check.name[:3] == 'min' else 'at most'} {limit})"
        name = check.name.replace("_", "-")
        line = f"{OUTCOME_WORDS[check.passed]:<11}  {name}: {_render(check.finding)}{bound}. {_join_advice(check)}"
        show.print_line(show.escape(line.rstrip()))
