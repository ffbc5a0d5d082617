"""Relation heads: networks for binary predicates, as logits; ``pairwise`` gives all n·m pairs without repeating any."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError


class Bilinear(nn.Module):
    r"""Logits :math:`x^\top W_k\, y + b_k`.

    Args:
        features: the length of x, and of y unless ``other`` says otherwise.
        outputs: the number of logits k for a pair; with 1 there is no axis for them.
        other: the length of y.

    >>> head = Bilinear(4)
    >>> head(torch.ones(3, 4), torch.ones(3, 4)).shape, head.pairwise(torch.ones(3, 4), torch.ones(5, 4)).shape
    (torch.Size([3]), torch.Size([3, 5]))
    """

    def __init__(self, features: int, outputs: int = 1, other: int | None = None) -> None:
        super().__init__()
        _positive(features=features, outputs=outputs, other=other)
        self.weight = _uniform(outputs, features, other or features, fan=features)
        self.bias = _uniform(outputs, fan=features)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        scores = torch.einsum("ikb,ib->ik", torch.einsum("ia,kab->ikb", x, self.weight), y) + self.bias
        return scores.squeeze(-1) if len(self.bias) == 1 else scores

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits for all pairs, (n, m) or (n, m, k)."""
        scores = _pairs(x, self.weight, y) + self.bias
        return scores.squeeze(-1) if len(self.bias) == 1 else scores


class NeuralTensorNetwork(nn.Module):
    r"""A neural tensor network, the logit :math:`u^\top \tanh(x^\top W_k\, y + V_k [x; y] + b_k) + c` (Socher 2013).

    Args:
        features: the length of x, and of y unless ``other`` says otherwise.
        hidden: the number of slices k.
        other: the length of y.

    >>> head = NeuralTensorNetwork(4, hidden=3)
    >>> head.pairwise(torch.ones(3, 4), torch.ones(5, 4)).shape
    torch.Size([3, 5])
    """

    def __init__(self, features: int, hidden: int = 10, other: int | None = None) -> None:
        super().__init__()
        _positive(features=features, hidden=hidden, other=other)
        second = other or features
        self.weight = _uniform(hidden, features, second, fan=features)
        self.left = nn.Linear(features, hidden)
        self.right = nn.Linear(second, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        inside = torch.einsum("ikb,ib->ik", torch.einsum("ia,kab->ikb", x, self.weight), y)
        scores: Tensor = self.out(torch.tanh(inside + self.left(x) + self.right(y)))
        return scores.squeeze(-1)

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits for all pairs, (n, m)."""
        inside = _pairs(x, self.weight, y) + self.left(x).unsqueeze(1)
        scores: Tensor = self.out(torch.tanh(inside + self.right(y)))
        return scores.squeeze(-1)


class SquaredDistance(nn.Module):
    r"""The logit :math:`c - s\,‖x - y‖^2`, s > 0: the closer, the truer.

    Args:
        scale: where s starts.
        offset: where c starts, the logit of a thing and itself.

    >>> SquaredDistance(offset=2.0).pairwise(torch.zeros(1, 2), torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    tensor([[2., 1.]], ...)
    """

    def __init__(self, scale: float = 1.0, offset: float = 2.0) -> None:
        super().__init__()
        if not scale > 0:
            raise ConfigError(f"scale is {scale}, expected a number above 0")
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))
        self.offset = nn.Parameter(torch.tensor(float(offset)))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.offset - self.log_scale.exp() * (x - y).square().sum(-1)

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits for all pairs, (n, m)."""
        centre = torch.cat([x, y]).mean(0).detach()  # distances do not mind, and cancel less
        x, y = x - centre, y - centre
        squares = x.square().sum(-1).unsqueeze(1) + y.square().sum(-1) - 2 * x @ y.T
        return self.offset - self.log_scale.exp() * squares


def _pairs(x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """einsum('ia,kab,jb->ijk'), the smaller product first."""
    return torch.einsum("ikb,jb->ijk", torch.einsum("ia,kab->ikb", x, weight), y)


def _uniform(*shape: int, fan: int) -> nn.Parameter:
    bound = 1 / math.sqrt(fan)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def _positive(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ConfigError(f"{name} is {size}, expected at least 1")
