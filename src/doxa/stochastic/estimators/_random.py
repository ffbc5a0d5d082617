"""Random numbers from a ``torch.Generator``, for code such as ``torch.distributions`` that cannot take one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from doxa.stochastic.estimators._factors import plain


@contextmanager
def borrowed(generator: torch.Generator | None) -> Iterator[None]:
    """Let torch's own random numbers come from ``generator`` inside the block, and put everything back after it."""
    if generator is None:
        yield
        return
    if generator.device.type == "cuda":
        own = torch.cuda.default_generators[generator.device.index or 0]
    else:
        own = torch.default_generator
    before = own.get_state()
    own.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(own.get_state())
        own.set_state(before)


def uniform(like: Tensor) -> Tensor:
    """Numbers strictly between 0 and 1 in the shape of ``like``."""
    # torch draws from [0, 1): only 0 has to go.
    return torch.rand_like(like).clamp_min(torch.finfo(like.dtype).tiny)


def reparameterised(distribution: Distribution, n: int) -> Tensor:
    """n live samples; those of a Normal as torch makes them, but of noise that torch.func.vmap can draw, too."""
    base, _ = plain(distribution)
    if isinstance(base, Normal):
        return base.loc + torch.randn_like(base.loc.detach().expand(n, *base.loc.shape)) * base.scale
    live: Tensor = distribution.rsample(torch.Size([n]))
    return live


def gumbel(like: Tensor) -> Tensor:
    """Standard Gumbel noise."""
    return -torch.log(-torch.log(uniform(like)))


def logistic(like: Tensor) -> Tensor:
    """Standard logistic noise."""
    u = uniform(like)
    return torch.log(u) - torch.log1p(-u)
