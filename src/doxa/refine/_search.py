"""More than one descent: randomised restarts, and refinement that finishes with gradient steps."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.refine._descent import GradientRefine
from doxa.refine._refine import Refine
from doxa.refine._result import RefineResult

__all__ = ["hybrid", "restarts"]

_FIELDS = ("values", "last", "truth", "satisfied", "distance", "iterations", "status")
_ROOM = 2**20
"""How many truth values are refined at a time: all copies at once, while they are not more than this."""


def restarts(
    layer: Refine,
    x: Tensor,
    target: Tensor | float | None = None,
    *,
    times: int = 10,
    spread: float = 0.5,
    generator: torch.Generator | None = None,
) -> RefineResult:
    """Refine from the input and from perturbed copies of it; each row keeps the best outcome.

    Better is, where the target is 1: satisfied when rounded; among those, nearer to the input; otherwise nearer to the
    target. A copy goes from each value t part of the way to a random one, t + s·(u - t), s growing up to ``spread``;
    constants are not perturbed.

    Args:
        layer: what to refine with.
        x: ``(*batch, atoms)``.
        times: how many perturbed copies.
        spread: how far the last copy is perturbed, up to 1: wholly random.
        generator: where chance comes from; torch's own if not given.

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> knot = (a | b) & (~a | b) & (a | ~b) & (c | ~a)
    >>> x = torch.tensor([[0.1, 0.2, 0.3]])
    >>> found = restarts(Refine(knot, "godel"), x, times=20, generator=torch.Generator().manual_seed(0))
    >>> found.satisfied
    tensor([True])
    """
    if times < 0 or not 0 <= spread <= 1:
        raise ConfigError(f"times is {times} and spread {spread}, expected times >= 0 and spread between 0 and 1")
    start = layer._first(x)
    goal = layer._goals(start, target)
    free = torch.tensor([a not in layer.constants for a in layer.atoms], device=x.device)
    parts = (
        spread * torch.arange(times + 1, dtype=start.dtype, device=x.device) / max(times, 1)
    )  # the first is x itself
    tried = []
    for some in torch.split(parts, max(_ROOM // max(x.numel(), 1), 1)):
        chance = torch.rand((len(some), *x.shape), generator=generator, dtype=start.dtype, device=x.device)
        copies = torch.where(free, x + some.view(-1, *[1] * x.dim()) * (chance - x), x)
        wanted = None if target is None else goal.movedim(0, -1).expand(*copies.shape[:-1], len(goal))
        tried.append(layer.run(copies, wanted))
    return _best(layer, start, goal, tried)


def hybrid(
    layer: Refine, x: Tensor, target: Tensor | float | None = None, *, descent: GradientRefine | None = None
) -> RefineResult:
    """Refine, then finish with gradient steps from there; each row keeps the better of the two outcomes.

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> knot = (a | b) & (~a | b) & (a | ~b) & (c | ~a)
    >>> bool(hybrid(Refine(knot, "product"), torch.tensor([[0.4, 0.7, 0.3]])).truth > 0.99)
    True
    """
    descent = GradientRefine(layer) if descent is None else descent
    first = layer.run(x, target)
    # away from the corners, where a sigmoid has no slope left
    second = descent.run(first.last.detach().clamp(0.02, 0.98), target)
    start = layer._first(x)
    return _best(layer, start, layer._goals(start, target), [_stacked(first), _stacked(second)])


def _stacked(found: RefineResult) -> RefineResult:
    """One outcome, with an axis of one in front."""
    return replace(found, **{name: getattr(found, name).unsqueeze(0) for name in _FIELDS}, trajectory=None)


def _best(layer: Refine, start: Tensor, goal: Tensor, tried: list[RefineResult]) -> RefineResult:
    """Row by row the best along the first axis of all outcomes, with distances measured from the same start."""
    values, last, truth, satisfied, _, iterations, status = (
        torch.cat([getattr(found, name) for found in tried]) for name in _FIELDS
    )
    moved = (values - start.movedim(0, -1)).detach().abs().sum(-1)
    gap = layer._gap(layer.engine.evaluate(values.movedim(-1, 0)), goal.unsqueeze(1))
    near_enough = gap <= gap.amin(0) + layer.tolerance
    wins = satisfied & (goal == 1).all(0)
    good = torch.where(wins.any(0), wins, near_enough)
    chosen = torch.where(good, moved, torch.inf).min(0, keepdim=True).indices

    def pick(of: Tensor) -> Tensor:
        index = chosen.view(*chosen.shape, *[1] * (of.dim() - chosen.dim()))
        return of.gather(0, index.expand(1, *of.shape[1:])).squeeze(0)

    return RefineResult(
        pick(values), pick(last), pick(truth), pick(satisfied), pick(moved), iterations.sum(0), pick(status), None
    )
