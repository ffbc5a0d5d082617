"""Which laws an operator satisfies: found out by trying, never looked up.

The tables of Chapter 2 (errata 1.8 confirms them) say which t-norm is continuous or strict and which implication is
contrapositive. Here each property is a test in float64 on a grid of multiples of 1/64 (t-norms) or 1/32
(implications), on which complements are exact, so the tables can be printed for operators of your own. A test can be
fooled by something that happens between grid points or below 1e-6; what it finds false is false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa.fuzzy.analysis._fractions import gradients, spread
from doxa.fuzzy.operators._jumps import largest_jump
from doxa.fuzzy.operators._negations import STANDARD, Negation
from doxa.fuzzy.operators._tnorms import Implication, TConorm, TNorm

__all__ = [
    "ImplicationLaws",
    "TConormProperties",
    "TNormProperties",
    "contrapositive_derivatives",
    "implication_laws",
    "tconorm_properties",
    "tnorm_properties",
]

_JUMP = 0.05
"""A change between neighbouring floats that counts as a jump; the steepest continuous operators stay well below."""


@dataclass(frozen=True)
class TNormProperties:
    """The properties of a t-norm T (Chapter 2, Def. tnormprops, and errata 3.3 for Schur-concavity).

    Attributes:
        continuous: no jumps.
        left_continuous: the value is the limit from below, so that the residuum's supremum is attained.
        idempotent: T(a, a) = a.
        strict: continuous, and T(a, ·) strictly increasing for a > 0.
        archimedean: T(a, a, …, a) gets below every b > 0.
        schur_concave: making two arguments more alike, at equal sum, never lowers T.

    >>> from doxa.fuzzy import NilpotentMinimum
    >>> str(tnorm_properties(NilpotentMinimum()))
    'left-continuous, Schur-concave'
    """

    continuous: bool
    left_continuous: bool
    idempotent: bool
    strict: bool
    archimedean: bool
    schur_concave: bool

    def __str__(self) -> str:
        names = {
            "idempotent": self.idempotent,
            "strict": self.strict,
            "continuous": self.continuous and not self.strict,
            "left-continuous": self.left_continuous and not self.continuous,
            "Archimedean": self.archimedean,
            "Schur-concave": self.schur_concave,
        }
        return ", ".join(name for name, holds in names.items() if holds)


@dataclass(frozen=True)
class TConormProperties:
    """The properties of a t-conorm S (Chapter 2, table of t-conorms): those of a t-norm, turned upside down.

    Attributes:
        continuous: no jumps.
        right_continuous: the value is the limit from above.
        idempotent: S(a, a) = a.
        strict: continuous, and S(a, ·) strictly increasing for a < 1.
        archimedean: S(a, a, …, a) gets above every b < 1.
        schur_convex: making two arguments more alike, at equal sum, never raises S.

    >>> from doxa.fuzzy import NilpotentMinimum
    >>> str(tconorm_properties(NilpotentMinimum().dual))
    'right-continuous, Schur-convex'
    """

    continuous: bool
    right_continuous: bool
    idempotent: bool
    strict: bool
    archimedean: bool
    schur_convex: bool

    def __str__(self) -> str:
        names = {
            "idempotent": self.idempotent,
            "strict": self.strict,
            "continuous": self.continuous and not self.strict,
            "right-continuous": self.right_continuous and not self.continuous,
            "Archimedean": self.archimedean,
            "Schur-convex": self.schur_convex,
        }
        return ", ".join(name for name, holds in names.items() if holds)


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
    """The six properties, in the order of the attributes above.

    A t-norm is annihilated by 0 and continuous from there, a t-conorm by 1: T(0, b) = 0, S(1, b) = 1.
    """
    grid = torch.linspace(0, 1, 65, dtype=torch.float64)
    a, b = torch.meshgrid(grid, grid, indexing="ij")
    value = norm(a, b)
    step = (value - norm(torch.nextafter(a, torch.full_like(a, annihilator)), b)).abs()
    continuous = largest_jump(lambda x: norm(x, b[:-1]), a[:-1], a[1:]) < _JUMP
    return (
        continuous,
        continuous or bool((step < _JUMP).all()),
        bool(torch.allclose(norm(grid, grid), grid, atol=1e-9)),
        continuous and _strictly_monotone(norm, grid[1:-1]),
        _archimedean(norm, grid[1:-1], annihilator),
        _schur(norm, a, b, value, 1 - 2 * annihilator),
    )


def _strictly_monotone(norm: TNorm | TConorm, grid: Tensor) -> bool:
    # Not by differences of values: b may change T(a, b) by less than rounding and still strictly.
    return bool((gradients(norm, torch.cartesian_prod(grid, grid)) > 0).all())


def _archimedean(norm: TNorm | TConorm, grid: Tensor, annihilator: float) -> bool:
    near = float(grid[0]) / 2
    x = grid
    for _ in range(100):
        for _ in range(100):
            x = norm(x, x)  # twice as many copies as before
        if bool(((x - annihilator).abs() < near).all()):
            return True
    return False


def _schur(norm: TNorm | TConorm, a: Tensor, b: Tensor, value: Tensor, sign: float) -> bool:
    transfers = ((b - a) * share for share in (1 / 64, 1 / 8, 1 / 4, 1 / 2))
    return all(bool((sign * (norm(a + t, b - t) - value) >= -1e-9).all()) for t in transfers)


@dataclass(frozen=True)
class ImplicationLaws:
    """The laws of an implication I (Chapter 2, Def. implications_optional), for a negation N.

    Attributes:
        ln: left neutrality, I(1, c) = c.
        ep: exchange principle, I(a, I(b, c)) = I(b, I(a, c)).
        ip: identity principle, I(a, a) = 1.
        cp: contrapositive symmetry, I(a, c) = I(N(c), N(a)).
        lcp: left-contrapositive symmetry, I(N(a), c) = I(N(c), a).
        rcp: right-contrapositive symmetry, I(a, N(c)) = I(c, N(a)).

    >>> from doxa.fuzzy import KLEENE_DIENES
    >>> str(implication_laws(KLEENE_DIENES))
    'LN, EP, CP, L-CP, R-CP'
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
