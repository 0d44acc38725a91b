"""Competence: what LIA learnt of annotators and items: who is good at what, who errs alike, what is hard.

Everything is the model's word (Platanios et al. 2020), not gold's: mistakes are labels that its posterior thinks wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.formatting import percent
from dissensus.common.types import FloatArray
from dissensus.exceptions import DataError
from dissensus.report import charts, lia_charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import BRIEF, Study, plain, shares, within
from dissensus.table import names as naming

MOST = 100  # items in the table, the hardest
SIZE = 300_000  # characters of them
APART = 0.1  # competence by which annotators are said to be better on some items than on others
FEWEST = 10  # labels from which an annotator is named


@sections.enter("competence", title="Competence", summary="Who is good at what, and which items are hard?", place=58)
class CompetenceSection(Section):
    """A map of annotators, difficulty against disagreement, annotators by competence, the hardest items."""

    def applies(self, study: Study) -> bool:
        """Where the model is a LIA, of annotators and items of this table."""
        if getattr(study.model, "difficulty_", None) is None:
            return False
        from dissensus.learning.annotator_map import known_rows

        try:
            return bool(known_rows(study.model, study.table).any())
        except DataError:  # names of another kind: it knows nobody here
            return False

    def collect(self, study: Study) -> Facts:
        """See the class."""
        from dissensus.learning.annotator_map import annotator_map, difficulty_of, posterior_of
        from dissensus.learning.competence import WHERE, sample_size

        study.on_step("looking at competence and difficulty")
        model, table = study.model, study.table
        found = annotator_map(model, table, seed=study.seed)
        difficulty, posterior = difficulty_of(model, table), posterior_of(model, table)
        code = naming.match(table.annotators[found.annotator], model.annotators_, "annotators")
        people = lia_charts.map_rows(found, study.annotators, study.classes)
        for person, row in zip(people, model.competence_[code], strict=True):
            person["competence"] = {where: plain(value, 3) for where, value in zip(WHERE, row, strict=True)}
        taught = int(model.teaches_.sum())
        labelled = (study.votes.sum(axis=1) > 0) & ~np.isnan(difficulty)
        return {
            "classes": study.classes,
            "how": found.how,
            "clusters_by": found.mistakes.by,
            "people": people,
            "of": found.of,
            "mean_competence": [plain(value, 4) for value in model.competence_[code].mean(axis=0)],
            "sample": sample_size(taught, model.annotators_.size, model.classes_.size),
            "taught": taught,
            "difficulty": plain(difficulty[labelled].mean(), 4),
            "over_half": int((difficulty[labelled] > 0.5).sum()),
            "correlation": plain(_correlation(difficulty, study, labelled), 3),
            "dots": lia_charts.difficulty_rows(difficulty, posterior, table, study.items, study.classes, study.gold),
            "items": int(labelled.sum()),
            "hardest": _hardest(study, difficulty, posterior, labelled),
            "columns": {
                "picture": study.picture_column is not None,
                "text": bool(study.text_columns),
                "gold": study.gold is not None,
            },
        }

    def findings(self, facts: Facts) -> list[Finding]:
        """Who is best and worst, whether anyone is better on hard items, what is hardest."""
        result = []
        named = [person for person in facts["people"] if person["labels"] >= FEWEST]
        if len(named) > 1:
            best, worst = (pick(named, key=lambda one: one["competence"]["all"]) for pick in (max, min))
            low, high = (percent(one["competence"]["all"]) for one in (worst, best))
            result.append(
                Finding(
                    f"By LIA, annotators are right with a probability of {low} ({worst['annotator']}) to {high} "
                    f"({best['annotator']}).",
                    table="competence-annotators",
                )
            )
            turned = [one for one in named if one["competence"]["hardest"] > one["competence"]["easiest"] + APART]
            if turned:
                first = ", ".join(one["annotator"] for one in turned[:3])
                result.append(
                    Finding(
                        f"{len(turned):,} of {len(named):,} annotators are right more often on what is hard for most "
                        f"than on what is easy: {first}{' …' if len(turned) > 3 else '.'}",
                        "See what they take for what: who leans to a class is right wherever others miss it.",
                        table="competence-annotators",
                    )
                )
        if facts["over_half"]:
            result.append(
                Finding(
                    f"On {facts['over_half']:,} of {facts['items']:,} items an average annotator is more often wrong "
                    "than right, by LIA.",
                    f"Look at {facts['hardest'][0]['item']} first." if facts["hardest"] else "",
                    table="competence-items" if facts["hardest"] else "",
                )
            )
        return result

    def draw(self, facts: Facts) -> list[Block]:
        """Figures, the map, difficulty, annotators, items."""
        people, (mean, easy, hard) = facts["people"], facts["mean_competence"]
        blocks: list[Block] = [
            Numbers(
                [
                    Number(percent(mean, 1), "right, on average", "mean competence of annotators, by the model"),
                    Number(percent(easy, 1), "on the easiest quarter", "of the items"),
                    Number(percent(hard, 1), "on the hardest quarter", "of the items"),
                    Number(percent(facts["difficulty"], 1), "mean difficulty", "how often an average annotator errs"),
                ]
            ),
            Text(_basis(facts)),
        ]
        known = f"{lia_charts.clusters_by(facts['clusters_by'])}"
        for title, note, chart in lia_charts.panels(people, facts["classes"]):
            blocks.append(
                Chart(
                    charts.spec(chart, 260, opens=("competence-annotators", "annotator")),
                    title,
                    f"{note} Near each other are annotators of whom the model learnt the same ({facts['how']} of their "
                    "embeddings).",
                    f"Map of {len(people):,} annotators by {facts['how']}, coloured by {title.lower()}; {known}.",
                )
            )
        if facts["dots"]:
            blocks.append(_difficulty(facts))
        blocks.append(_people(facts))
        if facts["hardest"]:
            blocks.append(_items(facts))
        return blocks


def _correlation(difficulty: FloatArray, study: Study, labelled: Any) -> float:
    """Spearman's, of difficulty and entropy of votes; NaN where either is constant."""
    from scipy.stats import rankdata

    from dissensus.evaluation import entropy

    votes = study.votes[labelled]
    ranks = [rankdata(one) for one in (difficulty[labelled], entropy(votes / votes.sum(axis=1, keepdims=True)))]
    apart = [one - one.mean() for one in ranks]
    scale = np.sqrt((apart[0] ** 2).sum() * (apart[1] ** 2).sum())
    return float((apart[0] * apart[1]).sum() / scale) if scale > 0 else float("nan")


def _hardest(study: Study, difficulty: FloatArray, posterior: FloatArray, labelled: Any) -> list[dict[str, Any]]:
    there = np.flatnonzero(labelled)
    order = there[np.argsort(-difficulty[there], kind="stable")[:MOST]]

    def about(i: int) -> dict[str, Any]:
        return {
            "item": study.items[i],
            **({"picture": study.picture(i)} if study.picture_column else {}),
            **({"texts": study.texts(i, BRIEF)} if study.text_columns else {}),
            "difficulty": plain(difficulty[i], 3),
            "model": shares(posterior[i], study.classes),
            "votes": shares(study.votes[i], study.classes),
            "labels": int(study.labels_per_item[i]),
            **({"gold": study.classes[g] if (g := study.gold[i]) >= 0 else None} if study.gold is not None else {}),
        }

    return within((about(i) for i in order.tolist()), SIZE)


def _basis(facts: Facts) -> str:
    """What the figures rest on, in words."""
    if facts["sample"] < facts["taught"]:
        over = f"{facts['sample']:,} of the {facts['taught']:,} items, taken evenly in their order of difficulty"
    else:
        over = f"all {facts['taught']:,} items that taught the model"
    text = (
        "Competence is the probability that an annotator is right, difficulty that an average annotator is wrong, both "
        f"as the model sees them; means are over {over}. Mistakes are labels that the model thinks wrong: "
        f"{lia_charts.clusters_by(facts['clusters_by'])}."
    )
    if len(facts["people"]) < facts["of"]:
        text += f" {len(facts['people']):,} of {facts['of']:,} annotators are here, those with the most labels."
    return text


def _difficulty(facts: Facts) -> Chart:
    rows, rho = facts["dots"], facts["correlation"]
    said = "Difficulty or the entropy of votes is the same for all items."
    if rho is not None:
        said = f"Rank correlation of difficulty and entropy: {rho:.2f}."
    colours = "whether the model's class is right" if "model" in rows[0] else "what most annotators say"
    some = f"; {len(rows):,} of {facts['items']:,} items" if len(rows) < facts["items"] else ""
    return Chart(
        charts.spec(lia_charts.difficulty_chart(rows), 300),
        "Difficulty and disagreement",
        f"{said} Above others of their entropy are items on which, by the model, the votes of most are less to be "
        f"believed; colours are {colours}{some}.",
        f"Difficulty against entropy of votes of {len(rows):,} items. {said}",
        wide=True,
    )


def _people(facts: Facts) -> Table:
    two = len(facts["classes"]) == 2
    return Table(
        "competence-annotators",
        "Annotators by competence",
        "How often each is right by the model, on all items and on those that are easiest and hardest for an average "
        "annotator.",
        [
            Column("annotator"),
            Column("labels", "number"),
            Column("competence", "percent", note="P(right), mean over items"),
            Column("easiest items", "percent", note="the easiest quarter"),
            Column("hardest items", "percent", note="the hardest quarter"),
            Column("wrong", "percent", note="of the labels that were given, by the model's posterior"),
            *(
                [
                    Column("false positives", "percent", note=f"{facts['classes'][1]}, of what is not"),
                    Column("false negatives", "percent", note=f"not {facts['classes'][1]}, of what is"),
                ]
                if two
                else [Column("over-used", note="class that is said more often than it is true")]
            ),
            Column("cluster", note="of mistakes"),
        ],
        [
            [
                one["annotator"],
                one["labels"],
                *(one["competence"][where] for where in ("all", "easiest", "hardest")),
                one["error"],
                *([one["false_positive"], one["false_negative"]] if two else [one["overused"]]),
                one["cluster"],
            ]
            for one in sorted(facts["people"], key=lambda one: -one["competence"]["all"])
        ],
    )


def _items(facts: Facts) -> Table:
    has, rows = facts["columns"], facts["hardest"]
    cut = f" {len(rows):,} of {facts['items']:,} are here." if len(rows) < facts["items"] else ""
    return Table(
        "competence-items",
        "The hardest items",
        f"How probably an average annotator is wrong, by the model; the hardest first.{cut}",
        [
            Column("item"),
            *([Column("picture", "picture")] if has["picture"] else []),
            *([Column("text", "long")] if has["text"] else []),
            Column("difficulty", "percent"),
            Column("model", "shares", note="by the item and its labels"),
            Column("votes", "shares", note="what annotators said"),
            Column("labels", "number"),
            *([Column("gold")] if has["gold"] else []),
        ],
        [
            [
                one["item"],
                *([one["picture"]] if has["picture"] else []),
                *([one["texts"]] if has["text"] else []),
                one["difficulty"],
                one["model"],
                one["votes"],
                one["labels"],
                *([one["gold"] or ""] if has["gold"] else []),
            ]
            for one in rows
        ],
        page=10,
    )
