"""Importance sampling: samples from another distribution, reweighted."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ProblemError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import log_prob, repeat_batch
from doxa.stochastic.estimators._outcomes import independent_values

__all__ = ["ImportanceSampling"]


class ImportanceSampling(Estimator):
    """The score function on samples from ``proposal``: w = ⊥(p/q)/n, l = log p, any order (errata 4.2).

    A weight belongs to a whole sample: the dimensions of one draw must be in the event of both distributions.

    >>> import torch
    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Categorical(logits=logits), ImportanceSampling(Categorical(torch.tensor([0.2, 0.5, 0.3])), n=8))
    >>> _ = tape.cost(z.double())
    >>> loss = tape.surrogate(order=2)
    """

    def __init__(self, proposal: Distribution, n: int = 1, baseline: float = 0.0) -> None:
        super().__init__(n)
        self.proposal, self.baseline = proposal, baseline

    def _aligned(self, distribution: Distribution) -> Distribution:
        if self.proposal.event_shape != distribution.event_shape:
            raise ProblemError(
                f"the proposal has event shape {tuple(self.proposal.event_shape)}, the distribution "
                f"{tuple(distribution.event_shape)}; wrap the one with fewer in torch.distributions.Independent"
            )
        wide: Distribution = self.proposal.expand(distribution.batch_shape)
        return wide

    def _complete(self, distribution: Distribution, proposal: Distribution, value: Tensor, n: int) -> Draw:
        with torch.no_grad():
            log_weight = log_prob(distribution, value) - log_prob(proposal, value)
        return Draw(value, distribution, weight=log_weight.exp() / n)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        q = self._aligned(distribution)
        return self._complete(distribution, q, q.sample(torch.Size([n])), n)

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["weight"]

    def gradient(self, draw: Draw) -> Tensor:
        return log_prob(draw.distribution, draw.value)

    @property
    def controls(self) -> bool:
        return self.baseline != 0.0

    @property
    def additive(self) -> bool:
        return False

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        return (1 - box) * self.baseline

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        q = self._aligned(distribution)
        found = independent_values(q, n)
        if found is None:
            return None
        value, prob = found
        count = prob.shape[0]
        return self._complete(repeat_batch(distribution, count), repeat_batch(q, count), value, n), prob
