"""Tapes that go through everything that can happen, instead of sampling it.

On a ``WorldTape`` each node has one more batch dimension, in which all draws of its proposal stand side by side: the
*worlds*. Their probabilities give the expectation of the surrogate. A ``TrueTape`` replaces every estimator by
a sum or an integral over all values, so that its value is the expected cost itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from types import EllipsisType

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.stochastic._truth import gauss_legendre, intervals, is_countable, scalar
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import MOST_OUTCOMES, all_indices, log_prob, repeat_batch, support, total_size
from doxa.stochastic.tape._tape import Tape


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
