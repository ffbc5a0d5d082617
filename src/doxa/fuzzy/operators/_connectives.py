r"""Negations, t-norms, t-conorms and implications: what every family shares (Chapter 2).

A t-norm T reads ∧, and n-ary ∀, with :math:`A_T() = 1` (errata 1.1); its dual :math:`S(a, b) = 1 - T(1 - a, 1 - b)`
reads ∨ and ∃. Implications are :math:`I_{S,N}(a, c) = S(N(a), c)` or residua :math:`I_T(a, c) = \sup\{b : T(a, b) ≤
c\}`. At the edge of a plateau the derivative is the plateau's, 0; of arguments that tie the first has the whole
derivative; where all arguments are 1 (for S: 0), the p-norm families have derivative 0 (errata 2.5).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, root, truth, with_derivatives
from doxa.errors import ConfigError
from doxa.fuzzy.operators._generators import Generator
from doxa.fuzzy.operators._parameters import Parameter, bounds, current, require


class Negation(ABC):
    """A fuzzy negation: ``N(a)`` elementwise.

    ``strong`` (N(N(a)) = a) and ``strict`` (strictly decreasing and continuous) are found out by trying, so a
    negation of your own has them too.

    >>> [(type(n).__name__, n.strict, n.strong) for n in (StandardNegation(), IntuitionisticNegation())]
    [('StandardNegation', True, True), ('IntuitionisticNegation', False, False)]
    """

    @abstractmethod
    def __call__(self, a: Tensor) -> Tensor:
        """The truth of ¬a."""

    @property
    def strong(self) -> bool:
        """Whether N(N(a)) = a, tried on 65 points."""
        with torch.no_grad():
            grid = torch.linspace(0, 1, 65, dtype=torch.float64)
            # A root near 0 doubles the digits lost, hence the tolerance.
            return bool(torch.allclose(self(self(grid)), grid, atol=1e-6))

    @property
    def strict(self) -> bool:
        """Whether N decreases strictly and has no jump, tried on 65 points.

        A strong negation is a decreasing bijection, hence continuous; otherwise a jump is looked for by bisection.
        """
        with torch.enable_grad():
            grid = torch.linspace(0, 1, 65, dtype=torch.float64)[1:-1].requires_grad_()
            value = self(grid)
            slope = torch.autograd.grad(value.sum(), grid)[0] if value.requires_grad else torch.zeros_like(grid)
        ends = torch.linspace(0, 1, 65, dtype=torch.float64)
        return bool((slope < 0).all()) and (self.strong or largest_jump(self, ends[:-1], ends[1:]) < 0.05)


@dataclass(frozen=True)
class StandardNegation(Negation):
    """N(a) = 1 - a, the classical negation that the dissertation uses throughout.

    >>> StandardNegation()(torch.tensor([0.0, 0.25]))
    tensor([1.0000, 0.7500])
    """

    def __call__(self, a: Tensor) -> Tensor:
        return 1 - truth(a)


@dataclass(frozen=True)
class SugenoNegation(Negation):
    """N(a) = (1 - a)/(1 + λ a), λ > -1; λ = 0 is the standard negation.

    >>> SugenoNegation(1.0)(torch.tensor(0.5))
    tensor(0.3333)
    """

    lam: Parameter

    def __post_init__(self) -> None:
        require("the λ of a Sugeno negation", self.lam, -1)

    def __call__(self, a: Tensor) -> Tensor:
        a = truth(a)
        return (1 - a) / ((1 - a) + (1 + current(self.lam)) * a)


@dataclass(frozen=True)
class YagerNegation(Negation):
    """N(a) = (1 - a^w)^(1/w), w > 0; w = 1 is the standard negation.

    Its derivative is singular at 1 (w > 1) or at 0 (w < 1) and capped there.

    >>> YagerNegation(2.0)(torch.tensor(0.6))
    tensor(0.8000)
    """

    w: Parameter
    eps: float | None = None

    def __post_init__(self) -> None:
        require("the w of a Yager negation", self.w, 0, one_side=1)

    def __call__(self, a: Tensor) -> Tensor:
        a, w = truth(a), current(self.w)
        if bounds(self.w)[0] >= 1:
            return root((1 - a.pow(w)).clamp_min(0), 1 / w, self.eps)
        return (1 - root(a, w, self.eps)).clamp_min(0).pow(1 / w)


@dataclass(frozen=True)
class IntuitionisticNegation(Negation):
    """N(0) = 1 and N(a) = 0 for a > 0: the residuum of Gödel and of the product with 0. Its derivative is 0.

    >>> IntuitionisticNegation()(torch.tensor([0.0, 0.25]))
    tensor([1., 0.])
    """

    def __call__(self, a: Tensor) -> Tensor:
        a = truth(a)
        # a * 0 keeps the result in the graph, so that a loss made of it alone can still be differentiated.
        return (a <= 0) + a * 0


STANDARD = StandardNegation()


@torch.no_grad()
def largest_jump(f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> float:
    """The largest change of f between neighbouring floats, looked for in every interval [low, high] at once.

    Each interval is halved towards the half over which f changes more, until it can be halved no further.
    """
    for _ in range(60):
        middle = (low + high) / 2
        left = (f(middle) - f(low)).abs() > (f(high) - f(middle)).abs()
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
    return float((f(high) - f(low)).abs().max())


def prepare(x: Tensor, mask: Tensor | None) -> Tensor:
    """Truth values to reduce; the mask, if any, is checked."""
    if mask is not None and mask.dtype != torch.bool:
        raise ConfigError(f"mask has dtype {mask.dtype}, expected torch.bool; say mask > 0.5, or pass it as weight")
    return truth(x)


class TNorm(ABC):
    """A t-norm: ``T(a, b)``, ``T.reduce(x, dim)``, ``T.dual``, ``T.residuum``, ``T.generator``.

    >>> from doxa.fuzzy import Product
    >>> T = Product()
    >>> a, b = torch.tensor(0.8), torch.tensor(0.5)
    >>> T(a, b), T.dual(a, b), T.residuum(a, b), T.reduce(torch.tensor([0.8, 0.7, 0.9]))
    (tensor(0.4000), tensor(0.9000), tensor(0.6250), tensor(0.5040))
    >>> T.reduce(torch.empty(2, 0), dim=1)
    tensor([1., 1.])
    """

    eps: float | None = None
    """The cap ε; None is the machine epsilon of the dtype."""

    @property
    def generator(self) -> Generator | None:
        """The additive generator, if there is one."""
        return None

    @property
    def dual(self) -> TConorm:
        """The dual t-conorm S(a, b) = 1 - T(1 - a, 1 - b)."""
        return TConorm(self)

    @property
    def residuum(self) -> RImplication:
        """The R-implication sup{b : T(a, b) ≤ c}."""
        return RImplication(self)

    @abstractmethod
    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """T(a, b), elementwise with broadcasting."""

    @abstractmethod
    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """T over one or several dimensions; 1 where there is nothing to join.

        Args:
            x: truth values.
            dim: the dimension or dimensions to reduce; None is all of them.
            mask: booleans that broadcast to ``x``; False is left out.
            weight: numbers ≥ 0 that broadcast to ``x``. With a generator, an element of weight w counts as w copies
                (logs are then those of max(x, ε)); without one it is replaced by max(x, 1 - w), so that 1 is full
                importance and 0 is none.
        """

    def _conorm(self, a: Tensor, b: Tensor) -> Tensor:
        return 1 - self(1 - a, 1 - b)

    def _conorm_reduce(self, x: Tensor, dim: Dims, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        return 1 - self.reduce(1 - x, dim, mask, weight)

    def _s_implies(self, a: Tensor, c: Tensor) -> Tensor:
        return 1 - self(a, 1 - c)

    @abstractmethod
    def _residual(self, a: Tensor, c: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class TConorm:
    """The t-conorm dual to a t-norm, S(a, b) = 1 - T(1 - a, 1 - b) (Chapter 2, Eq. tconorm).

    >>> from doxa.fuzzy import Lukasiewicz
    >>> S = TConorm(Lukasiewicz())
    >>> S(torch.tensor(0.3), torch.tensor(0.4)), S.reduce(torch.empty(0)), S.dual
    (tensor(0.7000), tensor(0.), Lukasiewicz())
    """

    tnorm: TNorm

    @property
    def dual(self) -> TNorm:
        """The t-norm it comes from."""
        return self.tnorm

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return self.tnorm._conorm(truth(a), truth(b))

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """S over one or several dimensions, 0 where there is nothing to join; arguments as in :meth:`TNorm.reduce`."""
        return self.tnorm._conorm_reduce(prepare(x, mask), dim, mask, weight)


class Archimedean(TNorm):
    r"""A t-norm given by its additive generator: :math:`T(x) = g^{-1}(\min(g(0), \sum_i g(x_i)))` (errata 3.3).

    Subclass it with a ``generator`` of your own; the dual, the residuum and all reductions follow. Where g has a pole
    at 0, it is not followed below ε², so that T may be off by that much (but not at 0 itself).

    >>> from dataclasses import dataclass
    >>> from doxa.fuzzy.operators._generators import OddsGenerator
    >>> @dataclass(frozen=True)
    ... class HamacherProduct(Archimedean):
    ...     generator = OddsGenerator()
    >>> HamacherProduct()(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.5217)
    """

    @property
    @abstractmethod
    def generator(self) -> Generator: ...

    def __post_init__(self) -> None:
        _ = self.generator  # which checks the parameter of a family

    def _off_pole(self, x: Tensor, weighted: bool = False) -> Tensor:
        eps = cap(x, self.eps)
        floor = self.generator.floor(x, eps)
        # A fractional power of a truth value has a steeper slope at 0 than the value, hence the higher floor.
        return lift(x, eps if weighted else floor) if floor else x

    def _level(self, x: Tensor, weighted: bool = False) -> Tensor:
        return self.generator.level(self._off_pole(x, weighted))

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        g, a, b = self.generator, truth(a), truth(b)
        result = g.unlevel(g.join(self._level(a), self._level(b), self.eps))
        return self._annihilated(result, (a <= 0) | (b <= 0))

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        x = prepare(x, mask)
        level = self._level(x, weight is not None)
        if mask is not None:
            level = torch.where(mask, level, 0.0)
        result = self.generator.unlevel(self.generator.total(level, dim, weight, self.eps))
        if weight is not None:  # logs are then those of max(x, ε)
            return result
        zero = x <= 0 if mask is None else (x <= 0) & mask
        return self._annihilated(result, zero.any(tuple(range(x.dim())) if dim is None else dim))

    def _annihilated(self, result: Tensor, zero: Tensor) -> Tensor:
        """T(0, b) = 0 exactly: it was computed at the floor of a pole, or rounded; the derivative is right."""
        return result - torch.where(zero, result, 0.0).detach()

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        a, c = torch.broadcast_tensors(a, c)  # type: ignore[no-untyped-call]
        above = a > c
        value = torch.where(above, self._rest(torch.where(above, a.detach(), 1.0), c.detach()), 1.0)
        result = with_derivatives(value, self._residual_derivatives, a, c)
        return self._annihilated(result, (c <= 0) & above) if self.generator.strict else result

    def _rest(self, a: Tensor, c: Tensor) -> Tensor:
        """R(a, c) where a > c, in value."""
        g = self.generator
        return g.unlevel(g.rest(self._level(c), self._level(a), self.eps))

    def _residual_derivatives(self, r: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        r"""∂R/∂a = -g'(a)/g'(R) and ∂R/∂c = g'(c)/g'(R), capped at 1/ε; 0 where a ≤ c."""
        g, eps = self.generator, cap(r, self.eps)
        slope_a, slope_c, slope_r = (g.log_slope(self._off_pole(x)) for x in (a, c, r))

        def capped(log_ratio: Tensor) -> Tensor:
            return torch.where(a > c, torch.exp(log_ratio.clamp_max(-math.log(eps))), 0.0)

        return -capped(slope_a - slope_r), capped(slope_c - slope_r)


class Implication(ABC):
    """A fuzzy implication: ``I(a, c)`` on tensors that broadcast.

    >>> from doxa.fuzzy import REICHENBACH
    >>> isinstance(REICHENBACH, Implication), REICHENBACH(torch.tensor(0.8), torch.tensor(0.3))
    (True, tensor(0.4400))
    """

    @abstractmethod
    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        """The truth of a → c."""


@dataclass(frozen=True)
class SImplication(Implication):
    """The (S,N)-implication :math:`I_{S,N}(a, c) = S(N(a), c)` (Chapter 2, Eq. s-impl).

    It always satisfies LN, EP and R-CP; if N is strong, CP and L-CP too (errata 1.6).

    >>> from doxa.fuzzy import Godel
    >>> SImplication(Godel().dual)(torch.tensor(0.8), torch.tensor(0.3))      # Kleene-Dienes
    tensor(0.3000)
    """

    tconorm: TConorm
    negation: Negation = STANDARD

    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        if self.negation == STANDARD:
            return self.tconorm.tnorm._s_implies(truth(a), truth(c))
        return self.tconorm(self.negation(a), c)


@dataclass(frozen=True)
class RImplication(Implication):
    r"""The R-implication :math:`I_T(a, c) = \sup\{b : T(a, b) ≤ c\}` (Chapter 2, Eq. r-implication).

    It is 1 where a ≤ c, with derivative 0; on a = c it takes that side. It satisfies LN and IP, and EP if T is
    left-continuous (errata 1.7). Its derivatives, singular for most t-norms, are capped at 1/ε.

    >>> from doxa.fuzzy import Product
    >>> RImplication(Product())(torch.tensor([0.8, 0.2]), torch.tensor([0.3, 0.3]))      # Goguen
    tensor([0.3750, 1.0000])
    """

    tnorm: TNorm

    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        return self.tnorm._residual(truth(a), truth(c))
