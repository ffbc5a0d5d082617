"""A pruner derived from exact inference: what has probability above 0 can be completed."""

from __future__ import annotations

import torch
from torch import Tensor

from doxa.amortized.pruners._pruner import Pruner
from doxa.exact import ExactReasoner
from doxa.problem import Belief, BruteForce


class SupportPruner(Pruner):
    """Allows the values with p(prefix, value | P) > 0 for the uniform belief P. Complete.

    As costly as exact inference without a belief; useful where that is possible, and to test other pruners.

    >>> from doxa.exact import Elimination
    >>> from doxa.problem import addition
    >>> SupportPruner(Elimination(addition(2)))(torch.tensor([1, 4, 9])).nonzero().flatten()
    tensor([5, 6, 7, 8, 9])
    """

    def __init__(self, reasoner: ExactReasoner | BruteForce) -> None:
        problem = reasoner.problem
        super().__init__(problem.output + problem.world, complete=True)
        self.reasoner = reasoner

    def allowed(self, prefix: Tensor) -> Tensor:
        problem = self.reasoner.problem
        outputs, world = len(problem.output), len(problem.world)
        k, size = prefix.shape[-1], self.sizes[prefix.shape[-1]]
        rows = len(prefix)
        if rows == 0:
            return torch.ones(0, size, dtype=torch.bool, device=prefix.device)
        # All prefixes with all next values, and -1 for what comes after.
        tokens = prefix.new_full((rows, size, outputs + world), -1)
        tokens[..., :k] = prefix.unsqueeze(1)
        tokens[..., k] = torch.arange(size, device=prefix.device)
        tokens = tokens.reshape(rows * size, -1)
        uniform = Belief.uniform(problem.world, (rows * size,), device=prefix.device)
        known = tokens[:, outputs:].unsqueeze(-1)
        agrees = (known < 0) | (torch.arange(max(problem.world), device=prefix.device) == known)
        restricted = Belief(uniform.log_probs.masked_fill(~agrees, float("-inf")), problem.world, validate=False)
        possible = self.reasoner.log_prob(restricted, tokens[:, :outputs]) > float("-inf")
        return possible.reshape(rows, size)
