"""A small circuit as a drawing: literals at the bottom, the root on top, lines from each node to its children."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from doxa._html import Html, markup

SMALL = 60
"""Circuits of more nodes and literals are not drawn."""
_ROW, _LETTER, _GAP, _CLEAR = 64, 8, 18, 17  # pixels
Point = tuple[float, int]


def circuit_svg(
    literals: int, kinds: Sequence[str], arguments: Sequence[Sequence[int]], names: Mapping[int, str]
) -> Html | None:
    """The drawing, or None if the circuit is too large for one.

    Args:
        literals: so many leaves there are, two for each variable: itself and its negation.
        kinds: the sign of each inner node.
        arguments: the children of each inner node.
        names: of variables, counted from 1, where they have any.

    >>> circuit_svg(4, "∧∧∨", [[0, 3], [1, 2], [4, 5]], {1: "rain"}).count("<circle")
    3
    """
    used = sorted({c for children in arguments for c in children if c < literals})
    nodes = [*used, *range(literals, literals + len(kinds))]
    if len(nodes) > SMALL:
        return None
    below = {literals + i: list(children) for i, children in enumerate(arguments)}
    labels = {node: kinds[node - literals] if node >= literals else _label(node, names) for node in nodes}
    height: dict[int, int] = {}
    for node in nodes:  # children have smaller numbers
        height[node] = 1 + max((height[c] for c in below[node]), default=0) if node in below else 0
    places = _places(nodes, below, height, labels)
    width = max(x + _width(labels[node]) / 2 for node, (x, _) in places.items()) + 50
    top = _ROW * (max(height.values(), default=0) + 1)
    lines, marks = [], []
    for node, (x, y) in places.items():
        for child in below.get(node, ()):
            end_x, end_y = places[child][0], places[child][1] - (0 if child in below else 12)  # above a literal
            middle = _around((x, y), (end_x, end_y), [at for n, at in places.items() if n not in (node, child)])
            drawn = f'd="M {x:.0f} {y} Q {middle[0]:.0f} {middle[1]:.0f} {end_x:.0f} {end_y}"'
            lines.append(f'<path {drawn} fill="none" stroke="currentColor" opacity="0.4"/>')
        text = f'<text x="{x:.0f}" y="{y + 5}" text-anchor="middle" fill="currentColor">{markup(labels[node])}</text>'
        if node in below:
            colour = "#2b7fc4" if labels[node] == "∧" else "#a8641a"
            text = (
                f'<circle cx="{x:.0f}" cy="{y}" r="13" fill="{colour}"/>'
                f'<text x="{x:.0f}" y="{y + 5}" text-anchor="middle" fill="white">{labels[node]}</text>'
            )
        marks.append(text)
    size = f'width="{width:.0f}" height="{top}" viewBox="0 0 {width:.0f} {top}"'
    return Html(f'<svg {size} role="img" font-size="14">{"".join(lines)}{"".join(marks)}</svg>')


def _around(start: tuple[float, float], end: tuple[float, float], others: list[Point]) -> tuple[float, float]:
    """The middle of a curve that comes near to no other node: the straightest one, or the best of those tried."""
    (x, y), (end_x, end_y) = start, end

    def distance(bend: float) -> float:
        middle = ((x + end_x) / 2 + bend, (y + end_y) / 2)
        found = [1e9]
        for t in (0.125 * i for i in range(1, 8)):
            curve = [
                (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t * t * c for a, b, c in zip(start, middle, end, strict=True)
            ]
            found += [math.dist(curve, other) for other in others]
        return min(found)

    bends = [0.0, *[sign * size for size in (25.0, 50.0, 75.0, 100.0) for sign in (1, -1)]]
    best = next((bend for bend in bends if distance(bend) > _CLEAR), max(bends, key=distance))
    return (x + end_x) / 2 + best, (y + end_y) / 2


def _label(node: int, names: Mapping[int, str]) -> str:
    variable = node // 2 + 1
    return ("¬" if node % 2 else "") + names.get(variable, f"x{variable}")


def _width(label: str) -> float:
    return max(26, _LETTER * len(label))


def _places(
    nodes: list[int], below: dict[int, list[int]], height: dict[int, int], labels: dict[int, str]
) -> dict[int, tuple[float, int]]:
    """Where each node is: by its height, and under the middle of its parents."""
    top = max(height.values(), default=0)
    rows = {level: [n for n in nodes if height[n] == level] for level in range(top, -1, -1)}
    parents: dict[int, list[int]] = {node: [] for node in nodes}
    for node, children in below.items():
        for child in children:
            parents[child].append(node)
    widest = max(sum(_width(labels[n]) + _GAP for n in row) for row in rows.values())
    places: dict[int, tuple[float, int]] = {}
    for level, row in rows.items():
        row.sort(key=lambda n: sum(places[p][0] for p in parents[n]) / max(len(parents[n]), 1))
        spare = (widest - sum(_width(labels[n]) for n in row)) / (len(row) + 1)
        x = 50.0
        for node in row:
            x += spare + _width(labels[node]) / 2
            places[node] = (x, _ROW * (top - level) + _ROW // 2)
            x += _width(labels[node]) / 2
    return places
