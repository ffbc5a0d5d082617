"""What is learnt about the world, which worlds give an output, and what would have to differ for another."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.exact.circuits._semirings import FLOOR, NEG_INF, SUM, restore
from doxa.exact.engines._reasoner import ExactReasoner
from doxa.problem import Belief, Mixture
from doxa.problem._logspace import at_row, is_traced, logsumexp, shown
from doxa.problem._mixture import AnyBelief

Kind = TypeVar("Kind", Belief, Mixture)


def condition(belief: Kind, evidence: Tensor) -> Kind:
    """The belief after learning something about the world; every query can then be asked of it.

    The components of a mixture are conditioned, and weighted by how well each explains the evidence.

    Args:
        belief: what was believed before.
        evidence: int64 ``(*batch, W)``, the values of the world variables, -1 where nothing was learnt; or bool
            ``(*batch, W, D)``, which values are still possible. Without the batch axes, it holds for all rows.

    >>> belief = condition(Belief.uniform((4, 2)), torch.tensor([-1, 1]))
    >>> belief.probs
    tensor([[0.2500, 0.2500, 0.2500, 0.2500],
            [0.0000, 1.0000, 0.0000, 0.0000]])
    """
    log_probs = belief.log_probs if isinstance(belief, Belief) else belief.components.log_probs
    values = torch.arange(log_probs.shape[-1], device=evidence.device)
    sizes = torch.tensor(belief.sizes, device=evidence.device)
    if evidence.dtype == torch.bool and tuple(evidence.shape[-2:]) == tuple(log_probs.shape[-2:]):
        allowed = evidence
    elif evidence.dtype == torch.int64 and evidence.ndim and evidence.shape[-1] == len(belief.sizes):
        if not is_traced(evidence) and ((evidence < -1) | (evidence >= sizes)).any():
            raise ProblemError(f"evidence is {evidence.tolist()}, expected values within {belief.sizes}, or -1")
        allowed = (values == evidence.unsqueeze(-1)) | (evidence.unsqueeze(-1) < 0)
    else:
        count = len(belief.sizes)
        wanted = f"int64 (..., {count}) with -1 for unknown, or bool (..., {count}, {len(values)})"
        raise ProblemError(f"evidence has {shown(evidence)}, expected {wanted}")
    if isinstance(belief, Mixture):
        kept, total = _restricted(log_probs, allowed.unsqueeze(-3))
        weights = belief.log_weights + total.sum(-1)
        evident = logsumexp(weights, -1)
        if not is_traced(evident) and (evident == NEG_INF).any():
            raise _never("the evidence", (evident == NEG_INF).nonzero()[0].tolist())
        # A component that excludes the evidence keeps what it believed, with weight 0.
        fits = (weights > NEG_INF)[..., None, None]
        components = Belief(torch.where(fits, kept, log_probs), belief.sizes, validate=False)
        return Mixture(components, weights - _number(evident).unsqueeze(-1), validate=False)
    kept, total = _restricted(log_probs, allowed)
    if not is_traced(total) and (total == NEG_INF).any():
        *row, variable = (total == NEG_INF).nonzero()[0].tolist()
        raise _never(f"the evidence on variable {variable}", row)
    return Belief(kept, belief.sizes, validate=False)


def _restricted(log_probs: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities ``(..., W, D)`` of what is left, and the log of how much that was ``(..., W)``."""
    kept = log_probs.masked_fill(~allowed, NEG_INF)
    total = restore(SUM(kept.clamp(min=FLOOR).movedim(-1, 0)))
    return kept - _number(total).unsqueeze(-1), total


def _number(total: Tensor) -> Tensor:
    return total.clamp(min=torch.finfo(total.dtype).min)


def _never(what: str, row: list[int]) -> ProblemError:
    return ProblemError(
        f"{what}{at_row(row)} has probability 0 in the belief; mend it, or build the belief with eps > 0"
    )


class Counterfactual(NamedTuple):
    """The smallest change of a world that changes its output: changed worlds ``(*batch, W)``, their outputs ``(*batch,
    Y)``, and how many variables differ ``(*batch,)``; -1 where nothing helps.
    """

    worlds: Tensor
    outputs: Tensor
    changes: Tensor


def counterfactual(
    reasoner: ExactReasoner,
    worlds: Tensor,
    output: Tensor | None = None,
    belief: Belief | None = None,
    *,
    given: Tensor | None = None,
) -> Counterfactual:
    """What would have to be different for another output?

    Args:
        reasoner: an exact reasoner.
        worlds: int64 ``(*batch, W)``, such as the most probable ones, ``belief.mode()``.
        output: the wanted output, int64 ``(*batch, Y)`` or ``(Y,)``, -1 where it does not matter; by default, any other
            than that of the world.
        given: values of the given variables, int64 ``(*batch, G)`` or ``(G,)``.
        belief: of changes that are equally small, prefer the one that is more probable here.

    >>> from doxa.exact import Elimination
    >>> from doxa.problem import addition
    >>> counterfactual(Elimination(addition(1)), torch.tensor([5, 8]), torch.tensor([1, 4])).changes  # 5 + 9, 6 + 8
    tensor(1)
    """
    problem = reasoner.problem
    current = problem(worlds, given)
    batch, width = worlds.shape[:-1], max(problem.world)
    flat, old = worlds.reshape(-1, worlds.shape[-1]), current.reshape(-1, current.shape[-1])
    sizes = torch.tensor(problem.world, device=worlds.device).unsqueeze(-1)
    values = torch.arange(width, device=worlds.device)
    # A change costs more than all preferences together, and preferences are bounded.
    price = 1.0 + 64.0 * len(problem.world)
    weights = -price * (values != flat.unsqueeze(-1)).double()
    if belief is not None:
        problem.require(belief)
        if tuple(belief.batch_shape) != tuple(batch):
            raise ProblemError(f"the belief has batch {belief.batch_shape}, the worlds have {tuple(batch)}")
        likely = belief.log_probs[..., :width].detach().double().clamp(min=-64.0)
        weights = weights + likely.reshape(len(flat), *likely.shape[-2:])
    weights = weights.masked_fill(values >= sizes, NEG_INF)
    seen = None if given is None else given.expand(*batch, -1).reshape(len(flat), given.shape[-1])
    if output is not None:
        problem.require_output(output)
        wanted = output.expand(*batch, -1).reshape(len(flat), len(problem.output))
        found, score = reasoner._best_world(weights, wanted, seen) if len(flat) else (flat, weights.new_zeros(0))
    else:
        found, score = _any_other(reasoner, weights, old, seen)
    answers = found, problem(found, seen), (found != flat).sum(-1, keepdim=True)
    found, outputs, changes = (x.masked_fill((score == NEG_INF).unsqueeze(-1), -1) for x in answers)
    return Counterfactual(found.reshape(worlds.shape), outputs.reshape(current.shape), changes.reshape(batch))


def _any_other(reasoner: ExactReasoner, weights: Tensor, old: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
    """The best world whose output differs in some variable: the best over the variables."""
    found = torch.zeros(weights.shape[:2], dtype=torch.int64, device=weights.device)
    score = weights.new_full((len(weights),), NEG_INF)
    for variable in range(old.shape[1] if len(weights) else 0):
        allowed = reasoner._agreeing(torch.full_like(old, -1), weights.dtype)
        allowed[:, variable].scatter_(1, old[:, variable : variable + 1], NEG_INF)
        world, value = reasoner._best_for(weights, allowed, given)
        better = value > score
        found = torch.where(better.unsqueeze(-1), world, found)
        score = torch.where(better, value, score)
    return found, score


def describe(
    reasoner: ExactReasoner, belief: AnyBelief, output: Tensor, k: int = 3, *, given: Tensor | None = None
) -> str:
    """The k most probable explanations of one output in words, with their probabilities.

    >>> from doxa import exact, problem
    >>> print(describe(exact.Elimination(problem.addition(1)), Belief.uniform((10, 10)), torch.tensor([0, 1])))
    50.0 %  (a0=0, b0=1)
    50.0 %  (a0=1, b0=0)
    """
    if belief.batch_shape:
        raise ProblemError(f"describe tells of one belief, got a batch of {belief.batch_shape}; index it first")
    found = reasoner.explain(belief, output, k, given=given)
    lines = [
        f"{100 * score.exp().item():4.1f} %  {reasoner.problem.describe(world)}"
        for world, score in zip(found.worlds, found.scores, strict=True)
        if score > NEG_INF
    ]
    return "\n".join(lines) or "no world of positive probability gives this output"
