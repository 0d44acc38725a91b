"""Clusters: items that get similar labels, annotators who give similar labels, and these labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.clustering.base import clusterings
from dissensus.clustering.model import population_labels
from dissensus.common.formatting import Share, format_count, format_percent
from dissensus.report import charts
from dissensus.report.blocks import ChartBlock, KeyFigure, KeyFigures, TableBlock, TableColumn, make_detail_list
from dissensus.report.section import Blocks, Facts, Finding, Findings, Section, sections
from dissensus.report.study import Study, extract_entry, list_largest_shares

MAX_TYPICAL_ITEMS = 5  # typical items of each cluster
MAX_LISTED_MEMBERS = 50  # listed annotators of each cluster
MAX_LABEL_CHARTS = 6  # clusters of annotators with a chart
MAX_CHART_CLASSES = 15  # most frequent classes in a chart


class ItemClusters(Finding):
    template = "The items form {items} clusters with similar labels."
    items: int


class JointClusters(Finding):
    template = (
        "The items form {items} clusters with similar labels. The annotators form {annotators} clusters, the largest "
        "with {largest:0} of them."
    )
    items: int
    annotators: int
    largest: Share


@sections.register(
    "clusters", title="Clusters", summary="Which items get similar labels, and which annotators give them?", place=55
)
class ClustersSection(Section):
    """Show the search, the sizes, and the labels that each cluster of annotators gives to each cluster of items."""

    needs = ("clustering",)

    def collect(self, study: Study) -> Facts:
        model = study.clustering
        assert model is not None
        K, L, _ = model.labels_of_clusters_.shape
        labels = population_labels(model.params_)  # (K, P)
        most = np.argsort(-model.prior_, kind="stable")[:MAX_CHART_CLASSES]
        n_items = np.bincount(model.item_cluster_[model.labelled_], minlength=K)
        by_name = np.argsort(study.annotator_rank)
        members = [by_name[model.annotator_cluster_[by_name] == number] for number in range(L)]
        largest = np.argsort([-one.size for one in members], kind="stable")
        return {
            "method": clusterings.get_name(type(model)),
            "item_clusters": [
                {
                    "cluster": k,
                    "items": n,
                    "labels": list_largest_shares(labels[k], study.classes),
                    "examples": _find_typical_items(study, k),
                }
                for k, n in enumerate(n_items)
            ],
            "annotator_clusters": [
                {
                    "cluster": number,
                    "annotators": own.size,
                    "labels": model.n_annotations_[own].sum(),
                    "members": [study.annotator_names[code] for code in own[:MAX_LISTED_MEMBERS]],
                }
                for number, own in enumerate(members)
            ],
            "classes": [study.classes[p] for p in most],
            "says": [  # (K, classes shown) of the largest clusters of annotators
                {"cluster": number, "shares": np.round(model.labels_of_clusters_[:, number][:, most], 3)}
                for number in largest[:MAX_LABEL_CHARTS]
            ],
            "search": study.search,
        }

    def findings(self, facts: Facts) -> Findings:
        items, sizes = len(facts["item_clusters"]), [one["annotators"] for one in facts["annotator_clusters"]]
        if len(sizes) > 1:
            largest = Share(max(sizes) / max(sum(sizes), 1))
            yield JointClusters(items=items, annotators=len(sizes), largest=largest)
        else:
            yield ItemClusters(items=items)

    def draw(self, facts: Facts) -> Blocks:
        items, people, search = facts["item_clusters"], facts["annotator_clusters"], facts["search"]
        numbers = [KeyFigure(f"{len(items)}", "clusters of items", f"by {facts['method']}")]
        if len(people) > 1:
            numbers.append(KeyFigure(f"{len(people)}", "clusters of annotators"))
        if search is not None:
            kl, likelihood = search["best"]["kl"], search["best"]["log_likelihood"]
            numbers.append(
                KeyFigure(f"{kl:.3f}", "divergence from the labels of development items", "KL in nats; 0: perfect")
            )
            if likelihood is not None:
                numbers.append(KeyFigure(f"{likelihood:.3f}", "log-likelihood of hidden labels", "nats per label"))
        yield KeyFigures(numbers)
        if search is not None:
            yield _make_search_chart(search)
        yield _make_size_chart(items, "items", "Items in each cluster")
        if len(people) > 1:
            yield _make_size_chart(people, "annotators", "Annotators in each cluster")
        for one in facts["says"]:
            yield _make_labels_chart(one, facts)
        text = any(example.get("texts") for one in items for example in one["examples"])
        yield _make_cluster_table(
            "item",
            "Distribution of the labels that annotators give to the items of each cluster. Open a row for typical "
            "items.",
            {"items": TableColumn("items", "number"), "labels": TableColumn("labels", "shares", note="of the cluster")},
            items,
            [[_make_typical_item_details(one["examples"], text)] for one in items],
        )
        if len(people) > 1:
            members = []
            for one in people:
                more = one["annotators"] - len(one["members"])
                names = ", ".join(one["members"]) + (f" and {more:,} more" if more > 0 else "")
                members.append([{"type": "text", "title": "Members", "text": names or "No members."}])
            yield _make_cluster_table(
                "annotator",
                "Open a row for the annotators of a cluster.",
                {
                    "annotators": TableColumn("annotators", "number"),
                    "labels": TableColumn("labels", "number", note="given by them"),
                },
                people,
                members,
            )


def _make_cluster_table(
    of: str, caption: str, columns: dict[str, TableColumn], clusters: list[Facts], details: list[Any]
) -> TableBlock:
    rows = [one | {"cluster": str(one["cluster"])} for one in clusters]
    columns = {"cluster": TableColumn("cluster"), **columns}
    return TableBlock.from_rows(f"{of}-clusters", f"Clusters of {of}s", caption, columns, rows, details=details)


def _find_typical_items(study: Study, cluster: int) -> list[Facts]:
    """Return the items that belong to a cluster with the highest probability."""
    model = study.clustering
    assert model is not None
    sure = model.item_clusters_[:, cluster]
    own = np.flatnonzero((model.item_cluster_ == cluster) & model.labelled_)
    own = own[np.argsort(-sure[own], kind="stable")][:MAX_TYPICAL_ITEMS]
    return [study.describe_item(i) | extract_entry(i, probability=sure) for i in own.tolist()]


def _make_typical_item_details(examples: list[Facts], text: bool) -> Facts:
    rows = [[one["item"], format_percent(one["probability"]), " / ".join(one.get("texts", []))] for one in examples]
    columns = ["item", "probability", "text"]
    return (
        make_detail_list("Typical items", columns, rows)
        if text
        else make_detail_list("Typical items", columns[:2], [row[:2] for row in rows])
    )


def _make_search_chart(search: Facts) -> ChartBlock:
    key, title = ("kl", "KL divergence (nats)")
    if search["criterion"] == "likelihood":
        key, title = ("log_likelihood", "log-likelihood of hidden labels (nats)")
    rows = [{"K": p["K"], "L": p["L"], "value": p[key], "kl": p["kl"]} for p in search["points"] if p[key] is not None]
    best = search["best"]
    axes: Facts = {
        "x": {"field": "L", "type": "ordinal", "title": "clusters of annotators", "axis": {"labelAngle": 0}},
        "y": {"field": "K", "type": "ordinal", "title": "clusters of items", "sort": "descending"},
    }
    color = charts.make_heat_encoding("value", title, form="") | {"scale": {"reverse": key == "kl", "zero": False}}
    tips = [("K:O", "of items"), ("L:O", "of annotators"), ("value:Q", title, ".4f")]
    cross = {"type": "point", "shape": "cross", "size": 90, "filled": True, "color": "var(--c3)"}
    return ChartBlock(
        charts.to_spec(
            charts.draw_marks(rows, "rect", tips, **axes, color=color) + charts.draw_marks([best], cross, **axes), 300
        ),
        "Numbers of clusters",
        f"Each field is a pair of numbers that was tried; colour: {title}, of which brighter is better. The cross "
        "marks "
        f"the chosen pair: {best['K']} clusters of items and {best['L']} of annotators. If a wide area is equally "
        "bright, the numbers matter little.",
        f"Heat map of {len(rows)} pairs of numbers of clusters; best {best['K']} and {best['L']}.",
    )


def _make_size_chart(clusters: list[Facts], what: str, title: str) -> ChartBlock:
    ordered = sorted(clusters, key=lambda one: -one[what])
    rows = [{"cluster": str(one["cluster"]), "count": one[what]} for one in ordered]
    x = charts.make_quantity_axis("count", what, charts.COUNT_FORMAT, ticks=4)
    top = rows[0]
    share = format_percent(top["count"] / max(sum(row["count"] for row in rows), 1))
    return ChartBlock(
        charts.make_bar_chart(rows, "cluster", x, ["cluster:N", ("count:Q", what, charts.COUNT_FORMAT)]),
        title,
        f"Cluster {top['cluster']} is the largest, with {share} of the {what}.",
        f"{title}: " + ", ".join(f"{row['cluster']} {row['count']:,}" for row in rows[:10]) + ".",
    )


def _make_labels_chart(one: Facts, facts: Facts) -> ChartBlock:
    """Draw the labels that one cluster of annotators gives to every cluster of items."""
    classes, people = facts["classes"], facts["annotator_clusters"]
    numbers = [str(k) for k in range(len(one["shares"]))]
    rows = charts.list_matrix_cells(numbers, classes, share=one["shares"])
    legend = {"format": charts.SHARE_FORMAT, "orient": "top"}
    color = charts.make_heat_encoding("share", "share of labels") | {"scale": {"domain": [0, 1]}, "legend": legend}
    x = charts.make_name_axis("across", classes, limit=90, labelAngle=-40)
    y = charts.make_name_axis("down", numbers, title="cluster of items", limit=180)
    tips = [("down:N", "items of cluster"), ("across:N", "label"), ("share:Q", "share", charts.SHARE_FORMAT)]
    chart = charts.draw_marks(rows, "rect", tips, x=x, y=y, color=color)
    who, title = "annotators", "Labels by cluster of items"
    if len(people) > 1:
        who = f"the {format_count(people[one['cluster']]['annotators'], 'annotator')} of cluster {one['cluster']}"
        title = f"Labels by cluster {one['cluster']} of annotators"
    top = max(rows, key=lambda row: row["share"])
    return ChartBlock(
        charts.to_spec(chart, max(180, 16 * len(numbers) + 90)),
        title,
        f"Colour: share of each label (columns) among the labels that {who} give to items of each cluster (rows).",
        f"Heat map of labels by cluster of items; most uniform are those of cluster {top['down']}, "
        f"{format_percent(top['share'])} {top['across']}.",
    )
