"""The figures of Chapter 3, drawn anew from the operators of `doxa.fuzzy`.

Each is named after the dissertation's label. Left out are the picture of a chair and what is drawn from training runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from doxa import fuzzy
from doxa.reproduce.figures import _ascent as ascent
from doxa.reproduce.figures._ascent import CHOICE, CLAUSES
from doxa.reproduce.figures._gallery import Gallery, Illustration
from doxa.reproduce.figures._surfaces import Function, Panel, derivative_panel, surfaces
from doxa.train.report._report import figure


def fuzzy_figures(seed: int = 0) -> Gallery:
    """The figures of Chapter 3 by name; ``seed`` is that of whatever is sampled.

    >>> drawn = fuzzy_figures()["decision_tree"]()
    >>> {name: round(share, 2) for name, share in drawn.numbers.items()}
    {'share of +1': 0.21, 'share of 0': 0.58, 'share of −1': 0.21}
    """
    sampled: dict[str, Callable[[], Illustration]] = {
        "ratio_2_yager": partial(_fractions, seed),
        "decision_tree": partial(_tree, seed),
        "success_rates": partial(_success, seed),
    }
    drawn = {name: partial(_surfaces, name) for name in SURFACES}
    return {**sampled, **drawn, "reichenbach_path": _path}


# -- surfaces -----------------------------------------------------------------------------------------------------


def _conjunction(title: str, f: Function) -> Panel:
    return Panel(title, f, ("a", "b"), "origin")


def _ponens(title: str, f: Function, **options: Any) -> Panel:
    """The derivative to the consequent, seen from the other side."""
    return derivative_panel(title, f, 1, front="consequent", **options)


def _tollens(title: str, f: Function, **options: Any) -> Panel:
    """The derivative to the negated antecedent, ∂I/∂(1 - a) = -∂I/∂a."""
    return derivative_panel(title, f, 0, -1.0, front="consequent", **options)


def _derivatives(f: Function, remark: str = "", **options: Any) -> tuple[Panel, Panel]:
    """Both derivatives of an implication."""
    return _ponens(f"∂I/∂c{remark}", f, **options), _tollens(f"∂I/∂(1 − a){remark}", f, **options)


def _log_product(f: Function) -> Function:
    """The log-product of instances of which this is one; its derivative does not depend on the others."""
    return lambda a, c: fuzzy.LogProduct()(f(a, c).unsqueeze(-1), -1)


def _rmse(f: Function) -> Function:
    """RMSE over two instances, the other one having a truth value x with (1 - x)² = 0.9."""

    def aggregated(a: Tensor, c: Tensor) -> Tensor:
        value = f(a, c)
        other = torch.full_like(value, 1 - math.sqrt(0.9))
        return fuzzy.GeneralizedMeanError(2.0)(torch.stack((other, value), -1), -1)

    return aggregated


_YAGER = fuzzy.Yager(2.0)
_YAGER_S, _YAGER_R = fuzzy.SImplication(_YAGER.dual), _YAGER.residuum
_BENT = fuzzy.sigmoidal(fuzzy.REICHENBACH, 9.0, -0.5)

SURFACES: Mapping[str, tuple[str, tuple[Panel, ...]]] = {
    "yager2_norm": (
        "Yager's t-norm and t-conorm, p = 2.",
        (_conjunction("t-norm", _YAGER), _conjunction("t-conorm", _YAGER.dual)),
    ),
    "yager2_deriv": (
        "The derivatives of Yager's t-norm and t-conorm to a, p = 2. On the plateaus nothing is learned: there "
        "is a gradient on π/4 = 78.5 % of the square.",
        (
            derivative_panel("∂T/∂a", _YAGER, 0, axes=("a", "b"), front="origin"),
            derivative_panel("∂S/∂a", _YAGER.dual, 0, axes=("a", "b"), front="origin"),
        ),
    ),
    "prod_norm": (
        "The product t-norm a·b and the probabilistic sum a + b - a·b.",
        (_conjunction("t-norm", fuzzy.Product()), _conjunction("t-conorm", fuzzy.Product().dual)),
    ),
    "kd_godel": (
        "The Kleene-Dienes implication max(1 - a, c) and the Gödel implication. The lowest value stands in front; "
        "derivatives of implications are seen from the opposite side.",
        (Panel("Kleene-Dienes", fuzzy.KLEENE_DIENES), Panel("Gödel", fuzzy.Godel().residuum)),
    ),
    "yager-r-s-impl": (
        "Yager's S-implication and R-implication, p = 2.",
        (Panel("S-implication", _YAGER_S), Panel("R-implication", _YAGER_R)),
    ),
    "deriv_yager_sI2": (
        "The derivatives of Yager's S-implication, p = 2, to the consequent and to the negated antecedent. One is "
        "the other mirrored: contrapositive differentiable symmetry.",
        _derivatives(_YAGER_S),
    ),
    "yager-r-deriv": (
        "The derivatives of Yager's R-implication, p = 2, cut off at 4. Both grow without bound towards the "
        "diagonal a = c, beyond which they are 0.",
        _derivatives(_YAGER_R, ", cut at 4", limits=(0.0, 4.0)),
    ),
    "goguen-i": (
        "The implications of the product: Reichenbach, 1 - a + a·c, and Goguen, 1 where a ≤ c and c/a elsewhere.",
        (Panel("Reichenbach", fuzzy.REICHENBACH), Panel("Goguen", fuzzy.GOGUEN)),
    ),
    "reichenbach-aggregators": (
        "The derivative of a quantified Reichenbach implication to the negated antecedent of one instance. Under "
        "the log-product (cut off at 4) it is 1 at a = c = 0; under RMSE, over two instances with the other one at "
        "1 - √0.9, it is 0 there: the corner where most instances are is left alone.",
        (
            _tollens("log-product, cut at 4", _log_product(fuzzy.REICHENBACH), limits=(0.0, 4.0)),
            _tollens("RMSE", _rmse(fuzzy.REICHENBACH), limits=(0.0, 0.6)),
        ),
    ),
    "deriv_goguen": (
        "The derivatives of the Goguen implication in log scale; there are none where a ≤ c. The lower the "
        "antecedent, the larger both: 1/a and c/a².",
        _derivatives(fuzzy.GOGUEN, log=True, limits=(-1.0, 2.0), edge=0.01),
    ),
    "log_dmp": (
        "The derivative to the consequent under the log-product, in log scale: Reichenbach and its sigmoidal form "
        "with s = 9. Bent, the gradient is smaller by orders of magnitude where the implication holds already.",
        (
            _ponens("Reichenbach", _log_product(fuzzy.REICHENBACH), log=True, limits=(-3.0, 2.0), edge=0.01),
            _ponens("sigmoidal, s = 9", _log_product(_BENT), log=True, limits=(-3.0, 2.0), edge=0.01),
        ),
    ),
    "deriv_rcsigm": (
        "The derivatives of the sigmoidal Reichenbach implication, s = 9, b₀ = -½: small in all four corners.",
        _derivatives(_BENT, limits=(0.0, 2.5)),
    ),
    "probsum_sigm_s": (
        "The sigmoidal Reichenbach implication for several s and b₀. A larger b₀ moves the slope towards low truth "
        "values; with s = 0.01 nothing is left to see of the bend, with s = 20 the slope is narrow.",
        tuple(
            Panel(f"b₀ = {b0:g}, s = {s:g}".replace("-", "−"), fuzzy.sigmoidal(fuzzy.REICHENBACH, s, b0))
            for s, b0 in [(9.0, -0.5), (9.0, -0.2), (0.01, -0.5), (20.0, -0.5)]
        ),
    ),
}


def _surfaces(name: str) -> Illustration:
    caption, panels = SURFACES[name]
    return Illustration(caption, surfaces(panels))


# -- curves -------------------------------------------------------------------------------------------------------

SIZES = range(1, 11)
AGGREGATED: Mapping[str, fuzzy.TNorm] = {
    **{f"Yager, p = {p:g}": fuzzy.Yager(p) for p in (0.5, 1.5, 2.0, 3.0, 6.0)},
    "Łukasiewicz (Yager, p = 1)": fuzzy.Lukasiewicz(),
    "nilpotent minimum": fuzzy.NilpotentMinimum(),
}


def vanishing_fractions(seed: int = 0, samples: int = 20_000) -> dict[str, list[tuple[fuzzy.Fraction, fuzzy.Fraction]]]:
    """For each aggregator and each number of arguments: the fraction with a gradient, in closed form and sampled."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, tnorm in AGGREGATED.items():
        aggregator = fuzzy.TNormAggregator(tnorm)
        sampled = partial(
            fuzzy.nonvanishing_fraction, aggregator, closed_form=False, samples=samples, generator=generator
        )
        found[name] = [(fuzzy.nonvanishing_fraction(aggregator, n), sampled(n)) for n in SIZES]
    return found


def _fractions(seed: int) -> Illustration:
    found = vanishing_fractions(seed)
    drawing, axes = figure(1, 2, size=(11, 4.4))
    order = sorted(found, key=lambda name: -found[name][1][0].value)
    for name in order:
        exact, sampled = zip(*found[name], strict=True)
        for ax in axes:
            (line,) = ax.plot(SIZES, [f.value for f in exact], label=name)
            seen = [(n, f) for n, f in zip(SIZES, sampled, strict=True) if f.value > 0]
            ax.plot([n for n, _ in seen], [f.value for _, f in seen], "o", color=line.get_color(), markersize=4)
    axes[0].set(xlabel="number of arguments n", ylabel="fraction of the cube with a gradient", ylim=(0, 1.02))
    axes[1].set(xlabel="number of arguments n", yscale="log", ylim=(1e-5, 1.5), title="in log scale")
    axes[0].legend(frameon=False, fontsize=9)
    for ax in axes:
        ax.grid(alpha=0.3)
    caption = (
        "On how much of its domain an aggregator has a gradient, against the number of arguments: for Yager "
        "Γ(1 + 1/p)ⁿ/Γ(1 + n/p), for Łukasiewicz 1/n!, for the nilpotent minimum 2¹⁻ⁿ. Lines are these closed forms, "
        "dots were sampled (20,000 points each)."
    )
    numbers = {
        f"{name}, n = {n}": f"{e} {s}"
        for name in order
        for n, (e, s) in zip(SIZES, found[name], strict=True)
        if n in (2, 5)
    }
    return Illustration(caption, drawing, numbers)


def _tree(seed: int) -> Illustration:
    tree = ascent.godel_tree(seed=seed)
    shares = {
        f"share of {name}": sum(leaf.share for leaf in ascent.leaves(tree) if leaf.value == value)
        for name, value in (("+1", 1.0), ("0", 0.0), ("−1", -1.0))
    }
    caption = (
        "The derivative of max(min(a, b), min(1 - a, c)) to a, as the questions that decide it. The leaves are what "
        "autograd finds at 20,000 random points; below each, its share of the points."
    )
    return Illustration(caption, ascent.draw_tree(tree), shares)


def _success(seed: int) -> Illustration:
    attempts = {(f, t): ascent.attempt(f, t, seed=seed) for f in ascent.FORMULAS for t in ("godel", "lukasiewicz")}
    drawing, (bars, godel, lukasiewicz) = figure(1, 3, size=(13.5, 4.4))
    names = {"godel": "Gödel", "lukasiewicz": "Łukasiewicz"}
    ticks = [f"{formula}\n{names[tnorm]}" for formula, tnorm in attempts]
    places = range(len(attempts))
    bars.barh(places, [100 * a.rate for a in attempts.values()], color="#80b1d3", label="simulated")
    bars.plot(
        [100 * float(a.exact) for a in attempts.values()], places, "k|", markersize=28, markeredgewidth=2, label="exact"
    )
    for place, a in zip(places, attempts.values(), strict=True):
        bars.text(2, place, f"{100 * a.rate:.1f} % (exact {a.exact})", va="center")
    bars.set(yticks=list(places), yticklabels=ticks, xlim=(0, 105), xlabel="starts that end in a true formula (%)")
    bars.invert_yaxis()
    bars.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, markerscale=0.4)
    _map(drawing, godel, attempts[CLAUSES, "godel"], f"Gödel, {CLAUSES}")
    _map(drawing, lukasiewicz, attempts[CHOICE, "lukasiewicz"], f"Łukasiewicz, {CHOICE}")
    caption = (
        "Gradient ascent on two formulas that can be made true from anywhere, from 20,000 uniform starts (a, b, c). "
        "Left: how often it succeeds, beside the exact probability. Middle and right: the share of successes by a and "
        "b, over all c. Gödel is stuck from b < a < ½, c < ½ and from c < 1 - a < ½, b < ½; Łukasiewicz where "
        "a + b < 1 and c < a."
    )
    numbers = {
        f"{names[tnorm]}, {formula}": f"{a.rate:.4f} ± {a.error:.4f}, exact {a.exact}"
        for (formula, tnorm), a in attempts.items()
    }
    return Illustration(caption, drawing, numbers)


def _map(drawing: Any, ax: Any, tried: ascent.Attempt, title: str, cells: int = 20) -> None:
    """The share of successes in each cell of the (a, b) plane."""
    cell = (tried.starts[:, :2] * cells).long().clamp_max(cells - 1) @ torch.tensor([cells, 1])
    total, good = (torch.bincount(cell, w, cells**2).view(cells, cells) for w in (None, tried.found.double()))
    image = ax.imshow((good / total).T.numpy(), origin="lower", extent=(0, 1, 0, 1), vmin=0, vmax=1, cmap="viridis")
    ax.set(xlabel="a", ylabel="b", title=title)
    drawing.colorbar(image, ax=ax, label="share of successes", shrink=0.8)


STARTS = ((0.6, 0.5), (0.9, 0.05), (0.95, 0.2), (0.5, 0.3), (0.3, 0.1), (0.95, 0.5), (0.3, 0.6), (0.15, 0.4))


def _path() -> Illustration:
    drawing, (ax,) = figure(1, 1, size=(6.4, 5.4))
    a, c, value = (grid.numpy() for grid in Panel("", fuzzy.REICHENBACH).values(101))
    levels = ax.contourf(a, c, value, levels=torch.linspace(0, 1, 11).tolist(), cmap="viridis", alpha=0.85)
    drawing.colorbar(levels, ax=ax, label="a → c, Reichenbach")
    numbers = {}
    for number, (x, y) in enumerate(STARTS):
        path = ascent.reichenbach_path(x, y).numpy()
        colour, width = ("#d62728", 2.6) if not number else ("white", 1.3)
        ax.plot(path[:, 0], path[:, 1], color=colour, linewidth=width)
        ax.plot(x, y, "o", color=colour, markersize=5)
        ax.plot(*path[-1], "s", color=colour, markersize=5, clip_on=False)
        end, exact = path[-1].tolist(), ascent.reichenbach_end(x, y)
        numbers[f"from ({x:g}, {y:g})"] = f"({end[0]:.4f}, {end[1]:.4f}), exact ({exact[0]:.6f}, {exact[1]:.6f})"
    ax.text(0.58, 0.49, "(0.6, 0.5)", color="#d62728", fontweight="bold", ha="right")
    ax.text(0.31, 0.95, "(0.332, 1)", color="#d62728", fontweight="bold", ha="right")
    ax.set(xlabel="antecedent a", ylabel="consequent c", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    caption = (
        "Gradient ascent on the Reichenbach implication 1 - a + a·c, from dots to squares. It keeps a² - (1 - c)². "
        "From (0.6, 0.5), drawn in red, it ends at (0.3317, 1): the consequent has become certain because of an "
        "antecedent that is no longer believed."
    )
    return Illustration(caption, drawing, numbers)
