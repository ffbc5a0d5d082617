"""The numbers behind the figures of Chapter 3, against its formulas, the errata and second computations."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from doxa.fuzzy import GOGUEN, IMPLICATIONS, TNORMS, LogProduct, Lukasiewicz
from doxa.reproduce import fuzzy_figures
from doxa.reproduce.figures._ascent import (
    CHOICE,
    CLAUSES,
    EXACT,
    QUESTIONS,
    Branch,
    Leaf,
    Tree,
    ascend,
    attempt,
    godel_tree,
    reichenbach_end,
    reichenbach_path,
)
from doxa.reproduce.figures._fuzzy import SIZES, SURFACES, vanishing_fractions
from doxa.reproduce.figures._surfaces import Panel, operator_panels, tiles

Function = Callable[[Tensor, Tensor], Tensor]


def stuck_godel(x: Tensor) -> Tensor:
    """From where Gödel does not find `clauses`: b < a < ½ and c < ½, or c < 1 - a < ½ and b < ½."""
    a, b, c = x.unbind(-1)
    return ((b < a) & (a < 0.5) & (c < 0.5)) | ((c < 1 - a) & (a > 0.5) & (b < 0.5))


def stuck_lukasiewicz(x: Tensor) -> Tensor:
    """From where Łukasiewicz does not find `choice`: a + b < 1 and c < a."""
    a, b, c = x.unbind(-1)
    return (a + b < 1) & (c < a)


def read_tree(tree: Tree, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The value of the leaf that each point falls into."""
    if isinstance(tree, Leaf):
        return torch.full_like(a, tree.value)
    return torch.where(QUESTIONS[tree.question](a, b, c), read_tree(tree.yes, a, b, c), read_tree(tree.no, a, b, c))


# -- gradient ascent ----------------------------------------------------------------------------------------------


def test_ascent_is_projected() -> None:
    """On -(x - 2)²/2 it goes x + rate·(2 - x), and never beyond 1."""
    path = torch.stack(list(ascend(lambda x: -((x[..., 0] - 2) ** 2) / 2, torch.tensor([0.0]), rate=0.25, steps=4)))
    assert path.flatten().tolist() == pytest.approx([0, 0.5, 0.875, 1, 1])


@pytest.mark.parametrize(
    ("formula", "tnorm", "stuck"),
    [
        (CHOICE, "godel", None),
        (CHOICE, "lukasiewicz", stuck_lukasiewicz),
        (CLAUSES, "godel", stuck_godel),
        (CLAUSES, "lukasiewicz", None),
    ],
)
def test_success_rates(formula: str, tnorm: str, stuck: Callable[[Tensor], Tensor] | None) -> None:
    rate = 0.01
    tried = attempt(formula, tnorm, starts=4000, rate=rate, seed=3)
    # near a border of the stuck set a step of finite size may land on the other side: hence the second term
    assert tried.rate == pytest.approx(float(tried.exact), abs=4 * tried.error + rate)
    if stuck is None:
        assert tried.exact == 1 and bool(tried.found.all())
        return
    nearby = torch.stack([stuck(tried.starts + 2 * rate * shift) for shift in torch.cartesian_prod(*[SHIFTS] * 3)])
    sure = (nearby == nearby[:1]).all(0)
    assert sure.double().mean() > 0.8
    assert torch.equal(tried.found[sure], ~stuck(tried.starts[sure]))


SHIFTS = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("stuck", "found"), [(stuck_godel, EXACT[CLAUSES, "godel"]), (stuck_lukasiewicz, EXACT[CHOICE, "lukasiewicz"])]
)
def test_exact_rates_are_volumes(stuck: Callable[[Tensor], Tensor], found: Fraction) -> None:
    """Midpoints of 60³ cells: wrong only in the cells that a border goes through."""
    side = (torch.arange(60, dtype=torch.float64) + 0.5) / 60
    volume = float(stuck(torch.cartesian_prod(side, side, side)).double().mean())
    assert 1 - volume == pytest.approx(float(found), abs=0.01)
    assert found in (Fraction(7, 8), Fraction(5, 6))  # errata 2.12


@pytest.mark.parametrize("start", [(0.6, 0.5), (0.9, 0.05), (0.3, 0.6)])
def test_reichenbach_path(start: tuple[float, float]) -> None:
    a, c = start
    exact = reichenbach_end(a, c)
    errors = []
    for rate in (4e-3, 2e-3):
        path = reichenbach_path(a, c, rate=rate)
        kept = path[:, 0] ** 2 - (1 - path[:, 1]) ** 2
        assert float((kept[:-1] - kept[0]).abs().max()) < 2 * rate
        errors.append(math.dist(path[-1].tolist(), exact))
    assert errors[1] < 4e-3
    if start == (0.6, 0.5):
        assert exact == pytest.approx((0.331662, 1.0), abs=1e-6)  # errata 2.13
        assert path[-1].tolist() == pytest.approx([0.331662, 1.0], abs=2e-3)


def test_reichenbach_end_by_the_exact_flow() -> None:
    """da/dt = -(1 - c), dc/dt = a is linear: a = √k cosh(t), 1 - c = √k sinh(t), up to the start of t."""
    a, c = 0.6, 0.5
    t = math.atanh((1 - c) / a)
    assert reichenbach_end(a, c) == pytest.approx((a / math.cosh(t), 1.0))


# -- the tree -----------------------------------------------------------------------------------------------------


def test_tree_is_the_derivative() -> None:
    """At points of its own, against the indicator functions of the chapter."""
    a, b, c = torch.rand(3, 100_000, dtype=torch.float64, generator=torch.Generator().manual_seed(11))
    up = (a > torch.minimum(1 - a, c)) & (a < b)
    down = (1 - a > torch.minimum(a, b)) & (1 - a < c)
    assert torch.equal(read_tree(godel_tree(), a, b, c), up.double() - down.double())


def test_leaves_of_the_tree() -> None:
    """The values of errata 2.11, and the volumes as integrals over a."""
    tree = godel_tree()
    assert isinstance(tree.yes, Branch) and isinstance(tree.no, Branch)
    assert isinstance(tree.yes.yes, Branch) and isinstance(tree.yes.no, Branch) and isinstance(tree.no.yes, Branch)
    leaves = [tree.yes.yes.yes, tree.yes.yes.no, tree.yes.no.yes, tree.yes.no.no, tree.no.yes.yes, tree.no.yes.no]
    found = [leaf for leaf in (*leaves, tree.no.no) if isinstance(leaf, Leaf)]
    assert [leaf.value for leaf in found] == [1, -1, 1, 0, -1, 0, 0]
    volumes = [1 / 12, 1 / 12, 1 / 8, 5 / 24, 1 / 8, 5 / 24, 1 / 6]
    assert sum(volumes) == pytest.approx(1)
    assert [leaf.share for leaf in found] == pytest.approx(volumes, abs=0.012)  # four standard errors


# -- fractions ----------------------------------------------------------------------------------------------------


def test_fractions() -> None:
    found = vanishing_fractions(seed=1, samples=5000)
    for pairs in found.values():
        assert len(pairs) == len(SIZES) and pairs[0][0].value == 1
        for exact, sampled in pairs:
            spread = math.sqrt(exact.value * (1 - exact.value) / 5000)
            assert exact.method == "closed form" and sampled.method == "sampling"
            assert sampled.value == pytest.approx(exact.value, abs=4.5 * spread + 1 / 5000)
    exact = {name: [pair[0].value for pair in pairs] for name, pairs in found.items()}
    assert exact["Yager, p = 2"][1:5] == pytest.approx([0.785398, 0.523599, 0.308425, 0.164493], abs=1e-6)  # errata 2.6
    assert exact["Yager, p = 1.5"][2] == pytest.approx(0.367846, abs=1e-6)  # errata 2.7
    assert exact["Łukasiewicz (Yager, p = 1)"][3] == pytest.approx(1 / 24)
    assert exact["nilpotent minimum"][4] == pytest.approx(1 / 16)


# -- surfaces -----------------------------------------------------------------------------------------------------


def sigmoid(s: float, b0: float, value: Tensor) -> Tensor:
    """As printed in the dissertation, with the σ of errata 2.15."""
    d = (1 + math.exp(-s * (1 + b0))) / (math.exp(-s * b0) - math.exp(-s * (1 + b0)))
    return d * ((1 + math.exp(-s * b0)) / (1 + torch.exp(-s * (value + b0))) - 1)


def slope(s: float, b0: float, value: Tensor) -> Tensor:
    d = (1 + math.exp(-s * (1 + b0))) / (math.exp(-s * b0) - math.exp(-s * (1 + b0)))
    at = 1 / (1 + torch.exp(-s * (value + b0)))
    return d * (1 + math.exp(-s * b0)) * s * at * (1 - at)


def reichenbach(a: Tensor, c: Tensor) -> Tensor:
    return 1 - a + a * c


def above(a: Tensor, c: Tensor, value: Tensor, otherwise: float) -> Tensor:
    return torch.where(a > c, value, otherwise)


PRINTED: dict[str, list[Function]] = {
    "yager2_norm": [
        lambda a, b: (1 - ((1 - a) ** 2 + (1 - b) ** 2).sqrt()).clamp_min(0),
        lambda a, b: (a**2 + b**2).sqrt().clamp_max(1),
    ],
    "yager2_deriv": [
        lambda a, b: torch.where((1 - a) ** 2 + (1 - b) ** 2 < 1, (1 - a) / ((1 - a) ** 2 + (1 - b) ** 2).sqrt(), 0.0),
        lambda a, b: torch.where(a**2 + b**2 < 1, a / (a**2 + b**2).sqrt(), 0.0),
    ],
    "prod_norm": [lambda a, b: a * b, lambda a, b: a + b - a * b],
    "kd_godel": [lambda a, c: torch.maximum(1 - a, c), lambda a, c: above(a, c, c, 1.0)],
    "yager-r-s-impl": [
        lambda a, c: ((1 - a) ** 2 + c**2).sqrt().clamp_max(1),
        lambda a, c: above(a, c, 1 - ((1 - c) ** 2 - (1 - a) ** 2).clamp_min(0).sqrt(), 1.0),
    ],
    "deriv_yager_sI2": [
        lambda a, c: torch.where((1 - a) ** 2 + c**2 < 1, c / ((1 - a) ** 2 + c**2).sqrt(), 0.0),
        lambda a, c: torch.where((1 - a) ** 2 + c**2 < 1, (1 - a) / ((1 - a) ** 2 + c**2).sqrt(), 0.0),
    ],
    "yager-r-deriv": [
        lambda a, c: above(a, c, (1 - c) / ((1 - c) ** 2 - (1 - a) ** 2).clamp_min(0).sqrt(), 0.0),
        lambda a, c: above(a, c, (1 - a) / ((1 - c) ** 2 - (1 - a) ** 2).clamp_min(0).sqrt(), 0.0),
    ],
    "goguen-i": [reichenbach, lambda a, c: above(a, c, c / a, 1.0)],
    "reichenbach-aggregators": [
        lambda a, c: (1 - c) / reichenbach(a, c),
        lambda a, c: (1 - c) * (a - a * c) / (2 * (0.9 + (a - a * c) ** 2)).sqrt(),
    ],
    "deriv_goguen": [lambda a, c: above(a, c, 1 / a, 0.0), lambda a, c: above(a, c, c / a**2, 0.0)],
    "log_dmp": [
        lambda a, c: a / reichenbach(a, c),
        lambda a, c: slope(9, -0.5, reichenbach(a, c)) * a / sigmoid(9, -0.5, reichenbach(a, c)),
    ],
    "deriv_rcsigm": [
        lambda a, c: slope(9, -0.5, reichenbach(a, c)) * a,
        lambda a, c: slope(9, -0.5, reichenbach(a, c)) * (1 - c),
    ],
    "probsum_sigm_s": [
        lambda a, c: sigmoid(9, -0.5, reichenbach(a, c)),
        lambda a, c: sigmoid(9, -0.2, reichenbach(a, c)),
        lambda a, c: sigmoid(0.01, -0.5, reichenbach(a, c)),
        lambda a, c: sigmoid(20, -0.5, reichenbach(a, c)),
    ],
}


@pytest.mark.parametrize("name", SURFACES)
def test_surfaces_are_the_printed_formulas(name: str) -> None:
    """What autograd finds from our operators is what the chapter prints, corrected by the errata."""
    x, y = torch.rand(2, 5000, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) * 0.98 + 0.01
    _, panels = SURFACES[name]
    for panel, formula in zip(panels, PRINTED[name], strict=True):
        torch.testing.assert_close(panel.f(x, y), formula(x, y), rtol=1e-7, atol=1e-9)


def test_golden_derivatives() -> None:
    """Errata 2.14 and 2.15 at (0.8, 0.3)."""
    a, c = (torch.tensor([x], dtype=torch.float64) for x in (0.8, 0.3))
    found = {name: [panel.f(a, c).item() for panel in SURFACES[name][1]] for name in SURFACES}
    assert found["yager-r-deriv"] == pytest.approx([1.043498, 0.298142], abs=1e-5)
    assert found["deriv_yager_sI2"] == pytest.approx([0.832050, 0.554700], abs=1e-5)
    assert found["deriv_goguen"] == pytest.approx([1.25, 0.46875], abs=1e-5)
    assert found["deriv_rcsigm"] == pytest.approx([1.712535, 1.498468], abs=1e-5)
    assert found["probsum_sigm_s"][:2] == pytest.approx([0.365226, 0.880273], abs=1e-5)


def area(polygon: Tensor) -> float:
    x, y = polygon[:, 0], polygon[:, 1]
    return abs(float((x * y.roll(-1) - y * x.roll(-1)).sum())) / 2


def test_tiles_are_cut_along_jumps() -> None:
    """The derivative of Yager's t-norm is 0 on 1 - π/4 of the square; the tiles cover both parts and nothing twice."""
    panel = SURFACES["yager2_deriv"][1][0]
    flat, rest = 0.0, 0.0
    for tile, _ in tiles(panel):
        on_plateau = tile[:, 2] == 0
        assert on_plateau.all() or not on_plateau.any() or float(tile[:, 2].max()) < 0.05, "a tile leads over the jump"
        flat, rest = (flat + area(tile), rest) if on_plateau.all() else (flat, rest + area(tile))
    assert flat + rest == pytest.approx(1, abs=1e-4)
    assert flat == pytest.approx(1 - math.pi / 4, abs=1e-3)


def test_tiles_of_a_log_scale_leave_out_zero() -> None:
    """Goguen has derivatives on half of the square."""
    panel = SURFACES["deriv_goguen"][1][0]
    assert sum(area(tile) for tile, _ in tiles(panel)) == pytest.approx(0.5 * 0.98**2, abs=2e-3)
    a, c, _ = panel.values()
    assert bool((panel.height(a, c)[a > c].exp() > 0).all()) and bool(panel.height(a, c)[a <= c].isnan().all())
    assert float(panel.height(torch.tensor(0.1), torch.tensor(0.05))) == pytest.approx(1)  # log₁₀ of 1/0.1


def test_panels_of_operators() -> None:
    value, first, second = operator_panels("t", Lukasiewicz())
    a, b = torch.tensor([0.8, 0.2]), torch.tensor([0.7, 0.3])
    assert value.f(a, b).tolist() == pytest.approx([0.5, 0.0])
    assert first.f(a, b).tolist() == second.f(a, b).tolist() == [1.0, 0.0]
    assert value.axes == ("a", "b") and operator_panels("i", GOGUEN)[0].axes == ("a", "c")
    _, slope_1, _ = operator_panels("log", LogProduct())
    assert slope_1.limits == (0.0, 4.0) and "cut" in slope_1.title
    assert slope_1.f(a, b).tolist() == pytest.approx([1.25, 5.0])


@pytest.mark.parametrize("operator", [*TNORMS.values(), *IMPLICATIONS.values()], ids=repr)
def test_every_operator_can_be_drawn(operator: object) -> None:
    for panel in operator_panels("operator", operator):  # type: ignore[arg-type]
        *_, z = panel.values(33)
        assert bool(z.isfinite().all())
        assert panel.limits[0] < panel.limits[1]


# -- pictures -----------------------------------------------------------------------------------------------------


def test_pictures_have_their_panels() -> None:
    gallery = fuzzy_figures()
    assert list(gallery)[:3] == ["ratio_2_yager", "decision_tree", "success_rates"]
    shown = gallery["reichenbach-aggregators"]()
    assert [ax.get_title() for ax in shown.drawing.axes] == ["log-product, cut at 4", "RMSE"]
    tree = gallery["decision_tree"]()
    texts = [text.get_text() for text in tree.drawing.axes[0].texts]
    assert {"a < b", "1 − a < c", "+1", "−1", "0"} <= set(texts)
    path = gallery["reichenbach_path"]()
    assert str(path.numbers["from (0.6, 0.5)"]).endswith("1.0000), exact (0.331662, 1.000000)")


def test_panel_defaults() -> None:
    x, y, z = Panel("sum", lambda a, c: a + c).values(3)
    assert z.tolist() == [[0, 0.5, 1], [0.5, 1, 1.5], [1, 1.5, 2]]
    assert torch.equal(x + y, z)
