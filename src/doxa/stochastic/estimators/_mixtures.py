"""Worlds of a mixture of beliefs, as a distribution that estimators can sample."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from doxa.problem import Mixture
from doxa.stochastic.estimators._factors import all_indices


class MixtureWorlds(Distribution):
    """Worlds drawn from a mixture, component first; their log-probabilities are those of the mixture.

        log p(w) = log Σ_k π_k ∏_i P_k[i, w_i]

    It has finitely many values but no independent factors, so estimators that need those refuse it.

    >>> mixture = Mixture.from_logits(torch.zeros(4, 3, 2, 2), torch.zeros(4, 3))
    >>> worlds = MixtureWorlds(mixture)
    >>> worlds.sample((5,)).shape, worlds.size
    (torch.Size([5, 4, 2]), 4)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    support = constraints.real_vector  # of whole numbers

    def __init__(self, mixture: Mixture) -> None:
        self.mixture, self.dtype, self.size = mixture, mixture.dtype, prod(mixture.sizes)
        super().__init__(torch.Size(mixture.batch_shape), torch.Size([len(mixture.sizes)]), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self.mixture.sample(prod(sample_shape))
        return drawn.reshape(*sample_shape, *drawn.shape[1:])

    def log_prob(self, value: Tensor) -> Tensor:
        return self.mixture._gather(value)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> MixtureWorlds:
        return MixtureWorlds(self.mixture.expand(*batch_shape))

    def support_values(self) -> Tensor:
        """Every world, (S, *batch, W)."""
        index = all_indices(self.mixture.sizes, self.mixture.device)
        shape = self.mixture.batch_shape
        return index.reshape(len(index), *(1,) * len(shape), -1).expand(-1, *shape, -1)
