r"""The derivatives of an expected cost, without automatic differentiation, and how far they can be trusted.

The expectation is a sum, or an integral by Gauss-Legendre rules on intervals that are halved until nothing changes. It
is computed at Chebyshev points along a line in the parameters; the series through them is differentiated. Its last
coefficients, which should vanish, say how accurate everything was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import pi, prod
from types import EllipsisType
from typing import NamedTuple

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor
from torch.distributions import Distribution, VonMises, constraints

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import (
    LARGEST_SUPPORT,
    MOST_OUTCOMES,
    all_indices,
    log_prob,
    plain,
    repeat_batch,
    support,
    total_size,
)
from doxa.stochastic.tape._tape import Tape

POINTS, FLOOR = 25, 7  # Chebyshev points, and how many of the last coefficients measure the noise
RADII = (0.25, 0.05, 0.01, 0.001)
NODES, HALVINGS, MOST_INTERVALS = 10, 64, 1 << 14


class Unknown(Exception):
    """Why the expected cost cannot be computed."""


class Truth(NamedTuple):
    """A derivative and the error that it may have."""

    value: float
    error: float


def derivatives(expected: Callable[[Tensor], Tensor], at: Tensor, direction: Tensor, order: int) -> list[Truth]:
    """The expectation and its derivatives along a direction, each with its error."""
    for radius in RADII:  # parameters at a distance may not exist
        x = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
        try:
            with torch.no_grad():
                values = np.array([float(expected(at + radius * float(p) * direction)) for p in x])
        except ConfigError:
            raise
        except ValueError:
            continue
        if np.isfinite(values).all():
            break
    else:
        raise Unknown("the expected cost is not finite around these parameters, for they or a cost may be NaN")
    with torch.no_grad():
        again = float(expected(at + radius * float(x[0]) * direction))
    if not abs(again - values[0]) <= 1e-12 * np.abs(values).max():
        raise Unknown("the cost is random, beyond what is sampled: another one each time it is computed")
    basis = np.cos(np.outer(np.arange(POINTS), np.arccos(x)))
    series = 2 / POINTS * basis @ values
    series[0] /= 2
    floor = max(float(np.abs(series[-FLOOR:]).max()), 1e-16 * float(np.abs(values).max()))
    above = np.flatnonzero(np.abs(series) > 4 * floor)
    last = int(above[-1]) if len(above) else 0
    found = []
    for n in range(order + 1):
        slopes = [abs(float(chebyshev.chebval(0.0, chebyshev.chebder(np.eye(POINTS)[k], n)))) for k in range(last + 3)]
        value = float(chebyshev.chebval(0.0, chebyshev.chebder(series[: last + 1], n))) / radius**n
        found.append(Truth(value, floor * sum(slopes) / radius**n))
    return found


def scalar(distribution: Distribution) -> Distribution:
    """The distribution of the only number in a value."""
    base, _ = plain(distribution)
    if base.event_shape or any(size > 1 for size in distribution.event_shape):
        raise Unknown(f"the expected cost under {type(base).__name__} is no integral over one number")
    return base


def is_countable(base: Distribution) -> bool:
    return bool(getattr(base.support, "is_discrete", False))


def require_valid(distribution: Distribution) -> None:
    """A ``ValueError`` unless the parameters are allowed. torch says so itself only until torch.compile was used."""
    distribution, _ = plain(distribution)
    for name, constraint in distribution.arg_constraints.items():
        value = vars(distribution).get(name)
        if not isinstance(value, Tensor) or isinstance(constraint, type(constraints.dependent)):
            continue
        if not bool(constraint.check(value).all()):  # type: ignore[no-untyped-call]
            raise ValueError(f"{name} is not allowed for {type(distribution).__name__}: {value}")


def expectation(distribution: Distribution, cost: Callable[[Tensor], Tensor]) -> Tensor:
    """E[cost(x)] of one distribution without batch: a sum, or an integral to all digits there are."""
    require_valid(distribution)
    shape = distribution.event_shape
    size = total_size(distribution)
    if size is not None:
        if size > LARGEST_SUPPORT:
            raise Unknown(f"the expected cost is a sum over {size:,} values")
        values = support(distribution)
        return _weighted(log_prob(distribution, values).exp(), cost(values)).sum()
    base = scalar(distribution)

    def density(x: Tensor) -> Tensor:
        p = base.log_prob(x.reshape(-1, *base.batch_shape)).exp().double().reshape(-1)
        return torch.where(p.isinf(), 0.0, p)  # the end of an interval, reached by rounding

    def costs(x: Tensor) -> Tensor:
        return cost(x.reshape(-1, *distribution.batch_shape, *shape)).double().reshape(-1)

    if is_countable(base):
        top, start = 1 << 8, float(getattr(base.support, "lower_bound", 0))
        while True:
            x = start + torch.arange(top, dtype=torch.float64)
            p = density(x)
            if float(1 - p.sum()) < 1e-12:
                return _weighted(p, costs(x)).sum()
            top *= 4
            if top > 1 << 20:
                raise Unknown(f"the probabilities of {type(base).__name__} do not sum to 1 within {top} values")

    def integrand(t: Tensor) -> Tensor:
        x, step = intervals(base, t)
        p = density(x) * step
        return torch.stack([_weighted(p, costs(x)), p])

    sample = base.sample().reshape(-1)[:1].double()
    given = cost(sample.reshape(-1, *distribution.batch_shape, *shape))
    found = _integral(integrand, torch.finfo(given.dtype if given.is_floating_point() else torch.float64).eps)
    if abs(float(found[1]) - 1) > 1e-7:
        raise Unknown(f"the density of {type(base).__name__} integrates to {float(found[1]):.6g} here, not to 1")
    return found[0]


def intervals(base: Distribution, t: Tensor) -> tuple[Tensor, Tensor]:
    """Where a point of (0, 1) lies in the support of a distribution, and the derivative of that."""
    low, high = (getattr(base.support, name, None) for name in ("lower_bound", "upper_bound"))
    centre, spread = (x.detach().nan_to_num(y, y, y) for x, y in ((base.mean, 0.0), (base.stddev, 1.0)))
    if isinstance(base, VonMises):  # whose density goes on periodically
        low, high = base.loc - pi, base.loc + pi
    if low is not None and high is not None:
        return low + (high - low) * t, (high - low) * torch.ones_like(t)
    edge, side = (low, 1.0) if low is not None else (high, -1.0)
    if edge is not None:
        size = (centre - edge).abs()
        size = torch.where(size > 0, size, 1.0)
        return edge + side * size * t / (1 - t), size / (1 - t).square()
    u = 2 * t - 1
    return centre + spread * u / (1 - u * u), 2 * spread * (1 + u * u) / (1 - u * u).square()


def _weighted(p: Tensor, cost: Tensor) -> Tensor:
    """p · cost, 0 where p is: far away a cost may overflow."""
    return torch.where(p > 0, p.double() * cost.double(), 0.0)


def gauss_legendre(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on (0, 1) (Golub and Welsch 1969)."""
    k = torch.arange(1, count, dtype=torch.float64)
    beta = k / (4 * k * k - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(beta, 1) + torch.diag(beta, -1))
    return (nodes + 1) / 2, vectors[0].square()


def _integral(function: Callable[[Tensor], Tensor], eps: float) -> Tensor:
    """The integrals (F,) over (0, 1) of functions (F, n) of points (n,), computed with relative error ``eps``."""
    nodes, weights = gauss_legendre(NODES)
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    points = torch.cat([nodes, ends])
    # What the polynomial through the nodes is at both ends: a jump beyond the last node would not be seen otherwise.
    gaps = nodes.unsqueeze(0) - nodes.unsqueeze(1) + torch.eye(NODES, dtype=torch.float64)
    to_end = ends.reshape(2, 1, 1) - nodes.reshape(1, 1, -1)
    others = ~torch.eye(NODES, dtype=torch.bool)
    lagrange = torch.where(others, to_end / -gaps, 1.0).prod(-1)  # (2, nodes): ℓ_i at 0 and at 1

    def over(low: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        """The integrals (F, panels), and what may be missed at the ends."""
        t = (low.unsqueeze(-1) + width.unsqueeze(-1) * points).clamp(1e-300, 1 - 2**-53)
        found = function(t.reshape(-1))
        found = found.reshape(len(found), -1, NODES + 2)
        inner = found[..., :NODES]
        missed = (found[..., NODES:] - inner @ lagrange.T).abs()
        border = torch.stack([low <= 0, low + width >= 1], -1)  # where a density may be infinite
        missed = torch.where(border, 0.0, missed).sum(-1) * float(2 * nodes[0]) * width
        return (inner * weights).sum(-1) * width, missed

    low = torch.arange(32, dtype=torch.float64) / 32
    width = torch.full_like(low, 1 / 32)
    whole, _ = over(low, width)
    total = torch.zeros(len(whole), dtype=torch.float64)
    for _ in range(HALVINGS):
        width = width / 2
        (lower, one), (upper, two) = over(low, width), over(low + width, width)
        both = lower + upper
        if not bool(both.isfinite().all()):
            raise Unknown("the cost times its density is not finite everywhere")
        error = (both - whole).abs() + one + two
        scale = total.abs() + both.abs().sum(-1)
        wrong = (error > 1e-15 * scale.unsqueeze(-1)) & (error > 20 * eps * both.abs())
        more = wrong.any(0) & (width > 1e-17)
        total = total + both[:, ~more].sum(-1)
        low = torch.cat([low[more], (low + width)[more]])
        width = width[more].repeat(2)
        whole = torch.cat([lower[:, more], upper[:, more]], -1)
        if not len(low):
            return total
        if len(low) > MOST_INTERVALS:
            raise Unknown("the integral of the cost does not settle")
    return total + whole.sum(-1)


class TooMany(Exception):
    """The proposal cannot be enumerated."""


class WorldTape(Tape):
    """Every draw of ``nodes`` proposals at once: for each a batch dimension, in which they stand side by side."""

    def __init__(self, nodes: int) -> None:
        super().__init__(batch_dims=nodes)
        self.probability: Tensor | None = None

    def _propose(self, estimator: Estimator, distribution: Distribution, n: int) -> Draw:
        found = estimator.outcomes(distribution, n)
        if found is None:
            raise TooMany
        draw, prob = found
        possible = (prob > 0).flatten(1).any(1) if prob.dim() > 1 else prob > 0
        if not bool(possible.all()):  # what never happens may have no finite log-probability
            prob = prob[possible]
            draw = draw.map(lambda t: t[:, possible], repeat_batch(distribution, len(prob)))
        here = len(self.nodes)
        particles = tuple(distribution.batch_shape[: len(self._axes)])
        count, together = prob.shape[0], prod(particles)
        so_far = 1 if self.probability is None else self.probability.numel()
        if count**together * so_far * draw.m > MOST_OUTCOMES:
            raise TooMany
        # Every particle draws for itself: a world is a choice of one outcome for each of them.
        choice = all_indices((count,) * together, prob.device)  # (worlds, particles)
        slot = self.batch_dims - 1 - here

        def spread(t: Tensor) -> Tensor:
            """(m, outcomes, *particles, *batch, …) to (m, *particles, *batch with the worlds at the slot, …)."""
            rest = t.shape[2 + len(particles) :]
            t = t.reshape(t.shape[0], count, together, *rest)
            t = t[:, choice, torch.arange(together, device=t.device)]  # (m, worlds, particles, *rest)
            t = t.transpose(1, 2).movedim(2, 2 + slot).flatten(2 + slot, 3 + slot)
            return t.reshape(t.shape[0], *particles, *t.shape[2:])

        worlds = spread(prob.unsqueeze(0))[0]
        chance = worlds.reshape(together, *worlds.shape[len(particles) :]).prod(0)
        self.probability = chance if self.probability is None else self.probability * chance
        shape = list(distribution.batch_shape)
        shape[len(particles) + slot] *= len(choice)
        return draw.map(spread, distribution.expand(torch.Size(shape)))


class _Everything(Estimator):
    """The expectation itself: a sum over all values, or an integral over ``panels`` intervals."""

    def __init__(self, panels: int) -> None:
        super().__init__()
        self.panels = panels

    def propose(self, distribution: Distribution, n: int) -> Draw:
        if total_size(distribution) is not None:
            value = support(distribution)
            return Draw(value, distribution, step=torch.ones_like(value[..., 0] if distribution.event_shape else value))
        base = scalar(distribution)
        lead = (-1, *(1,) * len(base.batch_shape))
        with torch.no_grad():
            if is_countable(base):
                top = int((base.mean + 15 * base.stddev).max()) + 30
                start = float(getattr(base.support, "lower_bound", 0))
                value = (start + torch.arange(top).to(base.mean)).reshape(lead).expand(-1, *base.batch_shape)
                step = torch.ones_like(value)
            else:
                nodes, weights = gauss_legendre(12)
                low = torch.arange(self.panels, dtype=torch.float64).unsqueeze(-1)
                t = ((low + nodes) / self.panels).reshape(lead).to(base.mean).expand(-1, *base.batch_shape)
                value, step = intervals(base, t)
                step = step * (weights.repeat(self.panels) / self.panels).reshape(lead)
        shape = (value.shape[0], *distribution.batch_shape)
        return Draw(value.reshape((*shape, *distribution.event_shape)), distribution, step=step.reshape(shape))

    def weight(self, draw: Draw) -> Tensor:
        return log_prob(draw.distribution, draw.value).exp() * draw.notes["step"]


class TrueTape(Tape):
    """A tape whose surrogate is the expected cost, whatever ``deps`` claim."""

    def __init__(self, panels: int) -> None:
        super().__init__()
        self.panels = panels

    def sample(
        self,
        distribution: Distribution,
        estimator: Estimator,
        n: int | EllipsisType | None = ...,
        deps: Iterable[Tensor] | None = None,
        name: str | None = None,
    ) -> Tensor:
        return super().sample(distribution, _Everything(self.panels), name=name)

    def cost(
        self, value: Tensor | Callable[[], Tensor], deps: Iterable[Tensor] | None = None, name: str | None = None
    ) -> Tensor:
        return super().cost(value, name=name)


def graph_derivatives(model: Callable[[Tape, Tensor], None], at: Tensor, direction: Tensor, order: int) -> list[Truth]:
    """The same of a graph, as far as two resolutions agree."""

    def by(panels: int) -> list[Truth]:
        def value(theta: Tensor) -> Tensor:
            tape = TrueTape(panels)
            model(tape, theta)
            return tape._assembly().total().double().reshape(())

        return derivatives(value, at, direction, order)

    pairs = zip(by(20), by(31), strict=True)
    return [Truth(y.value, max(x.error, y.error) + abs(x.value - y.value)) for x, y in pairs]
