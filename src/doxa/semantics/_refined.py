"""Refined semantics: how far the knowledge lets the best world through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa._numerics import safe_log
from doxa.errors import ProblemError
from doxa.fuzzy import TNorm
from doxa.fuzzy import logic as logic_by_name
from doxa.logic import Axiom, Interpretation
from doxa.pose import KnowledgeReasoner
from doxa.problem import Belief, Problem
from doxa.semantics._instances import outer, shape
from doxa.semantics._posed import in_order, posers
from doxa.semantics._semantics import Compiled

__all__ = ["Refined"]

_WORLDS = 1 << 16


@dataclass(frozen=True)
class Refined:
    r"""Refinement (Chapter 4): what the network believes is moved as little as the knowledge needs, and then judged.

    Every world w in which an instance of an axiom holds is a rule :math:`w_1 ∧ … ∧ w_n → φ`, and the truth of φ starts
    at 0. One minimal refinement of all rules to truth 1 gives φ the truth

    .. math:: t = \max_{w ⊨ φ} T(P_1(w_1), …, P_n(w_n)),

    as in the addition layer of Chapter 4. The loss is -log t, averaged over instances; `Model.truth` is that of the
    weakest instance.

    Args:
        logic: whose conjunction is T, by name: "godel", "lukasiewicz", "product", …

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> model.truth(semantics=Refined())                   # the best world: rain and wet, min(.9, .3)
    {'soaked': tensor(0.3000)}
    """

    logic: str = "godel"

    def __post_init__(self) -> None:
        self._conjunction()  # complains about a logic that there is not

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return _Compiled(axioms, interpretation, self._conjunction())

    def _conjunction(self) -> TNorm:
        conjunction = logic_by_name(self.logic).conj
        if not isinstance(conjunction, TNorm):
            raise ProblemError(f"the conjunction of {self.logic} is {conjunction}, expected a t-norm")
        return conjunction


class _Compiled:
    def __init__(self, axioms: Sequence[Axiom], interpretation: Interpretation, conjunction: TNorm) -> None:
        self.axioms, self.interpretation, self.conjunction = axioms, interpretation, conjunction
        self.posers = posers(axioms, interpretation)
        self.rows = posers(axioms, interpretation, outer)
        self._holding: dict[int, tuple[Problem, Tensor]] = {}

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        found = []
        for poser in self.posers:
            truths = self._instances(poser, data)
            found.append(-safe_log(truths).sum() / max(1, len(truths)))
        return torch.stack(found)

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        """The truth of an axiom is that of its weakest instance."""
        return torch.stack([torch.cat([self._instances(p, data), torch.ones(1)]).amin() for p in self.posers])

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        found = []
        for axiom, poser in zip(self.axioms, self.rows, strict=True):
            truths = self._instances(poser, data)
            found.append(truths.reshape(shape(axiom, poser.keep, self.interpretation, data) or (1,)))
        return found

    def _instances(self, poser: KnowledgeReasoner, data: Mapping[str, Any]) -> Tensor:
        """The truth of each instance, in order."""
        found = poser.posed(**data)
        return in_order(found, [self._truth(problem, belief) for problem, belief, _ in found.problems])

    def _truth(self, problem: Problem, belief: Belief) -> Tensor:
        worlds = self._worlds(problem)
        if not len(worlds):
            return belief.log_probs.new_zeros(belief.batch_shape)
        probs = belief.log_probs.exp()
        columns = [probs[..., i, :].index_select(-1, worlds[:, i]) for i in range(worlds.shape[1])]
        return self.conjunction.reduce(torch.stack(columns), 0).amax(-1)

    def _worlds(self, problem: Problem) -> Tensor:
        """The worlds in which it holds, once for each problem."""
        if id(problem) not in self._holding:
            if problem.num_worlds > _WORLDS:
                raise ProblemError(
                    f"refinement lists worlds, and there are {problem.describe_size()}; at most {_WORLDS:,} are "
                    "listed. Use Fuzzy(...) or Sampled(...) for this axiom"
                )
            worlds = problem.worlds(0, problem.num_worlds)
            self._holding[id(problem)] = (problem, worlds[problem(worlds)[:, 0] == 1])
        return self._holding[id(problem)][1]

    def explain(self, data: Mapping[str, Any]) -> str:
        lines = ["truth values, not probabilities; no independence is assumed"]
        for poser in self.posers:
            for problem, _, units in poser.posed(**data).problems:
                lines.append(f"{len(units):,} times {len(self._worlds(problem)):,} rules from {problem}")
        return "\n".join(lines)
