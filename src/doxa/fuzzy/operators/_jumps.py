"""Looking for jumps of a monotone function by bisection."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


@torch.no_grad()
def largest_jump(f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> float:
    """The largest change of f between neighbouring floats, looked for in every interval [low, high] at once.

    Each interval is halved towards the half over which f changes more, until it can be halved no further.
    """
    for _ in range(60):
        middle = (low + high) / 2
        left = (f(middle) - f(low)).abs() > (f(high) - f(middle)).abs()
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
    return float((f(high) - f(low)).abs().max())
