"""`dissensus diagnose`: annotators to look at, with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import folder, options, show
from dissensus.cli.options import Source

if TYPE_CHECKING:
    from dissensus.questions.diagnose import Diagnosis
    from dissensus.questions.habits import Habits
    from dissensus.table.annotations import Annotations

MAX_FLAGGED_SHOWN = 20  # annotators
ITEMS_SHOWN, ITEMS_NAMED = 5, 20  # items whose labels differ most: for people, in JSON


def diagnose(*, output: Path | None = options.OUTPUT_FILE, source: Source) -> None:
    """Somebody is named where at most 1 % of honest people with the same items would answer like that: answers that do
    not depend on the item, that go against what the others say, or that are copied; of grades and numbers also those
    that are higher or lower, of comparisons those for one side, of sets and spans those that mark more or fewer. OUT
    gets one row per annotator: labels, the probability of being honest and of either kind, the share that is copied
    (of other kinds than classes: every trait and its p-value), flags and reasons.

    Example: dissensus diagnose labels.csv -o annotators.csv
    """
    folder.check_file(output, "annotators")
    tables = source.read(output=output)

    def answer(table: Annotations, question: str | None) -> Diagnosis | Habits:
        from dissensus.questions.diagnose import diagnose

        with show.waiting(f"looking at the annotators of {source.title(question)}"):
            return diagnose(table)

    kept = ("All annotators are", "FILE to keep the measures of all annotators")
    source.print_each(options.answer_each(tables, answer), _show, flagged, output=output, kept=kept)


def _show(title: str, found: Diagnosis | Habits) -> None:
    about = flagged(found)
    n = len(about["annotators"])
    nobody = "nobody is named yet" if found.unsettled else "nobody stands out"
    some = nobody if n == 0 else f"{n:,} {'stands' if n == 1 else 'stand'} out"
    show.line(f"{show.clean(title)}: of {show.count(found.active_annotators, 'annotator')} {some}.")
    print_flags(found, about)
    if rows := [(show.name(one["item"]), show.number(one["apart"])) for one in about.get("contested_items", ())]:
        show.table("Items whose labels differ most", ("item", "apart"), rows[:ITEMS_SHOWN], numbers=("apart",))


def flagged(found: Diagnosis | Habits) -> dict[str, Any]:
    """Flags for the summary; those with too few labels are only counted."""
    named = {
        str(name): {"flags": list(flags), "reasons": reasons}
        for name, flags, reasons in zip(found.annotators, found.flags, found.reasons, strict=True)
        if flags
    }
    about = {
        "active_annotators": found.active_annotators,
        "annotators": named,
        "too_few_labels": found.too_few_labels,
        "copying_groups": [[str(name) for name in group] for group in found.groups],
        "unsettled": found.unsettled,
    }
    if hasattr(found, "most_contested"):
        items = found.most_contested(ITEMS_NAMED)
        about["contested_items"] = [{"item": str(item), "apart": apart} for item, apart in items]
    return about


def print_flags(found: Diagnosis | Habits, about: dict[str, Any]) -> None:
    """Name those who are flagged and count those with too few labels; `about` is what `flagged` returns."""
    from dissensus.questions.diagnose import FLAG_WORDS, too_few_sentence
    from dissensus.questions.habits import FLAG_WORDS as HABIT_WORDS

    words = FLAG_WORDS | HABIT_WORDS
    active = found.active_annotators
    rows = [
        (show.name(name), ", ".join(words[flag] for flag in one["flags"]), show.clean(one["reasons"]))
        for name, one in about["annotators"].items()
    ]
    if (others := len(rows) - MAX_FLAGGED_SHOWN) > 0:
        rows[MAX_FLAGGED_SHOWN:] = [(f"… {others:,} more", "", "with -o and --json")]
    if rows:
        show.table("Annotators to look at", ("annotator", "answers", "why"), rows)
    if found.unsettled:
        show.text(
            "Nobody is named before the spelling of the classes is settled: say --normalize, or --map OLD=NEW, and "
            "run this again."
        )
    if few := about["too_few_labels"]:
        show.text(too_few_sentence(few, active))
