"""How far q(y | P) is from p(y | P), and so how biased the gradients are that it gives."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from doxa.amortized._reasoner import Amortized
from doxa.amortized.training._divergences import divergence
from doxa.errors import ConfigError
from doxa.problem import Belief, BruteForce, Problem


class HasLogProb(Protocol):
    """An exact reasoner: anything whose ``log_prob`` is log p(y | P)."""

    @property
    def problem(self) -> Problem: ...

    def log_prob(self, belief: Belief, output: Tensor) -> Tensor: ...


class Calibration(NamedTuple):
    """KL(p(y | P) ‖ q(y | P)) in nats.

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


@torch.no_grad()
def calibrate(
    engine: Amortized,
    belief: Belief,
    exact: BruteForce | HasLogProb | None = None,
    *,
    samples: int = 10_000,
    generator: torch.Generator | None = None,
) -> Calibration:
    """KL(p ‖ q) on beliefs ``(*batch,)``; 0 where the engine is exact.

    With ``BruteForce`` it is summed over all outputs. With any other exact reasoner it is averaged over outputs of
    worlds drawn from the belief, log p(y | P) - log q(y | P). Without one, log p is the log of the frequency among
    ``samples`` such outputs, which overestimates the divergence by about (outcomes - 1) / (2 samples).

    >>> from doxa.problem import parity
    >>> engine = Amortized(parity(2))
    >>> result = calibrate(engine, Belief.uniform((2, 2), batch=(5,)), BruteForce(engine.problem))
    >>> result.kl.shape, bool((result.kl >= 0).all())
    (torch.Size([5]), True)
    """
    engine.problem.require(belief)
    if samples < 2:
        raise ConfigError(f"samples is {samples}, expected at least 2")
    batch = belief.batch_shape
    if isinstance(exact, BruteForce):
        outputs = exact.outputs
        many = belief.log_probs.unsqueeze(-3).expand(*batch, len(outputs), *belief.log_probs.shape[-2:])
        repeated = Belief(many, belief.sizes, validate=False)
        log_q = engine.log_prob(repeated, outputs.expand(*batch, *outputs.shape))
        kl = divergence(exact.joint(belief), log_q.to(belief.log_probs))
        return Calibration(kl, torch.zeros_like(kl))
    rows = belief.log_probs.reshape(-1, *belief.log_probs.shape[-2:])
    found = []
    for row in rows:
        one = Belief(row, belief.sizes, validate=False)
        drawn = engine.problem(one.sample(samples, generator=generator))
        outputs, number, count = torch.unique(drawn, dim=0, return_inverse=True, return_counts=True)
        repeated = Belief(row.expand(len(outputs), *row.shape), belief.sizes, validate=False)
        log_q = engine.log_prob(repeated, outputs)
        log_p = (count / samples).log() if exact is None else exact.log_prob(repeated, outputs)
        gap = (log_p.to(row) - log_q.to(row))[number]
        found.append(torch.stack([gap.mean(), gap.std() / samples**0.5]))
    kl, error = torch.stack(found).unbind(-1) if found else rows.new_zeros(2, 0)
    return Calibration(kl.reshape(batch), error.reshape(batch))


class CalibrationRecord(NamedTuple):
    """Calibration at one moment of training.

    Attributes:
        step: when.
        prior: the average divergence on beliefs of the prior.
        observed: that on beliefs of the perception network.

    >>> CalibrationRecord(100, prior=0.02, observed=0.3)
    CalibrationRecord(step=100, prior=0.02, observed=0.3)
    """

    step: int
    prior: float
    observed: float


def record(
    engine: Amortized,
    step: int,
    observed: Belief,
    exact: BruteForce | HasLogProb | None = None,
    *,
    beliefs: int = 20,
    samples: int = 10_000,
    generator: torch.Generator | None = None,
) -> CalibrationRecord:
    """Calibration on beliefs of the prior and on observed ones; collect these over training to see the bias.

    >>> from doxa.problem import parity
    >>> engine = Amortized(parity(2))
    >>> record(engine, 0, Belief.uniform((2, 2), batch=(5,)), BruteForce(engine.problem)).step
    0
    """
    own = engine.prior.sample(beliefs, generator=generator)
    return CalibrationRecord(
        step,
        calibrate(engine, own, exact, samples=samples, generator=generator).mean,
        calibrate(engine, observed.detach(), exact, samples=samples, generator=generator).mean,
    )
