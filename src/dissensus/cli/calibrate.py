"""`dissensus calibrate`: correct the rates, scores and labels of LLM judges with a sample of human labels."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import folder, options, show
from dissensus.cli.errors import print_to_stderr, render_for_command_line
from dissensus.cli.options import option
from dissensus.cli.question import print_message
from dissensus.cli.settings import MethodOptions
from dissensus.cli.source import NUMBER_COLUMNS, Gold, Source, find_gold_item_column
from dissensus.common.formatting import Share
from dissensus.exceptions import DissensusError
from dissensus.messages import Message
from dissensus.questions.exceptions import (
    ColumnNotNumbers,
    GoldColumnWithoutFile,
    NoHumanLabels,
    NoSuchColumn,
    NothingToWrite,
    TooFewPanelItems,
    WidthNeeded,
)
from dissensus.questions.findings import (
    GoldCount,
    HumanLabelsHelp,
    ItemAccuracy,
    ItemsToLabel,
    JudgeBiasFound,
    JudgesNeeded,
    RatesExplained,
    SimilarJudges,
    SystemsExplained,
)

if TYPE_CHECKING:
    from dissensus.evaluation import Estimate
    from dissensus.models.base import Aggregator
    from dissensus.questions.calibrate import CalibrationResult, GoldPlan
    from dissensus.questions.panel_review import PanelReview
    from dissensus.table.annotations import Annotations

EFFECT_WORDS = (
    "position", "order", "side", "length", "words", "tokens", "characters", "system", "model", "family", "provider",
)  # fmt: skip
"""Words in the names of columns whose content may bias judges."""
QUOTED_COLUMN = re.compile(r"'([^']*)'")  # a column in the import report
MIN_PANEL_ITEMS = 50  # minimum number of items for reviewing a panel without human labels, as in the report
MAX_JUDGES_SHOWN = 12
MAX_EFFECTS_SHOWN = 10
MAX_GOLD_CLASSES = 2  # maximum number of distinct gold numbers that are read as classes if the judges give scores


@dataclass(frozen=True)
class HumanGold(Gold):
    """Human labels that the rates and scores of judges are corrected with."""

    gold: Path | None = option(None, "Human labels of randomly drawn items.", metavar="GOLD")
    gold_probability: str | None = option(
        None, "Column of GOLD with the probability that the item was drawn.", metavar="COLUMN"
    )

    def probabilities(self, table: Annotations) -> list[Any] | None:
        """Return the sampling probabilities (I,) of the items, or None without --gold-probability."""
        from dissensus.cli.inputs import read_table
        from dissensus.report.study import align_frame

        name = self.gold_probability
        if name is None or self.gold is None:
            return None
        frame = read_table(self.gold)
        if name not in frame.column_names:
            raise NoSuchColumn(column=name, columns=tuple(frame.column_names)).add_subject(str(self.gold))
        if (item := self.gold_item or find_gold_item_column(table, self.gold)) is not None:
            frame = frame.select([item, name]).rename_columns(["item", name])
        try:
            return [
                float("nan") if one in (None, "") else float(one)
                for one in align_frame(frame, "item", table.items)[name]
            ]
        except (TypeError, ValueError) as error:
            raise ColumnNotNumbers(column=name, error=str(error)).add_subject(str(self.gold)) from None


@dataclass(frozen=True)
class SystemOptions:
    """Columns with the system that gave each answer, and with its prompt."""

    items: Path | None = options.ITEMS
    system: str | None = option(
        None, "Column of ITEMS (or FILE) with the system that gave the answer, to compare systems.", metavar="COLUMN"
    )
    prompt: str | None = option(
        None, "Column of the prompt that was answered; systems are compared prompt by prompt.", metavar="COLUMN"
    )


def calibrate(
    *,
    output: Path | None = options.OUTPUT_FILE,
    gold: HumanGold,
    width: float | None = option(
        None, "Print how many more gold labels are needed for intervals of this width, such as 0.05."
    ),
    next_file: Path | None = option(
        None, "Write the items that humans should label next to reach --width.", "--next", metavar="FILE"
    ),
    compared: SystemOptions,
    cost: Path | None = option(
        None, "Cost of a call to each judge, to compare panels: columns annotator and cost.", metavar="FILE"
    ),
    fit: MethodOptions,
    seed: int | None = options.SEED,
    source: Source,
) -> None:
    """Correct the rates and scores of LLM judges with gold, and print and write them.

    Without --gold, the command estimates how many independent judges the panel amounts to. With it, the command
    corrects the rate of every class (or the mean score). The interval is valid whatever the judges do, as long as
    the gold items were drawn at random (prediction-powered inference). The estimates from the human labels alone
    and by Rogan and Gladen are printed for comparison, then the panel and the accuracy of each judge. OUT gets one
    row per item: label, confidence and probabilities, calibrated by gold; a gold item is predicted by a fit without
    its gold label.

    Example: dissensus calibrate verdicts.csv --gold human.csv -o items.csv

    Example: dissensus calibrate verdicts.csv --gold human.csv --items answers.csv --system model --prompt prompt

    Example: dissensus calibrate verdicts.csv --gold human.csv --width 0.05 --next next.csv
    """
    folder.check_output_file(output, "items")
    folder.check_output_file(next_file, "items", "--next")
    if next_file is not None and width is None:
        raise WidthNeeded()
    from dissensus.questions.calibrate import CORRECTABLE_LABEL_TYPES, has_enough_gold
    from dissensus.table.kinds import check_kind

    table = source.read_single_table()
    check_kind(table.kind, CORRECTABLE_LABEL_TYPES, "dissensus calibrate")
    if gold.gold_probability is not None and gold.gold is None:
        raise GoldColumnWithoutFile()
    known, classes = _read_gold(table, gold)
    from dissensus.cli.inputs import read_prices

    prices = None if cost is None else read_prices(cost, table.annotators)
    if known is None or (gold.gold is None and not has_enough_gold(known)):  # a log may hold a few known labels
        if output is not None:
            raise NothingToWrite()
        _review_without_gold(source, table, fit.new_model(), prices)
        return
    from dissensus.questions.calibrate import calibrate

    system, prompt = compared.system, compared.prompt
    columns = _read_columns(table, source, compared.items, [name for name in (system, prompt) if name is not None])
    model = None
    if table.kind != "numbers":
        with show.show_progress(f"fitting {source.file}"):
            model = fit.new_model().fit(table)
    others = [name for name in columns if name != prompt and _may_bias_judges(name)]
    with show.show_progress(f"correcting {source.file}"):
        found = calibrate(
            table, known, classes=classes, model=model, seed=seed or 0,
            probability=gold.probabilities(table), cost=prices,
            systems=None if system is None else columns[system], prompts=None if prompt is None else columns[prompt],
            columns={name: columns[name] for name in others},
        )  # fmt: skip
    plan = None if width is None else found.plan(width)
    for note in found.notes:
        print_to_stderr(f"warning: {note}")
    _write_files(found, plan, output, next_file)
    if source.json:
        head = show.format_paths(gold_file=gold.gold, next_file=next_file)
        source.print_json(head | calibration_facts(found, plan), output=output)
        return
    _print_calibration(source.make_title(None), found, plan, next_file)
    if output is not None or next_file is None:
        show.print_written(output, "Items are", "FILE to keep the items")


def _write_files(found: CalibrationResult, plan: GoldPlan | None, output: Path | None, next_file: Path | None) -> None:
    """Write the calibrated items, and the items to label next."""
    if output is not None:
        folder.write_file(found.to_frame(), output)
    if plan is not None and next_file is not None:
        folder.write_file({"item": list(plan.next_items)}, next_file)


def _review_without_gold(
    source: Source, table: Annotations, model: Aggregator, prices: dict[Any, float] | None
) -> None:
    """Print how many independent judges the panel amounts to, according to the fitted model."""
    from dissensus.questions.panel_review import review_panel

    if table.n_items < MIN_PANEL_ITEMS:
        raise TooFewPanelItems(items=table.n_items, needed=MIN_PANEL_ITEMS)
    with show.show_progress(f"fitting {source.file}"):
        found = review_panel(table, model=model.fit(table), cost=prices)
    if found is None:
        raise NoHumanLabels(is_panel=False)
    if source.json:
        source.print_json({"panel": panel_facts(found)})
        return
    _print_panel(found)
    _print_line(HumanLabelsHelp())


def _read_gold(table: Annotations, gold: Gold) -> tuple[Any, list[str] | None]:
    """Return gold as codes or numbers, and the names of the classes if judges give scores and gold has classes."""
    import numpy as np

    from dissensus.table.io import check_gold_items, gold_codes, gold_values
    from dissensus.table.kinds import parse_numbers

    if table.kind != "numbers":
        return gold.read_scoring(table), None
    if gold.gold is not None:
        item, label = gold.columns(gold.gold, table, ("gold", "label", *NUMBER_COLUMNS))
        check_gold_items(item, table)
    elif table.import_report is not None and table.import_report.gold is not None:
        item, label = table.import_report.gold
    else:
        raise NoHumanLabels(is_panel=True)
    values = label if isinstance(label, list) else label.to_pylist()
    texts = ["" if value is None else str(value) for value in values]
    names = sorted(set(texts) - {""})
    if len(names) > MAX_GOLD_CLASSES and parse_numbers(np.array(names, object)) is not None:
        return gold_values(table, item, texts), None
    empty = table.select(rows=[])
    return gold_codes(replace(empty, classes=np.array(names, object), kind="classes"), item, texts), names


def _read_columns(table: Annotations, source: Source, items: Path | None, wanted: list[str]) -> dict[str, list[Any]]:
    """Return columns of ITEMS with the values of the items (I,); without ITEMS, columns of FILE."""
    from dissensus.cli.inputs import read_table
    from dissensus.report.study import align_frame

    columns: dict[str, list[Any]]
    if items is not None:
        columns = align_frame(read_table(items), "item", table.items)
    elif table.import_report is not None and table.import_report.item_fields:  # a tool's log
        about = {str(item): fields for item, fields in table.import_report.item_fields.items()}
        names = dict.fromkeys(name for fields in about.values() for name in fields)
        columns = {name: [about.get(str(item), {}).get(name) for item in table.items.tolist()] for name in names}
    else:
        columns = _read_row_columns(table, source, wanted)
    for name in wanted:
        if name not in columns:
            raise NoSuchColumn(column=name, columns=tuple(columns)).add_subject(str(items or source.file))
    return columns


def _read_row_columns(table: Annotations, source: Source, wanted: list[str]) -> dict[str, list[Any]]:
    """Return columns of FILE: the `wanted` columns by item (I,), and columns that may bias judges by row (N,).

    Columns by row are skipped if the rows of FILE are not those of the table, for example because labels were merged.
    """
    import numpy as np

    from dissensus.cli.inputs import match_name_type, read_table
    from dissensus.report.study import align_frame
    from dissensus.table import names as naming

    columns = {} if table.import_report is None else table.import_report.columns
    of = {role: match[1] for role, name in columns.items() if (match := QUOTED_COLUMN.match(name))}
    try:
        frame = read_table(Path(source.file))
    except DissensusError:
        return {}
    if not {"item", "annotator", "label"} <= of.keys() or not {*of.values()} <= {*frame.column_names}:
        return {}
    about = frame.rename_columns(["item" if name == of["item"] else name for name in frame.column_names])
    found = align_frame(about, "item", table.items) if wanted else {}
    found = {name: found[name] for name in wanted if name in found}
    reacted = [name for name in frame.column_names if name not in {*of.values(), *wanted} and _may_bias_judges(name)]
    if not reacted or frame.num_rows != len(table):
        return found
    kinds = {"item": table.items, "annotator": table.annotators, "label": table.classes}
    codes = [
        naming.match_names(
            match_name_type(names, naming.to_names(naming.to_column(frame[of[role]], role))), names, role
        )
        for role, names in kinds.items()
    ]
    order = np.lexsort(codes[::-1])
    mine = (table.item, table.annotator, table.label)
    if all((code[order] == own).all() for code, own in zip(codes, mine, strict=True)):
        found |= {name: frame[name].take(order).to_pylist() for name in reacted}
    return found


def _may_bias_judges(column: str) -> bool:
    return any(word in column.lower() for word in EFFECT_WORDS)


def calibration_facts(found: CalibrationResult, plan: GoldPlan | None) -> dict[str, Any]:
    """Return the results as plain values."""
    return {
        "gold_items": found.n_gold,
        "items": found.items.size,
        "classes": [str(name) for name in found.classes],
        "rates": found.rows(),
        "differences": [vars(one) | {"significant": one.is_significant} for one in found.differences],
        "log_loss": found.log_loss,
        "accuracy": found.accuracy,
        "recalls": found.recalls,
        "judge_biases": found.judge_biases,
        "plan": plan,
        "panel": None if found.judges is None else panel_facts(found.judges),
        "notes": found.notes,
    }


def panel_facts(panel: PanelReview) -> dict[str, Any]:
    """Return the panel as plain values."""
    judges = zip(panel.judges, panel.families, panel.value, strict=True)
    return {
        "effective_judges": panel.effective_judges,
        "uses_gold": panel.uses_gold,
        "mean_correlation": panel.mean_correlation,
        "judges": [
            {"judge": str(name), "family": family, "lost_without": value}
            | ({} if panel.cost is None else {"cost": panel.cost[at]})
            for at, (name, family, value) in enumerate(judges)
        ],
        "similar_judges": [
            {"judges": [one, other], "correlation": r} for one, other, r in panel.most_similar_pairs(20)
        ],
        "selection": [{"judge": name, "share": share} for name, share in panel.selection],
    }


def _print_line(message: Message) -> None:
    show.print_line(show.escape(render_for_command_line(message)))


def _print_calibration(title: str, found: CalibrationResult, plan: GoldPlan | None, next_file: Path | None) -> None:
    print_message(GoldCount(n_gold=found.n_gold, items=found.items.size), show.escape(title))
    rows = []
    for one in found.rates:
        name = show.shorten(one.name) if one.system is None else f"{show.shorten(one.system)}: {show.shorten(one.name)}"
        fixed, by_errors = one.corrected, _format_number(one.rogan_gladen.value if one.rogan_gladen else float("nan"))
        rows.append(
            (
                name,
                _format_number(one.judge_rate),
                _format_estimate(fixed),
                _format_estimate(fixed.human),
                by_errors,
                f"{fixed.labels_saved:,.0f}",
            )
        )
    columns = ("rate of", "judges say", "corrected", "human labels alone", "R–G", "saved")
    show.print_table("Rates, with 95 % intervals", columns, rows, numbers=columns[1:], unbroken=columns[:1])
    print_message(RatesExplained(with_rogan_gladen=any(row[4] != "–" for row in rows)))
    _print_systems(found)
    if found.accuracy is not None and found.log_loss is not None:
        _print_line(ItemAccuracy(share=Share(found.accuracy), log_loss=found.log_loss))
    if found.judges is not None:
        _print_panel(found.judges)
        _print_judges(found, found.judges)
    clear = [effect for effect in found.judge_biases if effect.excess.low > 0 or effect.excess.high < 0]
    for effect in clear[:MAX_EFFECTS_SHOWN]:
        by, what = effect.excess, {"column": effect.column, "value": effect.value, "judge_name": effect.judge}
        _print_line(JudgeBiasFound(None, excess=by.value, low=by.low, high=by.high, **what))
    if plan is not None:
        _print_line(plan.finding())
        if plan.next_items and next_file:
            show.print_line(f"They are in {show.escape(next_file)}.")
        elif plan.next_items:
            _print_line(ItemsToLabel(items=plan.next_items))


def _print_systems(found: CalibrationResult) -> None:
    rows = [
        (
            f"{show.shorten(one.systems[0])} − {show.shorten(one.systems[1])}: {show.shorten(one.name)}",
            *(
                _format_estimate(one.corrected),
                _format_estimate(one.human),
                f"{one.n_pairs:,}" if one.n_pairs else "not paired",
            ),
        )
        for one in found.differences
    ]
    columns = ("difference", "corrected", "human labels alone", "pairs with gold")
    if rows:
        show.print_table("Systems", columns, rows, numbers=columns[1:], unbroken=columns[:1])
        print_message(SystemsExplained())


def _print_panel(panel: PanelReview) -> None:
    _print_line(panel.finding())
    if panel.selection:
        enough = next(
            n for n, (_, share) in enumerate(panel.selection, 1) if share >= 0.95 or n == len(panel.selection)
        )
        names = tuple(name for name, _ in panel.selection[:enough])
        cost = total = None
        if panel.cost is not None:
            price = dict(zip(map(str, panel.judges), panel.cost, strict=True))
            cost, total = sum(price[name] for name in names), float(panel.cost.sum())
        _print_line(JudgesNeeded(selection=names, judges=len(panel.selection), cost=cost, all_cost=total))
    if pairs := panel.significant_pairs():
        _print_line(SimilarJudges(pairs=tuple(pairs)))


def _print_judges(found: CalibrationResult, panel: PanelReview) -> None:
    names = [str(one) for one in found.classes]
    recall = {(one.judge, one.name): one.recall for one in found.recalls}
    if recall and len(names) <= 4:
        rows = [
            [show.shorten(judge), *(_format_estimate(recall.get((str(judge), name))) for name in names)]
            for judge in panel.judges[:MAX_JUDGES_SHOWN]
        ]
        if (more := panel.judges.size - MAX_JUDGES_SHOWN) > 0:
            rows.append([f"… {more:,} more", *("--json" for _ in names)])
        columns = ("judge", *(f"says {show.shorten(name)} where true" for name in names))
        show.print_table("Judges", columns, rows, numbers=columns[1:], unbroken=columns[:1])


def _format_number(value: float) -> str:
    return show.format_number(value) if value == value else "–"


def _format_estimate(one: Estimate | None) -> str:
    if one is None or one.value != one.value:
        return "–"
    return f"{show.format_number(one.value)} ({show.format_interval(one.low, one.high)})"
