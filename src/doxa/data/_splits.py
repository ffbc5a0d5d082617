"""Splits that are the same on every machine."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from doxa.errors import ConfigError


def split_indices(n: int, *sizes: int, seed: int) -> tuple[Tensor, ...]:
    """Shuffle 0..n-1 and cut the result into pieces of the given sizes, and the rest.

    The shuffle is that of ``numpy.random.seed(seed)`` and ``numpy.random.shuffle``, which NumPy has frozen: published
    splits made in this way can be had again. NumPy's global state is left alone.

    Args:
        n: how many indices there are.
        sizes: how many each piece takes; whatever is left makes the last piece, which may be empty.
        seed: 0 .. 2**32 - 1.

    Returns:
        ``len(sizes) + 1`` int64 tensors that hold every index once.

    >>> split_indices(6, 3, 2, seed=1)
    (tensor([2, 1, 4]), tensor([0, 3]), tensor([5]))
    """
    if n < 0 or min(sizes, default=0) < 0 or sum(sizes) > n:
        raise ConfigError(f"{n} indices cannot be cut into {sizes}: that asks for {sum(sizes)}, in pieces of 0 or more")
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed is {seed}, expected 0 .. 2**32 - 1")
    order = np.random.RandomState(seed).permutation(n)
    return torch.split(torch.from_numpy(order.astype(np.int64)), [*sizes, n - sum(sizes)])
