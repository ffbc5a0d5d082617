"""Derivatives of an engine, and what is found by asking for them again and again: the best worlds and outputs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import threshold

from doxa.exact.circuits._semirings import NEG_INF
from doxa.problem._logspace import is_traced

Find = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""The best world ``(R, W)`` of rows ``(R, W, D)``, outputs and given values, and its score ``(R,)``."""

Search = Callable[[Tensor, Tensor, Tensor | None, int], tuple[Tensor, Tensor]]
"""The k best worlds ``(R, k, W)`` of rows, best first, -1 where there are fewer; and log Z."""


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
    info = torch.finfo(probs.dtype)
    if not (probs.requires_grad or is_traced(probs)):
        # torch takes many times as long for 0 as for normal numbers, and for comparisons as for thresholds.
        value = threshold(probs.clamp(min=info.tiny).log(), math.log(1.5 * info.tiny), -math.inf)
        if not probs.numel() or threshold(probs, 0.0, math.inf).amin() > 2 * info.tiny:
            return value
        return torch.where((probs > 0) & (probs <= 2 * info.tiny), probs.log(), value)
    floor = info.tiny / info.eps
    value = probs.clamp(min=floor).log()
    return torch.where(probs > floor, value, probs.detach().clamp(min=0).log())


def finite(log_probs: Tensor) -> Tensor:
    """Logarithms with 0 in the place of -inf, for 0 log 0 = 0; the derivative there is 0."""
    return threshold(log_probs, torch.finfo(log_probs.dtype).min, 0.0)


def contract(probs: Tensor, values: Tensor) -> Tensor:
    """Σ_k probs[..., k] values[k, ...]"""
    rows = probs.reshape(math.prod(probs.shape[:-1]), probs.shape[-1])
    return (rows @ values.reshape(len(values), -1)).reshape((*probs.shape[:-1], *values.shape[1:]))


def k_best(
    best_world: Find,
    rows: Tensor,
    output: Tensor,
    given: Tensor | None,
    sizes: tuple[int, ...],
    k: int,
) -> Tensor:
    """The k best worlds of each row ``(R, W, D)``, int64 ``(R, k, W)``, best first; -1 where there are fewer.

    Lawler 1972: beside the best world of a set there are those that agree with it before variable i and differ at i.
    """
    count, width = len(rows), rows.shape[1]
    found = torch.full((count, k, width), -1, dtype=torch.int64, device=rows.device)
    seen, scores = best_world(rows, output, given)  # all worlds that were ever the best of a set
    if k == 1:
        return seen.masked_fill((scores == NEG_INF).unsqueeze(-1), -1).unsqueeze(1)
    # Each heap holds (-score, number of the world, first free variable, values excluded there)
    heaps: list[list[tuple[float, int, int, frozenset[int]]]] = [
        [(-score, number, 0, frozenset())] if score > NEG_INF else [] for number, score in enumerate(scores.tolist())
    ]
    for rank in range(k):
        popped = [(row, heapq.heappop(heap)) for row, heap in enumerate(heaps) if heap]
        if not popped:
            break
        chosen = seen[torch.tensor([part[1] for _, part in popped], device=rows.device)]
        found[torch.tensor([row for row, _ in popped], device=rows.device), rank] = chosen
        if rank == k - 1:
            break
        parts: list[tuple[int, int, int, frozenset[int]]] = []  # the row, the world, the variable, its excluded values
        for (row, (_, number, free, excluded)), values in zip(popped, chosen.tolist(), strict=True):
            for i in range(free, width):
                without = excluded | {values[i]} if i == free else frozenset((values[i],))
                if len(without) < sizes[i]:
                    parts.append((row, number, i, without))
        if not parts:
            continue
        source, base, first = (torch.tensor(x, device=rows.device) for x in list(zip(*parts, strict=True))[:3])
        limited = rows[source] + _restriction(seen[base], first, [part[3] for part in parts], rows)
        worlds, scores = best_world(limited, output[source], None if given is None else given[source])
        alive = (scores > NEG_INF).nonzero().squeeze(-1)
        last = len(seen)
        seen = torch.cat([seen, worlds[alive]])
        for offset, (n, score) in enumerate(zip(alive.tolist(), scores[alive].tolist(), strict=True)):
            row, _, i, without = parts[n]
            heapq.heappush(heaps[row], (-score, last + offset, i, without))
    return found


def _restriction(worlds: Tensor, first: Tensor, excluded: list[frozenset[int]], rows: Tensor) -> Tensor:
    """0 for worlds that agree with the part's world before variable i and avoid the excluded values at i, else -inf."""
    width, domain = rows.shape[1:]
    before = torch.arange(width, device=rows.device) < first.unsqueeze(-1)
    other = worlds.unsqueeze(-1) != torch.arange(domain, device=rows.device)
    forbidden = before.unsqueeze(-1) & other
    part = torch.tensor([n for n, values in enumerate(excluded) for _ in values], device=rows.device)
    value = torch.tensor([value for values in excluded for value in values], device=rows.device)
    forbidden[part, first[part], value] = True
    return torch.zeros(forbidden.shape, dtype=rows.dtype, device=rows.device).masked_fill(forbidden, NEG_INF)


def most_probable_output(
    next_value: Callable[[Tensor, Tensor, Tensor | None, int], Tensor],
    rows: Tensor,
    given: Tensor | None,
    sizes: tuple[int, ...],
    width: int,
) -> tuple[Tensor, Tensor]:
    """The best output ``(R, Y)`` that a beam of exact probabilities finds, and whether it is the best of all."""
    count = len(rows)
    beam = torch.full((count, 1, len(sizes)), -1, dtype=torch.int64, device=rows.device)
    dropped = rows.new_full((count,), NEG_INF)
    scores = rows.new_zeros(count, 1)
    for variable, size in enumerate(sizes):
        kept = beam.shape[1]
        seen = None if given is None else given.repeat_interleave(kept, 0)
        tables = next_value(rows.repeat_interleave(kept, 0), beam.flatten(0, 1), seen, variable)[:, :size]
        ranked, order = tables.reshape(count, kept * size).sort(dim=-1, descending=True, stable=True)
        keep = min(width, kept * size)
        if keep < kept * size:
            dropped = torch.maximum(dropped, ranked[:, keep])
        scores, order = ranked[:, :keep], order[:, :keep]
        beam = beam.gather(1, (order // size).unsqueeze(-1).expand(-1, -1, len(sizes))).clone()
        beam[:, :, variable] = order % size
    return beam[:, 0], scores[:, 0] >= dropped
