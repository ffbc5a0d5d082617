"""Pictures of single operators: value and derivatives, one row for each operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from doxa.errors import ConfigError
from doxa.fuzzy import Aggregator, Implication, Negation, TConorm, TNorm
from doxa.reproduce.figures._surfaces import Function, Panel, derivative, derivative_panel, surface
from doxa.train.report._page import blank

CUT = 4.0
"""Values and derivatives are drawn up to here."""


def draw_operators(operators: Mapping[str, TNorm | TConorm | Implication | Aggregator | Negation], path: Path) -> None:
    """Draw the value and the derivatives of operators, a row for each, into a file of the kind its ending says.

    Binary operators are surfaces over the unit square, aggregators are drawn over two arguments, negations as curves.
    The derivatives come from autograd and are cut off at ±4.

    Args:
        operators: the operators by the title of their row.
        path: the file, such as ``goguen.png``, ``.pdf`` or ``.svg``.

    >>> from tempfile import TemporaryDirectory
    >>> from doxa.fuzzy import YagerNegation
    >>> with TemporaryDirectory() as folder:
    ...     draw_operators({"Yager": YagerNegation(2.0)}, Path(folder) / "yager.png")
    ...     (Path(folder) / "yager.png").read_bytes()[1:4]
    b'PNG'
    """
    drawing = blank((13.2, 4.2 * len(operators)))
    kinds = drawing.canvas.get_supported_filetypes()
    ending = path.suffix.lstrip(".").lower()
    if ending not in kinds:
        raise ConfigError(f"{path.name}: a picture cannot end in '{path.suffix}', expected one of {', '.join(kinds)}")
    for row, (title, operator) in enumerate(operators.items()):
        places = [(len(operators), 3, 3 * row + column) for column in (1, 2, 3)]
        if isinstance(operator, Negation):
            _curves(drawing, places, title, operator)
        else:
            for place, panel in zip(places, operator_panels(title, operator), strict=True):
                surface(drawing.add_subplot(*place, projection="3d"), panel)
    drawing.savefig(path, format=ending, dpi=120)


def operator_panels(title: str, operator: TNorm | TConorm | Implication | Aggregator) -> list[Panel]:
    """The value of an operator and its two derivatives, as surfaces."""
    f: Function
    if isinstance(operator, Aggregator):
        f, (x, y) = _of_two(operator), ("x₁", "x₂")
    else:
        f, (x, y) = operator, ("a", "c" if isinstance(operator, Implication) else "b")
    front = "antecedent" if isinstance(operator, Implication) else "origin"
    options: dict[str, Any] = {"axes": (x, y), "front": front}
    panels = [
        Panel(title, f, **options),
        derivative_panel(f"∂/∂{x}", f, 0, **options),
        derivative_panel(f"∂/∂{y}", f, 1, **options),
    ]
    return [_limited(panel) for panel in panels]


def _of_two(aggregator: Aggregator) -> Function:
    return lambda a, b: aggregator(torch.stack((a, b)), 0)


def _limited(panel: Panel) -> Panel:
    """The same panel with limits that hold what is drawn."""
    z = panel.values()[2]
    low, high = min(0.0, float(z.min())), max(1.0, float(z.max()))
    cut = f", cut at ±{CUT:g}" if high > CUT or low < -CUT else ""
    return replace(panel, title=panel.title + cut, limits=(max(low, -CUT), min(high, CUT)))


def _curves(drawing: Any, places: list[tuple[int, int, int]], title: str, negation: Negation) -> None:
    a = torch.linspace(0, 1, 501, dtype=torch.float64)
    slope = derivative(lambda a, _: negation(a), 0)(a, a)
    shown = torch.where(slope.abs() <= CUT, slope, torch.nan)
    cut = f", cut at ±{CUT:g}" if bool(shown.isnan().any()) else ""
    for place, name, value in zip(places[:2], (title, f"∂/∂a{cut}"), (negation(a), shown), strict=True):
        ax = drawing.add_subplot(*place)
        ax.plot(a.numpy(), value.numpy())
        ax.set(xlabel="a", title=name)
        ax.grid(alpha=0.3)
