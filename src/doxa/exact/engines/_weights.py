"""Log-weights of the variables of a problem, and how some of them are picked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.exact.circuits._semirings import FLOOR

Index = slice | Tensor
Scope = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Weights:
    """Log-weights, batch last: a variable of weight 0, then the others, with one value more that is impossible."""

    values: Tensor  # (1 + variables, width, R)
    given: Tensor | None  # observed outputs, then the values of given variables (Y + G, R)

    @classmethod
    def of(cls, world: Tensor, output: Tensor | None, given: Tensor | None, *, zero: bool) -> Weights:
        """From log-weights ``(R, W, D)`` and ``(R, Y, E)``, and known values; ``zero``: weight 0 is used."""
        width = 1 + (world.shape[-1] if output is None else max(world.shape[-1], output.shape[-1]))
        weights = world if output is None else torch.cat([_wider(world, width), _wider(output, width)], 1)
        turned = weights.permute(1, 2, 0).clamp(min=FLOOR)
        padded = pad(turned, (0, 0, 0, width - weights.shape[-1], 1, 0), value=FLOOR)
        if zero:
            nothing = padded.new_zeros(1, width, len(world))
            nothing[:, -1] = FLOOR
            padded = torch.cat([nothing, padded[1:]])
        return cls(padded.contiguous(), None if given is None else given.T)

    @property
    def rows(self) -> int:
        return self.values.shape[-1]


def _wider(x: Tensor, width: int) -> Tensor:
    return pad(x, (0, width - x.shape[-1]), value=FLOOR)


def pick(x: Tensor, index: Index, dim: int) -> Tensor:
    """Some entries along an axis; a view where the index is a slice."""
    if isinstance(index, slice):
        return x[(slice(None),) * dim + (index,)]
    return x.index_select(dim, index.to(x.device))


def indexing(numbers: Sequence[int]) -> Index:
    """A slice where the numbers are evenly spaced, else a tensor."""
    stride = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if stride > 0 and all(b - a == stride for a, b in pairwise(numbers)):
        return slice(numbers[0], numbers[-1] + 1, stride)
    return torch.tensor(numbers)
