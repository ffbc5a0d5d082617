"""At corners: what can be reached is reached to the last bits, what is met or cannot be helped is left alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from doxa import fuzzy as fz
from doxa.errors import ConfigError
from doxa.refine import refinement

DTYPES = [torch.float32, torch.float64]


def problems(n: int, m: int, dtype: torch.dtype, count: int = 2000) -> tuple[Tensor, Tensor, Tensor]:
    """Truth values, constants and targets, a third at 0 or 1; the others have complements that are rounded."""
    generator = torch.Generator().manual_seed(10 * n + m)

    def draw(*shape: int) -> Tensor:
        x = torch.rand(*shape, generator=generator, dtype=dtype).square()
        corner = torch.randint(6, shape, generator=generator)
        return torch.where(corner == 0, 0.0, torch.where(corner == 1, 1.0, x)).to(dtype)

    return draw(count, n), draw(count, m), draw(count)


def within(x: Tensor, units: float) -> tuple[Tensor, Tensor]:
    """A little below and a little above."""
    step = units * torch.finfo(x.dtype).eps
    return (x - step).clamp_min(0), (x + step).clamp_max(1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "m"), [(1, 0), (2, 0), (3, 0), (2, 1), (3, 2)])
def test_targets_are_met(ordinary: fz.TNorm, n: int, m: int, dtype: torch.dtype) -> None:
    t, c, wanted = problems(n, m, dtype)
    g = ordinary.generator
    rounding = (64 if g is None or g.convex else 4096) * torch.finfo(dtype).eps
    for operator in (ordinary, ordinary.dual):
        rho = refinement(operator)
        goal = rho.clamp(wanted.unsqueeze(-1), c if m else None, -1).squeeze(-1)
        found = rho(t, wanted, c)
        if rho.turns:  # it jumps: met, or missed by much
            torch.testing.assert_close(rho.value(found, c), goal, atol=rounding, rtol=0)
        else:  # it may be steep: met within a few units of the arguments, the constants too
            (low, high), (c_low, c_high) = within(found, 8), within(c, 8)
            assert (rho.value(low, c_low) <= goal + rounding).all()
            assert (rho.value(high, c_high) >= goal - rounding).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "m"), [(2, 1), (3, 2)])
def test_nothing_moves_for_nothing(ordinary: fz.TNorm, n: int, m: int, dtype: torch.dtype) -> None:
    """Neither towards a target that is met, nor where a constant decides alone."""
    t, c, wanted = problems(n, m, dtype)
    for operator, annihilator in ((ordinary, 0.0), (ordinary.dual, 1.0)):
        rho = refinement(operator)
        assert torch.equal(rho(t, rho.value(t, c), c), t)
        decided = (c == annihilator).any(1)
        assert decided.any() and torch.equal(rho(t, wanted, c)[decided], t[decided])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_certainty_is_certain(ordinary: fz.TNorm, dtype: torch.dtype) -> None:
    """A conjunction that shall be true has literals of 1, a disjunction that shall be false literals of 0."""
    t, _, _ = problems(3, 0, dtype)
    rho, sigma = refinement(ordinary), refinement(ordinary.dual)
    unit = 4 * torch.finfo(dtype).eps
    assert (rho(t, 1.0) >= 1 - unit).all() and (sigma(t, 0.0) <= unit).all()
    if rho.turns or not ordinary.generator or ordinary.generator.strict:
        assert (rho.value(rho(t, 0.0)) == 0).all() and (sigma.value(sigma(t, 1.0)) == 1).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_residua_meet_targets_from_everywhere(closed: fz.TNorm, dtype: torch.dtype) -> None:
    """Also from an antecedent of 0, which must rise a little for any target below 1."""
    t, _, wanted = problems(2, 0, dtype)
    residuum = closed.residuum
    found = refinement(residuum)(t, wanted)
    (a_low, a_high), (c_low, c_high) = (within(x, 8 * float(x.abs().max())) for x in found.unbind(1))
    rounding = 64 * torch.finfo(dtype).eps
    assert (residuum(a_high, c_low) <= wanted + rounding).all() and (residuum(a_low, c_high) >= wanted - rounding).all()
    empty = found[(t[:, 0] == 0) & (wanted < 0.99)]
    assert len(empty) and (empty[:, 0] > 0).all()


def test_strict_residua_at_an_antecedent_of_0(strict: fz.TNorm) -> None:
    for dtype in DTYPES:
        for target in (0.0, 0.3, 0.9):
            a, c = refinement(strict.residuum)(torch.tensor([0.0, 0.7], dtype=dtype), target)
            assert strict.residuum(a, c).item() == pytest.approx(target, abs=1e-3)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_best_of_implications(ordinary: fz.TNorm, direction: str) -> None:
    t = torch.tensor([[0.9, 0.2], [0.4, 0.3], [1.0, 0.0]], dtype=torch.float64)
    for operator in (ordinary.residuum, fz.SImplication(ordinary.dual)):
        rho = refinement(operator)
        found = rho.best(t, 0.1, direction=direction)
        assert ((found - t).abs().sum(1) <= 0.1 + 1e-9).all()
        before, after = rho.value(t), rho.value(found)
        assert (after >= before - 1e-9).all() if direction == "up" else (after <= before + 1e-9).all()
    with pytest.raises(ConfigError, match="an implication has no constants; hold a side"):
        rho.best(t, 0.1, torch.ones(3, 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_certainty_is_met_without_rounding(ordinary: fz.TNorm, dtype: torch.dtype) -> None:
    """T is 1 only where all its arguments are, S is 0 only where all of them are."""
    t = torch.rand(2000, 4, dtype=dtype, generator=torch.Generator().manual_seed(4))
    assert torch.equal(refinement(ordinary)(t, 1.0), torch.ones_like(t))
    assert torch.equal(refinement(ordinary.dual)(t, 0.0), torch.zeros_like(t))
    moving = t.clone().requires_grad_()
    refinement(ordinary)(moving, 1.0).sum().backward()
    assert moving.grad is not None and bool(moving.grad.isfinite().all())


def near_corners(n: int, m: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Truth values and constants, half of them at 0, 1/2 or 1, or one unit off, or as small as can be."""
    generator = torch.Generator().manual_seed(10 * n + m)
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    corners = torch.tensor(
        [0, 1, 1 - eps / 2, 1 - eps, eps / 2, eps, tiny, 0.5, 0.5 - eps / 4, 0.5 + eps / 2], dtype=dtype
    )

    def draw(count: int) -> Tensor:
        x = torch.rand(4000, count, generator=generator, dtype=dtype)
        which = torch.randint(2 * len(corners), x.shape, generator=generator)
        return torch.where(which < len(corners), corners[which.clamp_max(len(corners) - 1)], x)

    return draw(n), draw(m) if m else None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "m"), [(1, 0), (2, 0), (3, 0), (7, 0), (2, 1), (3, 2)])
def test_false_and_true_are_met_or_missed_by_no_more_than_must_be(
    ordinary: fz.TNorm, n: int, m: int, dtype: torch.dtype
) -> None:
    """Operators are monotone, so that what all 0 and all 1 cannot reach cannot be reached."""
    t, c = near_corners(n, m, dtype)
    rounding = 64 * torch.finfo(dtype).eps
    for operator in (ordinary, ordinary.dual):
        rho = refinement(operator)
        for target in (0.0, 1.0):
            best = rho.value(torch.full_like(t, target), c)
            met = rho.value(rho(t, target, c), c)
            can = best == target
            assert torch.equal(met[can], best[can]), f"{operator} to {target}: {(met != best)[can].sum()} rows"
            if not rho.turns:  # which jump at constants that sum to 1, but for rounding
                torch.testing.assert_close(met, best, atol=rounding, rtol=0)
