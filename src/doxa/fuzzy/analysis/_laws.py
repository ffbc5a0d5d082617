"""Which laws an operator satisfies, and on how much of its domain it has a gradient: found out by trying.

Properties are tested in float64 on a grid on which complements are exact; what is found false is false. An operator
*vanishes* where all its partial derivatives are 0; on which fraction it does not (errata 2.3-2.8) is often known.
"""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.fuzzy.operators import _basic as basic
from doxa.fuzzy.operators import _connectives as connectives
from doxa.fuzzy.operators import _wrapped as wrapped
from doxa.fuzzy.operators._basic import Drastic, Godel, Lukasiewicz, NilpotentMinimum, Product, Yager
from doxa.fuzzy.operators._connectives import STANDARD, Implication, Negation, SImplication, TConorm, TNorm
from doxa.fuzzy.operators._families import Frank, Hamacher, SchweizerSklar
from doxa.fuzzy.operators._logspace import LogConjunction, LogDisjunction
from doxa.fuzzy.operators._parameters import number
from doxa.fuzzy.quantifiers import _aggregators as aggregators
from doxa.fuzzy.quantifiers._aggregators import Aggregator

Connective = TNorm | TConorm | wrapped.WrappedConnective | LogConjunction | LogDisjunction
Operator = Connective | Implication | Negation | Aggregator
_JUMP = 0.05
"""A change between neighbouring floats that counts as a jump; the steepest continuous operators stay well below."""


class _Properties:
    def __str__(self) -> str:
        """What holds, without what follows from something stronger that holds."""
        continuous, one_sided, idempotent, strict, archimedean, schur = (f.name for f in fields(self))  # type: ignore[arg-type]
        implied = {continuous: strict, one_sided: continuous}
        held = [
            name
            for name in (idempotent, strict, continuous, one_sided, archimedean, schur)
            if getattr(self, name) and not (name in implied and getattr(self, implied[name]))
        ]
        names = ", ".join(held).replace("_", "-")
        return names.replace("archimedean", "Archimedean").replace("schur", "Schur")


@dataclass(frozen=True)
class TNormProperties(_Properties):
    """The properties of a t-norm T (Chapter 2, Def. tnormprops, and errata 3.3 for Schur-concavity).

    Left-continuous: the value is the limit from below. Strict: continuous, and T(a, ·) strictly increasing for a > 0.
    Archimedean: T(a, …, a) gets below every b > 0. Schur-concave: making arguments more alike never lowers T.
    """

    continuous: bool
    left_continuous: bool
    idempotent: bool
    strict: bool
    archimedean: bool
    schur_concave: bool


@dataclass(frozen=True)
class TConormProperties(_Properties):
    """The properties of a t-conorm S (Chapter 2, table of t-conorms): those of a t-norm, turned upside down."""

    continuous: bool
    right_continuous: bool
    idempotent: bool
    strict: bool
    archimedean: bool
    schur_convex: bool


def tnorm_properties(tnorm: TNorm) -> TNormProperties:
    """Find out the properties of a t-norm.

    >>> from doxa.fuzzy import Godel, Product
    >>> str(tnorm_properties(Godel())), str(tnorm_properties(Product()))
    ('idempotent, continuous, Schur-concave', 'strict, Archimedean, Schur-concave')
    """
    return TNormProperties(*_properties(tnorm, annihilator=0.0))


def tconorm_properties(tconorm: TConorm) -> TConormProperties:
    """Find out the properties of a t-conorm, from its own values and not from those of its dual.

    >>> from doxa.fuzzy import Godel, Product
    >>> str(tconorm_properties(Godel().dual)), str(tconorm_properties(Product().dual))
    ('idempotent, continuous, Schur-convex', 'strict, Archimedean, Schur-convex')
    """
    return TConormProperties(*_properties(tconorm, annihilator=1.0))


@torch.no_grad()
def _properties(norm: TNorm | TConorm, annihilator: float) -> tuple[bool, bool, bool, bool, bool, bool]:
    """The six properties, in the order of the attributes; T(0, b) = 0 and S(1, b) = 1 are annihilated."""
    grid = torch.linspace(0, 1, 65, dtype=torch.float64)
    a, b = torch.meshgrid(grid, grid, indexing="ij")
    value = norm(a, b)
    step = (value - norm(torch.nextafter(a, torch.full_like(a, annihilator)), b)).abs()
    continuous = connectives.largest_jump(lambda x: norm(x, b[:-1]), a[:-1], a[1:]) < _JUMP
    # Not by differences of values: b may change T(a, b) by less than rounding and still strictly.
    slopes = gradients(norm, torch.cartesian_prod(grid[1:-1], grid[1:-1]))
    gains = [norm(a + t, b - t) - value for t in [(b - a) * share for share in (1 / 64, 1 / 8, 1 / 4, 1 / 2)]]
    return (
        continuous,
        continuous or bool((step < _JUMP).all()),
        bool(torch.allclose(norm(grid, grid), grid, atol=1e-9)),
        continuous and bool((slopes > 0).all()),
        _archimedean(norm, grid[1:-1], annihilator),
        all(bool(((1 - 2 * annihilator) * gain >= -1e-9).all()) for gain in gains),
    )


def _archimedean(norm: TNorm | TConorm, grid: Tensor, annihilator: float) -> bool:
    near = float(grid[0]) / 2
    x = grid
    for _ in range(100):
        for _ in range(100):
            x = norm(x, x)  # twice as many copies as before
        if bool(((x - annihilator).abs() < near).all()):
            return True
    return False


@dataclass(frozen=True)
class ImplicationLaws:
    """The laws of an implication I (Chapter 2, Def. implications_optional), for a negation N.

    LN: I(1, c) = c. EP: I(a, I(b, c)) = I(b, I(a, c)). IP: I(a, a) = 1. CP: I(a, c) = I(N(c), N(a)).
    L-CP: I(N(a), c) = I(N(c), a). R-CP: I(a, N(c)) = I(c, N(a)).
    """

    ln: bool
    ep: bool
    ip: bool
    cp: bool
    lcp: bool
    rcp: bool

    def __str__(self) -> str:
        held = zip(("LN", "EP", "IP", "CP", "L-CP", "R-CP"), vars(self).values(), strict=True)
        return ", ".join(name for name, holds in held if holds)


@torch.no_grad()
def implication_laws(
    implication: Implication, negation: Negation = STANDARD, *, points: int = 33, tolerance: float = 1e-6
) -> ImplicationLaws:
    """Find out which laws an implication satisfies, on a grid of ``points``³.

    >>> from doxa.fuzzy import GOGUEN
    >>> str(implication_laws(GOGUEN))
    'LN, EP, IP'
    """
    grid = torch.linspace(0, 1, points, dtype=torch.float64)
    a, b, c = grid[:, None, None], grid[None, :, None], grid[None, None, :]
    x, y = grid[:, None], grid[None, :]
    one = torch.ones_like(grid)

    def equal(left: Tensor, right: Tensor) -> bool:
        return bool(((left - right).abs() <= tolerance).all())

    i: Callable[[Tensor, Tensor], Tensor] = implication
    n: Callable[[Tensor], Tensor] = negation
    return ImplicationLaws(
        ln=equal(i(one, grid), grid),
        ep=equal(i(a, i(b, c)), i(b, i(a, c))),
        ip=equal(i(grid, grid), one),
        cp=equal(i(x, y), i(n(y), n(x))),
        lcp=equal(i(n(x), y), i(n(y), x)),
        rcp=equal(i(x, n(y)), i(y, n(x))),
    )


def contrapositive_derivatives(implication: Implication, points: int = 2000, tolerance: float = 1e-6) -> bool:
    """Whether ∂I/∂c at (a, c) is -∂I/∂a at (1 - c, 1 - a): *contrapositive differentiable symmetry* (Chapter 3).

    It says that consequent and negated antecedent are treated alike. All S-implications have it, most R-implications
    do not. Tried on points spread over the square.

    >>> from doxa.fuzzy import GOGUEN, REICHENBACH
    >>> contrapositive_derivatives(REICHENBACH), contrapositive_derivatives(GOGUEN)
    (True, False)
    """
    at = spread(points, 2)
    ponens = gradients(implication, at)[:, 1]
    tollens = -gradients(implication, 1 - at.flip(1))[:, 0]
    return bool(((ponens - tollens).abs() <= tolerance * (1 + ponens.abs())).all())


@dataclass(frozen=True)
class ConeMonotonicity:
    """At which values an operator is strictly cone-increasing: at its least one, and between least and greatest.

    >>> print(ConeMonotonicity(least=False, between=True))
    (0, 1)
    """

    least: bool
    between: bool

    def __str__(self) -> str:
        if self.between:
            return "[0, 1)" if self.least else "(0, 1)"
        return "0 only" if self.least else "nowhere"


@torch.no_grad()
def cone_increasing(operator: Operator, n: int = 2, *, points: int = 33) -> ConeMonotonicity:
    """Where an operator is *strictly cone-increasing* (Chapter 4, appendix): some direction always raises its value.

    It is at t if a nonempty cone K has f(t) < f(t') whenever t' − t ∈ K; refinement functions are minimal under this
    condition. A monotone operator rises most if all its arguments move (the antecedent of an implication down), so
    that direction decides. Tried on a grid of ``points``ⁿ; no operator is increasing at its greatest value.

    >>> from doxa.fuzzy import Drastic
    >>> print(cone_increasing(Godel()), cone_increasing(Lukasiewicz()), cone_increasing(Drastic().dual))
    [0, 1) (0, 1) [0, 1)
    """
    if n < 1 or points < 2:
        raise ConfigError(f"n is {n} and points is {points}, expected at least 1 and 2")
    n = 2 if isinstance(operator, Implication) else 1 if isinstance(operator, Negation) else n
    grid = torch.linspace(0, 1, points, dtype=torch.float64)
    at = torch.cartesian_prod(*[grid] * n).reshape(-1, n)
    up = torch.ones(n, dtype=torch.float64)
    if isinstance(operator, Implication | Negation):
        up[0] = -1
    value = values(operator, at)
    rises = values(operator, (at + up / (2 * points)).clamp(0, 1)) > value
    low, high = value.min(), value.max()
    near = 1e-9 * (high - low)
    least, between = value <= low + near, (value > low + near) & (value < high - near)
    return ConeMonotonicity(bool(rises[least].all()), bool(between.any()) and bool(rises[between].all()))


@dataclass(frozen=True)
class Fraction:
    """A fraction of the unit cube: its value, its standard error (0 if exact) and how it was found.

    >>> print(Fraction(0.5, 0.0, "closed form"))
    0.5 (closed form)
    """

    value: float
    error: float
    method: Literal["closed form", "sampling"]

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" ± {self.error:.1g}" if self.error else "") + f" ({self.method})"


def irwin_hall_cdf(y: float, n: int) -> float:
    r"""P(U₁ + … + Uₙ ≤ y) for n uniform variables: :math:`\frac{1}{n!} \sum_{k ≤ y} (-1)^k \binom{n}{k} (y - k)^n`
    (errata 2.4). At y = 1 it is 1/n!, the fraction on which Łukasiewicz has a gradient.

    >>> round(irwin_hall_cdf(1.4, 3), 6)
    0.425333
    """
    y = min(max(y, 0.0), float(n))
    exact = fractions.Fraction(y)  # huge terms of both signs cancel
    terms = ((-1) ** k * math.comb(n, k) * (exact - k) ** n for k in range(math.floor(y) + 1))
    return float(sum(terms, fractions.Fraction(0)) / math.factorial(n))


def yager_fraction(p: float, n: int) -> float:
    r"""The volume :math:`Γ(1 + 1/p)^n / Γ(1 + n/p)` of the unit p-ball's positive orthant (errata 2.7): the fraction on
    which Yager's t-norm over n arguments has a gradient. For p = 2 it is π^(n/2)/(2ⁿ Γ(n/2 + 1)) (errata 2.6).

    >>> round(yager_fraction(2.0, 3), 6), round(yager_fraction(0.5, 2), 6)
    (0.523599, 0.166667)
    """
    return math.exp(n * math.lgamma(1 + 1 / p) - math.lgamma(1 + n / p))


def nonvanishing_fraction(
    operator: Operator,
    n: int = 2,
    *,
    samples: int = 100_000,
    generator: torch.Generator | None = None,
    closed_form: bool = True,
) -> Fraction:
    """The fraction of [0, 1]ⁿ on which at least one partial derivative of the operator is not 0.

    Args:
        operator: a t-norm, t-conorm, implication, aggregator or negation.
        n: the number of arguments; implications have 2 and negations 1.
        samples: how many points to try where there is no closed form.
        generator: the source of randomness.
        closed_form: set it to False to sample in any case.

    >>> from doxa.fuzzy import SugenoWeber
    >>> print(nonvanishing_fraction(Lukasiewicz(), n=4))
    0.04167 (closed form)
    >>> nonvanishing_fraction(SugenoWeber(2.0), generator=torch.Generator().manual_seed(0)).method
    'sampling'
    """
    if n < 1:
        raise ConfigError(f"n is {n}, expected at least 1")
    if isinstance(operator, Implication) and n != 2:
        raise ConfigError(f"n is {n}, expected 2: an implication has two arguments")
    if isinstance(operator, Negation) and n != 1:
        raise ConfigError(f"n is {n}, expected 1: a negation has one argument")
    exact = _closed_form(operator, n) if closed_form else None
    if exact is not None:
        return Fraction(exact, 0.0, "closed form")
    points = torch.rand(samples, n, dtype=torch.float64, generator=generator)
    share = float((gradients(operator, points) != 0).any(1).double().mean())
    return Fraction(share, math.sqrt(share * (1 - share) / samples), "sampling")


def single_passing(operator: Operator, n: int = 3, points: int = 2000) -> bool:
    """Whether at most one partial derivative is not 0, tried on points spread over the cube (Chapter 3, Def. 3).

    >>> single_passing(Godel()), single_passing(Product())
    (True, False)
    """
    n = 2 if isinstance(operator, Implication) else 1 if isinstance(operator, Negation) else n
    return bool(((gradients(operator, spread(points, n)) != 0).sum(1) <= 1).all())


def spread(points: int, n: int) -> Tensor:
    """Points spread evenly over (0, 1)ⁿ, the same at every call: multiples of square roots of primes, modulo 1."""
    primes: list[int] = []
    candidate = 2
    while len(primes) < n:
        if all(candidate % q for q in primes):
            primes.append(candidate)
        candidate += 1
    steps = torch.tensor(primes, dtype=torch.float64).sqrt()
    return torch.remainder(torch.arange(1, points + 1, dtype=torch.float64)[:, None] * steps, 1)


def values(operator: Operator, points: Tensor) -> Tensor:
    """The values of an operator at each row of ``points``."""
    if isinstance(operator, Implication):
        return operator(points[:, 0], points[:, 1])
    if isinstance(operator, Negation):
        return operator(points[:, 0])
    return operator(points, 1) if isinstance(operator, Aggregator) else operator.reduce(points, 1)


def gradients(operator: Operator, points: Tensor) -> Tensor:
    """The partial derivatives of an operator at each row of ``points``."""
    with torch.enable_grad():
        x = points.detach().requires_grad_()
        value = values(operator, x)
        if not value.requires_grad:
            return torch.zeros_like(points)
        return torch.autograd.grad(value.sum(), x)[0]


def _closed_form(operator: Operator, n: int) -> float | None:
    match operator:
        case TConorm(inner) | aggregators.TNormAggregator(inner) | aggregators.TConormAggregator(inner):
            return _closed_form(inner, n)
        case wrapped.SigmoidalConnective(connective=inner) | wrapped.SigmoidalImplication(implication=inner):
            return _closed_form(inner, n)
        case wrapped.SigmoidalAggregator(aggregator=inner):
            return _closed_form(inner, n)
        case SImplication(tconorm, negation) if negation == STANDARD:
            return _closed_form(tconorm, 2)
        case connectives.RImplication(tnorm):
            # Where a > c the consequent has a gradient, where a <= c nothing has.
            left_continuous = isinstance(tnorm, Godel | Product | NilpotentMinimum | connectives.Archimedean)
            return 0.5 if left_continuous else 0.0 if isinstance(tnorm, Drastic) else None
        case TNorm() if n == 1:
            return 1.0
        case Godel() | Product() | Frank() | Hamacher() | basic.AczelAlsina() | basic.Dombi():
            return 1.0
        case Lukasiewicz():
            return irwin_hall_cdf(1.0, n)
        case Yager(p):
            return yager_fraction(number(p), n)
        case NilpotentMinimum():
            return 2.0 ** (1 - n)
        case Drastic():
            return 0.0
        case SchweizerSklar(lam) if number(lam) <= 0:
            return 1.0
        case aggregators.PowerAggregator() | aggregators.LogProduct() | aggregators.LogProbabilisticSum():
            return 1.0
        case connectives.StandardNegation() | connectives.SugenoNegation() | connectives.YagerNegation():
            return 1.0
        case connectives.IntuitionisticNegation():
            return 0.0
    return None
