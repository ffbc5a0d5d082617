r"""Weak derivatives of families over numbers: how a parameter θ moves probability from some places to others.

Each is written as a signed mixture. With p_0 = p,

    ∂p/∂θ = Σ_i α_i p_i,      ∂²p/∂θ² = Σ_i β_i p_i,      Σ α_i = Σ β_i = 0,

so that ∂E[f] = Σ_i α_i E[f(x_i)], x_i ~ p_i. With E₁, E₂ ~ Exponential(1), and χ_k the length of k normal numbers:

    parameter          ∂p                                      ∂²p
    Poisson λ          p(x−1) − p(x)                           p(x−2) − 2p(x−1) + p(x)
    Gamma log β        α (Γ_α − Γ_{α+1})                       α² Γ_α − α(2α+1) Γ_{α+1} + α(α+1) Γ_{α+2}
    Binomial π         N (1 + Bin_{N−1} − Bin_{N−1})           N(N−1) (2 + Bin_{N−2} − 2 (1 + Bin_{N−2}) + Bin_{N−2})
    Gaussian μ         (μ + σχ₂ − (μ − σχ₂)) / (σ√(2π))        (μ ± σχ₃ − p) / σ²
    Gaussian σ         (μ ± σχ₃ − p) / σ                       (3 (μ ± σχ₅) − 5 (μ ± σχ₃) + 2p) / σ²
    Weibull log λ      k (λΓ₂^{1/k} − p)                       k² (2 λΓ₃^{1/k} − 3 λΓ₂^{1/k} + p)
    Weibull log k      p − λY^{1/k}                            by the score function
    Beta log α         α c (p − xV),  c = ψ(α+β) − ψ(α)        by the score function
    Gamma α            by the score function                   by the score function

An exponential distribution is Γ_1. Y has the density e^{−Y} (Y−1) log Y. For Beta, −log x is infinitely divisible, so
p(x) (−log x)/c is the law of xV, with −log V = E₁/(α+K) + E₂/(α+β+K) and P(K=k) ∝ 1/(α+k) − 1/(α+β+k).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Beta, Binomial, Distribution, Exponential, Gamma, Normal, Poisson, Weibull

from doxa.stochastic.estimators._estimator import uniform
from doxa.stochastic.estimators._factors import clamped

FAMILIES = (Beta, Binomial, Exponential, Gamma, Normal, Poisson, Weibull)


class Mixture(NamedTuple):
    """A derivative of p: the coefficients of p_0, p_1, …, and the derivative divided by p at x."""

    weights: tuple[Tensor | float, ...]
    score: Tensor


class Weak(NamedTuple):
    """The weak derivatives in one parameter at samples x (n, *batch, R)."""

    theta: Tensor  # (*batch, R), live
    points: Callable[[], list[Tensor]]  # x_1, x_2, … (n, *batch, R): first those that the first derivative needs
    first: Mixture
    second: Mixture | None = None


def flat(x: Tensor, distribution: Distribution, leading: int) -> Tensor:
    """(leading, *batch, *event) as (leading, *batch, R)."""
    return x.reshape((*x.shape[: leading + len(distribution.batch_shape)], distribution.event_shape.numel()))


def log_density(base: Distribution, x: Tensor) -> Tensor:
    """log p(x), at parameters away from the ends where torch's own has no derivative."""
    if isinstance(base, Weibull):
        shape = _positive(base.concentration)
        t = shape * (x.log() - _positive(base.scale).log())
        return shape.log() - x.log() + t - t.exp()
    if isinstance(base, Poisson):
        kept: Distribution = Poisson(base.rate + (_positive(base.rate) - base.rate).detach(), validate_args=False)
    elif isinstance(base, Binomial):
        kept = Binomial(base.total_count, logits=clamped(base.logits), validate_args=False)
    else:
        given = {name: getattr(base, name) for name in base.arg_constraints}
        kind: Any = type(base)
        kept = kind(**{k: v if k == "loc" else _positive(v) for k, v in given.items()}, validate_args=False)
    found: Tensor = kept.log_prob(x)
    return found


def inside(base: Distribution, x: Tensor) -> Tensor:
    """Points away from the ends of the support, where a density may be infinite, and small enough to compute with."""
    if isinstance(base, Beta):
        return _positive(x).clamp_max(1 - torch.finfo(x.dtype).eps)
    most = torch.finfo(x.dtype).max ** 0.5
    return _positive(x).clamp_max(most) if isinstance(base, Exponential | Gamma | Weibull) else x


def weak_derivatives(base: Distribution, distribution: Distribution, x: Tensor) -> list[Weak]:
    """The weak derivatives of all parameters of ``base``, the family inside of ``distribution``, that have some."""

    def given(name: str) -> Tensor:
        return flat(getattr(base, name), distribution, 0)

    if isinstance(base, Normal):
        return _normal(given("loc"), given("scale"), x)
    if isinstance(base, Poisson):
        return [_poisson(given("rate"), x)]
    if isinstance(base, Gamma):
        return [_rate(given("concentration").detach(), _positive(given("rate")), x)]
    if isinstance(base, Exponential):
        rate = _positive(given("rate"))
        return [_rate(torch.ones_like(rate), rate, x)]
    if isinstance(base, Weibull):
        return _weibull(_positive(given("scale")), _positive(given("concentration")), x)
    if isinstance(base, Binomial):
        return [_binomial(given("total_count"), clamped(given("logits")), x)]
    a, b = _positive(given("concentration1")), _positive(given("concentration0"))
    return [_beta(a, b, x, lambda v: x * v), _beta(b, a, 1 - x, lambda v: 1 - (1 - x) * v)]


def _positive(x: Tensor) -> Tensor:
    return x.clamp_min(torch.finfo(x.dtype).tiny)


def _exponential(like: Tensor) -> Tensor:
    return -torch.log(uniform(like))


def _normal(mean: Tensor, scale: Tensor, x: Tensor) -> list[Weak]:
    m, s = mean.detach(), scale.detach()
    z = (x - m) / s

    def lengths(k: int) -> Tensor:
        return torch.randn((k, *x.shape), dtype=x.dtype, device=x.device).square().sum(0).sqrt()

    def both_sides(k: int) -> Tensor:
        return m + s * lengths(k) * torch.where(torch.rand_like(x) < 0.5, -1.0, 1.0)

    def around() -> list[Tensor]:
        r = s * lengths(2)
        return [m + r, m - r, both_sides(3)]

    c, r, q = 1 / (s * math.sqrt(2 * math.pi)), 1 / s, 1 / s.square()
    bend = Mixture((-q, 0.0, 0.0, q), (z * z - 1) * q)
    wider = Mixture((2 * q, -5 * q, 3 * q), (z**4 - 5 * z * z + 2) * q)
    return [
        Weak(mean, around, Mixture((0.0, c, -c), z * r), bend),
        Weak(scale, lambda: [both_sides(3), both_sides(5)], Mixture((-r, r), (z * z - 1) * r), wider),
    ]


def _poisson(rate: Tensor, x: Tensor) -> Weak:
    r = _positive(rate.detach())
    second = Mixture((1.0, -2.0, 1.0), (x / r) * ((x - 1) / r) - 2 * x / r + 1)
    return Weak(rate, lambda: [x + 1, x + 2], Mixture((-1.0, 1.0), x / r - 1), second)


def _rate(a: Tensor, rate: Tensor, x: Tensor) -> Weak:
    r = rate.detach()
    y = r * x

    def longer() -> list[Tensor]:
        one = x + _exponential(x) / r
        return [one, one + _exponential(x) / r]

    second = Mixture((a * a, -a * (2 * a + 1), a * (a + 1)), (a - y).square() - y)
    return Weak(rate.log(), longer, Mixture((a, -a), a - y), second)


def _binomial(count: Tensor, logits: Tensor, x: Tensor) -> Weak:
    """In the logit, whose derivative is π(1−π) times that in π, and its second derivative by the chain rule."""
    p, n = torch.sigmoid(logits.detach()), count.to(x.dtype).expand(x.shape)

    def fewer() -> list[Tensor]:
        """The number of successes in N−1 and in N−2 trials: one of the trials, then another, is taken away."""
        y = x - (torch.rand_like(x) * n < x).to(x.dtype)
        z = y - (torch.rand_like(x) * (n - 1) < y).to(x.dtype)
        return [torch.minimum(point, n) for point in (y, y + 1, z, z + 1, z + 2)]

    v = p * torch.sigmoid(-logits.detach())
    one, two = n * v, n * (n - 1) * v * v
    bend = one * (1 - 2 * p)
    second = Mixture((0.0, -bend, bend, two, -2 * two, two), (x - n * p).square() - one)
    return Weak(logits, fewer, Mixture((0.0, -one, one), x - n * p), second)


def _weibull(scale: Tensor, shape: Tensor, x: Tensor) -> list[Weak]:
    l, k = scale.detach(), shape.detach()
    y = _positive((x / l) ** k)

    def longer() -> list[Tensor]:
        one = y + _exponential(y)
        return [l * one ** (1 / k), l * (one + _exponential(y)) ** (1 / k)]

    q = k * k
    second = Mixture((q, -3 * q, 2 * q), q * ((y - 1).square() - y))
    return [
        Weak(scale.log(), longer, Mixture((-k, k), k * (y - 1)), second),
        Weak(shape.log(), lambda: [l * apart(y) ** (1 / k)], Mixture((1.0, -1.0), 1 + y.log() * (1 - y))),
    ]


def apart(y: Tensor) -> Tensor:
    """From y ~ Exponential(1) a number with density e^{−Y} (Y−1) log Y: away from 1, by ∫ ds/s = log Y from 1 to Y.

    Above 1 the density given y is proportional to (Y−1) e^{−Y} on Y > y; below, to (1−Y) e^{−Y} on Y < y, whose
    distribution function Y e^{−Y} / (y e^{−y}) is inverted by bisection.
    """
    up = y + _exponential(y) + torch.where(torch.rand_like(y) * y < 1, _exponential(y), 0.0)
    wanted = uniform(y) * y * torch.exp(-y)
    low, high = torch.zeros_like(y), y.clamp_max(1.0)
    for _ in range(60):
        middle = (low + high) / 2
        less = middle * torch.exp(-middle) < wanted
        low, high = torch.where(less, middle, low), torch.where(less, high, middle)
    return torch.where(y > 1, up, _positive(high))


def _beta(concentration: Tensor, other: Tensor, x: Tensor, moved: Callable[[Tensor], Tensor]) -> Weak:
    """In the logarithm of the exponent of x; ``moved`` says where a factor of x puts the sample."""
    a, b = concentration.detach(), other.detach()
    c = a * (torch.digamma(a + b) - torch.digamma(a))
    return Weak(concentration.log(), lambda: [moved(shrinking(a, b, x))], Mixture((c, -c), a * x.log() + c))


def shrinking(a: Tensor, b: Tensor, like: Tensor) -> Tensor:
    """Factors V in the shape of ``like``; K is found by bisection of P(K ≥ k) ∝ ψ(α+β+k) − ψ(α+k)."""
    x, y = a.double(), (a + b).double()
    wanted = uniform(like.double()) * (torch.digamma(y) - torch.digamma(x))
    low, high = torch.zeros_like(wanted), torch.full_like(wanted, 40.0)  # log₂(1 + k)
    for _ in range(60):
        middle = (low + high) / 2
        k = torch.exp2(middle) - 1
        more = torch.digamma(y + k) - torch.digamma(x + k) > wanted
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    k = (torch.exp2(low) - 1).floor()
    return torch.exp(-_exponential(wanted) / (x + k) - _exponential(wanted) / (y + k)).to(like.dtype)
