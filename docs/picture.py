"""The picture of README.md and of the front page: what the bundled set becomes, as an SVG of a few kilobytes."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

import dissensus as dz

SHOWN = 4  # items
KNOWN = 30  # items whose class an expert has said
PIXEL = 6
SHADES = 5  # of grey in a digit: fewer rectangles
COLOURS = {"contrary": "#b91c1c", "unrelated": "#d97706", "copied": "#7c3aed", "": "#0f766e"}
WORDS = {
    "contrary": "against the others",
    "unrelated": "unrelated to the items",
    "copied": "a group that copies",
    "": "others",
}


def draw() -> str:
    """The SVG: items on the left, annotators on the right."""
    data = dz.load_dataset("digits-crowd")
    table, truth = data.annotations, data.gold
    known = np.where(np.arange(table.n_items) < KNOWN, truth, -1)
    model = dz.methods["consensus"](seed=0).fit(table, gold=known)
    vote = dz.methods["majority-vote"](seed=0).fit(table)
    answer, voted = model.predict(), vote.predict()
    shares = [(predicted == table.classes[truth]).mean() for predicted in (voted, answer)]
    mended = np.flatnonzero((voted != table.classes[truth]) & (answer == table.classes[truth]) & (known < 0))
    sure = model.posterior_.max(axis=1)
    items = mended[np.argsort(-sure[mended], kind="stable")[:SHOWN]]
    parts = [
        f'<text x="20" y="34" font-size="15" font-weight="600">Right: {shares[0]:.1%} by a vote, {shares[1]:.1%} by '
        f"consensus ({KNOWN} classes known)</text>",
        *(_item(data, int(i), number, str(voted[i]), str(answer[i]), float(sure[i])) for number, i in enumerate(items)),
        '<text x="480" y="34" font-size="15" font-weight="600">How reliable each annotator is (95 % intervals)</text>',
        _annotators(model, dz.diagnose(table)),
    ]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 330" font-family="system-ui, sans-serif" '
        'font-size="13" role="img"><title>What dissensus makes of labels that disagree</title>'
        '<rect width="900" height="330" rx="10" fill="#fff" stroke="#d4d4d8"/><g fill="#27272a">'
        + "".join(parts)
        + "</g></svg>\n"
    )


def _item(data: dz.table.datasets.Dataset, item: int, number: int, voted: str, answer: str, sure: float) -> str:
    """A digit, its labels, what a vote and what the consensus make of them."""
    top = 54 + number * 66
    levels = np.round(data.features[item].reshape(8, 8) / data.features.max() * SHADES).astype(int)
    pixels = "".join(
        f'<path d="M{20 + x * PIXEL} {top + y * PIXEL}h{PIXEL}v{PIXEL}h-{PIXEL}z" opacity="{levels[y, x] / SHADES:g}"/>'
        for y, x in np.argwhere(levels > 0)
    )
    table = data.annotations
    given = table.classes[table.label[table.item_ptr[item] : table.item_ptr[item + 1]]]
    return (
        f'{pixels}<text x="86" y="{top + 18}">labels {escape(", ".join(given))}; a vote says {escape(voted)}</text>'
        f'<rect x="86" y="{top + 27}" width="{sure * 190:.0f}" height="16" rx="3" fill="{COLOURS[""]}"/>'
        f'<text x="286" y="{top + 40}">{escape(answer)}, {sure:.0%} sure</text>'
    )


def _annotators(model: Any, found: Any) -> str:
    """Reliabilities with intervals, worst first, coloured by what stands out."""
    low, high = model.reliability_interval().T
    group = {name for one in found.groups for name in one}
    kinds = {name: kind for kind in ("contrary", "unrelated") for name in found.flagged(kind)}
    parts = []
    for place, a in enumerate(np.argsort(model.reliability_, kind="stable")):
        name = str(model.annotators_[a])
        colour = COLOURS["copied" if name in group else kinds.get(name, "")]
        x, ends = 486 + place * 9.3, (270 - 210 * np.array([low[a], high[a], model.reliability_[a]])).round()
        parts.append(
            f'<path d="M{x:.1f} {ends[0]:g}V{ends[1]:g}" stroke="{colour}" stroke-opacity=".45" stroke-width="2"/>'
            f'<circle cx="{x:.1f}" cy="{ends[2]:g}" r="3.5" fill="{colour}"/>'
        )
    for place, (kind, word) in enumerate(WORDS.items()):
        x, y = 486 + place % 2 * 200, 294 + place // 2 * 20
        parts.append(
            f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{COLOURS[kind]}"/><text x="{x + 10}" y="{y}">{word}</text>'
        )
    return "".join(parts)
