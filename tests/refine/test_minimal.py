"""Refinement against independent minimisers: brute force on a grid, and SLSQP from many starts.

Both check two things: the target is attained, and no feasible point they find is nearer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from doxa import fuzzy as fz
from doxa.refine import Refinement, refinement
from doxa.refine._base import Junction
from doxa.refine._catalogue import NumericalRefinement

Operator = Callable[[Tensor], Tensor]


def problems(seed: int, n: int, m: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random truth values, constants and targets; some truth values and targets at 0 and 1, some truth values tied."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.rand(count, n, generator=generator, dtype=torch.float64)
    c = 0.5 + 0.5 * torch.rand(count, m, generator=generator, dtype=torch.float64)
    target = torch.rand(count, generator=generator, dtype=torch.float64)
    t[0, 0], t[1, 0], target[2], target[3] = 0.0, 1.0, 1.0, 0.0
    t[4] = t[4, 0]
    return t, c, target


def nearest_by_brute_force(f: Operator, t: Tensor, target: Tensor, p: float, steps: int = 33) -> Tensor:
    """The least distance from each row of t to the level set of f, which increases in its last argument.

    All but the last argument run over a grid; the interval of last arguments that give the target comes from bisection.
    """
    count, n = t.shape
    line = torch.linspace(0, 1, steps, dtype=torch.float64).expand(count, -1)
    line = torch.cat([line, t, target.unsqueeze(1), 1 - target.unsqueeze(1)], 1)
    if n > 1:
        heads = line[:, torch.cartesian_prod(*[torch.arange(line.shape[1])] * (n - 1)).reshape(-1, n - 1)]
    else:
        heads = torch.empty(count, 1, 0, dtype=torch.float64)
    goal, own = target.unsqueeze(1), t[:, None, -1]

    def crossing(above: bool) -> Tensor:
        """The lowest last argument at which f reaches the target (passes it, if ``above``)."""
        low, high = torch.zeros(heads.shape[:2], dtype=torch.float64), torch.ones(heads.shape[:2], dtype=torch.float64)
        for _ in range(44):
            middle = (low + high) / 2
            value = f(torch.cat([heads, middle.unsqueeze(-1)], -1))
            there = value > goal + 1e-12 if above else value >= goal - 1e-12
            low, high = torch.where(there, low, middle), torch.where(there, middle, high)
        return high

    last = torch.minimum(torch.maximum(own, crossing(False)), crossing(True))
    points = torch.cat([heads, last.unsqueeze(-1)], -1)
    feasible = (f(points) - goal).abs() < 1e-10
    gone = torch.linalg.vector_norm(points - t.unsqueeze(1), ord=p, dim=-1)
    return torch.where(feasible, gone, torch.inf).amin(1)


def check(rho: Refinement, f: Callable[[Tensor, Tensor], Tensor], n: int, m: int, p: float, count: int = 8) -> None:
    is_tnorm = isinstance(rho, Junction)
    t, c, wanted = problems(10 * n + m, n, m, count)
    c = c if is_tnorm else 1 - c
    goal = rho.clamp(wanted.unsqueeze(-1), c if m else None, -1).squeeze(-1)
    found = rho(t, wanted, c)
    torch.testing.assert_close(f(found, c), goal, atol=1e-6, rtol=0)
    gone = torch.linalg.vector_norm(found - t, ord=p, dim=1)
    nearest = nearest_by_brute_force(
        lambda z: f(z, c.unsqueeze(1).expand(-1, z.shape[1], -1)), t, goal, p, 33 if n == 3 else 801
    )
    # A truth value within 1e-10 may be 2e-4 nearer where the operator is as flat as a square root.
    assert (gone <= nearest + 2e-4).all(), (gone - nearest, t, c, wanted)


def joined(operator: fz.TNorm | fz.TConorm) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda z, c: operator.reduce(torch.cat([z, c], -1), dim=-1)


@pytest.mark.parametrize(("n", "m"), [(1, 0), (2, 0), (2, 2), (3, 0), (3, 1)])
def test_closed_forms_against_brute_force(closed: fz.TNorm, n: int, m: int) -> None:
    for operator in (closed, closed.dual):
        rho = refinement(operator)
        assert rho.minimal_for(1) and not rho.numerical
        check(rho, joined(operator), n, m, 1.0)


@pytest.mark.parametrize("tnorm", [fz.Godel(), fz.Lukasiewicz()], ids=repr)
@pytest.mark.parametrize("p", [2.0, 4.0])
def test_godel_and_lukasiewicz_in_every_norm(tnorm: fz.TNorm, p: float) -> None:
    for operator in (tnorm, tnorm.dual):
        rho = refinement(operator, p)
        assert not rho.numerical
        check(rho, joined(operator), 2, 1, p)
        check(rho, joined(operator), 3, 0, p)


def test_numerical_search_against_brute_force(not_convex: fz.TNorm) -> None:
    for operator in (not_convex, not_convex.dual):
        rho = refinement(operator, p=1)
        assert rho.numerical and rho.minimal_for(1)
        check(rho, joined(operator), 2, 1, 1.0)
        check(rho, joined(operator), 3, 0, 1.0, count=6)


@pytest.mark.parametrize("tnorm", [fz.Product(), fz.Yager(2.0), fz.Hamacher(2.0)], ids=repr)
def test_product_in_the_euclidean_norm(tnorm: fz.TNorm) -> None:
    for operator in (tnorm, tnorm.dual):
        rho = refinement(operator, p=2)
        assert rho.numerical and rho.minimal_for(2)
        check(rho, joined(operator), 2, 1, 2.0)
        check(rho, joined(operator), 3, 0, 2.0, count=6)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("m", [0, 2])
def test_a_raised_product_in_the_euclidean_norm_is_a_root(n: int, m: int) -> None:
    """Against SLSQP, against the search that other norms need, and for two literals against the roots of a quartic."""
    t, c, wanted = problems(30 + n, n, m, 12)
    rho = refinement(fz.Product(), p=2)
    value = rho.value(t, c)
    goal = rho.clamp((value + (1 - value) * wanted).unsqueeze(-1), c, -1).squeeze(-1)
    found = rho(t, goal, c)
    torch.testing.assert_close(rho.value(found, c), goal, atol=1e-12, rtol=1e-9)
    searched = NumericalRefinement(fz.Product(), 2.0)(t, goal, c)
    gone, further = (torch.linalg.vector_norm(z - t, dim=1) for z in (found, searched))
    assert (gone <= further + 1e-9).all()
    factor = c.prod(1) if m else torch.ones(12, dtype=torch.float64)
    for row, level, length in zip(t.numpy(), (goal / factor).numpy(), gone.numpy(), strict=True):
        best = minimize(
            lambda z, row=row: ((z - row) ** 2).sum(),
            np.clip(row + 0.1, 0.05, 1),
            bounds=[(0, 1)] * n,
            constraints={"type": "ineq", "fun": lambda z, level=level: z.prod() - level},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert length <= np.sqrt(best.fun) + 1e-5
        if n == 2:  # x⁴ - t₁x³ + t₂Px - P² = 0, from x(x - t₁) = y(y - t₂) and xy = P; or one of them is 1
            roots = np.roots([1, -row[0], 0, row[1] * level, -(level**2)])
            x = roots.real[(abs(roots.imag) < 1e-9) & (roots.real > 0)]
            points = [(x, level / x) for x in (*x, 1.0, level) if x > 0 and level / x <= 1 + 1e-12 and x <= 1 + 1e-12]
            least = min(np.hypot(x - row[0], y - row[1]) for x, y in points)
            assert length == pytest.approx(least, abs=1e-6)


def test_a_raised_product_has_the_derivatives_of_differences() -> None:
    rho = refinement(fz.Product(), p=2)
    t = torch.tensor([[0.3, 0.5, 0.7], [0.2, 0.9, 0.4]], dtype=torch.float64, requires_grad=True)
    goal = torch.tensor([0.4, 0.6], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t, goal: rho(t, goal), (t, goal), eps=1e-5, atol=1e-5)


def test_formulas_of_generators_that_are_not_convex_attain_the_target(not_convex: fz.TNorm) -> None:
    rho = refinement(not_convex)
    assert rho.norms is None and not rho.numerical
    t, c, wanted = problems(0, 4, 1, 50)
    torch.testing.assert_close(
        rho.value(rho(t, wanted, c), c), rho.clamp(wanted.unsqueeze(-1), c, -1).squeeze(-1), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("target", [0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("n", [2, 3])
def test_jumps_against_brute_force(jumps: fz.TNorm, n: int, target: float) -> None:
    """Their level sets are found by trying every literal as the smallest, and a grid for the others."""
    for operator, t in [(jumps, problems(n, n, 0, 12)[0]), (jumps.dual, 1 - problems(n, n, 0, 12)[0])]:
        rho = refinement(operator)
        goal = target if operator is jumps else 1 - target
        found = rho(t, goal)
        if target < 1 or operator is jumps:
            torch.testing.assert_close(
                rho.value(found), torch.full((12,), goal, dtype=torch.float64), atol=1e-9, rtol=0
            )
        line = torch.cat([torch.linspace(0, 1, 51, dtype=torch.float64), torch.tensor([goal], dtype=torch.float64)])
        grid = torch.cartesian_prod(*[line] * n)
        feasible = grid[(rho.value(grid) - goal).abs() < 1e-12]
        for row, z in zip(t, found, strict=True):
            special = torch.cat([feasible, torch.where(feasible == 1, row.clamp_min(0.99), feasible)])
            special = special[(rho.value(special) - goal).abs() < 1e-12]
            nearest = (special - row).abs().sum(1).min()
            assert (z - row).abs().sum() <= nearest + 1e-9


@pytest.mark.parametrize("fixed", [None, "antecedent", "consequent"])
def test_residua_attain_what_can_be_attained(closed: fz.TNorm, fixed: str | None) -> None:
    t, _, wanted = problems(5, 2, 0, 200)
    t, wanted = t[5:], wanted[5:]
    rho, f = refinement(closed.residuum), closed.residuum
    a, c = t.unbind(1)
    found = rho(t, wanted, fixed=fixed)
    zero, one = torch.zeros_like(a), torch.ones_like(a)
    lowest = {None: f(one, zero), "antecedent": f(a, zero), "consequent": f(one, c)}[fixed]
    reachable = torch.maximum(wanted, lowest)
    if isinstance(closed, fz.Godel):  # then only [0, a) and 1, or c and 1
        if fixed == "antecedent":
            reachable = torch.where(reachable < a, reachable, 1.0)
        elif fixed == "consequent":
            reachable = torch.where(found[:, 0] > c, c, 1.0)
    torch.testing.assert_close(f(found[:, 0], found[:, 1]), reachable, atol=1e-6, rtol=0)
    if fixed == "antecedent":
        assert torch.equal(found[:, 0], a)
    if fixed == "consequent":
        assert torch.equal(found[:, 1], c)


def nearest_pairs(f: fz.Implication, t: Tensor, target: Tensor, p: float) -> Tensor:
    """The least distance to the level set of an implication: a grid of antecedents, bisection for the consequent."""
    flipped = torch.stack([1 - t[:, 0], t[:, 1]], 1)
    return nearest_by_brute_force(lambda z: f(1 - z[..., 0], z[..., 1]), flipped, target, p, steps=801)


def test_implications_against_brute_force(closed: fz.TNorm) -> None:
    t, _, wanted = problems(7, 2, 0, 10)
    for operator in (fz.SImplication(closed.dual), closed.residuum):
        rho = refinement(operator)
        found = rho(t, wanted)
        assert ((found - t).abs().sum(1) <= nearest_pairs(operator, t, wanted, 1.0) + 2e-4).all()


@pytest.mark.parametrize("operator", [fz.GOGUEN, fz.REICHENBACH, fz.Godel().residuum, fz.Yager(2.0).residuum], ids=repr)
def test_implications_in_the_euclidean_norm(operator: fz.Implication) -> None:
    t, _, wanted = problems(8, 2, 0, 10)
    rho = refinement(operator, p=2)
    assert rho.minimal_for(2)
    found = rho(t, wanted)
    assert (torch.linalg.vector_norm(found - t, dim=1) <= nearest_pairs(operator, t, wanted, 2.0) + 2e-4).all()


@pytest.mark.parametrize("operator", [fz.Yager(0.5).residuum, fz.Dombi(0.5).residuum], ids=repr)
def test_residua_of_generators_that_are_not_convex(operator: fz.RImplication) -> None:
    t, _, wanted = problems(9, 2, 0, 10)
    found = refinement(operator, p=1)(t, wanted)
    assert ((found - t).abs().sum(1) <= nearest_pairs(operator, t, wanted, 1.0) + 2e-4)[4:].all()


@pytest.mark.parametrize("operator", [fz.FODOR, fz.WEBER], ids=repr)
def test_residua_with_jumps(operator: fz.RImplication) -> None:
    t, _, wanted = problems(11, 2, 0, 60)
    t, wanted = t.round(decimals=2), wanted.round(decimals=2)
    rho = refinement(operator)
    found = rho(t, wanted)
    torch.testing.assert_close(operator(*found.unbind(1)), wanted, atol=1e-9, rtol=0)
    line = torch.linspace(0, 1, 101, dtype=torch.float64).round(decimals=2)
    grid = torch.cartesian_prod(line, line)
    values = operator(*grid.unbind(1))
    for row, goal, z in zip(t, wanted, found, strict=True):
        points = grid[(values - goal).abs() < 1e-12]
        assert (z - row).abs().sum() <= (points - row).abs().sum(1).min() + 1e-9
    for fixed, side in (("antecedent", 0), ("consequent", 1)):
        kept = rho(t, wanted, fixed=fixed)
        assert torch.equal(kept[:, side], t[:, side])
        for row, goal, z in zip(t, wanted, kept, strict=True):
            points = grid[grid[:, side] == row[side]]
            exact = points[(operator(*points.unbind(1)) - goal).abs() < 1e-12]
            if len(exact):
                assert abs(operator(z[0], z[1]) - goal) < 1e-9
                assert (z - row).abs().sum() <= (exact - row).abs().sum(1).min() + 1e-9


def test_slsqp_finds_nothing_closer(smooth: fz.TNorm) -> None:
    """Splitting the change into a rise u and a fall v makes the L1 norm linear, so SLSQP can start anywhere."""
    t, _, wanted = problems(3, 3, 0, 8)
    rng = np.random.default_rng(0)
    for operator in (smooth, smooth.dual):
        found = refinement(operator)(t, wanted)
        for k in range(6, 8):
            start_t, goal = t[k].numpy(), wanted[k].item()

            def missed(
                w: np.ndarray, x: np.ndarray = start_t, goal: float = goal, f: Operator = operator.reduce
            ) -> float:
                return f(torch.from_numpy(x + w[:3] - w[3:]).clamp(0, 1)).item() - goal

            bounds = [(0, 1 - x) for x in start_t] + [(0, x) for x in start_t]
            best = np.inf
            for _ in range(3):
                w = rng.uniform(0, 1, 6) * [b[1] for b in bounds]
                done = minimize(
                    lambda w: w.sum(),
                    w,
                    constraints=[{"type": "eq", "fun": missed}],
                    bounds=bounds,
                    options={"maxiter": 60},
                )
                if abs(missed(done.x)) < 1e-8:
                    best = min(best, done.fun)
            assert (found[k] - t[k]).abs().sum() <= best + 1e-6
