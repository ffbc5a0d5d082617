"""Logarithms whose values may be -inf and whose derivatives are nevertheless finite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import zip_longest

import torch
from torch import Tensor

from doxa._numerics import safe_log

NEG_INF = float("-inf")


def capped_log(x: Tensor, eps: float = 0.0) -> Tensor:
    """log max(x, eps), with derivative 1 / max(x, eps, smallest normal number); exact for ``eps = 0``."""
    floor = max(eps, torch.finfo(x.dtype).tiny)
    value = safe_log(x, floor)
    if eps >= floor:
        return value
    return value + (x.clamp(min=eps).log() - value).detach()


def logsumexp(x: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """log Σ exp(x) over ``dim``; a sum of nothing but -inf is -inf with derivative 0, where torch's has NaN."""
    top = x.detach().amax(dim, keepdim=True)
    total = (x - _finite(top)).exp().sum(dim)
    return _log(total) + top.view_as(total)


def segment_logsumexp(x: Tensor, index: Tensor, size: int) -> Tensor:
    """log Σ exp(x) over the entries of the last axis with equal ``index``: ``(..., n)`` to ``(..., size)``."""
    index = index.expand_as(x)
    top = x.new_full((*x.shape[:-1], size), NEG_INF).scatter_reduce(-1, index, x.detach(), "amax")
    total = torch.zeros_like(top).scatter_add(-1, index, (x - _finite(top).gather(-1, index)).exp())
    return _log(total) + top


def _finite(top: Tensor) -> Tensor:
    return top.clamp(min=torch.finfo(top.dtype).min)


def _log(total: Tensor) -> Tensor:
    # The largest summand is e^0, so a total below 1 is the empty sum: give it derivative 0, and let the top be -inf.
    return total.clamp(min=1.0).log()


def draw(probs: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """``count`` indices into the last axis of weights, on a new first axis; never one of weight 0."""
    cumulative = probs.detach().double().cumsum(-1)
    shape = (*cumulative.shape[:-1], count)
    uniform = torch.rand(shape, dtype=torch.float64, device=probs.device, generator=generator)
    index = torch.searchsorted(cumulative, uniform * cumulative[..., -1:], right=True)
    return index.clamp(max=probs.shape[-1] - 1).movedim(-1, 0)


def added_pairwise(terms: list[Tensor]) -> Tensor:
    """Sums of all combinations of an entry from each term ``(R, n)``, in lexicographic order: neighbours first."""
    while len(terms) > 1:
        pairs = zip_longest(terms[::2], terms[1::2])
        terms = [a if b is None else (a.unsqueeze(2) + b.unsqueeze(1)).flatten(1) for a, b in pairs]
    return terms[0]


def common_batch(*tensors: Tensor | None) -> tuple[int, ...]:
    """The shape without the last axis that these, where they are there, broadcast to."""
    shapes = [x.shape[:-1] for x in tensors if x is not None]
    return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def shown(x: object) -> str:
    """The dtype and shape of a tensor, or the type of anything else, for messages."""
    return f"dtype {x.dtype} and shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


def at_row(row: Sequence[int], word: str = "in") -> str:
    """Which row of the batch is meant, for messages; nothing where there is no batch."""
    return f" {word} row {tuple(row)}" if row else ""


def is_traced(x: Tensor) -> bool:
    """Whether values cannot be looked at: under ``torch.compile`` or inside a ``torch.func`` transformation."""
    return torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(x)


@contextmanager
def without_autocast(where: torch.device) -> Iterator[None]:
    """Inside the block numbers on a device keep their precision."""
    device = where.type
    with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
        yield
