"""More than one descent: randomised restarts, and refinement that finishes with gradient steps."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.refine._descent import GradientRefine
from doxa.refine._refine import Refine
from doxa.refine._result import Refined

__all__ = ["hybrid", "restarts"]


def restarts(
    layer: Refine,
    x: Tensor,
    target: Tensor | float | None = None,
    *,
    times: int = 10,
    spread: float = 0.5,
    generator: torch.Generator | None = None,
) -> Refined:
    """Refine from the input and from perturbed copies of it; each row keeps the best outcome.

    Better is: satisfied when rounded; among those, nearer to the input; otherwise nearer to the target. A copy goes
    from
    each value t part of the way to a random one, t + s·(u - t), s growing up to ``spread``; constants are not
    perturbed.

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
    best = layer.run(x, target)
    for k in range(times):
        chance = torch.rand(x.shape, generator=generator, dtype=start.dtype, device=x.device)
        part = spread * (k + 1) / times
        other = layer.run(torch.where(free, x + part * (chance - x), x), target)
        best = _better(layer, start, goal, best, other)
    return best


def hybrid(
    layer: Refine, x: Tensor, target: Tensor | float | None = None, *, descent: GradientRefine | None = None
) -> Refined:
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
    return _better(layer, start, layer._goals(start, target), first, second)


def _better(layer: Refine, start: Tensor, goal: Tensor, one: Refined, other: Refined) -> Refined:
    """Row by row the better of two outcomes, with distances measured from the same start."""

    def moved(x: Tensor) -> Tensor:
        return (x.movedim(-1, 0) - start).detach().abs().sum(0)

    near, far = moved(one.values), moved(other.values)
    gaps = [layer._gap(layer.engine.evaluate(r.values.movedim(-1, 0)), goal) for r in (one, other)]
    both = one.satisfied & other.satisfied
    gain = gaps[1] < gaps[0] - layer.tolerance
    even = (gaps[1] - gaps[0]).abs() <= layer.tolerance
    wins = torch.where(both, far < near, other.satisfied | (~one.satisfied & (gain | (even & (far < near)))))
    wide = wins.unsqueeze(-1)
    several = one.truth.dim() > wins.dim()
    return replace(
        one,
        values=torch.where(wide, other.values, one.values),
        last=torch.where(wide, other.last, one.last),
        truth=torch.where(wide if several else wins, other.truth, one.truth),
        satisfied=torch.where(wins, other.satisfied, one.satisfied),
        distance=torch.where(wins, far, near),
        iterations=one.iterations + other.iterations,
        status=torch.where(wins, other.status, one.status),
        trajectory=None,
    )
