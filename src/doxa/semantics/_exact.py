"""Exact semantics: the probability that an axiom holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa.exact import ExactPlan, plan
from doxa.logic import Axiom, Interpretation
from doxa.pose import PosedAxiom, ProblemBatch
from doxa.pose._poser import undefined
from doxa.problem import Budget, Problem
from doxa.semantics._probabilistic import Probabilistic
from doxa.semantics._semantics import Compiled, Data, Generator, Semantics


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
        reasoner = planned(self.interpretation, batch.problem, self.how.budget).reasoner
        for output in batch.partial:
            asked = torch.full_like(batch.observed, -1)
            asked[:, output] = len(batch.outputs[output]) - 1
            if bool((reasoner.log_prob(batch.belief.detach(), asked, given=batch.given) > -torch.inf).any()):
                raise undefined(posed.axiom)
        return reasoner.log_prob(batch.belief, batch.observed, given=batch.given)

    def truths(self, data: Data, generator: Generator) -> Tensor:
        found = []
        for posed in self.posed(data, generator, whole=True):
            parts = [self.log_truths(posed, batch, generator) for batch in posed.batches]
            found.append(posed.gather(parts, true=0.0, false=-torch.inf).clamp(max=0.0).sum().exp())
        return torch.stack(found) if found else torch.zeros(0)

    def describe(self, posed: PosedAxiom, batch: ProblemBatch) -> str:
        return "\n".join(planned(self.interpretation, batch.problem, self.how.budget).explain().splitlines()[2:])


def planned(interpretation: Interpretation, problem: Problem, budget: Budget) -> ExactPlan:
    """The exact plan of a problem, made once and kept by the interpretation."""
    plans, key = interpretation.plans, ("exact", problem, budget)
    found: ExactPlan = plans.get(key) or plans.find(key, lambda: plan(problem, impossible="inf", budget=budget))
    return found
