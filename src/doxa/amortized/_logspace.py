"""Masked distributions in log space, whose derivatives stay finite when nothing is left to choose from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

NEG_INF = float("-inf")


def value_mask(sizes: Sequence[int], width: int | None = None) -> Tensor:
    """Bool ``(T, D)``: which values each variable has."""
    widest = max(sizes) if width is None else width
    return torch.arange(widest) < torch.tensor(sizes).unsqueeze(-1)


def log_softmax(logits: Tensor, allowed: Tensor | None = None) -> Tensor:
    """log of q_v s_v / (q · s) over the last axis, for q = softmax(logits) and the 0/1 mask s = ``allowed``.

    Values that are not allowed get -inf, with derivative 0. Where nothing is allowed, everything is -inf.
    """
    if allowed is None:
        return logits.log_softmax(-1)
    alive = allowed.any(-1, keepdim=True)
    kept = logits.masked_fill(~allowed & alive, NEG_INF)
    return kept.log_softmax(-1).masked_fill(~allowed, NEG_INF)


def pick(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """The entries of the last axis that belong to ``tokens``; -1 stands for nothing, which has log-probability 0."""
    seen = tokens >= 0
    chosen = log_probs.gather(-1, tokens.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(seen, chosen, torch.zeros_like(chosen))


def one_hot(tokens: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """``(..., D)`` with a 1 at the token; -1 gives zeros."""
    return (tokens.unsqueeze(-1) == torch.arange(width, device=tokens.device)).to(dtype)


def log_world(log_probs: Tensor, worlds: Tensor) -> Tensor:
    """log p(w | P) with each factor capped, Σ_i log max(P[i, w_i], ε), for ε the smallest normal number of the dtype.

    A model may propose worlds that the belief excludes: those are very improbable here, not impossible.
    """
    floor = math.log(torch.finfo(log_probs.dtype).tiny)
    table = log_probs.clamp(min=floor)
    return table.gather(-1, worlds.unsqueeze(-1)).squeeze(-1).sum(-1)
