"""Competence: what LIA learnt of annotators and items: who is good at what, who errs alike, what is hard.

All numbers are the model's (Platanios et al. 2020), not gold's: mistakes are labels that its posterior thinks wrong.
"""

from __future__ import annotations

import numpy as np

from dissensus.common.formatting import percent
from dissensus.common.types import FloatArray
from dissensus.exceptions import DataError
from dissensus.report import charts, maps
from dissensus.report.blocks import ITEM_COLUMNS, VOTE_COLUMNS, Chart, Column, Number, Numbers, Table, Text
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import Study, entries, first_within, plain, shares, some_of
from dissensus.table import names as naming

MAX_ITEMS = 100  # in the table, the hardest
MAX_CHARACTERS = 300_000  # of the table
MIN_GAP = 0.1  # of competence, from which annotators are said to be better on some items than on others
MIN_LABELS = 10  # from which an annotator is named


@sections.enter("competence", title="Competence", summary="Who is good at what, and which items are hard?", place=58)
class CompetenceSection(Section):
    """A map of annotators, difficulty against disagreement, annotators by competence, the hardest items."""

    def applies(self, study: Study) -> bool:
        if getattr(study.model, "difficulty_", None) is None:
            return False
        from dissensus.learning.annotator_map import known_rows

        try:
            return bool(known_rows(study.model, study.table).any())
        except DataError:  # names of another kind: it knows nobody here
            return False

    def collect(self, study: Study) -> Facts:
        from dissensus.learning.annotator_map import annotator_map, difficulty_of, posterior_of
        from dissensus.learning.competence import WHERE, sample_size

        study.on_step("looking at competence and difficulty")
        model, table = study.model, study.table
        found = annotator_map(model, table, seed=study.seed)
        difficulty, posterior = difficulty_of(model, table), posterior_of(model, table)
        code = naming.match(table.annotators[found.annotator], model.annotators_, "annotators")
        people = maps.annotator_rows(found, study)
        for person, row in zip(people, model.competence_[code], strict=True):
            person["competence"] = {where: plain(value, 3) for where, value in zip(WHERE, row, strict=True)}
        people = [people[n] for n in np.argsort(study.annotator_place[found.annotator])]
        taught = int(model.teaches_.sum())
        labelled = np.flatnonzero((study.votes.sum(axis=1) > 0) & ~np.isnan(difficulty))
        hardest = labelled[np.argsort(-difficulty[labelled], kind="stable")[:MAX_ITEMS]]
        rows = (
            study.about_with_votes(i)
            | entries(i, difficulty=difficulty)
            | {"model": shares(posterior[i], study.classes)}
            for i in hardest.tolist()
        )
        return {
            "classes": study.classes,
            "how": found.how,
            "clusters_by": found.mistakes.by,
            "people": people,
            "of": found.of,
            "mean_competence": plain(model.competence_[code].mean(axis=0), 4),
            "sample": sample_size(taught, model.annotators_.size, model.classes_.size),
            "taught": taught,
            "difficulty": plain(difficulty[labelled].mean(), 4),
            "over_half": (difficulty[labelled] > 0.5).sum(),
            "correlation": plain(_correlation(difficulty[labelled], study.votes[labelled]), 3),
            "dots": maps.difficulty_rows(difficulty, posterior, study),
            "items": labelled.size,
            "hardest": first_within(rows, MAX_CHARACTERS),
        }

    def findings(self, facts: Facts) -> Findings:
        named = [person for person in facts["people"] if person["labels"] >= MIN_LABELS]
        if len(named) > 1:
            best, worst = (pick(named, key=lambda one: one["competence"]["all"]) for pick in (max, min))
            low, high = (percent(one["competence"]["all"]) for one in (worst, best))
            yield Finding(
                f"By LIA, annotators are right with a probability of {low} ({worst['annotator']}) to {high} "
                f"({best['annotator']}).",
                table="competence-annotators",
            )
            turned = [one for one in named if one["competence"]["hardest"] > one["competence"]["easiest"] + MIN_GAP]
            if turned:
                first = ", ".join(one["annotator"] for one in turned[:3])
                yield Finding(
                    f"{len(turned):,} of {len(named):,} annotators are right more often on what is hard for most than "
                    f"on what is easy: {first}{' …' if len(turned) > 3 else '.'}",
                    "See what they take for what: who leans to a class is right wherever others miss it.",
                    table="competence-annotators",
                )
        if facts["over_half"]:
            yield Finding(
                f"On {facts['over_half']:,} of {facts['items']:,} items an average annotator is more often wrong than "
                "right, by LIA.",
                f"Look at {facts['hardest'][0]['item']} first." if facts["hardest"] else "",
                table="competence-items" if facts["hardest"] else "",
            )

    def draw(self, facts: Facts) -> Blocks:
        people, (mean, easy, hard) = facts["people"], facts["mean_competence"]
        yield Numbers(
            [
                Number(percent(mean, 1), "right, on average", "mean competence of annotators, by the model"),
                Number(percent(easy, 1), "on the easiest quarter", "of the items"),
                Number(percent(hard, 1), "on the hardest quarter", "of the items"),
                Number(percent(facts["difficulty"], 1), "mean difficulty", "how often an average annotator errs"),
            ]
        )
        yield Text(_basis(facts))
        known = maps.CLUSTERS_BY[facts["clusters_by"]]
        for title, note, chart in maps.annotator_charts(people, facts["classes"]):
            yield Chart(
                charts.spec(chart, 260, opens=("competence-annotators", "annotator")),
                title,
                f"{note} Near each other are annotators of whom the model learnt the same ({facts['how']} of their "
                "embeddings).",
                f"Map of {len(people):,} annotators by {facts['how']}, coloured by {title.lower()}; {known}.",
            )
        if facts["dots"]:
            yield _difficulty_chart(facts)
        yield _annotator_table(facts)
        if facts["hardest"]:
            yield _item_table(facts)


def _correlation(difficulty: FloatArray, votes: FloatArray) -> float:
    """Spearman's correlation of difficulty and entropy of votes; NaN where either is constant."""
    from scipy.stats import spearmanr

    from dissensus.evaluation import entropy

    spread = entropy(votes / votes.sum(axis=1, keepdims=True))
    if min(np.unique(difficulty).size, np.unique(spread).size) < 2:
        return float("nan")
    return float(spearmanr(difficulty, spread).statistic)


def _basis(facts: Facts) -> str:
    if facts["sample"] < facts["taught"]:
        over = f"{facts['sample']:,} of the {facts['taught']:,} items, taken evenly in their order of difficulty"
    else:
        over = f"all {facts['taught']:,} items that taught the model"
    text = (
        "Competence is the probability that an annotator is right, difficulty that an average annotator is wrong, both "
        f"as the model sees them; means are over {over}. Mistakes are labels that the model thinks wrong: "
        f"{maps.CLUSTERS_BY[facts['clusters_by']]}."
    )
    return text + some_of(facts["people"], facts["of"], "annotators are here, those with the most labels.")


def _difficulty_chart(facts: Facts) -> Chart:
    rows, rho = facts["dots"], facts["correlation"]
    said = "Difficulty or the entropy of votes is the same for all items."
    if rho is not None:
        said = f"Rank correlation of difficulty and entropy: {rho:.2f}."
    colours = "whether the model's class is right" if "model" in rows[0] else "what most annotators say"
    some = some_of(rows, facts["items"], "items", "; ")
    return Chart(
        charts.spec(maps.difficulty_chart(rows), 300),
        "Difficulty and disagreement",
        f"{said} Above others of their entropy are items on which, by the model, the votes of most are less to be "
        f"believed; colours are {colours}{some}.",
        f"Difficulty against entropy of votes of {len(rows):,} items. {said}",
        wide=True,
    )


def _annotator_table(facts: Facts) -> Table:
    second = facts["classes"][-1]
    rows = sorted(facts["people"], key=lambda one: -one["competence"]["all"])
    return Table.of(
        "competence-annotators",
        "Annotators by competence",
        "How often each is right by the model, on all items and on those that are easiest and hardest for an average "
        "annotator.",
        {
            "annotator": Column("annotator"),
            "labels": Column("labels", "number"),
            "all": Column("competence", "percent", note="P(right), mean over items"),
            "easiest": Column("easiest items", "percent", note="the easiest quarter"),
            "hardest": Column("hardest items", "percent", note="the hardest quarter"),
            "error": Column("wrong", "percent", note="of the labels that were given, by the model's posterior"),
            "false_positive": Column("false positives", "percent", note=f"{second}, of what is not"),
            "false_negative": Column("false negatives", "percent", note=f"not {second}, of what is"),
            "overused": Column("over-used", note="class that is said more often than it is true"),
            "cluster": Column("cluster", note="of mistakes"),
        },
        [one | one["competence"] for one in rows],
    )


def _item_table(facts: Facts) -> Table:
    rows = facts["hardest"]
    return Table.of(
        "competence-items",
        "The hardest items",
        f"How probably an average annotator is wrong, by the model; the hardest first.{some_of(rows, facts['items'])}",
        {
            **ITEM_COLUMNS,
            "difficulty": Column("difficulty", "percent"),
            "model": Column("model", "shares", note="by the item and its labels"),
            **VOTE_COLUMNS,
        },
        rows,
        page=10,
    )
