"""VIMCO: bounds of the form log-mean-exp over samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from doxa.stochastic.estimators._estimator import Draw
from doxa.stochastic.estimators._score import Score

__all__ = ["VIMCO"]


class VIMCO(Score):
    r"""The objective −log 1/n Σ_j exp(−c_j) over n samples of total cost c_j, instead of their average.

    With c_j = −log p(x, z_j)/q(z_j) this is the importance-weighted bound. The n samples are one joint draw,
    credited with one cost, so l = Σ_j log p(z_j); the baseline of sample j is the objective with c_j replaced by the
    average of the others (Mnih and Rezende 2016). It does not depend on z_j, hence any order. Later nodes need
    ``n=None``.

    >>> import torch
    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(4, requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=logits), VIMCO(5))
    >>> _ = tape.cost(torch.where(z > 0, 1.0, 2.0))
    >>> (g,) = torch.autograd.grad(tape.surrogate(), logits)
    """

    least = 2
    joins = True

    def __init__(self, n: int = 5) -> None:
        super().__init__(n)

    def joined(self, cost: Tensor) -> Tensor:
        """The objective (1, …) from the costs (n, …)."""
        return math.log(cost.shape[0]) - torch.logsumexp(-cost, 0, keepdim=True)

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        n = draw.m
        others = (cost.sum(0, keepdim=True) - cost) / (n - 1)
        replaced = torch.where(
            torch.eye(n, dtype=torch.bool, device=cost.device).reshape(n, n, *(1,) * (cost.dim() - 1)),
            others.unsqueeze(1),
            cost.unsqueeze(0),
        )
        return (1 - box) * (math.log(n) - torch.logsumexp(-replaced, 1))
