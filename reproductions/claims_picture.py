"""Draw a paper's claims: one block per claim, with a dot and an interval for every difference.

Each block has its own scale, because claims are in points, nats or shares. All blocks share the line at 0: differences
to its right agree with the paper. The picture is SVG text and needs no drawing library.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence

from reproductions.verdict import Claim, PairedDifference, significant_by_holm

WIDTH, NAMES, RIGHT = 980, 420, 70  # Pixels: the whole picture, the names on the left, the figures on the right.
ROW, HEAD, GAP, LEGEND = 14, 36, 10, 20
KINDS = {"for": "for the claim", "against": "against it", "open": "undecided"}
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #222; }
.claim { font-weight: 600; font-size: 12px; } .verdict { fill: #666; }
.rule { stroke: #ccc; } .zero { stroke: #888; }
.for { stroke: #0072b2; fill: #0072b2; } .against { stroke: #d55e00; fill: #d55e00; }
.open { stroke: #888; fill: #888; }
text.for, text.against, text.open { stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #ddd; } .verdict { fill: #aaa; } .rule { stroke: #555; }
.for { stroke: #56b4e9; fill: #56b4e9; } .against { stroke: #e69f00; fill: #e69f00; }
}
"""


def draw_claims(claims: Sequence[Claim]) -> str:
    """Draw claims as SVG. Colours (Okabe and Ito's) show Holm's test: for the claim, against it, undecided."""
    parts, top = list(_legend()), float(LEGEND)
    for claim in claims:
        parts += _block(claim, top)
        top += HEAD + ROW * max(len(claim.differences), 1) + GAP
    size = f"viewBox='0 0 {WIDTH} {top:.0f}' width='{WIDTH}' height='{top:.0f}'"
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} style='max-width:100%;height:auto' role='img' "
        f"aria-label='What held'><style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _legend() -> Iterator[str]:
    for at, (kind, text) in enumerate(KINDS.items()):
        yield f"<circle class='{kind}' cx='{5 + 110 * at}' cy='8' r='3'/><text x='{13 + 110 * at}' y='12'>{text}</text>"
    caption = "right of the line: agrees with the paper; bars: 95 % over seeds"
    yield f"<text x='{13 + 110 * len(KINDS)}' y='12'>{caption}</text>"


def _block(claim: Claim, top: float) -> Iterator[str]:
    yield f"<path class='rule' d='M0 {top + 4:.1f}H{WIDTH}'/>"
    yield f"<text class='claim' x='0' y='{top + 18:.1f}'>{html.escape(claim.text)}</text>"
    yield f"<text class='verdict' x='0' y='{top + 32:.1f}'>{html.escape(claim.verdict)}</text>"
    if not claim.differences:
        yield f"<text class='verdict' x='0' y='{top + HEAD + ROW - 3:.1f}'>no result for this claim</text>"
        return
    each = list(claim.differences.values())
    reach = [x for d in each for x in (d.low, d.high, d.mean) if math.isfinite(x)]
    low, high = min(0.0, *reach), max(0.0, *reach)
    span = (high - low) or 1.0

    def x_position(x: float) -> float:
        return NAMES + (WIDTH - NAMES - RIGHT) * (min(max(x, low), high) - low) / span

    bottom = top + HEAD + ROW * len(each)
    yield f"<path class='zero' d='M{x_position(0):.1f} {top + HEAD - 2:.1f}V{bottom:.1f}'/>"
    for at, (name, difference, clear) in enumerate(
        zip(claim.differences, each, significant_by_holm(each), strict=True)
    ):
        kind = ("for" if difference.mean > 0 else "against") if clear else "open"
        yield from _row(name, difference, kind, top + HEAD + ROW * (at + 0.5), x_position)


def _row(name: str, difference: PairedDifference, kind: str, y: float, at: Callable[[float], float]) -> Iterator[str]:
    text = html.escape(name)
    yield f"<g><title>{text}: {html.escape(str(difference))}</title>"
    yield f"<text x='{NAMES - 10}' y='{y + 4:.1f}' text-anchor='end'>{text}</text>"
    if difference.n > 1:
        yield f"<path class='{kind}' d='M{at(difference.low):.1f} {y:.1f}H{at(difference.high):.1f}'/>"
    yield f"<circle class='{kind}' cx='{at(difference.mean):.1f}' cy='{y:.1f}' r='3'/>"
    yield f"<text class='{kind}' x='{WIDTH}' y='{y + 4:.1f}' text-anchor='end'>{difference.mean:+.3f}</text></g>"
