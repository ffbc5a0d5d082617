"""The aggregators as the experiments of Chapter 3 had them, where they differ from the plain ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa.fuzzy import Aggregator, Godel, LogProduct

__all__ = ["MeanLogProduct", "NoisyMaximum", "NoisyMinimum"]

Dims = int | tuple[int, ...] | None


@dataclass(frozen=True)
class MeanLogProduct(Aggregator):
    r"""The log-product as a mean, :math:`\frac1n \sum_i \log(x_i + 10^{-6})`.

    >>> MeanLogProduct()(torch.tensor([0.8, 0.7, 0.9]))
    tensor(-0.2284)
    """

    eps: float = 1e-6
    kind = "forall"
    is_log = True
    bounded = False

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return LogProduct("mean")(x + self.eps, dim, mask, weight)


@dataclass(frozen=True)
class NoisyMinimum(Aggregator):
    """The minimum of ``x`` plus Gaussian noise from torch's own generator, so that ties are broken at random.

    >>> x = torch.tensor([0.4, 0.4, 0.9], requires_grad=True)
    >>> NoisyMinimum()(x).backward()
    >>> x.grad.sum(), x.grad[2]
    (tensor(1.), tensor(0.))
    """

    noise: float = 1e-3
    kind = "forall"
    bounded = False

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return Godel().reduce(x + self.noise * torch.randn_like(x), dim, mask, weight)


@dataclass(frozen=True)
class NoisyMaximum(Aggregator):
    """The maximum of ``x`` plus Gaussian noise from torch's own generator, so that ties are broken at random.

    >>> abs(NoisyMaximum()(torch.tensor([0.4, 0.9])) - 0.9) < 1e-3
    tensor(True)
    """

    noise: float = 1e-4
    kind = "exists"
    bounded = False

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return Godel().dual.reduce(x + self.noise * torch.randn_like(x), dim, mask, weight)
