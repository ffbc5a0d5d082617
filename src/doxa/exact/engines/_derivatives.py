"""Probabilities as derivatives of a log-probability."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from doxa.problem._logspace import is_traced


def derivatives(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The rows of a function and their derivatives, which are differentiable in turn where gradients are recorded."""
    if any(is_traced(x) for x in inputs):
        value, pull = torch.func.vjp(function, *inputs)[:2]
        return value, pull(torch.ones_like(value))
    recording = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    with torch.enable_grad():
        points = [x if recording and x.requires_grad else x.detach().requires_grad_() for x in inputs]
        value = function(*points)
        slopes = torch.autograd.grad(value.sum(), points, create_graph=recording)
    return (value if recording else value.detach()), slopes


def log_of(probs: Tensor) -> Tensor:
    """log p, -inf at 0; the derivative of a vanishing probability is taken as 0, for it cannot be represented."""
    floor = torch.finfo(probs.dtype).tiny / torch.finfo(probs.dtype).eps
    value = probs.clamp(min=floor).log()
    return torch.where(probs > floor, value, probs.detach().clamp(min=0).log())


def contract(probs: Tensor, values: Tensor) -> Tensor:
    """Σ_k probs[..., k] values[k, ...]"""
    rows = probs.reshape(math.prod(probs.shape[:-1]), probs.shape[-1])
    return (rows @ values.reshape(len(values), -1)).reshape((*probs.shape[:-1], *values.shape[1:]))
