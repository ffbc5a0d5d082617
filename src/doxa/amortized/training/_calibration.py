"""How far q(y | P) is from p(y | P), and so how biased the gradients are that it gives."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from doxa.amortized.training._divergences import divergence
from doxa.errors import ConfigError
from doxa.problem import Belief, BruteForce, Problem

MOST_WORLDS = 1 << 16  # up to here all worlds are summed where no exact reasoner is given


class HasLogProb(Protocol):
    """A reasoner with probabilities: anything whose ``log_prob`` is log p(y | P), or an estimate of it."""

    @property
    def problem(self) -> Problem: ...

    def log_prob(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor: ...


class Calibration(NamedTuple):
    """KL(p(y | P) ‖ q(y | P)) in nats: by so much the expected loss is above the exact one.

    Where one output is certain under P, this is the loss itself, whose exact value is 0.

    Attributes:
        kl: one number per belief, ``(*batch,)``.
        error: its standard error, 0 where it was summed and not estimated.

    >>> Calibration(torch.tensor([0.25, 0.75]), torch.zeros(2)).mean
    0.5
    """

    kl: Tensor
    error: Tensor

    @property
    def mean(self) -> float:
        """The average over the beliefs."""
        return float(self.kl.mean())

    @property
    def largest(self) -> float:
        """That of the worst belief."""
        return float(self.kl.max())


@torch.no_grad()
def calibrate(
    engine: HasLogProb,
    belief: Belief,
    exact: HasLogProb | None,
    samples: int,
    given: Tensor | None,
    generator: torch.Generator | None,
) -> Calibration:
    """KL(p ‖ q) on beliefs ``(*batch,)``; see ``AmortizedReasoner.divergence``."""
    engine.problem.require(belief, given=given)
    if samples < 2:
        raise ConfigError(f"samples is {samples}, expected at least 2")
    batch = belief.batch_shape
    if exact is None and math.prod(engine.problem.world + engine.problem.given) <= MOST_WORLDS:
        exact = BruteForce(engine.problem)
    if isinstance(exact, BruteForce):
        outputs = exact.outputs
        many = belief.log_probs.unsqueeze(-3).expand(*batch, len(outputs), *belief.log_probs.shape[-2:])
        repeated = Belief(many, belief.sizes, validate=False)
        seen = None if given is None else given.expand(*batch, -1).unsqueeze(-2).expand(*batch, len(outputs), -1)
        log_q = engine.log_prob(repeated, outputs.expand(*batch, *outputs.shape), given=seen)
        kl = divergence(exact.joint(belief, given=given), log_q.to(belief.log_probs))
        return Calibration(kl, torch.zeros_like(kl))
    rows = belief.log_probs.reshape(-1, *belief.log_probs.shape[-2:])
    seen_rows = [None] * len(rows) if given is None else list(given.expand(*batch, -1).reshape(len(rows), -1))
    found = []
    for row, seen in zip(rows, seen_rows, strict=True):
        one = Belief(row, belief.sizes, validate=False)
        drawn = engine.problem(one.sample(samples, generator=generator), seen)
        outputs, number, count = torch.unique(drawn, dim=0, return_inverse=True, return_counts=True)
        repeated = Belief(row.expand(len(outputs), *row.shape), belief.sizes, validate=False)
        log_q = engine.log_prob(repeated, outputs, given=seen)
        log_p = (count / samples).log() if exact is None else exact.log_prob(repeated, outputs, given=seen)
        gap = (log_p.to(row) - log_q.to(row))[number]
        found.append(torch.stack([gap.mean(), gap.std() / samples**0.5]))
    kl, error = torch.stack(found).unbind(-1) if found else rows.new_zeros(2, 0)
    return Calibration(kl.reshape(batch), error.reshape(batch))
