"""Everything a proposal can return, with probabilities: what makes checks exact."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from doxa.stochastic.estimators._estimator import Draw
from doxa.stochastic.estimators._factors import all_indices, repeat_batch, support, total_size

__all__ = ["combine", "gauss_hermite", "gauss_legendre", "independent_outcomes", "independent_values", "tanh_sinh"]

MOST_OUTCOMES = 1 << 18


def combine(values: Tensor, log_probs: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """n independent draws from a list: from (S, *batch, *event) and (S, *batch) to (n, S^n, ...) and (S^n, *batch)."""
    index = all_indices((values.shape[0],) * n, values.device).T  # (n, S^n)
    return values[index], log_probs[index].sum(0).exp()


def independent_values(distribution: Distribution, n: int) -> tuple[Tensor, Tensor] | None:
    """All tuples of n independent samples of a finite or Gaussian distribution; ``None`` if too many."""
    size = total_size(distribution)
    if size is not None:
        if size**n > MOST_OUTCOMES:
            return None
        values = support(distribution)
        with torch.no_grad():
            return combine(values, distribution.log_prob(values).double(), n)
    base = distribution.base_dist if isinstance(distribution, Independent) else distribution
    if isinstance(base, Normal) and not any(s > 1 for s in distribution.event_shape) and n <= 2:
        nodes, weights = gauss_hermite(64, base.loc)
        lead = (-1, *(1,) * len(base.batch_shape))
        with torch.no_grad():
            values = base.loc + base.scale * nodes.reshape(lead)
            log_weights = weights.log().reshape(-1, *(1,) * len(distribution.batch_shape))
        return combine(values, log_weights.expand(-1, *distribution.batch_shape), n)
    return None


def independent_outcomes(distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
    """The outcomes of a proposal that draws n independent samples."""
    found = independent_values(distribution, n)
    if found is None:
        return None
    return Draw(found[0], repeat_batch(distribution, found[1].shape[0])), found[1]


def gauss_hermite(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights for a standard normal variable (Golub and Welsch 1969)."""
    beta = torch.arange(1, count, dtype=torch.float64).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(beta, 1) + torch.diag(beta, -1))
    return nodes.to(like), vectors[0].square().to(like)


def tanh_sinh(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights on (0, 1), exact even for functions with logarithmic ends (Takahasi and Mori 1974)."""
    t = torch.linspace(-3.0, 3.0, count, dtype=torch.float64)
    x = torch.sigmoid(torch.pi * torch.sinh(t))
    w = (t[1] - t[0]) * torch.pi * torch.cosh(t) * x * (1 - x)
    return x.to(like), (w / w.sum()).to(like)


def gauss_legendre(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights on (0, 1) (Golub and Welsch 1969)."""
    k = torch.arange(1, count, dtype=torch.float64)
    beta = k / (4 * k * k - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(beta, 1) + torch.diag(beta, -1))
    return ((nodes + 1) / 2).to(like), vectors[0].square().to(like)
