"""Everything a proposal can return, with probabilities: what makes a check a proof."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.stochastic.estimators._estimator import Draw
from doxa.stochastic.estimators._factors import all_indices, log_prob, repeat_batch, support, total_size

__all__ = ["MOST_OUTCOMES", "combine", "independent_outcomes", "independent_values"]

MOST_OUTCOMES = 1 << 18


def combine(values: Tensor, log_probs: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """n independent draws from a list: from (S, *batch, *event) and (S, *batch) to (n, S^n, ...) and (S^n, *batch)."""
    index = all_indices((values.shape[0],) * n, values.device).T  # (n, S^n)
    return values[index], log_probs[index].sum(0).exp()


def independent_values(distribution: Distribution, n: int) -> tuple[Tensor, Tensor] | None:
    """All tuples of n independent samples of a finite distribution; ``None`` if too many."""
    size = total_size(distribution)
    if size is None or size**n > MOST_OUTCOMES:
        return None
    values = support(distribution)
    with torch.no_grad():
        return combine(values, log_prob(distribution, values).double(), n)


def independent_outcomes(distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
    """The outcomes of a proposal that draws n independent samples."""
    found = independent_values(distribution, n)
    if found is None:
        return None
    return Draw(found[0], repeat_batch(distribution, found[1].shape[0])), found[1]
