"""Pruners that are derived: by a SAT solver from clauses, from exact inference, or from a model that has learnt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa._cache import Cache, Lock
from doxa.amortized.models._model import InferenceModel
from doxa.amortized.pruners._pruner import Pruner
from doxa.errors import ConfigError, ProblemError
from doxa.exact import ExactReasoner
from doxa.exact.circuits._encoding import Booleans
from doxa.problem import Belief, BruteForce, Budget, Problem
from doxa.problem._budget import Meter, solve
from doxa.problem._logspace import NEG_INF

MOST_REMEMBERED = 100_000


class SatPruner(Pruner):
    """Allows a value iff a SAT solver finds a completion. Complete, for whatever can be written as clauses.

    (Dissertation, "Use SAT-solvers".) The solver reads the clauses once; a prefix is a list of assumptions, so that
    what was learnt about one prefix serves the next. Answers are remembered.

    ``SatPruner.of`` takes the clauses from the factors of a problem, ``KnowledgeProblem.pruner`` from a formula.

    Args:
        sizes: the number of values of each variable, outputs first.
        literals: for each variable and each of its values, the literal that says so; None if it always holds.
        clauses: what must hold, as lists of literals.
        budget: its ``seconds`` are for each prefix that is asked about; a ``BudgetError`` if they do not suffice.

    >>> from doxa.problem import addition
    >>> SatPruner.of(addition(2))(torch.tensor([1, 9, 9])).any()                # no two numbers sum to 199
    tensor(False)
    """

    def __init__(
        self,
        sizes: Sequence[int],
        literals: Sequence[Sequence[int | None]],
        clauses: Iterable[Sequence[int]],
        budget: Budget | None = None,
    ) -> None:
        super().__init__(sizes, complete=True)
        self.budget = budget or Budget()
        self.literals = [list(row) for row in literals]
        found = tuple(len(row) for row in self.literals)
        if found != self.sizes:
            raise ProblemError(f"there are literals for {found} values, expected {self.sizes}")
        self.clauses = [list(clause) for clause in clauses]
        self._solver: Any = None
        self._lock = Lock()
        self._remembered: Cache[tuple[int, ...], tuple[bool, ...]] = Cache(MOST_REMEMBERED)

    @classmethod
    def of(cls, problem: Problem, budget: Budget | None = None) -> SatPruner:
        """From the factors of a problem: a clause for each combination of values that a factor forbids.

        >>> from doxa.problem import parity
        >>> SatPruner.of(parity(3))(torch.tensor([1, 0, 0]))              # an odd number of three, and two are false
        tensor([False,  True])
        """
        if problem.factors is None:
            raise ProblemError("the problem has no factors to make clauses of; use SupportPruner or a function")
        meter = Meter(budget or Budget(), "encoding factors as clauses")
        booleans = Booleans(problem.sizes, meter)
        literals, clauses = booleans.literals, booleans.clauses
        for factor in problem.factors:
            scope = [problem.index(variable) for variable in factor.scope]
            for values in (~factor.table).nonzero().tolist():
                meter.tick(len(values))
                chosen = [literals[v][value] for v, value in zip(scope, values, strict=True)]
                clauses.append([-literal for literal in chosen if literal is not None])
        world, outputs = len(problem.world), len(problem.output)
        ordered = literals[world : world + outputs] + literals[:world]
        return cls(problem.output + problem.world, ordered, clauses, budget)

    def allowed(self, prefix: Tensor) -> Tensor:
        size = self.sizes[prefix.shape[-1]]
        asked = [tuple(row) for row in prefix.tolist()]
        rows = [self._remembered.find(row, partial(self._ask, row)) for row in asked]
        return torch.tensor(rows, dtype=torch.bool, device=prefix.device).reshape(len(prefix), size)

    def _ask(self, prefix: tuple[int, ...]) -> tuple[bool, ...]:
        given = [self.literals[i][value] for i, value in enumerate(prefix)]
        assumed = [literal for literal in given if literal is not None]
        values = [[] if literal is None else [literal] for literal in self.literals[len(prefix)]]
        with self._lock:  # there is one solver for all threads
            if self._solver is None:
                from pysat.solvers import Solver

                self._solver = Solver("cadical195", bootstrap_with=self.clauses)
            meter = Meter(self.budget, f"looking for a completion of {prefix}")
            return tuple(solve(self._solver, assumed + value, meter.check_clock) for value in values)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_solver": None}  # a copy reads the clauses again


class SupportPruner(Pruner):
    """Allows the values with p(prefix, value | P) > 0 for the uniform belief P. Complete.

    As costly as exact inference without a belief; useful where that is possible, and to test other pruners.

    >>> from doxa import exact, problem
    >>> SupportPruner(exact.Elimination(problem.addition(2)))(torch.tensor([1, 4, 9])).nonzero().flatten()
    tensor([5, 6, 7, 8, 9])
    """

    def __init__(self, reasoner: ExactReasoner | BruteForce) -> None:
        problem = reasoner.problem
        super().__init__(problem.output + problem.world, complete=True)
        self.reasoner = reasoner

    def allowed(self, prefix: Tensor) -> Tensor:
        problem = self.reasoner.problem
        rows, k, outputs = *prefix.shape, len(problem.output)
        size = self.sizes[k]
        # All prefixes with all next values, and -1 for what comes after.
        tokens = prefix.new_full((rows, size, len(self.sizes)), -1)
        tokens[..., :k] = prefix.unsqueeze(1)
        tokens[..., k] = torch.arange(size, device=prefix.device)
        tokens = tokens.flatten(0, 1)
        uniform = Belief.uniform(problem.world, (rows * size,), device=prefix.device)
        known = tokens[:, outputs:].unsqueeze(-1)
        agrees = (known < 0) | (torch.arange(max(problem.world), device=prefix.device) == known)
        restricted = Belief(uniform.log_probs.masked_fill(~agrees, NEG_INF), problem.world, validate=False)
        possible = self.reasoner.log_prob(restricted, tokens[:, :outputs]) > NEG_INF
        return possible.reshape(rows, size)


class LearnedPruner(Pruner):
    """Allows the values to which a model gives at least ``threshold``, at the uniform belief, and always the best one.

    (Dissertation, "Learn the pruner": reuse the inference model trained on the belief that distributes mass uniformly
    over all worlds.) It may allow too much and forbid too much, so it is not complete and guarantees nothing.

    >>> from doxa import amortized, problem
    >>> pruner = LearnedPruner(amortized.FactorMLPs(problem.parity(3), hidden=8), threshold=0.9)
    >>> pruner.complete, pruner(torch.tensor([1])).sum() >= 1
    (False, tensor(True))
    """

    def __init__(self, model: InferenceModel, threshold: float = 1e-3) -> None:
        if not model.explains:
            raise ConfigError("the model does not explain, so it knows nothing of worlds; make it with explain=True")
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold is {threshold}, expected a probability between 0 and 1")
        super().__init__(model.sizes, complete=False)
        self.model = model
        self.threshold = threshold

    @torch.no_grad()
    def allowed(self, prefix: Tensor) -> Tensor:
        size = self.sizes[prefix.shape[-1]]
        tokens = pad(prefix, (0, 1))
        belief = Belief.uniform(self.model.problem.world, (len(prefix),), device=prefix.device)
        probs = self.model.log_probs(belief, tokens)[:, -1, :size].exp()
        best = torch.arange(size, device=prefix.device) == probs.argmax(-1, keepdim=True)
        return (probs >= self.threshold) | best
