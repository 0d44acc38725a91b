"""Clusters: items that are labelled alike, annotators who label alike, and what the ones say of the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.clustering.model import of_clusters
from dissensus.common.formatting import percent
from dissensus.report import charts
from dissensus.report.blocks import Block, Chart, Column, Number, Numbers, Table
from dissensus.report.section import Facts, Finding, Section, sections
from dissensus.report.study import BRIEF, Study, plain, shares

EXAMPLES = 5  # items of each cluster
MEMBERS = 50  # annotators of each cluster that are listed
SMALL = 6  # pictures of what a cluster of annotators says
MOST = 15  # classes in a picture, the most frequent


@sections.enter("clusters", title="Clusters", summary="Which items are labelled alike, and who labels alike?", place=55)
class ClustersSection(Section):
    """The search, the sizes, what each group of annotators says of each group of items."""

    def applies(self, study: Study) -> bool:
        """Where a clustering was given."""
        return study.clustering is not None

    def collect(self, study: Study) -> Facts:
        """See the class."""
        model = study.clustering
        assert model is not None
        K, L, _ = model.labels_of_clusters_.shape
        labels = of_clusters(model.params_)  # (K, P)
        share = model.prior_
        most = np.argsort(-share, kind="stable")[:MOST]
        labelled = model.labelled_
        item_sizes = np.bincount(model.item_cluster_[labelled], minlength=K)
        people = np.bincount(model.annotator_cluster_, minlength=L)
        order = np.argsort(-people, kind="stable")
        return {
            "method": study.clustering_name,
            "item_clusters": [
                {
                    "cluster": k,
                    "items": int(item_sizes[k]),
                    "labels": shares(labels[k], study.classes),
                    "examples": _examples(study, k),
                }
                for k in range(K)
            ],
            "annotator_clusters": [
                {
                    "cluster": number,
                    "annotators": int(people[number]),
                    "labels": int(model.n_annotations_[model.annotator_cluster_ == number].sum()),
                    "members": [
                        study.annotators[code] for code in np.flatnonzero(model.annotator_cluster_ == number)[:MEMBERS]
                    ],
                }
                for number in range(L)
            ],
            "classes": [study.classes[p] for p in most],
            "says": [  # [annotator cluster] → (K, classes shown), the largest first
                {"cluster": int(number), "shares": plain(np.round(model.labels_of_clusters_[:, number][:, most], 3))}
                for number in order[:SMALL]
            ],
            "search": study.search,
        }

    def findings(self, facts: Facts) -> list[Finding]:
        """How many there are."""
        items, people = facts["item_clusters"], facts["annotator_clusters"]
        text = f"Items fall into {len(items)} groups by how they are labelled"
        if len(people) > 1:
            largest = max(people, key=lambda one: one["annotators"])
            share = percent(largest["annotators"] / max(sum(one["annotators"] for one in people), 1))
            text += f", annotators into {len(people)} by how they label; the largest has {share} of them"
        return [Finding(f"{text}.")]

    def draw(self, facts: Facts) -> list[Block]:
        """Figures, the search, sizes, small multiples, tables."""
        items, people = facts["item_clusters"], facts["annotator_clusters"]
        numbers = [Number(f"{len(items)}", "clusters of items", f"by {facts['method']}")]
        if len(people) > 1:
            numbers.append(Number(f"{len(people)}", "clusters of annotators"))
        blocks: list[Block] = []
        if facts["search"] is not None:
            best = facts["search"]["best"]
            numbers.append(Number(f"{best['kl']:.3f}", "KL to the votes of development items", "nats; 0 is perfect"))
            if best["log_likelihood"] is not None:
                numbers.append(Number(f"{best['log_likelihood']:.3f}", "log-likelihood of hidden labels", "nats each"))
            blocks.append(_search(facts["search"]))
        blocks = [Numbers(numbers), *blocks, _sizes(items, "items", "Items in each cluster")]
        if len(people) > 1:
            blocks.append(_sizes(people, "annotators", "Annotators in each cluster"))
        blocks += [_says(one, facts, len(people)) for one in facts["says"]]
        text = any(example.get("texts") for one in items for example in one["examples"])
        blocks.append(
            Table(
                "item-clusters",
                "Clusters of items",
                "What a population of annotators says of the items of each cluster. Open a row for typical items.",
                [Column("cluster"), Column("items", "number"), Column("labels", "shares", note="of the cluster")],
                [[str(one["cluster"]), one["items"], one["labels"]] for one in items],
                [_typical(one["examples"], text) for one in items],
            )
        )
        if len(people) > 1:
            blocks.append(
                Table(
                    "annotator-clusters",
                    "Clusters of annotators",
                    "Open a row for its members.",
                    [
                        Column("cluster"),
                        Column("annotators", "number"),
                        Column("labels", "number", note="given by them"),
                    ],
                    [[str(one["cluster"]), one["annotators"], one["labels"]] for one in people],
                    [[_members(one)] for one in people],
                )
            )
        return blocks


def _examples(study: Study, cluster: int) -> list[dict[str, Any]]:
    """The items that are most surely of a cluster."""
    model = study.clustering
    assert model is not None
    own = np.flatnonzero((model.item_cluster_ == cluster) & model.labelled_)
    own = own[np.argsort(-model.item_clusters_[own, cluster], kind="stable")][:EXAMPLES]
    return [
        {
            "item": study.items[i],
            "probability": plain(model.item_clusters_[i, cluster], 3),
            **({"texts": study.texts(i, BRIEF)} if study.text_columns else {}),
        }
        for i in own.tolist()
    ]


def _typical(examples: list[dict[str, Any]], text: bool) -> list[dict[str, Any]]:
    rows = [
        [one["item"], percent(one["probability"]), *([" / ".join(one.get("texts", []))] if text else [])]
        for one in examples
    ]
    columns = ["item", "of this cluster", *(["text"] if text else [])]
    return [{"type": "list", "title": "Typical items", "columns": columns, "rows": rows}]


def _members(one: dict[str, Any]) -> dict[str, Any]:
    more = one["annotators"] - len(one["members"])
    names = ", ".join(one["members"]) + (f" and {more:,} more" if more > 0 else "")
    return {"type": "text", "title": "Members", "text": names or "Nobody."}


def _search(search: dict[str, Any]) -> Chart:
    alt = charts.altair()
    key = "log_likelihood" if search["criterion"] == "likelihood" else "kl"
    title = "log-likelihood of hidden labels" if key == "log_likelihood" else "KL to the votes"
    rows = [{"K": p["K"], "L": p["L"], "value": p[key], "kl": p["kl"]} for p in search["points"] if p[key] is not None]
    best = search["best"]
    base = alt.Chart(charts.data(rows))
    x = alt.X("L:O", title="clusters of annotators", axis=alt.Axis(labelAngle=0))
    y = alt.Y("K:O", title="clusters of items", sort="descending")
    heat = base.mark_rect().encode(
        x=x,
        y=y,
        color=alt.Color(
            "value:Q",
            title=title,
            scale=alt.Scale(reverse=key == "kl", zero=False),
            legend=alt.Legend(orient="top", gradientLength=140),
        ),
        tooltip=charts.tips(("K:O", "of items"), ("L:O", "of annotators"), ("value:Q", title, ".4f")),
    )
    mark = alt.Chart(charts.data([best])).mark_point(shape="cross", size=90, filled=True, color="var(--c3)")
    return Chart(
        charts.spec(heat + mark.encode(x=x, y=y), 300),
        "How many clusters",
        f"Every pair of numbers that was tried, by {title}; bright is better. The cross is what was chosen: "
        f"{best['K']} "
        f"of items and {best['L']} of annotators. Where a wide area is equally bright, the numbers matter little.",
        f"Heat map of {len(rows)} pairs of numbers of clusters; best {best['K']} and {best['L']}.",
    )


def _sizes(clusters: list[dict[str, Any]], what: str, title: str) -> Chart:
    alt = charts.altair()
    ordered = sorted(clusters, key=lambda one: -one[what])
    rows = [{"cluster": str(one["cluster"]), "count": one[what]} for one in ordered]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("count:Q", title=what, axis=charts.axis(charts.COUNT, tickCount=4)),
            y=charts.names("cluster", [row["cluster"] for row in rows]),
            tooltip=charts.tips(("cluster:N", "cluster"), ("count:Q", what, charts.COUNT)),
        )
    )
    top = ordered[0]
    share = percent(top[what] / max(sum(one[what] for one in ordered), 1))
    return Chart(
        charts.spec(chart, charts.rows_high(len(rows))),
        title,
        f"Cluster {top['cluster']} is the largest, with {share} of the {what}.",
        f"{title}: " + ", ".join(f"{row['cluster']} {row['count']:,}" for row in rows[:10]) + ".",
    )


def _says(one: dict[str, Any], facts: Facts, n: int) -> Chart:
    """What one cluster of annotators says of every cluster of items."""
    alt = charts.altair()
    classes = facts["classes"]
    rows = [
        {"cluster": str(k), "class": name, "share": share}
        for k, line in enumerate(one["shares"])
        for name, share in zip(classes, line, strict=True)
    ]
    chart = (
        alt.Chart(charts.data(rows))
        .mark_rect()
        .encode(
            x=alt.X("class:N", title=None, sort=classes, axis=alt.Axis(labelAngle=-40, labelLimit=90)),
            y=alt.Y("cluster:N", title="cluster of items", sort=[str(k) for k in range(len(one["shares"]))]),
            color=alt.Color(
                "share:Q",
                title="say so",
                scale=alt.Scale(domain=[0, 1]),
                legend=alt.Legend(format=charts.SHARE, orient="top"),
            ),
            tooltip=charts.tips(
                ("cluster:N", "items of cluster"), ("class:N", "are called"), ("share:Q", "by", charts.SHARE)
            ),
        )
    )
    people = facts["annotator_clusters"][one["cluster"]]["annotators"]
    who = f"the {people:,} annotators of cluster {one['cluster']}" if n > 1 else "annotators"
    said = max(rows, key=lambda row: row["share"])
    return Chart(
        charts.spec(chart, max(180, 16 * len(one["shares"]) + 90)),
        f"What cluster {one['cluster']} of annotators says" if n > 1 else "What annotators say",
        f"Of items of each cluster (rows), the share of each label that {who} give.",
        f"Heat map of labels by cluster of items; most alike are those of cluster {said['cluster']}, "
        f"{percent(said['share'])} {said['class']}.",
    )
