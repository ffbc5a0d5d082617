r"""Additive generators: a t-norm as a sum.

A continuous Archimedean t-norm is :math:`T(x_1, …, x_n) = g^{-1}(\min(g(0), \sum_i g(x_i)))` for a continuous,
strictly decreasing g with g(1) = 0 (Klement, Mesiar and Pap 2000; the table of errata 3.3). Its residuum is
:math:`R(a, c) = g^{-1}(\max(g(c) - g(a), 0))` and its derivatives are quotients of slopes,
:math:`∂T/∂x_i = g'(x_i)/g'(T)`. If g is convex, T is Schur-concave, and refinement has closed forms.

A generator is exact: g(0) is infinite where the table says so. The finiteness of operators is the t-norm's business.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, lift
from doxa.fuzzy.operators._norms import norm, norm_pair, norm_rest
from doxa.fuzzy.operators._parameters import Parameter, bounds, current, number, one_side, require


class Generator(ABC):
    """An additive generator g: ``g(x)``, ``g.inverse(y)``, ``g.zero`` = g(0), ``g.convex``.

    Besides, it knows how to add up *levels*. A level is g(x) itself, unless another monotone picture of it is safer
    to compute with (a root of it, or its logarithm); the level of 1 is always 0.

    >>> g = LogGenerator()
    >>> g.inverse(g(torch.tensor(0.5)) + g(torch.tensor(0.4))), g.zero, g.convex
    (tensor(0.2000), inf, True)
    """

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """g(x)."""

    @abstractmethod
    def inverse(self, y: Tensor) -> Tensor:
        """The pseudo-inverse: the x with g(x) = y, and 0 for y ≥ g(0)."""

    @property
    def zero(self) -> float:
        """g(0), by default infinite."""
        return math.inf

    @property
    def strict(self) -> bool:
        """Whether g(0) is infinite, which makes T strict instead of nilpotent."""
        return math.isinf(self.zero)

    @property
    def convex(self) -> bool:
        """Whether g is convex (for a learnable parameter: over its whole range); it is unless it says otherwise."""
        return True

    @abstractmethod
    def log_slope(self, x: Tensor) -> Tensor:
        """log(-g'(x)), up to a constant."""

    def floor(self, x: Tensor, eps: float) -> float:
        """Below which truth value a pole of g or of g' at 0 is not followed any further; 0 if there is none.

        At ε² values are off by less than that, and products of slopes stay within the range of floats.
        """
        return eps**2

    def level(self, x: Tensor) -> Tensor:
        """The level of x."""
        return self(x)

    def unlevel(self, u: Tensor) -> Tensor:
        """The x whose level is u."""
        return self.inverse(u)

    def join(self, u: Tensor, v: Tensor, eps: float | None = None) -> Tensor:
        """The level of T(x, y) from those of x and y."""
        return u + v

    def total(self, u: Tensor, dim: Dims, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        """The level of T over ``dim``; a weight w counts an element w times."""
        return (u if weight is None else u * weight).sum(tuple(range(u.dim())) if dim is None else dim)

    def rest(self, u: Tensor, v: Tensor, eps: float | None = None) -> Tensor:
        """The level of R(a, c) from those of c (``u``) and a (``v``), u ≥ v."""
        return u - v


@dataclass(frozen=True)
class LogGenerator(Generator):
    """g(x) = -log x: the product.

    >>> LogGenerator()(torch.tensor([0.0, 1.0]))
    tensor([inf, -0.])
    """

    def __call__(self, x: Tensor) -> Tensor:
        return -torch.log(x)

    def inverse(self, y: Tensor) -> Tensor:
        return torch.exp(-y)

    def log_slope(self, x: Tensor) -> Tensor:
        return -torch.log(x)


@dataclass(frozen=True)
class LinearGenerator(Generator):
    """g(x) = 1 - x: Łukasiewicz.

    >>> LinearGenerator().inverse(torch.tensor([0.25, 3.0]))
    tensor([0.7500, 0.0000])
    """

    zero = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        return 1 - x

    def floor(self, x: Tensor, eps: float) -> float:
        return 0.0

    def inverse(self, y: Tensor) -> Tensor:
        return torch.relu(1 - y)

    def log_slope(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@dataclass(frozen=True)
class OddsGenerator(Generator):
    """g(x) = (1 - x)/x: the Hamacher product (Hamacher with λ = 0, Dombi with λ = 1, Schweizer-Sklar with λ = -1).

    >>> OddsGenerator()(torch.tensor(0.25))
    tensor(3.)
    """

    def __call__(self, x: Tensor) -> Tensor:
        return (1 - x) / x

    def inverse(self, y: Tensor) -> Tensor:
        return 1 / (1 + y)

    def log_slope(self, x: Tensor) -> Tensor:
        return -2 * torch.log(x)


@dataclass(frozen=True)
class PowerGenerator(Generator):
    """g(x) = k(x)^p for another generator k: Yager of :class:`LinearGenerator`, Aczél-Alsina of
    :class:`LogGenerator`, Dombi of :class:`OddsGenerator`. Levels are those of k, joined by their p-norm.

    >>> g = PowerGenerator(LinearGenerator(), 2.0)
    >>> g(torch.tensor(0.5)), g.zero, g.convex
    (tensor(0.2500), 1.0, True)
    """

    base: Generator
    p: Parameter

    def __post_init__(self) -> None:
        require("the exponent of a power generator", self.p, 0)
        one_side("the exponent of a power generator", self.p)

    def floor(self, x: Tensor, eps: float) -> float:
        return self.base.floor(x, eps)

    @property
    def zero(self) -> float:
        return float(self.base.zero ** number(self.p))

    @property
    def strict(self) -> bool:
        return self.base.strict

    @property
    def convex(self) -> bool:
        return self.base.convex and bounds(self.p)[0] >= 1

    def __call__(self, x: Tensor) -> Tensor:
        return self.base(x).pow(current(self.p))

    def inverse(self, y: Tensor) -> Tensor:
        return self.base.inverse(y.pow(1 / current(self.p)))

    def log_slope(self, x: Tensor) -> Tensor:
        tiny = torch.finfo(x.dtype).tiny
        return self.base.log_slope(x) + (current(self.p) - 1) * torch.log(lift(self.base(x), tiny))

    def level(self, x: Tensor) -> Tensor:
        return self.base.level(x)

    def unlevel(self, u: Tensor) -> Tensor:
        return self.base.unlevel(u)

    def join(self, u: Tensor, v: Tensor, eps: float | None = None) -> Tensor:
        return norm_pair(u, v, self.p, eps)

    def total(self, u: Tensor, dim: Dims, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        return norm(u, self.p, dim, weight=weight, eps=eps)

    def rest(self, u: Tensor, v: Tensor, eps: float | None = None) -> Tensor:
        return norm_rest(u, v, self.p, eps)
