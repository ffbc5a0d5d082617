"""A mixture of beliefs in an exact engine: its components are one more axis of the batch, in one call.

Its rows ``(R, K, W, D)`` are log-weights with log π in the first variable of each component. So log Z of a component is
log π_k p_k(y), and log p(y) = log Σ_k exp(log Z_k). Derivatives of that with respect to the rows are p(k, w_i = v | y);
added up over k they are what the same derivatives are for one belief.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from doxa.exact.circuits._semirings import FLOOR, NEG_INF, SUM, Reduce, restore
from doxa.exact.engines._search import Search, derivatives
from doxa.problem._logspace import draw, logsumexp
from doxa.problem._mixture import entropy_between, picked

Engine = Callable[..., Tensor]
"""From rows ``(R, W, D)`` and what else belongs to them to ``(R,)``."""


def each(engine: Engine, rows: Tensor, *others: Tensor | None) -> Tensor:
    """log π_k p_k(y) of all components of all rows, ``(R, K)``."""
    count = rows.shape[1]
    repeated = [None if x is None else x.repeat_interleave(count, 0) for x in others]
    return engine(rows.flatten(0, 1), *repeated).view(rows.shape[:2])


def joined(engine: Engine, reduce: Reduce, rows: Tensor, *others: Tensor | None) -> Tensor:
    """What an engine computes, ``(R,)``: for rows ``(R, W, D)`` by itself, for ``(R, K, W, D)`` over all components."""
    if rows.ndim == 3:
        return engine(rows, *others)
    return over(each(engine, rows, *others), reduce)


def over(log_weights: Tensor, reduce: Reduce) -> Tensor:
    """Those of the components ``(R, K)``, joined: ``(R,)``."""
    return restore(reduce(log_weights.clamp(min=FLOOR).T))


def over_components(shares: Tensor) -> Tensor:
    """Derivatives with respect to rows, added up over the components: ``(R, W, D)``."""
    return shares if shares.ndim == 3 else shares.sum(1)


def drawn(
    engine: Engine, rows: Tensor, count: int, generator: torch.Generator | None, *others: Tensor | None
) -> Tensor:
    """``count`` rows ``(R · count, W, D)`` for each row; for a mixture, components drawn by their responsibility."""
    if rows.ndim == 3:
        return rows.repeat_interleave(count, 0)
    weights = each(engine, rows, *others)
    weights = (weights - weights.amax(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).min)).exp()
    return picked(rows, draw(weights, count, generator)).movedim(0, 1).flatten(0, 1)


def pooled_best(
    search: Search, rows: Tensor, output: Tensor, given: Tensor | None, k: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The k best worlds ``(R, k, W)`` that were found, best first; which are proven to be that, ``(R, k)``; and log Z.

    For one belief all are proven. For a mixture the best worlds of every component are scored under the whole. A world
    that is on no list has at most Σ_j π_j · (the last score on the list of component j, 0 where it has no more worlds);
    whatever reaches this bound is proven. Rows where some world does not are searched again with longer lists, of up to
    ``width`` worlds.
    """
    if rows.ndim == 3:
        worlds, total = search(rows, output, given, k)
        return worlds, torch.ones(worlds.shape[:2], dtype=torch.bool, device=rows.device), total
    worlds, proven, total = _pool(search, rows, output, given, k, k)
    rows = rows.detach()
    length = k
    while length < width and not bool(proven.all()):
        length, at = min(2 * length, width), (~proven.all(-1)).nonzero().squeeze(-1)
        seen = None if given is None else given[at]
        worlds[at], proven[at], _ = _pool(search, rows[at], output[at], seen, k, length)
    return worlds, proven, total


def _pool(
    search: Search, rows: Tensor, output: Tensor, given: Tensor | None, k: int, length: int
) -> tuple[Tensor, Tensor, Tensor]:
    count, parts = rows.shape[:2]
    repeated = [None if x is None else x.repeat_interleave(parts, 0) for x in (output, given)]
    assert repeated[0] is not None
    found, totals = search(rows.flatten(0, 1), repeated[0], repeated[1], length)
    worlds, rows = found.reshape(count, parts * length, -1), rows.detach()
    missing = worlds[..., 0] < 0
    index = worlds.clamp(min=0)[:, :, None, :, None].expand(-1, -1, parts, -1, -1)
    table = rows.unsqueeze(1).expand(*index.shape[:-1], rows.shape[-1]).gather(-1, index).squeeze(-1).sum(-1)
    scores = logsumexp(table, -1).masked_fill(missing | _repeated(worlds), NEG_INF)  # (R, K · length)
    last = table[:, length - 1 :: length].diagonal(dim1=1, dim2=2)  # the last world of each component, under itself
    bound = logsumexp(last.masked_fill(missing[:, length - 1 :: length], NEG_INF), -1)
    scores, order = (x[:, :k] for x in scores.sort(dim=-1, descending=True, stable=True))
    best = worlds.gather(1, order.unsqueeze(-1).expand(-1, -1, worlds.shape[-1]))
    best = best.masked_fill((scores == NEG_INF).unsqueeze(-1), -1)
    return best, scores >= bound.unsqueeze(-1), over(totals.view(count, parts), SUM)


def _repeated(worlds: Tensor) -> Tensor:
    """Which worlds ``(R, n, W)`` came before in their row: bool ``(R, n)``."""
    count, n = worlds.shape[:2]
    names = torch.unique(worlds.flatten(0, 1), dim=0, return_inverse=True)[1].reshape(count, n)
    ranked, order = names.sort(dim=-1, stable=True)
    again = torch.zeros_like(ranked, dtype=torch.bool)
    again[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    return torch.zeros_like(again).scatter(1, order, again)


def entropy_of_mixture(engine: Engine, rows: Tensor, *others: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds of the entropy of p(w | y) for a mixture ``(R, K, W, D)``, and log p(y).

    Those of `Mixture.entropy_bounds`, for the conditioned components and their responsibilities. The affinity of two
    conditioned components is Z((θ_k + θ_j) / 2) / √(Z_k Z_j): one more question to the engine.
    """
    parts = rows.shape[1]
    total, (shares,) = derivatives(lambda x: each(engine, x, *others).flatten(), rows)
    total = total.view(rows.shape[:2])
    dead = total == NEG_INF
    known = total.masked_fill(dead, 0.0)
    weights = rows.masked_fill(rows == NEG_INF, 0.0)
    energy = torch.einsum("rkwd,rjwd->rkj", shares, weights)
    pairs = (rows.unsqueeze(2) + rows.unsqueeze(1)) / 2
    affinity = each(engine, pairs.flatten(1, 2), *others).view(-1, parts, parts)
    affinity = affinity - (known.unsqueeze(2) + known.unsqueeze(1)) / 2
    excluded = ((shares.unsqueeze(2) > 0) & (rows == NEG_INF).unsqueeze(1)).flatten(-2).any(-1)
    own = energy.diagonal(dim1=1, dim2=2)
    divergence = own.unsqueeze(2) - energy - known.unsqueeze(2) + known.unsqueeze(1)
    divergence = divergence.masked_fill(excluded, torch.inf).masked_fill(dead.unsqueeze(2) | dead.unsqueeze(1), 0.0)
    log_prob = logsumexp(total, -1)
    log_shares = total - log_prob.masked_fill(log_prob == NEG_INF, 0.0).unsqueeze(-1)
    return *entropy_between(known - own, log_shares, affinity, divergence), log_prob
