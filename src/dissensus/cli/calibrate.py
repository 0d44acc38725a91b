"""`dissensus calibrate`: rates, systems, items and judges of a panel, corrected by some human gold."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import folder, options, show
from dissensus.cli.errors import say
from dissensus.cli.options import NUMBERS, Fit, Gold, Source, item_column, option
from dissensus.exceptions import BadParameter, DataError, DissensusError, MissingColumn

if TYPE_CHECKING:
    from dissensus.evaluation import Estimate
    from dissensus.models.base import Aggregator
    from dissensus.questions.calibrate import Calibrated, Plan
    from dissensus.questions.panel import PanelReview
    from dissensus.table.annotations import Annotations

EFFECT_WORDS = (
    "position", "order", "side", "length", "words", "tokens", "characters", "system", "model", "family", "provider",
)  # fmt: skip
"""Words in the names of columns of ITEMS or FILE that judges may react to."""
MAX_ITEMS_NAMED = 5  # to have labelled next
QUOTED = re.compile(r"'([^']*)'")  # a column in the account of a reading
MIN_PANEL_ITEMS = 50  # from which on errors in common are spoken of without human labels, as in the report
MAX_JUDGES_SHOWN = 12
MAX_EFFECTS_SHOWN = 10
MAX_GOLD_CLASSES = 2  # different numbers of gold that are still taken for classes, beside scores


@dataclass(frozen=True)
class HumanGold(Gold):
    """Gold that corrects."""

    gold: Path | None = option(None, "Human labels of items that were drawn at random.", metavar="GOLD")
    gold_probability: str | None = option(
        None, "GOLD's column of the probability with which an item was drawn.", metavar="COLUMN"
    )

    def probabilities(self, table: Annotations) -> list[Any] | None:
        """(I,) of the column named, if any."""
        from dissensus.cli.inputs import read_table
        from dissensus.report.study import aligned

        name = self.gold_probability
        if name is None or self.gold is None:
            return None
        frame = read_table(self.gold)
        if name not in frame.column_names:
            raise MissingColumn(f"{self.gold}: no column {name!r}; there are {', '.join(frame.column_names)}.")
        if (item := self.gold_item or item_column(table, self.gold)) is not None:
            frame = frame.select([item, name]).rename_columns(["item", name])
        try:
            return [
                float("nan") if one in (None, "") else float(one) for one in aligned(frame, "item", table.items)[name]
            ]
        except (TypeError, ValueError) as error:
            raise DataError(f"{self.gold}: column {name!r} must hold numbers: {error}.") from None


def calibrate(
    *,
    output: Path | None = options.OUTPUT_FILE,
    gold: HumanGold,
    width: float | None = option(
        None, "Say how many more gold labels make every interval as narrow as this, such as 0.05."
    ),
    next_file: Path | None = option(
        None, "Write the items to have labelled next, for --width.", "--next", metavar="FILE"
    ),
    items: Path | None = options.ITEMS,
    system: str | None = option(
        None,
        "Column of ITEMS (or FILE) with the system that an item is an answer of: their differences.",
        metavar="COLUMN",
    ),
    prompt: str | None = option(None, "Column of what was answered: differences are paired by it.", metavar="COLUMN"),
    cost: Path | None = option(None, "Prices of calls, to buy judges by: columns annotator and cost.", metavar="FILE"),
    fit: Fit,
    seed: int | None = options.SEED,
    source: Source,
) -> None:
    """Without human labels: what the panel is worth. With them: the rate of every class (or the mean score) with an
    interval that is valid whatever the judges do, as long as the gold items were drawn at random (prediction-powered
    inference). Beside it the human labels alone and Rogan and Gladen's estimate; then what the panel is worth and how
    good each judge is. OUT gets one row per item: label, confidence and probabilities that learnt from gold, of gold
    items by a fit that has not seen them.

    Example: dissensus calibrate verdicts.csv --gold human.csv -o items.csv

    Example: dissensus calibrate verdicts.csv --gold human.csv --items answers.csv --system model --prompt prompt

    Example: dissensus calibrate verdicts.csv --gold human.csv --width 0.05 --next next.csv
    """
    folder.check_file(output, "items")
    folder.check_file(next_file, "items", "--next")
    if next_file is not None and width is None:
        raise BadParameter("--next writes the items that --width asks for; give --width NUMBER too.")
    from dissensus.questions.calibrate import KINDS_CORRECTED, enough
    from dissensus.table.kinds import check_kind

    table = source.read_one()
    check_kind(table.kind, KINDS_CORRECTED, "dissensus calibrate")
    if gold.gold_probability is not None and gold.gold is None:
        raise BadParameter("--gold-probability names a column of GOLD; give that file: --gold FILE.")
    known, classes = _gold(table, gold)
    from dissensus.cli.inputs import read_prices

    prices = None if cost is None else read_prices(cost, table.annotators)
    if known is None or (gold.gold is None and not enough(known)):  # a log may hold a few known labels
        if output is not None:
            raise BadParameter("-o keeps items that learnt from human labels; give some with --gold FILE.")
        _without_gold(source, table, fit.model(), prices)
        return
    from dissensus.questions.calibrate import calibrate

    columns = _columns(table, source, items, [name for name in (system, prompt) if name is not None])
    model = None
    if table.kind != "numbers":
        with show.waiting(f"fitting {source.file}"):
            model = fit.model().fit(table)
    others = [name for name in columns if name != prompt and _may_matter(name)]
    with show.waiting(f"correcting {source.file}"):
        found = calibrate(
            table, known, classes=classes, model=model, seed=seed or 0,
            probability=gold.probabilities(table), cost=prices,
            systems=None if system is None else columns[system], prompts=None if prompt is None else columns[prompt],
            columns={name: columns[name] for name in others},
        )  # fmt: skip
    plan = None if width is None else found.plan(width)
    for note in found.notes:
        say(f"warning: {note}")
    if output is not None:
        folder.write_file(found.to_frame(), output)
    if plan is not None and next_file is not None:
        folder.write_file({"item": list(plan.more)}, next_file)
    if source.json:
        head = show.paths(gold_file=gold.gold, next_file=next_file)
        source.print_json(head | facts(found, plan), output=output)
        return
    _show(source.title(None), found, plan, next_file)
    if output is not None or next_file is None:
        show.written(output, "Items are", "FILE to keep the items")


def _without_gold(source: Source, table: Annotations, model: Aggregator, prices: dict[Any, float] | None) -> None:
    """What the panel is worth by its own posterior."""
    from dissensus.questions.panel import review_panel

    if table.n_items < MIN_PANEL_ITEMS:
        raise DataError(
            f"{table.n_items} items are too few to say what judges are worth without human labels; have "
            f"{MIN_PANEL_ITEMS} or more."
        )
    with show.waiting(f"fitting {source.file}"):
        found = review_panel(table, model=model.fit(table), cost=prices)
    if found is None:
        panel = "this is no panel whose judges differ"
        raise BadParameter(f"there are no human labels to correct by, and {panel}; give some with --gold FILE.")
    if source.json:
        source.print_json({"panel": panel_facts(found)})
        return
    _show_panel(found)
    show.line("Human labels of 50 items, drawn at random, correct what the panel says: --gold FILE.")


def _gold(table: Annotations, gold: Gold) -> tuple[Any, list[str] | None]:
    """Codes of known classes, or known numbers; beside scores, the names of the classes."""
    import numpy as np

    from dissensus.table.io import check_gold_items, gold_codes, gold_values
    from dissensus.table.kinds import numbers_of

    if table.kind != "numbers":
        return gold.read(table), None
    if gold.gold is not None:
        item, label = gold.columns(gold.gold, table, ("gold", "label", *NUMBERS))
        check_gold_items(item, table)
    elif table.source is not None and table.source.gold is not None:
        item, label = table.source.gold
    else:
        raise BadParameter("there are no human labels to correct by; give some with --gold FILE.")
    said = label if isinstance(label, list) else label.to_pylist()
    texts = ["" if value is None else str(value) for value in said]
    names = sorted(set(texts) - {""})
    if len(names) > MAX_GOLD_CLASSES and numbers_of(np.array(names, object)) is not None:
        return gold_values(table, item, texts), None
    empty = table.select(rows=[])
    return gold_codes(replace(empty, classes=np.array(names, object), kind="classes"), item, texts), names


def _columns(table: Annotations, source: Source, items: Path | None, wanted: list[str]) -> dict[str, list[Any]]:
    """Column → what ITEMS, or FILE where none is named, says of the items (I,); of FILE also of its rows (N,)."""
    from dissensus.cli.inputs import read_table
    from dissensus.report.study import aligned

    found: dict[str, list[Any]]
    if items is not None:
        found = aligned(read_table(items), "item", table.items)
    elif table.source is not None and table.source.texts:  # a tool's log
        about = {str(item): fields for item, fields in table.source.texts.items()}
        names = dict.fromkeys(name for fields in about.values() for name in fields)
        found = {name: [about.get(str(item), {}).get(name) for item in table.items.tolist()] for name in names}
    else:
        found = _columns_of_rows(table, source, wanted)
    for name in wanted:
        if name not in found:
            raise MissingColumn(f"{items or source.file}: no column {name!r}; there are {', '.join(found) or 'none'}.")
    return found


def _columns_of_rows(table: Annotations, source: Source, wanted: list[str]) -> dict[str, list[Any]]:
    """Columns of FILE: those wanted as they are of the items, others that judges may react to as they are of its rows.

    The latter are left out where rows of FILE and table cannot be told to be the same, such as labels put together.
    """
    import numpy as np

    from dissensus.cli.inputs import in_kind_of, read_table
    from dissensus.report.study import aligned
    from dissensus.table import names as naming

    columns = {} if table.source is None else table.source.columns
    of = {role: match[1] for role, name in columns.items() if (match := QUOTED.match(name))}
    try:
        frame = read_table(Path(source.file))
    except DissensusError:
        return {}
    if not {"item", "annotator", "label"} <= of.keys() or not {*of.values()} <= {*frame.column_names}:
        return {}
    about = frame.rename_columns(["item" if name == of["item"] else name for name in frame.column_names])
    found = aligned(about, "item", table.items) if wanted else {}
    found = {name: found[name] for name in wanted if name in found}
    reacted = [name for name in frame.column_names if name not in {*of.values(), *wanted} and _may_matter(name)]
    if not reacted or frame.num_rows != len(table):
        return found
    kinds = {"item": table.items, "annotator": table.annotators, "label": table.classes}
    codes = [
        naming.match(in_kind_of(names, naming.to_names(naming.to_column(frame[of[role]], role))), names, role)
        for role, names in kinds.items()
    ]
    order = np.lexsort(codes[::-1])
    mine = (table.item, table.annotator, table.label)
    if all((code[order] == own).all() for code, own in zip(codes, mine, strict=True)):
        found |= {name: frame[name].take(order).to_pylist() for name in reacted}
    return found


def _may_matter(column: str) -> bool:
    return any(word in column.lower() for word in EFFECT_WORDS)


def facts(found: Calibrated, plan: Plan | None) -> dict[str, Any]:
    """All that was found, as plain values."""
    return {
        "gold_items": found.known,
        "items": found.items.size,
        "classes": [str(name) for name in found.classes],
        "rates": found.rows(),
        "differences": [vars(one) | {"different": one.different} for one in found.differences],
        "log_loss": found.log_loss,
        "accuracy": found.accuracy,
        "recalls": found.recalls,
        "effects": found.effects,
        "plan": plan,
        "panel": None if found.judges is None else panel_facts(found.judges),
        "notes": found.notes,
    }


def panel_facts(panel: PanelReview) -> dict[str, Any]:
    """The panel, as plain values."""
    judges = zip(panel.judges, panel.families, panel.value, strict=True)
    return {
        "effective_judges": panel.effective,
        "by_gold": panel.by_gold,
        "mean_correlation": panel.mean_correlation,
        "judges": [
            {"judge": str(name), "family": family, "lost_without": value}
            | ({} if panel.cost is None else {"cost": panel.cost[at]})
            for at, (name, family, value) in enumerate(judges)
        ],
        "alike": [{"judges": [one, other], "correlation": r} for one, other, r in panel.alike(20)],
        "kept": [{"judge": name, "share": share} for name, share in panel.kept],
    }


def _show(title: str, found: Calibrated, plan: Plan | None, next_file: Path | None) -> None:
    show.line(f"{show.clean(title)}: {found.known:,} of {found.items.size:,} items have human labels.")
    rows = []
    for one in found.rates:
        name = show.name(one.name) if one.system is None else f"{show.name(one.system)}: {show.name(one.name)}"
        fixed, beside = one.corrected, one.rogan_gladen
        judged, by_errors = map(_number, (one.judged, float("nan") if beside is None else beside.value))
        rows.append((name, judged, _cell(fixed), _cell(fixed.human), by_errors, f"{fixed.saved:,.0f}"))
    columns = ("rate of", "judges say", "corrected", "human labels alone", "R–G", "saved")
    show.table("Rates, with 95 % intervals", columns, rows, numbers=columns[1:], unbroken=columns[:1])
    by_errors = "R–G: by sensitivity and specificity (Rogan–Gladen). " if any(row[4] != "–" for row in rows) else ""
    show.text(f"{by_errors}Saved: human labels that the judges stand for.")
    _show_systems(found)
    if found.accuracy is not None and found.log_loss is not None:
        show.line(
            f"Items: {show.percent(found.accuracy)} of the gold items get the right label from fits that have not seen "
            f"them; log loss {found.log_loss:.3f}."
        )
    if found.judges is not None:
        _show_panel(found.judges)
        _show_judges(found, found.judges)
    clear = [effect for effect in found.effects if effect.excess.low > 0 or effect.excess.high < 0]
    for effect in clear[:MAX_EFFECTS_SHOWN]:
        whose = f"{show.name(effect.judge)}, its own family"
        what = whose if effect.judge else show.name(effect.value) or "one SD more"
        by = f"{effect.excess.value:+.3f} ({show.interval(effect.excess.low, effect.excess.high)})"
        show.line(f"Beyond the truth, {show.name(effect.column)} ({what}) changes the verdict by {by}.")
    if plan is not None:
        show.line(str(plan))
        if (more := plan.more) and next_file:
            show.line(f"They are in {show.clean(next_file)}.")
        elif more:
            named = ", ".join(show.name(one) for one in more[:MAX_ITEMS_NAMED]) + ", …" * (len(more) > MAX_ITEMS_NAMED)
            show.line(f"They are {named}; --next FILE keeps them.")


def _show_systems(found: Calibrated) -> None:
    rows = [
        (
            f"{show.name(one.systems[0])} − {show.name(one.systems[1])}: {show.name(one.name)}",
            *(_cell(one.corrected), _cell(one.human), f"{one.pairs:,}" if one.pairs else "not paired"),
        )
        for one in found.differences
    ]
    columns = ("difference", "corrected", "human labels alone", "pairs with gold")
    if rows:
        show.table("Systems", columns, rows, numbers=columns[1:], unbroken=columns[:1])
        show.text("Two systems differ where the corrected interval leaves out 0.")


def _show_panel(panel: PanelReview) -> None:
    show.line(str(panel))
    if panel.kept:
        enough = next(n for n, (_, share) in enumerate(panel.kept, 1) if share >= 0.95 or n == len(panel.kept))
        names = ", ".join(show.name(name) for name, _ in panel.kept[:enough])
        by = ""
        if panel.cost is not None:
            price = dict(zip(map(str, panel.judges), panel.cost, strict=True))
            spent = sum(price[name] for name, _ in panel.kept[:enough])
            by = f", for {spent:g} an item instead of {panel.cost.sum():g}"
        show.line(f"95 % of the panel's answer is kept by {enough} of {len(panel.kept)} judges{by}: {names}.")
    if found := panel.tested():
        pairs = "; ".join(f"{show.name(one)} and {show.name(other)} {r:.2f}" for one, other, r in found)
        show.line(f"Errors alike beyond chance (correlation): {pairs}.")


def _show_judges(found: Calibrated, panel: PanelReview) -> None:
    names = [str(one) for one in found.classes]
    recall = {(one.judge, one.name): one.recall for one in found.recalls}
    if recall and len(names) <= 4:
        rows = [
            [show.name(judge), *(_cell(recall.get((str(judge), name))) for name in names)]
            for judge in panel.judges[:MAX_JUDGES_SHOWN]
        ]
        if (more := panel.judges.size - MAX_JUDGES_SHOWN) > 0:
            rows.append([f"… {more:,} more", *("--json" for _ in names)])
        columns = ("judge", *(f"says {show.name(name)} where true" for name in names))
        show.table("Judges", columns, rows, numbers=columns[1:], unbroken=columns[:1])


def _number(value: float) -> str:
    return show.number(value) if value == value else "–"


def _cell(one: Estimate | None) -> str:
    if one is None or one.value != one.value:
        return "–"
    return f"{show.number(one.value)} ({show.interval(one.low, one.high)})"
