"""Several wishes for one truth value: how the changes that different subformulas ask for become one change.

When an atom stands in several subformulas, each of them wants its own change (Chapter 4, Algorithm ILR, line
"combine"). Changes are compared, not values: an atom that a subformula leaves alone asks for 0 (errata 3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from doxa.refine._base import Pick

__all__ = ["COMBINATIONS", "Combination"]

Combination = Callable[[Tensor, Pick], Tensor]
"""From wishes ``(rows, wishes, *batch)`` to changes ``(rows, *batch)``."""


def _chosen(wishes: Tensor, index: Tensor) -> Tensor:
    return wishes.gather(1, index).squeeze(1)


_ROUNDING = {dtype: 8 * torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}


def largest(wishes: Tensor, pick: Pick) -> Tensor:
    """The largest absolute change; sizes that differ by rounding tie, so that the first of them wins everywhere."""
    size = (wishes.detach() if wishes.requires_grad else wishes).abs()
    smaller = size < size.amax(1, keepdim=True) - _ROUNDING[size.dtype]
    return _chosen(wishes, pick(smaller.to(size.dtype), 1))


def mean(wishes: Tensor, pick: Pick) -> Tensor:
    """The mean of the changes that are not 0."""
    return wishes.sum(1) / (wishes != 0).sum(1).clamp_min(1)


def smallest(wishes: Tensor, pick: Pick) -> Tensor:
    """The smallest absolute change that is not 0."""
    size = wishes.detach().abs()
    return _chosen(wishes, pick(torch.where(size > 0, size, torch.inf), 1))


def total(wishes: Tensor, pick: Pick) -> Tensor:
    """The sum; what leaves [0, 1] is clipped where the change is applied."""
    return wishes.sum(1)


COMBINATIONS: Mapping[str, Combination] = MappingProxyType(
    {"max": largest, "mean": mean, "min": smallest, "sum": total}
)
"""The ways to combine, by name."""
