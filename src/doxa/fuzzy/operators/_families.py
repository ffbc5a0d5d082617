r"""The one-parameter families with generators of their own: Frank, Hamacher, Schweizer-Sklar, Sugeno-Weber."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, log1mexp, lower, merge_dims, root, size_of, truth
from doxa.fuzzy.operators._connectives import Archimedean, prepare
from doxa.fuzzy.operators._generators import Generator, LinearGenerator, LogGenerator, OddsGenerator
from doxa.fuzzy.operators._parameters import Learnable, Parameter, bounds, current, function, number, require


@dataclass(frozen=True)
class FrankGenerator(Generator):
    r"""g(x) = -log((λ^x - 1)/(λ - 1)), λ > 0, λ ≠ 1; always convex.

    With κ = log λ, :math:`|e^{κx} - 1|` is :math:`e^{\max(κx, 0)} (1 - e^{-|κ|x})`, whose logarithm never overflows.

    >>> g = FrankGenerator(3.0)
    >>> g.inverse(g(torch.tensor([0.2, 0.9])))
    tensor([0.2000, 0.9000])
    """

    lam: Parameter

    def __post_init__(self) -> None:
        require("the λ of a Frank generator", self.lam, 0, one_side=1, hole="LogGenerator")

    def _kappa(self, x: Tensor) -> tuple[bool, Tensor]:
        """Whether κ > 0, and its absolute value."""
        positive = bounds(self.lam)[0] >= 1
        lam = current(self.lam) if isinstance(self.lam, Learnable) else self.lam
        kappa = torch.as_tensor(function("log", lam), dtype=x.dtype, device=x.device)
        return positive, kappa if positive else -kappa.clamp_min(-700)

    def __call__(self, x: Tensor) -> Tensor:
        positive, kappa = self._kappa(x)
        fall = log1mexp(kappa) - log1mexp(kappa * x)
        return fall + kappa * (1 - x) if positive else fall

    def inverse(self, y: Tensor) -> Tensor:
        positive, kappa = self._kappa(y)
        if positive:  # log(1 + (e^κ - 1) e^-y)/κ
            x = torch.logaddexp(kappa + log1mexp(kappa) - y, torch.zeros_like(y)) / kappa
        else:  # the same with 1 - (1 - e^κ) e^-y
            x = -log1mexp(lift(y - log1mexp(kappa), torch.finfo(y.dtype).tiny)) / kappa
        return lower(x, 1)

    def log_slope(self, x: Tensor) -> Tensor:
        positive, kappa = self._kappa(x)
        return -log1mexp(kappa * x) - (0 if positive else kappa * x)


@dataclass(frozen=True)
class Frank(Archimedean):
    r"""Frank: :math:`T(x) = \log_λ(1 + \prod_i (λ^{x_i} - 1)/(λ - 1)^{n-1})`, λ > 0.

    λ = 1 is the product, 0 the minimum, ∞ Łukasiewicz.

    >>> Frank(3.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.4597)
    """

    lam: Parameter = 3.0
    eps: float | None = None

    @property
    def generator(self) -> Generator:
        return LogGenerator() if self.lam == 1 else FrankGenerator(self.lam)

    # For λ < e^-80 a level is e^(-80x) and less, which float32 does not hold.

    def _wide(self, x: Tensor) -> Tensor:
        return x.double() if bounds(self.lam)[0] < math.exp(-80) else x

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = truth(a), truth(b)
        return super().__call__(self._wide(a), self._wide(b)).to(torch.promote_types(a.dtype, b.dtype))

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        x = truth(x)
        return super().reduce(self._wide(x), dim, mask, weight).to(x.dtype)

    def _residual(self, a: Tensor, c: Tensor) -> Tensor:
        return super()._residual(self._wide(a), self._wide(c)).to(torch.promote_types(a.dtype, c.dtype))


@dataclass(frozen=True)
class HamacherGenerator(Generator):
    """g(x) = log((λ + (1 - λ) x)/x) = log(1 + λ (1 - x)/x), λ > 0; convex for λ ≤ 2."""

    lam: Parameter

    def __post_init__(self) -> None:
        require("the λ of a Hamacher generator", self.lam, 0)

    @property
    def convex(self) -> bool:
        return bounds(self.lam)[1] <= 2

    def __call__(self, x: Tensor) -> Tensor:
        lam = current(self.lam)
        if bounds(self.lam)[0] >= 1:  # the other form has a derivative that overflows on the way
            return torch.log1p((lam - 1) * (1 - x)) - torch.log(x)
        return torch.log1p(lam * (1 - x) / x)

    def inverse(self, y: Tensor) -> Tensor:
        # λ/(λ + e^y - 1), for large y as a sigmoid of logarithms
        lam, near = current(self.lam), y < 1
        small, large = torch.where(near, y, 0.0), torch.where(near, 1.0, y)
        odds = function("log", lam) - large - log1mexp(large)
        return torch.where(near, 1 / (1 + torch.expm1(small) / lam), torch.sigmoid(odds))

    def log_slope(self, x: Tensor) -> Tensor:
        return -torch.log(x) - torch.log(x + current(self.lam) * (1 - x))


@dataclass(frozen=True)
class Hamacher(Archimedean):
    """Hamacher: T(a, b) = a·b/(λ + (1 - λ)(a + b - a·b)), λ ≥ 0; λ = 0 is the Hamacher product, 1 the product.

    >>> Hamacher(2.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.4444)
    """

    lam: Parameter = 2.0
    eps: float | None = None

    def __post_init__(self) -> None:
        require("the λ of a Hamacher t-norm", self.lam, 0, closed=True)

    @property
    def generator(self) -> Generator:
        return OddsGenerator() if self.lam == 0 else HamacherGenerator(self.lam)


@dataclass(frozen=True)
class SchweizerSklarGenerator(Generator):
    r"""g(x) = (1 - x^λ)/λ, λ ≠ 0; convex for λ ≤ 1.

    From λ = -1 downwards x^λ may overflow, and the level is its logarithm :math:`λ \log x` instead.

    >>> g = SchweizerSklarGenerator(0.5)
    >>> g(torch.tensor(0.25)), g.inverse(torch.tensor(1.0)), g.zero
    (tensor(1.), tensor(0.2500), 2.0)
    """

    lam: Parameter

    def __post_init__(self) -> None:
        require("the λ of a Schweizer-Sklar generator", self.lam, one_side=0, hole="LogGenerator")

    @property
    def zero(self) -> float:
        return 1 / number(self.lam) if self._positive else math.inf

    @property
    def strict(self) -> bool:
        return not self._positive

    @property
    def convex(self) -> bool:
        return bounds(self.lam)[1] <= 1

    @property
    def _positive(self) -> bool:
        return bounds(self.lam)[0] >= 0

    @property
    def _logarithmic(self) -> bool:
        high = bounds(self.lam)[1]
        return high <= (0 if isinstance(self.lam, Learnable) else -1)

    def __call__(self, x: Tensor) -> Tensor:
        lam = current(self.lam)
        return -torch.expm1(lam * torch.log(x)) / lam

    def inverse(self, y: Tensor) -> Tensor:
        lam = current(self.lam)
        low, high = bounds(self.lam)
        if not self._positive:
            return torch.exp(torch.log1p(-lam * y) / lam)
        if high < 0.5:
            inside = lam * y < 1
            return torch.where(inside, torch.exp(torch.log1p(-torch.where(inside, lam * y, 0.0)) / lam), 0.0)
        base = torch.relu(1 - lam * y)
        return root(base, 1 / lam) if low >= 1 else base.pow(1 / lam)

    def log_slope(self, x: Tensor) -> Tensor:
        return (current(self.lam) - 1) * torch.log(x)

    def floor(self, x: Tensor, eps: float) -> float:
        # For λ > 0 only the slope has a pole, and x^λ is far from 0 when x is not.
        return torch.finfo(x.dtype).tiny if self._positive else eps**2

    def level(self, x: Tensor) -> Tensor:
        return current(self.lam) * torch.log(x) if self._logarithmic else self(x)

    def unlevel(self, u: Tensor) -> Tensor:
        return lower(torch.exp(u / current(self.lam)), 1) if self._logarithmic else self.inverse(u)

    def join(self, u: Tensor, v: Tensor, eps: float | None = None) -> Tensor:
        if not self._logarithmic:
            return u + v
        return self.total(torch.stack(torch.broadcast_tensors(u, v)), 0)  # type: ignore[no-untyped-call]

    def total(self, u: Tensor, dim: Dims, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        if not self._logarithmic or not size_of(u, dim):
            return super().total(u, dim, weight)
        # log(1 + Σ w (e^u - 1)); where e^u may overflow, all terms are divided by the largest
        dims = tuple(range(u.dim())) if dim is None else dim
        u = u if weight is None else torch.where(weight > 0, u, 0.0)
        top = u.detach().amax(dims, keepdim=True)
        scale = torch.where(top < 1, 0.0, top)
        terms = torch.exp(u - scale) * -torch.expm1(-u)
        sum_ = (terms if weight is None else terms * weight).sum(dims)
        scale = scale.squeeze(dims)
        return scale + torch.log1p(sum_ + torch.expm1(-scale))

    def rest(self, u: Tensor, v: Tensor, eps: float | None = None) -> Tensor:
        if not self._logarithmic:
            return u - v
        apart = u > v
        difference = u + log1mexp(torch.where(apart, u - v, 1.0))  # log(e^u - e^v)
        return torch.where(apart, torch.logaddexp(difference, torch.zeros_like(difference)), 0.0)


@dataclass(frozen=True)
class SchweizerSklar(Archimedean):
    r"""Schweizer-Sklar: :math:`T(x) = \max(\sum_i x_i^λ - (n - 1), 0)^{1/λ}`; λ = 0 is the product, -∞ the minimum.

    >>> SchweizerSklar(-1.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.5217)
    """

    lam: Parameter = -1.0
    eps: float | None = None

    @property
    def generator(self) -> Generator:
        return LogGenerator() if self.lam == 0 else SchweizerSklarGenerator(self.lam)

    # For λ > 1 a small x^λ is lost beside 1, and so are the levels 1 - x^λ; the smallest argument is factored out:
    # T(x) = x_min (1 - Σ (1 - x_i^λ)/x_min^λ)^(1/λ) over the others.

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        if bounds(self.lam)[1] <= 1:
            return super().__call__(a, b)
        return self.reduce(torch.stack(torch.broadcast_tensors(truth(a), truth(b))), 0)  # type: ignore[no-untyped-call]

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        if bounds(self.lam)[1] <= 1 or weight is not None or not size_of(x, dim):
            return super().reduce(x, dim, mask, weight)
        x = prepare(x, mask)
        x, d = merge_dims(x if mask is None else torch.where(mask, x, 1.0), dim)
        lam, eps = current(self.lam), cap(x, self.eps)
        low, index = x.min(d, keepdim=True)
        missing = -torch.expm1(lam * torch.log(self._off_pole(x))).scatter(d, index, 0.0).sum(d)
        # Beyond e^(-most) a power of the smallest counts as 0: nothing may then be missing from the others.
        most = -math.log(torch.finfo(x.dtype).tiny) * 0.9
        low = low.squeeze(d)
        log_low = torch.log(self._off_pole(low))
        times = torch.exp((-lam * log_low).clamp_max(most))
        inside = missing * times < 1
        share = torch.where(inside, missing * times, 0.0).detach()
        left = torch.log1p(-share) / lam
        # ∂T/∂x = (x/T)^(λ-1), capped at 1/ε
        gentle = torch.exp(((lam - 1) * (log_low + left) - math.log(eps)).clamp_max(0)).detach()
        missing = missing.detach() + (missing - missing.detach()) * gentle
        capped = torch.exp(torch.log1p(-lower(torch.where(inside, missing * times, 0.0), 1 - eps)) / lam)
        return torch.where(inside, low * (capped + (torch.exp(left) - capped).detach()), 0.0)

    def _rest(self, a: Tensor, c: Tensor) -> Tensor:
        lam = current(self.lam)
        if bounds(self.lam)[1] <= 1:
            return super()._rest(a, c)
        # log(c^λ + 1 - a^λ): without loss where c^λ is small, and where it is nearly 1
        whole, log_c = a >= 1, torch.log(self._off_pole(c))
        log_a = torch.log(self._off_pole(torch.where(whole, 0.5, a)))
        power = torch.exp(lam * log_c)
        small = torch.logaddexp(lam * log_c, log1mexp(-lam * log_a))
        large = torch.log1p(torch.where(power > 0.5, torch.exp(lam * log_a) * torch.expm1(lam * (log_c - log_a)), 0.0))
        return torch.where(whole, c, lower(torch.exp(torch.where(power > 0.5, large, small) / lam), 1))


@dataclass(frozen=True)
class SugenoWeberGenerator(Generator):
    """g(x) = 1 - log(1 + λx)/log(1 + λ), λ > -1, λ ≠ 0; convex for λ ≥ 0.

    >>> g = SugenoWeberGenerator(2.0)
    >>> g.inverse(g(torch.tensor([0.2, 0.9]))), g.zero
    (tensor([0.2000, 0.9000]), 1.0)
    """

    lam: Parameter

    zero = 1.0

    def __post_init__(self) -> None:
        require("the λ of a Sugeno-Weber generator", self.lam, -1, one_side=0, hole="LinearGenerator")

    @property
    def convex(self) -> bool:
        return bounds(self.lam)[0] >= 0

    def __call__(self, x: Tensor) -> Tensor:
        return self._log_ratio(x) / self._log_ratio(x.new_zeros(()))

    def _log_ratio(self, x: Tensor) -> Tensor:
        """log(1 + λ) - log(1 + λx) in one logarithm, exactly 0 at 1."""
        lam, below = current(self.lam), self._one_plus(x)
        ratio = (1 + lam) / below
        far = ratio < 0.5  # only for λ near -1
        near = torch.log1p(torch.where(far, 0.0, lam * (1 - x) / below))
        return torch.where(far, torch.log(torch.where(far, ratio, 1.0)), near)

    def _one_plus(self, x: Tensor) -> Tensor:
        """1 + λx, not rounded to 0 for λ near -1."""
        return (1 - x) + (1 + current(self.lam)) * x

    def inverse(self, y: Tensor) -> Tensor:
        lam = current(self.lam)
        log = function("log1p", lam)
        high = 1 + (1 + lam) / lam * torch.expm1(-log * y.clamp_max(0.5))  # exactly 1 at 0, the other 0 at 1
        return lower(torch.where(y < 0.5, high, torch.expm1(log * torch.relu(1 - y)) / lam), 1)

    def floor(self, x: Tensor, eps: float) -> float:
        return 0.0

    def log_slope(self, x: Tensor) -> Tensor:
        return -torch.log(self._one_plus(x))


@dataclass(frozen=True)
class SugenoWeber(Archimedean):
    """Sugeno-Weber: T(a, b) = max((a + b - 1 + λ·a·b)/(1 + λ), 0), λ > -1; λ = 0 is Łukasiewicz, ∞ the product.

    >>> SugenoWeber(2.0)(torch.tensor(0.8), torch.tensor(0.6))
    tensor(0.4533)
    """

    lam: Parameter = 2.0
    eps: float | None = None

    @property
    def generator(self) -> Generator:
        return LinearGenerator() if self.lam == 0 else SugenoWeberGenerator(self.lam)
