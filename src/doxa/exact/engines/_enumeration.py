"""Exact inference by listing the worlds: one matrix product."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from doxa.errors import ProblemError
from doxa.exact.circuits._semirings import FLOOR, Reduce, restore
from doxa.exact.engines._reasoner import ExactReasoner, Impossible
from doxa.problem import Problem


class Enumeration(ExactReasoner):
    """Exact inference over a list of all worlds, for problems that have few of them.

        log p(w, y | P) = Σ_i log P[i, w_i] + Σ_j log [y_j = c(w)_j]

    is linear in the log-weights, so all worlds of all rows are one matrix product; then they are added up.

    Args:
        problem: what to reason about.
        max_worlds: refuse problems with more worlds than this.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".
        max_entries: memory bound: batches that need more numbers at a time are computed in parts.

    >>> from doxa.problem import Belief, addition
    >>> reasoner = Enumeration(addition(1))
    >>> (reasoner.log_prob(Belief.uniform((10, 10)), torch.tensor([1, 3])).exp() * 100).round()
    tensor(6.)
    """

    indicators: Tensor

    def __init__(
        self,
        problem: Problem,
        *,
        max_worlds: int = 1 << 14,
        impossible: Impossible = "raise",
        max_entries: int = 1 << 25,
    ) -> None:
        if problem.num_worlds > max_worlds:
            raise ProblemError(
                f"the problem has {problem.describe_size()} worlds, more than max_worlds={max_worlds:,}; give the "
                "problem factors and use Elimination or Compilation, or an approximate engine: sampled or amortized"
            )
        super().__init__(problem, impossible=impossible, max_entries=max_entries, entries=problem.num_worlds)
        worlds = problem.worlds()
        outputs = problem(worlds)
        columns = [one_hot(worlds, max(problem.world)), one_hot(outputs, max(problem.output))]
        # (worlds, log-weights): which of them each world adds up
        self.register_buffer("indicators", torch.cat([c.flatten(1) for c in columns], 1).float(), persistent=False)

    def _log_weight(self, world: Tensor, output: Tensor, reduce: Reduce) -> Tensor:
        weights = torch.cat([world.flatten(1), output.flatten(1)], 1)
        return restore(reduce(self.indicators.to(weights.dtype) @ weights.clamp(min=FLOOR).T))  # 0 · -inf is NaN
