"""Surfaces over the unit square: operators of two arguments, and their derivatives by autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.fuzzy import Aggregator, Implication, Negation, TConorm, TNorm
from doxa.train.report._report import blank, figure

Function = Callable[[Tensor, Tensor], Tensor]

FRONT = {"origin": -135.0, "consequent": 135.0, "antecedent": -45.0}
"""Which corner stands in front: (0, 0), (0, 1) or (1, 0), as an angle of the camera."""
CUT = 4.0
"""Values and derivatives of single operators are drawn up to here."""


@dataclass(frozen=True)
class Panel:
    """One surface z = f(x, y) over the unit square."""

    title: str  # what stands above it
    f: Function  # elementwise on float64 tensors
    axes: tuple[str, str] = ("a", "c")  # the names of x and y
    front: str = "antecedent"  # the corner that stands in front, a key of `FRONT`
    log: bool = False  # draw log₁₀ z; where z is 0 there is no surface
    limits: tuple[float, float] = (0.0, 1.0)  # what lies beyond is cut off
    edge: float = 0.0  # how far the drawing stays away from the sides of the square
    of: Function | None = None  # the function whose derivative this is, if it is one

    def values(self, points: int = 101) -> tuple[Tensor, Tensor, Tensor]:
        """x, y and f(x, y) on a grid of ``points``²."""
        side = torch.linspace(self.edge, 1 - self.edge, points, dtype=torch.float64)
        x, y = torch.meshgrid(side, side, indexing="ij")
        return x, y, self.f(x, y)

    def height(self, x: Tensor, y: Tensor) -> Tensor:
        """What is drawn of f(x, y): between the limits, in log scale if so wanted."""
        z, (low, high) = self.f(x, y), self.limits
        if self.log:
            return torch.where(z > 0, z.clamp(10.0**low, 10.0**high).log10(), torch.nan)
        return z.clamp(low, high)

    def pieces(self, x: Tensor, y: Tensor) -> Tensor:
        """Which derivatives are not 0, as 0 to 3: between points that differ in it f may jump."""
        of = self.of or self.f
        x, y = _inside(x), _inside(y)
        return (derivative(of, 0)(x, y) != 0) + 2 * (derivative(of, 1)(x, y) != 0)


def _inside(side: Tensor) -> Tensor:
    """A little away from the sides of the square, which are no pieces of their own."""
    return side.clamp(1e-6, 1 - 1e-6)


def derivative_panel(title: str, f: Function, argument: int, sign: float = 1.0, **options: Any) -> Panel:
    """The surface of ±∂f/∂x or ±∂f/∂y; in the corners, where some are not defined, it is what they tend to."""
    return Panel(title, derivative(f, argument, sign), **{"edge": 1e-6, "of": f, **options})


def derivative(f: Function, argument: int, sign: float = 1.0) -> Function:
    """±∂f/∂x (argument 0) or ±∂f/∂y (argument 1), by autograd."""

    def slope(x: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            at = [x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()]
            value = f(*at)
            if not value.requires_grad:
                return torch.zeros_like(x)
            (found,) = torch.autograd.grad(value.sum(), at[argument], allow_unused=True)
        return torch.zeros_like(x) if found is None else sign * found

    return slope


def surfaces(panels: Sequence[Panel], columns: int = 2) -> Any:
    """A figure with one surface for each panel."""
    rows = -(-len(panels) // columns)
    drawing, axes = figure(rows, columns, size=(4.6 * columns, 4.2 * rows), projection="3d")
    for panel, ax in zip(panels, axes, strict=True):
        surface(ax, panel)
    return drawing


def surface(ax: Any, panel: Panel) -> None:
    """Draw one surface on a three-dimensional axis; it is open where the function jumps."""
    low, high = panel.limits
    _draw_tiles(ax, panel)
    if panel.log:
        ticks = list(range(int(low), int(high) + 1))
        ax.set_zticks(ticks, [f"$10^{{{k}}}$" for k in ticks])
    ax.set(xlabel=panel.axes[0], ylabel=panel.axes[1], xlim=(0, 1), ylim=(0, 1), zlim=(low, high))
    ax.set_title(panel.title, y=0.97)
    ax.view_init(elev=28, azim=FRONT[panel.front])
    ax.set_box_aspect((1, 1, 0.75), zoom=0.9)
    for side in (ax.set_xticks, ax.set_yticks):
        side([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    ax.tick_params(labelsize=9, pad=1)


def tiles(panel: Panel) -> list[tuple[Tensor, bool]]:
    """Polygons (k, 3) that cover the surface, and whether each is on a line of the grid, which is drawn darker.

    They are the squares of the grid, cut along the borders of the pieces. What is not a number is left out.
    """

    def squares(of: Tensor) -> Tensor:
        return torch.stack((of[:-1, :-1], of[1:, :-1], of[1:, 1:], of[:-1, 1:]), 2).flatten(0, 1)

    x, y, _ = panel.values()
    corners, piece = squares(torch.stack((x, y, panel.height(x, y)), -1)), squares(panel.pieces(x, y))
    tenth = torch.arange(len(x) - 1) % 10 == 0
    line = (tenth[:, None] | tenth).flatten()
    mixed = (piece != piece[:, :1]).any(1)
    found = [*zip(corners[~mixed], line[~mixed].tolist(), strict=True)]
    for parts, dark in zip(_cut(panel, corners[mixed], piece[mixed]), line[mixed].tolist(), strict=True):
        found += [(part, dark) for part in parts]
    return [(tile, dark) for tile, dark in found if not tile.isnan().any()]


def _draw_tiles(ax: Any, panel: Panel) -> None:
    from matplotlib import colormaps
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    found, (low, high) = tiles(panel), panel.limits
    level = torch.stack([tile[:, 2].mean() for tile, _ in found])
    colours = colormaps["viridis"](((level - low) / (high - low)).numpy())
    colours[[dark for _, dark in found], :3] *= 0.75
    # All with as many corners, the last one repeated: of ragged ones matplotlib would read uninitialised memory.
    most = max(len(tile) for tile, _ in found)
    shapes = torch.stack([torch.cat((tile, tile[-1:].expand(most - len(tile), 3))) for tile, _ in found])
    ax.add_collection3d(Poly3DCollection(shapes.numpy(), facecolors=colours, edgecolors=colours, linewidths=0.3))


def _cut(panel: Panel, corners: Tensor, piece: Tensor) -> list[list[Tensor]]:
    """Squares (m, 4, 3) cut along the borders between pieces: for each square its parts, one for each piece."""
    start, end = corners[..., :2], corners.roll(-1, 1)[..., :2]

    def last(a: Tensor, b: Tensor) -> Tensor:
        """The last point on the way from a to b that is in the piece of a, by bisection."""
        own = panel.pieces(*a.unbind(-1))
        for _ in range(40):
            middle = (a + b) / 2
            inside = (panel.pieces(*middle.unbind(-1)) == own).unsqueeze(-1)
            a, b = torch.where(inside, middle, a), torch.where(inside, b, middle)
        return torch.cat((a, panel.height(*_inside(a).unbind(-1)).unsqueeze(-1)), -1)

    if not len(corners):
        return []
    leaving, entering = last(start, end), last(end, start)
    found = []
    for square, owners, out, back in zip(corners, piece.tolist(), leaving, entering, strict=True):
        parts = []
        for owner in set(owners):
            outline = []
            for k, (here, after) in enumerate(zip(owners, owners[1:] + owners[:1], strict=True)):
                outline += [square[k]] if here == owner else []
                outline += [out[k] if here == owner else back[k]] if here != after and owner in (here, after) else []
            if len(outline) >= 3:
                parts.append(torch.stack(outline))
        found.append(parts)
    return found


def draw_operators(operators: Mapping[str, TNorm | TConorm | Implication | Aggregator | Negation], path: Path) -> None:
    """Draw the value and the derivatives of operators, a row for each, into a file of the kind its ending says.

    Binary operators are surfaces over the unit square, aggregators are drawn over two arguments, negations as curves.
    The derivatives come from autograd and are cut off at ±4. Operators are given by the title of their row.
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
        f, (x, y) = (lambda a, b: operator(torch.stack((a, b)), 0)), ("x₁", "x₂")
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
