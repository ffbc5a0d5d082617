"""Exact semantics: the probability that an axiom holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import BudgetError
from doxa.logic import Axiom, Interpretation
from doxa.pose import PosedAxiom, ProblemBatch
from doxa.pose._poser import undefined
from doxa.problem import Belief, BruteForce, Budget, Mixture, Problem
from doxa.problem._autoregressive import Autoregressive, WorldTable
from doxa.semantics._probabilistic import Probabilistic
from doxa.semantics._semantics import Compiled, Data, Generator, Semantics

if TYPE_CHECKING:  # the engine is loaded when there is a problem to plan
    from doxa.exact import ExactPlan


@dataclass(frozen=True)
class Exact(Semantics):
    r"""Weighted model counting: the loss of an instance is :math:`-\log p(φ)`, its truth is p(φ).

    What networks say is independent given the data, and whatever occurs twice is counted once. ``quantifier="logic"``
    gives the probability that an axiom holds as a whole, also where its instances share variables. With
    :func:`doxa.mixture` it is p(φ) = Σ_k π_k p_k(φ) of each row, and rows are independent of each other.

    Args:
        quantifier, impossible, budget: see `Semantics`.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> model.truth(semantics=Exact())                             # 1 - .9 · .7
    {'soaked': tensor(0.3700)}
    """

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return ExactCompiled(axioms, interpretation, self)


class ExactCompiled(Probabilistic):
    """Axioms ready for exact reasoning."""

    takes_joint = True

    def log_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        exact = exactly(self.interpretation, batch, self.how.budget, posed.axiom)
        for output in batch.partial:
            asked = torch.full_like(batch.observed, -1)
            asked[:, output] = len(batch.outputs[output]) - 1
            if bool((exact.reasoner.log_prob(exact.belief.detach(), asked, given=batch.given) > -torch.inf).any()):
                raise undefined(posed.axiom)
        found: Tensor = exact.reasoner.log_prob(exact.belief, batch.observed, given=batch.given)
        return found

    def truths(self, data: Data, generator: Generator) -> Tensor:
        found = []
        for posed in self.posed(data, generator, whole=True):
            parts = [self.log_truths(posed, batch, generator) for batch in posed.batches]
            found.append(posed.gather(parts, true=0.0, false=-torch.inf).clamp(max=0.0).sum().exp())
        return torch.stack(found) if found else torch.zeros(0)

    def describe(self, posed: PosedAxiom, batch: ProblemBatch) -> str:
        if isinstance(batch.belief, Autoregressive):
            return f"lists all {batch.problem.num_worlds:,} worlds, for symbols are said in turn"
        return "\n".join(
            planned(self.interpretation, batch.problem, self.how.budget, posed.axiom).explain().splitlines()[2:]
        )


class Exactly(NamedTuple):
    """Who answers about a batch exactly, and what it is told is believed."""

    reasoner: Any
    belief: Belief | Mixture | WorldTable


def exactly(interpretation: Interpretation, batch: ProblemBatch, budget: Budget, axiom: Axiom | None = None) -> Exactly:
    """The exact plan of a problem; where symbols are said in turn, the list of all worlds."""
    if isinstance(batch.belief, Autoregressive):
        return Exactly(lister(interpretation, batch, budget), batch.belief.listed(budget))
    return Exactly(planned(interpretation, batch.problem, budget, axiom).reasoner, batch.belief)


def lister(interpretation: Interpretation, batch: ProblemBatch, budget: Budget) -> BruteForce:
    """Who lists all worlds of a problem; an error if there are too many."""
    problem, plans, belief = batch.problem, interpretation.plans, batch.belief
    if isinstance(belief, Autoregressive):
        belief.require_few(budget)
    if problem.num_worlds * math.prod(problem.given) > budget.join:
        raise BudgetError(
            "join",
            f"{problem.num_worlds:,} worlds with each of {math.prod(problem.given):,} joint values that the data may "
            f"give are more than Budget(join={budget.join:,}); raise it, or use Sampled()",
        )
    found: BruteForce = plans.find(
        ("listed", problem), lambda: BruteForce(problem, max_worlds=1 << 62, impossible="inf")
    )
    return found


def planned(interpretation: Interpretation, problem: Problem, budget: Budget, axiom: Axiom | None = None) -> ExactPlan:
    """The exact plan of a problem, made once and kept by the interpretation; an error names the axiom."""
    plans, key = interpretation.plans, ("exact", problem, budget)
    found: ExactPlan | None = plans.get(key)
    if found is None:
        from doxa.exact.engines._plan import plan_for

        count = f"{len(problem.world):,} unknowns that depend on each other"
        what = f"axiom {axiom.name!r}, of {count}" if axiom else count
        remedy = (
            "Take another word, such as semantics='sampled' or 'fuzzy'; or raise a limit that is named above, as in "
            "Exact(budget=doxa.Budget(operations=...))"
        )
        found = plans.find(key, lambda: plan_for(what, problem, impossible="inf", budget=budget, remedy=remedy))
    return found
