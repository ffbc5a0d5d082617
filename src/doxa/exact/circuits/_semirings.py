"""How alternatives are added up: all of them, the best of them, or one drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import threshold

NEG_INF = float("-inf")
FLOOR = -1e30
"""Stands for the log of 0 within a computation, where -inf would make derivatives NaN. Many of them can be added up."""


def restore(log_weight: Tensor) -> Tensor:
    """-inf, with derivative 0, for results that ``FLOOR`` made."""
    return threshold(log_weight, FLOOR / 1e6, NEG_INF)


@dataclass(frozen=True, eq=False)
class Reduce:
    """Joins the first axis of log-weights; the mode decides what the derivative of a long computation of these means.

    "sum": log Σ exp(x), differentiable any number of times; the derivatives are marginal probabilities. "best": max x;
    they point to the first of the best, and so to the most probable world. "drawn": log Σ exp(x) again, but they point
    to an entry drawn with probability ∝ exp(x), and so, through the whole computation, to an exact sample.
    """

    mode: Literal["sum", "best", "drawn"]
    generator: torch.Generator | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.mode == "sum":
            return x.logsumexp(0)
        result: Tensor = _Choice.apply(x, self)  # type: ignore[no-untyped-call]
        return result


SUM, BEST = Reduce("sum"), Reduce("best")


class _Choice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, reduce: Reduce) -> Tensor:
        ctx.reduce, ctx.size = reduce, len(x)
        value, place = x.max(0) if reduce.mode == "best" else (x.logsumexp(0), x)
        ctx.save_for_backward(place)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (place,), grad = ctx.saved_tensors, grads[0]
        if ctx.reduce.mode == "drawn":
            noise = torch.empty_like(place, dtype=torch.float64).exponential_(generator=ctx.reduce.generator)
            place = (place - noise.clamp_(min=torch.finfo(torch.float64).tiny).log_()).argmax(0)  # Gumbel's trick
        chosen = grad.new_zeros(ctx.size, *grad.shape)
        return chosen.scatter_(0, place.unsqueeze(0), grad.unsqueeze(0)), None
