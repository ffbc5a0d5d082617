"""A generated sweep: every operator, parameters up to their limits, three dtypes, and the corners of the unit square.

Each member of a family must have values in [0, 1], finite derivatives (by its arguments and by what it learns), and
keep the laws of its kind up to rounding. The sample of the ordinary tests takes a few corners, the slow test all of
them; both count what they evaluate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from doxa import fuzzy as fz
from doxa.fuzzy.operators._parameters import learnables
from doxa.fuzzy.operators._wrapped import StableAggregator

SMALL = [5e-324, 1e-300, 1e-45, 1e-20, 1e-8, 1e-3, 0.1, 0.5]
NEAR_ONE = [0.85, 0.9, 0.99, 1 - 1e-7, 1 - 2**-53, 1.0, 1 + 2**-52, 1 + 1e-7, 1.01, 1.1, 1.17]
LARGE = [1.5, 2 - 1e-9, 2.0, 2 + 1e-9, 3.0, 5.0, 20.0, 50.0, 1e3, 1e8, 1e30, 1e300]
POSITIVE = SMALL + NEAR_ONE + LARGE
RAW = (-100.0, -20.0, -3.0, 0.0, 3.0, 50.0)
"""Where the free parameter of a learnable one may have gone to."""


def learnt(low: float | None, high: float | None) -> Iterator[fz.Learnable]:
    for raw in RAW:
        inside = (0.0 if high is None else high - 0.5) if low is None else low + 0.5
        parameter = fz.Learnable(inside, low=low, high=high)
        with torch.no_grad():
            parameter.raw.fill_(raw)
        yield parameter


def tnorms() -> Iterator[fz.TNorm]:
    yield from (fz.Godel(), fz.Product(), fz.Lukasiewicz(), fz.Drastic(), fz.NilpotentMinimum(), fz.Product(eps=1e-3))
    for power in (fz.Yager, fz.AczelAlsina, fz.Dombi):
        yield from map(power, [*POSITIVE, *learnt(1.0, None), *learnt(0.0, 1.0)])
    signed = [*POSITIVE, 0.0, *(-p for p in POSITIVE)]
    yield from map(fz.SchweizerSklar, [*signed, *learnt(0.0, None), *learnt(None, 0.0)])
    yield from map(fz.Frank, [*POSITIVE, *learnt(1.0, None), *learnt(0.0, 1.0)])
    yield from map(fz.Hamacher, [0.0, *POSITIVE, *learnt(0.0, None)])
    above = [-1 + 2**-53, -1 + 1e-7, -0.999, -0.5, *(-p for p in SMALL), 0.0, *POSITIVE]
    yield from map(fz.SugenoWeber, [*above, *learnt(0.0, None), *learnt(-1.0, 0.0)])


def negations() -> Iterator[fz.Negation]:
    yield from (fz.StandardNegation(), fz.IntuitionisticNegation())
    yield from map(fz.SugenoNegation, [-1 + 2**-53, -0.999, 0.0, *POSITIVE, *learnt(-1.0, None)])
    yield from map(fz.YagerNegation, [*POSITIVE, *learnt(1.0, None), *learnt(0.0, 1.0)])


def means() -> Iterator[fz.Aggregator]:
    for mean in (fz.GeneralizedMean, fz.GeneralizedMeanError, fz.UnboundedYager, fz.UnboundedYagerSum):
        yield from map(mean, [*POSITIVE, *learnt(1.0, None), *learnt(0.0, 1.0)])
    yield from (fz.LogProduct(), fz.LogProduct("mean"), fz.LogProbabilisticSum())
    yield from (fz.LogForall(), fz.LogForall("mean"))
    yield from map(fz.LogExists, [*POSITIVE, *learnt(0.0, None)])
    yield from bends(fz.GeneralizedMeanError(1.0))
    for squeeze in (0.0, 1e-7, 0.1):
        yield StableAggregator(squeeze, fz.GeneralizedMeanError(2.0))


def implications() -> Iterator[fz.Implication]:
    for inner in (fz.REICHENBACH, fz.GOGUEN):
        yield from bends(inner)
    for n in negations():
        yield fz.SImplication(fz.Product().dual, n)


def bends(operator: Any) -> Iterator[Any]:
    for s in [0.0, *POSITIVE, *learnt(0.0, None)]:
        for b0 in (-1.5, -0.5, 0.0, 1.0, *learnt(-1.0, 0.0)):
            yield fz.sigmoidal(operator, s, b0)


def points(dtype: torch.dtype, full: bool) -> Tensor:
    """0, 1, subnormals, the cap, ordinary values; with ``full`` also ties and neighbours one unit off."""
    info = torch.finfo(dtype)
    few = [
        0.0,
        info.tiny / 4,
        info.tiny,
        info.eps**2,
        info.eps,
        1e-4,
        0.3,
        0.5,
        0.9,
        1 - info.eps,
        1 - info.eps / 2,
        1.0,
    ]
    x = torch.tensor(few, dtype=torch.float64).to(dtype)
    if not full:
        return torch.unique(x)
    more = torch.tensor([1e-30, 1e-10, 0.01, 0.1, 0.25, 0.7, 0.75, 0.99, 1 - 1e-4, 1 - 1e-6], dtype=dtype)
    x = torch.cat([x, more])
    return torch.unique(torch.cat([x, x.nextafter(torch.zeros_like(x)), x.nextafter(torch.ones_like(x))]))


class Sweep:
    """Runs operators on all corners at once, counts evaluations, and collects what is wrong."""

    def __init__(self, full: bool) -> None:
        self.full, self.evaluations, self.faults = full, 0, list[str]()

    def hold(self, holds: Tensor | bool, what: str) -> None:
        if not bool(torch.as_tensor(holds).all()):
            self.faults.append(what)

    def run(self, f: Callable[..., Tensor], *inputs: Tensor, op: object, unit: bool = True) -> Tensor:
        """Values, after a look at them and at all derivatives."""
        x = [v.clone().requires_grad_() for v in inputs]
        y = f(*x)
        self.evaluations += y.numel()
        what = f"{op!r} {f} {inputs[0].dtype}"
        self.hold(torch.isfinite(y), f"value of {what}")
        if unit:
            self.hold((y >= 0) & (y <= 1), f"range of {what}")
        if y.requires_grad:
            learns = [p.raw for p in learnables(op).values()]
            for grad in torch.autograd.grad(y.sum(), [*x, *learns], allow_unused=True):
                self.hold(grad is None or torch.isfinite(grad), f"gradient of {what}")
        return y.detach()

    def tnorm(self, t: fz.TNorm, dtype: torch.dtype) -> None:
        x = points(dtype, self.full)
        a, b = torch.meshgrid(x, x, indexing="ij")
        one, zero = torch.ones_like(x), torch.zeros_like(x)

        def near(left: Tensor, right: Tensor, what: str) -> None:
            error = (left.double() - right.double()).detach().abs().max().item()
            self.hold(error <= rounding, f"{what} of {t!r} {dtype}: {error / rounding:.3g} times the rounding")

        value = self.run(t, a, b, op=t)
        rounding = tolerance(t, value)
        near(t(x, one), x, "T(a, 1) = a")
        near(t(x, zero), zero, "T(a, 0) = 0")
        near(value, value.T, "commutativity")
        near(torch.relu(value - torch.minimum(a, b)), zero, "T <= min")
        near(torch.relu(value[:-1] - value[1:]), torch.zeros(()), "monotony")
        both = torch.stack([a, b, torch.ones_like(a)]).flatten(1)
        near(self.run(lambda v: t.reduce(v, 0), both, op=t), value.flatten(), "reduction")
        c = 1 - x  # complements of these are exact
        c, d = torch.meshgrid(c, c, indexing="ij")
        near(self.run(t.dual, c, d, op=t), 1 - t(1 - c, 1 - d), "duality")
        near(self.run(lambda v: t.dual.reduce(v, 0), torch.stack([c, d]), op=t), t.dual(c, d), "reduction of the dual")
        near(t.dual(x, zero), x, "S(a, 0) = a")
        near(self.run(fz.SImplication(t.dual), 1 - c, d, op=t), t.dual(c, d), "S-implication")
        residuum = self.run(t.residuum, a, b, op=t)
        self.hold(residuum[a <= b] == 1, f"R(a, c) = 1 for a <= c of {t!r} {dtype}")
        near(torch.relu(residuum[1:] - residuum[:-1]), torch.zeros(()), "R falls with the antecedent")
        near(torch.relu(residuum[:, :-1] - residuum[:, 1:]), torch.zeros(()), "R rises with the consequent")
        near(t.residuum(one, x), x.to(residuum.dtype), "R(1, c) = c")
        if isinstance(t, fz.Drastic):  # not left-continuous, so no residuation
            return
        below, above = (residuum - rounding).clamp_min(0), (residuum + rounding).clamp_max(1)
        near(torch.relu(t(a, below) - b), zero, "T(a, R(a, c)) <= c")
        near(torch.relu(torch.minimum(a, b) - t(a, above)), zero, "R(a, c) is the largest such")

    def negation(self, n: fz.Negation, dtype: torch.dtype) -> None:
        value = self.run(n, points(dtype, self.full), op=n)
        self.hold(value[0] == 1, f"N(0) = 1 of {n!r} {dtype}: {value[0]}")
        self.hold(value[-1] == 0, f"N(1) = 0 of {n!r} {dtype}: {value[-1]}")
        self.hold(value[1:] <= value[:-1] + 64 * torch.finfo(value.dtype).eps, f"monotony of {n!r} {dtype}")

    def implication(self, i: fz.Implication, dtype: torch.dtype) -> None:
        x = points(dtype, self.full)
        value = self.run(i, *torch.meshgrid(x, x, indexing="ij"), op=i)
        rounding = tolerance(i, value)
        self.hold(value.diff(dim=0) <= rounding, f"rise with the antecedent of {i!r} {dtype}")
        self.hold(value.diff(dim=1) >= -rounding, f"fall with the consequent of {i!r} {dtype}")
        corners = value[[0, 0, -1, -1], [0, -1, -1, 0]] - torch.tensor([1.0, 1.0, 1.0, 0.0])
        self.hold(corners.abs() <= rounding, f"corners of {i!r} {dtype}")

    def aggregator(self, g: fz.Aggregator, dtype: torch.dtype) -> None:
        x = points(dtype, self.full)
        x = x.log() if isinstance(g, fz.LogForall | fz.LogExists) else x  # -inf included
        few = x[:: max(1, len(x) // 16)]
        rows = torch.cartesian_prod(few, few, x)
        value = self.run(lambda v: g(v, 1), rows, op=g, unit=g.bounded)
        rounding = tolerance(g, value) * (1 + value.abs().max())
        for other in (
            g(rows.flip(1), 1).detach(),
            self.run(lambda v: g(v, 0), rows.T.contiguous(), op=g, unit=g.bounded),
        ):
            error = (other - value).abs().max()
            self.hold(error <= rounding, f"order of {g!r} {dtype}: {float(error / rounding):.3g}")
        steps = value.view(len(few), len(few), len(x)).diff(dim=2)
        self.hold(steps >= -rounding, f"monotony of {g!r} {dtype}: {float(-steps.min() / rounding):.3g}")
        if g.bounded and not isinstance(g, StableAggregator):
            ends = self.run(lambda v: g(v, 1), torch.stack([torch.zeros(3), torch.ones(3)]).to(dtype), op=g)
            self.hold((ends - torch.tensor([0.0, 1.0])).abs() <= rounding, f"ends of {g!r} {dtype}: {ends}")


def tolerance(op: object, value: Tensor) -> float:
    """How much rounding a law may cost; a rounding of what is bent moves the result by its slope."""
    s = getattr(op, "s", 0.0)
    slope = float(s().detach()) if isinstance(s, fz.Learnable) else s
    return 256 * torch.finfo(value.dtype).eps * (1 + slope)


DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def swept(dtype: torch.dtype, full: bool) -> int:
    """How many evaluations were made; bfloat16 runs under autocast."""
    sweep = Sweep(full)
    families = {
        sweep.tnorm: tnorms(),
        sweep.negation: negations(),
        sweep.implication: implications(),
        sweep.aggregator: means(),
    }
    for check, family in families.items():
        for number, member in enumerate(family):
            if not full and number % len(DTYPES) != DTYPES.index(dtype):  # a third of the family for each dtype
                continue
            for parameter in learnables(member).values():
                parameter.to(torch.promote_types(dtype, torch.float32))
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                check(member, dtype)
    assert not sweep.faults, f"{len(sweep.faults)} faults\n" + "\n".join(sweep.faults)
    return sweep.evaluations


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sample_of_the_sweep(dtype: torch.dtype) -> None:
    assert swept(dtype, full=False) > 10**5


@pytest.mark.slow
def test_the_whole_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    total = sum(swept(dtype, full=True) for dtype in DTYPES)
    with capsys.disabled():
        print(f"\n{total:,} evaluations swept")
    assert total >= 10**7
