"""Draw the assumptions of a method as a plate diagram, from the parameters that its class declares.

Every method has a truth per item and labels where items and annotators meet. Learned parameters are declared with their
axes, such as "A K K": with A they are drawn in the plate of the annotators, with I in that of the items, else above.
"""

from __future__ import annotations

import dataclasses
from html import escape
from typing import Annotated, get_args, get_origin, get_type_hints

from dissensus import methods

ANSWER_RESULTS = {"posterior", "values", "confidence", "expected_distance", "interval", "span_probability"}
INTERNAL_RESULTS = {"pull", "curvature", "evidence", "knots", "knot_labels", "spread", "center", "theta_prior"}
DERIVED_RESULTS = {"mmce": ("confusion", "difficulty", "item_penalty")}
DERIVED_PREFIXES = ("population_", "typical_", "crowd_", "rank")  # These results are computed from others.
DRAWN_RANGES = {"simplex", "share", "real"}  # not counts, codes, names
METHODS_PACKAGE = "dissensus.models.methods"
OF_TRUTH, OF_LABEL = {"prior", "chance", "scores"}, {"loading"}  # Their arrows lead to the truth and to the label.
RADIUS = 17
ITEMS_PLATE, ANNOTATORS_PLATE = (150, 88, 300, 152), (310, 96, 322, 140)  # x, y, width, height
TRUTH, LABEL = (205, 158), (375, 158)


def learned_parameters(name: str) -> dict[str, str]:
    """Return what a method learns besides the truth, as name → axes."""
    method = methods[name]
    params = getattr(method, "Params", None)
    if params is not None and dataclasses.is_dataclass(params):
        return {field.name: field.metadata.get("axes") or "K" for field in dataclasses.fields(params)}
    found = {}
    hints = get_type_hints(method, include_extras=True)
    for owner in method.__mro__:
        if not owner.__module__.startswith(METHODS_PACKAGE):
            continue
        for result in vars(owner).get("__annotations__", {}):
            if not result.endswith("_") or get_origin(hints[result]) is not Annotated:
                continue
            *axes, kind = get_args(hints[result])[1].removeprefix("optional ").split()
            short = result.removesuffix("_")
            derived = short.startswith(DERIVED_PREFIXES) or short.endswith(("_interval", "_variance"))
            if kind.rstrip("?") in DRAWN_RANGES and not derived and short not in ANSWER_RESULTS | INTERNAL_RESULTS:
                found[short] = " ".join(axes)
    return {part: axes for part, axes in found.items() if part not in DERIVED_RESULTS.get(name, ())}


def draw_plates(name: str) -> str:
    """Return an SVG of the model; its colours follow the page."""
    parts = learned_parameters(name)
    above = [part for part, axes in parts.items() if not {"A", "I", "E"} & set(axes.split())]
    annotators = [part for part, axes in parts.items() if "A" in axes.split()]
    items = [part for part in parts if part not in (*above, *annotators)]
    places = {"truth": TRUTH, "label": LABEL}
    places |= {part: (TRUTH[0] + 160 * number, 34) for number, part in enumerate(above)}
    places |= {part: (TRUTH[0] + 10 + 90 * number, 212) for number, part in enumerate(items)}
    middle = (len(annotators) - 1) / 2
    places |= {part: (490, LABEL[1] + (number - middle) * 44) for number, part in enumerate(annotators)}
    children = dict.fromkeys(parts, "label") | dict.fromkeys(above, annotators[-1] if annotators else "label")
    children |= {part: "truth" for part in above if part in OF_TRUTH}
    children |= {part: "label" for part in above if part in OF_LABEL}
    arrows = "".join(_draw_arrow(places[start], places[end]) for start, end in [("truth", "label"), *children.items()])
    nodes = "".join(_draw_node(part, parts.get(part, ""), *at, filled=part == "label") for part, at in places.items())
    boxes = "".join(
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="none" stroke="currentColor" '
        'opacity=".45"/>'
        for x, y, width, height in (ITEMS_PLATE, ANNOTATORS_PLATE)
    )
    words = '<text x="158" y="230">items</text><text x="622" y="230" text-anchor="end">annotators</text>'
    learned = [f"{part} ({axes}) is learnt" for part, axes in parts.items()]
    description = "; ".join(["A label depends on the truth", *learned])
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker>'
    )
    return (
        f'<svg class="plates" viewBox="140 8 500 240" role="img" aria-label="{escape(description)}" font-size="12" '
        f'fill="currentColor"><defs>{tip}</defs>{boxes}{arrows}{nodes}{words}</svg>'
    )


def _draw_node(name: str, axes: str, x: float, y: float, *, filled: bool = False) -> str:
    """Return a circle, filled if it is observed, and its name with one word per line."""
    lines = [*name.split("_"), *([f"({axes})"] if axes else [])]
    top = y - (len(lines) - 1) / 2 * 13 + (4 if axes else -8)
    text = "".join(
        f'<tspan x="{x + RADIUS + 4}" y="{top + number * 13:g}">{escape(line)}</tspan>'
        for number, line in enumerate(lines)
    )
    opacity = ".25" if filled else "0"
    return (
        f'<circle cx="{x}" cy="{y}" r="{RADIUS}" stroke="currentColor" fill="currentColor" fill-opacity="{opacity}"/>'
        f"<text>{text}</text>"
    )


def _draw_arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return a line between the rims of two circles."""
    (x0, y0), (x1, y1) = start, end
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    dx, dy = (x1 - x0) / length * RADIUS, (y1 - y0) / length * RADIUS
    return (
        f'<line x1="{x0 + dx:.1f}" y1="{y0 + dy:.1f}" x2="{x1 - dx:.1f}" y2="{y1 - dy:.1f}" stroke="currentColor" '
        f'marker-end="url(#tip)"/>'
    )
