"""Whether a function is being traced, so that it must not look at data or change a state."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["is_traced", "is_wrapped"]


def is_wrapped(x: Tensor) -> bool:
    """Whether a tensor belongs to a transformation of torch.func."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def is_traced(x: Tensor) -> bool:
    """Whether a tensor has no values to look at: inside torch.compile, or one of many in vmap."""
    if torch.compiler.is_compiling():
        return True
    while is_wrapped(x):
        if torch._C._functorch.is_batchedtensor(x):
            return True
        x = torch._C._functorch.get_unwrapped(x)
    return False
