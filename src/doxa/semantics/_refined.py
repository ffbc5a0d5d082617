"""Refined semantics: how far the knowledge lets the best world through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from doxa.errors import BudgetError, ProblemError
from doxa.logic import Axiom, Interpretation
from doxa.pose import PosedAxiom, ProblemBatch
from doxa.pose._poser import undefined
from doxa.problem import Problem
from doxa.problem._mixture import one_belief
from doxa.semantics._probabilistic import Probabilistic
from doxa.semantics._semantics import Compiled, Generator, Semantics

if TYPE_CHECKING:  # the operators are loaded when a semantics is made, not when its name is looked up
    from doxa.fuzzy import TNorm


@dataclass(frozen=True)
class Refined(Semantics):
    r"""Refinement (Chapter 4): what the network believes is moved as little as the knowledge needs, and then judged.

    Every world w in which an instance of an axiom holds is a rule :math:`w_1 ∧ … ∧ w_n → φ`, and the truth of φ starts
    at 0. One minimal refinement of all rules to truth 1 gives φ the truth

    .. math:: t = \max_{w ⊨ φ} T(P_1(w_1), …, P_n(w_n)),

    as in the addition layer of Chapter 4; an instance that no possible world violates is true. In the same way ¬φ gets
    the truth f of the best world that violates it. The loss of an instance is that of a choice between the two, as the
    layer is trained in Chapter 4,

    .. math:: -\log \frac{t}{t + f},

    so the best world that holds becomes more probable, and the best that does not less. Of one variable alone f is
    1 - t, so a label costs its cross entropy. `Model.truth` is t of the weakest instance. Learning may end in a local
    minimum: the gradient sees two worlds of an instance, and no others.

    Args:
        logic: whose conjunction is T, by name: "godel", "lukasiewicz", "product", …
        quantifier, impossible, budget: see `Semantics`; at most ``budget.worlds`` worlds are listed.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> model.truth(semantics=Refined())                   # the best world: rain and wet, min(.9, .3)
    {'soaked': tensor(0.3000)}
    """

    caution: ClassVar[str] = (
        "refinement looks at the best two worlds of a row alone, so learning may end in a local minimum (on sums of "
        "digits some digits are taken for others); compare with exact or fuzzy"
    )

    logic: str = "godel"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.conjunction()  # complains about a logic that there is not

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return _Compiled(axioms, interpretation, self)

    def conjunction(self) -> TNorm:
        """T, the conjunction of the logic."""
        from doxa.fuzzy import TNorm
        from doxa.fuzzy import logic as logic_by_name

        found = logic_by_name(self.logic).conj
        if not isinstance(found, TNorm):
            raise ProblemError(f"the conjunction of {self.logic} is {found}, expected a t-norm")
        return found


class _Compiled(Probabilistic):
    how: Refined

    def log_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        return _log(self.batch_truths(posed, batch, generator))

    def batch_losses(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        true, false = self._refined(posed, batch)
        found = _log(true / (true + false).clamp(min=torch.finfo(true.dtype).tiny))
        return found.detach().clamp(min=0.0) - found  # not -0.0

    def batch_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        return self._refined(posed, batch)[0]

    def _refined(self, posed: PosedAxiom, batch: ProblemBatch) -> tuple[Tensor, Tensor]:
        """The refined truths of the instances and of their negations, ``(instances,)`` each."""
        problem, probs = batch.problem, one_belief(batch.belief).log_probs.exp()
        if problem.num_worlds > self.how.budget.worlds:
            raise BudgetError(
                "worlds",
                f"refinement lists worlds, and there are {problem.describe_size()}, more than Budget(worlds="
                f"{self.how.budget.worlds:,}); raise it, or use Fuzzy(...) or Sampled(...) for this axiom",
            )
        worlds, computed = self._worlds(problem)
        worlds = worlds.to(probs.device)
        columns = torch.stack([probs[:, i, :].index_select(-1, worlds[:, i]) for i in range(worlds.shape[1])])
        truths = self.how.conjunction().reduce(columns, 0)  # (instances, worlds)
        if batch.given is None:
            outputs = computed.to(probs.device).unsqueeze(0)
        else:
            outputs = problem(worlds.unsqueeze(0), batch.given.unsqueeze(1))
        for output in batch.partial:
            if bool(((outputs[..., output] == len(batch.outputs[output]) - 1) & (truths > 0)).any()):
                raise undefined(posed.axiom)
        holds = (outputs == batch.observed.unsqueeze(1)).all(-1)
        violated = (~holds & ~(columns.detach().amin(0) <= 0)).any(-1)  # in a world that is possible
        best, worst = (truths.masked_fill(~which, 0.0).amax(-1) for which in (holds, ~holds))
        if len(columns) == 1:  # the truths of all values add up to 1 as they are
            worst = 1 - best
        return torch.where(violated, best, 1.0), torch.where(violated, worst, 0.0)

    def _worlds(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """All worlds, and their outputs where nothing is given, once for each problem."""

        def make() -> tuple[Tensor, Tensor]:
            worlds = problem.worlds()
            return worlds, worlds if problem.given else problem(worlds)

        found: tuple[Tensor, Tensor] = self.interpretation.plans.find(("worlds", problem), make)
        return found

    def together(self, truths: Tensor) -> Tensor:
        """The truth of an axiom is that of its weakest instance."""
        return torch.cat([truths, truths.new_ones(1)]).amin()

    def describe(self, posed: PosedAxiom, batch: ProblemBatch) -> str:
        return f"the best of {batch.problem.num_worlds:,} worlds by {self.how.logic}; a truth value, not a probability"


def _log(truths: Tensor) -> Tensor:
    """log t; -inf at 0, with a finite derivative."""
    return torch.where(truths <= 0, -torch.inf, truths.clamp(min=torch.finfo(truths.dtype).tiny).log())
