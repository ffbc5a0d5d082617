"""Exact inference by listing the worlds."""

from __future__ import annotations

import torch
from torch import Tensor

from doxa.errors import BudgetError
from doxa.exact.circuits._semirings import FLOOR, Reduce, restore
from doxa.exact.engines._reasoner import ExactReasoner
from doxa.problem import Impossible, Problem
from doxa.problem._budget import Budget
from doxa.problem._logspace import added_pairwise, is_traced


class Enumeration(ExactReasoner):
    """Exact inference over a list of all worlds, for problems that have few of them.

        log p(w, y | P, g) = Σ_i log P[i, w_i] + Σ_j log [y_j = c(w, g)_j]

    for all worlds of all rows, which are then added up. With given variables the function is evaluated for all pairs
    of a row and a world, by broadcasting; otherwise once, when the reasoner is made.

    Args:
        problem: what to reason about.
        budget: the most worlds to list, and numbers to hold at a time.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".

    >>> from doxa.problem import Belief, addition
    >>> reasoner = Enumeration(addition(1))
    >>> (reasoner.log_prob(Belief.uniform((10, 10)), torch.tensor([1, 3])).exp() * 100).round()
    tensor(6.)
    """

    worlds: Tensor
    outputs: Tensor | None

    def __init__(self, problem: Problem, *, budget: Budget | None = None, impossible: Impossible = "raise") -> None:
        require_few_worlds(problem, budget or Budget())
        entries = problem.num_worlds * (3 + len(problem.output))
        super().__init__(problem, impossible=impossible, budget=budget, entries=entries)
        worlds = problem.worlds()
        outputs = None if problem.given else problem(worlds).T.contiguous()  # (Y, worlds)
        self.register_buffer("worlds", worlds if problem.given else worlds[:0], persistent=False)
        self.register_buffer("outputs", outputs, persistent=False)

    def _log_weight(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        joint = self._priors(world)
        for weights, column in zip(output.clamp(min=FLOOR).unbind(1), self._columns(given), strict=True):
            if column.ndim == 1:
                joint = joint + weights.index_select(1, column.long())
            else:
                joint = joint + weights.gather(1, column.expand(joint.shape).long())
        return restore(reduce(joint.T))

    def _log_prob(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        partial = is_traced(output) or bool((output < 0).any())
        agrees: Tensor | None = None
        for value, column in zip(output.unsqueeze(1).unbind(-1), self._columns(given), strict=True):
            same = column == (value.bool() if column.dtype == torch.bool else value)
            same = same | (value < 0) if partial else same
            agrees = same if agrees is None else agrees & same
        joint = self._priors(world)
        assert agrees is not None
        return restore(reduce(torch.where(agrees, joint, FLOOR).T))

    def _columns(self, given: Tensor | None) -> list[Tensor]:
        """The output variables: ``(worlds,)``, or with given values what broadcasts to ``(R, worlds)``."""
        if self.outputs is not None:
            return list(self.outputs.unbind(0))
        assert given is not None
        return self.problem.columns(self.worlds, given.unsqueeze(1))

    def _priors(self, world: Tensor) -> Tensor:
        """log p(w | P) of all worlds, ``(R, worlds)``."""
        clamped = zip(world.clamp(min=FLOOR).unbind(1), self.problem.world, strict=True)
        return added_pairwise([row[:, :size] for row, size in clamped])


def require_few_worlds(problem: Problem, budget: Budget) -> None:
    """A ``BudgetError`` if there are too many worlds to list."""
    if problem.num_worlds > budget.worlds:
        many = f"the problem has {problem.describe_size()} worlds, more than {budget.worlds:,}"
        remedy = "give the problem factors and use Elimination or Compilation, or an approximate engine"
        raise BudgetError("worlds", f"{many}; raise Budget(worlds=...), {remedy}: sampled or amortized")
