"""Worlds whose variables depend on each other, as a distribution that estimators can sample."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from doxa.problem import Mixture
from doxa.problem._autoregressive import Autoregressive
from doxa.stochastic.estimators._factors import all_indices


class JointWorlds(Distribution):
    """Worlds drawn from a mixture, component first, or from an autoregressive belief, variable by variable.

        log p(w) = log Σ_k π_k ∏_i P_k[i, w_i],    log p(w) = Σ_i log p(w_i | w_<i)

    It has finitely many values but no independent factors, so estimators that need those refuse it.

    >>> mixture = Mixture.from_logits(torch.zeros(4, 3, 2, 2), torch.zeros(4, 3))
    >>> worlds = JointWorlds(mixture)
    >>> worlds.sample((5,)).shape, worlds.size
    (torch.Size([5, 4, 2]), 4)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    support = constraints.real_vector  # of whole numbers

    def __init__(self, belief: Mixture | Autoregressive) -> None:
        self.sizes = belief.sizes if isinstance(belief, Mixture) else belief.drawn_sizes
        self.belief, self.dtype, self.size = belief, belief.dtype, prod(self.sizes)
        super().__init__(torch.Size(belief.batch_shape), torch.Size([len(self.sizes)]), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self.belief.sample(prod(sample_shape))
        return drawn.reshape(*sample_shape, *drawn.shape[1:])

    def log_prob(self, value: Tensor) -> Tensor:
        return self.belief._gather(value)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> JointWorlds:
        return JointWorlds(self.belief.expand(*batch_shape))

    def support_values(self) -> Tensor:
        """Every world, (S, *batch, W)."""
        index = all_indices(self.sizes, self.belief.device)
        shape = self.belief.batch_shape
        return index.reshape(len(index), *(1,) * len(shape), -1).expand(-1, *shape, -1)
