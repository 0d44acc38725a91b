"""Draw the picture of README.md and of the front page: results on the bundled set, as an SVG of a few kilobytes."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

import dissensus as dz

N_ITEMS = 4  # items that are drawn
N_GOLD = 30  # items whose gold label the method gets
PIXEL = 6  # side of a pixel of a digit, in units of the SVG
SHADES = 5  # levels of grey in a digit; fewer levels make a smaller file
RIGHT_COLUMN = 500  # x coordinate at which the plot of the annotators begins
COLOURS = {"contrary": "#b91c1c", "unrelated": "#d97706", "copied": "#7c3aed", "": "#0f766e"}
LEGEND = {
    "": "typical annotators",
    "unrelated": "labels unrelated to the items",
    "copied": "copying group",
    "contrary": "contrary to the others",
}


def draw() -> str:
    """Return the SVG: items on the left, annotators on the right."""
    data = dz.load_dataset("digits-crowd")
    table, truth = data.annotations, data.gold
    gold = np.where(np.arange(table.n_items) < N_GOLD, truth, -1)
    model = dz.methods["consensus"](seed=0).fit(table, gold=gold)
    vote = dz.methods["majority-vote"](seed=0).fit(table)
    predicted, majority = model.predict(), vote.predict()
    accuracy = [100 * (labels == table.classes[truth]).mean() for labels in (majority, predicted)]
    corrected = np.flatnonzero((majority != table.classes[truth]) & (predicted == table.classes[truth]) & (gold < 0))
    confidence = model.posterior_.max(axis=1)
    items = corrected[np.argsort(-confidence[corrected], kind="stable")[:N_ITEMS]]
    rows = [
        _draw_item(data, int(item), row, str(majority[item]), str(predicted[item]), 100 * float(confidence[item]))
        for row, item in enumerate(items)
    ]
    parts = [
        _title(20, "The label of every item, with its confidence"),
        _subtitle(20, f"correct labels: {accuracy[0]:.1f} % by majority vote, {accuracy[1]:.1f} % by dissensus"),
        *rows,
        _title(RIGHT_COLUMN, "The reliability of every annotator"),
        _subtitle(RIGHT_COLUMN, "estimated share of correct labels, with its 95 % interval"),
        _draw_annotators(model, dz.diagnose(table)),
    ]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 360" font-family="system-ui, sans-serif" '
        'font-size="13" role="img"><title>What dissensus makes of labels that disagree</title>'
        '<rect width="900" height="360" rx="10" fill="#fff" stroke="#d4d4d8"/><g fill="#27272a">'
        + "".join(parts)
        + "</g></svg>\n"
    )


def _title(x: int, text: str) -> str:
    return f'<text x="{x}" y="30" font-size="15" font-weight="600">{text}</text>'


def _subtitle(x: int, text: str) -> str:
    return f'<text x="{x}" y="50" fill="#52525b">{text}</text>'


def _draw_item(data: dz.table.datasets.Dataset, item: int, row: int, majority: str, label: str, percent: float) -> str:
    """Draw a digit, its labels, the majority label, and our label with a bar for its confidence."""
    top = 72 + row * 70
    levels = np.round(data.features[item].reshape(8, 8) / data.features.max() * SHADES).astype(int)
    pixels = "".join(
        f'<path d="M{20 + x * PIXEL} {top + y * PIXEL}h{PIXEL}v{PIXEL}h-{PIXEL}z" opacity="{levels[y, x] / SHADES:g}"/>'
        for y, x in np.argwhere(levels > 0)
    )
    table = data.annotations
    labels = table.classes[table.label[table.item_ptr[item] : table.item_ptr[item + 1]]]
    result = f'<tspan font-weight="600">{escape(label)}</tspan>, {percent:.0f} % confident'
    return (
        f'{pixels}<text x="86" y="{top + 18}">labels {escape(", ".join(labels))} · majority {escape(majority)}</text>'
        f'<rect x="86" y="{top + 27}" width="{1.8 * percent:.0f}" height="16" rx="3" fill="{COLOURS[""]}"/>'
        f'<text x="276" y="{top + 40}">{result}</text>'
    )


def _draw_annotators(model: Any, diagnosis: Any) -> str:
    """Draw reliabilities with intervals, lowest first, in the colour of each annotator's flag."""
    low, high = model.reliability_interval().T
    copying = {name for group in diagnosis.groups for name in group}
    flags = {name: flag for flag in ("contrary", "unrelated") for name in diagnosis.annotators_with_flag(flag)}
    parts = [
        f'<text x="{RIGHT_COLUMN}" y="{290 - 2 * percent + 4}" fill="#71717a" font-size="11">{percent} %</text>'
        f'<path d="M{RIGHT_COLUMN + 38} {290 - 2 * percent}H880" stroke="#e4e4e7"/>'
        for percent in (0, 50, 100)
    ]
    for place, annotator in enumerate(np.argsort(model.reliability_, kind="stable")):
        name = str(model.annotators_[annotator])
        colour = COLOURS["copied" if name in copying else flags.get(name, "")]
        x = RIGHT_COLUMN + 46 + place * 8
        bottom, top, y = (290 - 200 * np.array([low, high, model.reliability_])[:, annotator]).round()
        parts.append(
            f'<path d="M{x} {bottom:g}V{top:g}" stroke="{colour}" stroke-opacity=".45" stroke-width="2"/>'
            f'<circle cx="{x}" cy="{y:g}" r="3.5" fill="{colour}"/>'
        )
    for place, (flag, text) in enumerate(LEGEND.items()):
        x, y = RIGHT_COLUMN + 6 + place % 2 * 160, 318 + place // 2 * 20
        parts.append(
            f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{COLOURS[flag]}"/><text x="{x + 10}" y="{y}">{text}</text>'
        )
    return "".join(parts)
