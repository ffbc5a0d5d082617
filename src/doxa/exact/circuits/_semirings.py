"""How alternatives are added up: all of them, the best of them, or one drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import threshold

NEG_INF = float("-inf")
FLOOR = -1e30
"""Stands for the log of 0 within a computation, where -inf would make derivatives NaN. Many of them can be added up."""

Reduce = Callable[[Tensor], Tensor]
"""Joins the first axis of log-weights; what its derivative means depends on which one it is."""


def restore(log_weight: Tensor) -> Tensor:
    """-inf, with derivative 0, for results that ``FLOOR`` made."""
    return threshold(log_weight, FLOOR / 1e6, NEG_INF)


class _Best(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        best, place = x.max(0)
        ctx.save_for_backward(place)
        ctx.size = len(x)
        return best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (place,) = ctx.saved_tensors
        return _one_hot(grads[0], place, ctx.size)


class _Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, generator: torch.Generator | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.generator = generator
        return x.logsumexp(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        noise = torch.empty_like(x, dtype=torch.float64).exponential_(generator=ctx.generator)
        place = (x - noise.clamp_(min=torch.finfo(torch.float64).tiny).log_()).argmax(0)  # Gumbel's trick
        return _one_hot(grads[0], place, len(x)), None


def _one_hot(grad: Tensor, place: Tensor, size: int) -> Tensor:
    return grad.new_zeros(size, *grad.shape).scatter_(0, place.unsqueeze(0), grad.unsqueeze(0))


def log_sum(x: Tensor) -> Tensor:
    """log Σ exp(x) over the first axis, differentiable any number of times.

    The derivative of a long computation made of these, with respect to a log-weight, is a marginal probability.
    """
    return x.logsumexp(0)


def best(x: Tensor) -> Tensor:
    """max x over the first axis; the derivative points to the first of the best, and so to the most probable world."""
    result: Tensor = _Best.apply(x)  # type: ignore[no-untyped-call]
    return result


class Drawn:
    """log Σ exp(x) again, but the derivative points to one entry drawn with probability ∝ exp(x).

    One backward pass through the whole computation then draws an exact sample: a choice at each alternative that was
    reached by the choices before it.
    """

    def __init__(self, generator: torch.Generator | None) -> None:
        self.generator = generator

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = _Drawn.apply(x, self.generator)  # type: ignore[no-untyped-call]
        return result
