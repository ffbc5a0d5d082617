r"""Additive generators: a t-norm as a sum, :math:`T(x) = g^{-1}(\min(g(0), \sum_i g(x_i)))` (errata 3.3).

g decreases strictly, g(1) = 0. The residuum is :math:`R(a, c) = g^{-1}(\max(g(c) - g(a), 0))`, and :math:`∂T/∂x_i =
g'(x_i)/g'(T)`. The p-norm :math:`‖z‖_p` behind several families is scaled by its largest element, so that it neither
underflows nor overflows; at z = 0 its derivative is 0 for every p ≠ 1 (errata 2.5).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, root, size_of
from doxa.fuzzy.operators._parameters import Parameter, bounds, current, number, require


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
    """g(x) = -log x: the product."""

    def __call__(self, x: Tensor) -> Tensor:
        return -torch.log(x)

    def inverse(self, y: Tensor) -> Tensor:
        return torch.exp(-y)

    def log_slope(self, x: Tensor) -> Tensor:
        return -torch.log(x)


@dataclass(frozen=True)
class LinearGenerator(Generator):
    """g(x) = 1 - x: Łukasiewicz."""

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
    """g(x) = (1 - x)/x: the Hamacher product (Hamacher with λ = 0, Dombi with λ = 1, Schweizer-Sklar with λ = -1)."""

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
    """

    base: Generator
    p: Parameter

    def __post_init__(self) -> None:
        require("the exponent of a power generator", self.p, 0, one_side=1)

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


def norm(
    z: Tensor,
    p: Parameter,
    dim: Dims,
    *,
    weight: Tensor | None = None,
    count: float | Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    r""":math:`(\frac{1}{\mathrm{count}} \sum_i w_i z_i^p)^{1/p}` over ``dim``, of z ≥ 0."""
    q, dims = current(p), tuple(range(z.dim())) if dim is None else dim
    scale = None
    if p not in (1, 2) and size_of(z, dim):
        top = z.detach().amax(dims, keepdim=True)
        scale = torch.where(top > 0, top, 1.0)
        z = z / scale

    if count is not None and bounds(p)[1] <= 1 and p != 1:
        return _small_mean(z, q, dims, weight, count, eps, scale)

    def of(powers: Tensor) -> Tensor:
        total = (powers if weight is None else powers * weight).sum(dims, keepdim=True)
        n = count.reshape(total.shape) if isinstance(count, Tensor) else count
        return unpower(total if n is None else total / n, p, q, eps)

    result = of(power(z, p, eps, of))
    return (result if scale is None else result * scale).squeeze(dims)


def _small_mean(
    z: Tensor,
    q: float | Tensor,
    dims: int | tuple[int, ...],
    weight: Tensor | None,
    count: float | Tensor,
    eps: float | None,
    scale: Tensor | None,
) -> Tensor:
    """A mean with p < 1 from :math:`z^p - 1`: for small p all powers are nearly 1, and their mean would be rounded."""
    if scale is None:
        return z.sum(dims)
    some = z > 0 if weight is None else (z > 0) & (weight > 0)
    share = torch.where(some, 1.0 if weight is None else weight, 0.0).to(z.dtype)
    n = count.reshape(scale.shape) if isinstance(count, Tensor) else count
    zeros = share.sum(dims, keepdim=True) / n - 1  # what is 0, and counts, is -1 in the mean

    def of(logs: Tensor) -> Tensor:
        mean = (share * torch.expm1(q * logs)).sum(dims, keepdim=True) / n + zeros
        return torch.exp(torch.log1p(lift(mean, cap(z) / 2 - 1)) / q)

    with torch.no_grad():
        whole = of(torch.log(torch.where(some, z, 1.0)))
        floor = whole * cap(z, eps) ** (1 / (1 - q))
    capped = torch.log(torch.where(some, lift(z, floor.clamp_min(torch.finfo(z.dtype).tiny)), 1.0))
    logs = capped + (torch.log(torch.where(some, z, 1.0)) - capped).detach()
    return torch.where(some.any(dims, keepdim=True), of(logs) * scale, 0.0).squeeze(dims)


def norm_pair(u: Tensor, v: Tensor, p: Parameter, eps: float | None = None) -> Tensor:
    r""":math:`(u^p + v^p)^{1/p}`."""
    if p in (1, 2):
        return unpower(power(u, p, eps) + power(v, p, eps), p, current(p), eps)
    u, v = torch.broadcast_tensors(u, v)  # type: ignore[no-untyped-call]
    return norm(torch.stack([u, v]), p, 0, eps=eps)


def norm_rest(u: Tensor, v: Tensor, p: Parameter, eps: float | None = None) -> Tensor:
    r""":math:`(u^p - v^p)^{1/p}` for u ≥ v ≥ 0: what must be joined to v to get u."""
    q = current(p)
    whole = torch.where(u > 0, u, 1.0)
    # u^p - v^p = u^p (1 - (v/u)^p), without cancellation when u and v are close.
    far = v < u / 2
    log_ratio = torch.where(far, torch.log(v / whole), torch.log1p(-(u - v) / whole)).clamp_min(-1e30)
    return u * unpower(-torch.expm1(q * log_ratio), p, q, eps)


def power(z: Tensor, p: Parameter, eps: float | None, of: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """z^p; if ``of`` makes a norm of powers, that norm has its derivatives capped at 1/ε."""
    if p == 1:
        return z
    if p == 2:
        return z.square()
    # A truth value of 1.0000001 (softmax in float32) must not become NaN.
    q, least = current(p), z.clamp_min(0)
    if bounds(p)[0] >= 1:
        return least.pow(q)
    if of is None:
        return root(z, q, eps)
    whole = of(least.pow(q)).detach()
    return root(z, q, eps, unit=torch.where(whole > 0, whole, 1.0))


def unpower(total: Tensor, p: Parameter, q: float | Tensor, eps: float | None) -> Tensor:
    """total^(1/p), q being the value of p now."""
    if bounds(p)[0] >= 1:
        return root(total, 1 / q, eps)
    # n^(1/p) of many terms and a small p may exceed the number range.
    most = torch.finfo(total.dtype).max ** 0.5
    inside = total <= most**q
    return torch.where(inside, torch.where(inside, total.clamp_min(0), 1.0).pow(1 / q), most)
