"""Tapes that go through everything that can happen, instead of sampling it.

On a ``WorldTape`` each node has one more batch dimension, in which all draws of its proposal stand side by side: the
*worlds*. Their probabilities make the expectation of the surrogate exact. A ``TrueTape`` replaces every estimator by
a sum or an integral over all values, so that its value is the expected cost itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from types import EllipsisType

import torch
from torch import Tensor
from torch.distributions import Distribution, Geometric, Independent, Poisson

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import all_indices, support, total_size
from doxa.stochastic.estimators._outcomes import MOST_OUTCOMES, gauss_legendre
from doxa.stochastic.tape._tape import Tape

__all__ = ["TooMany", "TrueTape", "WorldTape"]


class TooMany(Exception):
    """The proposal cannot be enumerated."""


class WorldTape(Tape):
    """A tape on which every draw of ``nodes`` proposals happens at once."""

    def __init__(self, nodes: int) -> None:
        super().__init__(batch_dims=nodes)
        self.probability: Tensor | None = None

    def _propose(self, estimator: Estimator, distribution: Distribution, n: int) -> Draw:
        found = estimator.outcomes(distribution, n)
        if found is None:
            raise TooMany
        draw, prob = found
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
    """The expectation itself: a sum over all values, or a quadrature."""

    def propose(self, distribution: Distribution, n: int) -> Draw:
        base = distribution
        while isinstance(base, Independent):
            base = base.base_dist
        if total_size(distribution) is not None:
            value = support(distribution)
            return Draw(
                value, distribution, step=torch.ones_like(value[..., 0] if distribution.event_shape else value).float()
            )
        if any(size > 1 for size in distribution.event_shape) or base.event_shape:
            raise ConfigError(
                f"the expected cost under {type(base).__name__} is not known; "
                "pass expected=, a function that computes it"
            )
        lead = (-1, *(1,) * len(base.batch_shape))
        with torch.no_grad():
            mean, spread = base.mean, base.stddev
            if isinstance(base, Poisson | Geometric):
                top = int((mean + 15 * spread).max()) + 30
                value = torch.arange(float(top)).to(mean).reshape(lead).expand(-1, *base.batch_shape)
                step = torch.ones_like(value)
            else:
                nodes, weights = gauss_legendre(240, mean.double())
                low, high = mean - 14 * spread, mean + 14 * spread
                edge = getattr(base.support, "lower_bound", None)
                if edge is not None:  # one-sided densities have long tails
                    low, high = torch.full_like(mean, float(edge)), mean + 45 * spread
                value = low + (high - low) * nodes.reshape(lead).to(mean)
                value = value.clamp_min(float(edge) + 1e-12) if edge is not None else value
                step = (high - low) * weights.reshape(lead).to(mean)
        shape = (value.shape[0], *distribution.batch_shape)
        return Draw(value.reshape((*shape, *distribution.event_shape)), distribution, step=step.reshape(shape))

    def weight(self, draw: Draw) -> Tensor:
        return draw.distribution.log_prob(draw.value).exp() * draw.notes["step"]


class TrueTape(Tape):
    """A tape whose surrogate is the expected cost, whatever ``deps`` claim."""

    def sample(
        self,
        distribution: Distribution,
        estimator: Estimator,
        n: int | EllipsisType | None = ...,
        deps: Iterable[Tensor] | None = None,
        name: str | None = None,
    ) -> Tensor:
        return super().sample(distribution, _Everything(), name=name)

    def cost(
        self, value: Tensor | Callable[[], Tensor], deps: Iterable[Tensor] | None = None, name: str | None = None
    ) -> Tensor:
        return super().cost(value, name=name)
